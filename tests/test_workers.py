"""workers: fixed, kept, by rule or measured; always said, and a run that goes on keeps its number."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import Toy, lines, run_of

from xyd import distributed, memory, plan, workers
from xyd.config import Config
from xyd.files import RunDir
from xyd.search import with_kept_workers
from xyd.train import train
from xyd.workers import choose_workers, fastest

CPU = torch.device("cpu")
LONG = "train.max_steps=100000000"  # by forecast, hours


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function (cores, free bytes, tokens per second by workers): the machine and what a measurement finds there."""

    def pretend(cores: int, free: int | None = None, speeds: dict[int, float] | None = None) -> None:
        def speed(_config: Any, _run: Any, number: int) -> float:
            assert speeds is not None, f"{number} worker(s) were measured"
            return speeds[number]

        monkeypatch.setattr(distributed, "num_cores", lambda: cores)
        monkeypatch.setattr(memory, "free", lambda: free)
        monkeypatch.setattr(workers, "speed", speed)

    return pretend


def choice(config: Config, device: torch.device = CPU) -> tuple[int, str]:
    """The number, and what is said."""
    told: list[str] = []
    return choose_workers(config, run_of(config), device, told.append), "\n".join(told)


@pytest.fixture
def auto(toy: Toy, tmp_path: Path) -> Callable[..., Config]:
    """A function (overrides): the toy run with workers auto and as many threads as there are cores."""
    return lambda *overrides: toy.config(tmp_path, "train.workers=auto", "train.threads=null", *overrides)


def test_a_fixed_number_is_taken_without_a_word(auto: Callable[..., Config], machine: Callable[..., None]) -> None:
    machine(8)
    assert choice(auto("train.workers=3")) == (3, "")
    assert choice(auto("train.workers=12")) == (12, "")


def test_what_is_measured_as_faster_is_chosen_and_said(
    auto: Callable[..., Config], machine: Callable[..., None]
) -> None:
    machine(2, speeds={1: 12_300.0, 2: 15_300.0})
    number, told = choice(auto(LONG))
    assert number == 2
    assert told.splitlines()[-1] == "workers: 2 of 1 thread (15,300 tokens/s; 1 of 2 threads 12,300)"
    machine(2, speeds={1: 15_300.0, 2: 12_300.0})
    assert choice(auto(LONG)) == (
        1,
        "workers: trying 1, 2 for some seconds each\nworkers: 1 of 2 threads (15,300 tokens/s; 2 of 1 thread 12,300)",
    )


def test_more_workers_must_be_worth_their_memory(auto: Callable[..., Config], machine: Callable[..., None]) -> None:
    machine(8)
    config = auto()
    assert fastest(config, {1: 1000.0, 8: 1020.0})[0] == 1
    assert fastest(config, {1: 1000.0, 8: 1040.0})[0] == 8
    assert fastest(config, {1: 1000.0, 4: 1500.0, 8: 1520.0})[0] == 4
    assert fastest(config, {1: 1000.0, 8: 0.0}) == (1, "1,000 tokens/s; 8 of 1 thread could not train")


@pytest.mark.parametrize(
    ("cores", "overrides", "tried"),
    [
        (2, (), {1, 2}),
        (4, ("train.tokens_per_step=2000",), {1, 2, 4}),
        (16, ("train.tokens_per_step=4000",), {1, 4, 16}),
        (16, ("train.tokens_per_step=4000", "train.threads=4"), {1, 2, 4}),
        (16, (), {1, 2, 4}),  # a step has four micro-batches
        (64, ("train.tokens_per_step=128",), {1, 2}),
    ],
)
def test_what_is_tried(
    auto: Callable[..., Config], machine: Callable[..., None], cores: int, overrides: tuple[str, ...], tried: set[int]
) -> None:
    machine(cores, speeds=dict.fromkeys(range(1, 65), 1.0))
    told = choice(auto(LONG, *overrides))[1]
    assert f"trying {', '.join(map(str, sorted(tried)))} for" in told


