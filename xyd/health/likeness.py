"""How much likelier line i + d is the translation of line i than some other line near it: log-odds of a pair.

A logistic regression on a few marks of a translation. Its weights start from what many corpora have in common and are
fitted to the corpus at hand: its pairs as they stand, against each source line with the lines around its translation.
So what tells nothing here (lengths, in a corpus sorted by length) gets no weight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from xyd.health.association import Association, Floats
from xyd.health.tokens import Hashes, Ints, Mask, Tokens, distinct, ranges

MAX_ODDS = 3.0
"""Log-odds of one pair are cut to this: no single line is proof."""

# The marks: association of the words; shared names and numbers; numbers on both sides, none shared; numbers on one
# side only; squared distance from the usual ratio of lengths; same end or another; and a constant.
_PRIOR = np.array([3.0, 5.0, 1.5, 0.3, 0.5, 0.7, 0.0])
_PRIOR_STRENGTH = np.array([0.5, 0.5, 2.0, 4.0, 4.0, 4.0, 1.0])
_HIGHEST = np.array([15, 15, 6, 6, 2, 3, np.inf])
_FOLD_LINES = 64
_LINES_FOR_ASSOCIATION = 300
_FREQUENT = 0.1  # share of lines above which a token is no name or number worth comparing


class Likeness:
    """What tells true pairs of a corpus from others; a `Comparison` applies it to any window of lines."""

    def __init__(self, src: Tokens, tgt: Tokens, lines: Ints, offset: int = 0) -> None:
        """What is known before anything is learned, and the usual ratio of lengths at this offset."""
        ratio = tgt.log_length[lines + offset] - src.log_length[lines]
        self.usual = float(np.median(ratio)) if len(lines) else 0.0
        self.spread = max(0.1, 1.4826 * float(np.median(np.abs(ratio - self.usual)))) if len(lines) else 1.0
        self.weights = _PRIOR.copy()
        self.associations: list[Association] = []

    @staticmethod
    def learn(src: Tokens, tgt: Tokens, use: Mask, reach: int, offset: int, seed: int) -> Likeness:
        """From lines i of `src` with `use[i]`, and line i + offset of `tgt`.

        reach: lines so far from the true one, and nearer, are those it must be told from.
        """
        lines = np.flatnonzero(use)
        lines = lines[(lines + offset >= 0) & (lines + offset < len(tgt))]
        self = Likeness(src, tgt, lines, offset)
        if len(lines) >= _LINES_FOR_ASSOCIATION:
            fold = _folds(len(src))
            self.associations = [Association(src, tgt, use & (fold != k), offset, seed) for k in (0, 1)]
        window = Comparison(self, src, tgt, learned_here=True)
        away = np.array([d for d in range(-reach, reach + 1) if d], np.int64)
        chosen = np.random.default_rng(seed).permutation(away)[: max(2, 400 // max(1, len(lines)))]
        if len(chosen):
            false = np.concatenate([window.marks(lines, offset + int(d)) for d in chosen])
            self.weights = _fit(window.marks(lines, offset), false)
        return self


class Comparison:
    """Any line of `src` against any line of `tgt` of one window."""

    def __init__(self, likeness: Likeness, src: Tokens, tgt: Tokens, *, learned_here: bool) -> None:
        """learned_here: the likeness comes from these very lines, so each must be judged by the half it was not in."""
        self._likeness, self._src, self._tgt = likeness, src, tgt
        self._fold = _folds(len(src))
        used = likeness.associations if learned_here else likeness.associations[:1]
        self._src_vectors = [association.src(src) for association in used]
        self._tgt_vectors = [association.tgt(tgt) for association in used]
        self._share()
        self._looked: dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}

    def _share(self) -> None:
        """Find the names and numbers: tokens on both sides of the window, and rare, with their weights."""
        n = len(self._src) + len(self._tgt)
        sides = (self._src, self._tgt)
        # Counted in cells of the first bits of the hash: quick, and rarely are two tokens in one cell.
        bits = min(20, 6 + int(np.log2(1 + sum(len(tokens.hash) for tokens in sides))))
        cells = [tokens.hash >> np.uint32(32 - bits) for tokens in sides]
        counts = [np.bincount(cell, minlength=1 << bits) for cell in cells]
        total = counts[0] + counts[1]
        weights = np.log(n / np.maximum(total, 1))
        weights[(total > max(4, _FREQUENT * n)) | (counts[0] == 0) | (counts[1] == 0)] = 0
        self._names = []
        for tokens, cell in zip(sides, cells, strict=True):
            is_number = (tokens.hash & np.uint32(1)).astype(bool)
            weight = np.where(is_number, np.maximum(weights[cell], 0.7), weights[cell])
            kept = np.flatnonzero(weight > 0)
            line, hashes = distinct(tokens.line[kept], tokens.hash[kept])
            weight = weights[hashes >> np.uint32(32 - bits)]
            weight = np.where(hashes & np.uint32(1), np.maximum(weight, 0.7), weight)
            self._names.append(_Names(line, hashes, weight, len(tokens)))

    def look(self, first: int, last: int) -> None:
        """Find what all pairs of lines (i, i + d), d from first to last, share, at once."""
        src, tgt = self._names
        n, width = len(self._src), last - first + 1
        lo = np.searchsorted(tgt.keys, src.key_at(first))
        hi = np.searchsorted(tgt.keys, src.key_at(last + 1))
        counts = np.maximum(hi - lo, 0)
        of = np.repeat(np.arange(len(src.line)), counts)
        cell = src.line[of] * width + tgt.line[ranges(lo, counts)] - src.line[of] - first
        shared = np.bincount(cell, src.weight[of], n * width).reshape(n, width)
        numbers = np.bincount(cell, src.is_number[of], n * width).reshape(n, width)
        self._looked.update({first + k: (shared[:, k], numbers[:, k]) for k in range(width)})

    def marks(self, lines: Ints, d: int) -> npt.NDArray[np.float64]:
        """(those of lines with a line i + d, marks) of the pairs (i, i + d)."""
        i = lines[(lines + d >= 0) & (lines + d < len(self._tgt))]
        marks = self._marks_at(i, d)
        return np.stack([np.broadcast_to(mark, len(i)) for mark in marks], axis=1).astype(np.float64)

    def odds(self, lines: Ints, d: int) -> Floats:
        """(lines) log-odds of the pairs (i, i + d), cut to ±MAX_ODDS; -MAX_ODDS where there is no line i + d."""
        odds = np.full(len(lines), -MAX_ODDS, np.float32)
        inside = (lines + d >= 0) & (lines + d < len(self._tgt))
        odds[inside] = self._odds(self._marks_at(lines[inside], d))
        return odds

    def best_offset(self, lines: Ints) -> tuple[int, float]:
        """The d at which `lines`, not very many, fit lines i + d best, and the sum of their log-odds there."""
        src, tgt = self._names
        n = len(self._tgt)
        wanted = np.flatnonzero(np.isin(src.line, lines))
        lo, hi = np.searchsorted(tgt.keys, src.key_at(-n)[wanted]), np.searchsorted(tgt.keys, src.key_at(n)[wanted])
        counts = hi - lo
        of = np.repeat(wanted, counts)
        cell = np.searchsorted(lines, src.line[of]) * n + tgt.line[ranges(lo, counts)]
        shape = (len(lines), n)
        shared = np.bincount(cell, src.weight[of], len(lines) * n).reshape(shape).astype(np.float32)
        numbers = np.bincount(cell, src.is_number[of], len(lines) * n).reshape(shape).astype(np.float32)
        if self._src_vectors:
            alike: Floats | float = self._src_vectors[0][lines] @ self._tgt_vectors[0].T
        else:
            alike = 0.0
        odds = self._odds(self._marks(lines[:, None], np.arange(n)[None], alike, shared, numbers))
        sums = np.full(2 * n, -MAX_ODDS * len(lines))  # of every d, from -n; a line without partner counts as unlike
        for row, line in zip(odds, lines.tolist(), strict=True):
            sums[n - line : 2 * n - line] += row + MAX_ODDS
        best = int(sums.argmax())
        return best - n, float(sums[best])

    def _marks_at(self, i: Ints, d: int) -> list[Any]:
        if d not in self._looked:
            self.look(d, d)
        shared, numbers = (found[i] for found in self._looked[d])
        j = i + d
        if not self._src_vectors:
            return self._marks(i, j, 0.0, shared, numbers)
        alike = np.einsum("ir,ir->i", self._src_vectors[0][i], self._tgt_vectors[0][j])
        if len(self._src_vectors) > 1:
            other = np.flatnonzero(self._fold[i] == 1)
            alike[other] = np.einsum("ir,ir->i", self._src_vectors[1][i[other]], self._tgt_vectors[1][j[other]])
        return self._marks(i, j, alike, shared, numbers)

    def _marks(self, i: Ints, j: Ints, alike: Floats | float, shared: Any, numbers: Any) -> list[Any]:
        src, tgt = self._names
        src_numbers, tgt_numbers = src.has_number[i], tgt.has_number[j]
        src_end, tgt_end = self._src.end[i], self._tgt.end[j]
        z = (self._tgt.log_length[j] - self._src.log_length[i] - self._likeness.usual) / self._likeness.spread
        return [
            alike,
            shared / np.sqrt(np.maximum(src.total[i] * tgt.total[j], 1)),
            np.where(src_numbers & tgt_numbers & (numbers == 0), -1.0, 0.0),
            np.where(src_numbers != tgt_numbers, -1.0, 0.0),
            -np.minimum(z * z, 9) / 2,
            np.where((src_end > 1) | (tgt_end > 1), np.where(src_end == tgt_end, 1.0, -1.0), 0.0),
            1.0,
        ]

    def _odds(self, marks: list[Any]) -> Floats:
        odds = sum(weight * mark for weight, mark in zip(self._likeness.weights.tolist(), marks, strict=True))
        return np.clip(odds, -MAX_ODDS, MAX_ODDS).astype(np.float32)


class _Names:
    """The names and numbers of one side, each once a line."""

    def __init__(self, line: Ints, hashes: Hashes, weight: npt.NDArray[np.float64], num_lines: int) -> None:
        self.keys = (hashes.astype(np.uint64) << np.uint64(32)) | line.astype(np.uint64)
        order = np.argsort(self.keys, kind="stable")
        self.keys, self.line, self.weight = self.keys[order], line[order], weight[order]
        self._hashes = hashes[order].astype(np.uint64) << np.uint64(32)
        self.is_number = (hashes[order] & np.uint32(1)).astype(np.float64)
        self.total = np.bincount(line, weight, num_lines)
        self.has_number = np.bincount(self.line, self.is_number, num_lines) > 0

    def key_at(self, offset: int) -> npt.NDArray[np.uint64]:
        """Keys of the same tokens so many lines further."""
        return self._hashes | np.maximum(self.line + offset, 0).astype(np.uint64)


@lru_cache(maxsize=4)
def _folds(n: int) -> Ints:
    """(n) 0 or 1: lines of one fold are judged by what was learned from the other."""
    return (np.arange(n) // _FOLD_LINES) % 2


def _fit(true: npt.NDArray[np.float64], false: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weights of largest posterior, the true and the false counting as much; Newton's method."""
    weights = _PRIOR.copy()
    if not len(true) or not len(false):
        return weights
    x = np.concatenate([true, false])
    y = np.concatenate([np.ones(len(true)), np.zeros(len(false))])
    share = np.concatenate([np.ones(len(true)), np.full(len(false), len(true) / len(false))])

    def regret(weights: npt.NDArray[np.float64]) -> float:
        loss = share @ np.logaddexp(0, np.where(y == 1, -1, 1) * (x @ weights))
        return float(loss + _PRIOR_STRENGTH @ (weights - _PRIOR) ** 2 / 2)

    now = regret(weights)
    for _ in range(12):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (share * (p - y)) + _PRIOR_STRENGTH * (weights - _PRIOR)
        curvature = (x * (share * p * (1 - p))[:, None]).T @ x + np.diag(_PRIOR_STRENGTH)
        step = np.linalg.solve(curvature, gradient)
        while (then := regret(weights - step)) > now and np.abs(step).max() > 1e-3:
            step = step / 2
        if now - then < 1e-3:
            break
        weights, now = weights - step, then
    weights[:-1] = np.maximum(weights[:-1], 0)
    return np.minimum(weights, _HIGHEST)
