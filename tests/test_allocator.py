"""allocator: blocks that were freed are used again without asking the system."""

import gc
import subprocess
import sys

import pytest
from toy import environment

from xyd.allocator import no_search_for_cycles

CODE = """
import resource, sys, torch
from xyd.allocator import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else True
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40): torch.ones(10, 1_000_000)  # until the heap has settled
before = faults()
for _ in range(5): torch.ones(10, 1_000_000)
print(kept, faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only where malloc can be told")
def test_a_block_that_was_freed_is_used_again() -> None:
    def faults(*arguments: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, env=environment(), check=True
        )
        kept, number = done.stdout.split()
        assert kept == "True"
        return int(number)

    assert faults("keep") < 1000
    assert faults("leave") > 10_000  # five times 40 MB in pages of 4 KiB


def test_the_collector_rests_and_wakes_again() -> None:
    assert gc.isenabled()
    with no_search_for_cycles():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_search_for_cycles():
        raise KeyError
    assert gc.isenabled()
