"""plan: the figures a run says before its first step are counted, and near what is measured."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from xyd.batching import Batch, collate_fn
from xyd.config import BOS_ID, Config, load
from xyd.loss import BLOCK_ELEMENTS, CHUNK_ELEMENTS, token_loss
from xyd.model import Transformer, count_parameters
from xyd.plan import Forecast, describe, forecast, shape_chain

BASE = Path(__file__).parents[1] / "configs" / "base-48k.yaml"
SMALL = (
    "model.d_model=32", "model.num_encoder_layers=2", "model.num_decoder_layers=3", "model.num_heads=4",
    "model.d_ff=64", "model.dropout=0.1", "train.max_tokens=640",
)  # fmt: skip
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
    assert forecast(config, count, 48_000, is_bf16=False).weights == 16 * count
    assert forecast(config, count, 48_000, is_bf16=True).weights == 20 * count


def test_disk_holds_last_best_the_kept_ones_and_the_averaged_one() -> None:
    told = forecast(load(BASE, ["train.keep_checkpoints=3"]), 1000, 48_000, is_bf16=True)
    state, weights = 12_000, 4_000  # fp32 weights with two moments, and weights alone
    assert told.disk == 2 * state + (3 + 1) * weights


def saved_bytes(model: Transformer, batch: Batch) -> int:
    """Bytes that autograd keeps between forward and backward, weights left out, each storage once."""
    weights = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = token_loss(model(batch.src, batch.src_mask, batch.tgt_in), batch.tgt_out, model.output, 0.1)
    assert loss.loss_sum.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("changes", [(), ENCODER, DECODER, ("model.activation=swiglu",), ("model.norm_position=post",)])
@pytest.mark.parametrize("is_bf16", [False, True])
def test_activations_are_forecast_to_within_15_percent(is_bf16: bool, changes: tuple[str, ...]) -> None:
    wide = ("model.d_model=384", "model.d_ff=1536", "model.num_heads=6", "train.max_tokens=320")
    config, vocab_size = small(*wide, *changes), 100
    model = Transformer(config.model, vocab_size).train().to(torch.bfloat16 if is_bf16 else torch.float32)
    batch = make_batch(5, 32, 32)
    assert batch.src.numel() + batch.tgt_in.numel() == config.train.max_tokens
    both, twice = (
        forecast(small(*wide, *changes, f"train.max_tokens={n}"), 0, vocab_size, is_bf16).activations
        for n in (320, 640)
    )
    told = twice - both  # without the loss, which does not grow with the batch
    assert told / saved_bytes(model, batch) == pytest.approx(1.0, abs=0.15)


def test_the_loss_is_forecast_by_the_chunks_it_works_in() -> None:
    """Up to CHUNK_ELEMENTS logits, blocks of them in fp32, and the gradient of the embedding."""

    def loss(tokens: int, vocab_size: int, is_bf16: bool) -> int:
        told = [forecast(small(f"train.max_tokens={tokens}"), 0, v, is_bf16).activations for v in (vocab_size, 0)]
        return told[0] - told[1] + 3 * 4 * BLOCK_ELEMENTS

    assert loss(200, 1000, False) == 4 * (100 * 1000 + 3 * BLOCK_ELEMENTS + 1000 * 32)
    assert loss(10**6, 1000, True) == 2 * (CHUNK_ELEMENTS + 1000 * 32) + 4 * 3 * BLOCK_ELEMENTS


def test_the_forecast_grows_with_what_it_depends_on() -> None:
    def activations(*overrides: str) -> int:
        return forecast(small(*overrides), 1000, 100, is_bf16=False).activations

    assert activations("train.max_tokens=1280") > activations()
    assert activations("model.num_decoder_layers=6") > activations()
    assert activations("model.d_ff=128") > activations()
    assert forecast(small(), 1000, 9000, False).activations > forecast(small(), 1000, 100, False).activations
    told = forecast(small(), 1000, 100, is_bf16=False)
    assert told.memory == told.weights + told.activations


def test_what_is_said_adds_up() -> None:
    config = small()
    model = Transformer(config.model, 500)
    total = sum(p.numel() for p in model.parameters())
    text = describe(config, model, make_batch(2, 7, 5), is_bf16=True, free=10**12)
    parts = count_parameters(model)
    assert sum(parts.values()) == total
    assert f"parameters: {total:,} = embeddings 16,000 + positions 8,192 + encoder" in text
    assert "src (2,7) → embedding (2,7,32)" in text
    told = forecast(config, total, 500, is_bf16=True)
    assert f"memory, forecast per process: {told.memory / 1e9:.2f} GB" in text
    assert "free 1000.00 GB" in text
    assert "warning" not in text


def test_a_disk_too_small_is_said_before_the_first_step() -> None:
    config = small()
    model = Transformer(config.model, 500)
    needed = forecast(config, sum(p.numel() for p in model.parameters()), 500, is_bf16=False).disk
    batch = make_batch(2, 7, 5)
    assert "warning" not in describe(config, model, batch, is_bf16=False, free=needed)
    text = describe(config, model, batch, is_bf16=False, free=needed - 1)
    assert "warning: the checkpoints will not fit; lower train.keep_checkpoints" in text


def test_a_forecast_is_a_sum() -> None:
    assert Forecast(weights=3, activations=4, disk=9).memory == 7
