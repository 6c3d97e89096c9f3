"""optim: schedules at their corners, who decays, one flat gradient that clips and steps as torch's own."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from xyd.batching import make_batch
from xyd.config import BOS_ID, ModelConfig, TrainConfig
from xyd.loss import token_loss
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer, learning_rate

V = 30
SIZES: dict[str, Any] = {
    "d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "d_ff": 24,
    "max_length": 40, "dropout": 0.0,
}  # fmt: skip


def make_model(**changes: Any) -> Transformer:
    return Transformer(ModelConfig(**{**SIZES, **changes}), V)


class MadeUpSplit:
    """Sentence pairs of unequal lengths, ids drawn once."""

    def __init__(self, num_rows: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.src_lengths, self.tgt_lengths = rng.integers(1, 30, (2, num_rows)).astype(np.int32)
        self.direction = np.zeros(num_rows, dtype=np.int16)
        self.pair_id = np.arange(num_rows)
        self.src = [rng.integers(4, V, n) for n in self.src_lengths]
        self.tgt = [rng.integers(4, V, n) for n in self.tgt_lengths]

    def src_ids(self, i: int) -> np.ndarray:
        return self.src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self.tgt[i]


def backward(model: nn.Module, split: MadeUpSplit, rows: np.ndarray, divisor: float) -> None:
    batch = make_batch(split, rows, np.array([BOS_ID]))
    loss = token_loss(model(batch.src, batch.src_mask, batch.tgt_in), batch.tgt_out, model.output, 0.1)  # type: ignore[arg-type]
    (loss.loss_sum / divisor).backward()


# ── learning rates ───────────────────────────────────────────────────────────────────────────────────────────────────


def settings(schedule: str, **changes: Any) -> TrainConfig:
    values = {"learning_rate": 0.004, "warmup_steps": 100, "max_steps": 1000, "min_learning_rate": 1e-5, **changes}
    return TrainConfig(**{"schedule": schedule, **values})


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant", "plateau"])
def test_every_schedule_rises_in_a_line_to_its_peak(schedule: str) -> None:
    config = settings(schedule)
    assert [learning_rate(step, config) for step in (0, 1, 50, 100)] == pytest.approx([0.0, 0.00004, 0.002, 0.004])
    rates = [learning_rate(step, config) for step in range(1200)]
    assert max(rates) == rates[100]
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[101] == pytest.approx(rates[100], rel=0.01)  # no jump after the warm-up
    assert all(rate >= 1e-5 for rate in rates[100:])


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"),
    [
        ("inverse_sqrt", 0.004 * math.sqrt(100 / 550), 0.004 * math.sqrt(0.1)),
        ("cosine", (0.004 + 1e-5) / 2, 1e-5),
        ("linear", (0.004 + 1e-5) / 2, 1e-5),
        ("constant", 0.004, 0.004),
        ("plateau", 0.004, 0.004),
    ],
)
def test_schedules_halfway_and_at_the_end(schedule: str, halfway: float, end: float) -> None:
    config = settings(schedule)
    assert learning_rate(550, config) == pytest.approx(halfway)
    assert learning_rate(1000, config) == pytest.approx(end)
    if schedule in ("cosine", "linear"):
        assert learning_rate(5000, config) == pytest.approx(1e-5)  # and stays there


def test_the_floor_holds() -> None:
    assert learning_rate(10**9, settings("inverse_sqrt")) == 1e-5
    assert learning_rate(500, settings("plateau"), plateau_factor=1e-9) == 1e-5
    assert learning_rate(500, settings("plateau"), plateau_factor=0.25) == pytest.approx(0.001)


@pytest.mark.need(18)
@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant", "plateau"])
def test_a_schedule_begun_later_warms_up_anew_and_ends_in_time(schedule: str) -> None:
    config, shorter = settings(schedule), settings(schedule, max_steps=600)
    for step in (1, 50, 100, 350, 600):
        assert learning_rate(400 + step, config, start=400) == learning_rate(step, shorter)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant", "plateau"])
def test_without_warm_up_the_first_step_has_the_peak(schedule: str) -> None:
    assert learning_rate(1, settings(schedule, warmup_steps=0)) == pytest.approx(0.004, rel=1e-2)
    assert learning_rate(1, settings(schedule, warmup_steps=1)) == 0.004


# ── who decays ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_biases_embeddings_and_positions_do_not_decay(norm: str, tie_embeddings: bool) -> None:
    model = make_model(norm=norm, tie_embeddings=tie_embeddings)
    optimizer = build_optimizer(model, TrainConfig(weight_decay=0.3))
    names = {id(p): name for name, p in model.named_parameters()}
    decay = {names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay.keys() == set(names.values())  # each parameter once
    free = {name for name, value in decay.items() if value == 0.0}
    decayed = {name for name, value in decay.items() if value == 0.3}
    assert free | decayed == decay.keys()
    for name in decay:
        should_decay = name.endswith("proj.weight") or (name == "output.weight" and not tie_embeddings)
        assert (name in decayed) == should_decay, name
    assert {"embedding.weight", "positions", "output.bias", "encoder_norm.weight"} <= free


def test_a_parameter_without_gradient_shrinks_only_if_it_decays() -> None:
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, TrainConfig(weight_decay=0.5, learning_rate=0.1))
    Gradients(model, torch.float32)  # all zero
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 0.95 if name.endswith("proj.weight") else 1.0
        torch.testing.assert_close(p.detach(), before[name] * factor)


# ── one flat gradient ────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_gradient_is_a_view_of_the_flat_one() -> None:
    model = make_model()
    g = Gradients(model, torch.float32)
    assert g.work is model
    assert len(g.flat) == sum(p.numel() for p in model.parameters())
    split = MadeUpSplit(6)
    for _ in range(2):  # zeroing keeps the views, and a second step starts from nothing
        g.zero()
        backward(model, split, np.arange(6), 10.0)
        g.collect()
        plain = copy.deepcopy(model)
        plain.zero_grad(set_to_none=True)
        backward(plain, split, np.arange(6), 10.0)
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            assert p.grad is not None
            assert p.grad.untyped_storage().data_ptr() == g.buffer.untyped_storage().data_ptr()
            assert torch.equal(p.grad, q.grad)  # type: ignore[arg-type]
        assert torch.equal(g.flat, torch.cat([q.grad.flatten() for q in plain.parameters()]))  # type: ignore[union-attr]
    g.extras[0] += 7.0  # beside the gradients, not among them
    assert float(g.norm()) == pytest.approx(float(torch.linalg.vector_norm(g.flat)))
    g.zero()
    assert float(g.buffer.abs().sum()) == 0.0


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_norm_and_clipping_are_those_of_torch(max_norm: float) -> None:
    model = make_model()
    g = Gradients(model, torch.float32)
    backward(model, MadeUpSplit(6), np.arange(6), 10.0)
    plain = copy.deepcopy(model)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        q.grad = p.grad.clone()  # type: ignore[union-attr]
    expected = float(nn.utils.clip_grad_norm_(plain.parameters(), max_norm))
    norm = float(g.norm())
    assert norm == pytest.approx(expected, rel=1e-5)
    assert g.clip(norm, max_norm) is (norm > max_norm)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-9)
    assert float(g.norm()) == pytest.approx(min(norm, max_norm), rel=1e-5)


def test_norms_by_layer_are_parts_of_the_whole() -> None:
    model = make_model(tie_embeddings=False)
    g = Gradients(model, torch.float32)
    backward(model, MadeUpSplit(6), np.arange(6), 10.0)
    norms = g.norms_by_layer()
    assert list(norms) == [
        "positions", "embedding", "tgt_embedding", "encoder.0", "encoder.1", "decoder.0", "decoder.1",
        "encoder_norm", "decoder_norm", "output",
    ]  # fmt: skip
    assert all(norm > 0 for norm in norms.values())
    assert math.sqrt(sum(norm**2 for norm in norms.values())) == pytest.approx(float(g.norm()), rel=1e-5)
    one_layer = torch.cat([p.grad.flatten() for p in model.decoder[1].parameters()])  # type: ignore[union-attr]
    assert norms["decoder.1"] == pytest.approx(float(one_layer.norm()), rel=1e-5)


def test_fp32_follows_adamw_of_torch_bit_for_bit() -> None:
    model, split, config = make_model(), MadeUpSplit(30), TrainConfig(learning_rate=0.01)
    plain = copy.deepcopy(model)
    g, optimizer = Gradients(model, torch.float32), build_optimizer(model, config)
    theirs = torch.optim.AdamW(
        [
            {"params": [p for n, p in plain.named_parameters() if n.endswith("proj.weight")], "weight_decay": 0.01},
            {"params": [p for n, p in plain.named_parameters() if not n.endswith("proj.weight")], "weight_decay": 0.0},
        ],
        lr=0.01, betas=(0.9, 0.98), eps=1e-9, fused=True,
    )  # fmt: skip
    for step in range(4):
        g.zero()
        theirs.zero_grad()
        for rows in np.array_split(np.arange(30)[step::4], 2):
            backward(g.work, split, rows, 50.0)
            g.collect()
            backward(plain, split, rows, 50.0)
        optimizer.step()
        g.refresh()
        theirs.step()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q)


def test_bf16_runs_on_a_copy_and_keeps_masters_in_fp32() -> None:
    model, split = make_model(), MadeUpSplit(8)
    g, optimizer = Gradients(model, torch.bfloat16), build_optimizer(model, TrainConfig(learning_rate=1e-4))
    assert g.work is not model
    assert {p.dtype for p in g.work.parameters()} == {torch.bfloat16}
    assert g.work.embedding.weight is g.work.output.weight
    for part in (model.parameters(), [g.flat]):
        assert {p.dtype for p in part} == {torch.float32}

    # Two micro-batches: each gradient in bf16, their sum in fp32.
    g.zero()
    expected = torch.zeros_like(g.flat)
    for rows in (np.arange(4), np.arange(4, 8)):
        backward(g.work, split, rows, 20.0)
        expected += torch.cat([w.grad.flatten().float() for w in g.work.parameters()])  # type: ignore[union-attr]
        g.collect()
        assert all(w.grad is None for w in g.work.parameters())
    assert torch.equal(g.flat, expected)
    assert not torch.equal(g.flat, g.flat.bfloat16().float())  # the sum has more bits than bf16 holds

    before = [w.detach().clone() for w in g.work.parameters()]
    optimizer.step()
    assert all(torch.equal(w, old) for w, old in zip(g.work.parameters(), before, strict=True))
    g.refresh()
    for p, w in zip(model.parameters(), g.work.parameters(), strict=True):
        assert torch.equal(w, p.to(torch.bfloat16))
        assert w.requires_grad
    # A change too small for bf16 is not lost: it stays in the master.
    assert not torch.equal(model.embedding.weight, g.work.embedding.weight.float())
