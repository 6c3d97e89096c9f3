"""Signs of trouble that one pair shows by itself: pure functions on normalised text, for the report and for cleaning.

They are chosen so that a good pair hardly ever shows one: what a free translation may do (spell out a number, leave
out a name) is no sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from xyd.health.encodings import mojibake
from xyd.health.languages import SCRIPTS, function_words, scripts_of

__all__ = [
    "SIGNS",
    "digits_differ",
    "find",
    "finder",
    "html_entities",
    "identical",
    "mojibake",
    "swapped",
    "truncated",
    "urls_differ",
    "wrong_language",
    "wrong_script",
]

SIGNS = (
    "mojibake",
    "html_entities",
    "identical",
    "swapped",
    "wrong_script",
    "wrong_language",
    "digits_differ",
    "urls_differ",
    "truncated",
)
"""Every name that `find` can give, each also a function of this module."""


def find(src: str, tgt: str, src_lang: str, tgt_lang: str) -> list[str]:
    """Names of the signs of trouble in a pair, in the order of `SIGNS`; most pairs have none."""
    return finder(src_lang, tgt_lang)(src, tgt)


@lru_cache(maxsize=64)
def finder(src_lang: str, tgt_lang: str) -> Callable[[str, str], list[str]]:
    """`find` for pairs of these two languages, with what depends on them alone worked out before."""
    language = _Languages(src_lang, tgt_lang)

    def found(src: str, tgt: str) -> list[str]:
        names = []
        if not (src.isascii() and tgt.isascii()) and (mojibake(src) or mojibake(tgt)):
            names.append("mojibake")
        if ("&" in src and html_entities(src)) or ("&" in tgt and html_entities(tgt)):
            names.append("html_entities")
        if identical(src, tgt):
            names.append("identical")
        else:
            names += language.signs(src, tgt)
        if (_DIGIT.search(src) or _DIGIT.search(tgt)) and digits_differ(src, tgt):
            names.append("digits_differ")
        if (_URL_HINT.search(src) or _URL_HINT.search(tgt)) and urls_differ(src, tgt):
            names.append("urls_differ")
        if truncated(src, tgt):
            names.append("truncated")
        return names

    return found


# ── text by itself ───────────────────────────────────────────────────────────────────────────────────────────────────

_ENTITY = re.compile(
    r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos|nbsp|[lr][ds]quo|[lr]aquo|hellip|[mn]dash|euro|copy|reg"
    r"|[A-Za-z](?:acute|grave|circ|uml|cedil|tilde)|[oO]elig|[aA]elig|szlig|deg|middot|bull);"
)


def html_entities(text: str) -> bool:
    """The text holds an HTML entity such as `&amp;` or `&#233;`; a bare ampersand is none."""
    return _ENTITY.search(text) is not None


def identical(src: str, tgt: str) -> bool:
    """Both sides are the same text but for case, and it has a letter: the source was copied, not translated."""
    return len(src) == len(tgt) and src.casefold() == tgt.casefold() and _LETTER.search(src) is not None


_LETTER = re.compile(r"[^\W\d_]")

# ── languages ────────────────────────────────────────────────────────────────────────────────────────────────────────

_BEGINNING = 100  # characters in which most texts have a function word of their language
_HAN_WEIGHT = 3  # letters of an alphabet that one Han character, kana or Hangul syllable stands for


def swapped(src: str, tgt: str, src_lang: str, tgt_lang: str) -> bool:
    """Each side is in the language of the other, told by script, or by function words where the script is one."""
    return "swapped" in _languages(src_lang, tgt_lang).signs(src, tgt)


def wrong_script(src: str, tgt: str, src_lang: str, tgt_lang: str) -> bool:
    """A side is written mostly in a script that its language does not use (and the pair is not just swapped)."""
    return "wrong_script" in _languages(src_lang, tgt_lang).signs(src, tgt)


def wrong_language(src: str, tgt: str, src_lang: str, tgt_lang: str) -> bool:
    """A side has no function word of its own language, but three or more of the other side's or of English."""
    return "wrong_language" in _languages(src_lang, tgt_lang).signs(src, tgt)


