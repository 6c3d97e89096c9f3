"""What stands in the run directory and what a new `xyd train` may do with it: start, go on, or leave it alone.

Nothing is ever deleted: `--fresh` moves an old run aside. `run`, `decode`, `evaluate`, limits and patience may change
freely; a changed schedule or optimiser asks for `--reset-schedule`; changed data, tokenizer or model for `--fresh`.
"""

import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from xyd import checkpoint, corpus
from xyd.config import Config, differences, dump
from xyd.errors import CheckpointError
from xyd.files import RunDir, atomic_write
from xyd.progress import TrainState
from xyd.text import RULES_VERSION

FRESH = "start again with --fresh, which moves the old run aside and deletes nothing"
RESET = "go on with --reset-schedule (the weights stay; schedule and optimiser start anew)"


def run_dir(config: Config) -> RunDir:
    return RunDir(Path(config.run.dir) / config.run.name)


def manifest(run: RunDir) -> dict[str, Any]:
    """What `corpus.prepare` wrote about the data."""
    found: dict[str, Any] = json.loads(run.manifest_path.read_text(encoding="utf-8"))
    return found


def make_ready(config: Config, fresh: bool, reset_schedule: bool, say: Callable[[str], None]) -> bool:
    """Prepare data and run directory for training; False where nothing is left to do.

    Raises CheckpointError where the run that stands there was made with settings or data that cannot be changed.
    """
    run = run_dir(config)
    if fresh and run.root.exists():
        aside = run.root.with_name(f"{run.root.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}")
        run.root.rename(aside)
        say(f"--fresh: the old run was moved to {aside}")
    found = checkpoint.newest(run) if run.root.exists() else None
    if found is not None:
        _check_changes(config, run, reset_schedule, say)
        if corpus.fingerprint(config, config.train.init_from) != manifest(run)["fingerprint"]:
            raise CheckpointError(
                f"{run.root}: the data is not what this run was trained on (the input files, or the rules, have "
                f"changed). Put it back, or {FRESH}."
            )
        state = TrainState(**checkpoint.load_state(found[0], torch.device("cpu"))["train_state"])
        reason = state.finished(config)
        if reason and not reset_schedule and run.report_path.exists():
            say(f"{run.root}: already done at step {state.step} ({reason}). Raise that limit to go on.")
            return False
    corpus.prepare(config, run, say, config.train.init_from)
    atomic_write(run.config_path, dump(config))
    return True


def _check_changes(config: Config, run: RunDir, reset_schedule: bool, say: Callable[[str], None]) -> None:
    changes = differences(checkpoint.saved_config(run), config)
    lines = {
        remedy: [f"  {c.key}: {c.old} → {c.new}" for c in changes if c.remedy == remedy]
        for remedy in ("fresh", "reset-schedule", "free")
    }
    for remedy, way_out in (("fresh", FRESH), ("reset-schedule", RESET)):
        if lines[remedy] and not (remedy == "reset-schedule" and reset_schedule):
            changed = "\n".join(lines[remedy])
            raise CheckpointError(
                f"{run.root}: this run was made with other settings (old → new):\n{changed}\n"
                f"Put them back, or {way_out}."
            )
    for remedy, title in (("reset-schedule", "--reset-schedule"), ("free", "changed since the run was saved")):
        if lines[remedy]:
            say("\n".join([f"{title} (old → new):", *lines[remedy]]))


def write_run_json(config: Config, state: TrainState, facts: dict[str, Any]) -> None:
    """run.json: what made this run, so that its numbers can be traced. `facts`: what only the trainer knows."""
    run = run_dir(config)
    libraries = ("xyd", "torch", "sentencepiece", "datasets", "numpy", "sacrebleu", "safetensors")
    record = {
        "name": config.run.name,
        "seed": config.run.seed,
        "rules_version": RULES_VERSION,
        "data_fingerprint": manifest(run)["fingerprint"],
        "step": state.step,
        "epoch": state.epoch,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "metric": config.train.metric,
        "best_step": state.best_step,
        "best_score": state.best_score,
        **facts,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in libraries}},
    }
    atomic_write(run.run_path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
