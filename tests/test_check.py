"""check: each fault is found before step 1, with its remedy, among all others; nothing of the trials stays."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toy import Toy, environment, toy_config, tree, write_corpus

from xyd import cli, memory
from xyd.check import check, inputs, model
from xyd.config import Config
from xyd.train import train

Told = list[str]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """toy.xx, toy.yy and toy.yaml, 300 pairs, unprepared."""
    write_corpus(tmp_path / "corpus", 300)
    return tmp_path / "corpus"


def checked(config: Config, seconds: float = 110.0) -> tuple[int, Told]:
    told: Told = []
    return check(config, told.append, seconds), told


def only(told: Told, kind: str) -> Told:
    return [line for line in told if line.startswith(kind + ": ")]


# ── all is well ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sound_config_passes_every_trial_and_nothing_stays(corpus: Path) -> None:
    before = tree(corpus.parent)
    code, told = checked(toy_config(corpus))
    assert code == 0, told
    assert [line.split(":")[0] for line in told] == ["ok"] * (len(told) - 1) + ["check"]
    text = "\n".join(told)
    for trial in (
        "run directory", "device cpu", "corpus toy.xx + toy.yy: 300 pairs", "valid and test", "disk, forecast",
        "tokenizer: 71 pieces", "lengths: 0 of", "memory, forecast", "model: parameters", "memory, measured",
        "learning 8 short pairs by heart", "checkpoint", "translation xx-yy",
    ):  # fmt: skip
        assert f"ok: {trial}" in text
    assert "equal bit for bit" in text
    assert "(complete, as learned)" in text
    assert tree(corpus.parent) == before


def test_a_run_that_stands_there_is_not_touched(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path, "train.max_steps=2", "train.validate_every=2")
    assert train(config) == 0
    before = tree(tmp_path)
    code, told = checked(config)
    assert code == 0
    assert "a run stands there, and would go on from last" in told[0]
    assert tree(tmp_path) == before
    code, told = checked(toy.config(tmp_path, "model.d_model=32"))
    assert code == 2
    assert "model.d_model: 16 → 32" in only(told, "failed")[0]
    assert "--fresh" in only(told, "failed")[0]
    assert tree(tmp_path) == before


def test_a_run_that_starts_from_another_takes_its_tokenizer_and_weights(toy: Toy, tmp_path: Path) -> None:
    assert train(toy.config(tmp_path / "first", "train.max_steps=2", "train.validate_every=2")) == 0
    source = f"train.init_from={tmp_path / 'first' / 'toy'}"
    code, told = checked(toy_config(toy.folder, f"run.dir={tmp_path / 'second'}", source))
    assert code == 0, told
    assert f"ok: tokenizer: of {tmp_path / 'first' / 'toy'}, 71 pieces" in told
    code, told = checked(toy_config(toy.folder, f"run.dir={tmp_path / 'second'}", source, "model.d_model=32"))
    assert code == 2
    assert "does not fit the model of this run" in only(told, "failed")[0]
    code, told = checked(toy_config(toy.folder, f"run.dir={tmp_path / 'second'}", f"train.init_from={tmp_path}"))
    assert code == 2
    assert "failed: tokenizer: " in only(told, "failed")[0]


def test_both_directions_are_learned_and_translated(corpus: Path) -> None:
    code, told = checked(toy_config(corpus, "data.directions=all"))
    assert code == 0, told
    text = "\n".join(told)
    assert "ok: translation xx-yy" in text
    assert "ok: translation yy-xx" in text


def test_the_verb_prints_lines_and_the_exit_code_is_that_of_the_worst(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", str(corpus / "toy.yaml"), "--set", f"run.dir={corpus.parent / 'runs'}"]
    assert cli.main(arguments) == 0
    assert "ok: checkpoint" in capsys.readouterr().out
    assert cli.main([*arguments, "--set", "data.valid=5000"]) == 2
    assert "nothing is left to train on — lower data.valid" in capsys.readouterr().out


def test_what_its_time_does_not_allow_is_said(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = checked(toy_config(corpus), seconds=0.0)
    assert code == 0
    assert len(only(told, "skipped")) == 12
    assert all("`xyd train` tries it itself" in line for line in only(told, "skipped"))
    monkeypatch.setattr(model, "OVERFIT_SECONDS", 0.0)
    monkeypatch.setattr(model, "CORE_SPEED", 1.0)
    code, told = checked(toy_config(corpus))
    assert code == 0
    assert "would take about" in only(told, "skipped")[0]


def test_learning_that_runs_out_of_time_is_a_warning_with_the_loss_it_reached(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "OVERFIT_STEPS", 30)
    code, told = checked(toy_config(corpus, "model.d_ff=2"))
    assert code == 0
    (warning,) = only(told, "warning")
    assert "learning 8 short pairs by heart: NLL " in warning
    assert "in 30 steps" in warning


def test_a_model_that_does_not_learn_fails(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "OVERFIT_STEPS", 20)
    monkeypatch.setattr("xyd.optim.Gradients.refresh", lambda _self: None)
    monkeypatch.setattr("torch.optim.AdamW.step", lambda _self: None)
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "the loss must fall" in only(told, "failed")[0]


# ── the seven faults ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(10)
def test_a_wrong_path(corpus: Path) -> None:
    (corpus / "toy.yy").rename(corpus / "toy.yyy")
    code, told = checked(toy_config(corpus))
    assert code == 2
    (failed,) = only(told, "failed")
    assert "toy.yy: no such file; did you mean toy.yyy?" in failed
    assert "ok: disk" in "\n".join(told), "the trials after it are made all the same"


@pytest.mark.need(10)
def test_one_line_short(corpus: Path) -> None:
    lines = (corpus / "toy.yy").read_text("utf-8").splitlines(keepends=True)
    (corpus / "toy.yy").write_text("".join(lines[:-1]), "utf-8")
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "toy.xx has 300 lines but toy.yy has 299" in only(told, "failed")[0]
    assert "Put back the missing lines" in only(told, "failed")[0]


def test_a_vocabulary_of_48000_on_200_lines(corpus: Path) -> None:
    for name in ("toy.xx", "toy.yy"):
        lines = (corpus / name).read_text("utf-8").splitlines(keepends=True)
        (corpus / name).write_text("".join(lines[:200]), "utf-8")
    code, told = checked(toy_config(corpus, "tokenizer.vocab_size=48000"))
    assert code == 0
    (warning,) = only(told, "warning")
    assert "tokenizer.vocab_size 48000 is too large" in warning
    size = int(warning.rsplit("lowered to ")[1].split(" ")[0])
    assert f"set tokenizer.vocab_size: {size}, or give more text" in warning
    assert f"embeddings {16 * size:,}" in "\n".join(told), "the model is made as training would make it"


@pytest.mark.parametrize("line", [3, 250])
def test_a_line_of_20000_characters(corpus: Path, line: int) -> None:
    lines = (corpus / "toy.xx").read_text("utf-8").splitlines()
    lines[line - 1] = "ba" * 10_000
    (corpus / "toy.xx").write_text("\n".join(lines) + "\n", "utf-8")
    code, told = checked(toy_config(corpus))
    assert code == 0
    (warning,) = only(told, "warning")
    assert "1 pairs with more than max_characters = 3000 characters, the longest 20,000" in warning
    assert f"toy.xx:{line}" in warning
    assert "split them into sentences" in warning
    code, told = checked(toy_config(corpus, "data.max_characters=50000", "data.max_length_ratio=10000"))
    assert code == 0
    assert "lengths: 1 of 300 sampled pairs are above model.max_length = 32 tokens" in "\n".join(told)


def test_a_batch_that_cannot_fit_the_memory(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By forecast, before it is tried: on a machine that has 3 MB left."""
    monkeypatch.setattr(memory, "free", lambda: 3_000_000)
    config = toy_config(corpus, "train.max_tokens=4000", "tokenizer.vocab_size=300", "tokenizer.byte_fallback=true")
    code, told = checked(config)
    assert code == 2
    (failed,) = only(told, "failed")
    assert "memory, forecast per process" in failed
    assert "free 0.00 GB" in failed
    assert "skipped: model: it was not seen to fit into memory" in told
    fitting = int(failed.rsplit("lower train.max_tokens from 4000 to about ")[1])
    assert 100 < fitting < 4000
    monkeypatch.setattr(memory, "free", lambda: 100_000)
    assert "take a smaller model" in only(checked(config)[1], "failed")[0]


