"""Every hand-made fault of shared/data/dirty, read → normalised → cleaned, ends as its README says.

Each line starts with its number on both sides, so equal numbers in a pair prove that the sides are still aligned.
(Case 15, overlap of train and valid, is the corpus's business and tested there.)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from xyd.cleaning import Cleaner
from xyd.config import CorpusConfig, DataConfig
from xyd.errors import DataError
from xyd.formats import ReadReport, read_corpus
from xyd.text import Tally, faults, normalise


@dataclass
class Outcome:
    """What became of one case."""

    kept: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Line number → normalised src, tgt."""
    num_read: int = 0
    dropped: Tally = field(default_factory=Tally)
    changed: Tally = field(default_factory=Tally)
    report: ReadReport = field(default_factory=ReadReport)


def load(shared: Path, case: str, **settings: Any) -> Outcome:
    """The way of a corpus file up to the filters on text."""
    folder = shared / "data" / "dirty"
    cases = {entry["case"]: entry for entry in json.loads((folder / "cases.json").read_text(encoding="utf-8"))}
    files = {name.rsplit(".", 1)[1]: folder / name for name in cases[case]["files"]}
    data = DataConfig(corpora=[CorpusConfig(files=files)], valid=10, **settings)
    cleaner, outcome = Cleaner(data), Outcome()
    src_lang, tgt_lang = files
    for pair in read_corpus(
        data.corpora[0],
        [(src_lang, tgt_lang)],
        encoding=data.encoding,
        on_bad_utf8=data.on_bad_utf8,
        report=outcome.report,
    ):
        outcome.num_read += 1
        if pair.flaw:
            outcome.dropped.add(pair.flaw, pair.origin)
            continue
        for raw, language in ((pair.src, src_lang), (pair.tgt, tgt_lang)):
            outcome.changed.add_all(faults(raw), f"{language}:{outcome.num_read}")
        src, tgt = normalise(pair.src), normalise(pair.tgt)
        if reason := cleaner.reason(src, tgt):
            outcome.dropped.add(reason, pair.origin)
        else:
            outcome.kept[outcome.num_read] = src, tgt
    return outcome


def lines_of(outcome: Outcome, reason: str) -> list[int]:
    """Line numbers at which a reason dropped a pair."""
    return [int(origin.rsplit(":", 1)[1]) for origin in outcome.dropped.as_dict()[reason]["first"]]


def number(text: str) -> int:
    found = re.match(r"\[(\d\d)\]", text)
    assert found, text
    return int(found[1])


