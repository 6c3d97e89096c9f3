"""TMX translation memories (LISA OSCAR, TMX 1.4b).

Inline codes go with what is in them: `bpt`, `ept`, `ph`, `it`, `ut` hold native code (a `sub` inside is the text of
another flow, such as a footnote). Text inside `hi` is text and stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from xyd.config import ROLES, SourceConfig
from xyd.formats.markup import Codes, normal_code, read_units, text_of
from xyd.formats.report import FileReport
from xyd.formats.rows import Row

_CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})


def read_tmx(path: Path, source: SourceConfig, codes: Codes, report: FileReport) -> Iterator[Row]:
    """A row for each `tu`; one more with the flaw "second_translation" for each variant beyond the first of a language.

    `group`, `score` and `time` are attributes of the `tu`, or of a `tuv`, or the `type` of a `prop` in either.
    """
    names = {role: str(getattr(source, role)) for role in ROLES if getattr(source, role) is not None}
    for number, (unit, _) in enumerate(read_units(path, {"tu"}, (), report), start=1):
        origin = f"{path.name}:unit {number}"
        variants = [(normal_code(variant.get("lang", "")), variant) for variant in unit.iter("tuv")]
        found = codes.find([variant.get("lang", "") for _, variant in variants], f"{path}: unit {number}")
        texts = {
            language: [text_of(variant.find("seg"), _CODES) or "" for other, variant in variants if other == code]
            for language, code in found.items()
        }
        roles = {role: _told(unit, name) for role, name in names.items()}
        yield Row({language: segments[0] for language, segments in texts.items()}, origin, roles)
        for _ in range(max(map(len, texts.values()), default=1) - 1):
            yield Row(dict.fromkeys(texts, ""), origin, flaw="second_translation")


def _told(unit: Element, name: str) -> str | None:
    for element in (unit, *unit.iter("tuv")):
        if name in element.attrib:
            return element.attrib[name]
        for prop in element.iterfind("prop"):
            if prop.get("type") == name:
                return prop.text
    return None
