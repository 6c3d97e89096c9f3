"""The gradient of one step: forward and backward of this rank's micro-batches, in halves where memory is too little.

Everything is a sum, so a micro-batch and its two halves give the same (but for dropout, which is drawn anew). Dropout
is seeded by (seed, step, first row) of what is computed: it does not depend on the number of ranks and has no state.
"""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from xyd import distributed, memory
from xyd.batching import Split, extremes, make_batch, shape, share
from xyd.errors import XydError
from xyd.loss import token_loss
from xyd.model import Transformer, seed_dropout
from xyd.optim import Gradients


class Sums(NamedTuple):
    """What all ranks add up once a step, in the places behind the gradient (`Gradients.extras`)."""

    loss: float = 0.0  # with label smoothing
    nll: float = 0.0  # plain, in nats
    num_padded: float = 0.0  # places of tgt_out, padding included
    data_seconds: float = 0.0  # waited for batches
    halved: float = 0.0  # micro-batches that did not fit
    failed: float = 0.0  # ranks on which a single pair did not fit
    seconds: float = 0.0  # of rank 0's clock, since the step before
    interrupted: float = 0.0  # ranks that have had SIGINT
    terminated: float = 0.0  # and SIGTERM


assert len(Sums._fields) == Gradients.EXTRAS


class StepGradient:
    """Adds up the gradient of a step's micro-batches in `gradients`, and beside it the first three of `Sums`.

    `data_seconds` is how long the last call waited for its batches, `halved` says in words which micro-batches did not
    fit in it. What is as large as one of them is halved beforehand from then on.
    """

    def __init__(
        self,
        gradients: Gradients[Transformer],
        split: Split,
        start_ids: np.ndarray,
        label_smoothing: float,
        seed: int,
    ) -> None:
        self.gradients, self.split, self.start_ids = gradients, split, start_ids
        self.label_smoothing, self.seed = label_smoothing, seed
        self.device = gradients.buffer.device
        self.too_large = math.inf  # padded tokens of the smallest micro-batch that did not fit
        self.halved: list[str] = []
        self.data_seconds = 0.0

    def num_tokens(self, micro_batches: Sequence[np.ndarray]) -> int:
        """Real target tokens, EOS included."""
        return sum(int(self.split.tgt_lengths[rows].sum()) + len(rows) for rows in micro_batches)

    def padded_tokens(self, rows: np.ndarray) -> int:
        """B·(S+T), what `train.max_tokens` bounds."""
        B, S, T = shape(self.split, rows)
        return B * (S + T)

    def compute(self, micro_batches: list[np.ndarray], step: int) -> None:
        """The gradient of this rank's share of a step, divided by the real target tokens of the whole step.

        Raises XydError where a single pair does not fit into memory.
        """
        costs = [self.padded_tokens(rows) for rows in micro_batches]
        own = [micro_batches[i] for i in share(costs, distributed.world_size())[distributed.rank()]]
        self._compute(own, self.num_tokens(micro_batches), step)

    def rehearse(self, steps: Sequence[Sequence[np.ndarray]]) -> tuple[memory.Usage, list[tuple[int, int, int]]]:
        """Step 0: the largest micro-batch of a plan and the one with the longest row, computed and forgotten.

        Returns the memory they took, and their shapes (B,S,T). Raises XydError as `compute` does.
        """
        tried = extremes(self.split, steps)
        self.gradients.zero()  # makes its pages real, so that they do not count as growth
        with memory.usage(self.device) as used:
            self._compute(tried, self.num_tokens(tried), step=0)
        self.gradients.zero()
        return used, [shape(self.split, rows) for rows in tried]

    def _compute(self, parts: list[np.ndarray], num_tokens: int, step: int) -> None:
        """All parts; one that does not fit is halved, and all are computed again: some of it may be in the sum."""
        self.halved = []
        while True:
            parts = [piece for rows in parts for piece in self._pieces(rows)]
            rows = self._try(parts, num_tokens, step)
            if rows is None:
                return
            B, S, T = shape(self.split, rows)
            self.halved.append(f"{B} pairs of {S} + {T} tokens")
            self.too_large = min(self.too_large, self.padded_tokens(rows))
            if B == 1:
                raise XydError(
                    f"step {step}: a single pair of {S} + {T} tokens (pair_id {self.split.pair_id[rows][0]}) does not "
                    "fit into memory. Lower model.max_length, which drops such pairs and counts them, or take a "
                    "smaller model; a lower train.max_tokens helps only where there is more than one pair."
                )
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _pieces(self, rows: np.ndarray) -> list[np.ndarray]:
        """`rows`, cut in halves until they are smaller than what has been found too large."""
        if len(rows) == 1 or self.padded_tokens(rows) < self.too_large:
            return [rows]
        return [piece for half in np.array_split(rows, 2) for piece in self._pieces(half)]

    def _try(self, parts: list[np.ndarray], num_tokens: int, step: int) -> np.ndarray | None:
        """Compute all parts from zero; the first that does not fit, None where all do."""
        g = self.gradients
        if g.work is g.model or not parts:
            g.zero()
        else:
            g.extras.zero_()  # the first part overwrites the rest
            g.work.zero_grad()  # of a part that was broken off
        g.work.train()
        self.data_seconds = 0.0
        for number, rows in enumerate(parts):
            try:
                self._add(rows, num_tokens, step, is_first=number == 0)
            except (RuntimeError, MemoryError) as e:
                if not memory.is_too_little(e):
                    raise
                return rows
        return None

    def _add(self, rows: np.ndarray, num_tokens: int, step: int, is_first: bool) -> None:
        """Forward and backward of one micro-batch: teacher forcing, the loss a sum divided by `num_tokens`."""
        g = self.gradients
        began = time.perf_counter()
        batch = make_batch(self.split, rows, self.start_ids).to(self.device)
        self.data_seconds += time.perf_counter() - began
        seed_dropout(mixed(self.seed, step, int(rows[0])))
        states = g.work(batch.src, batch.src_mask, batch.tgt_in)
        loss = token_loss(states, batch.tgt_out, g.work.output, self.label_smoothing)
        (loss.loss_sum / num_tokens).backward()
        g.collect(is_first)
        num_padded = loss.nll_sum.new_tensor(batch.tgt_out.numel())
        g.extras[:3] += torch.stack([loss.loss_sum.detach(), loss.nll_sum, num_padded])


def mixed(*numbers: int) -> int:
    """A seed below 2⁶³ from several numbers; other numbers give another seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
