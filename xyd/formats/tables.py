"""Tables of text, a row a line: TSV and CSV, with a text column for each language."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from xyd.config import ROLES, SourceConfig
from xyd.errors import DataError
from xyd.formats import lines
from xyd.formats.lines import BAD, OnBad, read_lines
from xyd.formats.report import FileReport
from xyd.formats.rows import Row, no_column, no_text, usual_columns

_MAX_ROW_LINES = 10_000
"""A cell over more lines is a quote that was never closed."""
_LOOK_AHEAD = 100


def read_table(path: Path, source: SourceConfig, encoding: str, on_bad: OnBad, report: FileReport) -> Iterator[Row]:
    """Rows of a TSV or CSV file. One with more or fewer cells than the header has, or than most of the first hundred
    rows have where there is none, has the flaw "ragged_row".

    Raises DataError for a column that is not there, and for quotes that do not close.
    """
    delimiter = "\t" if source.format == "tsv" else ","
    quoting = source.quoting if source.quoting is not None else source.format == "csv"
    text = read_lines(path, encoding, on_bad, report)
    table = _quoted(path, text, delimiter) if quoting else _split(text, delimiter)
    head = list(islice(table, _LOOK_AHEAD))
    first = head[0][1]
    has_header = _has_header(source, first)
    if not has_header:  # the very first may be the ragged one
        width = Counter(len(cells) for _, cells in head).most_common(1)[0][0]
        first = next(cells for _, cells in head if len(cells) == width)
    columns = _positions(path, source, [cell.strip() for cell in first], has_header)
    roles = {role: columns.pop(role) for role in ROLES if role in columns}
    for number, cells in chain(head[1:] if has_header else head, table):
        yield _row(path, number, cells, columns, roles, len(first))


def _row(path: Path, number: int, cells: list[str], columns: dict[str, int], roles: dict[str, int], width: int) -> Row:
    origin = f"{path.name}:{number}"
    if len(cells) != width:
        damaged = any(BAD in cell for cell in cells)  # which may have swallowed a delimiter
        return Row(dict.fromkeys(columns, ""), origin, flaw="bad_utf8" if damaged else "ragged_row")
    return Row(
        {language: cells[place] for language, place in columns.items()},
        origin,
        {role: cells[place] for role, place in roles.items()},
    )


def _has_header(source: SourceConfig, first: list[str]) -> bool:
    if isinstance(source.header, bool):
        return source.header
    given = [*(source.columns or {}).values(), *(getattr(source, role) for role in ROLES)]
    assert source.languages is not None
    cells = [cell.strip() for cell in first]
    by_name = any(isinstance(name, str) for name in given)
    return by_name or (not source.columns and usual_columns(cells, source.languages) is not None)


def _positions(path: Path, source: SourceConfig, first: list[str], has_header: bool) -> dict[str, int]:
    """Language or role → index of its cell."""
    assert source.languages is not None
    label = f"{path}:1"
    asked: dict[str, str | int] = dict(source.columns or {})
    if not asked and has_header:
        asked |= usual_columns(first, source.languages) or no_text(label, source.languages, first)
    elif not asked:
        asked |= {language: number for number, language in enumerate(source.languages, start=1)}
    asked = {key: asked[key] for key in source.languages}
    asked |= {role: getattr(source, role) for role in ROLES if getattr(source, role) is not None}
    places = {}
    for key, name in asked.items():
        if isinstance(name, str):
            if name not in first:
                raise no_column(label, key, name, first)
            if first.count(name) > 1:
                raise DataError(f"{label}: the header has {name} twice; give the number of the column, from 1 on")
            places[key] = first.index(name)
        elif name > len(first):
            raise DataError(f"{label}: {key} is to be column {name}, but there are only {len(first)}; mend columns")
        else:
            places[key] = name - 1
    return places


def _split(text: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text, start=1):
        yield number, line.split(delimiter)


def _quoted(path: Path, text: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row; a quoted cell may hold delimiters and line ends."""
    csv.field_size_limit(lines.MAX_LINE_BYTES)
    read, start = 0, 1

    def fed() -> Iterator[str]:
        nonlocal read
        for line in text:
            read += 1
            if read - start > _MAX_ROW_LINES:
                raise _open_quote(path, start)
            yield f"{line}\n"

    try:
        for cells in csv.reader(fed(), delimiter=delimiter, strict=True):
            yield start, cells
            start = read + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise _open_quote(path, start) from None
        raise DataError(
            f"{path}:{start}: no valid CSV ({error}); mend the row, or set quoting: false if quotes are plain text"
        ) from None


def _open_quote(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}:{number}: a quote that opens in this row is never closed; close it, or set quoting: false if quotes "
        "are plain text"
    )
