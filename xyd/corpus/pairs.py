"""Pass 1: read, normalise, clean; the pairs that stay lie in a temporary Arrow file, their keys in memory."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from xyd import splitting
from xyd.cleaning import Cleaner
from xyd.config import Config, FilesSplit, SplitConfig, used_directions
from xyd.corpus.pool import in_order
from xyd.formats import ReadReport, read_corpus, source_name
from xyd.health import Health
from xyd.splitting import PairKeys
from xyd.text import SentencePair, Tally, faults, normalise

BATCH_ROWS = 8192
FULLY_LOOKED_AT, THEN_EVERY = 50_000, 16
"""Pairs of a corpus up to which the health report looks at all; of the chunks after those, at every 16th."""

Mask = npt.NDArray[np.bool_]

_PAIR_SCHEMA = pa.schema(
    [("a", pa.string()), ("b", pa.string()), ("raw_a", pa.string()), ("raw_b", pa.string()), ("origin", pa.string())]
)


@dataclass(frozen=True)
class Chunk:
    """Some neighbouring pairs of one corpus, or of a split of the user's own (-1), as they were read."""

    corpus: int
    pairs: list[tuple[Any, ...]]  # the fields of SentencePair: tuples travel between processes much faster
    is_looked_at: bool = False  # whether the health report needs the texts


@dataclass(frozen=True)
class Digest:
    """What is left of a chunk: the texts kept, their keys and numbers, and what befell the others."""

    texts: pa.RecordBatch
    keys: list[npt.NDArray[np.uint64]]  # side a, side b, exact pair
    language_pair: npt.NDArray[np.int16]
    corpus: npt.NDArray[np.int16]
    longest: npt.NDArray[np.int32]
    documents: npt.NDArray[np.uint64] | None  # where documents stay together
    times: list[tuple[str | None, str]] | None  # (time, origin), where pairs are split by time
    dropped: Tally
    changed: Tally
    normalised: list[tuple[str, str]]  # both sides of every pair, if the chunk is looked at


class Digester:
    """Chunk → Digest: normalise, clean, hash. Knows nothing of other chunks, so many can work at once.

    Side a of a pair is that of the language which sorts first, so the order of languages in a config does not matter.
    """

    def __init__(self, pairs: Pairs, cleaners: Sequence[Cleaner]) -> None:
        """`pairs`: that the digests are made for. `cleaners`: one for each corpus."""
        self._index = {languages: number for number, languages in enumerate(pairs.language_pairs)}
        self._split = pairs.split
        self._cleaners = cleaners

    def __call__(self, chunk: Chunk) -> Digest:
        cleaner = self._cleaners[chunk.corpus] if chunk.corpus >= 0 else None  # the user's own lines stay as they are
        dropped, changed = Tally(), Tally()
        normalised: list[tuple[str, str]] = []
        rows: list[tuple[str, str, str | None, str | None, str]] = []
        keys: tuple[list[int], list[int], list[int]] = ([], [], [])
        language_pair: list[int] = []
        fold_digits = self._split.fold_digits
        documents: list[int] | None = [] if self._split.group_by == "group" else None
        times: list[tuple[str | None, str]] | None = [] if self._split.order == "time" else None
        for values in chunk.pairs:
            raw_src, raw_tgt, src_lang, tgt_lang, origin, group, flaw, _, time = values
            src, tgt = normalise(raw_src), normalise(raw_tgt)
            if chunk.is_looked_at:
                normalised.append((src, tgt))
            if flaw is not None:
                dropped.add(flaw, origin)
                continue
            if src != raw_src or tgt != raw_tgt:
                changed.add_all({*faults(raw_src), *faults(raw_tgt)}, origin)
            if cleaner is not None:
                reason = cleaner.reason(src, tgt, SentencePair(*values) if cleaner.needs_pair else None)
                if reason is not None:
                    dropped.add(reason, origin)
                    continue
            a, b, raw_a, raw_b, lang_a, lang_b = src, tgt, raw_src, raw_tgt, src_lang, tgt_lang
            if lang_a > lang_b:
                a, b, raw_a, raw_b, lang_a, lang_b = b, a, raw_b, raw_a, lang_b, lang_a
            rows.append((a, b, raw_a if raw_a != a else None, raw_b if raw_b != b else None, origin))
            keys[0].append(splitting.key(lang_a, a, fold_digits))
            keys[1].append(splitting.key(lang_b, b, fold_digits))
            keys[2].append(splitting.exact_key(lang_a, a, lang_b, b))
            language_pair.append(self._index[lang_a, lang_b])
            if documents is not None:
                documents.append(splitting.document_key(group))
            if times is not None:
                times.append((time, origin))
        texts = _record_batch(rows)
        bytes_a, bytes_b = (pc.binary_length(texts.column(side)).to_numpy() for side in "ab")
        return Digest(
            texts,
            [np.array(column, np.uint64) for column in keys],
            np.array(language_pair, np.int16),
            np.full(len(rows), chunk.corpus, np.int16),
            np.maximum(bytes_a, bytes_b).astype(np.int32),
            None if documents is None else np.array(documents, np.uint64),
            times,
            dropped,
            changed,
            normalised,
        )


