"""Splits without leakage, whatever the repeats and pivots; overlap counted by kind."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd import splitting
from xyd.errors import DataError
from xyd.splitting import TEST, TRAIN, VALID, PairKeys, exact_key, find_groups, key, overlap

LANGUAGE_PAIRS = list(combinations(["en", "fr", "zh"], 2))

# A line holds a text in two or three languages; few different texts, so that lines share sides all the time.
LINES = st.lists(st.tuples(*[st.none() | st.integers(0, 25)] * 3), min_size=1, max_size=120)


def split(a: np.ndarray, b: np.ndarray, language_pair: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
    """The split of pairs that are grouped by their sides alone."""
    return splitting.split(find_groups(a, b), language_pair, *args, **kwargs)


def arrays(lines: list[tuple[int | None, ...]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of both sides and language pair of every pair of these multi-parallel lines."""
    rows = [
        (key(a, f"text {line[i]}"), key(b, f"TEXT, {line[j]}!"), number)
        for line in lines
        for number, ((a, i), (b, j)) in enumerate(combinations(zip(["en", "fr", "zh"], range(3), strict=True), 2))
        if line[i] is not None and line[j] is not None
    ]
    a, b, language_pair = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(a, np.uint64), np.array(b, np.uint64), np.array(language_pair, np.int16)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(lines=LINES, valid=st.integers(0, 6), test=st.integers(0, 6), max_group=st.integers(1, 20))
def test_no_key_is_on_two_sides_of_a_split(
    lines: list[tuple[int | None, ...]], valid: int, test: int, max_group: int
) -> None:
    a, b, language_pair = arrays(lines)
    quotas = {"valid": dict.fromkeys(range(3), valid), "test": dict.fromkeys(range(3), test)}
    placed = split(a, b, language_pair, quotas, 1, max_group=max_group, strict=False)
    sides = [set(a[placed == number].tolist()) | set(b[placed == number].tolist()) for number in (TRAIN, VALID, TEST)]
    for one, other in combinations(sides, 2):
        assert not one & other
    for number, quota in ((VALID, valid), (TEST, test)):
        assert max(np.bincount(language_pair[placed == number], minlength=3)) <= quota
    try:
        strict = split(a, b, language_pair, quotas, 1, max_group=max_group)
    except DataError:
        return
    assert (strict == placed).all()
    for number, quota in ((VALID, valid), (TEST, test)):
        assert np.bincount(language_pair[placed == number], minlength=3).tolist() == [quota] * 3


@settings(max_examples=80, deadline=None, derandomize=True)
@given(lines=LINES, data=st.data())
def test_the_order_of_pairs_does_not_matter(lines: list[tuple[int | None, ...]], data: st.DataObject) -> None:
    a, b, language_pair = arrays(lines)
    quotas = {"valid": dict.fromkeys(range(3), 3), "test": dict.fromkeys(range(3), 2)}
    order = np.array(data.draw(st.permutations(range(len(a)))), np.int64)
    placed = split(a, b, language_pair, quotas, 1, strict=False)
    assert (split(a[order], b[order], language_pair[order], quotas, 1, strict=False) == placed[order]).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(edges=st.lists(st.tuples(st.integers(0, 30), st.integers(31, 60)), min_size=1, max_size=60))
def test_components_equal_a_plain_search(edges: list[tuple[int, int]]) -> None:
    groups: list[set[int]] = []
    for edge in edges:
        touching = [group for group in groups if group & set(edge)]
        groups = [group for group in groups if not group & set(edge)] + [set(edge).union(*touching)]
    a, b = (np.array(side, np.uint64) for side in zip(*edges, strict=True))
    groups_found = find_groups(a, b)
    number, smallest = groups_found.of_pair, groups_found.names
    assert [min(next(group for group in groups if edge[0] in group)) for edge in edges] == smallest[number].tolist()


def test_a_long_chain_is_one_group() -> None:
    rng = np.random.default_rng(0)
    names = rng.permutation(20_000).astype(np.uint64)
    order = rng.permutation(19_999)
    found = find_groups(names[:-1][order], names[1:][order])
    assert set(found.of_pair.tolist()) == {0}
    assert found.names.tolist() == [0]


