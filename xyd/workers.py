"""How many processes train on this machine, where `train.workers` is `auto`: measured, or by rule where that is dearer.

One process with a thread for each core loses time where operations are small, one process a core where they are large,
and by the exchange of gradients. Which is faster depends on the machine, so a few real steps are trained both ways, in
processes of their own, and thrown away. A run that goes on keeps the number it had: its sums stay the same bit for bit.
"""

import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import torch

from xyd import corpus, distributed, memory, plan
from xyd.batching import Split, extremes, plan_epoch, shape, start_ids
from xyd.config import BOS_ID, EOS_ID, Config
from xyd.errors import XydError
from xyd.files import RunDir, atomic_write
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer
from xyd.resume import manifest
from xyd.search import MIN_SENTENCES, Searcher, with_kept_workers
from xyd.step import StepGradient, Sums
from xyd.tokenizer import Tokenizer

MEASURE_SECONDS = 4.0  # of training for each setting; its start takes as long again
SAMPLE = 100_000  # pairs that the measured steps are made of
CORE_SPEED = 5e10  # operations a second that one core is taken to do, for forecasts only
START_SECONDS, WORTH_MINUTES = 20.0, 2.0  # forecasts: too short for a second process; too short to be measured
STEP_LIMIT = 30.0  # seconds for one micro-batch, by forecast, beyond which nothing is measured
SMALL = 20_000_000  # parameters up to which, by rule, a process a core is faster
SEARCH_TOKENS = 8  # that each sentence of a measured search is long
GAIN = 1.03  # by which more processes must be faster, since they take more memory


class Material(NamedTuple):
    """What steps are measured on."""

    split: Split
    vocab_size: int
    start_ids: np.ndarray


def prepared_material(run: RunDir) -> Material:
    """The train split of a prepared run."""
    tokenizer = Tokenizer.load(run.tokenizer_path)
    return Material(
        corpus.open_split(run, "train"), tokenizer.vocab_size, start_ids(tokenizer, manifest(run)["directions"])
    )


def choose_workers(config: Config, run: RunDir, device: torch.device, say: Callable[[str], None]) -> int:
    """The number of training processes, said in one line with its reason unless the user has fixed it.

    The data must be prepared. Raises SystemExit where a signal ends the measurement.
    """
    wanted, cores = config.train.workers, distributed.num_cores()
    if wanted != "auto":
        return distributed.usable_workers(wanted, device)
    if device.type != "cpu":
        others = torch.cuda.device_count() - 1
        say(f"workers: 1, on the GPU{f'; train.workers: {others + 1} uses all of them' if others else ''}")
        return 1
    if (kept := _of_the_run(run, cores)) is not None:
        say(f"workers: {kept}, as this run has been trained")
        return kept
    choice, reason = _choose(config, run, cores, say)
    say(f"workers: {_setting(config, choice)} ({reason})")
    return choice


def _of_the_run(run: RunDir, cores: int) -> int | None:
    """With how many workers the run was saved, on as many cores; None where it was not."""
    try:
        saved = json.loads(run.run_path.read_text(encoding="utf-8"))
        return int(saved["workers"]) if saved["cores"] == cores else None
    except (OSError, ValueError, KeyError, TypeError):  # none yet, damaged, or from before there was a choice
        return None


def _choose(config: Config, run: RunDir, cores: int, say: Callable[[str], None]) -> tuple[int, str]:
    """The number of workers, and why."""
    t, material = config.train, prepared_material(run)
    split = material.split
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Transformer(config.model, material.vocab_size).parameters())
    most, reason = most_workers(config, material, parameters, cores)
    if most < 2:
        return 1, reason

    seconds = 6 * parameters * _tokens(config, split) / (CORE_SPEED * cores)
    part_seconds = 6 * parameters * t.max_tokens / 2 / CORE_SPEED
    if seconds < START_SECONDS:
        return 1, "too short a run for a second process to start"
    is_short = seconds < 60 * WORTH_MINUTES or (t.max_minutes is not None and t.max_minutes < 5 * WORTH_MINUTES)
    if is_short or part_seconds > STEP_LIMIT:
        why = "too short a run to measure" if is_short else "too large a model to measure"
        size = "small" if parameters <= SMALL else "large"
        return most if parameters <= SMALL else 1, f"by rule, for a {size} model: {why}"
    middle = 2 ** (most.bit_length() // 2)  # 2 of 4, 4 of 8 and of 16
    settings = sorted({1, most, middle} if most >= 4 else {1, most})
    say(f"workers: trying {', '.join(map(str, settings))} for some seconds each")
    speeds = {workers: speed(config, material, workers) for workers in settings}
    return fastest(config, speeds)


def most_workers(config: Config, material: Material, parameters: int, cores: int) -> tuple[int, str]:
    """How many processes could share the work on CPUs, and what does not allow more."""
    t = config.train
    is_bf16 = distributed.choose_dtype(t.precision, torch.device("cpu")) == torch.bfloat16
    steps = _some_steps(config, material.split)
    shapes = [shape(material.split, rows) for rows in extremes(material.split, steps)]
    needed = plan.forecast(config, parameters, material.vocab_size, is_bf16, shapes).memory + plan.LIBRARIES
    bounds = [
        (cores // distributed.num_threads(t.threads, cores), "one core" if cores < 2 else "as train.threads asks"),
        (
            int(np.median([len(step) for step in steps])),
            "a step is one micro-batch, which cannot be shared; a lower train.max_tokens would cut it",
        ),
    ]
    if (free := memory.free()) is not None:
        told = f"each takes {memory.gigabytes(needed)}, and {memory.gigabytes(free)} are free"
        bounds.append((free // needed, told))
    return min(bounds)


def fastest(config: Config, speeds: dict[int, float]) -> tuple[int, str]:
    """The setting that is worth it, and what was measured, from tokens per second by number of workers."""
    best = 1
    for workers in sorted(speeds):
        if speeds[workers] > speeds[best] * (GAIN if workers > 1 else 1):
            best = workers
    others = [
        f"{_setting(config, w)} {f'{speed:,.0f}' if speed else 'could not train'}"
        for w, speed in speeds.items()
        if w != best
    ]
    return best, "; ".join([f"{speeds[best]:,.0f} tokens/s", *filter(None, [", ".join(others)])])


def _setting(config: Config, workers: int) -> str:
    threads = distributed.num_threads(config.train.threads, workers)
    return f"{workers} of {threads} thread{'s' if threads > 1 else ''}"


def _tokens(config: Config, split: Split) -> int:
    """Target tokens that the run will see at most."""
    t, epoch = config.train, int(split.tgt_lengths.sum()) + len(split.tgt_lengths)
    return min(t.max_steps * t.tokens_per_step, epoch * t.max_epochs if t.max_epochs else epoch * t.max_steps)


def _some_steps(config: Config, split: Split) -> list[list[np.ndarray]]:
    """Steps of an epoch; of a large corpus, of a part of it."""
    rows = np.arange(len(split.src_lengths))
    if len(rows) > SAMPLE:
        rows = np.sort(np.random.default_rng(config.run.seed).choice(rows, SAMPLE, replace=False))
    t, lengths = config.train, (split.src_lengths[rows], split.tgt_lengths[rows])
    steps = plan_epoch(
        *lengths, max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step, seed=config.run.seed, epoch=0
    )
    return [[rows[members] for members in step] for step in steps]


def speed(config: Config, material: Material, workers: int) -> float:
    """Real target tokens per second of that many workers; 0 where they could not train."""
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    with receiver, sender:
        code = distributed.launch(_measure, workers, (config, material, sender))
        if code in (130, 143):
            raise SystemExit(code)
        return float(receiver.recv()) if receiver.poll() else 0.0


def _measure(config: Config, material: Material, sender: Connection) -> int:
    """Train for some seconds on this rank's share of real steps; rank 0 sends the tokens per second of all."""
    device = distributed.choose_device(config.train.device)
    distributed.start(device)
    try:
        found = _tokens_per_second(config, material, device)
        if distributed.is_main():
            sender.send(found)
        return 0
    except XydError:
        return 2
    finally:
        distributed.stop()


def _tokens_per_second(config: Config, material: Material, device: torch.device) -> float:
    t, size, split = config.train, distributed.world_size(), material.split
    torch.set_num_threads(distributed.num_threads(t.threads, size))
    torch.manual_seed(config.run.seed)
    model = Transformer(config.model, material.vocab_size).to(device)
    gradients = Gradients(model, distributed.choose_dtype(t.precision, device))
    optimizer = build_optimizer(model, t)
    gradient = StepGradient(gradients, split, material.start_ids, t.label_smoothing, config.run.seed)

    def step(micro_batches: list[np.ndarray]) -> int:
        gradient.compute(micro_batches, 1)
        if distributed.is_main():
            gradients.extras += torch.tensor(Sums(seconds=time.perf_counter() - began), device=device)
        distributed.sum_in_place(gradients.buffer)
        gradients.clip(float(gradients.norm()), 1.0)
        optimizer.step()
        gradients.refresh()
        return gradient.num_tokens(micro_batches)

    # A step of a large model takes minutes: two micro-batches for each core are enough of it.
    steps = [micro_batches[: 2 * distributed.num_cores()] for micro_batches in _some_steps(config, split)]
    began = time.perf_counter()
    step(steps[0][:size])  # warm
    tokens = 0
    began = time.perf_counter()
    for micro_batches in itertools.cycle(steps):
        tokens += step(micro_batches)
        if (seconds := Sums(*gradients.extras.tolist()).seconds) > MEASURE_SECONDS:  # every rank, by rank 0's clock
            break
    return tokens / seconds


def choose_search_workers(config: Config, run: RunDir, device: torch.device, say: Callable[[str], None]) -> None:
    """Measure once, where `decode.workers` is `auto`, how many processes translate fastest, say it and keep it."""
    cores = distributed.num_cores()
    if config.decode.workers != "auto" or device.type != "cpu" or cores < 2 or not sys.platform.startswith("linux"):
        return
    if with_kept_workers(config.decode, run).workers != "auto":
        return
    settings = [1, cores]
    speeds = {workers: search_speed(config, run, workers) for workers in settings}
    choice = cores if speeds[cores] > speeds[1] * GAIN else 1
    told = ", ".join(f"{workers} {speeds[workers]:,.0f}" for workers in settings)
    say(f"search workers: {choice} of 1 thread ({told} tokens/s)")
    atomic_write(run.search_path, json.dumps({"workers": choice, "cores": cores}))


def search_speed(config: Config, run: RunDir, workers: int) -> float:
    """Tokens per second of so many search processes, greedy, on valid sources with an untrained model."""
    valid, tokenizer = corpus.open_split(run, "valid"), Tokenizer.load(run.tokenizer_path)
    torch.manual_seed(config.run.seed)
    model = Transformer(config.model, tokenizer.vocab_size).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -1e4  # so that every sentence has the length that it is given
    decode = config.decode.model_copy(update={"workers": workers, "capture": False, "temperature": None})
    searcher = Searcher(model, decode, "cpu", tokenizer.banned_ids)
    rows = range(min(len(valid), MIN_SENTENCES * distributed.num_cores()))
    sources = [valid.src_ids(row)[: config.model.max_length - 1].tolist() for row in rows]
    lengths = [min(SEARCH_TOKENS, config.model.max_length - 1)] * len(sources)
    seconds = []
    for _ in range(2):  # the first time the processes start
        began = time.perf_counter()
        searcher.search(sources, BOS_ID, lengths, 1, 1.0)
        seconds.append(time.perf_counter() - began)
    return sum(lengths) / seconds[-1]
