"""SentencePiece tokenizer: train, load, encode, decode. The only module that knows sentencepiece.

Ids are bare everywhere: no BOS, EOS or tag is added here (`batching` does that). Ids 0-3 are PAD, UNK, BOS, EOS;
then one control symbol `<2xx>` per target language in sorted order; then the 256 bytes of the byte fallback; then the
pieces. Control symbols are never matched in text, so `<2fr>` in a user's line stays text.

Unigram: Kudo 2018 (arXiv:1804.10959); BPE: Sennrich et al. 2016 (arXiv:1508.07909); SentencePiece: Kudo & Richardson
2018 (arXiv:1808.06226).
"""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import sentencepiece

from xyd.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenizerConfig
from xyd.errors import CheckpointError, DataError
from xyd.files import atomic_write
from xyd.text import normalise

# The result of training depends on how the sums are split over threads, so the number is fixed, not the machine's.
TRAINING_THREADS = 8
# SentencePiece skips longer lines (4,192 bytes by default) in silence; `cleaning` has already limited the lines.
MAX_LINE_BYTES = 1 << 24
# SentencePiece puts this character in place of unknown ones and skips lines that hold it.
RESERVED_CHARACTER = "\u2585"

_TAG = re.compile(r"<2(.+)>")


class Tokenizer:
    """A trained SentencePiece model. Text is normalised inside, so `decode(encode(x)) == normalise(x)`."""

    def __init__(self, model: bytes) -> None:
        """Takes the bytes of a `tokenizer.model`."""
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self.vocab_size: int = self._processor.GetPieceSize()
        self._tag_ids: dict[str, int] = {}
        self.banned_ids: list[int] = [PAD_ID, UNK_ID, BOS_ID]
        for token in range(EOS_ID + 1, self.vocab_size):
            piece = self.piece(token)
            if self._processor.IsControl(token):
                tag = _TAG.fullmatch(piece)
                if tag:
                    self._tag_ids[tag.group(1)] = token
                self.banned_ids.append(token)
            elif self._processor.IsByte(token):
                byte = int(piece[1:-1], 16)
                if byte < 0x20 or byte == 0x7F:
                    self.banned_ids.append(token)
        self.languages: list[str] = list(self._tag_ids)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a `tokenizer.model`. Raises CheckpointError if it is missing or is not one of ours."""
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
        try:
            tokenizer = cls(model)
        except RuntimeError as error:
            raise CheckpointError(f"{path}: this is not a SentencePiece model") from error
        processor = tokenizer._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise CheckpointError(
                f"{path}: special ids PAD, UNK, BOS, EOS are {ids}, expected {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}; "
                "use a tokenizer that xyd trained"
            )
        return tokenizer

    def tag_id(self, lang: str) -> int:
        """Id of the control symbol `<2lang>`. Raises DataError, naming the choices, if there is none."""
        if lang not in self._tag_ids:
            raise DataError(f"the tokenizer has no tag for language {lang!r}; it has: {', '.join(self.languages)}")
        return self._tag_ids[lang]

    def encode(self, text: str) -> list[int]:
        """Text (normalised here) → bare ids."""
        return self._processor.Encode(normalise(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Many texts (normalised here) → bare ids of each, in order, on all cores."""
        return self._processor.Encode([normalise(text) for text in texts])

    def encode_normalised(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode_batch`, of texts that `normalise` has been through already, and on this core alone."""
        return self._processor.Encode(list(texts), num_threads=1)

    def decode(self, ids: Sequence[int]) -> str:
        """Bare ids → text. Control symbols vanish; bytes that are not UTF-8 become U+FFFD."""
        return self._processor.Decode([int(token) for token in ids])

    def scores(self) -> dict[str, tuple[int, float]]:
        """Every piece that can be matched in text → its id and score: log-prob (unigram), minus its rank (BPE)."""
        found = {}
        for token in range(self.vocab_size):
            if not (self._processor.IsControl(token) or self._processor.IsUnknown(token) or self.is_byte(token)):
                found[self.piece(token)] = token, float(self._processor.GetScore(token))
        return found

    def is_byte(self, token: int) -> bool:
        """Whether the id stands for a byte of the byte fallback."""
        return bool(self._processor.IsByte(int(token)))

    def byte_ids(self) -> list[int]:
        """The ids of the bytes 0 to 255; empty without byte fallback."""
        return [token for token in range(self.vocab_size) if self.is_byte(token)]

    def piece(self, token: int) -> str:
        """The piece (U+2581 marks a space) of a token id."""
        return self._processor.IdToPiece(int(token))


def train_tokenizer(
    texts: Iterable[str],
    config: TokenizerConfig,
    languages: Sequence[str],
    path: Path,
    seed: int,
    say: Callable[[str], None],
) -> Tokenizer:
    """Train on normalised lines of the train split and write the model to `path` (atomically).

    Args:
        texts: normalised lines; of more than `config.sample_size` a seeded sample is used.
        languages: target languages, each of which gets a tag.
        say: hears one warning if the vocabulary asked for is too large (lowered) or too small (raised) for the texts.

    The same lines in the same order, config and seed give the same bytes. Raises DataError if there is no text.
    """
    lines = _sample(texts, config.sample_size, seed)
    if not lines:
        raise DataError("no text to train a tokenizer on: the train split is empty after cleaning")
    tags = [f"<2{lang}>" for lang in sorted(set(languages))]
    smallest = _smallest_vocab(lines, config, num_meta=EOS_ID + 1 + len(tags) + 256 * config.byte_fallback)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.type,
            vocab_size=max(config.vocab_size, smallest),
            hard_vocab_limit=False,  # too large a vocabulary ends at what the text can give
            character_coverage=config.character_coverage,
            split_digits=config.split_digits,
            byte_fallback=config.byte_fallback,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=True,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            control_symbols=tags,
            max_sentence_length=MAX_LINE_BYTES,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DataError(f"SentencePiece could not train a tokenizer on {len(lines)} lines: {error}") from error
    tokenizer = Tokenizer(model.getvalue())
    if tokenizer.vocab_size < config.vocab_size:
        say(
            f"warning: tokenizer.vocab_size {config.vocab_size} is too large for these {len(lines)} lines; "
            f"lowered to {tokenizer.vocab_size}"
        )
    elif tokenizer.vocab_size > config.vocab_size:
        say(
            f"warning: tokenizer.vocab_size {config.vocab_size} is too small for the characters of these {len(lines)} "
            f"lines; raised to {tokenizer.vocab_size}"
        )
    atomic_write(path, model.getvalue())
    return tokenizer


def _sample(texts: Iterable[str], size: int, seed: int) -> list[str]:
    """Reservoir sample (Vitter 1985, algorithm R) of the non-blank lines, made safe for SentencePiece."""
    rng, kept = random.Random(seed), list[str]()
    for seen, text in enumerate(text for text in texts if text):
        line = text.replace(RESERVED_CHARACTER, " ")
        if seen < size:
            kept.append(line)
        else:
            slot = rng.randrange(seen + 1)
            if slot < size:
                kept[slot] = line
    return kept


def _smallest_vocab(lines: Sequence[str], config: TokenizerConfig, num_meta: int) -> int:
    """Least vocabulary: specials, tags and bytes, the characters that reach the coverage, and one to spare."""
    distinct: set[str] = {" "}
    for line in lines:
        distinct.update(line)
    if num_meta + len(distinct) + 1 <= config.vocab_size:
        return num_meta + len(distinct) + 1
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    counts[" "] += len(lines)  # the space put before each line
    total = sum(counts.values())
    covered = required = 0
    for _, count in counts.most_common():
        if covered >= config.character_coverage * total:
            break
        covered += count
        required += 1
    return num_meta + required + 1
