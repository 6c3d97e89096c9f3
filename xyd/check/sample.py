"""Rows of a sample of the corpora, tokenised, in each direction that is learned."""

import math
from collections.abc import Sequence

import numpy as np

from xyd.batching import plan_epoch
from xyd.config import Config
from xyd.text import SentencePair
from xyd.tokenizer import Tokenizer

SHORT = 4  # tokens that a side of a short pair has at least, where there are such


class Sample:
    """A batching.Split in memory."""

    def __init__(self, src: list[np.ndarray], tgt: list[np.ndarray], direction: list[int]) -> None:
        self.src, self.tgt, self.direction = src, tgt, np.array(direction, np.int16)
        self.src_lengths = np.array([len(ids) for ids in src], np.int32)
        self.tgt_lengths = np.array([len(ids) for ids in tgt], np.int32)
        self.pair_id = np.arange(len(src))

    def src_ids(self, i: int) -> np.ndarray:
        return self.src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self.tgt[i]


def encoded(
    pairs: Sequence[SentencePair], tokenizer: Tokenizer, directions: Sequence[tuple[str, str]], max_ids: int
) -> tuple[Sample, int]:
    """The rows of the pairs, and how many pairs are left out because a side has more than `max_ids` tokens."""
    ids = tokenizer.encode_batch([pair.src for pair in pairs] + [pair.tgt for pair in pairs])
    src, tgt, numbers, num_long = list[np.ndarray](), list[np.ndarray](), list[int](), 0
    for pair, a, b in zip(pairs, ids, ids[len(pairs) :], strict=False):
        if max(len(a), len(b)) > max_ids:
            num_long += 1
            continue
        sides = {pair.src_lang: np.array(a, np.int32), pair.tgt_lang: np.array(b, np.int32)}
        for number, (source, target) in enumerate(directions):
            if source in sides and target in sides:
                src.append(sides[source])
                tgt.append(sides[target])
                numbers.append(number)
    return Sample(src, tgt, numbers), num_long


def steps_like(config: Config, sample: Sample, times_larger: float) -> list[list[np.ndarray]]:
    """Steps of the sample; its rows repeat where the corpus is so many times larger and could fill a micro-batch."""
    t, tokens = config.train, int((sample.src_lengths + sample.tgt_lengths + 2).sum())
    times = max(1, min(math.ceil(times_larger), math.ceil(4 * t.max_tokens / tokens)))
    lengths = (np.tile(sample.src_lengths, times), np.tile(sample.tgt_lengths, times))
    steps = plan_epoch(
        *lengths, max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step, seed=config.run.seed, epoch=0
    )
    return [[rows % len(sample.src) for rows in step] for step in steps]


def short_rows(sample: Sample, count: int) -> list[int]:
    """The shortest rows with SHORT tokens a side or more, no source twice in a direction, directions in turn."""
    shorter = np.minimum(sample.src_lengths, sample.tgt_lengths)
    order = np.lexsort((sample.src_lengths + sample.tgt_lengths, shorter < min(SHORT, int(shorter.max()))))
    queues: dict[int, list[int]] = {}
    seen = set()
    for row in order.tolist():
        direction = int(sample.direction[row])
        key = direction, tuple(sample.src[row].tolist())
        if key not in seen and len(queues.setdefault(direction, [])) < count:
            seen.add(key)
            queues[direction].append(row)
    turns = [queue[turn] for turn in range(count) for queue in queues.values() if turn < len(queue)]
    return turns[:count]
