"""The model, on a sample of the corpora: does it fit, learn, come back from the disk, translate."""

import dataclasses
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch

from xyd import checkpoint, distributed, memory, plan
from xyd.batching import extremes, shape, start_ids
from xyd.check.findings import Findings, Skipped, Workplace
from xyd.check.inputs import InputTrials, num_parameters
from xyd.check.sample import Sample, encoded, short_rows, steps_like
from xyd.config import Config
from xyd.files import RunDir
from xyd.memory import gigabytes
from xyd.model import Dropout, Transformer, count_parameters
from xyd.optim import Gradients, build_optimizer
from xyd.progress import TrainState
from xyd.step import StepGradient
from xyd.text import SentencePair
from xyd.tokenizer import Tokenizer, train_tokenizer
from xyd.translate import Translator

TOKENIZER_LINES = 20_000  # of the sample that the vocabulary is tried on
PAIRS, OVERFIT_SECONDS = 8, 25.0  # that the model must learn by heart, and how long it may take at most
NEAR_ZERO, OVERFIT_STEPS, OVERFIT_WARMUP = 0.1, 400, 10  # nats a token
CORE_SPEED = 5e10  # operations a second that a core is taken to do at least, for what is left out as too slow
WRITE_SPEED = 1e8  # bytes a second, the same for checkpoints


