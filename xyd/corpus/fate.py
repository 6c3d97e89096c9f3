"""What becomes of each kept pair: train, valid, test, or dropped as repeat, overlap or too long. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from xyd import splitting
from xyd.config import DataConfig
from xyd.corpus.pairs import Mask, Pairs
from xyd.splitting import TEST, TRAIN, VALID, PairKeys

SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}
RESERVE = 3
"""Held out beside valid and test, to fill the places of pairs that turn out too long once there is a tokenizer."""
REPEAT, TOO_MANY_TOKENS, OVERLAP = -1, -2, -3  # OVERLAP - kind of overlap
REASONS = {REPEAT: "repeat", TOO_MANY_TOKENS: "too_many_tokens"} | {
    OVERLAP - kind: f"overlap_{name}" for kind, name in enumerate(splitting.KINDS)
}

Fate = npt.NDArray[np.int8]
Quotas = Mapping[str, Mapping[int, int]]
"""`{"valid": {language pair: pairs}, "test": {...}}`"""


def decide(
    data: DataConfig, pairs: Pairs, held_out: Mapping[str, Pairs], quotas: Quotas, seed: int
) -> tuple[Fate, dict[str, Any]]:
    """What becomes of each pair: repeats and overlap with the user's own splits go, then the rest is split."""
    fate = np.full(len(pairs), TRAIN, np.int8)
    if data.drop_repeats:
        repeats = np.ones(len(pairs), bool)
        repeats[np.unique(pairs.keys.exact, return_index=True)[1]] = False  # the first of each stays
        fate[repeats] = REPEAT
    overlap: dict[str, Any] = dict.fromkeys(splitting.KINDS, 0)
    if held_out:
        live = np.flatnonzero(fate == TRAIN)
        train = _chosen(pairs.keys, live)
        joint = PairKeys(
            *(np.concatenate([getattr(own.keys, part) for own in held_out.values()]) for part in ("a", "b", "exact"))
        )
        found = splitting.overlap(train, joint)
        fate[live[found.remove]] = OVERLAP - found.train[found.remove]
        overlap = {
            **found.counts(),
            "held_out": {name: splitting.overlap(train, own.keys).held_out_counts() for name, own in held_out.items()},
        }
        if len(held_out) == 2:
            overlap["valid_in_test"] = splitting.overlap(held_out["valid"].keys, held_out["test"].keys).counts()
    live = np.flatnonzero(fate == TRAIN)
    names = ["-".join(languages) for languages in pairs.language_pairs]
    keys = _chosen(pairs.keys, live)
    fate[live] = splitting.split(keys.a, keys.b, pairs.language_pair[live], quotas, seed, names)
    return fate, overlap


def _chosen(keys: PairKeys, numbers: npt.NDArray[np.int64]) -> PairKeys:
    return PairKeys(keys.a[numbers], keys.b[numbers], keys.exact[numbers])


def hold_reserve(pairs: Pairs, fate: Fate, quotas: Quotas, seed: int, max_ids: int) -> None:
    """Move some train pairs to RESERVE: at most as many as held-out pairs could turn out too long.

    A text never has more tokens than UTF-8 bytes and one for the space before it.
    """
    num_language_pairs = len(pairs.language_pairs)
    at_risk = ((fate == VALID) | (fate == TEST)) & (pairs.longest + 1 > max_ids)
    risks = np.bincount(pairs.language_pair[at_risk], minlength=num_language_pairs)
    asked = [sum(quota[lp] for quota in quotas.values()) for lp in range(num_language_pairs)]
    reserve = {lp: min(int(risks[lp]), asked[lp] // 10 + 10) for lp in range(num_language_pairs)}
    _place(pairs, fate, fate == TRAIN, {"valid": reserve}, seed, {VALID: RESERVE})


def use_reserve(pairs: Pairs, fate: Fate, quotas: Quotas, seed: int) -> None:
    """Choose valid and test anew among all that is held out and not too long; the rest goes back to train.

    If nothing was too long the choice is the same as before, as is the order in which groups are looked at.
    """
    _place(pairs, fate, fate > TRAIN, quotas, seed, {})


def _place(pairs: Pairs, fate: Fate, select: Mask, quotas: Quotas, seed: int, names: Mapping[int, int]) -> None:
    numbers = np.flatnonzero(select)
    keys = _chosen(pairs.keys, numbers)
    placed = splitting.split(keys.a, keys.b, pairs.language_pair[numbers], quotas, seed, strict=False)
    for old, new in names.items():
        placed[placed == old] = new
    fate[numbers] = placed


def tokenizer_texts(pairs: Pairs, select: Mask, size: int, seed: int) -> list[str]:
    """At most `size` distinct sides of the selected pairs, chosen and ordered by hash, whatever the order of pairs."""
    numbers = np.flatnonzero(select)
    keys, first = np.unique(np.concatenate([pairs.keys.a[numbers], pairs.keys.b[numbers]]), return_index=True)
    order = first[np.argsort(splitting.mix(keys, seed), kind="stable")[:size]]
    rank = np.full(2 * len(numbers), -1, np.int32)
    rank[order] = np.arange(len(order))
    texts = [""] * len(order)
    for batch_numbers, batch in pairs.batches(select):
        position = np.searchsorted(numbers, batch_numbers)
        for side, offset in (("a", 0), ("b", len(numbers))):
            ranks = rank[position + offset]
            chosen = np.flatnonzero(ranks >= 0)
            for place, text in zip(ranks[chosen], batch.column(side).take(chosen).to_pylist(), strict=True):
                texts[place] = text
    return texts
