"""``xyd config explain``: what a key means, its type, its default."""

from __future__ import annotations

import textwrap
import types
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from xyd.config.problems import model_at, model_in, unknown_key
from xyd.config.sections import Config, FilesSplit
from xyd.config.source import Key, dotted
from xyd.errors import ConfigError

_WIDTH = 100


def explain(key: str = "") -> str:
    """The meaning of ``train.warmup_steps``, of all of ``train``, or, for "", of every section.

    Raises ``ConfigError`` with the nearest valid name for a key that does not exist.
    """
    # Positions in lists mean nothing here: data.corpora.0.files is data.corpora.files.
    parts: Key = tuple(part for part in key.strip().split(".") if part and not part.isdecimal())
    for depth in range(len(parts)):
        model = model_at(parts[:depth])
        if model is None or parts[depth] not in model.model_fields:
            raise ConfigError(f"xyd config explain {key}: {unknown_key(parts[: depth + 1])}")
    if not parts:
        lines = [f"{name:<11}{info.description}" for name, info in Config.model_fields.items()]
        return "\n".join([*lines, "", "More: xyd config explain train, xyd config explain train.warmup_steps"])
    above = model_at(parts[:-1])
    assert above is not None
    info = above.model_fields[str(parts[-1])]
    lines = _field(parts, info)
    inner = model_in(info.annotation)
    if inner is not None:
        lines += _fields(inner, parts)
    return "\n".join(lines)


def _fields(model: type[BaseModel], above: Key) -> list[str]:
    lines: list[str] = []
    for name, info in model.model_fields.items():
        lines += ["", *_field((*above, name), info)]
        inner = model_in(info.annotation)
        if inner is not None and inner is not FilesSplit:  # whose keys are those of a corpus
            lines += _fields(inner, (*above, name))
    return lines


def _field(key: Key, info: FieldInfo) -> list[str]:
    inner = model_in(info.annotation)
    # A section's default is that of its keys.
    needs_default = inner is None or not info.default_factory
    about = _kind(info.annotation) + (f", {_default(info)}" if needs_default else "")
    head = f"{dotted(key)}  ({about})"
    return [head, *textwrap.wrap(info.description or "", _WIDTH, initial_indent="    ", subsequent_indent="    ")]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value: Any = info.default
    if info.default_factory is list:
        return "default []"
    if value is PydanticUndefined or value is None:
        return "default null"
    if isinstance(value, bool):
        return f"default {str(value).lower()}"
    return f"default {value}"


def _kind(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(part) for part in args))
    if origin is typing.Annotated:
        return _kind(args[0])
    if origin is typing.Literal:
        return " | ".join(map(str, args))
    if origin is list:
        return "list"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section" if annotation.__name__ in _SECTIONS else "mapping"
    return {int: "whole number", float: "number", bool: "true | false", str: "text", Path: "path", type(None): "null"}[
        annotation
    ]


_SECTIONS = {info.annotation.__name__ for info in Config.model_fields.values() if isinstance(info.annotation, type)}
