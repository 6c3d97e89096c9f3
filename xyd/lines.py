"""Translates a stream of lines: one line out for each line in, in order, whatever the lines hold.

Input is bytes, split at LF and CRLF only: a form feed or U+2028 inside a line is text, and no line ever moves.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from xyd.errors import DataError, XydError
from xyd.files import atomic_write
from xyd.translate import Translation, Translator

# Enough for full batches of similar length; small enough that the first output comes soon and memory stays bounded.
CHUNK_LINES = 512
CHUNK_BYTES = 1 << 20
_READ_BYTES = 1 << 16
# How long to wait for more before the lines at hand are translated, so that a program at the other end of a pipe
# that sends one line gets its answer.
_PATIENCE_SECONDS = 0.05


@dataclass(frozen=True)
class LineOptions:
    """What the user asked for; None = what the run's configuration says."""

    to: str | None = None
    source: str | None = None
    beam_size: int | None = None
    n_best: int = 1
    length_penalty: float | None = None
    format: Literal["text", "jsonl"] = "text"


def check_options(translator: Translator, options: LineOptions) -> None:
    """Raises ``ConfigError`` for an unknown or missing language or an impossible search, before any input is read."""
    _translate(translator, [], options)


def translate_lines(
    translator: Translator, source: BinaryIO, sink: BinaryIO, options: LineOptions, warn: Callable[[str], None]
) -> int:
    """Translate every line of ``source`` into ``sink``; the number of lines that failed.

    A line that fails (bytes that are no UTF-8, a character the model has no room for) gives an empty line; it and every
    other oddity are named through ``warn`` with the line's number, from 1.
    Raises ``DataError`` if the input is UTF-16 as a whole.
    """
    number, failed = 0, 0
    for chunk in _chunks(source):
        if number == 0 and chunk[0].startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError("the input is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")
        texts: list[str | None] = []
        faults: dict[int, str] = {}
        for index, line in enumerate(chunk):
            # A byte order mark is no text, and only the first line can begin with one.
            encoding = "utf-8-sig" if number + index == 0 else "utf-8"
            try:
                texts.append(line.decode(encoding))
            except UnicodeDecodeError as error:
                texts.append(None)
                faults[index] = f"not UTF-8: byte 0x{line[error.start]:02X} at offset {error.start} of the line"
        good = [text for text in texts if text is not None]
        translations = iter(_translate_each(translator, good, options))
        for index, text in enumerate(texts):
            result = next(translations) if text is not None else faults[index]
            if isinstance(result, str):
                failed += 1
                given = text if text is not None else chunk[index].decode("utf-8", errors="replace")
                sink.write(_failed_line(given, result, options))
                warn(f"line {number + index + 1}: failed, left empty: {result}")
            else:
                sink.write(_output_line(result, options))
                for warning in result.warnings:
                    warn(f"line {number + index + 1}: {warning}")
        number += len(chunk)
        sink.flush()
    return failed


def translate_file(
    translator: Translator, source: BinaryIO, output: Path, options: LineOptions, warn: Callable[[str], None]
) -> int:
    """As ``translate_lines``, into a file that is whole or absent; it may be the file that is read."""
    if output.exists() and not output.is_file():
        # /dev/null and pipes are written to, never replaced.
        with output.open("wb") as sink:
            return translate_lines(translator, source, sink, options, warn)
    failed = 0

    def write(sink: BinaryIO) -> None:
        nonlocal failed
        failed = translate_lines(translator, source, sink, options, warn)

    # A link stays a link: what it points to is replaced.
    atomic_write(os.path.realpath(output), write)
    return failed


def _translate(translator: Translator, texts: list[str], options: LineOptions) -> list[Translation]:
    return translator.translate(
        texts,
        to=options.to,
        source=options.source,
        beam_size=options.beam_size,
        n_best=options.n_best,
        length_penalty=options.length_penalty,
    )


def _translate_each(translator: Translator, texts: list[str], options: LineOptions) -> list[Translation | str]:
    """The translation of each text, or what is wrong with it: one bad text must not take its neighbours along."""
    try:
        return list(_translate(translator, texts, options))
    except XydError as error:
        if len(texts) <= 1:
            return [str(error)] * len(texts)
    middle = len(texts) // 2
    return [
        *_translate_each(translator, texts[:middle], options),
        *_translate_each(translator, texts[middle:], options),
    ]


def _chunks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of lines without their ends; at most about ``CHUNK_BYTES``, or one line."""
    lines: list[bytes] = []
    size = 0
    pending: list[bytes] = []  # pieces of a line whose end has not come yet
    while piece := _read(source):
        *complete, rest = piece.split(b"\n")
        for end in complete:
            line = b"".join([*pending, end])
            pending = []
            lines.append(line[:-1] if line.endswith(b"\r") else line)
            size += len(line)
            if len(lines) >= CHUNK_LINES or size >= CHUNK_BYTES:
                yield lines
                lines, size = [], 0
        if rest:
            pending.append(rest)
        if lines and not _more_at_hand(source):
            yield lines
            lines, size = [], 0
    if pending:
        line = b"".join(pending)
        lines.append(line[:-1] if line.endswith(b"\r") else line)
    if lines:
        yield lines


def _read(source: BinaryIO) -> bytes:
    read1 = getattr(source, "read1", source.read)
    data: bytes = read1(_READ_BYTES)
    return data


def _more_at_hand(source: BinaryIO) -> bool:
    """Whether more input is there or about to come; always so for files, where the end counts as input."""
    try:
        return bool(select.select([source], [], [], _PATIENCE_SECONDS)[0])
    except (OSError, ValueError):  # no descriptor: bytes in memory
        return True


def _output_line(translation: Translation, options: LineOptions) -> bytes:
    if options.format == "jsonl":
        return _json_line(asdict(translation))
    assert "\n" not in translation.text, translation
    return translation.text.encode("utf-8") + b"\n"


def _failed_line(source: str, fault: str, options: LineOptions) -> bytes:
    if options.format == "jsonl":
        fields = {"source": source, "text": "", "score": None, "status": "failed", "warnings": [fault], "n_best": []}
        return _json_line(fields)
    return b"\n"


def _json_line(fields: Mapping[str, object]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False)
    # Legal in JSON, but some readers of JSON lines take them for line ends.
    for mark in "\u0085\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text.encode("utf-8") + b"\n"
