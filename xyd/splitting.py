"""Leak-safe splits: pairs that share a folded side, in any corpus, direction or pivot, stay together.

A pair is an edge between two keys (language and folded text of a side); a connected component is a group and is never
cut. Groups of more than `max_group` pairs stay in train; the others are walked in seeded hash order, first for test,
then for valid, and taken when no language pair's quota would be passed. Identity and order of a group come from its
keys alone, so the order of corpora and lines does not matter. Numpy only: 10 million pairs take seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xyd.errors import DataError
from xyd.text import fold

TRAIN, VALID, TEST = 0, 1, 2
KINDS = ("exact", "folded", "one_side")  # of overlap, strongest first
UNLIMITED = 1 << 40
WINDOW = 100_000  # groups looked at together

Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


def key(lang: str, text: str) -> int:
    """64-bit key of one side: its language and folded text."""
    return _hash(lang, fold(text))


def exact_key(lang_a: str, text_a: str, lang_b: str, text_b: str) -> int:
    """64-bit key of a pair of normalised texts, the same in both orders of its languages."""
    first, second = sorted([(lang_a, text_a), (lang_b, text_b)])
    return _hash(*first, *second)


def _hash(*parts: str) -> int:
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


def mix(values: Keys, seed: int) -> Keys:
    """Seeded pseudo-random permutation of uint64 values (the finaliser of splitmix64, Steele et al. 2014)."""
    start = int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little")
    mixed = values + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def components(keys_a: Keys, keys_b: Keys) -> tuple[Ints, Keys]:
    """Group number of each pair, and the smallest key of each group (which names it whatever the order of pairs).

    Min-label propagation over roots with full pointer jumping, after Shiloach & Vishkin 1982.
    """
    nodes, inverse = np.unique(np.concatenate([keys_a, keys_b]), return_inverse=True)
    a, b = inverse[: len(keys_a)], inverse[len(keys_a) :]
    parent = np.arange(len(nodes))
    edge_a, edge_b = a, b
    while len(edge_a):
        low, high = np.minimum(edge_a, edge_b), np.maximum(edge_a, edge_b)
        np.minimum.at(parent, high, low)
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                break
            parent = grandparent
        edge_a, edge_b = parent[edge_a], parent[edge_b]
        open_edges = edge_a != edge_b
        edge_a, edge_b = edge_a[open_edges], edge_b[open_edges]
    roots, group = np.unique(parent[a], return_inverse=True)
    return group, nodes[roots]


def split(
    keys_a: Keys,
    keys_b: Keys,
    language_pair: npt.NDArray[np.integer],
    quotas: Mapping[str, Mapping[int, int]],
    seed: int,
    names: Sequence[str] | None = None,
    max_group: int = 20,
    strict: bool = True,
) -> npt.NDArray[np.int8]:
    """Split (N,) pairs into TRAIN, VALID, TEST without leakage.

    Args:
        keys_a, keys_b: keys of the two sides, (N,).
        language_pair: index of the language pair of each pair, (N,).
        quotas: `{"valid": {language pair: pairs}, "test": {...}}`; a language pair left out has no limit.
        names: of the language pairs, for messages.
        strict: a quota that cannot be met is an error, not a smaller split.

    Raises DataError if a quota cannot be met, with the number that is available.
    """
    placed = np.full(len(keys_a), TRAIN, np.int8)
    wanted = {name: dict(quota) for name, quota in quotas.items() if any(quota.values())}
    if not wanted:
        return placed
    asked = [lp for quota in wanted.values() for lp in quota]
    num_language_pairs = max(*asked, int(language_pair.max(initial=0))) + 1
    group, smallest_keys = components(keys_a, keys_b)
    group_size = np.bincount(group, minlength=len(smallest_keys))
    order = np.argsort(mix(smallest_keys, seed), kind="stable")
    order = order[group_size[order] <= max_group]
    counts = np.zeros((len(smallest_keys), num_language_pairs), np.uint8)
    small = group_size[group] <= max_group
    np.add.at(counts.reshape(-1), group[small] * num_language_pairs + language_pair[small], 1)

    group_split = np.full(len(smallest_keys), TRAIN, np.int8)
    for name, number in (("test", TEST), ("valid", VALID)):
        if name not in wanted:
            continue
        quota = np.full(num_language_pairs, UNLIMITED, np.int64)
        for lp, pairs in wanted[name].items():
            quota[lp] = pairs
        free = order[group_split[order] == TRAIN]
        taken, missing = _take(counts[free], quota)
        if strict and missing.any():
            available = counts[free].sum(axis=0, dtype=np.int64)
            raise DataError(_shortage(name, quota, quota - missing, available, missing, max_group, names))
        group_split[free[taken]] = number
    return group_split[group]


def _take(counts: npt.NDArray[np.uint8], quota: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Walk groups in order, take each that passes no quota; returns (taken mask, pairs still missing)."""
    limited = quota < UNLIMITED
    remaining = quota.copy()
    taken = np.zeros(len(counts), bool)
    for start in range(0, len(counts), WINDOW):
        if not (remaining[limited] > 0).any():
            break
        candidates = np.arange(start, min(start + WINDOW, len(counts)))
        while len(candidates):
            short = limited & (remaining > 0)
            own = counts[candidates]
            # A group that does not fit now never will, as what remains only shrinks: the same as a walk one by one.
            candidates = candidates[(own <= remaining).all(axis=1) & (own[:, short] > 0).any(axis=1)]
            if len(candidates):
                sums = np.cumsum(counts[candidates], axis=0, dtype=np.int64)
                useful = _prefix(sums, remaining, limited)
                taken[candidates[:useful]] = True
                remaining = remaining - sums[useful - 1]
                candidates = candidates[useful:]
    remaining = _exchange(counts, taken, remaining, limited)
    return taken, np.where(limited, remaining, 0)


