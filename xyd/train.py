"""The training loop, from a prepared run directory to a finished one.

`train` starts the workers; `Trainer.fit` is the loop, `Trainer.train_step` one update. All ranks compute, in training
and in validation; rank 0 decides (best, stop, save), everyone hears it, everyone acts.
"""

import dataclasses
import math
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xyd import checkpoint, corpus, distributed, plan
from xyd.batching import Split, extremes, make_batch, plan_epoch, shape, start_ids
from xyd.config import Config, changes_steps
from xyd.errors import DataError, NumericsError, XydError
from xyd.evaluate import EvalReport, evaluate_split
from xyd.files import Lock, RunDir, free_bytes
from xyd.finish import finish
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer, learning_rate
from xyd.progress import StepFigures, TrainState, is_better
from xyd.resume import make_ready, manifest, run_dir, write_run_json
from xyd.runlog import RunLog
from xyd.sampling import shares
from xyd.search import with_kept_workers
from xyd.step import StepGradient, Sums
from xyd.subwords import SampledSplit
from xyd.tokenizer import Tokenizer
from xyd.translate import Translator
from xyd.workers import choose_search_workers, choose_workers

SKIPS_IN_A_ROW = 10  # steps with a non-finite gradient, one after the other, that stop the run


def train(config: Config, *, fresh: bool = False, reset_schedule: bool = False, strict: bool = False) -> int:
    """Train as `config` says, from the start or from where the run directory stands. Returns the exit code.

    `strict`: refuse corpora that overlap with the user's own valid and test files.
    """
    lock = Lock(run_dir(config))

    def ready() -> bool:
        lock.acquire()
        return make_ready(config, fresh, reset_schedule, _say, strict)

    try:
        if distributed.under_launcher():  # torchrun: rank 0 prepares while the others wait
            return _work(config, ready, reset_schedule)
        device = distributed.choose_device(config.train.device)
        if not ready():
            return 0
        workers = choose_workers(config, run_dir(config), device, _say)
        choose_search_workers(config, run_dir(config), device, _say)
        if workers > 1:
            return distributed.launch(_work, workers, (config, None, reset_schedule))
        return _work(config, None, reset_schedule)
    finally:
        lock.release()


