"""What becomes of each pair, under every option of `data.split`: nothing leaks, all are accounted for."""

from __future__ import annotations

import json
import random
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from xyd import config as configuration
from xyd.config import CorpusConfig, DataConfig, SplitConfig
from xyd.corpus.fate import (
    RESERVE,
    SPLITS,
    Decision,
    decide,
    hold_reserve,
    rule,
    time_facts,
    tokenizer_texts,
    use_reserve,
)
from xyd.corpus.pairs import Digester, Pairs, chunks
from xyd.errors import DataError
from xyd.splitting import TEST, TRAIN, VALID, folded, mix
from xyd.text import SentencePair, normalise

LANGUAGES = ["en", "fr", "zh"]
LANGUAGE_PAIRS = list(combinations(LANGUAGES, 2))
WORDS = ["house", "river", "garden", "letter", "window", "mountain", "teacher", "bridge"]


def sentence(lang: str, number: int, form: int) -> str:
    """One of few sentences, in one of several spellings that fold to the same text."""
    rng = random.Random(f"{lang}{number // 3}")  # three in a row differ in their number only
    text = f"{' '.join(rng.choices(WORDS, k=9))} {lang} {number % 3}."
    return [text, text.upper(), text.replace(".", " !"), f"  {text}\u200b"][form]


# A line: a sentence in two or three languages, each in some spelling, a document and a time.
LINE = st.tuples(
    st.tuples(*[st.none() | st.tuples(st.integers(0, 30) | st.integers(0, 5000), st.integers(0, 3))] * 3),
    st.none() | st.integers(0, 5) | st.integers(0, 1000),
    st.none() | st.integers(1990, 2020),
)
SIZE = st.integers(1, 3) | st.sampled_from([0.03, 0.1]) | st.just({"en-zh": 2, "fr-en": 0.05})
OPTIONS = st.fixed_dictionaries(
    {
        "fold_digits": st.booleans(),
        "group_by": st.sampled_from(["none", "group"]),
        "order": st.sampled_from(["hash", "time"]),
        "near_duplicates": st.none() | st.sampled_from([0.6, 0.9]),
        "max_group": st.none() | st.integers(3, 30),
        "kfold": st.none() | st.integers(2, 4),
    }
)


def sentence_pairs(lines: list[Any]) -> list[SentencePair]:
    found = []
    for number, (sides, group, time) in enumerate(lines, start=1):
        texts = {lang: sentence(lang, *side) for lang, side in zip(LANGUAGES, sides, strict=True) if side is not None}
        for src, tgt in combinations(texts, 2):
            found.append(
                SentencePair(
                    texts[src],
                    texts[tgt],
                    src,
                    tgt,
                    f"a:{number}",
                    group=None if group is None else f"doc{group}",
                    time=None if time is None else str(time),
                )
            )
    return found


class KeepAll:
    """In place of a `Cleaner`."""

    needs_pair = False

    def reason(self, _src: str, _tgt: str, _pair: SentencePair | None = None) -> None:
        return None


def filled(path: Path, pairs: list[SentencePair], split: SplitConfig) -> Pairs:
    found = Pairs(path, LANGUAGE_PAIRS, split)
    found.fill(map(Digester(found, [KeepAll()]), chunks(0, pairs)))
    return found


def data_config(split: SplitConfig, valid: Any, test: Any = None) -> DataConfig:
    data = TypeAdapter(DataConfig).validate_python(
        {"corpora": [CorpusConfig(files={lang: Path(lang) for lang in LANGUAGES})], "valid": valid, "test": test}
    )
    return data.model_copy(update={"split": split})


def decided(pairs: Pairs, data: DataConfig, held_out: dict[str, Pairs] | None = None) -> Decision:
    """As `prepare` does; the reserve is held and used, though nothing was too long."""
    decision = decide(data, pairs, held_out or {}, 1)
    before = decision.fate.copy()
    hold_reserve(pairs, decision, 1, 30)
    assert ((decision.fate == RESERVE) <= (before == TRAIN)).all()
    use_reserve(pairs, decision, 1)
    return decision


def sides_of(pairs: list[SentencePair], select: np.ndarray, fold_digits: bool) -> set[tuple[str, str]]:
    return {
        side
        for pair, own in zip(pairs, select, strict=True)
        if own
        for side in (
            (pair.src_lang, folded(normalise(pair.src), fold_digits)),
            (pair.tgt_lang, folded(normalise(pair.tgt), fold_digits)),
        )
    }


def jaccard(one: str, other: str) -> float:
    texts = [text.encode() for text in (one, other)]
    grams = [{text[i : i + 5] for i in range(max(len(text) - 4, 1))} for text in texts]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


