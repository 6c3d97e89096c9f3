"""What a tokenizer does to its corpus: lengths, characters without a piece, use of the vocabulary, round trips.

Of a run, the pairs it was prepared from are measured with its tokenizer. Of a configuration, a sample of its corpora is
cleaned and a tokenizer is trained on it, in a temporary place. At most `MAX_PAIRS` pairs are looked at.
"""

from __future__ import annotations

import json
import random
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from xyd.cleaning import Cleaner
from xyd.config import UNK_ID, Config, directions
from xyd.corpus import open_split
from xyd.errors import DataError
from xyd.files import RunDir
from xyd.formats import ReadReport, read_corpus
from xyd.text import normalise
from xyd.tokenizer import Tokenizer, train_tokenizer

MAX_PAIRS = 200_000
MAX_LENGTHS = (32, 64, 128, 256, 512, 1024)
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
RARE = 10
"""Pieces used fewer times than this are seldom learned well."""
MAX_EXAMPLES = 20

Say = Callable[[str], None]
Counts = npt.NDArray[np.int64]


class TextPair(NamedTuple):
    """Two normalised texts and their languages."""

    languages: tuple[str, str]
    texts: tuple[str, str]


@dataclass(frozen=True)
class SpelledCharacter:
    """A character that no piece holds, so that it is spelled in bytes or unknown."""

    character: str
    name: str
    count: int
    example: str


@dataclass(frozen=True)
class LanguageFigures:
    """What becomes of the sentences of one language.

    Attributes:
        unknown, byte_tokens: how many of the tokens are UNK, or bytes of the byte fallback.
        percentiles: tokens of a sentence, by percentile; 100 is the longest.
        pieces_used: different pieces, bytes left out.
        num_spelled: different characters that no piece holds; `spelled` has the most frequent of them.
        round_trip_failures: sentences that do not come back from their ids; `failures` has the first of them.
    """

    sentences: int
    characters: int
    tokens: int
    unknown: int
    byte_tokens: int
    percentiles: dict[str, int]
    pieces_used: int
    num_spelled: int
    spelled: list[SpelledCharacter]
    round_trip_failures: int
    failures: list[str]

    @property
    def characters_per_token(self) -> float:
        return self.characters / max(1, self.tokens)

    @property
    def tokens_per_sentence(self) -> float:
        return self.tokens / max(1, self.sentences)


@dataclass(frozen=True)
class ScriptFigures:
    """The pieces of one script: how many there are, were used, and were used fewer than `RARE` times (or never)."""

    pieces: int
    used: int
    rare: int


@dataclass(frozen=True)
class TokenizerReport:
    """Attributes:
    of: what was measured, in words.
    max_length: the configured one; `drops` has the pairs that each maximum would leave out.
    percentiles: tokens of the longer side of a pair, special tokens left out.
    shared: pieces used in more than one language.
    """

    of: str
    vocab_size: int
    max_length: int
    pairs: int
    languages: dict[str, LanguageFigures]
    scripts: dict[str, ScriptFigures]
    shared: int
    percentiles: dict[str, int]
    drops: dict[int, int]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        found = asdict(self)
        for lang, figures in self.languages.items():
            found["languages"][lang] |= {
                "characters_per_token": round(figures.characters_per_token, 4),
                "tokens_per_sentence": round(figures.tokens_per_sentence, 4),
                "unknown_rate": figures.unknown / max(1, figures.tokens),
                "byte_rate": figures.byte_tokens / max(1, figures.tokens),
            }
        return found

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=1) + "\n"


# ── where the texts come from ───────────────────────────────────────────────────────────────────────────────────────


def report_run(run: RunDir, max_length: int) -> TokenizerReport:
    """The report of a prepared run. Raises DataError if it is not prepared."""
    manifest = json.loads(run.manifest_path.read_text(encoding="utf-8")) if run.manifest_path.is_file() else {}
    pairs: list[TextPair] = []
    tokenizer = None
    for name in ("train", *(name for name in ("valid", "test") if name in manifest.get("files", {}))):
        split = open_split(run, name)
        tokenizer = tokenizer or Tokenizer.load(run.tokenizer_path)
        # Each pair once: the other directions and what augmentation adds stand behind its first row.
        rows = np.unique(split.pair_id, return_index=True)[1]
        if len(rows) > MAX_PAIRS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MAX_PAIRS, replace=False))
        for row in rows.tolist():
            src, tgt = split.directions[split.direction[row]].split("-")
            if name == "train":
                texts = tokenizer.decode(split.src_ids(row).tolist()), tokenizer.decode(split.tgt_ids(row).tolist())
            else:
                texts = normalise(split.src_text(row)), normalise(split.tgt_text(row))
            pairs.append(TextPair((src, tgt), texts))
    assert tokenizer is not None
    total = sum(entry["kept"] for entry in manifest["corpora"])
    notes = [f"a sample: {MAX_PAIRS:,} pairs of train"] if total > len(pairs) else []
    dropped = sum(entry["dropped"].get("too_many_tokens", {"count": 0})["count"] for entry in manifest["corpora"])
    if dropped:
        notes.append(f"{dropped:,} pairs over model.max_length were dropped when the run was prepared; not among these")
    return measure(tokenizer, pairs, f"the prepared data of {run.root}", max_length, notes)


