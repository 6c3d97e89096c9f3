"""JoeyNMT 2.3 as a peer in training, where it is installed: its model, its loss, its random batches.

Its special ids are fixed (unknown 0, padding 1), so the two change places. As its own trainer does: batches at random,
one process, fp32 on a CPU, the loss summed and divided by the tokens.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench_loops import Loop, adamw, batch_of, cut, num_parameters
from bench_rounds import Order
from bench_task import CLIP_NORM, Sentences, Shape
from xyd.config import PAD_ID, UNK_ID

JOEY_PAD, JOEY_UNK = 1, 0


def joey_loop(_order: Order, shape: Shape, sentences: Sentences, device: torch.device) -> Loop:
    from joeynmt.batch import Batch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=JOEY_UNK, pad_id=JOEY_PAD, bos_id=2, eos_id=3,
    )  # fmt: skip
    vocabulary = Vocabulary([f"w{i}" for i in range(shape.vocab_size - 4)], special)
    c = shape.model
    part = {
        "type": "transformer", "num_heads": c.num_heads, "hidden_size": c.d_model, "ff_size": c.d_ff,
        "dropout": c.dropout, "layer_norm": "pre", "activation": c.activation,
        "embeddings": {"embedding_dim": c.d_model, "scale": True, "dropout": c.dropout},
    }  # fmt: skip
    config: dict[str, Any] = {
        "tied_embeddings": True, "tied_softmax": True, "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "encoder": {**part, "num_layers": c.num_encoder_layers},
        "decoder": {**part, "num_layers": c.num_decoder_layers},
    }  # fmt: skip
    model = build_model(config, vocabulary, vocabulary).to(device).train()
    model.loss_function = ("crossentropy", 0.0)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, **adamw())
    batches = cut(sentences, is_sorted=False)

    def step(rows: np.ndarray) -> int:
        ours = batch_of(sentences, rows, device)
        trg = _swapped(torch.cat([ours.tgt_in[:, :1], ours.tgt_out], dim=1))
        length = ours.src_mask.sum(1)
        batch = Batch(_swapped(ours.src), length, None, trg, None, torch.arange(len(rows)), device, JOEY_PAD, 3)
        loss, *_ = model(
            return_type="loss", src=batch.src, trg=batch.trg, trg_input=batch.trg_input, src_mask=batch.src_mask,
            src_length=batch.src_length, trg_mask=batch.trg_mask,
        )  # fmt: skip
        (loss / ours.num_tokens).backward()
        nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return ours.num_tokens

    return Loop(step, batches, batches[0][:16], num_parameters(model))


def _swapped(ids: Tensor) -> Tensor:
    """xyd's padding and unknown become JoeyNMT's."""
    return torch.where(ids == PAD_ID, JOEY_PAD, torch.where(ids == UNK_ID, JOEY_UNK, ids))
