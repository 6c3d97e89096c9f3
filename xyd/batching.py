"""Rows of a prepared split become padded batches. Special ids are added here and nowhere else.

`src` ends with EOS; `tgt_in` starts with BOS, or with the target language's tag when the run has several directions;
`tgt_out` is `tgt_in` shifted by one and ends with EOS. An epoch is a list of steps, each a list of micro-batches, made
from (seed, epoch) alone: no number of workers changes which pairs form a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from xyd.allocator import no_search_for_cycles
from xyd.config import BOS_ID, EOS_ID, PAD_ID


@runtime_checkable
class Split(Protocol):
    """What batching needs to know of corpus.PreparedSplit."""

    src_lengths: np.ndarray
    tgt_lengths: np.ndarray
    direction: np.ndarray
    pair_id: np.ndarray

    def src_ids(self, i: int) -> np.ndarray: ...
    def tgt_ids(self, i: int) -> np.ndarray: ...


@runtime_checkable
class Tags(Protocol):
    """What batching needs to know of tokenizer.Tokenizer."""

    def tag_id(self, lang: str) -> int: ...


@dataclass(frozen=True)
class Batch:
    """A padded micro-batch. Masks are True where a source position is real; `num_tokens` counts real `tgt_out`."""

    src: Int[Tensor, "B S"]
    src_mask: Bool[Tensor, "B S"]
    tgt_in: Int[Tensor, "B T"]
    tgt_out: Int[Tensor, "B T"]
    num_tokens: int
    pair_ids: np.ndarray

    def to(self, device: torch.device) -> "Batch":
        moved = {name: getattr(self, name).to(device) for name in ("src", "src_mask", "tgt_in", "tgt_out")}
        return replace(self, **moved)


def start_id(tokenizer: Tags, directions: Sequence[str], tgt_lang: str) -> int:
    """The decoder's first id: the target language's tag when the run has several directions, else BOS."""
    return tokenizer.tag_id(tgt_lang) if len(directions) > 1 else BOS_ID


def start_ids(tokenizer: Tags, directions: Sequence[str]) -> np.ndarray:
    """`start_id` for every direction ("en-zh"), in order: (number of directions,) int64."""
    return np.array([start_id(tokenizer, directions, d.split("-")[1]) for d in directions], dtype=np.int64)


def pad(rows: Sequence[np.ndarray]) -> Int[Tensor, "B T"]:
    """Rows of ids, filled up with PAD to the longest of them."""
    padded = np.full((len(rows), max(map(len, rows))), PAD_ID, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def pad_sources(rows: Sequence[np.ndarray | Sequence[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Bare source ids → `src` with EOS at the end of each row, and its mask: no row is ever empty."""
    src = pad([np.append(np.asarray(row, dtype=np.int64), EOS_ID) for row in rows])
    return src, src != PAD_ID


def collate_fn(
    src_rows: Sequence[np.ndarray], tgt_rows: Sequence[np.ndarray], starts: np.ndarray, pair_ids: np.ndarray
) -> Batch:
    """Bare ids of B pairs, and the decoder's first id of each → a Batch."""
    src, src_mask = pad_sources(src_rows)
    tgt_out = pad([np.append(row, EOS_ID) for row in tgt_rows])
    tgt_in = torch.cat([torch.from_numpy(starts)[:, None], tgt_out[:, :-1]], dim=1)
    tgt_in.masked_fill_(tgt_in == EOS_ID, PAD_ID)  # the end mark of shorter rows is an answer, never an input
    return Batch(src, src_mask, tgt_in, tgt_out, sum(len(row) + 1 for row in tgt_rows), pair_ids)


def make_batch(split: Split, rows: np.ndarray, start_ids: np.ndarray) -> Batch:
    """The Batch of these rows of a split; `start_ids` as from the function of that name."""
    return collate_fn(
        [split.src_ids(i) for i in rows],
        [split.tgt_ids(i) for i in rows],
        start_ids[split.direction[rows]],
        split.pair_id[rows],
    )


