"""Which pairs a train split shares with valid and test files that the user brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xyd.splitting.groups import Mask, pieces
from xyd.splitting.keys import Keys, PairKeys

KINDS = ("exact", "folded", "one_side", "near")  # of overlap, strongest first


@dataclass(frozen=True)
class Overlap:
    """Kind of overlap of each train and each held-out pair, (N,): an index into KINDS, or -1 for none."""

    train: npt.NDArray[np.int8]
    held_out: npt.NDArray[np.int8]
    kinds: tuple[str, ...] = KINDS[:3]
    """The kinds that were looked for."""

    @property
    def remove(self) -> npt.NDArray[np.bool_]:
        """Train pairs to remove, (N,)."""
        return self.train >= 0

    def counts(self) -> dict[str, int]:
        """Train pairs by kind, each once, under its strongest kind."""
        return {name: int((self.train == number).sum()) for number, name in enumerate(self.kinds)}

    def held_out_counts(self) -> dict[str, int]:
        """The same, counted in held-out pairs."""
        return {name: int((self.held_out == number).sum()) for number, name in enumerate(self.kinds)}


def overlap(
    train: PairKeys, held_out: PairKeys, near: tuple[Keys, Keys] | None = None, select: Mask | None = None
) -> Overlap:
    """Which train pairs share an exact pair, both folded sides or one folded side with the held-out pairs.

    Args:
        near: keys of sides that are near duplicates, of train (M,) and of held-out pairs (M,); None = not looked for.
        select: the train pairs to look at, (N,); None = all.
    """
    sides = np.sort(np.concatenate([held_out.a, held_out.b]))
    if near is not None:
        sides = np.sort(np.concatenate([sides, near[0][np.isin(near[1], sides)]]))
    touching = [np.zeros(0, np.intp)]
    for piece in pieces(len(train)):
        touches = _among(train.a[piece], sides) | _among(train.b[piece], sides)
        if select is not None:
            touches &= select[piece]
        touching.append(piece.start + np.flatnonzero(touches))
    numbers = np.concatenate(touching)
    found = np.full(len(train), -1, np.int8)
    found[numbers] = _kinds(train.part(numbers), held_out, near)
    in_held_out = _kinds(held_out, train.part(numbers), near and near[::-1])
    return Overlap(found, in_held_out, KINDS if near is not None else KINDS[:3])


def _among(values: Keys, ordered: Keys) -> Mask:
    """Which of the values are in an ordered array: faster than `np.isin` where that is much shorter."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def _kinds(pairs: PairKeys, others: PairKeys, near: tuple[Keys, Keys] | None) -> npt.NDArray[np.int8]:
    kinds = np.full(len(pairs), -1, np.int8)
    sides = np.concatenate([others.a, others.b])
    if near is not None:
        similar = near[0][np.isin(near[1], sides)]
        kinds[np.isin(pairs.a, similar) | np.isin(pairs.b, similar)] = KINDS.index("near")
    kinds[np.isin(pairs.a, sides) | np.isin(pairs.b, sides)] = KINDS.index("one_side")
    kinds[np.isin(pairs.folded(), others.folded())] = KINDS.index("folded")
    kinds[np.isin(pairs.exact, others.exact)] = KINDS.index("exact")
    return kinds
