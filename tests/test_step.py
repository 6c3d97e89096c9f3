"""step: parts add up to the whole, whatever is cut or dealt; step 0 leaves no trace; dropout needs no state."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import Toy, assert_same_run, lines, run_of, weights

from xyd import distributed, step
from xyd.batching import shape
from xyd.config import BOS_ID, ModelConfig
from xyd.errors import XydError
from xyd.model import Transformer
from xyd.optim import Gradients
from xyd.step import StepGradient, Sums, mixed
from xyd.train import Trainer, train

V = 40


class Rows:
    """64 made-up pairs of 1 to 20 tokens."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.src_lengths, self.tgt_lengths = rng.integers(1, 21, (2, 64))
        self._src, self._tgt = (
            [rng.integers(4, V, n) for n in lengths] for lengths in (self.src_lengths, self.tgt_lengths)
        )
        self.direction, self.pair_id = np.zeros(64, dtype=np.int64), np.arange(64) + 1000

    def src_ids(self, i: int) -> np.ndarray:
        return self._src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self._tgt[i]


WHOLE = [np.arange(64)]
EIGHTS = np.split(np.argsort(Rows().tgt_lengths), 8)  # the first is a quarter of the last, and less


def make(dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> StepGradient:
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=16, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, d_ff=32, dropout=dropout,
        attention_dropout=dropout, activation_dropout=dropout, max_length=32,
    )  # fmt: skip
    return StepGradient(Gradients(Transformer(config, V), dtype), Rows(), np.array([BOS_ID]), 0.1, seed=5)


def computed(gradient: StepGradient, micro_batches: list[np.ndarray] = WHOLE, step: int = 1) -> torch.Tensor:
    """Gradient and sums."""
    gradient.compute(micro_batches, step)
    return gradient.gradients.buffer.clone()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """A function (pairs, error): more pairs than that do not fit. Returns the sizes that are tried from now on."""

    def prepare(
        pairs: int, error: type[Exception] = torch.OutOfMemoryError, words: str = "CUDA: too full"
    ) -> list[int]:
        tried: list[int] = []

        def token_loss(states: torch.Tensor, *rest: Any) -> Any:
            tried.append(len(states))
            if len(states) > pairs:
                raise error(words)
            return whole(states, *rest)

        monkeypatch.setattr(step, "token_loss", token_loss)
        return tried

    whole = step.token_loss
    return prepare


