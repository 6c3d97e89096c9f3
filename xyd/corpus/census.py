"""A look at the corpora before anything is prepared: how many pairs, which of a sample would stay, how long they are.

Nothing is written. Every pair is counted; all of the first ones are cleaned, then every second, every fourth, and so
on, and of these an even sample of the whole corpus is kept: many corpora are sorted, so their head tells little.
"""

from __future__ import annotations

import glob
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xyd.cleaning import Cleaner
from xyd.config import Config, CorpusConfig, FilesSplit, directions
from xyd.corpus.pairs import corpus_name
from xyd.corpus.rows import sorted_pair
from xyd.errors import DataError, XydError
from xyd.formats import ReadReport, read_corpus, read_files
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
    stream = read_files(split.files, wanted, encoding=config.data.encoding, on_bad_utf8="error", report=ReadReport())
    return Counter(sorted_pair(pair.src_lang, pair.tgt_lang) for pair in stream)


def _look(config: Config, corpus: CorpusConfig, end: float) -> Census:
    census, data, report = Census(corpus_name(corpus)), config.data, ReadReport()
    if _is_remote(corpus):
        census.is_remote = True
        return census
    wanted = sorted({sorted_pair(*direction) for direction in directions(config)})
    cleaner = Cleaner(data)
    try:
        stream = read_corpus(corpus, wanted, encoding=data.encoding, on_bad_utf8=data.on_bad_utf8, report=report)
        census.is_whole = _count(census, stream, cleaner, data.max_characters, end)
    except DataError as error:
        census.problem = error
    if not census.is_whole:
        census.share = _share(report)
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
    reason = pair.flaw or cleaner.reason(src, tgt)
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


def _share(report: ReadReport) -> float | None:
    """Of the bytes of a plain file; of a packed one or a data set it is not known."""
    for name, file in report.files.items():
        path = Path(name)
        if file.bytes and path.is_file() and path.suffix not in (".gz", ".xz", ".zst", ".bz2"):
            return min(1.0, file.bytes / path.stat().st_size)
    return None


def _is_remote(corpus: CorpusConfig) -> bool:
    """Whether reading it would fetch it from the hub first."""
    if corpus.hf is None or corpus.hf.data_files is not None:
        return False
    return not Path(corpus.hf.path).exists() and not glob.glob(corpus.hf.path)
