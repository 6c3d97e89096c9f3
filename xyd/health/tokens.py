"""Lines → arrays of what they share with their translations: words, numbers, characters, ends, lengths.

All lines of a window are cut at once by numpy: a table says of each code point what it is, and a token is known by a
hash of its first letters, without accents and case. So "sécurité" and "security" are one token, as are １０ and 10.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_OTHER, _WORD, _DIGIT, _WIDE = 0, 1, 2, 3
_LETTERS = np.array([0, 5, 12, 1])  # how many characters of a token count, by kind; a wide one is a token by itself
_LINE_END = 10
_TABLE = 0x30000
_ENDS = (".。．｡", "?？؟", "!！", ":：", ";；", ",，、", "…", "\"'”’»›」』“", ")）]】")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a window of lines, in order. Hashes of numbers are odd, all others even."""

    line: Ints
    """(tokens) line of each token, from 0."""
    hash: Hashes
    """(tokens)"""
    log_length: npt.NDArray[np.float32]
    """(lines) logarithm of 1 + the length in characters."""
    end: npt.NDArray[np.uint8]
    """(lines) class of the last character: 0 empty, 1 no punctuation, else one for each kind of punctuation."""

    def __len__(self) -> int:
        return len(self.end)

    def after(self, first: int) -> Tokens:
        """The lines from `first` on."""
        start = np.searchsorted(self.line, first)
        return Tokens(self.line[start:] - first, self.hash[start:], self.log_length[first:], self.end[first:])

    def join(self, other: Tokens) -> Tokens:
        """These lines, then the lines of `other`."""
        return Tokens(
            np.concatenate([self.line, other.line + len(self)]),
            np.concatenate([self.hash, other.hash]),
            np.concatenate([self.log_length, other.log_length]),
            np.concatenate([self.end, other.end]),
        )

    def keys(self) -> npt.NDArray[np.uint64]:
        """(lines) equal for lines of the same tokens."""
        keys = np.zeros(len(self), np.uint64)
        first = np.flatnonzero(np.diff(self.line, prepend=-1))
        if len(first):
            scrambled = (self.hash + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            keys[self.line[first]] = np.add.reduceat(scrambled ^ (scrambled >> np.uint64(31)), first)
        return keys


def tokenise(lines: list[str]) -> Tokens:
    """The tokens of normalised lines (no line end inside a line)."""
    kinds, folded, end_classes = _tables()
    text = "\n".join(lines) + "\n"
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
    if codes.max() >= _TABLE:
        codes = np.where(codes < _TABLE, codes, 0xFFFD).astype(np.uint32)
    kind = kinds[codes]
    begins = kind != _OTHER
    begins[1:] &= (kind[1:] != kind[:-1]) | (kind[1:] == _WIDE)
    starts = np.flatnonzero(begins)
    ends = np.flatnonzero(codes == _LINE_END)
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    lengths = np.diff(ends, prepend=-1) - 1
    last = end_classes[codes[ends - (lengths > 0)]]
    return Tokens(
        np.repeat(np.arange(len(ends)), counts),
        _hash(codes, kind, folded, starts),
        np.log1p(lengths).astype(np.float32),
        np.where(lengths > 0, last, 0).astype(np.uint8),
    )


def _hash(
    codes: npt.NDArray[np.uint32], kind: npt.NDArray[np.uint8], folded: npt.NDArray[np.uint32], starts: Ints
) -> Hashes:
    of = kind[starts]
    multiplier = np.uint64(0x9E3779B97F4A7C15)
    value = (folded[codes[starts]] + np.uint64(1)) * multiplier
    left = np.flatnonzero(of != _WIDE)
    for k in range(1, int(_LETTERS.max())):
        at = starts[left] + k  # a line end follows every token, so this stays inside
        same = (kind[np.minimum(at, len(kind) - 1)] == of[left]) & (_LETTERS[of[left]] > k)
        left, at = left[same], at[same]
        if not len(left):
            break
        value[left] = (value[left] + folded[codes[at]] + np.uint64(1)) * multiplier
    value ^= value >> np.uint64(29)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    return ((value >> np.uint64(32)).astype(np.uint32) & np.uint32(0xFFFFFFFE)) | (of == _DIGIT)


def distinct(line: Ints, hashes: Hashes) -> tuple[Ints, Hashes]:
    """(line, hash) of the tokens, each once a line, in the order of lines."""
    keys = (line.astype(np.uint64) << np.uint64(32)) | hashes
    keys.sort()
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]
    return (keys >> np.uint64(32)).astype(np.int64), keys.astype(np.uint32)


def ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, … `count` of them, for each start, one after the other."""
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)


@cache
def _tables() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """Of each code point: what it is; which one it counts as (small, bare, half width); its class as a line's last."""
    kinds = np.zeros(_TABLE, np.uint8)
    folded = np.arange(_TABLE, dtype=np.uint32)
    for start, stop in (
        (0x0E01, 0x0E4F), (0x2E80, 0x3000), (0x3005, 0x3008), (0x3041, 0xA000), (0xAC00, 0xD7B0), (0xF900, 0xFB00),
        (0x20000, _TABLE),
    ):  # fmt: skip
        kinds[start:stop] = _WIDE
    for code in [*range(0x30, 0x0E00), *range(0x0E50, 0x2E80), *range(0xFF10, 0xFFDD)]:
        character = chr(code)
        category = unicodedata.category(character)
        if category[0] == "L" or category == "Mn":
            kinds[code] = _WORD
            folded[code] = ord(unicodedata.normalize("NFKD", character)[0].lower()[0])
        elif category == "Nd":
            kinds[code] = _DIGIT
            folded[code] = 0x30 + unicodedata.digit(character)
    end_classes = np.ones(_TABLE, np.uint8)
    for number, characters in enumerate(_ENDS, 2):
        end_classes[[ord(character) for character in characters]] = number
    return kinds, folded, end_classes
