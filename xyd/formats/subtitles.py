"""Subtitles, SubRip and WebVTT: a file for each language, paired by the time at which a cue is shown.

Lines are wrapped and numbered differently in each language, so neither lines nor numbers can pair them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xyd.config import SourceConfig
from xyd.errors import DataError
from xyd.formats.lines import BAD, OnBad, read_lines
from xyd.formats.report import FileReport, ReadReport
from xyd.text import SentencePair

_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[,.](\d{1,3})"
_TIMING = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_TAGS = {
    "srt": re.compile(r"</?(?:i|b|u|s|font)\b[^<>]*>|\{\\[^{}]*\}", re.IGNORECASE),
    "vtt": re.compile(r"</?(?:c|i|b|u|v|ruby|rt|lang)\b[^<>]*>|<\d[\d:.]*>", re.IGNORECASE),
}
_NO_SPACE = re.compile(r"[\u2e80-\u303f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffef]")
"""Letters and punctuation of Chinese and Japanese, between which a line end is no space."""


@dataclass(frozen=True)
class Cue:
    """A text and when it is shown, in milliseconds."""

    start: int
    end: int
    text: str
    line: int


def read_subtitles(
    source: SourceConfig,
    language_pairs: Sequence[tuple[str, str]],
    encoding: str,
    on_bad: OnBad,
    report: ReadReport,
) -> Iterator[SentencePair]:
    """A pair for each group of cues that are shown together, in the order of time.

    Two cues belong together when they share at least half of the shorter one's time. One cue against several makes
    one pair, the several joined; several against several is the flaw "tangled_cues", a cue alone "unmatched_cue".
    """
    files = source.files_by_language
    cues = {
        language: _cues(files[language], source.format, encoding, on_bad, report.start(str(files[language])))
        for language in dict.fromkeys(language for pair in language_pairs for language in pair)
    }
    for a, b in language_pairs:
        group = " + ".join(files[language].name for language in (a, b)) if source.group is not None else None
        for left, right in _together(cues[a], cues[b]):
            where = (files[a], left[0]) if left else (files[b], right[0])
            src, tgt = _joined(left), _joined(right)
            flaw = "unmatched_cue" if not left or not right else None
            if len(left) > 1 and len(right) > 1:
                flaw = "tangled_cues"
            if BAD in src or BAD in tgt:
                src, tgt, flaw = "", "", "bad_utf8"
            yield SentencePair(src, tgt, a, b, f"{where[0].name}:{where[1].line}", group, flaw)


def _together(left: Sequence[Cue], right: Sequence[Cue]) -> list[tuple[list[Cue], list[Cue]]]:
    """Groups of cues of two languages that are shown together, each in the order of time; also those that are alone."""
    sides = [(cue, 0, place) for place, cue in enumerate(left)] + [(cue, 1, place) for place, cue in enumerate(right)]
    sides.sort(key=lambda entry: (entry[0].start, entry[0].end))
    root: dict[tuple[int, int], tuple[int, int]] = {}

    def find(key: tuple[int, int]) -> tuple[int, int]:
        while root.setdefault(key, key) != key:
            key = root[key]
        return key

    showing: list[tuple[Cue, int, int]] = []
    for cue, side, place in sides:
        showing = [entry for entry in showing if entry[0].end > cue.start]
        for other, other_side, other_place in showing:
            shared = min(cue.end, other.end) - cue.start
            if side != other_side and 2 * shared >= min(cue.end - cue.start, other.end - other.start):
                root[find((side, place))] = find((other_side, other_place))
        showing.append((cue, side, place))
    groups: dict[tuple[int, int], tuple[list[Cue], list[Cue]]] = {}
    for cue, side, place in sides:
        groups.setdefault(find((side, place)), ([], []))[side].append(cue)
    return list(groups.values())


def _joined(cues: Sequence[Cue]) -> str:
    return _join([cue.text for cue in cues])


def _join(parts: Sequence[str]) -> str:
    joined = ""
    for part in filter(None, map(str.strip, parts)):
        space = "" if joined and _NO_SPACE.match(joined[-1]) and _NO_SPACE.match(part[0]) else " "
        joined = f"{joined}{space}{part}" if joined else part
    return joined


def _cues(path: Path, form: str, encoding: str, on_bad: OnBad, report: FileReport) -> list[Cue]:
    """The cues of one file in the order of time, tags taken out; DataError for times that cannot be read.

    A cue ends where the next begins, because people forget the empty line between; in WebVTT at an empty line too.
    """
    cues: list[Cue] = []
    timing: re.Match[str] | None = None
    start_line, text, skipping = 0, [""], form == "vtt"

    def finish() -> None:
        if timing is not None:
            cues.append(_cue(timing, text, form, start_line))

    for number, line in enumerate(read_lines(path, encoding, on_bad, report), start=1):
        if "-->" in line:
            found = _TIMING.fullmatch(line)
            if found is None:
                raise DataError(f"{path}:{number}: no valid times of a cue: {line.strip()[:60]}; mend the line")
            if text and text[-1].strip().isdigit() and (timing is not None or form == "srt"):
                text.pop()  # the number of this cue
            finish()
            timing, start_line, text, skipping = found, number, [], False
        elif form == "vtt" and not line.strip():
            finish()
            timing, text, skipping = None, [], False
        elif form == "vtt" and timing is None and line.startswith(("WEBVTT", "NOTE", "STYLE", "REGION")):
            skipping = True
        elif not skipping:
            text.append(line)
            if timing is None and form == "srt" and line.strip() and not line.strip().isdigit():
                raise DataError(f"{path}:{number}: expected the number or the times of a cue, got {line.strip()[:60]}")
    finish()
    if not cues:
        raise DataError(f"{path}: holds no cue (00:01:02,500 --> 00:01:04,000); is it {form}?")
    return sorted(cues, key=lambda cue: (cue.start, cue.end))


def _cue(timing: re.Match[str], text: Sequence[str], form: str, line: int) -> Cue:
    start, end = _milliseconds(timing.groups()[:4]), _milliseconds(timing.groups()[4:])
    plain = _TAGS[form].sub("", _join(text))
    return Cue(start, max(end, start + 1), html.unescape(plain) if form == "vtt" else plain, line)


def _milliseconds(parts: Sequence[str | None]) -> int:
    hours, minutes, seconds, rest = parts
    return ((int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * 1000 + int(
        (rest or "").ljust(3, "0")
    )
