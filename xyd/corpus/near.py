"""Near duplicates among the sides of kept pairs: candidates from MinHash, then compared exactly, text by text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from xyd import splitting
from xyd.corpus.pairs import Mask, Pairs
from xyd.splitting import near
from xyd.splitting.keys import Keys

Rows = npt.NDArray[np.int64]


class _Sides:
    """The different sides of some pairs, in the order of their keys, and where each stands first."""

    def __init__(self, pairs: Pairs, select: Mask) -> None:
        self.pairs = pairs
        numbers = np.flatnonzero(select)
        self.keys, first = np.unique(np.concatenate([pairs.keys.a[numbers], pairs.keys.b[numbers]]), return_index=True)
        side, place = np.divmod(first, max(len(numbers), 1))
        self._entry = 2 * numbers[place] + side  # pair and side as one number

    def __len__(self) -> int:
        return len(self.keys)

    def texts(self, rows: Rows) -> Iterator[tuple[Rows, str, list[bytes]]]:
        """(positions in `rows`, their language, their folded texts), in the order of the file."""
        order = np.argsort(self._entry[rows])
        entries = self._entry[rows][order]
        select = np.zeros(len(self.pairs), bool)
        select[entries // 2] = True
        fold_digits = self.pairs.split.fold_digits
        for numbers, batch in self.pairs.batches(select):
            for side, column in enumerate("ab"):
                places = np.searchsorted(entries, 2 * numbers + side)
                found = np.flatnonzero(entries[np.minimum(places, len(entries) - 1)] == 2 * numbers + side)
                languages = self.pairs.language_pair[numbers[found]]
                for number in np.unique(languages).tolist():
                    own = found[languages == number]
                    texts = batch.column(column).take(own).to_pylist()
                    folded = [splitting.folded(text, fold_digits).encode("utf-8", "surrogatepass") for text in texts]
                    yield order[places[own]], self.pairs.language_pairs[number][side], folded

    def bands(self, similarity: float) -> near.Bands:
        """MinHash bands of every side, (sides, bands)."""
        found = np.zeros((len(self), near.num_bands(similarity)), np.uint32)
        for rows, lang, texts in self.texts(np.arange(len(self))):
            found[rows] = near.band_hashes(texts, lang, similarity)
        return found

    def chosen(self, rows: Rows) -> list[bytes]:
        """The folded texts of some sides."""
        texts = [b""] * len(rows)
        for places, _, found in self.texts(rows):
            for place, text in zip(places.tolist(), found, strict=True):
                texts[place] = text
        return texts


def near_within(pairs: Pairs, select: Mask, similarity: float) -> tuple[Keys, Keys]:
    """Keys of sides of the selected pairs that are similar, (M,) and (M,)."""
    sides = _Sides(pairs, select)
    left, right = near.candidates_within(sides.bands(similarity), similarity)
    similar = _similar(sides, left, sides, right, similarity)
    return sides.keys[left[similar]], sides.keys[right[similar]]


def near_overlap(pairs: Pairs, select: Mask, held_out: Sequence[Pairs], similarity: float) -> tuple[Keys, Keys]:
    """Keys of sides of the selected pairs, and of those of the held-out pairs that they are similar to, (M,), (M,)."""
    sides = _Sides(pairs, select)
    bands, found = sides.bands(similarity), [(np.zeros(0, np.uint64), np.zeros(0, np.uint64))]
    for own in held_out:
        others = _Sides(own, np.ones(len(own), bool))
        left, right = near.candidates_between(bands, others.bands(similarity), similarity)
        similar = _similar(sides, left, others, right, similarity)
        found.append((sides.keys[left[similar]], others.keys[right[similar]]))
    return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])


def _similar(sides: _Sides, left: Rows, others: _Sides, right: Rows, similarity: float) -> Mask:
    """Which of these candidates are similar enough."""
    lefts, left_place = np.unique(left, return_inverse=True)
    rights, right_place = np.unique(right, return_inverse=True)
    return near.are_similar(sides.chosen(lefts), left_place, others.chosen(rights), right_place, similarity)
