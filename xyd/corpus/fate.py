"""What becomes of each kept pair: train, valid, test, or dropped as repeat, overlap or too long. Numbers only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xyd import splitting
from xyd.config import CorpusConfig, DataConfig, FilesSplit, SplitConfig
from xyd.corpus.near import near_overlap, near_within
from xyd.corpus.pairs import Mask, Pairs
from xyd.errors import DataError
from xyd.splitting import TEST, TRAIN, VALID, Groups, PairKeys
from xyd.splitting.keys import Keys

SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}
RESERVE = 3
"""Held out beside valid and test, to fill the places of pairs that turn out too long once there is a tokenizer."""
REPEAT, TOO_MANY_TOKENS, OVERLAP = -1, -2, -3  # OVERLAP - kind of overlap
REASONS = {REPEAT: "repeat", TOO_MANY_TOKENS: "too_many_tokens"} | {
    OVERLAP - kind: f"overlap_{name}" for kind, name in enumerate(splitting.KINDS)
}
MAX_GROUP = 20

Fate = npt.NDArray[np.int8]
Quotas = dict[str, dict[int, int]]
"""`{"valid": {language pair: pairs}, "test": {...}}`"""


@dataclass
class Decision:
    """What becomes of the pairs, and what was found on the way.

    Attributes:
        fate: a split, or a reason to drop, of each pair, (N,).
        quotas: pairs to hold out, for the splits that are made from the corpora by size.
        overlap: with the user's own splits, by kind, for the manifest.
        facts: what else the manifest says about the groups.
        groups: of the pairs that were split, until the reserve is held.
        links: keys of near duplicates.
    """

    fate: Fate
    quotas: Quotas
    overlap: dict[str, Any]
    facts: dict[str, Any]
    groups: Groups | None = None
    links: tuple[Keys, Keys] | None = None


def rule(split: SplitConfig) -> str:
    """How pairs are split, in words."""
    shared = ["a folded side" + (", digits as 0" if split.fold_digits else "")]
    shared += ["a document"] if split.group_by == "group" else []
    shared += [f"a side at least {split.near_duplicates:g} similar"] if split.near_duplicates is not None else []
    largest = largest_group(split)
    limit = "" if largest is None else f"more than {largest} pairs: train; "
    order = "the newest are test, then valid" if split.order == "time" else "the rest in seeded hash order"
    folds = f"; fold {split.fold or 1} of {split.kfold} is test" if split.kfold else ""
    return f"connected groups of pairs sharing {' or '.join(shared)}; {limit}{order}{folds}"


def largest_group(split: SplitConfig) -> int | None:
    """Pairs of the largest group that may leave train; None = no limit."""
    if split.max_group is None and split.group_by == "none":
        return MAX_GROUP
    return split.max_group


def _is_exact(split: SplitConfig) -> bool:
    """Whether quotas can be met to the pair: documents are large, and by time the order is what counts."""
    return split.group_by == "none" and split.order == "hash"


def decide(data: DataConfig, pairs: Pairs, held_out: Mapping[str, Pairs], seed: int) -> Decision:
    """What becomes of each pair: repeats and overlap with the user's own splits go, then the rest is split.

    Raises DataError if a split cannot be filled without leakage.
    """
    fate = np.full(len(pairs), TRAIN, np.int8)
    if data.drop_repeats:
        fate[_repeats(data, pairs)] = REPEAT
    overlap = _remove_overlap(data.split, pairs, held_out, fate)
    facts = _check_columns(pairs, fate)
    live = fate == TRAIN
    quotas = {
        name: _quota(size, pairs, live)
        for name, size in (("valid", data.valid), ("test", data.test))
        if size is not None and not isinstance(size, FilesSplit)
    }
    decision = Decision(fate, quotas, overlap, facts)
    if not quotas and not data.split.kfold:
        return decision
    if data.split.near_duplicates is not None:
        decision.links = near_within(pairs, live, data.split.near_duplicates)
        facts["near_duplicate_texts"] = len(decision.links[0])
    groups = splitting.find_groups(pairs.keys.a, pairs.keys.b, live, pairs.documents, decision.links)
    decision.groups = groups
    facts["groups"] = len(groups.names)
    largest = largest_group(data.split)
    facts["pairs_in_larger_groups"] = 0 if largest is None else _num_in_larger(groups, largest)
    if data.split.kfold is not None:
        folds = splitting.fold_of(groups, pairs.language_pair, data.split.kfold, seed, largest)
        facts["fold_sizes"] = [int((folds == number + 1).sum()) for number in range(data.split.kfold)]
        fate[folds == (data.split.fold or 1)] = TEST
        live = fate == TRAIN
    # A share asks for about so many, and language pairs whose lines go together are never quite alike in number.
    loose = [name for name in quotas if not _is_exact(data.split) or _has_share(getattr(data, name))]
    placed = _split(pairs, groups, quotas, seed, live, loose)
    fate[placed != TRAIN] = placed[placed != TRAIN]
    return decision


def _repeats(data: DataConfig, pairs: Pairs) -> Mask:
    """Pairs of which an equal one stays in every direction that they are used for, (N,)."""
    table = _uses(data, pairs.language_pairs)
    if (table == table[:1]).all():
        return ~splitting.first_of_each(pairs.keys.exact)
    uses, exact = table[pairs.corpus, pairs.language_pair], pairs.keys.exact
    stays = np.zeros(len(pairs), bool)
    for use in (3, 1, 2):
        own = np.flatnonzero(uses == use)
        stays[own[splitting.first_of_each(exact[own])]] = True
    stays[(uses < 3) & np.isin(exact, exact[uses == 3])] = False
    return ~stays


def _uses(data: DataConfig, language_pairs: list[tuple[str, str]]) -> npt.NDArray[np.int8]:
    """What each corpus is used for, (corpora, language pairs): 1 = a-b, 2 = b-a, 3 = both."""

    def is_used(corpus: CorpusConfig, name: str) -> bool:
        return all(names in ("both", "all") or name in names for names in (corpus.directions, data.directions))

    return np.array(
        [
            [is_used(corpus, f"{a}-{b}") + 2 * is_used(corpus, f"{b}-{a}") for a, b in language_pairs]
            for corpus in data.corpora
        ],
        np.int8,
    )


def _split(
    pairs: Pairs,
    groups: Groups,
    quotas: Mapping[str, Mapping[int, int]],
    seed: int,
    select: Mask,
    loose: Collection[str] | None = None,
    numbers: slice | npt.NDArray[np.intp] = slice(None),
) -> Fate:
    """`splitting.split` as the config says; `groups` and `select` are those of the pairs `numbers`.

    `loose`: quotas of which a tenth may be missing; None = all may be missed.
    """
    return splitting.split(
        groups,
        pairs.language_pair[numbers],
        quotas,
        seed,
        names=["-".join(languages) for languages in pairs.language_pairs],
        max_group=largest_group(pairs.split),
        times=None if pairs.times is None else pairs.times[numbers],
        select=select,
        exchange=_is_exact(pairs.split),
        loose=loose or (),
        strict=loose is not None,
    )


def _quota(size: int | float | dict[str, int | float], pairs: Pairs, live: Mask) -> dict[int, int]:
    """Pairs to hold out of each language pair; a share is one of the pairs that are there, at least one."""
    there = np.bincount(pairs.language_pair[live], minlength=len(pairs.language_pairs))
    if isinstance(size, dict):
        index = {languages: number for number, languages in enumerate(pairs.language_pairs)}
        sizes = {index[min(parts), max(parts)]: one for name, one in size.items() for parts in [name.split("-")]}
    else:
        sizes = dict.fromkeys(range(len(pairs.language_pairs)), size)
    return {lp: one if isinstance(one, int) else max(1, round(one * int(there[lp]))) for lp, one in sizes.items()}


def _has_share(size: Any) -> bool:
    return any(isinstance(one, float) for one in (size.values() if isinstance(size, dict) else [size]))


def _remove_overlap(split: SplitConfig, pairs: Pairs, held_out: Mapping[str, Pairs], fate: Fate) -> dict[str, Any]:
    """Drop from train what it shares with the user's own splits; the counts, for the manifest."""
    kinds = splitting.KINDS if split.near_duplicates is not None else splitting.KINDS[:3]
    if not held_out:
        return dict.fromkeys(kinds, 0)
    live = fate == TRAIN
    near = None
    if split.near_duplicates is not None:
        near = near_overlap(pairs, live, list(held_out.values()), split.near_duplicates)
    joint = PairKeys(
        *(np.concatenate([getattr(own.keys, part) for own in held_out.values()]) for part in ("a", "b", "exact"))
    )
    found = splitting.overlap(pairs.keys, joint, near, live)
    counts: dict[str, Any] = {}
    for number, kind in enumerate(kinds):
        own = found.train == number
        fate[own] = OVERLAP - number
        counts[kind] = int(own.sum())
    counts["held_out"] = {
        name: splitting.overlap(pairs.keys, own.keys, near, live).held_out_counts() for name, own in held_out.items()
    }
    if len(held_out) == 2:
        valid, test = held_out["valid"], held_out["test"]
        between = None
        if split.near_duplicates is not None:
            between = near_overlap(valid, np.ones(len(valid), bool), [test], split.near_duplicates)
        counts["valid_in_test"] = splitting.overlap(valid.keys, test.keys, between).counts()
    return counts


