"""resume: stopped or killed and started again is as never stopped; what may change, what asks, what is moved aside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import Toy, assert_same_run, environment, fated, lines, run_of, state, untimed, weights

from xyd import checkpoint, corpus
from xyd.batching import plan_epoch
from xyd.config import Config, load
from xyd.errors import CheckpointError
from xyd.files import RunDir, sha256_file
from xyd.resume import make_ready, prepare
from xyd.train import Trainer, train

DROPOUT = ("model.dropout=0.2", "model.attention_dropout=0.1", "model.activation_dropout=0.1")


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[list[int]]]:
    """Step → rows of its micro-batches, for every step that is trained from now on."""
    seen: dict[int, list[list[int]]] = {}
    train_step = Trainer.train_step

    def recorded(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        assert self.state.step not in seen, f"step {self.state.step} was trained twice"
        seen[self.state.step] = [rows.tolist() for rows in micro_batches]
        return train_step(self, micro_batches)

    monkeypatch.setattr(Trainer, "train_step", recorded)
    return seen


@pytest.fixture
def signal_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """A function (step, signal): this process sends itself the signal in the middle of that step."""
    due: dict[int, int] = {}
    train_step = Trainer.train_step

    def signalled(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        if self.state.step in due:
            os.kill(os.getpid(), due.pop(self.state.step))
        return train_step(self, micro_batches)

    monkeypatch.setattr(Trainer, "train_step", signalled)
    yield lambda step, number: due.update({step: number})
    assert not due, f"the steps {sorted(due)} were never reached"


@pytest.fixture
def stopped(toy: Toy, tmp_path: Path, signal_at: Callable[[int, int], None]) -> Config:
    """A run that was stopped at step 12."""
    config = toy.config(tmp_path)
    signal_at(12, signal.SIGTERM)
    assert train(config) == 143
    return config


def unbroken(toy: Toy, root: Path, *overrides: str) -> RunDir:
    config = toy.config(root, *overrides)
    assert train(config) == 0
    return run_of(config)


# ── as never stopped ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(17)
@pytest.mark.parametrize(
    ("number", "code", "stops"),
    [
        (signal.SIGTERM, 143, [10]),  # at a validation, in the second epoch
        (signal.SIGINT, 130, [3, 6, 17]),  # and somewhere else, and at an end of an epoch
    ],
)
def test_10_steps_stop_and_10_steps_are_20_steps_bit_for_bit(
    toy: Toy,
    tmp_path: Path,
    batches: dict[int, list[list[int]]],
    signal_at: Callable[[int, int], None],
    capfd: pytest.CaptureFixture[str],
    number: int,
    code: int,
    stops: list[int],
) -> None:
    """Weights, optimiser, random state, batches, and every logged figure; dropout is on, epochs end in between."""
    whole = unbroken(toy, tmp_path / "whole", *DROPOUT)
    straight = dict(batches)
    batches.clear()
    config = toy.config(tmp_path / "stopped", *DROPOUT)
    for step in stops:
        signal_at(step, number)
        assert train(config) == code
        assert state(run_of(config))["train_state"]["step"] == step
        told = capfd.readouterr().err
        assert f"interrupted: step {step} is saved in" in told
        assert "the same command goes on from there" in told
    assert train(config) == 0
    assert f"going on from checkpoint last, step {stops[-1]}" in capfd.readouterr().err
    assert batches == straight
    assert_same_run(whole, run_of(config))
    assert state(whole)["train_state"]["epoch"] >= 2
    ends = [line["step"] for line in lines(whole, "train") if line["epoch"] == 1][:1]
    assert stops == [10] or ends[0] in stops, f"the first epoch ends with step {ends}"


@pytest.mark.slow
@pytest.mark.need(17)
def test_killed_between_two_saves_the_run_goes_on_from_the_last_and_ends_the_same(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """40 steps straight against 17, SIGKILL, and the rest; the last save was that of step 10."""
    overrides = [*DROPOUT, "train.max_steps=40"]
    whole = unbroken(toy, tmp_path / "whole", *overrides)
    config = toy.config(tmp_path / "killed", *overrides)
    script = fated(tmp_path, step=18, signal="SIGKILL")
    flags = [part for override in (f"run.dir={tmp_path / 'killed'}", *overrides) for part in ("--set", override)]
    killed = subprocess.run(
        [sys.executable, str(script), "train", str(toy.yaml), *flags], env=environment(), capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = run_of(config)
    assert state(run)["train_state"]["step"] == 10
    assert lines(run, "train")[-1]["step"] == 17
    capfd.readouterr()
    assert train(config) == 0
    told = capfd.readouterr().err
    assert "going on from checkpoint last, step 10" in told
    assert "metrics: 7 lines after step 10 moved to metrics.discarded.jsonl" in told
    assert_same_run(whole, run)


@pytest.mark.need(18)
def test_the_rate_after_a_resume_is_that_of_the_unbroken_run(
    toy: Toy, tmp_path: Path, signal_at: Callable[[int, int], None]
) -> None:
    overrides = ["train.schedule=cosine", "train.max_steps=12", "train.warmup_steps=3"]
    whole = unbroken(toy, tmp_path / "whole", *overrides)
    config = toy.config(tmp_path / "stopped", *overrides)
    signal_at(7, signal.SIGTERM)
    assert train(config) == 143
    assert train(config) == 0
    rates = [[(line["step"], line["learning_rate"]) for line in lines(run, "train")] for run in (whole, run_of(config))]
    assert rates[0] == rates[1]
    assert [step for step, _ in rates[0]] == list(range(1, 13))
    assert rates[0][7][1] < rates[0][6][1] < rates[0][3][1]


@pytest.mark.need(18)
def test_a_run_that_is_over_says_so_and_goes_on_when_the_limit_is_raised(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str], batches: dict[int, list[list[int]]]
) -> None:
    config = toy.config(tmp_path)
    assert train(config) == 0
    before = {path: sha256_file(path) for path in (tmp_path / "toy").rglob("*") if path.is_file()}
    capfd.readouterr()
    assert train(config) == 0
    told = capfd.readouterr().err
    assert "already done at step 20 (max_steps = 20 reached). Raise that limit to go on." in told
    assert {path: sha256_file(path) for path in (tmp_path / "toy").rglob("*") if path.is_file()} == before
    batches.clear()
    assert train(toy.config(tmp_path, "train.max_steps=23")) == 0
    assert sorted(batches) == [21, 22, 23]
    assert "train.max_steps: 20 → 23" in capfd.readouterr().err


def test_a_run_killed_before_its_report_finishes_it(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: dict[int, list[list[int]]]
) -> None:
    """Also when it was over before, with a report of that time, and had gone on."""
    config = toy.config(tmp_path, "train.max_steps=5")
    report = run_of(config).report_path
    finish = Trainer._finish
    for max_steps in (5, 10):
        config = toy.config(tmp_path, f"train.max_steps={max_steps}")
        monkeypatch.setattr(Trainer, "_finish", lambda _self: None)
        assert train(config) == 0
        monkeypatch.setattr(Trainer, "_finish", finish)
        batches.clear()
        assert train(config) == 0
        assert batches == {}
        assert f'"step": {max_steps},' in report.read_text(encoding="utf-8")


@pytest.mark.need(29)
def test_a_damaged_last_is_passed_over_and_said(
    toy: Toy, tmp_path: Path, stopped: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_of(stopped)
    path = run.checkpoints_dir / "last" / checkpoint.WEIGHTS
    path.write_bytes(path.read_bytes()[:-1])
    capfd.readouterr()
    assert train(stopped) == 0
    assert "going on from checkpoint best, step 10 (passed over, damaged: last)" in capfd.readouterr().err
    assert_same_run(unbroken(toy, tmp_path / "whole"), run)


def test_a_checkpoint_from_before_seeds_were_drawn_for_each_micro_batch_still_loads(
    toy: Toy, tmp_path: Path, stopped: Config
) -> None:
    """It holds random states, which nothing needs any more, and lacks what has been counted since."""
    folder = run_of(stopped).checkpoints_dir / "last"
    saved = state(run_of(stopped))
    for name in ("validation_seconds", "data_seconds", "halved"):
        del saved["train_state"][name]
    torch.save({**saved, "rng": [{"cpu": torch.get_rng_state()}]}, folder / checkpoint.STATE)
    index = json.loads((folder / checkpoint.INDEX).read_text(encoding="utf-8"))
    index["files"][checkpoint.STATE] = sha256_file(folder / checkpoint.STATE)
    (folder / checkpoint.INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert train(stopped) == 0
    assert_same_run(unbroken(toy, tmp_path / "whole"), run_of(stopped))


# ── what asks, and for what ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(18)
def test_a_changed_rate_asks_for_reset_schedule_and_names_old_and_new(
    toy: Toy, tmp_path: Path, stopped: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    changed = toy.config(tmp_path, "train.learning_rate=0.02", "train.beta2=0.9")
    for _ in range(2):
        with pytest.raises(CheckpointError) as raised:
            train(changed)
        told = str(raised.value)
        assert "train.learning_rate: 0.01 → 0.02" in told
        assert "train.beta2: 0.98 → 0.9" in told
        assert "--reset-schedule" in told
        assert "--fresh" not in told
    capfd.readouterr()
    assert train(changed, reset_schedule=True) == 0
    told = capfd.readouterr().err
    assert "train.learning_rate: 0.01 → 0.02" in told
    assert "going on from checkpoint last, step 12; schedule and optimiser start anew" in told
    rates = {line["step"]: line["learning_rate"] for line in lines(run_of(changed), "train")}
    assert rates[12] == pytest.approx(0.01 * (10 / 12) ** 0.5)
    assert rates[13] == pytest.approx(0.02 * 1 / 10)  # the first step of a warm-up
    assert rates[20] == pytest.approx(0.02 * 8 / 10)
    moments = state(run_of(changed))["optimizer"]["state"].values()
    assert {float(moment["step"]) for moment in moments} == {8.0}
    assert train(changed) == 0  # and from now on nothing is asked


@pytest.mark.need(18)
def test_a_reset_that_was_killed_before_its_first_save_is_asked_for_again(
    toy: Toy, tmp_path: Path, stopped: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the old schedule would go on under the new settings, without a word."""
    changed = toy.config(tmp_path, "train.learning_rate=0.02")

    def killed(_self: Trainer, _micro_batches: list[np.ndarray]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", killed)
        with pytest.raises(KeyboardInterrupt):
            train(changed, reset_schedule=True)
    with pytest.raises(CheckpointError, match=r"train\.learning_rate: 0\.01 → 0\.02"):
        train(changed)
    assert train(changed, reset_schedule=True) == 0
    assert lines(run_of(changed), "train")[12]["learning_rate"] == pytest.approx(0.002)


def test_a_schedule_that_starts_anew_ends_at_max_steps(toy: Toy, tmp_path: Path, stopped: Config) -> None:
    changed = toy.config(tmp_path, "train.schedule=linear", "train.warmup_steps=2")
    assert train(changed, reset_schedule=True) == 0
    rates = [line["learning_rate"] for line in lines(run_of(changed), "train")][12:]
    assert rates == pytest.approx([0.005, 0.01, *(0.01 * (1 - i / 6) for i in range(1, 7))])


@pytest.mark.need(47)
def test_another_batch_size_asks_for_reset_schedule_and_the_data_stays(
    toy: Toy, tmp_path: Path, stopped: Config, capfd: pytest.CaptureFixture[str], batches: dict[int, list[list[int]]]
) -> None:
    run = run_of(stopped)
    data = {path: path.stat() for path in (*run.data_dir.iterdir(), run.manifest_path, run.tokenizer_path)}
    changed = toy.config(tmp_path, "train.max_tokens=64", "train.tokens_per_step=64")
    with pytest.raises(CheckpointError, match=r"(?s)tokens_per_step: 256 → 64.*max_tokens: 128 → 64.*--reset-schedule"):
        train(changed)
    assert train(changed, reset_schedule=True) == 0
    assert "data: already prepared from the same inputs and settings" in capfd.readouterr().err
    for path, before in data.items():
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), path
    split = corpus.open_split(run, "train")
    widths = split.src_lengths + 1, split.tgt_lengths + 1
    trained = [rows for step in range(13, 21) for rows in batches[step]]
    assert max(len(rows) * (widths[0][rows].max() + widths[1][rows].max()) for rows in trained) <= 64


