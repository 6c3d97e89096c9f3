"""The training loop, from a prepared run directory to a finished one.

`train` decides what is to be done (start, go on, nothing) and starts the workers; `Trainer.fit` is the loop itself.
Rank 0 decides (best, stop, save), everyone hears it, everyone acts.
"""

import dataclasses
import json
import math
import os
import platform
import signal
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xyd import checkpoint, corpus, distributed, plan
from xyd.batching import make_batch, plan_epoch, share, start_ids
from xyd.config import Config, differences, dump
from xyd.errors import CheckpointError, NumericsError, XydError
from xyd.evaluate import EvalReport, evaluate_split
from xyd.files import RunDir, atomic_write, free_bytes
from xyd.loss import token_loss
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer, learning_rate
from xyd.runlog import RunLog
from xyd.text import RULES_VERSION
from xyd.tokenizer import Tokenizer
from xyd.translate import Translator

SKIPS_IN_A_ROW = 10  # steps with a non-finite gradient that stop the run


def train(config: Config, *, fresh: bool = False, reset_schedule: bool = False) -> int:
    """Train as `config` says, from the start or from where the run directory stands. Returns the exit code."""
    if distributed.under_launcher():
        return _work(config, fresh, reset_schedule)
    if not make_ready(config, fresh, reset_schedule):
        return 0
    if config.train.workers > 1:
        return distributed.launch(_work, config.train.workers, (config, False, reset_schedule, True))
    return _work(config, False, reset_schedule, True)


def _work(config: Config, fresh: bool, reset_schedule: bool, is_ready: bool = False) -> int:
    """One worker: rank 0 of torchrun makes the run directory ready, then all train."""
    device = distributed.choose_device(config.train.device)
    distributed.start(device)
    try:
        if not is_ready:
            outcome: Any = None
            if distributed.is_main():
                try:
                    outcome = make_ready(config, fresh, reset_schedule)
                except XydError as e:
                    outcome = e
            outcome = distributed.from_main(outcome)
            if isinstance(outcome, XydError):
                raise outcome
            if not outcome:
                return 0
        return Trainer(config, device, reset_schedule).fit()
    except XydError as e:
        if not distributed.under_launcher():
            raise
        if distributed.is_main():  # one message, not one per worker
            print(f"error: {e}", flush=True)
        return e.exit_code
    finally:
        distributed.stop()


# ── before the loop ──────────────────────────────────────────────────────────────────────────────────────────────────


def make_ready(config: Config, fresh: bool, reset_schedule: bool) -> bool:
    """Prepare data and run directory; False where there is nothing left to do.

    Raises CheckpointError where the run that stands there was made with other settings than `config`.
    """
    run = run_dir(config)
    if fresh and run.root.exists():
        aside = run.root.with_name(f"{run.root.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}")
        run.root.rename(aside)
        _say(f"--fresh: the old run was moved to {aside}")
    found = checkpoint.newest(run) if run.root.exists() else None
    if found is not None:
        _check_changes(config, run, reset_schedule)
        if corpus.fingerprint(config, config.train.init_from) != _manifest(run)["fingerprint"]:
            raise CheckpointError(
                f"{run.root}: the data differs from what this run was trained on (contents of the input files, or the "
                "rules). Start again with --fresh, which moves the old run aside and deletes nothing."
            )
        state = TrainState(**checkpoint.load_state(found[0], torch.device("cpu"))["train_state"])
        reason = state.finished(config)
        if reason and not reset_schedule and run.report_path.exists():
            _say(f"{run.root}: already done at step {state.step} ({reason}); raise the limit to go on")
            return False
    corpus.prepare(config, run, _say, config.train.init_from)
    atomic_write(run.config_path, dump(config))
    return True


def _check_changes(config: Config, run: RunDir, reset_schedule: bool) -> None:
    changes = differences(checkpoint.saved_config(run), config)
    for remedy, allowed, why in (
        ("fresh", False, "start again with --fresh, which moves the old run aside and deletes nothing"),
        ("reset-schedule", reset_schedule, "go on with --reset-schedule (weights stay, schedule and optimiser start anew)"),
    ):
        changed = [f"  {c.key}: {c.old} → {c.new}" for c in changes if c.remedy == remedy]
        if changed and not allowed:
            raise CheckpointError(
                f"{run.root}: this run was made with other settings:\n" + "\n".join(changed)
                + f"\nPut them back, or {why}."
            )  # fmt: skip
        if changed:
            _say("--reset-schedule:\n" + "\n".join(changed))
    changed = [f"{c.key}: {c.old} → {c.new}" for c in changes if c.remedy == "free"]
    if changed:
        _say("changed since the run was saved: " + "; ".join(changed))


