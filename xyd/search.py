"""Source ids → hypotheses, for any number of sentences: batches of like length, their precision, their workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from xyd.allocator import keep_freed_memory
from xyd.batching import pad_sources
from xyd.capture import CapturedStep
from xyd.config import EOS_ID, DecodeConfig
from xyd.decode import Hypothesis, Step, beam_search, greedy, sample
from xyd.model import KVCache, Transformer
from xyd.quantize import Precision, prepared

# Elements of logits at once: on a CPU they stay in its caches between the product and the choice of the best.
BLOCK_ELEMENTS = 2**22
GPU_BLOCK_ELEMENTS = 2**28
ENCODE_TOKENS = 512  # padded source tokens that the encoder reads at once on a CPU: its states stay in the caches
MIN_SENTENCES = 8  # a worker's least


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


class Searcher:
    """A model made ready for search. It keeps its own copy of the weights: make a new one when they have changed."""

    def __init__(
        self, model: Transformer, config: DecodeConfig, device: torch.device | str, banned_ids: Sequence[int]
    ) -> None:
        self.config, self.device, self.banned_ids = config, torch.device(device), list(banned_ids)
        self.precision = choose_precision(config.precision, self.device)
        self.model = prepared(model, self.precision)
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
        lengths = [len(ids) for ids in sources]
        workers = self._workers(len(sources))
        batches = cut(lengths, max(1, self.config.max_tokens // width), workers)
        found: list[list[Hypothesis]] = [[] for _ in sources]

        def work(rows: list[int]) -> None:
            generator = torch.Generator(self.device).manual_seed(seed + rows[0])
            with torch.inference_mode():
                memory, src_mask = self._encode([sources[i] for i in rows])
                limits = torch.tensor([max_lengths[i] for i in rows], device=self.device)
                cache = self.model.start_cache(memory, src_mask, int(limits.max()) + 1)
                step = CapturedStep(self.model, cache) if self.config.capture else ModelStep(self.model, cache)
                starts = torch.full((len(rows),), start_id, device=self.device)
                hypotheses = self._search(step, starts, limits, beam_size, length_penalty, n_best, generator)
            for i, best in zip(rows, hypotheses, strict=True):
                found[i] = best

        was_training = self.model.training
        self.model.eval()
        try:
            if self.device.type == "cpu":
                in_parallel(work, batches, workers)
            else:
                for rows in batches:
                    work(rows)
        finally:
            self.model.train(was_training)
        return found

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

    def _workers(self, num_sentences: int) -> int:
        """How many batches are searched at a time; a GPU, or a handful of sentences, is work for one."""
        if self.device.type != "cpu" or num_sentences < 2 * MIN_SENTENCES:
            return 1
        wanted = torch.get_num_threads() if self.config.workers == "auto" else self.config.workers
        return max(1, min(wanted, num_sentences // MIN_SENTENCES))


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


def in_parallel(work: Callable[[list[int]], None], items: Sequence[list[int]], workers: int) -> None:
    """`work` on every item, by `workers` threads of one core each: a decode step is too small to be shared by two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of this thread, and of every thread started from here on
    try:
        if workers == 1 or len(items) == 1:
            for item in items:
                work(item)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)


def cut(lengths: Sequence[int], max_tokens: int, workers: int = 1) -> list[list[int]]:
    """Indexes in batches, longest first; at most `max_tokens` padded source tokens, EOS counted, or one sentence.

    As many batches as go round: the next multiple of `workers`, of about equal size, if there are sentences enough.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = _cut(order, lengths, max_tokens)
    rounds = -(-len(batches) // workers) * workers
    too_small, enough = 0, max_tokens  # the least budget that needs no more than `rounds` batches makes them even
    while workers > 1 and enough - too_small > 1:
        middle = (too_small + enough) // 2
        batches = _cut(order, lengths, middle)
        too_small, enough = (middle, enough) if len(batches) > rounds else (too_small, middle)
    return _cut(order, lengths, enough)


def _cut(order: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * (lengths[batches[-1][0]] + 1) > max_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches
