"""What a run will be, said before its first step: shapes, parameters, memory and disk. Forecasts are named as such."""

from collections.abc import Sequence
from dataclasses import dataclass

from xyd.batching import Batch
from xyd.config import Config
from xyd.loss import BLOCK_ELEMENTS, CHUNK_ELEMENTS
from xyd.memory import Usage, gigabytes
from xyd.model import Transformer, count_parameters

LIBRARIES = 400_000_000  # bytes that each process takes before it does anything


@dataclass(frozen=True)
class Forecast:
    """Bytes that training will hold in one process, and that the run directory will take."""

    weights: int  # fp32 weights, gradients, AdamW's two moments; with bf16 its copy of weights and gradients
    activations: int  # kept for the backward pass of the largest micro-batch
    disk: int

    @property
    def memory(self) -> int:
        return self.weights + self.activations


def forecast(config: Config, num_parameters: int, vocab_size: int, is_bf16: bool) -> Forecast:
    """From counts of what is kept; real use also has the libraries and the data."""
    m, size = config.model, 2 if is_bf16 else 4
    weights = num_parameters * (16 + (4 if is_bf16 else 0))
    tokens = config.train.max_tokens
    # Elements per padded token that autograd keeps: attention in and out, the feed-forward layer, norms, residuals.
    feed_forward = (5 if m.activation == "swiglu" else 2) * m.d_ff
    per_encoder_layer = 10 * m.d_model + feed_forward
    per_decoder_layer = 16 * m.d_model + feed_forward
    source, target = tokens // 2, tokens - tokens // 2
    elements = source * m.num_encoder_layers * per_encoder_layer + target * m.num_decoder_layers * per_decoder_layer
    logits = min(CHUNK_ELEMENTS, target * vocab_size) * size + 3 * 4 * BLOCK_ELEMENTS
    loss = logits + vocab_size * m.d_model * size
    checkpoints = num_parameters * (2 * 12 + (config.train.keep_checkpoints + 1) * 4)
    return Forecast(weights, elements * size + loss, checkpoints)


def shape_chain(batch: Batch, config: Config, vocab_size: int) -> list[str]:
    """The shapes one batch goes through, from ids to one number."""
    (B, S), T = batch.src.shape, batch.tgt_in.shape[1]
    m, N, D = config.model, batch.num_tokens, config.model.d_model
    return [
        f"src ({B},{S}) → embedding ({B},{S},{D}) → {m.num_encoder_layers} encoder layers → memory ({B},{S},{D})",
        f"tgt_in ({B},{T}) → embedding ({B},{T},{D}) → {m.num_decoder_layers} decoder layers → states ({B},{T},{D})",
        f"states of {N} real tokens ({N},{D}) → logits ({N},{vocab_size}), in chunks → cross-entropy → 1 number",
    ]


def describe(config: Config, model: Transformer, batch: Batch, is_bf16: bool, free: int) -> str:
    """The lines that a run prints before step 1. `free`: bytes free where the run directory is."""
    parts = count_parameters(model)
    total = sum(parts.values())
    told = forecast(config, total, model.vocab_size, is_bf16)
    lines = ["one batch:"] + [f"  {line}" for line in shape_chain(batch, config, model.vocab_size)]
    lines.append(
        f"parameters: {total:,} = " + " + ".join(f"{name} {count:,}" for name, count in parts.items() if count)
    )
    lines.append(
        f"memory, forecast per process: {gigabytes(told.memory)} (weights and optimiser {gigabytes(told.weights)}, "
        f"largest micro-batch {gigabytes(told.activations)}), and about {gigabytes(LIBRARIES)} for the libraries"
    )
    lines.append(f"disk, forecast: checkpoints {gigabytes(told.disk)}, free {gigabytes(free)}")
    if told.disk > free:
        lines.append("warning: the checkpoints will not fit; lower train.keep_checkpoints or choose another run.dir")
    return "\n".join(lines)


def measured(shapes: list[tuple[int, int, int]], usages: Sequence[Usage], is_on_gpu: bool) -> str:
    """What the largest micro-batches, of these shapes (B,S,T), took at step 0; a usage for each rank."""
    told = " and ".join(f"({B},{S}) → ({B},{T})" for B, S, T in shapes)
    where = "on the GPU" if is_on_gpu else "per process, libraries and data included"
    line = (
        f"memory, measured: largest micro-batch {told}: {gigabytes(max(u.growth for u in usages))}; "
        f"{gigabytes(max(u.peak for u in usages))} {where}"
    )
    if len(usages) > 1:
        line += f", {gigabytes(sum(u.peak for u in usages))} for all {len(usages)}"
    return line
