"""Files as users bring them → a stream of `SentencePair`.

Each family of formats is one module with one function: aligned text files (`aligned.read_files`) and data sets of the
Hugging Face hub (`hub.read_hub`); `read_corpus` picks. All of them stream, yield raw text (only line ends and a byte
order mark taken off) in the order of the source, and never leave out a row: what cannot be used is a `DataError`, or
a pair with a flaw that its user must drop and count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from xyd.config import CorpusConfig
from xyd.formats.aligned import read_files
from xyd.formats.hub import read_hub
from xyd.formats.report import FileReport, ReadReport
from xyd.text import SentencePair

__all__ = ["FileReport", "ReadReport", "read_corpus", "read_files"]


def read_corpus(
    corpus: CorpusConfig,
    language_pairs: Sequence[tuple[str, str]],
    *,
    encoding: str,
    on_bad_utf8: Literal["error", "drop"],
    report: ReadReport,
) -> Iterator[SentencePair]:
    """All pairs of one corpus, in those of `language_pairs` (each named once, in either order) that it holds.

    A row in three languages gives up to three pairs, one after the other, src and tgt as in `language_pairs`.
    `encoding` and `on_bad_utf8` apply to text files. Raises `DataError` where the corpus cannot be read as it is.
    """
    if corpus.hf is not None:
        return read_hub(corpus.hf, corpus.languages, language_pairs, report=report)
    assert corpus.files is not None, "the config lets no corpus pass without files or hf"
    files = {lang: path for lang, path in corpus.files.items() if corpus.languages is None or lang in corpus.languages}
    return read_files(files, language_pairs, encoding=encoding, on_bad_utf8=on_bad_utf8, report=report)
