"""Corpora of every format through `prepare`: counts that add up, own valid and test files, moved and missing inputs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from xyd import config as configuration
from xyd.config import Config
from xyd.corpus import fingerprint, open_split, prepare
from xyd.errors import DataError
from xyd.files import RunDir

WORDS = {
    "en": ["house", "river", "bridge", "garden", "letter", "mountain", "window", "teacher"],
    "fr": ["maison", "fleuve", "pont", "jardin", "lettre", "montagne", "fenêtre", "maître"],
}


def rows(number: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    found = []
    for line in range(number):
        a, b = rng.choices(range(8), k=2)
        en, fr = WORDS["en"], WORDS["fr"]
        found.append(
            (f"The {en[a]} and the {en[b]}, {seed * 1000 + line}.", f"{fr[a]} et {fr[b]}, {seed * 1000 + line}.")
        )
    return found


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{en}\t{fr}\n" for en, fr in pairs).encode())
    return path


def make_config(folder: Path, corpora: list[dict[str, Any]], **data: Any) -> Config:
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    given = [{"languages": ["en", "fr"], **corpus} for corpus in corpora]
    tree = {
        "run": {"name": "r", "dir": str(folder / "runs")},
        "data": {"corpora": given, "valid": 10, **data},
        "tokenizer": {"vocab_size": 330},
        "model": {"max_length": 64},
    }
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    return configuration.load(path)


def prepared(config: Config, said: list[str] | None = None) -> tuple[dict[str, Any], RunDir]:
    run = RunDir(Path(config.run.dir) / config.run.name)
    return prepare(config, run, (said if said is not None else []).append), run


def test_counts_add_up_over_formats(tmp_path: Path) -> None:
    table = tsv(tmp_path / "a.tsv", rows(60))
    with table.open("a", encoding="utf-8") as file:
        file.write("no tab\n")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"en": a, "fr": b}) + "\n" for a, b in rows(30, 1)))
    units = [f'<tuv lang="en"><seg>{a}</seg></tuv><tuv lang="fr"><seg>{b}</seg></tuv>' for a, b in rows(20, 2)]
    units.append('<tuv lang="en"><seg>alone</seg></tuv>')
    (tmp_path / "c.tmx").write_text("<tmx><body>" + "".join(f"<tu>{unit}</tu>" for unit in units) + "</body></tmx>")
    entries = "".join(f'\nmsgid "{a}"\nmsgstr "{b}"\n' for a, b in rows(10, 3))
    (tmp_path / "d.po").write_text(f'#, fuzzy\nmsgid "x"\nmsgstr "y"\n{entries}', encoding="utf-8")
    names = {"tsv": "a.tsv", "jsonl": "b.jsonl", "tmx": "c.tmx", "po": "d.po"}
    said: list[str] = []
    manifest, _ = prepared(make_config(tmp_path, [{form: name} for form, name in names.items()]), said)
    found = {entry["name"]: (entry["read"], entry["kept"], list(entry["dropped"])) for entry in manifest["corpora"]}
    assert found == {
        "a.tsv": (61, 60, ["ragged_row"]),
        "b.jsonl": (30, 30, []),
        "c.tmx": (21, 20, ["missing_side"]),
        "d.po": (11, 10, ["fuzzy"]),
    }
    assert "ragged_row                        1   a.tsv:61" in said[-1]
    assert [entry["lines"] for entry in manifest["inputs"]] == [61, 30, 21, 33]
    assert all(entry["sha256"] for entry in manifest["inputs"])


def test_own_valid_and_test_files_in_other_formats(tmp_path: Path) -> None:
    tsv(tmp_path / "train.tsv", rows(60))
    held = rows(7, 5)
    (tmp_path / "valid.json").write_text(json.dumps([{"src": b, "tgt": a} for a, b in held]), encoding="utf-8")
    entries = "".join(f'\nmsgid "{a}"\nmsgstr "{b}"\n' for a, b in rows(6, 6))
    (tmp_path / "test.po").write_text(f'#, fuzzy\nmsgid "x"\nmsgstr "y"\n{entries}', encoding="utf-8")
    said: list[str] = []
    config = make_config(
        tmp_path,
        [{"tsv": "train.tsv"}],
        valid={"json": "valid.json", "languages": ["fr", "en"]},
        test={"po": "test.po", "languages": ["en", "fr"]},
    )
    manifest, run = prepared(config, said)
    assert manifest["split"]["valid"] == {"en-fr": 7, "fr-en": 7}
    assert manifest["split"]["test"] == {"en-fr": 6, "fr-en": 6}
    valid = open_split(run, "valid")
    assert [
        (valid.src_text(row), valid.tgt_text(row)) for row in range(len(valid)) if valid.direction[row] == 0
    ] == held
    assert manifest["left_out"]["test"] == {"fuzzy": {"count": 1, "first": ["test.po:2"]}}
    assert "test: left out of your own files:" in said[-1]
    (tmp_path / "valid.json").write_text(json.dumps([{"src": b, "tgt": a} for a, b in rows(7, 8)]), encoding="utf-8")
    assert fingerprint(config) != manifest["fingerprint"]


def test_the_order_of_files_and_their_place_do_not_matter(tmp_path: Path) -> None:
    parts = [tsv(tmp_path / "data" / f"{name}.tsv", rows(30, seed)) for seed, name in enumerate("bac")]
    shutil.copytree(tmp_path / "data", tmp_path / "moved" / "deep")
    forms = [parts, parts[::-1], tmp_path / "data", tmp_path / "data" / "*.tsv", tmp_path / "moved"]
    found = []
    for number, form in enumerate(forms):
        given = [str(path) for path in form] if isinstance(form, list) else str(form)
        manifest, run = prepared(make_config(tmp_path / str(number), [{"tsv": given}]))
        rows_of = (run.data_dir / "train.arrow").read_bytes()
        names = [Path(entry.pop("path")).name for entry in manifest["inputs"]]
        assert names == ["a.tsv", "b.tsv", "c.tsv"]
        manifest["corpora"][0].pop("name")
        found.append((manifest, rows_of))
    assert all(entry == found[0] for entry in found)


def test_prepared_data_outlives_a_folder_that_is_gone(tmp_path: Path) -> None:
    tsv(tmp_path / "data" / "a.tsv", rows(40))
    tsv(tmp_path / "data" / "b.tsv", rows(40, 1))
    for form in ("data", "data/*.tsv"):
        config = make_config(tmp_path / form[-1].replace("*", "x"), [{"tsv": str(tmp_path / form)}])
        manifest, run = prepared(config)
        aside = (tmp_path / "data").rename(tmp_path / "aside")
        said: list[str] = []
        assert prepared(config, said)[0] == manifest
        assert "already prepared" in said[0]
        assert "no longer there" in said[0]
        shutil.rmtree(run.root)
        with pytest.raises(DataError, match=r"no such file|no file matches"):
            prepared(config)
        aside.rename(tmp_path / "data")
    before = manifest["fingerprint"]
    tsv(tmp_path / "data" / "c.tsv", rows(5, 2))
    assert prepared(config)[0]["fingerprint"] != before
