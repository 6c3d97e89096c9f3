"""Leak-safe splits: pairs that share a folded side, in any corpus, direction or pivot, stay together.

A pair is an edge between two keys (language and folded text of a side); a connected component is a group and is never
cut. Documents and near duplicates, where they are asked for, are further edges. Groups of more than `max_group` pairs
stay in train; the others are walked in seeded hash order or from the newest on, first for test, then for valid, and
taken when no language pair's quota would be passed. Identity and order of a group come from its keys alone, so the
order of corpora and lines does not matter.

Rooms: `keys` texts → numbers; `groups` numbers → groups; `quotas` and `folds` groups → splits; `overlap` with the
user's own splits; `near` similar texts by MinHash, imported by its full name. Numpy only, in pieces, so that temporary
arrays stay small: figures in LOG.md.
"""

from __future__ import annotations

from xyd.splitting.folds import fold_of
from xyd.splitting.groups import Groups, find_groups, first_of_each, pieces
from xyd.splitting.keys import Clock, PairKeys, document_key, exact_key, folded, key, mix
from xyd.splitting.overlap import KINDS, Overlap, overlap
from xyd.splitting.quotas import TEST, TRAIN, VALID, split

__all__ = [
    "KINDS",
    "TEST",
    "TRAIN",
    "VALID",
    "Clock",
    "Groups",
    "Overlap",
    "PairKeys",
    "document_key",
    "exact_key",
    "find_groups",
    "first_of_each",
    "fold_of",
    "folded",
    "key",
    "mix",
    "overlap",
    "pieces",
    "split",
]
