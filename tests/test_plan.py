"""plan: the figures a run says before its first step are counted, and near what is measured."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from toy import environment

from xyd.batching import Batch, collate_fn
from xyd.config import BOS_ID, Config, load
from xyd.loss import BLOCK_ELEMENTS, CHUNK_ELEMENTS
from xyd.model import Transformer, count_parameters
from xyd.plan import Forecast, describe, forecast, kept_bytes, loss_bytes, operations, shape_chain, width_by_rule

BASE = Path(__file__).parents[1] / "configs" / "base-48k.yaml"
SMALL = (
    "model.d_model=32", "model.num_encoder_layers=2", "model.num_decoder_layers=3", "model.num_heads=4",
    "model.d_ff=64", "model.dropout=0.1", "train.max_tokens=640",
)  # fmt: skip
SHAPES = [(2, 7, 5)]
ENCODER = ("model.num_encoder_layers=5", "model.num_decoder_layers=1")
DECODER = ("model.num_encoder_layers=1", "model.num_decoder_layers=5")


def small(*overrides: str) -> Config:
    return load(BASE, [*SMALL, *overrides])


def make_batch(B: int, S: int, T: int) -> Batch:
    """B rows, the last one target token shorter than the others; S and T with specials."""
    rows = [np.full(S - 1, 9)] * B, [np.full(T - 1, 9)] * (B - 1) + [np.full(T - 2, 9)]
    return collate_fn(*rows, np.full(B, BOS_ID), np.arange(B))


def test_the_shape_chain_is_that_of_the_seed() -> None:
    ids_to_memory, ids_to_states, states_to_loss = shape_chain(make_batch(2, 7, 5), load(BASE), 48_000)
    assert ids_to_memory == "src (2,7) → embedding (2,7,384) → 8 encoder layers → memory (2,7,384)"
    assert ids_to_states == "tgt_in (2,5) → embedding (2,5,384) → 8 decoder layers → states (2,5,384)"
    assert states_to_loss.startswith("states of 9 real tokens (9,384) → logits (9,48000), in chunks")


def test_weights_are_forecast_byte_for_byte() -> None:
    # fp32: weight, gradient, two moments; bf16: its copy of the weight and of the gradient beside them.
    config, count = load(BASE), 51_708_288
    fp32, bf16 = (forecast(config, count, 48_000, is_bf16) for is_bf16 in (False, True))
    assert (fp32.weights, fp32.gradients, fp32.optimizer) == (4 * count, 4 * count, 8 * count)
    assert (bf16.weights, bf16.gradients, bf16.optimizer) == (6 * count, 6 * count, 8 * count)


def test_disk_holds_last_best_the_kept_ones_and_the_averaged_one() -> None:
    told = forecast(load(BASE, ["train.keep_checkpoints=3"]), 1000, 48_000, is_bf16=True)
    state, weights = 12_000, 4_000  # fp32 weights with two moments, and weights alone
    assert told.disk == 2 * state + (3 + 1) * weights


def saved_bytes(model: Transformer, batch: Batch) -> int:
    """Bytes that autograd keeps of the states until the backward pass, each storage once."""
    weights = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        assert model(batch.src, batch.src_mask, batch.tgt_in).requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


SWIGLU = ("model.activation=swiglu", "model.activation_dropout=0.1")


@pytest.mark.parametrize(
    "changes",
    [(), ENCODER, DECODER, SWIGLU, ("model.activation=gelu",), ("model.norm_position=post",), ("model.dropout=0",),
     ("model.attention_dropout=0.1",)],
)  # fmt: skip
@pytest.mark.parametrize("is_bf16", [False, True])
@pytest.mark.parametrize("shape", [(5, 32, 32), (2, 20, 90)])
def test_what_autograd_keeps_is_forecast_to_within_4_percent(
    is_bf16: bool, changes: tuple[str, ...], shape: tuple[int, int, int]
) -> None:
    wide = ("model.d_model=96", "model.d_ff=384", "model.num_heads=6")
    config, vocab_size = small(*wide, *changes), 10
    model = Transformer(config.model, vocab_size).train().to(torch.bfloat16 if is_bf16 else torch.float32)
    told = kept_bytes(config.model, is_bf16, shape)
    assert told / saved_bytes(model, make_batch(*shape)) == pytest.approx(1.0, abs=0.04)


def test_the_loss_is_forecast_by_the_chunks_it_works_in() -> None:
    """Up to CHUNK_ELEMENTS logits, blocks of them in fp32, and the gradients of embedding and states."""
    assert loss_bytes(32, 1000, False, 100) == 4 * (100 * 1000 + 3 * 100 * 1000 + 1000 * 32 + 200 * 32)
    told = loss_bytes(32, 1000, True, 10**6)
    assert told == 2 * (CHUNK_ELEMENTS + 1000 * 32 + 2 * 10**6 * 32) + 4 * 3 * BLOCK_ELEMENTS


# In a process of its own, where nothing has been allocated and freed before.
REHEARSAL = """
import numpy as np, torch
from xyd import distributed, memory, plan
from xyd.config import load
from xyd.model import Transformer
from xyd.optim import Gradients
from xyd.outlook import RandomSplit
from xyd.step import StepGradient

