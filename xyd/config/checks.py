"""Combinations that cannot be, combinations that have no effect, and the directions a configuration asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations

from xyd.config.input_checks import Finding, source_findings
from xyd.config.inputs import SourceConfig
from xyd.config.sections import Config, CorpusConfig, FilesSplit
from xyd.config.source import Key, dotted
from xyd.errors import ConfigError


def _available(config: Config) -> list[tuple[str, str]]:
    """All ordered pairs of languages that some corpus holds together, sorted."""
    return sorted(
        {
            (src, tgt)
            for corpus in config.data.corpora
            for src, tgt in permutations(corpus.languages or [], 2)
            if corpus.directions == "both" or f"{src}-{tgt}" in corpus.directions
        }
    )


def directions(config: Config) -> list[tuple[str, str]]:
    """The directions of the run as (src, tgt); ``all`` is every ordered pair that some corpus holds, sorted.

    Raises ``ConfigError`` when a direction is malformed or no corpus can supply it.
    """
    found = [what for _, what in _direction_findings(config)]
    if found:
        raise ConfigError("\n".join(found))
    if config.data.directions == "all":
        return _available(config)
    pairs = [direction.split("-") for direction in config.data.directions]
    return [(src, tgt) for src, tgt in pairs]


def used_directions(config: Config, corpus: CorpusConfig) -> list[str]:
    """The directions of the run, such as en-zh, that this corpus is used for."""
    held = corpus.languages or []
    possible = [f"{src}-{tgt}" for src, tgt in directions(config) if src in held and tgt in held]
    return possible if corpus.directions == "both" else [name for name in possible if name in corpus.directions]


def _direction_findings(config: Config) -> Iterator[Finding]:
    key: Key = ("data", "directions")
    if config.data.directions == "all":
        return
    available = _available(config)
    languages = {language for pair in available for language in pair}
    choices = ", ".join(f"{src}-{tgt}" for src, tgt in available) or "none"
    for index, direction in enumerate(config.data.directions):
        at: tuple[Key, ...] = ((*key, index), ("data", "corpora"))
        src, dash, tgt = direction.partition("-")
        if not dash or not src or not tgt or "-" in tgt:
            yield at, f"data.directions: expected source-target such as en-zh, got {direction!r}"
        elif src == tgt:
            yield at, f"data.directions: {direction} translates a language into itself; remove it"
        elif unknown := [language for language in (src, tgt) if language not in languages]:
            yield at, f"data.directions: {direction}: no corpus holds {' or '.join(unknown)}; the choices are {choices}"
        elif (src, tgt) not in available:
            yield at, f"data.directions: no corpus holds both sides of {direction}; the choices are {choices}"
    for direction, count in Counter(config.data.directions).items():
        if count > 1:
            yield (key, ("data", "corpora")), f"data.directions: {direction} is listed {count} times; keep one"


def impossible(config: Config) -> Iterator[Finding]:
    """What cannot be, each with the keys that are involved; the first given one is where the user should look."""
    yield from _impossible_data(config)
    model, train = config.model, config.train
    if model.d_model % model.num_heads:
        fits = [heads for heads in range(1, model.d_model + 1) if model.d_model % heads == 0]
        near = sorted(sorted(fits, key=lambda heads: abs(heads - model.num_heads))[:3])
        yield (
            (("model", "num_heads"), ("model", "d_model")),
            f"model.num_heads: {model.num_heads} heads do not divide model.d_model {model.d_model}; "
            f"use {' or '.join(map(str, near))}",
        )
    if model.positions == "sinusoidal" and model.d_model % 2:
        yield (
            (("model", "d_model"), ("model", "positions")),
            f"model.d_model: sinusoidal positions need an even width, got {model.d_model}",
        )
    if train.min_learning_rate > train.learning_rate:
        yield (
            (("train", "min_learning_rate"), ("train", "learning_rate")),
            f"train.min_learning_rate: the floor {train.min_learning_rate:g} is above the peak "
            f"train.learning_rate {train.learning_rate:g}",
        )
    if train.metric != "nll" and config.evaluate.bleu_every != 1:
        yield (
            (("train", "metric"), ("evaluate", "bleu_every")),
            f"train.metric: {train.metric} decides at every validation, so evaluate.bleu_every must be 1, "
            f"not {config.evaluate.bleu_every}",
        )
    if train.workers not in ("auto", 1) and train.device.startswith("cuda:"):
        yield (
            (("train", "workers"), ("train", "device")),
            f"train.workers: {train.workers} workers cannot share the one GPU of train.device {train.device}; "
            "use device cuda, or one worker",
        )


def _impossible_data(config: Config) -> Iterator[Finding]:
    data = config.data
    own = [(("data", name), split) for name, split in (("valid", data.valid), ("test", data.test))]
    splits = [(key, split) for key, split in own if isinstance(split, FilesSplit)]
    sources: list[tuple[Key, SourceConfig]] = [
        (("data", "corpora", index), corpus) for index, corpus in enumerate(data.corpora)
    ]
    for key, source in (*sources, *splits):
        yield from source_findings(source, key)
    for index, corpus in enumerate(data.corpora):
        held = [f"{src}-{tgt}" for src, tgt in permutations(corpus.languages or [], 2)]
        if corpus.directions != "both" and (odd := [name for name in corpus.directions if name not in held]):
            yield (
                (("data", "corpora", index, "directions"),),
                f"data.corpora.{index}.directions: this corpus does not hold {' and '.join(odd)}; the choices are "
                f"{', '.join(held)}",
            )
    if not any(corpus.weight for corpus in data.corpora):
        weights = tuple(("data", "corpora", index, "weight") for index in range(len(data.corpora)))
        yield weights, "data.corpora: every corpus has weight 0, so an epoch would be empty"
    yield from _direction_findings(config)
    if not any(_direction_findings(config)):
        wanted = sorted({language for direction in directions(config) for language in direction})
        for key, split in splits:
            if len(split.given) == 1 and (missing := [code for code in wanted if code not in (split.languages or [])]):
                at = (*key, split.format)
                lacks = "no file" if split.files_by_language else "no text"
                yield (
                    (at, ("data", "directions"), ("data", "corpora")),
                    f"{dotted(at)}: {lacks} for {' and '.join(missing)}, which the directions of this run need",
                )
    yield from _impossible_split(config)
    if data.min_characters > data.max_characters:
        yield (
            (("data", "min_characters"), ("data", "max_characters")),
            f"data.min_characters: {data.min_characters} is more than data.max_characters {data.max_characters}, "
            "so every pair would be dropped",
        )


def _impossible_split(config: Config) -> Iterator[Finding]:
    data, split = config.data, config.data.split
    for name, sizes in (("valid", data.valid), ("test", data.test)):
        if isinstance(sizes, dict) and not any(_direction_findings(config)):
            yield from _size_findings(name, sizes, directions(config))
    if split.kfold is not None and data.test is not None:
        yield (
            (("data", "test"), ("data", "split", "kfold")),
            "data.test: with data.split.kfold each fold is the test split of one run; leave data.test out",
        )
    if split.fold is not None and (split.kfold is None or split.fold > split.kfold):
        there = f"data.split.kfold is {split.kfold}" if split.kfold else "there are no folds without data.split.kfold"
        yield (("data", "split", "fold"), ("data", "split", "kfold")), f"data.split.fold: no fold {split.fold}: {there}"


def _size_findings(name: str, sizes: dict[str, int | float], wanted: list[tuple[str, str]]) -> Iterator[Finding]:
    choices = ", ".join("-".join(direction) for direction in wanted)
    seen: dict[tuple[str, ...], str] = {}
    for label, size in sizes.items():
        languages = tuple(sorted(label.split("-")))
        key: Key = ("data", name, label)
        if not any(tuple(sorted(direction)) == languages for direction in wanted):
            yield (key, ("data", "corpora")), f"data.{name}: {label} is no direction of this run; they are {choices}"
        elif languages in seen and sizes[seen[languages]] != size:
            yield (
                (key,),
                f"data.{name}: {seen[languages]} and {label} are the same pairs, read in two directions; give one size",
            )
        seen.setdefault(languages, label)


def cautions(config: Config) -> list[str]:
    """Settings that are possible but have no effect or a surprising one, a sentence each."""
    model, train, decode = config.model, config.train, config.decode
    found = [
        f"data.corpora.{index}.weight 0: its pairs are not trained on, but still read and held out, and their repeats "
        "in other corpora are dropped; take the corpus out to be rid of it"
        for index, corpus in enumerate(config.data.corpora)
        if not corpus.weight
    ]
    if train.schedule != "plateau" and train.warmup_steps >= train.max_steps:
        found.append(
            f"train.warmup_steps {train.warmup_steps} is not below train.max_steps {train.max_steps}: "
            "the learning rate will never reach its peak"
        )
    if train.max_tokens < 2 * model.max_length:
        found.append(
            f"train.max_tokens {train.max_tokens} cannot hold one pair of the longest lines "
            f"(2 x model.max_length = {2 * model.max_length}); such a pair makes a micro-batch of its own"
        )
    if train.workers not in ("auto", 1) and train.max_tokens > train.tokens_per_step:
        found.append(
            f"train.max_tokens {train.max_tokens} is above train.tokens_per_step {train.tokens_per_step}: a step is "
            f"often one micro-batch, and {train.workers} workers have nothing to share; lower max_tokens"
        )
    if train.validate_every > train.max_steps:
        found.append(
            f"train.validate_every {train.validate_every} is beyond train.max_steps {train.max_steps}: "
            "the only validation is the one at the end"
        )
    if train.average > train.keep_checkpoints:
        found.append(
            f"train.average {train.average} is more than train.keep_checkpoints {train.keep_checkpoints}: "
            f"only {train.keep_checkpoints} snapshots are there to average"
        )
    if decode.temperature is None and (decode.top_k is not None or decode.top_p is not None):
        found.append("decode.top_k and decode.top_p have no effect without decode.temperature")
    return found