def _prefix(sums: Ints, remaining: Ints, limited: npt.NDArray[np.bool_]) -> int:
    """How many groups, at least one, can be taken before one passes a quota or some quota is just met."""
    over = (sums > remaining).any(axis=1)
    met = ((sums >= remaining) & limited & (remaining > 0)).any(axis=1)
    until_over = int(over.argmax()) if over.any() else len(sums)
    until_met = int(met.argmax()) + 1 if met.any() else len(sums)
    return min(until_over, until_met)


def _exchange(
    counts: npt.NDArray[np.uint8], taken: npt.NDArray[np.bool_], remaining: Ints, limited: npt.NDArray[np.bool_]
) -> Ints:
    """Close gaps by exchanging taken groups for better ones; changes `taken`, returns what is still missing.

    Where groups hold several language pairs, one quota may be met while another, filled only together with it, is not:
    then a taken group goes, and groups with more of what is missing come in its place. A local search over kinds of
    groups (equal counts); of each kind the first in order are taken, before and after.
    """
    if not (remaining[limited] > 0).any():
        return remaining
    kinds, kind, available = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    kind, vectors = kind.reshape(-1), kinds.astype(np.int64)
    inside = np.bincount(kind[taken], minlength=len(kinds))
    while (remaining[limited] > 0).any():
        wanted = limited & (remaining > 0)
        share = vectors[:, wanted].sum(axis=1) / vectors.sum(axis=1)
        order = np.argsort(-share, kind="stable")
        order = order[share[order] > 0]
        best_gain, best = 0, None
        for give in np.flatnonzero(inside).tolist():
            bring = _fill(vectors, order, available - inside, remaining + vectors[give])
            change = bring @ vectors - vectors[give]
            gain = int(change[limited].sum())
            if gain > best_gain:
                best_gain, best = gain, (give, bring, change)
        if best is None:
            break
        give, bring, change = best
        times = [int(inside[give]), *((available - inside)[bring > 0] // bring[bring > 0]).tolist()]
        times += (remaining[change > 0] // change[change > 0]).tolist()
        inside[give] -= min(times)
        inside += min(times) * bring
        remaining = remaining - min(times) * change
    rank = np.empty(len(kind), np.int64)
    rank[np.argsort(kind, kind="stable")] = np.arange(len(kind)) - np.repeat(
        np.cumsum(available) - available, available
    )
    taken[:] = rank < inside[kind]
    return remaining


def _fill(vectors: Ints, order: Ints, free: Ints, room: Ints) -> Ints:
    """How many groups of each kind fit into the room, kinds looked at in order."""
    bring = np.zeros(len(vectors), np.int64)
    for number in order.tolist():
        needs = vectors[number] > 0
        bring[number] = min(int(free[number]), int((room[needs] // vectors[number][needs]).min()))
        room = room - bring[number] * vectors[number]
    return bring


def _shortage(
    name: str, quota: Ints, reached: Ints, available: Ints, missing: Ints, max_group: int, names: Sequence[str] | None
) -> str:
    lines = [f"data.{name}: the corpora cannot give a {name} split of this size without leakage"]
    for lp in np.flatnonzero(missing > 0).tolist():
        label = names[lp] if names else f"language pair {lp}"
        lines.append(
            f"  {label}: {quota[lp]} pairs asked for, {reached[lp]} could be split off ({available[lp]} pairs are in "
            f"groups of at most {max_group} pairs that share a sentence; larger groups stay in train)"
        )
    lines.append(f"  set data.{name} to at most {int(reached[missing > 0].min())}, give files, or add data")
    return "\n".join(lines)


@dataclass(frozen=True)
class PairKeys:
    """Keys of N pairs: both sides (folded) and the exact pair, each (N,)."""

    a: Keys
    b: Keys
    exact: Keys

    def __len__(self) -> int:
        return len(self.exact)

    def folded(self) -> Keys:
        """One key for both folded sides, the same in both orders."""
        low, high = np.minimum(self.a, self.b), np.maximum(self.a, self.b)
        return mix(mix(low, 0) ^ high, 0)


@dataclass(frozen=True)
class Overlap:
    """Kind of overlap of each train and each held-out pair, (N,): an index into KINDS, or -1 for none."""

    train: npt.NDArray[np.int8]
    held_out: npt.NDArray[np.int8]

    @property
    def remove(self) -> npt.NDArray[np.bool_]:
        """Train pairs to remove, (N,)."""
        return self.train >= 0

    def counts(self) -> dict[str, int]:
        """Train pairs by kind, each once, under its strongest kind."""
        return {name: int((self.train == number).sum()) for number, name in enumerate(KINDS)}

    def held_out_counts(self) -> dict[str, int]:
        """The same, counted in held-out pairs."""
        return {name: int((self.held_out == number).sum()) for number, name in enumerate(KINDS)}


def overlap(train: PairKeys, held_out: PairKeys) -> Overlap:
    """Which train pairs share an exact pair, both folded sides or one folded side with the held-out pairs."""
    return Overlap(_kinds(train, held_out), _kinds(held_out, train))


def _kinds(pairs: PairKeys, others: PairKeys) -> npt.NDArray[np.int8]:
    sides = np.concatenate([others.a, others.b])
    kinds = np.full(len(pairs), -1, np.int8)
    kinds[np.isin(pairs.a, sides) | np.isin(pairs.b, sides)] = KINDS.index("one_side")
    kinds[np.isin(pairs.folded(), others.folded())] = KINDS.index("folded")
    kinds[np.isin(pairs.exact, others.exact)] = KINDS.index("exact")
    return kinds