def report_config(config: Config, say: Say) -> TokenizerReport:
    """The report of the tokenizer that a run of `config` would have, near enough; nothing of the run is touched.

    It is trained on the sampled pairs that cleaning keeps, valid and test among them, unless `train.init_from` names
    where it comes from. Raises DataError for corpora that cannot be read.
    """
    seed = config.run.seed
    sample, read = _sample(config, seed)
    cleaner = Cleaner(config.data)
    pairs = [pair for pair in sample if cleaner.reason(*pair.texts) is None]
    if not pairs:
        raise DataError("no pair is left after cleaning; `xyd prepare` says what became of each")
    notes = []
    if read > len(sample):
        notes.append(f"a sample: {len(sample):,} of {read:,} pairs, drawn at random")
    if len(pairs) < len(sample):
        notes.append(f"{len(sample) - len(pairs):,} of the pairs looked at are dropped by cleaning")
    if config.train.init_from is not None:
        tokenizer = Tokenizer.load(RunDir(config.train.init_from).tokenizer_path)
        return measure(tokenizer, pairs, f"the tokenizer of {config.train.init_from}", config.model.max_length, notes)
    notes.append("trained for this report on these pairs; a run trains on its train split alone")
    targets = sorted({tgt for _, tgt in directions(config)})
    texts = [text for pair in pairs for text in pair.texts]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        tokenizer = train_tokenizer(dict.fromkeys(texts), config.tokenizer, targets, path, seed, say)
    return measure(tokenizer, pairs, f"the corpora of run {config.run.name}", config.model.max_length, notes)


def _sample(config: Config, seed: int) -> tuple[list[TextPair], int]:
    """At most `MAX_PAIRS` pairs of the corpora, drawn at random (Vitter 1985, algorithm R), and how many there are."""
    rng, kept, read = random.Random(seed), list[TextPair](), 0
    for read, pair in enumerate(_read(config), 1):
        if read <= MAX_PAIRS:
            kept.append(pair)
        elif (slot := rng.randrange(read)) < MAX_PAIRS:
            kept[slot] = pair
    return [TextPair(pair.languages, (normalise(pair.texts[0]), normalise(pair.texts[1]))) for pair in kept], read


def _read(config: Config) -> Iterator[TextPair]:
    data = config.data
    language_pairs = sorted({(min(direction), max(direction)) for direction in directions(config)})
    for corpus in data.corpora:
        stream = read_corpus(
            corpus, language_pairs, encoding=data.encoding, on_bad_utf8=data.on_bad_utf8, report=ReadReport()
        )
        for pair in stream:
            if pair.flaw is None:
                yield TextPair((pair.src_lang, pair.tgt_lang), (pair.src, pair.tgt))


# ── the figures ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(
    tokenizer: Tokenizer, pairs: Sequence[TextPair], of: str, max_length: int, notes: Sequence[str] = ()
) -> TokenizerReport:
    """The report of normalised pairs. `of` and `notes` say in words what they are."""
    texts = [text for pair in pairs for text in pair.texts]
    owners = np.array([lang for pair in pairs for lang in pair.languages])
    ids = tokenizer.encode_batch(texts)
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    languages: dict[str, LanguageFigures] = {}
    uses: dict[str, Counts] = {}
    held = set("".join(tokenizer.scores())) | {" "}
    is_byte = np.zeros(tokenizer.vocab_size, bool)
    is_byte[tokenizer.byte_ids()] = True
    for lang in sorted(set(owners.tolist())):
        own = np.flatnonzero(owners == lang).tolist()
        uses[lang] = np.bincount(
            np.fromiter((token for i in own for token in ids[i]), np.int64), minlength=tokenizer.vocab_size
        )
        languages[lang] = _language(
            tokenizer, [texts[i] for i in own], [ids[i] for i in own], uses[lang], held, is_byte
        )
    longest = lengths.reshape(-1, 2).max(axis=1)
    use = np.sum(list(uses.values()), axis=0)
    return TokenizerReport(
        of=of,
        vocab_size=tokenizer.vocab_size,
        max_length=max_length,
        pairs=len(pairs),
        languages=languages,
        scripts=_scripts(tokenizer, use),
        shared=int((np.sum([counts > 0 for counts in uses.values()], axis=0) > 1)[~is_byte].sum()),
        percentiles=_percentiles(longest),
        drops={length: int((longest + 1 > length).sum()) for length in sorted({*MAX_LENGTHS, max_length})},
        notes=list(notes),
    )


