"""Additional rows of the train split: variants of its pairs (`augment`), counted by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xyd import splitting
from xyd.augment import Augmenter
from xyd.config import UNK_ID
from xyd.corpus.pairs import Mask, Pairs, sorted_pair
from xyd.splitting.keys import Keys
from xyd.text import SentencePair
from xyd.tokenizer import Tokenizer


@dataclass(frozen=True)
class AugmentedRows:
    """The additional rows made from a batch of pairs, and their counts by kind and by reason for leaving one out."""

    batch: pa.RecordBatch
    rows: Counter[str]
    left_out: Counter[str]


class Augmented:
    """Makes the additional rows, batch by batch; `rows` and `left_out` are what has been counted so far.

    `rows` counts them by kind, `left_out` those that are not there by reason: "like_held_out" (a side that folds like a
    text of valid or test), "too_many_tokens", "unknown" (a character that the tokenizer has no piece or bytes for).
    """

    def __init__(self, augmenter: Augmenter, tokenizer: Tokenizer, max_ids: int, held_out: Keys) -> None:
        """`held_out`: keys (`splitting.key`) of the texts of valid and test."""
        self._augmenter, self._tokenizer, self._max_ids = augmenter, tokenizer, max_ids
        self._held_out = np.unique(held_out)
        self.rows: Counter[str] = Counter(dict.fromkeys(augmenter.kinds, 0))
        self.left_out = Counter[str]()

    def count(self, found: AugmentedRows) -> None:
        self.rows.update(found.rows)
        self.left_out.update(found.left_out)

    def make(
        self,
        pairs: Pairs,
        numbers: npt.NDArray[np.int64],
        batch: pa.RecordBatch,
        used: Mask,
        directions: list[tuple[str, str]],
        first_id: int,
        schema: pa.Schema,
    ) -> AugmentedRows:
        """The additional rows of a batch of pairs, in the schema of train; `used` (pairs, directions): for which."""
        by_language_pair: dict[int, list[tuple[int, str, str]]] = {}
        for number, (src_lang, tgt_lang) in enumerate(directions):
            language_pair = pairs.language_pairs.index(sorted_pair(src_lang, tgt_lang))
            by_language_pair.setdefault(language_pair, []).append((number, src_lang, tgt_lang))
        variants: list[SentencePair] = []
        kinds: list[str] = []
        direction: list[int] = []
        origin_row: list[int] = []
        for kind, chosen, draws in self._augmenter.choose(pairs.keys.exact[numbers]):
            is_used = used[chosen].any(axis=1)
            chosen, draws = chosen[is_used], draws[is_used]
            rows = batch.select(["a", "b", "origin"]).take(pa.array(chosen)).to_pylist()
            for position, row, draw in zip(chosen.tolist(), rows, draws.tolist(), strict=True):
                for number, src_lang, tgt_lang in by_language_pair.get(int(pairs.language_pair[numbers[position]]), []):
                    if not used[position, number]:
                        continue
                    src, tgt = (row["a"], row["b"]) if src_lang < tgt_lang else (row["b"], row["a"])
                    pair = SentencePair(src, tgt, src_lang, tgt_lang, row["origin"])
                    variant = self._augmenter.variant(kind, pair, draw)
                    if variant is not None:
                        variants.append(variant)
                        kinds.append(kind)
                        direction.append(number)
                        origin_row.append(position)
        origin_pairs = numbers[origin_row]
        return self._encode(
            variants,
            kinds,
            direction,
            pairs.corpus[origin_pairs],
            first_id + origin_pairs,
            schema,
            pairs.split.fold_digits,
        )

    def _encode(
        self,
        variants: list[SentencePair],
        kinds: list[str],
        direction: list[int],
        corpus: npt.NDArray[np.int16],
        pair_id: npt.NDArray[np.int64],
        schema: pa.Schema,
        fold_digits: bool,
    ) -> AugmentedRows:
        keys = [splitting.key(v.src_lang, v.src, fold_digits) for v in variants]
        keys += [splitting.key(v.tgt_lang, v.tgt, fold_digits) for v in variants]
        like_held_out = np.isin(np.array(keys, np.uint64).reshape(2, -1), self._held_out).any(axis=0)
        texts = [v.src for v in variants] + [v.tgt for v in variants]
        ids = self._tokenizer.encode_normalised(texts) if texts else []
        lengths = np.fromiter(map(len, ids), np.int64, len(ids)).reshape(2, -1)
        too_long = (lengths > self._max_ids).any(axis=0)
        unknown = np.array([UNK_ID in row for row in ids], bool).reshape(2, -1).any(axis=0)
        left_out = np.zeros(len(variants), bool)
        reasons = Counter[str]()
        for reason, found in (("like_held_out", like_held_out), ("too_many_tokens", too_long), ("unknown", unknown)):
            reasons[reason] += int((found & ~left_out).sum())
            left_out |= found
        kept = np.flatnonzero(~left_out)
        columns = [
            _lists([ids[i] for i in kept.tolist()]),
            _lists([ids[len(variants) + i] for i in kept.tolist()]),
            pa.array(np.array(direction, np.int16)[kept]),
            pa.array(corpus[kept]),
            pa.array(pair_id[kept]),
            pa.array([variants[i].origin for i in kept.tolist()], pa.string()),
        ]
        rows = Counter(kinds[i] for i in kept.tolist())
        return AugmentedRows(pa.record_batch(columns, schema=schema), rows, reasons)


def _lists(rows: list[list[int]]) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    values = np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
