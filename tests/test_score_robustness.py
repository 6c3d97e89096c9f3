"""The robustness scores: translators whose faults are known get the figures they deserve."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xyd.translate import Translation

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import score_robustness as scores

SOURCES = [f"the {colour} dog sees a {animal}" for colour in ("red", "old", "wet") for animal in ("cat", "cow", "hen")]


def translator(change: Callable[[str], str]) -> scores.Translate:
    return lambda texts: [Translation(text, change(text), 0.0, "complete") for text in texts]


def same(text: str) -> str:
    return text


def without_digits(text: str) -> str:
    return re.sub(r"\d", "", text)


def letters(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text)


@pytest.mark.need(2)
def test_words() -> None:
    vocabulary = " ".join(SOURCES).split()
    good = scores.words(translator(same), vocabulary, random.Random(1))
    assert (good["repeats"], good["far_too_long"], good["empty"]) == (0.0, 0.0, 0.0)
    bad = scores.words(translator(lambda text: f"{text} " * 40), vocabulary, random.Random(1))
    assert bad["repeats"] > 0.9
    assert bad["far_too_long"] > 0.9


@pytest.mark.need(14)
def test_capitals() -> None:
    """One that copies capitals and otherwise translates rightly; one that minds no case."""
    references = [text.upper().swapcase() for text in SOURCES]
    plain = translator(same)(SOURCES)
    good = scores.capitals(translator(str.lower), SOURCES, references, plain)
    assert (good["upper_ratio"], good["title_ratio"], good["lower_ratio"]) == (1.0, 1.0, 1.0)
    bad = scores.capitals(translator(lambda text: "xxx" if text.isupper() else "ein Hund"), SOURCES, references, plain)
    assert bad["upper_ratio"] < 0.1
    assert (good["upper_copied"], bad["upper_copied"]) == (1.0, 0.0)


@pytest.mark.need(15)
def test_placeholders() -> None:
    tokens = [scores.placeholder(random.Random(i)) for i in range(27)]
    assert len({re.sub(r"\w+", "x", token) for token in tokens}) > 8
    good = scores.copied(translator(same), SOURCES, tokens, random.Random(1))
    assert (good["kept"], good["kept_inside"], good["probes"]) == (1.0, 1.0, 27)
    bad = scores.copied(translator(letters), SOURCES, tokens, random.Random(1))
    assert bad["kept"] == bad["kept_or_flagged"] == 0.0
    flagged = scores.copied(
        lambda texts: [Translation(t, "", 0.0, "complete", ["lost"]) for t in texts], SOURCES, tokens, random.Random(1)
    )
    assert (flagged["kept"], flagged["kept_or_flagged"]) == (0.0, 1.0)


@pytest.mark.need(20)
def test_emoji() -> None:
    good = scores.emoji(translator(same), SOURCES, translator(same)(SOURCES), random.Random(1))
    assert (good["kept"], good["rest_equal"], good["unknown_marks"], good["rest_chrf"]) == (1.0, 1.0, 0.0, 100.0)
    bad = scores.emoji(
        translator(lambda text: letters(text)[:5] + "⁇"), SOURCES, translator(same)(SOURCES), random.Random(1)
    )
    assert (bad["kept"], bad["rest_equal"], bad["unknown_marks"]) == (0.0, 0.0, 1.0)


@pytest.mark.need(33)
def test_digits() -> None:
    sources = [*SOURCES, "17 cats"]
    good = scores.digits(translator(same), sources, translator(same)(sources), random.Random(1))
    assert (good["equal"], good["own_probes"], good["own_equal"]) == (1.0, 1, 1.0)
    bad = scores.digits(translator(without_digits), sources, translator(without_digits)(sources), random.Random(1))
    assert (bad["equal"], bad["own_equal"]) == (0.0, 0.0)
    turned = scores.digits(translator(lambda text: text.replace("1", "7")), sources, [], random.Random(1))
    assert 0.0 < turned["equal"] < 0.9
