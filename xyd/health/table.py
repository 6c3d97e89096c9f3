"""The report as plain text: only what was found, one line each, and what to do about it once at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 4


def table(corpora: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]] = ()) -> str:
    """Of the reports of some corpora, as `Health.finish` gives them, and of the files they were read from."""
    lines: list[str] = []
    met: dict[str, str] = {}
    for corpus in corpora:
        for part in corpus["languages"]:
            lines += _part(corpus["corpus"], part)
            met |= {
                found["name"]: f"{_sentence(found['meaning'])} {_sentence(found['advice'])}"
                for found in part["findings"]
            }
    lines += file_lines(files)
    if met:
        lines += ["", *(f"{name}: {text}" for name, text in met.items())]
    return "\n".join(lines)


PASSED_OVER = "in blocks; what is said here is of those. xyd inspect looks at all"


def _part(corpus: str, part: Mapping[str, Any]) -> list[str]:
    src, tgt = part["src_lang"], part["tgt_lang"]
    lines = [f"health of {corpus}, {src}-{tgt}: {part['pairs']:,} pairs"]
    if part["looked_at"] < part["pairs"]:
        lines.append(f"  looked at {part['looked_at']:,} of them, {PASSED_OVER}")
    lines.append("  " + length_line(part))
    if not part["findings"]:
        lines.append("  nothing found")
    for found in part["findings"]:
        if found["name"] == "shifted_block":
            lines += [f"  {'shifted_block':<16} {block['pairs']:>10,}  {block_text(block)}" for block in blocks(part)]
        else:
            lines.append(f"  {found['name']:<16} {found['count']:>10,}  {places(found)}")
    return lines


def file_lines(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each file with a byte order mark, CRLF or lines that are not in its encoding.

    `files`: `path`, `lines`, `bom`, `crlf` and `bad_lines` of each, as `ReadReport` counts them.
    """
    lines = []
    for file in files:
        found = ["a byte order mark at its start, taken off"] * bool(file.get("bom"))
        if crlf := file.get("crlf"):
            found.append(f"{crlf:,} of {file['lines']:,} lines end in CRLF, read as LF")
        if bad := file.get("bad_lines"):
            found.append(f"{bad:,} of {file['lines']:,} lines cannot be decoded")
        if found:
            lines.append(f"file {file['path']}: {'; '.join(found)}")
    return lines


def blocks(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The shifted blocks that are shown."""
    found: list[Mapping[str, Any]] = part["shifted_blocks"]
    return found[:20]


def block_text(block: Mapping[str, Any]) -> str:
    """Where a shifted block is and where its translations are."""
    where = " or ".join(
        f"{abs(offset):,} {'line' if abs(offset) == 1 else 'lines'} {'below' if offset > 0 else 'above'}"
        for offset in block["offsets"]
    )
    where = f"stand {where}" if where else "were not found near; order lost, or other texts"
    return f"{block['from']} to {block['to'].rsplit(':', 1)[-1]}: the translations {where}"


def places(found: Mapping[str, Any]) -> str:
    """The first places of a finding; a file name is given once for all its lines."""
    by_file: dict[str, list[str]] = {}
    for origin in found["first"][:_SHOWN]:
        name, _, number = origin.rpartition(":")
        by_file.setdefault(name, []).append(number)
    more = ", …" if found["count"] > _SHOWN else ""
    return "; ".join(f"{name}:{', '.join(numbers)}" if name else numbers[0] for name, numbers in by_file.items()) + more


def length_line(part: Mapping[str, Any]) -> str:
    """Lengths of both sides in a line."""
    lengths = part["lengths"]
    sides = [
        f"{part[f'{side}_lang']} {_count(lengths[side]['median'])} (99 % up to {_count(lengths[side]['p99'])}, "
        f"longest {_count(lengths[side]['longest'])})"
        for side in ("src", "tgt")
    ]
    return f"median length in characters: {', '.join(sides)}; ratio {lengths['ratio']['median']:.2f}"


def _count(number: int) -> str:
    return f"{number:,}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith("?") else ".")
