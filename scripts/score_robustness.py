"""How a trained run takes what people type: single words, capitals, placeholders, emoji, digits. The last line is JSON.

    python scripts/score_robustness.py RUN [--direction en-de] [--split test] [--sentences 100] [--beam-size 5]

Probes are made from held-out sentences and a seed, so that two runs on the same data get the same ones. Figures:

- words     200 single words and 50 strings without meaning: the share that repeats something more often than its source
            + 2 (after the guard against loops: 0), that the guard had to mend, and that came out far too long
- capitals  sentences in small letters, Title Case and CAPITALS: chrF without case against the reference, as a share of
            that of the sentences as they are; the share copied unchanged
- placeholders, emoji, digits   put in front, behind and inside: the share that comes out once and equal; "flagged" are
            failures that a warning tells of; for emoji also how near the rest is to the translation without it
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics import CHRF

from xyd.corpus import open_split
from xyd.errors import ConfigError
from xyd.files import RunDir
from xyd.guards import numbers, without_loops
from xyd.text import fold, normalise
from xyd.translate import Translation, Translator

Translate = Callable[[list[str]], list[Translation]]

WORDS, NONSENSE, SLACK = 200, 50, 3
EMOJI = "😀 😂 😍 🤔 😢 👍 🙏 ❤️ 🎉 🚀 🐶 🍕 ⚽ ✅ 🔥 👩‍💻 🇫🇷 ☕ 🌍 💡".split()  # noqa: SIM905


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--direction", help="such as en-de; needed when the run has several")
    parser.add_argument("--split", choices=("test", "valid"), default="test")
    parser.add_argument("--sentences", type=int, default=100, help="held-out sentences that probes are made from")
    parser.add_argument("--beam-size", type=int, help="(default: the run's)")
    parser.add_argument("--checkpoint", choices=("best", "averaged", "last"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    translator = Translator.load(options.run, options.checkpoint)
    direction = options.direction or translator.directions[0]
    if direction not in translator.directions or (options.direction is None and len(translator.directions) > 1):
        raise ConfigError(f"--direction: choose one of {', '.join(translator.directions)}")
    src_lang, tgt_lang = direction.split("-")

    def translate(texts: list[str]) -> list[Translation]:
        return translator.translate(texts, to=tgt_lang, source=src_lang, beam_size=options.beam_size)

    split = open_split(RunDir(options.run), options.split)
    rows = [row for row in range(len(split)) if split.directions[split.direction[row]] == direction]
    rng = random.Random(options.seed)
    chosen = rng.sample(rows, min(options.sentences, len(rows)))
    sources = [normalise(split.src_text(row)) for row in chosen]
    references = [split.tgt_text(row) for row in chosen]
    vocabulary = [word for row in rows for word in re.findall(r"[^\W\d_]{2,}", split.src_text(row))]
    plain = translate(sources)
    figures = {
        "words": words(translate, vocabulary, rng),
        "capitals": capitals(translate, sources, references, plain),
        "placeholders": copied(translate, sources, [placeholder(rng) for _ in range(3 * len(sources))], rng),
        "emoji": emoji(translate, sources, plain, rng),
        "digits": digits(translate, sources, plain, rng),
    }
    for name, found in figures.items():
        print(
            f"{name:<13}"
            + " · ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items()
            )
        )
    facts = {"run": str(options.run), "direction": direction, "split": options.split, "sentences": len(sources)}
    print(json.dumps({**facts, **figures}))
    return 0


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(translate: Translate, vocabulary: Sequence[str], rng: random.Random) -> dict[str, Any]:
    """Need 2: what a model that knows sentences makes of single words and of nothing."""
    common = [word for word, _ in Counter(vocabulary).most_common()]
    probes = rng.sample(common, min(WORDS, len(common))) + [nonsense(rng) for _ in range(NONSENSE)]
    found = translate(probes)
    return {
        "probes": len(probes),
        "repeats": share(without_loops(t.text, t.source) != t.text for t in found),
        "mended": share(t.status == "looped" for t in found),
        "far_too_long": share(len(t.text) > SLACK * len(t.source) + 30 for t in found),
        "empty": share(not t.text for t in found),
    }


def nonsense(rng: random.Random) -> str:
    kind, length = rng.randrange(4), rng.randint(3, 20)
    if kind == 0:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=length))
    if kind == 1:
        return "".join(rng.choices("!?.,;:-_*#+~'\"()[]{}<>/|\\&%$§€@", k=length))
    if kind == 2:
        return rng.choice("aehx.!?-") * length
    return " ".join([rng.choice(("la", "ha", "no", "xy"))] * (length // 2))


# ── capitals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def capitals(
    translate: Translate, sources: list[str], references: list[str], plain: list[Translation]
) -> dict[str, Any]:
    """Need 14: chrF of lower, Title and UPPER as a share of that of the sentences as they are."""
    chrf = CHRF(lowercase=True)

    def score(found: list[Translation]) -> float:
        return chrf.corpus_score([t.text for t in found], [references]).score

    figures: dict[str, Any] = {"chrf": round(score(plain), 2)}
    title = [re.sub(r"(^|\s)(\w)", lambda at: at[1] + at[2].upper(), text) for text in sources]
    for name, probes in (
        ("lower", [t.lower() for t in sources]),
        ("title", title),
        ("upper", [t.upper() for t in sources]),
    ):
        found = translate(probes)
        figures[f"{name}_ratio"] = round(score(found) / figures["chrf"], 4) if figures["chrf"] else 0.0
        figures[f"{name}_copied"] = share(fold(t.text) == fold(t.source) for t in found)
    return figures


# ── what must come out as it went in ────────────────────────────────────────────────────────────────────────────────


def placeholder(rng: random.Random) -> str:
    """One that no rule of the augmentation can have drawn, but for the shortest."""
    name = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 10)))
    number = rng.randint(1, 99)
    return rng.choice(
        (
            "%s", "%d", f"%{number}$s", f"%({name})d", f"{{{number}}}", f"{{{name}}}", f"{{{{{name}.{name[::-1]}}}}}",
            f"${{{name}}}", f"<{name}/>", f"<b>{name}</b>", r"\n", f"https://{name}.example/{number}?q={name}",
            f"{name}@{name[::-1]}.example", f"__{name.upper()}__", f"&{name[:4]};",
        )
    )  # fmt: skip


def put(token: str, text: str, place: int, rng: random.Random) -> str:
    """The token in front of the text (0), behind it (1) or at a space inside (2)."""
    if place == 0:
        return f"{token} {text}"
    spaces = [at for at, letter in enumerate(text) if letter == " "]
    if place == 1 or not spaces:
        return f"{text} {token}"
    at = rng.choice(spaces)
    return f"{text[:at]} {token}{text[at:]}"


def copied(translate: Translate, sources: list[str], tokens: list[str], rng: random.Random) -> dict[str, Any]:
    """Need 15: each token once in front, behind and inside; kept = once in the translation, byte for byte."""
    probes = [put(token, sources[i // 3], i % 3, rng) for i, token in enumerate(tokens)]
    found = translate(probes)
    kept = [t.text.count(token) == 1 for t, token in zip(found, tokens, strict=True)]
    figures: dict[str, Any] = {"probes": len(probes), "kept": share(kept)}
    for place, name in enumerate(("front", "end", "inside")):
        figures[f"kept_{name}"] = share(kept[place::3])
    figures["kept_or_flagged"] = share(k or bool(t.warnings) for k, t in zip(kept, found, strict=True))
    return figures


def emoji(translate: Translate, sources: list[str], plain: list[Translation], rng: random.Random) -> dict[str, Any]:
    """Need 20: an emoji inside and at the end; kept, no ⁇, and the rest as without it."""
    chrf = CHRF()
    places = [2 - i % 2 for i in range(len(sources))]
    tokens = [rng.choice(EMOJI) for _ in sources]
    found = translate([put(e, text, p, rng) for e, text, p in zip(tokens, sources, places, strict=True)])
    rest = [normalise(t.text.replace(e, " ")) for t, e in zip(found, tokens, strict=True)]
    return {
        "probes": len(found),
        "kept": share(t.text.count(e) == 1 for t, e in zip(found, tokens, strict=True)),
        "unknown_marks": share("⁇" in t.text for t in found),
        "rest_equal": share(fold(r) == fold(t.text) for r, t in zip(rest, plain, strict=True)),
        "rest_chrf": round(chrf.corpus_score(rest, [[t.text for t in plain]]).score, 2),
    }


def digits(translate: Translate, sources: list[str], plain: list[Translation], rng: random.Random) -> dict[str, Any]:
    """Need 33: numbers of 1 to 12 digits, dates, versions; equal = the same digit strings, each as often.

    `own_…`: sentences that hold digits themselves.
    """
    texts = sources * 2
    probes = [put(number(rng), text, i % 3, rng) for i, text in enumerate(texts)]
    found = translate(probes)
    equal = [numbers(t.source) == numbers(t.text) for t in found]
    own = [numbers(t.source) == numbers(t.text) for t in plain if numbers(t.source)]
    return {
        "probes": len(probes),
        "equal": share(equal),
        "equal_or_flagged": share(e or bool(t.warnings) for e, t in zip(equal, found, strict=True)),
        "own_probes": len(own),
        "own_equal": share(own),
    }


def number(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.{rng.randint(1900, 2030)}"
    if kind == 1:
        return f"{rng.randint(1900, 2030)}-{rng.randint(10, 12)}-{rng.randint(10, 28)}"
    if kind == 2:
        return f"v{rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 99)}"
    return str(rng.randint(1, 9)) + "".join(rng.choices("0123456789", k=rng.randint(0, 11)))


def share(found: Any) -> float:
    """The share of true ones; 0 of none."""
    values = [bool(value) for value in found]
    return round(sum(values) / len(values), 4) if values else 0.0


if __name__ == "__main__":
    sys.exit(main())
