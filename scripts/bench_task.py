"""The task that every system of a benchmark gets: two shapes, one optimiser, the same sentences as ids.

The sentences are Multi30k, English to German, from the folder that XYD_SHARED names or from ../shared beside the
project, in pieces of a SentencePiece model of 10,000 that is trained here once. Where Multi30k is absent they are made
up, with lengths like captions; `Sentences.origin` says which. Ids stay below 10,000 in both shapes: the vocabulary of
shape base is padded to 48,000, so that its output projection is paid for while the sentences stay the same.

Ids lie in a cache folder (XYD_BENCH_CACHE, else under ~/.cache) by the hash of what made them. No torch in this module:
CTranslate2 is measured in processes without it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xyd.config import EOS_ID, ModelConfig, TokenizerConfig
from xyd.files import atomic_write, sha256_bytes, sha256_file

TOKENS_PER_STEP = 4096  # real target tokens of a training step, EOS counted
LEARNING_RATE = 1e-4
CLIP_NORM = 1.0
LENGTH = 15  # decoder steps of each sentence in bench_decode: the mean length of Multi30k's German
NUM_PIECES = 10_000
XYD_ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"}  # what the command xyd sets before it loads torch


@dataclass(frozen=True)
class Shape:
    """A model to measure; both sides and the output share one embedding of `vocab_size` rows."""

    vocab_size: int
    model: ModelConfig


SHAPES = {
    "base": Shape(48_000, ModelConfig(dropout=0.1)),
    "tiny": Shape(
        NUM_PIECES,
        ModelConfig(d_model=128, num_encoder_layers=4, num_decoder_layers=4, num_heads=4, d_ff=256, dropout=0.1),
    ),
}


@dataclass(frozen=True)
class Sentences:
    """Bare ids: pairs to train on, and sources to translate. `origin`: multi30k or made up."""

    origin: str
    src: list[np.ndarray]
    tgt: list[np.ndarray]
    test: list[np.ndarray]


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def multi30k() -> Path | None:
    """The folder with train.en, train.de and test_2016_flickr.en, if it is here."""
    shared = Path(os.environ.get("XYD_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    folder = shared / "data" / "multi30k"
    return folder if (folder / "train.en").is_file() else None


def cache_folder() -> Path:
    """Where ids are kept between runs; a temporary folder where nothing else can be written."""
    wanted = os.environ.get("XYD_BENCH_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "xyd-bench"
    folder = Path(wanted).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="xyd-bench-"))
    return folder


def prepare() -> Path:
    """The file with the sentences, made if it is not in the cache yet (about a minute)."""
    source, recipe = multi30k(), sha256_file(__file__)
    if source is None:
        path = cache_folder() / f"made-up-{recipe[:16]}.npz"
        if not path.exists():
            _write(path, made_up())
        return path
    from xyd.tokenizer import train_tokenizer  # needs sentencepiece, made-up sentences do not

    files = [source / name for name in ("train.en", "train.de", "test_2016_flickr.en")]
    key = sha256_bytes("".join([recipe, *map(sha256_file, files)]).encode())[:16]
    path = cache_folder() / f"multi30k-{key}.npz"
    if not path.exists():
        src, tgt, test = (file.read_text(encoding="utf-8").splitlines() for file in files)
        model, config = path.with_suffix(".model"), TokenizerConfig(vocab_size=NUM_PIECES)
        tokenizer = train_tokenizer([*src, *tgt], config, ["de"], model, seed=1, say=print)
        ids = [[np.array(row, np.int32) for row in tokenizer.encode_batch(lines)] for lines in (src, tgt, test)]
        _write(path, Sentences("multi30k", *ids))
    return path


def made_up() -> Sentences:
    """4,000 pairs and 300 sources of ids drawn at random, 4 to 35 long, 14 in the mean."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(14, 4, 4300).round().astype(int), 4, 35)
    tgt_lengths = np.clip(lengths[:4000] + rng.integers(-3, 4, 4000), 4, 35)
    src, tgt = ([_ids(rng, n) for n in some] for some in (lengths, tgt_lengths))
    return Sentences("made up", src[:4000], tgt, src[4000:])


def _ids(rng: np.random.Generator, length: int) -> np.ndarray:
    return rng.integers(EOS_ID + 257, NUM_PIECES, length, dtype=np.int32)


def _write(path: Path, sentences: Sentences) -> None:
    columns = {"origin": np.array(sentences.origin)}
    for name in ("src", "tgt", "test"):
        rows: list[np.ndarray] = getattr(sentences, name)
        columns[name], columns[f"{name}_lengths"] = np.concatenate(rows), np.array([len(row) for row in rows])
    atomic_write(path, lambda file: np.savez(file, **columns))  # type: ignore[arg-type]


def load(path: str | Path) -> Sentences:
    """What `prepare` wrote."""
    with np.load(path, allow_pickle=False) as found:
        rows = {name: np.split(found[name], found[f"{name}_lengths"].cumsum()[:-1]) for name in ("src", "tgt", "test")}
        return Sentences(str(found["origin"]), rows["src"], rows["tgt"], rows["test"])


def cut_by_tokens(order: Sequence[int], tgt_lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Rows in this order → batches, each closed once it holds `tokens` real target tokens (EOS counted); no rest."""
    batches, rows, held = [], list[int](), 0
    for row in order:
        rows.append(row)
        held += int(tgt_lengths[row]) + 1
        if held >= tokens:
            batches.append(np.array(rows))
            rows, held = [], 0
    return batches
