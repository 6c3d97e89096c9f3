"""Aligned text files: line n of each is the same sentence."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from xyd.errors import DataError
from xyd.formats import lines
from xyd.formats.encodings import checked_encoding
from xyd.formats.lines import BAD, HEAD, OnBad, check_head, cr_only, read_lines
from xyd.formats.opening import opened
from xyd.formats.report import ReadReport
from xyd.formats.rows import Roles
from xyd.text import SentencePair

_BLOCK = 1 << 20


def read_files(
    files: Mapping[str, Path],
    language_pairs: Sequence[tuple[str, str]],
    *,
    encoding: str,
    on_bad_utf8: OnBad,
    report: ReadReport,
    side_files: Mapping[str, Path] | None = None,
    group_pattern: str | None = None,
) -> Iterator[SentencePair]:
    """Pairs from `{language: path}`, in those of `language_pairs` that the files hold; other files are left alone.

    Line counts are compared before the first pair. A line that `encoding` cannot decode is a `DataError` naming file,
    line, byte offset and the likely encoding, or with "drop" a pair with flaw "bad_utf8" and no text on that side.
    `side_files`: further files, as long as the others, with the `group`, `score` or `time` of each line.
    Raises `DataError` too for files that are missing, empty, damaged, no text, or unequal in lines.
    """
    wanted = [(a, b) for a, b in language_pairs if a in files and b in files]
    if not wanted:
        return
    paths = {language: Path(files[language]) for pair in wanted for language in pair}
    beside = dict(side_files or {})
    roles = Roles(group_pattern)
    encoding = checked_encoding(encoding)
    every = [*paths.values(), *beside.values()]
    num_lines = _common_line_count(every, encoding)
    reports = [report.start(str(path)) for path in every]
    readers = [read_lines(path, encoding, on_bad_utf8, file) for path, file in zip(every, reports, strict=True)]
    places = {language: number for number, language in enumerate(paths)}
    told: tuple[str | None, float | None, str | None, str | None] = (None, None, None, None)
    for number, row in enumerate(zip(*readers, strict=False), start=1):
        if beside:
            told = roles.read(dict(zip(beside, row[len(paths) :], strict=True)), f"{every[0].name}:{number}")
        group, score, time, flaw = told
        for a, b in wanted:
            src, tgt, unfit = row[places[a]], row[places[b]], flaw
            if BAD in src or BAD in tgt:
                src, tgt, unfit = "" if BAD in src else src, "" if BAD in tgt else tgt, "bad_utf8"
            yield SentencePair(src, tgt, a, b, f"{paths[a].name}:{number}", group, unfit, score, time)
    for path, file in zip(every, reports, strict=True):
        if file.lines != num_lines:
            raise DataError(f"{path}: the file changed while it was read; run the command again")


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
    with opened(path) as file:
        block = file.read(HEAD)
        check_head(path, block, encoding)
        while block:
            num_lf += block.count(b"\n")
            has_cr = has_cr or b"\r" in block
            last = block[-1:]
            block = file.read(_BLOCK)
    if num_lf == 0 and has_cr:
        raise cr_only(path)
    return num_lf + (last != b"\n")


class _Shape(NamedTuple):
    """What a line shares with its translation, whatever the languages."""

    numbers: list[bytes]
    log_length: float


def _shapes(path: Path) -> Iterator[_Shape]:
    with opened(path) as file:
        while raw := file.readline(lines.MAX_LINE_BYTES):
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

    ahead_of = _shapes(longer)
    window = deque(islice(ahead_of, shift), maxlen=shift + 1)  # lines n to n + shift of the longer file
    gain, best_gain, best = 0.0, 0.0, 1
    for number, (ahead, right) in enumerate(zip(ahead_of, _shapes(shorter), strict=False), start=1):
        window.append(ahead)
        gain += fit(window[0], right) - fit(ahead, right)
        if gain > best_gain:
            best_gain, best = gain, number + 1
    return best if best_gain - min(0.0, gain) >= 2 else None


def _mean_log_length(path: Path) -> float:
    lengths = [shape.log_length for shape in islice(_shapes(path), 10_000)]
    return sum(lengths) / len(lengths)
