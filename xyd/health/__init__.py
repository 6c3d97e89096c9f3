"""Health report of a corpus: what is wrong with it, how often, and where first.

`Health` takes the pairs of one corpus as they are read, in order, and keeps counts, the first places and a few
examples, in bounded memory. Each way of being wrong is one module: `signs` of a pair by itself, `raw` characters,
`lengths` and their ratio against the corpus's own, `repeats`, and `steps`: blocks where the sides are out of step.
`table` and `page` show what was found.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

import numpy as np

from xyd.health.findings import MAX_EXAMPLES, MAX_ORIGINS, Finding, Findings, example, in_order, row
from xyd.health.lengths import MAX_BARS, RATIO_SLACK, Outliers, Place, Spread, bar_starts, bars
from xyd.health.raw import raw_faults
from xyd.health.repeats import Repeats
from xyd.health.signs import SIGNS, finder
from xyd.health.steps import Shift, Steps
from xyd.text import SentencePair

__all__ = ["SIGNS", "Health"]

_PORTION = 4096
_LONGEST = 1 << 14  # characters; median and p99 do not tell longer texts apart
_TWENTY_TIMES = math.log(20)


class Health:
    """The report on one corpus; pairs of several languages are told apart."""

    def __init__(self, name: str, *, repeats: bool = True) -> None:
        """`repeats`: look for repeated pairs, which takes 8 bytes a pair."""
        self.name = name
        self._repeats = repeats
        self._parts: dict[tuple[str, str], _LanguagePair] = {}

    def add(self, pair: SentencePair, src: str, tgt: str) -> None:
        """The next pair as it was read, with both sides normalised."""
        part = self._parts.get((pair.src_lang, pair.tgt_lang))
        if part is None:
            part = self._parts[pair.src_lang, pair.tgt_lang] = _LanguagePair(
                pair.src_lang, pair.tgt_lang, self._repeats
            )
        part.add(pair, src, tgt)

    def pass_over(self, src_lang: str, tgt_lang: str, count: int) -> None:
        """The next pairs, of which only the number is known: nothing is found in them, and the report says so."""
        part = self._parts.get((src_lang, tgt_lang))
        if part is None:
            part = self._parts[src_lang, tgt_lang] = _LanguagePair(src_lang, tgt_lang, self._repeats)
        part.num_passed_over += count

    def finish(self) -> dict[str, Any]:
        """The report, fit for JSON: `corpus`, and of each pair of `languages` the `findings` and what was measured."""
        return {"corpus": self.name, "languages": [part.finish() for part in self._parts.values()]}


class _LanguagePair:
    def __init__(self, src_lang: str, tgt_lang: str, repeats: bool) -> None:
        self.src_lang, self.tgt_lang = src_lang, tgt_lang
        self.num_passed_over = 0
        self._find = finder(src_lang, tgt_lang)
        self._waiting: list[tuple[SentencePair, str, str]] = []
        self._num_looked_at = 0
        self._findings = Findings()
        self._repeats = Repeats() if repeats else None
        self._steps = Steps()
        self._origins = _Origins()
        self._bars = np.zeros((2, MAX_BARS), np.int64)
        self._longest = [0, 0]
        self._lengths = [Spread.between(0, _LONGEST, 1) for _ in range(2)]
        self._both = Outliers(Spread.between(0, 15, 0.05), 5.0, 1.5, among_few=_TWENTY_TIMES, only_above=True)
        self._ratio = Outliers(Spread.between(-6, 6, 0.02), 6.0, 0.8, among_few=_TWENTY_TIMES)

    def add(self, pair: SentencePair, src: str, tgt: str) -> None:
        self._waiting.append((pair, src, tgt))
        if len(self._waiting) >= _PORTION:
            self._take()

    def _take(self) -> None:
        rows = self._waiting
        if not rows:
            return
        srcs, tgts = [src for _, src, _ in rows], [tgt for _, _, tgt in rows]
        self._steps.add(srcs, tgts)
        self._measure(rows, srcs, tgts)
        self._origins.add([pair.origin for pair, _, _ in rows])
        for pair, src, tgt in rows:
            self._look_at(pair, src, tgt)
        if self._repeats is not None:
            for _, src, tgt in rows:
                self._repeats.add(src, tgt)
        self._waiting = []

    def _look_at(self, pair: SentencePair, src: str, tgt: str) -> None:
        self._num_looked_at += 1
        if pair.flaw is not None:
            self._findings.add(pair.flaw, (pair.origin, "", ""))
            return
        if not src or not tgt:
            self._findings.add("empty", (pair.origin, src, tgt))
            return
        names = self._find(src, tgt)
        if src != pair.src or tgt != pair.tgt:
            faults = {*raw_faults(pair.src), *raw_faults(pair.tgt)}
            # What normalising drops, such as C1 controls, may be what gives mojibake away.
            if "control" in faults and "mojibake" not in names:
                names += [name for name in self._find(pair.src, pair.tgt) if name == "mojibake"]
            names += faults
        for name in names:
            self._findings.add(name, (pair.origin, src, tgt))

    def _measure(self, rows: list[tuple[SentencePair, str, str]], srcs: list[str], tgts: list[str]) -> None:
        lengths = np.array([[*map(len, srcs)], [*map(len, tgts)]])
        kept = np.flatnonzero(lengths.min(0) > 0)
        lengths = lengths[:, kept]
        if not len(kept):
            return

        def place(i: int) -> Place:
            pair, src, tgt = rows[kept[i]]
            return pair.origin, src, tgt

        for side in (0, 1):
            self._bars[side] += bars(lengths[side])
            self._longest[side] = max(self._longest[side], int(lengths[side].max()))
            self._lengths[side].take(lengths[side])
        self._both.take(np.log1p(lengths.sum(0)), place)
        self._ratio.take(np.diff(np.log(lengths + RATIO_SLACK), axis=0)[0], place)

    def finish(self) -> dict[str, Any]:
        self._take()
        rows = self._findings.rows()
        rows += self._outliers()
        if self._repeats is not None:
            for name, (count, numbers) in self._repeats.found(MAX_ORIGINS).items():
                if count:
                    rows.append(row(name, count, [self._origins.of(number) for number in numbers], []))
        shifts = self._steps.finish()
        if shifts:
            first = [f"{self._origins.of(s.first - 1)} to {self._origins.of(s.last - 1)}" for s in shifts]
            rows.append(row("shifted_block", sum(s.last - s.first + 1 for s in shifts), first[:MAX_ORIGINS], []))
        return {
            "src_lang": self.src_lang,
            "tgt_lang": self.tgt_lang,
            "pairs": self._num_looked_at + self.num_passed_over,
            "looked_at": self._num_looked_at,
            "findings": in_order(rows),
            "shifted_blocks": [self._shift(shift) for shift in shifts],
            "lengths": self._length_report(),
        }

    def _shift(self, shift: Shift) -> dict[str, Any]:
        return {
            "first": shift.first,
            "last": shift.last,
            "from": self._origins.of(shift.first - 1),
            "to": self._origins.of(shift.last - 1),
            "pairs": shift.last - shift.first + 1,
            "offsets": shift.offsets,
        }

    def _outliers(self) -> list[Finding]:
        rows = []
        for name, outliers in (("ratio_outlier", self._ratio), ("length_outlier", self._both)):
            count, places = outliers.found()
            if count:
                first = [origin for origin, _, _ in places[:MAX_ORIGINS]]
                rows.append(row(name, count, first, [example(place) for place in places[:MAX_EXAMPLES]]))
        return rows

    def _length_report(self) -> dict[str, Any]:
        used = int(np.flatnonzero(self._bars.sum(0)).max(initial=0)) + 1
        report: dict[str, Any] = {"bar_starts": bar_starts(used)}
        for side, name in enumerate(("src", "tgt")):
            spread = self._lengths[side]
            report[name] = {
                "median": int(spread.quantile(0.5)),
                "p99": int(spread.quantile(0.99)),
                "longest": self._longest[side],
                "bars": self._bars[side, :used].tolist(),
            }
        ratio = self._ratio.spread
        low, high = np.exp(self._ratio.limits())
        coarse = ratio.counts.reshape(-1, 10).sum(1)
        report["ratio"] = {
            "median": round(float(np.exp(ratio.quantile(0.5))), 3),
            "usual": [round(float(low), 3), round(float(high), 3)],
            "bar_starts": [round(float(np.exp(ratio.low + 10 * ratio.width * i)), 4) for i in range(len(coarse))],
            "bars": coarse.tolist(),
        }
        return report


class _Origins:
    """Where each pair stands, in little memory: runs of neighbouring lines."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._first: list[tuple[str, int]] = []
        self._num = 0
        self._next = ""

    def add(self, origins: list[str]) -> None:
        for origin in origins:
            if origin != self._next:
                name, _, number = origin.rpartition(":")
                self._starts.append(self._num)
                self._first.append((name, int(number)) if number.isdecimal() else (origin, -1))
            name, number_ = self._first[-1]
            self._num += 1
            self._next = f"{name}:{number_ + self._num - self._starts[-1]}" if number_ >= 0 else ""

    def of(self, index: int) -> str:
        run = bisect.bisect_right(self._starts, index) - 1
        name, number = self._first[run]
        return f"{name}:{number + index - self._starts[run]}" if number >= 0 else name
