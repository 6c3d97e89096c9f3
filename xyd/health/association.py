"""Which tokens of one language go with which of the other, learned from the corpus itself, as short vectors.

A line's vector is the sum of its tokens' vectors; two lines that are translations have vectors that point the same
way. It is correspondence analysis (Greenacre 1984): the singular vectors of the table of co-occurrences, each count
taken against what chance would give.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xyd.health.tokens import Hashes, Ints, Mask, Tokens, distinct, ranges

Floats = npt.NDArray[np.float32]

RANK = 32
_VOCABULARY = 1500
_MIN_LINES = 3  # lines that a token must be in
_MAX_COMBINATIONS = 3_000_000  # of a token and a token in one line; bounds time and memory
_SMOOTHING = 3.0
_MAX_TOKENS = 48  # of a line, evenly spread over it, go into its vector


class _Vocabulary:
    """The frequent tokens of one language, each with its place."""

    _BITS = 18

    def __init__(self, line: Ints, hashes: Hashes) -> None:
        """From distinct tokens."""
        found, counts = np.unique(hashes, return_counts=True)
        found, counts = found[counts >= _MIN_LINES], counts[counts >= _MIN_LINES]
        self._hashes = found[np.argsort(-counts, kind="stable")[:_VOCABULARY]]
        # A table by the first bits of the hash; of two tokens in one cell the more frequent stays.
        self._places = np.full(1 << self._BITS, -1, np.int16)
        self._places[self._cell(self._hashes[::-1])] = np.arange(len(self._hashes) - 1, -1, -1)

    def __len__(self) -> int:
        return len(self._hashes)

    def _cell(self, hashes: Hashes) -> Hashes:
        return hashes >> np.uint32(32 - self._BITS)

    def find(self, line: Ints, hashes: Hashes) -> tuple[Ints, npt.NDArray[np.int16]]:
        """(line, place) of the tokens that are in the vocabulary."""
        places = self._places[self._cell(hashes)]
        if not len(self._hashes):
            return line[:0], places[:0]
        known = np.flatnonzero((places >= 0) & (self._hashes[places] == hashes))
        return line[known], places[known]


class Association:
    """Vectors of the frequent tokens of both languages."""

    def __init__(self, src: Tokens, tgt: Tokens, use: Mask, offset: int, seed: int) -> None:
        """Learn from lines i of `src` with `use[i]`, each with line i + offset of `tgt`."""
        shifted = np.zeros(len(tgt), bool)
        lines = np.flatnonzero(use)
        lines = lines[(lines + offset >= 0) & (lines + offset < len(tgt))]
        shifted[lines + offset] = True
        src_tokens, tgt_tokens = _distinct_of(src, use), _distinct_of(tgt, shifted)
        self._src, self._tgt = _Vocabulary(*src_tokens), _Vocabulary(*tgt_tokens)
        table = _co_occurrences(
            self._src.find(*src_tokens), self._tgt.find(*tgt_tokens), lines, offset, (len(self._src), len(self._tgt))
        )
        self._src_vectors, self._tgt_vectors = _vectors(table, seed)

    def src(self, tokens: Tokens) -> Floats:
        """(lines, RANK) vectors of length 1, or 0 for a line without known tokens."""
        return _sum(tokens, self._src, self._src_vectors)

    def tgt(self, tokens: Tokens) -> Floats:
        """(lines, RANK) the same for the other language."""
        return _sum(tokens, self._tgt, self._tgt_vectors)


def _distinct_of(tokens: Tokens, lines: Mask) -> tuple[Ints, Hashes]:
    kept = lines[tokens.line]
    return distinct(tokens.line[kept], tokens.hash[kept])


def _co_occurrences(
    src: tuple[Ints, npt.NDArray[np.int16]],
    tgt: tuple[Ints, npt.NDArray[np.int16]],
    lines: Ints,
    offset: int,
    shape: tuple[int, int],
) -> npt.NDArray[np.float64]:
    """(src vocabulary, tgt vocabulary) in how many of the pairs of lines both tokens are."""
    src_starts, src_counts = _spans(src[0], lines)
    tgt_starts, tgt_counts = _spans(tgt[0], lines + offset)
    every = int(np.ceil(max(1, (src_counts * tgt_counts).sum()) / _MAX_COMBINATIONS))
    src_starts, src_counts = src_starts[::every], src_counts[::every]
    tgt_starts, tgt_counts = tgt_starts[::every], tgt_counts[::every]
    widths = np.repeat(tgt_counts, src_counts)
    rows = np.repeat(src[1][ranges(src_starts, src_counts)].astype(np.int32), widths)
    columns = tgt[1][ranges(np.repeat(tgt_starts, src_counts), widths)]
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _spans(token_lines: Ints, lines: Ints) -> tuple[Ints, Ints]:
    """Where the tokens of each line start, and how many they are."""
    starts = np.searchsorted(token_lines, lines)
    return starts, np.searchsorted(token_lines, lines, "right") - starts


def _vectors(table: npt.NDArray[np.float64], seed: int) -> tuple[Floats, Floats]:
    rows, columns = np.sqrt(table.sum(1) + _SMOOTHING), np.sqrt(table.sum(0) + _SMOOTHING)
    residual = (table / rows[:, None] / columns - rows[:, None] * columns / (table.sum() + _SMOOTHING)).astype(
        np.float32
    )
    # Randomised singular vectors (Halko, Martinsson and Tropp 2011).
    guess = np.random.default_rng(seed).standard_normal((residual.shape[1], RANK + 8)).astype(np.float32)
    for _ in range(2):
        guess, _ = np.linalg.qr(residual.T @ (residual @ guess))
    left, strength, right = np.linalg.svd(residual @ guess, full_matrices=False)
    weight = np.sqrt(strength[:RANK])
    src = left[:, :RANK] * weight / rows[:, None]
    tgt = (guess @ right.T)[:, :RANK] * weight / columns[:, None]
    return src.astype(np.float32), tgt.astype(np.float32)


def _sum(tokens: Tokens, vocabulary: _Vocabulary, vectors: Floats) -> Floats:
    result = np.zeros((len(tokens), vectors.shape[1]), np.float32)
    line, places = vocabulary.find(tokens.line, tokens.hash)
    starts, counts = _spans(line, np.arange(len(tokens)))
    used = np.minimum(counts, _MAX_TOKENS)
    order = np.argsort(-used, kind="stable")
    starts, counts, used = starts[order], counts[order], used[order]
    # The first token of every line, then the second of those that have one: far quicker than line by line.
    having = np.searchsorted(-used, -np.arange(1, _MAX_TOKENS + 1), "right")
    for k, num in enumerate(having[having > 0].tolist()):
        at = starts[:num] + np.where(counts[:num] > _MAX_TOKENS, k * counts[:num] // _MAX_TOKENS, k)
        result[:num] += vectors[places[at]]
    result /= np.maximum(np.sqrt(np.einsum("ir,ir->i", result, result)), 1e-12)[:, None]
    back = np.empty_like(result)
    back[order] = result
    return back
