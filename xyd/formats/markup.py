"""XML, unit by unit: no DTD is fetched, no entity of the file's own is expanded, memory holds one unit at a time.

The parser is expat itself, with handlers that refuse entities (what defusedxml does too): only so is the line of a
unit known, nothing kept of what lies behind, and an entity that another file would define not dropped in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from xyd.errors import DataError
from xyd.formats import lines
from xyd.formats.opening import opened
from xyd.formats.report import FileReport

_BLOCK = 1 << 16


class Unit(NamedTuple):
    """An element with all that is in it, or only the start of a frame."""

    element: Element
    line: int


def read_units(path: Path, units: Collection[str], frames: Collection[str], report: FileReport) -> Iterator[Unit]:
    """The elements named in `units`, whole, and those in `frames` as they open, without content, in the file's order.

    Names and attributes lose their namespace, so `xml:lang` is `lang`. Raises DataError, with the line, for what is
    no XML and for entities declared in the file.
    """
    collector = _Collector(path, units, frames)
    try:
        with opened(path) as file:
            while block := file.read(_BLOCK):
                report.bytes += len(block)
                collector.parser.Parse(block, False)
                collector.check_size()
                yield from collector.taken(report)
            collector.parser.Parse(b"", True)
            yield from collector.taken(report)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, str(error))
        hint = {
            expat.errors.XML_ERROR_NO_ELEMENTS: "the file is empty or cut off",
            expat.errors.XML_ERROR_INVALID_TOKEN: "a bare < or &, a control character, or bytes that are not in the "
            "encoding that the first line declares (UTF-8 without one)",
            expat.errors.XML_ERROR_UNDEFINED_ENTITY: "write the character itself",
        }.get(what, "mend the file there, or fetch it again")
        raise DataError(f"{path}:{error.lineno}: broken XML: {what}; {hint}") from None
    except (LookupError, ValueError) as error:
        raise DataError(f"{path}:1: {error}; convert the file to UTF-8, in its first line too") from None


class _Collector:
    def __init__(self, path: Path, units: Collection[str], frames: Collection[str]) -> None:
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.ExternalEntityRefHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_skipped
        self._path, self._units, self._frames = path, units, frames
        self._builder: TreeBuilder | None = None
        self._depth = self._start_line = self._start_byte = 0
        self._done: list[Unit] = []

    def taken(self, report: FileReport) -> list[Unit]:
        done, self._done = self._done, []
        report.lines += sum(unit.element.tag in self._units for unit in done)
        return done

    def check_size(self) -> None:
        if self._builder is not None and self.parser.CurrentByteIndex - self._start_byte > lines.MAX_LINE_BYTES:
            limit = lines.MAX_LINE_BYTES >> 20
            raise DataError(f"{self._path}:{self._start_line}: a unit of more than {limit} MiB; mend the file there")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(" ")[2]
        if self._builder is None and tag not in self._units and tag not in self._frames:
            return
        bare = {name.rpartition(" ")[2]: value for name, value in attributes.items()}
        if self._builder is None and tag in self._frames:
            self._done.append(Unit(Element(tag, bare), self.parser.CurrentLineNumber))
            return
        if self._builder is None:
            self._builder = TreeBuilder()
            self._start_line, self._start_byte = self.parser.CurrentLineNumber, self.parser.CurrentByteIndex
        self._builder.start(tag, bare)
        self._depth += 1

    def _end(self, tag: str) -> None:
        if self._builder is None:
            return
        self._builder.end(tag.rpartition(" ")[2])
        self._depth -= 1
        if self._depth == 0:
            self._done.append(Unit(self._builder.close(), self._start_line))
            self._builder = None

    def _data(self, text: str) -> None:
        if self._builder is not None:
            self._builder.data(text)

    def _refuse_skipped(self, name: str, *_: object) -> NoReturn:
        raise DataError(
            f"{self._path}:{self.parser.CurrentLineNumber}: &{name}; is defined in another file, which is not read; "
            "write the character itself"
        )

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        raise DataError(
            f"{self._path}:{self.parser.CurrentLineNumber}: declares or calls an entity of its own ({name}), which can "
            "blow up memory or read other files; replace entities by the text they stand for"
        )


def normal_code(code: str) -> str:
    """A language code in the one spelling by which codes are compared: zh-cn for ZH_CN."""
    return code.lower().replace("_", "-")


def text_of(element: Element | None, codes: Collection[str]) -> str | None:
    """The text inside, without the content of the elements named in `codes`; None without an element.

    A code that stands for a line break becomes a space.
    """
    if element is None:
        return None
    parts = [element.text or ""]
    for child in element:
        if child.tag not in codes:
            parts.append(text_of(child, codes) or "")
        elif "lb" in (child.get("ctype"), child.get("type"), child.get("subType", "").removeprefix("xlf:")):
            parts.append(" ")
        parts.append(child.tail or "")
    return "".join(parts)


class Codes:
    """Which language codes of the files stand for the languages of the config: zh takes zh-CN, ZH_cn, zh-Hans too.

    Where a unit has several that fit, the exact one is taken. Several that fit equally, in one unit or over the files,
    are an error, unless `columns` names the language: then that code and all longer ones are meant.
    """

    def __init__(self, languages: Sequence[str], columns: Mapping[str, str | int] | None) -> None:
        self._asked = {language: normal_code(str((columns or {}).get(language, language))) for language in languages}
        self._named = set(columns or ())
        self._known: dict[tuple[str, ...], dict[str, str]] = {}
        self._variant: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, None] = {}

    def find(self, codes: Sequence[str], place: str) -> dict[str, str]:
        """Language → its `normal_code` among `codes`, those of a unit; it may be absent. `place`: for messages."""
        key = tuple(codes)
        if key not in self._known:
            self._seen.update(dict.fromkeys(codes))
            found = {language: self._best(language, codes, place) for language in self._asked}
            self._known[key] = {language: code for language, code in found.items() if code is not None}
        return self._known[key]

    def _best(self, language: str, codes: Sequence[str], place: str) -> str | None:
        asked = self._asked[language]
        fitting = {
            normal_code(code): code for code in reversed(codes) if f"{normal_code(code)}-".startswith(f"{asked}-")
        }
        if not fitting:
            return None
        if asked not in fitting and len(fitting) > 1:
            raise self._ambiguous(language, sorted(fitting.values()), place)
        normal = asked if asked in fitting else next(iter(fitting))
        before, where = self._variant.setdefault(language, (fitting[normal], place))
        if normal_code(before) != normal and language not in self._named:
            raise self._ambiguous(language, [before, fitting[normal]], f"{where} and {place}")
        return normal

    @staticmethod
    def _ambiguous(language: str, choices: list[str], place: str) -> DataError:
        return DataError(
            f"{place}: {' and '.join(choices)} could both be {language}; say which: "
            f"columns: {{{language}: {choices[0]}}}, or take all: columns: {{{language}: {language}}}"
        )

    def check(self, label: str) -> None:
        """DataError if some language was in no unit of all files."""
        missing = [language for language in self._asked if not any(language in known for known in self._known.values())]
        if missing:
            held = f"it holds {', '.join(self._seen)}" if self._seen else "it holds no unit"
            raise DataError(
                f"{label}: no text in {', '.join(missing)}; {held}; mend languages, or say which code it is: "
                f"columns: {{{missing[0]}: CODE}}"
            )