def _record_batch(rows: list[tuple[str, str, str | None, str | None, str]]) -> pa.RecordBatch:
    columns = list(map(list, zip(*rows, strict=True))) or [[]] * len(_PAIR_SCHEMA)
    try:
        return pa.record_batch(columns, schema=_PAIR_SCHEMA)
    except UnicodeEncodeError:  # lone surrogates, which JSON data can bring in
        return pa.record_batch([[_valid_utf8(text) for text in column] for column in columns], schema=_PAIR_SCHEMA)


_FIELDS = attrgetter(*(field.name for field in fields(SentencePair)))


def chunks(corpus: int, pairs: Iterable[SentencePair]) -> Iterator[Chunk]:
    """The pairs of one corpus, some at a time."""
    stream = map(_FIELDS, pairs)
    for number in count():
        rows = list(islice(stream, BATCH_ROWS))
        if not rows:
            return
        yield Chunk(corpus, rows, number * BATCH_ROWS < FULLY_LOOKED_AT or number % THEN_EVERY == 0)


class Pairs:
    """Pairs kept by pass 1: their text in an Arrow file, their keys and numbers in memory."""

    def __init__(self, path: Path, language_pairs: list[tuple[str, str]], split: SplitConfig | None = None) -> None:
        """`split`: how they will be split, which decides what must be remembered of each pair."""
        self.path = path
        self.language_pairs = language_pairs
        self.split = split or SplitConfig()
        self.clock = splitting.Clock()

    def fill(self, digests: Iterable[Digest]) -> None:
        """Draw the digests until the end."""
        keys: tuple[array[int], array[int], array[int]] = (array("Q"), array("Q"), array("Q"))
        language_pair, corpus, longest = array("h"), array("h"), array("i")
        documents, times = array("Q"), array("d")
        with pa.OSFile(str(self.path), "wb") as file, pa.ipc.new_stream(file, _PAIR_SCHEMA) as writer:
            for digest in digests:
                if len(digest.texts):
                    writer.write_batch(digest.texts)
                for column, hashes in zip(keys, digest.keys, strict=True):
                    column.frombytes(hashes.tobytes())
                language_pair.frombytes(digest.language_pair.tobytes())
                corpus.frombytes(digest.corpus.tobytes())
                longest.frombytes(digest.longest.tobytes())
                if digest.documents is not None:
                    documents.frombytes(digest.documents.tobytes())
                if digest.times is not None:
                    times.extend(self.clock.read(time, origin) for time, origin in digest.times)
        self.keys = PairKeys(*(np.frombuffer(column, np.uint64) for column in keys))
        self.language_pair = np.frombuffer(language_pair, np.int16)
        self.corpus = np.frombuffer(corpus, np.int16)
        self.longest = np.frombuffer(longest, np.int32)  # UTF-8 bytes of the longer side
        # Key of the document, 0 for none, and the time, minus infinity for none; None where they do not matter.
        self.documents = np.frombuffer(documents, np.uint64) if self.split.group_by == "group" else None
        self.times = np.frombuffer(times, np.float64) if self.split.order == "time" else None

    def __len__(self) -> int:
        return len(self.keys)

    def batches(self, select: Mask) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """(numbers of the pairs, their rows) of the selected pairs, batch by batch."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            start = 0
            for batch in reader:
                chosen = np.flatnonzero(select[start : start + len(batch)])
                if len(chosen):
                    yield start + chosen, batch.take(pa.array(chosen)) if len(chosen) < len(batch) else batch
                start += len(batch)


def sorted_pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def _valid_utf8(text: str | None) -> str | None:
    """Arrow holds no lone surrogates, which JSON data can bring in."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()


