"""Pairs that come more than once, told by a hash of 8 bytes a pair."""

from __future__ import annotations

from array import array

import numpy as np

from xyd.text import fold_normalised

_EXACT_BITS = 16


class Repeats:
    """Counts pairs whose like, exactly or folded, came before.

    The upper 48 bits of a hash are those of the folded pair, the lower 16 those of the exact one: of ten million pairs,
    fewer than one is taken for another's like.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, src: str, tgt: str) -> None:
        folded, exact = hash((fold_normalised(src), fold_normalised(tgt))), hash((src, tgt))
        self._hashes.append((folded & 0xFFFFFFFFFFFF) << _EXACT_BITS | exact & 0xFFFF)

    def found(self, limit: int) -> dict[str, tuple[int, list[int]]]:
        """Of each kind, how many pairs repeat an earlier one, and the numbers of the first, from 0."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        if not len(hashes):
            return {}
        order = np.argsort(hashes >> np.uint64(_EXACT_BITS), kind="stable")
        of_folded = hashes[order] >> np.uint64(_EXACT_BITS)
        is_folded = np.zeros(len(hashes), bool)
        is_folded[order[1:]] = of_folded[1:] == of_folded[:-1]
        order = np.argsort(hashes, kind="stable")
        is_exact = np.zeros(len(hashes), bool)
        is_exact[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
        found = {"repeat": np.flatnonzero(is_exact), "repeat_folded": np.flatnonzero(is_folded & ~is_exact)}
        return {name: (len(at), at[:limit].tolist()) for name, at in found.items()}
