"""loss: value and gradients are those of F.cross_entropy, whatever the chunks; padding has no share of anything."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from xyd import loss
from xyd.config import PAD_ID
from xyd.loss import row_nll, token_loss

B, T, D, V = 5, 23, 12, 37


def make_case(seed: int = 0) -> tuple[Tensor, Tensor, nn.Linear]:
    """States with a gradient, targets with padding at the end of some rows, and a projection with a bias."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(B, T, D, generator=generator).requires_grad_()
    tgt_out = torch.randint(1, V, (B, T), generator=generator)
    for row, length in enumerate([T, 1, 9, T, 16]):
        tgt_out[row, length:] = PAD_ID
    output = nn.Linear(D, V)
    with torch.no_grad():
        output.weight.copy_(torch.randn(V, D, generator=generator))
        output.bias.copy_(torch.randn(V, generator=generator))
    return states, tgt_out, output


def explicit(logits: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """Cross-entropy against the target distribution written out: ε spread over the V - 1 real classes, 1-ε on top."""
    q = torch.full_like(logits, epsilon / (V - 1))
    q[:, PAD_ID] = 0.0
    q.scatter_add_(1, targets[:, None], torch.full((len(targets), 1), 1 - epsilon))
    assert torch.allclose(q.sum(1), torch.ones(len(q)))
    return -(q * logits.log_softmax(1)).sum()


def gradients_of(value: Tensor, states: Tensor, output: nn.Linear) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, [states, output.weight, output.bias])


def test_equals_cross_entropy() -> None:
    states, tgt_out, output = make_case()
    got = token_loss(states, tgt_out, output)
    expected = F.cross_entropy(output(states).flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction="sum")
    assert got.num_tokens == int((tgt_out != PAD_ID).sum()) == T + 1 + 9 + T + 16
    torch.testing.assert_close(got.loss_sum, expected)
    torch.testing.assert_close(got.nll_sum, expected)
    mine = gradients_of(got.loss_sum / got.num_tokens, states, output)
    theirs = gradients_of(expected / got.num_tokens, states, output)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 0.4])
