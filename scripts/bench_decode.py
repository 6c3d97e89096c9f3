"""Decoding speed: xyd beside CTranslate2 and Hugging Face generate, in turns, in one run.

    python scripts/bench_decode.py [--shape base|tiny] [--rounds 3] [--sentences 300] [--device cpu|cuda] [--short]
    python scripts/bench_decode.py --trained RUN [--to LANG] [--rounds 3] [--sentences N]

Without --trained: random weights, the first 300 sentences of test_2016_flickr (or made-up ones), 15 decoder steps for
every sentence, whoever searches: EOS is suppressed, and xyd, which always ends with it, makes 14 free tokens and the
end mark. Greedy and beam 5 in target tokens per second over all sentences at once; latency is the median over 30
sentences, one at a time, greedy. Each figure comes from a process of its own, after a warm-up.

    xyd     Searcher with DecodeConfig's defaults: the path of `xyd translate`
    ct2     CTranslate2 int8 of random Marian weights, in a process without torch: one worker per core with one thread,
            or one worker with all, batches of 1024, 2048 or 4096 tokens, the best taken; latency with one thread or all
    hf      MarianMTModel.generate in fp32 or bf16, 64 or 150 sentences a batch, the best taken

With --trained: a trained run at natural lengths, see bench_trained.py. The last line is JSON; `ratios` are medians over
the rounds of ours / theirs: speeds, and milliseconds for latency_vs_ct2.

--short, for `make bench`: one round of 150 sentences, and each peer at the setting that was fastest when this was
written.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import bench_settings
import bench_task
from bench_rounds import (
    Order,
    Result,
    attempt,
    best_setting,
    facts,
    is_here,
    medians,
    parser,
    ratio,
    say,
    serve,
    take_turns,
)  # fmt: skip

PEERS = {"ct2": ("greedy", "beam5", "latency"), "hf": ("greedy", "beam5")}
SCRIPT = {"xyd": "bench_decode.py", "hf": "bench_decode.py", "ct2": "bench_ct2.py"}


def bench_random(options: Namespace, folder: Path) -> dict[str, Any]:
    """Random weights, LENGTH steps: the report without the facts."""
    sentences = bench_task.prepare()
    origin = bench_task.load(sentences).origin
    say(f"sentences: {origin}; shape {options.shape}; {bench_task.num_cores()} cores; {options.rounds} round(s)")
    common: Order = {
        "shape": options.shape,
        "device": options.device,
        "sentences": str(sentences),
        "num_sentences": options.sentences,
        "seconds": options.seconds,
    }
    about: dict[str, Order] = {
        "xyd": {"environment": bench_task.XYD_ENVIRONMENT},
        "ct2": {"job": "speed", "model": str(folder / "marian")},
        "hf": {},
    }
    peers = present_peers(options, about["ct2"]["model"])
    orders: dict[str, tuple[str, Order]] = {}
    chosen: dict[str, Order] = {}
    tried: dict[str, dict[str, float]] = {}
    for task in ("greedy", "beam5", "latency"):
        for system in ["xyd", *(peer for peer in peers if task in PEERS[peer])]:
            name = f"{system} {task}"
            order = {**common, "system": system, "task": task, **about[system]}
            if system != "xyd":
                ways = bench_settings.marian_decoding()
                if system == "ct2":
                    ways = bench_settings.ctranslate2(task, options.device)
                setting, tried[name] = best_setting(SCRIPT[system], order, ways, options.short)
                if setting is None:
                    continue
                order, chosen[name] = {**order, **setting}, setting
            orders[name] = (SCRIPT[system], order)
    results = take_turns(orders, options.rounds)
    return {
        "ratios": {
            f"{task}_vs_{peer}": ratio(results, f"xyd {task}", f"{peer} {task}")
            for peer in PEERS
            for task in PEERS[peer]
        },
        "medians": medians(results),
        "units": {name: found[0]["unit"] for name, found in results.items() if found},
        "shape": options.shape,
        "sentences": origin,
        "num_sentences": options.sentences,
        "decoder_steps": bench_task.LENGTH,
        "settings": chosen,
        "tried": tried,
        "raw": results,
    }


def present_peers(options: Namespace, model: str) -> list[str]:
    """The peers that are installed and have this device; CTranslate2's model is written to the folder `model`."""
    if not is_here("transformers"):  # it also makes the weights for CTranslate2
        return []
    if not bench_settings.has_ctranslate2(options.device):
        return ["hf"]
    made = attempt("bench_decode.py", {"system": "to ct2", "shape": options.shape, "folder": model})
    return ["ct2", "hf"] if made else ["hf"]


def main() -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--shape", choices=tuple(bench_task.SHAPES), default="base")
    options_parser.add_argument("--sentences", type=int, default=None, help="default 300, --short 150; --trained: all")
    options_parser.add_argument("--trained", type=Path, metavar="RUN", help="natural lengths of a trained run")
    options_parser.add_argument("--to", metavar="LANG", help="with --trained: target language, where there are several")
    options = options_parser.parse_args()
    options.rounds = options.rounds or (1 if options.short else 3)
    options.seconds = options.seconds or 2.0
    with tempfile.TemporaryDirectory(prefix="xyd-bench-") as folder:
        if options.trained is not None:
            from bench_trained import bench_trained

            report = bench_trained(options, Path(folder))
        else:
            options.sentences = options.sentences or (150 if options.short else 300)
            report = bench_random(options, Path(folder))
    asked = {name: getattr(options, name) for name in ("rounds", "seconds", "short", "device")}
    print(json.dumps({**report, **asked, "seed": 1, **facts()}))
    return 0


def _measure(order: Order) -> Result:
    if "job" in order:
        from bench_trained import JOBS

        return JOBS[order["job"]](order)
    from bench_searches import decode_speed, marian_for_ct2

    return marian_for_ct2(order) if order["system"] == "to ct2" else decode_speed(order)


if __name__ == "__main__":
    sys.exit(0 if serve(_measure) else main())
