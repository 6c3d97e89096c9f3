"""The optimiser's side of a step: parameter groups, the working copy, one flat gradient, clipping, learning rates."""

import copy
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from xyd.config import TrainConfig

Model = TypeVar("Model", bound=nn.Module)


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019). Matrices decay; norms, biases, embeddings and positions do not."""
    kept = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.dim() > 1 and id(parameter) not in kept and name != "positions"
        (decayed if is_matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def learning_rate(step: int, config: TrainConfig, plateau_factor: float = 1.0, start: int = 0) -> float:
    """The rate of update number `step` (from 1). All schedules rise linearly to `learning_rate` over the warm-up.

    inverse_sqrt falls with 1/√step (Vaswani et al. 2017); cosine and linear reach `min_learning_rate` at `max_steps`;
    plateau is constant times `plateau_factor`, which the trainer lowers when validation stops improving. `start` is
    the step after which the schedule began.
    """
    peak, floor, warmup = config.learning_rate, config.min_learning_rate, config.warmup_steps
    step, max_steps = step - start, config.max_steps - start
    if step <= warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / max(1, max_steps - warmup))
    after: dict[str, Callable[[], float]] = {
        "inverse_sqrt": lambda: max(floor, peak * math.sqrt(max(1, warmup) / step)),
        "cosine": lambda: floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress)),
        "linear": lambda: floor + (peak - floor) * (1 - progress),
        "constant": lambda: peak,
        "plateau": lambda: max(floor, peak * plateau_factor),
    }
    return after[config.schedule]()


class Gradients(Generic[Model]):
    """The gradients of a step as one flat fp32 tensor, of which every parameter's `.grad` is a view.

    Summing over ranks, measuring and clipping are one operation each. With bf16, forward and backward run on `work`,
    a bf16 copy of the model; its gradients are added here in fp32 after each micro-batch, and `refresh` copies the
    updated fp32 weights back (mixed precision with master weights: Micikevicius et al. 2018).
    """

    EXTRAS = 9  # places behind the gradient; step.Sums names them

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        self.model = model
        self.work: Model = model if dtype == torch.float32 else copy.deepcopy(model).to(dtype)
        self.parameters: list[Tensor] = list(model.parameters())
        total = sum(p.numel() for p in self.parameters)
        # The last places carry the step's sums, so that one all-reduce is enough for everything.
        self.buffer = torch.zeros(total + self.EXTRAS, device=self.parameters[0].device)
        self.flat, self.extras = self.buffer[:total], self.buffer[total:]
        start = 0
        for p in self.parameters:
            p.grad = self.flat[start : start + p.numel()].view(p.shape)
            start += p.numel()
        self.work_parameters: list[Tensor] = list(self.work.parameters())

    def zero(self) -> None:
        self.buffer.zero_()

    def collect(self, is_first: bool = False) -> None:
        """Add the working copy's gradients of one micro-batch; those of the first replace what was there before."""
        if self.work is self.model:
            return  # autograd has added them to the views
        for p, w in zip(self.parameters, self.work_parameters, strict=True):
            assert p.grad is not None
            if is_first and w.grad is not None:
                p.grad.copy_(w.grad)  # half the traffic of zeroing and adding
            elif is_first:
                p.grad.zero_()
            elif w.grad is not None:
                p.grad.add_(w.grad)
            w.grad = None

    @torch.no_grad()
    def refresh(self) -> None:
        """The working copy takes the updated weights."""
        if self.work is not self.model:
            torch._foreach_copy_(self.work_parameters, self.parameters)

    def norm(self) -> Tensor:
        """The L2 norm of all gradients together."""
        return torch.linalg.vector_norm(self.flat)

    def clip(self, norm: float, max_norm: float) -> bool:
        """Multiply by max_norm / norm where norm is larger; True if it was."""
        if max_norm <= 0 or norm <= max_norm:
            return False
        self.flat.mul_(max_norm / norm)
        return True

    def norms_by_layer(self) -> dict[str, float]:
        """L2 norms of the gradients of each part: embedding, encoder.0 … decoder.7, output."""
        squares: dict[str, float] = {}
        for name, p in self.model.named_parameters():
            parts = name.split(".")
            key = ".".join(parts[:2]) if parts[0] in ("encoder", "decoder") else parts[0]
            squares[key] = squares.get(key, 0.0) + float(p.grad.square().sum())  # type: ignore[union-attr]
        return {key: math.sqrt(value) for key, value in squares.items()}
