"""What became of one line of the corpora: `xyd prepare CONFIG --explain train.en:17`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xyd.cleaning import Cleaner
from xyd.config import Config, directions
from xyd.corpus.pairs import sorted_pair
from xyd.corpus.rows import PreparedSplit
from xyd.errors import DataError
from xyd.files import RunDir
from xyd.formats import ReadReport, read_corpus, source_name
from xyd.text import SentencePair, faults, fold, normalise
from xyd.tokenizer import Tokenizer

_MEANING = {
    "empty": "a side has no text once invisible characters are gone",
    "too_short": "a side has fewer characters than min_characters",
    "too_long": "a side has more characters than max_characters",
    "length_ratio": "one side is longer than max_length_ratio times the other plus 20 characters",
    "identical": "both sides are the same text (drop_identical)",
    "low_score": "its score is missing or below min_score",
    "other_language": "a side looks like another language (language_id)",
    "bad_utf8": "a side cannot be decoded",
}
_END = re.compile(r"(?:^|[^0-9])0*([0-9]+)$")


@dataclass(frozen=True)
class _Found:
    corpus: int  # position in data.corpora
    pair: SentencePair


def explain(config: Config, run: RunDir, place: str, splits: dict[str, PreparedSplit], order: list[int]) -> str:
    """What became of the pairs at `place`, an origin (`train.en:17`) or just the number of a line or unit.

    `splits`: of the prepared run; `order`: which corpus of the config each of its corpora is.
    Raises DataError if no corpus has such a place.
    """
    found = list(_find(config, place))
    if not found:
        names = ", ".join(source_name(corpus) for corpus in config.data.corpora)
        raise DataError(f"--explain {place}: no pair comes from there; the corpora are {names}")
    tokenizer = Tokenizer.load(run.tokenizer_path)
    lines: list[str] = []
    for one in found:
        pair = one.pair
        lines.append(
            f"{pair.origin}, {pair.src_lang} and {pair.tgt_lang}, of {source_name(config.data.corpora[one.corpus])}"
        )
        lines += [f"  {told}" for told in _fate(config, one, splits, order.index(one.corpus), tokenizer)]
    return "\n".join(lines)


def _find(config: Config, place: str) -> Iterator[_Found]:
    pairs = sorted({sorted_pair(*direction) for direction in directions(config)})
    for number, corpus in enumerate(config.data.corpora):
        stream = read_corpus(
            corpus, pairs, encoding=config.data.encoding, on_bad_utf8=config.data.on_bad_utf8, report=ReadReport()
        )
        # Pairs of aligned files are named after one of them; a person may mean the other.
        names = {path.name for path in map(Path, corpus.files_by_language.values())}
        file, _, line = place.rpartition(":")
        is_number = line.isdecimal() and (not file or Path(file).name in names)
        for pair in stream:
            end = _END.search(pair.origin)
            if pair.origin == place or (is_number and end is not None and end[1] == line.lstrip("0")):
                yield _Found(number, pair)


def _fate(
    config: Config, found: _Found, splits: dict[str, PreparedSplit], corpus: int, tokenizer: Tokenizer
) -> Iterator[str]:
    pair = found.pair
    if pair.flaw is not None:
        yield f"dropped: {pair.flaw}" + (f" ({_MEANING[pair.flaw]})" if pair.flaw in _MEANING else "")
        return
    texts = {pair.src_lang: normalise(pair.src), pair.tgt_lang: normalise(pair.tgt)}
    for lang, raw in ((pair.src_lang, pair.src), (pair.tgt_lang, pair.tgt)):
        yield f"{lang}: {texts[lang]}"
        if raw != texts[lang]:
            yield f"    changed ({', '.join(faults(raw))}); as it was: {json.dumps(raw, ensure_ascii=False)}"
    src, tgt = texts[pair.src_lang], texts[pair.tgt_lang]
    reason = Cleaner(config.data.corpora[found.corpus].filters).reason(src, tgt, pair)
    if reason is not None:
        yield f"dropped: {reason} ({_MEANING.get(reason, 'a filter of this corpus')})"
        return
    ids = {lang: tokenizer.encode(text) for lang, text in texts.items()}
    for lang, tokens in ids.items():
        yield f"{lang}: {len(tokens)} tokens: {' '.join(map(tokenizer.piece, tokens))}"
    is_kept = False
    for name, split in splits.items():
        for origin in split.origins_from(pair.origin):
            rows = [r for r in split.rows_of(origin) if split.corpus[r] == corpus]
            is_own = origin == pair.origin  # of two files with one name, only the text tells whose row it is
            used = [split.directions[split.direction[r]] for r in rows if not is_own or _has_ids(split, r, ids)]
            used = [direction for direction in used if set(direction.split("-")) == set(ids)]
            if used and (is_own or is_kept):
                is_kept = True
                kind = "" if origin == pair.origin else f", augmented{origin.removeprefix(pair.origin)}"
                yield f"in {name}{kind}: {', '.join(used)}"
    if is_kept:
        return
    room = config.model.max_length - 1
    if max(map(len, ids.values())) > room:
        yield f"dropped: too_many_tokens (a side has more than model.max_length - 1 = {room})"
        return
    twins = [t for name, split in splits.items() for t in _twins(split, name, ids, pair)]
    alike = [t for name, split in splits.items() if name != "train" for t in _alike(split, name, texts, pair)]
    yield "dropped: " + ("; ".join(twins or alike) or "overlap with valid or test, or in no direction of this corpus")


def _has_ids(split: PreparedSplit, row: int, ids: dict[str, list[int]]) -> bool:
    src, _, tgt = split.directions[split.direction[row]].partition("-")
    return split.src_ids(row).tolist() == ids.get(src) and split.tgt_ids(row).tolist() == ids.get(tgt)


def _twins(split: PreparedSplit, name: str, ids: dict[str, list[int]], pair: SentencePair) -> Iterator[str]:
    """Rows with the same texts."""
    for number, direction in enumerate(split.directions):
        src, _, tgt = direction.partition("-")
        if {src, tgt} != {pair.src_lang, pair.tgt_lang}:
            continue
        same = (split.direction == number) & (split.src_lengths == len(ids[src])) & (split.tgt_lengths == len(ids[tgt]))
        for row in np.flatnonzero(same).tolist():
            if _has_ids(split, row, ids):
                yield f"the same pair is in {name}, from {split.origin(row)}"
                return


def _alike(split: PreparedSplit, name: str, texts: dict[str, str], pair: SentencePair) -> Iterator[str]:
    """Rows of valid or test with which it shares a folded side."""
    folded = {lang: fold(text) for lang, text in texts.items()}
    for row in range(len(split)):
        src, _, tgt = split.directions[split.direction[row]].partition("-")
        same = [
            lang
            for lang, text in ((src, split.src_text(row)), (tgt, split.tgt_text(row)))
            if lang in folded and folded[lang] == fold(text)
        ]
        if same:
            yield f"overlap with {name}: the same {' and '.join(same)} text, folded, in {split.origin(row)}"
            return
