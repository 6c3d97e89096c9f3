from __future__ import annotations

import itertools
import re
import resource
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from xyd import config
from xyd.config.describe import explain
from xyd.config.problems import every_key, model_at, model_in
from xyd.config.source import scalar
from xyd.errors import ConfigError
from xyd.health.findings import KINDS

REPOSITORY = Path(__file__).parent.parent
SHIPPED = sorted((REPOSITORY / "configs").glob("*.yaml"))

MINIMAL = """\
run: {name: test}
data:
  corpora:
    - files: {en: train.en, zh: train.zh}
  valid: 10
"""


def write(folder: Path, text: str, name: str = "x.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.load(path, overrides)
    return str(caught.value).splitlines()


def the_problem(path: Path, *overrides: str) -> str:
    found = problems(path, *overrides)
    assert len(found) == 1, found
    return found[0]


# ── what is accepted ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_minimal_config_has_the_documented_defaults(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path, MINIMAL))
    assert loaded.data.directions == "all"
    assert config.directions(loaded) == [("en", "zh"), ("zh", "en")]
    assert (loaded.model.d_model, loaded.model.num_heads, loaded.tokenizer.vocab_size) == (384, 6, 48000)
    assert (config.PAD_ID, config.UNK_ID, config.BOS_ID, config.EOS_ID) == (0, 1, 2, 3)
    assert loaded.data.test is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e6", 1e6),
        (".5", 0.5),
        ("-2.", -2.0),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("no", "no"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        (".inf", float("inf")),
        ("-.inf", float("-inf")),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_norwegian_is_a_language_and_floats_may_be_whole(tmp_path: Path) -> None:
    text = MINIMAL.replace("zh: train.zh", "no: train.no").replace("valid: 10", "valid: 1e3\n  directions: [en-no]")
    loaded = config.load(write(tmp_path, text + "train: {max_steps: 1e6, learning_rate: 3e-4, beta1: 0}\n"))
    assert config.directions(loaded) == [("en", "no")]
    assert loaded.data.valid == 1000
    assert isinstance(loaded.data.valid, int)
    assert loaded.train.max_steps == 1_000_000
    assert isinstance(loaded.train.max_steps, int)
    assert loaded.train.learning_rate == 3e-4


def test_config_is_frozen(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path, MINIMAL))
    with pytest.raises(ValidationError):
        loaded.train.max_steps = 5


def test_empty_section_and_anchor(tmp_path: Path) -> None:
    text = MINIMAL + "train:\ntokenizer: {vocab_size: &n 300, sample_size: *n}\n"
    loaded = config.load(write(tmp_path, text))
    assert loaded.train.warmup_steps == 4000
    assert loaded.tokenizer.sample_size == 300


def test_all_directions_are_those_that_some_corpus_holds(tmp_path: Path) -> None:
    text = """\
run: {name: x}
data:
  corpora:
    - files: {en: a.en, zh: a.zh, fr: a.fr}
    - hf: {path: some/set, name: en-de}
  valid: 10
"""
    found = config.directions(config.load(write(tmp_path, text)))
    wanted = {*itertools.permutations(("en", "fr", "zh"), 2), ("en", "de"), ("de", "en")}
    assert found == sorted(wanted)


# ── paths ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, work = tmp_path / "configs", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    path = write(
        folder,
        """\
run: {name: x}
data:
  corpora:
    - files: {en: train.en, zh: ../train.zh}
    - hf: {path: parquet, data_files: {train: [a.parquet]}}
      languages: [en, zh]
    - hf: {path: ./mine, name: en-zh}
    - hf: {path: hub/name, name: en-zh, data_files: on_the_hub.json}
  valid: {files: {en: /abs/v.en, zh: v.zh}}
train: {init_from: ../runs/old}
""",
    )
    loaded = config.load(path, ["data.corpora.0.files.en=here.en"])
    files = loaded.data.corpora[0].files
    assert files == {"en": work / "here.en", "zh": tmp_path / "train.zh"}
    hf = [corpus.hf for corpus in loaded.data.corpora[1:]]
    assert hf[0] is not None
    assert hf[0].data_files == {"train": [str(folder / "a.parquet")]}
    assert hf[1] is not None
    assert hf[1].path == str(folder / "mine")
    assert hf[2] is not None
    assert (hf[2].path, hf[2].data_files) == ("hub/name", "on_the_hub.json")
    assert isinstance(loaded.data.valid, config.FilesSplit)
    assert loaded.data.valid.files == {"en": Path("/abs/v.en"), "zh": folder / "v.zh"}
    assert loaded.run.dir == work / "runs"
    assert loaded.train.init_from == tmp_path / "runs" / "old"