def _check_columns(pairs: Pairs, fate: Fate) -> dict[str, Any]:
    """How many pairs lack a document or a time. Raises DataError where all of them do."""
    facts: dict[str, Any] = {}
    live = fate == TRAIN
    for key, value, column, missing in (
        ("group_by", "group", pairs.documents, 0),
        ("order", "time", pairs.times, -np.inf),
    ):
        if column is not None:
            lacking = int((live & (column == missing)).sum())
            if lacking == int(live.sum()):
                raise DataError(
                    f"data.split.{key}: {value}, but no pair of the corpora has a {value}; say in each corpus "
                    f"where it stands ({value}: a column or a further file), or leave data.split.{key} out"
                )
            facts[f"pairs_without_{value}"] = lacking
    return facts


def _num_in_larger(groups: Groups, largest: int) -> int:
    sizes = groups.sizes()
    return int(sizes[sizes > largest].sum())


def hold_reserve(pairs: Pairs, decision: Decision, seed: int, max_ids: int) -> None:
    """Move some train pairs to RESERVE: at most as many as held-out pairs could turn out too long.

    A text never has more tokens than UTF-8 bytes and one for the space before it.
    """
    fate, quotas, groups = decision.fate, decision.quotas, decision.groups
    decision.groups = None  # not needed again; this is memory
    if groups is None or not quotas:
        return
    num_language_pairs = len(pairs.language_pairs)
    at_risk = np.zeros(len(fate), bool)
    for name in quotas:
        at_risk |= fate == SPLITS[name]
    at_risk &= pairs.longest + 1 > max_ids
    risks = np.bincount(pairs.language_pair[at_risk], minlength=num_language_pairs)
    asked = [sum(quota.get(lp, 0) for quota in quotas.values()) for lp in range(num_language_pairs)]
    reserve = {lp: min(int(risks[lp]), asked[lp] // 10 + 10) for lp in range(num_language_pairs) if asked[lp]}
    placed = _split(pairs, groups, {"valid": reserve}, seed, fate == TRAIN)
    fate[placed == VALID] = RESERVE


def use_reserve(pairs: Pairs, decision: Decision, seed: int) -> None:
    """Where held-out pairs were too long, choose valid and test anew among the others; the rest goes back to train.

    The order in which groups are looked at is the same as before. Raises DataError if nothing is left for a split.
    """
    fate, quotas = decision.fate, decision.quotas
    if not quotas:
        return
    if (fate == TOO_MANY_TOKENS).any():
        _choose_anew(pairs, decision, seed)
    else:
        fate[fate == RESERVE] = TRAIN
    for name in quotas:
        if not (fate == SPLITS[name]).any():
            raise DataError(
                f"data.{name}: no pair could be split off without leakage: the groups that must stay together are too "
                f"large for what is asked for; ask for more, give files, or set data.split.group_by: none"
            )


def _choose_anew(pairs: Pairs, decision: Decision, seed: int) -> None:
    fate, quotas = decision.fate, decision.quotas
    select = fate > TRAIN
    if "test" not in quotas:
        select &= fate != TEST  # that is a fold: all of it stays
    numbers = np.flatnonzero(select)
    keys = pairs.keys.part(numbers)
    documents = None if pairs.documents is None else pairs.documents[numbers]
    groups = splitting.find_groups(keys.a, keys.b, None, documents, decision.links)
    fate[numbers] = _split(pairs, groups, quotas, seed, groups.live, numbers=numbers)


def time_facts(pairs: Pairs, fate: Fate) -> dict[str, Any]:
    """From when valid and test are, by language pair, and how many train pairs are newer: groups are never cut."""
    facts: dict[str, Any] = {}
    for name in ("valid", "test"):
        for lp, languages in enumerate(pairs.language_pairs):
            own = pairs.language_pair == lp
            held_out = own & (fate == SPLITS[name])
            if pairs.times is not None and held_out.any():
                oldest = pairs.times[held_out].min()
                facts.setdefault(name, {})["-".join(languages)] = {
                    "from": pairs.clock.text(oldest),
                    "newer_in_train": int((own & (fate == TRAIN) & (pairs.times > oldest)).sum()),
                }
    return facts


def tokenizer_texts(pairs: Pairs, select: Mask, size: int, seed: int) -> list[str]:
    """At most `size` distinct sides of the selected pairs, chosen and ordered by hash, whatever the order of pairs."""
    entries = _least(pairs, select, size, seed)
    order = np.argsort(entries)
    chosen = entries[order]
    texts = [""] * len(entries)
    wanted = np.zeros(len(pairs), bool)
    wanted[chosen // 2] = True
    for numbers, batch in pairs.batches(wanted):
        for side, column in enumerate("ab"):
            places = np.minimum(np.searchsorted(chosen, 2 * numbers + side), len(chosen) - 1)
            own = np.flatnonzero(chosen[places] == 2 * numbers + side)
            found = batch.column(column).take(own).to_pylist()
            for place, text in zip(order[places[own]].tolist(), found, strict=True):
                texts[place] = text
    return texts


def _least(pairs: Pairs, select: Mask, size: int, seed: int) -> npt.NDArray[np.int64]:
    """The first of each of the `size` sides with the least hash, as 2 x pair + side, in the order of the hash."""
    hashes, entries = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    bound, waiting = np.uint64(2**64 - 1), 0  # of the hashes that can still be among the least

    def the_least() -> tuple[Keys, npt.NDArray[np.int64]]:
        joined, entry = np.concatenate(hashes), np.concatenate(entries)
        order = np.argsort(joined, kind="stable")
        joined, entry = joined[order], entry[order]
        is_first = np.diff(joined, prepend=~joined[:1]) != 0
        return joined[is_first][:size], entry[is_first][:size]

    for piece in splitting.pieces(len(pairs)):
        numbers = piece.start + np.flatnonzero(select[piece])
        for side, keys in enumerate((pairs.keys.a, pairs.keys.b)):
            mixed = splitting.mix(keys[numbers], seed)
            low = mixed <= bound
            hashes.append(mixed[low])
            entries.append(2 * numbers[low] + side)
            waiting += int(low.sum())
        if waiting > size:
            joined, entry = the_least()
            hashes, entries, waiting = [joined], [entry], 0
            bound = joined[-1] if len(joined) == size else bound
    return the_least()[1]