class ModelTrials:
    """What one of them makes, the later ones use."""

    def __init__(self, config: Config, findings: Findings, place: Workplace, inputs: InputTrials) -> None:
        self.config, self.findings, self.tell, self.place = config, findings, findings.tell, place
        self.census, self.directions = inputs.census, inputs.directions
        self.device, self.is_bf16 = inputs.device, inputs.is_bf16
        self.vocab_size = config.tokenizer.vocab_size
        self.tokenizer: Tokenizer | None = None
        self.sample: Sample | None = None
        self.fits = False
        self.model: Transformer | None = None
        self.learned: list[int] = []

    def try_tokenizer(self) -> None:
        pairs = [pair for entry in self.census for pair in entry.sample]
        if not pairs:
            raise Skipped("no pair of the corpora is at hand")
        path, t = self.place.folder() / "run" / "tokenizer.model", self.config.train
        if t.init_from is not None:
            source = RunDir(t.init_from)
            checkpoint.check_tokenizer(source, *checkpoint.find(source, checkpoint.default_name(source)))
            path.parent.mkdir()
            shutil.copyfile(source.tokenizer_path, path)
            self.tokenizer = Tokenizer.load(path)
            self.vocab_size = self.tokenizer.vocab_size
            self.tell("ok", f"tokenizer: of {source.root}, {self.vocab_size:,} pieces")
        else:
            self._train_tokenizer(pairs, path)
        self._encode(pairs)

    def _train_tokenizer(self, pairs: list[SentencePair], path: Path) -> None:
        wanted, heard = self.config.tokenizer, list[str]()
        lines = list(dict.fromkeys(text for pair in pairs for text in (pair.src, pair.tgt)))
        sampled = wanted.model_copy(update={"sample_size": min(wanted.sample_size, TOKENIZER_LINES)})
        targets = sorted({tgt for _, tgt in self.directions})
        self.tokenizer = train_tokenizer(lines, sampled, targets, path, self.config.run.seed, heard.append)
        size = self.tokenizer.vocab_size
        is_all = len(lines) <= sampled.sample_size and all(
            entry.is_whole and len(entry.drawn) == entry.read for entry in self.census
        )
        if is_all or size > wanted.vocab_size:
            self.vocab_size = size
        if heard and (is_all or size > wanted.vocab_size):
            remedy = f"set tokenizer.vocab_size: {size}" + (", or give more text" if size < wanted.vocab_size else "")
            self.tell("warning", f"tokenizer: {heard[0].removeprefix('warning: ')}", remedy)
        else:
            told = f"tokenizer: {size:,} pieces from {min(len(lines), sampled.sample_size):,} lines"
            self.tell("ok", told + ("" if is_all else " of the sample; the whole corpus may give more"))

    def _encode(self, pairs: list[SentencePair]) -> None:
        assert self.tokenizer is not None
        most = self.config.model.max_length - 1
        sample, num_long = encoded(pairs, self.tokenizer, self.directions, most)
        what = f"lengths: {num_long:,} of {len(pairs):,} sampled pairs are above model.max_length = {most + 1} tokens"
        remedy = "split long lines, or raise model.max_length"
        if not sample.src:
            self.tell("failed", f"{what}: none is left to train on", remedy)
        else:
            self.sample = sample
            has_many = num_long > len(pairs) / 20
            self.tell("warning" if has_many else "ok", what, remedy if has_many else "")

    def _steps(self) -> tuple[Sample, list[list[np.ndarray]]]:
        if self.sample is None:
            raise Skipped("there are no rows to try it on")
        read = sum(entry.read / (entry.share or 1.0) for entry in self.census)
        sampled = sum(len(entry.sample) for entry in self.census)
        return self.sample, steps_like(self.config, self.sample, read / sampled)

    def try_memory(self) -> None:
        """By forecast, before anything so large is tried."""
        sample, steps = self._steps()
        t, shapes = self.config.train, [shape(sample, rows) for rows in extremes(sample, steps)]
        is_on_gpu = self.device.type == "cuda"
        told = plan.forecast(
            self.config, num_parameters(self.config, self.vocab_size), self.vocab_size, self.is_bf16, shapes, is_on_gpu
        )
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
            self.tell("failed", what, "take a smaller model (model, tokenizer.vocab_size) or fewer workers")
        else:
            fitting = int(t.max_tokens * (free / processes - fixed) / told.activations * 0.9)
            self.tell("failed", what, f"lower train.max_tokens from {t.max_tokens} to about {fitting}")

    def try_model(self) -> None:
        if not self.fits:
            raise Skipped("it was not seen to fit into memory")
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
            raise Skipped("there is no model")
        starts = start_ids(self.tokenizer, ["-".join(direction) for direction in self.directions])
        return StepGradient(self.gradients, sample, starts, self.config.train.label_smoothing, self.config.run.seed)

    def try_largest_batch(self) -> None:
        sample, steps = self._steps()
        gradient = self._gradient(sample)
        tried = extremes(sample, steps)
        B, S, T = shape(sample, tried[0])
        done = plan.operations(self.config.model, self.vocab_size, np.full(B, S), np.full(B, T)).total * len(tried)
        seconds = done / (CORE_SPEED * distributed.num_cores())
        if self.device.type == "cpu" and seconds > self.findings.left / 2:
            raise Skipped(f"would take about {seconds:.0f} s by forecast; `xyd train` does it at step 0")
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
            raise Skipped("there are no rows to try it on")
        gradient, g = self._gradient(self.sample), self.gradients
        assert self.model is not None
        for module in (*self.model.modules(), *g.work.modules()):
            if isinstance(module, Dropout):
                module.p = 0.0
        gradient.label_smoothing = 0.0
        self.learned = short_rows(self.sample, PAIRS)
        rows, peak = np.array(self.learned), 0.02 / math.sqrt(self.config.model.d_model)
        num_tokens = gradient.num_tokens([rows])
        end = time.perf_counter() + min(self.findings.left / 2, OVERFIT_SECONDS)
        losses: list[float] = []
        while not losses or (len(losses) < OVERFIT_STEPS and time.perf_counter() < end):
            gradient.compute([rows], len(losses))
            losses.append(float(g.extras[1]) / num_tokens)
            if losses[-1] < NEAR_ZERO or not math.isfinite(losses[-1]):
                break
            g.clip(float(g.norm()), 1.0)
            for group in self.optimizer.param_groups:
                group["lr"] = peak * min(1.0, len(losses) / OVERFIT_WARMUP)
            self.optimizer.step()
            g.refresh()
        told = (
            f"learning {len(rows)} short pairs by heart: NLL {losses[0]:.2f} → {losses[-1]:.3f} in {len(losses)} steps"
        )
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
            raise Skipped("there is no model")
        if self.place.is_elsewhere:
            raise Skipped("the run directory cannot be written")
        run, size = RunDir(self.place.folder() / "run"), 12 * sum(p.numel() for p in self.model.parameters())
        if (seconds := 2 * size / WRITE_SPEED) > self.findings.left:
            raise Skipped(f"{gigabytes(size)} may take {seconds:.0f} s, which are not left")
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
            raise Skipped("there is no model")
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