@pytest.mark.need(24)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(lines=st.lists(LINE, min_size=60, max_size=120), options=OPTIONS, valid=SIZE, test=SIZE)
def test_nothing_is_on_two_sides_of_a_split_whatever_the_options(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], options: dict[str, Any], valid: Any, test: Any
) -> None:
    split = SplitConfig(**options)
    given_pairs = sentence_pairs(lines)
    pairs = filled(tmp_path_factory.mktemp("pairs") / "p.arrow", given_pairs, split)
    try:
        decision = decided(pairs, data_config(split, valid, None if split.kfold else test))
    except DataError as error:
        event(f"refused: {str(error).split(':')[0]}")
        assert "cannot give" in str(error) or "no pair of the corpora has a" in str(error)  # noqa: PT017
        return
    fate = decision.fate
    assert set(fate.tolist()) <= {TRAIN, VALID, TEST, -1}
    assert (fate >= TRAIN).sum() == len(
        {(p.src_lang, p.tgt_lang, normalise(p.src), normalise(p.tgt)) for p in given_pairs}
    )
    for one, other in combinations(SPLITS.values(), 2):
        ours, theirs = (sides_of(given_pairs, fate == number, split.fold_digits) for number in (one, other))
        assert not ours & theirs
        if split.near_duplicates is not None:
            assert not [
                (a, b) for a in ours for b in theirs if a[0] == b[0] and jaccard(a[1], b[1]) >= split.near_duplicates
            ]
        if split.group_by == "group":
            documents = [
                {p.group for p, own in zip(given_pairs, fate == number, strict=True) if own and p.group}
                for number in (one, other)
            ]
            assert not documents[0] & documents[1]
    for name, quota in decision.quotas.items():
        for lp, size in quota.items():
            assert ((fate == SPLITS[name]) & (pairs.language_pair == lp)).sum() <= size


@pytest.mark.need(24)
def test_three_way_corpus_with_repeats_in_six_directions(tmp_path: Path) -> None:
    """30 % of the lines again, in other spellings, with one language taken from elsewhere in every third of them."""
    rng = random.Random(5)
    texts = [{lang: f"{lang} sentence number {n} of the corpus." for lang in LANGUAGES} for n in range(1000)]
    again = []
    for number in range(300):
        line = {lang: rng.choice([str.upper, str.title, str])(text) for lang, text in rng.choice(texts).items()}
        if number % 3 == 0:
            line[rng.choice(LANGUAGES)] = f"quite another text, the {number}th"
        again.append(line)
    folder = tmp_path / "c"
    folder.mkdir()
    corpora = []
    for stem, rows in (("first", texts), ("again", again)):
        for lang in LANGUAGES:
            (folder / f"{stem}.{lang}").write_text("".join(f"{row[lang]}\n" for row in rows), encoding="utf-8")
        corpora.append({"files": {lang: str(folder / f"{stem}.{lang}") for lang in LANGUAGES}})
    tree = {
        "run": {"name": "r", "dir": str(tmp_path)},
        "data": {"corpora": corpora, "valid": 50, "test": {"en-fr": 0.04, "zh-en": 0.04, "fr-zh": 50}},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(tree), encoding="utf-8")
    config = configuration.load(tmp_path / "c.yaml")
    assert configuration.directions(config) == sorted(permutations(LANGUAGES, 2))
    given_pairs = [
        SentencePair(row[src], row[tgt], src, tgt, f"a:{n}")
        for n, row in enumerate([*texts, *again])
        for src, tgt in LANGUAGE_PAIRS
    ]
    pairs = filled(tmp_path / "p.arrow", given_pairs, config.data.split)
    decision = decided(pairs, config.data)
    there = np.bincount(pairs.language_pair[decision.fate >= TRAIN])
    assert decision.quotas["test"] == {0: round(0.04 * there[0]), 1: round(0.04 * there[1]), 2: 50}
    for name, quota in decision.quotas.items():
        counts = np.bincount(pairs.language_pair[decision.fate == SPLITS[name]], minlength=3)
        assert all(quota[lp] - (5 if name == "test" else 0) <= counts[lp] <= quota[lp] for lp in range(3))
    sides = [sides_of(given_pairs, decision.fate == number, False) for number in SPLITS.values()]
    for one, other in combinations(sides, 2):
        assert not one & other


def test_a_language_pair_without_a_size_gives_only_what_goes_along(tmp_path: Path) -> None:
    lines = [(tuple((3 * n, 0) for _ in LANGUAGES), None, None) for n in range(60)]
    pairs = filled(tmp_path / "p.arrow", sentence_pairs(lines), SplitConfig())
    fate = decided(pairs, data_config(SplitConfig(), {"en-zh": 7})).fate
    assert np.bincount(pairs.language_pair[fate == VALID], minlength=3).tolist() == [7, 7, 7]


