"""distributed: two processes are as one, whoever dies takes the others along, a signal reaches all of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import Toy, environment, fated, lines, run_of, state, weights

from xyd import checkpoint, distributed
from xyd.batching import plan_epoch, share
from xyd.config import Config, dump
from xyd.corpus import open_split
from xyd.errors import ConfigError, XydError
from xyd.files import RunDir
from xyd.resume import make_ready
from xyd.train import train

# One process and two must agree: no dropout, and no gradient that is only rounding (as those of key biases, which
# softmax takes no notice of) may be blown up to a step by a small epsilon. Micro-batches are a few sentences.
EQUAL = ("model.dropout=0.0", "train.epsilon=1e-3", "train.max_tokens=60", "train.max_steps=12")
ONE_OR_TWO, THREE_OR_FOUR = "train.tokens_per_step=40", "train.tokens_per_step=90"  # micro-batches in a step


def write_config(config: Config, path: Path) -> Path:
    path.write_text(dump(config), encoding="utf-8")
    return path


def xyd(*arguments: str | Path, script: tuple[str | Path, ...] = ("-m", "xyd")) -> "subprocess.CompletedProcess[str]":
    """Run it to its end, in processes of its own."""
    return subprocess.run(
        [sys.executable, *map(str, (*script, *arguments))],
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
    )


def alone(toy: Toy, root: Path, *overrides: str) -> RunDir:
    """What one process makes of it, by accumulation."""
    config = toy.config(root, *EQUAL, *overrides)
    assert train(config) == 0
    return run_of(config)


def assert_close(one: RunDir, other: RunDir) -> None:
    """Every gradient norm, loss and weight is the same but for the order of additions."""
    figures = ("loss", "nll", "gradient_norm/before_clipping", "tokens", "padding_share", "learning_rate")
    for first, second in zip(lines(one, "train"), lines(other, "train"), strict=True):
        assert [first[name] for name in figures] == pytest.approx([second[name] for name in figures], abs=1e-6)
    second_weights = weights(other)
    for name, tensor in weights(one).items():
        torch.testing.assert_close(second_weights[name], tensor, rtol=0, atol=1e-6, msg=name)


# ── two processes ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("tokens", "counts"), [(ONE_OR_TWO, {1, 2}), (THREE_OR_FOUR, {3, 4})])
def test_the_steps_of_these_tests_are_uneven(toy: Toy, tmp_path: Path, tokens: str, counts: set[int]) -> None:
    """Some have an odd number of micro-batches, and some only one, so that a worker has nothing to do."""
    config = toy.config(tmp_path, *EQUAL, tokens)
    split, t = open_split(run_of(config), "train"), config.train
    lengths = split.src_lengths, split.tgt_lengths
    steps = plan_epoch(*lengths, max_tokens=t.max_tokens, tokens_per_step=t.tokens_per_step, seed=1, epoch=0)
    assert {len(step) for step in steps[: t.max_steps]} == counts
    assert share([5], 2) == [[0], []]


@pytest.mark.slow
@pytest.mark.need(16)
@pytest.mark.need(36)
@pytest.mark.parametrize(
    ("workers", "tokens", "launcher"),
    [
        (2, THREE_OR_FOUR, ("-m", "xyd")),
        (1, ONE_OR_TWO, ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "xyd")),
    ],
    ids=["train.workers", "torchrun"],
)
def test_two_processes_train_as_one_and_end(
    toy: Toy, tmp_path: Path, workers: int, tokens: str, launcher: tuple[str, ...]
) -> None:
    config = toy.config(tmp_path / "two", *EQUAL, tokens, f"train.workers={workers}")
    done = xyd("train", write_config(config, tmp_path / "two.yaml"), script=launcher)
    assert done.returncode == 0, done.stderr
    assert "2 worker(s) of 1 thread(s)" in done.stderr
    assert done.stderr.count("training is over") == 1
    assert_close(alone(toy, tmp_path / "one", tokens), run_of(config))
    saved = state(run_of(config))
    assert len(saved["rng"]) == 2
    assert not torch.equal(saved["rng"][0]["cpu"], saved["rng"][1]["cpu"]), "both would drop out the same units"


@pytest.mark.slow
@pytest.mark.need(16)
def test_a_worker_that_dies_takes_the_others_along_and_the_run_goes_on(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Killed in step 6, after the save of step 5; then SIGTERM to the parent in step 8; then one process ends it."""
    overrides = (*EQUAL, ONE_OR_TWO, "train.save_every=5")
    config = toy.config(tmp_path / "two", *overrides, "train.workers=2")
    path = write_config(config, tmp_path / "two.yaml")
    began = time.monotonic()
    killed = xyd("train", path, script=(fated(tmp_path, step=6, signal="SIGKILL", rank="1"),))
    assert time.monotonic() - began < 60
    assert killed.returncode == 1, killed.stderr
    assert "worker 1 was killed by signal 9; the other workers are being ended" in killed.stderr
    found = checkpoint.newest(run_of(config))
    assert found is not None
    assert (found[0].name, found[1]["step"]) == ("last", 5)
    checkpoint.load_weights(checkpoint.load_model(run_of(config), "last", torch.device("cpu")), found[0])

    stopped = xyd("train", path, script=(fated(tmp_path, step=8, signal="SIGTERM", target="parent"),))
    assert stopped.returncode == 143, stopped.stderr
    step = checkpoint.find(run_of(config), "last")[1]["step"]
    assert step in (8, 9)  # the signal takes a moment from the parent to the workers
    assert f"interrupted: step {step} is saved" in stopped.stderr
    assert "Traceback" not in stopped.stderr

    assert train(toy.config(tmp_path / "two", *overrides, "train.workers=1")) == 0
    assert "1 worker(s) instead of 2: other dropout" in capfd.readouterr().err
    assert_close(alone(toy, tmp_path / "one", ONE_OR_TWO), run_of(config))


