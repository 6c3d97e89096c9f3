"""decode: equal to brute force on a five-word table, batched = one by one, limits, bans, ties, sampling."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from xyd.decode import GROUP, Hypothesis, _best, _top, beam_search, greedy, penalty, sample
from xyd.errors import NumericsError

EOS = 0
START = 5
VOCAB = 6  # EOS, four words, START
BANNED = [START]


class TableStep:
    """A language of its own for each sentence: the logits of the next id hang on the last two ids of the row.

    It keeps the whole history of each row, so a wrong `reorder` or `keep` shows in the result.
    """

    def __init__(self, tables: Tensor) -> None:
        self.tables = tables  # (B, V, V, V)
        self.sentence = torch.arange(tables.shape[0])
        self.history = torch.full((tables.shape[0], 1), START)
        self.calls = 0

    def __call__(self, ids: Tensor) -> list[Tensor]:
        assert ids.shape == self.sentence.shape
        self.calls += 1
        self.history = torch.cat([self.history, ids.unsqueeze(1)], dim=1)
        logits = self.tables[self.sentence, self.history[:, -2], self.history[:, -1]]
        return [block for block in (logits[:3], logits[3:]) if len(block)]

    def reorder(self, rows: Tensor) -> None:
        self.history, self.sentence = self.history[rows], self.sentence[rows]

    def keep(self, sentences: Tensor) -> None:
        grouped = self.sentence.unique_consecutive()
        rows = torch.cat([(self.sentence == grouped[i]).nonzero().squeeze(1) for i in sentences.tolist()])
        self.reorder(rows)


def make_tables(num_sentences: int, seed: int, spread: float = 1.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_sentences, VOCAB, VOCAB, VOCAB, generator=generator) * spread


def log_prob_of(table: Tensor, ids: list[int]) -> float:
    """Teacher forcing: the log-prob of the ids and EOS."""
    log_probs = table.double().log_softmax(-1)
    before, last, total = START, START, 0.0
    for token in [*ids, EOS]:
        total += float(log_probs[before, last, token])
        before, last = last, token
    return total


def brute_force(
    table: Tensor, max_length: int, alpha: float, form: str, words: list[int]
) -> list[tuple[list[int], float]]:
    found = []
    for length in range(max_length + 1):
        for ids in itertools.product(words, repeat=length):
            size = length + 1
            divisor = size**alpha if form == "length" else ((5 + size) / 6) ** alpha
            found.append((list(ids), log_prob_of(table, list(ids)) / divisor))
    return sorted(found, key=lambda item: -item[1])


def search(tables: Tensor, max_lengths: list[int], **settings_: object) -> list[list[Hypothesis]]:
    arguments = {"banned": BANNED, "beam_size": 5, "length_penalty": 1.0, "form": "length", "n_best": 1, **settings_}
    start = torch.full((tables.shape[0],), START)
    return beam_search(TableStep(tables), start, torch.tensor(max_lengths), eos_id=EOS, **arguments)  # type: ignore[arg-type]


@pytest.mark.need(37)
@pytest.mark.parametrize("form", ["length", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_beam_equals_brute_force_when_it_covers_all_prefixes(alpha: float, form: str) -> None:
    max_lengths = [3, 1, 0, 2, 3]
    tables = make_tables(5, seed=int(alpha * 10))
    found = search(tables, max_lengths, beam_size=64, length_penalty=alpha, form=form, n_best=10)
    for table, max_length, hypotheses in zip(tables, max_lengths, found, strict=True):
        expected = brute_force(table, max_length, alpha, form, [1, 2, 3, 4])[:10]
        assert [h.ids for h in hypotheses] == [ids for ids, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.need(37)
@pytest.mark.parametrize("form", ["length", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_best_of_one_is_first_of_five(alpha: float, form: str) -> None:
    tables = make_tables(40, seed=3)
    one = search(tables, [12] * 40, length_penalty=alpha, form=form, n_best=1)
    five = search(tables, [12] * 40, length_penalty=alpha, form=form, n_best=5)
    assert [h[0].ids for h in one] == [h[0].ids for h in five]
    assert [h[0].score for h in one] == [h[0].score for h in five]


@pytest.mark.need(37)
def test_score_is_the_log_prob_by_teacher_forcing_over_the_penalty() -> None:
    tables = make_tables(10, seed=5)
    for table, hypotheses in zip(
        tables, search(tables, [8] * 10, n_best=5, form="gnmt", length_penalty=0.6), strict=True
    ):
        for h in hypotheses:
            assert h.log_prob == pytest.approx(log_prob_of(table, h.ids), abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / penalty(len(h.ids) + 1, 0.6, "gnmt"), abs=1e-6)


@pytest.mark.need(37)
def test_beam_is_no_worse_than_greedy_in_the_mean() -> None:
    tables = make_tables(200, seed=6)
    best = search(tables, [10] * 200, length_penalty=0.0)
    start = torch.full((200,), START)
    first = greedy(TableStep(tables), start, torch.full((200,), 10), BANNED, EOS)
    assert sum(h[0].log_prob for h in best) > sum(h.log_prob for h in first)


@pytest.mark.need(38)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 9), st.lists(st.integers(0, 7), min_size=1, max_size=9), st.floats(0, 2))
def test_batched_equals_one_by_one_and_hypotheses_differ(
    seed: int, width: int, limits: list[int], alpha: float
) -> None:
    tables = make_tables(len(limits), seed)
    together = search(tables, limits, beam_size=width, n_best=width, length_penalty=alpha)
    for i, limit in enumerate(limits):
        assert search(tables[i : i + 1], [limit], beam_size=width, n_best=width, length_penalty=alpha)[0] == together[i]
        assert len({tuple(h.ids) for h in together[i]}) == len(together[i])
        assert all(len(h.ids) <= limit and EOS not in h.ids and START not in h.ids for h in together[i])
        scores = [h.score for h in together[i]]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.need(7)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 7), min_size=1, max_size=9))
def test_greedy_batched_equals_one_by_one(seed: int, limits: list[int]) -> None:
    tables = make_tables(len(limits), seed)
    start = torch.full((len(limits),), START)
    together = greedy(TableStep(tables), start, torch.tensor(limits), BANNED, EOS)
    for i, limit in enumerate(limits):
        alone = greedy(TableStep(tables[i : i + 1]), start[:1], torch.tensor([limit]), BANNED, EOS)[0]
        assert alone == together[i]
        assert alone.log_prob == pytest.approx(log_prob_of(tables[i], alone.ids), abs=1e-4)


def test_greedy_takes_the_likeliest_id_each_time() -> None:
    tables = make_tables(30, seed=7)
    found = greedy(TableStep(tables), torch.full((30,), START), torch.full((30,), 6), BANNED, EOS)
    for table, hypothesis in zip(tables, found, strict=True):
        before, last = START, START
        ids: list[int] = []
        ended = False
        while len(ids) <= 6 and not ended:
            token = int(table[before, last, :START].argmax())
            ended = token == EOS
            ids.append(token)
            before, last = last, token
        assert hypothesis.finished == ended
        assert hypothesis.ids == (ids[:-1])


def test_only_eos_allowed_gives_the_empty_hypothesis() -> None:
    tables = make_tables(3, seed=8)
    for h in search(tables, [4, 0, 2], banned=[1, 2, 3, 4, START], n_best=5):
        assert [x.ids for x in h] == [[]]
        assert h[0].finished
    alone = greedy(TableStep(tables), torch.full((3,), START), torch.tensor([4, 0, 2]), [1, 2, 3, 4, START], EOS)
    assert [h.ids for h in alone] == [[], [], []]


def test_width_above_the_vocabulary() -> None:
    tables = make_tables(2, seed=9)
    found = search(tables, [1, 1], beam_size=50, n_best=50)
    assert [len(h) for h in found] == [5, 5]  # the empty one and four words: there are no more


def test_cut_short_is_not_finished_and_pays_for_eos() -> None:
    tables = make_tables(1, seed=10)
    tables[:, :, :, EOS] = -9.0
    best = search(tables, [4], length_penalty=0.0)[0][0]
    assert not best.finished or len(best.ids) < 4
    long = search(tables, [4], length_penalty=2.0)[0][0]
    assert len(long.ids) == 4
    assert not long.finished
    assert long.log_prob == pytest.approx(log_prob_of(tables[0], long.ids), abs=1e-4)
    alone = greedy(TableStep(tables), torch.tensor([START]), torch.tensor([4]), BANNED, EOS)[0]
    assert len(alone.ids) == 4
    assert not alone.finished


def test_penalty_forms() -> None:
    assert penalty(10, 0.0, "length") == penalty(10, 0.0, "gnmt") == 1.0
    assert penalty(10, 1.0, "length") == 10.0
    assert penalty(7, 0.6, "gnmt") == pytest.approx(2.0**0.6)


def test_ties_are_broken_the_same_way_each_time() -> None:
    tables = torch.zeros(4, VOCAB, VOCAB, VOCAB)
    first = search(tables, [3] * 4, beam_size=4, n_best=4, length_penalty=0.0)
    assert first == search(tables, [3] * 4, beam_size=4, n_best=4, length_penalty=0.0)
    assert all(h == first[0] for h in first)
    assert first[0][0].ids == []  # all sequences of one length are equally likely, and the shortest is likeliest


def test_finished_sentences_leave_the_batch() -> None:
    tables = make_tables(8, seed=11)
    tables[:4, :, :, EOS] = 50.0  # four end at once
    step = TableStep(tables)
    beam_search(step, torch.full((8,), START), torch.full((8,), 6), BANNED, EOS, 3, 0.0)
    assert step.calls > 1
    assert 0 < step.sentence.unique().numel() <= 4


def test_a_banned_id_keeps_its_share_of_the_probability() -> None:
    tables = torch.zeros(1, VOCAB, VOCAB, VOCAB)
    best = search(tables, [0])[0][0]
    assert best.log_prob == pytest.approx(-math.log(VOCAB), abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_logits_are_an_error(bad: float) -> None:
    tables = make_tables(3, seed=12)
    tables[1, START, START, 2] = bad
    start, limits = torch.full((3,), START), torch.full((3,), 5)
    with pytest.raises(NumericsError, match="position 0"):
        beam_search(TableStep(tables), start, limits, BANNED, EOS, 3, 1.0)
    with pytest.raises(NumericsError, match="position 0"):
        greedy(TableStep(tables), start, limits, BANNED, EOS)


def test_no_sentences() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    tables = torch.zeros(0, VOCAB, VOCAB, VOCAB)
    assert beam_search(TableStep(tables), nothing, nothing, BANNED, EOS, 3, 1.0) == []
    assert greedy(TableStep(tables), nothing, nothing, BANNED, EOS) == []


def draw(tables: Tensor, seed: int, **settings_: float) -> list[Hypothesis]:
    start = torch.full((tables.shape[0],), START)
    generator = torch.Generator().manual_seed(seed)
    limits = torch.full((tables.shape[0],), 5)
    return sample(TableStep(tables), start, limits, BANNED, EOS, generator=generator, **settings_)  # type: ignore[arg-type]


def test_samples_repeat_with_the_seed_and_follow_the_distribution() -> None:
    table = make_tables(1, seed=13)
    tables = table.expand(4000, -1, -1, -1)
    found = draw(tables, seed=1)
    assert found == draw(tables, seed=1)
    assert found != draw(tables, seed=2)
    share = sum(h.ids == [] for h in found) / len(found)
    allowed = table[0, START, START, :START].softmax(0)
    assert share == pytest.approx(float(allowed[EOS]), abs=0.03)
    assert found[0].log_prob == pytest.approx(log_prob_of(table[0], found[0].ids), abs=1e-4)


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}])
def test_narrow_sampling_is_greedy(narrow: dict[str, float]) -> None:
    tables = make_tables(20, seed=14)
    expected = greedy(TableStep(tables), torch.full((20,), START), torch.full((20,), 5), BANNED, EOS)
    assert [h.ids for h in draw(tables, seed=1, **narrow)] == [h.ids for h in expected]


def test_nucleus_is_the_smallest_set_that_holds_top_p() -> None:
    probs = torch.tensor([0.1, 0.4, 0.3, 0.15, 0.05, 0.0])  # EOS, four words, START
    tables = probs.log().clamp(min=-50).expand(3000, VOCAB, VOCAB, VOCAB).clone()
    first = [h.ids[0] if h.ids else EOS for h in draw(tables, seed=3, top_p=0.69)]
    assert set(first) == {1, 2}
    assert sum(i == 1 for i in first) / 3000 == pytest.approx(4 / 7, abs=0.04)
    first = [h.ids[0] if h.ids else EOS for h in draw(tables, seed=3, top_p=0.71)]
    assert set(first) == {1, 2, 3}


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_best_of_a_large_vocabulary_are_those_of_topk(k: int) -> None:
    logits = torch.randn(7, 40 * GROUP, generator=torch.Generator().manual_seed(3))
    logits[0, [5, 6, 7, 1000, 2000]] = 9.0  # in one group, and far apart
    values, ids = _top(logits, k)
    assert torch.equal(values, logits.topk(k, dim=1).values)
    assert torch.equal(logits.gather(1, ids), values)
    assert all(len(set(row)) == k for row in ids.tolist())
    if k == 1:
        assert ids[0].item() == 5  # of equals the lowest
        assert torch.equal(ids, logits.argmax(1, keepdim=True))


def test_log_probs_are_those_of_log_softmax_even_where_a_blocked_id_takes_all() -> None:
    logits = torch.randn(4, 3 * GROUP, generator=torch.Generator().manual_seed(4))
    logits[1, 0] = 500.0  # blocked: the others have a probability of 0 in fp32
    logits[2, EOS] = 20.0
    expected = logits.double().log_softmax(1)
    got, ids, eos_log_prob, is_eos_best = _best([logits.clone()], 3, EOS, torch.tensor([EOS, 0]), 0)
    torch.testing.assert_close(got.double(), expected.gather(1, ids), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(eos_log_prob.double(), expected[:, EOS], atol=1e-4, rtol=1e-5)
    assert is_eos_best.tolist() == [False, bool(logits[1, EOS] > logits[1, ids[1, 0]]), True, False]
    assert not (ids == EOS).any()
    assert not (ids == 0).any()
