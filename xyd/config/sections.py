"""One strict, frozen model per section of the YAML, each field with the words that ``xyd config explain`` shows.

A field's description ends up in front of users: it says what the number does, in which unit, and what null means.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from xyd.config.inputs import FilePath, Section, SourceConfig, known_encoding

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


def _whole(value: Any) -> Any:
    """``1e6`` is a float to YAML and a whole number to a person."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _run_name(name: str) -> str:
    if not name.strip() or name in (".", "..") or re.search(r"[/\\\x00-\x1f]", name) or name.startswith("-"):
        raise ValueError(f"{name!r} cannot name a folder; use letters, digits, '-' and '_', and run.dir for the place")
    return name


def _device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError(f"expected auto, cpu, cuda or cuda:N, got {name!r}")
    return name


def _workers(value: Any) -> Any:
    value = _whole(value)
    if value != "auto" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"expected auto or a whole number of at least 1, got {value!r}")
    return value


def _directions(value: Any) -> Any:
    if value == "all":
        return value
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError("expected all, or a list of directions such as [en-zh, zh-en]")
    return value


def _corpus_directions(value: Any) -> Any:
    if value in ("both", "all"):
        return "both"
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError("expected both, or a list of directions such as [en-zh]")
    return value


def _split_kind(value: Any) -> str:
    if isinstance(value, dict) and any("-" in str(name) for name in value):
        return "<sizes>"
    return "<files>" if isinstance(value, dict | BaseModel) else "<size>"


def _size(value: Any) -> Any:
    value = _whole(value)
    if isinstance(value, bool) or not (
        (isinstance(value, int) and value >= 1) or (isinstance(value, float) and 0 < value < 1)
    ):
        raise ValueError(
            f"expected a size (pairs per language pair), a share of them between 0 and 1, sizes by direction "
            f"{{en-zh: 1000}}, or files: {{en: …, zh: …}}, got {'null' if value is None else repr(value)}"
        )
    return value


def _false(value: Any) -> Any:
    """``false`` is what a person writes for "off"."""
    return None if value is False else value


Int = Annotated[int, BeforeValidator(_whole)]
Workers = Annotated[int | Literal["auto"], BeforeValidator(_workers)]


class RunConfig(Section):
    """The run as a whole: its name, its place, its seed."""

    name: Annotated[str, AfterValidator(_run_name)] = Field(
        description="Name of the run; everything it makes goes to <run.dir>/<run.name>/."
    )
    dir: FilePath = Field(
        default=Path("runs"), description="Folder that holds the runs, relative to the working directory."
    )
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = Field(
        default=1, description="Seed of everything that is drawn: split, tokenizer sample, initial weights, batches."
    )


Sign = Literal[
    "mojibake",
    "html_entities",
    "swapped",
    "wrong_script",
    "wrong_language",
    "digits_differ",
    "urls_differ",
    "truncated",
]
SIGNS: tuple[str, ...] = get_args(Sign)


class Filters(Section):
    """What keeps a pair out of training. Nothing is cut or changed: a pair stays or goes whole, and is counted."""

    min_characters: Annotated[Int, Field(ge=1)] = Field(
        default=1, description="A pair with a side shorter than this many characters is dropped from training."
    )
    max_characters: Annotated[Int, Field(ge=1)] = Field(
        default=3000, description="A pair with a side longer than this many characters is dropped from training."
    )
    max_length_ratio: Annotated[float, Field(ge=1.0)] = Field(
        default=6.0, description="Dropped when the longer side exceeds this times the shorter one plus 20 characters."
    )
    drop_identical: bool = Field(default=True, description="Drop pairs whose two sides are the same text.")
    drop: list[Sign] = Field(
        default_factory=list,
        description="Drop pairs that show one of these signs: " + ", ".join(SIGNS) + ". xyd inspect counts them.",
    )
    min_score: float | None = Field(
        default=None,
        description="Drop pairs whose score is below this or missing; null = scores are not looked at.",
    )
    language_id: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="Drop pairs with a side that py3langid takes for another language with at least this probability "
        "(not of ASCII sides under 20 letters; pip install 'xyd[langid]'); null = languages are not looked at.",
    )


