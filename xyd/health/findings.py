"""What the report may find, in the words of people, and what it has found so far."""

from __future__ import annotations

from typing import Any, TypedDict

from xyd.health.lengths import Place
from xyd.text import Tally

# name: what it is, what to do. In the order of the report: what spoils most comes first.
KINDS = {
    "shifted_block": (
        "sides out of step: these lines stand beside the translation of another line",
        "put back the line missing near the first of them, or take out the one too many; or leave the block out",
    ),
    "bad_utf8": ("lines that are not in the stated encoding", "mend the file, or state its encoding"),
    "ragged_row": (
        "rows with more or fewer cells than the first",
        "dropped; mend them: a tab in a text, an odd quote?",
    ),
    "empty": ("a side without text", "dropped when the data is prepared"),
    "mojibake": ("text read in the wrong encoding (Ã©, â€™, 锛)", "make the file anew from its source, or drop"),
    "swapped": ("the two languages are exchanged", "exchange the sides of these lines, or drop them"),
    "wrong_script": ("a side in a script that its language does not use", "drop them; many: check the languages"),
    "wrong_language": ("a side in another language", "drop them; many: check the languages"),
    "identical": ("source and target are the same", "drop them, or the model learns to copy; names may stay"),
    "repeat": ("pairs that came before", "dropped when the data is prepared"),
    "repeat_folded": (
        "pairs that came before, but for case or punctuation",
        "harmless in train; kept on one side of a split",
    ),
    "ratio_outlier": ("one side far longer than usual for the other", "look: cut off, merged, or not a translation"),
    "length_outlier": ("far longer than the other lines", "look: several sentences, or a table in one line"),
    "truncated": ("one side breaks off before its end", "drop, or mend"),
    "digits_differ": (
        "numbers that differ between the sides",
        "look: errors of translation, units turned, or out of step",
    ),
    "urls_differ": ("web or mail addresses that differ", "look"),
    "html_entities": ("HTML entities such as &amp;", "turn them back into characters in the file"),
    "bom": ("a byte order mark inside a line (U+FEFF)", "taken out when the data is prepared"),
    "nul": ("NUL characters", "taken out when the data is prepared"),
    "cr": ("carriage returns inside a line", "become a space when the data is prepared"),
    "line_separator": (
        "U+2028, U+2029 or U+0085, which some programs take for line ends",
        "become a space when prepared",
    ),
    "form_feed": ("form feeds, vertical tabs and their like", "become a space when the data is prepared"),
    "control": ("other control characters; often remains of mojibake", "taken out when the data is prepared"),
    "zero_width": ("invisible: zero-width spaces, soft hyphens, joiners", "taken out when prepared, but for joiners"),
    "bidi": ("invisible: marks of writing direction", "taken out when the data is prepared"),
    "surrogate": ("halves of surrogate pairs, which are no characters", "taken out when the data is prepared"),
    "tab": ("tabs inside a line; a table, or a file of columns?", "become a space when the data is prepared"),
    "nfd": ("letters and accents apart (not in the form NFC)", "joined when the data is prepared"),
}

SET_ASIDE = ("set aside by its format, see docs/formats.md", "dropped when the data is prepared")
"""Of the flaws that only some formats have, such as fuzzy; they stand with the empty sides."""

MAX_ORIGINS = Tally.MAX_ORIGINS
MAX_EXAMPLES = 3
_MAX_CHARACTERS = 300


class Finding(TypedDict):
    """One row of the report."""

    name: str
    count: int
    first: list[str]
    """Where the first ten stand."""
    examples: list[dict[str, str]]
    """origin, src, tgt of a few; long texts cut, with …"""
    meaning: str
    advice: str


class Findings:
    """Counts by name, with the first origins and a few examples of each."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._examples: dict[str, list[dict[str, str]]] = {}

    def add(self, name: str, place: Place) -> None:
        self._tally.add(name, place[0])
        examples = self._examples.setdefault(name, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(example(place))

    def rows(self) -> list[Finding]:
        counts = self._tally.as_dict()
        return [row(name, entry["count"], entry["first"], self._examples[name]) for name, entry in counts.items()]


def row(name: str, count: int, first: list[str], examples: list[dict[str, str]]) -> Finding:
    meaning, advice = KINDS.get(name, SET_ASIDE)
    return {"name": name, "count": count, "first": first, "examples": examples, "meaning": meaning, "advice": advice}


def in_order(rows: list[Finding]) -> list[Finding]:
    order = list(KINDS)
    return sorted(rows, key=lambda finding: order.index(finding["name"] if finding["name"] in KINDS else "empty"))


def example(place: Place) -> dict[str, Any]:
    origin, src, tgt = place
    return {"origin": origin, "src": _cut(src), "tgt": _cut(tgt)}


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be written
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"
