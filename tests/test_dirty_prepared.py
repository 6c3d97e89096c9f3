"""Every case of shared/data/dirty and every file of shared/data/formats through `xyd prepare` and `xyd inspect`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xyd import cli
from xyd.corpus import open_split
from xyd.files import RunDir
from xyd.tokenizer import Tokenizer


class Prepared:
    """What `xyd prepare` and `xyd inspect` made of one corpus, told from outside."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], corpus: dict[str, Any], **data: Any) -> None:
        tree = {
            "run": {"name": "r", "dir": str(folder)},
            "data": {"corpora": [corpus], "valid": 2, "drop_repeats": False, **data},
            "tokenizer": {"vocab_size": 400},
            "augment": {"scale": 0},
            "model": {"max_length": 1024},
        }
        path = folder / "c.yaml"
        path.write_text(json.dumps(tree), encoding="utf-8")
        self.code = cli.main(["prepare", str(path)])
        self.said, self.error = capsys.readouterr()
        self.inspect_code = cli.main(["inspect", str(path)])
        self.inspected = capsys.readouterr().out
        self.run = RunDir(folder / "r")
        self.report = json.loads(self.run.health_path.read_text("utf-8")) if self.inspect_code == 0 else {}
        if self.code == 0:
            self._check()

    def _check(self) -> None:
        """Read = kept + dropped, and what is kept is what the splits hold, pair by pair."""
        self.manifest: dict[str, Any] = json.loads(self.run.manifest_path.read_text("utf-8"))
        (entry,) = self.manifest["corpora"]
        self.read, self.kept = entry["read"], entry["kept"]
        self.dropped = {name: found["count"] for name, found in entry["dropped"].items()}
        self.changed = {name: found["count"] for name, found in entry["changed"].items()}
        assert self.read == self.kept + sum(self.dropped.values())
        assert f"read {self.read:,} = kept {self.kept:,} + dropped {self.read - self.kept:,}" in self.said
        tokenizer = Tokenizer.load(self.run.tokenizer_path)
        self.lines: dict[int, tuple[str, str]] = {}
        pair_ids: set[int] = set()
        own_valid = self.manifest["left_out"].keys()
        for name in self.manifest["files"].keys() - own_valid:
            split = open_split(self.run, name)
            pair_ids |= set(split.pair_id.tolist())
            for row in np.flatnonzero(split.direction == 0).tolist():
                number = split.origin(row).rpartition(":")[2]
                if number.isdecimal():
                    self.lines[int(number)] = tokenizer.decode(split.src_ids(row)), tokenizer.decode(split.tgt_ids(row))
        assert len(pair_ids) == self.kept

    def findings(self) -> dict[str, tuple[int, list[int]]]:
        """Name → count and first line numbers, as `xyd inspect` wrote them."""
        (part,) = self.report["corpora"][0]["languages"]
        return {
            found["name"]: (
                found["count"],
                [int(place.split(" to ")[0].rpartition(":")[2]) for place in found["first"]],
            )
            for found in part["findings"]
        }


NOTHING: dict[str, list[int]] = {}
CASES: dict[str, tuple[list[int], dict[str, int], dict[str, list[int]], str]] = {
    # case: lines kept, dropped by reason, findings of inspect by line, what else inspect says
    "01_bom": ([*range(1, 11)], {}, NOTHING, "01_bom.zh: a byte order mark at its start"),
    "02_crlf_one_side": ([*range(1, 11)], {}, NOTHING, "02_crlf_one_side.fr: 10 of 10 lines end in CRLF"),
    "03_u2028_u2029": ([*range(1, 11)], {}, {"line_separator": [4, 7]}, ""),
    "04_u0085_nel": ([*range(1, 11)], {}, {"line_separator": [2, 9]}, ""),
    "05_formfeed_vt": ([*range(1, 11)], {}, {"form_feed": [5, 8]}, ""),
    "06_nul": ([*range(1, 11)], {}, {"nul": [3]}, ""),
    "10_empty_one_side": ([1, 2, 4, 6, 8, 9], {"empty": 4}, {"empty": [3, 5, 7, 10]}, ""),
    "11_tabs_inside": ([*range(1, 11)], {}, {"tab": [2, 6, 9]}, ""),
    "12_nfd_accents": ([*range(1, 11)], {}, {"nfd": [1, 2, 3, 5, 6, 7, 8, 9, 10]}, ""),
    "13_long_line_20000": (
        [1, 2, 3, 5, 6, 7, 8, 10], {"too_long": 2}, {"length_outlier": [4, 9], "ratio_outlier": [4, 9]}, ""
    ),
    "14_identical_copies": ([2, 3, 6, 8, 9], {"identical": 5}, {"identical": [1, 4, 5, 7, 10]}, ""),
    "16_zero_width_bidi": (
        [1, 2, *range(4, 11)], {"empty": 1}, {"empty": [3], "bom": [9], "zero_width": [1, 8], "bidi": [5, 7, 10]}, ""
    ),
    "17_html_entities": ([*range(1, 11)], {}, {"html_entities": [2, 3, 6, 9]}, ""),
    "18_no_final_newline": ([*range(1, 11)], {}, NOTHING, "nothing found"),
    "19_shifted_equal_counts": (
        [*range(1, 21)], {}, {"shifted_block": [6], "digits_differ": [*range(6, 14)]},
        "19_shifted_equal_counts.en:6 to 14: the translations stand 1 line above",
    ),
}  # fmt: skip


