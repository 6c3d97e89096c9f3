"""Training loops to measure: xyd's own step, a plain `nn.Transformer` loop, Hugging Face Marian
(JoeyNMT: bench_joey).

All train the same shape on the same sentences with dropout 0.1 on embeddings and on what each sub-layer adds, none on
attention weights and inside the feed-forward layer, plain cross-entropy, AdamW with xyd's settings at a fixed rate, and
gradients clipped to norm 1. Marian is post-norm and has fixed positions; nothing else differs by design.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bench_task
from bench_rounds import Order, Result, peak_memory_mb
from bench_task import CLIP_NORM, LEARNING_RATE, SHAPES, TOKENS_PER_STEP, Sentences, Shape
from xyd import distributed
from xyd.batching import Batch, collate_fn, plan_epoch
from xyd.config import BOS_ID, EOS_ID, PAD_ID, TrainConfig
from xyd.model import Transformer
from xyd.optim import Gradients, build_optimizer
from xyd.step import StepGradient, Sums

SEED = 1
TRAIN = TrainConfig(learning_rate=LEARNING_RATE)  # AdamW's settings, for all


@dataclass(frozen=True)
class Loop:
    """A loop ready to run. `step` trains on one of `items` and returns its real target tokens, over all processes.

    `small` is an item of few sentences, which is enough to make the optimiser's state and start the threads.
    """

    step: Callable[[Any], int]
    items: list[Any]
    small: Any
    num_parameters: int


class Pairs:
    """The sentences as what batching needs to know of a prepared split."""

    def __init__(self, sentences: Sentences) -> None:
        self.sentences = sentences
        self.src_lengths, self.tgt_lengths = _lengths(sentences)
        self.direction, self.pair_id = np.zeros(len(self.src_lengths), np.int16), np.arange(len(self.src_lengths))

    def src_ids(self, i: int) -> np.ndarray:
        return self.sentences.src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self.sentences.tgt[i]


def xyd_loop(order: Order, shape: Shape, sentences: Sentences, device: torch.device) -> Loop:
    """What `Trainer.train_step` does, with its shipped settings."""
    pairs = Pairs(sentences)
    model = Transformer(shape.model, shape.vocab_size).to(device)
    g = Gradients(model, distributed.choose_dtype(order.get("precision", "auto"), device))
    gradient = StepGradient(g, pairs, np.array([BOS_ID]), label_smoothing=0.0, seed=SEED)
    optimizer = build_optimizer(model, TRAIN)
    steps = plan_epoch(
        pairs.src_lengths, pairs.tgt_lengths, max_tokens=TRAIN.max_tokens, tokens_per_step=TOKENS_PER_STEP, seed=SEED,
        epoch=0,
    )  # fmt: skip
    numbers = itertools.count(1)

    def step(micro_batches: list[np.ndarray]) -> int:
        gradient.compute(micro_batches, next(numbers))
        distributed.sum_in_place(g.buffer)
        sums = Sums(*g.extras.tolist())
        assert math.isfinite(sums.loss)
        assert not gradient.halved, "not enough memory for a micro-batch"
        g.clip(float(g.norm()), CLIP_NORM)
        optimizer.step()
        g.refresh()
        return gradient.num_tokens(micro_batches)

    return Loop(step, steps, [rows[:16] for rows in steps[0]], num_parameters(model))


def plain_loop(_order: Order, shape: Shape, sentences: Sentences, device: torch.device) -> Loop:
    """The loop of the tutorials: fp32, shuffled sentences padded to the longest, the whole logits."""
    model = Plain(shape).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), **adamw())
    batches = cut(sentences, is_sorted=False)

    def step(rows: np.ndarray) -> int:
        batch = batch_of(sentences, rows, device)
        logits = model(batch.src, batch.tgt_in)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=PAD_ID)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        return batch.num_tokens

    return Loop(step, batches, batches[0][:16], num_parameters(model))


class Plain(nn.Module):
    """`nn.Transformer` between one embedding and its transpose, with learned positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        c = shape.model
        self.embedding = nn.Embedding(shape.vocab_size, c.d_model, padding_idx=PAD_ID)
        self.positions = nn.Embedding(c.max_length, c.d_model)
        nn.init.normal_(self.embedding.weight, std=c.d_model**-0.5)
        self.dropout = nn.Dropout(c.dropout)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fast path of inference that pre-norm rules out
            self.transformer = nn.Transformer(
                c.d_model, c.num_heads, c.num_encoder_layers, c.num_decoder_layers, c.d_ff, c.dropout,
                batch_first=True, norm_first=True,
            )  # fmt: skip
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = c.attention_dropout
            elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                module.dropout.p = c.activation_dropout  # the one inside the feed-forward layer
        self.output = nn.Linear(c.d_model, shape.vocab_size)
        self.output.weight = self.embedding.weight

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.positions.weight[: ids.shape[1]])

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        causal = torch.ones(tgt_in.shape[1], tgt_in.shape[1], dtype=torch.bool, device=src.device).triu(1)
        states = self.transformer(
            self.embed(src), self.embed(tgt_in), tgt_mask=causal, src_key_padding_mask=src == PAD_ID,
            tgt_key_padding_mask=tgt_in == PAD_ID, memory_key_padding_mask=src == PAD_ID,
        )  # fmt: skip
        return self.output(states)


