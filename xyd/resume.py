"""What stands in the run directory and what a new `xyd train` may do with it: start, go on, or leave it alone.

Nothing is ever deleted: `--fresh` moves an old run aside. `run`, `decode`, `evaluate`, limits and patience may change
freely; a changed schedule or optimiser asks for `--reset-schedule`; changed data, tokenizer or model for `--fresh`.
"""

import itertools
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
from xyd.files import Lock, RunDir, atomic_write
from xyd.progress import TrainState
from xyd.text import RULES_VERSION

FRESH = "start again with --fresh, which moves the old run aside and deletes nothing"
RESET = "go on with --reset-schedule (the weights stay; schedule and optimiser start anew)"


def run_dir(config: Config) -> RunDir:
    return RunDir(Path(config.run.dir) / config.run.name)


def manifest(run: RunDir) -> dict[str, Any]:
    """What `corpus.prepare` wrote about the data."""
    try:
        found: dict[str, Any] = json.loads(run.manifest_path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise CheckpointError(f"{run.manifest_path}: missing or damaged ({e}); put it back, or {FRESH}") from e
    return found


def make_ready(
    config: Config, fresh: bool, reset_schedule: bool, say: Callable[[str], None], strict: bool = False
) -> bool:
    """Prepare data and run directory for training; False where nothing is left to do.

    Raises CheckpointError where the run that stands there was made with settings or data that cannot be changed.
    """
    run, tokenizer_from = run_dir(config), config.train.init_from
    if fresh and run.root.exists():
        if tokenizer_from is not None and tokenizer_from.resolve() == run.root.resolve():
            raise CheckpointError(f"{run.root}: --fresh would move away the run that train.init_from names")
        aside = _unused(run.root.with_name(f"{run.root.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}"))
        run.root.rename(aside)
        say(f"--fresh: the old run was moved to {aside}")
    found = checkpoint.newest(run) if run.root.exists() else None
    if found is not None:
        check_changes(config, run, reset_schedule, say)
        tokenizer_from = _check_data(config, run)
        state = TrainState(**checkpoint.load_state(found[0], torch.device("cpu"))["train_state"])
        reason = state.finished(config)
        if reason and not reset_schedule and _reported_step(run) == state.step:
            atomic_write(run.config_path, dump(config))  # what may change freely (decode, say) holds from now on
            say(f"{run.root}: already done at step {state.step} ({reason}). Raise that limit to go on.")
            return False
    elif tokenizer_from is not None and not RunDir(tokenizer_from).checkpoints_dir.is_dir():
        raise CheckpointError(
            f"train.init_from {tokenizer_from}: no run directory with checkpoints; `xyd train` makes one"
        )
    corpus.prepare(config, run, say, tokenizer_from, strict)
    if found is None or not reset_schedule:  # a reset is true only once it is saved: write_run_json keeps it then
        atomic_write(run.config_path, dump(config))
    return True


def prepare(config: Config, say: Callable[[str], None], strict: bool = False) -> None:
    """The data alone. Raises CheckpointError where a model stands there that was trained on other data."""
    run = run_dir(config)
    with Lock(run):
        is_trained = run.root.exists() and checkpoint.newest(run) is not None
        corpus.prepare(config, run, say, _check_data(config, run) if is_trained else config.train.init_from, strict)


def explain(config: Config, place: str) -> str:
    """What became of the pairs at `place`, once the data is prepared."""
    return corpus.explain(config, run_dir(config), place)


def _unused(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, … that does not exist."""
    names = (path.with_name(f"{path.name}-{i}") for i in itertools.count(2))
    return path if not path.exists() else next(name for name in names if not name.exists())


def _check_data(config: Config, run: RunDir) -> Path | None:
    """That the run was prepared from the data of `config`; where its tokenizer comes from.

    A run that took its tokenizer from another has it for its own now: `train.init_from` may go, and so may its run.
    """
    prepared = manifest(run)["fingerprint"]
    hashes = corpus.input_hashes(config, run)
    for tokenizer_from in (None, run.tokenizer_path):
        if corpus.fingerprint(config, tokenizer_from, hashes) == prepared:
            return tokenizer_from
    raise CheckpointError(
        f"{run.root}: the data is not what this run was trained on (the input files, or the rules, have changed). "
        f"Put it back, or {FRESH}."
    )


def _reported_step(run: RunDir) -> int | None:
    """The step at whose end report.json was written."""
    if not run.report_path.exists():
        return None
    step: int = json.loads(run.report_path.read_text(encoding="utf-8"))["step"]
    return step


def check_changes(config: Config, run: RunDir, reset_schedule: bool, say: Callable[[str], None]) -> None:
    """Raises CheckpointError where the run was made with settings that it cannot go on with; says the other changes."""
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
    if config.train.schedule in ("cosine", "linear") and any(c.key == "train.max_steps" for c in changes):
        say(f"the rate of the schedule {config.train.schedule} follows the new train.max_steps from here on")


def write_run_json(config: Config, state: TrainState, facts: dict[str, Any]) -> None:
    """run.json: what made this run, so that its numbers can be traced. `facts`: what only the trainer knows.

    config.yaml goes with it, so that it tells the settings under which the checkpoint beside it was made.
    """
    run = run_dir(config)
    atomic_write(run.config_path, dump(config))
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