class CorpusConfig(SourceConfig):
    """One source of training pairs."""

    directions: Annotated[list[str] | Literal["both"], BeforeValidator(_corpus_directions)] = Field(
        default="both",
        description="Directions this corpus is used for, [en-zh]; both = all that it holds.",
    )
    weight: Annotated[float, Field(ge=0.0)] = Field(
        default=1.0, description="How often its pairs are seen in an epoch: 2 = twice, 0.5 = every other epoch."
    )
    cap: Annotated[Int, Field(ge=1)] | None = Field(
        default=None,
        description="At most so many of its pairs an epoch and direction, others in the next; null = all.",
    )
    filters: Filters = Field(
        default_factory=Filters, description="Filters for this corpus alone, by the names they have under data."
    )


class FilesSplit(SourceConfig):
    """A valid or test split that the user brings, in any of the forms of a corpus; its lines are never removed."""


Size = Annotated[int | float, BeforeValidator(_size)]

Split = Annotated[
    Annotated[Size, Tag("<size>")] | Annotated[dict[str, Size], Tag("<sizes>")] | Annotated[FilesSplit, Tag("<files>")],
    Discriminator(_split_kind),
]


class SplitConfig(Section):
    """How pairs are grouped and ordered when valid and test are split off; groups are never cut."""

    fold_digits: bool = Field(
        default=False, description="Texts that differ only in their numbers count as the same sentence."
    )
    group_by: Literal["none", "group"] = Field(
        default="none",
        description="group = pairs of one document, or with the same key in the group column, stay together too; valid "
        "and test may then be up to a tenth smaller than asked for.",
    )
    order: Literal["hash", "time"] = Field(
        default="hash",
        description="hash = at random by the seed; time = test is the newest, then valid, by the time column (numbers "
        "or dates), and a group is as old as its oldest pair.",
    )
    near_duplicates: Annotated[float, Field(ge=0.5, le=1.0)] | None = Field(
        default=None,
        description="Texts this similar (Jaccard of 5-byte n-grams of the folded text, 0.5 to 1) stay together and "
        "count as overlap with your own files; null or false = not looked for, which takes less time and memory.",
    )
    max_group: Annotated[Int, Field(ge=1)] | None = Field(
        default=None,
        description="Groups of more pairs than this stay in train; null = 20, and no limit with group_by: group.",
    )
    kfold: Annotated[Int, Field(ge=2, le=100)] | None = Field(
        default=None,
        description="xyd train makes this many runs, each with another fold of the pairs as test split, and tells mean "
        "and spread of their scores; leave data.test out.",
    )
    fold: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Which fold is the test split of this run; xyd train --fold N sets it."
    )

    _off = field_validator("near_duplicates", mode="before")(_false)


class DataConfig(Filters):
    """Where the pairs come from, which directions are learned, what is dropped, what is held out."""

    root: FilePath | None = Field(
        default=None,
        description="Folder under which relative file names in this section lie; null = the folder of the YAML.",
    )
    corpora: Annotated[list[CorpusConfig], Field(min_length=1)] = Field(
        description="List of sources of pairs: each has `files: {en: …, zh: …}`, or another format such as `tsv: …`."
    )
    directions: Annotated[list[str] | Literal["all"], BeforeValidator(_directions)] = Field(
        default="all", description="Directions to learn, [en-zh, zh-en]; all = every pair that some corpus holds."
    )
    valid: Split = Field(
        description="Valid split, by which the model is chosen: pairs per language pair to hold out without leakage, "
        "a share of them (0.01), sizes by direction `{en-zh: 1000, en-fr: 0.02}`, or your own, `files: {en: …, zh: …}` "
        "or any other form that a corpus may have."
    )
    test: Split | None = Field(
        default=None, description="Test split, evaluated once at the end: as for valid; null = none."
    )
    split: SplitConfig = Field(
        default_factory=SplitConfig, description="How pairs are grouped and ordered when valid and test are split off."
    )
    encoding: Annotated[str, AfterValidator(known_encoding)] = Field(
        default="utf-8", description="Encoding of the text files."
    )
    on_bad_utf8: Literal["error", "drop"] = Field(
        default="error", description="A line that is not in the encoding: error = stop and name it; drop = count it."
    )
    temperature: Annotated[float, Field(ge=1.0, le=100.0)] = Field(
        default=1.0,
        description="How evenly directions are seen: in proportion to pairs^(1/temperature); 1 = as often as they have "
        "pairs, higher = small ones more often.",
    )
    drop_repeats: bool = Field(default=True, description="Keep only the first of pairs that are equal on both sides.")

    @model_validator(mode="after")
    def _complete_filters(self) -> DataConfig:
        """Each corpus knows all its filters: its own, and for the rest those of the whole section."""
        general = {name: getattr(self, name) for name in Filters.model_fields}
        corpora = [
            corpus.model_copy(update={"filters": Filters(**{**general, **_given(corpus.filters)})})
            for corpus in self.corpora
        ]
        object.__setattr__(self, "corpora", corpora)
        return self

    @property
    def has_test(self) -> bool:
        """Whether a run has a test split: its own, files, or one fold of several."""
        return self.test is not None or self.split.kfold is not None


