"""One function over a stream of chunks, in order, in as many processes as there are cores."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from xyd.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

INLINE = 4  # chunks done here before it is worth starting processes
AHEAD = 3  # chunks per process that may be under way or done before they are asked for


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function` of each item, in order. The processes are forked, so they know what the function knows at that moment.

    Few items and results are in memory at a time. Where processes cannot be forked all is done here.
    """
    stream = iter(items)
    yield from map(function, itertools.islice(stream, INLINE))
    from xyd.distributed import num_cores  # takes torch along, which opening prepared data does not need

    processes = num_cores()
    if processes < 2 or not sys.platform.startswith("linux"):
        yield from map(function, stream)
        return
    context = multiprocessing.get_context("fork")
    waiting: deque[Future[Result]] = deque()
    with ProcessPoolExecutor(processes, context, _begin, (function, os.getpid())) as pool:
        try:
            for item in stream:
                waiting.append(pool.submit(_work, item))
                if len(waiting) >= AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise DataError("a process that prepared data was killed, perhaps for lack of memory") from error
        finally:
            for future in waiting:
                future.cancel()


_function: Callable[[Any], Any]  # in a process: what it is there for


def _begin(function: Callable[[Any], Any], parent: int) -> None:
    global _function
    _function = function
    from xyd.distributed import tie_to_parent  # the parent has it loaded

    tie_to_parent(parent)


def _work(item: Any) -> Any:
    return _function(item)
