"""Groups: connected components of pairs, sides, documents and near duplicates, in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xyd.splitting.keys import Keys

CHUNK = 1 << 20
"""Elements looked at together: numpy turns index arrays into 64-bit copies, which must not be long."""
_PARTS = 16

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Groups of pairs.

    Attributes:
        of_pair: number of the group of each pair, (N,) int32; means nothing for pairs that are left out.
        names: smallest key of a side in each group, (G,), which names it whatever the order of pairs.
        live: pairs that are not left out, (N,).
    """

    of_pair: npt.NDArray[np.int32]
    names: Keys
    live: Mask

    def sizes(self, select: Mask | None = None) -> npt.NDArray[np.int32]:
        """Pairs of each group, (G,): the live ones, or the selected ones."""
        select = self.live if select is None else select
        sizes = np.zeros(len(self.names), np.int32)
        for piece in pieces(len(self.of_pair)):
            np.add.at(sizes, self.of_pair[piece][select[piece]], np.int32(1))
        return sizes


def find_groups(
    keys_a: Keys,
    keys_b: Keys,
    live: Mask | None = None,
    documents: Keys | None = None,
    links: tuple[Keys, Keys] | None = None,
) -> Groups:
    """Groups of the live pairs (all, where None): those connected by equal keys.

    Args:
        keys_a, keys_b: keys of the two sides, (N,).
        documents: key of each pair's document, (N,), 0 for none; pairs of one document are connected.
        links: keys of sides, (M,) and (M,), that are connected too.

    Min-label propagation over roots with full pointer jumping, after Shiloach & Vishkin 1982.
    """
    live = np.ones(len(keys_a), bool) if live is None else live
    columns, masks = [keys_a, keys_b], [live, live]
    if documents is not None:
        columns.append(documents)
        masks.append(live & (documents != 0))
    if links is not None:
        columns += links
        masks += [np.ones(len(end), bool) for end in links]
    numbers, num_nodes = _number(columns, masks)
    parent = np.arange(num_nodes, dtype=np.int32)
    of_pair = numbers[0]
    if num_nodes:
        _connect(parent, of_pair, numbers[1])
        if documents is not None:
            np.copyto(numbers[2], of_pair, where=~masks[2])
            _connect(parent, of_pair, numbers[2])
        if links is not None:
            _connect(parent, *numbers[-2:])
    del numbers, masks
    num_groups = _number_roots(parent)
    _through(parent, of_pair, of_pair)
    names = np.full(num_groups, np.iinfo(np.uint64).max, np.uint64)
    for piece in pieces(len(of_pair)):
        own = live[piece]
        np.minimum.at(names, of_pair[piece][own], np.minimum(keys_a[piece][own], keys_b[piece][own]))
    return Groups(of_pair, names, live)


def first_of_each(keys: Keys) -> Mask:
    """True for the first of equal keys, (N,)."""
    first = np.zeros(len(keys), bool)
    for (positions,) in _parts([keys], [np.ones(len(keys), bool)]):
        first[positions[np.unique(keys[positions], return_index=True)[1]]] = True
    return first


def pieces(size: int) -> Iterator[slice]:
    """Slices that cover `size` elements, CHUNK at a time."""
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def _parts(columns: Sequence[Keys], masks: Sequence[Mask]) -> Iterator[list[npt.NDArray[np.intp]]]:
    """Positions of the keys of each column that lie in the first sixteenth of all keys, then in the second, …"""
    width = (1 << 64) // _PARTS
    for part in range(_PARTS):
        low, high = np.uint64(part * width), np.uint64((part + 1) * width - 1)
        yield [
            np.flatnonzero((column >= low) & (column <= high) & mask)
            for column, mask in zip(columns, masks, strict=True)
        ]


def _number(columns: Sequence[Keys], masks: Sequence[Mask]) -> tuple[list[npt.NDArray[np.int32]], int]:
    """Keys → numbers in the order of the keys, 0 where the mask is False; and how many different ones there are."""
    numbers = [np.zeros(len(column), np.int32) for column in columns]
    count = 0
    for parts in _parts(columns, masks):
        values = np.concatenate([column[positions] for column, positions in zip(columns, parts, strict=True)])
        different, inverse = np.unique(values, return_inverse=True)
        start = 0
        for number, positions in zip(numbers, parts, strict=True):
            number[positions] = inverse[start : start + len(positions)] + count
            start += len(positions)
        count += len(different)
    return numbers, count


def _connect(parent: npt.NDArray[np.int32], left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> None:
    """Let `parent` lead each node to the least node that these edges connect it with; `right` is used up."""
    one, other = _through(parent, left, np.empty_like(left)), _through(parent, right, right)
    while len(one):
        for piece in pieces(len(one)):
            low, high = np.minimum(one[piece], other[piece]), np.maximum(one[piece], other[piece])
            np.minimum.at(parent, high, low)
        has_changed = True
        while has_changed:
            has_changed = False
            for piece in pieces(len(parent)):
                above = parent[parent[piece]]
                has_changed = has_changed or not np.array_equal(above, parent[piece])
                parent[piece] = above
        one, other = _through(parent, one, one), _through(parent, other, other)
        is_open = one != other
        one, other = one[is_open], other[is_open]


def _through(
    table: npt.NDArray[np.int32], numbers: npt.NDArray[np.int32], out: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """table[numbers], in pieces."""
    if len(table):
        for piece in pieces(len(numbers)):
            out[piece] = table[numbers[piece]]
    return out


def _number_roots(parent: npt.NDArray[np.int32]) -> int:
    """Turn "my root" into "the number of my root", in place; returns how many roots there are."""
    number = np.cumsum(parent == np.arange(len(parent), dtype=np.int32), dtype=np.int32) - np.int32(1)
    _through(number, parent, parent)
    return int(number[-1]) + 1 if len(number) else 0
