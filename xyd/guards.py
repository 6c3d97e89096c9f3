"""Guards for a model that knows sentences of moderate length: long texts are cut before it, loops are cut after it, and
what it should have copied and did not is told.

All know text only; nothing but spaces and repeats is ever lost.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator

from xyd.errors import ConfigError

Sizes = Callable[[list[str]], list[int]]
"""Texts → the number of ids of each."""

# Where an over-long text may be cut, best places first: after sentences, after clauses, at spaces. A mark of the Latin
# kind ends a sentence only before a space and no small letter, and not after a single letter ("J. Smith").
_CUTS = (
    re.compile(r"""(?:[。！？।]|……)+[」』”’）】》"']*|(?<!\b\w)[.!?…؟]+["'”’»)\]]* (?![a-zà-ÿ])"""),
    re.compile(r"[，；：、]|[,;:—–،؛]+ "),
    re.compile(r" "),
)

# A run of digits may be a number that the source spells out ("one billion").
_DIGITS_ALLOWED = 12


def split_text(text: str, sizes: Sizes, room: int) -> list[str]:
    """Cut a normalised text into parts of at most `room` ids each, at the best places there are.

    First into single sentences, which is what models are trained on; sentences that are still too long into clauses,
    these at spaces, and a word without end anywhere. All characters but spaces are kept, in order.
    Raises ConfigError when a single character needs more than `room` ids.
    """
    return _split(text, sizes, room, level=0)


def _split(text: str, sizes: Sizes, room: int, level: int) -> list[str]:
    if level == len(_CUTS):
        return _halve(text, sizes, room)
    units = [unit for unit in _cut_at(text, _CUTS[level]) if unit.strip()]
    parts: list[str] = []
    packed, size = "", 0
    for unit, unit_size in zip(units, sizes(units), strict=True):
        # Sentences stay alone; clauses and words are packed, since fragments translate badly.
        if packed and (level == 0 or size + unit_size > room):
            parts.append(packed)
            packed, size = "", 0
        packed, size = packed + unit, size + unit_size
    parts.append(packed)
    result: list[str] = []
    for part in (part.strip() for part in parts):
        fits = sizes([part])[0] <= room
        result.extend([part] if fits else _split(part, sizes, room, level + 1))
    return result


def _cut_at(text: str, places: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a text between the places, which stay at the end of the piece before."""
    start = 0
    for match in places.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


def _halve(text: str, sizes: Sizes, room: int) -> list[str]:
    """Cut in the middle until it fits; not before a combining mark or inside a joined emoji, if that can be helped."""
    if sizes([text])[0] <= room:
        return [text]
    if len(text) == 1:
        raise ConfigError(f"model.max_length leaves room for {room} tokens, too few for the character {text!r}")
    middle = len(text) // 2
    cut = middle
    while cut > 0 and (unicodedata.category(text[cut])[0] == "M" or "\u200d" in text[cut - 1 : cut + 1]):
        cut -= 1
    cut = cut or middle
    halves = (text[:cut].strip(), text[cut:].strip())
    return [part for half in halves if half for part in _halve(half, sizes, room)]


def without_loops(text: str, source: str) -> str:
    """The text without loops: a run of one n-gram of characters, repeated more often than anything in `source` + 2.

    Such a run is shortened to as many repeats as the source has; at the end of the text, the begun repeat goes too.
    Numbers are spared up to 12 equal digits.
    """
    kept = text + " "  # the last word of a run of words is one of them
    if not _runs_above(1 + 2, kept).search(kept):  # nothing repeats less than once
        return text
    in_source = _longest_run(source + " ")
    runs, start = _runs_above(in_source + 2, kept), 0
    while match := runs.search(kept, start):
        unit, begin, end = match["unit"], match.start(), match.end()
        if unit.isdigit() and end - begin <= _DIGITS_ALLOWED:
            start = end
            continue
        # "dogs and cats and cats": the run is of " and cats", though it begins with the s of dogs.
        whole_words = (i for i in range(len(unit)) if begin == -i or not kept[begin + i - 1 : begin + i + 1].isalnum())
        turn = next(whole_words, 0)
        unit, begin = unit[turn:] + unit[:turn], begin + turn
        while end < len(kept) and kept[end] == kept[end - len(unit)]:
            end += 1
        rest = kept[end - (end - begin) % len(unit) :]
        kept = kept[:begin] + unit * in_source
        kept = kept.rstrip(" ") + " " if unit.startswith(rest.rstrip(" ")) else kept + rest
        start = 0  # what has moved together may repeat as well
    return kept.strip()


def _runs_above(count: int, text: str) -> re.Pattern[str]:
    """Matches a unit repeated more than `count` times without a break; the smallest unit first."""
    longest_unit = max(1, len(text) // (count + 1))
    return re.compile(rf"(?P<run>(?P<unit>.{{1,{longest_unit}}}?)(?P=unit){{{count},}})", re.DOTALL)


def _longest_run(text: str) -> int:
    """How many times, at most, anything stands in `text` without a break; at least 1."""
    longest_unit = max(1, len(text) // 2)
    pattern = re.compile(rf"(?=(?P<run>(?P<unit>.{{1,{longest_unit}}}?)(?P=unit)+))", re.DOTALL)
    return max((len(match["run"]) // len(match["unit"]) for match in pattern.finditer(text)), default=1)


# What programs fill in or read, and addresses: the same in every language.
_COPIED = re.compile(
    r"%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?[sdifxu]\b|%\(\w+\)[sd]|\{\{?[^{}\s]{1,40}\}?\}|</?[A-Za-z][^<>]{0,80}>"
    r"|https?://[^\s<>\"]+[\w/]|[\w.+-]+@[\w-]+\.[\w.-]*\w"
)
_DIGITS = re.compile(r"\d+")


def altered(source: str, text: str) -> list[str]:
    """What a translation should have kept letter by letter and did not, told: placeholders, tags, addresses, numbers.

    Numbers are compared as strings of digits, in any order; one that is written in words on one side is told too.
    """
    told = [
        f"{token} is in the source {source.count(token)} times, in the translation {text.count(token)}"
        for token in dict.fromkeys(_COPIED.findall(source))
        if source.count(token) != text.count(token)
    ]
    ours, theirs = numbers(source), numbers(text)
    if ours != theirs:
        only_ours, only_theirs = (sorted((a - b).elements()) for a, b in ((ours, theirs), (theirs, ours)))
        told.append(f"numbers differ: {', '.join(only_ours) or 'none'} became {', '.join(only_theirs) or 'none'}")
    return told


def numbers(text: str) -> Counter[str]:
    """The strings of digits in a text, outside placeholders, tags and addresses."""
    return Counter(_DIGITS.findall(unicodedata.normalize("NFKC", _COPIED.sub(" ", text))))
