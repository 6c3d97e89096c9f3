"""Lines of a text file, plain or packed, in any encoding with LF as byte 0x0A. All text formats are read through this.

A line ends at LF or CRLF and nowhere else. That is why files are read as bytes and cut before they are decoded: text
mode and `str.splitlines` also cut at U+2028, U+0085, form feeds and more, and so pair the wrong lines.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from xyd.errors import DataError
from xyd.formats.encodings import count_utf8_characters, likely_encoding
from xyd.formats.opening import head_of, opened, skip
from xyd.formats.report import FileReport

MAX_LINE_BYTES = 64 << 20
"""A longer line means that the file is no list of sentences; refusing it keeps memory bounded."""

BAD = "\udcff"
"""Stands in a text where bytes could not be decoded and the user asked to drop such lines."""

MARK_BAD = "xyd.mark_bad"
"""Name of the handler for `bytes.decode` that puts `BAD` there."""

OnBad = Literal["error", "drop"]

HEAD = 1 << 16
_PACKED = {b"PK\x03\x04": "zip", b"BZh": "bzip2"}


def _mark_bad(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return BAD, error.end


codecs.register_error(MARK_BAD, _mark_bad)


def read_lines(path: Path, encoding: str, on_bad: OnBad, report: FileReport) -> Iterator[str]:
    """The lines of a file, without their ends and a byte order mark at the start.

    A line that cannot be decoded is a `DataError`, or, if it is to be dropped, holds `BAD`, is counted, and must be
    dropped by whoever reads on.
    """
    check_head(path, head_of(path, HEAD), encoding)
    with opened(path) as file:
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
                if report.lines == 1 and b"\r" in raw:
                    raise cr_only(path)
            try:
                text = body.decode(encoding)
            except UnicodeDecodeError as error:
                if on_bad == "error":
                    raise undecodable(path, report.lines, start, error, encoding) from None
                report.bad_lines += 1
                text = body.decode(encoding, MARK_BAD)
            if report.lines == 1 and text.startswith("\ufeff"):
                text = text[1:]
                report.bom = 1
            yield text


def undecodable(path: Path, number: int, start: int, error: UnicodeDecodeError, encoding: str) -> DataError:
    """What to tell about bytes that `encoding` does not allow: where they are, and what they may be.

    `number`: of the line; `start`: byte offset in the file at which `error.object` begins.
    """
    bad = error.object[error.start : error.end].hex(" ").upper()
    likely = likely_encoding(_sample(path, start), encoding)
    leave_out = "set data.on_bad_utf8: drop to leave out such lines with their translations, counted"
    if likely == encoding:
        advice = f"most other lines are, so this one is damaged: mend it, or {leave_out}"
    elif likely is not None:
        advice = (
            f"the file looks like {likely}: set data.encoding: {likely}, or encoding: {likely} for this corpus alone, "
            "or convert the file to UTF-8"
        )
    else:
        advice = f"find out its encoding and set data.encoding, or convert it to UTF-8, or {leave_out}"
    return DataError(
        f"{path}:{number}: not {encoding}: byte {bad} at byte offset {start + error.start} of the file; {advice}"
    )


def _sample(path: Path, offset: int) -> list[bytes]:
    """Lines with non-ASCII bytes, from the head of the file and from `offset`, a line's start, on."""
    with opened(path) as file:
        head = file.read(min(offset, HEAD))
        skip(file, offset - len(head))
        lines = head.split(b"\n")[:-1] + file.read(HEAD).split(b"\n")
    return [line for line in lines if not line.isascii()]


def cr_only(path: Path) -> DataError:
    """What to tell about a file of the old Mac."""
    return DataError(f"{path}: lines end in CR only (old Mac); convert it: tr '\\r' '\\n' < {path.name} > NEW")


def check_head(path: Path, head: bytes, encoding: str) -> None:
    """Refuse by its first bytes a file that is empty, packed, UTF-16, or UTF-8 where another encoding is set."""
    if head in (b"", codecs.BOM_UTF8):
        raise DataError(f"{path}: the file is empty; give a file with one sentence per line")
    has_nuls = 10 * head.count(b"\x00") > len(head) >= 4
    for magic, name in _PACKED.items():
        if head.startswith(magic) and b"\x00" in head:
            raise DataError(f"{path}: is packed with {name}; unpack it first (gzip, xz and zstd are read as they are)")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or has_nuls:
        raise DataError(
            f"{path}: is UTF-16 or no text at all; if it is UTF-16, convert it: "
            f"iconv -f UTF-16 -t UTF-8 {path.name} > NEW"
        )
    if encoding != "utf-8" and (head.startswith(codecs.BOM_UTF8) or count_utf8_characters(head) >= 20):
        raise DataError(
            f"{path}: is UTF-8, but data.encoding is {encoding}, which would read it wrongly and without an error; "
            f"set data.encoding: utf-8, or encoding: utf-8 for this corpus alone, or convert what is in {encoding}: "
            f"iconv -f {encoding} -t UTF-8"
        )
