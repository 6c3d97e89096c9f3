"""Pass 1: read, normalise, clean; the pairs that stay lie in a temporary Arrow file, their keys in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xyd import splitting
from xyd.cleaning import Cleaner
from xyd.config import Config, CorpusConfig, FilesSplit
from xyd.formats import ReadReport, read_corpus, read_files
from xyd.splitting import PairKeys
from xyd.text import SentencePair, Tally, faults, normalise

BATCH_ROWS = 8192

Mask = npt.NDArray[np.bool_]

_PAIR_SCHEMA = pa.schema(
    [("a", pa.string()), ("b", pa.string()), ("raw_a", pa.string()), ("raw_b", pa.string()), ("origin", pa.string())]
)


class Pairs:
    """Pairs kept by pass 1: their text in an Arrow file, their keys and numbers in memory.

    Side a of a pair is that of the language which sorts first, so the order of languages in a config does not matter.
    """

    def __init__(self, path: Path, language_pairs: list[tuple[str, str]]) -> None:
        self.path = path
        self.language_pairs = language_pairs
        self._index = {languages: number for number, languages in enumerate(language_pairs)}
        self._keys = [array("Q"), array("Q"), array("Q")]
        self._language_pair, self._corpus, self._longest = array("h"), array("h"), array("i")
        self._rows: list[tuple[str, str, str | None, str | None, str]] = []

    def fill(self, pairs: Iterable[tuple[int, SentencePair, str, str]]) -> None:
        """Draw (corpus, pair, normalised src, normalised tgt) until the end."""
        with pa.OSFile(str(self.path), "wb") as file, pa.ipc.new_stream(file, _PAIR_SCHEMA) as writer:
            for corpus, pair, src, tgt in pairs:
                self._add(corpus, pair, src, tgt)
                if len(self._rows) == BATCH_ROWS:
                    self._flush(writer)
            self._flush(writer)
        self.keys = PairKeys(*(np.frombuffer(keys, np.uint64) for keys in self._keys))
        self.language_pair = np.frombuffer(self._language_pair, np.int16)
        self.corpus = np.frombuffer(self._corpus, np.int16)
        self.longest = np.frombuffer(self._longest, np.int32)  # UTF-8 bytes of the longer side

    def _add(self, corpus: int, pair: SentencePair, src: str, tgt: str) -> None:
        sides = sorted([(pair.src_lang, src, pair.src), (pair.tgt_lang, tgt, pair.tgt)])
        (lang_a, a, raw_a), (lang_b, b, raw_b) = sides
        self._rows.append((a, b, raw_a if raw_a != a else None, raw_b if raw_b != b else None, pair.origin))
        self._keys[0].append(splitting.key(lang_a, a))
        self._keys[1].append(splitting.key(lang_b, b))
        self._keys[2].append(splitting.exact_key(lang_a, a, lang_b, b))
        self._language_pair.append(self._index[lang_a, lang_b])
        self._corpus.append(corpus)
        self._longest.append(max(_num_bytes(a), _num_bytes(b)))

    def _flush(self, writer: pa.RecordBatchWriter) -> None:
        if self._rows:
            columns = [[_valid_utf8(text) for text in column] for column in zip(*self._rows, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=_PAIR_SCHEMA))
            self._rows.clear()

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


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


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
    kept: int = 0


def read_corpora(config: Config, pairs: Pairs, report: ReadReport) -> list[CorpusCount]:
    cleaner = Cleaner(config.data)
    counts = [CorpusCount(corpus_name(corpus), 0, Tally(), Tally()) for corpus in config.data.corpora]

    def kept() -> Iterator[tuple[int, SentencePair, str, str]]:
        for number, corpus in enumerate(config.data.corpora):
            count = counts[number]
            for pair in read_corpus(
                corpus,
                pairs.language_pairs,
                encoding=config.data.encoding,
                on_bad_utf8=config.data.on_bad_utf8,
                report=report,
            ):
                count.read += 1
                if pair.flaw is not None:
                    count.dropped.add(pair.flaw, pair.origin)
                    continue
                src, tgt = normalise(pair.src), normalise(pair.tgt)
                if src != pair.src or tgt != pair.tgt:
                    count.changed.add_all({*faults(pair.src), *faults(pair.tgt)}, pair.origin)
                reason = cleaner.reason(src, tgt)
                if reason is not None:
                    count.dropped.add(reason, pair.origin)
                else:
                    yield number, pair, src, tgt

    pairs.fill(kept())
    return counts


def corpus_name(corpus: CorpusConfig) -> str:
    if corpus.files is not None:
        return " + ".join(Path(path).name for path in corpus.files.values())
    assert corpus.hf is not None
    return "/".join(filter(None, (corpus.hf.path, corpus.hf.name))) + f"[{corpus.hf.split}]"


def read_held_out(config: Config, split: FilesSplit, pairs: Pairs, report: ReadReport) -> None:
    """The user's own valid or test files: every line is kept as it is, so a line that cannot be read is an error."""
    stream = read_files(
        split.files, pairs.language_pairs, encoding=config.data.encoding, on_bad_utf8="error", report=report
    )
    pairs.fill((-1, pair, normalise(pair.src), normalise(pair.tgt)) for pair in stream)