@pytest.mark.parametrize(
    ("cores", "free", "overrides", "number", "reason"),
    [
        (1, None, (LONG,), 1, "1 of 1 thread (one core)"),
        (2, None, (LONG, "train.threads=2"), 1, "(as train.threads asks)"),
        (8, 600_000_000, (LONG,), 1, "are free)"),
        (2, None, (LONG, "train.max_tokens=5000"), 1, "a step is one micro-batch"),
        (2, None, (), 1, "too short a run for a second process to start"),
        (2, None, ("train.max_epochs=2", LONG), 1, "too short a run for a second process to start"),
        (2, None, ("train.max_minutes=5", LONG), 2, "2 of 1 thread (by rule, for a small model: too short a run to m"),
        (2, None, ("train.max_steps=300000",), 2, "by rule, for a small model: too short a run to measure"),
        (2, None, ("train.max_minutes=5", LONG, "model.d_model=1024", "model.d_ff=9000"), 1, "for a large model: too"),
        (2, None, (LONG, "model.d_model=16000", "model.d_ff=70000"), 1, "for a large model: too large a model to mea"),
    ],
)  # fmt: skip
def test_what_is_chosen_by_rule(
    auto: Callable[..., Config],
    machine: Callable[..., None],
    cores: int,
    free: int | None,
    overrides: tuple[str, ...],
    number: int,
    reason: str,
) -> None:
    machine(cores, free)
    chosen, told = choice(auto(*overrides))
    assert chosen == number
    assert reason in told
    assert told.startswith("workers: ")
    assert told.count("\n") == 0


def test_no_more_workers_than_memory_holds(
    auto: Callable[..., Config], machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "LIBRARIES", 10**9)
    machine(16, 3_900_000_000, speeds=dict.fromkeys(range(1, 17), 1.0))
    assert "trying 1, 3 for" in choice(auto(LONG, "train.tokens_per_step=4000"))[1]


def test_on_gpus_one_unless_asked(
    auto: Callable[..., Config], machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(16)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choice(auto(), torch.device("cuda")) == (1, "workers: 1, on the GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert choice(auto(), torch.device("cuda")) == (1, "workers: 1, on the GPU; train.workers: 4 uses all of them")
    assert choice(auto("train.workers=8"), torch.device("cuda")) == (4, "")


def test_a_run_that_goes_on_keeps_its_number(
    auto: Callable[..., Config], machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(2)
    config = auto(LONG)
    about = run_of(config).run_path
    about.write_text(json.dumps({"workers": 2, "cores": 2}))
    assert choice(config) == (2, "workers: 2, as this run has been trained")
    machine(4, speeds={1: 1.0, 2: 1.0, 4: 2.0})  # moved to another machine, where nothing is the same bit for bit
    assert choice(config)[0] == 4
    for damaged in ("", "[]", '{"workers": null, "cores": 4}', '{"workers": 2}'):
        about.write_text(damaged)
        assert choice(config)[0] == 4


@pytest.mark.slow
def test_a_measured_number_is_trained_with_and_kept(
    auto: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Real processes, but with a short measurement; two workers win whatever the clock says."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # so many cores, for the workers too
    monkeypatch.setattr(workers, "START_SECONDS", 0.0)
    monkeypatch.setattr(workers, "WORTH_MINUTES", 0.0)
    monkeypatch.setattr(workers, "GAIN", 0.0)
    config = auto("train.max_steps=3")
    assert train(config) == 0
    told = capfd.readouterr().err
    assert "workers: 2 of 1 thread (" in told
    assert "2 worker(s) of 1 thread(s)" in told
    about = json.loads(run_of(config).run_path.read_text(encoding="utf-8"))
    assert (about["workers"], about["threads"], about["cores"]) == (2, 1, 2)
    assert [line["step"] for line in lines(run_of(config), "train")] == [1, 2, 3]
    assert train(auto("train.max_steps=5")) == 0
    assert "workers: 2, as this run has been trained" in capfd.readouterr().err


def test_nothing_of_a_measurement_stays(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "MEASURE_SECONDS", 0.2)
    config = toy.config(tmp_path, "train.workers=auto")
    before = sorted(run_of(config).root.rglob("*"))
    assert workers._tokens_per_second(config, workers.prepared_material(run_of(config)), CPU) > 100
    assert sorted(run_of(config).root.rglob("*")) == before


def test_search_workers_are_measured_once_and_kept(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy.config(tmp_path)
    run = run_of(config)
    told: list[str] = []
    measured: list[int] = []

    def speed(_config: Config, _run: RunDir, workers: int) -> float:
        measured.append(workers)
        return {1: 100.0, 2: 150.0}[workers]

    cpu = torch.device("cpu")
    monkeypatch.setattr(distributed, "num_cores", lambda: 2)
    monkeypatch.setattr("xyd.search.num_cores", lambda: 2)
    real = workers.search_speed
    monkeypatch.setattr(workers, "search_speed", speed)
    for _ in range(2):
        workers.choose_search_workers(config, run, cpu, told.append)
    assert measured == [1, 2]
    assert told == ["search workers: 2 of 1 thread (1 100, 2 150 tokens/s)"]
    assert with_kept_workers(config.decode, run).workers == 2
    fixed = config.decode.model_copy(update={"workers": 3})
    assert with_kept_workers(fixed, run).workers == 3
    monkeypatch.setattr("xyd.search.num_cores", lambda: 8)
    assert with_kept_workers(config.decode, run).workers == "auto", "another machine"
    assert real(config, run, 1) > 0