class _Languages:
    """What tells the two languages apart."""

    def __init__(self, src_lang: str, tgt_lang: str) -> None:
        self._src, self._tgt = _Language(src_lang), _Language(tgt_lang)
        self._share_script = not self._src.scripts or not self._tgt.scripts or self._src.scripts == self._tgt.scripts
        src_words, tgt_words = function_words(src_lang), function_words(tgt_lang)
        english = function_words("en")
        self._src_words, self._tgt_words = src_words - tgt_words, tgt_words - src_words
        self._has_words = self._share_script and bool(self._src_words) and bool(self._tgt_words)
        self._not_src, self._not_tgt = (tgt_words | english) - src_words, (src_words | english) - tgt_words

    def signs(self, src: str, tgt: str) -> list[str]:
        if self._src.is_foreign(src) or self._tgt.is_foreign(tgt):
            lack_own = self._src.has_none(src) and self._tgt.has_none(tgt)
            crossed = lack_own and self._src.fits(tgt) and self._tgt.fits(src)
            return ["swapped" if crossed and not self._share_script else "wrong_script"]
        if self._has_words and (
            self._src_words.isdisjoint(src[:_BEGINNING].lower().split())
            or self._tgt_words.isdisjoint(tgt[:_BEGINNING].lower().split())
        ):
            return self._by_words(src.lower().split(), tgt.lower().split())
        return []

    def _by_words(self, src: list[str], tgt: list[str]) -> list[str]:
        src_lacks, tgt_lacks = self._src_words.isdisjoint(src), self._tgt_words.isdisjoint(tgt)
        if src_lacks and tgt_lacks and _hits(src, self._tgt_words) >= 2 and _hits(tgt, self._src_words) >= 2:
            return ["swapped"]
        if (src_lacks and _hits(src, self._not_src) >= 3) or (tgt_lacks and _hits(tgt, self._not_tgt) >= 3):
            return ["wrong_language"]
        return []


_languages = lru_cache(maxsize=64)(_Languages)


def _hits(words: Iterable[str], of: frozenset[str]) -> int:
    """How many different words are among those `of` a language."""
    return len(of.intersection(words))


class _Language:
    """The script of one language."""

    def __init__(self, code: str) -> None:
        self.scripts = scripts_of(code)
        own = "".join(SCRIPTS[name] for name in self.scripts)
        others = "".join(characters for name, characters in SCRIPTS.items() if name not in self.scripts)
        self._own = re.compile(f"[{own}]") if own else None
        self._other = re.compile(f"[{others}]") if own else None
        self._is_latin = self.scripts == ("latin",)

    def is_foreign(self, text: str) -> bool:
        """Most of the text, and more than a name or two, is in scripts that the language does not use."""
        if self._own is None or self._other is None or (self._is_latin and text.isascii()):
            return False
        other = self._other.findall(text)
        if len(other) < 2:
            return False
        foreign = sum(_HAN_WEIGHT if letter >= "\u3000" else 1 for letter in other)
        own = len(self._own.findall(text)) * (_HAN_WEIGHT if "han" in self.scripts else 1)
        if self._is_latin:
            return foreign > own
        # A line of names and numbers in Latin letters is common in every script: a sentence has small words.
        return foreign > 4 * own and len(_SMALL_WORD.findall(text)) >= 3

    def has_none(self, text: str) -> bool:
        """No letter of the language's script is in the text."""
        return self._own is not None and self._own.search(text) is None

    def fits(self, text: str) -> bool:
        """At least one letter of the language's script is in the text."""
        return self._own is not None and self._own.search(text) is not None


_SMALL_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_A-Z]{2,}(?![^\W\d_])")

# ── digits and addresses ─────────────────────────────────────────────────────────────────────────────────────────────

_DIGIT = re.compile(r"\d")
_RUN = re.compile(r"\d+")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’ ]\d{3})+(?!\d)|\d+")
_NOT_DIGIT = re.compile(r"\D")
_LIST_NUMBER = re.compile(r"^\W*\d{1,3}[.)．）、] ?(?!\d)")
_COUNTED = re.compile(
    r"[〇零○一二三四五六七八九十百千万萬亿億兆两]|hundred|thousand|illion|illiard|dozen|cent|mill[eiè]|tausend|hundert|Mio\b|Mrd"
    r"|\bbn\b|dizaine|Dutzend|\d[kKmM]\b|soixante|quatre|vingt|teen\b|nine|twenty|thirty|forty|fifty|sixty|eighty|zwanzig"
    r"|[ßzr]ig\b|cet\b|desát"
)


