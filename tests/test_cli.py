from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import xyd
from xyd import cli
from xyd.errors import DataError, XydError

CONFIG = """\
run: {name: test}
data:
  corpora:
    - files: {en: train.en, zh: train.zh}
  valid: 10
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A folder that looks like a run."""
    run = tmp_path / "runs" / "test"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return run


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put a translator into capitals in the place of a trained one; how it was loaded comes back."""
    from xyd.translate import Translation, Translator

    loaded: list[Any] = []

    class Capitals:
        targets = ("zh",)

        def translate(self, texts: list[str], **options: Any) -> list[Translation]:
            loaded.append(options)
            return [Translation(text, text.upper(), -0.5, "complete") for text in texts]

    def load(run: Path, checkpoint: str, device: str) -> Capitals:
        loaded.append((run, checkpoint, device))
        return Capitals()

    monkeypatch.setattr(Translator, "load", load)
    return loaded


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException) -> int:
    import xyd.config

    def explain(_key: str) -> str:
        raise error

    monkeypatch.setattr(xyd.config, "explain", explain)
    return cli.main(["config", "explain"])


def test_a_users_error_is_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    assert outcome(monkeypatch, tmp_path, DataError("train.en:3: bad; mend it")) == 2
    assert capsys.readouterr().err == "train.en:3: bad; mend it\n"


def test_our_error_is_a_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    assert outcome(monkeypatch, tmp_path, AssertionError("ours")) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("this is a defect of xyd; please report it with the lines above\n")


@pytest.mark.parametrize(("number", "code"), [(28, 2), (13, 2), (5, 1)])
def test_a_full_disk_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, number: int, code: int
) -> None:
    assert outcome(monkeypatch, tmp_path, OSError(number, os.strerror(number), "runs/x")) == code
    assert ("Traceback" in capsys.readouterr().err) == (code == 1)


def test_interrupts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert outcome(monkeypatch, tmp_path, KeyboardInterrupt()) == 130


def test_every_user_error_exits_with_2() -> None:
    assert {kind.exit_code for kind in [XydError, *XydError.__subclasses__()]} == {2}


def test_broken_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "xyd", "config", "explain", "train"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_sigterm_exits_with_143() -> None:
    code = (
        "import signal, sys, time; from xyd import cli; cli._stop_on_sigterm(); print('on', flush=True); time.sleep(20)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143


@pytest.fixture(autouse=True)
def _keep_signal_handler() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_version(capsys: Any) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"xyd {xyd.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["trian"], ["train"], ["translate", "x", "--n-best", "0"]])
def test_usage_errors_exit_with_2(arguments: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_config_show_is_loadable_and_notes_go_to_stderr(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    assert cli.main(["config", "show", str(path), "--set", "train.max_steps=7", "--set", "train.warmup_steps=9"]) == 0
    shown = capsys.readouterr()
    assert "max_steps: 7" in shown.out
    assert shown.err.startswith("note: train.warmup_steps 9 is not below train.max_steps 7")
    again = tmp_path / "again.yaml"
    again.write_text(shown.out, encoding="utf-8")
    assert cli.main(["config", "show", str(again)]) == 0
    assert capsys.readouterr().out == shown.out


def test_config_errors_are_shown_as_they_are(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG + "train: {warmup_step: 5, lr: 1}\n", encoding="utf-8")
    assert cli.main(["train", str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{path}:6: unknown key train.warmup_step; did you mean train.warmup_steps?",
        f"{path}:6: unknown key train.lr; did you mean train.learning_rate?",
    ]


def test_train_hands_over_config_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import xyd.train

    path = tmp_path / "x.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    calls: list[Any] = []

    def train(config: Any, *, fresh: bool, reset_schedule: bool, strict: bool) -> int:
        calls.append((config.train.max_steps, fresh, reset_schedule, strict))
        return 130

    monkeypatch.setattr(xyd.train, "train", train)
    assert cli.main(["train", str(path), "--set", "train.max_steps=1e3", "--fresh"]) == 130
    assert calls == [(1000, True, False, False)]


def test_prepare_makes_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import xyd.corpus

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG + "train: {init_from: old}\n", encoding="utf-8")
    calls: list[Any] = []
    monkeypatch.setattr(
        xyd.corpus, "prepare", lambda config, run, say, source, strict: calls.append((run.root, source, strict))
    )
    assert cli.main(["prepare", str(path), "--strict"]) == 0
    assert calls == [(tmp_path / "runs" / "test", tmp_path / "old", True)]


def test_translate_stdin_to_stdout(
    run_dir: Path, translator: list[Any], monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    stdin(monkeypatch, b"a\nb")
    arguments = [
        "--tgt-lang",
        "zh",
        "--beam-size",
        "3",
        "--length-penalty",
        "0.5",
        "--checkpoint",
        "last",
        "--device",
        "cpu",
    ]
    assert cli.main(["translate", str(run_dir), *arguments]) == 0
    assert capsysbinary.readouterr().out == b"A\nB\n"
    assert translator[0] == (run_dir, "last", "cpu")
    assert translator[-1] == {"to": "zh", "source": None, "beam_size": 3, "n_best": 1, "length_penalty": 0.5}


@pytest.mark.need(19)
def test_translate_files_and_failed_lines(run_dir: Path, translator: list[Any], tmp_path: Path, capsys: Any) -> None:
    source, output = tmp_path / "a b 中文.txt", tmp_path / "out.jsonl"
    source.write_bytes(b"one\r\n\xff\nthree")
    arguments = ["translate", str(run_dir), "--input", str(source), "--output", str(output), "--format", "jsonl"]
    assert cli.main(arguments) == 1
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == ["ONE", "", "THREE"]
    assert capsys.readouterr().err.splitlines() == [
        "line 2: failed, left empty: not UTF-8: byte 0xFF at offset 0 of the line",
        "xyd: 1 line failed",
    ]


@pytest.mark.need(38)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-best", "3"], "--n-best 3 needs --format jsonl"),
        (["--n-best", "3", "--beam-size", "2", "--format", "jsonl"], "--n-best 3 is above --beam-size 2"),
        (["--input", "none.txt"], "--input none.txt: no such file"),
        (["--input", "."], "--input .: this is a folder"),
        (["--output", "none/out.txt"], "--output none/out.txt: give the name of a file in a folder that exists"),
    ],
)
def test_translate_refuses_before_the_model_is_loaded(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(run_dir)
    assert cli.main(["translate", ".", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_run_directory(tmp_path: Path, capsys: Any) -> None:
    for verb in (["translate"], ["evaluate"], ["score", "--src", "a", "--tgt", "b"]):
        assert cli.main([*verb, str(tmp_path / "none")]) == 2
        assert "not a run directory (no such folder)" in capsys.readouterr().err


def test_a_terminal_gets_the_prompt(
    run_dir: Path, translator: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO("quit\n猫\n".encode())))
    assert cli.main(["translate", str(run_dir)]) == 0
    shown = capsys.readouterr().out
    assert "QUIT" in shown
    assert "猫" in shown


def test_evaluate(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from xyd import evaluate

    calls: list[Any] = []

    class Report:
        def as_dict(self) -> dict[str, float]:
            return {"bleu": 12.5}

        def table(self) -> str:
            return "a table"

    monkeypatch.setattr(evaluate, "evaluate_run", lambda *a, **k: calls.append((a, k)) or Report())
    monkeypatch.setattr(evaluate, "evaluate_files", lambda *a, **k: calls.append((a, k)) or Report())
    run = str(run_dir)
    flags = {"checkpoint": None, "device": "auto", "beam_size": None}
    assert cli.main(["evaluate", run]) == 0
    assert capsys.readouterr().out == "a table\n"
    assert cli.main(["evaluate", run, "--split", "valid", "--json", "--checkpoint", "best", "--beam-size", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == {"bleu": 12.5}
    assert cli.main(["evaluate", run, "--src", "s", "--ref", "r", "--tgt-lang", "zh"]) == 0
    assert calls == [
        ((run_dir, "test"), flags),
        ((run_dir, "valid"), {**flags, "checkpoint": "best", "beam_size": 2}),
        ((run_dir, Path("s"), Path("r"), "en", "zh"), flags),
    ]
    capsys.readouterr()
    for wrong, message in (
        (["--src", "s"], "--src and --ref go together"),
        (["--src", "s", "--ref", "r", "--split", "test"], "give either --split or --src"),
        (["--src", "s", "--ref", "r"], "its directions are en-zh, zh-en"),
        (["--src", "s", "--ref", "r", "--tgt-lang", "de"], "this run was not trained for that"),
        (["--tgt-lang", "zh"], "which are not given"),
    ):
        assert cli.main(["evaluate", run, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_score(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from xyd import evaluate

    scores = [(1.5, 3), (float("nan"), 0)]
    monkeypatch.setattr(evaluate, "score_files", lambda *_a, **_k: scores)
    arguments = ["score", str(run_dir), "--src", "s", "--tgt", "t", "--src-lang", "en"]
    assert cli.main(arguments) == 1
    assert capsys.readouterr().out == "1.500000\t3\nnan\t0\n"
    scores.pop()
    assert cli.main(arguments) == 0


# ── the package ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_public_api() -> None:
    from xyd.train import Trainer
    from xyd.translate import Translator

    assert xyd.Trainer is Trainer
    assert xyd.Translator is Translator
    with pytest.raises(AttributeError):
        xyd.nothing  # noqa: B018


def test_the_map_names_every_module() -> None:
    modules = {path.stem for path in Path(xyd.__file__).parent.iterdir() if not path.stem.startswith("_")}
    missing = [name for name in sorted(modules) if f"``{name}``" not in (xyd.__doc__ or "")]
    assert not missing


@pytest.mark.need(22)
def test_texts_go_out_in_utf8_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "配置.yaml"
    path.write_text(CONFIG.replace("name: test", "name: 衔言"), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONUTF8": "0",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "cp1252",
        "PYTHONCOERCECLOCALE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "xyd", "config", "show", str(path)], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "name: 衔言" in done.stdout.decode("utf-8")


def test_the_config_in_a_moved_run_means_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xyd import config, resume

    inside = tmp_path / "elsewhere" / "moved"
    inside.mkdir(parents=True)
    for lang in ("en", "fr"):
        (tmp_path / f"a.{lang}").write_text("a\n", encoding="utf-8")
    made = tmp_path / "made.yaml"
    made.write_text("run: {name: old}\ndata: {corpora: [{files: {en: a.en, fr: a.fr}}], valid: 1}\n", encoding="utf-8")
    (inside / "config.yaml").write_text(config.dump(config.load(made)), encoding="utf-8")
    (inside / "manifest.json").write_text("{}", encoding="utf-8")
    seen = []
    monkeypatch.setattr(resume, "prepare", lambda loaded, say, strict: seen.append(resume.run_dir(loaded).root))
    assert cli.main(["prepare", str(inside / "config.yaml")]) == 0
    assert seen == [inside]
