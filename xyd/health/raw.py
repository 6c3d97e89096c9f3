"""Faults of raw text, before `normalise` mends them, by the names under which the report lists them."""

from __future__ import annotations

import re
import unicodedata

_FAULTS = {
    "bom": "\ufeff",
    "nul": "\x00",
    "cr": "\r",
    "line_separator": "\x85\u2028\u2029",
    "form_feed": "\x0b\x0c\x1c-\x1e",
    "control": "\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f",
    "zero_width": "\u00ad\u200b-\u200d\u2060",
    "bidi": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "surrogate": "\ud800-\udfff",
    "tab": "\t",
}
_PATTERNS = {name: re.compile(f"[{characters}]") for name, characters in _FAULTS.items()}
_ANY = re.compile(f"[{''.join(_FAULTS.values())}]")

RAW_FAULTS = (*_FAULTS, "nfd")


def raw_faults(raw: str) -> list[str]:
    """Names of what is wrong with the characters of a raw text, in the order of `RAW_FAULTS`; odd spaces are no fault.

    nfd: not in the composed form NFC. zero_width counts the joiners U+200C and U+200D too, which `normalise` keeps:
    they are letters of Persian and Hindi, and join emoji, but have no place elsewhere.
    """
    names = []
    if _ANY.search(raw):
        names = [name for name, pattern in _PATTERNS.items() if pattern.search(raw)]
    if not raw.isascii() and not unicodedata.is_normalized("NFC", raw):
        names.append("nfd")
    return names
