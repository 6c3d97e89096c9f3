"""The tokenizer report: figures that can be counted by hand, of a run and of a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy import Toy

from xyd import cli, tokenizer_report
from xyd.config import TokenizerConfig, load
from xyd.corpus import open_split
from xyd.files import RunDir
from xyd.tokenizer import Tokenizer, train_tokenizer
from xyd.tokenizer_report import TextPair, measure, report_config, report_run, script, table

YAML = """
run: {{name: new, dir: {folder}/runs}}
data: {{corpora: [{{files: {{en: t.en, fr: t.fr}}}}], valid: 5}}
tokenizer: {{vocab_size: 330}}
model: {{max_length: 40}}
"""


def tokenizer(folder: Path, texts: list[str], **settings: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"vocab_size": 320, **settings})
    return train_tokenizer(texts, config, ["en", "fr"], folder / "tokenizer.model", 1, lambda _: None)


def pairs(*texts: tuple[str, str]) -> list[TextPair]:
    return [TextPair(("en", "fr"), text) for text in texts]


def test_figures_by_hand(tmp_path: Path) -> None:
    trained = tokenizer(tmp_path, ["ab ba", "ba ab ab"] * 40)
    given = pairs(("ab ab", "ba"), ("ab ☃☃ ☂", "ba ba ba ba ba"))
    report = measure(trained, given, "these", 8, ["a note"])
    en, fr = report.languages["en"], report.languages["fr"]
    ids = trained.encode_batch([pair.texts[0] for pair in given])
    assert (en.sentences, en.characters, en.tokens) == (2, 5 + 7, sum(map(len, ids)))
    assert en.byte_tokens == 9  # three characters of three bytes
    assert (en.unknown, fr.byte_tokens, fr.num_spelled) == (0, 0, 0)
    assert [(c.character, c.name, c.count, c.example) for c in en.spelled] == [
        ("☃", "SNOWMAN", 2, "ab ☃☃ ☂"),
        ("☂", "UMBRELLA", 1, "ab ☃☃ ☂"),
    ]
    assert en.percentiles == {
        "50": len(ids[0]),
        "90": len(ids[1]),
        "99": len(ids[1]),
        "99.9": len(ids[1]),
        "100": len(ids[1]),
    }
    longest = [max(len(trained.encode(text)) for text in pair.texts) for pair in given]
    assert report.drops[8] == sum(length + 1 > 8 for length in longest) == 1
    assert report.drops[1024] == 0
    assert measure(trained, given, "these", max(longest)).drops[max(longest)] == 1  # there is no room for EOS
    assert measure(trained, given, "these", max(longest) + 1).drops[max(longest) + 1] == 0
    assert report.scripts["bytes"].pieces == 256
    assert report.scripts["bytes"].used == 4  # E2 98 83 82
    latin = report.scripts["latin"]
    assert latin.pieces >= latin.used > 0
    assert latin.rare >= latin.pieces - latin.used
    assert (en.round_trip_failures, fr.failures) == (0, [])
    told = table(report)
    assert "note: a note" in told
    assert "☃  SNOWMAN: 2 ×, in: ab ☃☃ ☂" in told
    assert "max_length     8: 1 pairs too long (50.00%) ← model.max_length" in told


def test_without_byte_fallback_unknowns_and_failed_round_trips_are_shown(tmp_path: Path) -> None:
    trained = tokenizer(tmp_path, ["ab ba"] * 40, byte_fallback=False, vocab_size=20)
    report = measure(trained, pairs(("ab ☃", "ba"), ("ab", "ba")), "these", 8)
    en = report.languages["en"]
    assert (en.unknown, en.byte_tokens, en.round_trip_failures, en.failures) == (1, 0, 1, ["ab ☃"])
    assert "bytes" not in report.scripts
    assert "do not come back from their ids:\n  ab ☃" in table(report)


def test_scripts() -> None:
    named = {
        "▁the": "latin",
        "猫": "cjk",
        "▁да": "cyrillic",
        "12": "digits",
        "▁": "other",
        "。": "other",
        "カ": "katakana",
    }
    assert {piece: script(piece) for piece in named} == named


def test_a_run_is_measured_pair_by_pair(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(toy.folder / "toy")
    report = report_run(run, 32)
    manifest = json.loads(run.manifest_path.read_text())
    assert report.pairs == manifest["corpora"][0]["kept"] == 300
    assert report.languages["xx"].sentences == 300
    split = open_split(run, "train")
    assert report.languages["yy"].tokens > split.tgt_lengths.sum()
    assert report.notes == []
    monkeypatch.setattr(tokenizer_report, "MAX_PAIRS", 50)
    assert report_run(run, 32).notes == ["a sample: 50 pairs of train"]


def test_a_configuration_is_measured_without_touching_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for lang in ("en", "fr"):
        text = "".join(f"{lang} sentence {n} of a small corpus\n" for n in range(60)) + "\n"
        (tmp_path / f"t.{lang}").write_text(text, encoding="utf-8")
    (tmp_path / "new.yaml").write_text(YAML.format(folder=tmp_path), encoding="utf-8")
    config = load(tmp_path / "new.yaml")
    report = report_config(config, print)
    assert (report.pairs, report.max_length) == (60, 40)
    assert report.notes[0] == "1 of the pairs looked at are dropped by cleaning"
    assert not (tmp_path / "runs").exists()
    assert cli.main(["tokenizer", "report", str(tmp_path / "new.yaml"), "--json", str(tmp_path / "r.json")]) == 0
    assert "characters per token" in capsys.readouterr().out
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["languages"]["en"]["characters_per_token"] == pytest.approx(
        report.languages["en"].characters_per_token, abs=1e-3
    )
    monkeypatch.setattr(tokenizer_report, "MAX_PAIRS", 20)
    sampled = report_config(config, print)
    assert sampled.notes[0] == "a sample: 20 of 61 pairs, drawn at random"
    assert sampled.pairs <= 20


def test_a_folder_that_is_no_run_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tokenizer", "report", str(tmp_path)]) == 2
    assert "not a run directory" in capsys.readouterr().err
