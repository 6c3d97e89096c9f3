"""How often each direction and corpus is seen in an epoch: weights, caps and temperature.

The rows of one direction that come from one corpus are a cell. Without any of the three an epoch is every row once.
A weight counts the rows of a corpus as that many; with temperature T the share of a direction is proportional to its
count to the power 1/T (Arivazhagan et al. 2019, arXiv:1907.05019), so that T > 1 shows small directions more often; a
cap bounds a cell. The size of the epoch stays what the weights make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cell:
    """Rows of one direction and corpus, of which `quota` are seen in each epoch."""

    direction: int
    corpus: int
    rows: Rows
    quota: int


class Mixture:
    """Which rows of a split make up an epoch."""

    def __init__(
        self,
        direction: npt.NDArray[np.integer],
        corpus: npt.NDArray[np.integer],
        weights: Sequence[float],
        caps: Sequence[int | None],
        temperature: float,
        seed: int,
    ) -> None:
        """`direction`, `corpus` (N,): of each row; `weights`, `caps`: of each corpus."""
        self.seed, self.num_rows = seed, len(direction)
        limits = np.array([np.inf if cap is None else cap for cap in caps], np.float64)
        number = direction.astype(np.int64) * len(weights) + corpus
        sizes = np.bincount(number)
        present = np.flatnonzero(sizes)
        sizes = sizes[present]
        directions, corpora = present // len(weights), present % len(weights)
        counts = np.minimum(sizes * np.asarray(weights, np.float64)[corpora], limits[corpora])
        totals = np.bincount(directions, counts, minlength=int(directions.max(initial=-1)) + 1)
        powers = np.where(totals > 0, totals, 1.0) ** (1 / temperature) * (totals > 0)
        shares = powers / max(powers.sum(), np.finfo(float).tiny)
        factors = shares * totals.sum() / np.where(totals > 0, totals, 1.0)
        quotas = np.minimum(np.floor(counts * factors[directions] + 0.5), limits[corpora]).astype(np.int64)
        self.is_plain = bool((quotas == sizes).all())
        self.cells = [
            Cell(int(d), int(c), np.flatnonzero(number == n) if not self.is_plain else np.zeros(0, np.int64), int(q))
            for d, c, n, q in zip(directions, corpora, present, quotas, strict=True)
        ]
        self.sizes = sizes.tolist()

    @property
    def num_seen(self) -> int:
        """Rows of an epoch, those seen twice counted twice."""
        return sum(cell.quota for cell in self.cells)

    def rows(self, epoch: int) -> Rows | None:
        """The rows of an epoch, in no useful order; None = every row once. From the seed and the epoch alone.

        A cell is gone through in shuffled passes, one after the other, and each epoch takes up where the one before
        left off: no row is seen a second time in the running before all others of its cell have been seen.
        """
        if self.is_plain:
            return None
        return np.concatenate([np.zeros(0, np.int64), *(self._drawn(i, epoch) for i in range(len(self.cells)))])

    def _drawn(self, index: int, epoch: int) -> Rows:
        cell = self.cells[index]
        size = len(cell.rows)
        position, end = epoch * cell.quota, (epoch + 1) * cell.quota
        parts = [np.zeros(0, np.int64)]
        while position < end:
            turn, start = divmod(position, size)
            order = np.random.default_rng([self.seed, cell.direction, cell.corpus, turn]).permutation(size)
            parts.append(cell.rows[order[start : start + end - position]])
            position += len(parts[-1])
        return np.concatenate(parts)

    def table(self, directions: Sequence[str], corpora: Sequence[str]) -> list[str]:
        """Lines for people: rows of each direction, those seen in an epoch, their share; then by corpus."""
        total = max(1, self.num_seen)
        lines = []
        for number, name in enumerate(directions):
            own = [(cell, size) for cell, size in zip(self.cells, self.sizes, strict=True) if cell.direction == number]
            seen, rows = sum(cell.quota for cell, _ in own), sum(size for _, size in own)
            lines.append(f"  {name}: {rows:,} rows, {seen:,} seen an epoch ({100 * seen / total:.1f}%)")
            if len(corpora) > 1:
                lines += [f"    {corpora[cell.corpus]}: {size:,} rows, {cell.quota:,} seen" for cell, size in own]
        return lines


class Lengths(Protocol):
    """What is needed of corpus.PreparedSplit."""

    tgt_lengths: npt.NDArray[np.int32]
    direction: npt.NDArray[np.int16]


def shares(split: Lengths, directions: Sequence[str], steps: Sequence[Sequence[Rows]]) -> dict[str, float]:
    """`share/en-zh`: that direction's share of the target tokens of these steps; nothing where there is but one."""
    if len(directions) < 2 or not steps:
        return {}
    rows = np.concatenate([batch for step in steps for batch in step])
    tokens = np.bincount(split.direction[rows], split.tgt_lengths[rows] + 1, minlength=len(directions))
    return {f"share/{name}": float(share) for name, share in zip(directions, tokens / tokens.sum(), strict=True)}
