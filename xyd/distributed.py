"""One process or several: rank, world size, sums and broadcasts. All of it is a no-op in one process.

Several processes are started by `torchrun -m xyd train …`, or by xyd itself (`train.workers`), which is the same thing
on one machine: gloo on CPUs, NCCL on GPUs. Gradients are summed once per step, by hand, so ranks may hold different
numbers of micro-batches and nothing waits for a batch that another rank does not have.
"""

import ctypes
import datetime
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from xyd.errors import ConfigError, XydError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Rank 0 may prepare data for hours while the others wait in a collective; a dead peer closes its sockets and is noticed
# at once.
COLLECTIVE_TIMEOUT = datetime.timedelta(hours=24)
END_SECONDS = 20.0  # that the workers have to end when one of them is gone
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

WATCH = "watch the launcher"
_watching = threading.Event()  # set: no need to watch any more


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """True on the process that decides, writes and speaks."""
    return rank() == 0


def under_launcher() -> bool:
    """True where torchrun (or xyd's own launcher) has set the environment for this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def choose_device(name: str) -> torch.device:
    """`auto` is a GPU where torch sees one, else the CPU; under a launcher each local rank has its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name}: torch {torch.__version__} sees no CUDA device here; use device auto or cpu")
    if name == "cuda" and under_launcher():
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise ConfigError(f"device {name}: torch knows no such device; use auto, cpu, cuda or cuda:N") from e
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(f"device {name}: torch sees only {torch.cuda.device_count()} CUDA device(s) here")
        torch.cuda.set_device(device)
    return device


def usable_workers(wanted: int, device: torch.device) -> int:
    """`wanted` processes of this machine, but no more than there are GPUs for them."""
    return wanted if device.type == "cpu" else min(wanted, torch.cuda.device_count())


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The type of forward and backward: bf16 where the hardware multiplies it faster, unless `precision` says which."""
    if precision == "auto":
        if device.type == "cuda":
            precision = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
        else:
            has: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older releases do not tell
            precision = "bf16" if has.get("avx512_bf16") or has.get("amx_bf16") else "fp32"
    return torch.bfloat16 if precision == "bf16" else torch.float32


def start(device: torch.device) -> None:
    """Join the other processes named by the environment, if there are any."""
    if under_launcher() and int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        _watching.clear()
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), name=WATCH, daemon=True).start()
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)


def stop() -> None:
    """Leave the group. The watching thread ends first: a thread that wakes while Python shuts down can abort it."""
    _watching.set()
    for thread in threading.enumerate():
        if thread.name == WATCH:
            thread.join()
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """Replace `tensor` by its sum over all ranks."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


def gather(value: Any) -> list[Any]:
    """The value of every rank, in order of rank, on every rank."""
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def from_main(value: Any) -> Any:
    """The main process's value, on every rank: one decides, everyone hears it."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def on_main(work: Callable[[], Any]) -> Any:
    """Do `work` on the main process; its result, or its error of the user's (a full disk, say), is everybody's."""
    outcome = from_main(_outcome(work) if is_main() else None)
    if isinstance(outcome, XydError):
        raise outcome
    return outcome


def on_all(work: Callable[[], Result]) -> list[Result]:
    """Do `work` on every rank; the results in order of rank, on every rank. An error of the user's is everybody's."""
    outcomes: list[Any] = gather(_outcome(work))
    for outcome in outcomes:
        if isinstance(outcome, XydError):
            raise outcome
    return outcomes


def spread(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> list[Result]:
    """`work` on all items, each rank on every N-th of them: a result for each, in their order, on every rank."""
    size = world_size()
    found = on_all(lambda: work(items[rank() :: size]))
    return [found[i % size][i // size] for i in range(len(items))]


def _outcome(work: Callable[[], Any]) -> Any:
    """The result of `work`, or its error of the user's, as a value that can be sent to other ranks."""
    try:
        return work()
    except XydError as e:
        return e
    except OSError as e:
        return XydError(f"{e.filename or 'a file of the run'}: {e.strerror or e}")


def tie_to_parent(parent: int) -> None:
    """In a process that was just forked: it leaves Ctrl-C to the process `parent`, and ends when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it too, and ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def num_cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS, where it is set, limits them as it does for other programs."""
    if (limit := os.environ.get("OMP_NUM_THREADS", "")).isdigit() and int(limit) > 0:
        return int(limit)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:  # a container may be allowed less time than its cores have
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return min(cores, math.ceil(int(allowed) / int(period)))
    except (OSError, ValueError):  # not Linux, or no limit ("max")
        return cores


def num_threads(wanted: int | None, workers: int) -> int:
    """CPU threads of each of `workers`: `wanted` or an even share, but no more than there are cores to run them."""
    return max(1, min(wanted or num_cores() // workers, num_cores()))


def launch(work: Callable[..., int], workers: int, arguments: Sequence[Any]) -> int:
    """Run `work(*arguments)` in `workers` processes of this machine and return rank 0's exit code.

    Ctrl-C reaches all of them by the terminal; SIGTERM is passed on. When one dies, the others are ended and the
    result is 1 (after a signal 130 or 143): no rank waits for a peer that is gone.
    """
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(workers)}
    processes = [
        context.Process(
            target=_work, args=(work, tuple(arguments), {**environment, "RANK": str(r), "LOCAL_RANK": str(r)})
        )
        for r in range(workers)
    ]

    received: list[int] = []

    def on_signal(number: int, _frame: Any) -> None:
        received.append(number)
        if number == signal.SIGTERM:  # the terminal sends SIGINT to every worker already
            for process in processes:
                process.terminate()
        elif received.count(signal.SIGINT) == 2:  # the second Ctrl-C does not wait for a step or a validation
            for process in processes:
                process.kill()

    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        for process in processes:
            process.start()
        for number in previous:
            signal.signal(number, on_signal)
        return _wait(processes, received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for process in processes:
            if process.is_alive():
                process.kill()


def _wait(processes: list[Any], received: list[int]) -> int:
    """The exit code of them all; `received`: the signals that this process has had."""
    waiting = {process.sentinel: (r, process) for r, process in enumerate(processes)}
    code: int | None = None  # once one of them did not end as it should
    while waiting:
        ended = multiprocessing.connection.wait(list(waiting), timeout=None if code is None else END_SECONDS)
        for sentinel in ended:
            r, process = waiting.pop(sentinel)
            process.join()
            if code is not None or process.exitcode in (0, 2, 130, 143):
                continue
            code = 1
            if received:  # before training had begun, so that there was nothing to save
                code = 128 + received[0]
            else:
                how = f"was killed by signal {-process.exitcode}" if process.exitcode < 0 else "failed"
                print(
                    f"xyd: worker {r} {how}; the other workers are being ended. What was saved last is whole: "
                    "the same command goes on from there.",
                    file=sys.stderr,
                    flush=True,
                )
            for _, other in waiting.values():
                other.terminate()
        if not ended:
            for _, other in waiting.values():
                other.kill()
    return int(processes[0].exitcode) if code is None else code


def _work(work: Callable[..., int], arguments: tuple[Any, ...], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        code = work(*arguments)
    except KeyboardInterrupt:  # before training has its own handler; the launcher knows
        code = 1
    raise SystemExit(code)


def _end_with_parent(parent: int) -> None:
    """A worker whose launcher was killed ends too, as by SIGTERM: it saves and leaves; by force if that takes long."""
    while os.getppid() == parent:
        if _watching.wait(1.0):
            return
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60.0)  # no signal is handled inside a collective, nor while ranks look for each other
    os._exit(128 + signal.SIGTERM)
