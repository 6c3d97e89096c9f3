"""Blocks of lines where the two sides are out of step, though their counts are equal: a line missing here, one too
many there, and all between is paired wrongly.

Lines are looked at in windows. From each window `Likeness` learns what pairs of this corpus have in common. Where the
pairs as they stand look unlike translations for long enough, the lines near are tried, then all lines of the window;
the likeliest path through in step, shifted by d, and lost tells where a block begins and ends (Viterbi). A block is
reported only when its lines fit the shifted ones much better than chance would have it: a free translation, or a text
like no other in the corpus, is no shift.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from xyd.health.association import Floats
from xyd.health.likeness import Comparison, Likeness
from xyd.health.tokens import Ints, Tokens, tokenise

WINDOW = 32_768
OVERLAP = 4_096
REACH = 8
"""Lines up to so far away are always tried."""
EVIDENCE = 25.0
"""Log-odds for a shift, against the pairs as they stand, from which on it is reported."""
_SUSPICIOUS = 2.5  # log-odds against a run of pairs as they stand, from which on others are tried
_POOR = 1.2  # mean log-odds in step below which the window may be out of step as a whole
_CLEARLY = 0.3  # by which another offset must fit better then
_UNRELATED = 0.15  # mean log-odds below which nothing tells pairs from chance, if so many lines differ:
_MIN_UNRELATED = 500
_CHANGE = 6.0  # log-odds that a change from one offset to another costs
_LOST = -0.2  # log-odds a line that is lost: just worse than chance, so that a doubtful line stays where it is
_PIECE = 48  # lines whose partners are looked for all over the window, together
_LOST_EVIDENCE = 60.0  # log-odds against a run of pairs from which on it is reported without having found an offset
_MAX_PIECES = 24
_MAX_FAR = 8
_MARGIN = 64


@dataclass
class Shift:
    """A run of pairs out of step."""

    first: int
    """Number of its first pair in the corpus, from 1."""
    last: int
    offsets: list[int] = field(default_factory=list)
    """The translation of line n stands in line n + offset; that of most lines first; none where it was not found."""


class Steps:
    """Takes the normalised lines of one corpus in order, in portions; memory is that of one window."""

    def __init__(self, seed: int = 1) -> None:
        self.shifts: list[Shift] = []
        self._seed = seed
        self._start = 0  # number of the first line in the window
        self._src: Tokens | None = None
        self._tgt: Tokens | None = None
        self._likeness: Likeness | None = None
        self._windows = 0

    def add(self, src: list[str], tgt: list[str]) -> None:
        """The next lines of both sides, as many of one as of the other."""
        src_tokens, tgt_tokens = tokenise(src), tokenise(tgt)
        self._src = src_tokens if self._src is None else self._src.join(src_tokens)
        self._tgt = tgt_tokens if self._tgt is None else self._tgt.join(tgt_tokens)
        if len(self._src) >= WINDOW:
            self._look()
            first = len(self._src) - OVERLAP
            self._src, self._tgt = self._src.after(first), self._tgt.after(first)
            self._start += first

    def finish(self) -> list[Shift]:
        """The blocks found, in order."""
        if self._src is not None and (self._windows == 0 or len(self._src) > OVERLAP):
            self._look()
        self._src = self._tgt = None
        return self.shifts

    def _look(self) -> None:
        assert self._src is not None
        assert self._tgt is not None
        # Learn anew at windows 0, 2, 4, 8, …: a corpus may change as it goes on.
        if self._windows != 1 and self._windows & (self._windows - 1) == 0:
            self._likeness, found = learn(self._src, self._tgt, self._seed)
        elif self._likeness is not None:
            found = find_shifts(self._likeness, self._src, self._tgt, learned_here=False)
        else:
            found = [Shift(1, len(self._src))]
        for shift in found:
            self._add(shift)
        self._windows += 1

    def _add(self, shift: Shift) -> None:
        shift.first += self._start
        shift.last += self._start
        if self.shifts and shift.first <= self.shifts[-1].last + 1:  # seen in the window before, at least in part
            before = self.shifts[-1]
            before.last = max(before.last, shift.last)
            before.offsets += [offset for offset in shift.offsets if offset not in before.offsets]
        else:
            self.shifts.append(shift)


def _reach(n: int) -> int:
    return min(REACH, n // 3)


def learn(src: Tokens, tgt: Tokens, seed: int) -> tuple[Likeness | None, list[Shift]]:
    """What tells true pairs of this window from others, and the blocks out of step by it; None where nothing does.

    Most pairs must be in step, or at one other offset. Blocks that were found are left out when it is learned again.
    """
    reach, use = _reach(len(src)), np.ones(len(src), bool)

    def at(offset: int) -> tuple[float, Likeness]:
        likeness = Likeness.learn(src, tgt, use, reach, offset, seed)
        comparison = Comparison(likeness, src, tgt, learned_here=True)
        return float(comparison.odds(np.arange(len(src)), offset).mean()), likeness

    fit, likeness = at(0)
    if fit < _POOR:
        offsets = {-2, -1, 1, 2, _likely_offset(src, tgt)} - {0}
        best, other = max(
            (at(offset) for offset in offsets if abs(offset) <= reach), default=(fit, likeness), key=_first
        )
        if best > fit + _CLEARLY:
            fit, likeness = best, other
        elif fit < _UNRELATED and min(_num_distinct(src), _num_distinct(tgt)) >= _MIN_UNRELATED:
            return None, [Shift(1, len(src))]
    found = find_shifts(likeness, src, tgt, learned_here=True)
    num_found = _num_pairs(found)
    while 0.01 * len(src) < num_found < 0.6 * len(src):
        for shift in found:
            use[shift.first - 1 : shift.last] = False
        _, likeness = at(0)
        found, before = find_shifts(likeness, src, tgt, learned_here=True), num_found
        num_found = _num_pairs(found)
        if num_found < 1.05 * before:
            break
    return likeness, found


def _first(one: tuple[float, Likeness]) -> float:
    return one[0]


def _num_distinct(tokens: Tokens) -> int:
    return len(np.unique(tokens.keys()))


def _num_pairs(shifts: list[Shift]) -> int:
    return sum(shift.last - shift.first + 1 for shift in shifts)


def _likely_offset(src: Tokens, tgt: Tokens) -> int:
    """The offset near that fits the whole window best by what is known before anything is learned."""
    lines = np.arange(len(src))
    comparison = Comparison(Likeness(src, tgt, lines), src, tgt, learned_here=True)
    reach = _reach(len(src))
    comparison.look(-reach, reach)
    return max(range(-reach, reach + 1), key=lambda d: float(comparison.odds(lines, d).sum()))


def find_shifts(likeness: Likeness, src: Tokens, tgt: Tokens, *, learned_here: bool) -> list[Shift]:
    """The blocks out of step in one window, numbered from 1."""
    comparison = Comparison(likeness, src, tgt, learned_here=learned_here)
    in_step = comparison.odds(np.arange(len(src)), 0)
    # The longer the window, the likelier some bad luck in it: the bar rises with the logarithm of its length.
    suspects = _runs(_LOST - in_step, _SUSPICIOUS + np.log(len(src)))
    if not suspects:
        return []
    reach = _reach(len(src))
    comparison.look(-reach, reach)
    near = [0, *(d for d in range(-reach, reach + 1) if d)]
    repeats = _Repeats(src, tgt)
    shifts: list[Shift] = []
    for first, last in _regions(suspects, len(src)):
        lines = np.arange(first, last)
        odds = np.stack([comparison.odds(lines, d) for d in near], axis=1)
        here = [(a, b) for a, b in suspects if first <= a < last]
        far = _far_offsets(comparison, here, odds, first)
        odds = np.column_stack([odds, *(comparison.odds(lines, d) for d in far)])
        repeats.level(odds, lines, near + far)
        weight = repeats.weight(lines)
        table = np.column_stack([odds, np.full(len(lines), _LOST, np.float32)])
        for block in _blocks(_likeliest_path(table), table, near + far, weight):
            block.first, block.last = block.first + first, block.last + first
            shifts.append(block)
    return shifts


class _Repeats:
    """Lines that are the same as others: they fit the translation of any of these equally well."""

    def __init__(self, src: Tokens, tgt: Tokens) -> None:
        self._sides = (src.keys(), tgt.keys())

    def level(self, odds: Floats, lines: Ints, offsets: list[int]) -> None:
        """Let offset and in step be equal for a line whose source or target stands at that offset too."""
        for column, d in enumerate(offsets):
            inside = (lines + d >= 0) & (lines + d < len(self._sides[0]))
            i = lines[inside]
            same = np.zeros(len(lines), bool)
            same[inside] = np.any([side[i] == side[i + d] for side in self._sides], axis=0)
            odds[same, column] = odds[same, 0]

    def weight(self, lines: Ints) -> npt.NDArray[Any]:
        """(lines) one over how often the source or target of each is among them, whichever is more often."""
        counts = []
        for side in self._sides:
            _, group, size = np.unique(side[lines], return_inverse=True, return_counts=True)
            counts.append(size[group])
        return 1 / np.max(counts, axis=0)


def _regions(suspects: list[tuple[int, int]], num_lines: int) -> list[tuple[int, int]]:
    """[first, last) of the suspect runs with some lines around, joined where they touch."""
    regions: list[tuple[int, int]] = []
    for first, last in suspects:
        first, last = max(0, first - _MARGIN), min(num_lines, last + _MARGIN)
        if regions and first <= regions[-1][1]:
            regions[-1] = (regions[-1][0], last)
        else:
            regions.append((first, last))
    return regions


def _runs(gain: Floats, enough: float) -> list[tuple[int, int]]:
    """[first, last) of the runs of lines whose gains add up to `enough`."""
    runs: list[tuple[int, int]] = []
    total, best, start, end = 0.0, 0.0, 0, 0
    for i, value in enumerate([*gain.tolist(), -np.inf]):
        if total <= 0:
            total, best, start = 0.0, 0.0, i
        total += value
        if total > best:
            best, end = total, i + 1
        elif best >= enough and total < best - enough:
            runs.append((start, end))
            total = 0.0
    return runs


def _far_offsets(comparison: Comparison, suspects: list[tuple[int, int]], odds: Floats, start: int) -> list[int]:
    """Offsets at which pieces of the suspect runs find their translations, where nothing near does.

    odds: (lines, offsets) of lines from `start` on, at the offsets near.
    """
    pieces = [
        np.arange(first, min(first + _PIECE, end)) for begin, end in suspects for first in range(begin, end, _PIECE)
    ]
    pieces = [piece for piece in pieces if len(piece) >= _PIECE // 3 and odds[piece - start].sum(0).max() < len(piece)]
    found: Counter[int] = Counter()
    for piece in pieces[:: -(-len(pieces) // _MAX_PIECES) or 1]:
        offset, fit = comparison.best_offset(piece)
        if fit > EVIDENCE / 2:
            found[offset] += len(piece)
    return [offset for offset, _ in found.most_common(_MAX_FAR) if abs(offset) > REACH]


def _likeliest_path(table: Floats) -> Ints:
    """(lines) the state of each line: Viterbi, every change costing the same."""
    n, num_states = table.shape
    back = np.empty((n, num_states), np.int16)
    stay = np.arange(num_states)
    score = table[0].astype(np.float64)
    score[1:] -= _CHANGE
    for i in range(1, n):
        best = int(score.argmax())
        moved = score[best] - _CHANGE
        back[i] = np.where(score >= moved, stay, best)
        score = np.maximum(score, moved) + table[i]
    path = np.empty(n, np.int64)
    path[-1] = score.argmax()
    for i in range(n - 1, 0, -1):
        path[i - 1] = back[i, path[i]]
    return path


def _blocks(path: Ints, table: Floats, offsets: list[int], weight: npt.NDArray[Any]) -> list[Shift]:
    """Runs of lines off the state in step, those with enough evidence that the lines fit where they are shifted to.

    weight: (lines) how much each line counts as evidence.
    """
    blocks: list[Shift] = []
    borders = np.flatnonzero(np.diff((path != 0).astype(np.int8), prepend=0, append=0))
    for first, last in zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True):
        states = path[first:last]
        lines = np.arange(first, last)
        lines_of: Counter[int] = Counter()
        for state in np.unique(states[states < len(offsets)]).tolist():
            chosen = lines[states == state]
            fit, in_step = table[chosen, state] * weight[chosen], table[chosen, 0] * weight[chosen]
            enough = EVIDENCE if abs(offsets[state]) <= REACH else 1.5 * EVIDENCE
            if (fit - in_step).sum() >= enough and fit.sum() >= enough / 4:
                lines_of[offsets[state]] = len(chosen)
        if lines_of.total() < (last - first) / 4:  # the rest is lost: chance finds some offset for a few lines
            lines_of.clear()
            against = table[first:last, 0] @ weight[first:last]
            if against > -_LOST_EVIDENCE or last - first < _PIECE // 2:
                continue
        while first > 0 and table[first - 1, 0] < 0:
            first -= 1
        while last < len(table) and table[last, 0] < 0:
            last += 1
        found = [offset for offset, _ in lines_of.most_common()]
        if blocks and found and blocks[-1].offsets[:1] == found[:1]:
            between = table[blocks[-1].last : first, [0, offsets.index(found[0])]] @ (1, -1)
            if between.sum() < EVIDENCE:  # repeats, which fit either way: one block
                blocks[-1].last = last
                continue
        blocks.append(Shift(first + 1, last, found))
    return blocks
