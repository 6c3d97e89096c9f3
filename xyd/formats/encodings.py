"""Encodings of text files: which can be read line by line, and which one a file that will not decode may be in."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from xyd.errors import DataError


def checked_encoding(encoding: str) -> str:
    """Python's name of the encoding; DataError if it is unknown or its lines cannot be cut at byte 0x0A."""
    try:
        name = codecs.lookup(encoding).name
        line_end = "a\nb".encode(name)
    except (LookupError, UnicodeError):
        raise DataError(f"data.encoding: {encoding!r} is no known text encoding; try utf-8, gb18030, cp1252") from None
    if name in ("utf-8-sig", "ascii"):
        return "utf-8"  # a byte order mark is taken off anyway; ASCII is part of UTF-8
    if line_end != b"a\nb":
        raise DataError(
            f"data.encoding: lines cannot be told apart in {encoding}, whose line feed is not the byte 0x0A; "
            f"convert the files to UTF-8 (iconv -f {encoding} -t UTF-8) and set data.encoding: utf-8"
        )
    return name


def count_utf8_characters(head: bytes) -> int:
    """Non-ASCII characters if the bytes (up to the last line end) are valid UTF-8, else 0.

    Twenty of them are as good as a proof: text in another encoding hardly ever passes as UTF-8 by chance.
    """
    try:
        text = head[: head.rfind(b"\n") + 1 or None].decode("utf-8")
    except UnicodeDecodeError:
        return 0
    return sum(character > "\x7f" for character in text)


def likely_encoding(lines: Sequence[bytes], encoding: str) -> str | None:
    """The encoding that explains the lines best, `encoding` itself if most are right in it; None if none does.

    A guess for a message, never acted upon.
    """
    if sum(_decoded(line, encoding) is not None for line in lines) > len(lines) / 2:
        return encoding
    data = b"\n".join(lines[:-1] or lines)  # the last may be cut inside a character
    if _decoded(data, "utf-8") is not None:
        return "utf-8"
    shares = {  # where two do equally well, the first is the more telling
        "shift_jis": _typical_share(data, "shift_jis", _is_kana, bonus=0.5),
        "euc_jp": _typical_share(data, "euc_jp", _is_kana, bonus=0.5),
        "euc_kr": _typical_share(data, "euc_kr", lambda character: "\uac00" <= character <= "\ud7a3"),
        "gb18030": _typical_share(data, "gb18030", _is_common_simplified),
        "big5": _typical_share(data, "big5", _is_common_traditional),
        "cp1252": _lone_share(data, "cp1252"),
        "latin-1": _lone_share(data, "latin-1"),
    }
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] > 0.6 else None


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _typical_share(data: bytes, encoding: str, is_typical: Callable[[str], bool], bonus: float = 0.0) -> float:
    """Share of the non-ASCII characters that are everyday ones in the encoding's language; 0 if it cannot decode.

    `bonus` is added where only a part of any text is typical.
    """
    characters = [character for character in _decoded(data, encoding) or "" if character > "\x7f"]
    typical = sum(map(is_typical, characters))
    return min(1.0, typical / len(characters) + bonus) if typical else 0.0


def _is_kana(character: str) -> bool:
    return "\u3040" <= character <= "\u30ff"


def _is_common_simplified(character: str) -> bool:
    """In the rows of GB 2312 for punctuation or for its 3,755 most frequent characters."""
    lead = character.encode("gb2312", "ignore")[:1]
    return b"\xa1" <= lead <= b"\xa3" or b"\xb0" <= lead <= b"\xd7"


def _is_common_traditional(character: str) -> bool:
    """In the rows of Big5 for punctuation or for its 5,401 frequent characters."""
    return b"\xa1" <= character.encode("big5", "ignore")[:1] <= b"\xc6"


def _lone_share(data: bytes, encoding: str) -> float:
    """Share of the non-ASCII bytes that stand between ASCII ones, as accented letters do; 0 if it cannot decode."""
    if _decoded(data, encoding) is None:
        return 0.0
    high = [byte > 0x7F for byte in b" " + data + b" "]
    lone = sum(here and not before and not after for before, here, after in zip(high, high[1:], high[2:], strict=False))
    return lone / sum(high)
