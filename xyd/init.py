"""`xyd init`: a commented configuration fitted to the size and the languages of a corpus. Loads no torch.

The rules, by pairs that cleaning leaves; learned in one direction only they count half, since they give half as many
rows to learn from. Starting points, not optima: the first line is near the shipped configs for Tatoeba and Multi30k,
the last is that of configs/base-48k.yaml.

    pairs        layers  d_model  heads   d_ff  vocabulary  dropout  epochs  tokens_per_step  learning_rate
    up to 50 k    4 + 4      192      4    512       8,000      0.3      20            4,096          0.003
    up to 500 k   6 + 6      256      4  1,024      16,000      0.2      15            8,192         0.0015
    up to 5 M     8 + 8      384      6  1,536      32,000      0.1       8           16,384          0.001
    above         8 + 8      384      6  1,536      48,000      0.1       3           32,768         0.0007

Vocabulary: no more than a piece for every three pairs (in thousands, at least 1,000; 4,000 for a language written in
many characters), since a piece seen too seldom is not learned. Valid and test: each a thirtieth of the pairs, at most
2,000. Steps: epochs times the target tokens of an epoch, by rule from characters; warm-up: a fifth, at most 4,000.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from xyd import config
from xyd.corpus.census import Census, take_census, tokens_by_rule
from xyd.errors import ConfigError

SECONDS = 30.0  # for counting the corpus
PACKED = (".gz", ".xz", ".zst")
SUBTITLES = (".srt", ".vtt")  # a file for each language, too, but paired by time
CHARACTERS_MANY = ("zh", "ja", "ko", "yue")

# Which characters a text of the language is made of, where that tells it from others; Latin script tells nothing.
SCRIPTS = {
    "zh": "\u3400-\u9fff\U00020000-\U0003ffff", "ja": "\u3040-\u30ff\u3400-\u9fff", "ko": "\uac00-\ud7a3\u1100-\u11ff",
    "ru": "\u0400-\u04ff", "uk": "\u0400-\u04ff", "bg": "\u0400-\u04ff", "sr": "\u0400-\u04ffA-Za-z",
    "el": "\u0370-\u03ff\u1f00-\u1fff", "he": "\u0590-\u05ff", "ar": "\u0600-\u06ff", "fa": "\u0600-\u06ff",
    "ur": "\u0600-\u06ff", "hi": "\u0900-\u097f", "ne": "\u0900-\u097f", "bn": "\u0980-\u09ff", "ta": "\u0b80-\u0bff",
    "th": "\u0e00-\u0e7f", "ka": "\u10a0-\u10ff", "hy": "\u0530-\u058f", "am": "\u1200-\u137f",
}  # fmt: skip
LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"


class Tier(NamedTuple):
    """A line of the table above."""

    pairs: float
    layers: int
    d_model: int
    num_heads: int
    d_ff: int
    vocab_size: int
    dropout: float
    epochs: int
    tokens_per_step: int
    learning_rate: float


TIERS = (
    Tier(50_000, 4, 192, 4, 512, 8_000, 0.3, 20, 4096, 0.003),
    Tier(500_000, 6, 256, 4, 1024, 16_000, 0.2, 15, 8192, 0.0015),
    Tier(5_000_000, 8, 384, 6, 1536, 32_000, 0.1, 8, 16_384, 0.001),
    Tier(float("inf"), 8, 384, 6, 1536, 48_000, 0.1, 3, 32_768, 0.0007),
)


@dataclass(frozen=True)
class Request:
    """What the user has given: two text files, or one file of `kind` that holds both languages."""

    out: Path
    src: Path | None = None
    tgt: Path | None = None
    kind: str | None = None
    path: Path | None = None
    languages: str | None = None  # "zh,en", in the order of src and tgt
    is_forward: bool = False
    name: str | None = None
    force: bool = False


def write_config(request: Request, say: Callable[[str], None]) -> None:
    """Write the configuration, and say what it was fitted to.

    Raises ConfigError where files or languages are not told or `out` exists, DataError where the corpus cannot be read.
    """
    if request.out.exists() and not request.force:
        raise ConfigError(f"{request.out}: exists already; give --out another name, or --force to replace it")
    if not request.out.absolute().parent.is_dir():
        raise ConfigError(f"--out {request.out}: no such folder")
    languages = _languages(request)
    name = request.name or "-".join(languages)
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.yaml"
        corpus = _corpus(request, languages, Path(folder))
        probe.write_text(f"run: {{name: {_scalar(name)}}}\ndata:\n  corpora:\n    - {corpus}\n  valid: 1\n", "utf-8")
        (census,) = take_census(config.load(probe), SECONDS)
    if census.problem is not None:
        raise census.problem
    for warning in script_warnings(census, languages):
        say(f"warning: {warning}")
    text = config_text(request, name, languages, census)
    request.out.write_text(text, encoding="utf-8")
    about = "" if census.is_whole else "about "
    say(f"{request.out}: fitted to {about}{census.total(_sorted(languages)):,.0f} pairs; next: xyd check {request.out}")


def _sorted(languages: tuple[str, str]) -> tuple[str, str]:
    return min(languages), max(languages)


def _languages(request: Request) -> tuple[str, str]:
    """As given, or from the ends of the names: a.zh, a.en.gz."""
    if (request.path is None) == (request.src is None) or (request.src is None) != (request.tgt is None):
        raise ConfigError("xyd init: give --src and --tgt, or one file that holds both languages; see xyd init --help")
    if request.languages is not None:
        codes = request.languages.split(",")
    elif request.path is not None:
        raise ConfigError(f"xyd init: say which languages {request.path} holds, --languages zh,en")
    else:
        codes = [_extension(path) for path in (request.src, request.tgt) if path is not None]
    if len(codes) != 2 or codes[0] == codes[1] or not all(re.fullmatch(r"[A-Za-z]\w*", code) for code in codes):
        raise ConfigError(
            f"xyd init: two languages are needed, got {', '.join(map(repr, codes))}; say them in the order of --src "
            "and --tgt: --languages zh,en"
        )
    return codes[0], codes[1]


def _extension(path: Path) -> str:
    while path.suffix in (*PACKED, *SUBTITLES, ".txt"):
        path = path.with_suffix("")
    code = path.suffix.removeprefix(".")
    return code if re.fullmatch(r"[a-z]{2,3}([_-][A-Za-z]{2,4})?", code) and code != "txt" else ""


def script_warnings(census: Census, languages: tuple[str, str]) -> list[str]:
    """What does not look like its language, by the characters of the sample."""
    found = []
    for language in languages:
        texts = [pair.src if pair.src_lang == language else pair.tgt for pair in census.sample[:2000]]
        letters = [c for c in "".join(texts) if c.isalpha()]
        expected = SCRIPTS.get(re.split("[_-]", language)[0].lower(), LATIN)
        share = sum(bool(re.match(f"[{expected}]", c)) for c in letters) / max(1, len(letters))
        if share < 0.5:
            found.append(
                f"the text given as {language} does not look like it: {share:.0%} of its letters are in that script. "
                "Are the files the right way round (--languages)? Are these the columns (columns: {…} in the config)?"
            )
    return found


def fitted(census: Census, languages: tuple[str, str], is_forward: bool) -> dict[str, Any]:
    """The numbers of the configuration, by the rules above."""
    pairs = census.total(_sorted(languages)) * census.kept_share
    rows = pairs * (1 if is_forward else 2)
    tier = next(tier for tier in TIERS if rows / 2 <= tier.pairs)
    least = 4000 if any(re.split("[_-]", code)[0].lower() in CHARACTERS_MANY for code in languages) else 1000
    tokens = [tokens_by_rule(text) + 1 for pair in census.sample for text in (pair.src, pair.tgt)]
    epoch = rows * sum(tokens) / max(1, len(tokens))
    steps = _round(max(500, tier.epochs * epoch / tier.tokens_per_step))
    held_out = int(max(1, min(2000, pairs // 30)))
    return {
        **tier._asdict(),
        "pairs": f"{pairs:,.0f}",
        "vocab_size": min(tier.vocab_size, max(least, int(pairs / 3000) * 1000)),
        "held_out": held_out,
        "max_steps": steps,
        "epochs": round(steps * tier.tokens_per_step / max(1, epoch)),
        "warmup_steps": max(50, min(4000, _round(steps / 5))),
        "validate_every": max(100, min(2000, _round(steps / 15))),
        "max_tokens": min(4096, tier.tokens_per_step) if tier.layers < 8 else 8192,
        "positions": "sinusoidal" if tier.layers < 8 else "learned",
        "max_length": 128 if tier.layers < 8 else 256,
    }


def _round(number: float) -> int:
    """To two digits."""
    return int(float(f"{number:.1e}"))


def config_text(request: Request, name: str, languages: tuple[str, str], census: Census) -> str:
    """The YAML."""
    folder, (a, b) = request.out.absolute().parent, languages
    directions = [f"{a}-{b}"] if request.is_forward else [f"{a}-{b}", f"{b}-{a}"]
    text = TEMPLATE.format(
        name=_scalar(name),
        corpus=_corpus(request, languages, folder),
        directions=", ".join(directions),
        **fitted(census, languages, request.is_forward),
    )
    return "\n".join(_aligned(line) for line in text.split("\n"))


def _aligned(line: str) -> str:
    """Comments, which the template sets off by a tab, begin in one column."""
    key, tab, comment = line.partition("\t")
    return f"{key:<29} {comment}" if tab else line


def _corpus(request: Request, languages: tuple[str, str], folder: Path) -> str:
    """The entry of data.corpora in a YAML in `folder`."""
    if request.path is not None:
        return f"{request.kind}: {_scalar(_near(request.path, folder))}\n      languages: [{', '.join(languages)}]"
    paths = [_scalar(_near(path, folder)) for path in (request.src, request.tgt) if path is not None]
    kind = given.suffix.removeprefix(".") if (given := request.src) and given.suffix in SUBTITLES else "files"
    return f"{kind}: {{" + ", ".join(f"{code}: {path}" for code, path in zip(languages, paths, strict=True)) + "}"


def _near(path: Path, folder: Path) -> str:
    """Relative to the YAML where the file lies below it."""
    path = path.absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _scalar(text: str) -> str:
    """As YAML reads it back: plain where nothing in it could mean something else, else in quotes."""
    is_plain = re.fullmatch(r"[A-Za-z/][\w./-]*", text, re.ASCII) and text not in ("true", "false", "null")
    return text if is_plain else json.dumps(text, ensure_ascii=False)


TEMPLATE = """\
# Written by `xyd init` for {pairs} pairs, by rule: a starting point.
#   xyd check THIS     try everything that can fail, in two minutes
#   xyd plan THIS      time, memory and disk of the run
#   xyd train THIS     train; the same command goes on where it was stopped
# What a key means: xyd config explain train.max_steps