@dataclass
class CorpusCount:
    """What became of the pairs of one corpus."""

    name: str
    read: int
    dropped: Tally
    changed: Tally
    health: Health
    kept: int = 0


def read_corpora(config: Config, pairs: Pairs, report: ReadReport) -> list[CorpusCount]:
    """Fill `pairs` with what is kept of all corpora; returns what became of each."""
    names = [source_name(corpus) for corpus in config.data.corpora]
    # Repeats are found and dropped by their keys, later.
    health = [Health(name, repeats=False) for name in names]
    counts = [CorpusCount(name, 0, Tally(), Tally(), of_it) for name, of_it in zip(names, health, strict=True)]
    under_way: deque[Chunk] = deque()

    def read() -> Iterator[Chunk]:
        for number, corpus in enumerate(config.data.corpora):
            used = {tuple(sorted(name.split("-"))) for name in used_directions(config, corpus)}
            language_pairs = [languages for languages in pairs.language_pairs if languages in used]
            stream = read_corpus(
                corpus,
                language_pairs,
                encoding=config.data.encoding,
                on_bad_utf8=config.data.on_bad_utf8,
                report=report,
            )
            for chunk in chunks(number, stream):
                under_way.append(chunk)
                yield chunk

    def counted(digests: Iterable[Digest]) -> Iterator[Digest]:
        for digest in digests:
            chunk = under_way.popleft()
            of_corpus = counts[chunk.corpus]
            of_corpus.read += len(chunk.pairs)
            of_corpus.dropped.merge(digest.dropped)
            of_corpus.changed.merge(digest.changed)
            if chunk.is_looked_at:
                for values, (src, tgt) in zip(chunk.pairs, digest.normalised, strict=True):
                    of_corpus.health.add(SentencePair(*values), src, tgt)
            else:
                for languages, number in Counter(map(itemgetter(2, 3), chunk.pairs)).items():
                    of_corpus.health.pass_over(languages[0], languages[1], number)
            yield digest

    digester = Digester(pairs, [Cleaner(corpus.filters) for corpus in config.data.corpora])
    pairs.fill(counted(in_order(digester, read())))
    return counts


def read_held_out(config: Config, split: FilesSplit, pairs: Pairs, report: ReadReport) -> Tally:
    """The user's own valid or test pairs: every one is kept as it is, and a line that cannot be read is an error.

    What the format itself sets aside (a fuzzy entry, a cue alone) is left out and comes back, counted.
    """
    left_out = Tally()

    def usable() -> Iterator[SentencePair]:
        for pair in read_corpus(
            split, pairs.language_pairs, encoding=config.data.encoding, on_bad_utf8="error", report=report
        ):
            if pair.flaw is not None:
                left_out.add(pair.flaw, pair.origin)
            else:
                yield pair

    pairs.fill(map(Digester(pairs, []), chunks(-1, usable())))
    return left_out
