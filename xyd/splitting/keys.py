"""Texts → 64-bit numbers: keys of sides, pairs and documents, and times that can be compared."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from xyd.errors import DataError
from xyd.text import fold_normalised

Keys = npt.NDArray[np.uint64]

_DIGITS = re.compile(r"\d+")
_YEAR_AND_MONTH = re.compile(r"\d{4}-\d{2}")


def folded(text: str, fold_digits: bool = False) -> str:
    """A normalised text as `text.fold` has it, and with `fold_digits` every number as 0."""
    text = fold_normalised(text)
    return _DIGITS.sub("0", text) if fold_digits else text


def key(lang: str, text: str, fold_digits: bool = False) -> int:
    """64-bit key of one side: its language and its normalised text, folded."""
    return _hash(lang, folded(text, fold_digits))


def exact_key(lang_a: str, text_a: str, lang_b: str, text_b: str) -> int:
    """64-bit key of a pair of normalised texts, the same in both orders of its languages."""
    first, second = sorted([(lang_a, text_a), (lang_b, text_b)])
    return _hash(*first, *second)


def document_key(group: str | None) -> int:
    """64-bit key of a document or of the user's own group key, the same in all corpora; 0 for none."""
    return 0 if group is None else _hash("", "document", group)


def _hash(*parts: str) -> int:
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


def mix(values: Keys, seed: int) -> Keys:
    """Seeded pseudo-random permutation of uint64 values (the finaliser of splitmix64, Steele et al. 2014)."""
    start = int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little")
    mixed = values + np.uint64(start)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True)
class PairKeys:
    """Keys of N pairs: both sides (folded) and the exact pair, each (N,)."""

    a: Keys
    b: Keys
    exact: Keys

    def __len__(self) -> int:
        return len(self.exact)

    def part(self, which: slice | npt.NDArray[np.integer]) -> PairKeys:
        """The keys of some of the pairs; of a slice no copy is made."""
        return PairKeys(self.a[which], self.b[which], self.exact[which])

    def folded(self) -> Keys:
        """One key for both folded sides, the same in both orders."""
        low, high = np.minimum(self.a, self.b), np.maximum(self.a, self.b)
        return mix(mix(low, 0) ^ high, 0)


class Clock:
    """Times as numbers: either all are numbers (years, stamps), or all are ISO 8601 dates."""

    def __init__(self) -> None:
        self._first: tuple[bool, str, str] | None = None

    def read(self, time: str | None, origin: str) -> float:
        """The number, or seconds since 1970 (UTC where no zone is told); minus infinity for None.

        Raises DataError for what is neither, and where numbers and dates are mixed.
        """
        if time is None or not time.strip():
            return -np.inf
        is_date, value = False, _number(time)
        if value is None:
            is_date, value = True, _seconds(time)
        if value is None:
            raise DataError(
                f"{origin}: the time {time!r} is neither a number nor a date such as 2024-05-31; mend it, leave it "
                "empty, or set data.split.order: hash"
            )
        if self._first is None:
            self._first = (is_date, time, origin)
        elif self._first[0] != is_date:
            _, other, place = self._first
            raise DataError(
                f"{origin}: the time {time!r} cannot be compared with {other!r} ({place}): one is a date, one a "
                "number; use one kind in all corpora, or set data.split.order: hash"
            )
        return value

    def text(self, value: float) -> str:
        """A time as people read it."""
        if self._first is None or not np.isfinite(value):
            return "no time"
        if self._first[0]:
            return datetime.fromtimestamp(value, timezone.utc).isoformat().removesuffix("+00:00")
        return f"{value:.15g}"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _seconds(text: str) -> float | None:
    text = text.strip()
    if _YEAR_AND_MONTH.fullmatch(text):
        text += "-01"
    try:
        # Python 3.10 knows no Z
        moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