def batches_by_tokens(src_lengths: np.ndarray, tgt_lengths: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Rows cut, in order of length, into batches of at most `max_tokens` padded tokens, B·(S+T), both with specials.

    A single row larger than the budget is a batch of its own. Used for evaluation: every row once, longest first.
    """
    order = np.lexsort((src_lengths, tgt_lengths))[::-1]
    return cut(order, src_lengths + 1, tgt_lengths + 1, max_tokens)


def cut(order: np.ndarray, src_lengths: np.ndarray, tgt_lengths: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Neighbours in `order` → batches with B·(longest S + longest T) ≤ max_tokens."""
    src, tgt = src_lengths[order], tgt_lengths[order]
    batches, start, window = [], 0, 256
    while start < len(order):
        some = slice(start, start + window)
        widest = np.maximum.accumulate(src[some]) + np.maximum.accumulate(tgt[some])
        padded = widest.astype(np.int64) * np.arange(1, len(widest) + 1)
        size = max(1, int(np.searchsorted(padded, max_tokens, side="right")))  # padded tokens only grow
        if size == window and start + window < len(order):
            window *= 2  # the batch may be longer than what was looked at
            continue
        batches.append(order[start : start + size])
        start += size
        window = max(64, size + size // 2)
    return batches


@no_search_for_cycles()
def plan_epoch(
    src_lengths: np.ndarray,
    tgt_lengths: np.ndarray,
    rows: np.ndarray | None = None,
    *,
    max_tokens: int,
    tokens_per_step: int,
    seed: int,
    epoch: int,
) -> list[list[np.ndarray]]:
    """All steps of one epoch, each a list of micro-batches of rows. Every one of `rows` as often as it stands there
    (None = every row once); nothing dropped.

    Rows are shuffled, sorted by length so that neighbours are alike on both sides (source length runs up and down in
    turn inside each target length), cut by `max_tokens` from a random place on, and the micro-batches shuffled. A step
    takes micro-batches until it is as near to `tokens_per_step` real target tokens as it can be; a small rest joins the
    step before it. Lengths are of bare ids.
    """
    generator = np.random.default_rng([seed, epoch])
    shuffled = generator.permutation(len(src_lengths)) if rows is None else generator.permutation(rows)
    src, tgt = src_lengths[shuffled] + 1, tgt_lengths[shuffled] + 1
    snake = np.where(tgt % 2 == 0, src, -src)
    order = _argsort(snake)
    order = shuffled[order[_argsort(tgt[order])]]
    order = np.roll(order, generator.integers(len(order) + 1))  # the cuts fall elsewhere in each epoch
    batches = cut(order, src_lengths + 1, tgt_lengths + 1, max_tokens)
    batches = [batches[i] for i in generator.permutation(len(batches))]
    starts = np.cumsum([0, *map(len, batches[:-1])])
    all_rows = np.concatenate([np.zeros(0, np.int64), *batches])
    sums = np.add.reduceat(tgt_lengths[all_rows] + 1, starts, dtype=np.int64) if batches else np.zeros(0, np.int64)
    steps: list[list[np.ndarray]] = [[]]
    tokens = 0
    for batch, more in zip(batches, sums.tolist(), strict=True):
        if steps[-1] and tokens + more - tokens_per_step > tokens_per_step - tokens:
            steps.append([])
            tokens = 0
        steps[-1].append(batch)
        tokens += more
        if tokens >= tokens_per_step:
            steps.append([])
            tokens = 0
    if len(steps) > 1 and tokens < tokens_per_step / 2:
        rest = steps.pop()
        steps[-1].extend(rest)
    return [step for step in steps if step]


def _argsort(values: np.ndarray) -> np.ndarray:
    """Stable; of lengths it is several times faster in 16 bits, where numpy sorts by radix."""
    fits = len(values) == 0 or (values.min() >= -(2**15) and values.max() < 2**15)
    return np.argsort(values.astype(np.int16) if fits else values, kind="stable")


def shape(split: Split, rows: np.ndarray) -> tuple[int, int, int]:
    """B, S and T of a micro-batch."""
    return len(rows), int(split.src_lengths[rows].max()) + 1, int(split.tgt_lengths[rows].max()) + 1


def extremes(split: Split, steps: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The largest micro-batch of a plan, by padded tokens, and, where it is another, the one with the longest row."""
    everything = [rows for step in steps for rows in step]
    sizes = np.array([len(rows) for rows in everything])
    starts, rows = np.cumsum(sizes) - sizes, np.concatenate(everything)
    S, T = (np.maximum.reduceat(lengths[rows] + 1, starts) for lengths in (split.src_lengths, split.tgt_lengths))
    widths = S + T
    largest, longest = int(np.argmax(sizes * widths)), int(np.argmax(widths))
    return [everything[largest]] + ([everything[longest]] if widths[longest] > widths[largest] else [])


def share(costs: Sequence[int], num_ranks: int) -> list[list[int]]:
    """Which micro-batches of a step each rank computes: the costliest first, each to the rank with least so far."""
    shares: list[list[int]] = [[] for _ in range(num_ranks)]
    load = [0] * num_ranks
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        r = load.index(min(load))
        shares[r].append(i)
        load[r] += costs[i]
    return shares
