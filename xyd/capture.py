"""Decode steps recorded once and replayed as a CUDA graph: one launch for some 400 kernels.

A graph wants the same shapes at the same addresses each time. So the cache has all its places from the start, every
step attends to all of them, those still empty being hidden, and where a step writes is a number in the GPU's memory.
When sentences leave, the next step is recorded anew.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from xyd.model import KVCache, Transformer, additive


class StaticCache(KVCache):
    """The rest of a cache's life at a fixed number of rows a sentence, with fixed shapes and addresses."""

    def __init__(self, cache: KVCache, width: int) -> None:
        self.cross_keys, self.cross_values, self.mask = cache.cross_keys, cache.cross_values, cache.mask
        self.length, self.num_entries, self.max_steps = cache.length, cache.num_entries, cache.max_steps
        self.position, self.cross_bias = cache.position, cache.cross_bias
        B, n = len(self.mask), self.num_entries
        P = n + (self.max_steps - self.length) * width
        room = (0, 0, 0, P - n)
        self.keys = [F.pad(k[:, :, :n], room) for k in cache.keys]
        self.values = [F.pad(v[:, :, :n], room) for v in cache.values]
        seen = self.mask.new_ones(B, 1, width, n) if cache.visible is None else cache.visible
        self.visible: Tensor = F.pad(seen, (0, P - n))
        self.place = torch.arange(n, n + width, device=self.mask.device)  # where the next step writes
        self.own = torch.eye(width, dtype=torch.bool, device=self.mask.device)

    def begin_step(self, width: int) -> None:
        assert self.length < self.max_steps, f"the cache was made for {self.max_steps} steps"
        self.visible.index_copy_(3, self.place, self.own.expand(len(self.mask), 1, -1, -1))
        self.self_bias = additive(self.visible, self.cross_bias.dtype)

    def append(self, layer: int, k: Float[Tensor, "B H W K"], v: Float[Tensor, "B H W K"]) -> tuple[Tensor, Tensor]:
        self.keys[layer].index_copy_(2, self.place, k)
        self.values[layer].index_copy_(2, self.place, v)
        return self.keys[layer], self.values[layer]

    def end_step(self, width: int) -> None:
        super().end_step(width)
        self.place += width

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        self.visible.copy_(self.visible.flatten(0, 2).index_select(0, rows).view_as(self.visible))


class CapturedStep:
    """The model and its cache as a step function for `decode`, replayed from the third step on.

    On a device without graphs the same steps are made one by one, which is for tests.
    """

    def __init__(self, model: Transformer, cache: KVCache) -> None:
        self.model, self.cache = model, cache
        self.graph: torch.cuda.CUDAGraph | None = None
        self.has_run = False  # once with these shapes, so that libraries have what they allocate at first

    def __call__(self, ids: Int[Tensor, " R"]) -> Iterable[Tensor]:
        width = len(ids) // len(self.cache.mask)
        if not isinstance(self.cache, StaticCache):
            if self.cache.length == 0:
                return [self._logits(ids)]
            self.cache = StaticCache(self.cache, width)
        if not self.has_run or ids.device.type != "cuda":
            self.has_run = True
            return [self._logits(ids)]
        if self.graph is None:
            self.ids, self.graph = ids.clone(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):  # records and counts a step, but does not make it
                self.logits = self._logits(self.ids)
        else:
            self.ids.copy_(ids)
            self.cache.length, self.cache.num_entries = self.cache.length + 1, self.cache.num_entries + width
        self.graph.replay()
        return [self.logits]

    def _logits(self, ids: Tensor) -> Tensor:
        return self.model.project(self.model.decode_step(ids, self.cache))

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        self.cache.reorder(rows)

    def keep(self, sentences: Int[Tensor, " B2"]) -> None:
        self.cache.keep(sentences)
        self.graph, self.has_run = None, False
