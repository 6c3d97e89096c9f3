"""Source ids → hypotheses, for any number of sentences: batches of like length, their precision, their workers."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from xyd.allocator import keep_freed_memory
from xyd.batching import pad_sources
from xyd.capture import CapturedStep
from xyd.config import EOS_ID, DecodeConfig
from xyd.decode import Hypothesis, Step, beam_search, greedy, sample
from xyd.distributed import num_cores, tie_to_parent
from xyd.errors import XydError
from xyd.files import RunDir
from xyd.model import KVCache, Transformer
from xyd.quantize import Precision, prepared

# Elements of logits at once: few, so that memory stays bounded; a product of fewer rows takes longer a row.
BLOCK_ELEMENTS = 2**23
GPU_BLOCK_ELEMENTS = 2**28
MAX_TOKENS, GPU_MAX_TOKENS = 4096, 32768  # padded source tokens times beams of one batch
ENCODE_TOKENS = 512  # padded source tokens that the encoder reads at once on a CPU: its states stay in the caches
MIN_SENTENCES = 32  # fewer are done before other processes have begun


class ModelStep:
    """The model and its cache as a step function for `decode`."""

    def __init__(self, model: Transformer, cache: KVCache) -> None:
        self.model, self.cache = model, cache

    def __call__(self, ids: Int[Tensor, " R"]) -> Iterator[Float[Tensor, "n V"]]:
        states = self.model.decode_step(ids, self.cache)
        size = BLOCK_ELEMENTS if states.device.type == "cpu" else GPU_BLOCK_ELEMENTS
        for block in states.split(max(1, size // self.model.vocab_size)):
            yield self.model.project(block)

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        self.cache.reorder(rows)

    def keep(self, sentences: Int[Tensor, " B2"]) -> None:
        self.cache.keep(sentences)


@dataclass(frozen=True, slots=True)
class Job:
    """One batch and how to search it; what a worker is sent."""

    sources: list[Sequence[int]]  # bare ids, longest first
    start_id: int
    max_lengths: list[int]
    beam_size: int
    length_penalty: float
    n_best: int
    seed: int


class Searcher:
    """A model made ready for search. It keeps its own copy of the weights: make a new one when they have changed."""

    def __init__(
        self, model: Transformer, config: DecodeConfig, device: torch.device | str, banned_ids: Sequence[int]
    ) -> None:
        self.config, self.device, self.banned_ids = config, torch.device(device), list(banned_ids)
        self.precision = choose_precision(config.precision, self.device)
        self.max_tokens = config.max_tokens or (MAX_TOKENS if self.device.type == "cpu" else GPU_MAX_TOKENS)
        self.model = prepared(model, self.precision)
        self._pool: tuple[int, ProcessPoolExecutor] | None = None
        keep_freed_memory()

    def search(
        self,
        sources: Sequence[Sequence[int]],
        start_id: int,
        max_lengths: Sequence[int],
        beam_size: int,
        length_penalty: float,
        n_best: int = 1,
        seed: int = 0,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each source (bare ids), best first, in the order of the sources.

        `max_lengths` counts bare ids. With `decode.temperature` one hypothesis is drawn instead, from `seed`.
        """
        width = beam_size if self.config.temperature is None else 1
        workers = self._num_workers(len(sources))
        batches = cut([len(ids) for ids in sources], max(1, self.max_tokens // width), workers)
        jobs = [
            Job(
                [sources[i] for i in rows],
                start_id,
                [max_lengths[i] for i in rows],
                beam_size,
                length_penalty,
                n_best,
                seed + rows[0],
            )
            for rows in batches
        ]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for rows, hypotheses in zip(batches, self._in_workers(jobs, workers), strict=True):
            for i, best in zip(rows, hypotheses, strict=True):
                found[i] = best
        return found

    def _num_workers(self, num_sentences: int) -> int:
        """Processes that search; a GPU, or a handful of sentences, is work for this one alone."""
        if self.device.type != "cpu" or not sys.platform.startswith("linux") or num_sentences < MIN_SENTENCES:
            return 1
        return torch.get_num_threads() if self.config.workers == "auto" else self.config.workers

    def _in_workers(self, jobs: Sequence[Job], workers: int) -> list[list[list[Hypothesis]]]:
        """The results of all jobs. The workers live as long as the Searcher and share its memory."""
        if workers == 1 or len(jobs) < 2:
            was_training, threads = self.model.training, torch.get_num_threads()
            self.model.eval()
            if self.device.type == "cpu":  # a decode step is too small to be shared by two cores
                torch.set_num_threads(1)
            try:
                return [self.work(job) for job in jobs]
            finally:
                self.model.train(was_training)
                torch.set_num_threads(threads)
        if self._pool is None or self._pool[0] != workers:
            context = multiprocessing.get_context("fork")
            self._pool = workers, ProcessPoolExecutor(workers, context, _begin, (self, os.getpid()))
        try:
            return list(self._pool[1].map(_work, jobs))
        except BrokenProcessPool as e:
            self._pool = None
            raise XydError(
                "a process that searched was killed, perhaps for lack of memory: lower decode.workers or "
                "decode.max_tokens"
            ) from e

    def work(self, job: Job) -> list[list[Hypothesis]]:
        """One batch, longest source first, on this thread."""
        generator = torch.Generator(self.device).manual_seed(job.seed)
        with torch.inference_mode():
            memory, src_mask = self._encode(job.sources)
            limits = torch.tensor(job.max_lengths, device=self.device)
            cache = self.model.start_cache(memory, src_mask, int(limits.max()) + 1)
            step = CapturedStep(self.model, cache) if self.config.capture else ModelStep(self.model, cache)
            starts = torch.full((len(job.sources),), job.start_id, device=self.device)
            return self._search(step, starts, limits, job.beam_size, job.length_penalty, job.n_best, generator)

    def _encode(self, sources: list[Sequence[int]]) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "B S"]]:
        """The memory of a batch, longest source first. On a CPU some sentences at a time, with less padding."""
        src, src_mask = (x.to(self.device) for x in pad_sources(sources))
        if self.device.type != "cpu":
            return self.model.encode(src, src_mask), src_mask
        memory = torch.zeros(*src.shape, self.model.config.d_model)
        for part in cut([len(ids) for ids in sources], ENCODE_TOKENS):
            rows, length = slice(part[0], part[-1] + 1), len(sources[part[0]]) + 1
            memory[rows, :length] = self.model.encode(src[rows, :length], src_mask[rows, :length])
        return memory, src_mask

    def _search(
        self,
        step: Step,
        starts: Tensor,
        limits: Tensor,
        beam_size: int,
        length_penalty: float,
        n_best: int,
        generator: torch.Generator,
    ) -> list[list[Hypothesis]]:
        c = self.config
        search = (step, starts, limits, self.banned_ids, EOS_ID)
        form = c.length_penalty_form
        if c.temperature is not None:
            drawn = sample(*search, c.temperature, c.top_k, c.top_p, generator, length_penalty, form)
            return [[one] for one in drawn]
        if beam_size == 1:
            return [[one] for one in greedy(*search, length_penalty, form)]
        return beam_search(*search, beam_size, length_penalty, form, n_best)


def with_kept_workers(config: DecodeConfig, run: RunDir) -> DecodeConfig:
    """`decode.workers: auto` as it was measured for this run, where it was on a machine with as many cores."""
    if config.workers != "auto":
        return config
    try:
        kept = json.loads(run.search_path.read_text(encoding="utf-8"))
        if kept["cores"] == num_cores():
            return config.model_copy(update={"workers": int(kept["workers"])})
    except (OSError, ValueError, KeyError, TypeError):  # never measured, or damaged
        pass
    return config


_searcher: Searcher  # in a worker: the one it works for


def _begin(searcher: Searcher, parent: int) -> None:
    """In a worker that was just forked: one thread, no handler of signals, and an end when the parent ends."""
    global _searcher
    _searcher = searcher
    searcher.model.eval()
    torch.set_num_threads(1)
    tie_to_parent(parent)


def _work(job: Job) -> list[list[Hypothesis]]:
    return _searcher.work(job)


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """`auto` is the cheapest arithmetic that the hardware has instructions for."""
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    has: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older releases do not tell
    if not (has.get("avx512_bf16") or has.get("amx_bf16")):
        return "fp32"
    return "int8" if has.get("avx512_vnni") or has.get("amx_int8") else "bf16"


def cut(lengths: Sequence[int], max_tokens: int, workers: int = 1) -> list[list[int]]:
    """Indexes in batches, longest first; at most `max_tokens` padded source tokens, EOS counted, or one sentence.

    Sentences of like length are dealt out to the workers in turn, so that all have the same to do.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = order[::workers]  # of the first worker, which has the longest sentences
    rounds = _cut(first, lengths, max_tokens)
    too_small, enough = 0, max_tokens  # the least budget that needs no more batches makes them even
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        is_enough = len(_cut(first, lengths, middle)) <= len(rounds)
        too_small, enough = (too_small, middle) if is_enough else (middle, enough)
    rounds = _cut(first, lengths, enough)
    batches: list[list[int]] = []
    start = 0
    for batch in rounds:
        dealt = order[start : start + len(batch) * workers]
        batches += [dealt[w::workers] for w in range(min(workers, len(dealt)))]
        start += len(batch) * workers
    return batches


def _cut(order: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * (lengths[batches[-1][0]] + 1) > max_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches
