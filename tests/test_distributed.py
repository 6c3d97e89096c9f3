"""distributed: two processes are as one, whoever dies takes the others along, a signal reaches all of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import Toy, environment, fated, lines, run_of, weights

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


def assert_close(one: RunDir, other: RunDir, *, halved: bool = False) -> None:
    """Every gradient norm, loss and weight is the same but for the order of additions; `halved` ones pad less."""
    figures = ["loss", "nll", "gradient_norm/before_clipping", "tokens", "learning_rate"]
    figures += [] if halved else ["padding_share"]
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


@pytest.mark.slow
@pytest.mark.need(36)
def test_two_workers_have_the_same_loss_curve_with_dropout_on(toy: Toy, tmp_path: Path) -> None:
    """Validation too, with BLEU, is computed by both and is the same."""
    overrides = (
        "decode.precision=fp32", "model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1",
        "train.epsilon=1e-3", "train.max_tokens=60", "train.tokens_per_step=90", "train.max_steps=30",
        "evaluate.bleu_every=1",
    )  # fmt: skip
    one, two = toy.config(tmp_path / "one", *overrides), toy.config(tmp_path / "two", *overrides, "train.workers=2")
    assert train(one) == 0
    done = xyd("train", write_config(two, tmp_path / "two.yaml"))
    assert done.returncode == 0, done.stderr
    losses = [[line["loss"] for line in lines(run_of(config), "train")] for config in (one, two)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0][-1] < losses[0][0] - 0.5
    for first, second in zip(*(lines(run_of(config), "valid") for config in (one, two)), strict=True):
        assert first["nll"] == pytest.approx(second["nll"], abs=1e-5)
        assert (first["bleu"], first["chrf"]) == pytest.approx((second["bleu"], second["chrf"]), abs=1e-6)
    reports = [json.loads(run_of(config).report_path.read_text(encoding="utf-8")) for config in (one, two)]
    samples = [report["test"]["directions"]["xx-yy"]["samples"] for report in reports]
    assert samples[0] == samples[1]


@pytest.mark.slow
@pytest.mark.need(16)
def test_two_workers_stop_at_the_same_minute_of_one_clock(toy: Toy, tmp_path: Path) -> None:
    limits = "train.max_minutes=0.05", "train.max_steps=1000000", "train.validate_every=1000000"
    config = toy.config(tmp_path, *limits, "train.workers=2")
    done = xyd("train", write_config(config, tmp_path / "two.yaml"))
    assert done.returncode == 0, done.stderr
    assert "training is over: max_minutes = 0.05 reached" in done.stderr
    assert run_of(config).report_path.exists()
    first, *_, last = lines(run_of(config), "train")
    assert last["time"] - first["time"] > 2.0


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
    assert_close(alone(toy, tmp_path / "one", ONE_OR_TWO), run_of(config))


LATE = """
import os, signal, sys
from xyd.cli import main
from xyd.train import Trainer

finish = Trainer._finish

def endless(self):
    if os.environ["RANK"] == "0":
        os.kill(os.getppid(), signal.SIGTERM)
    for _ in range(10_000):
        self._evaluate_valid(with_bleu=True)
    finish(self)

Trainer._finish = endless

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.need(16)
def test_a_signal_in_the_last_evaluation_ends_both_workers_at_once(toy: Toy, tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE, encoding="utf-8")
    config = toy.config(tmp_path / "two", "train.workers=2")
    done = xyd("train", write_config(config, tmp_path / "two.yaml"), script=(script,))
    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr
    assert checkpoint.find(run_of(config), "last")[1]["step"] == 20
    assert not run_of(config).report_path.exists()


# ── two ranks, each with a part of the work ──────────────────────────────────────────────────────────────────────────

RANKS = """
import json, sys
from pathlib import Path
import numpy as np, torch
from xyd import corpus, distributed, step
from xyd.batching import start_ids
from xyd.config import load
from xyd.errors import XydError
from xyd.evaluate import evaluate_split
from xyd.files import RunDir
from xyd.train import Trainer, train
from xyd.translate import Translator

def work(what, folder):
    distributed.start(torch.device("cpu"))
    try:
        result = globals()[what](Path(folder))
    except XydError as e:
        result = str(e)
    (Path(folder) / f"{distributed.world_size()}-{distributed.rank()}.json").write_text(json.dumps(result))
    distributed.stop()
    return 0

def gradient(folder):
    config = load(folder / "toy.yaml", [f"run.dir={folder}", "model.dropout=0.0"])
    trainer = Trainer(config, torch.device("cpu"))
    rows = np.arange(64)
    trainer.gradient.compute([rows] if distributed.world_size() == 1 else np.split(rows, 8), 1)
    return distributed.sum_in_place(trainer.gradients.flat).tolist()

def evaluation(folder):
    translator = Translator.load(folder / "toy", "last", "cpu")
    split = corpus.open_split(RunDir(folder / "toy"), "valid")
    return evaluate_split(translator, split, samples=20, max_tokens=60).as_dict()

def parts(_folder):
    found = distributed.spread("abcde", lambda letters: [f"{letter}{distributed.rank()}" for letter in letters])
    def failing():
        if distributed.rank() == 1:
            raise XydError(f"rank 1, after {found}")
        return "fine"
    return distributed.on_all(failing)

if __name__ == "__main__":
    what, folder, ranks = sys.argv[1:]
    sys.exit(distributed.launch(work, int(ranks), (what, folder)))
"""


