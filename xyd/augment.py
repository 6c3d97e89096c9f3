"""Robustness augmentation: additional training pairs that look like what people type and a corpus seldom holds.

A pair is chosen for a kind by a hash of (seed, its key, the kind), so the choice does not depend on the order of pairs
or corpora; a variant is drawn from that hash too. A variant is made for one direction, because some kinds leave the
target as it is. What both sides gain is the same text at the same place: in front, behind, or between aligned
sentences. No-break spaces need no variant: `normalise` makes them plain spaces.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from xyd.config import AugmentConfig
from xyd.text import SentencePair, normalise

Keys = npt.NDArray[np.uint64]
Variant = Callable[[SentencePair, random.Random], tuple[str, str] | None]
"""(pair, source of chance) → source and target of the variant, or None where the kind does not apply."""

MAX_SHARE_GAP = 0.15
"""By how much an aligned sentence's share of its side's characters may differ between the sides."""


class Augmenter:
    """Chooses pairs and makes their variants. The kinds and their rates are those of the section `augment`."""

    def __init__(self, config: AugmentConfig, seed: int) -> None:
        self._limits = {
            kind: min(int(config.scale * getattr(config, kind) * 2**64), 2**64 - 1)
            for kind in VARIANTS
            if config.scale * getattr(config, kind) > 0
        }
        self._salts = {kind: np.uint64(_hash(f"{seed}\0{kind}")) for kind in self._limits}

    @property
    def kinds(self) -> list[str]:
        """The kinds with a rate above 0."""
        return list(self._limits)

    def choose(self, keys: Keys) -> Iterator[tuple[str, npt.NDArray[np.int64], Keys]]:
        """For each kind, the positions of the pairs chosen by their keys `(N,)`, and the draw of each."""
        for kind, limit in self._limits.items():
            draws = _mix(keys ^ self._salts[kind])
            chosen = np.flatnonzero(draws <= np.uint64(limit))
            yield kind, chosen, draws[chosen]

    @staticmethod
    def variant(kind: str, pair: SentencePair, draw: int) -> SentencePair | None:
        """The variant of a pair of normalised texts, itself normalised; None where the kind does not apply to it."""
        made = VARIANTS[kind](pair, random.Random(draw))
        if made is None:
            return None
        src, tgt = map(normalise, made)
        if not src or not tgt or (src == pair.src and tgt == pair.tgt):
            return None
        return SentencePair(src, tgt, pair.src_lang, pair.tgt_lang, f"{pair.origin} ({kind})", pair.group)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(values: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele et al. 2014): neighbours become far apart."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# ── case ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_DOTTED = {"tr", "az"}  # i has the capital İ, ı has I


def _is_cased(text: str) -> bool:
    """Whether most of the letters have case, so that capitals in a few foreign names do not speak for the text."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter.upper() != letter.lower() for letter in letters) > len(letters)


def _upper(text: str, lang: str) -> str:
    return (text.replace("i", "İ") if lang in _DOTTED else text).upper()


def _lower(text: str, lang: str) -> str:
    return (text.replace("I", "ı").replace("İ", "i") if lang in _DOTTED else text).lower()


def _title(text: str, lang: str) -> str:
    words = text.split(" ")
    for number, word in enumerate(words):
        at = next((i for i, letter in enumerate(word) if letter.isalpha()), None)
        if at is not None:
            words[number] = word[:at] + _upper(word[at], lang) + word[at + 1 :]
    return " ".join(words)


def upper(pair: SentencePair, _rng: random.Random) -> tuple[str, str] | None:
    """Capitals on both sides; a target without case stays, a source without case says nothing about it."""
    src = _upper(pair.src, pair.src_lang)
    return None if src == pair.src or not _is_cased(pair.src) else (src, _upper(pair.tgt, pair.tgt_lang))


def title(pair: SentencePair, _rng: random.Random) -> tuple[str, str] | None:
    """A capital at the beginning of every word, on both sides."""
    src = _title(pair.src, pair.src_lang)
    return None if src == pair.src or not _is_cased(pair.src) else (src, _title(pair.tgt, pair.tgt_lang))


def lower(pair: SentencePair, _rng: random.Random) -> tuple[str, str] | None:
    """The source in small letters: the translation is written properly all the same."""
    small = _lower(pair.src, pair.src_lang)
    return None if small == pair.src else (small, pair.tgt)


# ── punctuation ─────────────────────────────────────────────────────────────────────────────────────────────────────

_FINAL = re.compile(r" ?[.!?。！？…؟।]+$")
_OPENING = "¿¡"

