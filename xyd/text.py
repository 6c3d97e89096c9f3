"""Normalise and fold: the one definition of "the same text", used in training, splitting and translation alike.

Also home of the two small things that every module of the text half passes on: a sentence pair, and a tally of what
was dropped or changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

RULES_VERSION = "1"
"""Version of `normalise` and `fold`, kept with every run: raise it when either returns other text than before."""

# What is dropped. U+200C and U+200D stay: they are letters of some scripts (Persian, Hindi) and join emoji.
_DROPPED = {
    "bom": "\ufeff",
    "nul": "\x00",
    "control": "\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f",
    "zero_width": "\u00ad\u200b\u2060",
    "bidi": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "surrogate": "\ud800-\udfff",
}
# What becomes a plain space. U+2581 is SentencePiece's own mark of a space; left in, it could not come back as itself.
_SPACED = {
    "tab": "\t",
    "separator": "\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029",
    "whitespace": "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000",
    "u2581": "\u2581",
}
_FAULTS = {name: re.compile(f"[{characters}]") for name, characters in (_DROPPED | _SPACED).items()}
_DROP = re.compile(f"[{''.join(_DROPPED.values())}]+")
_SPACE = re.compile(f"[{''.join(_SPACED.values())}]")
_SPACES = re.compile("  +")
_ODD = re.compile(f"[{''.join((_DROPPED | _SPACED).values())}]")


def normalise(text: str) -> str:
    """The text that the model sees. Idempotent: `normalise(normalise(x)) == normalise(x)`.

    Invisible characters are dropped (controls, byte order marks, zero-width spaces, soft hyphens, bidi marks, lone
    surrogates); tabs, line ends of every kind, all Unicode spaces and U+2581 become a plain space; then NFC; runs of
    spaces become one, and the edges are trimmed.
    """
    if not (text.isascii() and text.isprintable()):  # else nothing to drop, to replace or to compose
        if _ODD.search(text):
            text = _SPACE.sub(" ", _DROP.sub("", text))
        text = unicodedata.normalize("NFC", text)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return text.strip(" ")


def faults(raw: str) -> list[str]:
    """Names of what `normalise` would change in `raw`; empty exactly when `normalise(raw) == raw`.

    Names: bom, nul, control, zero_width, bidi, surrogate, tab, separator, whitespace (odd, doubled or at an edge),
    u2581, nfd (not in NFC).
    """
    if raw == normalise(raw):
        return []
    names = [name for name, pattern in _FAULTS.items() if pattern.search(raw)]
    if "whitespace" not in names and (raw != raw.strip(" ") or "  " in raw):
        names.append("whitespace")
    if not unicodedata.is_normalized("NFC", _SPACE.sub(" ", raw)):
        names.append("nfd")
    return names


class _LettersMarksNumbers(dict[int, int | None]):
    """Table for `str.translate` that learns, character by character, what `fold` keeps."""

    def __missing__(self, code: int) -> int | None:
        kept = code if unicodedata.category(chr(code))[0] in "LMN" else None
        self[code] = kept
        return kept


_KEPT_BY_FOLD = _LettersMarksNumbers()
_LATIN_1_DROPPED = bytes(code for code in range(256) if _KEPT_BY_FOLD[code] is None)


def fold(text: str) -> str:
    """The key under which two texts count as the same sentence: NFKC, casefolded, only letters, marks and numbers.

    A text without any of these ("?!") folds to itself, in NFKC, so that it equals only its like.
    `fold(normalise(x)) == fold(fold(x)) == fold(x)`.
    """
    return fold_normalised(normalise(text))


def fold_normalised(text: str) -> str:
    """`fold` of a text that `normalise` has been through already."""
    text = unicodedata.normalize("NFKC", text).casefold()
    try:  # dropping bytes is ten times as fast as looking at characters
        return text.encode("latin-1").translate(None, _LATIN_1_DROPPED).decode("latin-1") or text
    except UnicodeEncodeError:
        # casefolding takes some letters apart, and taking out what stood between can bring others together
        return unicodedata.normalize("NFC", text.translate(_KEPT_BY_FOLD)) or text


@dataclass(frozen=True, slots=True)
class SentencePair:
    """Two texts that mean the same, as they come from a reader: raw, only line ends and byte order mark taken off."""

    src: str
    tgt: str
    src_lang: str
    tgt_lang: str
    origin: str
    """Where it stands, for messages: "train.en:17"."""
    group: str | None = None
    """Document or user's key; pairs of one group belong to one split."""
    flaw: str | None = None
    """A reason why it must be dropped and counted ("bad_utf8"); its text then means nothing."""
    score: float | None = None
    """How good its source says it is; higher is better."""
    time: str | None = None
    """When it was written, as its source says it: a date or a number."""


class TallyEntry(TypedDict):
    """How often something happened and where first."""

    count: int
    first: list[str]


class Tally:
    """Counts by reason, with the origins of the first ten of each."""

    MAX_ORIGINS = 10

    def __init__(self) -> None:
        self._entries: dict[str, TallyEntry] = {}

    def add(self, reason: str, origin: str) -> None:
        """Count one more `reason`, seen at `origin`."""
        entry = self._entries.setdefault(reason, {"count": 0, "first": []})
        entry["count"] += 1
        if len(entry["first"]) < self.MAX_ORIGINS:
            entry["first"].append(origin)

    def add_all(self, reasons: Iterable[str], origin: str) -> None:
        """Count one more of each of `reasons`, such as the faults of one line."""
        for reason in reasons:
            self.add(reason, origin)

    def merge(self, other: Tally) -> None:
        """Add the counts of `other`; its origins come after those already here."""
        for reason, theirs in other._entries.items():
            ours = self._entries.setdefault(reason, {"count": 0, "first": []})
            ours["count"] += theirs["count"]
            ours["first"] = (ours["first"] + theirs["first"])[: self.MAX_ORIGINS]

    def count(self, reason: str) -> int:
        """How often `reason` was added; 0 when never."""
        return self._entries[reason]["count"] if reason in self._entries else 0

    def total(self) -> int:
        """Sum of the counts of all reasons."""
        return sum(entry["count"] for entry in self._entries.values())

    def as_dict(self) -> dict[str, TallyEntry]:
        """`{reason: {"count": n, "first": [origin, …]}}`, a copy fit for JSON, most frequent reason first."""
        ordered = sorted(self._entries.items(), key=lambda item: (-item[1]["count"], item[0]))
        return {reason: {"count": entry["count"], "first": list(entry["first"])} for reason, entry in ordered}
