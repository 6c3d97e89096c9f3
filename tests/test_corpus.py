"""From files to prepared splits: every pair accounted for, no leakage, found again by content, nothing half-written."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd import config as configuration
from xyd.config import Config
from xyd.corpus import PreparedSplit, fingerprint, mixture, open_split, prepare
from xyd.corpus.rows import RowWriter
from xyd.errors import DataError
from xyd.files import RunDir
from xyd.text import fold, normalise
from xyd.tokenizer import Tokenizer

NOUNS = ["cat", "dog", "river", "house", "teacher", "window", "bridge", "garden", "letter", "mountain"]
SIGNS = "猫狗河屋师窗桥园信山"
NOMS = ["chat", "chien", "fleuve", "maison", "maître", "fenêtre", "pont", "jardin", "lettre", "montagne"]


def lines(number: int, seed: int = 0) -> dict[str, list[str]]:
    """Distinct sentences in three languages."""
    rng = random.Random(seed)
    rows = [(*rng.choices(range(10), k=3), seed * 10_000 + line) for line in range(number)]
    return {
        "en": [f"The {NOUNS[a]} saw the {NOUNS[b]} and the {NOUNS[c]} {n} times." for a, b, c, n in rows],
        "fr": [f"Le {NOMS[a]} a vu {n} fois le {NOMS[b]} et le {NOMS[c]}." for a, b, c, n in rows],
        "zh": [f"{SIGNS[a]}看见{SIGNS[b]}和{SIGNS[c]}{n}次。" for a, b, c, n in rows],
    }


def write(folder: Path, stem: str, texts: dict[str, list[str]]) -> dict[str, str]:
    """One file per language; returns the value of `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    for lang, rows in texts.items():
        (folder / f"{stem}.{lang}").write_bytes("".join(f"{row}\n" for row in rows).encode())
    return {lang: str(folder / f"{stem}.{lang}") for lang in texts}


def make_config(folder: Path, corpora: list[dict[str, str]], *overrides: str, **data: Any) -> Config:
    path = folder / "config.yaml"
    tree = {
        "run": {"name": "r", "dir": str(folder / "runs")},
        "data": {"corpora": [{"files": files} for files in corpora], "valid": 10, "test": 10, **data},
        "tokenizer": {"vocab_size": 330},
        "augment": {"scale": 0},
        "model": {"max_length": 64},
    }
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    return configuration.load(path, overrides)


def prepared(config: Config, said: list[str] | None = None) -> tuple[dict[str, Any], RunDir]:
    run = RunDir(Path(config.run.dir) / config.run.name)
    return prepare(config, run, (said if said is not None else []).append), run


def pick(texts: dict[str, list[str]], *languages: str) -> dict[str, list[str]]:
    return {lang: texts[lang] for lang in languages}


def texts_of(split: PreparedSplit, tokenizer: Tokenizer) -> list[tuple[str, str, str]]:
    """(direction, src, tgt) of every row, from its ids."""
    return [
        (
            split.directions[split.direction[row]],
            tokenizer.decode(split.src_ids(row).tolist()),
            tokenizer.decode(split.tgt_ids(row).tolist()),
        )
        for row in range(len(split))
    ]


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_hold_what_the_files_held(tmp_path: Path) -> None:
    texts = pick(lines(100), "en", "zh")
    texts["en"][7] = "  Two\u00a0spaces, cafe\u0301 \u200b "
    config = make_config(tmp_path, [write(tmp_path, "train", texts)])
    manifest, run = prepared(config)
    tokenizer = Tokenizer.load(run.tokenizer_path)
    assert manifest["directions"] == ["en-zh", "zh-en"]
    expected = {"train": 80, "valid": 10, "test": 10}
    seen: list[tuple[str, str]] = []
    for name, number in expected.items():
        split = open_split(run, name)
        assert len(split) == 2 * number
        assert manifest["split"][name] == {"en-zh": number, "zh-en": number}
        assert np.bincount(split.direction).tolist() == [number, number]
        assert set(Counter(split.pair_id.tolist()).values()) == {2}
        rows = texts_of(split, tokenizer)
        forward = [(src, tgt) for direction, src, tgt in rows if direction == "en-zh"]
        assert forward == [(tgt, src) for direction, src, tgt in rows if direction == "zh-en"]
        for row, (direction, src, tgt) in enumerate(rows):
            line = int(split.origin(row).removeprefix("train.en:")) - 1
            src_lang, tgt_lang = direction.split("-")
            assert src == normalise(texts[src_lang][line])
            assert tgt == normalise(texts[tgt_lang][line])
            assert split.src_lengths[row] == len(split.src_ids(row)) > 0
            assert split.tgt_lengths[row] == len(split.tgt_ids(row)) > 0
            if name != "train":
                assert split.src_text(row) == texts[src_lang][line]  # raw, as it stood in the file
                assert split.tgt_text(row) == texts[tgt_lang][line]
        seen += forward
    assert sorted(seen) == sorted(zip(map(normalise, texts["en"]), map(normalise, texts["zh"]), strict=True))


def test_only_the_requested_directions(tmp_path: Path) -> None:
    config = make_config(tmp_path, [write(tmp_path, "train", lines(60))], directions=["fr-zh", "zh-en"])
    manifest, run = prepared(config)
    assert manifest["split"]["valid"] == {"fr-zh": 10, "zh-en": 10}
    assert manifest["corpora"][0]["read"] == 120  # en-fr is not wanted
    assert Tokenizer.load(run.tokenizer_path).languages == ["en", "zh"]  # the target languages


def test_ids_are_views_into_the_file_and_opening_encodes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    _, run = prepared(make_config(tmp_path, [write(tmp_path, "train", pick(lines(60), "en", "fr"))]))
    monkeypatch.setattr(Tokenizer, "__init__", None)
    split = open_split(run, "train")
    ids = split.src_ids(3)
    assert ids.dtype == np.int32
    assert ids.base is not None
    assert not ids.flags.writeable
    assert split.src_lengths.dtype == split.tgt_lengths.dtype == np.int32
    assert split.direction.dtype == np.int16
    assert split.pair_id.dtype == np.int64
    again = pickle.loads(pickle.dumps(split))
    assert (again.src_ids(3) == ids).all()
    with pytest.raises(IndexError):
        split.src_ids(len(split))


def test_rows_over_many_batches(tmp_path: Path, monkeypatch: Any) -> None:
    for module in ("pairs", "rows"):
        monkeypatch.setattr(f"xyd.corpus.{module}.BATCH_ROWS", 7)
    texts = pick(lines(100), "en", "fr")
    _, run = prepared(make_config(tmp_path, [write(tmp_path, "train", texts)]))
    split, tokenizer = open_split(run, "train"), Tokenizer.load(run.tokenizer_path)
    for row, (direction, src, tgt) in enumerate(texts_of(split, tokenizer)):
        line = int(split.origin(row).removeprefix("train.en:")) - 1
        assert [src, tgt] == [texts[lang][line] for lang in direction.split("-")]
    assert split.src_lengths.tolist() == [len(split.src_ids(row)) for row in range(len(split))]


def test_opening_is_quick_and_datasets_reads_the_files_too(tmp_path: Path) -> None:
    _, run = prepared(make_config(tmp_path, [write(tmp_path, "train", pick(lines(60), "en", "fr"))]))
    code = (
        "import sys; from pathlib import Path; from xyd.corpus import open_split; from xyd.files import RunDir;"
        "open_split(RunDir(Path(sys.argv[1])), 'train');"
        "print([name for name in ('torch', 'datasets', 'pandas') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(run.root)], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_file(str(run.data_dir / "valid.arrow"))
    split = open_split(run, "valid")
    assert rows[3]["src_ids"] == split.src_ids(3).tolist()
    assert rows[3]["tgt_text"] == split.tgt_text(3)


# ── every pair is accounted for ─────────────────────────────────────────────────────────────────────────────────────


def test_read_is_kept_plus_dropped_by_reason_with_line_numbers(tmp_path: Path) -> None:
    texts = pick(lines(60), "en", "fr")
    texts["en"] += ["", "Same", "x" * 4000, "No.", texts["en"][0], "word " * 90, texts["en"][1]]
    texts["fr"] += ["vide", "Same", "y" * 4000, "z " * 60, texts["fr"][0], "mot " * 90, "Autre chose."]
    said: list[str] = []
    manifest, run = prepared(make_config(tmp_path, [write(tmp_path, "train", texts)]), said)
    entry = manifest["corpora"][0]
    assert entry["dropped"] == {
        "empty": {"count": 1, "first": ["train.en:61"]},
        "identical": {"count": 1, "first": ["train.en:62"]},
        "too_long": {"count": 1, "first": ["train.en:63"]},
        "length_ratio": {"count": 1, "first": ["train.en:64"]},
        "repeat": {"count": 1, "first": ["train.en:65"]},
        "too_many_tokens": {"count": 1, "first": ["train.en:66"]},
    }
    assert (entry["read"], entry["kept"]) == (67, 61)
    assert "read 67 pairs = kept 61 + dropped 6" in said[-1]
    assert "train.en:66" in said[-1]
    rows = sum(len(open_split(run, name)) for name in ("train", "valid", "test"))
    assert rows == 2 * entry["kept"]


def test_a_repeat_in_the_other_order_of_languages_is_a_repeat(tmp_path: Path) -> None:
    texts = pick(lines(60), "en", "fr")
    corpora = [
        write(tmp_path, "train", texts),
        write(tmp_path, "reverse", {"fr": texts["fr"][:5], "en": texts["en"][:5]}),
    ]
    manifest, _ = prepared(make_config(tmp_path, corpora))
    repeats = [entry["dropped"].get("repeat", {"count": 0})["count"] for entry in manifest["corpora"]]
    assert repeats == [0, 5]  # of the corpus that is read second, whichever it is
    manifest, _ = prepared(make_config(tmp_path, corpora, drop_repeats=False))
    assert {entry["name"]: entry["kept"] for entry in manifest["corpora"]} == {
        "train.en + train.fr": 60,
        "reverse.fr + reverse.en": 5,
    }


@pytest.mark.need(5)
def test_one_rule_for_lines_over_the_length(tmp_path: Path) -> None:
    long = {"en": ["long " * 100], "fr": ["longue " * 100]}
    texts = {lang: rows + long[lang] for lang, rows in pick(lines(60), "en", "fr").items()}
    own = {lang: [*rows, *long[lang], ""] for lang, rows in pick(lines(5, seed=1), "en", "fr").items()}
    said: list[str] = []
    config = make_config(
        tmp_path, [write(tmp_path, "train", texts)], valid={"files": write(tmp_path, "valid", own)}, test=10
    )
    manifest, run = prepared(config, said)
    assert manifest["corpora"][0]["dropped"]["overlap_exact"]["count"] == 1  # it is in valid too
    assert manifest["over_length"] == {"valid": {"en-fr": 1, "fr-en": 1}}
    assert "valid: en-fr: 1 rows over model.max_length" in said[-1]
    valid = open_split(run, "valid")
    assert [valid.src_text(row) for row in range(len(valid)) if valid.direction[row] == 0] == own["en"]
    assert valid.src_lengths.max() > config.model.max_length
    assert valid.src_lengths.min() == 0
    for name in ("train", "test"):
        split = open_split(run, name)
        assert max(split.src_lengths.max(), split.tgt_lengths.max()) < config.model.max_length


def test_places_of_pairs_that_turn_out_too_long_are_filled(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = pick(lines(400), "en", "fr")
    for line in range(0, 400, 20):  # five in a hundred
        for lang in texts:
            texts[lang][line] += " " + "".join(rng.choices("qxjkvw", k=80))
    said: list[str] = []
    config = make_config(tmp_path, [write(tmp_path, "train", texts)], valid=100, test=100)
    manifest, _ = prepared(config, said)
    assert manifest["corpora"][0]["dropped"]["too_many_tokens"]["count"] == 20
    assert manifest["split"]["valid"] == manifest["split"]["test"] == {"en-fr": 100, "fr-en": 100}
    assert manifest["split"]["train"] == {"en-fr": 180, "fr-en": 180}
    assert "warning: en-fr" not in said[-1]


def test_a_split_that_cannot_be_filled_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.test.*\n.*en-fr: 70 pairs asked for, 60 could be"):
        prepared(make_config(tmp_path, [write(tmp_path, "train", pick(lines(60), "en", "fr"))], test=70))
    assert not (tmp_path / "runs" / "r" / "manifest.json").exists()


def test_nothing_left_to_train_on_says_why(tmp_path: Path) -> None:
    texts = pick(lines(20), "en", "fr")
    texts["fr"] = texts["en"]
    own = write(tmp_path, "valid", pick(lines(5, seed=1), "en", "fr"))
    with pytest.raises(DataError, match=r"no pair is left to train on[^$]*identical +20 +train\.en:1, "):
        prepared(make_config(tmp_path, [write(tmp_path, "train", texts)], valid={"files": own}, test=None))


@pytest.mark.need(9)
def test_default_vocabulary_on_200_lines(tmp_path: Path) -> None:
    said: list[str] = []
    files = write(tmp_path, "train", pick(lines(200), "en", "fr"))
    manifest, run = prepared(make_config(tmp_path, [files], "tokenizer.vocab_size=48000"), said)
    size = manifest["tokenizer"]["vocab_size"]
    assert manifest["tokenizer"]["requested_vocab_size"] == 48_000
    assert Tokenizer.load(run.tokenizer_path).vocab_size == size < 48_000
    warnings = [line for line in said if "vocab_size" in line]  # 360 lines: both sides of the train pairs
    assert warnings == [f"warning: tokenizer.vocab_size 48000 is too large for these 360 lines; lowered to {size}"]


@pytest.mark.need(48)
def test_a_stray_byte_is_named_or_the_pair_goes(tmp_path: Path) -> None:
    texts = pick(lines(3000), "en", "zh")
    files = write(tmp_path, "train", texts)
    path = Path(files["zh"])
    rows = path.read_bytes().split(b"\n")
    rows[2500] = b"\xe3" + rows[2500]
    path.write_bytes(b"\n".join(rows))
    offset = len(b"\n".join(rows[:2500])) + 1
    with pytest.raises(DataError, match=rf"train\.zh:2501: .*offset {offset}"):
        prepared(make_config(tmp_path, [files]))
    manifest, run = prepared(make_config(tmp_path, [files], on_bad_utf8="drop"))
    assert manifest["corpora"][0]["dropped"] == {"bad_utf8": {"count": 1, "first": ["train.en:2501"]}}
    tokenizer = Tokenizer.load(run.tokenizer_path)
    kept = {
        (src, tgt)
        for name in ("train", "valid", "test")
        for direction, src, tgt in texts_of(open_split(run, name), tokenizer)
        if direction == "en-zh"
    }
    assert kept == {pair for line, pair in enumerate(zip(texts["en"], texts["zh"], strict=True)) if line != 2500}


# ── leakage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def folded_sides(run: RunDir, name: str) -> set[tuple[str, str]]:
    split, tokenizer = open_split(run, name), Tokenizer.load(run.tokenizer_path)
    sides = set()
    for direction, src, tgt in texts_of(split, tokenizer):
        src_lang, tgt_lang = direction.split("-")
        sides |= {(src_lang, fold(src)), (tgt_lang, fold(tgt))}
    return sides


def test_no_folded_text_on_two_sides_with_repeats_and_pivots(tmp_path: Path) -> None:
    texts = lines(300)
    rng = random.Random(1)
    again = rng.choices(range(300), k=100)
    changes: list[Callable[[str], str]] = [str.upper, str.lower, lambda text: text.replace(".", " !"), str]
    repeats = {lang: [rng.choice(changes)(texts[lang][line]) for line in again] for lang in ("en", "fr")}
    pivots = {
        "fr": [texts["fr"][line] for line in again],
        "zh": [f"{texts['zh'][line]}{number}" for number, line in enumerate(again)],
    }
    corpora = [write(tmp_path, stem, rows) for stem, rows in (("a", texts), ("b", repeats), ("c", pivots))]
    manifest, run = prepared(make_config(tmp_path, corpora, valid=30, test=30))
    assert len(manifest["directions"]) == 6
    assert set(manifest["split"]["valid"].values()) == set(manifest["split"]["test"].values()) == {30}
    for one, other in combinations([folded_sides(run, name) for name in ("train", "valid", "test")], 2):
        assert not one & other


def test_un_development_set_as_six_directions(tmp_path: Path, shared: Path) -> None:
    files = {lang: str(shared / "data" / "unpc" / f"UNv1.0.devset.{lang}") for lang in ("en", "fr", "zh")}
    config = make_config(tmp_path, [files], "model.max_length=256", "tokenizer.vocab_size=4000", valid=200, test=200)
    manifest, run = prepared(config)
    assert manifest["corpora"][0]["read"] == 12_000
    assert len(manifest["directions"]) == 6
    assert list(manifest["split"]["valid"].values()) == list(manifest["split"]["test"].values()) == [200] * 6
    for one, other in combinations([folded_sides(run, name) for name in ("train", "valid", "test")], 2):
        assert not one & other


def test_dirty_15_overlap_with_own_valid_files(tmp_path: Path, shared: Path) -> None:
    train, valid = (
        {lang: str(shared / "data" / "dirty" / f"15_dup_train_valid.{name}.{lang}") for lang in ("en", "fr")}
        for name in ("train", "valid")
    )
    said: list[str] = []
    manifest, run = prepared(make_config(tmp_path, [train], valid={"files": valid}, test=None), said)
    entry = manifest["corpora"][0]
    stem = "15_dup_train_valid.train.en"
    assert entry["read"] == 18
    assert entry["dropped"] == {
        "repeat": {"count": 2, "first": [f"{stem}:17", f"{stem}:18"]},
        "overlap_exact": {"count": 2, "first": [f"{stem}:3", f"{stem}:8"]},
        "overlap_folded": {"count": 1, "first": [f"{stem}:12"]},
        "overlap_one_side": {"count": 1, "first": [f"{stem}:5"]},
    }
    assert entry["kept"] == 12
    kinds = {"exact": 2, "folded": 1, "one_side": 1}
    assert manifest["overlap"] == {**kinds, "held_out": {"valid": kinds}}
    assert "exact 2, folded 1, one side 1" in said[-1]
    assert manifest["split"]["valid"] == {"en-fr": 7, "fr-en": 7}
    assert not folded_sides(run, "train") & folded_sides(run, "valid")
    with pytest.raises(DataError, match="no test split"):
        open_split(run, "test")


def test_own_valid_that_is_in_own_test_is_told(tmp_path: Path) -> None:
    own = pick(lines(5, seed=1), "en", "fr")
    said: list[str] = []
    splits = {name: {"files": write(tmp_path, name, own)} for name in ("valid", "test")}
    manifest, _ = prepared(make_config(tmp_path, [write(tmp_path, "t", pick(lines(30), "en", "fr"))], **splits), said)
    assert manifest["overlap"]["valid_in_test"] == {"exact": 5, "folded": 0, "one_side": 0}
    assert "your valid files overlap with your test files: exact 5" in said[-1]


# ── found again, or made anew ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(47)
def test_prepared_data_never_goes_stale(tmp_path: Path) -> None:
    texts = pick(lines(60), "en", "fr")
    files = write(tmp_path, "train", texts)
    said: list[str] = []
    manifest, run = prepared(make_config(tmp_path, [files]), said)
    written = (run.data_dir / "train.arrow").stat().st_mtime_ns
    said.clear()
    # another batch size, learning rate, name of the file: the same data
    moved = write(tmp_path / "elsewhere", "other", texts)
    for config in (
        make_config(tmp_path, [files], "train.max_tokens=1000", "train.learning_rate=0.1", "decode.beam_size=2"),
        make_config(tmp_path, [moved]),
    ):
        assert prepared(config, said)[0] == manifest
    assert (run.data_dir / "train.arrow").stat().st_mtime_ns == written
    assert len(said) == 2
    assert all("already prepared" in line for line in said)
    # one byte, the length, the vocabulary, the seed, a filter: other data
    path = Path(files["en"])
    path.write_bytes(path.read_bytes().replace(b"The", b"the", 1))
    seen = {manifest["fingerprint"]}
    for overrides in ([], ["model.max_length=63"], ["tokenizer.type=bpe"], ["run.seed=2"], ["data.drop_repeats=false"]):
        config = make_config(tmp_path, [files], *overrides)
        said.clear()
        again, _ = prepared(config, said)
        assert "prepared anew" in said[0]
        assert again["fingerprint"] == fingerprint(config)
        assert again["fingerprint"] not in seen
        assert prepared(config)[0] == again
        seen.add(again["fingerprint"])


@pytest.mark.need(47)
def test_a_swapped_tokenizer_or_a_cut_file_is_noticed(tmp_path: Path) -> None:
    config = make_config(tmp_path, [write(tmp_path, "train", pick(lines(60), "en", "fr"))])
    manifest, run = prepared(config)
    for path, change in ((run.tokenizer_path, b"x"), (run.data_dir / "train.arrow", b"")):
        path.write_bytes(path.read_bytes()[:-1] + change)
        with pytest.raises(DataError, match=path.name):
            open_split(run, "train")
        said: list[str] = []
        assert prepared(config, said)[0] == manifest
        assert path.name in said[0]
        assert len(open_split(run, "train")) == 80


def test_a_killed_preparation_is_simply_done_again(tmp_path: Path, monkeypatch: Any) -> None:
    files = write(tmp_path, "train", pick(lines(60), "en", "fr"))
    manifest, run = prepared(make_config(tmp_path, [files]))
    config = make_config(tmp_path, [files], "run.seed=2")
    whole = RowWriter.write

    def killed(self: RowWriter, path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == "valid.arrow":
            raise KeyboardInterrupt
        return whole(self, path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            prepared(config)
    assert not run.manifest_path.exists()
    for split in ("train", "valid"):
        with pytest.raises(DataError, match="xyd prepare"):
            open_split(run, split)
    (run.data_dir / ".train.arrow.x.part").write_bytes(b"of a kill -9")
    # neither the old config nor the new one takes the mixture for its own
    assert prepared(make_config(tmp_path, [files]))[0] == manifest
    assert prepared(config)[0]["fingerprint"] != manifest["fingerprint"]
    names = sorted(path.name for path in run.data_dir.iterdir())
    assert names == ["order.json", "test.arrow", "train.arrow", "valid.arrow"]


def test_too_little_memory_is_told_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, "train", pick(lines(60), "en", "fr"))

    def broken(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("xyd.corpus.pairs.Digester.__call__", broken)
    with pytest.raises(DataError, match="too little memory"):
        prepared(make_config(tmp_path, [files]))


def test_an_error_in_the_corpus_leaves_the_earlier_data_alone(tmp_path: Path) -> None:
    files = write(tmp_path, "train", pick(lines(60), "en", "fr"))
    manifest, run = prepared(make_config(tmp_path, [files]))
    with Path(files["en"]).open("a", encoding="utf-8") as file:
        file.write("one line too many\n")
    with pytest.raises(DataError, match="61"):
        prepared(make_config(tmp_path, [files]))
    assert len(open_split(run, "train")) == 80
    assert json.loads(run.manifest_path.read_text(encoding="utf-8")) == manifest


def contents(run: RunDir) -> dict[str, bytes]:
    paths = [run.tokenizer_path, run.manifest_path, *sorted(run.data_dir.iterdir())]
    return {path.name: path.read_bytes() for path in paths}


@settings(max_examples=6, deadline=None, derandomize=True)
@given(order=st.permutations(range(4)), options=st.sampled_from([[], ["data.split.near_duplicates=0.8"]]))
def test_the_order_of_corpora_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], options: list[str]
) -> None:
    """Nor does it for repeats across corpora: manifest, tokenizer and rows are the same, byte for byte."""
    folder = tmp_path_factory.mktemp("order")
    parts = [write(folder, str(seed), pick(lines(40, seed), "en", "fr")) for seed in range(3)]
    again = {lang: rows[:20] for lang, rows in pick(lines(40, 1), "en", "fr").items()}
    again["fr"][:5] = [row.upper() for row in again["fr"][:5]]
    parts.append(write(folder, "again", again))
    found = []
    for number, corpora in enumerate((parts, [parts[position] for position in order])):
        (folder / str(number)).mkdir()
        config = make_config(folder / str(number), corpora, "tokenizer.sample_size=60", *options)
        _, run = prepared(config)
        # what the rows' corpora are called in this config is not part of the data
        found.append({name: data for name, data in contents(run).items() if name != "order.json"})
        if number:
            first = configuration.load(folder / "0" / "config.yaml", options)
            assert not [one for one in configuration.differences(first, config) if one.key.startswith("data.corpora")]
    assert found[0] == found[1]


def test_the_same_corpora_in_another_order_are_prepared_already(tmp_path: Path) -> None:
    parts = [write(tmp_path, str(seed), pick(lines(40, seed), "en", "fr")) for seed in range(2)]
    manifest, _ = prepared(make_config(tmp_path, parts))
    said: list[str] = []
    assert prepared(make_config(tmp_path, parts[::-1]), said)[0] == manifest
    assert "already prepared" in said[0]


@pytest.mark.parametrize("content", [None, "{", "[0, 0]", "7", '["a", "b"]'])
def test_an_order_that_is_lost_is_written_again(tmp_path: Path, content: str | None) -> None:
    """A kill between manifest.json and order.json must not leave a run that no command can mend."""
    parts = [write(tmp_path, str(seed), pick(lines(40, seed), "en", "fr")) for seed in range(2)]
    config = make_config(tmp_path, parts)
    manifest, run = prepared(config)
    path = run.data_dir / "order.json"
    order = path.read_text(encoding="utf-8")
    if content is None:
        path.unlink()
    else:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"order\.json: missing or damaged; run `xyd prepare CONFIG`"):
        mixture(config, run, open_split(run, "train"))
    assert prepared(config)[0] == manifest
    assert path.read_text(encoding="utf-8") == order


def test_the_order_of_files_in_a_folder_does_not_matter(tmp_path: Path) -> None:
    texts = lines(60)
    found = []
    for number, order in enumerate(([0, 1, 2], [2, 0, 1])):
        folder = tmp_path / str(number) / "set"
        folder.mkdir(parents=True)
        for part in order:  # the order in which the system lists them
            rows = [{"en": texts["en"][n], "fr": texts["fr"][n]} for n in range(20 * part, 20 * part + 20)]
            text = "".join(json.dumps({"translation": row}) + "\n" for row in rows)
            (folder / f"part{part}.json").write_text(text, encoding="utf-8")
        here = f"data.corpora=[{{hf: {{path: {folder}}}, languages: [en, fr]}}]"
        config = make_config(tmp_path / str(number), [{"en": "x", "fr": "y"}], here)
        manifest, run = prepared(config)
        tokenizer = Tokenizer.load(run.tokenizer_path)
        found.append([texts_of(open_split(run, name), tokenizer) for name in ("train", "valid", "test")])
        found.append([manifest["split"], manifest["groups"], manifest["tokenizer"]])
    assert found[:2] == found[2:]


# ── sizes, shares, strictness ───────────────────────────────────────────────────────────────────────────────────────


def test_shares_and_sizes_by_direction(tmp_path: Path) -> None:
    en_fr = write(tmp_path, "a", pick(lines(200), "en", "fr"))
    en_zh = write(tmp_path, "b", pick(lines(100, seed=1), "en", "zh"))
    config = make_config(tmp_path, [en_fr, en_zh], valid=0.1, test={"en-zh": 7, "fr-en": 0.05})
    assert configuration.load(write_dump(tmp_path, config)) == config
    manifest, _ = prepared(config)
    assert manifest["split"]["valid"] == {"en-fr": 20, "en-zh": 10, "fr-en": 20, "zh-en": 10}
    assert manifest["split"]["test"] == {"en-fr": 10, "en-zh": 7, "fr-en": 10, "zh-en": 7}
    assert manifest["groups"] == {"groups": 300, "pairs_in_larger_groups": 0}


def write_dump(folder: Path, config: Config) -> Path:
    path = folder / "dump.yaml"
    path.write_text(configuration.dump(config), encoding="utf-8")
    return path


@pytest.mark.need(24)
def test_strict_tells_of_the_corpora_that_overlap_among_others_that_do_not(tmp_path: Path) -> None:
    parts = [write(tmp_path, str(seed), pick(lines(40, seed), "en", "fr")) for seed in range(2)]
    config = make_config(tmp_path, parts, valid={"files": write(tmp_path, "own", pick(lines(5, 1), "en", "fr"))})
    with pytest.raises(DataError, match=r"exact: 5 pairs: 1\.en:1, 1\.en:2"):
        prepare(config, RunDir(tmp_path / "runs" / "r"), [].append, strict=True)


@pytest.mark.need(24)
def test_strict_refuses_overlap_with_counts_and_places(tmp_path: Path) -> None:
    texts, own = pick(lines(60), "en", "fr"), pick(lines(12, seed=1), "en", "fr")
    for lang in own:
        own[lang][:3] = texts[lang][7:10]
    own["fr"][1] = own["fr"][1].upper()
    own["fr"][2] = "Autre chose."
    valid, test = (
        write(tmp_path, "valid", own),
        write(tmp_path, "test", {lang: rows[3:6] for lang, rows in own.items()}),
    )
    corpora = [write(tmp_path, "train", texts)]
    config = make_config(tmp_path, corpora, valid={"files": valid}, test={"files": test})
    run = RunDir(Path(config.run.dir) / config.run.name)
    message = (
        "(?s)exact: 1 pair: train.en:8\n.*folded: 1 pair: train.en:9\n.*one side: 1 pair: train.en:10\n"
        ".*valid files overlap with your test files: exact 3"
    )
    with pytest.raises(DataError, match=message):
        prepare(config, run, [].append, strict=True)
    assert not run.manifest_path.exists()
    manifest, _ = prepared(config)
    assert manifest["overlap"]["held_out"]["valid"] == {"exact": 1, "folded": 1, "one_side": 1}
    with pytest.raises(DataError, match=message):  # what is prepared already is refused too
        prepare(config, run, [].append, strict=True)
    clean = make_config(
        tmp_path, corpora, valid={"files": write(tmp_path, "v", pick(lines(5, 2), "en", "fr"))}, test=10
    )
    assert prepare(clean, run, [].append, strict=True)["overlap"] == {
        "exact": 0, "folded": 0, "one_side": 0, "held_out": {"valid": {"exact": 0, "folded": 0, "one_side": 0}},
    }  # fmt: skip


def test_a_tokenizer_taken_from_another_run(tmp_path: Path) -> None:
    files = write(tmp_path, "train", lines(60))
    first, run = prepared(make_config(tmp_path, [files]))
    other = RunDir(tmp_path / "runs" / "other")
    config = make_config(tmp_path, [files], directions=["en-fr"])
    manifest = prepare(config, other, [].append, tokenizer_from=run.root)
    assert manifest["tokenizer"]["sha256"] == first["tokenizer"]["sha256"]
    assert other.tokenizer_path.read_bytes() == run.tokenizer_path.read_bytes()
    assert manifest["fingerprint"] != fingerprint(config)
    assert manifest["fingerprint"] == fingerprint(config, run.tokenizer_path)
    one_way = RunDir(tmp_path / "runs" / "one-way")
    prepare(config, one_way, [].append)
    with pytest.raises(DataError, match="no tag for en, zh"):
        prepare(make_config(tmp_path, [files]), other, [].append, tokenizer_from=one_way.root)


def test_a_corpus_serves_only_the_directions_it_is_for(tmp_path: Path) -> None:
    both, one = (
        write(tmp_path, "both", pick(lines(60), "en", "fr")),
        write(tmp_path, "one", pick(lines(40, 1), "en", "fr")),
    )
    config = make_config(tmp_path, [both, one], "data.corpora.1.directions=[fr-en]")
    manifest, run = prepared(config)
    split = open_split(run, "train")
    order = json.loads((run.data_dir / "order.json").read_text())
    assert sorted(order) == [0, 1]
    by = Counter(zip((order[c] for c in split.corpus), (split.directions[d] for d in split.direction), strict=True))
    assert by[1, "fr-en"] > 20
    assert by[1, "en-fr"] == 0
    assert by[0, "en-fr"] == by[0, "fr-en"]
    assert manifest["corpora"][order.index(1)]["read"] == 40


def test_what_an_epoch_holds_is_foreseen_whatever_the_order_of_corpora(tmp_path: Path) -> None:
    """`xyd plan` of a config that lists the corpora in another order than the one that was prepared."""
    few, many = (write(tmp_path, str(n), pick(lines(n, n), "en", "fr")) for n in (40, 90))
    first = make_config(tmp_path, [few, many], "data.corpora.0.weight=3")
    _, run = prepared(first)
    before = (run.data_dir / "order.json").read_bytes()
    again = make_config(tmp_path, [many, few], "data.corpora.1.weight=3")
    seen = [
        sum(cell.quota for cell in mixture(config, run, open_split(run, "train"), is_current=False).cells)
        for config in (first, again)
    ]
    seen.append(sum(cell.quota for cell in mixture(first, run, open_split(run, "train")).cells))
    assert len(set(seen)) == 1
    assert (run.data_dir / "order.json").read_bytes() == before


def test_an_epoch_that_would_be_empty_is_an_error(tmp_path: Path) -> None:
    files = write(tmp_path, "train", pick(lines(60), "en", "fr"))
    config = make_config(tmp_path, [files], "data.corpora.0.weight=0.001")
    _, run = prepared(config)
    with pytest.raises(DataError, match=r"with weights of 0\.001 an epoch shows none of the 80 rows"):
        mixture(config, run, open_split(run, "train"))


def test_processes_prepare_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks go through forked processes in order: the files are equal byte for byte."""
    files = write(tmp_path, "train", pick(lines(400), "en", "fr"))
    monkeypatch.setattr("xyd.corpus.pairs.BATCH_ROWS", 20)
    monkeypatch.setattr("xyd.corpus.rows.BATCH_ROWS", 20)
    written = []
    for cores, name in ((1, "one"), (2, "two")):
        monkeypatch.setattr("xyd.distributed.num_cores", lambda cores=cores: cores)
        manifest, run = prepared(make_config(tmp_path, [files], f"run.name={name}"))
        content = [(run.data_dir / f"{split}.arrow").read_bytes() for split in ("train", "valid", "test")]
        written.append((manifest, content))
    assert written[0] == written[1]


def test_a_repeat_does_not_take_a_direction_away(tmp_path: Path) -> None:
    """Of equal pairs that of the corpus with more directions stays, whatever the order and the content."""
    few = write(tmp_path, "few", pick(lines(40), "en", "fr"))
    for seed in range(3):
        more = pick(lines(40), "en", "fr")
        for lang, rows in pick(lines(30, seed + 1), "en", "fr").items():
            more[lang] = more[lang] + rows
        files = write(tmp_path, f"more{seed}", more)
        one_way = f"run.name=r{seed}", "data.corpora.0.directions=[en-fr]"
        manifest, _ = prepared(make_config(tmp_path, [files, few], *one_way))
        assert manifest["split"]["train"]["fr-en"] > 10


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        (("en-fr", "fr-en"), ["en-fr", "fr-en"]),
        (("fr-en", "en-fr", "both"), ["en-fr", "fr-en"]),
        (("en-fr", "en-fr"), ["en-fr", "fr-en"]),
        (("en-fr", "both"), ["fr-en"]),
    ],
)
def test_a_repeat_is_one_only_where_its_directions_are_served(
    tmp_path: Path, used: tuple[str, ...], wanted: list[str]
) -> None:
    """The same lines in several corpora: each stands once in every direction that any of the corpora is used for."""
    files = [write(tmp_path, str(number), pick(lines(60), "en", "fr")) for number in range(len(used))]
    served = [name for name in wanted if name in used or "both" in used]
    own = [f"data.corpora.{i}.directions=[{name}]" for i, name in enumerate(used) if name != "both"]
    manifest, run = prepared(make_config(tmp_path, files, *own, valid=4, test=None, directions=served))
    assert sum(entry["read"] for entry in manifest["corpora"]) == 60 * sum(
        name == "both" or name in served for name in used
    )
    found = Counter(
        (split.directions[direction], split.src_ids(row).tobytes())
        for split in (open_split(run, name) for name in ("train", "valid"))
        for row, direction in enumerate(split.direction)
    )
    assert set(found.values()) == {1}
    assert Counter(name for name, _ in found) == dict.fromkeys(served, 60)


def test_valid_is_never_left_empty_in_silence(tmp_path: Path) -> None:
    """A document larger than what is asked for cannot be split off: that is told before training."""
    texts = pick(lines(60), "en", "fr")
    files = write(tmp_path, "train", texts)
    (tmp_path / "ids").write_text("".join(f"{n // 30}\n" for n in range(60)), encoding="utf-8")
    group = f"data.corpora.0.group={tmp_path / 'ids'}", "data.split.group_by=group", "data.test=null"
    with pytest.raises(DataError, match=r"data\.valid"):
        prepared(make_config(tmp_path, [files], *group))


def test_data_of_an_older_xyd_is_refused_by_name(tmp_path: Path) -> None:
    _, run = prepared(make_config(tmp_path, [write(tmp_path, "train", pick(lines(60), "en", "fr"))]))
    path = run.data_dir / "train.arrow"
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = reader.read_all().drop_columns(["corpus"])
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match=r"older xyd \(it has no corpus\); run `xyd prepare` again"):
        PreparedSplit(path, ["en-fr"])
