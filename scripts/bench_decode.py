"""Decoding speed: xyd's cached search beside the same model without a cache, in turns, in one run.

    python scripts/bench_decode.py [--shape tiny|base] [--rounds 3] [--sentences 64] [--length 15]

Weights are random and EOS is forbidden, so every sentence gets exactly `--length` tokens. Without a cache each step
decodes the whole prefix again, as tutorials have it. The last line is JSON; ratios are cached / uncached.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch

from xyd.batching import pad_sources
from xyd.config import BOS_ID, EOS_ID
from xyd.decode import beam_search, greedy
from xyd.model import KVCache, Transformer

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from bench_train import SHAPES


class Cached:
    """decode's step function over the cache."""

    def __init__(self, model: Transformer, cache: KVCache) -> None:
        self.model, self.cache = model, cache
        self.reorder, self.keep = cache.reorder, cache.keep

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.decode_step(ids, self.cache).index_fill(1, torch.tensor([EOS_ID]), -1e9)


def uncached_greedy(model: Transformer, src: torch.Tensor, src_mask: torch.Tensor, length: int) -> torch.Tensor:
    """Greedy search that decodes the whole prefix at each step."""
    memory = model.encode(src, src_mask)
    ids = torch.full((len(src), 1), BOS_ID)
    for _ in range(length):
        logits = model.project(model.decode(ids, memory, src_mask)[:, -1])
        logits[:, EOS_ID] = -1e9
        ids = torch.cat([ids, logits.argmax(1, keepdim=True)], dim=1)
    return ids


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--length", type=int, default=15)
    options = parser.parse_args()
    torch.manual_seed(1)
    vocab_size, config = SHAPES[options.shape]
    model = Transformer(config, vocab_size).eval()
    rng = np.random.default_rng(1)
    src, src_mask = pad_sources([rng.integers(300, vocab_size, rng.integers(8, 25)) for _ in range(options.sentences)])
    starts = torch.full((options.sentences,), BOS_ID)
    limits = torch.full((options.sentences,), options.length)

    def search(beam_size: int) -> None:
        cache = model.start_cache(model.encode(src, src_mask), src_mask, options.length + 1)
        step = Cached(model, cache)
        if beam_size == 1:
            greedy(step, starts, limits, [], EOS_ID)
        else:
            beam_search(step, starts, limits, [], EOS_ID, beam_size, 1.0)

    systems = {
        "greedy": lambda: search(1),
        "beam5": lambda: search(5),
        "uncached": lambda: uncached_greedy(model, src, src_mask, options.length),
    }
    tokens = options.sentences * options.length
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    with torch.inference_mode():
        for _ in range(options.rounds + 1):  # the first round warms up
            for name, run in systems.items():
                began = time.perf_counter()
                run()
                speeds[name].append(tokens / (time.perf_counter() - began))
                print(f"{name:9} {speeds[name][-1]:8.0f} target tokens/s", flush=True)
    medians = {name: statistics.median(found[1:]) for name, found in speeds.items()}
    ratios = {"greedy_vs_uncached": round(medians["greedy"] / medians["uncached"], 2)}
    print(json.dumps({"ratios": ratios, "tokens_per_second": {k: round(v) for k, v in medians.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
