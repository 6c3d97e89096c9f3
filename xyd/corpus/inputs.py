"""What decides the prepared data: the content of its inputs and the settings, as one hash."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from xyd.config import PATH_FORMATS, Config, FilesSplit, HfConfig, SourceConfig, directions, used_directions
from xyd.files import RunDir, sha256_bytes, sha256_file
from xyd.formats import local_files
from xyd.text import RULES_VERSION

FORMAT_VERSION = "3"
"""Raise it when `prepare` writes other rows from the same inputs than before."""


def input_hashes(config: Config, run: RunDir | None = None) -> dict[str, str | None]:
    """Path → SHA-256 of every local input file, in the order of the config; None for one that cannot be read.

    Of a file that is gone, what the manifest of `run` says: data prepared from it does not need it any more.
    """
    recorded = _recorded_hashes(run) if run is not None else {}
    paths = [path for source in _sources(config) for path in _source_files(source, recorded)]
    return {str(p): _sha256(p) or (None if p.exists() else recorded.get(str(p))) for p in dict.fromkeys(paths)}


def _sources(config: Config) -> list[SourceConfig]:
    own = [split for split in (config.data.valid, config.data.test) if isinstance(split, FilesSplit)]
    return [*config.data.corpora, *own]


def _recorded_hashes(run: RunDir) -> dict[str, str | None]:
    """Path → SHA-256 of the files that a run was prepared from; nothing where its manifest cannot be read."""
    try:
        inputs = json.loads(run.manifest_path.read_text(encoding="utf-8"))["inputs"]
        return {entry["path"]: entry["sha256"] for entry in inputs}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def fingerprint(
    config: Config, tokenizer_from: Path | None = None, hashes: Mapping[str, str | None] | None = None
) -> str:
    """Hash of all that decides the prepared data: content of the inputs, rules and settings, not names or times.

    `hashes`: what `input_hashes` said, if it is known already. Data sets of the hub count by name and revision.
    """
    hashes = input_hashes(config) if hashes is None else hashes
    data = config.data.model_dump(mode="json", exclude={"root", "temperature", "corpora"})
    data["corpora"] = sorted(_settings(corpus, hashes) for corpus in config.data.corpora)
    for name in ("valid", "test"):
        split = getattr(config.data, name)
        if isinstance(split, FilesSplit):
            data[name] = _settings(split, hashes)
    decides = {
        "format": FORMAT_VERSION,
        "rules": RULES_VERSION,
        "data": data,
        "directions": directions(config),
        "augment": config.augment.model_dump(mode="json") if config.augment.scale else None,
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "tokenizer_from": _sha256(tokenizer_path(tokenizer_from)) if tokenizer_from else None,
        "max_length": config.model.max_length,
        "seed": config.run.seed,
    }
    return sha256_bytes(json.dumps(decides, sort_keys=True).encode())


def is_prepared(config: Config, run: RunDir) -> bool:
    """Whether the run's data was made under these settings from files of these names; their content is not read."""
    recorded = _recorded_hashes(run)
    tokenizer_from = config.train.init_from
    try:
        current = [fingerprint(config, given, recorded) for given in {None, tokenizer_from, run.tokenizer_path}]
        return bool(json.loads(run.manifest_path.read_text(encoding="utf-8"))["fingerprint"] in current)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def prepared_order(config: Config, run: RunDir) -> list[int]:
    """`content_order` from what the manifest says of the files; only where the data `is_prepared`."""
    return content_order(config, _recorded_hashes(run))


def content_order(config: Config, hashes: Mapping[str, str | None]) -> list[int]:
    """Positions in `data.corpora` in an order that content and settings decide: that of the manifest and the rows.

    So which of several repeats stays, and the order of rows, do not depend on the order in the config. Corpora with
    more directions come first: the first of equal pairs stays, and it must not take a direction away. `hashes`: from
    `input_hashes`.
    """
    corpora = config.data.corpora
    names = [
        (
            -len(used_directions(config, corpus)),
            _settings(corpus, hashes),
            list(map(str, _source_files(corpus, hashes))),
        )
        for corpus in corpora
    ]
    return sorted(range(len(corpora)), key=names.__getitem__)


def _settings(source: SourceConfig, hashes: Mapping[str, str | None]) -> str:
    """What decides the pairs of a source, as text: the content of its files, and its settings."""
    # A file that lies elsewhere is no other data, and how often pairs are seen does not change which there are.
    moved = {*PATH_FORMATS, *source.side_files, "weight", "cap"}
    entry = source.model_dump(mode="json", exclude=moved)
    return json.dumps({**entry, "content": _content(source, hashes)}, sort_keys=True)


def _sha256(path: Path) -> str | None:
    """None for a file that cannot be read: the reader will say what is wrong with it."""
    return sha256_file(path) if path.is_file() else None


def _content(source: SourceConfig, hashes: Mapping[str, str | None]) -> dict[str, Any]:
    """What the files of a source hold, by language or, in the order in which they are read, as a list."""
    if by_language := source.files_by_language | source.side_files:
        return {"format": source.format, **{name: hashes[str(path)] for name, path in by_language.items()}}
    if source.hf is not None:
        return {"format": "hf", **{name: hashes[str(path)] for name, path in _hub_files(source.hf)}}
    return {"format": source.format, "files": [hashes[str(path)] for path in _source_files(source, hashes)]}


def _source_files(source: SourceConfig, known: Mapping[str, str | None]) -> list[Path]:
    """The local files of a source, in the order of reading; of a folder or glob that is gone, those `known` from it."""
    if source.hf is not None:
        return [path for _, path in _hub_files(source.hf)]
    files = local_files(source)
    if files and all(path.exists() or str(path) in known for path in files):
        return files
    gone = [
        path
        for path in sorted(map(Path, known), key=lambda path: (path.name, str(path)))
        if any(path.is_relative_to(given) or fnmatch(str(path), str(given)) for given in source.paths)
    ]
    return gone or files


def _hub_files(hf: HfConfig) -> Iterator[tuple[str, Path]]:
    """(name, path) of a data set's local files."""
    given = hf.data_files
    groups = given.values() if isinstance(given, dict) else [given] if given else []
    patterns = [str(one) for group in groups for one in ([group] if isinstance(group, str) else group)]
    folder = Path(hf.path)
    if folder.is_dir():
        patterns = [str(Path(glob.escape(str(folder))) / pattern) for pattern in patterns or ["**/*"]]
    for pattern in patterns:
        for path in sorted(map(Path, glob.glob(pattern, recursive=True))):
            if path.is_file():
                yield str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name, path


def tokenizer_path(given: Path) -> Path:
    """A run directory or the model file itself."""
    return RunDir(given).tokenizer_path if given.is_dir() else given