run:
  name: {name}\t# of the run
  dir: runs\t# everything goes to <run.dir>/<run.name>/, relative to the working directory
  seed: 1\t# of the split, the tokenizer's sample, the weights, the batches

data:
  corpora:\t# each entry one source of pairs; paths are relative to this YAML
    - {corpus}
  directions: [{directions}]\t# source-target; or all
  valid: {held_out}\t# pairs held out to choose the model by; or files: {{…}} of your own
  test: {held_out}\t# evaluated once, at the end
  max_characters: 3000\t# longer lines are dropped from training and counted
  max_length_ratio: 6.0\t# sides too unequal in length are dropped and counted
  drop_identical: true\t# text that was never translated
  drop_repeats: true\t# only the first of equal pairs stays

tokenizer:
  vocab_size: {vocab_size}\t# pieces shared by both languages; lowered by itself if the text has fewer
  type: unigram\t# or bpe

model:
  d_model: {d_model}\t# width of the states
  num_encoder_layers: {layers}\t# that read the source
  num_decoder_layers: {layers}\t# that write the target
  num_heads: {num_heads}\t# attention heads; they divide d_model
  d_ff: {d_ff}\t# width inside the feed-forward layer
  max_length: {max_length}\t# tokens a side, specials included; longer pairs are dropped and counted, never cut
  positions: {positions}\t# sinusoidal are known from the start; learned ones need more text
  dropout: {dropout}\t# the less text, the more of it

