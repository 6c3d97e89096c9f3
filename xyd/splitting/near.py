"""Near duplicates: texts whose sets of n-grams overlap by at least a given share (Jaccard similarity).

Candidates come from MinHash signatures cut into bands (Broder 1997; Leskovec, Rajaraman & Ullman, Mining of Massive
Datasets, chapter 3) and are then compared exactly, so nothing is linked that is not similar enough. A band has as many
hashes, and a candidate must meet in as many bands, as lose one in a thousand of the pairs at the threshold. N-grams are
of 5 bytes of UTF-8: five Latin letters or two Chinese characters, with no need to know which.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xyd.splitting.keys import Keys, mix

NGRAM = 5  # bytes
NUM_HASHES = 64
RECALL = 0.999  # of each of the two
NEIGHBOURS = 3
"""Texts of the same band hash that each text is compared with, others in every band: a run of n costs n, not n²."""
_PAIRS_AT_ONCE = 4096
_CHUNK = 1 << 16

Rows = npt.NDArray[np.int64]
Bands = npt.NDArray[np.uint32]

_FACTORS = mix(np.arange(NUM_HASHES, dtype=np.uint64), 5) | np.uint64(1)


def num_bands(similarity: float) -> int:
    """Columns of `band_hashes`."""
    return NUM_HASHES // _rows_of_a_band(similarity)


def _rows_of_a_band(similarity: float) -> int:
    """Hashes of a band: the more, the fewer candidates."""
    fitting = [rows for rows in range(1, 17) if _share(similarity, rows, 1) >= RECALL]
    return max(fitting, default=1)


def _least_meetings(similarity: float) -> int:
    """Bands in which candidates must meet: the more, the fewer of them are not similar after all."""
    rows = _rows_of_a_band(similarity)
    fitting = [least for least in range(1, NUM_HASHES) if _share(similarity, rows, least) >= RECALL]
    return max(fitting, default=1)


def _share(similarity: float, rows: int, least: int) -> float:
    """Share of pairs of this similarity that meet in at least `least` bands of `rows` hashes."""
    size, meet = NUM_HASHES // rows, similarity**rows
    return 1 - sum(math.comb(size, k) * meet**k * (1 - meet) ** (size - k) for k in range(least))


def band_hashes(texts: Sequence[bytes], lang: str, similarity: float) -> Bands:
    """(texts, bands): similar texts of one language have equal numbers in some column."""
    rows = _rows_of_a_band(similarity)
    grams, starts = _ngrams(texts)
    salt = int.from_bytes(hashlib.blake2b(lang.encode(), digest_size=8).digest(), "little")
    grams = mix(grams ^ np.uint64(salt), 0)
    found = np.empty((len(texts), num_bands(similarity)), np.uint32)
    for band in range(found.shape[1]):
        joint = np.zeros(len(texts), np.uint64)
        for factor in _FACTORS[band * rows : (band + 1) * rows]:
            joint = mix(joint ^ np.minimum.reduceat(grams * factor, starts), 1)
        found[:, band] = joint >> np.uint64(32)
    return found


def _ngrams(texts: Sequence[bytes]) -> tuple[Keys, Rows]:
    """All n-grams of all texts as numbers below 2^40, and where those of each text start."""
    padded = [text.ljust(NGRAM, b"\0") for text in texts]
    data = np.frombuffer(b"".join(padded), np.uint8).astype(np.uint64)
    lengths = np.fromiter(map(len, padded), np.int64, len(padded))
    counts = lengths - NGRAM + 1
    starts = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(np.arange(len(texts)) * (NGRAM - 1), counts)
    grams = np.zeros(len(places), np.uint64)
    for position in range(NGRAM):
        grams = (grams << np.uint64(8)) | data[places + position]
    return grams, starts


def candidates_within(bands: Bands, similarity: float) -> tuple[Rows, Rows]:
    """Pairs of rows that are likely to be similar, each once."""
    size, least = len(bands), _least_meetings(similarity)
    numbers = np.arange(size, dtype=np.uint64)
    found = [np.zeros(0, np.int64)]
    for band in range(bands.shape[1]):
        column = bands[:, band]
        order = np.lexsort((mix(numbers, band), column))
        for step in range(1, NEIGHBOURS + 1):
            places = np.flatnonzero(column[order[:-step]] == column[order[step:]])
            one, other = order[places], order[places + step]
            codes = np.minimum(one, other) * size + np.maximum(one, other)
            found.append(_distinct(codes[_meet(bands, one, bands, other, least)]))
    codes = _distinct(np.concatenate(found))
    return codes // max(size, 1), codes % max(size, 1)


def candidates_between(bands: Bands, others: Bands, similarity: float) -> tuple[Rows, Rows]:
    """Pairs (row of `bands`, row of `others`) that are likely to be similar, each once."""
    size, least = len(others), _least_meetings(similarity)
    numbers = np.arange(len(bands), dtype=np.uint64)
    found = [np.zeros(0, np.int64)]
    for band in range(bands.shape[1]):
        order = np.argsort(others[:, band], kind="stable")
        column = others[order, band]
        first = np.searchsorted(column, bands[:, band], side="left")
        count = np.searchsorted(column, bands[:, band], side="right") - first
        turn = (mix(numbers, band) >> np.uint64(1)).astype(np.int64)
        for step in range(NEIGHBOURS):
            one = np.flatnonzero(count > step)
            other = order[first[one] + (turn[one] + step) % count[one]]
            found.append(_distinct((one * size + other)[_meet(bands, one, others, other, least)]))
    codes = _distinct(np.concatenate(found))
    return codes // max(size, 1), codes % max(size, 1)


def _meet(bands: Bands, one: Rows, others: Bands, other: Rows, least: int) -> npt.NDArray[np.bool_]:
    """Which of these pairs of rows have at least `least` bands in common."""
    found = np.empty(len(one), bool)
    for start in range(0, len(one), _CHUNK):
        piece = slice(start, start + _CHUNK)
        found[piece] = (bands[one[piece]] == others[other[piece]]).sum(axis=1) >= least
    return found


def _distinct(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The different values, in order. Sorting is several times faster here than the hashing of `np.unique`."""
    codes = np.sort(codes)
    return codes[np.diff(codes, prepend=~codes[:1]) != 0]


def are_similar(
    lefts: Sequence[bytes], left: Rows, rights: Sequence[bytes], right: Rows, similarity: float
) -> npt.NDArray[np.bool_]:
    """Whether the n-grams of `lefts[left[i]]` and `rights[right[i]]` have this Jaccard similarity, (pairs,)."""
    found = np.zeros(len(left), bool)
    for start in range(0, len(left), _PAIRS_AT_ONCE):
        piece = slice(start, start + _PAIRS_AT_ONCE)
        ours = _owned([lefts[i] for i in left[piece].tolist()])
        theirs = _owned([rights[i] for i in right[piece].tolist()])
        num_ours, num_theirs, num_all = (
            np.bincount((_distinct(codes) >> np.uint64(8 * NGRAM)).astype(np.int64))
            for codes in (ours, theirs, np.concatenate([ours, theirs]))
        )
        found[piece] = num_ours + num_theirs - num_all >= similarity * num_all
    return found


def _owned(texts: Sequence[bytes]) -> Keys:
    """N-grams of all texts, each with the number of its text above its 40 bits."""
    grams, starts = _ngrams(texts)
    counts = np.diff(starts, append=len(grams))
    return grams | (np.repeat(np.arange(len(texts), dtype=np.uint64), counts) << np.uint64(8 * NGRAM))
