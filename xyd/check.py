"""`xyd check`: everything that can fail is tried once, small, before training; each trial is a line with its remedy.

The trials write into a folder of their own beside the run directory, on its file system, and take it away again; a run
that stands there is only looked at. Those of the model work on a sample of the corpora: what it cannot show is said.
"""

import contextlib
import dataclasses
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xyd import checkpoint, corpus, distributed, memory, plan
from xyd.batching import extremes, plan_epoch, shape, start_ids
from xyd.config import Config, FilesSplit, directions
from xyd.corpus.census import Census, count_held_out, take_census
from xyd.errors import XydError
from xyd.files import RunDir, file_size_limit, free_bytes
from xyd.memory import gigabytes
from xyd.model import Dropout, Transformer, count_parameters
from xyd.optim import Gradients, build_optimizer
from xyd.progress import TrainState
from xyd.resume import check_changes, run_dir
from xyd.step import StepGradient
from xyd.tokenizer import Tokenizer, train_tokenizer
from xyd.translate import Translator

SECONDS = 110.0  # for everything
CENSUS_SECONDS, OVERFIT_SECONDS = 30.0, 25.0  # at most, of these
TOKENIZER_LINES = 20_000  # of the sample that the vocabulary is tried on
PAIRS = 8  # that the model must learn by heart
NEAR_ZERO, OVERFIT_STEPS, OVERFIT_WARMUP = 0.1, 400, 10  # nats a token
CORE_SPEED = 5e10  # operations a second that a core is taken to do at least, for what is left out as too slow
WRITE_SPEED = 1e8  # bytes a second, the same for checkpoints

# What helps where most pairs are dropped, by reason.
REMEDIES = {
    "empty": "see that both files hold text on the same lines",
    "too_short": "lower data.min_characters",
    "too_long": "give a sentence a line, or raise data.max_characters",
    "length_ratio": "see that line n of one file translates line n of the other, or raise data.max_length_ratio",
    "identical": "see that the two sides are two languages, or set data.drop_identical: false",
    "bad_utf8": "set data.encoding to the files' encoding",
}


class _Skipped(Exception):  # noqa: N818  (no error: a trial that cannot be made, and why)
    pass


@dataclasses.dataclass(frozen=True)
class Sample:
    """Rows of the sample in each direction that is learned: a batching.Split."""

    src: list[np.ndarray]
    tgt: list[np.ndarray]
    direction: np.ndarray

    @property
    def src_lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.src], np.int32)

    @property
    def tgt_lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.tgt], np.int32)

    @property
    def pair_id(self) -> np.ndarray:
        return np.arange(len(self.src))

    def src_ids(self, i: int) -> np.ndarray:
        return self.src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self.tgt[i]


def check(config: Config, say: Callable[[str], None], seconds: float = SECONDS) -> int:
    """Try everything and say what came of it, a line each; the exit code: 2 where something failed, else 0."""
    return Check(config, say, seconds).run()


