"""Needs that are shown on the whole of the product, through its command.

`need(n)` marks them wherever they stand; the table says which tests are meant to show a need of the data half.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import XX, YAML, YY, write_corpus

from xyd import __version__, cli
from xyd.config import EOS_ID, TokenizerConfig
from xyd.corpus import open_split
from xyd.files import RunDir
from xyd.tokenizer import Tokenizer, train_tokenizer

ROOT = Path(__file__).parents[1]

SHOWN_BY = {
    10: ["test_needs.test_memory_grows_little_with_pairs_and_stays_flat_over_epochs"],
    11: ["test_needs.test_a_sample_is_bounded_and_said", "test_needs.test_a_sample_takes_no_more_memory_than_its_size"],
    12: ["test_needs.test_the_wheel_installs_and_answers"],
    22: ["test_needs.test_c_locale_odd_paths_and_crlf", "test_cli.test_texts_go_out_in_utf8_whatever_the_locale"],
    23: [
        "test_needs.test_a_corpus_of_strange_tokens_trains_and_every_id_has_its_piece",
        "test_tokenizer.test_odd_characters_as_frequent_tokens",
    ],
    24: [
        "test_fate.test_three_way_corpus_with_repeats_in_six_directions",
        "test_fate.test_nothing_is_on_two_sides_of_a_split_whatever_the_options",
        "test_corpus.test_strict_refuses_overlap_with_counts_and_places",
    ],
    32: [
        "test_six_directions.test_text_that_looks_like_a_tag_stays_text",
        "test_tokenizer.test_no_text_gives_a_special_id_even_if_the_corpus_is_full_of_them",
    ],
    34: [
        "test_needs.test_composed_and_decomposed_text_is_one_to_the_product",
        "test_text.test_composed_and_decomposed_accents_are_the_same_text",
        "test_dirty.test_case_12_decomposed_equals_composed",
    ],
    35: [
        "test_needs.test_marks_nul_and_tabs_give_the_ids_of_clean_text",
        "test_needs.test_a_row_of_three_columns_is_dropped_by_its_number",
        "test_text.test_a_mark_a_nul_or_a_tab_gives_the_same_text_as_clean",
    ],
    46: ["test_batching.test_a_corpus_sorted_by_its_source_is_drawn_from_everywhere_at_once"],
}


@pytest.mark.parametrize("need", SHOWN_BY)
def test_the_tests_of_a_need_exist_and_are_marked(need: int) -> None:
    for name in SHOWN_BY[need]:
        module, function = name.split(".")
        tree = ast.parse((ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8"))
        (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
        assert f"pytest.mark.need({need})" in [ast.unparse(mark) for mark in found.decorator_list], name


def config_of(folder: Path, corpus: dict[str, Any], **sections: Any) -> Path:
    """A small configuration of one corpus in `folder`; the run goes to folder/r."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = {
        "run": {"name": "r", "dir": str(folder)},
        "data": {"corpora": [corpus], "valid": 4},
        "tokenizer": {"vocab_size": 400},
        "augment": {"scale": 0},
        **sections,
    }
    path = folder / "c.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    return path


def numbered(line: int) -> tuple[str, str]:
    """A pair that no other line has, words like those of a language."""
    digits = [int(digit) for digit in str(line)]
    return " ".join(XX[2 * d] for d in digits), " ".join(YY[2 * d] for d in digits)


# ── 10, 11: memory ───────────────────────────────────────────────────────────────────────────────────────────────────

# Most memory held at once by a process and its children; pages they share are counted once, mapped files not.
PEAK = """
import os, sys, threading
from pathlib import Path
from xyd import cli

def held(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text("ascii").split()]
    except OSError:  # it has ended
        return 0, 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    below = [held(child) for child in children]
    return own + sum(size for size, _ in below), 1 + sum(number for _, number in below)

def watch():
    while not done.wait(0.1):
        found = held(os.getpid())
        most[:] = map(max, most, found)

most, done = [0, 0], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
code = cli.main(["prepare", sys.argv[1]])
done.set()
watcher.join()
assert code == 0
print("PEAK", *most)
"""

EPOCHS = """
import sys
from xyd import config
from xyd.batching import make_batch
from xyd.train import Trainer

def resident():
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))

trainer = Trainer(config.load(sys.argv[1]))
for epoch in range(3):
    while trainer.state.epoch == epoch:
        for rows in trainer._next_micro_batches():
            make_batch(trainer.split, rows, trainer.start_ids)
    print("HELD", resident())
trainer.log.close()
"""


