"""What must hold on a GPU as it does on a CPU. `scripts/gpu_check.sh` runs these; XYD_CHECK_DEVICE=cpu is a dry run."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from xyd.batching import pad_sources
from xyd.config import BOS_ID, EOS_ID, DecodeConfig, ModelConfig, TrainConfig
from xyd.loss import token_loss
from xyd.model import Transformer, seed_dropout
from xyd.optim import Gradients, build_optimizer
from xyd.search import Searcher

DEVICE = torch.device(os.environ.get("XYD_CHECK_DEVICE", "cuda"))
V = 600
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning"),
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="torch sees no GPU here"),
]


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Products of fp32 in fp32, not in TF32; kernels that add up in the same order each time."""
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def make_model(**given: object) -> Transformer:
    torch.manual_seed(1)
    settings: dict = {
        "d_model": 64,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "d_ff": 128,
        "max_length": 64,
        "dropout": 0.0,
    }
    model = Transformer(ModelConfig(**{**settings, **given}), V)
    with torch.no_grad():
        model.output.bias[EOS_ID] = 1.0
    return model


def make_batch(size: int = 12) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """src, its mask, tgt_in, tgt_out: rows of 3 to 20 ids; the target is the source."""
    generator = torch.Generator().manual_seed(2)
    rows = [
        torch.randint(10, V, (int(n),), generator=generator).tolist()
        for n in torch.randint(3, 20, (size,), generator=generator)
    ]
    src, src_mask = pad_sources(rows)
    tgt_in = torch.cat([torch.full((size, 1), BOS_ID), src[:, :-1].masked_fill(src[:, :-1] == EOS_ID, 0)], dim=1)
    return src, src_mask, tgt_in, src


def compute(model: Transformer, device: torch.device, dtype: torch.dtype) -> tuple[float, Tensor]:
    """Loss per token and flat gradient of one batch, on the CPU."""
    gradients = Gradients(copy.deepcopy(model).to(device), dtype)
    src, src_mask, tgt_in, tgt_out = (x.to(device) for x in make_batch())
    states = gradients.work(src, src_mask, tgt_in)
    loss = token_loss(states, tgt_out, gradients.work.output, 0.1)
    (loss.loss_sum / loss.num_tokens).backward()
    gradients.collect()
    return float(loss.loss_sum.detach()) / loss.num_tokens, gradients.flat.cpu().clone()


def test_loss_and_gradients_are_those_of_the_cpu() -> None:
    expected, grad = compute(make_model(), torch.device("cpu"), torch.float32)
    got, got_grad = compute(make_model(), DEVICE, torch.float32)
    assert got == pytest.approx(expected, rel=1e-5)
    assert float((got_grad - grad).norm() / grad.norm()) < 1e-4


def test_bf16_is_near() -> None:
    expected, grad = compute(make_model(), torch.device("cpu"), torch.float32)
    got, got_grad = compute(make_model(), DEVICE, torch.bfloat16)
    assert got == pytest.approx(expected, rel=0.01)
    assert float(torch.cosine_similarity(got_grad, grad, dim=0)) > 0.999


def search(precision: str, beam_size: int, device: torch.device, *, capture: bool = False) -> list[list]:
    sources = [row[row > EOS_ID].tolist() for row in make_batch(40)[0]]
    config = DecodeConfig(precision=precision, capture=capture, max_tokens=400)  # type: ignore[arg-type]
    searcher = Searcher(make_model().eval().to(device), config, device, [0, BOS_ID])
    return searcher.search(sources, BOS_ID, [len(ids) + 5 for ids in sources], beam_size, 1.0, n_best=1)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_search_finds_what_it_finds_on_the_cpu(beam_size: int) -> None:
    expected = search("fp32", beam_size, torch.device("cpu"))
    got = search("fp32", beam_size, DEVICE)
    same = sum(a[0].ids == b[0].ids for a, b in zip(got, expected, strict=True))
    assert same >= len(expected) - 1  # a tie may fall the other way
    scores = [a[0].score for a in expected]
    assert [a[0].score for a in got] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("beam_size", [1, 5])
def test_captured_steps_give_what_single_ones_give(beam_size: int, precision: str) -> None:
    expected = search(precision, beam_size, DEVICE)
    got = search(precision, beam_size, DEVICE, capture=True)
    same = sum(a[0].ids == b[0].ids for a, b in zip(got, expected, strict=True))
    assert same >= len(expected) - (1 if precision == "fp32" else 4)
    if precision == "fp32":
        assert [a[0].score for a in got] == pytest.approx([b[0].score for b in expected], abs=1e-3)


def train(
    steps: range, model: Transformer, optimizer_state: dict | None, dtype: torch.dtype
) -> tuple[dict, dict, list]:
    gradients = Gradients(model.train(), dtype)
    optimizer = build_optimizer(model, TrainConfig(learning_rate=0.003))
    if optimizer_state is not None:
        optimizer.load_state_dict(optimizer_state)
    src, src_mask, tgt_in, tgt_out = (x.to(DEVICE) for x in make_batch())
    losses = []
    for step in steps:
        gradients.zero()
        seed_dropout(step)
        loss = token_loss(gradients.work(src, src_mask, tgt_in), tgt_out, gradients.work.output, 0.0)
        (loss.loss_sum / loss.num_tokens).backward()
        gradients.collect()
        gradients.clip(float(gradients.norm()), 1.0)
        optimizer.step()
        gradients.refresh()
        losses.append(float(loss.nll_sum) / loss.num_tokens)
    return copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_learns_and_goes_on_from_a_saved_state_bit_for_bit(dtype: torch.dtype) -> None:
    straight, _, losses = train(range(60), make_model(dropout=0.1).to(DEVICE), None, dtype)
    assert losses[-1] < losses[0] / 2
    weights, optimizer_state, _ = train(range(25), make_model(dropout=0.1).to(DEVICE), None, dtype)
    resumed = make_model(dropout=0.1).to(DEVICE)
    resumed.load_state_dict(weights)
    again, _, _ = train(range(25, 60), resumed, optimizer_state, dtype)
    for name, weight in straight.items():
        assert torch.equal(again[name], weight), name


def test_a_run_of_the_trainer_stops_and_goes_on_bit_for_bit(toy, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("datasets")
    from toy import assert_same_run, run_of

    from xyd.train import train as run

    where = (f"train.device={DEVICE.type}", "model.dropout=0.1", "train.precision=auto", "train.validate_every=5")
    straight = toy.config(tmp_path / "straight", *where)
    assert run(straight) == 0
    half = toy.config(tmp_path / "half", *where, "train.max_steps=10")
    assert run(half) == 0
    assert run(toy.config(tmp_path / "half", *where)) == 0
    assert_same_run(run_of(straight), run_of(half))
