"""CTranslate2's side of bench_decode.py: a process that never loads torch, whose threads would be in the way.

python scripts/bench_ct2.py --measure ORDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

import bench_task
from bench_rounds import Order, Result, serve
from bench_speed import BEAM_OF, WARM_UP, search_speed, seconds
from bench_task import LENGTH


def measure(order: Order) -> Result:
    """One order: `job` speed, texts or ids, model (a folder), device, compute_type, inter, intra, max_batch."""
    job = {"speed": speed, "texts": texts, "ids": ids}[order["job"]]
    translator = ctranslate2.Translator(
        order["model"], device=order["device"], compute_type=order["compute_type"],
        inter_threads=order["inter"], intra_threads=order["intra"],
    )  # fmt: skip
    result = job(translator, order)
    assert "torch" not in sys.modules
    return result


def speed(translator: Any, order: Order) -> Result:
    """LENGTH tokens for every test sentence; also sentences (a file), num_sentences, task, seconds."""
    sources = bench_task.load(order["sentences"]).test[: order["num_sentences"]]

    def search(rows: Sequence[np.ndarray], beam_size: int) -> None:
        found = _translate(
            translator, [[str(i) for i in row] for row in rows], order, beam_size, min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
        )  # fmt: skip
        assert {len(pieces) for pieces in found} == {LENGTH}

    return search_speed(search, sources, order["task"], order["seconds"])


def texts(translator: Any, order: Order) -> Result:
    """Sentences per second from text to text, at natural lengths; also texts, output (files), task, seconds."""
    from xyd.tokenizer import Tokenizer

    known = json.loads(Path(order["texts"]).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(Path(order["model"]) / "tokenizer.model")
    pieces = [tokenizer.piece(i) for i in range(tokenizer.vocab_size)]
    id_of = {piece: i for i, piece in enumerate(pieces)}

    def translate(lines: list[str]) -> list[str]:
        rows = [[pieces[i] for i in row] for row in tokenizer.encode_batch(lines)]
        found = _translate(
            translator, rows, order, BEAM_OF[order["task"]], max_decoding_length=known["max_decoding_length"]
        )
        return [tokenizer.decode([id_of[piece] for piece in row]) for row in found]

    translate(known["sources"][:WARM_UP])
    took, times = seconds(lambda: translate(known["sources"]), order["seconds"])
    Path(order["output"]).write_text(json.dumps(translate(known["sources"])), encoding="utf-8")
    figure = round(len(known["sources"]) / took, 1)
    return {"figure": figure, "unit": "sentences/s", "seconds": round(took, 3), "times": times}


def ids(translator: Any, order: Order) -> Result:
    """Greedy ids of the first num_sentences sources of the file texts."""
    from xyd.tokenizer import Tokenizer

    known = json.loads(Path(order["texts"]).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(Path(order["model"]) / "tokenizer.model")
    pieces = [tokenizer.piece(i) for i in range(tokenizer.vocab_size)]
    id_of = {piece: i for i, piece in enumerate(pieces)}
    rows = [[pieces[i] for i in row] for row in tokenizer.encode_batch(known["sources"][: order["num_sentences"]])]
    found = _translate(translator, rows, order, 1, max_decoding_length=known["max_decoding_length"])
    return {"ids": [[id_of[piece] for piece in row] for row in found]}


def _translate(
    translator: Any, rows: Sequence[Sequence[str]], order: Order, beam_size: int, **lengths: int
) -> list[list[str]]:
    """The pieces of the best hypothesis of each row; CTranslate2 sorts and batches by itself."""
    found = translator.translate_batch(
        rows, beam_size=beam_size, max_batch_size=order["max_batch"], batch_type="tokens", **lengths
    )
    return [result.hypotheses[0] for result in found]


if __name__ == "__main__":
    sys.exit(0 if serve(measure) else "bench_decode.py calls this")
