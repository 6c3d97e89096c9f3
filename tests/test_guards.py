"""guards: splitting keeps every character and the limit; loops go, what only looks like one stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.errors import ConfigError
from xyd.guards import split_text, without_loops
from xyd.text import normalise


def sizes(texts: list[str]) -> list[int]:
    """A tokenizer that knows some words and spells the rest in bytes, a mark for the space before each word."""
    return [
        sum(1 if word in ("ab", "a", "b") else 1 + len(word.encode()) for word in re.findall(r"\w+|[^\w ]", text))
        for text in texts
    ]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.text(alphabet="ab .,;!?。！，、“”猫狗é\u0301👩\u200d.", min_size=1, max_size=400), st.integers(12, 60))
def test_splitting_keeps_every_character(raw: str, room: int) -> None:
    text = normalise(raw)
    if not text:
        return
    parts = split_text(text, sizes, room)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert all(part and sizes([part])[0] <= room for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'He said: "Go!" J. Smith went. Then 3.5 days passed.',
            ['He said: "Go!"', "J. Smith went.", "Then 3.5 days passed."],
        ),
        ("猫追狗。“狗追猫！”他说。", ["猫追狗。", "“狗追猫！”", "他说。"]),
        ("It is late, e.g. at night. Good?! Yes…", ["It is late, e.g. at night.", "Good?!", "Yes…"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_text(text, sizes, 200) == expected


def test_a_character_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.max_length"):
        split_text("🙂🙂", sizes, 3)


@pytest.mark.need(2)
@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("the cat the cat the cat the cat the cat", "le chat", "the cat"),
        ("no no no no no no", "non non", "no no"),
        ("no no no no", "non non", "no no no no"),
        ("ha ha ha ha ha.", "hahaha", "ha ha ha ha ha."),
        ("a house and and and and and and a tree", "x", "a house and a tree"),
        ("狗追狗追狗追狗追狗", "x", "狗追"),
        ("1000000000 people", "one billion people", "1000000000 people"),
        ("0" * 50, "zero", "0"),
        ("dogs and cats and cats and cats and cats and ca", "x", "dogs and cats"),
        ("Schifffahrt is very very very nice", "x", "Schifffahrt is very very very nice"),
        ("", "x", ""),
    ],
)
def test_loops_are_taken_out(text: str, source: str, expected: str) -> None:
    assert without_loops(text, source) == expected


@pytest.mark.need(2)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(alphabet="ab c", max_size=60), st.text(alphabet="ab c", max_size=12))
def test_no_run_is_longer_than_the_sources_plus_two(text: str, source: str) -> None:
    def longest_run(s: str) -> int:
        best = 1
        for size in range(1, len(s)):
            for start in range(len(s) - size):
                unit, count = s[start : start + size], 1
                while s[start + count * size : start + (count + 1) * size] == unit:
                    count += 1
                best = max(best, count)
        return best

    assert longest_run(without_loops(text, source) + " ") <= longest_run(source + " ") + 2
