"""Memory of this machine and of this process, in bytes: what is free, what work took, when it was too little."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

# Where containers say how much they allow; the second is the older form.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PROCESS, MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")
# torch's own type is for its allocator on GPUs; all others raise a RuntimeError in these words.
TOO_LITTLE = (
    "not enough memory",
    "can't allocate memory",
    "bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


@dataclass
class Usage:
    """What work took. On a GPU by torch's allocator, else by the whole process."""

    growth: int = 0  # at its peak, beyond what there was before
    peak: int = 0  # all together


@contextlib.contextmanager
def usage(device: torch.device) -> Iterator[Usage]:
    """What is done inside is measured; the result is filled in at the end."""
    found = Usage()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.max_memory_allocated(device)
        yield found
        found.peak = torch.cuda.max_memory_allocated(device)
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_bytes(b"5")  # the peak begins anew; else only what exceeds it is seen
        before = _peak()
        yield found
        found.peak = _peak()
    found.growth = found.peak - before


def _peak() -> int:
    """The most this process has held at once."""
    if (peak := _entry(PROCESS, "VmHWM")) is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free() -> int | None:
    """What new processes may take on this machine; None where the system does not tell."""
    free = _entry(MACHINE, "MemAvailable")
    if free is None:
        return None
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number, and no limit
            free = min(free, int(path.read_bytes()))
    return free


def _entry(path: Path, name: str) -> int | None:
    """A line such as `VmHWM:   123456 kB`."""
    with contextlib.suppress(OSError):
        for line in path.read_text("ascii").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return None


def is_too_little(error: BaseException) -> bool:
    """Whether it says that there was not enough memory, on whatever device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in TOO_LITTLE)


def gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
