"""What cannot be in one source of pairs: formats that exclude each other, keys that mean nothing to a format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xyd.config.inputs import FORMATS, ROLES, TABLES, SourceConfig
from xyd.config.source import Key, dotted

Finding = tuple[tuple[Key, ...], str]

_KEYED = (*TABLES, "json", "jsonl", "parquet", "arrow", "tmx", "hf")
_ONE_OR_MANY_DOCUMENTS = ("xliff", "po", "srt", "vtt")
_USED_BY = {
    "columns": (*_KEYED, "xliff", "xml"),
    "group": ("files", *_KEYED, *_ONE_OR_MANY_DOCUMENTS),
    "group_pattern": ("files", *_KEYED),
    "score": ("files", *_KEYED),
    "time": ("files", *_KEYED),
    "header": TABLES,
    "quoting": TABLES,
    "unfinished": ("po", "xliff"),
    "encoding": ("files", *TABLES, "json", "jsonl", "po", "srt", "vtt"),
}
"""The formats to which a key means something."""


def source_findings(source: SourceConfig, key: Key) -> Iterator[Finding]:
    """What is wrong with the source at `key`, each with the key at which the user should look."""
    name = dotted(key)
    if len(source.given) != 1:
        got = " and ".join(source.given) or "none"
        yield (key,), f"{name}: expected exactly one of {', '.join(FORMATS[:-1])} and {FORMATS[-1]}, got {got}"
        return
    form = source.format
    for option, formats in _USED_BY.items():
        if getattr(source, option) != type(source).model_fields[option].default and form not in formats:
            yield (
                ((*key, option),),
                f"{name}.{option}: means nothing to {form}, only to {', '.join(formats)}; remove it",
            )
    if source.languages is None:
        yield ((*key, form),), f"{name}: say which languages to take from it, languages: [en, zh]"
        return
    yield from _language_findings(source, key)
    yield from _column_findings(source, key)
    for path, count in Counter(source.files_by_language.values()).items():
        if count > 1:
            same = " and ".join(lang for lang, other in source.files_by_language.items() if other == path)
            yield ((*key, form),), f"{name}.{form}: {same} are the same file, {path}"


def _language_findings(source: SourceConfig, key: Key) -> Iterator[Finding]:
    name, languages = dotted(key), source.languages or []
    at = ((*key, "languages"),)
    if len(set(languages)) < len(languages):
        yield at, f"{name}.languages: a language is listed twice"
    files = source.files_by_language
    if files and (missing := [code for code in languages if code not in files]):
        yield at, f"{name}.languages: no file is given for {' and '.join(missing)}"
    if source.format == "po" and len(languages) != 2:
        yield (
            at,
            f"{name}.languages: a PO file has two, that of msgid and that of msgstr, [en, zh]; got {len(languages)}",
        )
    unread = [code for code in source.columns or {} if code not in languages]
    if unread:
        yield ((*key, "columns"), *at), f"{name}.columns: {' and '.join(unread)} is not in languages"


def _column_findings(source: SourceConfig, key: Key) -> Iterator[Finding]:
    name, form, columns = dotted(key), source.format, source.columns or {}
    for option, value in (*columns.items(), *((role, getattr(source, role)) for role in ROLES)):
        at = (*key, "columns", option) if option in columns else (*key, option)
        if isinstance(value, int) and form not in TABLES:
            yield (at,), f"{dotted(at)}: only tsv and csv number their columns; give a name, got {value}"
        if isinstance(value, str) and form in TABLES and source.header is False:
            yield (at, (*key, "header")), f"{dotted(at)}: without a header there are no names; give a number, from 1 on"
    if source.group is not None and form in _ONE_OR_MANY_DOCUMENTS and source.group != "document":
        yield ((*key, "group"),), f"{name}.group: {form} knows only group: document, got {source.group}"
    needed = [code for code in source.languages or [] if columns and code not in columns]
    if needed and form in (*TABLES, "json", "jsonl", "parquet", "arrow", "hf"):
        yield ((*key, "columns"), (*key, "languages")), f"{name}.columns: none is given for {' and '.join(needed)}"
