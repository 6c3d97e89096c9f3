"""Training speed: xyd beside a plain torch loop, in turns, in one run.

    python scripts/bench_train.py [--shape tiny|base] [--rounds 3] [--seconds 15] [--workers 2]

Both train on the same made-up sentences (lengths like captions: 8 to 25 tokens) with ~4,096 real target tokens a step,
the same shape, dropout 0.1 at the same places and AdamW. The plain loop is `nn.Transformer` in fp32 on shuffled,
padded batches with full logits, as tutorials have it. Each measurement is a process of its own: real target tokens per
second after a warm-up step, and the peak memory of all its processes. The last line is JSON; speed ratios are
xyd / plain, memory is xyd / plain too.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from xyd import distributed
from xyd.batching import collate_fn, plan_epoch, share
from xyd.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig, TrainConfig
from xyd.loss import token_loss
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer

SHAPES = {
    "tiny": (
        10_000,
        ModelConfig(d_model=128, num_encoder_layers=4, num_decoder_layers=4, num_heads=4, d_ff=256, dropout=0.1),
    ),
    "base": (48_000, ModelConfig(dropout=0.1)),
}
TOKENS_PER_STEP = 4096


def sentences(vocab_size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """4,000 made-up pairs of bare ids."""
    rng = np.random.default_rng(1)
    src_lengths = rng.integers(8, 25, 4000)
    tgt_lengths = np.clip(src_lengths + rng.integers(-3, 4, 4000), 3, 30)
    make = [[rng.integers(300, vocab_size, n) for n in lengths] for lengths in (src_lengths, tgt_lengths)]
    return make[0], make[1]


def train_xyd(shape: str, seconds: float) -> tuple[int, float]:
    """(tokens, seconds) of the timed steps, on this rank's share of each; the sums are the step's."""
    device = torch.device("cpu")
    distributed.start(device)
    torch.set_num_threads(max(1, distributed.num_cores() // distributed.world_size()))
    torch.manual_seed(1)
    vocab_size, config = SHAPES[shape]
    src, tgt = sentences(vocab_size)
    src_lengths, tgt_lengths = (np.array([len(x) for x in rows]) for rows in (src, tgt))
    model = Transformer(config, vocab_size)
    gradients = Gradients(model, distributed.choose_dtype("auto", device))
    optimizer = build_optimizer(model, TrainConfig())
    steps = plan_epoch(src_lengths, tgt_lengths, max_tokens=4096, tokens_per_step=TOKENS_PER_STEP, seed=1, epoch=0)

    def step(micro_batches: list[np.ndarray]) -> int:
        num_tokens = sum(int(tgt_lengths[rows].sum()) + len(rows) for rows in micro_batches)
        costs = [len(rows) * int(src_lengths[rows].max() + tgt_lengths[rows].max()) for rows in micro_batches]
        gradients.zero()
        for i in share(costs, distributed.world_size())[distributed.rank()]:
            rows = micro_batches[i]
            starts = np.full(len(rows), BOS_ID)
            batch = collate_fn([src[r] for r in rows], [tgt[r] for r in rows], starts, rows)
            states = gradients.work(batch.src, batch.src_mask, batch.tgt_in)
            (token_loss(states, batch.tgt_out, gradients.work.output, 0.0).loss_sum / num_tokens).backward()
            gradients.collect()
        distributed.sum_in_place(gradients.buffer)
        gradients.clip(float(gradients.norm()), 1.0)
        optimizer.step()
        gradients.refresh()
        return num_tokens

    return timed(step, steps, seconds)


def train_plain(shape: str, seconds: float) -> tuple[int, float]:
    """The loop of the tutorials, on the same sentences."""
    torch.manual_seed(1)
    vocab_size, c = SHAPES[shape]
    src, tgt = sentences(vocab_size)
    embedding = nn.Embedding(vocab_size, c.d_model, padding_idx=PAD_ID)
    nn.init.normal_(embedding.weight, std=c.d_model**-0.5)
    positions = nn.Embedding(c.max_length, c.d_model)
    body = nn.Transformer(
        c.d_model, c.num_heads, c.num_encoder_layers, c.num_decoder_layers, c.d_ff, c.dropout, batch_first=True,
        norm_first=True,
    )  # fmt: skip
    optimizer = torch.optim.AdamW([*embedding.parameters(), *positions.parameters(), *body.parameters()], lr=1e-4)
    order = np.random.default_rng(1).permutation(len(src))
    batches: list[list[int]] = [[]]
    tokens = 0
    for i in order:
        batches[-1].append(i)
        tokens += len(tgt[i]) + 1
        if tokens >= TOKENS_PER_STEP:
            batches.append([])
            tokens = 0

    def embed(ids: torch.Tensor) -> torch.Tensor:
        return F.dropout(embedding(ids) * c.d_model**0.5 + positions.weight[: ids.shape[1]], c.dropout)

    def step(rows: list[int]) -> int:
        batch = collate_fn([src[r] for r in rows], [tgt[r] for r in rows], np.full(len(rows), BOS_ID), np.array(rows))
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt_in.shape[1]).bool()
        padding = ~batch.src_mask
        states = body(
            embed(batch.src), embed(batch.tgt_in), tgt_mask=causal, src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip
        logits = F.linear(states, embedding.weight)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=PAD_ID)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(body.parameters(), 1.0)
        optimizer.step()
        return batch.num_tokens

    return timed(step, [b for b in batches if b], seconds)


def timed(step, items, seconds: float) -> tuple[int, float]:  # type: ignore[no-untyped-def]
    """(tokens, seconds) of whole steps after one that warms up."""
    step(items[0])
    tokens, began, i = 0, time.perf_counter(), 1
    while True:
        tokens += step(items[i % len(items)])
        i += 1
        is_over = torch.tensor([float(time.perf_counter() - began > seconds)])
        if distributed.sum_in_place(is_over) > 0:  # all ranks leave after the same step
            return tokens, time.perf_counter() - began


def _measure(system: str, shape: str, seconds: float, results) -> int:  # type: ignore[no-untyped-def]
    tokens, took = (train_xyd if system == "xyd" else train_plain)(shape, seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    results.put((distributed.rank(), tokens / took, peak))
    distributed.stop()
    return 0


def measure(system: str, shape: str, seconds: float, workers: int) -> tuple[float, float]:
    """(target tokens per second, MB of peak memory summed over processes) of one run in processes of its own."""
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.Queue()
        code = distributed.launch(_measure, workers if system == "xyd" else 1, (system, shape, seconds, results))
        assert code == 0, f"{system}: exit code {code}"
        found = sorted(results.get() for _ in range(workers if system == "xyd" else 1))
    return found[0][1], sum(peak for *_, peak in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"{options.shape}, {os.cpu_count()} cores, torch {torch.__version__}, {options.workers} worker(s) for xyd")
    assert EOS_ID != PAD_ID
    speeds: dict[str, list[float]] = {"xyd": [], "plain": []}
    peaks: dict[str, list[float]] = {"xyd": [], "plain": []}
    for _ in range(options.rounds):
        for system in speeds:
            speed, peak = measure(system, options.shape, options.seconds, options.workers)
            speeds[system].append(speed)
            peaks[system].append(peak)
            print(f"{system:6} {speed:8.0f} target tokens/s  {peak:7.0f} MB", flush=True)
    pairs = list(zip(speeds["xyd"], speeds["plain"], strict=True))
    memory = statistics.median(peaks["xyd"]) / statistics.median(peaks["plain"])
    ratios = {
        f"train_{options.shape}_vs_plain": round(statistics.median(a / b for a, b in pairs), 2),
        f"memory_{options.shape}_vs_plain": round(memory, 2),
    }
    print(json.dumps({"ratios": ratios, "tokens_per_second": {k: [round(x) for x in v] for k, v in speeds.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