def _language(
    tokenizer: Tokenizer,
    texts: list[str],
    ids: list[list[int]],
    use: Counts,
    held: set[str],
    is_byte: npt.NDArray[np.bool_],
) -> LanguageFigures:
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    spelled = Counter({character: count for character, count in characters.items() if character not in held})
    frequent = spelled.most_common(MAX_EXAMPLES)
    failed = [text for text, row in zip(texts, ids, strict=True) if tokenizer.decode(row) != text]
    used = use > 0
    return LanguageFigures(
        sentences=len(texts),
        characters=characters.total(),
        tokens=int(use.sum()),
        unknown=int(use[UNK_ID]),
        byte_tokens=int(use[is_byte].sum()),
        percentiles=_percentiles(np.fromiter(map(len, ids), np.int64, len(ids))),
        pieces_used=int((used & ~is_byte).sum()) - int(used[UNK_ID]),
        num_spelled=len(spelled),
        spelled=[
            SpelledCharacter(
                character,
                unicodedata.name(character, f"U+{ord(character):04X}"),
                count,
                next(text for text in texts if character in text)[:100],
            )
            for character, count in frequent
        ],
        round_trip_failures=len(failed),
        failures=[text[:100] for text in failed[:MAX_EXAMPLES]],
    )


def _percentiles(lengths: Counts) -> dict[str, int]:
    values = np.percentile(lengths, PERCENTILES, method="inverted_cdf")
    return {f"{percentile:g}": int(value) for percentile, value in zip(PERCENTILES, values, strict=True)}


def _scripts(tokenizer: Tokenizer, use: Counts) -> dict[str, ScriptFigures]:
    """Scripts by number of pieces, then punctuation and the like, bytes."""
    kinds: dict[str, list[int]] = {}
    for piece, (token, _) in tokenizer.scores().items():
        kinds.setdefault(script(piece), []).append(int(use[token]))
    if byte_ids := tokenizer.byte_ids():
        kinds["bytes"] = use[byte_ids].tolist()
    return {
        kind: ScriptFigures(len(counts), sum(count > 0 for count in counts), sum(count < RARE for count in counts))
        for kind, counts in sorted(kinds.items(), key=lambda item: -len(item[1]))
    }


def script(piece: str) -> str:
    """The script of a piece's first letter ("latin", "cjk", …), else "digits" or "other"."""
    for character in piece:
        if character.isalpha():
            return unicodedata.name(character, "OTHER").split()[0].split("-")[0].lower()
    return "digits" if any(character.isdigit() for character in piece) else "other"


# ── as a table ──────────────────────────────────────────────────────────────────────────────────────────────────────


def table(report: TokenizerReport) -> str:
    """The report for people to read."""
    languages = report.languages
    lines = [
        f"tokenizer of {report.vocab_size:,} pieces on {report.of}: {report.pairs:,} pairs",
        *(f"note: {note}" for note in report.notes),
        "",
        *_aligned(
            [["", *languages]]
            + [[title, *(value(figures) for figures in languages.values())] for title, value in _ROWS.items()]
        ),
        "",
        *_aligned(
            [["pieces", "in all", "used", f"used < {RARE}"]]
            + [
                [kind, f"{counts.pieces:,}", f"{counts.used:,}", f"{counts.rare:,}"]
                for kind, counts in report.scripts.items()
            ]
        ),
        f"used in more than one language: {report.shared:,}",
        "",
        "tokens of the longer side: " + _told(report.percentiles),
        *(
            f"  max_length {length:>5}: {dropped:,} pairs too long ({dropped / report.pairs:.2%})"
            + (" ← model.max_length" if length == report.max_length else "")
            for length, dropped in report.drops.items()
        ),
    ]
    for lang, figures in languages.items():
        if figures.spelled:
            lines += ["", f"{lang}: {figures.num_spelled:,} characters that no piece holds, the most frequent:"]
            lines += [f"  {c.character}  {c.name}: {c.count:,} ×, in: {c.example}" for c in figures.spelled[:8]]
        if figures.failures:
            lines += ["", f"{lang}: sentences that do not come back from their ids:"]
            lines += [f"  {text}" for text in figures.failures[:8]]
    return "\n".join(lines)


_ROWS: dict[str, Callable[[LanguageFigures], str]] = {
    "sentences": lambda f: f"{f.sentences:,}",
    "tokens": lambda f: f"{f.tokens:,}",
    "characters per token": lambda f: f"{f.characters_per_token:.2f}",
    "tokens per sentence": lambda f: f"{f.tokens_per_sentence:.1f}",
    "tokens at 50, 90, 99, 99.9 %, longest": lambda f: ", ".join(map(str, f.percentiles.values())),
    "pieces used": lambda f: f"{f.pieces_used:,}",
    "unknown": lambda f: f"{f.unknown / max(1, f.tokens):.3%}",
    "bytes": lambda f: f"{f.byte_tokens / max(1, f.tokens):.3%}",
    "characters that no piece holds": lambda f: f"{f.num_spelled:,}",
    "sentences that do not come back": lambda f: f"{f.round_trip_failures:,}",
}


def _told(percentiles: dict[str, int]) -> str:
    return ", ".join(f"{'longest' if name == '100' else name + ' %'} {value}" for name, value in percentiles.items())


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns of equal width: the first to the left, the others to the right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
