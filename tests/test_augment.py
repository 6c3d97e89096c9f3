"""Variants of pairs stay pairs; they are chosen by hash at their rates; only train gains rows, and all are counted."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xyd import config as configuration
from xyd.augment import EMOJI, VARIANTS, Augmenter, aligned_sentences, sentences
from xyd.config import AugmentConfig
from xyd.corpus import open_split, prepare
from xyd.files import RunDir
from xyd.text import SentencePair, fold, normalise
from xyd.tokenizer import Tokenizer

OFF = dict.fromkeys(VARIANTS, 0.0)


def pair(src: str, tgt: str, src_lang: str = "en", tgt_lang: str = "de") -> SentencePair:
    return SentencePair(src, tgt, src_lang, tgt_lang, "train.en:1")


def made(kind: str, src: str, tgt: str, draw: int = 0, src_lang: str = "en", tgt_lang: str = "de") -> tuple[str, str]:
    variant = Augmenter.variant(kind, pair(src, tgt, src_lang, tgt_lang), draw)
    assert variant is not None
    assert variant.origin == f"train.en:1 ({kind})"
    return variant.src, variant.tgt


def is_left_alone(kind: str, src: str, tgt: str, src_lang: str = "en", tgt_lang: str = "de") -> bool:
    return all(Augmenter.variant(kind, pair(src, tgt, src_lang, tgt_lang), draw) is None for draw in range(50))


# ── the kinds ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(14)
def test_capitals() -> None:
    assert made("upper", "Is it a house?", "Ist es ein weißes Haus?") == ("IS IT A HOUSE?", "IST ES EIN WEISSES HAUS?")
    assert made("upper", "I see it.", "我看见它。", tgt_lang="zh") == ("I SEE IT.", "我看见它。")
    assert made("upper", "iki kızıl", "two red", src_lang="tr", tgt_lang="en") == ("İKİ KIZIL", "TWO RED")
    assert is_left_alone("upper", "我看见它。", "I see it.", "zh", "en")  # the source could not tell
    assert is_left_alone("upper", "如果你和Tom呆在一起", "If you stay with Tom", "zh", "en")
    assert is_left_alone("upper", "NATO", "Nato")
    assert is_left_alone("upper", "42 %", "42 %")
    assert made("title", "don't go “there”", "geh nicht „dorthin“") == ("Don't Go “There”", "Geh Nicht „Dorthin“")
    assert is_left_alone("title", "Yes", "ja")
    assert made("lower", "In Paris I saw Ann.", "In Paris sah ich Ann.") == (
        "in paris i saw ann.",
        "In Paris sah ich Ann.",
    )
    assert made("lower", "IĞDIR", "Igdir", src_lang="tr")[0] == "ığdır"
    assert is_left_alone("lower", "yes", "Ja")


def test_final_punctuation() -> None:
    assert made("no_final_punctuation", "Really?!", "Vraiment ?!", tgt_lang="fr") == ("Really", "Vraiment")
    assert made("no_final_punctuation", "I see.", "我明白。", tgt_lang="zh") == ("I see", "我明白")
    assert is_left_alone("no_final_punctuation", "Yes", "Ja.")
    assert is_left_alone("no_final_punctuation", "Really?", "¿De verdad?")
    assert is_left_alone("no_final_punctuation", "?", "?")  # nothing would be left


def test_typography_changes_the_source_alone() -> None:
    seen = {made("typography", '"It\'s late" - he said...', "„Es ist spät“", draw) for draw in range(300)}
    assert {tgt for _, tgt in seen} == {"„Es ist spät“"}
    sources = {src for src, _ in seen}
    for mark in "“„«「’`´–—…":
        assert any(mark in src for src in sources), mark
    letters = {"".join(filter(str.isalnum, src)) for src in sources}
    assert letters == {"Itslatehesaid"}
    assert made("typography", "你好,世界!", "Hello, world!", src_lang="zh")[0] == "你好，世界！"
    assert made("typography", "你有２０本书。", "You have 20.", src_lang="zh")[0] == "你有20本书."
    assert is_left_alone("typography", "a plain line.", "«x»")


@pytest.mark.need(15)
def test_placeholders_are_equal_on_both_sides_and_the_rest_stays() -> None:
    src, tgt = "Press the key.", "Drücke die Taste."
    seen = []
    for draw in range(400):
        new_src, new_tgt = made("placeholders", src, tgt, draw)
        token = new_src.replace(src, "", 1).strip()
        assert new_tgt.replace(tgt, "", 1).strip() == token
        assert new_src.startswith(src) == new_tgt.startswith(tgt)
        assert new_src == normalise(new_src)
        seen.append(token)
    shapes = {re.sub(r"\d+", "9", re.sub(r"[a-z]+", "a", token.lower())) for token in seen}
    for shape in ("%a", "%9$a", "{a}", "{9}", "{{a.a}}", "<a></a>", "a://a.a/a", "a@a.a", r"\a", "${a}"):
        assert shape in shapes, shape


@pytest.mark.need(20)
def test_emoji_are_equal_on_both_sides_and_stand_between_sentences_too() -> None:
    src, tgt = "It is late. We go home.", "很晚了。我们回家。"
    places = set()
    for draw in range(200):
        new_src, new_tgt = made("emoji", src, tgt, draw, tgt_lang="zh")
        pattern = " ?((?:" + "|".join(map(re.escape, EMOJI)) + ")+) ?"
        (in_src,), (in_tgt,) = re.findall(pattern, new_src), re.findall(pattern, new_tgt)
        assert in_src == in_tgt
        assert re.sub(pattern, "", new_tgt) == tgt
        places.add((new_src.startswith(in_src), new_src.endswith(in_src), new_tgt.startswith(in_tgt)))
    assert places == {(True, False, True), (False, True, False), (False, False, False)}
    assert all(emoji == normalise(emoji) for emoji in EMOJI)


@pytest.mark.need(33)
def test_digits_change_alike_on_both_sides() -> None:
    src, tgt = "On 24.12.2019 at 08:30, 24 of 1,250 paid 7.", "Am 24.12.2019 um 08:30 zahlten 24 von 1.250 7."
    for draw in range(50):
        new_src, new_tgt = made("digits", src, tgt, draw)
        numbers = re.findall(r"\d+", new_src)
        assert sorted(numbers) == sorted(re.findall(r"\d+", new_tgt))
        assert [len(number) for number in numbers] == [2, 2, 4, 2, 2, 2, 1, 3, 1]
        assert numbers[0] == numbers[5] == "24"  # it stands twice
        assert (numbers[6], numbers[8]) == ("1", "7")
        assert not numbers[1].startswith("0")
        assert re.sub(r"\d", "0", new_src) == re.sub(r"\d", "0", src)
    assert made("digits", "1990年的事", "In 1990", src_lang="zh")[1] != "In 1990"
    assert is_left_alone("digits", "7 of 10", "7 von zehn")
    assert is_left_alone("digits", "the B2B and 4x4 and H264", "das B2B und 4x4 und H264")


@pytest.mark.need(2)
def test_fragments_are_aligned_sentences() -> None:
    src = "Good morning. Dr. J. Smith has come! Shall he wait?"
    tgt = "Guten Morgen. Dr. J. Smith ist da! Soll er warten?"
    seen = {made("fragments", src, tgt, draw) for draw in range(50)}
    assert seen == {
        ("Good morning.", "Guten Morgen."),
        ("Dr. J. Smith has come!", "Dr. J. Smith ist da!"),
        ("Shall he wait?", "Soll er warten?"),
    }
    assert sentences("他来了。“他呢？”她问。") == ["他来了。", "“他呢？”", "她问。"]
    assert is_left_alone("fragments", "30. France agrees.", "30. Frankreich stimmt zu.")  # the number of a paragraph
    assert is_left_alone("fragments", "One. Two.", "Eins und zwei.")
    assert is_left_alone("fragments", "Yes. I shall certainly come tomorrow.", "Ja, ich komme gewiss morgen. Gut.")


TEXT = st.lists(
    st.sampled_from([*"abcXYZ éßİ 0123456789.?!… ,'\"“”()%{}<>@你好，。？", "\u0301", "👍", "12 ", ". A"]),
    min_size=1,
    max_size=40,
).map("".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(src=TEXT, tgt=TEXT, draw=st.integers(0, 2**64 - 1), kind=st.sampled_from(list(VARIANTS)))
def test_a_variant_of_any_pair_is_a_pair(src: str, tgt: str, draw: int, kind: str) -> None:
    src, tgt = normalise(src), normalise(tgt)
    assume(src and tgt)
    variant = Augmenter.variant(kind, pair(src, tgt), draw)
    assert variant == Augmenter.variant(kind, pair(src, tgt), draw)
    if variant is None:
        return
    assert (variant.src, variant.tgt) != (src, tgt)
    assert variant.src == normalise(variant.src) != ""
    assert variant.tgt == normalise(variant.tgt) != ""
    if kind in ("lower", "typography"):
        assert variant.tgt == tgt
    if kind in ("placeholders", "emoji"):  # one new text, the same on both sides
        assert Counter(variant.src) - Counter(src) - Counter(" ") == Counter(variant.tgt) - Counter(tgt) - Counter(" ")
    if kind == "fragments":
        assert variant.src in src
        assert variant.tgt in tgt


@settings(max_examples=300, deadline=None, derandomize=True)
@given(src=TEXT, tgt=TEXT)
def test_sentences_lose_nothing(src: str, tgt: str) -> None:
    src, tgt = normalise(src), normalise(tgt)
    assert "".join(sentences(src)).replace(" ", "") == src.replace(" ", "")
    aligned = aligned_sentences(src, tgt) if src and tgt else None
    if aligned:
        assert len(aligned[0]) == len(aligned[1]) > 1


# ── the choice ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rates_are_met_and_kinds_are_independent() -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    augmenter = Augmenter(AugmentConfig(**{**OFF, "upper": 0.1, "emoji": 0.1, "digits": 1.0}), seed=1)
    chosen = {kind: positions for kind, positions, _ in augmenter.choose(keys)}
    assert set(chosen) == {"upper", "emoji", "digits"}
    assert len(chosen["digits"]) == len(keys)
    for kind in ("upper", "emoji"):
        assert len(chosen[kind]) / len(keys) == pytest.approx(0.1, abs=0.003)
    both = np.intersect1d(chosen["upper"], chosen["emoji"])
    assert len(both) / len(keys) == pytest.approx(0.01, abs=0.001)
    neighbours = np.arange(200_000, dtype=np.uint64)
    assert len(next(augmenter.choose(neighbours))[1]) / len(keys) == pytest.approx(0.1, abs=0.003)


def test_the_choice_depends_on_seed_and_key_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, 5_000, dtype=np.uint64)
    settings_ = AugmentConfig(**{**OFF, "title": 0.2})

    def choice(seed: int, order: np.ndarray) -> dict[int, int]:
        ((_, positions, draws),) = Augmenter(settings_, seed).choose(keys[order])
        return dict(zip(keys[order][positions].tolist(), draws.tolist(), strict=True))

    straight, turned = np.arange(5_000), np.random.default_rng(1).permutation(5_000)
    assert choice(1, straight) == choice(1, turned)
    assert choice(1, straight).keys() != choice(2, straight).keys()
    doubled = Augmenter(AugmentConfig(**{**OFF, "title": 0.2}, scale=2.0), 1)
    assert len(next(doubled.choose(keys))[1]) / len(keys) == pytest.approx(0.4, abs=0.03)
    assert list(Augmenter(AugmentConfig(scale=0.0), 1).choose(keys)) == []


# ── in a corpus ─────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = ["cat", "dog", "river", "house", "teacher", "window", "bridge", "garden", "letter", "mountain"]
WOERTER = ["Katze", "Hund", "Fluss", "Haus", "Lehrer", "Fenster", "Brücke", "Garten", "Brief", "Berg"]


def corpus(number: int) -> list[tuple[str, str]]:
    rng, pairs = random.Random(3), []
    for line in range(number):
        a, b = rng.choices(range(10), k=2)
        pairs.append(
            (
                f"The {WORDS[a]} is old. It isn't the {WORDS[b]} of {1000 + line}!",
                f"Das ist alt: {WOERTER[a]}. Nicht {WOERTER[b]} von {1000 + line}!",
            )
        )
    return pairs


def prepared(
    folder: Path, pairs: list[tuple[str, str]], said: list[str], **augment: float
) -> tuple[dict[str, Any], RunDir]:
    folder.mkdir(parents=True, exist_ok=True)
    for lang, side in (("en", 0), ("de", 1)):
        (folder / f"t.{lang}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    tree = {
        "run": {"name": "r", "dir": str(folder)},
        "data": {"corpora": [{"files": {"en": "t.en", "de": "t.de"}}], "valid": 20, "test": 20},
        "tokenizer": {"vocab_size": 400},
        "augment": augment,
        "model": {"max_length": 64},
    }
    (folder / "c.yaml").write_text(json.dumps(tree), encoding="utf-8")
    config = configuration.load(folder / "c.yaml")
    run = RunDir(folder / "r")
    return prepare(config, run, said.append), run


def rows_of(run: RunDir, name: str) -> list[tuple[str, str, str, str, int]]:
    """(origin, direction, src, tgt, pair_id) of every row."""
    split, tokenizer = open_split(run, name), Tokenizer.load(run.tokenizer_path)
    return [
        (
            split.origin(row),
            split.directions[split.direction[row]],
            tokenizer.decode(split.src_ids(row).tolist()),
            tokenizer.decode(split.tgt_ids(row).tolist()),
            int(split.pair_id[row]),
        )
        for row in range(len(split))
    ]


def test_train_gains_rows_that_are_counted_and_nothing_else_changes(tmp_path: Path) -> None:
    pairs, said = corpus(600), list[str]()
    plain, plain_run = prepared(tmp_path / "plain", pairs, [], scale=0.0)
    rich, rich_run = prepared(tmp_path / "rich", pairs, said, scale=5.0)
    assert plain["augmented"] == {}
    assert plain["split"] == rich["split"]
    for name in ("valid", "test"):
        assert rows_of(plain_run, name) == rows_of(rich_run, name)
    before, after = rows_of(plain_run, "train"), rows_of(rich_run, "train")
    gained = [row for row in after if row[0].endswith(")")]
    assert [row for row in after if not row[0].endswith(")")] == before
    kinds = Counter(origin.rsplit("(", 1)[1].rstrip(")") for origin, *_ in gained)
    assert {kind: number for kind, number in rich["augmented"].items() if number} == dict(kinds)
    assert set(kinds) == set(VARIANTS)
    assert kinds["upper"] / len(before) == pytest.approx(0.1, abs=0.03)
    origins = {(origin, direction): pair_id for origin, direction, _, _, pair_id in before}
    for origin, direction, src, tgt, pair_id in gained:
        assert origins[origin.rsplit(" (", 1)[0], direction] == pair_id
        assert src == normalise(src)
        assert tgt == normalise(tgt)
    told = "\n".join(said)
    assert f"and {len(gained):,} rows of augmentation: upper {kinds['upper']:,}, " in told
    assert plain["fingerprint"] != rich["fingerprint"]


def test_the_same_rows_whatever_the_order_of_lines(tmp_path: Path) -> None:
    pairs = corpus(300)
    one, one_run = prepared(tmp_path / "one", pairs, [], scale=3.0)
    other, other_run = prepared(tmp_path / "other", random.Random(0).sample(pairs, len(pairs)), [], scale=3.0)
    assert one["augmented"] == other["augmented"]
    assert one["augmented_left_out"] == other["augmented_left_out"]
    assert sorted(row[1:4] for row in rows_of(one_run, "train")) == sorted(
        row[1:4] for row in rows_of(other_run, "train")
    )


@pytest.mark.need(24)
def test_no_variant_is_like_a_held_out_text(tmp_path: Path) -> None:
    """Fragments "The cat is old." stand alone in the corpus too, and some of them are held out."""
    alone = [
        (f"The {a} is {b}.", f"{x} ist {y}.")
        for a, x in zip(WORDS, WOERTER, strict=True)
        for b, y in (("red", "rot"), ("wet", "nass"), ("hot", "heiß"))
    ]
    joined = [(f"{one[0]} {two[0]}", f"{one[1]} {two[1]}") for one in alone for two in alone if one != two]
    manifest, run = prepared(tmp_path, alone + joined[::7], [], **{**OFF, "fragments": 1.0})
    held_out = {
        (direction[:2], fold(src)) for name in ("valid", "test") for _, direction, src, _, _ in rows_of(run, name)
    }
    train = rows_of(run, "train")
    assert manifest["augmented_left_out"]["like_held_out"] > 0
    assert manifest["augmented"]["fragments"] > 0
    assert not held_out & {(direction[:2], fold(src)) for _, direction, src, _, _ in train}
    pairs_of_train = len(train) - manifest["augmented"]["fragments"]
    chosen = manifest["augmented"]["fragments"] + sum(manifest["augmented_left_out"].values())
    assert pairs_of_train == sum(manifest["split"]["train"].values())
    assert chosen <= pairs_of_train


def test_variants_over_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    manifest, run = prepared(tmp_path, corpus(300), [], **{**OFF, "placeholders": 1.0})
    longest = max(open_split(run, "train").src_lengths.max(), open_split(run, "train").tgt_lengths.max())
    assert longest <= 63
    assert manifest["augmented_left_out"]["too_many_tokens"] > 0
    chosen = manifest["augmented"]["placeholders"] + manifest["augmented_left_out"]["too_many_tokens"]
    assert chosen + manifest["augmented_left_out"]["like_held_out"] == sum(manifest["split"]["train"].values())
