"""Lengths of both sides and their ratio: histograms, and outliers against the corpus's own spread."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

Place = tuple[str, str, str]
"""Where a pair stands, its source and its target."""

MAX_BARS = 90
RATIO_SLACK = 10
"""Characters added to both lengths before they are divided: short texts are translated more freely."""

_MAX_WAITING = 1_000
_ENOUGH = 100
_ROBUST = 1.4826  # from the median distance to the standard deviation of a normal distribution


@dataclass
class Spread:
    """A histogram of numbers as they come; from it median and spread."""

    low: float
    width: float
    counts: npt.NDArray[np.int64]

    @staticmethod
    def between(low: float, high: float, width: float) -> Spread:
        return Spread(low, width, np.zeros(round((high - low) / width), np.int64))

    def take(self, values: npt.NDArray[Any]) -> None:
        bins = np.clip((values - self.low) / self.width, 0, len(self.counts) - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=len(self.counts))

    @property
    def centres(self) -> Doubles:
        return np.asarray(self.low + self.width * (np.arange(len(self.counts)) + 0.5), np.float64)

    def quantile(self, share: float) -> float:
        """To within the width of a bin; 0 without values."""
        return _quantile(self.centres, self.counts, share)

    def deviation(self) -> float:
        """Standard deviation, by the median distance from the median, so that outliers do not count."""
        distance = np.abs(self.centres - self.quantile(0.5))
        order = np.argsort(distance)
        return max(self.width, _ROBUST * _quantile(distance[order], self.counts[order], 0.5))

    def beyond(self, low: float, high: float) -> int:
        return int(self.counts[(self.centres < low) | (self.centres > high)].sum())


def _quantile(values: Doubles, counts: npt.NDArray[np.int64], share: float) -> float:
    total = np.cumsum(counts)
    return float(values[np.searchsorted(total, share * total[-1])]) if total[-1] else 0.0


class Outliers:
    """Those of a stream of numbers that are far from the rest: how many, and which were the first.

    What is far is known only at the end, so candidates by what was known before wait in a list of limited length.
    """

    def __init__(
        self,
        spread: Spread,
        deviations: float,
        at_least: float,
        *,
        among_few: float = math.inf,
        only_above: bool = False,
    ) -> None:
        """Far: more than so many deviations from the median, and `at_least` in any case; `among_few`, among so few
        that their spread is not known."""
        self.spread = spread
        self._deviations, self._at_least, self._only_above = deviations, at_least, only_above
        self._among_few = among_few
        self._waiting: list[tuple[float, Place]] = []

    def limits(self) -> tuple[float, float]:
        """What is below the first or above the second is far; among few, only what is very far."""
        middle = self.spread.quantile(0.5)
        room = max(self._deviations * self.spread.deviation(), self._at_least)
        if self._are_few():
            room = max(room, self._among_few)
        return -math.inf if self._only_above else middle - room, middle + room

    def _are_few(self) -> bool:
        return bool(self.spread.counts.sum() < _ENOUGH)

    def take(self, values: Doubles, place: Callable[[int], Place]) -> None:
        """The next numbers; `place(i)` tells where number i of them stands."""
        self.spread.take(values)
        low, high = self.limits()
        if self._are_few():
            low = high = self.spread.quantile(0.5)
        slack = 0.2 * (high - self.spread.quantile(0.5))
        candidates = np.flatnonzero((values < low + slack) | (values > high - slack))
        for i in candidates[: max(0, _MAX_WAITING - len(self._waiting))].tolist():
            self._waiting.append((float(values[i]), place(i)))

    def found(self) -> tuple[int, list[Place]]:
        """How many there are, and the first of them, not all."""
        low, high = self.limits()
        first = [place for value, place in self._waiting if not low <= value <= high]
        return max(len(first), self.spread.beyond(low, high)), first


def bars(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Counts of lengths by bar of the histogram: three bars for each doubling."""
    return np.bincount(np.floor(3 * np.log2(lengths + 1)).astype(np.int64), minlength=MAX_BARS)[:MAX_BARS]


def bar_starts(num_bars: int) -> list[int]:
    """The shortest length that belongs to each bar."""
    return [math.ceil(2 ** (bar / 3) - 1 - 1e-9) for bar in range(num_bars)]
