"""Numbers that can be checked by hand, through our own functions."""

import math

import pytest
import torch
from torch import Tensor, nn

from xyd import model
from xyd.config import PAD_ID, ModelConfig
from xyd.loss import token_loss
from xyd.model import FeedForward, SelfAttention, make_norm
from xyd.optim import Gradients

SOFTMAX = [0.844, 0.114, 0.042]  # of [2, 0, -1]


@pytest.mark.parametrize("is_fused", [True, False])
def test_one_query_against_three_keys(is_fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "PLAIN_ATTENTION", set() if is_fused else {"cpu"})
    attention = SelfAttention(d_model=2, num_heads=1, dropout=0.0)
    nn.init.eye_(attention.out_proj.weight)
    nn.init.zeros_(attention.out_proj.bias)
    q = torch.tensor([[[[math.sqrt(2), 0.0]]]])  # times 1/√K: the scores are 2, 0 and -1
    k = torch.tensor([[[[2.0, 0.0], [0.0, 5.0], [-1.0, 3.0]]]])
    v = torch.tensor([[[[1.0, 0.0], [0.0, 2.0], [2.0, 1.0]]]])
    out = attention.attend(q, k, v)
    assert out.flatten().tolist() == pytest.approx([0.928, 0.270], abs=5e-4)


def test_the_weights_of_the_three_keys_are_a_softmax() -> None:
    attention = SelfAttention(d_model=3, num_heads=1, dropout=0.0)
    nn.init.eye_(attention.out_proj.weight)
    nn.init.zeros_(attention.out_proj.bias)
    scores = torch.tensor([2.0, 0.0, -1.0]) * math.sqrt(3)
    out = attention.attend(scores.view(1, 1, 1, 3), torch.eye(3).view(1, 1, 3, 3), torch.eye(3).view(1, 1, 3, 3))
    assert out.flatten().tolist() == pytest.approx(SOFTMAX, abs=5e-4)


@pytest.mark.parametrize(("target", "probability"), [(1, 0.844), (2, 0.114), (3, 0.042)])
def test_the_loss_is_minus_the_log_of_the_target_s_probability(target: int, probability: float) -> None:
    output = nn.Linear(1, 4)
    with torch.no_grad():
        output.weight.zero_()
        output.bias.copy_(torch.tensor([-1e9, 2.0, 0.0, -1.0]))  # the class of padding is out of reach
    loss = token_loss(torch.zeros(1, 2, 1), torch.tensor([[target, PAD_ID]]), output)
    assert math.exp(-float(loss.nll_sum)) == pytest.approx(probability, abs=5e-4)
    assert loss.num_tokens == 1
    # Its gradient by the logits is the softmax less 1 at the target.
    loss.loss_sum.backward()
    expected = [0.0, *(p - (i == target) for i, p in enumerate(SOFTMAX, start=1))]
    assert output.bias.grad is not None
    assert output.bias.grad.tolist() == pytest.approx(expected, abs=5e-4)


def test_a_feed_forward_layer_in_figures() -> None:
    config = ModelConfig(d_model=2, num_heads=1, d_ff=3, activation="relu")
    layer = FeedForward(config).eval()
    with torch.no_grad():
        layer.in_proj.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 1.0], [-1.0, -1.0]]))  # x = [1, 2] → [5, 2, -3]
        layer.out_proj.weight.copy_(torch.tensor([[1.0, 0.0, 7.0], [1.0, 2.0, 7.0]]))  # [5, 2, 0] → [5, 9]
        for linear in (layer.in_proj, layer.out_proj):
            linear.bias.zero_()
    x = torch.tensor([[[1.0, 2.0]]])
    assert layer.in_proj(x).flatten().tolist() == [5.0, 2.0, -3.0]
    assert layer(x).flatten().tolist() == [5.0, 9.0]
    eight_rows = layer(x.expand(1, 8, 2))
    assert eight_rows.shape == (1, 8, 2)
    assert (eight_rows == torch.tensor([5.0, 9.0])).all()


def test_layer_norm_in_figures() -> None:
    norm = make_norm(ModelConfig(d_model=2, num_heads=1))
    assert norm.eps == 1e-5
    # Mean 2, variance 1: (1 - 2) / √(1 + 1e-5).
    out = norm(torch.tensor([[1.0, 3.0]])).flatten().tolist()
    assert out == pytest.approx([-1 / math.sqrt(1 + 1e-5), 1 / math.sqrt(1 + 1e-5)], abs=1e-7)
    # Where the variance is as small as ε, ε is seen: (±0.001) / √(1e-6 + 1e-5).
    out = norm(torch.tensor([[1.0, 1.002]])).flatten().tolist()
    assert out == pytest.approx([-0.001 / math.sqrt(1.1e-5), 0.001 / math.sqrt(1.1e-5)], rel=1e-3)


def test_one_step_of_gradient_descent() -> None:
    """Points (1, 2), (2, 3) from w = b = 0, rate 0.1, loss ½ · mean squared error: one micro-batch for each point."""
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    gradients = Gradients(model, torch.float32)
    for x, y in ((1.0, 2.0), (2.0, 3.0)):
        error = gradients.work(torch.tensor([[x]])) - y
        (0.5 * error.square().sum() / 2).backward()
        gradients.collect()
    assert gradients.flat.tolist() == pytest.approx([-4.0, -2.5])
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    gradients.refresh()
    assert (model.weight.item(), model.bias.item()) == pytest.approx((0.4, 0.25))


def test_shapes_of_heads_and_scores() -> None:
    B, T, D, H = 2, 5, 8, 4
    attention = SelfAttention(D, H, dropout=0.0)
    seen: list[Tensor] = []
    attention.dropout.register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]))
    q, k, v = attention.queries_keys_values(torch.randn(B, T, D))
    assert q.shape == k.shape == v.shape == (2, 4, 5, 2)
    assert attention.attend(q, k, v, is_causal=True).shape == (2, 5, 8)
    (weights,) = seen
    assert weights.shape == (2, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    # The causal mask as rows of queries and columns of keys: position 3 sees 0 to 3.
    assert (weights[0, 0] > 0).int().tolist() == [[1] * (t + 1) + [0] * (4 - t) for t in range(5)]


def test_gradient_clipping_multiplies_by_threshold_over_norm() -> None:
    model = nn.Linear(2, 1, bias=False)
    gradients = Gradients(model, torch.float32)
    gradients.flat.copy_(torch.tensor([3.0, 4.0]))
    assert float(gradients.norm()) == 5.0
    assert gradients.clip(5.0, 1.0) is True
    assert gradients.flat.tolist() == pytest.approx([0.6, 0.8])
    assert gradients.clip(1.0, 1.0) is False