B, S, T = {shape}
config = load({config!r})
torch.set_num_threads(1)
dtype = torch.bfloat16 if {is_bf16} else torch.float32
model = Transformer(config.model, {vocab_size})
split = RandomSplit(np.full(B, S - 1), np.full(B, T - 1), {vocab_size})
gradient = StepGradient(Gradients(model, dtype), split, np.array([2]), 0.1, 1)
used, shapes = gradient.rehearse([[np.arange(B)]])
print(used.growth, plan.forecast(config, 0, {vocab_size}, {is_bf16}, shapes).activations)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the factor for the heap was measured with glibc")
@pytest.mark.parametrize("is_bf16", [False, True])
@pytest.mark.parametrize(
    ("name", "vocab_size", "shape"),
    [
        ("multi30k-en-de.yaml", 10_000, (102, 20, 20)),
        ("multi30k-en-de.yaml", 10_000, (30, 20, 110)),
        pytest.param("base-48k.yaml", 48_000, (64, 32, 32), marks=pytest.mark.slow),
    ],
)
def test_the_forecast_is_within_a_quarter_of_what_step_0_measures(
    name: str, vocab_size: int, shape: tuple[int, int, int], is_bf16: bool
) -> None:
    code = REHEARSAL.format(config=str(BASE.with_name(name)), vocab_size=vocab_size, shape=shape, is_bf16=is_bf16)
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    measured, told = map(int, done.stdout.split())
    assert told / measured == pytest.approx(1.0, abs=0.25)


# ── operations and the rule of thumb ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_operations_are_those_that_torch_counts(activation: str) -> None:
    """Twice what it counts forward is one backward: 3 times it all together."""
    config, vocab_size, (B, S, T) = small(f"model.activation={activation}"), 50, (3, 9, 7)
    model = Transformer(config.model, vocab_size)
    batch = make_batch(B, S, T)
    with FlopCounterMode(display=False) as counter:
        model.project(model(batch.src, batch.src_mask, batch.tgt_in))
    told = operations(config.model, vocab_size, np.full(B, S), np.full(B, T))
    assert told.total == 3 * counter.get_total_flops()
    assert told.total == told.encoder + told.decoder + told.attention + told.output


def test_the_rule_of_thumb_gives_the_width_at_which_two_tokens_meet_a_parameter() -> None:
    """word-ferry's own case: 8 + 8 layers and 48,000 pieces have 51.6 M such weights at d_model 384."""
    weights = 224 * 384**2 + 48_000 * 384
    model = load(BASE).model
    assert width_by_rule(model, 48_000, 2 * weights) == 384
    assert width_by_rule(model, 48_000, 2 * weights * 1.01) == 448
    assert width_by_rule(model, 48_000, 1000) == 64


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_forecast_grows_with_what_it_depends_on() -> None:
    def activations(*overrides: str) -> int:
        return forecast(small(*overrides), 1000, 100, is_bf16=False).activations

    assert activations("train.max_tokens=1280") > activations()
    assert activations("model.num_decoder_layers=6") > activations()
    assert activations("model.d_ff=128") > activations()
    assert forecast(small(), 1000, 9000, False).activations > forecast(small(), 1000, 100, False).activations
    told = forecast(small(), 1000, 100, is_bf16=False)
    assert told.memory == 16 * 1000 + told.activations


def test_what_is_said_adds_up() -> None:
    config = small()
    model = Transformer(config.model, 500)
    total = sum(p.numel() for p in model.parameters())
    text = describe(config, model, make_batch(2, 7, 5), SHAPES, is_bf16=True, free=10**12)
    parts = count_parameters(model)
    assert sum(parts.values()) == total
    assert f"parameters: {total:,} = embeddings 16,000 + positions 8,192 + encoder" in text
    assert "src (2,7) → embedding (2,7,32)" in text
    told = forecast(config, total, 500, True, SHAPES)
    assert f"memory, forecast per process: {told.memory / 1e9:.2f} GB" in text
    assert "free 1000.00 GB" in text
    assert "warning" not in text


def test_a_disk_too_small_is_said_before_the_first_step() -> None:
    config = small()
    model = Transformer(config.model, 500)
    needed = forecast(config, sum(p.numel() for p in model.parameters()), 500, is_bf16=False).disk
    batch = make_batch(2, 7, 5)
    assert "warning" not in describe(config, model, batch, SHAPES, is_bf16=False, free=needed)
    text = describe(config, model, batch, SHAPES, is_bf16=False, free=needed - 1)
    assert "warning: the checkpoints will not fit; lower train.keep_checkpoints" in text


def test_a_forecast_is_a_sum() -> None:
    assert Forecast(weights=3, gradients=5, optimizer=7, activations=4, disk=90).memory == 19