def _given(filters: Filters) -> dict[str, Any]:
    return {name: getattr(filters, name) for name in filters.model_fields_set}


class TokenizerConfig(Section):
    """The SentencePiece vocabulary, shared by all languages and learned on the train split only."""

    vocab_size: Annotated[Int, Field(ge=1)] = Field(
        default=48000,
        description="Pieces, with specials, tags and 256 bytes in it; lowered with a warning for a small corpus.",
    )
    type: Literal["unigram", "bpe"] = Field(default="unigram", description="Kind of SentencePiece model.")
    sample_size: Annotated[Int, Field(ge=1)] = Field(
        default=2_000_000, description="Lines the vocabulary is learned from at most, which bounds its memory."
    )
    character_coverage: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.9998, description="Share of the characters seen that get a piece; the rest are spelled in bytes."
    )
    split_digits: bool = Field(default=True, description="Every digit is a piece of its own.")
    byte_fallback: bool = Field(default=True, description="Spell unseen characters in bytes rather than as unknown.")


Rate = Annotated[float, Field(ge=0.0, le=1.0)]


class AugmentConfig(Section):
    """Additional training pairs that look like what people type; a rate is a share of the pairs a kind can apply to."""

    scale: Annotated[float, Field(ge=0.0)] = Field(
        default=1.0, description="All rates below are multiplied by this; 0 = no additional pairs."
    )
    upper: Rate = Field(default=0.02, description="In capitals on both sides, as far as they have any.")
    title: Rate = Field(default=0.01, description="Every Word With a Capital on both sides.")
    lower: Rate = Field(default=0.01, description="The source in small letters, the target as it is.")
    no_final_punctuation: Rate = Field(default=0.02, description="Without the mark at the end, on both sides.")
    typography: Rate = Field(
        default=0.02, description="Other quotes, apostrophes, dashes, dots, full or half width in the source only."
    )
    placeholders: Rate = Field(
        default=0.02, description="With %s, {name}, a URL, an e-mail address or tags, the same on both sides."
    )
    digits: Rate = Field(default=0.02, description="Numbers of two or more digits, once on each side, become others.")
    emoji: Rate = Field(default=0.01, description="With the same emoji on both sides.")
    fragments: Rate = Field(
        default=0.05, description="One sentence of a pair whose sides have equally many, as a short pair of its own."
    )


Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class ModelConfig(Section):
    """The Transformer."""

    d_model: Annotated[Int, Field(ge=1)] = Field(default=384, description="Width of the states.")
    num_encoder_layers: Annotated[Int, Field(ge=1)] = Field(default=8, description="Encoder layers.")
    num_decoder_layers: Annotated[Int, Field(ge=1)] = Field(default=8, description="Decoder layers.")
    num_heads: Annotated[Int, Field(ge=1)] = Field(default=6, description="Attention heads; they divide d_model.")
    d_ff: Annotated[Int, Field(ge=1)] = Field(default=1536, description="Width inside the feed-forward layer.")
    max_length: Annotated[Int, Field(ge=2)] = Field(
        default=256, description="Positions, specials included: at most max_length - 1 tokens of text on either side."
    )
    dropout: Share = Field(default=0.1, description="Dropout on embeddings and on what each sub-layer adds.")
    attention_dropout: Share = Field(default=0.0, description="Dropout on attention weights.")
    activation_dropout: Share = Field(default=0.0, description="Dropout inside the feed-forward layer.")
    activation: Literal["relu", "gelu", "silu", "swiglu"] = Field(
        default="relu", description="Activation of the feed-forward layer; swiglu is gated and has a third matrix."
    )
    norm: Literal["layer", "rms"] = Field(default="layer", description="LayerNorm or RMSNorm.")
    norm_position: Literal["pre", "post"] = Field(
        default="pre", description="Norm before each sub-layer, with final norms, or after it."
    )
    positions: Literal["learned", "sinusoidal"] = Field(
        default="learned", description="One learned table of positions for both sides, or fixed sines and cosines."
    )
    tie_embeddings: bool = Field(
        default=True, description="Source, target and output embeddings are one matrix (false = three)."
    )