# ── one whole, and its parts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(36)
def test_a_batch_of_64_and_8_of_8_give_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of unequal lengths, in one process and dealt to two; the mean of the means would be another."""
    whole = computed(make())
    tokens = [make().num_tokens([rows]) for rows in EIGHTS]
    assert max(tokens) > 4 * min(tokens)
    means = torch.stack([computed(make(), [rows]) for rows in EIGHTS]).mean(0)
    assert not torch.allclose(means[: -len(Sums._fields)], whole[: -len(Sums._fields)], atol=1e-3)
    torch.testing.assert_close(_but_for_padding(computed(make(), EIGHTS)), _but_for_padding(whole), rtol=0, atol=1e-6)
    dealt = torch.zeros_like(whole)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        dealt += computed(make(), EIGHTS)
    torch.testing.assert_close(_but_for_padding(dealt), _but_for_padding(whole), rtol=0, atol=1e-6)


def _but_for_padding(buffer: torch.Tensor) -> torch.Tensor:
    """Gradient and sums per token; how much is padding depends on what is put together."""
    gradient, sums = buffer[: -len(Sums._fields)], Sums(*buffer[-len(Sums._fields) :].tolist())
    num_tokens = int(Rows().tgt_lengths.sum()) + 64
    return torch.cat([gradient, torch.tensor([sums.loss, sums.nll]) / num_tokens])


def test_dropout_does_not_depend_on_who_computes_a_micro_batch_nor_on_what_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = computed(make(dropout=0.3), EIGHTS)
    torch.manual_seed(99)
    assert torch.equal(computed(make(dropout=0.3), EIGHTS), whole)
    assert not torch.allclose(computed(make(dropout=0.3), EIGHTS, step=2), whole, atol=1e-3)
    assert not torch.allclose(computed(make(), EIGHTS), whole, atol=1e-3)
    dealt = torch.zeros_like(whole)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (1, 0):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        dealt += computed(make(dropout=0.3), EIGHTS)
    torch.testing.assert_close(dealt, whole, rtol=1e-6, atol=1e-6)


def test_seeds_are_distinct_and_fit() -> None:
    seeds = {mixed(*numbers) for numbers in [(1, 2, 3), (1, 3, 2), (2, 1, 3), (1, 2, 4), (0, 0, 0), (2**63 - 1, 9, 9)]}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert mixed(1, 2, 3) == mixed(1, 2, 3)


# ── too little memory ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pairs", [40, 20, 1])
def test_what_does_not_fit_is_halved_and_the_gradient_is_that_of_the_whole(
    room: Callable[..., list[int]], dtype: torch.dtype, pairs: int
) -> None:
    whole = computed(make(dtype))
    tried = room(pairs)
    gradient = make(dtype)
    halves = computed(gradient)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(_but_for_padding(halves), _but_for_padding(whole), rtol=0, atol=tolerance)
    assert tried[:2] == [64, 32]
    assert gradient.halved[0] == "64 pairs of 21 + 21 tokens"
    assert (len(gradient.halved) == 1) == (pairs == 40)
    # The next time it is known beforehand.
    before = len(tried)
    torch.testing.assert_close(_but_for_padding(computed(gradient)), _but_for_padding(whole), rtol=0, atol=tolerance)
    assert gradient.halved == []
    assert max(tried[before:]) <= pairs


@pytest.mark.need(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_backward_pass_that_breaks_off_in_the_middle_leaves_nothing_in_the_sum(dtype: torch.dtype) -> None:
    whole = computed(make(dtype), EIGHTS)
    gradient = make(dtype)
    left = [3, 1]  # backward passes until it breaks off, twice

    def full(grad: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] == 0:
            del left[0]
            left.append(10**9)
            raise MemoryError
        return grad

    # The encoder comes last: by then the decoder's gradients have been added.
    gradient.gradients.work.encoder[0].feed_forward.in_proj.weight.register_hook(full)
    halves = computed(gradient, EIGHTS)
    assert len(gradient.halved) == 2
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(_but_for_padding(halves), _but_for_padding(whole), rtol=0, atol=tolerance)


@pytest.mark.need(4)
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError, "CUDA out of memory."),
        (MemoryError, "Unable to allocate 2. GiB for an array"),
        (RuntimeError, "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to …"),
        (RuntimeError, "DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes."),
        (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_a_single_pair_that_does_not_fit_is_the_users_to_mend(
    room: Callable[..., list[int]], error: type[Exception], words: str
) -> None:
    room(0, error, words)
    with pytest.raises(XydError, match=r"a single pair of \d+ \+ \d+ tokens \(pair_id 10\d\d\).*model\.max_length"):
        make().compute(WHOLE, 7)


def test_other_errors_are_no_lack_of_memory(room: Callable[..., list[int]]) -> None:
    room(0, RuntimeError, "mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        make().compute(WHOLE, 1)


@pytest.mark.need(4)
def test_a_run_that_meets_it_goes_on_and_ends_the_same(
    toy: Toy, tmp_path: Path, room: Callable[..., list[int]], capfd: pytest.CaptureFixture[str]
) -> None:
    """Counted, said, an event. One micro-batch of step 7 does not fit, whatever else is as large does from then on."""
    still = ("model.dropout=0.0", "train.epsilon=1e-3")
    whole = toy.config(tmp_path / "whole", *still)
    assert train(whole) == 0
    config = toy.config(tmp_path / "halved", *still)
    compute = StepGradient.compute

    def full_at_7(self: StepGradient, micro_batches: list[np.ndarray], number: int) -> None:
        if number == 7:
            room(6)
        compute(self, micro_batches, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepGradient, "compute", full_at_7)
        assert train(config) == 0
    told = capfd.readouterr().err
    assert "step 7: too little memory for " in told
    (event, *_) = lines(run_of(config), "event")
    assert (event["event"], event["step"], event["why"]) == ("micro-batch halved", 7, "out of memory")
    assert event["shapes"][0] in told
    for name, tensor in weights(run_of(whole)).items():
        torch.testing.assert_close(weights(run_of(config))[name], tensor, rtol=0, atol=1e-6)
    assert [line["nll"] for line in lines(run_of(config), "train")] == pytest.approx(
        [line["nll"] for line in lines(run_of(whole), "train")], abs=1e-5
    )


# ── step 0 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(4)
def test_step_0_computes_the_largest_micro_batch_and_the_one_with_the_longest_row() -> None:
    gradient = make()
    lengths = gradient.split.src_lengths + gradient.split.tgt_lengths
    longest = int(lengths.argmax())
    short = np.argsort(np.maximum(gradient.split.src_lengths, gradient.split.tgt_lengths))[:30]
    plan = [[short[:10], np.array([longest])], [short[10:30]]]
    used, shapes = gradient.rehearse(plan)
    assert shapes == [shape(gradient.split, short[10:30]), shape(gradient.split, np.array([longest]))]
    assert used.peak > 10e6
    assert used.growth >= 0
    assert not gradient.gradients.buffer.any()
    assert gradient.rehearse([[np.array([longest])]])[1] == [shape(gradient.split, np.array([longest]))]


@pytest.mark.need(4)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_step_0_changes_nothing(
    toy: Toy, tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    overrides = ("model.dropout=0.2", "train.max_steps=6", "train.validate_every=3", f"train.precision={precision}")
    with_it = toy.config(tmp_path / "with", *overrides)
    assert train(with_it) == 0
    told = capfd.readouterr().err
    assert "memory, measured: largest micro-batch (" in told
    assert told.index("memory, measured") < told.index("step 3 ")
    monkeypatch.setattr(Trainer, "_rehearse", lambda _self: None)
    without = toy.config(tmp_path / "without", *overrides)
    assert train(without) == 0
    assert_same_run(run_of(with_it), run_of(without))


@pytest.mark.need(4)
def test_what_does_not_fit_is_found_at_step_0(
    toy: Toy, tmp_path: Path, room: Callable[..., list[int]], capfd: pytest.CaptureFixture[str]
) -> None:
    config = toy.config(tmp_path, "train.max_steps=3")
    room(4)
    assert train(config) == 0
    assert {(event["event"], event["step"]) for event in lines(run_of(config), "event")} >= {("micro-batch halved", 0)}
    assert "step 0: too little memory for " in capfd.readouterr().err
    room(0)
    with pytest.raises(XydError, match="step 0: a single pair") as raised:
        train(toy.config(tmp_path, "train.max_steps=4"))
    assert raised.value.exit_code == 2
    assert json.loads(run_of(config).run_path.read_text(encoding="utf-8"))["step"] == 3
