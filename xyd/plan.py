"""What a model will take, from shapes alone: parameters, operations, memory, disk. Forecasts are named as such.

`describe` and `measured` are what a run prints before its first step; `planner` makes the report of `xyd plan`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xyd.batching import Batch
from xyd.config import Config, ModelConfig
from xyd.loss import BLOCK_ELEMENTS, CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS
from xyd.memory import Usage, gigabytes
from xyd.model import Transformer, count_parameters

LIBRARIES = 400_000_000  # bytes that each process takes before it does anything
# On a CPU what is kept lies between what comes and goes, and the C library cannot fill all the gaps: measured, of the
# tiny and the base model with short and long rows, 1.35 to 1.5 times what is kept in bf16, 1.5 to 1.7 in fp32.
HEAP_BF16, HEAP_FP32 = 1.4, 1.55
TOKENS_PER_PARAMETER = 2  # the rule of thumb of word-ferry, xyd's predecessor

Shape = tuple[int, int, int]
"""B, S and T of a micro-batch, specials included."""


# ── memory and disk ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Forecast:
    """Bytes that training will hold in one process, and that the run directory will take."""

    weights: int  # fp32; with bf16 its copy too
    gradients: int  # the same
    optimizer: int  # AdamW's two moments
    activations: int  # kept for the backward pass of the largest micro-batch, and what the loss works in
    disk: int  # checkpoints

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def forecast(
    config: Config,
    num_parameters: int,
    vocab_size: int,
    is_bf16: bool,
    shapes: Sequence[Shape] = (),
    is_on_gpu: bool = False,
) -> Forecast:
    """From counts of what is kept; real use also has the libraries and the data.

    `shapes`: those of the largest micro-batches; without them, rows as long as the model takes fill `max_tokens`.
    """
    copy = 2 if is_bf16 else 0
    if not shapes:
        S = max(1, min(config.model.max_length, config.train.max_tokens // 2))
        shapes = [(max(1, config.train.max_tokens // (2 * S)), S, S)]
    return Forecast(
        weights=num_parameters * (4 + copy),
        gradients=num_parameters * (4 + copy),
        optimizer=num_parameters * 8,
        activations=max(_activations(config, vocab_size, is_bf16, shape, is_on_gpu) for shape in shapes),
        disk=num_parameters * (2 * 12 + (config.train.keep_checkpoints + 1) * 4),
    )


def kept_bytes(model: ModelConfig, is_bf16: bool, shape: Shape, is_on_gpu: bool = False) -> int:
    """What autograd keeps of a micro-batch's states until the backward pass, without the loss.

    A layer keeps, for each token: states before and after its norms, queries, keys, values, heads, the inside of the
    feed-forward layer, a mask for each dropout; and, where attention is no fused kernel (on a CPU), for each head and
    pair of tokens the weights in fp32, in bf16 once more.
    """
    (B, S, T), size = shape, 2 if is_bf16 else 4
    D, F, mask = model.d_model, model.d_ff, 1 if is_on_gpu else size
    inside = F * size * (3 if model.activation == "swiglu" else 1)
    if model.activation_dropout:
        inside += F * (size + mask)
    elif model.activation != "relu":  # whose result serves its own backward pass and the next product's
        inside += F * size
    sub_layer = 2 * D * size + (D * mask if model.dropout else 0)
    feed_forward = sub_layer + inside
    self_attention = sub_layer + 4 * D * size
    cross_attention = sub_layer + 2 * D * size  # and keys and values, which are as many as source tokens
    L_enc, L_dec = model.num_encoder_layers, model.num_decoder_layers
    per_source = L_enc * (self_attention + feed_forward) + L_dec * 2 * D * size
    per_target = L_dec * (self_attention + cross_attention + feed_forward)
    ends = sub_layer if model.norm_position == "pre" else 0  # the final norms, the dropout of the embeddings
    kept = B * (S * (per_source + ends) + T * (per_target + ends))
    if not is_on_gpu:
        per_weight = 4 + (2 * size if model.attention_dropout else 2 if is_bf16 else 0)
        kept += B * model.num_heads * (L_enc * S * S + L_dec * (T * T + S * T)) * per_weight
    return kept


def loss_bytes(d_model: int, vocab_size: int, is_bf16: bool, num_tokens: int, is_on_gpu: bool = False) -> int:
    """What the loss works in: a chunk of logits, blocks of it in fp32, the gradients of the states and of the weight.

    On a CPU a sum over the weight in bf16 makes a copy of it in fp32.
    """
    size = 2 if is_bf16 else 4
    chunk = min(GPU_CHUNK_ELEMENTS if is_on_gpu else CHUNK_ELEMENTS, num_tokens * vocab_size)
    blocks = 3 * 4 * (chunk if is_on_gpu else min(chunk, BLOCK_ELEMENTS))
    copy = 4 * vocab_size * d_model if is_bf16 and not is_on_gpu else 0
    return chunk * size + max(blocks, copy) + (vocab_size + 2 * num_tokens) * d_model * size


def _activations(config: Config, vocab_size: int, is_bf16: bool, shape: Shape, is_on_gpu: bool) -> int:
    """Bytes at the end of the forward pass, where they are most."""
    heap = 1.0 if is_on_gpu else HEAP_BF16 if is_bf16 else HEAP_FP32
    kept = kept_bytes(config.model, is_bf16, shape, is_on_gpu)
    return round(heap * kept) + loss_bytes(config.model.d_model, vocab_size, is_bf16, shape[0] * shape[2], is_on_gpu)


# ── operations ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of training on some pairs, forward and backward; a product and a sum are two."""

    encoder: float
    decoder: float
    attention: float
    output: float

    @property
    def total(self) -> float:
        return self.encoder + self.decoder + self.attention + self.output


