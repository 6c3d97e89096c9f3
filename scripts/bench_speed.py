"""How the speed of a search is taken, for all of them. No torch in this module."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench_rounds import MILLISECONDS, Result
from bench_task import LENGTH

BEAM_OF = {"greedy": 1, "beam5": 5, "latency": 1}
WARM_UP = 64  # sentences
LATENCY_WARM_UP, LATENCY_SENTENCES = 5, 30


def search_speed(
    search: Callable[[Sequence[Any], int], Any], sources: Sequence[Any], task: str, least_seconds: float
) -> Result:
    """`greedy`, `beam5`: target tokens per second over all sources. `latency`: ms of one sentence, median, greedy."""
    beam_size = BEAM_OF[task]
    if task == "latency":
        for source in sources[:LATENCY_WARM_UP]:
            search([source], beam_size)
        each = sorted(seconds(partial(search, [source], beam_size))[0] for source in sources[:LATENCY_SENTENCES])
        median, p90 = (round(x * 1e3, 2) for x in (statistics.median(each), each[int(len(each) * 0.9)]))
        return {"figure": median, "unit": MILLISECONDS, "p90": p90}
    search(sources[:WARM_UP], beam_size)
    took, times = seconds(partial(search, sources, beam_size), least_seconds)
    figure = round(len(sources) * LENGTH / took, 1)
    return {"figure": figure, "unit": "target tokens/s", "seconds": round(took, 3), "times": times}


def seconds(work: Callable[[], Any], least_seconds: float = 0.0) -> tuple[float, int]:
    """How long `work` takes, in the mean over as many times as make `least_seconds`; and how many those were."""
    times, began = 0, time.perf_counter()
    while True:
        work()
        times += 1
        took = time.perf_counter() - began
        if took >= least_seconds:
            return took / times, times
