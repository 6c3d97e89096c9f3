"""XLIFF 1.2 and 2.x (OASIS): translations on their way between tools.

Inline codes go: elements that stand for native code (`x`, `bx`, `ex`, `ph`, `bpt`, `ept`, `it`, `sc`, `ec`, `cp`), with
what is in them. Text between codes (`g`, `mrk`, `pc`) stays. What is not finished is not taken: see `_unfinished`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from xyd.config import SourceConfig
from xyd.errors import DataError
from xyd.formats.markup import Codes, normal_code, read_units, text_of
from xyd.formats.report import FileReport
from xyd.formats.rows import Row

_CODES = frozenset({"x", "bx", "ex", "ph", "bpt", "ept", "it", "sub", "sc", "ec", "cp", "sm", "em"})
_FINISHED = frozenset({"final", "signed-off", "translated", "reviewed"})


def read_xliff(path: Path, source: SourceConfig, codes: Codes, report: FileReport) -> Iterator[Row]:
    """A row for each `trans-unit` of 1.2 and each `segment` of 2.x; what has no target is "untranslated",
    what must not be translated (and is a copy) "translate_no".

    Alternative translations (`alt-trans`, `matches`) are no units of their own. Raises DataError where a file does
    not say its languages.
    """
    languages = list(source.languages or ())
    base = ("", "")
    src_code = tgt_code = document = ""
    for element, line in read_units(path, {"trans-unit", "unit"}, {"xliff", "file"}, report):
        if element.tag == "xliff":
            base = (element.get("srcLang", ""), element.get("trgLang", ""))
            continue
        if element.tag == "file":
            src_code = element.get("source-language") or base[0]
            tgt_code = element.get("target-language") or base[1]
            document = element.get("original") or element.get("id") or path.name
            continue
        if not tgt_code and len(languages) == 2 and src_code:  # the standard lets a file leave it out
            rest = [language for language in languages if language not in codes.find([src_code], f"{path}:{line}")]
            tgt_code = rest[0] if len(rest) == 1 else ""
        if not src_code or not tgt_code:
            raise DataError(
                f"{path}:{line}: the file does not say its two languages; add source-language, target-language"
            )
        found = codes.find([src_code, tgt_code], f"{path}:{line}")
        roles = {"group": document} if source.group is not None else {}
        for part in [element] if element.tag == "trans-unit" else element.iterfind("segment"):
            target = part.find("target")
            sides = {normal_code(src_code): part.find("source"), normal_code(tgt_code): target}
            texts = {language: text_of(sides[code], _CODES) or "" for language, code in found.items()}
            flaw = None if source.unfinished else _unfinished(element, part, target)
            if element.get("translate") == "no":
                flaw = "translate_no"
            elif target is None or not (text_of(target, ()) or "").strip():
                flaw = "untranslated"
            yield Row(texts, f"{path.name}:{line}", roles, flaw)


def _unfinished(unit: Element, part: Element, target: Element | None) -> str | None:
    """Why a unit is not to be learned from, by what it says itself; None if it is, or if it says nothing.

    1.2: a state that starts with "needs-" or is "new"; approved="no". 2.x: state="initial". The defaults of the
    standards (not approved, initial) are not applied, because most tools that write finished files leave these
    attributes out.
    """
    state = part.get("state") or (target.get("state") if target is not None else None)
    if state is not None and (state.startswith("needs-") or state in ("new", "initial")):
        return f"state_{state}"
    if unit.get("approved") == "no" and state not in _FINISHED:
        return "not_approved"
    return None
