"""init: what it writes is a sound configuration, fitted to size and languages, and never replaces a file unasked."""

import subprocess
import sys
from pathlib import Path

import pytest
from toy import environment, write_corpus

from xyd import cli
from xyd.check import check
from xyd.config import directions, load
from xyd.corpus.census import Census
from xyd.errors import ConfigError, DataError
from xyd.init import TIERS, Request, fitted, script_warnings, write_config
from xyd.text import SentencePair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """toy.xx and toy.yy, 300 pairs."""
    write_corpus(tmp_path, 300)
    return tmp_path


def written(folder: Path, **changes: object) -> str:
    told: list[str] = []
    given = {"out": folder / "config.yaml", "src": folder / "toy.xx", "tgt": folder / "toy.yy", **changes}
    write_config(Request(**given), told.append)  # type: ignore[arg-type]
    return "\n".join(told)


def test_what_is_written_passes_check(folder: Path) -> None:
    told = written(folder)
    assert "fitted to 300 pairs; next: xyd check" in told
    overrides = [f"run.dir={folder / 'runs'}", "train.threads=1"]
    config = load(folder / "config.yaml", overrides)
    lines: list[str] = []
    assert check(config, lines.append) == 0, lines
    assert directions(config) == [("xx", "yy"), ("yy", "xx")]
    assert config.run.name == "xx-yy"
    assert (config.data.valid, config.data.test) == (10, 10)


def test_every_key_has_a_comment(folder: Path) -> None:
    written(folder)
    for line in (folder / "config.yaml").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#") and not line.endswith(":") and "files:" not in line:
            assert "# " in line, line
            assert len(line) <= 120, line


def test_directions_name_and_languages_are_taken_as_given(folder: Path) -> None:
    written(folder, is_forward=True, name="no: {1}", languages="no,zh_CN")
    config = load(folder / "config.yaml")
    assert directions(config) == [("no", "zh_CN")]
    assert config.run.name == "no: {1}"


@pytest.mark.parametrize("name", ["a b.xx", "é'\"#.xx", "-: &x.xx", "tab\t#x.xx"])
def test_any_name_of_a_file_survives_the_yaml(folder: Path, name: str) -> None:
    (folder / "toy.xx").rename(folder / name)
    written(folder, src=folder / name)
    files = load(folder / "config.yaml").data.corpora[0].files
    assert files is not None
    assert files["xx"] == folder / name


def test_paths_are_relative_to_the_yaml_where_they_can_be(folder: Path) -> None:
    written(folder)
    assert "files: {xx: toy.xx, yy: toy.yy}" in (folder / "config.yaml").read_text("utf-8")
    (folder / "below").mkdir()
    written(folder, out=folder / "below" / "c.yaml")
    assert f"files: {{xx: {folder}/toy.xx" in (folder / "below" / "c.yaml").read_text("utf-8")
    load(folder / "below" / "c.yaml")


@pytest.mark.parametrize("ending", [".zh", ".zh.gz", ".pt_BR.xz", ".fr.srt", ".fr.txt"])
def test_languages_are_read_off_the_names(folder: Path, ending: str) -> None:
    from xyd.init import _extension

    assert _extension(Path(f"a.en-zh{ending}")) == ending.split(".")[1]
    assert _extension(Path("a.txt")) == _extension(Path("a")) == ""


def test_a_file_is_not_replaced_unasked(folder: Path) -> None:
    (folder / "config.yaml").write_text("mine", "utf-8")
    with pytest.raises(ConfigError, match=r"exists already.*--force"):
        written(folder)
    assert (folder / "config.yaml").read_text("utf-8") == "mine"
    written(folder, force=True)
    load(folder / "config.yaml")


