"""Checkpoints: written aside and renamed, verified when read, never a pickle that runs code.

    checkpoints/last/       model.safetensors, state.pt, checkpoint.json     to go on from
    checkpoints/best/       the same, of the best validation so far          to go on from, to use
    checkpoints/step-…/     model.safetensors, checkpoint.json               the best N, for averaging
    checkpoints/averaged/   model.safetensors, checkpoint.json               made at the end

`checkpoint.json` is written last and holds the hash of every file beside it, so a folder is whole or it is not one.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise

from xyd.config import Config, load
from xyd.errors import CheckpointError
from xyd.files import RunDir, atomic_write, free_bytes, sha256_file, sync_folder
from xyd.model import Transformer

WEIGHTS, STATE, INDEX = "model.safetensors", "state.pt", "checkpoint.json"
PREVIOUS = ".previous"  # the suffix of a folder while its successor takes its place


def save(
    run: RunDir,
    names: list[str],
    model: Transformer,
    step: int,
    facts: dict[str, Any],
    state: dict[str, Any] | None = None,
) -> None:
    """Write one checkpoint under each of `names`; names after the first share its files by hard links.

    `facts` (scores; JSON) go into checkpoint.json, `state` (tensors and plain values) into state.pt. Whatever
    happens on the way, the checkpoint that stood there before is whole until the new one has taken its place.
    """
    aside = run.checkpoints_dir / f".writing-{os.getpid()}"
    for left in run.checkpoints_dir.glob(".writing-*"):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        if model.config.tie_embeddings:  # one tensor under one name
            for alias in ("tgt_embedding.weight", "output.weight"):
                del weights[alias]
        atomic_write(aside / WEIGHTS, serialise(weights))
        if state is not None:
            atomic_write(aside / STATE, lambda f: torch.save(state, f))
        hashes = {file.name: sha256_file(file) for file in sorted(aside.iterdir())}
        index = {
            "step": step,
            **facts,
            "vocab_size": model.vocab_size,
            "tokenizer_sha256": sha256_file(run.tokenizer_path),
            "files": hashes,
        }
        atomic_write(aside / INDEX, (json.dumps(index, indent=1) + "\n").encode())
        for name in names[1:]:
            copy = run.checkpoints_dir / f".writing-{os.getpid()}-{name}"
            keeps_state = not name.startswith("step-")
            shutil.copytree(aside, copy, copy_function=_link, ignore=None if keeps_state else _without_state)
            _take_place(copy, run.checkpoints_dir / name)
        _take_place(aside, run.checkpoints_dir / names[0])
    except OSError as e:
        raise CheckpointError(
            f"{run.checkpoints_dir}: the checkpoint could not be written ({e.strerror or e}; "
            f"{free_bytes(run.root) / 1e9:.1f} GB free). What was saved before is whole. Make room and run the same "
            "command again."
        ) from e
    finally:
        for left in run.checkpoints_dir.glob(f".writing-{os.getpid()}*"):
            shutil.rmtree(left, ignore_errors=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _without_state(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == STATE]


def _take_place(new: Path, final: Path) -> None:
    """Two renames: at every moment either `final` or `final.previous` is whole."""
    old = final.with_name(final.name + PREVIOUS)
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(final, old)
    os.replace(new, final)
    sync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _read_index(folder: Path) -> dict[str, Any] | None:
    """checkpoint.json as it stands, its files unread."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return index


def index_of(folder: Path) -> dict[str, Any] | None:
    """checkpoint.json of a whole checkpoint folder; None where something is missing or not as it was written."""
    index = _read_index(folder)
    if index is None:
        return None
    try:
        whole = all(
            (folder / name).is_file() and sha256_file(folder / name) == digest
            for name, digest in index["files"].items()
            if name != STATE or not folder.name.startswith("step-")
        )
    except (OSError, ValueError, KeyError):
        return None
    return index if whole else None


def find(run: RunDir, which: str) -> tuple[Path, dict[str, Any]]:
    """Folder and index of a checkpoint by name, or of the one a killed save left under its previous name."""
    for folder in (run.checkpoints_dir / which, run.checkpoints_dir / (which + PREVIOUS)):
        index = index_of(folder)
        if index is not None:
            return folder, index
    present = [p.name for p in sorted(run.checkpoints_dir.glob("*")) if not p.name.startswith(".")]
    damaged = f"checkpoint {which} is damaged" if which in present else f"there is no checkpoint {which}"
    others = f"present: {', '.join(present)}" if present else "it holds none yet: train it first"
    raise CheckpointError(f"{run.checkpoints_dir}: {damaged}; {others}")


