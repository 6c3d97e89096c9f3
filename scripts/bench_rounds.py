"""Measurements in processes of their own, taken in turns; medians, ratios and the facts of the machine.

A measurement is an order, a dict of plain values, that a script understands: `script.py --measure ORDER` prints its
result as JSON on the last line; order["environment"] is set for it. The process that gives the orders imports no
torch, so that nothing of it weighs on what it measures. A result has `figure` and `unit`, and says how many cores
other programs had meanwhile, `busy_elsewhere`: beside them, threads that wait for each other crawl, and not even ratios
hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench_task import num_cores

Order = dict[str, Any]
Result = dict[str, Any]


MILLISECONDS = "ms"  # the unit of which less is better
TOLERATED = 0.2  # cores that other programs may use during a measurement without a remark
_busy_elsewhere: list[float] = []  # of every measurement so far


class MeasurementError(Exception):
    """A measurement that ended without a result; the message has the end of what it wrote."""


def measure(script: str, order: Order) -> Result:
    """The result of one order, from a new process. Raises MeasurementError."""
    command = [sys.executable, str(Path(__file__).with_name(script)), "--measure", json.dumps(order)]
    began, busy, own = time.perf_counter(), _busy_seconds(), _own_seconds()
    environment = {**os.environ, **order.get("environment", {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    took, busy, own = time.perf_counter() - began, _busy_seconds() - busy, _own_seconds() - own
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise MeasurementError(f"{script} {json.dumps(order)}: exit code {done.returncode}\n{tail}")
    result: Result = json.loads(lines[-1])
    result["busy_elsewhere"] = round(max(0.0, busy - own) / took, 2)
    _busy_elsewhere.append(result["busy_elsewhere"])
    return result


def _busy_seconds() -> float:
    """Processor time that this machine has given so far, also to other machines on the same host; 0 if unknown."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").split(None, 9)[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def attempt(script: str, order: Order) -> Result | None:
    """As `measure`, for a peer: one that cannot run here is said and left out, and its ratios are null."""
    try:
        return measure(script, order)
    except MeasurementError as error:
        say(f"{order.get('system', script)} left out: {error}")
        return None


def serve(work: Callable[[Order], Result]) -> bool:
    """If this process was started to measure, do so and print the result; False if it was not."""
    if len(sys.argv) != 3 or sys.argv[1] != "--measure":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else what it has started goes on without it
        return False
    print(json.dumps(work(json.loads(sys.argv[2]))), flush=True)
    return True


def say(text: str) -> None:
    """A line of progress; stdout too, for the figures are the output."""
    print(text, flush=True)


def is_here(module: str) -> bool:
    """Whether a peer is installed; says so if it is not."""
    if find_spec(module) is None:
        say(f"{module} is not installed: its ratios are null (pip install -e '.[bench]')")
        return False
    return True


def best_setting(
    script: str, order: Order, settings: Sequence[Order], short: bool
) -> tuple[Order | None, dict[str, float]]:
    """The setting of a peer with the best figure, each tried once, and the figures by setting; None if every one fails.

    `short`: the first, untried.
    """
    if short:
        return settings[0], {}
    figures: dict[str, float] = {}
    unit = ""
    for setting in settings:
        result = attempt(script, {**order, **setting})
        if result is not None:
            figures[describe(setting)], unit = result["figure"], result["unit"]
            say(f"{'try ' + order['system']:16} {in_words(result)}  {describe(setting)}")
    if not figures:
        return None, figures
    best = (min if unit == MILLISECONDS else max)(figures, key=lambda name: figures[name])
    return next(setting for setting in settings if describe(setting) == best), figures


def in_words(result: Result) -> str:
    """A figure with its unit, the memory if known, and a remark where other programs have spoilt it."""
    memory = f"  {result['memory_mb']} MB" if "memory_mb" in result else ""
    spoilt = f"  (other programs had {result['busy_elsewhere']} cores)" if result["busy_elsewhere"] > TOLERATED else ""
    return f"{result['figure']:9.1f} {result['unit']}{memory}{spoilt}"


def describe(setting: Order) -> str:
    """A setting in a few words."""
    return ", ".join(f"{key} {value}" for key, value in setting.items())


def take_turns(orders: Mapping[str, tuple[str, Order]], rounds: int) -> dict[str, list[Result]]:
    """`rounds` results of each order, (script, order) by name, one of each in turn.

    A peer that fails is left out with all its results; if xyd fails, MeasurementError is raised.
    """
    results: dict[str, list[Result]] = {name: [] for name in orders}
    failed: set[str] = set()
    for _ in range(rounds):
        for name, (script, order) in orders.items():
            if name in failed:
                continue
            result = measure(script, order) if order["system"] == "xyd" else attempt(script, order)
            if result is None:
                failed.add(name)
                results[name] = []
                continue
            results[name].append(result)
            say(f"{name:16} {in_words(result)}")
    return results


def medians(results: Mapping[str, Sequence[Result]], key: str = "figure") -> dict[str, float]:
    """The median of each order that has results."""
    return {name: round(statistics.median(r[key] for r in found), 2) for name, found in results.items() if found}


def ratio(results: Mapping[str, Sequence[Result]], ours: str, theirs: str, key: str = "figure") -> float | None:
    """The median over rounds of ours / theirs of the same round; None where a side was not measured."""
    pairs = list(zip(results.get(ours, []), results.get(theirs, []), strict=False))
    return round(statistics.median(a[key] / b[key] for a, b in pairs), 3) if pairs else None


def facts() -> dict[str, Any]:
    """The machine, how busy it was otherwise, and the versions, for the JSON line."""
    busy = {"median": statistics.median(_busy_elsewhere), "max": max(_busy_elsewhere)} if _busy_elsewhere else {}
    versions = {"python": platform.python_version(), **_versions()}
    return {"cores": num_cores(), "cpu": _cpu(), "busy_elsewhere": busy, "versions": versions}


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in ("xyd", "torch", "transformers", "ctranslate2", "sacrebleu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that both benchmarks have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=None, help="turns of every system (default 3, --short 1)")
    made.add_argument("--seconds", type=float, default=None, help="least time of a figure, in whole steps or searches")
    made.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    made.add_argument("--short", action="store_true", help="few minutes, rough figures: see above")
    return made


def peak_memory_mb() -> float:
    """The largest resident memory of this process so far, in MiB."""
    try:  # not getrusage: its maximum begins with that of the process that started this one
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)
