"""Flattened cross-entropy, as sums and a count; the (N,V) logits never exist whole.

Batch and sequence are flattened to N independent classifications over V classes, padding left out. The loss of one
token with smoothing ε is (1-ε)·(-log p[target]) + ε·(mean of -log p over the real classes); padding is no real class
and gets no share (label smoothing: Szegedy et al. 2016). Shapes: legend in model.py.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from xyd.config import PAD_ID

# Elements of logits that exist at once, in the model's type: as many as make a large product and yet stay in the caches
# of a CPU (figures in docs/performance.md).
CHUNK_ELEMENTS = 2**23
GPU_CHUNK_ELEMENTS = 2**27
LEAST_ROWS = 32
# On a CPU, the softmax in fp32 walks over them in pieces that stay close to the core.
BLOCK_ELEMENTS = 2**19
TINY = 1e-30  # a probability below this is not trusted to give its own logarithm


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
    size = _rows_at_once(rows, output.out_features)
    for chunk, target in zip(rows.split(size), targets.split(size), strict=True):
        logits = output(chunk).detach()
        for block, wanted in zip(*(x.split(_rows_in_block(logits)) for x in (logits, target)), strict=True):
            parts.append(F.cross_entropy(block.float(), wanted, reduction="none"))
    if parts:
        nll[real] = torch.cat(parts).double()
    return nll.sum(1), real.sum(1)


def _rows_at_once(rows: Tensor, vocab_size: int) -> int:
    return max(LEAST_ROWS, (CHUNK_ELEMENTS if rows.device.type == "cpu" else GPU_CHUNK_ELEMENTS) // vocab_size)


def _rows_in_block(logits: Tensor) -> int:
    return max(1, BLOCK_ELEMENTS // logits.shape[1]) if logits.device.type == "cpu" else len(logits)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and cross-entropy in one pass over chunks of rows: loss and all gradients at once.

    d loss / d logits is (softmax - target distribution), known as soon as the logits are, so nothing of size (N,V)
    is kept for the backward pass. Softmax and sums are in fp32 whatever the type of the states. The even part of the
    target distribution is the same for every row: it enters the sums once, as a whole, and never the (N,V) logits.
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
        N, V = len(rows), len(weight)
        share = label_smoothing / (V - 1)  # of each real class; padding has none
        wants_gradient = any(ctx.needs_input_grad)
        fp32_bias = bias.float()
        log_z, target_logit = fp32_bias.new_empty(N), fp32_bias.new_empty(N)
        d_rows, d_bias = torch.empty_like(rows), torch.zeros_like(fp32_bias)
        d_weight = (rows.sum(0, dtype=torch.float32) * -share).to(weight.dtype).repeat(V, 1)
        size = _rows_at_once(rows, V)
        buffer = rows.new_empty(min(size, N), V)
        for start in range(0, N, size):
            chunk, target = rows[start : start + size], targets[start : start + size]
            logits = torch.mm(chunk, weight.t(), out=buffer[: len(chunk)])
            found = []
            for block, wanted in zip(*(x.split(_rows_in_block(logits)) for x in (logits, target)), strict=True):
                found.append(_softmax_and_gradient(block, fp32_bias, wanted[:, None], 1 - label_smoothing, d_bias))
            log_z[start : start + size], target_logit[start : start + size] = map(torch.cat, zip(*found, strict=True))
            if wants_gradient:
                torch.mm(logits, weight, out=d_rows[start : start + size])
                d_weight.addmm_(logits.t(), chunk)
        nll_sum = (log_z - target_logit).sum()
        loss_sum = (log_z - (1 - label_smoothing) * target_logit).sum()
        if share:
            real_weights, real_biases = (_sum_of_real_classes(x) for x in (weight, fp32_bias))
            loss_sum = loss_sum - share * (torch.mv(rows.float(), real_weights).sum() + N * real_biases)
            d_rows -= (share * real_weights).to(rows.dtype)
            d_weight[PAD_ID] += (share * rows.sum(0, dtype=torch.float32)).to(weight.dtype)
            d_bias -= share * N
            d_bias[PAD_ID] += share * N
        ctx.save_for_backward(d_rows, d_weight, d_bias.to(bias.dtype))
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        d_rows, d_weight, d_bias = ctx.saved_tensors
        scale = grad_loss.to(d_rows.dtype)
        return d_rows.mul_(scale), d_weight.mul_(scale), d_bias.mul_(scale), None, None


def _sum_of_real_classes(values: Float[Tensor, "V *D"]) -> Float[Tensor, "*D"]:
    return values[:PAD_ID].sum(0, dtype=torch.float32) + values[PAD_ID + 1 :].sum(0, dtype=torch.float32)


def _softmax_and_gradient(
    block: Float[Tensor, "n V"], bias: Float[Tensor, " V"], target: Int[Tensor, "n 1"], weight: float, d_bias: Tensor
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Logits without bias become (softmax - weight · one-hot) in place; returns logsumexp and the target's logit."""
    logits = block + bias if block.dtype == bias.dtype else block.float().add_(bias)
    target_logit = logits.gather(1, target)
    softmax = logits.softmax(1)
    probability = softmax.gather(1, target)
    log_z = target_logit - probability.log()
    if bool((probability < TINY).any()):
        log_z = logits.logsumexp(1, keepdim=True)
    softmax.scatter_(1, target, probability - weight)
    d_bias += softmax.sum(0)
    block.copy_(softmax)
    return log_z[:, 0], target_logit[:, 0]
