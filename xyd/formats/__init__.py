"""Files as users bring them → a stream of `SentencePair`.

Each family of formats is one module with one function; `read_corpus` picks. All of them stream, yield raw text (only
line ends, a byte order mark and inline codes taken off) in the order of the source, and never leave out a row: what
cannot be used is a `DataError`, or a pair with a flaw that its user must drop and count.

Below the formats: `opening` (files by name, folder or glob; unpacked), `lines` (the one reader of text lines),
`markup` (XML, safely), `rows` (columns, and rows to pairs), `encodings`, `report`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from xyd.config import SourceConfig
from xyd.formats.aligned import read_files
from xyd.formats.columnar import read_columnar
from xyd.formats.encodings import checked_encoding
from xyd.formats.hub import label_of, read_hub
from xyd.formats.json_rows import read_json
from xyd.formats.markup import Codes
from xyd.formats.opening import document_files, file_names, local_files
from xyd.formats.po import read_po
from xyd.formats.report import FileReport, ReadReport
from xyd.formats.rows import Row, mapping_rows, sentence_pairs
from xyd.formats.subtitles import read_subtitles
from xyd.formats.tables import read_table
from xyd.formats.tmx import read_tmx
from xyd.formats.wmt import read_wmt
from xyd.formats.xliff import read_xliff
from xyd.text import SentencePair

__all__ = ["FileReport", "ReadReport", "local_files", "read_corpus", "read_files", "source_name"]


def read_corpus(
    source: SourceConfig,
    language_pairs: Sequence[tuple[str, str]],
    *,
    encoding: str,
    on_bad_utf8: Literal["error", "drop"],
    report: ReadReport,
) -> Iterator[SentencePair]:
    """All pairs of one source, in those of `language_pairs` (each named once, in either order) that it holds.

    A row in three languages gives up to three pairs, one after the other, src and tgt as in `language_pairs`.
    `encoding` and `on_bad_utf8` apply to text files; an encoding of the source itself comes first. Raises `DataError`
    where the source cannot be read as it is.
    """
    assert source.languages is not None, "the config lets no source pass without languages"
    wanted = [(a, b) for a, b in language_pairs if a in source.languages and b in source.languages]
    if not wanted:
        return iter(())
    encoding = checked_encoding(source.encoding or encoding)
    if source.files is not None:
        return read_files(
            source.files,
            wanted,
            encoding=encoding,
            on_bad_utf8=on_bad_utf8,
            report=report,
            side_files=source.side_files,
            group_pattern=source.group_pattern,
        )
    if source.format in ("srt", "vtt"):
        return read_subtitles(source, wanted, encoding, on_bad_utf8, report)
    rows = read_hub(source, report=report) if source.hf else _rows(source, encoding, on_bad_utf8, report)
    return sentence_pairs(rows, wanted, source.group_pattern)


def _rows(source: SourceConfig, encoding: str, on_bad: Literal["error", "drop"], report: ReadReport) -> Iterator[Row]:
    """Rows of a format with all languages in one file, file after file."""
    paths = document_files(source)
    codes = Codes(source.languages or (), source.columns)
    for path in paths:
        file = report.start(str(path))
        match source.format:
            case "tsv" | "csv":
                yield from read_table(path, source, encoding, on_bad, file)
            case "json" | "jsonl":
                yield from mapping_rows(read_json(path, encoding, on_bad, file), source, str(path))
            case "parquet" | "arrow":
                yield from read_columnar(path, source, file)
            case "po":
                yield from read_po(path, source, encoding, on_bad, file)
            case "tmx":
                yield from read_tmx(path, source, codes, file)
            case "xliff":
                yield from read_xliff(path, source, codes, file)
            case "xml":
                yield from read_wmt(path, codes, file)
            case other:
                raise AssertionError(other)
    if source.format in ("tmx", "xliff", "xml"):
        codes.check(file_names(paths))


def source_name(source: SourceConfig) -> str:
    """How a table of counts names the source: by its files, or by the name of the data set."""
    if source.hf is not None:
        return label_of(source.hf)
    if source.files_by_language:
        return " + ".join(path.name for path in source.files_by_language.values())
    return file_names(sorted(source.paths, key=lambda path: (path.name, str(path))))
