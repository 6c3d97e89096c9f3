"""Groups → train, valid and test, by quotas of pairs per language pair."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from xyd.errors import DataError
from xyd.splitting.groups import Groups, Mask, pieces
from xyd.splitting.keys import mix

TRAIN, VALID, TEST = 0, 1, 2
UNLIMITED = 1 << 40
WINDOW = 100_000  # groups looked at together
STARTS = 8  # kinds of groups, by their share of what is missing, that an exchange may begin with
LOOSE = 0.1
"""Share of a loose quota that may be missing, but one pair where there are more."""

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.integer]


def split(
    groups: Groups,
    language_pair: npt.NDArray[np.integer],
    quotas: Mapping[str, Mapping[int, int]],
    seed: int,
    *,
    names: Sequence[str] | None = None,
    max_group: int | None = 20,
    times: npt.NDArray[np.float64] | None = None,
    select: Mask | None = None,
    exchange: bool = True,
    loose: Collection[str] = (),
    strict: bool = True,
) -> npt.NDArray[np.int8]:
    """Split (N,) pairs into TRAIN, VALID, TEST without leakage.

    Args:
        language_pair: index of the language pair of each pair, (N,).
        quotas: `{"valid": {language pair: pairs}, "test": {...}}`; a language pair left out has no limit, but no group
            is taken for its sake.
        names: of the language pairs, for messages.
        max_group: groups of more pairs stay in train; None = of any size.
        times: of the pairs, (N,): test takes the newest groups, then valid; a group is as old as its oldest pair, and
            one with a pair of no time (minus infinity) stays in train. None = seeded hash order.
        select: the pairs to split, (N,), whole groups of them; the others count as TRAIN. None = all that are live.
        exchange: exchange groups taken for others where that comes closer to the quotas: not by time, and not where
            groups are of many sizes.
        loose: names of quotas of which a tenth may be missing.
        strict: a quota that cannot be met is an error, not a smaller split.

    Raises DataError if a quota cannot be met, with the number that is available.
    """
    wanted = {name: dict(quota) for name, quota in quotas.items() if any(quota.values())}
    if not wanted:
        return np.full(len(language_pair), TRAIN, np.int8)
    select = groups.live if select is None else select
    asked = [lp for quota in wanted.values() for lp in quota]
    num_language_pairs = max(*asked, int(language_pair.max(initial=0))) + 1
    counts = pair_counts(groups, language_pair, num_language_pairs, select, max_group)
    order = _in_order(groups, counts, seed, times, select)

    group_split = np.full(len(groups.names), TRAIN, np.int8)
    for name, number in (("test", TEST), ("valid", VALID)):
        if name not in wanted:
            continue
        quota = np.full(num_language_pairs, UNLIMITED, np.int64)
        for lp, pairs in wanted[name].items():
            quota[lp] = pairs
        free = order[group_split[order] == TRAIN]
        own = counts[free]
        taken, missing = _take(own, quota, exchange)
        tolerated = np.minimum(np.maximum(LOOSE * quota, 1), quota - 1) if name in loose else 0
        if strict and (missing > tolerated).any():
            available = own.sum(axis=0, dtype=np.int64)
            raise DataError(_shortage(name, quota, quota - missing, available, missing, max_group, names))
        group_split[free[taken]] = number
    return on_pairs(groups, group_split, select)


def on_pairs(groups: Groups, of_group: npt.NDArray[np.int8], select: Mask) -> npt.NDArray[np.int8]:
    """What holds of the group of each selected pair, (N,); TRAIN for the others."""
    found = np.full(len(groups.of_pair), TRAIN, np.int8)
    for piece in pieces(len(found)):
        np.copyto(found[piece], of_group[groups.of_pair[piece]], where=select[piece])
    return found


def pair_counts(
    groups: Groups, language_pair: npt.NDArray[np.integer], num_language_pairs: int, select: Mask, max_group: int | None
) -> Counts:
    """Selected pairs of each group by language pair, (G, language pairs); zeros for a group above `max_group`."""
    sizes = groups.sizes(select)
    if max_group is not None:
        sizes[sizes > max_group] = 0
    counts = np.zeros((len(sizes), num_language_pairs), np.uint8 if sizes.max(initial=0) < 256 else np.int32)
    flat = counts.reshape(-1)
    for piece in pieces(len(select)):
        own = groups.of_pair[piece][select[piece]].astype(np.int64)
        places = own * num_language_pairs + language_pair[piece][select[piece]]
        np.add.at(flat, places[sizes[own] > 0], flat.dtype.type(1))
    return counts


def _in_order(
    groups: Groups, counts: Counts, seed: int, times: npt.NDArray[np.float64] | None, select: Mask
) -> npt.NDArray[np.intp]:
    """Numbers of the groups that have pairs to give: the newest first, or in seeded hash order."""
    candidates = np.flatnonzero(counts.any(axis=1))
    if times is None:
        return candidates[np.argsort(mix(groups.names[candidates], seed), kind="stable")]
    oldest = np.full(len(groups.names), np.inf)
    for piece in pieces(len(select)):
        np.minimum.at(oldest, groups.of_pair[piece][select[piece]], times[piece][select[piece]])
    candidates = candidates[np.isfinite(oldest[candidates])]
    return candidates[np.lexsort((mix(groups.names[candidates], seed), -oldest[candidates]))]


def _take(counts: Counts, quota: Ints, exchange: bool) -> tuple[Mask, Ints]:
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
    if exchange:
        remaining = _exchange(counts, taken, remaining, limited)
    return taken, np.where(limited, remaining, 0)


def _prefix(sums: Ints, remaining: Ints, limited: Mask) -> int:
    """How many groups, at least one, can be taken before one passes a quota or some quota is just met."""
    over = (sums > remaining).any(axis=1)
    met = ((sums >= remaining) & limited & (remaining > 0)).any(axis=1)
    until_over = int(over.argmax()) if over.any() else len(sums)
    until_met = int(met.argmax()) + 1 if met.any() else len(sums)
    return min(until_over, until_met)


def _exchange(counts: Counts, taken: Mask, remaining: Ints, limited: Mask) -> Ints:
    """Close gaps by exchanging taken groups for better ones; changes `taken`, returns what is still missing.

    Where groups hold several language pairs, one quota may be met while another, filled only together with it, is not:
    then a taken group goes, and groups with more of what is missing come in its place. A local search over kinds of
    groups (equal counts); of each kind the first in order are taken, before and after.
    """
    if not (remaining[limited] > 0).any():
        return remaining
    vectors, kind, available = _kinds(counts)
    inside = np.bincount(kind[taken], minlength=len(vectors))
    while (remaining[limited] > 0).any():
        wanted = limited & (remaining > 0)
        share = vectors[:, wanted].sum(axis=1) / vectors.sum(axis=1)
        order = np.argsort(-share, kind="stable")
        order = order[share[order] > 0]
        best_gain, best = 0, None
        for give, start in product(np.flatnonzero(inside).tolist(), range(min(len(order), STARTS))):
            # The kind with the largest share can take up the room of several that together fit better.
            bring = _fill(vectors, order[start:], available - inside, remaining + vectors[give])
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


def _kinds(counts: Counts) -> tuple[Ints, Ints, Ints]:
    """Different rows of counts, in order; which of them each row is; how many there are of each."""
    base = int(counts.max(initial=0)) + 1
    if base ** counts.shape[1] >= 1 << 63:
        kinds, kind, available = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
        return kinds.astype(np.int64), kind.reshape(-1), available
    weights = base ** np.arange(counts.shape[1] - 1, -1, -1, dtype=np.int64)
    codes, kind, available = np.unique(counts @ weights, return_inverse=True, return_counts=True)
    return codes[:, None] // weights % base, kind, available


def _fill(vectors: Ints, order: Ints, free: Ints, room: Ints) -> Ints:
    """How many groups of each kind fit into the room, kinds looked at in order."""
    bring = np.zeros(len(vectors), np.int64)
    for number in order.tolist():
        needs = vectors[number] > 0
        bring[number] = min(int(free[number]), int((room[needs] // vectors[number][needs]).min()))
        room = room - bring[number] * vectors[number]
    return bring


def _shortage(
    name: str,
    quota: Ints,
    reached: Ints,
    available: Ints,
    missing: Ints,
    max_group: int | None,
    names: Sequence[str] | None,
) -> str:
    lines = [f"data.{name}: the corpora cannot give a {name} split of this size without leakage"]
    limit, rest = (f" of at most {max_group} pairs", "; larger groups stay in train") if max_group else ("", "")
    labels = names or [f"language pair {lp}" for lp in range(len(quota))]
    lines += [
        f"  {labels[lp]}: {quota[lp]} pairs asked for, {reached[lp]} could be split off, of {available[lp]} in "
        f"groups{limit} that stay together{rest}"
        for lp in np.flatnonzero(missing > 0).tolist()
    ]
    # Where language pairs share lines, a smaller size for all of them would only end the walk earlier.
    asked = np.flatnonzero(quota < UNLIMITED).tolist()
    sizes = ", ".join(f"{labels[lp]}: {reached[lp]}" for lp in asked)
    most = f"{{{sizes}}}" if len(asked) > 1 else f"{reached[asked[0]]}"
    lines.append(f"  set data.{name} to at most {most}, give files, or add data")
    return "\n".join(lines)
