"""What an evaluation found: `EvalReport`, figures per direction, their means, as JSON and as a table to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One translation to look at."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class DirectionReport:
    """Figures of one direction; a score that was not asked for is None.

    Attributes:
        sentences: rows covered by BLEU and chrF.
        nll_sentences: rows covered by NLL.
        nll_sum: nats over all tokens of these rows.
        num_tokens: their target tokens, EOS included.
        over_length, blank: rows that NLL leaves out.
        statuses: how the translations ended (`complete`, `split`, …) → sentences.
        notes: what a reader of the scores must know, in words.
    """

    direction: str
    sentences: int
    nll_sentences: int
    nll_sum: float
    num_tokens: int
    over_length: int = 0
    blank: int = 0
    bleu: float | None = None
    chrf: float | None = None
    bleu_signature: str | None = None
    chrf_signature: str | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    notes: Sequence[str] = ()

    @property
    def nll(self) -> float:
        """NLL per token; NaN if no row could be scored."""
        return self.nll_sum / self.num_tokens if self.num_tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp(NLL)."""
        return perplexity(self.nll)


@dataclass(frozen=True)
class EvalReport:
    """Figures of all directions, by name (`en-zh`)."""

    directions: dict[str, DirectionReport]
    beam_size: int | None = None

    @property
    def nll(self) -> float:
        """NLL per token over the tokens of all directions."""
        num_tokens = sum(report.num_tokens for report in self.directions.values())
        return sum(report.nll_sum for report in self.directions.values()) / num_tokens if num_tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp(NLL)."""
        return perplexity(self.nll)

    @property
    def bleu(self) -> float | None:
        """Mean of the directions' BLEU; None if there is none."""
        return _mean([report.bleu for report in self.directions.values()])

    @property
    def chrf(self) -> float | None:
        """Mean of the directions' chrF; None if there is none."""
        return _mean([report.chrf for report in self.directions.values()])

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; numbers that are not finite are None."""
        return {
            "nll": _finite(self.nll),
            "perplexity": _finite(self.perplexity),
            "bleu": _finite(self.bleu),
            "chrf": _finite(self.chrf),
            "beam_size": self.beam_size,
            "directions": {name: _direction_dict(report) for name, report in self.directions.items()},
        }

    def scalars(self) -> dict[str, float]:
        """Tags and figures for a chart: over all directions and, where there are several, for each of them."""
        parts: list[tuple[str, EvalReport | DirectionReport]] = [("", self)]
        if len(self.directions) > 1:
            parts += [(f"/{name}", report) for name, report in self.directions.items()]
        found = {
            f"{name}{suffix}": getattr(report, name)
            for suffix, report in parts
            for name in ("nll", "perplexity", "bleu", "chrf")
        }
        return {tag: figure for tag, figure in found.items() if figure is not None}

    def samples_text(self) -> str:
        """The sample translations, each with its source and reference; empty if there are none."""
        samples = [sample for report in self.directions.values() for sample in report.samples]
        return "\n\n".join(f"{s.source}\n  → {s.translation}\n  = {s.reference}" for s in samples)

    def table(self) -> str:
        """A table to read, one line a direction, then the signatures and the notes."""
        rows = [["direction", "sentences", "tokens", "NLL", "perplexity", "BLEU", "chrF"]]
        for name, report in self.directions.items():
            counts = [f"{report.sentences or report.nll_sentences:,}", f"{report.num_tokens:,}"]
            rows.append([name, *counts, *_cells(report)])
        if len(self.directions) > 1:
            rows.append(["mean", "", "", *_cells(self)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        for label, attribute in (("BLEU", "bleu_signature"), ("chrF", "chrf_signature")):
            by_signature: dict[str, list[str]] = {}
            for name, report in self.directions.items():
                if getattr(report, attribute) is not None:
                    by_signature.setdefault(getattr(report, attribute), []).append(name)
            lines += [f"{label} {signature}  ({', '.join(names)})" for signature, names in by_signature.items()]
        if len(self.directions) > 1:
            lines.append("mean: BLEU and chrF are means of the directions; NLL is over all tokens")
        lines += [f"note: {name}: {note}" for name, report in self.directions.items() for note in report.notes]
        return "\n".join(lines)


def perplexity(nll: float) -> float:
    """exp(NLL per token); infinite where that is more than a float can hold."""
    return math.inf if nll > 700 else math.exp(nll)


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _direction_dict(report: DirectionReport) -> dict[str, Any]:
    rest = asdict(report)
    nll_sum = rest.pop("nll_sum")
    figures = {"nll": report.nll, "perplexity": report.perplexity, "nll_sum": nll_sum}
    return {**{name: _finite(value) for name, value in figures.items()}, **rest}


def _cells(report: DirectionReport | EvalReport) -> list[str]:
    """NLL, perplexity, BLEU and chrF as text."""
    scores = ["-" if score is None else f"{score:.2f}" for score in (report.bleu, report.chrf)]
    return [f"{report.nll:.4f}", f"{report.perplexity:,.2f}", *scores]