class Check:
    """The trials of one configuration, in order. What one finds out, the later ones use."""

    def __init__(self, config: Config, say: Callable[[str], None], seconds: float) -> None:
        self.config, self.say = config, say
        self.began, self.seconds = time.perf_counter(), seconds
        self.run_dir, self.directions = run_dir(config), directions(config)
        self.counts: Counter[str] = Counter()
        self.work: Path | None = None  # the folder of the trials
        self.made: list[Path] = []  # folders above it that were not there
        self.device = torch.device("cpu")
        self.is_bf16 = False
        self.census: list[Census] = []
        self.tokenizer: Tokenizer | None = None
        self.vocab_size = config.tokenizer.vocab_size
        self.sample: Sample | None = None
        self.fits = False
        self.model: Transformer | None = None
        self.learned: list[int] = []

    def run(self) -> int:
        trials = {
            "run directory": self.try_run_directory,
            "device": self.try_device,
            "corpora": self.try_corpora,
            "valid and test": self.try_splits,
            "disk": self.try_disk,
            "tokenizer": self.try_tokenizer,
            "memory": self.try_memory,
            "model": self.try_model,
            "largest micro-batch": self.try_largest_batch,
            "learning": self.try_learning,
            "checkpoint": self.try_checkpoint,
            "translation": self.try_translation,
        }
        try:
            for name, trial in trials.items():
                self._try(name, trial)
        finally:
            self._clear()
        told = ", ".join(f"{self.counts[kind]} {kind}" for kind in ("ok", "warning", "failed", "skipped"))
        self.say(f"check: {told}, in {time.perf_counter() - self.began:.0f} s")
        return XydError.exit_code if self.counts["failed"] else 0

    def _try(self, name: str, trial: Callable[[], None]) -> None:
        if self.left <= 0:
            self.tell("skipped", name, f"the {self.seconds:.0f} s of a check are over; `xyd train` tries it at its start")
            return
        try:
            trial()
        except _Skipped as reason:
            self.tell("skipped", f"{name}: {reason}")
        except XydError as error:
            self.tell("failed", f"{name}: {error}")
        except OSError as error:
            self.tell("failed", f"{name}: {error.filename or 'writing'}: {error.strerror or error}", _mend(error))

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.perf_counter() - self.began)

    def tell(self, kind: str, what: str, remedy: str = "") -> None:
        self.counts[kind] += 1
        self.say(f"{kind}: {what}" + (f" — {remedy}" if remedy else ""))

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────

    def try_run_directory(self) -> None:
        root, parent = self.run_dir.root, self.run_dir.root.parent
        remedy = "choose another run.dir, or give yourself the right to write there"
        missing = [folder for folder in (parent, *parent.parents) if not os.path.lexists(folder)]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self.made = missing
            self.work = Path(tempfile.mkdtemp(prefix=f".{root.name}.check-", dir=parent))
        except OSError as error:
            self.tell("failed", f"run directory {root}: cannot be written: {error.strerror}", remedy)
        if root.exists() and not (root.is_dir() and os.access(root, os.W_OK | os.X_OK)):
            self.tell("failed", f"run directory {root}: is no folder that you may write to", remedy)
        elif self.work is not None:
            found = checkpoint.newest(self.run_dir) if root.exists() else None
            if found is not None:
                check_changes(self.config, self.run_dir, False, lambda _text: None)
            self.tell("ok", f"run directory {root}: " + (f"goes on from {found[0].name}" if found else "can be written"))

    def try_device(self) -> None:
        t = self.config.train
        self.device = distributed.choose_device(t.device)
        self.is_bf16 = distributed.choose_dtype(t.precision, self.device) == torch.bfloat16
        torch.set_num_threads(distributed.num_threads(t.threads, 1))
        self.tell("ok", f"device {self.device}, {'bf16' if self.is_bf16 else 'fp32'}, {distributed.num_cores()} cores")

    def try_corpora(self) -> None:
        self.census = take_census(self.config, min(CENSUS_SECONDS, self.left / 2))
        for entry in self.census:
            if entry.problem is not None:
                self.tell("failed", f"corpus {entry.name}: {entry.problem}")
            elif entry.is_remote:
                self.tell("skipped", f"corpus {entry.name}: on the hub, not fetched by a check; `xyd prepare` does that")
            else:
                self._judge(entry)

    def _judge(self, entry: Census) -> None:
        """A corpus that can be read: what would become of its pairs."""
        dropped, seen = entry.dropped.as_dict(), entry.looked_at
        reasons = ", ".join(f"{name} {e['count']:,} ({', '.join(e['first'][:3])})" for name, e in dropped.items())
        extent = "all read and decoded" if entry.is_whole else "the first ones; reading all takes longer than a check"
        told = f"corpus {entry.name}: {entry.read:,} pairs, {extent}; of {seen:,} cleaned {entry.kept_share:.1%} stay"
        told += f", dropped: {reasons}" if reasons else ""
        if entry.kept_share < 0.5:
            self.tell("warning", f"{told}; most would be dropped", REMEDIES.get(next(iter(dropped)), ""))
        else:
            self.tell("ok", told)
        if entry.over_long.total():
            first = ", ".join(next(iter(entry.over_long.as_dict().values()))["first"][:5])
            self.tell(
                "warning",
                f"corpus {entry.name}: {entry.over_long.total():,} pairs with more than data.max_characters = "
                f"{self.config.data.max_characters} characters, the longest {entry.longest:,}: {first}; they are dropped",
                "split them into sentences; raising data.max_characters helps up to model.max_length tokens",
            )

    def try_splits(self) -> None:
        data = self.config.data
        for name, split in (("valid", data.valid), ("test", data.test)):
            if isinstance(split, FilesSplit):
                counts = count_held_out(self.config, split)
                self.tell("ok", f"{name}: " + ", ".join(f"{a}-{b} {n:,} pairs" for (a, b), n in counts.items()))
        asked = sum(split for split in (data.valid, data.test) if isinstance(split, int))
        if not asked:
            return
        if any(entry.problem is not None or entry.is_remote for entry in self.census):
            raise _Skipped("a corpus is not known")
        for languages in sorted({corpus.sorted_pair(*direction) for direction in self.directions}):
            kept = sum(entry.total(languages) * entry.kept_share for entry in self.census)
            what = f"valid and test: {'-'.join(languages)}: {asked:,} of about {kept:,.0f} pairs are held out"
            if asked >= kept:
                self.tell("failed", f"{what}: nothing is left to train on", "lower data.valid and data.test")
            elif asked > kept / 3:
                self.tell("warning", what, "lower data.valid and data.test: what is held out teaches nothing")
            else:
                self.tell("ok", what)

    def try_disk(self) -> None:
        """Room for everything by forecast; a checkpoint is really written later."""
        told = plan.forecast(self.config, self._num_parameters(), self.vocab_size, self.is_bf16)
        text = sum(entry.text_bytes for entry in self.census)
        data = round(text * (1 + 1.5 * len(self.directions) / len({corpus.sorted_pair(*d) for d in self.directions})))
        free, limit = free_bytes(self.run_dir.root), file_size_limit()
        what = f"disk, forecast: checkpoints {gigabytes(told.disk)}, data {gigabytes(data)}; free {gigabytes(free)}"
        if told.disk + data > free:
            self.tell("failed", what, "lower train.keep_checkpoints, make room, or choose another run.dir")
        elif limit is not None and limit < max(told.optimizer, data / 2):
            largest = gigabytes(max(told.optimizer, data / 2))
            self.tell(
                "failed",
                f"{what}; this process may write no file above {gigabytes(limit)}, and one of {largest} will be needed",
                "raise the limit: ulimit -f unlimited",
            )
        else:
            self.tell("ok", what)

    def _num_parameters(self) -> int:
        with torch.device("meta"):
            return sum(count_parameters(Transformer(self.config.model, self.vocab_size)).values())

    # ── the model, on a sample ───────────────────────────────────────────────────────────────────────────────────────

    def _folder(self) -> Path:
        if self.work is None:
            raise _Skipped("there is no folder to write to")
        return self.work

    def try_tokenizer(self) -> None:
        kept = [pair for entry in self.census for pair in entry.sample]
        if not kept:
            raise _Skipped("no pair of the corpora is at hand")
        path, heard, t = self._folder() / "run" / "tokenizer.model", list[str](), self.config.train
        texts = list(dict.fromkeys(text for pair in kept for text in (pair.src, pair.tgt)))
        step = math.ceil(len(texts) / TOKENIZER_LINES)
        is_all = step == 1 and all(entry.looked_at == entry.read and entry.is_whole for entry in self.census)
        if t.init_from is not None:
            source = RunDir(t.init_from)
            folder, index = checkpoint.find(source, checkpoint.default_name(source))
            checkpoint.check_tokenizer(source, folder, index)
            path.parent.mkdir()
            shutil.copyfile(source.tokenizer_path, path)
            self.tokenizer, is_all = Tokenizer.load(path), True
        else:
            targets = sorted({tgt for _, tgt in self.directions})
            seed = self.config.run.seed
            self.tokenizer = train_tokenizer(texts[::step], self.config.tokenizer, targets, path, seed, heard.append)
        size = self.tokenizer.vocab_size
        self.vocab_size = size if is_all else max(size, self.vocab_size)
        what = f"tokenizer: {size:,} pieces from {len(texts[::step]):,} lines"
        if heard and is_all:
            said = heard[0].removeprefix("warning: ")
            self.tell("warning", f"tokenizer: {said}", f"set tokenizer.vocab_size: {size}, or give more text")
        else:
            self.tell("ok", what + ("" if is_all else " of the sample; the whole corpus may give more"))
        self._encode(kept)

    def _encode(self, kept: list[Any]) -> None:
        """The sample as rows; what is too long in tokens is counted."""
        assert self.tokenizer is not None
        ids = self.tokenizer.encode_batch([pair.src for pair in kept] + [pair.tgt for pair in kept])
        most, rows, num_long = self.config.model.max_length - 1, list[tuple[Any, Any, int]](), 0
        for pair, a, b in zip(kept, ids, ids[len(kept) :], strict=False):
            if max(len(a), len(b)) > most:
                num_long += 1
                continue
            for number, (src, tgt) in enumerate(self.directions):
                if (src, tgt) in ((pair.src_lang, pair.tgt_lang), (pair.tgt_lang, pair.src_lang)):
                    rows.append((a, b, number) if src == pair.src_lang else (b, a, number))
        what = f"lengths: {num_long:,} of {len(kept):,} sampled pairs are above model.max_length = {most + 1} tokens"
        remedy = "split long lines, or raise model.max_length"
        if not rows:
            self.tell("failed", f"{what}: none is left to train on", remedy)
        else:
            self.tell("warning" if num_long > len(kept) / 20 else "ok", what, remedy if num_long > len(kept) / 20 else "")
            arrays = [[np.array(row[side], np.int32) for row in rows] for side in (0, 1)]
            self.sample = Sample(arrays[0], arrays[1], np.array([row[2] for row in rows], np.int16))

    def _steps(self) -> tuple[Sample, list[list[np.ndarray]]]:
        """Steps of the sample, repeated where the corpus has more text than it and could fill larger micro-batches."""
        if self.sample is None:
            raise _Skipped("there are no rows to try it on")
        sample, t = self.sample, self.config.train
        read = sum(entry.read / (entry.share or 1.0) for entry in self.census)
        more = math.ceil(read / max(1, sum(len(entry.sample) for entry in self.census)))
        tokens = int((sample.src_lengths + sample.tgt_lengths + 2).sum())
        times = max(1, min(more, math.ceil(4 * t.max_tokens / tokens)))
        lengths = (np.tile(sample.src_lengths, times), np.tile(sample.tgt_lengths, times))
        steps = plan_epoch(
            *lengths, max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step, seed=self.config.run.seed, epoch=0
        )
        return sample, [[rows % len(sample.src) for rows in step] for step in steps]

    def try_memory(self) -> None:
        """By forecast, before anything so large is tried."""
        sample, steps = self._steps()
        t, shapes = self.config.train, [shape(sample, rows) for rows in extremes(sample, steps)]
        is_on_gpu = self.device.type == "cuda"
        told = plan.forecast(self.config, self._num_parameters(), self.vocab_size, self.is_bf16, shapes, is_on_gpu)
        processes = 1 if is_on_gpu or t.workers == "auto" else int(t.workers)
        free = torch.cuda.mem_get_info(self.device)[0] if is_on_gpu else memory.free()
        fixed = told.memory - told.activations
        batch = " and ".join(f"({B},{S}) → ({B},{T})" for B, S, T in shapes)
        what = f"{plan.memory_line(told)}; largest: {batch}"
        if processes > 1:
            what += f"; {processes} workers"
        if free is not None:
            what += f"; free {gigabytes(free)}"
        if free is None or processes * told.memory <= free:
            self.fits = True
            self.tell("ok", what)
        elif processes * fixed > 0.9 * free:
            self.tell("failed", what, "take a smaller model (model.d_model, layers, tokenizer.vocab_size) or fewer workers")
        else:
            fitting = int(t.max_tokens * (free / processes - fixed) / told.activations * 0.9)
            self.tell("failed", what, f"lower train.max_tokens from {t.max_tokens} to about {fitting}")

    def try_model(self) -> None:
        if not self.fits:
            raise _Skipped("it was not seen to fit into memory")
        t = self.config.train
        torch.manual_seed(self.config.run.seed)
        model = Transformer(self.config.model, self.vocab_size).to(self.device)
        if t.init_from is not None:
            source = RunDir(t.init_from)
            checkpoint.load_weights(model, checkpoint.find(source, checkpoint.default_name(source))[0])
        dtype = torch.bfloat16 if self.is_bf16 else torch.float32
        self.gradients, self.optimizer = Gradients(model, dtype), build_optimizer(model, t)
        self.model = model
        self.tell("ok", f"model: {plan.parameters_by_part(count_parameters(model))}")

    def _gradient(self, sample: Sample) -> StepGradient:
        if self.model is None or self.tokenizer is None:
            raise _Skipped("there is no model")
        starts = start_ids(self.tokenizer, ["-".join(direction) for direction in self.directions])
        return StepGradient(
            self.gradients, sample, starts, self.config.train.label_smoothing, self.config.run.seed
        )

    def try_largest_batch(self) -> None:
        sample, steps = self._steps()
        gradient = self._gradient(sample)
        tried = extremes(sample, steps)
        B, S, T = shape(sample, tried[0])
        done = plan.operations(self.config.model, self.vocab_size, np.full(B, S), np.full(B, T)).total * len(tried)
        seconds = done / (CORE_SPEED * distributed.num_cores())
        if self.device.type == "cpu" and seconds > self.left / 2:
            raise _Skipped(f"would take about {seconds:.0f} s by forecast; `xyd train` does it at step 0")
        used, shapes = gradient.rehearse(steps)
        told = plan.measured(shapes, [used], self.device.type == "cuda")
        if gradient.halved:
            remedy = "lower train.max_tokens; it would be computed in halves, which takes time"
            self.tell("warning", f"{told}; did not fit: {', '.join(gradient.halved)}", remedy)
        else:
            self.tell("ok", told)

    def try_learning(self) -> None:
        """Eight short pairs by heart: masks, shift, loss, gradient and optimiser work together, or this fails."""
        if self.sample is None:
            raise _Skipped("there are no rows to try it on")
        gradient, g = self._gradient(self.sample), self.gradients
        assert self.model is not None
        for module in (*self.model.modules(), *g.work.modules()):
            if isinstance(module, Dropout):
                module.p = 0.0
        gradient.label_smoothing = 0.0
        self.learned = _short_rows(self.sample)
        rows, peak = np.array(self.learned), 0.02 / math.sqrt(self.config.model.d_model)
        num_tokens, end = gradient.num_tokens([rows]), min(self.left / 2, OVERFIT_SECONDS) + time.perf_counter()
        losses: list[float] = []
        while len(losses) < OVERFIT_STEPS and time.perf_counter() < end:
            gradient.compute([rows], len(losses))
            losses.append(float(g.extras[1]) / num_tokens)
            if losses[-1] < NEAR_ZERO or not math.isfinite(losses[-1]):
                break
            g.clip(float(g.norm()), 1.0)
            for group in self.optimizer.param_groups:
                group["lr"] = peak * min(1.0, len(losses) / OVERFIT_WARMUP)
            self.optimizer.step()
            g.refresh()
        told = f"learning {len(rows)} short pairs by heart: NLL {losses[0]:.2f} → {losses[-1]:.3f} in {len(losses)} steps"
        if losses[-1] < NEAR_ZERO:
            self.tell("ok", told)
        elif not math.isfinite(losses[-1]):
            self.tell("failed", told, "use train.precision: fp32; if that does not help, report it")
        elif losses[-1] < 0.7 * losses[0] or len(losses) < OVERFIT_WARMUP:
            why = "its time was over" if len(losses) < OVERFIT_STEPS else "so many were allowed"
            self.tell("warning", f"{told}; {why}", "falls as it should; near zero takes longer on this machine")
        else:
            self.tell("failed", told, "the loss must fall to almost 0; a wider model (model.d_model), or report it")

    def try_checkpoint(self) -> None:
        """Written as training does, with the optimiser's state, and read back bit for bit."""
        if self.model is None:
            raise _Skipped("there is no model")
        run, size = RunDir(self._folder() / "run"), 12 * sum(p.numel() for p in self.model.parameters())
        if (seconds := 2 * size / WRITE_SPEED) > self.left:
            raise _Skipped(f"{gigabytes(size)} may take {seconds:.0f} s, which are not left")
        state = {"train_state": dataclasses.asdict(TrainState()), "optimizer": self.optimizer.state_dict()}
        checkpoint.save(run, ["last"], self.model, 1, {"metric": "nll", "score": None}, state)
        folder, _ = checkpoint.find(run, "last")
        back = Transformer(self.config.model, self.vocab_size)
        checkpoint.load_weights(back, folder)
        own = self.model.state_dict()
        same = all(torch.equal(tensor, own[name].cpu()) for name, tensor in back.state_dict().items())
        moments = checkpoint.load_state(folder, torch.device("cpu"))["optimizer"]["state"]
        for key, kept in state["optimizer"]["state"].items():
            same = same and all(torch.equal(value.cpu(), moments[key][name]) for name, value in kept.items())
        written = sum(path.stat().st_size for path in folder.iterdir())
        told = f"checkpoint: {gigabytes(written)} written and read back"
        if same:
            self.tell("ok", f"{told}, equal bit for bit")
        else:
            self.tell("failed", f"{told}, but not equal", "the file system of run.dir loses data: choose another")

    def try_translation(self) -> None:
        if self.model is None or self.tokenizer is None or self.sample is None or not self.learned:
            raise _Skipped("there is no model")
        with torch.no_grad():  # pieces that the sample's tokenizer does not have
            self.model.output.bias[self.tokenizer.vocab_size :] = -1e4
        names = ["-".join(direction) for direction in self.directions]
        translator = Translator(self.model.eval(), self.tokenizer, self.config, names, self.device)
        for number in dict.fromkeys(int(self.sample.direction[row]) for row in self.learned):
            row = next(row for row in self.learned if self.sample.direction[row] == number)
            source, target = (self.tokenizer.decode(ids[row].tolist()) for ids in (self.sample.src, self.sample.tgt))
            (found,) = translator.translate([source], to=self.directions[number][1])
            learned = "as learned" if found.text == target else f"learned: {target!r}"
            self.tell("ok", f"translation {names[number]}: {source!r} → {found.text!r} ({found.status}, {learned})")

    def _clear(self) -> None:
        """Nothing stays behind."""
        if self.work is not None:
            shutil.rmtree(self.work, ignore_errors=True)
        for folder in self.made:
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()


def _short_rows(sample: Sample) -> list[int]:
    """The shortest rows of two tokens a side or more, no source twice in a direction, directions in turn."""
    size = sample.src_lengths + sample.tgt_lengths
    order = np.argsort(size, kind="stable")
    short = np.minimum(sample.src_lengths, sample.tgt_lengths) < 2
    queues: dict[int, list[int]] = {}
    seen = set()
    for row in [int(row) for row in order if not short[row]] or [int(row) for row in order]:
        key = int(sample.direction[row]), tuple(sample.src[row])
        if key not in seen:
            seen.add(key)
            queues.setdefault(key[0], []).append(row)
    chosen = [row for turn in zip(*(queue[:PAIRS] for queue in queues.values()), strict=False) for row in turn]
    return chosen[:PAIRS]


def _mend(error: OSError) -> str:
    import errno

    if error.errno == errno.EFBIG:
        return "this process may write no larger file: raise the limit, ulimit -f unlimited"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, or choose another run.dir"
    return "see that it can be read and written, or choose another run.dir"