def operations(model: ModelConfig, vocab_size: int, src_lengths: np.ndarray, tgt_lengths: np.ndarray) -> Operations:
    """Of pairs of these lengths, specials included, without padding.

    6 for each weight of a matrix and token it multiplies: 2 forward, 4 backward (Kaplan et al. 2020). Encoder layers
    and the keys and values of cross-attention see source tokens, the rest of the decoder and the output projection
    target tokens; looking up embeddings multiplies nothing. Attention: 12·D for each pair of positions and layer.
    """
    D, F = model.d_model, model.d_ff
    s, t = src_lengths.astype(np.float64), tgt_lengths.astype(np.float64)
    feed_forward = (3 if model.activation == "swiglu" else 2) * D * F
    own, cross = 4 * D * D + feed_forward, 2 * D * D
    L_enc, L_dec = model.num_encoder_layers, model.num_decoder_layers
    return Operations(
        encoder=6 * L_enc * own * s.sum(),
        decoder=6 * L_dec * ((own + cross) * t.sum() + cross * s.sum()),
        attention=12 * D * (L_enc * (s * s).sum() + L_dec * (t * t + s * t).sum()),
        output=6 * D * vocab_size * t.sum(),
    )


def width_by_rule(model: ModelConfig, vocab_size: int, num_tokens: float) -> int:
    """d_model by word-ferry's rule of thumb, for as many layers: a parameter for every 2 tokens, up to the next 64.

    It counts the tokens of both sides in all rows, 12·D² weights for an encoder and 16·D² for a decoder layer, and V·D
    for a tied embedding.
    """
    a = 12 * model.num_encoder_layers + 16 * model.num_decoder_layers
    b = vocab_size * (1 if model.tie_embeddings else 3)
    width = (math.sqrt(b * b + 4 * a * num_tokens / TOKENS_PER_PARAMETER) - b) / (2 * a)
    return max(64, 64 * math.ceil(width / 64))


# ── what a run says before its first step ────────────────────────────────────────────────────────────────────────────


def shape_chain(batch: Batch, config: Config, vocab_size: int) -> list[str]:
    """The shapes one batch goes through, from ids to one number."""
    (B, S), T = batch.src.shape, batch.tgt_in.shape[1]
    m, N, D = config.model, batch.num_tokens, config.model.d_model
    return [
        f"src ({B},{S}) → embedding ({B},{S},{D}) → {m.num_encoder_layers} encoder layers → memory ({B},{S},{D})",
        f"tgt_in ({B},{T}) → embedding ({B},{T},{D}) → {m.num_decoder_layers} decoder layers → states ({B},{T},{D})",
        f"states of {N} real tokens ({N},{D}) → logits ({N},{vocab_size}), in chunks → cross-entropy → 1 number",
    ]


def parameters_by_part(parts: Mapping[str, int]) -> str:
    named = " + ".join(f"{name} {count:,}" for name, count in parts.items() if count)
    return f"parameters: {sum(parts.values()):,} = {named}"


def describe(
    config: Config,
    model: Transformer,
    batch: Batch,
    shapes: Sequence[Shape],
    is_bf16: bool,
    free: int,
    is_on_gpu: bool = False,
) -> str:
    """The lines that a run prints before step 1. `shapes`: of its largest micro-batches; `free`: bytes on the disk."""
    parts = count_parameters(model)
    told = forecast(config, sum(parts.values()), model.vocab_size, is_bf16, shapes, is_on_gpu)
    lines = ["one batch:"] + [f"  {line}" for line in shape_chain(batch, config, model.vocab_size)]
    lines.append(parameters_by_part(parts))
    lines.append(memory_line(told))
    lines.append(f"disk, forecast: checkpoints {gigabytes(told.disk)}, free {gigabytes(free)}")
    if told.disk > free:
        lines.append("warning: the checkpoints will not fit; lower train.keep_checkpoints or choose another run.dir")
    return "\n".join(lines)


def memory_line(told: Forecast) -> str:
    return (
        f"memory, forecast per process: {gigabytes(told.memory)} (weights {gigabytes(told.weights)}, gradients "
        f"{gigabytes(told.gradients)}, optimiser {gigabytes(told.optimizer)}, largest micro-batch "
        f"{gigabytes(told.activations)}), and about {gigabytes(LIBRARIES)} for the libraries"
    )


def measured(shapes: list[Shape], usages: Sequence[Usage], is_on_gpu: bool) -> str:
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