@pytest.mark.parametrize("by_set", [False, True])
def test_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_set: bool) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = write(folder, MINIMAL if by_set else MINIMAL.replace("data:", "data:\n  root: ../stuff"))
    loaded = config.load(path, ["data.root=elsewhere", "data.test.files={en: t.en, zh: t.zh}"] if by_set else [])
    root = tmp_path / ("elsewhere" if by_set else "stuff")
    assert loaded.data.corpora[0].files == {"en": root / "train.en", "zh": root / "train.zh"}
    if by_set:
        assert isinstance(loaded.data.test, config.FilesSplit)
        assert loaded.data.test.files["en"] == tmp_path / "t.en"


# ── --set ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_set_overrides_in_order_and_makes_sections(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    loaded = config.load(
        path,
        [
            "train.learning_rate=1",
            "train.learning_rate=3e-4",
            "data.directions=[en-zh]",
            "train.patience=",
            "run.name='5'",
        ],
    )
    assert loaded.train.learning_rate == 3e-4
    assert loaded.data.directions == ["en-zh"]
    assert loaded.train.patience is None
    assert loaded.run.name == "5"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.warmup_step=5", "unknown key train.warmup_step; did you mean train.warmup_steps?"),
        ("warmup_steps=5", "unknown key warmup_steps; did you mean train.warmup_steps?"),
        ("train.max_steps=abc", "train.max_steps: expected a whole number, got 'abc'"),
        ("train.max_steps", "expected KEY=VALUE, such as train.learning_rate=3e-4"),
        ("train.max_steps=[1", "the value is not valid YAML: put it in quotes, train.max_steps='\"…\"'"),
        ("data.corpora.3.files.en=x", "data.corpora has 1 entries, counted from 0, so there is no data.corpora.3"),
        ("data.corpora.first.files.en=x", "data.corpora is a list; give a position, data.corpora.0"),
        ("data.valid.files.en=x", "data.valid is a single value, so it has no data.valid.files"),
        ("train.max_minutes.x=3", "train.max_minutes: expected a number or null, got a mapping"),
    ],
)
def test_bad_set_names_the_argument(tmp_path: Path, override: str, message: str) -> None:
    assert the_problem(write(tmp_path, MINIMAL), override) == f"--set {override}: {message}"


# ── every problem, with its line ─────────────────────────────────────────────────────────────────────────────────────


def test_all_problems_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
run: {name: 5}
data:
  corpora:
    - files: {en: a.en, no: a.no}
  directions: [en-no, en-en, xx-en]
  valid: 1e3
  test: {files: {en: b.en}}
train:
  warmup_step: 3
  learning_rate: abc
  max_steps: 1e6
  max_steps: 5
  label_smoothing: 1.5
  schedule: invsqrt
model:
  d_model: 100
  num_heads: 7
  tie_embeddings: yes