def test_smoothing_is_spread_over_real_classes_only(epsilon: float) -> None:
    states, tgt_out, output = make_case()
    real = tgt_out != PAD_ID
    got = token_loss(states, tgt_out, output, epsilon)
    expected = explicit(output(states[real]), tgt_out[real], epsilon)
    torch.testing.assert_close(got.loss_sum, expected)
    for a, b in zip(gradients_of(got.loss_sum, states, output), gradients_of(expected, states, output), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    # The plain figure is not smoothed.
    torch.testing.assert_close(got.nll_sum, token_loss(states, tgt_out, output).nll_sum)
    assert not got.nll_sum.requires_grad


def test_the_logit_of_padding_costs_only_what_softmax_takes() -> None:
    states, tgt_out, output = make_case()
    with torch.no_grad():
        output.bias[PAD_ID] = -1e9  # a class that is impossible already
    got = token_loss(states, tgt_out, output, 0.3)
    assert got.loss_sum < 1e4  # a share of padding would cost 0.3 · 1e9 / V for every token
    assert gradients_of(got.loss_sum, states, output)[2][PAD_ID] == 0.0


@pytest.mark.parametrize(("chunk", "block"), [(1, 1), (7 * V, 3 * V), (1, 2**20)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_size_of_the_chunks_changes_nothing(
    epsilon: float, chunk: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, tgt_out, output = make_case()
    whole = token_loss(states, tgt_out, output, epsilon)
    rows_whole, _ = row_nll(states, tgt_out, output)
    expected = gradients_of(whole.loss_sum, states, output)
    monkeypatch.setattr(loss, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(loss, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(loss, "LEAST_ROWS", 4)
    assert whole.num_tokens > 3 * 4  # several chunks, with a rest
    parts = token_loss(states, tgt_out, output, epsilon)
    torch.testing.assert_close((parts.loss_sum, parts.nll_sum), (whole.loss_sum, whole.nll_sum))
    torch.testing.assert_close(row_nll(states, tgt_out, output)[0], rows_whole)
    for a, b in zip(gradients_of(parts.loss_sum, states, output), expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_the_logits_never_exist_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    N, V, D = 1200, 300, 4
    monkeypatch.setattr(loss, "CHUNK_ELEMENTS", 50 * V)
    states = torch.randn(3, N // 3, D, requires_grad=True)
    tgt_out, output = torch.randint(1, V, (3, N // 3)), nn.Linear(D, V)
    with Largest() as largest:
        (token_loss(states, tgt_out, output, 0.1).loss_sum / N).backward()
    assert largest.elements == 50 * V  # and not N·V = 360,000
    with Largest() as largest:
        row_nll(states, tgt_out, output)
    assert largest.elements == 50 * V


def test_bf16_is_as_near_as_its_eight_bits_allow() -> None:
    states, tgt_out, output = make_case()
    low = states.detach().bfloat16().requires_grad_()
    low_output = nn.Linear(D, V).bfloat16()
    low_output.load_state_dict(output.state_dict())
    exact = low.detach().float().requires_grad_()
    output.load_state_dict(low_output.state_dict())  # the same rounded weights
    expected = token_loss(exact, tgt_out, output, 0.1)
    got = token_loss(low, tgt_out, low_output, 0.1)
    assert got.loss_sum.dtype == torch.float32
    torch.testing.assert_close((got.loss_sum, got.nll_sum), (expected.loss_sum, expected.nll_sum), rtol=5e-3, atol=0.0)
    mine = gradients_of(got.loss_sum / 72, low, low_output)
    theirs = gradients_of(expected.loss_sum / 72, exact, output)
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == torch.bfloat16
        assert float((a.float() - b).norm() / b.norm()) < 1e-2


def test_rows_are_scored_one_by_one() -> None:
    states, tgt_out, output = make_case()
    sums, counts = row_nll(states, tgt_out, output)
    assert counts.tolist() == [T, 1, 9, T, 16]
    assert sums.dtype == torch.float64
    assert not sums.requires_grad
    log_probs = output(states).log_softmax(-1).detach()
    for i, count in enumerate(counts.tolist()):
        expected = -sum(float(log_probs[i, t, tgt_out[i, t]]) for t in range(count))
        assert float(sums[i]) == pytest.approx(expected, rel=1e-5)
    assert float(sums.sum()) == pytest.approx(float(token_loss(states, tgt_out, output).nll_sum), rel=1e-6)


def test_padding_changes_nothing() -> None:
    states, tgt_out, output = make_case()
    plain = token_loss(states, tgt_out, output, 0.1)
    wider = torch.cat([states, torch.full((B, 6, D), 1e30)], dim=1)
    padded = F.pad(tgt_out, (0, 6), value=PAD_ID)
    again = token_loss(wider, padded, output, 0.1)
    assert (again.loss_sum, again.nll_sum, again.num_tokens) == (plain.loss_sum, plain.nll_sum, plain.num_tokens)
    assert torch.equal(row_nll(wider, padded, output)[0], row_nll(states, tgt_out, output)[0])
    gradient = torch.autograd.grad(plain.loss_sum, states)[0]
    assert (gradient[tgt_out == PAD_ID] == 0).all()
    assert (gradient[tgt_out != PAD_ID] != 0).any(dim=-1).all()


def test_a_batch_of_padding_only_costs_nothing() -> None:
    states, tgt_out, output = make_case()
    got = token_loss(states, torch.zeros_like(tgt_out), output, 0.1)
    assert (got.loss_sum.item(), got.nll_sum.item(), got.num_tokens) == (0.0, 0.0, 0)
    assert all((g == 0).all() for g in gradients_of(got.loss_sum, states, output))


def test_large_logits_do_not_overflow() -> None:
    states, tgt_out, output = make_case()
    got = token_loss(states * 1e4, tgt_out, output)
    assert torch.isfinite(got.loss_sum)
    assert all(torch.isfinite(g).all() for g in gradients_of(got.loss_sum, states, output))


def test_a_target_that_softmax_rounds_to_nothing_still_has_its_loss() -> None:
    states, tgt_out, output = make_case()
    hated = int(tgt_out[tgt_out != PAD_ID][0])
    with torch.no_grad():
        output.bias[hated] = -500.0  # exp(-500) is 0 in fp32
    got = token_loss(states, tgt_out, output, 0.0)
    logits = output(states).flatten(0, 1)
    expected = F.cross_entropy(logits, tgt_out.flatten(), ignore_index=PAD_ID, reduction="sum")
    assert expected > 400.0
    torch.testing.assert_close(got.nll_sum, expected.detach())
    for a, b in zip(gradients_of(got.loss_sum, states, output), gradients_of(expected, states, output), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
