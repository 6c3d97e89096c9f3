"""A look at the corpora before anything is prepared: how many pairs, which of a sample would stay, how long they are.

Nothing is written. Every pair is counted; all of the first ones are cleaned, then every second, every fourth, and so
on, and of these an even sample of the whole corpus is kept: many corpora are sorted, so their head tells little.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xyd.cleaning import Cleaner
from xyd.config import Config, CorpusConfig, FilesSplit, directions, used_directions
from xyd.corpus.pairs import sorted_pair
from xyd.errors import DataError, XydError
from xyd.formats import ReadReport, local_files, read_corpus, source_name
from xyd.text import SentencePair, Tally, normalise

MAX_SAMPLE = 20_000  # pairs of a corpus that are drawn, evenly over all of it, at most
# Characters of a token, by rule: SentencePiece at 8,000 to 48,000 pieces on Tatoeba, Multi30k and UN text gives
# 3.2 to 4.9 in Latin script and 1.3 to 1.9 in Chinese.
CHARACTERS, UNSPACED_CHARACTERS = 4.0, 1.6
OVER_LONG = "too_long"  # what is looked for in every pair: one line of a million can be the trouble


@dataclass
class Census:
    """What was seen of one corpus."""

    name: str
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # read, by sorted pair of languages
    is_whole: bool = False  # read to its end
    share: float | None = None  # of its bytes that were read, where that is known and it is not whole
    looked_at: int = 0  # pairs cleaned
    dropped: Tally = field(default_factory=Tally)  # of those
    over_long: Tally = field(default_factory=Tally)  # of all pairs read: a side above data.max_characters
    longest: int = 0  # characters
    drawn: list[SentencePair | None] = field(default_factory=list)  # normalised, evenly; None for a dropped one
    problem: XydError | None = None
    is_remote: bool = False  # on the hub: not fetched, nothing known

    @property
    def read(self) -> int:
        return sum(self.pairs.values())

    @property
    def sample(self) -> list[SentencePair]:
        """Pairs of all of the corpus that cleaning leaves, normalised."""
        return [pair for pair in self.drawn if pair is not None]

    @property
    def kept_share(self) -> float:
        """Of the pairs drawn, those that cleaning leaves; repeats are not looked for."""
        return len(self.sample) / max(1, len(self.drawn))

    @property
    def text_bytes(self) -> float:
        """UTF-8 of the whole corpus, forecast from the sample."""
        sizes = [
            len(pair.src.encode("utf-8", "replace")) + len(pair.tgt.encode("utf-8", "replace")) for pair in self.sample
        ]
        return sum(sizes) / max(1, len(sizes)) * self.read / (self.share or 1.0)

    def total(self, languages: tuple[str, str]) -> float:
        """Pairs of these languages in the whole corpus: counted, or forecast from the share of bytes read."""
        return self.pairs[languages] / (self.share or 1.0)


def take_census(config: Config, seconds: float) -> list[Census]:
    """Look at each corpus for its share of `seconds`. What is wrong with one is in its `problem`, not raised."""
    end, found = time.perf_counter() + seconds, []
    for number, corpus in enumerate(config.data.corpora):
        now = time.perf_counter()
        found.append(_look(config, corpus, now + (end - now) / (len(config.data.corpora) - number)))
    return found


def count_held_out(config: Config, split: FilesSplit) -> Counter[tuple[str, str]]:
    """Pairs of the user's own valid or test files, by sorted pair of languages. Raises DataError as reading does."""
    wanted = sorted({sorted_pair(*direction) for direction in directions(config)})
    stream = read_corpus(split, wanted, encoding=config.data.encoding, on_bad_utf8="error", report=ReadReport())
    return Counter(sorted_pair(pair.src_lang, pair.tgt_lang) for pair in stream if pair.flaw is None)


def held_out(config: Config, languages: tuple[str, str], pairs: float) -> float:
    """Of so many pairs of these languages, those that valid and test take away by their sizes."""
    kfold = config.data.split.kfold
    taken = sum(asked(split, languages, pairs) for split in (config.data.valid, config.data.test))
    return taken + (pairs / kfold if kfold else 0.0)


def asked(split: Any, languages: tuple[str, str], pairs: float) -> float:
    """Pairs of these languages that a split of a given size holds, of so many; 0 for one of files."""
    if isinstance(split, dict):
        split = next((size for name, size in split.items() if sorted_pair(*name.split("-")) == languages), 0)
    if isinstance(split, float):
        return max(1.0, split * pairs)
    return split if isinstance(split, int) else 0.0


def _look(config: Config, corpus: CorpusConfig, end: float) -> Census:
    census, data, report = Census(source_name(corpus)), config.data, ReadReport()
    if _is_remote(corpus):
        census.is_remote = True
        return census
    used = sorted({sorted_pair(*name.split("-")) for name in used_directions(config, corpus)})
    try:
        cleaner = Cleaner(corpus.filters)
        stream = read_corpus(corpus, used, encoding=data.encoding, on_bad_utf8=data.on_bad_utf8, report=report)
        census.is_whole = _count(census, stream, cleaner, corpus.filters.max_characters, end)
    except DataError as error:
        census.problem = error
    if not census.is_whole:
        census.share = _share(corpus, report)
    return census


def _count(census: Census, stream: Iterator[SentencePair], cleaner: Cleaner, max_characters: int, end: float) -> bool:
    """True where the corpus was read to its end in time."""
    stride = 1
    for number, pair in enumerate(stream):
        census.pairs[sorted_pair(pair.src_lang, pair.tgt_lang)] += 1
        if (length := max(len(pair.src), len(pair.tgt))) > census.longest:
            census.longest = length
        if length > max_characters:
            census.over_long.add(OVER_LONG, pair.origin)
        if number % stride == 0:
            census.drawn.append(_cleaned(census, pair, cleaner))
            if len(census.drawn) > MAX_SAMPLE:
                census.drawn, stride = census.drawn[::2], 2 * stride
        if number % 1000 == 0 and time.perf_counter() > end:
            return False
    return True


def _cleaned(census: Census, pair: SentencePair, cleaner: Cleaner) -> SentencePair | None:
    census.looked_at += 1
    src, tgt = normalise(pair.src), normalise(pair.tgt)
    reason = pair.flaw or cleaner.reason(src, tgt, pair)
    if reason is None:
        return SentencePair(src, tgt, pair.src_lang, pair.tgt_lang, pair.origin)
    census.dropped.add(reason, pair.origin)
    return None


def tokens_by_rule(text: str) -> int:
    """How many tokens a tokenizer will make of it, roughly: from its characters, by their script."""
    unspaced = 0
    if not text.isascii():
        unspaced = sum("\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in text)
    return max(1, round((len(text) - unspaced) / CHARACTERS + unspaced / UNSPACED_CHARACTERS))


def _share(corpus: CorpusConfig, report: ReadReport) -> float | None:
    """Of the bytes of plain files; of packed ones, tables without lines and data sets it is not known."""
    files = local_files(corpus)
    size = sum(path.stat().st_size for path in files if path.is_file())
    read = sum(file.bytes for file in report.files.values())
    is_plain = not any(path.suffix in (".gz", ".xz", ".zst", ".bz2") for path in files)
    return min(1.0, read / size) if is_plain and read and size else None


def _is_remote(corpus: CorpusConfig) -> bool:
    """Whether reading it would fetch it from the hub first."""
    return corpus.hf is not None and corpus.hf.data_files is None and not Path(corpus.hf.path).exists()