ALL = list(range(1, 11))
EXPECTED: dict[str, tuple[list[int], dict[str, list[int]], dict[str, list[str]]]] = {
    # case: lines kept, lines dropped by reason, what normalise changed and where
    "01_bom": (ALL, {}, {}),
    "02_crlf_one_side": (ALL, {}, {}),
    "03_u2028_u2029": (ALL, {}, {"separator": ["en:4", "fr:7"]}),
    "04_u0085_nel": (ALL, {}, {"separator": ["fr:2", "fr:9"]}),
    "05_formfeed_vt": (ALL, {}, {"separator": ["en:5", "zh:8"]}),
    "06_nul": (ALL, {}, {"nul": ["en:3"]}),
    "10_empty_one_side": ([1, 2, 4, 6, 8, 9], {"empty": [3, 5, 7, 10]}, {"whitespace": ["fr:5"]}),
    "11_tabs_inside": (ALL, {}, {"tab": ["en:2", "zh:2", "en:6", "zh:9"]}),
    "12_nfd_accents": (ALL, {}, {"nfd": []}),
    "13_long_line_20000": ([1, 2, 3, 5, 6, 7, 8, 10], {"too_long": [4, 9]}, {}),
    "14_identical_copies": ([2, 3, 6, 8, 9], {"identical": [1, 4, 5, 7, 10]}, {}),
    "16_zero_width_bidi": ([1, 2, *range(4, 11)], {"empty": [3]}, {"zero_width": [], "bom": [], "bidi": []}),
    "17_html_entities": (ALL, {}, {}),
    "18_no_final_newline": (ALL, {}, {}),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_what_can_be_mended_is_and_every_pair_stays_aligned(shared: Path, case: str) -> None:
    outcome = load(shared, case)
    kept, dropped, changed = EXPECTED[case]
    assert list(outcome.kept) == kept
    for line, (src, tgt) in outcome.kept.items():
        assert number(src) == number(tgt) == line
        assert "\ufffd" not in src + tgt
    assert {reason: lines_of(outcome, reason) for reason in outcome.dropped.as_dict()} == dropped
    assert outcome.num_read == len(kept) + outcome.dropped.total() == 10
    found = {reason: entry["first"] for reason, entry in outcome.changed.as_dict().items()}
    assert {reason: found[reason] if origins else [] for reason, origins in changed.items()} == changed
    assert found.keys() == changed.keys()


def test_case_01_the_mark_is_counted_and_gone(shared: Path) -> None:
    outcome = load(shared, "01_bom")
    assert outcome.kept[1][1].startswith("[01]")
    assert sum(file.bom for file in outcome.report.files.values()) == 1


def test_case_02_crlf_is_counted_and_gone(shared: Path) -> None:
    outcome = load(shared, "02_crlf_one_side")
    assert [file.crlf for file in outcome.report.files.values()] == [0, 10]


def test_case_06_nothing_is_cut_at_the_nul(shared: Path) -> None:
    assert load(shared, "06_nul").kept[3][0] == "[03] Please close the window before you go out."


@pytest.mark.need(48)
def test_case_07_invalid_bytes_stop_with_their_place_or_go_with_a_count(shared: Path) -> None:
    with pytest.raises(DataError, match=r"07_invalid_utf8\.fr:5: not utf-8: byte C3 at byte offset 237 .* damaged"):
        load(shared, "07_invalid_utf8")
    outcome = load(shared, "07_invalid_utf8", on_bad_utf8="drop")
    assert list(outcome.kept) == [1, 2, 3, 4, 6, 7, 9]
    assert lines_of(outcome, "bad_utf8") == [5, 8, 10]
    assert all(number(src) == number(tgt) for src, tgt in outcome.kept.values())


def test_case_08_another_encoding_is_named_and_read_when_given(shared: Path) -> None:
    with pytest.raises(DataError, match=r"08_gb18030\.zh:1: .*set data\.encoding: gb18030"):
        load(shared, "08_gb18030")
    outcome = load(shared, "08_gb18030", encoding="gb18030")
    assert outcome.kept == load(shared, "01_bom").kept  # the same ten sentences


def test_case_09_unequal_counts_stop_with_both_and_the_line(shared: Path) -> None:
    with pytest.raises(DataError) as refused:
        load(shared, "09_one_line_short")
    for part in ("09_one_line_short.en has 10 lines", "09_one_line_short.fr has 9", "near line 6"):
        assert part in str(refused.value)


@pytest.mark.need(34)
def test_case_12_decomposed_equals_composed(shared: Path) -> None:
    outcome = load(shared, "12_nfd_accents")
    assert outcome.kept == load(shared, "02_crlf_one_side").kept
    assert outcome.changed.count("nfd") > 0


def test_case_14_copies_stay_when_asked(shared: Path) -> None:
    assert list(load(shared, "14_identical_copies", drop_identical=False).kept) == ALL


def test_case_16_nothing_invisible_is_left(shared: Path) -> None:
    kept = load(shared, "16_zero_width_bidi").kept
    text = "".join(src + tgt for src, tgt in kept.values())
    assert not set(text) & set("\u200b\ufeff\u00ad\u200e\u200f\u202a\u202c\u2066\u2069")


def test_case_17_entities_are_kept_as_they_are(shared: Path) -> None:
    kept = load(shared, "17_html_entities").kept
    assert "&" in kept[2][1]
    assert "&amp;amp;" in kept[6][0] + kept[6][1]


def test_case_19_a_shift_with_equal_counts_is_read_as_it_stands(shared: Path) -> None:
    outcome = load(shared, "19_shifted_equal_counts")
    assert list(outcome.kept) == list(range(1, 21))
    assert outcome.dropped.total() == 0
