"""`xyd prepare --explain`: every fate of a pair is told truly."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_corpus import lines, make_config, pick, prepared, write

from xyd.corpus import explain
from xyd.errors import DataError


def test_every_fate_is_told(tmp_path: Path) -> None:
    texts = pick(lines(80), "en", "fr")
    texts["en"][2], texts["fr"][2] = "", "Rien."
    texts["en"][3], texts["fr"][3] = texts["en"][0], texts["fr"][0]
    texts["en"][4] = texts["fr"][4] = "OK then, it is the same."
    texts["en"][5] += "\u200b  !"
    texts["en"][6] = "very " * 40 + "long ."
    texts["fr"][6] = "très " * 40 + "long ."
    files = write(tmp_path, "train", texts)
    own = write(tmp_path, "own", {lang: [rows[10], rows[11]] for lang, rows in texts.items()})
    own_texts = {"en": [texts["en"][10].upper(), "Something else."], "fr": ["Tout autre.", "Autre chose."]}
    own = write(tmp_path, "own", own_texts)
    config = make_config(tmp_path, [files], valid={"files": own}, test=5)
    _, run = prepared(config)

    def told(place: str) -> str:
        return explain(config, run, place)

    assert "in train: en-fr, fr-en" in told("train.en:1") or "in test: en-fr, fr-en" in told("train.en:1")
    assert told("train.fr:1") == told("1") == told("train.en:1"), "the other file, or only the number, means the same"
    assert "dropped: empty (" in told("3")
    assert "dropped: the same pair is in t" in told("4")
    assert "from train.en:1" in told("4")
    assert "dropped: identical (" in told("5")
    assert "changed (zero_width, whitespace)" in told("6")
    assert "dropped: too_many_tokens (" in told("7")
    assert "dropped: overlap with valid: the same en text, folded, in own.en:1" in told("11")
    with pytest.raises(DataError, match=r"--explain 81: no pair comes from there; the corpora are train\.en"):
        told("81")


def test_a_number_of_any_length_is_only_a_place_that_is_not_there(tmp_path: Path) -> None:
    config = make_config(tmp_path, [write(tmp_path, "train", pick(lines(40), "en", "fr"))])
    _, run = prepared(config)
    assert explain(config, run, "train.en:007") == explain(config, run, "7")
    with pytest.raises(DataError, match="no pair comes from there"):
        explain(config, run, "9" * 5000)


def test_files_of_one_name_are_told_apart_by_their_text(tmp_path: Path) -> None:
    """A repeat in sub/a.tsv is dropped, though a row of another text is there from line 2 of a file of that name."""
    rows = list(zip(*pick(lines(40), "en", "fr").values(), strict=True))
    (tmp_path / "all" / "sub").mkdir(parents=True)
    for path, part in (("a.tsv", rows), ("sub/a.tsv", [rows[3], rows[0]])):
        (tmp_path / "all" / path).write_text("".join("\t".join(row) + "\n" for row in part), encoding="utf-8")
    corpora = f"data.corpora=[{{tsv: {tmp_path / 'all'}, columns: {{en: 1, fr: 2}}}}]"
    config = make_config(tmp_path, [{"en": "en", "fr": "fr"}], corpora, valid=2, test=None)
    _, run = prepared(config)
    told = explain(config, run, "a.tsv:2")
    assert told.count("in train: ") + told.count("in valid: ") == 1
    assert "dropped: the same pair is in" in told
    assert "from a.tsv:1" in told
