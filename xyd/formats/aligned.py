"""Aligned text files: line n of each is the same sentence. Plain or gzip, in any encoding with LF as byte 0x0A.

A line ends at LF or CRLF and nowhere else. That is why files are read as bytes and cut before they are decoded: text
mode and `str.splitlines` also cut at U+2028, U+0085, form feeds and more, and so pair the wrong lines.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import gzip
import math
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from xyd.errors import DataError
from xyd.formats.encodings import checked_encoding, count_utf8_characters, likely_encoding
from xyd.formats.report import FileReport, ReadReport
from xyd.text import SentencePair

MAX_LINE_BYTES = 64 << 20
"""A longer line means that the file is no list of sentences; refusing it keeps memory bounded."""

_BLOCK = 1 << 20
_HEAD = 1 << 16
_PACKED = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def read_files(
    files: Mapping[str, Path],
    language_pairs: Sequence[tuple[str, str]],
    *,
    encoding: str,
    on_bad_utf8: Literal["error", "drop"],
    report: ReadReport,
) -> Iterator[SentencePair]:
    """Pairs from `{language: path}`, in those of `language_pairs` that the files hold; other files are left alone.

    Line counts are compared before the first pair. A line that `encoding` cannot decode is a `DataError` naming file,
    line, byte offset and the likely encoding, or with "drop" a pair with flaw "bad_utf8" and no text on that side.
    Raises `DataError` too for files that are missing, empty, damaged, no text, or unequal in lines.
    """
    wanted = [(a, b) for a, b in language_pairs if a in files and b in files]
    if not wanted:
        return
    paths = {language: Path(files[language]) for pair in wanted for language in pair}
    encoding = checked_encoding(encoding)
    num_lines = _common_line_count(list(paths.values()), encoding)
    reports = [report.start(str(path)) for path in paths.values()]
    readers = [_lines(path, encoding, on_bad_utf8, file) for path, file in zip(paths.values(), reports, strict=True)]
    for number, row in enumerate(zip(*readers, strict=False), start=1):
        texts = dict(zip(paths, row, strict=True))
        for a, b in wanted:
            src, tgt = texts[a], texts[b]
            flaw = "bad_utf8" if src is None or tgt is None else None
            yield SentencePair(src or "", tgt or "", a, b, origin=f"{paths[a].name}:{number}", flaw=flaw)
    for path, file in zip(paths.values(), reports, strict=True):
        if file.lines != num_lines:
            raise DataError(f"{path}: the file changed while it was read; run the command again")


def _lines(
    path: Path, encoding: str, on_bad_utf8: Literal["error", "drop"], report: FileReport
) -> Iterator[str | None]:
    """The lines of a file, without their ends; None for one that cannot be decoded and is to be dropped."""
    with _opened(path) as file:
        while raw := file.readline(MAX_LINE_BYTES):
            start = report.bytes
            report.lines += 1
            report.bytes += len(raw)
            if raw.endswith(b"\r\n"):
                body = raw[:-2]
                report.crlf += 1
            elif raw.endswith(b"\n"):
                body = raw[:-1]
            elif len(raw) == MAX_LINE_BYTES:
                raise DataError(
                    f"{path}:{report.lines}: a line of more than {MAX_LINE_BYTES >> 20} MiB; "
                    "give a text file with one sentence per line"
                )
            else:  # the last line, without a line end
                body = raw
            try:
                text = body.decode(encoding)
            except UnicodeDecodeError as error:
                if on_bad_utf8 == "error":
                    raise _undecodable(path, report.lines, start, error, encoding) from None
                report.bad_lines += 1
                yield None
                continue
            if report.lines == 1 and text.startswith("\ufeff"):
                text = text[1:]
                report.bom = 1
            yield text


def _undecodable(path: Path, number: int, line_start: int, error: UnicodeDecodeError, encoding: str) -> DataError:
    """What to tell about bytes that `encoding` does not allow: where they are, and what they may be."""
    bad = error.object[error.start : error.end].hex(" ").upper()
    likely = likely_encoding(_sample(path, line_start), encoding)
    leave_out = "set data.on_bad_utf8: drop to leave out such lines with their translations, counted"
    if likely == encoding:
        advice = f"most other lines are, so this one is damaged: mend it, or {leave_out}"
    elif likely is not None:
        advice = f"the file looks like {likely}: set data.encoding: {likely}, or convert the file to UTF-8"
    else:
        advice = f"find out its encoding and set data.encoding, or convert it to UTF-8, or {leave_out}"
    return DataError(
        f"{path}:{number}: not {encoding}: byte {bad} at byte offset {line_start + error.start} of the file; {advice}"
    )


def _sample(path: Path, offset: int) -> list[bytes]:
    """Lines with non-ASCII bytes, from the head of the file and from `offset`, a line's start, on."""
    with _opened(path) as file:
        head = file.read(min(offset, _HEAD))
        file.seek(offset)
        lines = head.split(b"\n")[:-1] + file.read(_HEAD).split(b"\n")
    return [line for line in lines if not line.isascii()]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed when it is gzip; whatever the system says against it becomes a `DataError`."""
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a directory; name a text file")
        if not path.exists():
            beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            near = difflib.get_close_matches(path.name, beside, n=1)
            raise DataError(f"{path}: no such file; " + (f"did you mean {near[0]}?" if near else "check the path"))
        if not path.is_file():
            raise DataError(f"{path}: is no regular file, but must be read more than once; save its content to a file")
        with path.open("rb") as plain:
            is_gzip = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if is_gzip:
                with gzip.GzipFile(fileobj=plain) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif path.suffix == ".gz":
                raise DataError(f"{path}: is named .gz but holds no gzip data; fetch it again, or rename it")
            else:
                yield plain
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch or compress it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path and its rights") from error


def _common_line_count(paths: Sequence[Path], encoding: str) -> int:
    """How many lines each file holds; `DataError` unless they all hold the same number."""
    counts = [_count_lines(path, encoding) for path in paths]
    if len(set(counts)) == 1:
        return counts[0]
    other = next(i for i, count in enumerate(counts) if count != counts[0])
    table = "\n".join(f"  {path}: {count} lines" for path, count in zip(paths, counts, strict=True))
    suspect = _first_suspect(paths[0], paths[other], counts[0] - counts[other])
    where = f"They seem to part near line {suspect}: compare the files there. " if suspect else ""
    raise DataError(
        f"{paths[0].name} has {counts[0]} lines but {paths[other].name} has {counts[other]}; "
        f"line n of one must be the translation of line n of the other\n{table}\n"
        f"{where}Put back the missing lines, or take out those too many; nothing was read."
    )


def _count_lines(path: Path, encoding: str) -> int:
    """Lines of one file, a last one without LF included; `DataError` if it is empty or plainly no text."""
    num_lf, has_cr, last = 0, False, b""
    with _opened(path) as file:
        block = file.read(_HEAD)
        _check_head(path, block, encoding)
        while block:
            num_lf += block.count(b"\n")
            has_cr = has_cr or b"\r" in block
            last = block[-1:]
            block = file.read(_BLOCK)
    if num_lf == 0 and has_cr:
        raise DataError(f"{path}: lines end in CR only (old Mac); convert it: tr '\\r' '\\n' < {path.name} > NEW")
    return num_lf + (last != b"\n")


def _check_head(path: Path, head: bytes, encoding: str) -> None:
    """Refuse by its first bytes a file that is empty, packed, UTF-16, or UTF-8 where another encoding is set."""
    if head in (b"", codecs.BOM_UTF8):
        raise DataError(f"{path}: the file is empty; give a file with one sentence per line")
    has_nuls = 10 * head.count(b"\x00") > len(head) >= 4
    for magic, name in _PACKED.items():
        if head.startswith(magic) and b"\x00" in head:
            raise DataError(f"{path}: is packed with {name}; unpack it first (only gzip is read as it is)")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or has_nuls:
        raise DataError(
            f"{path}: is UTF-16 or no text at all; if it is UTF-16, convert it: "
            f"iconv -f UTF-16 -t UTF-8 {path.name} > NEW"
        )
    if encoding != "utf-8" and (head.startswith(codecs.BOM_UTF8) or count_utf8_characters(head) >= 20):
        raise DataError(
            f"{path}: is UTF-8, but data.encoding is {encoding}, which would read it wrongly and without an error; "
            f"set data.encoding: utf-8, and convert what is in {encoding}: iconv -f {encoding} -t UTF-8"
        )


class _Shape(NamedTuple):
    """What a line shares with its translation, whatever the languages."""

    numbers: list[bytes]
    log_length: float


def _shapes(path: Path) -> Iterator[_Shape]:
    with _opened(path) as file:
        while raw := file.readline(MAX_LINE_BYTES):
            yield _Shape(sorted(re.findall(rb"[0-9]+", raw)), math.log1p(len(raw.strip())))


def _first_suspect(a: Path, b: Path, surplus: int) -> int | None:
    """The line at which `surplus` lines too many came into `a` (into `b` if negative); None if nothing tells.

    It is the cut that fits best when the lines before it are paired straight and those from it on are shifted by the
    surplus. A pair fits if its numbers are equal and its lengths stand in the usual ratio. Memory: `surplus` lines.
    """
    longer, shorter = (a, b) if surplus > 0 else (b, a)
    shift = abs(surplus)
    if shift > 1000:  # whole parts are missing: no single line to point at
        return None
    usual = _mean_log_length(longer) - _mean_log_length(shorter)

    def fit(left: _Shape, right: _Shape) -> float:
        by_length = -abs(left.log_length - right.log_length - usual)
        if not left.numbers and not right.numbers:
            return by_length
        return by_length + (1 if left.numbers == right.numbers else -1)

    lines = _shapes(longer)
    window = deque(islice(lines, shift), maxlen=shift + 1)  # lines n to n + shift of the longer file
    gain, best_gain, best = 0.0, 0.0, 1
    for number, (ahead, right) in enumerate(zip(lines, _shapes(shorter), strict=False), start=1):
        window.append(ahead)
        gain += fit(window[0], right) - fit(ahead, right)
        if gain > best_gain:
            best_gain, best = gain, number + 1
    return best if best_gain - min(0.0, gain) >= 2 else None


def _mean_log_length(path: Path) -> float:
    lengths = [shape.log_length for shape in islice(_shapes(path), 10_000)]
    return sum(lengths) / len(lengths)
