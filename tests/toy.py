"""A toy task that a tiny model trains on in a second, and what tests of training want to know of its runs.

The language xx has 25 words of two letters, and so has yy; a sentence of 2 to 8 words is translated word by word and
turned around. No corpus could be smaller and still need both attention and order.
"""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import xyd
from xyd import checkpoint, corpus
from xyd.config import Config, load
from xyd.files import RunDir
from xyd.runlog import read_metrics

XX = [a + b for a in "bdfgk" for b in "aeiou"]
YY = [a + b for a in "lmnpr" for b in "aeiou"]

YAML = """
run: {name: toy}
data:
  corpora: [{files: {xx: toy.xx, yy: toy.yy}}]
  directions: [xx-yy]
  valid: 20
  test: 20
tokenizer: {vocab_size: 71, byte_fallback: false}
augment: {scale: 0}
model: {d_model: 16, num_encoder_layers: 1, num_decoder_layers: 1, num_heads: 2, d_ff: 32, max_length: 32}
train:
  tokens_per_step: 256
  max_tokens: 128             # four micro-batches a step, more or less
  learning_rate: 0.01
  warmup_steps: 10
  max_steps: 20
  validate_every: 10
  log_every: 1
  patience: null
  precision: fp32
  device: cpu
  workers: 1
  threads: 1
evaluate: {bleu_every: 0, valid_sentences: 10, samples: 2}
decode: {beam_size: 2}
"""


def translate(sentence: list[int]) -> tuple[str, str]:
    """Word numbers → the sentence in xx and in yy."""
    return " ".join(XX[word] for word in sentence), " ".join(YY[word] for word in reversed(sentence))


def write_corpus(folder: Path, num_pairs: int, *, shuffled: bool = False) -> None:
    """toy.xx, toy.yy, toy.yaml. `shuffled`: which target belongs to which source is left to chance."""
    rng = random.Random(7)
    sentences = sorted({tuple(rng.choices(range(25), k=rng.randint(2, 8))) for _ in range(2 * num_pairs)})
    pairs = [translate(list(sentence)) for sentence in rng.sample(sentences, num_pairs)]
    targets = [tgt for _, tgt in pairs]
    if shuffled:
        rng.shuffle(targets)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.xx").write_text("".join(f"{src}\n" for src, _ in pairs), encoding="utf-8")
    (folder / "toy.yy").write_text("".join(f"{tgt}\n" for tgt in targets), encoding="utf-8")
    (folder / "toy.yaml").write_text(YAML, encoding="utf-8")


@dataclass(frozen=True)
class Toy:
    """The corpus in a folder, prepared once for all tests."""

    folder: Path

    @property
    def yaml(self) -> Path:
        return self.folder / "toy.yaml"

    @classmethod
    def make(cls, folder: Path) -> "Toy":
        write_corpus(folder, 300)
        toy = cls(folder)
        config = load(toy.yaml, [f"run.dir={folder}"])
        corpus.prepare(config, RunDir(folder / "toy"), lambda _text: None)
        return toy

    def config(self, root: Path, *overrides: str) -> Config:
        """The toy run in root/toy, where the data already lies prepared; `overrides` as after --set."""
        if not (root / "toy").exists():
            shutil.copytree(self.folder / "toy", root / "toy")
        return load(self.yaml, [f"run.dir={root}", *overrides])


def toy_config(corpus: Path, *overrides: str) -> Config:
    """The toy run of the files in `corpus`, unprepared, to be made in the folder `runs` beside it."""
    return load(corpus / "toy.yaml", [f"run.dir={corpus.parent / 'runs'}", *overrides])


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and content, every folder's name."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else (0, b"")
        for path in sorted(folder.rglob("*"))
    }


def run_of(config: Config) -> RunDir:
    return RunDir(Path(config.run.dir) / config.run.name)


def weights(run: RunDir, name: str = "last") -> dict[str, torch.Tensor]:
    return load_file(run.checkpoints_dir / name / checkpoint.WEIGHTS)


def state(run: RunDir, name: str = "last") -> dict[str, Any]:
    return checkpoint.load_state(run.checkpoints_dir / name, torch.device("cpu"))


def lines(run: RunDir, kind: str) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl of one kind: train, valid, event."""
    return [line for line in read_metrics(run.metrics_path) if line["kind"] == kind]


def untimed(line: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl without what a clock had a part in."""
    clocked = ("time", "tokens_per_second", "data_wait_share", "seconds", "time_share")
    return {key: value for key, value in line.items() if key not in clocked}


def assert_same_run(one: RunDir, other: RunDir) -> None:
    """Weights, optimiser, counters and all that was logged are the same, bit for bit."""
    for name in ("last", "best"):
        first, second = weights(one, name), weights(other, name)
        assert first.keys() == second.keys()
        different = [key for key in first if not torch.equal(first[key], second[key])]
        assert not different, f"{name}: {different}"
    assert_same(*(_unclocked(state(run)) for run in (one, other)))
    for kind in ("train", "valid"):
        assert [untimed(line) for line in lines(one, kind)] == [untimed(line) for line in lines(other, kind)]


def assert_same(one: Any, other: Any, at: str = "state") -> None:
    """Nested dicts and lists of tensors and plain values are equal."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            assert_same(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{at}[{i}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), at
    else:
        assert one == other, at


def _unclocked(saved: dict[str, Any]) -> dict[str, Any]:
    train_state = {key: value for key, value in saved["train_state"].items() if "seconds" not in key}
    for window in ("window", "since_validation"):
        train_state[window] = {k: v for k, v in train_state[window].items() if "seconds" not in k}
    return {**saved, "train_state": train_state}


def environment() -> dict[str, str]:
    """For a process that uses the xyd under test, on one thread."""
    here = Path(xyd.__file__).parents[1]
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return {**kept, "PYTHONPATH": str(here), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start `python *arguments`; stderr is read with `communicate`."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


# `xyd train …` of which the process of one rank meets a fate at the start of a step. The workers that it spawns run
# these lines too.
FATED = """
import os, signal, sys
from xyd.train import Trainer

rank, step, number, target = {rank!r}, {step}, signal.{signal}, {target!r}
train_step = Trainer.train_step

def fated(self, micro_batches):
    if os.environ.get("RANK", "0") == rank and self.state.step == step:
        os.kill(os.getpid() if target == "self" else os.getppid(), number)
    return train_step(self, micro_batches)

Trainer.train_step = fated

if __name__ == "__main__":
    from xyd.cli import main
    sys.exit(main(sys.argv[1:]))
"""


def fated(folder: Path, *, step: int, signal: str, rank: str = "0", target: str = "self") -> Path:
    """A script that is `xyd`, but sends `signal` to itself or its parent ("parent") at `step` on `rank`."""
    path = folder / f"fated_{signal}_{step}.py"
    path.write_text(FATED.format(rank=rank, step=step, signal=signal, target=target), encoding="utf-8")
    return path