class TrainConfig(Section):
    """How the model is trained, when it stops, what is kept."""

    tokens_per_step: Annotated[Int, Field(ge=1)] = Field(
        default=8192, description="Real target tokens of one step, over all micro-batches and workers."
    )
    max_tokens: Annotated[Int, Field(ge=1)] = Field(
        default=4096, description="Padded tokens, both sides, of one micro-batch on one worker; bounds memory."
    )
    learning_rate: Annotated[float, Field(gt=0.0)] = Field(default=0.0007, description="Peak learning rate.")
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant", "plateau"] = Field(
        default="inverse_sqrt",
        description="Course of the rate after warm-up: falls with 1/sqrt(step), to the floor at max_steps (cosine, "
        "linear), not at all, or when the metric stops to improve (plateau).",
    )
    warmup_steps: Annotated[Int, Field(ge=0)] = Field(
        default=4000, description="Steps over which the learning rate rises in a line from 0 to its peak."
    )
    min_learning_rate: Annotated[float, Field(ge=0.0)] = Field(
        default=0.0, description="Floor below which the schedule does not go."
    )
    subword_sampling: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="Train on segmentations drawn anew in each epoch: for bpe the share of merges left out (try 0.1), "
        "for unigram the alpha of sampling (try 0.2; smaller = wilder); null = always the best one.",
    )
    max_steps: Annotated[Int, Field(ge=1)] = Field(default=100_000, description="Stop after this many steps.")
    max_epochs: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Stop after this many passes over the train split; null = no such limit."
    )
    max_minutes: Annotated[float, Field(gt=0.0)] | None = Field(
        default=None, description="Stop after this many minutes of training; null = no such limit."
    )
    validate_every: Annotated[Int, Field(ge=1)] = Field(default=1000, description="Steps between two validations.")
    patience: Annotated[Int, Field(ge=1)] | None = Field(
        default=10, description="Early stopping: stop after this many validations without gain; null = never."
    )
    min_gain: Annotated[float, Field(ge=0.0)] = Field(
        default=0.0, description="A validation counts as a gain when the metric improves by more than this."
    )
    metric: Literal["nll", "bleu", "chrf"] = Field(
        default="nll",
        description="What decides which model is best, on the valid split: NLL per token over all directions, or the "
        "mean of the directions' BLEU or chrF.",
    )
    label_smoothing: Share = Field(
        default=0.1, description="Share of the target probability spread evenly over all real classes."
    )
    weight_decay: Annotated[float, Field(ge=0.0)] = Field(
        default=0.01, description="AdamW's decoupled decay; not on norms, biases and embeddings."
    )
    beta1: Share = Field(default=0.9, description="AdamW's decay of the mean of gradients.")
    beta2: Share = Field(default=0.98, description="AdamW's decay of the mean of squared gradients.")
    epsilon: Annotated[float, Field(gt=0.0)] = Field(default=1e-9, description="AdamW's guard against division by 0.")
    clip_norm: Annotated[float, Field(gt=0.0)] | None = Field(
        default=1.0, description="Gradients are scaled down to this global L2 norm; null = never."
    )
    plateau_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        default=0.5, description="Schedule plateau: the rate is multiplied by this."
    )
    plateau_patience: Annotated[Int, Field(ge=1)] = Field(
        default=3, description="Schedule plateau: after this many validations without gain."
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        default="auto", description="Arithmetic of the model; auto = bf16 where the hardware has it, else fp32."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        default="auto", description="auto, cpu, cuda or cuda:N; auto = a GPU if there is one."
    )
    workers: Workers = Field(
        default="auto",
        description="Training processes on this machine; they share the tokens of a step, and results do not depend on "
        "their number. auto = measured before the first step: one, or one a core; one on a GPU.",
    )
    threads: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="CPU threads of each worker; null = cores divided by workers."
    )
    init_from: FilePath | None = Field(
        default=None, description="A run directory whose best weights (and tokenizer) this run starts from."
    )
    keep_checkpoints: Annotated[Int, Field(ge=1)] = Field(
        default=5, description="Snapshots kept besides `last`: the best ones by the metric."
    )
    average: Annotated[Int, Field(ge=0)] = Field(
        default=5, description="How many of the kept snapshots are averaged at the end; 0 = none."
    )
    save_every: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Steps between two saves of `last`; null = at every validation."
    )
    log_every: Annotated[Int, Field(ge=1)] = Field(
        default=50, description="Steps between two points in TensorBoard and metrics.jsonl."
    )