_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("「", "」"))
_QUOTE = re.compile('["“”„‟«»「」]')
_APOSTROPHE = re.compile(r"(?<=\w)['’ʼ`´](?=\w)")
_DASH = re.compile(r"(?<= )(?:--|[-–—])(?= )")
_DOTS = re.compile(r"\.\.\.|…")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_HALF = "!,.:;?()" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FULL = "！，。：；？（）" + "".join(chr(ord(letter) + 0xFEE0) for letter in _HALF[8:])
_TO_FULL, _TO_HALF = str.maketrans(_HALF, _FULL), str.maketrans(_FULL, _HALF)


def no_final_punctuation(pair: SentencePair, _rng: random.Random) -> tuple[str, str] | None:
    """Without the final mark, where both sides have one and none has an opening one (¿)."""
    src, tgt = _FINAL.sub("", pair.src), _FINAL.sub("", pair.tgt)
    if src == pair.src or tgt == pair.tgt or any(mark in pair.src + pair.tgt for mark in _OPENING):
        return None
    return src, tgt


def typography(pair: SentencePair, rng: random.Random) -> tuple[str, str] | None:
    """Other characters for the same marks, in the source alone: the target keeps the habits of the corpus."""
    ways = [way for way in (_other_quotes, _other_marks, _other_width) if way(pair.src, rng) != pair.src]
    if not ways:
        return None
    src = pair.src
    for way in rng.sample(ways, rng.randint(1, len(ways))):
        src = way(src, rng)
    return src, pair.tgt


def _other_quotes(text: str, rng: random.Random) -> str:
    found = _QUOTE.findall(text)
    if not found or len(found) % 2:
        return text
    marks = iter(rng.choice([quotes for quotes in _QUOTES if quotes[0] != found[0]]) * (len(found) // 2))
    return _QUOTE.sub(lambda _: next(marks), text)


def _other_marks(text: str, rng: random.Random) -> str:
    for pattern, choices in ((_APOSTROPHE, "'’`´"), (_DASH, "-–—"), (_DOTS, ("...", "…"))):
        if found := pattern.search(text):
            other = rng.choice([choice for choice in choices if choice != found[0]])
            text = pattern.sub(other, text)
    return text


def _other_width(text: str, _rng: random.Random) -> str:
    """Full width for half width or the other way round; only beside Chinese, Japanese or Korean."""
    if not _CJK.search(text):
        return text
    half = text.translate(_TO_HALF)
    return half if half != text else text.translate(_TO_FULL)


# ── what is copied ──────────────────────────────────────────────────────────────────────────────────────────────────

_EMOJI = (
    "😀 😃 😄 😁 😅 😂 🤣 😊 😇 🙂 😉 😍 😘 😋 😜 🤔 😐 😴 😎 😕 😢 😭 😡 😱 🤗 🙄 🤷 🤦 👍 👎 👏 🙏 💪 👋 ✌️ "
    "👌 ❤️ 💔 💕 🔥 ⭐ ✨ 🎉 🎂 🎁 🎵 📷 📞 💡 📌 ✅ ❌ ⚠️ ❓ ❗ 🚀 🚗 ✈️ 🏠 🌍 🌞 🌧️ 🐶 🐱 "
    "🌹 🍎 🍕 ☕ 🍺 ⚽ 👨‍👩‍👧 🇫🇷 🇨🇳 👩‍💻"
)
EMOJI = tuple(_EMOJI.split())
_TAGS = ("b", "i", "u", "em", "strong", "span", "p", "a", "code")
_DOMAINS = ("com", "org", "net", "de", "fr", "cn", "io")
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]{2,}(?![0-9A-Za-z])")


def placeholders(pair: SentencePair, rng: random.Random) -> tuple[str, str] | None:
    """A token that must be copied, at the same place on both sides, or a pair of tags around the whole."""
    if rng.random() < 0.25:
        tag = rng.choice(_TAGS)
        return f"<{tag}>{pair.src}</{tag}>", f"<{tag}>{pair.tgt}</{tag}>"
    return _insert(pair, _placeholder(rng), rng)


def emoji(pair: SentencePair, rng: random.Random) -> tuple[str, str] | None:
    """One to three emoji at the same place on both sides."""
    return _insert(pair, "".join(rng.choices(EMOJI, k=rng.choice((1, 1, 1, 2, 3)))), rng)


def digits(pair: SentencePair, rng: random.Random) -> tuple[str, str] | None:
    """Other digits for each number of at least two that stands once on each side, as many as before."""
    in_src, in_tgt = _NUMBER.findall(pair.src), _NUMBER.findall(pair.tgt)
    shared = [number for number in in_src if in_src.count(number) == in_tgt.count(number) == 1]
    if not shared:
        return None
    other = {number: _other_number(number, rng) for number in shared}
    src, tgt = (_NUMBER.sub(lambda found: other.get(found[0], found[0]), text) for text in (pair.src, pair.tgt))
    return src, tgt


def _other_number(number: str, rng: random.Random) -> str:
    """As many digits, a 0 in front only where there was one."""
    first = rng.choice("0123456789" if number[0] == "0" else "123456789")
    return first + "".join(rng.choices("0123456789", k=len(number) - 1))


def _name(rng: random.Random) -> str:
    letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8)))
    return rng.choice((letters, letters, letters.capitalize(), letters.upper(), f"{letters}_{rng.randint(1, 99)}"))


