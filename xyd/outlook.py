"""The train split that a run will have: exact where the data is prepared, else forecast from a look at the corpora."""

from dataclasses import dataclass

import numpy as np

from xyd import corpus
from xyd.config import EOS_ID, Config, FilesSplit, directions, used_directions
from xyd.corpus.census import Census, asked, count_held_out, held_out, take_census, tokens_by_rule
from xyd.files import RunDir
from xyd.tokenizer import Tokenizer

CENSUS_SECONDS = 10.0  # for reading the corpora
ROWS = 20_000  # of which lengths are drawn
ASSUMED_LENGTH = 25  # tokens of a side, where nothing of a corpus is known


class RandomSplit:
    """Rows of random ids with given lengths: a batching.Split that needs no corpus."""

    def __init__(self, src_lengths: np.ndarray, tgt_lengths: np.ndarray, vocab_size: int) -> None:
        """Lengths are of bare ids."""
        self.src_lengths, self.tgt_lengths, self.vocab_size = src_lengths, tgt_lengths, vocab_size
        self.direction, self.pair_id = np.zeros(len(src_lengths), np.int16), np.arange(len(src_lengths))

    def _ids(self, length: int, seed: tuple[int, int]) -> np.ndarray:
        first = min(EOS_ID + 1, self.vocab_size - 1)
        return np.random.default_rng(seed).integers(first, self.vocab_size, length)

    def src_ids(self, i: int) -> np.ndarray:
        return self._ids(int(self.src_lengths[i]), (i, 0))

    def tgt_ids(self, i: int) -> np.ndarray:
        return self._ids(int(self.tgt_lengths[i]), (i, 1))


@dataclass
class Outlook:
    """Rows are pairs times directions; tokens are of rows as they are stored, each once."""

    split: RandomSplit  # lengths of its rows, or of some of them
    rows: float | None  # None where a corpus is not known
    seen: float | None  # rows an epoch shows, by weights, caps and temperature
    valid_rows: float
    text_bytes: float  # of the corpora, as long as they are to be prepared
    is_exact: bool
    origin: str  # where the lengths come from, in words

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a source and a target, specials included."""
        return float(self.split.src_lengths.mean()) + 1, float(self.split.tgt_lengths.mean()) + 1


def outlook(config: Config, run: RunDir) -> Outlook:
    """Raises DataError where a corpus that is to be prepared cannot be read."""
    if corpus.is_prepared(config, run):
        train, valid = corpus.open_split(run, "train"), corpus.open_split(run, "valid")
        split = RandomSplit(train.src_lengths, train.tgt_lengths, Tokenizer.load(run.tokenizer_path).vocab_size)
        shown = sum(cell.quota for cell in corpus.mixture(config, run, train, is_current=False).cells)
        return Outlook(split, len(train), shown, len(valid), 0.0, True, f"as prepared in {run.root}")
    census = take_census(config, CENSUS_SECONDS)
    for entry in census:
        if entry.problem is not None:
            raise entry.problem
    split, fits = _lengths(config, census)
    is_known = not any(entry.is_remote for entry in census)
    rows, seen = _rows(config, census, fits)
    return Outlook(
        split=split,
        rows=rows if is_known else None,
        seen=seen if is_known else None,
        valid_rows=_valid_rows(config, census),
        text_bytes=sum(entry.text_bytes for entry in census),
        is_exact=False,
        origin=_origin(config, census),
    )


def _lengths(config: Config, census: list[Census]) -> tuple[RandomSplit, float]:
    """Of the sampled rows that the model can take, by rule from characters; and which share of all they are."""
    every = max(1, sum(len(entry.sample) for entry in census) // ROWS)
    lengths, most = list[tuple[int, int]](), config.model.max_length - 1
    for entry, source in zip(census, config.data.corpora, strict=True):
        used = [tuple(name.split("-")) for name in used_directions(config, source)]
        for pair in entry.sample[::every]:
            sides = {pair.src_lang: tokens_by_rule(pair.src), pair.tgt_lang: tokens_by_rule(pair.tgt)}
            lengths += [(sides[src], sides[tgt]) for src, tgt in used if src in sides and tgt in sides]
    fitting = [row for row in lengths if max(row) <= most]
    fits = len(fitting) / max(1, len(lengths))
    array = np.array(fitting or [(min(most, ASSUMED_LENGTH - 1),) * 2] * 1000, np.int32)
    return RandomSplit(array[:, 0], array[:, 1], config.tokenizer.vocab_size), fits


def _rows(config: Config, census: list[Census], fits: float) -> tuple[float, float]:
    """Rows in train, and those that an epoch shows. Temperature moves them between directions only."""
    rows = seen = 0.0
    for src, tgt in directions(config):
        languages = corpus.sorted_pair(src, tgt)
        kept = [entry.total(languages) * entry.kept_share * fits for entry in census]
        left = max(0.0, 1 - held_out(config, languages, sum(kept)) / max(1.0, sum(kept)))
        for source, pairs in zip(config.data.corpora, kept, strict=True):
            if f"{src}-{tgt}" in used_directions(config, source):
                rows += pairs * left
                seen += min(pairs * left * source.weight, source.cap or float("inf"))
    return rows, seen


def _valid_rows(config: Config, census: list[Census]) -> float:
    pairs = [corpus.sorted_pair(*direction) for direction in directions(config)]
    if isinstance(config.data.valid, FilesSplit):
        counts = count_held_out(config, config.data.valid)
        return float(sum(counts[languages] for languages in pairs))
    return sum(asked(config.data.valid, lp, sum(entry.total(lp) for entry in census)) for lp in pairs)


def _origin(config: Config, census: list[Census]) -> str:
    sampled = sum(len(entry.sample) for entry in census)
    words = f"by rule from the characters of {sampled:,} pairs" if sampled else "assumed: no text is at hand"
    if any(not entry.is_whole and not entry.is_remote for entry in census):
        words += "; the number of pairs from the bytes read in some seconds"
    if config.augment.scale:
        words += "; without what augment adds"
    return words