train:
  tokens_per_step: {tokens_per_step}\t# real target tokens of one step, over all micro-batches and workers
  max_tokens: {max_tokens}\t# padded tokens of one micro-batch; lower it if memory is short, raise it on a large GPU
  learning_rate: {learning_rate}\t# the peak, at the end of warm-up
  schedule: inverse_sqrt\t# after warm-up; or cosine, linear, constant, plateau
  warmup_steps: {warmup_steps}\t# the rate rises in a line from 0
  max_steps: {max_steps}\t# about {epochs} passes over the text
  validate_every: {validate_every}\t# steps
  patience: 10\t# validations without gain before it stops by itself; null = never
  metric: nll\t# what decides which model is best; or bleu, chrf
  label_smoothing: 0.1\t# share of the target probability spread over the other classes
  clip_norm: 1.0\t# gradients are scaled down to this L2 norm
  precision: auto\t# bf16 where the hardware has it
  device: auto\t# a GPU if there is one, else the CPU
  workers: auto\t# processes on this machine; results do not depend on it
  keep_checkpoints: 5\t# the best ones by the metric
  average: 5\t# as many of them are averaged at the end

decode:
  beam_size: 5\t# hypotheses kept per sentence; 1 = greedy
  length_penalty: 1.0\t# scores are divided by length to this power

evaluate:
  valid_beam_size: 1\t# greedy while training is faster; the test uses decode.beam_size
  valid_sentences: 500\t# per direction, for BLEU and chrF while training
"""
