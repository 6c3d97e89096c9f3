"""The configuration: one strict model per YAML section; load, override, check, explain, dump, compare; special ids.

Rooms inside, in the order a file goes through them: ``source`` (YAML 1.2 and ``--set`` to a tree with places),
``inputs`` and ``sections`` (the models), ``problems`` (findings in plain words), ``input_checks`` and ``checks``
(impossible combinations, directions), ``describe`` (``explain``), ``compare`` (``differences``). The only owner of
yaml and pydantic. Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xyd.config.checks import cautions, directions, impossible, used_directions
from xyd.config.compare import Difference, changes_steps, differences
from xyd.config.describe import explain
from xyd.config.inputs import FORMATS, PATH_FORMATS, ROLES, HfConfig, SourceConfig
from xyd.config.problems import collect, keys_at_fault
from xyd.config.sections import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    AugmentConfig,
    Config,
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    EvaluateConfig,
    FilesSplit,
    Filters,
    ModelConfig,
    RunConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
)
from xyd.config.source import Key, Source, assign, read, resolve_paths, to_yaml
from xyd.errors import ConfigError

__all__ = [
    "BOS_ID",
    "EOS_ID",
    "FORMATS",
    "PAD_ID",
    "PATH_FORMATS",
    "ROLES",
    "UNK_ID",
    "AugmentConfig",
    "Config",
    "CorpusConfig",
    "DataConfig",
    "DecodeConfig",
    "Difference",
    "EvaluateConfig",
    "FilesSplit",
    "Filters",
    "HfConfig",
    "ModelConfig",
    "RunConfig",
    "SourceConfig",
    "SplitConfig",
    "TokenizerConfig",
    "TrainConfig",
    "cautions",
    "changes_steps",
    "differences",
    "directions",
    "dump",
    "explain",
    "load",
    "used_directions",
    "with_fold",
]


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """The configuration in the YAML file ``path``, with ``KEY=VALUE`` overrides applied in order.

    Relative input paths are read against ``data.root`` or the YAML's folder, those in overrides and ``run.dir`` against
    the working directory; in the result all are absolute. Raises ``ConfigError`` with every problem at once,
    ``file:line: message`` (or ``--set KEY=VALUE: message``) a line.
    """
    source = read(path)
    if source.problems and not source.tree:
        raise _error(source)
    assign(source, list(overrides), Path(os.path.abspath(".")))
    resolve_paths(source)
    config, faulty = _validate(source)
    if config is not None:
        for keys, what in impossible(config):
            # What was left out because it is wrong in itself was replaced by a default nobody asked for.
            if not any(_related(key, bad) for key in keys for bad in faulty):
                given = next((key for key in keys if key in source.places), keys[0])
                source.complain(given, what)
    if source.problems or config is None:
        raise _error(source)
    return config


# Where a required key is missing or wrong, the rest can still be looked at with one of these in its place.
_STAND_INS: dict[Key, Any] = {
    ("run",): {"name": "name"},
    ("run", "name"): "name",
    ("data",): {"corpora": [{"files": {"en": "a", "zh": "b"}}], "valid": 1},
    ("data", "corpora"): [{"files": {"en": "a", "zh": "b"}}],
    ("data", "valid"): 1,
}


def with_fold(config: Config, fold: int) -> Config:
    """The configuration of the run that has this fold, 1 to `data.split.kfold`, as its test split.

    Its name is that of the whole with `-fold1` and so on. Raises `ConfigError` where there is no such fold.
    """
    split = config.data.split
    if split.kfold is None or not 1 <= fold <= split.kfold:
        there = f"the folds are 1 to {split.kfold}" if split.kfold else "set data.split.kfold to have folds"
        raise ConfigError(f"--fold {fold}: {there}")
    data = config.data.model_copy(update={"split": split.model_copy(update={"fold": fold})})
    run = config.run.model_copy(update={"name": f"{config.run.name}-fold{fold}"})
    return config.model_copy(update={"run": run, "data": data})


def _validate(source: Source) -> tuple[Config | None, list[Key]]:
    """The config, or what can be seen of it once the keys at fault are taken out; and those keys."""
    try:
        return Config.model_validate(source.tree), []
    except ValidationError as error:
        found: ValidationError = error
    faulty = collect(source, found)
    for _ in range(4):
        tree = source.without(faulty)
        for key, value in _STAND_INS.items():
            parent = tree if len(key) == 1 else tree.get(str(key[0]))
            if key in faulty and isinstance(parent, dict):
                parent[str(key[-1])] = value
        try:
            return Config.model_validate(tree), faulty
        except ValidationError as error:
            # Taking a part out can leave its parent without a key it needs; then the parent goes too.
            faulty = faulty + [key[:-1] for key in keys_at_fault(error)]
    return None, faulty


def _related(key: Key, other: Key) -> bool:
    shorter = min(len(key), len(other))
    return key[:shorter] == other[:shorter]


def _error(source: Source) -> ConfigError:
    ordered = sorted(source.problems, key=lambda problem: problem.order)
    return ConfigError("\n".join(dict.fromkeys(map(str, ordered))))


def dump(config: Config) -> str:
    """The whole configuration as YAML with absolute paths; ``load`` of it gives an equal ``Config``."""
    return to_yaml(config.model_dump(mode="json"))
