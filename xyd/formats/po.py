"""gettext PO catalogues, streamed. `msgid` is the source and `msgstr` its translation; the header is no entry.

Read here and not by a library, because a text must come out whole or not at all: a string that is not closed is an
error with its line, and U+2028 or U+0085 inside of one end no line.
"""

from __future__ import annotations

import codecs
import gettext
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xyd.config import SourceConfig
from xyd.errors import DataError
from xyd.formats.lines import OnBad, read_lines
from xyd.formats.report import FileReport
from xyd.formats.rows import Row

_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d+)\])?[ \t]*)?"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{2})|(.))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Entry:
    """One message: what it says and in which line its `msgid` stands."""

    line: int = 0
    context: str | None = None
    msgid: str | None = None
    plural: str | None = None
    forms: dict[int, str] = field(default_factory=dict)
    """`msgstr` by its number; 0 where there is no plural."""
    is_fuzzy: bool = False
    is_obsolete: bool = False


def read_po(path: Path, source: SourceConfig, encoding: str, on_bad: OnBad, report: FileReport) -> Iterator[Row]:
    """A row for each entry; two for one with a plural: `msgid` with the form for 1, `msgid_plural` with that for 100.

    Forms in between, as Russian and Arabic have them, carry the flaw "plural_form", fuzzy, obsolete and empty ones
    "fuzzy", "obsolete", "untranslated". Raises DataError for a broken file, and for one in another language or
    encoding than the config says.
    """
    assert source.languages is not None
    src_lang, tgt_lang = source.languages
    one, many = 0, None
    for entry in _entries(path, read_lines(path, encoding, on_bad, report)):
        assert entry.msgid is not None
        if entry.msgid == "" and entry.context is None:
            one, many = _header(path, entry, encoding, tgt_lang)
            continue
        flaw = "obsolete" if entry.is_obsolete else None
        if entry.is_fuzzy and not source.unfinished:
            flaw = flaw or "fuzzy"
        last = max(entry.forms) if many is None or many not in entry.forms else many
        sides = [(entry.msgid, entry.forms.get(one, entry.forms[min(entry.forms)]), flaw)]
        if entry.plural is not None:
            sides.append((entry.plural, entry.forms[last], flaw))
            between = [form for number, form in entry.forms.items() if number not in (one, last)]
            sides += [(entry.plural, form, flaw or "plural_form") for form in between]
        for src, tgt, unfit in sides:
            roles = {"group": path.name} if source.group is not None else {}
            flaw_here = unfit or (None if tgt else "untranslated")
            yield Row({src_lang: src, tgt_lang: tgt}, f"{path.name}:{entry.line}", roles, flaw_here)


def _header(path: Path, entry: Entry, encoding: str, tgt_lang: str) -> tuple[int, int | None]:
    """Numbers of the forms for 1 and for many (None = the last), by the header's Plural-Forms."""
    told = dict(re.findall(r"^([\w-]+):[ \t]*(.*?)[ \t]*$", entry.forms[0], re.MULTILINE))
    place = f"{path}:{entry.line}"
    charset = re.search(r"charset=([\w-]+)", told.get("Content-Type", ""))
    if charset and charset[1].upper() != "CHARSET" and _codec(charset[1]) not in (_codec(encoding), "ascii"):
        raise DataError(f"{place}: the file says that it is {charset[1]}; set encoding: {charset[1]} for this source")
    language = told.get("Language", "")
    if language and _base(language) != _base(tgt_lang):
        raise DataError(
            f"{place}: the file is in {language} but is to be read as {tgt_lang}; mend languages, that of "
            "msgid first, or take the file out"
        )
    rule = re.search(r"plural\s*=\s*([^;]+)", told.get("Plural-Forms", "").partition(";")[2])
    if rule is None or "EXPRESSION" in rule[1]:
        return 0, None
    try:
        form_of = gettext.c2py(rule[1].strip())
        return form_of(1), form_of(100)
    except (ValueError, ZeroDivisionError) as error:
        raise DataError(f"{place}: Plural-Forms cannot be read ({error}); mend or delete it") from None


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return name


def _base(language: str) -> str:
    return re.split(r"[-_@.]", language.lower())[0]


def _entries(path: Path, text: Iterator[str]) -> Iterator[Entry]:
    entry, target = Entry(), ""
    for number, line in enumerate(text, start=1):
        bare = line.strip(" \t")
        obsolete = bare.startswith("#~")
        if obsolete:
            bare = bare[2:].lstrip(" \t")
            if bare.startswith("|"):
                continue
        if not bare or bare.startswith("#"):
            if entry.forms:  # a comment belongs to what follows
                yield entry
                entry, target = Entry(), ""
            if bare.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", bare):
                entry.is_fuzzy = True
            continue
        found = _LINE.fullmatch(bare)
        if found is None:
            raise DataError(
                f'{path}:{number}: no valid PO line; expected msgid or msgstr with one whole "text": {bare[:40]}'
            )
        keyword, form, body = found.groups()
        if keyword in ("msgctxt", "msgid") and entry.forms:
            yield entry
            entry = Entry()
        entry.is_obsolete = entry.is_obsolete or obsolete
        target = f"{keyword}[{form or 0}]" if keyword == "msgstr" else keyword or target
        _put(entry, target, int(form or 0) if keyword else None, _unescaped(body), number, path)
    if entry.forms:
        yield entry
    elif entry.msgid is not None or entry.context is not None:
        raise _incomplete(path, entry)


def _put(entry: Entry, target: str, form: int | None, text: str, number: int, path: Path) -> None:
    """Add a string to the part of the entry that is being read; `form` is None for one that goes on."""
    is_new = form is not None
    if target.startswith("msgstr"):
        if entry.msgid is None:
            raise _incomplete(path, entry, number)
        place = int(target[7:-1])
        entry.forms[place] = ("" if is_new else entry.forms[place]) + text
    elif target == "msgid":
        entry.msgid = text if is_new or entry.msgid is None else entry.msgid + text
        entry.line = number if is_new else entry.line
    elif target == "msgid_plural":
        entry.plural = text if is_new or entry.plural is None else entry.plural + text
    elif target == "msgctxt":
        entry.context = text if is_new or entry.context is None else entry.context + text
    else:
        raise DataError(f"{path}:{number}: a text that belongs to no msgid or msgstr; mend the entry")


def _incomplete(path: Path, entry: Entry, number: int = 0) -> DataError:
    return DataError(f"{path}:{number or entry.line}: an entry without msgid or without msgstr; is the file cut off?")


def _unescaped(body: str) -> str:
    def character(found: re.Match[str]) -> str:
        octal, hexadecimal, letter = found.groups()
        return _LETTERS.get(letter, letter) if letter else chr(int(octal, 8) if octal else int(hexadecimal, 16))

    return _ESCAPE.sub(character, body) if "\\" in body else body
