"""JSON: an object per line, or one array of objects, which is read object by object."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from xyd.errors import DataError
from xyd.formats import lines
from xyd.formats.lines import HEAD, MARK_BAD, OnBad, check_head, read_lines, undecodable
from xyd.formats.opening import head_of, opened
from xyd.formats.report import FileReport

_BLOCK = 1 << 18

Rows = Iterator[tuple[str, Mapping[str, Any]]]


def read_json(path: Path, encoding: str, on_bad: OnBad, report: FileReport) -> Rows:
    """(origin, object) of a file in either form, whatever its name. Raises DataError for what is neither."""
    head = head_of(path, HEAD)
    check_head(path, head, encoding)
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[":
        return _array(path, encoding, on_bad, report)
    return _object_per_line(path, encoding, on_bad, report)


def _object_per_line(path: Path, encoding: str, on_bad: OnBad, report: FileReport) -> Rows:
    for number, line in enumerate(read_lines(path, encoding, on_bad, report), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            whole = " (nor is the file an array of objects)" if number == 1 else ""
            raise DataError(f"{path}:{number}: no JSON object on this line{whole}: {error}; mend the line") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: expected an object, {{…}}, got {_kind(row)}; mend the line")
        yield f"{path.name}:{number}", row


def _kind(value: object) -> str:
    names: dict[type, str] = {list: "an array", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _array(path: Path, encoding: str, on_bad: OnBad, report: FileReport) -> Rows:
    window = _Window(path, _decoded(path, encoding, on_bad, report))
    window.next_character()
    window.position += 1
    number, after = 0, "["
    while True:
        character = window.next_character()
        if character == "]" and after != ",":
            break
        if number and after != ",":
            if character != ",":
                window.fail(number, f"expected , or ] after it, found {character or 'the end of the file'}")
            window.position += 1
            after = ","
            continue
        number += 1
        if character != "{":
            found = f"found {character}" if character else "the file ends"
            window.fail(number, f"expected an object, {{…}}, {found}")
        yield f"{path.name}:item {number}", window.item(number)
        report.lines = number
        after = "}"
    window.position += 1
    if rest := window.next_character():
        window.fail(number, f"expected the end of the file after ], found {rest}")


class _Window:
    """The part of a long text that is being looked at."""

    def __init__(self, path: Path, blocks: Iterator[str]) -> None:
        self._path, self._blocks = path, blocks
        self._text, self.position, self._line = "", 0, 1  # _line: of the start of the text
        self._decoder = json.JSONDecoder()

    def _grow(self) -> bool:
        """Forget what lies behind and double what lies ahead; False at the end."""
        self._line += self._text.count("\n", 0, self.position)
        ahead = [self._text[self.position :]]
        self.position, size = 0, len(ahead[0])
        if size > lines.MAX_LINE_BYTES:
            raise DataError(
                f"{self._path}:{self._line}: an object of more than {lines.MAX_LINE_BYTES >> 20} MiB, or one that is "
                "never closed; give an array of objects with a sentence each"
            )
        grown = 0
        while grown <= size and (block := next(self._blocks, "")):
            ahead.append(block)
            grown += len(block)
        self._text = "".join(ahead)
        return grown > 0

    def next_character(self) -> str:
        """The next character that is no space, which becomes the position; empty at the end."""
        while True:
            rest = self._text[self.position : self.position + 256]
            if bare := rest.lstrip(" \t\r\n"):
                self.position += len(rest) - len(bare)
                return bare[0]
            self.position += len(rest)
            if not rest and not self._grow():
                return ""

    def item(self, number: int) -> dict[str, Any]:
        """The object at the position, which moves behind it."""
        while True:
            try:
                found, self.position = self._decoder.raw_decode(self._text, self.position)
            except (json.JSONDecodeError, RecursionError) as error:
                if not self._grow():
                    place = error.pos if isinstance(error, json.JSONDecodeError) else 0
                    self.position = min(place, len(self._text))
                    self.fail(number, str(getattr(error, "msg", error)))
            else:
                return dict(found)

    def fail(self, number: int, what: str) -> NoReturn:
        line = self._line + self._text.count("\n", 0, self.position)
        near = self._text[self.position :][:30].strip()
        near = f", near {near}" if near else ""
        raise DataError(f"{self._path}:{line}: broken JSON at item {number} of the array: {what}{near}; mend the file")


def _decoded(path: Path, encoding: str, on_bad: OnBad, report: FileReport) -> Iterator[str]:
    """The text of the file, block by block."""
    decoder = codecs.getincrementaldecoder(encoding)("strict" if on_bad == "error" else MARK_BAD)
    number = 1
    with opened(path) as file:
        while True:
            block = file.read(_BLOCK)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                number += error.object.count(b"\n", 0, error.start)
                raise undecodable(path, number, report.bytes - pending, error, encoding) from None
            number += text.count("\n")
            if report.bytes == 0 and text.startswith("\ufeff"):
                text = text[1:]
                report.bom = 1
            report.bytes += len(block)
            if text:
                yield text
            if not block:
                return
