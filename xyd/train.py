"""The training loop, from a prepared run directory to a finished one.

`train` starts the workers; `Trainer.fit` is the loop, `Trainer.train_step` one update. Rank 0 decides (best, stop,
save), everyone hears it, everyone acts.
"""

import dataclasses
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xyd import checkpoint, corpus, distributed, plan
from xyd.batching import make_batch, plan_epoch, share, start_ids
from xyd.config import Config
from xyd.errors import DataError, NumericsError, XydError
from xyd.evaluate import EvalReport, evaluate_split
from xyd.files import Lock, RunDir, atomic_write, free_bytes
from xyd.loss import token_loss
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer, learning_rate
from xyd.progress import StepFigures, TrainState, is_better
from xyd.resume import make_ready, manifest, run_dir, write_run_json
from xyd.runlog import RunLog
from xyd.tokenizer import Tokenizer
from xyd.translate import Translator

SKIPS_IN_A_ROW = 10  # steps with a non-finite gradient, one after the other, that stop the run


def train(config: Config, *, fresh: bool = False, reset_schedule: bool = False) -> int:
    """Train as `config` says, from the start or from where the run directory stands. Returns the exit code."""
    lock = Lock(run_dir(config))

    def ready() -> bool:
        lock.acquire()
        return make_ready(config, fresh, reset_schedule, _say)

    try:
        if distributed.under_launcher():  # torchrun: rank 0 prepares while the others wait
            return _work(config, ready, reset_schedule)
        workers = distributed.usable_workers(config.train.workers, distributed.choose_device(config.train.device))
        if not ready():
            return 0
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
        wanted = config.train.threads or distributed.num_cores() // distributed.world_size()
        self.threads = max(1, min(wanted, distributed.num_cores()))  # more threads than cores only wait for each other
        torch.set_num_threads(self.threads)

        self.directions: list[str] = manifest(self.run)["directions"]
        self.tokenizer = Tokenizer.load(self.run.tokenizer_path)
        self.split, self.valid = corpus.open_split(self.run, "train"), corpus.open_split(self.run, "valid")
        self.start_ids = start_ids(self.tokenizer, self.directions)

        torch.manual_seed(config.run.seed)  # the same first weights on every rank …
        self.model = Transformer(config.model, self.tokenizer.vocab_size).to(self.device)
        torch.manual_seed((config.run.seed * 1009 + distributed.rank()) % 2**63)  # … but dropout of its own
        self.state = TrainState()
        self.origin = self._load(reset_schedule)
        self.log = RunLog(self.run, enabled=distributed.is_main(), resume_step=self.state.step)
        self.translator = Translator(self.model, self.tokenizer, config, self.directions, self.device)
        self.steps = self._plan_epoch()
        self.signal, self.is_over = 0, False

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
            before, t = checkpoint.saved_config(self.run).train, self.config.train
            has_same_steps = (before.max_tokens, before.tokens_per_step) == (t.max_tokens, t.tokens_per_step)
            self.state.restart_schedule(has_same_steps)
            return f"{origin}; schedule and optimiser start anew" + ("" if has_same_steps else ", and so does an epoch")
        if saved is not None:
            self.optimizer.load_state_dict(saved["optimizer"])
            if distributed.world_size() != len(saved["rng"]):
                return f"{origin}; {distributed.world_size()} worker(s) instead of {len(saved['rng'])}: other dropout"
            rng = saved["rng"][distributed.rank()]
            torch.set_rng_state(rng["cpu"].cpu())
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(rng["cuda"].cpu(), self.device)
        return origin

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fit(self) -> int:
        """Train until a limit, early stopping or a signal; then choose, evaluate and report. Returns the exit code."""
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self.log:
                self._say_before()
                self.log.bar(self.config.train.max_steps, self.state.step)
                reason = self._finished()
                while reason is None:
                    stop_signal = self._one_step()
                    if stop_signal:
                        return self._interrupted(stop_signal)
                    reason = self._finished()
                self.log.end_bar()
                self.log.say(f"training is over: {reason}")
                self.is_over = True
                distributed.on_main(self._finish)
            return 0
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _one_step(self) -> int:
        """One step and all that is due after it: log, validate, save. Returns the stop signal, 0 for none."""
        t, state = self.config.train, self.state
        began = time.perf_counter()
        micro_batches = self._next_micro_batches()
        figures = self.train_step(micro_batches)
        seconds = time.perf_counter() - began
        state.add(figures, seconds)
        if figures.is_skipped:
            self._note_skip(micro_batches)
        self.log.advance(
            1,
            {
                "loss": figures.loss_sum / figures.num_tokens,
                "tokens/s": figures.num_tokens / seconds,
                "lr": self.learning_rate(),
            },
        )
        is_due = state.step % t.validate_every == 0 or self._finished() is not None
        if state.step % t.log_every == 0 or is_due:
            self._log_window(figures)
        if is_due:
            self.validate()
        elif figures.stop_signal or (t.save_every and state.step % t.save_every == 0):
            self._save(["last"])
        return figures.stop_signal

    def _finished(self) -> str | None:
        """Why training is over; every rank goes by rank 0's clock."""
        reason = self.state.finished(self.config)
        return reason if self.config.train.max_minutes is None else distributed.from_main(reason)

    def _next_micro_batches(self) -> list[np.ndarray]:
        """Rows of the next step's micro-batches; moves the position in the epoch."""
        state = self.state
        micro_batches = self.steps[state.step_in_epoch]
        state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
        if state.step_in_epoch == len(self.steps):
            state.epoch, state.step_in_epoch = state.epoch + 1, 0
            self.steps = self._plan_epoch()
        return micro_batches

    def _plan_epoch(self) -> list[list[np.ndarray]]:
        return plan_epoch(
            self.split.src_lengths,
            self.split.tgt_lengths,
            max_tokens=self.config.train.max_tokens,
            tokens_per_step=self.config.train.tokens_per_step,
            seed=self.config.run.seed,
            epoch=self.state.epoch,
        )

    def train_step(self, micro_batches: list[np.ndarray]) -> StepFigures:
        """One update: teacher forcing on every micro-batch of the step, each rank on its share of them.

        The loss is a sum divided once, by the real target tokens of all micro-batches on all ranks. A non-finite
        gradient skips the update; a non-finite loss raises NumericsError.
        """
        g, t = self.gradients, self.config.train
        src_lengths, tgt_lengths = self.split.src_lengths, self.split.tgt_lengths
        num_tokens = sum(int(tgt_lengths[rows].sum()) + len(rows) for rows in micro_batches)
        costs = [len(rows) * int(src_lengths[rows].max() + tgt_lengths[rows].max() + 2) for rows in micro_batches]
        data_seconds = 0.0
        g.zero()
        g.work.train()
        for i in share(costs, distributed.world_size())[distributed.rank()]:
            began = time.perf_counter()
            batch = make_batch(self.split, micro_batches[i], self.start_ids).to(self.device)
            data_seconds += time.perf_counter() - began
            states = g.work(batch.src, batch.src_mask, batch.tgt_in)
            loss = token_loss(states, batch.tgt_out, g.work.output, t.label_smoothing)
            (loss.loss_sum / num_tokens).backward()
            g.collect()
            g.extras[:3] += torch.stack(
                [loss.loss_sum.detach(), loss.nll_sum, loss.nll_sum.new_tensor(batch.tgt_out.numel())]
            )
        g.extras[3] = self.signal == signal.SIGINT
        g.extras[4] = self.signal == signal.SIGTERM
        distributed.sum_in_place(g.buffer)  # gradients and figures in one exchange
        loss_sum, nll_sum, num_padded, is_interrupted, is_terminated = g.extras[:5].tolist()
        if not math.isfinite(loss_sum):
            raise NumericsError(self._not_finite("loss", micro_batches))
        norm, clip_norm = float(g.norm()), t.clip_norm or math.inf
        if math.isfinite(norm):
            g.clip(norm, clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()
            self.optimizer.step()
            g.refresh()
        stop_signal = int(signal.SIGINT if is_interrupted else signal.SIGTERM if is_terminated else 0)
        return StepFigures(loss_sum, nll_sum, num_tokens, int(num_padded), norm, clip_norm, data_seconds, stop_signal)

    def learning_rate(self) -> float:
        """The rate of the current step."""
        state = self.state
        return learning_rate(state.step, self.config.train, state.plateau_factor, state.schedule_start)

    # ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────

    def validate(self) -> None:
        """Evaluate on valid, decide on best and early stopping, save. Rank 0 decides, the others wait and hear."""
        began = time.perf_counter()
        names, state = distributed.on_main(self._validate)
        self.state = TrainState(**state)
        self.state.seconds += time.perf_counter() - began
        self._save(names)

    def _validate(self) -> tuple[list[str], dict[str, Any]]:
        """On rank 0: the names to save this step under, and the new state."""
        state, t = self.state, self.config.train
        every = self.config.evaluate.bleu_every
        began = time.perf_counter()
        train_seconds = state.since_validation.get("seconds", 0.0)
        report = self._evaluate_valid(every > 0 and (len(state.history) + 1) % every == 0)
        state.note_validation(report.nll)
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
        self._tell(report, is_best, time.perf_counter() - began, train_seconds)
        return names, dataclasses.asdict(state)

    def _evaluate_valid(self, with_bleu: bool) -> EvalReport:
        e = self.config.evaluate
        with distributed.all_threads(self.config.train.threads):
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
        counts = np.bincount(self.split.direction, minlength=len(self.directions))
        pairs = ", ".join(f"{d} {n:,}" for d, n in zip(self.directions, counts, strict=True))
        batch = make_batch(self.split, self.steps[0][0], self.start_ids)
        is_bf16 = self.dtype == torch.bfloat16
        self.log.say(f"pairs: {pairs}; {len(self.steps):,} steps an epoch")
        self.log.say(plan.describe(self.config, self.model, batch, is_bf16, free_bytes(self.run.root)))
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

    def _log_window(self, last: StepFigures) -> None:
        values = {**self.state.take_window(), "learning_rate": self.learning_rate()}
        if distributed.is_main() and not last.is_skipped:
            unclipped = max(1.0, last.norm / last.clip_norm)  # the norms are of the last step, before clipping
            by_layer = self.gradients.norms_by_layer()
            values.update({f"gradient_norm_by_layer/{name}": norm * unclipped for name, norm in by_layer.items()})
        self.log.scalars(self.state.step, values)

    def _tell(self, report: EvalReport, is_best: bool, seconds: float, train_seconds: float) -> None:
        """One line for a person, the points for TensorBoard, samples, and in words what should worry."""
        state, t = self.state, self.config.train
        time_share = seconds / (seconds + train_seconds)
        self.log.scalars(state.step, {**report.scalars(), "seconds": seconds, "time_share": time_share}, side="valid")
        bleu = "" if report.bleu is None else f" · BLEU {report.bleu:.2f} chrF {report.chrf:.2f}"
        patience = f"{state.without_gain} of {t.patience}" if t.patience else f"{state.without_gain}"
        gain = "best so far" if is_best else f"{patience} without gain"
        self.log.say(
            f"step {state.step} · epoch {state.epoch + 1} · train nll {state.history[-1][1]:.3f} · "
            f"valid nll {report.nll:.3f} (perplexity {report.perplexity:.2f}){bleu} · {gain} · "
            f"{seconds:.0f} s ({time_share:.0%} of the time)"
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
        """A checkpoint under these names; surplus snapshots go. Every rank gives its random state."""
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        states = distributed.gather(rng)
        distributed.on_main(lambda: self._write(names, states))

    def _write(self, names: list[str], rng: list[dict[str, torch.Tensor]]) -> None:
        t = self.config.train
        facts: dict[str, Any] = {"metric": t.metric, "score": self.state.last_score}
        state = {
            "train_state": dataclasses.asdict(self.state),
            "optimizer": self.optimizer.state_dict(),
            "rng": rng,
        }
        checkpoint.save(self.run, names, self.model, self.state.step, facts, state)
        checkpoint.keep_snapshots(self.run, [name for _, name in self._snapshots()[: t.keep_checkpoints]])
        facts = {
            "directions": self.directions,
            "tokenizer_sha256": self.tokenizer.sha256,
            "device": str(self.device),
            "precision": str(self.dtype).removeprefix("torch."),
            "workers": distributed.world_size(),
            "threads": self.threads,
        }
        write_run_json(self.config, self.state, facts)

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
        """On rank 0: average the best, choose what is better on valid, evaluate it once on test, write report.json."""
        t = self.config.train
        snapshots = [name for _, name in self._snapshots()[: t.average]]
        averaged = [name for name in snapshots if checkpoint.index_of(self.run.checkpoints_dir / name) is not None]
        checkpoint.load_weights(self.model, checkpoint.find(self.run, "best")[0])
        candidates = {"best": self._evaluate_valid(with_bleu=True)}
        if len(averaged) > 1:
            checkpoint.average(self.run, averaged, self.model)
            candidates["averaged"] = self._evaluate_valid(with_bleu=True)
            checkpoint.save(self.run, ["averaged"], self.model, self.state.step, {"average_of": averaged})
        scores = {name: getattr(report, t.metric) for name, report in candidates.items()}
        chosen = "averaged" if "averaged" in scores and is_better(scores["averaged"], scores["best"], t) else "best"
        told = ", ".join(f"{name} {t.metric} {score:.4f}" for name, score in scores.items())
        self.log.say(f"\nvalid, checkpoint {chosen} ({told})\n{candidates[chosen].table()}")
        report: dict[str, Any] = {
            "checkpoint": chosen,
            "step": self.state.step,
            "best_step": self.state.best_step,
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 1),
            "seed": self.config.run.seed,
            "valid": {name: r.as_dict() for name, r in candidates.items()},
            "test": None,
        }
        if self.config.data.test is not None:
            checkpoint.load_weights(self.model, checkpoint.find(self.run, chosen)[0])
            with distributed.all_threads(t.threads):
                samples = self.config.evaluate.samples
                test = evaluate_split(self.translator, corpus.open_split(self.run, "test"), samples=samples)
            report["test"] = test.as_dict()
            self.log.say(f"\ntest, checkpoint {chosen}\n{test.table()}")
        atomic_write(self.run.report_path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        self.log.say(
            f"\nreport: {self.run.report_path}\ntranslate with: xyd translate {os.path.relpath(self.run.root)}"
        )