deocde: {}
""",
    )
    assert problems(path, "train.beta3=1") == [
        f"{path}:1: run.name: expected text, got 5; put it in quotes",
        f"{path}:5: data.directions: en-en translates a language into itself; remove it",
        f"{path}:5: data.directions: xx-en: no corpus holds xx; the choices are en-no, no-en",
        f"{path}:7: data.test.files: needs at least 2 languages, got 1",
        f"{path}:9: unknown key train.warmup_step; did you mean train.warmup_steps?",
        f"{path}:10: train.learning_rate: expected a number, got 'abc'",
        f"{path}:12: duplicate key train.max_steps, first given in line 11; keep one of them",
        f"{path}:13: train.label_smoothing: expected less than 1.0, got 1.5",
        f"{path}:14: train.schedule: expected inverse_sqrt, cosine, linear, constant or plateau, got 'invsqrt'; "
        "did you mean inverse_sqrt?",
        f"{path}:17: model.num_heads: 7 heads do not divide model.d_model 100; use 4 or 5 or 10",
        f"{path}:18: model.tie_embeddings: expected true or false, got 'yes'; write true",
        f"{path}:19: unknown key deocde; did you mean decode?",
        "--set train.beta3=1: unknown key train.beta3; did you mean train.beta2?",
    ]


def leaf_keys() -> list[tuple[str | int, ...]]:
    return [key for key in every_key() if len(key) >= 2]


def as_text(key: tuple[str | int, ...]) -> str:
    """The key as --set writes it for the first corpus."""
    parts = list(map(str, key))
    if parts[:2] == ["data", "corpora"] and len(parts) > 2:
        parts.insert(2, "0")
    return ".".join(parts)


@pytest.mark.need(27)
@pytest.mark.parametrize("key", leaf_keys(), ids=as_text)
def test_each_key_misspelt_is_named_with_the_nearest_one(tmp_path: Path, key: tuple[str | int, ...]) -> None:
    parts = as_text(key).split(".")
    wrong = [*parts[:-1], parts[-1] + "x"]
    tree = MINIMAL if parts[:2] != ["data", "valid"] else MINIMAL.replace("valid: 10", "valid: {files: {en: a, zh: b}}")
    found = problems(write(tmp_path, tree), ".".join(wrong) + "=1")
    line = next(line for line in found if "unknown key" in line)
    assert f"unknown key {'.'.join(wrong)}; did you mean {'.'.join(parts)}?" in line


@pytest.mark.need(27)
@pytest.mark.parametrize("key", leaf_keys(), ids=as_text)
def test_each_value_of_the_wrong_type_is_named(tmp_path: Path, key: tuple[str | int, ...]) -> None:
    info = model_at(key[:-1])
    assert info is not None
    annotation = info.model_fields[str(key[-1])].annotation
    wrong = "[{}]" if annotation not in (list, dict) and "list" not in str(annotation) else "{a: [[]]}"
    text = MINIMAL if key[:2] != ("data", "valid") else MINIMAL.replace("valid: 10", "valid: {files: {en: a, zh: b}}")
    name = as_text(key)
    found = problems(write(tmp_path, text), f"{name}={wrong}")
    assert any(line.startswith(f"--set {name}={wrong}: {name}") for line in found), found
    assert not any("pydantic" in line or "Input should" in line for line in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MINIMAL + "train:\n\tmax_steps: 5\n\tpatience: 3\n", ["x.yaml:7: a tab;", "x.yaml:8: a tab;"]),
        (MINIMAL + "train:\n  max_steps:\t5\n", ["x.yaml:7: a tab;"]),
        (MINIMAL + "train: {max_steps: 5\n", ["x.yaml:7: this is not valid YAML"]),
        (MINIMAL + "run: {name: b}\n", ["x.yaml:6: duplicate key run, first given in line 1"]),
        ("", ["x.yaml:1: the file is empty"]),
        ("# only a comment\n", ["x.yaml:1: the file is empty"]),
        ("- a\n- b\n", ["x.yaml:1: expected sections"]),
        ("hello\n", ["x.yaml:1: expected sections"]),
        ("a: 1\x07\n", ["x.yaml:1: the control character U+0007"]),
        ("? [a, b]\n: 1\n", ["x.yaml:1: a key must be plain text"]),
        (MINIMAL + "train: *nothing\n", ["x.yaml:6: this is not valid YAML"]),
        (MINIMAL + "train: 5\n", ["x.yaml:6: train: expected keys and values, got 5"]),
        (MINIMAL + "---\na: 1\n", ["x.yaml:6: this is not valid YAML"]),
        ("run: {name: x}\ndata: {corpora: [], valid: 1}\n", ["x.yaml:2: data.corpora: needs at least 1 entry, got 0"]),
        ("run: {}\ndata: {valid: 1}\n", ["x.yaml:1: missing key run.name: Name of", ":2: missing key data.corpora"]),
        (MINIMAL + "train: {max_steps: '5'}\n", ["got '5'; write 5 without quotes"]),
        (MINIMAL + "train: {max_steps: 1_000}\n", ["got '1_000'; write 1000"]),
        (MINIMAL + "train: {max_steps: null}\n", ["expected a whole number, got null"]),
        (MINIMAL + "train: {max_steps: 1.5}\n", ["expected a whole number, got 1.5"]),
        (MINIMAL + "train: {max_steps: true}\n", ["expected a whole number, got true"]),
        (MINIMAL + "train: {learning_rate: .inf}\n", ["expected a finite number, got inf"]),
        (MINIMAL + "train: {patience: x}\n", ["expected a whole number or null, got 'x'"]),
        (MINIMAL + "train: {device: gpu}\n", ["train.device: expected auto, cpu, cuda or cuda:N, got 'gpu'"]),
        (MINIMAL + "train: {lr: 1}\n", ["did you mean train.learning_rate?"]),
        (MINIMAL + "model: {learning_rate: 1}\n", ["did you mean train.learning_rate?"]),
        (MINIMAL.replace("valid: 10", "valid: abc"), ["x.yaml:5: data.valid: expected a size"]),
        (MINIMAL.replace("valid: 10", "valid: 10\n  encoding: utf9"), ["data.encoding: unknown encoding 'utf9'"]),
        (MINIMAL.replace("zh: train.zh", "z-h: train.zh"), ["x.yaml:4: data.corpora.0.files.z-h: 'z-h' is no"]),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]) -> None:
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    found = problems(Path("x.yaml"))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert start in line


def test_missing_file_folder_and_other_encodings(tmp_path: Path) -> None:
    assert "cannot read the configuration: No such file" in the_problem(tmp_path / "none.yaml")
    assert "this is a folder" in the_problem(tmp_path)
    path = tmp_path / "x.yaml"
    path.write_bytes(b"run: {name: a}\n# caf\xe9\n")
    assert the_problem(path) == f"{path}:2: this is not UTF-8; save the file as UTF-8 and try again"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert config.load(path).run.name == "test"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.num_heads=7"], "7 heads do not divide model.d_model 384"),
        (["model.d_model=99", "model.num_heads=3", "model.positions=sinusoidal"], "need an even width, got 99"),
        (["data.min_characters=9", "data.max_characters=8"], "9 is more than data.max_characters 8"),
        (["data.corpora.0.weight=0"], "every corpus has weight 0, so an epoch would be empty"),
        (["data.directions=[en-fr]"], "en-fr: no corpus holds fr; the choices are en-zh, zh-en"),
        (["data.directions=[en-en]"], "en-en translates a language into itself"),
        (["data.directions=[en-zh, en-zh]"], "en-zh is listed 2 times"),
        (["data.directions=[en]"], "expected source-target such as en-zh, got 'en'"),
        (["data.directions=[]"], "expected all, or a list of directions"),
        (["data.corpora.0.files.zh=a", "data.corpora.0.files.en=a"], "en and zh are the same file"),
        (["data.valid={files: {en: a, fr: b}}"], "data.valid.files: no file for zh"),
        (["data.valid={en-fr: 5}"], "data.valid: en-fr is no direction of this run; they are en-zh, zh-en"),
        (["data.valid={zh-en: 5, en-zh: 6}"], "data.valid: zh-en and en-zh are the same pairs"),
        (["data.valid={en-zh: 0}"], "data.valid.en-zh: expected a size"),
        (["data.valid=1.5"], "data.valid: expected a size"),
        (["data.test=5", "data.split.kfold=3"], "data.test: with data.split.kfold each fold is the test split"),
        (["data.split.fold=3"], "data.split.fold: no fold 3: there are no folds without data.split.kfold"),
        (["data.split.fold=4", "data.split.kfold=3"], "data.split.fold: no fold 4: data.split.kfold is 3"),
        (["data.split.near_duplicates=0.3"], "data.split.near_duplicates: expected at least 0.5, got 0.3"),
        (["data.test={files: {fr: a, zh: b}}"], "data.test.files: no file for en"),
        (["data.corpora=[{}]"], "data.corpora.0: expected exactly one of files, srt, vtt, tsv, csv, json, jsonl"),
        (["data.corpora=[{}]"], "parquet, arrow, tmx, xliff, po, xml and hf, got none"),
        (["data.corpora=[{tsv: a}]"], "data.corpora.0: say which languages to take from it"),
        (["data.corpora=[{po: a, languages: [en, fr, zh]}]"], "a PO file has two, that of msgid and that of msgstr"),
        (["data.corpora.0.header=true"], "data.corpora.0.header: means nothing to files, only to tsv, csv; remove it"),
        (["data.corpora.0.columns={en: 1, zh: 2}"], "data.corpora.0.columns: means nothing to files"),
        (["data.corpora=[{tsv: a, columns: {en: 0, zh: 1}}]"], "the name of a column or its number, counted from 1"),
        (["data.corpora=[{json: a, columns: {en: 1, zh: b}}]"], "data.corpora.0.columns.en: only tsv and csv number"),
        (["data.corpora=[{tsv: a, columns: {en: x, zh: 1}, header: false}]"], "without a header there are no names"),
        (["data.corpora=[{tsv: a, columns: {en: 1, zh: 2}, languages: [en, fr]}]"], "zh is not in languages"),
        (["data.corpora=[{tsv: a, columns: {en: 1}, languages: [en, zh]}]"], "columns: none is given for zh"),
        (["data.corpora=[{xliff: a, languages: [en, zh], group: id}]"], "xliff knows only group: document, got id"),
        (["data.corpora=[{tmx: a, languages: [en, zh], encoding: gbk}]"], "encoding: means nothing to tmx, only to"),
        (["data.corpora=[{tsv: a, languages: [en, zh], group: 1, group_pattern: '('}]"], "is no regular expression"),
        (["data.valid={tsv: a, languages: [en, fr]}"], "data.valid.tsv: no text for zh, which the directions"),
        (["data.valid={tsv: a, files: {en: a, zh: b}}"], "data.valid: expected exactly one of"),
        (["data.corpora.0.hf={path: x}"], "xml and hf, got files and hf"),
        (["data.corpora=[{hf: {path: x}}]"], "data.corpora.0: say which languages to take from it"),
        (["data.corpora.0.languages=[en, fr]"], "data.corpora.0.languages: no file is given for fr"),
        (["train.min_learning_rate=1"], "the floor 1 is above the peak train.learning_rate 0.0007"),
        (["train.metric=bleu", "evaluate.bleu_every=0"], "evaluate.bleu_every must be 1, not 0"),
        (["train.workers=2", "train.device=cuda:0"], "2 workers cannot share the one GPU"),
        (["run.name=a/b"], "'a/b' cannot name a folder"),
        (["run.name=.."], "'..' cannot name a folder"),
    ],
)
def test_impossible_combinations(tmp_path: Path, overrides: list[str], message: str) -> None:
    assert any(message in line for line in problems(write(tmp_path, MINIMAL), *overrides))


def test_cautions(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    assert config.cautions(config.load(path)) == []
    odd = config.load(path, ["train.max_steps=10", "train.average=9", "train.max_tokens=100", "decode.top_k=3"])
    found = "\n".join(config.cautions(odd))
    for part in ("never reach its peak", "validate_every", "average 9", "cannot hold one pair", "no effect"):
        assert part in found


# ── out again ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_load_and_come_back_from_a_dump(tmp_path: Path, path: Path) -> None:
    loaded = config.load(path)
    assert config.load(write(tmp_path, config.dump(loaded))) == loaded
    assert loaded.run.name == path.stem
    keys = [line for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"  \w+: \S", line)]
    assert len(keys) > 20
    assert [line for line in keys if " # " not in line] == []


def test_four_configs_are_shipped() -> None:
    assert {path.stem for path in SHIPPED} >= {"demo", "base-48k", "multi30k-en-de", "tatoeba-zh-en"}


def test_base_config_is_the_reference_model() -> None:
    base = config.load(REPOSITORY / "configs" / "base-48k.yaml")
    assert base.tokenizer.vocab_size == 48000
    assert base.model == config.ModelConfig()
    assert len(config.directions(base)) == 6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12))
@example("1e5")
@example("3e-4")
@example("0o17")
@example("no")
@example("~")
def test_any_text_survives_a_dump(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("dump")
    loaded = config.load(write(folder, MINIMAL))
    hf = config.HfConfig(path="x", name=name)
    corpus = config.CorpusConfig(hf=hf, languages=["en", "zh"])
    changed = loaded.model_copy(update={"data": loaded.data.model_copy(update={"corpora": [corpus]})})
    assert config.load(write(folder, config.dump(changed))) == changed


def test_a_moved_file_is_no_difference_in_any_format(tmp_path: Path) -> None:
    text = MINIMAL.replace("files: {en: train.en, zh: train.zh}", "tsv: a/t.tsv\n      columns: {en: 1, zh: 2}")
    path = write(tmp_path, text.replace("valid: 10", "valid: {files: {en: v.en, zh: v.zh}, group: ids}"))
    moved = ["data.corpora.0.tsv=b/t.tsv", "data.valid.files.en=b.en", "data.valid.group=b.ids"]
    old, new = config.load(path), config.load(path, moved)
    assert [d.remedy for d in config.differences(old, new)] == ["free"] * 3
    other = config.load(path, ["data.corpora.0.columns.en=3", "data.corpora.0.header=true"])
    assert [d.remedy for d in config.differences(old, other)] == ["fresh"] * 2


def test_paths_of_every_format_lie_under_root(tmp_path: Path) -> None:
    corpora = (
        "[{tsv: [a.tsv, /abs/b.tsv], languages: [en, zh]}, {vtt: {en: a, zh: b}}, {tmx: '*.tmx', languages: [en, zh]},"
    )
    corpora += " {files: {en: a, zh: b}, group: ids}, {json: j, languages: [en, zh], group: doc}]"
    path = write(tmp_path, f"run: {{name: x}}\ndata: {{root: sub, valid: 1, corpora: {corpora}}}\n")
    tsv, vtt, tmx, files, rows = config.load(path).data.corpora
    root = tmp_path / "sub"
    assert tsv.tsv == [root / "a.tsv", Path("/abs/b.tsv")]
    assert (vtt.vtt, tmx.tmx) == ({"en": root / "a", "zh": root / "b"}, [root / "*.tmx"])
    assert (files.side_files, rows.side_files, rows.group) == ({"group": root / "ids"}, {}, "doc")
    assert vtt.languages == ["en", "zh"]


def test_differences_and_their_remedies(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    old = config.load(path)
    new = config.load(
        path,
        [
            "run.name=other",
            "run.seed=2",
            "decode.beam_size=1",
            "train.max_steps=7",
            "train.patience=null",
            "train.learning_rate=1",
            "train.max_tokens=500",
            "model.d_ff=8",
            "tokenizer.vocab_size=9",
            "data.max_characters=5",
            "data.corpora.0.files.en=moved.en",
            "data.directions=[en-zh]",
        ],
    )
    found = {difference.key: difference for difference in config.differences(old, new)}
    assert {key: difference.remedy for key, difference in found.items()} == {
        "run.name": "free",
        "run.seed": "fresh",
        "decode.beam_size": "free",
        "train.max_steps": "free",
        "train.patience": "free",
        "train.learning_rate": "reset-schedule",
        "train.max_tokens": "reset-schedule",
        "model.d_ff": "fresh",
        "tokenizer.vocab_size": "fresh",
        "data.max_characters": "fresh",
        "data.corpora.0.files.en": "free",
        "data.directions": "fresh",
        "data.directions.0": "fresh",
    }
    assert (found["train.learning_rate"].old, found["train.learning_rate"].new) == (0.0007, 1.0)
    assert config.differences(old, old) == []


def test_weights_go_with_their_corpora_in_another_order(tmp_path: Path) -> None:
    """A weight that moves to another corpus is a change, however the corpora are listed; their order alone is none."""
    one, two = "{files: {en: a.en, zh: a.zh}%s}", "{files: {en: b.en, zh: b.zh}%s}"

    def load(*corpora: str) -> config.Config:
        return config.load(write(tmp_path, f"run: {{name: x}}\ndata: {{valid: 1, corpora: [{', '.join(corpora)}]}}\n"))

    old = load(one % "", two % ", weight: 3")
    assert config.differences(old, load(two % ", weight: 3", one % "")) == []
    exchanged = config.differences(old, load(two % "", one % ", weight: 3"))
    assert [(d.key, d.old, d.new, d.remedy) for d in exchanged] == [
        ("data.corpora.0.weight", 1.0, 3.0, "reset-schedule"),
        ("data.corpora.1.weight", 3.0, 1.0, "reset-schedule"),
    ]
    capped = config.differences(old, load(two % ", weight: 3, cap: 5", one % ""))
    assert [(d.key, d.remedy) for d in capped] == [("data.corpora.1.cap", "reset-schedule")]
    assert "fresh" in {d.remedy for d in config.differences(old, load(two % ", weight: 3"))}


# ── explain ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_explain() -> None:
    lines = explain("train.warmup_steps").splitlines()
    assert lines[0] == "train.warmup_steps  (whole number, default 4000)"
    assert "learning rate rises" in lines[1]
    assert "train.max_steps  (whole number, default 100000)" in explain("train")
    assert "model.norm  (layer | rms, default layer)" in explain("model")
    assert explain("data.corpora.0.hf.path") == explain("data.corpora.hf.path")
    for section in config.Config.model_fields:
        assert section in explain()
    with pytest.raises(ConfigError, match=r"did you mean train\.warmup_steps\?"):
        explain("train.warmup_step")


@pytest.mark.parametrize("key", list(every_key()), ids=as_text)
def test_every_key_is_described(key: tuple[str | int, ...]) -> None:
    model = model_at(key[:-1])
    assert model is not None
    description = model.model_fields[str(key[-1])].description or ""
    assert len(description) > 10, key
    assert description in " ".join(explain(as_text(key)).split())


def test_every_section_is_a_model() -> None:
    for name, info in config.Config.model_fields.items():
        assert model_in(info.annotation) is typing.get_type_hints(config.Config)[name]


# ── fast, without torch ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(27)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["config", "show", "{demo}"],
        ["train", "{bad}"],
        ["config", "explain", "train"],
        ["translate", "none"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_answers_at_once_without_torch(tmp_path: Path, arguments: list[str]) -> None:
    bad = write(tmp_path, MINIMAL + "train: {warmup_step: 5}\n")
    demo = REPOSITORY / "configs" / "demo.yaml"
    filled = [argument.format(bad=bad, demo=demo) for argument in arguments]
    code = (
        "import sys\nfrom xyd.cli import main\n"
        "try: code = main(sys.argv[1:])\nexcept SystemExit as leave: code = leave.code\n"
        "heavy = {'torch', 'numpy', 'datasets', 'pyarrow', 'sentencepiece', 'sacrebleu'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    seconds = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code, *filled], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor, not of the clock: other programs may be busy on this machine.
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "loaded" not in done.stderr
        assert done.returncode == (2 if arguments[0] in ("train", "translate") else 0), done.stderr
        assert "Traceback" not in done.stderr
        if seconds[-1] < 0.5:
            break
    assert min(seconds) < 0.5, seconds


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_entry_in_the_document_on_formats_is_valid(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
    full = text.split("```yaml\n")[1].split("```")[0]
    entries = [
        re.findall(r"`([^`]+)`", line.split("|")[2]) for line in text.splitlines() if re.match(r"\| .*`\w+: ", line)
    ]
    assert len(entries) >= 11
    for parts in entries:
        entry = "\n      ".join([parts[0], *(part for part in parts[1:] if part.startswith(("columns", "languages")))])
        path = write(tmp_path, f"run: {{name: x}}\ndata:\n  valid: 1\n  corpora:\n    - {entry}\n")
        assert config.load(path).data.corpora[0].languages
    path = write(tmp_path, f"run: {{name: x}}\n{full}  valid: 1\n")
    assert [corpus.format for corpus in config.load(path).data.corpora] == ["tsv", "files"]


@pytest.mark.parametrize("document", ["README.md", "docs/data.md"])
def test_every_configuration_in_the_documents_is_valid(document: str, tmp_path: Path) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    assert blocks
    for block in blocks:
        assert config.directions(config.load(write(tmp_path, block)))


def test_the_document_on_data_names_every_filter_finding_and_rate() -> None:
    text = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8")
    for section in (config.SplitConfig, config.Filters):
        for name in section.model_fields:
            assert re.search(rf"\b{name}\b", text), name
    assert {name for name in KINDS if f"`{name}`" not in text} == set()
    for line in text.split("## Additional pairs")[1].split("##")[0].splitlines():
        if line.startswith("| `"):
            kinds, rates = line.split("|")[1:3]
            for kind, rate in zip(re.findall(r"`(\w+)`", kinds), rates.split(","), strict=True):
                assert getattr(config.AugmentConfig(), kind) == float(rate), kind
    kinds = {name for name in config.AugmentConfig.model_fields if name != "scale"}
    assert kinds <= set(re.findall(r"`(\w+)`", text))
