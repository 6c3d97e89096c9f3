"""Mojibake: UTF-8 that was read as Windows-1252, Latin-1, IBM 437, Mac Roman or GBK.

UTF-8 begins a character with a byte of C2–F4 and goes on with bytes of 80–BF. Read in another encoding these become
two or three characters that good text hardly ever holds side by side; turned back, they must give a likely character.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LIKELY = re.compile(
    "[\u00a0-\u017f\u0218-\u021b\u0386-\u03ce\u0401-\u045f\u0490\u0491\u05d0-\u05ea\u0621-\u064a\u0905-\u0939\u0e01-\u0e4e"
    "\u1ea0-\u1ef9\u2010-\u2026\u2030-\u203a\u20ac\u2122\u3000-\u3011\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e"
    "\U0001f300-\U0001faff]"
)


def _cp1252(byte: int) -> str:
    """The character of a byte in Windows-1252; of the five it leaves open, in Latin-1."""
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


class _SingleByte:
    """Finds UTF-8 that was read in an encoding of one byte a character."""

    def __init__(self, decode: Callable[[int], str]) -> None:
        self._bytes = {decode(byte): byte for byte in range(0x80, 0x100)}

        def characters(first: int, last: int) -> str:
            return "".join(re.escape(decode(byte)) for byte in range(first, last + 1))

        follow = f"[{characters(0x80, 0xBF)}]"
        two, three, four = (characters(*span) for span in ((0xC2, 0xDF), (0xE0, 0xEF), (0xF0, 0xF4)))
        self._run = re.compile(f"(?:[{two}]{follow}|[{three}]{follow}{{2}}|[{four}]{follow}{{3}})+")

    def found_in(self, text: str) -> bool:
        for match in self._run.finditer(text):
            run = match[0]
            try:
                turned_back = bytes(self._bytes[character] for character in run).decode("utf-8")
            except UnicodeDecodeError:
                continue
            if not all(map(_LIKELY.match, turned_back)):
                continue
            if len(turned_back) == 1:
                # One chance character of East Asia is a word that ends in é, and quotes; after capitals Ã is a letter.
                before = text[match.start() - 1 : match.start()]
                if turned_back >= "\u0e00" and not "\u2010" <= turned_back <= "\u2122":
                    continue
                if run[0].isupper() and before.isupper():
                    continue
            return True
        return False


_LATIN = (_SingleByte(_cp1252), _SingleByte(chr))
_OTHERS = tuple(_SingleByte(lambda byte, name=name: bytes([byte]).decode(name)) for name in ("cp437", "mac_roman"))  # type: ignore[misc]
# What must be in a text in which these could find anything: cheap first looks.
_LATIN_HINT = re.compile("[\u00c2-\u00f4][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]")
_OTHERS_HINT = re.compile("[√¬‚├┬╬╨╤┼╞╓╫Γπ]")
_REMAINS_HINT = re.compile("[ÂÃÅï\ufffd锟烫屯鈥銆锛]")
# UTF-8 whose byte A0 became a plain space ("à" as "Ã "), or whose last byte was an invisible control, dropped.
_REMAINS = re.compile("(?<![A-ZÀ-Þ])Ã (?=\\S)|(?<=[a-zà-ÿ])[ÂÃÅ](?=[a-zà-ÿ])|\ufffd|ï»¿|锟斤拷|烫烫烫|屯屯屯|[鈥銆锛]")


def _gbk(first: int, last: int) -> str:
    """All characters whose first byte in GBK is in this range, as the inside of a character class."""
    pairs = (bytes([a, b]) for a in range(first, last + 1) for b in range(0x40, 0xFF))
    return "".join(re.escape(pair.decode("gbk", "ignore")) for pair in pairs)


# Two Chinese characters (E4–E9 and two bytes of 80–BF, twice) are three in GBK, and the next begins like the first.
_GBK = re.compile(
    f"[{_gbk(0xE2, 0xE9)}{_gbk(0xEF, 0xEF)}][{_gbk(0x81, 0xBF)}]{{2}}[{_gbk(0xE2, 0xE9)}{_gbk(0xEF, 0xEF)}]"
)


def mojibake(text: str) -> bool:
    """The text holds UTF-8 that was decoded with the wrong encoding, or U+FFFD, the mark of bytes lost in decoding."""
    if text.isascii():
        return False
    if "â€" in text or (_REMAINS_HINT.search(text) and _REMAINS.search(text)):
        return True
    if _LATIN_HINT.search(text) and any(encoding.found_in(text) for encoding in _LATIN):
        return True
    if _OTHERS_HINT.search(text) and any(encoding.found_in(text) for encoding in _OTHERS):
        return True
    for match in _GBK.finditer(text):
        try:
            turned_back = match[0][:3].encode("gbk").decode("utf-8")
        except UnicodeError:
            continue
        if all(map(_LIKELY.match, turned_back)):
            return True
    return False
