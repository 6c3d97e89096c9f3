"""train: it learns what can be learned, skips what is not finite, stops when told, keeps the best, tests once."""

import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import Toy, assert_same, lines, run_of, state, weights, write_corpus

from xyd import checkpoint, corpus, distributed
from xyd.batching import plan_epoch
from xyd.config import Config, load
from xyd.errors import CheckpointError, NumericsError
from xyd.evaluate import evaluate_run, evaluate_split
from xyd.files import RunDir, sha256_file
from xyd.report import DirectionReport, EvalReport
from xyd.resume import make_ready
from xyd.train import SKIPS_IN_A_ROW, Trainer, train
from xyd.translate import Translator

# ── numbers that are not finite ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[set[int]], dict[int, list[int]]]:
    """A function (steps): their gradients become infinite. Returns step → pairs, filled while it is trained."""
    pairs: dict[int, list[int]] = {}
    train_step = Trainer.train_step

    def prepare(steps: set[int]) -> dict[int, list[int]]:
        def spoilt(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
            pairs[self.state.step] = [int(p) for rows in micro_batches for p in self.split.pair_id[rows]]
            if self.state.step not in steps:
                return train_step(self, micro_batches)
            hook = self.model.encoder_norm.weight.register_hook(lambda gradient: gradient * math.inf)
            before = [p.detach().clone() for p in self.model.parameters()]
            moments = json.dumps(self.optimizer.state_dict(), default=lambda tensor: tensor.tolist())
            figures = train_step(self, micro_batches)
            hook.remove()
            assert figures.is_skipped
            assert all(torch.equal(a, b) for a, b in zip(before, self.model.parameters(), strict=True))
            assert moments == json.dumps(self.optimizer.state_dict(), default=lambda tensor: tensor.tolist())
            return figures

        monkeypatch.setattr(Trainer, "train_step", spoilt)
        return pairs

    return prepare


@pytest.mark.need(8)
def test_a_gradient_that_is_not_finite_skips_its_step_which_is_counted_and_logged_with_its_pairs(
    toy: Toy, tmp_path: Path, spoil: Callable[[set[int]], dict[int, list[int]]], capfd: pytest.CaptureFixture[str]
) -> None:
    config = toy.config(tmp_path)
    pairs = spoil({4, 5, 13})
    assert train(config) == 0
    run = run_of(config)
    events = lines(run, "event")
    assert [(e["event"], e["step"]) for e in events] == [("step skipped", step) for step in (4, 5, 13)]
    assert [e["pair_ids"] for e in events] == [pairs[step] for step in (4, 5, 13)]
    assert "step 13 skipped: the gradient is not finite (3 skipped so far)" in capfd.readouterr().err
    saved = state(run)
    assert (saved["train_state"]["skipped"], saved["train_state"]["skipped_in_a_row"]) == (3, 0)
    assert {float(moment["step"]) for moment in saved["optimizer"]["state"].values()} == {17.0}
    assert lines(run, "train")[-1]["skipped_steps"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())


@pytest.mark.need(8)
def test_ten_skips_in_a_row_stop_the_run_and_last_is_intact(
    toy: Toy, tmp_path: Path, spoil: Callable[[set[int]], dict[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy.config(tmp_path, "train.max_steps=40")
    spoil(set(range(2, 11)) | set(range(13, 40)))  # nine in a row, and then too many
    with pytest.raises(
        NumericsError, match=rf"step 22: {SKIPS_IN_A_ROW} steps in a row .*last checkpoint is whole"
    ) as e:
        train(config)
    assert e.value.exit_code == 2
    run = run_of(config)
    skipped = [event["step"] for event in lines(run, "event") if event["event"] == "step skipped"]
    assert skipped == [*range(2, 11), *range(13, 23)]
    folder, index = checkpoint.find(run, "last")
    assert index["step"] == 20
    assert checkpoint.load_state(folder, torch.device("cpu"))["train_state"]["skipped_in_a_row"] == 8
    assert Translator.load(run.root, "last", "cpu").translate(["ba be"])[0].text is not None


@pytest.mark.need(8)
def test_a_loss_that_is_not_finite_stops_the_run_at_once_and_names_the_pairs(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy.config(tmp_path)
    train_step, pairs = Trainer.train_step, []

    def broken(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        if self.state.step == 14:
            pairs.extend(int(p) for rows in micro_batches for p in self.split.pair_id[rows])
            self.model.decoder_norm.weight.data.fill_(math.nan)
        return train_step(self, micro_batches)

    monkeypatch.setattr(Trainer, "train_step", broken)
    with pytest.raises(NumericsError, match=r"step 14: the loss is not finite\. Pairs of this step: \d+, ") as raised:
        train(config)
    assert raised.value.exit_code == 2
    run = run_of(config)
    (event,) = lines(run, "event")
    assert (event["event"], event["step"], event["pair_ids"]) == ("non-finite loss", 14, pairs)
    assert checkpoint.find(run, "last")[1]["step"] == 10
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())
    monkeypatch.undo()
    assert train(config) == 0  # the run can go on


# ── the best, early stopping, what is kept ───────────────────────────────────────────────────────────────────────────


def scripted(nll: float) -> EvalReport:
    return EvalReport({"xx-yy": DirectionReport("xx-yy", sentences=0, nll_sentences=1, nll_sum=nll, num_tokens=1)}, 1)


@pytest.fixture
def valid_nll(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[float]], None]]:
    """A function (scores): what the following evaluations on valid will say."""
    left: list[float] = []
    monkeypatch.setattr(Trainer, "_evaluate_valid", lambda _self, with_bleu: scripted(left.pop(0)))
    yield left.extend
    assert left == [], "there were fewer validations than scores"


def checkpoints(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints_dir.iterdir())


@pytest.mark.need(28)
def test_patience_stops_the_run_and_the_best_is_kept_and_loads(
    toy: Toy, tmp_path: Path, valid_nll: Callable[[list[float]], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """Patience 5, two kept, the best of all at the first validation."""
    config = toy.config(
        tmp_path, "train.patience=5", "train.keep_checkpoints=2", "train.validate_every=3", "train.max_steps=100"
    )
    valid_nll([1.0, 2.0, 3.0, 2.5, 2.4, 2.3])
    valid_nll([1.0, 1.5])  # at the end: best, and the average of the two kept
    assert train(config) == 0
    run = run_of(config)
    assert "training is over: 5 validations without gain in nll, best at step 3" in capfd.readouterr().err
    assert checkpoints(run) == ["averaged", "best", "last", "step-00000003", "step-00000006"]
    assert checkpoint.find(run, "best")[1]["step"] == 3
    assert checkpoint.find(run, "last")[1]["step"] == 18
    report = json.loads(run.report_path.read_text(encoding="utf-8"))
    assert (report["checkpoint"], report["step"], report["best_step"]) == ("best", 18, 3)
    assert checkpoint.load_model(run, "best", torch.device("cpu")) is not None
    kept = weights(run, "step-00000003"), weights(run, "best")
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    capfd.readouterr()
    assert train(config) == 0
    assert "already done at step 18 (5 validations without gain" in capfd.readouterr().err


@pytest.mark.need(28)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_not_a_number_stops_the_run_and_is_not_best(
    toy: Toy, tmp_path: Path, valid_nll: Callable[[list[float]], None], bad: float
) -> None:
    config = toy.config(tmp_path, "train.validate_every=5")
    valid_nll([3.0, bad])
    with pytest.raises(NumericsError, match="step 10: the nll on valid is not finite"):
        train(config)
    run = run_of(config)
    assert checkpoints(run) == ["best", "last", "step-00000005"]
    assert {checkpoint.find(run, name)[1]["step"] for name in ("best", "last")} == {5}
    assert [e["event"] for e in lines(run, "event")] == ["non-finite nll on valid"]


@pytest.mark.need(30)
def test_there_are_never_more_than_best_last_and_the_kept_ones(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the defaults of what is kept, whatever order the scores come in."""
    config = toy.config(tmp_path, "train.validate_every=1", "train.max_steps=20", "train.average=0")
    scores = np.random.default_rng(1).permutation(20).tolist()
    monkeypatch.setattr(Trainer, "_evaluate_valid", lambda self, with_bleu: scripted(1 + scores[self.state.step - 1]))
    write, most = Trainer._write, 0

    def counted(self: Trainer, names: list[str]) -> float:
        nonlocal most
        seconds = write(self, names)
        most = max(most, len(checkpoints(self.run)))
        return seconds

    monkeypatch.setattr(Trainer, "_write", counted)
    assert train(config) == 0
    run = run_of(config)
    assert most == 2 + config.train.keep_checkpoints == len(checkpoints(run))
    best_five = sorted(range(20), key=lambda i: scores[i])[:5]
    assert checkpoints(run) == ["best", "last", *sorted(f"step-{i + 1:08d}" for i in best_five)]
    assert "disk, forecast: checkpoints" in capfd.readouterr().err


@pytest.mark.parametrize(("averaged", "chosen"), [(1.9, "averaged"), (2.1, "best"), (2.0, "best")])
def test_best_or_averaged_whichever_is_better_on_valid(
    toy: Toy, tmp_path: Path, valid_nll: Callable[[list[float]], None], averaged: float, chosen: str
) -> None:
    config = toy.config(tmp_path, "train.validate_every=5", "train.average=2")
    valid_nll([3.0, 2.5, 2.0, 4.0, 2.0, averaged])
    assert train(config) == 0
    run = run_of(config)
    report = json.loads(run.report_path.read_text(encoding="utf-8"))
    assert (report["checkpoint"], report["best_step"]) == (chosen, 15)
    assert report["valid"]["averaged"]["nll"] == averaged
    assert checkpoint.find(run, "averaged")[1]["average_of"] == ["step-00000015", "step-00000010"]
    means = weights(run, "averaged")
    parts = [weights(run, name) for name in ("step-00000015", "step-00000010")]
    for name, tensor in means.items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)
    # What was evaluated on test is what was chosen.
    translator = Translator.load(run.root, chosen, "cpu")
    assert evaluate_split(translator, corpus.open_split(run, "test")).nll == pytest.approx(report["test"]["nll"])


def test_a_plateau_lowers_the_rate_and_says_so(
    toy: Toy, tmp_path: Path, valid_nll: Callable[[list[float]], None], capfd: pytest.CaptureFixture[str]
) -> None:
    config = toy.config(
        tmp_path, "train.schedule=plateau", "train.plateau_patience=2", "train.validate_every=4", "train.average=0"
    )
    valid_nll([3.0, 3.1, 3.2, 3.0, 2.9, 2.9])
    assert train(config) == 0
    rates = [line["learning_rate"] for line in lines(run_of(config), "train")]
    assert rates == pytest.approx([0.001 * step for step in range(1, 11)] + [0.01] * 2 + [0.005] * 8)
    assert "no gain for a while: learning rate 0.01 → 0.005" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("limit", "reason", "step"),
    [("train.max_epochs=1", "max_epochs = 1 reached", 6), ("train.max_minutes=1e-9", "max_minutes = 1e-09 reached", 1)],
)
def test_other_limits_end_it_with_a_validation_and_a_report(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str], limit: str, reason: str, step: int
) -> None:
    config = toy.config(tmp_path, limit)
    assert train(config) == 0
    assert f"training is over: {reason}" in capfd.readouterr().err
    run = run_of(config)
    assert [line["step"] for line in lines(run, "valid")] == [step]
    assert json.loads(run.report_path.read_text(encoding="utf-8"))["step"] == step


def test_a_limit_in_minutes_costs_no_exchange_of_its_own(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of rank 0 rides on the sum of gradients; objects are sent only to validate, to save and at the end."""
    sent: list[int] = []
    trainer = Trainer(toy.config(tmp_path, "train.max_minutes=1", "train.log_every=1"))
    from_main = distributed.from_main
    monkeypatch.setattr(distributed, "from_main", lambda value: sent.append(trainer.state.step) or from_main(value))
    assert trainer.fit() == 0
    assert set(sent) == {10, 20}
    assert 0 < trainer.state.validation_seconds < trainer.state.seconds < 60
    assert 0 < trainer.state.data_seconds < trainer.state.seconds


def test_the_shares_of_validation_and_of_waiting_for_data_are_said(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(toy.config(tmp_path)) == 0
    told = capfd.readouterr().err
    share = r"\d+(\.\d+)?%"
    assert len(re.findall(rf"^step \d+ · .* s \({share} of the time\) · data {share}$", told, re.MULTILINE)) == 2
    whole = rf"training is over: .* reached; 0\.\d minutes, of which validation {share}, waiting for data {share}"
    assert len(re.findall(whole, told)) == 1
    assert all(0 < line["data_wait_share"] < 1 for line in lines(run_of(toy.config(tmp_path)), "train"))


@pytest.mark.need(29)
def test_a_full_disk_ends_the_run_with_its_remedy_and_the_save_before_is_whole(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy.config(tmp_path, "train.max_steps=11")
    save = checkpoint.atomic_write

    def full(path: Path, data: Any) -> None:
        if checkpoint.find(run_of(config), "last")[1]["step"] == 10:
            raise OSError(28, "No space left on device")
        save(path, data)

    train_step = Trainer.train_step

    def fill(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        if self.state.step == 11:
            monkeypatch.setattr(checkpoint, "atomic_write", full)
        return train_step(self, micro_batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", fill)
        with pytest.raises(CheckpointError, match=r"could not be written \(No space left on device; .* GB free\)"):
            train(config)
    monkeypatch.setattr(checkpoint, "atomic_write", save)
    assert checkpoint.find(run_of(config), "last")[1]["step"] == 10
    assert train(config) == 0


# ── batches and precision ────────────────────────────────────────────────────────────────────────────────────────────


def test_every_epoch_trains_every_pair_once_in_another_order(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path)
    split, t = corpus.open_split(run_of(config), "train"), config.train
    orders = []
    for epoch in range(3):
        steps = plan_epoch(
            split.src_lengths, split.tgt_lengths, max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step,
            seed=1, epoch=epoch,
        )  # fmt: skip
        orders.append([int(row) for step in steps for rows in step for row in rows])
    assert all(sorted(order) == list(range(len(split))) for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_the_same_seed_trains_the_same_and_another_does_not(toy: Toy, tmp_path: Path) -> None:
    losses = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        config = toy.config(tmp_path / name, f"run.seed={seed}", "train.max_steps=3")
        assert train(config) == 0
        losses.append([line["loss"] for line in lines(run_of(config), "train")])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_bf16_trains_on_fp32_masters(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = toy.config(tmp_path, "train.precision=bf16")
    assert train(config) == 0
    assert "bf16 with fp32 master weights" in capfd.readouterr().err
    assert {tensor.dtype for tensor in weights(run_of(config)).values()} == {torch.float32}
    first, *_, last = lines(run_of(config), "train")
    assert first["nll"] > 4.5
    assert last["nll"] < 3.8


def test_after_a_resume_bf16_begins_with_the_saved_weights(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path, "train.precision=bf16", "train.max_steps=10")
    assert train(config) == 0
    trainer = Trainer(config)
    trainer.log.close()
    for master, working in zip(trainer.model.parameters(), trainer.gradients.work.parameters(), strict=True):
        assert torch.equal(master.bfloat16(), working)


# ── what a finished run says, and learning ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run that has learned the toy language; opened.json tells which split it opened at which step."""
    folder = tmp_path_factory.mktemp("learned")
    write_corpus(folder, 3000)
    config = load(folder / "toy.yaml", [f"run.dir={folder}", *LEARNING])
    opened: list[tuple[str, int]] = []
    open_split, trainers = corpus.open_split, []

    class Watched(Trainer):
        def __init__(self, *arguments: Any) -> None:
            trainers.append(self)
            super().__init__(*arguments)

    def watched(run: RunDir, name: Any) -> Any:
        if trainers:  # else for the measurement of search
            opened.append((name, trainers[0].state.step if hasattr(trainers[0], "state") else -1))
        return open_split(run, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xyd.train.Trainer", Watched)
        patch.setattr(corpus, "open_split", watched)
        assert train(config) == 0
    (folder / "opened.json").write_text(json.dumps(opened), encoding="utf-8")
    return config


LEARNING = (
    "model.d_model=48", "model.d_ff=64", "model.num_heads=4", "model.dropout=0.0", "train.label_smoothing=0.0",
    "train.learning_rate=0.01", "train.schedule=cosine", "train.warmup_steps=60", "train.max_steps=800",
    "train.max_tokens=2000", "train.tokens_per_step=800", "train.validate_every=200", "train.log_every=50",
    "train.device=auto", "evaluate.bleu_every=1", "evaluate.valid_beam_size=1",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.need(21)
def test_it_learns_to_translate_sentences_it_has_never_seen(learned: Config) -> None:
    report = json.loads(run_of(learned).report_path.read_text(encoding="utf-8"))
    assert report["test"]["nll"] < 0.02, report["test"]
    assert report["test"]["bleu"] > 98
    test = corpus.open_split(run_of(learned), "test")
    translator = Translator.load(run_of(learned).root, report["checkpoint"], "auto")
    translations = translator.translate([test.src_text(i) for i in range(len(test))])
    exact = sum(t.text == test.tgt_text(i) for i, t in enumerate(translations))
    assert exact >= 0.95 * len(test)


@pytest.mark.slow
def test_it_does_not_learn_pairs_that_are_put_together_by_chance(tmp_path: Path) -> None:
    write_corpus(tmp_path, 3000, shuffled=True)
    config = load(tmp_path / "toy.yaml", [f"run.dir={tmp_path}", *LEARNING, "train.max_steps=150"])
    assert train(config) == 0
    report = json.loads(run_of(config).report_path.read_text(encoding="utf-8"))
    assert report["test"]["nll"] > 1.5, "a model cannot know these targets"
    assert report["test"]["bleu"] < 20


@pytest.mark.slow
@pytest.mark.need(25)
def test_the_figures_of_the_log_are_those_of_the_saved_checkpoint(learned: Config) -> None:
    run = run_of(learned)
    best_step = checkpoint.find(run, "best")[1]["step"]
    (logged,) = [line for line in lines(run, "valid") if line["step"] == best_step]
    again = evaluate_run(run.root, split="valid", checkpoint="best")
    assert logged["bleu"] > 50, "the comparison of zeros would say nothing"
    assert again.bleu == pytest.approx(logged["bleu"], abs=0.01)
    assert again.chrf == pytest.approx(logged["chrf"], abs=0.01)
    assert again.nll == pytest.approx(logged["nll"], abs=1e-4)
    reported = json.loads(run.report_path.read_text(encoding="utf-8"))["valid"]["best"]
    assert reported["bleu"] == pytest.approx(logged["bleu"], abs=0.01)
    signature = again.directions["xx-yy"].bleu_signature
    assert signature == reported["directions"]["xx-yy"]["bleu_signature"]
    assert "tok:13a" in str(signature)


@pytest.mark.slow
def test_the_test_split_is_read_once_at_the_end(learned: Config) -> None:
    opened = json.loads((run_of(learned).root.parent / "opened.json").read_text(encoding="utf-8"))
    assert opened == [["train", -1], ["valid", -1], ["test", 800]]


@pytest.mark.slow
def test_report_and_run_json_tell_the_whole_run(learned: Config) -> None:
    run = run_of(learned)
    report = json.loads(run.report_path.read_text(encoding="utf-8"))
    assert list(report) == [
        "checkpoint", "step", "best_step", "tokens", "seconds", "seed", "valid", "test",
    ]  # fmt: skip
    assert set(report["valid"]) == {"best", "averaged"}
    direction = report["test"]["directions"]["xx-yy"]
    assert direction["sentences"] == 20
    assert len(direction["samples"]) == 2
    assert {"nll", "perplexity", "bleu", "chrf", "bleu_signature", "chrf_signature", "num_tokens"} <= set(direction)
    assert direction["perplexity"] == pytest.approx(math.exp(direction["nll"]))
    about = json.loads(run.run_path.read_text(encoding="utf-8"))
    assert about["directions"] == ["xx-yy"]
    assert about["tokenizer_sha256"] == sha256_file(run.tokenizer_path)
    assert about["data_fingerprint"] == json.loads(run.manifest_path.read_text(encoding="utf-8"))["fingerprint"]
    assert (about["seed"], about["step"], about["metric"]) == (1, 800, "nll")
    assert (about["device"], about["precision"], about["workers"], about["threads"]) == ("cpu", "float32", 1, 1)
    assert set(about["versions"]) == {
        "python", "xyd", "torch", "sentencepiece", "datasets", "numpy", "sacrebleu", "safetensors",
    }  # fmt: skip
    assert about["versions"]["torch"] == torch.__version__
    assert load(run.config_path) == learned
    tokens = [line["tokens"] for line in lines(run, "train")]
    assert report["tokens"] == about["tokens"] == tokens[-1]


def test_without_a_test_split_the_report_says_none(toy: Toy, tmp_path: Path) -> None:
    config = load(toy.yaml, [f"run.dir={tmp_path}", "data.test=null", "train.max_steps=1", "data.directions=all"])
    assert train(config) == 0
    run = run_of(config)
    assert json.loads(run.report_path.read_text(encoding="utf-8"))["test"] is None
    translation = Translator.load(run.root, None, "auto").translate(["la le"], to="xx")
    assert len(translation) == 1


# ── before the first step ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_said_before_the_first_step(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = toy.config(tmp_path)
    assert make_ready(config, False, False, lambda _text: None)
    capfd.readouterr()

    def stop(_self: Trainer, _micro_batches: list[np.ndarray]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train_step", stop)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    told = capfd.readouterr().err
    assert "an epoch of 6 steps:\n  xx-yy: 260 rows, 260 seen an epoch (100.0%)" in told
    for part in (
        "one batch:",
        "parameters: 7,351 = ",
        "memory, forecast",
        "disk, forecast",
        "device cpu, fp32, 1 worker",
    ):
        assert part in told, part
    assert "step 1" not in told


def test_a_second_ctrl_c_does_not_wait(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy.config(tmp_path)
    train_step = Trainer.train_step

    def interrupted(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        if self.state.step == 12:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(self, micro_batches)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    assert checkpoint.find(run_of(config), "last")[1]["step"] == 10


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_when_training_is_over_a_signal_does_not_wait_for_the_last_evaluation(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    config = toy.config(tmp_path)
    finish = Trainer._finish
    monkeypatch.setattr(Trainer, "_finish", lambda self: os.kill(os.getpid(), number) or finish(self))
    with pytest.raises(SystemExit, match=str(code)):
        train(config)
    assert not run_of(config).report_path.exists()
    monkeypatch.setattr(Trainer, "_finish", finish)
    assert train(config) == 0
    assert run_of(config).report_path.exists()


def test_the_state_is_saved_by_value(toy: Toy, tmp_path: Path) -> None:
    """What the trainer counts is what it reads back, field by field."""
    config = toy.config(tmp_path, "train.max_steps=7", "train.log_every=4")
    assert train(config) == 0
    saved = state(run_of(config))["train_state"]
    trainer = Trainer(config)
    trainer.log.close()
    assert_same(trainer.state.__dict__, saved)
    assert (saved["step"], saved["epoch"], saved["step_in_epoch"]) == (7, 1, 1)
    assert saved["since_validation"] == {}
