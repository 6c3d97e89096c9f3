"""Each filter drops what it names, at its edge, and in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xyd.cleaning import Cleaner
from xyd.config import CorpusConfig, DataConfig


def cleaner(**settings: Any) -> Cleaner:
    corpus = CorpusConfig(files={"en": Path("a.en"), "fr": Path("a.fr")})
    return Cleaner(DataConfig(corpora=[corpus], valid=10, **settings))


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("A cat.", "Un chat.", None),
        ("", "Un chat.", "empty"),
        ("A cat.", "", "empty"),
        ("", "", "empty"),
        ("\u200d", "Un chat.", "empty"),
        ("x" * 3000, "y" * 3000, None),
        ("x" * 3001, "y" * 3000, "too_long"),
        ("x" * 3000, "y" * 3001, "too_long"),
        ("x", "y" * 26, None),
        ("x", "y" * 27, "length_ratio"),
        ("x" * 27, "y", "length_ratio"),
        ("x" * 100, "y" * 620, None),
        ("x" * 100, "y" * 621, "length_ratio"),
        ("OK", "OK", "identical"),
        ("OK", "Ok", None),
    ],
)
def test_default_filters(src: str, tgt: str, reason: str | None) -> None:
    assert cleaner().reason(src, tgt) == reason


def test_settings_move_the_edges() -> None:
    assert cleaner(min_characters=3).reason("No", "Non") == "too_short"
    assert cleaner(min_characters=2).reason("No", "Non") is None
    assert cleaner(max_characters=5).reason("A cat.", "Chat") == "too_long"
    assert cleaner(max_length_ratio=1.0).reason("x" * 10, "y" * 31) == "length_ratio"
    assert cleaner(max_length_ratio=1.0).reason("x" * 10, "y" * 30) is None
    assert cleaner(drop_identical=False).reason("OK", "OK") is None


def test_the_first_reason_is_the_one_told() -> None:
    strict = cleaner(min_characters=3, max_characters=5)
    assert strict.reason("", "y" * 99) == "empty"
    assert strict.reason("x", "y" * 99) == "too_short"
    assert strict.reason("xxx", "y" * 99) == "too_long"