def hf_loop(order: Order, shape: Shape, sentences: Sentences, device: torch.device) -> Loop:
    """MarianMTModel as its Trainer runs it: batches of like length, autocast for bf16, fused AdamW.

    With several processes each takes its part of every batch, and DistributedDataParallel averages the gradients.
    """
    from transformers import MarianMTModel

    model = MarianMTModel(marian_config(shape, order["attention"])).to(device).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, fused=True, **adamw())
    trained: Any = model
    if distributed.world_size() > 1:
        trained = nn.parallel.DistributedDataParallel(model)
    autocast = functools.partial(torch.autocast, device.type, torch.bfloat16, enabled=order["precision"] == "bf16")
    batches = cut(sentences, is_sorted=True)

    def step(rows: np.ndarray) -> int:
        batch = batch_of(sentences, rows[distributed.rank() :: distributed.world_size()], device)
        labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD_ID, -100)
        with autocast():
            loss = trained(input_ids=batch.src, attention_mask=batch.src_mask.long(), labels=labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return sum(len(sentences.tgt[row]) + 1 for row in rows)

    return Loop(step, batches, batches[0][:16], num_parameters(model))


def marian_config(shape: Shape, attention: str = "sdpa") -> Any:
    """A MarianConfig of this shape, with xyd's special ids. `attention`: sdpa or eager."""
    from transformers import MarianConfig

    c = shape.model
    return MarianConfig(
        vocab_size=shape.vocab_size, d_model=c.d_model, encoder_layers=c.num_encoder_layers,
        decoder_layers=c.num_decoder_layers, encoder_attention_heads=c.num_heads, decoder_attention_heads=c.num_heads,
        encoder_ffn_dim=c.d_ff, decoder_ffn_dim=c.d_ff, dropout=c.dropout, attention_dropout=c.attention_dropout,
        activation_dropout=c.activation_dropout, activation_function=c.activation,
        max_position_embeddings=c.max_length, scale_embedding=True, pad_token_id=PAD_ID, bos_token_id=BOS_ID,
        eos_token_id=EOS_ID, decoder_start_token_id=BOS_ID, forced_eos_token_id=None, attn_implementation=attention,
    )  # fmt: skip


LOOPS = {"xyd": xyd_loop, "plain": plain_loop, "hf": hf_loop}


def loop_of(system: str) -> Callable[[Order, Shape, Sentences, torch.device], Loop]:
    if system == "joey":
        from bench_joey import joey_loop

        return joey_loop
    return LOOPS[system]


def cut(sentences: Sentences, is_sorted: bool) -> list[np.ndarray]:
    """Batches of TOKENS_PER_STEP in random order; `is_sorted`: of sentences of like length on both sides."""
    rng = np.random.default_rng(SEED)
    src_lengths, tgt_lengths = _lengths(sentences)
    order = rng.permutation(len(tgt_lengths))
    if is_sorted:
        order = order[np.lexsort((src_lengths[order], tgt_lengths[order]))]
    batches = bench_task.cut_by_tokens(order.tolist(), tgt_lengths, TOKENS_PER_STEP)
    return [batches[i] for i in rng.permutation(len(batches))]


def adamw() -> dict[str, Any]:
    return {
        "lr": TRAIN.learning_rate,
        "betas": (TRAIN.beta1, TRAIN.beta2),
        "eps": TRAIN.epsilon,
        "weight_decay": TRAIN.weight_decay,
    }


def _lengths(sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
    src, tgt = (np.array([len(row) for row in rows]) for rows in (sentences.src, sentences.tgt))
    return src, tgt


def batch_of(sentences: Sentences, rows: np.ndarray, device: torch.device) -> Batch:
    src, tgt = ([side[row] for row in rows] for side in (sentences.src, sentences.tgt))
    return collate_fn(src, tgt, np.full(len(rows), BOS_ID), rows).to(device)


def num_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────


def train_speed(order: Order) -> Result:
    """Target tokens per second, and the peak memory summed over all processes of the loop, in MiB.

    order: system, shape, device, sentences (a file), workers, threads (of each), seconds, min_steps, whole_warm_up;
    hf also precision and attention.
    """
    with tempfile.TemporaryDirectory() as folder:
        if order["workers"] > 1:
            code = distributed.launch(_rank, order["workers"], (order, folder))
            assert code == 0, f"exit code {code}"
        else:
            _rank(order, folder)
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]
    result: Result = found[0]
    for name in ("memory_mb", "gpu_memory_mb"):
        result[name] = round(sum(part[name] for part in found))
    if order["workers"] > 1:  # this process too: it holds the others' place
        result["memory_mb"] += round(peak_memory_mb())
    return result


def _rank(order: Order, folder: str) -> int:
    """One process of a measurement."""
    device = distributed.choose_device(order["device"])
    distributed.start(device)
    torch.set_num_threads(order["threads"])
    torch.manual_seed(SEED)
    loop = loop_of(order["system"])(order, SHAPES[order["shape"]], bench_task.load(order["sentences"]), device)
    result = timed(loop, order["seconds"], order["min_steps"], order["whole_warm_up"], device)
    result |= {"memory_mb": peak_memory_mb(), "gpu_memory_mb": 0.0, "parameters": loop.num_parameters}
    if device.type == "cuda":
        result["gpu_memory_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    Path(folder, f"{distributed.rank()}.json").write_text(json.dumps(result), encoding="utf-8")
    distributed.stop()
    return 0


def timed(loop: Loop, seconds: float, min_steps: int, whole_warm_up: bool, device: torch.device) -> Result:
    """Whole steps for at least `seconds` and `min_steps`, after a step on a few sentences and one on an item."""
    loop.step(loop.small)
    if whole_warm_up:
        loop.step(loop.items[-1])
    _finish(device)
    tokens, steps, began = 0, 0, time.perf_counter()
    while True:
        tokens += loop.step(loop.items[steps % len(loop.items)])
        steps += 1
        _finish(device)
        took = time.perf_counter() - began
        is_over = torch.tensor([float(took > seconds and steps >= min_steps)], device=device)
        if float(distributed.sum_in_place(is_over)) > 0:  # all processes leave after the same step
            return {
                "figure": round(tokens / took, 1),
                "unit": "target tokens/s",
                "steps": steps,
                "seconds": round(took, 2),
            }


def _finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
