"""Subword regularisation: segmentations of a text drawn at random, anew for every row of train in every epoch.

Unigram: drawn from all segmentations by probability to the power of alpha, by forward filtering and backward sampling
(Kudo 2018, arXiv:1804.10959). BPE: each merge is left out with probability alpha (Provilkov et al. 2020,
arXiv:1910.13267). SentencePiece has both, but since 0.2.2 its draws differ from process to process whatever the seed,
so a run could not go on as if it had never stopped; the draws here depend on (seed, epoch, row) alone. Both follow
SentencePiece's own rules, whose pieces never reach over a space, so words are segmented one by one.
"""

from __future__ import annotations

import heapq
import math
import random
import re
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from xyd.batching import Split
from xyd.config import UNK_ID
from xyd.tokenizer import Tokenizer

MEASURED_ROWS = 500
"""Rows that are drawn once to see how much longer drawn segmentations are."""
FITTING_SHARE = 0.98
"""Of their sides, this share is within the bounds that batches are planned with."""
UNKNOWN_PENALTY = 10.0
"""By how much an unknown character's score lies below the least of all pieces, as in SentencePiece."""
CACHED_WORDS, CACHED_LENGTH = 20_000, 16
"""Lattices kept, of words of at most so many characters: at most some 90 MB."""

Sides = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
Edges = tuple[list[float], list[tuple[int, list[int]]]]
"""The ways into one end: cumulative probabilities, and (start, ids) of each."""

_SPACE = "\u2581"
_WORD = re.compile(f"{_SPACE}[^{_SPACE}]*")


class SubwordSampler:
    """Draws segmentations of normalised texts: the ids always decode to the text."""

    def __init__(self, tokenizer: Tokenizer, alpha: float) -> None:
        self._scores, self._byte_ids, self._alpha = tokenizer.scores(), tokenizer.byte_ids(), alpha
        self._ids = {piece: [token] for piece, (token, _) in self._scores.items()}
        self._longest = max(map(len, self._scores))
        self._unknown_score = min(score for _, score in self._scores.values()) - UNKNOWN_PENALTY
        # Scores of BPE are minus the rank of the merge, those of unigram are logarithms.
        is_bpe = all(score == round(score) for _, score in self._scores.values())
        self._sample_word: Callable[[str, random.Random], list[int]] = self._bpe if is_bpe else self._unigram
        self._lattices: dict[str, list[Edges]] = {}

    def sample(self, text: str, rng: random.Random) -> list[int]:
        """Bare ids of one segmentation of a normalised text."""
        words = _WORD.findall(_SPACE + text.replace(" ", _SPACE)) if text else []
        return [token for word in words for token in self._sample_word(word, rng)]

    def _spelled(self, character: str) -> list[int]:
        """The ids of a character without a piece."""
        if not self._byte_ids:
            return [UNK_ID]
        return [self._byte_ids[byte] for byte in character.encode()]

    # ── unigram ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _unigram(self, word: str, rng: random.Random) -> list[int]:
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = self._lattice(word)
            if (
                len(word) <= CACHED_LENGTH and len(self._lattices) < CACHED_WORDS
            ):  # the first seen are the frequent ones
                self._lattices[word] = lattice
        parts, end = [], len(word)
        while end:
            cumulative, edges = lattice[end]
            # the last sum is 1 but for rounding
            chosen = min(bisect(cumulative, rng.random()), len(edges) - 1) if len(edges) > 1 else 0
            end, ids = edges[chosen]
            parts.append(ids)
        return [token for ids in reversed(parts) for token in ids]

    def _lattice(self, word: str) -> list[Edges]:
        """For each end, the pieces that end there, by the probability of all segmentations up to them."""
        forward, lattice = [0.0], [([1.0], [(0, [0])])]
        for end in range(1, len(word) + 1):
            logs: list[float] = []
            edges: list[tuple[int, list[int]]] = []
            for start in range(max(0, end - self._longest), end):
                piece = word[start:end]
                found = self._scores.get(piece)
                if found is not None:
                    logs.append(forward[start] + self._alpha * found[1])
                    edges.append((start, self._ids[piece]))
                elif start == end - 1:
                    logs.append(forward[start] + self._alpha * self._unknown_score)
                    edges.append((start, self._spelled(piece)))
            greatest = max(logs)
            weights = [math.exp(log - greatest) for log in logs]
            total = sum(weights)
            forward.append(greatest + math.log(total))
            lattice.append((list(accumulate(weight / total for weight in weights)), edges))
        return lattice

    # ── BPE ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _bpe(self, word: str, rng: random.Random) -> list[int]:
        """Merge neighbours, the best-ranked pair first; a pair that is left out comes again only in a new pair."""
        symbols, following, before = list(word), list(range(1, len(word) + 1)), list(range(-1, len(word)))
        waiting: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < len(word):
                merged = symbols[left] + symbols[right]
                if merged in self._scores:
                    heapq.heappush(waiting, (-self._scores[merged][1], left, right, merged))

        for left in range(len(word) - 1):
            offer(left, left + 1)
        while waiting:
            _, left, right, merged = heapq.heappop(waiting)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != merged:
                continue
            if rng.random() < self._alpha:
                continue
            symbols[left], symbols[right] = merged, ""
            following[left] = following[right]
            if following[right] < len(word):
                before[following[right]] = left
            offer(before[left], left)
            offer(left, following[left])
        ids: list[int] = []
        for symbol in filter(None, symbols):
            ids += self._ids.get(symbol) or self._spelled(symbol)
        return ids