def python(code: str, *arguments: str | Path) -> list[list[int]]:
    """Numbers of the lines in capitals that `code` printed, with two processes for what is shared out."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", env=environment, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return [[int(number) for number in line[1:]] for line in lines if line[:1] in (["PEAK"], ["HELD"])]


@pytest.mark.slow
@pytest.mark.need(10)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_grows_little_with_pairs_and_stays_flat_over_epochs(tmp_path: Path) -> None:
    """The list's 5 million pairs in small, over the three processes. scripts/bench_data.py measures millions.

    At this size what has a bound of its own (queues, caches) is still filling, 230 to 370 bytes a pair by how busy the
    machine is. Copies of the pairs as Python objects in every process would take more than 1,500.
    """
    peaks = {}
    sections = {"tokenizer": {"vocab_size": 400, "sample_size": 5_000}, "model": {"d_model": 16, "num_heads": 2}}
    for num_pairs in (100_000, 300_000):
        folder = tmp_path / str(num_pairs)
        folder.mkdir()
        with (folder / "a.tsv").open("w", encoding="utf-8") as file:
            file.writelines("\t".join(numbered(line)) + "\n" for line in range(1_000_000, 1_000_000 + num_pairs))
        path = config_of(folder, {"tsv": str(folder / "a.tsv"), "languages": ["xx", "yy"]}, **sections)
        ((kilobytes, processes),) = python(PEAK, path)
        assert processes == 3
        peaks[num_pairs] = kilobytes * 1024
    growth = (peaks[300_000] - peaks[100_000]) / 200_000
    assert growth < 700, f"{growth:.0f} bytes a pair; peaks {peaks}"
    assert max(peaks.values()) < 1_000_000_000, peaks
    held = [kilobytes for (kilobytes,) in python(EPOCHS, path)]
    assert abs(held[2] - held[1]) < 10_000, f"{held} kB after each epoch"


@pytest.mark.need(11)
def test_a_sample_is_bounded_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(numbered(n)) + "\n" for n in range(1000, 1500)), "utf-8")
    corpus = {"tsv": str(tmp_path / "a.tsv"), "languages": ["xx", "yy"]}
    for size, is_said in ((100, True), (5000, False)):
        path = config_of(tmp_path / str(size), corpus, tokenizer={"vocab_size": 300, "sample_size": size})
        assert cli.main(["prepare", str(path)]) == 0
        said = capsys.readouterr().out
        assert ("tokenizer: trained on 100 texts of the 992 in train (tokenizer.sample_size)" in said) == is_said


@pytest.mark.need(11)
def test_a_sample_takes_no_more_memory_than_its_size(tmp_path: Path) -> None:
    def texts() -> Iterator[str]:
        for line in range(100_000, 200_000):
            yield " ".join(numbered(line)) * 3

    config = TokenizerConfig(vocab_size=300, sample_size=500)
    tracemalloc.start()
    try:
        train_tokenizer(texts(), config, ["yy"], tmp_path / "tokenizer.model", 1, lambda _text: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000  # all of the text would be more than 15 MB


# ── 12: the wheel ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.need(12)
def test_the_wheel_installs_and_answers(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="builds without a network, so setuptools must be here")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "xyd", source / "xyd", ignore=shutil.ignore_patterns("__pycache__"))

    def pip(*arguments: str | Path) -> None:
        command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "-q"]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    pip("wheel", "--no-build-isolation", "--wheel-dir", tmp_path / "dist", source)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == f"xyd-{__version__}-py3-none-any.whl"  # nothing to compile
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"xyd-{__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode("utf-8")
        assert "xyd = xyd.cli:main" in archive.read(f"{info}/entry_points.txt").decode("utf-8")
    packed = {name for name in names if not name.startswith(info)}
    assert packed == {path.relative_to(ROOT).as_posix() for path in (ROOT / "xyd").rglob("*.py")}
    assert f"{info}/licenses/LICENSE" in names
    pins = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    assert pins
    assert not [pin for pin in pins if "==" in pin or "<" in pin], "lower bounds only, or others cannot install it"

    pip("install", "--target", tmp_path / "installed", wheel)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "PYTHONPATH": str(tmp_path / "installed")
    }
    script = tmp_path / "installed" / "bin" / "xyd"
    for command in ([sys.executable, "-m", "xyd"], [sys.executable, str(script)]):
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=environment
        )
        assert (done.returncode, done.stdout.split()[-1]) == (0, __version__), done.stderr
    found = subprocess.run(
        [sys.executable, "-c", "import xyd; print(xyd.__file__)"],
        capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(tmp_path)


# ── 22: locale, paths, line ends ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.need(22)
def test_c_locale_odd_paths_and_crlf(tmp_path: Path) -> None:
    """prepare, train, translate with nothing in the environment that speaks UTF-8, in a folder of an odd name."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LC_")} | {
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "cp1252",
        "PYTHONWARNDEFAULTENCODING": "1",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C",
        "LANG": "C",
    }

    def xyd(*arguments: str, cwd: Path, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "xyd", *arguments], input=stdin.encode(), capture_output=True, cwd=cwd,
            env=environment, timeout=300,
        )  # fmt: skip
        said = done.stderr.decode("utf-8")
        assert done.returncode == 0, said
        assert not re.search(r"/xyd/\S+: EncodingWarning", said), said
        return done.stdout.decode("utf-8") or said

    runs = []
    for newline in ("\n", "\r\n"):
        folder = tmp_path / f"my 文件夹 {len(newline)}"
        write_corpus(folder, 120)
        for lang in ("xx", "yy"):
            text = (folder / f"toy.{lang}").read_text("utf-8")
            (folder / f"toy.{lang}").unlink()
            text = text.replace("be", "é好")  # more than ASCII
            (folder / f"语料 库.{lang}").write_bytes(text.replace("\n", newline).encode("utf-8"))
        yaml = (
            YAML.replace("toy.xx", '"语料 库.xx"').replace("toy.yy", '"语料 库.yy"').replace("name: toy", "name: 衔 言")
        )
        (folder / "配 置.yaml").write_bytes(yaml.replace("\n", newline).encode("utf-8"))
        flags = ["--set", "run.dir=跑 runs", "--set", "train.max_steps=2"]
        assert "read 120 pairs" in xyd("prepare", "配 置.yaml", *flags, cwd=folder)
        told = xyd("train", "配 置.yaml", *flags, cwd=folder)
        assert "xyd translate '跑 runs/衔 言'" in told
        out = xyd(
            "translate", "跑 runs/衔 言", "--tgt-lang", "yy", cwd=folder, stdin=f"é好 ba{newline}{newline}ba{newline}"
        )
        assert out.count("\n") == 3
        assert out.split("\n")[1] == ""
        runs.append((RunDir(folder / "跑 runs" / "衔 言"), out.replace("\r", "")))
    (lf, first), (crlf, second) = runs
    assert first == second
    assert lf.tokenizer_path.read_bytes() == crlf.tokenizer_path.read_bytes()
    for name in ("train", "valid", "test"):
        one, other = open_split(lf, name), open_split(crlf, name)
        assert [one.src_ids(i).tolist() for i in range(len(one))] == [
            other.src_ids(i).tolist() for i in range(len(other))
        ]


