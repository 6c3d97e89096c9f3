"""Splits without leakage, whatever the repeats and pivots; overlap counted by kind."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd import splitting
from xyd.errors import DataError
from xyd.splitting import TEST, TRAIN, VALID, PairKeys, exact_key, find_groups, key, near, overlap

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
    assert "at most 20, give" in str(error.value)


def test_too_few_pairs_of_one_language_pair_leave_the_others_as_they_are() -> None:
    a, b, language_pair = lone_pairs(60)
    language_pair[:] = np.arange(60) % 20 == 0  # 57 and 3
    with pytest.raises(DataError, match=r"set data.test to at most \{en-fr: 10, en-zh: 3\}, give") as error:
        split(a, b, language_pair, {"test": {0: 10, 1: 10}}, 1, names=["en-fr", "en-zh"])
    assert "en-fr: 10 pairs asked" not in str(error.value)


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


# ── documents, time, folds ──────────────────────────────────────────────────────────────────────────────────────────


def test_documents_and_links_connect_too() -> None:
    a, b, _ = lone_pairs(8)
    documents = np.array([0, 0, 7, 7, 9, 9, 0, 0], np.uint64)
    found = find_groups(a, b, None, documents, (a[[3, 6]], a[[4, 7]]))
    number = found.of_pair.tolist()
    assert number[2] == number[3] == number[4] == number[5]
    assert number[6] == number[7]
    assert len(set(number)) == len(found.names) == 4  # pairs of no document stay alone
    assert found.sizes().tolist() == [number.count(group) for group in range(4)]
    for group, name in enumerate(found.names.tolist()):
        own = found.of_pair == group
        assert name == min(a[own].min(), b[own].min())


def test_pairs_left_out_connect_nothing() -> None:
    a, b, _ = lone_pairs(3)
    a[1], b[1] = a[0], b[2]  # connects the first with the third
    live = np.array([True, False, True])
    assert len(set(find_groups(a, b).of_pair.tolist())) == 1
    found = find_groups(a, b, live)
    assert found.of_pair[0] != found.of_pair[2]
    assert found.sizes().tolist() == [1, 1]


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a, b, documents = (rng.integers(0, 400, 300).astype(np.uint64) << np.uint64(52) for _ in range(3))
    live, language_pair = rng.random(300) < 0.8, rng.integers(0, 2, 300).astype(np.int16)
    links = (a[live][:5], b[live][5:10])
    held_out = PairKeys(a[:40], b[40:80], a[:40])

    def everything() -> list[Any]:
        groups = find_groups(a, b, live, documents, links)
        placed = splitting.split(groups, language_pair, {"test": {0: 10, 1: 9}}, 1, strict=False)
        found = overlap(PairKeys(a, b, a ^ b), held_out, None, live)
        folds = splitting.fold_of(groups, language_pair, 3, 1)
        parts = [groups.of_pair[live], groups.names, groups.sizes(), placed, folds, found.train, found.held_out]
        return [part.tolist() for part in parts]

    whole = everything()
    monkeypatch.setattr("xyd.splitting.groups.CHUNK", 7)
    assert everything() == whole


@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=60))
def test_first_of_each(values: list[int]) -> None:
    found = splitting.first_of_each(np.array(values, np.uint64))
    assert np.flatnonzero(found).tolist() == sorted({values.index(value) for value in values})


def test_by_time_the_newest_are_test_and_a_group_is_as_old_as_its_oldest_pair() -> None:
    a, b, language_pair = lone_pairs(100)
    times = np.arange(100, dtype=np.float64)
    times[:5] = -np.inf
    a[98] = a[10]  # the group of 98 straddles
    groups = find_groups(a, b)
    placed = splitting.split(
        groups,
        language_pair,
        {"valid": {0: 10}, "test": {0: 10}},
        1,
        times=times,
        exchange=False,
        loose=["test", "valid"],
    )
    assert np.flatnonzero(placed == TEST).tolist() == [*range(89, 98), 99]
    assert np.flatnonzero(placed == VALID).tolist() == list(range(79, 89))
    with pytest.raises(DataError, match="of 95 in groups"):  # those of no time stay in train
        splitting.split(
            groups, language_pair, {"test": {0: 200}}, 1, times=times, exchange=False, loose=["test", "valid"]
        )


def test_a_tenth_may_be_missing_where_groups_are_documents() -> None:
    a, b, language_pair = lone_pairs(90)
    groups = find_groups(a, b, None, np.repeat(np.arange(1, 11, dtype=np.uint64), 9))
    quotas = {"test": {0: 20}}
    placed = splitting.split(groups, language_pair, quotas, 1, max_group=None, exchange=False, loose=["test", "valid"])
    assert (placed == TEST).sum() == 18
    with pytest.raises(DataError, match="18 could be split off"):
        splitting.split(groups, language_pair, quotas, 1, max_group=None)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lines=LINES, num_folds=st.integers(2, 7), max_group=st.none() | st.integers(1, 20))
def test_folds_cut_no_group_and_each_pair_is_in_one(
    lines: list[tuple[int | None, ...]], num_folds: int, max_group: int | None
) -> None:
    a, b, language_pair = arrays(lines)
    groups = find_groups(a, b)
    folds = splitting.fold_of(groups, language_pair, num_folds, 1, max_group)
    sizes = groups.sizes()[groups.of_pair] if len(a) else np.zeros(0)
    assert ((folds == 0) == (sizes > (max_group or len(a)))).all()
    assert folds.max(initial=0) <= num_folds
    sides = [set(a[folds == fold].tolist()) | set(b[folds == fold].tolist()) for fold in range(num_folds + 1)]
    for one, other in combinations(sides, 2):
        assert not one & other


def test_folds_are_alike_in_every_language_pair() -> None:
    a, b, _ = lone_pairs(1000)
    language_pair = np.repeat(np.array([0, 1, 2], np.int16), [900, 70, 30])
    folds = splitting.fold_of(find_groups(a, b), language_pair, 10, 1)
    for lp, size in enumerate((90, 7, 3)):
        counts = np.bincount(folds[language_pair == lp], minlength=11)[1:]
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == 10 * size


def test_digits_folded_are_one_number() -> None:
    assert key("en", "Room 12, floor 3", True) == key("en", "room 4567 floor 89", True)
    assert key("en", "Room 12", True) == key("en", "Room ٣", True)  # any script's digits
    assert key("en", "Room 12") != key("en", "Room 13")
    assert key("en", "Room 12", True) != key("en", "Room", True)


@pytest.mark.parametrize(
    "times",
    [
        ["1999", "2000.5", " 2001 ", "1e4"],
        ["1999-12", "1999-12-31", "2000-01-01T00:00:00Z", "2000-01-01 00:00:01+00:00", "2000-01-01T00:00:02"],
    ],
)
def test_times_compare_as_numbers_or_dates(times: list[str]) -> None:
    clock = splitting.Clock()
    values = [clock.read(time, "a:1") for time in times]
    assert values == sorted(set(values))
    assert clock.read(None, "a:2") == clock.read("  ", "a:3") == -np.inf
    assert clock.text(values[1])[:4] in (times[1][:4], "2000")
    assert clock.text(-np.inf) == "no time"


def test_times_that_cannot_be_compared_are_named() -> None:
    clock = splitting.Clock()
    with pytest.raises(DataError, match=r"a\.tsv:3: the time 'May 5' is neither"):
        clock.read("May 5", "a.tsv:3")
    clock.read("2020", "a.tsv:4")
    with pytest.raises(DataError, match=r"a\.tsv:5: the time '2020-01-01' cannot be compared with '2020' \(a\.tsv:4\)"):
        clock.read("2020-01-01", "a.tsv:5")
    with pytest.raises(DataError, match="neither"):
        splitting.Clock().read("nan", "a:1")


# ── near duplicates ─────────────────────────────────────────────────────────────────────────────────────────────────


def jaccard(one: bytes, other: bytes) -> float:
    grams = [{text[i : i + 5] for i in range(max(len(text) - 4, 1))} for text in (one, other)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def test_are_similar_equals_plain_sets() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("ab猫", k=rng.randint(1, 30))).encode() for _ in range(60)]
    pairs = list(combinations(range(60), 2))
    left, right = (np.array(side) for side in zip(*pairs, strict=True))
    for similarity in (0.2, 0.5, 1.0):
        expected = [jaccard(texts[i], texts[j]) >= similarity for i, j in pairs]
        assert near.are_similar(texts, left, texts, right, similarity).tolist() == expected


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9])
def test_similar_texts_are_found(similarity: float) -> None:
    """Of 400 texts with one changed twin each: nearly all twins at least as similar as asked for are candidates."""
    rng = random.Random(1)
    texts = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=60)) for _ in range(400)]
    twins = []
    for text in texts:
        changed = list(text)
        for place in rng.sample(range(60), k=rng.randint(0, 3)):
            changed[place] = "0"
        twins.append("".join(changed))
    ours, theirs = ([text.encode() for text in side] for side in (texts, twins))
    wanted = {i for i in range(400) if jaccard(ours[i], theirs[i]) >= similarity}
    assert 20 < len(wanted) < 400 or similarity == 0.5
    between = near.candidates_between(
        *(near.band_hashes(side, "en", similarity) for side in (ours, theirs)), similarity
    )
    assert len(wanted - {int(i) for i, j in zip(*between, strict=True) if i == j}) <= 0.01 * len(wanted)
    within = near.candidates_within(near.band_hashes(ours + theirs, "en", similarity), similarity)
    assert len(wanted - {int(i) for i, j in zip(*within, strict=True) if j == i + 400}) <= 0.01 * len(wanted)
    assert all(i < j for i, j in zip(*within, strict=True))


def test_another_language_is_no_near_duplicate() -> None:
    texts = [b"informationen", b"informationen"]
    bands = np.concatenate([near.band_hashes(texts[:1], "de", 0.8), near.band_hashes(texts[1:], "nl", 0.8)])
    assert len(near.candidates_within(bands, 0.8)[0]) == 0


def test_near_overlap_is_the_weakest_kind() -> None:
    train = pair_keys(("Yes", "Oui"), ("Yes then", "Alors"), ("No", "Non"))
    held_out = pair_keys(("Yes!", "Oui, oui"), ("Never", "Jamais"))
    links = (train.a[[0, 1]], held_out.a[[0, 0]])
    found = overlap(train, held_out, links)
    assert found.counts() == {"exact": 0, "folded": 0, "one_side": 1, "near": 1}
    assert found.train.tolist() == [2, 3, -1]
    assert found.held_out.tolist() == [2, -1]
    assert overlap(train, held_out, links, np.array([False, True, True])).train.tolist() == [-1, 3, -1]