def run_dir(config: Config) -> RunDir:
    return RunDir(Path(config.run.dir) / config.run.name)


def _manifest(run: RunDir) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(run.manifest_path.read_text(encoding="utf-8"))
    return manifest


def _say(text: str) -> None:
    print(text, flush=True)


# ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class TrainState:
    """All that the loop mutates, beside weights, optimiser and random states."""

    step: int = 0
    schedule_start: int = 0  # the step at which the schedule began (--reset-schedule)
    epoch: int = 0
    step_in_epoch: int = 0
    tokens: int = 0  # real target tokens seen
    seconds: float = 0.0  # of training and validation
    best_score: float | None = None
    best_step: int = 0
    without_gain: int = 0  # validations since the best one
    plateau_factor: float = 1.0
    plateau_count: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    first_nll: float | None = None
    history: list[list[float]] = field(default_factory=list)  # [step, train NLL, valid NLL] of every validation
    window: dict[str, float] = field(default_factory=dict)  # sums since the last log line
    since_validation: dict[str, float] = field(default_factory=dict)  # NLL sum and tokens since the last validation

    def finished(self, config: Config) -> str | None:
        """Why training is over, in words; None while it is not."""
        t = config.train
        if self.step >= t.max_steps:
            return f"max_steps = {t.max_steps} reached"
        if t.max_epochs is not None and self.epoch >= t.max_epochs:
            return f"max_epochs = {t.max_epochs} reached"
        if t.max_minutes is not None and self.seconds >= 60 * t.max_minutes:
            return f"max_minutes = {t.max_minutes:g} reached"
        if t.patience is not None and self.without_gain >= t.patience:
            return f"{self.without_gain} validations without gain in {t.metric}, best at step {self.best_step}"
        return None