# ── 23, 34, 35: odd text ─────────────────────────────────────────────────────────────────────────────────────────────


def prepared(folder: Path, pairs: list[tuple[str, str]], **sections: Any) -> RunDir:
    """A run on these pairs, as JSON lines, so that no line end gets in the way."""
    folder.mkdir()
    rows = "".join(json.dumps({"en": src, "fr": tgt}) + "\n" for src, tgt in pairs)
    (folder / "a.jsonl").write_text(rows, encoding="utf-8")
    path = config_of(folder, {"jsonl": str(folder / "a.jsonl"), "languages": ["en", "fr"]}, **sections)
    assert cli.main(["prepare", str(path)]) == 0
    return RunDir(folder / "r")


def ids_of(run: RunDir) -> list[tuple[list[int], list[int]]]:
    return [
        (split.src_ids(row).tolist(), split.tgt_ids(row).tolist())
        for split in (open_split(run, "train"), open_split(run, "valid"))
        for row in range(len(split))
    ]


@pytest.mark.need(23)
def test_a_corpus_of_strange_tokens_trains_and_every_id_has_its_piece(tmp_path: Path) -> None:
    strange = ["\r", "\x85", "\u2028", "\u3000", "\t", "\0", "\u2581", "\u2585", "\x1c", "\ufeff", "\u200d", "<s>", '"']
    pairs = [
        (f"{strange[n % 13]}{src}{strange[n % 7]}", f"{tgt} {strange[n % 11]} {strange[n % 5]}")
        for n, (src, tgt) in enumerate(numbered(line) for line in range(1000, 1300))
    ]
    run = prepared(tmp_path / "c", pairs)
    tokenizer = Tokenizer.load(run.tokenizer_path)
    pieces = [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
    assert len(set(pieces)) == tokenizer.vocab_size
    scores = tokenizer.scores()
    for token in range(EOS_ID + 1, tokenizer.vocab_size):
        if not tokenizer.is_byte(token) and pieces[token] not in {f"<2{lang}>" for lang in tokenizer.languages}:
            assert scores[pieces[token]][0] == token
    manifest = json.loads(run.manifest_path.read_text("utf-8"))
    assert manifest["corpora"][0]["read"] == manifest["corpora"][0]["kept"] == 300


ACCENTS = [
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Un élève déçu a mangé là-bas, à côté du château.",
    "Tiếng Việt có rất nhiều dấu thanh.",
    "한국어 문장은 자모로 나뉠 수 있다.",
]


@pytest.mark.need(34)
def test_composed_and_decomposed_text_is_one_to_the_product(tmp_path: Path) -> None:
    base = [(f"{ACCENTS[n % 4]} {n}", f"{ACCENTS[(n + 1) % 4]} {n}.") for n in range(100)]
    runs = {}
    for form in ("NFC", "NFD"):
        texts = [(unicodedata.normalize(form, src), unicodedata.normalize(form, tgt)) for src, tgt in base]
        runs[form] = prepared(tmp_path / form, texts)
    assert runs["NFC"].tokenizer_path.read_bytes() == runs["NFD"].tokenizer_path.read_bytes()
    assert ids_of(runs["NFC"]) == ids_of(runs["NFD"])
    tokenizer = Tokenizer.load(runs["NFC"].tokenizer_path)
    for text in ACCENTS:  # as translate and score encode what users type
        composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
        assert composed != decomposed
        assert tokenizer.encode(composed) == tokenizer.encode(decomposed)


@pytest.mark.need(35)
def test_marks_nul_and_tabs_give_the_ids_of_clean_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = [numbered(line) for line in range(1000, 1100)]
    dirty = list(clean)
    dirty[0] = f"\ufeff{clean[0][0]}", clean[0][1]
    dirty[10] = clean[10][0].replace(" ", " \ufeff", 1), clean[10][1]
    dirty[20] = clean[20][0][:1] + "\0" + clean[20][0][1:], clean[20][1]
    dirty[30] = clean[30][0], clean[30][1].replace(" ", "\t", 1)
    one = prepared(tmp_path / "clean", clean)
    capsys.readouterr()
    other = prepared(tmp_path / "dirty", dirty)
    said = capsys.readouterr().out
    assert one.tokenizer_path.read_bytes() == other.tokenizer_path.read_bytes()
    assert ids_of(one) == ids_of(other)
    changed = json.loads(other.manifest_path.read_text("utf-8"))["corpora"][0]["changed"]
    assert {name: found["count"] for name, found in changed.items()} == {"bom": 2, "nul": 1, "tab": 1}
    for name, places in (("bom", "a.jsonl:1, a.jsonl:11"), ("nul", "a.jsonl:21"), ("tab", "a.jsonl:31")):
        assert re.search(rf"changed: {name} +\d   {places}", said)


@pytest.mark.need(35)
def test_a_row_of_three_columns_is_dropped_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["\t".join(numbered(line)) for line in range(1000, 1100)]
    rows[16] += "\tone more"
    (tmp_path / "a.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    path = config_of(tmp_path, {"tsv": str(tmp_path / "a.tsv"), "languages": ["xx", "yy"]})
    assert cli.main(["prepare", str(path)]) == 0
    assert re.search(r"ragged_row +1   a\.tsv:17", capsys.readouterr().out)
    split = open_split(RunDir(tmp_path / "r"), "train")
    assert "a.tsv:17" not in {split.origin(row) for row in range(len(split))}
    assert np.all(split.src_lengths > 0)