def newest(run: RunDir) -> tuple[Path, dict[str, Any], list[str]] | None:
    """The newest whole checkpoint that training can go on from, and the names of damaged ones that were passed over."""
    whole: list[tuple[int, Path, dict[str, Any]]] = []
    passed_over = []
    for name in ("last", "last" + PREVIOUS, "best", "best" + PREVIOUS):
        folder = run.checkpoints_dir / name
        if not folder.exists():
            continue
        index = index_of(folder)
        if index is None or STATE not in index["files"]:
            passed_over.append(name)
        else:
            whole.append((index["step"], folder, index))
    if not whole:
        if passed_over:
            raise CheckpointError(
                f"{run.checkpoints_dir}: every checkpoint with training state is damaged ({', '.join(passed_over)}). "
                "Start again with --fresh, which moves this run aside and deletes nothing."
            )
        return None
    _, folder, index = max(whole, key=lambda entry: entry[0])
    return folder, index, passed_over


def load_state(folder: Path, device: torch.device) -> dict[str, Any]:
    """state.pt of a checkpoint; tensors only, no code."""
    return torch.load(folder / STATE, map_location=device, weights_only=True)


def load_weights(model: Transformer, folder: Path) -> None:
    """Weights of a checkpoint into `model`, every name accounted for."""
    path = folder / WEIGHTS
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as e:
        raise CheckpointError(f"{path}: cannot be read ({e})") from e
    if model.config.tie_embeddings:
        for alias in ("tgt_embedding.weight", "output.weight"):
            weights[alias] = weights["embedding.weight"]
    own = model.state_dict()
    wrong = [f"{n} is {tuple(weights[n].shape) if n in weights else 'missing'}, expected {tuple(t.shape)}"
             for n, t in own.items() if n not in weights or weights[n].shape != t.shape]  # fmt: skip
    wrong += [f"{n} is not a part of this model" for n in weights if n not in own]
    if wrong:
        raise CheckpointError(f"{path}: does not fit the model of this run: {'; '.join(wrong[:5])}")
    model.load_state_dict(weights)


def snapshots(run: RunDir, metric: str, lowest_first: bool) -> list[tuple[float, str]]:
    """(score, name) of the snapshots that were judged by `metric`, best first."""
    found = []
    for folder in run.checkpoints_dir.glob("step-*"):
        index = _read_index(folder)  # their files are verified when they are averaged
        if index is not None and index.get("metric") == metric and index.get("score") is not None:
            found.append((float(index["score"]), folder.name))
    return sorted(found, reverse=not lowest_first)


def default_name(run: RunDir) -> str:
    """The checkpoint to use where none is named: the one the finished run chose, else best, else last.

    A report that is older than `last`, because the run has gone on since, chooses nothing.
    """
    if run.report_path.exists():
        try:
            report = dict(json.loads(run.report_path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):  # damaged: it chooses nothing
            report = {}
        last = _read_index(run.checkpoints_dir / "last")
        chosen = report.get("checkpoint")
        is_stale = last is not None and last["step"] != report.get("step")
        if chosen and not is_stale and (run.checkpoints_dir / chosen).exists():
            return str(chosen)
    has_best = any((run.checkpoints_dir / name).exists() for name in ("best", "best" + PREVIOUS))
    return "best" if has_best else "last"


def load_model(run: RunDir, which: str | None, device: torch.device) -> Transformer:
    """The model of a checkpoint (None: `default_name`) in fp32, in evaluation mode, with the tokenizer it knows."""
    which = which or default_name(run)
    folder, index = find(run, which)
    check_tokenizer(run, folder, index)
    model = Transformer(saved_config(run).model, index["vocab_size"])
    load_weights(model, folder)
    return model.to(device).eval()


def check_tokenizer(run: RunDir, folder: Path, index: dict[str, Any]) -> None:
    """That the tokenizer in the run directory is the one this checkpoint was trained with."""
    if not run.tokenizer_path.is_file():
        raise CheckpointError(f"{run.tokenizer_path}: no such file; put back the tokenizer of this run")
    digest = sha256_file(run.tokenizer_path)
    if digest != index["tokenizer_sha256"]:
        raise CheckpointError(
            f"{run.tokenizer_path} (sha256 {digest[:12]}) is not the tokenizer that checkpoint {folder.name} was "
            f"trained with (sha256 {index['tokenizer_sha256'][:12]}): ids would mean other pieces. Put the right file "
            "back."
        )


def saved_config(run: RunDir) -> Config:
    """The resolved configuration a run directory carries."""
    if not run.config_path.exists():
        raise CheckpointError(f"{run.root}: is not a run directory (it has no {run.config_path.name})")
    return load(run.config_path)


def average(run: RunDir, names: list[str], model: Transformer) -> None:
    """Set `model` to the mean of the weights of these checkpoints (Vaswani et al. 2017, section 6.1)."""
    total: dict[str, torch.Tensor] = {}
    for name in names:
        load_weights(model, find(run, name)[0])
        for key, tensor in model.state_dict().items():
            total[key] = total[key] + tensor.double() if key in total else tensor.double()
    model.load_state_dict({key: (tensor / len(names)).float() for key, tensor in total.items()})


def keep_snapshots(run: RunDir, names: list[str]) -> None:
    """Delete all snapshots but these."""
    for folder in run.checkpoints_dir.glob("step-*"):
        if folder.name not in names:
            shutil.rmtree(folder, ignore_errors=True)
