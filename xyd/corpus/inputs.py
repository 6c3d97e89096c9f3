"""What decides the prepared data: the content of its inputs and the settings, as one hash."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from xyd.config import Config, CorpusConfig, FilesSplit, directions
from xyd.files import RunDir, sha256_bytes, sha256_file
from xyd.text import RULES_VERSION

FORMAT_VERSION = "1"
"""Raise it when `prepare` writes other rows from the same inputs than before."""


def input_hashes(config: Config, run: RunDir | None = None) -> dict[str, str | None]:
    """Path → SHA-256 of every local input file, in the order of the config; None for one that cannot be read.

    Of a file that is gone, what the manifest of `run` says: data prepared from it does not need it any more.
    """
    paths = [path for corpus in config.data.corpora for _, path in _corpus_inputs(corpus)]
    for split in (config.data.valid, config.data.test):
        if isinstance(split, FilesSplit):
            paths += [Path(path) for path in split.files.values()]
    recorded = _recorded_hashes(run) if run is not None else {}
    return {str(p): _sha256(p) or (None if p.exists() else recorded.get(str(p))) for p in dict.fromkeys(paths)}


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
    data = config.data.model_dump(mode="json", exclude={"root"})
    for corpus, entry in zip(config.data.corpora, data["corpora"], strict=True):
        entry["content"] = {name: hashes[str(path)] for name, path in _corpus_inputs(corpus)}
        entry.pop("files")
    for name in ("valid", "test"):
        split = getattr(config.data, name)
        if isinstance(split, FilesSplit):
            data[name] = {lang: hashes[str(path)] for lang, path in split.files.items()}
    decides = {
        "format": FORMAT_VERSION,
        "rules": RULES_VERSION,
        "data": data,
        "directions": directions(config),
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


def _sha256(path: Path) -> str | None:
    """None for a file that cannot be read: the reader will say what is wrong with it."""
    return sha256_file(path) if path.is_file() else None


def _corpus_inputs(corpus: CorpusConfig) -> Iterator[tuple[str, Path]]:
    """(name, path) of a corpus's local files."""
    if corpus.files is not None:
        yield from ((lang, Path(path)) for lang, path in corpus.files.items())
        return
    assert corpus.hf is not None
    given = corpus.hf.data_files
    groups = given.values() if isinstance(given, dict) else [given] if given else []
    patterns = [str(one) for group in groups for one in ([group] if isinstance(group, str) else group)]
    folder = Path(corpus.hf.path)
    if folder.is_dir():
        patterns = [str(Path(glob.escape(str(folder))) / pattern) for pattern in patterns or ["**/*"]]
    for pattern in patterns:
        for path in sorted(map(Path, glob.glob(pattern, recursive=True))):
            if path.is_file():
                yield str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name, path


def tokenizer_path(given: Path) -> Path:
    """A run directory or the model file itself."""
    return RunDir(given).tokenizer_path if given.is_dir() else given
