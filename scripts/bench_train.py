"""Training speed and memory: xyd beside a plain torch loop and Hugging Face Marian, in turns, in one run.

    python scripts/bench_train.py [--shape base|tiny|both] [--rounds 3] [--seconds 20] [--device cpu|cuda] [--short]

A figure is real target tokens per second (padding not counted, EOS counted) over whole steps of about 4,096 of them,
after warm-up, in a process of its own. The loops are in bench_loops.py, the sentences and shapes in bench_task.py:

    xyd     its training step as shipped: one worker per core, max_tokens 4096, precision auto
    plain   nn.Transformer, fp32, shuffled batches, the whole logits: what tutorials teach (shape base only)
    hf      MarianMTModel, batches of like length, at the fastest of the settings that are tried first: fp32 or bf16
            autocast (base: bf16), sdpa or eager attention, one process with all cores or one process per core
            with DistributedDataParallel
    joey    JoeyNMT 2.3 where it is installed (without --short): its model and loss, batches at random, one process

The last line is JSON. `ratios` are medians over the rounds: speeds ours / theirs, and memory_base_vs_plain, the peak of
resident memory summed over all processes, ours / theirs (on a GPU: of allocated GPU memory). Speed only: nothing here
says that the models learn equally well.

--short, for `make bench`: one round, at least one timed step after a warm-up on 16 sentences, and Marian at one
setting, untried. The plain loop at base needs 15 to 19 GB, and half a minute or more a step on two cores.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace

import bench_settings
import bench_task
from bench_rounds import (
    Order,
    Result,
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

PEERS = {"base": ("hf", "plain", "joey"), "tiny": ("hf", "joey")}


def orders_of(shape: str, common: Order, options: Namespace) -> tuple[dict[str, tuple[str, Order]], dict[str, float]]:
    """What is measured of one shape, by name, at which settings; and the figures of the settings tried for Marian."""
    one, each = (1, bench_task.num_cores()), (bench_task.num_cores(), 1)
    ours = each if options.device == "cpu" else one
    settings: dict[str, Order] = {
        "xyd": {"workers": ours[0], "threads": ours[1], "environment": bench_task.XYD_ENVIRONMENT}
    }
    tried: dict[str, float] = {}
    if is_here("transformers"):
        order = {**common, "shape": shape, "system": "hf", "seconds": options.seconds / 2}
        ways = bench_settings.marian_training(shape, options.device)
        best, tried = best_setting("bench_train.py", order, ways, options.short)
        if best is not None:
            settings["hf"] = best
    if "plain" in PEERS[shape]:
        settings["plain"] = {"workers": one[0], "threads": one[1]}
    if is_here("joeynmt") and not options.short:  # a step of it takes a minute
        settings["joey"] = {"workers": one[0], "threads": one[1]}
    orders = {
        f"{shape} {system}": ("bench_train.py", {**common, "shape": shape, "system": system, **setting})
        for system, setting in settings.items()
    }
    return orders, tried


def main() -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--shape", choices=("base", "tiny", "both"), default="both")
    options = options_parser.parse_args()
    options.rounds = options.rounds or (1 if options.short else 3)
    options.seconds = options.seconds or (8.0 if options.short else 20.0)
    sentences = bench_task.prepare()
    origin = bench_task.load(sentences).origin
    say(f"sentences: {origin}; {bench_task.num_cores()} cores; {options.rounds} round(s) of {options.seconds:g} s")
    common: Order = {
        "device": options.device,
        "sentences": str(sentences),
        "seconds": options.seconds,
        "min_steps": 1 if options.short else 2,
        "whole_warm_up": not options.short,
    }
    results: dict[str, list[Result]] = {}
    ratios: dict[str, float | None] = {}
    settings: dict[str, Order] = {}
    tried: dict[str, dict[str, float]] = {}
    for shape in ("base", "tiny") if options.shape == "both" else (options.shape,):
        orders, tried[shape] = orders_of(shape, common, options)
        settings |= {name: {k: v for k, v in order.items() if k not in common} for name, (_, order) in orders.items()}
        results |= take_turns(orders, options.rounds)
        for peer in PEERS[shape]:
            if peer == "joey" and f"{shape} joey" not in results:
                continue
            ratios[f"train_{shape}_vs_{peer}"] = ratio(results, f"{shape} xyd", f"{shape} {peer}")
        if "plain" in PEERS[shape]:
            memory = "memory_mb" if options.device == "cpu" else "gpu_memory_mb"
            ratios[f"memory_{shape}_vs_plain"] = ratio(results, f"{shape} xyd", f"{shape} plain", memory)
    report = {
        "ratios": ratios,
        "medians": medians(results),
        "unit": "target tokens/s",
        "memory_mb": medians(results, "memory_mb"),
        **{name: getattr(options, name) for name in ("rounds", "seconds", "short", "device")},
        "sentences": origin,
        "tokens_per_step": bench_task.TOKENS_PER_STEP,
        "seed": 1,
        **facts(),
        "settings": settings,
        "tried": tried,
        "raw": results,
    }
    print(json.dumps(report))
    return 0


def _measure(order: Order) -> Result:
    from bench_loops import train_speed

    return train_speed(order)


if __name__ == "__main__":
    sys.exit(0 if serve(_measure) else main())