class DecodeConfig(Section):
    """How translations are searched."""

    beam_size: Annotated[Int, Field(ge=1)] = Field(default=5, description="Hypotheses kept per sentence; 1 = greedy.")
    length_penalty: Annotated[float, Field(ge=0.0)] = Field(
        default=1.0, description="Alpha: log-probability is divided by length to this power; 0 favours short output."
    )
    length_penalty_form: Literal["length", "gnmt"] = Field(
        default="length", description="Length is taken as it is, or as (5 + length) / 6 (gnmt)."
    )
    max_length_factor: Annotated[float, Field(gt=0.0)] = Field(
        default=2.0, description="Output has at most this times the source's tokens, plus max_length_extra."
    )
    max_length_extra: Annotated[Int, Field(ge=0)] = Field(
        default=10, description="Tokens added to max_length_factor times the source's tokens."
    )
    max_tokens: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Padded source tokens times beams of one batch; null = 4096, on a GPU 32768."
    )
    precision: Literal["auto", "fp32", "bf16", "int8"] = Field(
        default="auto",
        description="Arithmetic of search's matrix products, the rest is fp32; auto = the fastest of the hardware's.",
    )
    workers: Workers = Field(
        default="auto", description="Processes that search when there is enough to do, one core each; auto = all cores."
    )
    capture: bool = Field(
        default=False, description="On a GPU, record the decode step and replay it as a CUDA graph (experimental)."
    )
    temperature: Annotated[float, Field(gt=0.0)] | None = Field(
        default=None, description="Draw at random at this temperature instead of searching; null = search."
    )
    top_k: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Sampling: draw from the k most probable tokens; null = from all."
    )
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None, description="Sampling: draw from the most probable tokens that hold this share; null = from all."
    )


class EvaluateConfig(Section):
    """How BLEU and chrF are measured on the valid split."""

    valid_beam_size: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Beam size for BLEU and chrF on the valid split; null = decode.beam_size."
    )
    valid_sentences: Annotated[Int, Field(ge=1)] = Field(
        default=1000, description="Sentences per direction for BLEU and chrF on the valid split: the first ones."
    )
    bleu_every: Annotated[Int, Field(ge=0)] = Field(
        default=1, description="BLEU and chrF at every Nth validation; 0 = never."
    )
    samples: Annotated[Int, Field(ge=0)] = Field(
        default=5, description="Sample translations shown per direction, the same sentences each time."
    )


class Config(Section):
    """The whole of a run."""

    run: RunConfig = Field(description="The run as a whole: its name, its place, its seed.")
    data: DataConfig = Field(description="Where the pairs come from, which directions are learned, what is held out.")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, description="The SentencePiece vocabulary.")
    augment: AugmentConfig = Field(
        default_factory=AugmentConfig, description="Additional training pairs that look like what people type."
    )
    model: ModelConfig = Field(default_factory=ModelConfig, description="The Transformer.")
    train: TrainConfig = Field(default_factory=TrainConfig, description="How the model is trained and when it stops.")
    decode: DecodeConfig = Field(default_factory=DecodeConfig, description="How translations are searched.")
    evaluate: EvaluateConfig = Field(
        default_factory=EvaluateConfig, description="How BLEU and chrF are measured on the valid split."
    )
