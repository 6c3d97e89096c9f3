"""A copy of a model for search on a CPU: the same network with cheaper matrix products.

Only the products change. Their inputs and outputs, norms, softmaxes and the cache stay in fp32, which for the small
operations of a decode step is also faster than bf16. Each row is rounded by itself, so other rows do not matter to it.
"""

import copy
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from xyd.model import Transformer

Precision = Literal["fp32", "bf16", "int8"]

FEW_ROWS = 4  # up to here a product is bound by reading the weights' rows one by one, and fp32 is faster than bf16
ROWS_AT_ONCE = 256  # so that the steps of an int8 product find each other's results in the processor's caches
COLUMNS_AT_ONCE = 8192  # likewise
SMALLEST = 1e-12  # a row of zeros has a scale too


def prepared(model: Transformer, precision: Precision) -> Transformer:
    """A copy of `model`, in evaluation mode, whose linear layers multiply in this precision; fp32 is `model` itself.

    The fp32 weights are shared with `model`, not copied. On a GPU the whole copy is in bf16.
    """
    if precision == "fp32":
        return model
    memo = {id(p): p for p in model.parameters()}
    if next(model.parameters()).device.type != "cpu":
        return copy.deepcopy(model).to(torch.bfloat16).eval()
    ready = copy.deepcopy(model, memo).eval()
    for module in list(ready.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child) if precision == "int8" else Bf16Linear(child))
    return ready


class Bf16Linear(nn.Module):
    """x Wᵀ + b with the product in bf16, or in fp32 for a few rows, whichever is faster."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.bf16_weight, self.bf16_bias = linear.weight.detach().bfloat16(), linear.bias.detach().bfloat16()

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows N"]:
        if x.numel() <= FEW_ROWS * x.shape[-1]:
            return F.linear(x, self.weight, self.bias)
        return F.linear(x.bfloat16(), self.bf16_weight, self.bf16_bias).float()


class Int8Linear(nn.Module):
    """x Wᵀ + b with an exact integer product of 8-bit rows.

    Every row of x and of W is divided by its largest absolute value / 127 and rounded; the sum of products is exact in
    32 bits, then scaled back.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        weight = linear.weight.detach().float()
        self.scale = weight.abs().amax(1).clamp_min(SMALLEST) / 127
        self.weight = (weight / self.scale[:, None]).round().to(torch.int8)
        self.weight = self.weight.t()
        self.bias = linear.bias.detach().float()
        columns = [slice(n, n + COLUMNS_AT_ONCE) for n in range(0, self.out_features, COLUMNS_AT_ONCE)]
        self.parts = [(part, self.weight[:, part], self.scale[part], self.bias[part]) for part in columns]
        self.smallest = torch.tensor(SMALLEST)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows N"]:
        rows = x.flatten(0, -2)
        out = rows.new_empty(len(rows), self.out_features)
        if len(rows) <= ROWS_AT_ONCE:
            self._multiply(rows, out)
        else:
            for block, result in zip(rows.split(ROWS_AT_ONCE), out.split(ROWS_AT_ONCE), strict=True):
                self._multiply(block, result)
        return out.view(*x.shape[:-1], -1)

    def _multiply(self, x: Float[Tensor, "n D"], out: Float[Tensor, "n N"]) -> None:
        scale = torch.add(self.smallest, x.abs().amax(1, keepdim=True), alpha=1 / 127)
        rounded = (x / scale).round_().to(torch.int8)
        for part, weight, column_scale, bias in self.parts:
            product = torch._int_mm(rounded, weight).float().mul_(scale)
            torch.addcmul(bias, product, column_scale, out=out[:, part])