def test_by_time_newer_pairs_left_in_train_are_told(tmp_path: Path) -> None:
    lines: list[Any] = [(((3 * n, 0), (3 * n, 0), None), None, 1900 + n) for n in range(100)]
    lines.append((((3 * 98, 0), (3 * 400, 0), None), None, 1905))  # 1998's group goes back to 1905
    lines.append((((3 * 500, 0), (3 * 500, 0), None), None, None))
    split = SplitConfig(order="time")
    pairs = filled(tmp_path / "p.arrow", sentence_pairs(lines), split)
    decision = decided(pairs, data_config(split, {"en-fr": 10}, {"fr-en": 10}))
    assert decision.facts["pairs_without_time"] == 1
    assert time_facts(pairs, decision.fate) == {
        "valid": {"en-fr": {"from": "1979", "newer_in_train": 1}},
        "test": {"en-fr": {"from": "1989", "newer_in_train": 1}},
    }
    assert "the newest are test" in rule(split)


@pytest.mark.parametrize(("option", "value"), [("group_by", "group"), ("order", "time")])
def test_a_column_that_no_corpus_has_is_named(tmp_path: Path, option: str, value: str) -> None:
    split = SplitConfig(**{option: value})
    lines = [(((n, 0), (n, 0), None), None, None) for n in range(30)]
    pairs = filled(tmp_path / "p.arrow", sentence_pairs(lines), split)
    with pytest.raises(DataError, match=rf"data\.split\.{option}: {value}, but no pair .*\({value}: a column or"):
        decided(pairs, data_config(split, 3))


def test_near_duplicates_of_own_files_leave_train(tmp_path: Path) -> None:
    split = SplitConfig(near_duplicates=0.7)
    text = "the committee met on monday to discuss the proposal of the council"
    own = [SentencePair(text, "le comité", "en", "fr", "v:1")]
    given_pairs = [
        SentencePair(text.replace("monday", "friday"), "autre chose", "en", "fr", "a:1"),
        SentencePair("something else altogether, not about this", "tout autre", "en", "fr", "a:2"),
        SentencePair(text.upper(), "encore autre", "en", "fr", "a:3"),
    ]
    pairs = filled(tmp_path / "p.arrow", given_pairs, split)
    held_out = {"valid": filled(tmp_path / "v.arrow", own, SplitConfig())}
    files = {"files": {lang: Path(lang) for lang in LANGUAGES}}
    decision = decided(pairs, data_config(split, files), held_out)
    assert decision.fate.tolist() == [-6, TRAIN, -5]
    kinds = {"exact": 0, "folded": 0, "one_side": 1, "near": 1}
    assert decision.overlap == {**kinds, "held_out": {"valid": {**kinds, "near": 0}}}


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_tokenizer_texts_are_those_of_least_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    rng = random.Random(2)
    lines = [(tuple((rng.randrange(40), rng.randrange(4)) for _ in LANGUAGES), None, None) for _ in range(60)]
    given_pairs = sentence_pairs(lines)
    pairs = filled(tmp_path / "p.arrow", given_pairs, SplitConfig())
    select = np.arange(len(pairs)) % 3 != 0
    first: dict[int, str] = {}
    for number in np.flatnonzero(select).tolist():
        for keys, text in zip(
            (pairs.keys.a, pairs.keys.b), (given_pairs[number].src, given_pairs[number].tgt), strict=True
        ):
            first.setdefault(int(keys[number]), normalise(text))
    order = mix(np.array(list(first), np.uint64), 1).argsort()[:size]
    expected = [list(first.values())[place] for place in order]
    assert tokenizer_texts(pairs, select, size, 1) == expected
    monkeypatch.setattr("xyd.splitting.groups.CHUNK", 7)
    assert {folded(text) for text in tokenizer_texts(pairs, select, size, 1)} == {folded(text) for text in expected}


def test_near_duplicates_and_documents_stay_together_when_the_reserve_is_used(tmp_path: Path) -> None:
    """Forty families of two: similar in en (by their text) or of one document."""
    rng = random.Random(4)
    given_pairs = []
    for family in range(40):
        text = " ".join(rng.choices(WORDS, k=9)) + f" {rng.random()}"
        for twin in range(2):
            src = text + " and so on" * twin if family % 2 else f"no {rng.random()} nor {rng.random()}"
            document = None if family % 2 else f"d{family}"
            given_pairs.append(SentencePair(src, f"fr {rng.random()}", "en", "fr", f"a:{family}", group=document))
    split = SplitConfig(near_duplicates=0.6, group_by="group")
    pairs = filled(tmp_path / "p.arrow", given_pairs, split)
    fate = decided(pairs, data_config(split, {"en-fr": 20}, {"en-fr": 20})).fate.reshape(40, 2)
    assert (fate[:, 0] == fate[:, 1]).all()
    assert np.bincount(fate.ravel()).tolist() == [40, 20, 20]
