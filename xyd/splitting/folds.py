"""Groups → K folds, each of which is the test split once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xyd.splitting.groups import Groups
from xyd.splitting.keys import mix
from xyd.splitting.quotas import on_pairs, pair_counts


def fold_of(
    groups: Groups, language_pair: npt.NDArray[np.integer], num_folds: int, seed: int, max_group: int | None = 20
) -> npt.NDArray[np.int8]:
    """Fold of each pair, 1 to `num_folds`, (N,); 0 for those in groups of more than `max_group` and those left out.

    Groups are dealt out in turn, those with equal numbers of pairs in each language pair one after the other, in seeded
    hash order: so folds are alike in size in every language pair.
    """
    num_language_pairs = int(language_pair.max(initial=0)) + 1
    counts = pair_counts(groups, language_pair, num_language_pairs, groups.live, max_group)
    candidates = np.flatnonzero(counts.any(axis=1))
    order = np.lexsort((mix(groups.names[candidates], seed), *counts[candidates].T))
    fold = np.zeros(len(groups.names), np.int8)
    fold[candidates[order]] = np.arange(len(candidates)) % num_folds + 1
    return on_pairs(groups, fold, groups.live)