def test_a_batch_larger_than_this_machine(corpus: Path) -> None:
    free = memory.free()
    if free is None:
        pytest.skip("this system does not tell what is free")
    width = free // 1000  # elements that each of some 3,000 tokens keeps in each layer
    config = toy_config(corpus, f"model.d_ff={width}", "model.d_model=2", "train.max_tokens=1000000")
    code, told = checked(config)
    assert code == 2
    assert "memory, forecast per process" in only(told, "failed")[0]


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
from xyd.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.parametrize("verb", ["check", "train"])
def test_no_room_for_a_checkpoint(corpus: Path, verb: str) -> None:
    """A limit on the size of files stands for a full disk: the tokenizer can be written, a checkpoint cannot."""
    arguments = [verb, str(corpus / "toy.yaml"), "--set", f"run.dir={corpus.parent / 'runs'}"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    if verb == "train":
        assert "File too large" in done.stderr
        return
    failed = only(done.stdout.splitlines(), "failed")
    assert len(failed) == 2, done.stdout
    assert "may write no file above 0.00 GB" in failed[0]
    assert "ulimit -f unlimited" in failed[0]
    assert "the checkpoint could not be written (File too large" in failed[1]
    assert not (corpus.parent / "runs").exists()


@pytest.mark.parametrize("place", ["file/runs", "/proc/runs"])
def test_an_unwritable_run_directory(corpus: Path, place: str) -> None:
    """Mode bits do not stop root, so: below a file, and where the system allows nobody to write."""
    if place == "/proc/runs" and sys.platform != "linux":
        pytest.skip("no /proc here")
    (corpus / "file").write_text("", "utf-8")
    config = toy_config(corpus, f"run.dir={place if place.startswith('/') else corpus / place}")
    code, told = checked(config)
    assert code == 2
    (failed,) = only(told, "failed")
    assert "cannot be written: " in failed
    assert "choose another run.dir" in failed
    assert "ok: learning" in "\n".join(told), "the trials after it are made all the same"
    assert "skipped: checkpoint: the run directory cannot be written" in told


def test_a_run_directory_that_is_a_file(corpus: Path) -> None:
    (corpus.parent / "runs").mkdir()
    (corpus.parent / "runs" / "toy").write_text("", "utf-8")
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "is no folder that you may write to — choose another run.dir" in told[0]


# ── more that can be wrong ───────────────────────────────────────────────────────────────────────────────────────────


def test_two_faults_are_two_findings(corpus: Path) -> None:
    (corpus / "toy.yy").unlink()
    code, told = checked(toy_config(corpus, f"run.dir={corpus / 'toy.xx'}", "data.test={files: {xx: t.xx, yy: t.yy}}"))
    assert code == 2
    assert [line.split(" ")[1] for line in only(told, "failed")] == ["run", "corpus", "valid"]


def test_a_corpus_of_which_most_would_be_dropped(corpus: Path) -> None:
    code, told = checked(toy_config(corpus, "data.min_characters=20"))
    assert code == 0
    (warning,) = [line for line in only(told, "warning") if "most would be dropped" in line]
    assert "too_short" in warning
    assert "— lower data.min_characters" in warning


def test_bytes_that_are_no_utf8(corpus: Path) -> None:
    (corpus / "toy.yy").write_bytes((corpus / "toy.yy").read_bytes().replace(b"l", b"\xe9", 1))
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "not utf-8: byte E9" in only(told, "failed")[0]


def test_a_disk_too_small_by_forecast(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "free_bytes", lambda _path: 1000)
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "disk, forecast" in only(told, "failed")[0]
    assert "lower train.keep_checkpoints" in only(told, "failed")[0]


def test_a_checkpoint_that_comes_back_otherwise(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xyd import checkpoint

    def otherwise(weights: Any, folder: Path) -> None:
        load_weights(weights, folder)
        weights.output.bias.data[5] += 1e-6

    load_weights = checkpoint.load_weights
    monkeypatch.setattr(checkpoint, "load_weights", otherwise)
    code, told = checked(toy_config(corpus))
    assert code == 2
    assert "but not equal" in only(told, "failed")[0]


def test_a_corpus_on_the_hub_is_not_fetched(corpus: Path) -> None:
    code, told = checked(toy_config(corpus, "data.corpora=[{hf: {path: someone/something}, languages: [xx, yy]}]"))
    assert code == 0
    assert "skipped: corpus someone/something[train]: on the hub" in "\n".join(told)
    assert "skipped: tokenizer: no pair of the corpora is at hand" in told