@dataclass(frozen=True)
class StepFigures:
    """What one step was, summed over micro-batches and ranks."""

    loss: float  # with label smoothing, per token
    nll: float  # plain, per token
    num_tokens: int
    num_padded: int  # places of tgt_out, padding included
    norm: float  # gradient, before clipping
    is_clipped: bool
    is_skipped: bool
    stop_signal: int  # 0, or the signal some rank has received
    data_seconds: float


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Trainer:
    """Trains one run. Everything is made in `__init__`; `fit` is the loop."""

    def __init__(self, config: Config, device: torch.device | None = None, reset_schedule: bool = False) -> None:
        self.config, self.run = config, run_dir(config)
        self.device = device or distributed.choose_device(config.train.device)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.cores = cores
        self.threads = config.train.threads or max(1, cores // distributed.world_size())
        torch.set_num_threads(self.threads)
        torch.manual_seed(config.run.seed * 1000 + distributed.rank())  # dropout differs between ranks

        self.directions: list[str] = _manifest(self.run)["directions"]
        self.tokenizer = Tokenizer.load(self.run.tokenizer_path)
        self.split = corpus.open_split(self.run, "train")
        self.valid = corpus.open_split(self.run, "valid")
        self.start_ids = start_ids(self.tokenizer, self.directions)

        rng = torch.get_rng_state()
        torch.manual_seed(config.run.seed)  # the same first weights on every rank
        self.model = Transformer(config.model, self.tokenizer.vocab_size).to(self.device)
        torch.set_rng_state(rng)
        self.dtype = distributed.choose_dtype(config.train.precision, self.device)
        self.state = TrainState()
        self.resumed = self._load(reset_schedule)
        self.log = RunLog(self.run, enabled=distributed.is_main(), resume_step=self.state.step)
        self.translator = Translator(self.model, self.tokenizer, config, self.directions, self.device)
        self.steps: list[list[np.ndarray]] = []
        self.signal = 0

    def _load(self, reset_schedule: bool) -> str | None:
        """Take up the newest whole checkpoint, or the weights of `train.init_from`; says in words what was done."""
        found = checkpoint.newest(self.run)
        said: str | None = None
        saved: dict[str, Any] | None = None
        if found is not None:
            folder, index, passed_over = found
            checkpoint.load_weights(self.model, folder)
            saved = checkpoint.load_state(folder, self.device)
            self.state = TrainState(**saved["train_state"])
            said = f"going on from {folder.name}, step {index['step']}"
            if passed_over:
                said += f" (passed over, damaged: {', '.join(passed_over)})"
        elif self.config.train.init_from is not None:
            source = RunDir(Path(self.config.train.init_from))
            folder, index = checkpoint.find(source, checkpoint.default_name(source))
            checkpoint.load_weights(self.model, folder)
            said = f"weights from {source.root} ({folder.name}, step {index['step']}), schedule from the start"
        self.gradients = Gradients(self.model, self.dtype)
        self.optimizer = build_optimizer(self.model, self.config.train)
        if saved is not None and reset_schedule:
            self.state.schedule_start = self.state.step
            self.state.without_gain, self.state.plateau_factor = 0, 1.0
            said = f"{said}; schedule and optimiser start anew"
        elif saved is not None:
            self.optimizer.load_state_dict(saved["optimizer"])
            states = saved["rng"]
            if distributed.rank() < len(states):
                torch.set_rng_state(states[distributed.rank()]["cpu"].cpu())
                if self.device.type == "cuda":
                    torch.cuda.set_rng_state(states[distributed.rank()]["cuda"].cpu(), self.device)
            if distributed.world_size() != len(states):
                said = f"{said}; {distributed.world_size()} workers instead of {len(states)}: dropout will differ"
        self.gradients.refresh()
        return said

    def fit(self) -> int:
        """Train until a limit, early stopping or a signal; then choose, evaluate and report. Returns the exit code."""
        self._say_before()
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self.log:
                reason = self.state.finished(self.config)
                self.log.bar(self.config.train.max_steps, self.state.step)
                while reason is None:
                    stop_signal = self._one_step()
                    if stop_signal:
                        return self._interrupted(stop_signal)
                    reason = distributed.from_main(self.state.finished(self.config))
                self.log.end_bar()
                if distributed.is_main():
                    self.log.say(f"training is over: {reason}")
                    self._finish()
                distributed.gather(None)  # nobody leaves while rank 0 is at work
            return 0
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _one_step(self) -> int:
        """One step and all that is due after it: log, validate, save. Returns the stop signal, 0 for none."""
        t, state = self.config.train, self.state
        began = time.perf_counter()
        figures = self.train_step(self._next_rows())
        state.seconds += time.perf_counter() - began
        self._count(figures, time.perf_counter() - began)
        is_due = state.step % t.validate_every == 0 or state.finished(self.config) is not None
        if state.step % t.log_every == 0 or is_due:
            self._log_window()
        if is_due and not figures.stop_signal:
            self.validate()
        elif figures.stop_signal or (t.save_every and state.step % t.save_every == 0):
            self._save(["last"])
        return figures.stop_signal

    def _next_rows(self) -> list[np.ndarray]:
        """The micro-batches of the next step; epochs are planned from (seed, epoch) alone."""
        t, state = self.config.train, self.state
        if not self.steps:
            self.steps = self._plan()
        if state.step_in_epoch >= len(self.steps):
            state.epoch, state.step_in_epoch = state.epoch + 1, 0
            self.steps = self._plan()
        rows = self.steps[state.step_in_epoch]
        state.step += 1
        state.step_in_epoch += 1
        if state.step_in_epoch == len(self.steps) and t.max_epochs is not None and state.epoch + 1 >= t.max_epochs:
            state.epoch, state.step_in_epoch, self.steps = state.epoch + 1, 0, []
        return rows

    def _plan(self) -> list[list[np.ndarray]]:
        t = self.config.train
        return plan_epoch(
            self.split.src_lengths, self.split.tgt_lengths, max_tokens=t.max_tokens,
            tokens_per_step=t.tokens_per_step, seed=self.config.run.seed, epoch=self.state.epoch,
        )  # fmt: skip

    def train_step(self, micro_batches: list[np.ndarray]) -> StepFigures:
        """One update: teacher forcing on every micro-batch of the step, each rank on its share of them.

        The loss is a sum divided once, by the real target tokens of all micro-batches on all ranks. A non-finite
        gradient skips the update and is counted; a non-finite loss raises NumericsError.
        """
        g, t = self.gradients, self.config.train
        num_tokens = sum(int(self.split.tgt_lengths[rows].sum()) + len(rows) for rows in micro_batches)
        costs = [len(r) * int(self.split.src_lengths[r].max() + self.split.tgt_lengths[r].max() + 2) for r in micro_batches]
        g.zero()
        g.work.train()
        data_seconds = 0.0
        for i in share(costs, distributed.world_size())[distributed.rank()]:
            began = time.perf_counter()
            batch = make_batch(self.split, micro_batches[i], self.start_ids).to(self.device)
            data_seconds += time.perf_counter() - began
            states = g.work(batch.src, batch.src_mask, batch.tgt_in)
            loss = token_loss(states, batch.tgt_out, g.work.output, t.label_smoothing)
            (loss.loss_sum / num_tokens).backward()
            g.collect()
            g.extras[0] += loss.loss_sum.detach()
            g.extras[1] += loss.nll_sum
            g.extras[2] += batch.tgt_out.numel()
        if self.signal:
            g.extras[3 if self.signal == signal.SIGINT else 4] += 1
        distributed.sum_in_place(g.buffer)  # gradients and figures in one exchange
        loss_sum, nll_sum, num_padded, interrupted, terminated = g.extras[:5].tolist()
        norm = float(g.norm())
        if not math.isfinite(loss_sum):
            raise NumericsError(self._not_finite("loss", micro_batches))
        is_skipped = not math.isfinite(norm)
        is_clipped = False
        if not is_skipped:
            is_clipped = t.clip_norm is not None and g.clip(norm, t.clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()
            self.optimizer.step()
            g.refresh()
        stop_signal = signal.SIGINT if interrupted else signal.SIGTERM if terminated else 0
        return StepFigures(
            loss_sum / num_tokens, nll_sum / num_tokens, num_tokens, int(num_padded), norm,
            is_clipped, is_skipped, int(stop_signal), data_seconds,
        )  # fmt: skip

    def learning_rate(self) -> float:
        """The rate of the current step."""
        return learning_rate(self.state.step - self.state.schedule_start, self.config.train, self.state.plateau_factor)

    def _not_finite(self, what: str, micro_batches: list[np.ndarray]) -> str:
        pairs = [int(p) for rows in micro_batches for p in self.split.pair_id[rows]]
        return (
            f"step {self.state.step}: the {what} is not finite. Pairs of this step: {pairs[:20]}"
            f"{' …' if len(pairs) > 20 else ''}. The last checkpoint is whole. Lower train.learning_rate, raise "
            "train.warmup_steps, or use train.precision: fp32."
        )

    # ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, figures: StepFigures, seconds: float) -> None:
        """Add a step to the sums of the window; a skipped one is an event, ten in a row are the end."""
        state = self.state
        state.tokens += figures.num_tokens
        if figures.is_skipped:
            state.skipped += 1
            state.skipped_in_a_row += 1
            rows = self.steps[state.step_in_epoch - 1] if self.steps else []
            pairs = [int(p) for r in rows for p in self.split.pair_id[r]]
            self.log.event({"event": "step skipped", "step": state.step, "why": "gradient is not finite", "pairs": pairs})
            self.log.say(f"step {state.step} skipped: the gradient is not finite ({state.skipped} skipped so far)")
            if state.skipped_in_a_row >= SKIPS_IN_A_ROW:
                raise NumericsError(
                    f"step {state.step}: {SKIPS_IN_A_ROW} steps in a row had a gradient that is not finite; nothing is "
                    "learned any more. The last checkpoint is whole; metrics.jsonl names the pairs. Lower "
                    "train.learning_rate or use train.precision: fp32."
                )
        else:
            state.skipped_in_a_row = 0
        sums = {
            "steps": 1, "tokens": figures.num_tokens, "padded": figures.num_padded, "seconds": seconds,
            "data_seconds": figures.data_seconds, "loss": figures.loss * figures.num_tokens,
            "nll": figures.nll * figures.num_tokens, "clipped": figures.is_clipped,
            "norm": figures.norm if not figures.is_skipped else 0.0,
            "norm_after": min(figures.norm, self.config.train.clip_norm or math.inf) if not figures.is_skipped else 0.0,
            "kept": not figures.is_skipped,
        }  # fmt: skip
        for key, value in sums.items():
            state.window[key] = state.window.get(key, 0.0) + float(value)
        for key in ("nll", "tokens", "seconds"):
            state.since_validation[key] = state.since_validation.get(key, 0.0) + float(sums[key])
        if state.first_nll is None:
            state.first_nll = figures.nll
        if distributed.is_main():
            self.log.advance(1, {"loss": figures.loss, "tokens/s": figures.num_tokens / seconds, "lr": self.learning_rate()})

    def _log_window(self) -> None:
        w, state = self.state.window, self.state
        if not w:
            return
        kept = max(1.0, w["kept"])
        values = {
            "nll": w["nll"] / w["tokens"], "loss": w["loss"] / w["tokens"], "perplexity": math.exp(min(700.0, w["nll"] / w["tokens"])),
            "learning_rate": self.learning_rate(), "gradient_norm/before_clipping": w["norm"] / kept,
            "gradient_norm/after_clipping": w["norm_after"] / kept, "clip_share": w["clipped"] / w["steps"],
            "tokens_per_second": w["tokens"] / w["seconds"], "padding_share": 1 - w["tokens"] / w["padded"],
            "data_wait_share": w["data_seconds"] / w["seconds"], "epoch": state.epoch, "tokens": state.tokens,
            "skipped_steps": state.skipped,
        }  # fmt: skip
        if distributed.is_main():
            for name, norm in self.gradients.norms_by_layer().items():
                values[f"gradient_norm_by_layer/{name}"] = norm
            self.log.scalars(state.step, values)
        state.window = {}

    # ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────

    def validate(self) -> None:
        """Evaluate on valid, decide on best and early stopping, save. Rank 0 decides; the others wait and hear."""
        state, t = self.state, self.config.train
        began = time.perf_counter()
        names = ["last"]
        error: XydError | None = None
        if distributed.is_main():
            report = self._evaluate(self.translator, bleu=self._bleu_is_due())
            state.history.append([state.step, self._train_nll(), report.nll])
            state.since_validation = {}
            score = getattr(report, t.metric)
            if score is not None and not math.isfinite(score):
                error = NumericsError(self._not_finite(f"{t.metric} on valid", []))
            elif score is not None:
                names += self._judge(score)
            if error is None:
                self._tell(report, "best" in names, time.perf_counter() - began)
        told, state_dict, error = distributed.from_main((names, dataclasses.asdict(state), error))
        if error is not None:
            raise error
        self.state = TrainState(**state_dict)
        self.state.seconds += time.perf_counter() - began
        self._save(told)

    def _evaluate(self, translator: Translator, bleu: bool = True) -> EvalReport:
        e = self.config.evaluate
        torch.set_num_threads(self.cores if self.config.train.threads is None else self.threads)
        try:
            return evaluate_split(
                translator, self.valid, beam_size=e.valid_beam_size or self.config.decode.beam_size,
                max_sentences=e.valid_sentences if bleu else 0, samples=e.samples if bleu else 0,
            )  # fmt: skip
        finally:
            torch.set_num_threads(self.threads)

    def _bleu_is_due(self) -> bool:
        every = self.config.evaluate.bleu_every
        return every > 0 and (len(self.state.history) + 1) % every == 0

    def _train_nll(self) -> float:
        since = self.state.since_validation
        return since["nll"] / since["tokens"] if since else math.nan

    def _is_better(self, score: float, than: float | None, gain: float = 0.0) -> bool:
        if than is None:
            return True
        return score < than - gain if self.config.train.metric == "nll" else score > than + gain

    def _judge(self, score: float) -> list[str]:
        """Names under which this step is worth keeping; counts validations without gain."""
        state, t = self.state, self.config.train
        names = []
        if self._is_better(score, state.best_score, t.min_gain):
            state.without_gain = state.plateau_count = 0
        else:
            state.without_gain += 1
            state.plateau_count += 1
            if t.schedule == "plateau" and state.plateau_count >= t.plateau_patience:
                state.plateau_factor *= t.plateau_factor
                state.plateau_count = 0
                self.log.say(f"plateau: learning rate lowered to {self.learning_rate():.3g}")
        if self._is_better(score, state.best_score):  # a gain below min_gain is still the best one kept
            state.best_score, state.best_step = score, state.step
            names.append("best")
        kept = self._snapshots()
        if len(kept) < t.keep_checkpoints or self._is_better(score, kept[-1][0]):
            names.append(f"step-{state.step:08d}")
        self.score = score
        return names

    def _snapshots(self) -> list[tuple[float, str]]:
        """(score, name) of the snapshots kept, best first."""
        found = []
        for folder in self.run.checkpoints_dir.glob("step-*"):
            index = checkpoint.index_of(folder)
            if index is not None and index.get("metric") == self.config.train.metric and index.get("score") is not None:
                found.append((float(index["score"]), folder.name))
        return sorted(found, reverse=self.config.train.metric != "nll")

    def _tell(self, report: EvalReport, is_best: bool, seconds: float) -> None:
        """One line to read, the points for TensorBoard, samples, and in words what should worry."""
        state, t = self.state, self.config.train
        values = {"nll": report.nll, "perplexity": report.perplexity, "seconds": seconds,
                  "time_share": seconds / (seconds + state.seconds - self._seconds_at_validation)}  # fmt: skip
        for name, d in report.directions.items():
            values[f"nll/{name}"] = d.nll
            for metric in ("bleu", "chrf"):
                if getattr(d, metric) is not None:
                    values[f"{metric}/{name}"] = getattr(d, metric)
        if report.bleu is not None and report.chrf is not None:
            values.update(bleu=report.bleu, chrf=report.chrf)
        self._seconds_at_validation = state.seconds + seconds
        self.log.scalars(state.step, values, side="valid")
        parts = [f"step {state.step}", f"epoch {state.epoch + 1}", f"train nll {state.history[-1][1]:.3f}",
                 f"valid nll {report.nll:.3f} (perplexity {report.perplexity:.2f})"]  # fmt: skip
        if report.bleu is not None:
            parts.append(f"BLEU {report.bleu:.2f} chrF {report.chrf:.2f}")
        left = f"{state.without_gain} of {t.patience} without gain" if t.patience else f"{state.without_gain} without gain"
        parts.append("best so far" if is_best else left)
        parts.append(f"{seconds:.0f} s")
        self.log.say(" · ".join(parts))
        samples = [s for d in report.directions.values() for s in d.samples]
        if samples:
            text = "\n\n".join(f"{s.source}\n  → {s.translation}\n  = {s.reference}" for s in samples)
            self.log.text("samples", state.step, text)
        for warning in self._worries():
            self.log.say(f"warning: {warning}")
            self.log.event({"event": "warning", "step": state.step, "text": warning})
        self.log.flush()

    _seconds_at_validation = 0.0
    score: float | None = None

    def _worries(self) -> list[str]:
        state, t = self.state, self.config.train
        worries = []
        last = state.history[-3:]
        if len(last) == 3 and last[0][1] > last[1][1] > last[2][1] and last[0][2] <= min(last[1][2], last[2][2]):
            worries.append(
                f"overfitting: since step {last[0][0]:.0f} the train NLL falls ({last[0][1]:.3f} → {last[2][1]:.3f}) and "
                f"the valid NLL does not ({last[0][2]:.3f} → {last[2][2]:.3f}). More data, more dropout or a smaller model."
            )
        past_warmup = [h for h in state.history if h[0] >= t.warmup_steps]
        if len(past_warmup) == 1 and state.first_nll is not None and last[-1][1] > 0.9 * state.first_nll:
            worries.append(
                f"the loss is not falling: train NLL {last[-1][1]:.3f} after the warm-up, {state.first_nll:.3f} at the first "
                "step. Is the learning rate too high, or are the sides not translations of each other?"
            )
        return worries

    # ── saving and ending ────────────────────────────────────────────────────────────────────────────────────────────

    def _save(self, names: list[str]) -> None:
        """Checkpoint under these names; surplus snapshots go. All ranks take part: each has a random state."""
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        states = distributed.gather(rng)
        error: XydError | None = None
        if distributed.is_main():
            facts = {
                "step": self.state.step, "vocab_size": self.tokenizer.vocab_size, "metric": self.config.train.metric,
                "score": self.score if len(names) > 1 else None, "xyd": version("xyd"),
            }  # fmt: skip
            state = {
                "train_state": dataclasses.asdict(self.state), "optimizer": self.optimizer.state_dict(), "rng": states,
            }  # fmt: skip
            try:
                checkpoint.save(self.run, names, self.model, facts, state)
                checkpoint.remove(self.run, [n for _, n in self._snapshots()[self.config.train.keep_checkpoints :]])
                self._write_run_json()
            except XydError as e:
                error = e
        error = distributed.from_main(error)
        if error is not None:
            raise error

    def _write_run_json(self) -> None:
        s = self.state
        facts = {
            "name": self.config.run.name, "seed": self.config.run.seed, "directions": self.directions,
            "rules_version": RULES_VERSION, "data_fingerprint": _manifest(self.run)["fingerprint"],
            "tokenizer_sha256": self.tokenizer.sha256, "step": s.step, "epoch": s.epoch, "tokens": s.tokens,
            "seconds": round(s.seconds, 1), "best_step": s.best_step, "best_score": s.best_score,
            "metric": self.config.train.metric, "device": str(self.device), "dtype": str(self.dtype).removeprefix("torch."),
            "workers": distributed.world_size(), "threads": self.threads,
            "versions": {
                "xyd": version("xyd"), "python": platform.python_version(), "torch": torch.__version__,
                **{name: version(name) for name in ("sentencepiece", "datasets", "numpy", "sacrebleu", "safetensors")},
            },
        }  # fmt: skip
        atomic_write(self.run.run_path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")

    def _interrupted(self, number: int) -> int:
        self.log.end_bar()
        self.log.say(
            f"interrupted: step {self.state.step} is saved in {self.run.checkpoints_dir / 'last'}; "
            "the same command goes on from there"
        )
        return 128 + number

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.signal and number == signal.SIGINT and not distributed.under_launcher():
            raise KeyboardInterrupt
        self.signal = number

    def _finish(self) -> None:
        """Average the best, choose what is better on valid, evaluate it once on test, write report.json."""
        t = self.config.train
        names = [name for _, name in self._snapshots()[: t.average]]
        candidates: dict[str, EvalReport] = {}
        checkpoint.load_weights(self.model, checkpoint.find(self.run, "best")[0])
        candidates["best"] = self._evaluate(self.translator)
        if len(names) > 1:
            checkpoint.average(self.run, names, self.model)
            candidates["averaged"] = self._evaluate(self.translator)
            facts = {"step": self.state.step, "vocab_size": self.tokenizer.vocab_size, "averaged": names}
            checkpoint.save(self.run, ["averaged"], self.model, facts)
        chosen = "best"
        if "averaged" in candidates and self._is_better(
            getattr(candidates["averaged"], t.metric), getattr(candidates["best"], t.metric)
        ):
            chosen = "averaged"
        self.log.say(f"\nvalid, {chosen} (" + ", ".join(
            f"{name}: {t.metric} {getattr(r, t.metric):.4f}" for name, r in candidates.items()) + f")\n{candidates[chosen].table()}"
        )  # fmt: skip
        report: dict[str, Any] = {
            "checkpoint": chosen, "step": self.state.step, "best_step": self.state.best_step, "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 1), "seed": self.config.run.seed,
            "valid": {name: r.as_dict() for name, r in candidates.items()}, "test": None,
        }  # fmt: skip
        if self.config.data.test is not None:
            checkpoint.load_weights(self.model, checkpoint.find(self.run, chosen)[0])
            torch.set_num_threads(self.cores if t.threads is None else self.threads)
            test = evaluate_split(self.translator, corpus.open_split(self.run, "test"), samples=self.config.evaluate.samples)
            report["test"] = test.as_dict()
            self.log.say(f"\ntest, {chosen}\n{test.table()}")
        atomic_write(self.run.report_path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        self.log.say(f"\nreport: {self.run.report_path}\ntranslate with: xyd translate {self.run.root}")

    def _say_before(self) -> None:
        """What this run is, before its first step."""
        counts = np.bincount(self.split.direction, minlength=len(self.directions))
        if not self.steps:
            self.steps = self._plan()
        if not distributed.is_main():
            return
        batch = make_batch(self.split, self.steps[0][0], self.start_ids)
        is_bf16 = self.dtype == torch.bfloat16
        self.log.say("pairs: " + ", ".join(f"{d} {n:,}" for d, n in zip(self.directions, counts, strict=True))
                     + f"; {len(self.steps):,} steps an epoch")  # fmt: skip
        self.log.say(plan.describe(self.config, self.model, batch, is_bf16, free_bytes(self.run.root)))
        self.log.say(
            f"device {self.device}, {'bf16 with fp32 masters' if is_bf16 else 'fp32'}, {distributed.world_size()} "
            f"worker(s) of {self.threads} thread(s), seed {self.config.run.seed}"
        )
        if self.resumed:
            self.log.say(self.resumed)
        flat = {f"{section}.{key}": value for section, values in self.config.model_dump(mode="json").items()
                if section in ("model", "train", "tokenizer") for key, value in values.items()}  # fmt: skip
        self.log.hparams(flat)