def of_ranks(folder: Path, what: str, ranks: int = 2) -> list[Any]:
    """What each rank found."""
    script = folder / "ranks.py"
    script.write_text(RANKS, encoding="utf-8")
    done = xyd(what, folder, ranks, script=(script,))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{ranks}-{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.need(36)
def test_a_batch_of_64_and_two_processes_with_8_of_8_give_the_same_gradient(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path)
    (tmp_path / "toy.yaml").write_text(dump(config), encoding="utf-8")
    (whole,), (first, second) = of_ranks(tmp_path, "gradient", 1), of_ranks(tmp_path, "gradient")
    assert first == second
    assert first == pytest.approx(whole, abs=1e-6)
    assert max(map(abs, whole)) > 0.01


@pytest.mark.slow
def test_two_processes_evaluate_as_one(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path, "train.max_steps=30", "train.validate_every=30", "decode.precision=fp32")
    assert train(config) == 0
    (whole,), (first, second) = of_ranks(tmp_path, "evaluation", 1), of_ranks(tmp_path, "evaluation")
    assert first == second
    assert first["nll"] == pytest.approx(whole["nll"], abs=1e-9)
    directions = [found["directions"]["xx-yy"] for found in (first, whole)]
    assert len(directions[0]["samples"]) == 20
    for name in ("samples", "bleu", "chrf", "num_tokens", "statuses"):
        assert directions[0][name] == directions[1][name], name


@pytest.mark.slow
@pytest.mark.need(16)
def test_results_are_in_order_and_an_error_of_one_rank_is_everybodys(tmp_path: Path) -> None:
    assert of_ranks(tmp_path, "parts") == ["rank 1, after ['a0', 'b1', 'c0', 'd1', 'e0']"] * 2


CROWDED = """
import os, sys, torch
from xyd import step
from xyd.cli import main
from xyd.train import Trainer

room, token_loss = int(os.environ["ROOM"]), step.token_loss

def crowded(states, *rest):
    if os.environ.get("RANK") == "1" and len(states) > room:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return token_loss(states, *rest)

step.token_loss = crowded
if room == 0:
    Trainer._rehearse = lambda self: None  # so that it is met in a step

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.need(4)
@pytest.mark.need(16)
def test_too_little_memory_on_one_rank_is_said_by_the_other_and_nobody_hangs(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "crowded.py"
    script.write_text(CROWDED, encoding="utf-8")
    config = toy.config(tmp_path / "two", *EQUAL, THREE_OR_FOUR, "train.workers=2")
    path = write_config(config, tmp_path / "two.yaml")
    monkeypatch.setenv("ROOM", "3")
    done = xyd("train", path, script=(script,))
    assert done.returncode == 0, done.stderr
    assert "step 0: too little memory for " in done.stderr
    events = [(event["event"], event["step"]) for event in lines(run_of(config), "event")]
    assert events[0] == ("micro-batch halved", 0)
    assert {event for event, _ in events} == {"micro-batch halved"}
    assert_close(alone(toy, tmp_path / "one", THREE_OR_FOUR), run_of(config), halved=True)

    began = time.monotonic()
    monkeypatch.setenv("ROOM", "0")
    done = xyd("train", path, "--set", "train.max_steps=15", script=(script,))
    assert time.monotonic() - began < 60
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("step 13: a single pair of ") == 1
    assert "Traceback" not in done.stderr


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


def test_threads_are_an_even_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= distributed.num_cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(distributed, "num_cores", lambda: 8)
    assert [distributed.num_threads(None, workers) for workers in (1, 2, 3, 8, 16)] == [8, 4, 2, 1, 1]
    assert [distributed.num_threads(wanted, 2) for wanted in (1, 4, 99)] == [1, 4, 8]


def test_signals_are_left_as_they_were(toy: Toy, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    config = toy.config(tmp_path, "train.max_steps=1")
    assert make_ready(config, False, False, lambda _text: None)
    assert train(config) == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