def lone_pairs(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of language pair 0 that share nothing."""
    a = splitting.mix(np.arange(number, dtype=np.uint64), 1)
    return a, splitting.mix(a, 2), np.zeros(number, np.int16)


def test_quotas_are_met_and_the_seed_decides() -> None:
    a, b, language_pair = lone_pairs(1000)
    quotas = {"valid": {0: 100}, "test": {0: 50}}
    placed = split(a, b, language_pair, quotas, 1)
    assert Counter(placed.tolist()) == {TRAIN: 850, VALID: 100, TEST: 50}
    assert (split(a, b, language_pair, quotas, 1) == placed).all()
    assert (split(a, b, language_pair, quotas, 2) != placed).any()
    # the test split does not depend on the size of the valid split
    assert ((split(a, b, language_pair, {"test": {0: 50}}, 1) == TEST) == (placed == TEST)).all()


def test_large_groups_stay_in_train() -> None:
    a, b, language_pair = lone_pairs(100)
    a[:21] = a[0]
    placed = split(a, b, language_pair, {"valid": {0: 79}}, 1)
    assert (placed[:21] == TRAIN).all()
    assert (placed[21:] == VALID).all()
    assert (split(a[1:], b[1:], language_pair[1:], {"valid": {0: 99}}, 1) == VALID).all()  # 20 pairs may go


def test_too_few_pairs_name_what_there_is() -> None:
    a, b, language_pair = lone_pairs(50)
    a[:30] = a[0]
    with pytest.raises(DataError) as error:
        split(a, b, language_pair, {"valid": {0: 25}}, 1, names=["en-zh"])
    assert "data.valid" in str(error.value)
    assert "en-zh: 25 pairs asked for, 20 could be split off" in str(error.value)
    assert "at most 20" in str(error.value)


def test_a_whole_line_takes_the_place_of_a_part() -> None:
    """Of three-language lines some lost the third pair to a filter: no lone pair can fill its quota."""
    line = np.arange(40, dtype=np.uint64)
    en, fr, zh = (splitting.mix(line, seed) for seed in (1, 2, 3))
    whole = line >= 10
    a = np.concatenate([en, en, fr[whole]])
    b = np.concatenate([fr, zh, zh[whole]])
    language_pair = np.repeat(np.array([0, 1, 2], np.int16), [40, 40, 30])
    placed = split(a, b, language_pair, {"test": dict.fromkeys(range(3), 15)}, 1)
    assert np.bincount(language_pair[placed == TEST]).tolist() == [15, 15, 15]


def test_quotas_that_most_groups_fill_unevenly_are_met_by_those_that_do_not() -> None:
    """Most lines stand twice in one language pair: taken first, they would leave the other quota half empty."""
    line = np.arange(200, dtype=np.uint64)
    en, fr, zh = (splitting.mix(line, seed) for seed in (1, 2, 3))
    twice = line < 150
    a, b = np.concatenate([en, en, en[twice]]), np.concatenate([fr, zh, splitting.mix(fr[twice], 4)])
    language_pair = np.repeat(np.array([0, 1, 0], np.int16), [200, 200, 150])
    placed = split(a, b, language_pair, {"test": {0: 40, 1: 40}}, 1)
    assert np.bincount(language_pair[placed == TEST]).tolist() == [40, 40]
    sides = [set(a[placed == number].tolist()) | set(b[placed == number].tolist()) for number in (TRAIN, TEST)]
    assert not sides[0] & sides[1]


def test_key_knows_language_and_folds() -> None:
    assert key("en", "Hello, World!") == key("en", "hello world")
    assert key("en", "no") != key("es", "no")
    assert key("en", "?!") != key("en", "...")


def test_exact_key_knows_no_order_but_the_languages() -> None:
    assert exact_key("en", "no", "es", "no") == exact_key("es", "no", "en", "no")
    assert exact_key("en", "a", "fr", "b") != exact_key("en", "b", "fr", "a")
    assert exact_key("en", "a", "fr", "b") != exact_key("en", "a", "fr", "B")


def pair_keys(*pairs: tuple[str, str]) -> PairKeys:
    return PairKeys(
        np.array([key("en", src) for src, _ in pairs], np.uint64),
        np.array([key("fr", tgt) for _, tgt in pairs], np.uint64),
        np.array([exact_key("en", src, "fr", tgt) for src, tgt in pairs], np.uint64),
    )


def test_overlap_counts_each_pair_once_under_its_strongest_kind() -> None:
    train = pair_keys(("Yes", "Oui"), ("yes!", "oui"), ("Yes.", "Ouais"), ("No", "Non"), ("Never", "Jamais"))
    held_out = pair_keys(("Yes", "Oui"), ("NO", "non"), ("Not", "Jamais"), ("New", "Neuf"))
    found = overlap(train, held_out)
    assert found.train.tolist() == [0, 1, 2, 1, 2]
    assert found.counts() == {"exact": 1, "folded": 2, "one_side": 2}
    assert found.held_out.tolist() == [0, 1, 2, -1]
    assert found.held_out_counts() == {"exact": 1, "folded": 1, "one_side": 1}
    assert found.remove.all()


def test_sides_are_not_mixed_up_as_folded_pairs() -> None:
    """Both sides are known, but from two different pairs: that is one side shared, twice."""
    found = overlap(pair_keys(("a", "d")), pair_keys(("a", "b"), ("c", "d")))
    assert found.counts() == {"exact": 0, "folded": 0, "one_side": 1}
