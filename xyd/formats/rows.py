"""Rows of any format → sentence pairs, and the columns in which a row keeps what."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NoReturn

from xyd.config import ROLES, SourceConfig
from xyd.errors import DataError
from xyd.formats.lines import BAD
from xyd.text import SentencePair

_USUAL_SIDES = (("src", "tgt"), ("source", "target"))
"""Names of two columns where a table does not name languages."""
_LOOK_AHEAD = 100


@dataclass(slots=True)
class Row:
    """One sentence in several languages, as it stands in a file."""

    texts: Mapping[str, str | None]
    """Language → text; None or absent where the row has none."""
    origin: str
    roles: Mapping[str, Any] = field(default_factory=dict)
    """Raw values of "group", "score", "time"."""
    flaw: str | None = None


class Roles:
    """What the raw values of group, score and time mean."""

    def __init__(self, group_pattern: str | None) -> None:
        self._pattern = re.compile(group_pattern) if group_pattern is not None else None

    def read(self, raw: Mapping[str, Any], origin: str) -> tuple[str | None, float | None, str | None, str | None]:
        """(group, score, time, flaw); an empty value is None, a score that is no number gives the flaw "bad_score"."""
        group, score, time = (raw.get(role) for role in ROLES)
        group, time = _plain(group), _plain(time)
        if group is not None and self._pattern is not None:
            found = self._pattern.search(group)
            if found is None:
                raise DataError(
                    f"{origin}: group_pattern {self._pattern.pattern} matches nothing in {group!r}; mend it"
                )
            group = found[0]
        if any(isinstance(value, str) and BAD in value for value in (group, score, time)):
            return None, None, None, "bad_utf8"
        if score is None or score == "":
            return group, None, time, None
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = math.nan
        return (group, number, time, None) if math.isfinite(number) else (group, None, time, "bad_score")


def _plain(value: Any) -> str | None:
    return None if value is None else str(value).strip() or None


def sentence_pairs(
    rows: Iterable[Row], language_pairs: Sequence[tuple[str, str]], group_pattern: str | None
) -> Iterator[SentencePair]:
    """The pairs of each row, one after the other; a side that is absent gives the flaw "missing_side"."""
    roles = Roles(group_pattern)
    for row in rows:
        group, score, time, unfit = roles.read(row.roles, row.origin) if row.roles else (None, None, None, None)
        for a, b in language_pairs:
            src, tgt = row.texts.get(a), row.texts.get(b)
            flaw = row.flaw or unfit
            if src is None or tgt is None:
                src, tgt, flaw = src or "", tgt or "", flaw or "missing_side"
            if BAD in src or BAD in tgt:
                src, tgt, flaw = "" if BAD in src else src, "" if BAD in tgt else tgt, "bad_utf8"
            yield SentencePair(src, tgt, a, b, row.origin, group, flaw, score, time)


# ── columns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def usual_columns(names: Collection[str], languages: Sequence[str]) -> dict[str, str] | None:
    """Language → column by the usual names: translation.en, en, or src and tgt, source and target; None without."""
    for form in ("translation.{}", "{}"):
        columns = {language: form.format(language) for language in languages}
        if all(name in names for name in columns.values()):
            return columns
    for sides in _USUAL_SIDES if len(languages) == 2 else ():
        if all(side in names for side in sides):
            return dict(zip(languages, sides, strict=True))
    return None


def no_column(label: str, key: str, name: str, names: Collection[str]) -> DataError:
    """What to tell where the column `name`, asked for as `key`, is not among `names`."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return DataError(f"{label}: no column {name} (for {key}); the columns are {', '.join(names)}{hint}")


def no_text(label: str, missing: Sequence[str], names: Collection[str]) -> NoReturn:
    """Raises the DataError that no column tells by its name that it holds the languages `missing`."""
    example = ", ".join(f"{language}: NAME" for language in missing)
    raise DataError(
        f"{label}: no text in {', '.join(missing)}; it holds {', '.join(names)}; say which is which: "
        f"columns: {{{example}}}"
    )


def columns_of(names: Collection[str], source: SourceConfig, label: str) -> dict[str, str]:
    """Language or role → the name of its column among `names`. Raises DataError with the choices."""
    languages = source.languages or []
    columns = {language: str(name) for language, name in (source.columns or {}).items()}
    if not columns:
        absent = [lang for lang in languages if lang not in names and f"translation.{lang}" not in names]
        columns = usual_columns(names, languages) or no_text(label, absent or languages, names)
    columns |= {role: str(getattr(source, role)) for role in ROLES if getattr(source, role) is not None}
    for key, name in columns.items():
        if name not in names:
            raise no_column(label, key, name, names)
    return {key: columns[key] for key in (*languages, *ROLES) if key in columns}


def mapping_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    source: SourceConfig,
    label: str,
    names: Collection[str] | None = None,
) -> Iterator[Row]:
    """Rows from mappings such as JSON objects, (origin, mapping) each; a missing value is no text.

    `names`: of all columns; without, they are looked for in the first hundred rows. Raises DataError if the columns
    are not there, or hold something else than text.
    """
    stream = iter(rows)
    first = list(islice(stream, 0 if names is not None else _LOOK_AHEAD))
    if names is None and not first:
        return
    if names is None:
        names = dict.fromkeys(name for _, row in first for name in _leaves(row))
    columns = {key: (name, name.split(".")) for key, name in columns_of(names, source, label).items()}
    roles = [(key, *columns.pop(key)) for key in ROLES if key in columns]
    texts = [(key, *column) for key, column in columns.items()]
    for origin, row in chain(first, stream):
        found = {language: _value(row, name, parts) for language, name, parts in texts}
        for language, text in found.items():
            if text is not None and not isinstance(text, str):
                name, kind = columns[language][0], type(text).__name__
                raise DataError(f"{origin}: {name} is {kind}, not text; name a text column for {language}")
        yield Row(found, origin, {role: _value(row, name, parts) for role, name, parts in roles})


def _leaves(row: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _value(row: Any, name: str, parts: Sequence[str]) -> Any:
    if name in row:
        return row[name]
    for part in parts:
        if not isinstance(row, Mapping):
            return None
        row = row.get(part)
    return row