# ── the launcher, without training ───────────────────────────────────────────────────────────────────────────────────

LAUNCHED = """
import os, signal, sys, time
from xyd import distributed

def work(what):
    rank = os.environ["RANK"]
    if what == "codes":
        return 2
    if what == "early SIGTERM" and rank == "0":  # both have no handler of their own yet
        os.kill(os.getppid(), signal.SIGTERM)
    if what == "early SIGINT":  # as a terminal sends it
        if rank == "0":
            os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
    if what == "deaf":
        if rank == "0":
            raise RuntimeError("broken")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(30)

if __name__ == "__main__":
    distributed.END_SECONDS = 1.0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it from birth
    sys.exit(distributed.launch(work, 2, (sys.argv[1],)))
"""


@pytest.mark.slow
@pytest.mark.need(16)
@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("codes", 2, ""),
        ("deaf", 1, "worker 0 failed; the other workers are being ended"),
        ("early SIGTERM", 143, ""),
        ("early SIGINT", 130, ""),
    ],
)
def test_what_becomes_of_the_launcher(tmp_path: Path, what: str, code: int, told: str) -> None:
    script = tmp_path / "launched.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    began = time.monotonic()
    done = xyd(what, script=(script,))
    assert time.monotonic() - began < 60
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert ("Traceback" in done.stderr) == (code == 1), done.stderr


def test_without_peers_everything_is_one_process() -> None:
    tensor = torch.ones(3)
    assert distributed.sum_in_place(tensor) is tensor
    assert tensor.tolist() == [1, 1, 1]
    assert distributed.gather("x") == ["x"]
    assert distributed.from_main("x") == "x"
    assert (distributed.rank(), distributed.world_size(), distributed.is_main()) == (0, 1, True)
    with pytest.raises(XydError, match="told"):
        distributed.on_main(_failing)


def _failing() -> None:
    raise XydError("told")


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function (number): torch sees that many GPUs."""

    def pretend(number: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)

    return pretend


@pytest.mark.need(21)
@pytest.mark.parametrize("workers", [1, 2])
def test_cuda_where_there_is_none_is_an_error_before_anything_is_done(
    toy: Toy, tmp_path: Path, gpus: Any, workers: int
) -> None:
    gpus(0)
    assert distributed.choose_device("auto") == torch.device("cpu")
    config = toy.config(tmp_path, "train.device=cuda", f"train.workers={workers}", "run.name=never")
    with pytest.raises(ConfigError, match=r"device cuda: .* sees no CUDA device here; use device auto or cpu"):
        train(config)
    assert not (tmp_path / "never").exists()


@pytest.mark.need(21)
def test_every_local_rank_has_a_gpu_of_its_own_and_no_more_work_than_there_are(
    gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(2)
    assert distributed.choose_device("auto") == torch.device("cuda")
    assert distributed.choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"device cuda:2: torch sees only 2 CUDA device"):
        distributed.choose_device("cuda:2")
    assert distributed.usable_workers(8, torch.device("cuda")) == 2
    assert distributed.usable_workers(8, torch.device("cpu")) == 8
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert distributed.choose_device("auto") == torch.device("cuda:1")


def test_bf16_is_chosen_where_the_hardware_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for has, dtype in (({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16),
                       ({"avx2": True}, torch.float32)):  # fmt: skip
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has)
        assert distributed.choose_dtype("auto", cpu) == dtype
    assert distributed.choose_dtype("bf16", cpu) == torch.bfloat16
    assert distributed.choose_dtype("fp32", cpu) == torch.float32


def test_all_threads_are_given_back() -> None:
    assert torch.get_num_threads() == 1
    with distributed.all_threads(None):
        assert torch.get_num_threads() == distributed.num_cores()
    assert torch.get_num_threads() == 1
    assert distributed.num_cores() <= (os.cpu_count() or 1)


def test_signals_are_left_as_they_were(toy: Toy, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    config = toy.config(tmp_path, "train.max_steps=1")
    assert make_ready(config, False, False, lambda _text: None)
    assert train(config) == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
