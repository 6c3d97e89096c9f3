"""quantize: the prepared copy computes the same network, nearly; each row by itself; the weights are shared."""

import pytest
import torch
from torch import nn

from xyd.batching import pad_sources
from xyd.config import BOS_ID, ModelConfig
from xyd.model import Transformer
from xyd.quantize import ROWS_AT_ONCE, Bf16Linear, Int8Linear, prepared


def make_model() -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(d_model=32, num_encoder_layers=2, num_decoder_layers=2, num_heads=4, d_ff=64, max_length=20)
    return Transformer(config, 300).eval()


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


@pytest.mark.parametrize(("kind", "bound"), [(Bf16Linear, 0.006), (Int8Linear, 0.02)])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, ROWS_AT_ONCE)])
def test_a_product_is_nearly_that_of_fp32(kind: type[nn.Module], bound: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 96)
    x = torch.randn(*shape, 64)
    with torch.no_grad():
        expected, got = linear(x), kind(linear)(x)
    assert got.dtype == torch.float32
    assert got.shape == expected.shape
    assert 0 < relative_error(got, expected) < bound or shape == (1,)


def test_what_is_within_127_steps_is_exact_in_int8() -> None:
    linear = nn.Linear(4, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[127.0, -3.0, 5.0, 0.0], [1.27, 0.5, -0.25, 0.01]]))
        linear.bias.copy_(torch.tensor([1.0, -2.0]))
        x = torch.tensor([[127.0, 1.0, 2.0, -64.0], [12.7, 0.1, 0.0, 3.3]])
        torch.testing.assert_close(Int8Linear(linear)(x), linear(x), atol=1e-3, rtol=1e-6)


def test_rows_of_zeros_are_the_bias() -> None:
    linear = nn.Linear(8, 3)
    with torch.no_grad():
        linear.weight[1].zero_()
        got = Int8Linear(linear)(torch.zeros(2, 8))
        assert torch.equal(got, linear.bias.expand(2, 3))


@pytest.mark.need(7)
def test_an_int8_row_does_not_see_what_else_is_in_the_batch() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(64, 96))
    x = torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    with torch.no_grad():
        together = layer(x)
        assert all(torch.equal(layer(x[i : i + 1])[0], together[i]) for i in range(9))


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_prepared_model_is_nearly_the_model(precision: str) -> None:
    model = make_model()
    ready = prepared(model, precision)  # type: ignore[arg-type]
    src, src_mask = pad_sources([list(range(10, 20)), [30, 31, 32]])
    tgt_in = torch.tensor([[BOS_ID, 40, 41, 42, 43, 44]] * 2)
    with torch.inference_mode():
        expected = model.project(model(src, src_mask, tgt_in)).log_softmax(-1)
        got = ready.project(ready(src, src_mask, tgt_in)).log_softmax(-1)
    assert 1e-6 < relative_error(got, expected) < 0.02
    assert not ready.training
    assert isinstance(model.output, nn.Linear)  # the model is as it was
    shared = {p.data_ptr() for p in model.parameters()}
    assert ready.embedding.weight.data_ptr() in shared


def test_fp32_is_the_model_itself() -> None:
    model = make_model()
    assert prepared(model, "fp32") is model
