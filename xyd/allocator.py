"""How memory is freed: kept by the process where the C library would give it back, and without searches for cycles."""

import contextlib
import ctypes
import functools
import gc
import sys
from collections.abc import Iterator

# <malloc.h>
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process reuse large blocks of memory; True where the C library can be told to.

    Search makes and frees blocks of some 16 MB at every step. glibc maps such blocks anew each time, and the system
    fills each page with zeros when it is first touched, which takes longer than the work itself. The price is that the
    process keeps what it has once used until it ends.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):  # musl has no such settings
        return False
    settings = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1))
    return all(libc.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)


@contextlib.contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Python's collector rests, also in processes forked meanwhile.

    Millions of young tuples and arrays, freed as soon as nobody refers to them, make it look for cycles all the time:
    a sixth of what preparing data takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