class SampledSplit:
    """A prepared split with segmentations drawn at random.

    The text comes back from the stored ids, which decode to it exactly. Batches are planned with `longest_src`,
    `longest_tgt`, which no row ever exceeds: a drawn segmentation that is longer gives way to the stored one
    (`num_stored` counts them), so every budget in tokens holds. `draw` fixes the segmentation of some rows;
    `src_lengths`, `tgt_lengths` and the ids are those drawn last. Before the first draw a row is as long as it can
    become, so that the rehearsal of a run meets the largest batch. `slack` is how many times as long as what is drawn
    the planned targets are, on average.
    """

    def __init__(self, split: Split, tokenizer: Tokenizer, alpha: float, max_ids: int, seed: int) -> None:
        self._split, self._tokenizer, self._alpha, self._seed = split, tokenizer, alpha, seed
        self._sampler = SubwordSampler(tokenizer, alpha)
        self.direction, self.pair_id = split.direction, split.pair_id
        self._drawn: dict[int, Sides] = {}
        self.num_stored = 0
        rows = np.random.default_rng(seed).permutation(len(split.pair_id))[:MEASURED_ROWS]
        lengths = np.array([tuple(map(len, self._draw_row(0, row))) for row in rows.tolist()]) + 1
        stored = np.stack([split.src_lengths[rows], split.tgt_lengths[rows]], axis=1) + 1
        self._growth, self._bound = lengths.sum() / stored.sum(), np.quantile(lengths / stored, FITTING_SHARE)
        self.longest_src, self.longest_tgt = (
            np.maximum(side, np.minimum(np.ceil((side + 1) * self._bound), max_ids)).astype(np.int32)
            for side in (split.src_lengths, split.tgt_lengths)
        )
        self.slack = float((self.longest_tgt[rows] + 1).sum() / lengths[:, 1].sum())
        self.src_lengths, self.tgt_lengths = self.longest_src.copy(), self.longest_tgt.copy()

    def describe(self) -> str:
        """What sampling does to the lengths, in one line."""
        return (
            f"subword sampling, alpha {self._alpha:g}: segmentations are {self._growth:.2f} times as long on average; "
            f"batches have room for {self._bound:.2f} times, what is longer keeps its best segmentation and is counted"
        )

    def draw(self, epoch: int, rows: npt.NDArray[np.int64]) -> None:
        """Draw the segmentation of these rows; what was drawn before is forgotten."""
        self._drawn, self.num_stored = {}, 0
        for row in rows.tolist():
            src, tgt = self._draw_row(epoch, row)
            if len(src) > self.longest_src[row] or len(tgt) > self.longest_tgt[row]:
                src, tgt = self._split.src_ids(row), self._split.tgt_ids(row)
                self.num_stored += 1
            self._drawn[row] = src, tgt
            self.src_lengths[row], self.tgt_lengths[row] = len(src), len(tgt)

    @property
    def num_drawn(self) -> int:
        """Rows of the last draw, those that kept their stored segmentation among them."""
        return len(self._drawn)

    def _draw_row(self, epoch: int, row: int) -> Sides:
        stored = self._split.src_ids(row), self._split.tgt_ids(row)
        if any((side == UNK_ID).any() for side in stored):  # their text is lost
            return stored
        rng = random.Random(f"{self._seed} {epoch} {row}")
        texts = (self._tokenizer.decode(side.tolist()) for side in stored)
        src, tgt = (np.array(self._sampler.sample(text, rng), np.int32) for text in texts)
        return src, tgt

    def src_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare source ids as drawn last."""
        drawn = self._drawn.get(row)
        return drawn[0] if drawn else np.resize(self._split.src_ids(row), self.src_lengths[row])

    def tgt_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare target ids as drawn last."""
        drawn = self._drawn.get(row)
        return drawn[1] if drawn else np.resize(self._split.tgt_ids(row), self.tgt_lengths[row])
