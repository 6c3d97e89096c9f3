"""The report as a whole: what is counted, where it was seen, and how it is shown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_steps import made_up, shifted

from xyd import cli
from xyd.health import Health
from xyd.health.findings import KINDS
from xyd.health.lengths import Outliers, Spread, bar_starts, bars
from xyd.health.page import page
from xyd.health.raw import RAW_FAULTS
from xyd.health.signs import SIGNS
from xyd.health.table import table
from xyd.text import SentencePair, normalise


def report_on(pairs: Iterable[tuple[str, str]], languages: tuple[str, str] = ("en", "fr"), **options: Any) -> Any:
    """The report on raw pairs, as the only language pair of a corpus."""
    watch = Health("a.en + a.fr", **options)
    for number, (src, tgt) in enumerate(pairs, 1):
        watch.add(SentencePair(src, tgt, *languages, f"a.en:{number}"), normalise(src), normalise(tgt))
    (part,) = watch.finish()["languages"]
    return part


def counts(part: Any) -> dict[str, int]:
    return {found["name"]: found["count"] for found in part["findings"]}


def first(part: Any, name: str) -> list[str]:
    return next(found["first"] for found in part["findings"] if found["name"] == name)


GOOD = [(f"This is sentence {i} of the file.", f"Ceci est la phrase {i} du fichier.") for i in range(1, 41)]


# ── what is found ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_good_corpus_has_no_finding() -> None:
    part = report_on(GOOD)
    assert part["findings"] == part["shifted_blocks"] == []
    lengths = sorted(len(src) for src, _ in GOOD)
    assert part["lengths"]["src"]["median"] == lengths[19]
    assert part["lengths"]["src"]["longest"] == lengths[-1]
    assert part["pairs"] == part["looked_at"] == 40


def test_everything_that_can_be_found_has_words() -> None:
    assert {*SIGNS, *RAW_FAULTS, "bad_utf8", "empty", "repeat", "repeat_folded", "shifted_block"} < set(KINDS)


def test_what_only_some_formats_set_aside_is_reported_too() -> None:
    watch = Health("a.po")
    for number, (src, tgt) in enumerate(GOOD, 1):
        flaw = {3: "fuzzy", 4: "fuzzy", 5: "ragged_row", 6: "bad_utf8", 7: "tangled_cues"}.get(number)
        watch.add(SentencePair(src, tgt, "en", "fr", f"a.po:{number}", flaw=flaw), src, tgt)
    report = watch.finish()
    (part,) = report["languages"]
    assert [found["name"] for found in part["findings"]] == ["bad_utf8", "ragged_row", "fuzzy", "tangled_cues"]
    assert first(part, "fuzzy") == ["a.po:3", "a.po:4"]
    assert "fuzzy: Set aside by its format" in table([report])
    assert "tangled_cues" in page([report], "x")


def test_counts_first_places_and_examples() -> None:
    pairs = list(GOOD)
    for line in range(3, 38, 2):
        pairs[line - 1] = ("Bread &amp; butter for all of us.", "Du pain &amp; du beurre pour nous.")
    part = report_on(pairs, repeats=False)
    assert counts(part) == {"html_entities": 18}
    (found,) = part["findings"]
    assert found["first"] == [f"a.en:{line}" for line in range(3, 23, 2)]
    assert [example["origin"] for example in found["examples"]] == ["a.en:3", "a.en:5", "a.en:7"]
    assert found["examples"][0]["src"] == "Bread &amp; butter for all of us."


def test_raw_faults_are_seen_though_they_are_gone_after_normalising() -> None:
    part = report_on([("one\u2028two", "un deux"), ("nai\u0308ve", "naïf"), ("x\x00y\x0cz", "x\u200by"), *GOOD])
    assert counts(part) == {"nul": 1, "line_separator": 1, "form_feed": 1, "zero_width": 1, "nfd": 1}
    assert first(part, "form_feed") == ["a.en:3"]


def test_mojibake_that_normalising_hides_is_found() -> None:
    """The second byte of œ in UTF-8, read as Latin-1, is an invisible control."""
    part = report_on([("His sister laughs.", "Sa s\u00c5\u0093ur rit."), *GOOD])
    assert counts(part) == {"mojibake": 1, "control": 1}


def test_flaws_and_empty_sides_are_counted() -> None:
    watch = Health("x")
    watch.add(SentencePair("", "", "en", "fr", "a:1", flaw="bad_utf8"), "", "")
    watch.add(SentencePair("a", " ", "en", "fr", "a:2"), "a", "")
    assert counts(watch.finish()["languages"][0]) == {"bad_utf8": 1, "empty": 1}


def test_repeats_exact_and_folded() -> None:
    pairs = [*GOOD, GOOD[2], ("THIS is sentence 3 of the file!", GOOD[2][1]), GOOD[2], (GOOD[2][0], "La phrase 3.")]
    part = report_on(pairs)
    assert counts(part) == {"repeat": 2, "repeat_folded": 1}
    assert first(part, "repeat") == ["a.en:41", "a.en:43"]
    assert first(part, "repeat_folded") == ["a.en:42"]


def test_outliers_of_length_and_ratio_against_the_corpus_itself() -> None:
    draw = random.Random(0)
    pairs = []
    for _ in range(3000):
        words = draw.randint(5, 20)
        pairs.append(("abcde " * words, "vwxyzuv " * (words + draw.randint(-1, 1))))
    pairs[2000] = ("abcde " * 12, "vwxyzuv " * 60)
    pairs[2500] = ("abcde " * 300, "vwxyzuv " * 300)
    part = report_on(pairs, repeats=False)
    assert counts(part) == {"ratio_outlier": 1, "length_outlier": 1}
    assert first(part, "ratio_outlier") == ["a.en:2001"]
    assert first(part, "length_outlier") == ["a.en:2501"]


def test_a_line_twenty_times_as_long_is_found_among_few() -> None:
    part = report_on([*GOOD, ("word " * 4000, "Un mot.")])
    assert counts(part) == {"length_outlier": 1, "ratio_outlier": 1}
    assert first(part, "ratio_outlier") == first(part, "length_outlier") == ["a.en:41"]


def test_a_shifted_block_is_given_with_its_lines() -> None:
    src, tgt = made_up(800, 1)
    part = report_on(zip(src, shifted(tgt, 200, 260, 1), strict=True), ("xx", "yy"))
    (block,) = part["shifted_blocks"]
    assert abs(block["first"] - 200) <= 3
    assert abs(block["last"] - 260) <= 3
    assert (block["from"], block["to"]) == (f"a.en:{block['first']}", f"a.en:{block['last']}")
    assert block["offsets"] == [1]
    assert counts(part)["shifted_block"] == block["pairs"] == block["last"] - block["first"] + 1


def test_languages_of_one_corpus_are_told_apart() -> None:
    watch = Health("three")
    for number, (en, fr) in enumerate(GOOD, 1):
        for src, tgt, languages in ((en, fr, ("en", "fr")), (en, "猫", ("en", "zh")), (fr, "猫", ("fr", "zh"))):
            watch.add(SentencePair(src, tgt, *languages, f"a:{number}"), src, tgt)
    parts = watch.finish()["languages"]
    assert [(part["src_lang"], part["tgt_lang"], part["pairs"]) for part in parts] == [
        ("en", "fr", 40), ("en", "zh", 40), ("fr", "zh", 40),
    ]  # fmt: skip


def test_pairs_passed_over_are_told() -> None:
    watch = Health("x")
    for number, (en, fr) in enumerate(GOOD, 1):
        watch.add(SentencePair(en, fr, "en", "fr", f"a:{number}"), en, fr)
    watch.pass_over("en", "fr", 600)
    report = watch.finish()
    assert (report["languages"][0]["pairs"], report["languages"][0]["looked_at"]) == (640, 40)
    for told in (table([report]), page([report], "x")):
        assert "ooked at 40 of them, in blocks" in told


def test_places_without_line_numbers_and_with_gaps() -> None:
    watch = Health("x")
    origins = ["b:1", "b:2", "b:7", "set[train] row", "c:1"]
    for origin in origins:
        watch.add(SentencePair("Same old line.", "Même vieille ligne.", "en", "fr", origin), "Same.", "Même.")
    (part,) = watch.finish()["languages"]
    assert first(part, "repeat") == origins[1:]


def test_outliers_wait_until_the_whole_is_known() -> None:
    """Far from the first numbers, but not from the whole; and the other way round."""
    outliers = Outliers(Spread.between(0, 100, 0.1), 5, 1)
    outliers.take(np.array([20.0, *[10.0] * 30, 14.0]), lambda i: (str(i), "", ""))
    assert outliers.found() == (0, [])  # too few to tell
    outliers.take(np.linspace(8, 16, 300), lambda i: (str(i + 32), "", ""))
    assert outliers.found() == (0, [])
    outliers.take(np.full(700, 10.0), lambda i: (str(i + 332), "", ""))
    count, places = outliers.found()
    assert places[0] == ("0", "", "")
    assert places[1] == ("31", "", "")
    assert count >= 2


def test_bars_begin_where_they_say() -> None:
    starts = bar_starts(40)
    for length in range(1, 900):
        (bar,) = np.flatnonzero(bars(np.array([length])))
        assert starts[bar] <= length < starts[bar + 1]


# ── how it is shown ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else_and_escapes_all_texts() -> None:
    evil = '<script src="http://a.example/x.js">alert(1)</script><img src=x onerror=alert(2)>'
    watch = Health(f"{evil}.en")
    for number, (src, tgt) in enumerate([(f"See {evil} &amp; go.", "Voir &amp; aller."), *GOOD], 1):
        watch.add(SentencePair(src, tgt, "en", "fr", f"{evil}:{number}"), src, tgt)
    html = page([watch.finish()], f"Health {evil}")
    seen = _Tags()
    seen.feed(html)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("src", "href")]
    assert "url(" not in html
    assert "@import" not in html
    assert f"See {evil} &amp; go." in seen.text  # shown as it is, entity and all
    assert seen.tags.count("svg") == 3
    assert html.count("<details>") == html.count("</details>") > 0


def test_the_table_is_short_and_says_what_to_do() -> None:
    pairs = list(GOOD)
    pairs[4] = ("Please sign here.", "Please sign here.")
    watch = Health("a.en + a.fr")
    for number, (src, tgt) in enumerate(pairs, 1):
        watch.add(SentencePair(src, tgt, "en", "fr", f"a.en:{number}"), src, tgt)
    text = table([watch.finish()])
    assert "health of a.en + a.fr, en-fr: 40 pairs" in text
    assert "  identical                 1  a.en:5" in text
    assert "identical: Source and target are the same. Drop them" in text
    assert len(text.splitlines()) == 5
    assert "nothing found" in table([{"corpus": "x", "languages": [report_on(GOOD)]}])


# ── the verb, and every preparation ──────────────────────────────────────────────────────────────────────────────────


def test_what_reading_took_off_is_told_by_file() -> None:
    clean = {"path": "a.en", "lines": 3, "bom": 0, "crlf": 0, "bad_lines": 0}
    files = [clean, {**clean, "path": "a.fr", "bom": 1, "crlf": 2}, {**clean, "path": "<b>", "bad_lines": 1}]
    told = [
        "file a.fr: a byte order mark at its start, taken off; 2 of 3 lines end in CRLF, read as LF",
        "file <b>: 1 of 3 lines cannot be decoded",
    ]
    assert table([], files).splitlines() == told
    shown = page([], "x", files)
    assert all(f"<p>{line.replace('<b>', '&lt;b&gt;')}.</p>" in shown for line in told)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    pairs = [*GOOD, ("Bread &amp; wine, please.", "Du pain &amp; du vin."), *GOOD[:3]]
    (tmp_path / "a.en").write_text("".join(f"{src}\n" for src, _ in pairs), encoding="utf-8")
    (tmp_path / "a.fr").write_text("".join(f"{tgt}\n" for _, tgt in pairs), encoding="utf-8")
    path = tmp_path / "c.yaml"
    path.write_text(
        f"run: {{name: r, dir: {tmp_path}/runs}}\n"
        f"data: {{corpora: [{{files: {{en: {tmp_path}/a.en, fr: {tmp_path}/a.fr}}}}], valid: 5}}\n"
        "tokenizer: {vocab_size: 300}\n",
        encoding="utf-8",
    )
    return path


def test_inspect_prints_and_writes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(config)]) == 0
    out = capsys.readouterr().out
    assert "html_entities             1  a.en:41" in out
    assert "repeat                    3  a.en:42, 43, 44" in out
    run = config.parent / "runs" / "r"
    found = json.loads((run / "health.json").read_text(encoding="utf-8"))
    assert counts(found["corpora"][0]["languages"][0]) == {"repeat": 3, "html_entities": 1}
    assert [file["lines"] for file in found["files"]] == [44, 44]
    assert "<svg" in (run / "health.html").read_text(encoding="utf-8")


def test_inspect_writes_where_it_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = config.parent / "there"
    assert cli.main(["inspect", str(config), "--json", f"{there}/h.json", "--html", f"{there}/h.html"]) == 0
    assert sorted(path.name for path in there.iterdir()) == ["h.html", "h.json"]
    assert not (config.parent / "runs").exists()
    assert f"{there}/h.json" in capsys.readouterr().out


def test_inspect_of_a_corpus_that_is_not_there(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "a.fr").unlink()
    assert cli.main(["inspect", str(config)]) == 2
    assert "a.fr: no such file" in capsys.readouterr().err


def test_inspect_counts_lines_that_cannot_be_decoded(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = (config.parent / "a.fr").read_bytes()
    (config.parent / "a.fr").write_bytes(raw.replace(b"phrase 7", b"phrase \xff", 1))
    assert cli.main(["inspect", str(config)]) == 0
    assert "bad_utf8                  1  a.en:7" in capsys.readouterr().out


def test_every_preparation_reports(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prepare", str(config)]) == 0
    assert "html_entities             1  a.en:41" in capsys.readouterr().out
    found = json.loads((config.parent / "runs" / "r" / "health.json").read_text(encoding="utf-8"))
    assert counts(found["corpora"][0]["languages"][0]) == {"html_entities": 1}


# ── real corpora ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_mojibake_line_of_tatoeba_is_found(shared: Path) -> None:
    lines = [
        (shared / "data" / "tatoeba" / "fr-zh" / f"train.{lang}").read_bytes().decode().split("\n")[:-1]
        for lang in ("fr", "zh")
    ]
    part = report_on(zip(*lines, strict=True), ("fr", "zh"))
    assert counts(part)["mojibake"] == 1
    assert first(part, "mojibake") == ["a.en:7963"]
