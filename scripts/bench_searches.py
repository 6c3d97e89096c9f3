"""Searches to measure: xyd's `Searcher` and Hugging Face's `generate`; CTranslate2's is in bench_ct2.py.

All get the same sources, EOS at their end, and make exactly LENGTH decoder steps for each: EOS is suppressed, since
random weights never end well. xyd's search always ends with EOS, so it makes LENGTH - 1 free ids and the forced EOS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bench_task
from bench_loops import marian_config
from bench_rounds import Order, Result
from bench_speed import search_speed
from bench_task import LENGTH, SHAPES, Shape
from xyd.batching import pad_sources
from xyd.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, DecodeConfig
from xyd.model import Transformer

SEED = 1
BANNED = [PAD_ID, UNK_ID, BOS_ID]
Search = Callable[[Sequence[np.ndarray], int], Any]  # sources, beam size


def decode_speed(order: Order) -> Result:
    """What `search_speed` measures.

    order: system, shape, device, sentences (a file), num_sentences, task, seconds; hf also precision, batch, threads.
    """
    torch.manual_seed(SEED)
    sources = bench_task.load(order["sentences"]).test[: order["num_sentences"]]
    make = {"xyd": xyd_search, "hf": hf_search}[order["system"]]
    search = make(order, SHAPES[order["shape"]], torch.device(order["device"]))
    return search_speed(search, sources, order["task"], order["seconds"])


def xyd_search(_order: Order, shape: Shape, device: torch.device) -> Search:
    """The shipped path: DecodeConfig's defaults choose precision, workers and batches."""
    from xyd.search import Searcher

    model = Transformer(shape.model, shape.vocab_size).to(device).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -1e4
    searcher = Searcher(model, DecodeConfig(), device, BANNED)

    def search(sources: Sequence[np.ndarray], beam_size: int) -> None:
        rows = [source.tolist() for source in sources]
        found = searcher.search(rows, BOS_ID, [LENGTH - 1] * len(rows), beam_size, 1.0)
        assert {len(hypotheses[0].ids) for hypotheses in found} == {LENGTH - 1}

    return search


def hf_search(order: Order, shape: Shape, device: torch.device) -> Search:
    """MarianMTModel.generate with its cache, sources sorted by length, `batch` sentences at a time."""
    from transformers import MarianMTModel

    torch.set_num_threads(order["threads"])
    model = MarianMTModel(marian_config(shape)).eval().to(device)
    if order["precision"] == "bf16":
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def search(sources: Sequence[np.ndarray], beam_size: int) -> None:
        rows = sorted(sources, key=len)
        for start in range(0, len(rows), order["batch"]):
            src, src_mask = (t.to(device) for t in pad_sources(rows[start : start + order["batch"]]))
            ids = model.generate(
                input_ids=src, attention_mask=src_mask.long(), num_beams=beam_size, do_sample=False, use_cache=True,
                min_new_tokens=LENGTH, max_new_tokens=LENGTH,
            )  # fmt: skip
            assert ids.cpu().shape[1] == LENGTH + 1  # on a GPU it is done only now

    return search


def marian_for_ct2(order: Order) -> Result:
    """Write Marian of this shape with random weights as a CTranslate2 model into order["folder"].

    Its converter takes the last row of the vocabulary for padding and drops it: one class fewer.
    """
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    torch.manual_seed(SEED)
    shape = SHAPES[order["shape"]]
    spec = MarianMTLoader().get_model_spec(MarianMTModel(marian_config(shape)).eval())
    pieces = [str(i) for i in range(shape.vocab_size - 1)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (str(i) for i in (UNK_ID, BOS_ID, EOS_ID))
    spec.config.decoder_start_token = str(BOS_ID)
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=None)
    Path(order["folder"]).mkdir(parents=True)
    spec.save(order["folder"])
    return {"folder": order["folder"]}