def _placeholder(rng: random.Random) -> str:
    name, other, number, domain = _name(rng), _name(rng), rng.randint(0, 9), rng.choice(_DOMAINS)
    return rng.choice(
        (
            "%s",
            "%d",
            f"%{number}$s",
            f"%({name})s",
            f"{{{number}}}",
            f"{{{name}}}",
            f"{{{{{name}}}}}",
            f"{{{{{name}.{other}}}}}",
            f"${{{name}}}",
            f":{name}",
            f"@{name}",
            f"#{name}",
            f"[{name}]",
            f"<{name}/>",
            r"\n",
            f"https://{name.lower()}.{domain}/{other}",
            f"www.{name.lower()}.{domain}",
            f"https://{name.lower()}.{domain}/{other}?{name}={number}",
            f"{name.lower()}@{other.lower()}.{domain}",
            f"/{name}/{other}.txt",
        )
    )


def _insert(pair: SentencePair, token: str, rng: random.Random) -> tuple[str, str]:
    src, tgt = aligned_sentences(pair.src, pair.tgt) or ([pair.src], [pair.tgt])
    at = rng.randint(0, len(src))
    return _behind(src[:at], pair.src, token), _behind(tgt[:at], pair.tgt, token)


def _behind(first: list[str], text: str, token: str) -> str:
    """The text with the token behind its first sentences."""
    end = 0
    for sentence in first:
        end = text.index(sentence, end) + len(sentence)
    return " ".join(filter(None, (text[:end].strip(), token, text[end:].strip())))


# ── sentences ───────────────────────────────────────────────────────────────────────────────────────────────────────

_SENTENCE_END = re.compile(r"""[。！？]+[」』”’）]*|[.!?…]+["'”’»)]* +(?=["'“‘«(¿¡]*[^\Wa-zà-ÿ_])""")
_ABBREVIATION = re.compile(r"\b(?:\w|Mr|Mrs|Ms|Mme|Mlle|Dr|Prof|St|Sr|Jr|Hr|Fr|Nr|No|vs|ca|bzw|etc)\. *$|^\(?\d+\. *$")


def sentences(text: str) -> list[str]:
    """The sentences of a normalised text, as far as punctuation tells them; their characters are those of the text."""
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        sentence = text[start : end.end()]
        if not _ABBREVIATION.search(sentence) and text[end.end() :].strip():
            found.append(sentence.strip())
            start = end.end()
    return [*found, text[start:].strip()]


def aligned_sentences(src: str, tgt: str) -> tuple[list[str], list[str]] | None:
    """The sentences of both sides, if they are equally many, at least two, and of similar shares of their sides."""
    in_src, in_tgt = sentences(src), sentences(tgt)
    if len(in_src) != len(in_tgt) or len(in_src) < 2:
        return None
    gaps = [abs(len(a) / len(src) - len(b) / len(tgt)) for a, b in zip(in_src, in_tgt, strict=True)]
    return (in_src, in_tgt) if max(gaps) <= MAX_SHARE_GAP else None


def fragments(pair: SentencePair, rng: random.Random) -> tuple[str, str] | None:
    """One of the aligned sentences: models that know only long lines invent on short ones."""
    aligned = aligned_sentences(pair.src, pair.tgt)
    if aligned is None:
        return None
    at = rng.randrange(len(aligned[0]))
    return aligned[0][at], aligned[1][at]


VARIANTS: dict[str, Variant] = {
    "upper": upper,
    "title": title,
    "lower": lower,
    "no_final_punctuation": no_final_punctuation,
    "typography": typography,
    "placeholders": placeholders,
    "digits": digits,
    "emoji": emoji,
    "fragments": fragments,
}
