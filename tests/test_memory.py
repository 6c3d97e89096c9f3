"""memory: what is measured is what was taken, and a real refusal of the system is known as one."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy import environment

from xyd import memory

CPU = torch.device("cpu")


def take(num_bytes: int) -> None:
    """Touch as much memory, straight from the system, and give it back."""
    with mmap.mmap(-1, num_bytes) as block:
        for place in range(0, num_bytes, 4096):
            block[place] = 1


@pytest.mark.need(4)
def test_usage_is_what_was_taken_at_the_peak() -> None:
    with memory.usage(CPU) as used:
        take(200_000_000)  # gone at once
    with memory.usage(CPU) as later:
        take(100_000_000)
    with memory.usage(CPU) as last:
        torch.ones(10)
    assert 150e6 < used.growth < 300e6
    assert used.peak > used.growth
    assert last.growth < 20e6
    if sys.platform == "linux":
        assert 80e6 < later.growth < 150e6, "an earlier peak must not hide it"


def test_what_is_free_is_no_more_than_a_container_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:   9 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "meminfo")
    for limit, free in (("max", 3_072_000), ("2000000\n", 2_000_000), ("9000000", 3_072_000)):
        (tmp_path / "limit").write_text(limit)
        monkeypatch.setattr(memory, "LIMITS", (tmp_path / "limit", tmp_path / "none"))
        assert memory.free() == free
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "none")
    assert memory.free() is None


REFUSED = """
import resource, torch
from xyd import memory
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 300_000_000, held + 300_000_000))
try:
    torch.ones(1_000_000_000)
except (RuntimeError, MemoryError) as e:
    print(memory.is_too_little(e), torch.ones(1000).sum().item())
"""


@pytest.mark.need(4)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process like this")
def test_memory_that_the_system_refuses_is_known_as_too_little() -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], env=environment(), capture_output=True, text=True)
    assert done.stdout == "True 1000.0\n", done.stderr
