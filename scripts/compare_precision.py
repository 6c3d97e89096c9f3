"""What cheaper arithmetic costs a trained run: NLL, BLEU and chrF of its test split in fp32, bf16 and int8.

    python scripts/compare_precision.py RUN [--beam 5]

NLL is by teacher forcing through the model as search uses it, in nats a token. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from xyd.batching import start_ids
from xyd.corpus import open_split
from xyd.evaluate import evaluate_split, token_nll
from xyd.files import RunDir
from xyd.quantize import Precision, prepared
from xyd.translate import Translator

PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "int8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--beam", type=int, default=5)
    options = parser.parse_args()
    split = open_split(RunDir(options.run), "test")
    loaded = Translator.load(options.run)
    found: dict[str, dict[str, Any]] = {}
    for precision in PRECISIONS:
        decode = loaded.config.decode.model_copy(update={"precision": precision})
        config = loaded.config.model_copy(update={"decode": decode})
        translator = Translator(loaded.model, loaded.tokenizer, config, loaded.directions, loaded.device)
        began = time.perf_counter()
        report = evaluate_split(translator, split, beam_size=options.beam)
        seconds = time.perf_counter() - began
        starts = start_ids(loaded.tokenizer, loaded.directions)
        model = prepared(loaded.model, precision)
        limits = {"max_length": config.model.max_length, "max_tokens": config.train.max_tokens}
        nll = token_nll(model, split, starts, **limits)
        found[precision] = {
            "nll": round(float(np.nansum(nll.nll_sum) / nll.num_tokens.sum()), 5),
            "bleu": report.bleu,
            "chrf": report.chrf,
            "seconds": round(seconds, 1),
        }
        print(precision, found[precision], flush=True)
    print(json.dumps({"run": str(options.run), "beam": options.beam, "precision": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