def files_of(shared: Path, case: str) -> dict[str, str]:
    return {path.suffix[1:]: str(path) for path in sorted((shared / "data/dirty").glob(f"{case}.*"))}


@pytest.mark.need(6)
@pytest.mark.need(35)
@pytest.mark.parametrize("case", CASES)
def test_a_case_is_accounted_for_and_told(
    case: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = Prepared(tmp_path, capsys, {"files": files_of(shared, case)})
    kept, dropped, found, said = CASES[case]
    assert (prepared.code, prepared.inspect_code) == (0, 0)
    assert sorted(prepared.lines) == kept
    assert prepared.dropped == dropped
    out_of_step = range(6, 15) if case == "19_shifted_equal_counts" else ()
    for line, sides in prepared.lines.items():
        if line in out_of_step:
            continue
        assert all(side.startswith(f"[{line:02}]") for side in sides)
    findings = prepared.findings()
    assert {name: first for name, (_, first) in findings.items()} == found
    assert said in prepared.inspected
    assert said in prepared.said
    for name, (count, _) in findings.items():
        assert f"  {name:<16} {count:>10,}  " in prepared.inspected
    assert found or "nothing found" in prepared.inspected


REFUSED = {
    "07_invalid_utf8": ["07_invalid_utf8.fr:5: not utf-8: byte C3 at byte offset 237"],
    "08_gb18030": ["08_gb18030.zh:1: not utf-8", "set data.encoding: gb18030"],
    "09_one_line_short": ["09_one_line_short.en has 10 lines but 09_one_line_short.fr has 9", "near line 6"],
}


@pytest.mark.need(48)
@pytest.mark.parametrize("case", REFUSED)
def test_a_case_that_cannot_be_read_is_refused_with_its_place(
    case: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = Prepared(tmp_path, capsys, {"files": files_of(shared, case)})
    assert prepared.code == 2
    assert not prepared.run.manifest_path.exists()
    for part in REFUSED[case]:
        assert part in prepared.error
    assert "Traceback" not in prepared.error
    if case != "09_one_line_short":
        bad = {"07_invalid_utf8": [5, 8, 10], "08_gb18030": [*range(1, 11)]}[case]
        assert prepared.findings() == {"bad_utf8": (len(bad), bad)}
        assert f"{len(bad)} of 10 lines cannot be decoded" in prepared.inspected


def test_refused_cases_are_read_when_asked(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = Prepared(tmp_path, capsys, {"files": files_of(shared, "07_invalid_utf8")}, on_bad_utf8="drop")
    assert (sorted(bad.lines), bad.dropped) == ([1, 2, 3, 4, 6, 7, 9], {"bad_utf8": 3})
    (tmp_path / "gb").mkdir()
    gb = Prepared(tmp_path / "gb", capsys, {"files": files_of(shared, "08_gb18030"), "encoding": "gb18030"})
    (tmp_path / "utf8").mkdir()
    assert gb.lines == Prepared(tmp_path / "utf8", capsys, {"files": files_of(shared, "01_bom")}).lines


def test_case_15_overlap_and_repeats(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, valid = files_of(shared, "15_dup_train_valid.train"), files_of(shared, "15_dup_train_valid.valid")
    prepared = Prepared(tmp_path, capsys, {"files": train}, valid={"files": valid}, drop_repeats=True)
    assert (prepared.read, prepared.kept) == (18, 12)
    assert prepared.dropped == {"overlap_exact": 2, "overlap_folded": 1, "overlap_one_side": 1, "repeat": 2}
    assert prepared.manifest["split"]["valid"] == {"en-fr": 7, "fr-en": 7}
    assert "overlap with your own valid and test files, removed from train: exact 2, folded 1, one side 1" in (
        prepared.said
    )
    assert prepared.findings() == {"repeat": (2, [17, 18])}


def test_no_case_is_left_out(shared: Path) -> None:
    cases = {entry["case"] for entry in json.loads((shared / "data/dirty/cases.json").read_text("utf-8"))}
    assert cases == {*CASES, *REFUSED, "15_dup_train_valid"}
    assert len(cases) == 19


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TERMS = {"en": "sourceString", "zh": "targetString"}
XLIFF_STATES = {"state_needs-review-translation": 9, "state_needs-translation": 6}
EN_ZH, EN_DE, EN_FR = ["en", "zh"], ["en", "de"], ["en", "fr"]
FORMATS: dict[str, tuple[dict[str, Any], int, dict[str, int]]] = {
    # file: how it is given, pairs read as its README says, dropped by reason
    "alma-shots.en-zh.escaped.json": ({"json": ..., "columns": {"en": "source", "zh": "target"}}, 5, {}),
    "alma-valid.zh-en.first200.json": ({"json": ..., "languages": EN_ZH}, 200, {}),
    "alma-valid.zh-en.first200.jsonl": ({"jsonl": ..., "languages": EN_ZH}, 200, {}),
    "django-rest-framework.de.po": ({"po": ..., "languages": EN_DE}, 125, {}),
    "django-rest-framework.fr.po": ({"po": ..., "languages": EN_FR}, 125, {}),
    "django-rest-framework.zh_Hans.po": ({"po": ..., "languages": EN_ZH}, 125, {}),
    "heartsome.en-zh.inline-tags.tmx": ({"tmx": ..., "languages": EN_ZH}, 314, {}),
    "heartsome.zh-en.utf8.tmx": ({"tmx": ..., "languages": EN_ZH}, 2, {}),
    "joeynmt-toy.dev.tsv": ({"tsv": ..., "columns": {"de": "src", "en": "trg"}}, 40, {}),
    "sintel.en.srt": ({"srt": {"en": "sintel.en.srt", "de": "copy.srt"}}, 26, {}),
    "sintel.de.vtt": ({"vtt": {"en": "sintel.en.vtt", "de": "sintel.de.vtt"}}, 14, {}),
    "sintel.es.vtt": ({"vtt": {"en": "sintel.en.vtt", "es": "sintel.es.vtt"}}, 14, {}),
    "sintel.en.vtt": ({"vtt": {"de": "sintel.de.vtt", "en": "sintel.en.vtt"}}, 14, {}),
    "symfony-validators.en-de.xlf": ({"xliff": ..., "languages": EN_DE}, 116, {}),
    "symfony-validators.en-fr.xlf": ({"xliff": ..., "languages": EN_FR}, 116, {}),
    "symfony-validators.en-zh_CN.xlf": ({"xliff": ..., "languages": EN_ZH}, 116, XLIFF_STATES),
    "tatoeba-quotes.en-zh.tsv": ({"tsv": ..., "languages": EN_ZH}, 100, {}),
    "tico19-terms.f_en-zh_CN.csv": ({"csv": ..., "columns": TERMS}, 306, {}),
    "tico19-terms.g_en_fr-FR.csv": ({"csv": ..., "columns": {"en": 6, "fr": 7}, "header": True}, 336, {}),
    "tico19-terms.g_en_zh-CN.csv": ({"csv": ..., "columns": TERMS}, 337, {}),
    "tico19.en-zh.first250.tmx": ({"tmx": ..., "languages": EN_ZH}, 250, {}),
    "tico19.en-zh.first300.parquet": ({"parquet": ..., "languages": EN_ZH}, 300, {}),
    "wmt22.de-fr.first2docs.xml": ({"xml": ..., "languages": ["de", "fr"]}, 14, {}),
    "wtforms.fr.po": ({"po": ..., "languages": EN_FR}, 40, {}),
    "wtforms.zh.po": ({"po": ..., "languages": EN_ZH}, 40, {"fuzzy": 4, "untranslated": 1}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_accounted_for(name: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared / "data/formats"
    given, num_pairs, dropped = FORMATS[name]
    if "srt" in given:  # there is but one
        given = {"srt": {"en": name, "de": str(shutil.copy(folder / name, tmp_path / "copy.srt"))}}
    corpus = {key: str(folder / name) if value is ... else value for key, value in given.items()}
    no_filters = {"drop_identical": False, "max_length_ratio": 1000.0}
    prepared = Prepared(tmp_path, capsys, corpus, root=str(folder), valid=1, **no_filters)
    assert (prepared.code, prepared.inspect_code) == (0, 0), prepared.error
    assert prepared.read == num_pairs
    assert prepared.dropped == dropped
    assert prepared.report["corpora"][0]["languages"][0]["pairs"] == num_pairs


def test_no_format_is_left_out(shared: Path) -> None:
    assert {path.name for path in (shared / "data/formats").iterdir()} == set(FORMATS)
