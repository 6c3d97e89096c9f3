"""Subword regularisation: rows of the train split whose segmentation is drawn anew in every epoch.

Kudo 2018 (arXiv:1804.10959), Provilkov et al. 2020 (arXiv:1910.13267). The text comes back from the stored ids, which
decode to it exactly. What is drawn depends on (seed, epoch, row) alone: not on the number of workers, on how rows are
batched, or on where a run was stopped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xyd.batching import Split
from xyd.config import UNK_ID
from xyd.errors import ConfigError
from xyd.tokenizer import Tokenizer

MEASURED_ROWS = 500
"""Rows that are drawn once to see how much longer drawn segmentations are."""
FITTING_SHARE = 0.98
"""Of them, this share is within the bounds that batches are planned with."""

Sides = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


class SampledSplit:
    """A prepared split with segmentations drawn at random.

    Batches are planned with `longest_src`, `longest_tgt`, which no row ever exceeds: a drawn segmentation that is
    longer gives way to the stored one (`num_stored` counts them), so every budget in tokens holds. `draw` fixes the
    segmentation of some rows; `src_lengths`, `tgt_lengths` and the ids are those drawn last. Before the first draw a
    row is as long as it can become, so that the rehearsal of a run meets the largest batch.
    """

    def __init__(self, split: Split, tokenizer: Tokenizer, alpha: float, max_ids: int, seed: int) -> None:
        """Raises ConfigError if the installed SentencePiece does not draw the same from the same seed."""
        self._split, self._tokenizer, self._alpha, self._seed = split, tokenizer, alpha, seed
        self.direction, self.pair_id = split.direction, split.pair_id
        self._drawn: dict[int, Sides] = {}
        self.num_stored = 0
        rows = np.random.default_rng(seed).permutation(len(split.pair_id))[:MEASURED_ROWS]
        measured = [self._draw_row(0, row) for row in rows.tolist()]
        self._check()
        ratios = [
            (len(side) + 1) / (len(stored) + 1)
            for row, sides in zip(rows.tolist(), measured, strict=True)
            for side, stored in zip(sides, (split.src_ids(row), split.tgt_ids(row)), strict=True)
        ]
        bound = max(1.0, float(np.quantile(ratios, FITTING_SHARE)))
        self.longest_src, self.longest_tgt = (
            np.maximum(lengths, np.minimum(np.ceil((lengths + 1) * bound), max_ids)).astype(np.int32)
            for lengths in (split.src_lengths, split.tgt_lengths)
        )
        self._bound, self._growth = bound, float(np.mean(ratios))
        self.src_lengths, self.tgt_lengths = self.longest_src.copy(), self.longest_tgt.copy()

    @property
    def slack(self) -> float:
        """How many times as long as what is drawn on average the planned lengths are."""
        return self._bound / self._growth

    def describe(self) -> str:
        """What sampling does to the lengths, in one line."""
        return (
            f"subword sampling, alpha {self._alpha:g}: segmentations are {self._growth:.2f} times as long on average; "
            f"batches have room for {self._bound:.2f} times, what is longer keeps its best segmentation and is counted"
        )

    def _check(self) -> None:
        """That drawing depends on the seed alone."""
        texts = [f"{language} {number}" for number, language in enumerate(self._tokenizer.languages)] * 8
        first = self._tokenizer.sample(texts, self._alpha, 1)
        self._tokenizer.sample(texts, self._alpha, 2)
        if self._tokenizer.sample(texts, self._alpha, 1) != first:
            raise ConfigError(
                "train.subword_sampling: the installed sentencepiece draws other segmentations from the same seed, so "
                "the run could not be repeated; install another version, or set train.subword_sampling to null"
            )

    def draw(self, epoch: int, rows: npt.NDArray[np.int64]) -> None:
        """Draw the segmentation of these rows; what was drawn before is forgotten."""
        self._drawn, self.num_stored = {}, 0
        for row in rows.tolist():
            src, tgt = self._draw_row(epoch, row)
            if len(src) > self.longest_src[row] or len(tgt) > self.longest_tgt[row]:
                src, tgt = self._split.src_ids(row), self._split.tgt_ids(row)
                self.num_stored += 1
            self._drawn[row] = src, tgt
            self.src_lengths[row], self.tgt_lengths[row] = len(src), len(tgt)

    @property
    def num_drawn(self) -> int:
        """Rows of the last draw, those that kept their stored segmentation among them."""
        return len(self._drawn)

    def _draw_row(self, epoch: int, row: int) -> Sides:
        stored = self._split.src_ids(row), self._split.tgt_ids(row)
        if any((side == UNK_ID).any() for side in stored):  # their text is lost
            return stored
        texts = [self._tokenizer.decode(side.tolist()) for side in stored]
        seed = int(np.random.SeedSequence((self._seed, epoch, row)).generate_state(1)[0])
        src, tgt = self._tokenizer.sample(texts, self._alpha, seed)
        return np.array(src, np.int32), np.array(tgt, np.int32)

    def src_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare source ids as drawn last."""
        drawn = self._drawn.get(row)
        return drawn[0] if drawn else np.resize(self._split.src_ids(row), self.src_lengths[row])

    def tgt_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare target ids as drawn last."""
        drawn = self._drawn.get(row)
        return drawn[1] if drawn else np.resize(self._split.tgt_ids(row), self.tgt_lengths[row])