@pytest.mark.need(17)
def test_with_larger_steps_the_reset_begins_an_epoch(
    toy: Toy, tmp_path: Path, signal_at: Callable[[int, int], None], batches: dict[int, list[list[int]]]
) -> None:
    """The position in the epoch was that of other steps, and may be beyond the number of the new ones."""
    small = ("train.tokens_per_step=64", "train.max_tokens=64", "train.max_steps=40", "train.validate_every=40")
    signal_at(20, signal.SIGTERM)
    assert train(toy.config(tmp_path, *small)) == 143
    changed = toy.config(tmp_path, "train.max_steps=40", "train.tokens_per_step=512")
    assert train(changed, reset_schedule=True) == 0
    split = corpus.open_split(run_of(changed), "train")
    t = changed.train
    steps = plan_epoch(
        split.src_lengths, split.tgt_lengths,
        max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step, seed=1, epoch=1,
    )  # fmt: skip
    assert len(steps) < 20, "the old position must lie beyond the new epoch"
    for number, step in enumerate(steps, 21):
        assert batches[number] == [rows.tolist() for rows in step]


@pytest.mark.need(47)
def test_prepare_leaves_the_data_of_a_trained_run_alone(toy: Toy, tmp_path: Path, stopped: Config) -> None:
    run = run_of(stopped)
    before = {path: sha256_file(path) for path in (*run.data_dir.iterdir(), run.manifest_path, run.tokenizer_path)}
    with pytest.raises(CheckpointError, match="--fresh"):
        prepare(toy.config(tmp_path, "tokenizer.type=bpe"), lambda _text: None)
    prepare(stopped, lambda _text: None)
    assert {path: sha256_file(path) for path in before} == before


def test_a_run_goes_on_when_the_corpus_is_gone(
    tmp_path: Path, signal_at: Callable[[int, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """The run directory holds all that is needed; only other settings of the data need the files again."""
    own = Toy.make(tmp_path / "own")
    config = own.config(tmp_path / "runs")
    signal_at(12, signal.SIGTERM)
    assert train(config) == 143
    (own.folder / "toy.xx").unlink()
    assert train(config) == 0
    assert f"no longer there: {own.folder / 'toy.xx'}" in capfd.readouterr().err


@pytest.mark.need(47)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.d_model=32", r"model\.d_model: 16 → 32"),
        ("model.max_length=24", r"model\.max_length: 32 → 24"),
        ("tokenizer.type=bpe", r"tokenizer\.type: unigram → bpe"),
        ("data.drop_repeats=false", r"data\.drop_repeats: True → False"),
        ("data.directions=[xx-yy, yy-xx]", r"data\.directions\.1: None → yy-xx"),
        ("run.seed=2", r"run\.seed: 1 → 2"),
    ],
)
def test_changed_data_model_or_tokenizer_asks_for_fresh(
    toy: Toy, tmp_path: Path, stopped: Config, change: str, told: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"(?s){told}.*--fresh"):
        train(toy.config(tmp_path, change))
    with pytest.raises(CheckpointError, match=rf"(?s){told}.*--fresh"):
        train(toy.config(tmp_path, change), reset_schedule=True)


@pytest.mark.need(47)
def test_one_changed_byte_of_the_corpus_asks_for_fresh_which_moves_the_run_aside_and_prepares_anew(
    toy: Toy, tmp_path: Path, signal_at: Callable[[int, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    own = Toy.make(tmp_path / "own")
    config = own.config(tmp_path / "runs")
    signal_at(12, signal.SIGTERM)
    assert train(config) == 143
    run = run_of(config)
    before = {path.relative_to(run.root): sha256_file(path) for path in run.root.rglob("*") if path.is_file()}
    text = (own.folder / "toy.yy").read_text(encoding="utf-8")
    (own.folder / "toy.yy").write_text(text.replace("la", "pu", 1), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"the data is not what this run was trained on.*--fresh"):
        train(config)
    capfd.readouterr()
    assert train(config, fresh=True) == 0
    (aside,) = (tmp_path / "runs").glob("toy.aside-*")
    assert f"--fresh: the old run was moved to {aside}" in capfd.readouterr().err
    assert {path.relative_to(aside): sha256_file(path) for path in aside.rglob("*") if path.is_file()} == before
    assert [line["step"] for line in lines(run, "train")] == list(range(1, 21))
    assert sha256_file(run.data_dir / "train.arrow") != before[Path("data/train.arrow")]


def test_fresh_twice_in_a_second_moves_both_aside(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _form: "20300101-000000")
    config = toy.config(tmp_path, "train.max_steps=1")
    for _ in range(3):
        assert train(config, fresh=True) == 0
    names = sorted(path.name for path in tmp_path.glob("toy.aside-*"))
    assert names == ["toy.aside-20300101-000000", *(f"toy.aside-20300101-000000-{i}" for i in (2, 3))]


def test_limits_and_all_that_does_not_touch_a_step_may_change(
    toy: Toy, tmp_path: Path, stopped: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    free = ["train.max_steps=21", "train.patience=3", "train.validate_every=7", "train.keep_checkpoints=2",
            "decode.beam_size=1", "evaluate.samples=1", "train.min_gain=0.5", "train.log_every=2"]  # fmt: skip
    assert train(toy.config(tmp_path, *free)) == 0
    told = capfd.readouterr().err
    for override in free:
        assert f"{override.split('=')[0]}: " in told, override
    assert [line["step"] for line in lines(run_of(stopped), "valid")] == [10, 14, 21]


def test_another_metric_starts_its_own_best(toy: Toy, tmp_path: Path, stopped: Config) -> None:
    """An NLL of 3 is no better or worse than a BLEU of 1."""
    assert train(toy.config(tmp_path, "train.metric=chrf", "evaluate.bleu_every=1", "train.patience=5")) == 0
    saved = state(run_of(stopped))["train_state"]
    (score,) = [line["chrf"] for line in lines(run_of(stopped), "valid") if line["step"] == 20]
    assert (saved["best_score"], saved["best_step"], saved["without_gain"]) == (score, 20, 0)


# ── what a run directory is made from ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(39)
def test_another_tokenizer_in_the_run_directory_is_refused_by_the_trainer_too(
    toy: Toy, tmp_path: Path, stopped: Config
) -> None:
    path = run_of(stopped).tokenizer_path
    right = sha256_file(path)
    path.write_bytes(path.read_bytes() + b"\xc2\x3e\x00")  # one more field, which means nothing
    manifest = run_of(stopped).manifest_path
    manifest.write_text(manifest.read_text(encoding="utf-8").replace(right, sha256_file(path)), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"tokenizer\.model \(sha256 {sha256_file(path)[:12]}\).*{right[:12]}"):
        train(stopped)


def test_a_run_from_the_weights_of_another(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = unbroken(toy, tmp_path / "source")
    config = toy.config(tmp_path / "second", f"train.init_from={source.root}", "train.max_steps=2")
    assert make_ready(config, False, False, lambda _text: None)
    trainer = Trainer(config)
    trainer.log.close()
    chosen = checkpoint.default_name(source)
    for name, tensor in weights(source, chosen).items():
        assert torch.equal(trainer.model.state_dict()[name], tensor), name
    assert trainer.state.step == 0
    capfd.readouterr()
    assert train(config) == 0
    step = checkpoint.find(source, chosen)[1]["step"]
    told = f"weights: from {source.root} ({chosen}, step {step}); the schedule is new"
    assert told in capfd.readouterr().err
    assert [line["learning_rate"] for line in lines(run_of(config), "train")] == pytest.approx([0.001, 0.002])

    # The source is not needed any more once the run has weights of its own, and the key is free to go.
    source.root.rename(tmp_path / "elsewhere")
    assert train(toy.config(tmp_path / "second", f"train.init_from={source.root}", "train.max_steps=3")) == 0
    assert train(toy.config(tmp_path / "second", "train.max_steps=4")) == 0
    assert len(lines(run_of(config), "train")) == 4


def test_weights_of_another_model_or_of_none_are_refused(toy: Toy, tmp_path: Path) -> None:
    source = unbroken(toy, tmp_path / "source", "train.max_steps=1")
    with pytest.raises(CheckpointError, match="does not fit the model of this run"):
        train(toy.config(tmp_path / "wider", f"train.init_from={source.root}", "model.d_model=32"))
    with pytest.raises(CheckpointError, match=r"train\.init_from .*nowhere: no run directory"):
        train(toy.config(tmp_path / "none", f"train.init_from={tmp_path / 'nowhere'}"))


def test_the_saved_config_is_the_whole_run(toy: Toy, tmp_path: Path, stopped: Config) -> None:
    """`xyd train runs/toy/config.yaml` is the same command."""
    saved = load(run_of(stopped).config_path)
    assert saved == stopped
    assert train(saved) == 0
    assert [untimed(line)["step"] for line in lines(run_of(stopped), "train")] == list(range(1, 21))
