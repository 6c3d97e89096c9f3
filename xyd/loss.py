"""Flattened cross-entropy, as sums and a count; the (N,V) logits never exist whole.

Batch and sequence are flattened to N independent classifications over V classes, padding left out. The loss of one
token with smoothing ε is (1-ε)·(-log p[target]) + ε·(mean of -log p over the real classes); padding is no real class
and gets no share (label smoothing: Szegedy et al. 2016). Shapes: legend in model.py.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from xyd.config import PAD_ID

# Elements of logits that exist at once: 8 MiB in fp32, which the allocator reuses instead of asking the system anew.
CHUNK_ELEMENTS = 2**21
GPU_CHUNK_ELEMENTS = 2**27  # there few large products are faster than many small ones


@dataclass(frozen=True)
class TokenLoss:
    """Sums over the real target tokens of a batch; divide once, by the tokens of the whole step."""

    loss_sum: Float[Tensor, ""]  # with label smoothing; has the gradient
    nll_sum: Float[Tensor, ""]  # plain, in nats
    num_tokens: int


def token_loss(
    states: Float[Tensor, "B T D"], tgt_out: Int[Tensor, "B T"], output: nn.Linear, label_smoothing: float = 0.0
) -> TokenLoss:
    """The loss of a batch from decoder states; `output` projects the N real positions only, some at a time."""
    real = tgt_out.flatten() != PAD_ID
    rows, targets = states.flatten(0, 1)[real], tgt_out.flatten()[real]
    loss_sum, nll_sum = ChunkedCrossEntropy.apply(rows, output.weight, output.bias, targets, label_smoothing)
    return TokenLoss(loss_sum, nll_sum, len(targets))


def row_nll(
    states: Float[Tensor, "B T D"], tgt_out: Int[Tensor, "B T"], output: nn.Linear
) -> tuple[Float[Tensor, " B"], Int[Tensor, " B"]]:
    """Plain NLL in nats (fp64) and number of real tokens of every sentence; no gradient."""
    real = tgt_out != PAD_ID
    nll = torch.zeros(tgt_out.shape, dtype=torch.float64, device=states.device)
    rows, targets = states[real].detach(), tgt_out[real]
    parts = []
    for chunk, target in zip(*_chunks(rows, targets, output.out_features), strict=True):
        logits = output(chunk).detach().float()
        parts.append(torch.logsumexp(logits, 1) - logits.gather(1, target[:, None])[:, 0])
    if parts:
        nll[real] = torch.cat(parts).double()
    return nll.sum(1), real.sum(1)


def _chunks(rows: Tensor, targets: Tensor, vocab_size: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    size = max(32, (CHUNK_ELEMENTS if rows.device.type == "cpu" else GPU_CHUNK_ELEMENTS) // vocab_size)
    return rows.split(size), targets.split(size)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and cross-entropy in one pass over chunks of rows: loss and all gradients at once.

    d loss / d logits is (softmax - target distribution), known as soon as the logits are, so nothing of size (N,V)
    is kept for the backward pass. Softmax and sums are in fp32 whatever the type of the states.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        bias: Float[Tensor, " V"],
        targets: Int[Tensor, " N"],
        label_smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        vocab_size = len(weight)
        share = label_smoothing / (vocab_size - 1)  # of each real class; padding has none
        wants_gradient = any(ctx.needs_input_grad)
        loss_sum = rows.new_zeros((), dtype=torch.float32)
        nll_sum = rows.new_zeros((), dtype=torch.float32)
        d_rows, d_weight = torch.empty_like(rows), torch.zeros_like(weight)
        d_bias = torch.zeros_like(bias, dtype=torch.float32)
        start = 0
        for chunk, target in zip(*_chunks(rows, targets, vocab_size), strict=True):
            logits = torch.addmm(bias, chunk, weight.t()).float()
            logits -= logits.amax(dim=1, keepdim=True)
            target_logit = logits.gather(1, target[:, None])[:, 0]
            mean_logit = (logits.sum(1) - logits[:, PAD_ID]) / (vocab_size - 1) if share else target_logit
            gradient = logits.exp_()  # in place: from here on there are no logits any more
            z = gradient.sum(dim=1, keepdim=True)
            log_z = z[:, 0].log()
            nll_sum += (log_z - target_logit).sum()
            loss_sum += (log_z - (1 - label_smoothing) * target_logit - label_smoothing * mean_logit).sum()
            if wants_gradient:
                gradient /= z
                if share:
                    gradient -= share
                    gradient[:, PAD_ID] += share
                gradient.scatter_add_(1, target[:, None], gradient.new_full((len(target), 1), label_smoothing - 1.0))
                d_bias += gradient.sum(0)
                gradient = gradient.to(rows.dtype)
                torch.mm(gradient, weight, out=d_rows[start : start + len(chunk)])
                d_weight.addmm_(gradient.t(), chunk)
            start += len(chunk)
        ctx.save_for_backward(d_rows, d_weight, d_bias.to(bias.dtype))
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        d_rows, d_weight, d_bias = ctx.saved_tensors
        scale = grad_loss.to(d_rows.dtype)
        return d_rows * scale, d_weight * scale, d_bias * scale, None, None
