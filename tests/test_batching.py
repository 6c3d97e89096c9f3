"""batching: shifted and padded as teacher forcing wants it; every row once, within budget, drawn from everywhere."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.batching import batches_by_tokens, collate_fn, make_batch, pad_sources, plan_epoch, share, start_id, start_ids
from xyd.config import BOS_ID, EOS_ID, PAD_ID

quick = settings(max_examples=60, deadline=None, derandomize=True)
pairs_of_lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=120)


@dataclass
class Tags:
    tags: dict[str, int]

    def tag_id(self, lang: str) -> int:
        return self.tags[lang]


class MadeUpSplit:
    """A prepared split whose ids tell row, side and place."""

    def __init__(self, lengths: list[tuple[int, int]], num_directions: int = 1) -> None:
        self.src_lengths = np.array([s for s, _ in lengths], dtype=np.int32)
        self.tgt_lengths = np.array([t for _, t in lengths], dtype=np.int32)
        self.direction = (np.arange(len(lengths)) % num_directions).astype(np.int16)
        self.pair_id = np.arange(len(lengths), dtype=np.int64) + 1000

    def src_ids(self, i: int) -> np.ndarray:
        return (10_000 + 100 * i + np.arange(self.src_lengths[i])).astype(np.int32)

    def tgt_ids(self, i: int) -> np.ndarray:
        return (20_000 + 100 * i + np.arange(self.tgt_lengths[i])).astype(np.int32)


def arrays(lengths: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in lengths], dtype=np.int32), np.array([t for _, t in lengths], dtype=np.int32)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


# ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_collate_fn_shifts_and_pads() -> None:
    batch = collate_fn(
        [ids(412, 88, 7), ids(5)], [ids(391, 1207), ids(30, 31, 32)], np.array([BOS_ID, 6]), np.array([17, 4])
    )
    assert batch.src.tolist() == [[412, 88, 7, EOS_ID], [5, EOS_ID, PAD_ID, PAD_ID]]
    assert batch.src_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.tgt_in.tolist() == [[BOS_ID, 391, 1207, PAD_ID], [6, 30, 31, 32]]
    assert batch.tgt_out.tolist() == [[391, 1207, EOS_ID, PAD_ID], [30, 31, 32, EOS_ID]]
    assert batch.num_tokens == 7
    assert batch.pair_ids.tolist() == [17, 4]
    assert batch.src.dtype == batch.tgt_in.dtype == batch.tgt_out.dtype == torch.int64
    assert batch.src_mask.dtype == torch.bool


@quick
@given(pairs_of_lengths, st.integers(1, 6))
def test_a_batch_holds_what_the_split_holds(lengths: list[tuple[int, int]], num_directions: int) -> None:
    split = MadeUpSplit(lengths, num_directions)
    starts = np.arange(num_directions, dtype=np.int64) + 4
    rows = np.random.default_rng(0).permutation(len(lengths))
    batch = make_batch(split, rows, starts)
    assert batch.src.shape == (len(rows), split.src_lengths.max() + 1)
    assert batch.tgt_in.shape == batch.tgt_out.shape == (len(rows), split.tgt_lengths.max() + 1)
    assert batch.num_tokens == int((batch.tgt_out != PAD_ID).sum()) == int((split.tgt_lengths + 1).sum())
    assert not (batch.tgt_in == EOS_ID).any()  # an end is an answer, never an input
    assert batch.src_mask.any(dim=1).all()
    for i, row in enumerate(rows.tolist()):
        S, T = int(split.src_lengths[row]) + 1, int(split.tgt_lengths[row]) + 1
        assert batch.src[i, :S].tolist() == [*split.src_ids(row).tolist(), EOS_ID]
        assert batch.tgt_out[i, :T].tolist() == [*split.tgt_ids(row).tolist(), EOS_ID]
        assert batch.tgt_in[i, 0] == starts[row % num_directions]
        assert batch.tgt_in[i, 1:T].tolist() == batch.tgt_out[i, : T - 1].tolist()
        assert batch.src_mask[i].tolist() == [True] * S + [False] * (batch.src.shape[1] - S)
        assert (batch.src[i, S:] == PAD_ID).all()
        assert (batch.tgt_in[i, T:] == PAD_ID).all()
        assert (batch.tgt_out[i, T:] == PAD_ID).all()
        assert batch.pair_ids[i] == 1000 + row


def test_sources_are_padded_alike_for_training_and_translation() -> None:
    src, src_mask = pad_sources([[7, 8], []])
    assert src.tolist() == [[7, 8, EOS_ID], [EOS_ID, PAD_ID, PAD_ID]]
    assert src_mask.tolist() == [[True, True, True], [True, False, False]]
    batch = collate_fn([ids(7, 8), ids()], [ids(9), ids(9)], np.array([BOS_ID] * 2), np.array([0, 1]))
    assert torch.equal(batch.src, src)
    assert torch.equal(batch.src_mask, src_mask)


def test_a_batch_moves_as_one() -> None:
    batch = collate_fn([ids(7, 8)], [ids(9)], np.array([BOS_ID]), np.array([0])).to(torch.device("meta"))
    assert {t.device.type for t in (batch.src, batch.src_mask, batch.tgt_in, batch.tgt_out)} == {"meta"}
    assert batch.num_tokens == 2


@pytest.mark.need(32)
def test_the_decoder_starts_with_the_target_language_where_there_are_several_directions() -> None:
    tags = Tags({"en": 4, "zh": 5})
    assert start_ids(tags, ["en-zh", "zh-en"]).tolist() == [5, 4]
    assert start_ids(tags, ["en-zh"]).tolist() == [BOS_ID]
    assert start_id(tags, ["en-zh", "zh-en"], "en") == 4
    with pytest.raises(KeyError):
        start_id(tags, ["en-zh", "zh-en"], "fr")


# ── one epoch ────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(lengths: list[tuple[int, int]], **changes: Any) -> list[list[np.ndarray]]:
    settings = {"max_tokens": 200, "tokens_per_step": 300, "seed": 1, "epoch": 0, **changes}
    return plan_epoch(*arrays(lengths), **settings)


def listed(steps: list[list[np.ndarray]]) -> list[list[list[int]]]:
    return [[batch.tolist() for batch in step] for step in steps]


@quick
@given(pairs_of_lengths, st.integers(2, 400), st.integers(1, 600), st.integers(0, 3))
def test_an_epoch_holds_every_row_once_within_the_budget(
    lengths: list[tuple[int, int]], max_tokens: int, tokens_per_step: int, epoch: int
) -> None:
    steps = plan(lengths, max_tokens=max_tokens, tokens_per_step=tokens_per_step, epoch=epoch)
    batches = [batch for step in steps for batch in step]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(step for step in steps)
    split = MadeUpSplit(lengths)
    for batch in batches:
        made = make_batch(split, batch, np.array([BOS_ID]))
        assert made.src.numel() + made.tgt_in.numel() <= max_tokens or len(batch) == 1

    # Real target tokens of a step: as near to tokens_per_step as whole micro-batches allow.
    tokens = [[int(split.tgt_lengths[batch].sum()) + len(batch) for batch in step] for step in steps]
    largest = max(map(max, tokens))
    for step_tokens in tokens[:-1]:
        assert abs(sum(step_tokens) - tokens_per_step) <= largest / 2 or len(step_tokens) == 1
    if len(steps) > 1:  # a rest of less than half a step is none of its own
        assert sum(tokens[-1]) >= tokens_per_step / 2
        assert sum(tokens[-1]) <= max(1.5 * tokens_per_step + largest / 2, largest + tokens_per_step / 2)


def test_the_plan_hangs_on_seed_and_epoch_alone() -> None:
    rng = np.random.default_rng(5)
    lengths = [(int(a), int(b)) for a, b in rng.integers(1, 9, (3000, 2))]
    first = listed(plan(lengths))
    torch.manual_seed(99)
    np.random.seed(99)
    assert listed(plan(lengths)) == first
    seen = [first]
    for changes in ({"epoch": 1}, {"epoch": 2}, {"seed": 2}):
        other = listed(plan(lengths, **changes))
        assert other not in seen
        # Not only the order of micro-batches is new, but also which rows meet in one.
        old = {frozenset(batch) for step in first for batch in step}
        new = {frozenset(batch) for step in other for batch in step}
        assert len(old & new) < len(new) / 4
        seen.append(other)


def test_neighbours_are_alike_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    src = np.clip(rng.lognormal(2.8, 0.6, 20_000), 1, 200)
    tgt = np.clip(src * rng.lognormal(0.0, 0.2, 20_000), 1, 200)
    lengths = [(int(s), int(t)) for s, t in zip(src, tgt, strict=True)]
    s, t = (a + 1 for a in arrays(lengths))

    def padding(batches: list[np.ndarray]) -> float:
        room = sum(len(b) * int(s[b].max() + t[b].max()) for b in batches)
        return 1 - int(s.sum() + t.sum()) / room

    planned = [batch for step in plan(lengths, max_tokens=4096, tokens_per_step=4096) for batch in step]
    assert padding(planned) < 0.08
    assert padding(batches_by_tokens(s - 1, t - 1, 4096)) < 0.12
    assert padding(np.array_split(rng.permutation(len(lengths)), len(planned))) > 0.3


@pytest.mark.need(46)
def test_a_corpus_sorted_by_its_source_is_drawn_from_everywhere_at_once() -> None:
    rng = np.random.default_rng(3)
    num_rows = 60_000
    # Sorted as text is, not by length; but where lines begin alike they are alike in length too.
    base = rng.integers(4, 40, 200)[np.arange(num_rows) * 200 // num_rows]
    src = np.clip(base + rng.integers(-6, 7, num_rows), 1, None)
    tgt = np.clip(src + rng.integers(-3, 4, num_rows), 1, None)
    steps = plan_epoch(src, tgt, max_tokens=1024, tokens_per_step=512, seed=1, epoch=0)
    batches = [(i, batch) for i, step in enumerate(steps) for batch in step]
    assert len(batches) > 2_000
    position = np.concatenate([batch for _, batch in batches[:1000]])
    step = np.concatenate([np.full(len(batch), i) for i, batch in batches[:1000]])
    assert abs(rank_correlation(position, step)) < 0.05
    assert position.min() < 0.01 * num_rows
    assert position.max() > 0.99 * num_rows
    # Nor are short sentences seen before long ones.
    length = np.array([src[batch].mean() + tgt[batch].mean() for _, batch in batches])
    assert abs(rank_correlation(length, np.array([i for i, _ in batches]))) < 0.05
    tenths = np.bincount(position * 10 // num_rows, minlength=10) / len(position)
    assert (abs(tenths - 0.1) < 0.03).all()


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, ties at their mean rank."""

    def ranks(x: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


# ── evaluation, ranks ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(5)
@quick
@given(pairs_of_lengths, st.integers(2, 400))
def test_evaluation_covers_every_row_however_long(lengths: list[tuple[int, int]], max_tokens: int) -> None:
    s, t = arrays(lengths)
    batches = batches_by_tokens(s, t, max_tokens)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        cost = len(batch) * (int(s[batch].max()) + int(t[batch].max()) + 2)
        assert cost <= max_tokens or len(batch) == 1  # a row over the budget goes alone, none is left out
    in_order = t[np.concatenate(batches)].tolist()
    assert in_order == sorted(in_order, reverse=True)  # what needs most memory comes first


def test_no_rows_are_no_batches() -> None:
    none = np.zeros(0, dtype=np.int32)
    assert batches_by_tokens(none, none, 100) == []
    assert plan_epoch(none, none, max_tokens=100, tokens_per_step=100, seed=1, epoch=0) == []


@pytest.mark.need(16)
@quick
@given(st.lists(st.integers(1, 4096), max_size=30), st.integers(1, 9))
def test_ranks_share_a_step_evenly(costs: list[int], num_ranks: int) -> None:
    shares = share(costs, num_ranks)
    assert len(shares) == num_ranks  # a rank may have nothing to do, and takes part all the same
    assert sorted(i for rank in shares for i in rank) == list(range(len(costs)))
    loads = [sum(costs[i] for i in rank) for rank in shares]
    assert max(loads) - min(loads) <= max(costs, default=0)
    assert max(loads) <= sum(costs) / num_ranks + max(costs, default=0) * (1 - 1 / num_ranks)


def test_one_rank_has_all_in_every_case() -> None:
    assert sorted(share([5, 1, 9], 1)[0]) == [0, 1, 2]
    assert share([4, 4, 4, 4], 2) == [[0, 2], [1, 3]]
