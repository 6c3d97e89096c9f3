"""Test sets of WMT in XML, from 2021 on: documents with a source, references and the outputs of systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from xyd.formats.markup import Codes, normal_code, read_units, text_of
from xyd.formats.report import FileReport
from xyd.formats.rows import Row


def read_wmt(path: Path, codes: Codes, report: FileReport) -> Iterator[Row]:
    """A row for each source segment, with the first reference in each language; its group is the document.

    Segments of further references have the flaw "other_reference". System outputs are no part of the test set.
    """
    for number, (doc, line) in enumerate(read_units(path, {"doc"}, (), report), start=1):
        name = doc.get("id") or f"doc {number}"
        sides = [*doc.iterfind("src"), *doc.iterfind("ref")]
        found = codes.find([side.get("lang", "") for side in sides], f"{path}:{line}")
        texts: dict[str, dict[str, str]] = {}
        others: list[str] = []
        for language, code in found.items():
            first, *rest = [side for side in sides if normal_code(side.get("lang", "")) == code]
            texts[language] = _segments(first)
            others += [key for side in rest for key in _segments(side)]
        for key in dict.fromkeys(key for segments in texts.values() for key in segments):
            row = {language: segments[key] for language, segments in texts.items() if key in segments}
            yield Row(row, f"{path.name}:{name}:{key}", {"group": name})
        for key in others:
            yield Row(dict.fromkeys(texts, ""), f"{path.name}:{name}:{key}", {"group": name}, "other_reference")


def _segments(side: Element) -> dict[str, str]:
    segments = enumerate(side.iter("seg"), start=1)
    return {segment.get("id") or str(number): text_of(segment, ()) or "" for number, segment in segments}