def test_what_is_missing_is_said(folder: Path) -> None:
    for changes, message in (
        ({"tgt": None}, "give --src and --tgt, or one file"),
        ({"src": None, "tgt": None}, "give --src and --tgt, or one file"),
        ({"src": None, "tgt": None, "kind": "tmx", "path": folder / "a.tmx"}, "--languages zh,en"),
        ({"languages": "xx"}, "two languages are needed"),
        ({"languages": "xx,xx"}, "two languages are needed"),
        ({"out": folder / "none" / "c.yaml"}, "no such folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            written(folder, **changes)
    with pytest.raises(DataError, match=r"toy\.zz: no such file"):
        written(folder, src=folder / "toy.zz")
    assert not (folder / "config.yaml").exists()


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def census_of(pairs: int, src: str = "a sentence of some length", tgt: str = "一个句子") -> Census:
    census = Census("c", drawn=[SentencePair(src, tgt, "en", "zh", "c:1")], is_whole=True)
    census.pairs["en", "zh"] = pairs
    return census


def test_the_larger_the_corpus_the_larger_the_model() -> None:
    found = [fitted(census_of(pairs), ("en", "zh"), False) for pairs in (1000, 60_000, 800_000, 20_000_000)]
    assert [f["d_model"] for f in found] == [tier.d_model for tier in TIERS]
    assert [f["vocab_size"] for f in found] == [4000, 16_000, 32_000, 48_000]
    assert [f["held_out"] for f in found] == [33, 2000, 2000, 2000]
    dropouts = [f["dropout"] for f in found]
    assert dropouts == sorted(dropouts, reverse=True)
    steps = [f["max_steps"] for f in found]
    assert steps == sorted(steps)
    assert fitted(census_of(60_000), ("en", "zh"), True)["d_model"] == TIERS[0].d_model


def test_the_steps_are_the_epochs_of_the_tier() -> None:
    census = census_of(40_000)  # 25 / 4 + 1 and 4 / 1.6 + 1 tokens: 7 and 3
    found = fitted(census, ("en", "zh"), False)
    assert found["max_steps"] == pytest.approx(20 * 80_000 * (7 + 3) / 2 / 4096, rel=0.1)
    assert found["warmup_steps"] < found["max_steps"]
    assert found["validate_every"] < found["max_steps"]


def test_the_comment_on_steps_tells_the_passes_that_they_are(folder: Path) -> None:
    written(folder)
    config, text = load(folder / "config.yaml"), (folder / "config.yaml").read_text("utf-8")
    assert config.train.max_steps == 500  # the least, and many passes over 300 pairs
    assert int(text.split("# about ")[1].split(" passes")[0]) > 100


def test_text_in_another_script_is_warned_of() -> None:
    census = census_of(10)
    assert script_warnings(census, ("en", "zh")) == []
    census = census_of(10, src="一个句子", tgt="a sentence")
    english, chinese = script_warnings(census, ("en", "zh"))
    assert "given as en does not look like it" in english
    assert "given as zh does not look like it" in chinese


# ── the verb ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_verb_loads_no_torch(folder: Path) -> None:
    code = "import sys; from xyd.cli import main; code = main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    arguments = ["init", "--src", folder / "toy.xx", "--tgt", folder / "toy.yy", "--out", folder / "new.yaml"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "next: xyd check" in done.stderr


def test_two_corpora_at_once_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "--tsv", "a.tsv", "--tmx", "a.tmx", "--languages", "en,zh"]) == 2
    assert "one corpus at a time" in capsys.readouterr().err


# ── every format ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "name", "languages", "pairs"),
    [
        ("tmx", "tico19.en-zh.first250.tmx", "en,zh", 250),
        ("xliff", "symfony-validators.en-fr.xlf", "en,fr", None),
        ("po", "django-rest-framework.fr.po", "en,fr", None),
        ("parquet", "tico19.en-zh.first300.parquet", "en,zh", 300),
        ("json", "alma-valid.zh-en.first200.json", "zh,en", 200),
        ("jsonl", "alma-valid.zh-en.first200.jsonl", "zh,en", 200),
        ("xml", "wmt22.de-fr.first2docs.xml", "de,fr", 14),
        ("tsv", "tatoeba-quotes.en-zh.tsv", "en,zh", 100),
    ],
)
def test_one_file_of_both_languages(
    folder: Path, shared: Path, kind: str, name: str, languages: str, pairs: int | None
) -> None:
    told = written(folder, src=None, tgt=None, kind=kind, path=shared / "data/formats" / name, languages=languages)
    assert pairs is None or f"fitted to {pairs} pairs" in told
    assert "warning" not in told
    config = load(folder / "config.yaml")
    assert config.data.corpora[0].format == kind
    assert list(directions(config)[0]) == languages.split(",")


def test_subtitles_are_paired_by_time(folder: Path, shared: Path) -> None:
    sintel = shared / "data/formats"
    written(folder, src=sintel / "sintel.en.vtt", tgt=sintel / "sintel.de.vtt")
    config = load(folder / "config.yaml")
    assert config.data.corpora[0].format == "vtt"
    assert directions(config) == [("en", "de"), ("de", "en")]
