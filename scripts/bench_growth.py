"""How time and memory grow: with a batch's tokens, length, vocabulary, beams and workers; and what grows in a line.

    python scripts/bench_growth.py [--seconds 3] [--device cpu|cuda]

One size is changed at a time, on made-up sentences of one length, in a process of its own on one core (workers: one
core each). Training is the forward and backward pass of one micro-batch, decoding the search of one batch a worker.
Memory is the peak of the process beyond what it had before the first batch. The last line is JSON: the tables, and for
each of them `growth`, the exponent of the fit (time a token) ~ size^growth: 0 where time grows in a line with tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

from bench_rounds import Order, Result, measure, peak_memory_mb, say, serve

BASE: dict[str, Any] = {"d_model": 128, "layers": 4, "heads": 4, "d_ff": 256, "vocab": 10_000}
TRAIN: dict[str, Any] = {"work": "train", "tokens": 4096, "length": 16, **BASE}
DECODE: dict[str, Any] = {"work": "decode", "tokens": 2048, "length": 16, "beam": 5, **BASE}
TABLES: dict[str, tuple[dict[str, Any], str, list[int]]] = {
    "training, tokens of a micro-batch (both sides)": (TRAIN, "tokens", [1024, 2048, 4096, 8192, 16384]),
    "training, length of a sentence": (TRAIN, "length", [16, 32, 64, 128, 256, 512]),
    "training, vocabulary": (TRAIN, "vocab", [8_000, 16_000, 32_000, 64_000]),
    "decoding, tokens of a batch": ({**DECODE, "beam": 1}, "tokens", [256, 512, 1024, 2048, 4096]),
    "decoding, length of a sentence": (DECODE, "length", [16, 32, 64, 128, 256, 512]),
    "decoding, vocabulary": (DECODE, "vocab", [8_000, 16_000, 32_000, 64_000]),
    "decoding, beams": (DECODE, "beam", [1, 2, 5, 10]),
    "decoding, workers": ({**DECODE, "tokens": 4096}, "workers", [1, 2]),
}


def _measure(order: Order) -> Result:
    import numpy as np
    import torch

    from xyd import distributed
    from xyd.batching import collate_fn
    from xyd.config import BOS_ID, EOS_ID, DecodeConfig, ModelConfig
    from xyd.loss import token_loss
    from xyd.model import Transformer
    from xyd.optim import Gradients
    from xyd.search import Searcher

    device, workers, length = torch.device(order["device"]), order.get("workers", 1), order["length"]
    torch.set_num_threads(workers)
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=order["d_model"], num_encoder_layers=order["layers"], num_decoder_layers=order["layers"],
        num_heads=order["heads"], d_ff=order["d_ff"], max_length=600,
    )  # fmt: skip
    model = Transformer(config, order["vocab"]).to(device)
    with torch.no_grad():
        model.output.bias[EOS_ID] = -1e4
    rng = np.random.default_rng(1)
    sides = 2 if order["work"] == "train" else order["beam"]
    size = max(1, order["tokens"] // (sides * length)) * (workers if order["work"] == "decode" else 1)
    rows = [rng.integers(300, 8000, length - 1) for _ in range(size)]

    if order["work"] == "train":
        gradients = Gradients(model, distributed.choose_dtype("auto", device))
        batch = collate_fn(rows, rows, np.full(size, BOS_ID), np.arange(size)).to(device)

        def once() -> int:
            gradients.zero()
            states = gradients.work(batch.src, batch.src_mask, batch.tgt_in)
            token_loss(states, batch.tgt_out, gradients.work.output, 0.1).loss_sum.backward()
            gradients.collect()
            return batch.num_tokens
    else:
        decode = DecodeConfig(max_tokens=order["tokens"], workers=workers)
        searcher = Searcher(model.eval(), decode, device, [0, BOS_ID])
        sources = [row.tolist() for row in rows]

        def once() -> int:
            searcher.search(sources, BOS_ID, [length - 1] * size, order["beam"], 1.0)
            return size * length

    before = peak_memory_mb()
    once()
    tokens, began = 0, time.perf_counter()
    while not tokens or time.perf_counter() - began < order["seconds"]:
        tokens += once()
        if device.type == "cuda":
            torch.cuda.synchronize()
    took = time.perf_counter() - began
    return {"figure": 1e6 * took / tokens, "unit": "µs a token", "memory_mb": round(peak_memory_mb() - before, 1)}


def growth(sizes: list[int], values: list[float]) -> float:
    """The exponent of the best fit values ~ sizes^exponent."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return round(slope / sum((a - x_mean) ** 2 for a in x), 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="least time of a figure")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for title, (fixed, name, sizes) in TABLES.items():
        say(f"\n| {title} | µs a target token | MB |\n|---:|---:|---:|")
        points = []
        for value in sizes:
            order = {**fixed, name: value, "seconds": options.seconds, "device": options.device}
            result = measure("bench_growth.py", {**order, "system": "xyd", "environment": {"GOMP_SPINCOUNT": "1000"}})
            points.append((value, result["figure"], result["memory_mb"]))
            say(f"| {value:,} | {result['figure']:.1f} | {result['memory_mb']:,.0f} |")
        exponent = growth(sizes, [figure for _, figure, _ in points])
        report[title] = {"points": points, "growth": exponent}
        say(f"\ntime a token ~ size^{exponent}")
    print(json.dumps({"tables": report, "shape": BASE}))
    return 0


if __name__ == "__main__":
    sys.exit(0 if serve(_measure) else main())
