"""Pydantic's findings → sentences for people, with the nearest valid name."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from xyd.config.sections import Config
from xyd.config.source import Key, Source, dotted

# Names other toolkits use, for which spelling alone does not find ours.
_KNOWN_ELSEWHERE = {
    "lr": "train.learning_rate",
    "batch_size": "train.tokens_per_step",
    "epochs": "train.max_epochs",
    "num_epochs": "train.max_epochs",
    "train_steps": "train.max_steps",
    "warmup": "train.warmup_steps",
    "early_stopping": "train.patience",
    "gradient_accumulation": "train.tokens_per_step",
    "accum_count": "train.tokens_per_step",
    "update_freq": "train.tokens_per_step",
    "num_workers": "train.workers",
    "world_size": "train.workers",
    "hidden_size": "model.d_model",
    "embedding_dim": "model.d_model",
    "nhead": "model.num_heads",
    "heads": "model.num_heads",
    "vocab": "tokenizer.vocab_size",
    "beam": "decode.beam_size",
    "lenpen": "decode.length_penalty",
    "dev": "data.valid",
    "validation": "data.valid",
    "output_dir": "run.dir",
    "model_dir": "run.dir",
}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The section model inside ``Annotated``, ``list``, ``X | None`` and the like; None for a plain field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in typing.get_args(annotation):
        found = model_in(part) if not isinstance(part, str) else None
        if found is not None:
            return found
    return None


def model_at(key: Key) -> type[BaseModel] | None:
    """The model whose fields may stand directly under ``key``; positions in lists are passed over."""
    model: type[BaseModel] | None = Config
    for part in key:
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        model = model_in(model.model_fields[part].annotation)
    return model


def every_key(model: type[BaseModel] = Config, above: Key = ()) -> Iterator[Key]:
    """All keys of the configuration, sections before what is in them."""
    for name, info in model.model_fields.items():
        yield (*above, name)
        inner = model_in(info.annotation)
        if inner is not None:
            yield from every_key(inner, (*above, name))


def unknown_key(key: Key) -> str:
    """``unknown key train.warmup_step; did you mean train.warmup_steps?``"""
    what = f"unknown key {dotted(key)}"
    parent, name = key[:-1], str(key[-1])
    model = model_at(parent)
    siblings = list(model.model_fields) if model else []
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.7)
    if close:
        return f"{what}; did you mean {dotted((*parent, close[0]))}?"
    same = [other for other in every_key() if other[-1] == name]
    if same:
        return f"{what}; did you mean {' or '.join(dotted(other) for other in same)}?"
    if name.lower() in _KNOWN_ELSEWHERE:
        return f"{what}; did you mean {_KNOWN_ELSEWHERE[name.lower()]}?"
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.5)
    if close:
        return f"{what}; did you mean {dotted((*parent, close[0]))}?"
    last_names = {str(other[-1]): other for other in every_key()}
    close = difflib.get_close_matches(name, list(last_names), n=1, cutoff=0.75)
    if close:
        return f"{what}; did you mean {dotted(last_names[close[0]])}?"
    place = f"the keys of {dotted(parent)}" if parent else "the sections"
    return f"{what}; {place} are {', '.join(siblings)}" if siblings else what


def as_yaml(value: Any) -> str:
    """A value as a person wrote it: null, true, 'text', 12."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _expected(key: Key, kind: str, context: dict[str, Any]) -> str | None:
    if key in (("data", "valid"), ("data", "test")):
        return "a size (pairs per language pair), sizes by direction, or files: {en: …, zh: …}"
    bound = next((context[name] for name in ("ge", "gt", "le", "lt") if name in context), None)
    return {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "int_parsing_size": "a smaller whole number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "string_type": "text",
        "string_too_short": "some text",
        "bool_type": "true or false",
        "list_type": "a list, [a, b]",
        "dict_type": "a mapping, {en: …, zh: …}",
        "model_type": "keys and values",
        "model_attributes_type": "keys and values",
        "path_type": "a path",
        "is_instance_of": "a path",
        "greater_than_equal": f"at least {bound}",
        "greater_than": f"more than {bound}",
        "less_than_equal": f"at most {bound}",
        "less_than": f"less than {bound}",
    }.get(kind)


def plain_words(key: Key, error: Any) -> str:
    """One finding of pydantic as a sentence that names the key, what was expected and what was given."""
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    name = dotted(key)
    if kind == "extra_forbidden":
        return unknown_key(key)
    if kind == "missing":
        above = model_at(key[:-1])
        info = above.model_fields.get(str(key[-1])) if above else None
        return f"missing key {name}" + (f": {info.description}" if info and info.description else "")
    if kind == "value_error":
        return f"{name}: {context['error']}"
    if kind == "literal_error":
        choices = _choices(key)
        close = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{name}: expected {', '.join(choices[:-1])} or {choices[-1]}, got {as_yaml(value)}{hint}"
    if kind == "too_short":
        least, things = context.get("min_length", 1), "languages" if key[-1] in ("files", "languages") else "entries"
        return f"{name}: needs at least {least} {things if least > 1 else 'entry'}, got {context.get('actual_length')}"
    expected = _expected(key, kind, context) or f"something else ({error['msg']})"
    hint = ""
    if kind in ("int_type", "float_type") and isinstance(value, str):
        bare = value.replace("_", "").replace(",", "").replace(" ", "")
        if bare.lstrip("+-").replace(".", "", 1).isdigit():
            hint = f"; write {bare}" + (" without quotes" if bare == value else "")
    elif kind == "string_type" and isinstance(value, bool | int | float):
        hint = "; put it in quotes"
    elif kind == "bool_type" and str(value).lower() in ("yes", "on", "no", "off", "0", "1"):
        hint = f"; write {'true' if str(value).lower() in ('yes', 'on', '1') else 'false'}"
    or_null = " or null" if "number" in expected and _takes_null(key) else ""
    return f"{name}: expected {expected}{or_null}, got {as_yaml(value)}{hint}"


def _annotation(key: Key) -> Any:
    model = model_at(key[:-1])
    info = model.model_fields.get(str(key[-1])) if model else None
    return info.annotation if info else None


def _takes_null(key: Key) -> bool:
    annotation = _annotation(key)
    return typing.get_origin(annotation) in (typing.Union, types.UnionType) and type(None) in typing.get_args(
        annotation
    )


def _choices(key: Key) -> list[str]:
    return [str(choice) for choice in typing.get_args(_annotation(key))]


def _key(error: Any) -> Key:
    # Tags such as "<files>" tell which form of a union was meant; "[key]" says that the key itself is at fault.
    return tuple(part for part in error["loc"] if not (isinstance(part, str) and part.startswith(("<", "[key]"))))


def keys_at_fault(found: ValidationError) -> list[Key]:
    """The keys that pydantic complains about."""
    return [_key(error) for error in found.errors(include_url=False)]


def collect(source: Source, found: ValidationError) -> list[Key]:
    """Note every finding in ``source.problems``; the keys that are at fault come back."""
    for error in found.errors(include_url=False):
        key = _key(error)
        source.complain(key[:-1] if error["type"] == "missing" else key, plain_words(key, error))
    return keys_at_fault(found)
