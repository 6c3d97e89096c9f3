"""The whole product from outside: the README's commands, every shipped configuration, the demo's first losses."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "demo_losses.json"
SENTENCES = {
    "en": "the a cat dog house sees likes old new red two three in on and not is was very good",
    "de": "der ein Kater Hund Haus sieht mag alt neu rot zwei drei in auf und nicht ist war sehr gut",
    "fr": "le un chat chien maison voit aime vieux neuf rouge deux trois dans sur et pas est était très bon",
    "zh": "这 一 猫 狗 房子 看见 喜欢 老 新 红 二 三 里 上 和 不 是 了 很 好",
}
WORDS = {lang: text.split() for lang, text in SENTENCES.items()}


def xyd(*arguments: str | Path, cwd: Path, stdin: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does; fails the test where the exit code is another one."""
    done = subprocess.run(
        [sys.executable, "-m", "xyd", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=540,
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def write_stub(folder: Path, names: dict[str, str], lines: int, seed: int = 1) -> None:
    """Aligned files of made-up sentences, word for word translations of each other; `names`: language to file name."""
    rng = random.Random(seed)
    picks = [[rng.randrange(20) for _ in range(rng.randrange(3, 9))] for _ in range(lines)]
    for lang, name in names.items():
        text = "".join(("" if lang == "zh" else " ").join(WORDS[lang][i] for i in pick) + "\n" for pick in picks)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(folder / name, "wt", encoding="utf-8") as file:
            file.write(text)


SHIPPED = {
    "demo.yaml": [],
    "multi30k-en-de.yaml": [],
    "tatoeba-zh-en.yaml": [],
    "un-six.yaml": ["data.valid=8", "data.test=8"],
    "base-48k.yaml": [
        "data.corpora=[{files: {en: train.en, zh: train.zh, fr: train.fr}}]",
        "data.valid=4",
        "data.test=4",
    ],
}


def test_every_shipped_configuration_is_listed() -> None:
    assert {path.name for path in (ROOT / "configs").glob("*.yaml")} == set(SHIPPED)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configuration_trains_a_step(name: str, tmp_path: Path) -> None:
    """As it is shipped, but for its data (a stub) and its length (one step)."""
    for stem, lines, seed in (("train", 600, 1), ("valid", 8, 2), ("val", 8, 2), ("test", 8, 3)):
        write_stub(tmp_path, {lang: f"{stem}.{lang}" for lang in WORDS}, lines, seed)
    write_stub(tmp_path, {"en": "test_2016_flickr.en", "de": "test_2016_flickr.de"}, 8, 3)
    write_stub(tmp_path, {lang: f"demo.{lang}" for lang in ("en", "zh", "fr")}, 2000, 1)
    write_stub(tmp_path, {lang: f"UNv1.0.devset.{lang}" for lang in ("en", "zh", "fr")}, 600, 1)
    (tmp_path / "UNv1.0.devset.ids").write_text("".join(f"2015/a/{n // 4} en:{n}:1\n" for n in range(600)), "utf-8")
    overrides = [f"data.root={tmp_path}", "train.max_steps=1", f"run.dir={tmp_path}", "evaluate.valid_sentences=2"]
    # An untrained model never stops by itself.
    overrides += ["decode.beam_size=1", "decode.max_length_factor=0.5", "decode.max_length_extra=2"]
    if name == "demo.yaml":
        overrides += ["data.valid=8", "data.test=8"]
    flags = [part for key in [*overrides, *SHIPPED[name]] for part in ("--set", key)]
    xyd("train", ROOT / "configs" / name, *flags, cwd=tmp_path)
    run_name = Path(name).stem if name != "base-48k.yaml" else "*"
    report = json.loads(next(tmp_path.glob(f"{run_name}/report.json")).read_text(encoding="utf-8"))
    assert report["step"] == 1
    assert report["test"]["nll"] > 1


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's commands, on a small demo corpus and for a few steps: the folder they leave."""
    folder = tmp_path_factory.mktemp("demo")
    make = [sys.executable, str(ROOT / "scripts" / "make_demo_corpus.py"), "--out", str(folder), "--size", "3000"]
    subprocess.run(make, check=True, capture_output=True)
    overrides = [
        f"data.root={folder}", "data.valid=60", "data.test=100", "train.max_steps=400", "train.validate_every=200",
        "train.workers=1", "train.threads=1", "train.precision=fp32", "train.log_every=1", "tokenizer.vocab_size=1000",
        "evaluate.valid_sentences=5",
    ]  # fmt: skip
    flags = [part for key in overrides for part in ("--set", key)]
    xyd("train", ROOT / "configs" / "demo.yaml", *flags, cwd=folder)
    return folder


@pytest.mark.slow
def test_the_first_losses_of_the_demo(demo: Path) -> None:
    """A refactoring leaves these; a change of numerics updates the file (XYD_UPDATE_GOLDEN=1) and says why."""
    lines = [json.loads(line) for line in (demo / "runs/demo/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"][:20]
    if os.environ.get("XYD_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps([round(loss, 6) for loss in losses], indent=1) + "\n")
    assert losses == pytest.approx(json.loads(GOLDEN.read_text()), abs=1e-4)


@pytest.mark.slow
def test_a_run_directory_is_all_that_is_needed(demo: Path) -> None:
    run = demo / "runs/demo"
    for name in ("config.yaml", "run.json", "manifest.json", "tokenizer.model", "metrics.jsonl", "report.json"):
        assert (run / name).is_file(), name
    for name in ("train", "valid"):
        assert list((run / "tensorboard" / name).glob("events.*")), name
    moved = demo / "elsewhere"
    run.rename(moved)
    try:
        done = xyd("translate", moved, "--tgt-lang", "fr", cwd=demo, stdin="The cat sleeps.\n")
        assert done.stdout.count("\n") == 1
        figures = json.loads(xyd("evaluate", moved, "--split", "valid", "--json", cwd=demo).stdout)
        assert set(figures["directions"]) == {"en-fr", "en-zh", "fr-en", "fr-zh", "zh-en", "zh-fr"}
    finally:
        moved.rename(run)


@pytest.mark.slow
@pytest.mark.need(1)
@pytest.mark.need(19)
def test_one_line_out_for_each_line_in(demo: Path) -> None:
    blanks = ["", " ", "\t", "\u3000", "\u200b", "\u00a0"]
    odd = ["The cat\u2028sleeps.", "a\x00b", "x " * 5000, "\ufeffThe dog.", "The dog.\r", "<2fr> </s> ▁"]
    lines = [*blanks, "The cat sleeps.", *odd, *blanks, "The dog."]
    done = xyd("translate", "runs/demo", "--tgt-lang", "zh", cwd=demo, stdin="\n".join(lines) + "\n")
    out = done.stdout.split("\n")
    assert len(out) == len(lines) + 1
    assert out[:6] == [""] * 6
    assert out[13:19] == [""] * 6
    alone = xyd("translate", "runs/demo", "--tgt-lang", "zh", cwd=demo, stdin="The dog.\n").stdout
    assert out[-2] + "\n" == alone


@pytest.mark.slow
@pytest.mark.need(32)
def test_the_right_language_comes_out(demo: Path) -> None:
    """600 lines in six directions, told apart by the words of each language in the corpus."""
    from xyd.corpus import open_split
    from xyd.files import RunDir

    def words(text: str, lang: str) -> set[str]:
        return set(text) if lang == "zh" else set(text.lower().replace("'", "' ").replace(".", " .").split())

    known = {lang: words((demo / f"demo.{lang}").read_text(encoding="utf-8"), lang) for lang in ("en", "zh", "fr")}
    split = open_split(RunDir(demo / "runs/demo"), "test")
    right = total = 0
    for index, direction in enumerate(split.directions):
        src_lang, tgt_lang = direction.split("-")
        lines = [split.src_text(row) for row in range(len(split)) if split.direction[row] == index]
        flags = ["--src-lang", src_lang, "--tgt-lang", tgt_lang]
        done = xyd("translate", "runs/demo", *flags, cwd=demo, stdin="\n".join(lines) + "\n")
        for text in done.stdout.splitlines():
            shares = {}
            for lang in known:
                found = words(text, lang)
                shares[lang] = len(found & known[lang]) / max(1, len(found))
            right += max(shares, key=lambda lang: shares[lang]) == tgt_lang
            total += 1
    assert total == 600
    assert right >= 0.99 * total


@pytest.mark.slow
def test_jsonl_score_and_the_choice_of_languages(demo: Path) -> None:
    flags = ["--tgt-lang", "fr", "--format", "jsonl", "--beam-size", "4", "--n-best", "3"]
    done = xyd("translate", "runs/demo", *flags, cwd=demo, stdin="The cat sleeps.\n\n")
    first, blank = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(first) == {"source", "text", "score", "status", "warnings", "n_best"}
    assert len({entry["text"] for entry in first["n_best"]}) == len(first["n_best"]) <= 3
    assert blank["status"] == "blank"
    done = xyd("translate", "runs/demo", cwd=demo, stdin="The cat sleeps.\n", code=2)
    assert all(lang in done.stderr for lang in ("en", "fr", "zh"))
    xyd("translate", "runs/demo", "--tgt-lang", "fr", "--n-best", "3", cwd=demo, stdin="a\n", code=2)
    xyd("translate", "runs/demo", "--tgt-lang", "xx", cwd=demo, stdin="a\n", code=2)
    (demo / "a.en").write_text("The cat sleeps.\nThe dog sleeps.\n", encoding="utf-8")
    (demo / "a.fr").write_text("Le chat dort.\nLe chien dort.\n", encoding="utf-8")
    flags = ["--src", "a.en", "--tgt", "a.fr", "--src-lang", "en", "--tgt-lang", "fr"]
    rows = [line.split("\t") for line in xyd("score", "runs/demo", *flags, cwd=demo).stdout.splitlines()]
    assert len(rows) == 2
    assert all(float(nll) > 0 and int(tokens) > 1 for nll, tokens in rows)


@pytest.mark.slow
@pytest.mark.need(18)
@pytest.mark.need(27)
def test_the_same_command_again_is_already_done_and_bad_settings_are_told(demo: Path) -> None:
    config = demo / "runs/demo/config.yaml"
    done = xyd("train", config, cwd=demo)
    assert "already done at step 400" in done.stderr + done.stdout
    done = xyd("train", config, "--set", "train.learning_rate=0.001", cwd=demo, code=2)
    assert "0.005 → 0.001" in done.stderr
    assert "--reset-schedule" in done.stderr
    done = xyd("train", config, "--set", "model.d_model=64", cwd=demo, code=2)
    assert "--fresh" in done.stderr
    assert "Traceback" not in done.stderr
    done = xyd("train", config, "--set", "train.warmup_step=3", cwd=demo, code=2)
    assert "did you mean train.warmup_steps" in done.stderr
