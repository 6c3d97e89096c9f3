"""checkpoint: whole or not there, whenever the process dies or the disk fills; one tensor for tied weights; no code."""

import errno
import functools
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from toy import Toy, environment, run_of

from xyd import checkpoint
from xyd.config import Config, ModelConfig, TrainConfig, dump
from xyd.distributed import choose_device
from xyd.errors import CheckpointError
from xyd.files import RunDir, sha256_file
from xyd.model import Transformer
from xyd.optim import build_optimizer
from xyd.translate import Translator

VOCAB_SIZE = 71
ALL_NAMES = ["last", "best", "step-{:08d}"]


@pytest.fixture
def config(toy: Toy, tmp_path: Path) -> Config:
    config = toy.config(tmp_path)
    run_of(config).config_path.write_text(dump(config), encoding="utf-8")
    return config


@pytest.fixture
def run(config: Config) -> RunDir:
    return run_of(config)


def make_model(config: ModelConfig, value: float | None = None) -> Transformer:
    """A model with random weights, or with all of them `value`."""
    model = Transformer(config, VOCAB_SIZE)
    if value is not None:
        for parameter in model.parameters():
            parameter.data.fill_(value)
    return model


def make_state(model: Transformer, config: TrainConfig, step: int) -> dict[str, Any]:
    """What a trainer puts into state.pt, after one update."""
    optimizer = build_optimizer(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    values = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data.copy_(value)
    rng = [{"cpu": torch.get_rng_state()}]
    return {"train_state": {"step": step, "history": [[1.0, 2.0, float("nan")]]}, "optimizer": optimizer.state_dict(),
            "rng": rng}  # fmt: skip


def save(run: RunDir, config: Config, step: int, names: list[str]) -> None:
    """A checkpoint whose weights all are its step, so that a mixture would be seen."""
    model, state = made(config.model, config.train, step)
    names = [name.format(step) for name in names]
    checkpoint.save(run, names, model, step, {"metric": "nll", "score": 10.0 - step}, state)


@functools.cache
def made(model_config: ModelConfig, train_config: TrainConfig, step: int) -> tuple[Transformer, dict[str, Any]]:
    model = make_model(model_config, float(step))
    return model, make_state(model, train_config, step)


def assert_whole(folder: Path, index: dict[str, Any], config: Config) -> None:
    """Every part of this checkpoint loads, and all parts are of the step that its index names."""
    model = make_model(config.model)
    checkpoint.load_weights(model, folder)
    assert {float(p.detach().min()) for p in model.parameters()} == {float(index["step"])}
    if checkpoint.STATE in index["files"] and not folder.name.startswith("step-"):
        saved = checkpoint.load_state(folder, torch.device("cpu"))
        assert saved["train_state"]["step"] == index["step"]


def remains(run: RunDir) -> list[str]:
    return [p.name for p in run.checkpoints_dir.iterdir() if p.name.startswith(".") or p.name.endswith(".previous")]


# ── killed, or no room left, at any moment of a save ─────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Nothing after this happens: neither clean-up nor an error message."""


class FileSystem:
    """Counts what changes the file system, and at the Nth call kills the process or is full."""

    CALLS = ("open", "mkdir", "fchmod", "fsync", "replace", "link", "unlink", "rmdir")

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        self.at, self.error, self.count = at, error, 0
        self.calls = {name: getattr(os, name) for name in self.CALLS}

    def __enter__(self) -> "FileSystem":
        for name in self.CALLS:
            setattr(os, name, self._wrapped(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, call in self.calls.items():
            setattr(os, name, call)

    @property
    def is_reached(self) -> bool:
        return self.count >= self.at

    def _wrapped(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            error = self.error()
            # A killed process does nothing any more; a full disk lets one delete.
            if self.count == self.at or (self.count > self.at and isinstance(error, Killed)):
                raise error
            return self.calls[name](*arguments, **options)

        return call


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.need(29)
@pytest.mark.parametrize("names", [ALL_NAMES, ["last"]], ids=["a new best", "only last"])
def test_killed_at_every_change_of_the_file_system_a_whole_checkpoint_is_left(
    run: RunDir, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """Best is of step 1, last of step 2, and the process is killed while it saves step 3."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # counted, but slow
    save(run, config, 1, ["best", "step-{:08d}"])
    save(run, config, 2, ["last"])
    before = tmp_path / "before"
    shutil.copytree(run.checkpoints_dir, before)
    newest, best = set(), set()
    for at in range(1, 1000):
        shutil.rmtree(run.checkpoints_dir)
        shutil.copytree(before, run.checkpoints_dir)
        monkeypatch.setattr(os, "getpid", lambda at=at: 10_000 + at)  # every process has a number of its own
        try:
            with FileSystem(at, Killed) as files:
                save(run, config, 3, names)
        except Killed:
            pass
        assert files.is_reached or at > 20, "the save has fewer steps than it must have"
        found = checkpoint.newest(run)
        assert found is not None
        assert_whole(found[0], found[1], config)
        assert_whole(*checkpoint.find(run, "best"), config)
        for _, name in checkpoint.snapshots(run, "nll", lowest_first=True):
            assert_whole(*checkpoint.find(run, name), config)
        newest.add(found[1]["step"])
        best.add(checkpoint.find(run, "best")[1]["step"])
        monkeypatch.setattr(os, "getpid", lambda at=at: 20_000 + at)
        save(run, config, 4, ALL_NAMES)  # the next save works, and clears up
        assert checkpoint.find(run, "last")[1]["step"] == checkpoint.find(run, "best")[1]["step"] == 4
        assert remains(run) == []
        if not files.is_reached:
            break
    assert newest == {2, 3}
    assert best == ({1, 3} if names == ALL_NAMES else {1})


@pytest.mark.need(29)
def test_a_disk_full_at_any_moment_is_an_error_and_the_earlier_checkpoint_stays(
    run: RunDir, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # counted, but slow
    save(run, config, 1, ALL_NAMES)
    before = tmp_path / "before"
    shutil.copytree(run.checkpoints_dir, before)
    num_refused = 0
    for at in range(1, 1000):
        shutil.rmtree(run.checkpoints_dir)
        shutil.copytree(before, run.checkpoints_dir)
        refused = None
        with FileSystem(at, full) as files:
            try:
                save(run, config, 2, ALL_NAMES)
            except CheckpointError as error:
                refused = str(error)
        if refused is not None:
            num_refused += 1
            assert str(run.checkpoints_dir) in refused
            assert "No space left on device" in refused
            assert "Make room" in refused
        found = checkpoint.newest(run)
        assert found is not None
        assert_whole(found[0], found[1], config)
        assert refused is not None or found[1]["step"] == 2
        assert_whole(*checkpoint.find(run, "best"), config)
        assert not [name for name in remains(run) if name.startswith(".writing")]
        if not files.is_reached:
            break
    assert num_refused > 10


class _FullFile(io.FileIO):
    """Takes as many bytes as there is `room`."""

    room = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if size > _FullFile.room:
            raise full()
        _FullFile.room -= size
        return super().write(data)


@pytest.mark.need(29)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.7, 0.99])
def test_a_disk_that_fills_while_a_file_is_written(
    run: RunDir, config: Config, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Also in the middle of torch.save, which must not turn it into an error of its own."""
    save(run, config, 1, ["last"])
    total = sum(file.stat().st_size for file in (run.checkpoints_dir / "last").iterdir())
    monkeypatch.setattr(_FullFile, "room", int(share * total))
    monkeypatch.setattr(os, "fdopen", lambda handle, mode: io.BufferedWriter(_FullFile(handle, mode)))
    with pytest.raises(CheckpointError, match=r"No space left on device.*What was saved before is whole\. Make room"):
        save(run, config, 2, ["last"])
    monkeypatch.undo()
    assert remains(run) == []
    folder, index = checkpoint.find(run, "last")
    assert index["step"] == 1
    assert_whole(folder, index, config)


@pytest.mark.need(29)
@pytest.mark.parametrize("limit", [1000, 20_000, 60_000])
def test_a_write_that_the_system_refuses(run: RunDir, config: Config, limit: int) -> None:
    """As above, by the kernel itself: no file may grow over `limit` bytes."""
    save(run, config, 1, ["last"])
    sizes = [file.stat().st_size for file in (run.checkpoints_dir / "last").iterdir()]
    assert max(sizes) > limit
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(CheckpointError, match="could not be written"):
            save(run, config, 2, ["last"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint.find(run, "last")[1]["step"] == 1


KILLED_20_TIMES = """
import os, random, signal, sys, time
from pathlib import Path
import torch
sys.path.insert(0, {tests!r})
from test_checkpoint import ALL_NAMES, assert_whole, save
from xyd import checkpoint
from xyd.files import RunDir

run = RunDir(Path(sys.argv[1]))
config = checkpoint.saved_config(run)
torch.set_num_threads(1)
rng = random.Random(1)
save(run, config, 1, ALL_NAMES)
step = 1
for _ in range(20):
    child = os.fork()
    if child == 0:
        for new in range(step + 1, 10**6):
            save(run, config, new, ALL_NAMES)
            checkpoint.keep_snapshots(run, [name for _, name in checkpoint.snapshots(run, "nll", True)[:2]])
    time.sleep(rng.uniform(0.0, 0.25))
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    folder, index, _ = checkpoint.newest(run)
    assert_whole(folder, index, config)
    assert_whole(*checkpoint.find(run, "best"), config)
    assert index["step"] >= step, (index["step"], step)
    step = index["step"]
print("last step", step)
"""


@pytest.mark.slow
@pytest.mark.need(29)
def test_sigkill_at_20_random_moments(run: RunDir) -> None:
    script = KILLED_20_TIMES.format(tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script, str(run.root)], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 5, "hardly anything was saved between the kills"


# ── damage, and what is passed over ──────────────────────────────────────────────────────────────────────────────────


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "short":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()  # the same bytes may stand under another name
        path.write_bytes(data)


@pytest.mark.need(29)
@pytest.mark.parametrize("how", ["missing", "short", "one bit"])
@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.STATE, checkpoint.INDEX])
def test_a_damaged_checkpoint_is_passed_over_by_name(run: RunDir, config: Config, name: str, how: str) -> None:
    save(run, config, 1, ["last", "best"])
    save(run, config, 2, ["last"])
    damage(run.checkpoints_dir / "last" / name, how)
    found = checkpoint.newest(run)
    assert found is not None
    folder, index, passed_over = found
    assert (folder.name, index["step"], passed_over) == ("best", 1, ["last"])
    with pytest.raises(CheckpointError, match=r"checkpoint last is damaged; present: best, last"):
        checkpoint.find(run, "last")


def test_nothing_whole_is_an_error_with_a_remedy_and_nothing_at_all_is_none(run: RunDir, config: Config) -> None:
    assert checkpoint.newest(run) is None
    with pytest.raises(CheckpointError, match="there is no checkpoint best; it holds none yet: train it first"):
        checkpoint.find(run, "best")
    save(run, config, 1, ["last"])
    (run.checkpoints_dir / "last" / checkpoint.STATE).unlink()
    with pytest.raises(CheckpointError, match=r"damaged \(last\).*--fresh"):
        checkpoint.newest(run)


def test_names_share_their_files_and_snapshots_have_no_state(run: RunDir, config: Config) -> None:
    save(run, config, 1, ALL_NAMES)
    last, best, snapshot = (run.checkpoints_dir / name.format(1) for name in ALL_NAMES)
    assert (last / checkpoint.WEIGHTS).samefile(best / checkpoint.WEIGHTS)
    assert (last / checkpoint.STATE).samefile(best / checkpoint.STATE)
    assert sorted(p.name for p in snapshot.iterdir()) == [checkpoint.INDEX, checkpoint.WEIGHTS]
    assert checkpoint.snapshots(run, "nll", lowest_first=True) == [(9.0, "step-00000001")]
    assert checkpoint.snapshots(run, "bleu", lowest_first=False) == []


# ── what is inside ───────────────────────────────────────────────────────────────────────────────────────────────────

WITHOUT_XYD = """
import sys
sys.modules["xyd"] = None
try:
    import xyd
    sys.exit("xyd could be imported")
except ImportError:
    pass
import torch
from safetensors.torch import load_file
saved = torch.load(sys.argv[1] + "/state.pt", weights_only=True)
weights = load_file(sys.argv[1] + "/model.safetensors")
print(saved["train_state"]["step"], len(saved["optimizer"]["state"]), len(weights))
"""


@pytest.mark.need(13)
def test_every_file_opens_where_xyd_cannot_be_imported(run: RunDir, config: Config) -> None:
    save(run, config, 5, ["last"])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_XYD, str(run.checkpoints_dir / "last")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    step, num_moments, num_tensors = map(int, done.stdout.split())
    parameters = len(list(make_model(config.model).parameters()))
    assert (step, num_moments, num_tensors) == (5, parameters, parameters)


@pytest.mark.need(21)
def test_a_checkpoint_made_on_a_gpu_opens_without_one(
    run: RunDir, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.serialization, "location_tag", lambda _storage: "cuda:0"
    )  # as a GPU would have written it
    save(run, config, 1, ["last"])
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = run.checkpoints_dir / "last" / checkpoint.STATE
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path, weights_only=True)
    assert checkpoint.load_state(path.parent, choose_device("auto"))["train_state"]["step"] == 1


def tied(model: Transformer) -> bool:
    return model.output.weight is model.embedding.weight is model.tgt_embedding.weight


@pytest.mark.need(39)
def test_tied_weights_are_one_tensor_on_disk_after_loading_moving_and_averaging(run: RunDir, config: Config) -> None:
    for step in (1, 2):
        save(run, config, step, ["last", "step-{:08d}"])
    with safe_open(run.checkpoints_dir / "last" / checkpoint.WEIGHTS, framework="pt") as file:
        names = set(file.keys())
    assert "embedding.weight" in names
    assert not names & {"tgt_embedding.weight", "output.weight"}
    model = checkpoint.load_model(run, "last", torch.device("cpu"))
    assert tied(model)
    assert tied(model.to(torch.float64).to("cpu").float())
    checkpoint.load_weights(model, run.checkpoints_dir / "step-00000001")
    assert tied(model)
    checkpoint.average(run, ["step-00000001", "step-00000002"], model)
    assert tied(model)
    assert set(model.output.weight.unique().tolist()) == {1.5}
    checkpoint.save(run, ["averaged"], model, 2, {"average_of": ["step-00000001", "step-00000002"]})
    assert tied(checkpoint.load_model(run, "averaged", torch.device("cpu")))


def test_weights_that_are_not_tied_come_back_each_on_its_own(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path, "model.tie_embeddings=false")
    run = run_of(config)
    run.config_path.write_text(dump(config), encoding="utf-8")
    model = make_model(config.model)
    checkpoint.save(run, ["last"], model, 1, {})
    loaded = checkpoint.load_model(run, "last", torch.device("cpu"))
    assert not tied(loaded)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_an_average_is_the_mean_of_the_weights(run: RunDir, config: Config) -> None:
    models: list[dict[str, Tensor]] = []
    names = [f"step-{i:08d}" for i in range(3)]
    for i, name in enumerate(names):
        torch.manual_seed(i)
        model = make_model(config.model)
        models.append({key: tensor.clone() for key, tensor in model.state_dict().items()})
        checkpoint.save(run, [name], model, i, {})
    average = make_model(config.model)
    checkpoint.average(run, names, average)
    for key, tensor in average.state_dict().items():
        torch.testing.assert_close(tensor, torch.stack([m[key] for m in models]).mean(0), rtol=1e-6, atol=1e-7)


# ── what does not belong together ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(39)
def test_another_tokenizer_is_refused_by_hash_with_both_names(run: RunDir, config: Config) -> None:
    save(run, config, 1, ["best"])
    assert Translator.load(run.root, "best", "cpu").translate(["ba be"])[0].source == "ba be"
    right = sha256_file(run.tokenizer_path)
    run.tokenizer_path.write_bytes(run.tokenizer_path.read_bytes() + b"\x00")
    wrong = sha256_file(run.tokenizer_path)
    with pytest.raises(CheckpointError) as raised:
        Translator.load(run.root, "best", "cpu")
    told = str(raised.value)
    assert str(run.tokenizer_path) in told
    assert "checkpoint best" in told
    assert wrong[:12] in told
    assert right[:12] in told


@pytest.mark.need(39)
@pytest.mark.parametrize("change", ["model.d_model=32", "model.num_encoder_layers=2", "model.tie_embeddings=false"])
def test_weights_of_another_model_are_refused_by_name(run: RunDir, toy: Toy, tmp_path: Path, change: str) -> None:
    config = toy.config(tmp_path)
    save(run, config, 1, ["last"])
    other = Transformer(toy.config(tmp_path, change).model, VOCAB_SIZE)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: does not fit the model of this run: .*expected"):
        checkpoint.load_weights(other, run.checkpoints_dir / "last")
    if change != "model.d_model=32":
        bigger = Transformer(config.model, VOCAB_SIZE + 1)
        with pytest.raises(CheckpointError, match=r"embedding.weight is \(71, 16\), expected \(72, 16\)"):
            checkpoint.load_weights(bigger, run.checkpoints_dir / "last")


def test_the_default_is_what_the_finished_run_chose(run: RunDir, config: Config) -> None:
    save(run, config, 1, ["last"])
    assert checkpoint.default_name(run) == "last"
    save(run, config, 2, ["last", "best"])
    assert checkpoint.default_name(run) == "best"
    save(run, config, 2, ["averaged"])
    run.report_path.write_text(json.dumps({"checkpoint": "averaged", "step": 2}), encoding="utf-8")
    assert checkpoint.default_name(run) == "averaged"
    save(run, config, 3, ["last"])  # the run has gone on: the report is of yesterday
    assert checkpoint.default_name(run) == "best"
    save(run, config, 2, ["last"])
    shutil.rmtree(run.checkpoints_dir / "averaged")
    assert checkpoint.default_name(run) == "best"