def digits_differ(src: str, tgt: str) -> bool:
    """Each side has a number that the other lacks, or one has a number of four digits that the other has in no form.

    Full-width digits and thousands separators are seen through, so are years cut short ('98) and hours (3 p.m. = 15);
    with words or characters that count (million, 万) near, nothing is said.
    """
    src_runs, tgt_runs = _RUN.findall(src), _RUN.findall(tgt)
    if src_runs == tgt_runs:
        return False
    only_src, only_tgt = _left_over(src_runs, tgt_runs)
    if not only_src and not only_tgt:
        return False
    src, tgt = _LIST_NUMBER.sub("", src), _LIST_NUMBER.sub("", tgt)  # often on one side only
    only_src, only_tgt = _left_over(_RUN.findall(src), _RUN.findall(tgt))
    if not (only_src and only_tgt) and max(map(len, only_src + only_tgt), default=0) < 3:
        return False
    merged_src, merged_tgt = _left_over(_whole_numbers(src), _whole_numbers(tgt))
    if only_src and only_tgt and merged_src and merged_tgt:
        if _COUNTED.search(src) or _COUNTED.search(tgt):
            return False
        only_src = [a for a in only_src if not any(_may_be_same(a, b) for b in only_tgt)]
        only_tgt = [b for b in only_tgt if not any(_may_be_same(b, a) for a in src_runs)]
        return bool(only_src and only_tgt)
    if not (only_src or only_tgt):
        return False
    lone, other = (merged_src, tgt) if merged_src else (merged_tgt, src)
    return any(len(number) >= 4 for number in lone) and not _COUNTED.search(other)


def _left_over(src: list[str], tgt: list[str]) -> tuple[list[str], list[str]]:
    """Numbers, in ASCII and without leading zeros, that are more often on one side than on the other."""
    only_src, only_tgt = [], [_plain(run) for run in tgt]
    for number in map(_plain, src):
        if number in only_tgt:
            only_tgt.remove(number)
        else:
            only_src.append(number)
    return only_src, only_tgt


def _plain(run: str) -> str:
    return (run if run.isascii() else "".join(str(int(digit)) for digit in run)).lstrip("0") or "0"


def _whole_numbers(text: str) -> list[str]:
    return [_NOT_DIGIT.sub("", run) for run in _GROUPED.findall(text)]


def _may_be_same(a: str, b: str) -> bool:
    if a.endswith(b) or b.endswith(a):
        return True
    return len(a) <= 2 and len(b) <= 2 and abs(int(a) - int(b)) == 12


_URL_HINT = re.compile(r"://|www\.|@")
_URL = re.compile(r"(?:https?://|ftp://|www\.)[!-~]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.ASCII | re.IGNORECASE)
_URL_END = ".,;:!?'\")]}>"


def urls_differ(src: str, tgt: str) -> bool:
    """The web and mail addresses of the two sides are not the same."""
    return _urls(src) != _urls(tgt)


def _urls(text: str) -> set[str]:
    return {url.rstrip(_URL_END).rstrip("/").lower() for url in _URL.findall(text)}


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_FINAL = frozenset(".!?。！？…︒｡؟।")
_CLOSING = "\"'”’“‘»›)）]】』」》〉* \u00a0\u202f"
_CUT = frozenset("-‐‑,，、(（[【“«《")


def truncated(src: str, tgt: str) -> bool:
    """One side ends as a sentence does; the other does not, and is much shorter or breaks off at a hyphen or comma."""
    src_ends, tgt_ends = src.rstrip(_CLOSING)[-1:] in _FINAL, tgt.rstrip(_CLOSING)[-1:] in _FINAL
    if src_ends == tgt_ends or not src or not tgt:
        return False
    whole, cut = (src, tgt) if src_ends else (tgt, src)
    room = _extent(whole)
    if room < 30:
        return False
    return 2.5 * _extent(cut) < room or (cut[-1] in _CUT and 1.5 * _extent(cut) < room)


_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]")


def _extent(text: str) -> int:
    """Length in letters of an alphabet."""
    return len(text) if text.isascii() else len(text) + (_HAN_WEIGHT - 1) * len(_WIDE.findall(text))
