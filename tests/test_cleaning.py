"""Each filter drops what it names, at its edge, and in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xyd.cleaning import Cleaner
from xyd.config import CorpusConfig, DataConfig, Filters
from xyd.config.sections import SIGNS
from xyd.health import signs as health_signs
from xyd.text import SentencePair


def cleaner(**settings: Any) -> Cleaner:
    corpus = CorpusConfig(files={"en": Path("a.en"), "fr": Path("a.fr")})
    return Cleaner(DataConfig(corpora=[corpus], valid=10, **settings).corpora[0].filters)


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


def scored(score: float | None) -> SentencePair:
    return SentencePair("A cat.", "Un chat.", "en", "fr", "x:1", score=score)


def test_scores_below_the_least_are_dropped_and_missing_ones_too() -> None:
    filters = cleaner(min_score=0.5)
    assert filters.reason("A cat.", "Un chat.", scored(0.5)) is None
    assert filters.reason("A cat.", "Un chat.", scored(0.49)) == "low_score"
    assert filters.reason("A cat.", "Un chat.", scored(None)) == "low_score"
    assert filters.reason("A cat.", "Un chat.", scored(float("nan"))) == "low_score"
    assert cleaner().reason("A cat.", "Un chat.", scored(0.0)) is None


def test_another_language_is_dropped_where_it_is_sure() -> None:
    pytest.importorskip("py3langid")
    filters = cleaner(language_id=0.9)
    english = "The committee will meet again on Monday to discuss the budget of the next year."
    french = "Le comité se réunira de nouveau lundi pour examiner le budget de l'année prochaine."
    german = "Der Ausschuss tritt am Montag wieder zusammen, um den Haushalt des nächsten Jahres zu erörtern."

    def reason(src: str, tgt: str) -> str | None:
        return filters.reason(src, tgt, SentencePair(src, tgt, "en", "fr", "x:1"))

    assert reason(english, french) is None
    assert reason(english, german) == "other_language"
    assert reason(french, english) == "other_language"
    assert reason("Yes.", "Nein.") is None, "too short to tell"


def test_a_corpus_has_its_own_filters_and_the_others_of_the_section() -> None:
    files = {"en": Path("a.en"), "fr": Path("a.fr")}
    corpora = [CorpusConfig(files=files, filters=Filters(min_characters=5)), CorpusConfig(files=files)]
    data = DataConfig(corpora=corpora, valid=10, max_characters=50, min_characters=2)
    assert [(c.filters.min_characters, c.filters.max_characters) for c in data.corpora] == [(5, 50), (2, 50)]


def test_signs_of_the_health_report_are_rules_by_the_same_names() -> None:
    assert set(SIGNS) == {*health_signs.SIGNS} - {"identical"}, "identical has a key of its own"
    pair = SentencePair("It costs 25 euros.", "Cela coûte 35 euros.", "en", "fr", "x:1")
    assert cleaner().reason(pair.src, pair.tgt, pair) is None
    assert cleaner(drop=["mojibake"]).reason(pair.src, pair.tgt, pair) is None
    assert cleaner(drop=["mojibake", "digits_differ"]).reason(pair.src, pair.tgt, pair) == "digits_differ"
    broken = SentencePair("The cafÃ© is closed.", "Le café est fermé.", "en", "fr", "x:2")
    assert cleaner(drop=["mojibake"]).reason(broken.src, broken.tgt, broken) == "mojibake"