def _work(config: Config, ready: Any, reset_schedule: bool) -> int:
    """What each worker does. Errors of the user's that all workers meet are told once."""
    device = distributed.choose_device(config.train.device)
    distributed.start(device)
    try:
        if ready is not None and not distributed.on_main(ready):
            return 0
        return Trainer(config, device, reset_schedule).fit()
    except XydError as e:
        if not distributed.under_launcher():
            raise
        if distributed.is_main():
            print(f"xyd: {e}", file=sys.stderr, flush=True)
        return e.exit_code
    finally:
        distributed.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Trainer:
    """Trains one prepared run. Everything is made in `__init__`; `fit` is the loop."""

    def __init__(self, config: Config, device: torch.device | None = None, reset_schedule: bool = False) -> None:
        self.config, self.run = config, run_dir(config)
        self.device = device or distributed.choose_device(config.train.device)
        self.dtype = distributed.choose_dtype(config.train.precision, self.device)
        self.threads = distributed.num_threads(config.train.threads, distributed.world_size())
        torch.set_num_threads(self.threads)

        self.directions: list[str] = manifest(self.run)["directions"]
        self.tokenizer = Tokenizer.load(self.run.tokenizer_path)
        stored, self.valid = corpus.open_split(self.run, "train"), corpus.open_split(self.run, "valid")
        self.mixture = corpus.mixture(config, self.run, stored)
        self.split: Split = stored
        self.sampled: SampledSplit | None = None
        if config.train.subword_sampling is not None:
            self.sampled = SampledSplit(
                self.split,
                self.tokenizer,
                config.train.subword_sampling,
                max_ids=config.model.max_length - 1,
                seed=config.run.seed,
            )
            self.split = self.sampled
        self.start_ids = start_ids(self.tokenizer, self.directions)

        torch.manual_seed(config.run.seed)  # the same first weights on every rank
        self.model = Transformer(config.model, self.tokenizer.vocab_size).to(self.device)
        self.state = TrainState()
        self.origin = self._load(reset_schedule)
        self.log = RunLog(self.run, enabled=distributed.is_main(), resume_step=self.state.step)
        searching = config.model_copy(update={"decode": with_kept_workers(config.decode, self.run)})
        self.translator = Translator(self.model, self.tokenizer, searching, self.directions, self.device)
        self.steps = self._plan_epoch()
        self.gradient = StepGradient(
            self.gradients, self.split, self.start_ids, config.train.label_smoothing, config.run.seed
        )
        self.signal, self.is_over = 0, False
        self.planning_seconds, self.lap_began = 0.0, time.perf_counter()

    def _load(self, reset_schedule: bool) -> str:
        """Weights, optimiser and state from the newest whole checkpoint or `train.init_from`; says which, in words."""
        found = checkpoint.newest(self.run)
        saved: dict[str, Any] | None = None
        origin = "weights: new"
        if found is not None:
            folder, index, passed_over = found
            checkpoint.check_tokenizer(self.run, folder, index)
            checkpoint.load_weights(self.model, folder)
            saved = checkpoint.load_state(folder, self.device)
            self.state = TrainState(**saved["train_state"])
            if index["metric"] != self.config.train.metric:  # scores of two metrics do not compare
                self.state.best_score, self.state.without_gain = None, 0
            origin = f"going on from checkpoint {folder.name}, step {index['step']}"
            if passed_over:
                origin += f" (passed over, damaged: {', '.join(passed_over)})"
        elif self.config.train.init_from is not None:
            source = RunDir(Path(self.config.train.init_from))
            folder, index = checkpoint.find(source, checkpoint.default_name(source))
            checkpoint.check_tokenizer(source, folder, index)
            checkpoint.load_weights(self.model, folder)
            origin = f"weights: from {source.root} ({folder.name}, step {index['step']}); the schedule is new"
        self.gradients = Gradients(self.model, self.dtype)
        self.optimizer = build_optimizer(self.model, self.config.train)
        if saved is not None and reset_schedule:
            before = checkpoint.saved_config(self.run)
            has_same_steps = not changes_steps(before, self.config)
            self.state.restart_schedule(has_same_steps)
            return f"{origin}; schedule and optimiser start anew" + ("" if has_same_steps else ", and so does an epoch")
        if saved is not None:
            self.optimizer.load_state_dict(saved["optimizer"])
        return origin

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fit(self) -> int:
        """Train until a limit, early stopping or a signal; then choose, evaluate and report. Returns the exit code."""
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self.log:
                self._say_before()
                self._rehearse()
                self.log.bar(self.config.train.max_steps, self.state.step)
                self._lap()
                while (reason := self.state.finished(self.config)) is None:
                    stop_signal = self._one_step()
                    if stop_signal:
                        return self._interrupted(stop_signal)
                self.log.end_bar()
                self.log.say(f"training is over: {reason}; {self.state.time_spent()}")
                self.is_over = True
                if self.signal:  # since the last step; from here on a signal ends it at once
                    return 128 + self.signal
                self._finish()
            return 0
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _one_step(self) -> int:
        """One step and all that is due after it: log, validate, save. Returns the stop signal, 0 for none."""
        t, state = self.config.train, self.state
        micro_batches = self._next_micro_batches()
        figures = self.train_step(micro_batches)
        state.add(figures)
        if figures.is_skipped:
            self._note_skip(micro_batches)
        self.log.advance(
            1,
            {
                "loss": figures.loss_sum / figures.num_tokens,
                "tokens/s": figures.num_tokens / figures.seconds,
                "lr": self.learning_rate(),
            },
        )
        is_due = state.step % t.validate_every == 0 or state.finished(self.config) is not None
        if state.step % t.log_every == 0 or is_due:
            self._log_window(figures)
        if is_due:
            self.validate()
        elif figures.stop_signal or (t.save_every and state.step % t.save_every == 0):
            self._save(["last"])
        return figures.stop_signal

    def _lap(self) -> float:
        """Seconds since the last call. Only rank 0's are counted, and every rank hears them."""
        now = time.perf_counter()
        seconds, self.lap_began = now - self.lap_began, now
        return seconds

    def _next_micro_batches(self) -> list[np.ndarray]:
        """Rows of the next step's micro-batches; moves the position in the epoch."""
        state, began = self.state, time.perf_counter()
        micro_batches = self.steps[state.step_in_epoch]
        if self.sampled is not None:
            self.sampled.draw(state.epoch, np.concatenate(micro_batches))
        state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
        if state.step_in_epoch == len(self.steps):
            state.epoch, state.step_in_epoch = state.epoch + 1, 0
            self.steps = self._plan_epoch()
        self.planning_seconds = time.perf_counter() - began
        return micro_batches

    def _plan_epoch(self) -> list[list[np.ndarray]]:
        src_lengths, tgt_lengths = self.split.src_lengths, self.split.tgt_lengths
        tokens_per_step = self.config.train.tokens_per_step
        if self.sampled is not None:
            src_lengths, tgt_lengths = self.sampled.longest_src, self.sampled.longest_tgt
            tokens_per_step = round(tokens_per_step * self.sampled.slack)
        steps = plan_epoch(
            src_lengths,
            tgt_lengths,
            self.mixture.rows(self.state.epoch),
            max_tokens=self.config.train.max_tokens,
            tokens_per_step=tokens_per_step,
            seed=self.config.run.seed,
            epoch=self.state.epoch,
        )
        num_rows = sum(len(rows) for step in steps for rows in step)
        told = self.mixture.num_seen
        assert num_rows == told, f"the steps of epoch {self.state.epoch + 1} hold {num_rows} rows, not the {told} told"
        return steps

    def train_step(self, micro_batches: list[np.ndarray]) -> StepFigures:
        """One update: teacher forcing on every micro-batch of the step, each rank on its share of them.

        The loss is a sum divided once, by the real target tokens of all micro-batches on all ranks. A non-finite
        gradient skips the update; a non-finite loss raises NumericsError.
        """
        g, t, failure = self.gradients, self.config.train, None
        try:
            self.gradient.compute(micro_batches, self.state.step)
        except XydError as e:  # a single pair is too large for this rank; the others must not wait for it
            failure = e
        self._add_sums(failure is not None)
        distributed.sum_in_place(g.buffer)  # gradients and sums in one exchange
        sums = Sums(*g.extras.tolist())
        if sums.halved or sums.failed:
            self._note_halving(distributed.gather((self.gradient.halved, failure)))
        if not math.isfinite(sums.loss):
            raise NumericsError(self._not_finite("loss", micro_batches))
        norm, clip_norm = float(g.norm()), t.clip_norm or math.inf
        if math.isfinite(norm):
            g.clip(norm, clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()
            self.optimizer.step()
            g.refresh()
        return StepFigures(
            loss_sum=sums.loss,
            nll_sum=sums.nll,
            num_tokens=self.gradient.num_tokens(micro_batches),
            num_padded=int(sums.num_padded),
            norm=norm,
            clip_norm=clip_norm,
            seconds=sums.seconds,
            data_seconds=sums.data_seconds / distributed.world_size(),
            num_sampled=self.sampled.num_drawn if self.sampled else 0,
            num_stored=self.sampled.num_stored if self.sampled else 0,
            stop_signal=int(signal.SIGINT if sums.interrupted else signal.SIGTERM if sums.terminated else 0),
        )

    def _add_sums(self, has_failed: bool) -> None:
        """What this rank knows beside the gradient of a step, for the exchange."""
        own = Sums(
            data_seconds=self.gradient.data_seconds + self.planning_seconds,
            halved=len(self.gradient.halved),
            failed=has_failed,
            seconds=self._lap() if distributed.is_main() else 0.0,
            interrupted=self.signal == signal.SIGINT,
            terminated=self.signal == signal.SIGTERM,
        )
        self.gradients.extras += torch.tensor(own, device=self.device)

    def learning_rate(self) -> float:
        """The rate of the current step."""
        state = self.state
        return learning_rate(state.step, self.config.train, state.plateau_factor, state.schedule_start)

    # ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────

    def validate(self) -> None:
        """Evaluate on valid, each rank its share; rank 0 decides on best and early stopping; save."""
        every = self.config.evaluate.bleu_every
        report = self._evaluate_valid(every > 0 and (len(self.state.history) + 1) % every == 0)
        names, state = distributed.on_main(lambda: self._judge(report))
        self.state = TrainState(**state)
        self._save(names)

    def _judge(self, report: EvalReport) -> tuple[list[str], dict[str, Any]]:
        """On rank 0: the names to save this step under, and the new state."""
        state, t = self.state, self.config.train
        since, seconds = state.since_validation, self._lap()
        state.note_validation(report.nll, seconds)
        names, is_best = ["last"], False
        score = getattr(report, t.metric)
        if not any(d.num_tokens for d in report.directions.values()):
            raise DataError(
                f"valid: every line is blank or over model.max_length = {self.config.model.max_length} tokens"
            )
        if score is not None and not math.isfinite(score):
            raise NumericsError(self._not_finite(f"{t.metric} on valid", []))
        if score is not None:
            rate = self.learning_rate()
            is_best = state.judge(score, t)
            names += ["best"] if is_best else []
            kept = self._snapshots()
            if len(kept) < t.keep_checkpoints or is_better(score, kept[-1][0], t):
                names.append(f"step-{state.step:08d}")
            if self.learning_rate() < rate:
                self.log.say(f"no gain for a while: learning rate {rate:.3g} → {self.learning_rate():.3g}")
        self._tell(report, is_best, seconds, since)
        return names, dataclasses.asdict(state)

    def _evaluate_valid(self, with_bleu: bool) -> EvalReport:
        e = self.config.evaluate
        return evaluate_split(
            self.translator,
            self.valid,
            beam_size=e.valid_beam_size or self.config.decode.beam_size,
            max_sentences=e.valid_sentences if with_bleu else 0,
            samples=e.samples if with_bleu else 0,
        )

    def _snapshots(self) -> list[tuple[float, str]]:
        """(score, name) of the snapshots kept, best first."""
        t = self.config.train
        return checkpoint.snapshots(self.run, t.metric, lowest_first=t.metric == "nll")

    # ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _say_before(self) -> None:
        """What this run is, before its first step."""
        if not distributed.is_main():
            return
        names = [entry["name"] for entry in manifest(self.run)["corpora"]]
        batch = make_batch(self.split, self.steps[0][0], self.start_ids)
        is_bf16 = self.dtype == torch.bfloat16
        self.log.say(f"an epoch of {len(self.steps):,} steps:")
        self.log.say("\n".join(self.mixture.table(self.directions, names)))
        if self.sampled is not None:
            self.log.say(self.sampled.describe())
        shapes = [shape(self.split, rows) for rows in extremes(self.split, self.steps)]
        is_on_gpu = self.device.type == "cuda"
        free = free_bytes(self.run.root)
        self.log.say(plan.describe(self.config, self.model, batch, shapes, is_bf16, free, is_on_gpu))
        precision = "bf16 with fp32 master weights" if is_bf16 else "fp32"
        self.log.say(
            f"device {self.device}, {precision}, {distributed.world_size()} worker(s) of {self.threads} thread(s), "
            f"seed {self.config.run.seed}\n{self.origin}"
        )
        told = {
            f"{section}.{key}": value
            for section, values in self.config.model_dump(mode="json").items()
            if section in ("tokenizer", "model", "train")
            for key, value in values.items()
        }
        self.log.hparams(told)

    def _rehearse(self) -> None:
        """Step 0: the largest micro-batches on every rank, so that too little memory is found now and not in hours."""
        found = distributed.on_all(lambda: (*self.gradient.rehearse(self.steps), self.gradient.halved))
        usages, shapes, halved = zip(*found, strict=True)
        self.log.say(plan.measured(shapes[0], usages, self.device.type == "cuda"))
        if any(halved):
            self._note_halving([(names, None) for names in halved])

    def _note_halving(self, found: list[tuple[list[str], XydError | None]]) -> None:
        """What did not fit into memory on some rank is said and logged; a single pair that did not ends the run.

        `found`: of every rank, the micro-batches that it halved, and its error.
        """
        step = self.state.step
        if halved := [name for names, _ in found for name in names]:
            self.state.halved += len(halved)
            self.log.event({"event": "micro-batch halved", "step": step, "why": "out of memory", "shapes": halved})
            self.log.say(
                f"step {step}: too little memory for {', '.join(halved)}: computed in halves, as what is as large will "
                f"be from now on ({self.state.halved} so far). A lower train.max_tokens would save the time this takes."
            )
        for _, error in found:
            if error is not None:
                raise error

    def _log_window(self, last: StepFigures) -> None:
        values = {**self.state.take_window(), "learning_rate": self.learning_rate()}
        since = self.steps[: self.state.step_in_epoch][-self.config.train.log_every :]
        values.update(shares(self.split, self.directions, since))
        if distributed.is_main() and not last.is_skipped:
            unclipped = max(1.0, last.norm / last.clip_norm)  # the norms are of the last step, before clipping
            by_layer = self.gradients.norms_by_layer()
            values.update({f"gradient_norm_by_layer/{name}": norm * unclipped for name, norm in by_layer.items()})
        self.log.scalars(self.state.step, values)

    def _tell(self, report: EvalReport, is_best: bool, seconds: float, since: dict[str, float]) -> None:
        """One line for a person, the points for TensorBoard, samples, and in words what should worry.

        `seconds`: of this validation; `since`: sums of the steps since the one before.
        """
        state, t = self.state, self.config.train
        train_seconds = since.get("seconds", 0.0)
        time_share = seconds / (seconds + train_seconds)
        data_share = since["data_seconds"] / train_seconds if train_seconds else 0.0
        self.log.scalars(state.step, {**report.scalars(), "seconds": seconds, "time_share": time_share}, side="valid")
        bleu = "" if report.bleu is None else f" · BLEU {report.bleu:.2f} chrF {report.chrf:.2f}"
        patience = f"{state.without_gain} of {t.patience}" if t.patience else f"{state.without_gain}"
        gain = "best so far" if is_best else f"{patience} without gain"
        self.log.say(
            f"step {state.step} · epoch {state.epoch + 1} · train nll {state.history[-1][1]:.3f} · "
            f"valid nll {report.nll:.3f} (perplexity {report.perplexity:.2f}){bleu} · {gain} · "
            f"{seconds:.0f} s ({time_share:.0%} of the time) · data {data_share:.1%}"
        )
        if samples := report.samples_text():
            self.log.text("samples", state.step, samples)
        for warning in state.worries(t):
            self.log.say(f"warning: {warning}")
            self.log.event({"event": "warning", "step": state.step, "text": warning})
        self.log.flush()

    def _note_skip(self, micro_batches: list[np.ndarray]) -> None:
        """A skipped step is an event with its pairs; ten in a row are the end of the run."""
        state = self.state
        pairs = [int(p) for rows in micro_batches for p in self.split.pair_id[rows]]
        self.log.event({"event": "step skipped", "step": state.step, "why": "non-finite gradient", "pair_ids": pairs})
        self.log.say(f"step {state.step} skipped: the gradient is not finite ({state.skipped} skipped so far)")
        if state.skipped_in_a_row >= SKIPS_IN_A_ROW:
            raise NumericsError(
                f"step {state.step}: {SKIPS_IN_A_ROW} steps in a row had a gradient that is not finite: nothing is "
                f"learned any more. {self.run.metrics_path} names their pairs. The last checkpoint is whole. Lower "
                "train.learning_rate, or use train.precision: fp32."
            )

    def _not_finite(self, what: str, micro_batches: list[np.ndarray]) -> str:
        pairs = [int(p) for rows in micro_batches for p in self.split.pair_id[rows]]
        self.log.event({"event": f"non-finite {what}", "step": self.state.step, "pair_ids": pairs})
        named = (
            f" Pairs of this step: {', '.join(map(str, pairs[:20]))}{' …' if len(pairs) > 20 else ''}." if pairs else ""
        )
        return (
            f"step {self.state.step}: the {what} is not finite.{named} What was saved before is whole. Lower "
            "train.learning_rate, raise train.warmup_steps, or use train.precision: fp32."
        )

    # ── saving and ending ────────────────────────────────────────────────────────────────────────────────────────────

    def _save(self, names: list[str]) -> None:
        """A checkpoint under these names; surplus snapshots go."""
        self.state.seconds += distributed.on_main(lambda: self._write(names))

    def _write(self, names: list[str]) -> float:
        """On rank 0. Returns the seconds it took."""
        t = self.config.train
        facts: dict[str, Any] = {"metric": t.metric, "score": self.state.last_score}
        state = {"train_state": dataclasses.asdict(self.state), "optimizer": self.optimizer.state_dict()}
        checkpoint.save(self.run, names, self.model, self.state.step, facts, state)
        checkpoint.keep_snapshots(self.run, [name for _, name in self._snapshots()[: t.keep_checkpoints]])
        facts = {
            "directions": self.directions,
            "tokenizer_sha256": self.tokenizer.sha256,
            "device": str(self.device),
            "precision": str(self.dtype).removeprefix("torch."),
            "workers": distributed.world_size(),
            "threads": self.threads,
            "cores": distributed.num_cores(),
        }
        write_run_json(self.config, self.state, facts)
        return self._lap()

    def _interrupted(self, number: int) -> int:
        self.log.end_bar()
        self.log.say(
            f"interrupted: step {self.state.step} is saved in {self.run.checkpoints_dir / 'last'}; "
            "the same command goes on from there"
        )
        return 128 + number

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.signal == number == signal.SIGINT and not distributed.under_launcher():
            raise KeyboardInterrupt  # the second Ctrl-C does not wait for the end of the step
        if self.is_over:  # all is saved: the last evaluation need not be waited for
            raise SystemExit(128 + number)
        self.signal = number

    def _finish(self) -> None:
        finish(self.run, self.translator, self.state, self.log, lambda: self._evaluate_valid(with_bleu=True))
