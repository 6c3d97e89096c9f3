"""The manifest's entries about what was read, kept, changed and dropped, and the table that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xyd import splitting
from xyd.corpus.pairs import CorpusCount
from xyd.formats import ReadReport


def input_entries(hashes: Mapping[str, str | None], report: ReadReport) -> list[dict[str, Any]]:
    """What is known of each input file, in the order of paths: hash, lines, bytes, byte order mark, CRLF."""
    seen = report.as_dict()
    return [{"path": path, "sha256": hashes.get(path), **seen.get(path, {})} for path in sorted({*hashes, *seen})]


def corpus_entry(count: CorpusCount) -> dict[str, Any]:
    """What became of the pairs of one corpus."""
    return {
        "name": count.name,
        "read": count.read,
        "kept": count.kept,
        "dropped": count.dropped.as_dict(),
        "changed": count.changed.as_dict(),
    }


def corpus_lines(corpora: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the table: read = kept + dropped by reason, and the first places of each, corpus by corpus."""
    read, kept = sum(entry["read"] for entry in corpora), sum(entry["kept"] for entry in corpora)
    lines = [f"data: read {read:,} pairs = kept {kept:,} + dropped {read - kept:,}"]
    for entry in corpora:
        dropped = entry["read"] - entry["kept"]
        lines.append(f"  {entry['name']}: read {entry['read']:,} = kept {entry['kept']:,} + dropped {dropped:,}")
        lines += [_reason_line(reason, found) for reason, found in entry["dropped"].items()]
        lines += [_reason_line(f"changed: {reason}", found) for reason, found in entry["changed"].items()]
    return lines


def table(manifest: Mapping[str, Any], asked: Mapping[str, Mapping[str, int]]) -> str:
    """The whole table; `asked`: pairs of each language pair asked for, of the splits that xyd makes."""
    lines = corpus_lines(manifest["corpora"])
    for name in ("train", "valid", "test"):
        split = manifest["split"].get(name, {})
        if split:
            lines.append(f"{name}: " + ", ".join(f"{direction} {rows:,}" for direction, rows in split.items()))
        for direction, rows in split.items():
            wanted = asked.get(name, {}).get("-".join(sorted(direction.split("-"))), 0)
            if rows < wanted:
                why = (
                    "the others were over model.max_length, are of a corpus that has other directions, or no group fits"
                )
                lines.append(f"  warning: {direction}: {rows:,} of {wanted:,}; {why}")
            elif not rows:
                lines.append(f"  warning: {direction}: no row")
        if name == "train":
            lines += _augmented_lines(manifest)
    lines += _group_lines(manifest["groups"])
    for name, reasons in manifest["left_out"].items():
        lines += [f"{name}: left out of your own files:"] * bool(reasons)
        lines += [_reason_line(reason, found) for reason, found in reasons.items()]
    lines += _overlap_lines(manifest["overlap"])
    for name, over in manifest["over_length"].items():
        for direction, rows in over.items():
            lines.append(f"{name}: {direction}: {rows:,} rows over model.max_length; in BLEU and chrF, left out of NLL")
    tokenizer = manifest["tokenizer"]
    lines.append(f"tokenizer: {tokenizer['type']}, {tokenizer['vocab_size']:,} pieces")
    return "\n".join(lines)


def _group_lines(facts: Mapping[str, Any]) -> list[str]:
    lines = []
    if facts.get("pairs_in_larger_groups"):
        lines.append(
            f"groups: {facts['groups']:,}; in larger ones, which stay in train: {facts['pairs_in_larger_groups']:,}"
        )
    if "fold_sizes" in facts:
        lines.append("folds: " + ", ".join(f"{size:,}" for size in facts["fold_sizes"]) + " pairs")
    if "near_duplicate_texts" in facts:
        lines.append(f"near duplicates: {facts['near_duplicate_texts']:,} links between texts")
    lacking = {value: facts.get(f"pairs_without_{value}", 0) for value in ("group", "time")}
    lines += [f"pairs without a {value}: {count:,}" for value, count in lacking.items() if count]
    for name, found in facts.get("time", {}).items():
        lines += [
            f"{name}: {languages} from {fact['from']} on; train pairs that are newer: {fact['newer_in_train']:,}"
            + (", because their group is older or too large" if fact["newer_in_train"] else "")
            for languages, fact in found.items()
        ]
    return lines


def _augmented_lines(manifest: Mapping[str, Any]) -> list[str]:
    rows = {kind: number for kind, number in manifest["augmented"].items() if number}
    if not rows:
        return []
    kinds = ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in rows.items())
    left_out = manifest["augmented_left_out"]
    lines = [f"  and {sum(rows.values()):,} rows of augmentation: {kinds}"]
    if any(left_out.values()):
        told = ", ".join(f"{reason.replace('_', ' ')} {number:,}" for reason, number in left_out.items() if number)
        lines.append(f"  left out of it: {told}")
    return lines


def _overlap_lines(overlap: Mapping[str, Any]) -> list[str]:
    lines = []
    if "held_out" in overlap:
        lines.append(f"overlap with your own valid and test files, removed from train: {_kinds(overlap)}")
        for name, found in overlap["held_out"].items():
            lines.append(f"  counted in {name} pairs: {_kinds(found)}")
    between = overlap.get("valid_in_test", {})
    if any(between.values()):
        lines.append(f"warning: your valid files overlap with your test files: {_kinds(between)}")
    return lines


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {counts[kind]:,}" for kind in splitting.KINDS if kind in counts)


def _reason_line(reason: str, found: Mapping[str, Any]) -> str:
    more = ", …" if found["count"] > len(found["first"][:5]) else ""
    return f"    {reason:<24} {found['count']:>10,}   {', '.join(found['first'][:5])}{more}"
