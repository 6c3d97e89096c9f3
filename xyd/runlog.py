"""What a run tells: progress bar, console lines, `metrics.jsonl` and TensorBoard; only the main process talks.

`metrics.jsonl` holds one JSON object a line, flushed at once, each with `step`, `time` (Unix seconds) and `kind`
(`train`, `valid` or `event`). JSON has no NaN and no infinity: such a value is written as `null` and named in
`not_finite`, as in `{"nll": null, "not_finite": {"nll": "nan"}}`.

TensorBoard gets two runs, `train` and `valid`, which share tag names (both have `nll`), so the two curves of one
quantity stand in one chart. The x-axis is the step, everywhere.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tqdm import tqdm

from xyd.errors import DataError
from xyd.files import RunDir, atomic_write

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Side = Literal["train", "valid"]

DISCARDED_NAME = "metrics.discarded.jsonl"
PLAIN_LINE_SECONDS = 30.0  # without a terminal: seconds between two progress lines, so that a log file stays readable
TENSORBOARD_FLUSH_SECONDS = 30


class RunLog:
    """The log of one training run; a no-op where `enabled` is false (every process but the main one).

    Args:
        run: the run directory; `metrics.jsonl` and `tensorboard/` are made in it.
        enabled: False makes every method do nothing; no file is touched.
        resume_step: steps done in the checkpoint the run goes on from; 0 for a start from scratch. Lines after it, left
            by a run that went further and was killed, move to `metrics.discarded.jsonl` (all lines for 0), and
            TensorBoard is told to hide its points after it: no step appears twice, nothing is deleted.
    """

    def __init__(self, run: RunDir, enabled: bool = True, resume_step: int = 0) -> None:
        self.enabled = enabled
        self.step = resume_step  # of the latest line; the step of events that name none
        self._bar: tqdm[Any] | None = None
        self._plain: _PlainProgress | None = None
        self._writers: dict[str, SummaryWriter] = {}
        self._file: TextIO | None = None
        self._has_hparams = resume_step > 0
        if not enabled:
            return
        run.root.mkdir(parents=True, exist_ok=True)
        num_moved = discard_after(run.metrics_path, resume_step)
        if num_moved:
            self.say(f"metrics: {num_moved} lines after step {resume_step} moved to {DISCARDED_NAME}")
        self._file = run.metrics_path.open("a", encoding="utf-8", newline="\n")
        self._open_tensorboard(run.tensorboard_dir, resume_step)

    def _open_tensorboard(self, directory: Path, resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # here: the other processes need not load it

        for side in ("train", "valid"):
            has_events = any((directory / side).glob("events.*"))
            purge_step = None
            if has_events:  # hides this step and all after it; a start from scratch hides step 0 too
                purge_step = resume_step + 1 if resume_step else 0
            self._writers[side] = SummaryWriter(
                str(directory / side), purge_step=purge_step, flush_secs=TENSORBOARD_FLUSH_SECONDS
            )

    # ── console ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str) -> None:
        """Print one message (it may have several lines) on stderr, above the bar if there is one."""
        if not self.enabled:
            return
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def bar(self, total: int | None, done: int = 0, name: str = "step") -> None:
        """Start the progress display at `done` of `total` (None: unknown); an older one is closed.

        On a terminal a tqdm bar; elsewhere a plain line at the first and the last step and every 30 seconds.
        """
        if not self.enabled:
            return
        self.end_bar()
        if sys.stderr.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=name, unit=name, file=sys.stderr, dynamic_ncols=True, mininterval=0.5
            )
        else:
            self._plain = _PlainProgress(name, total, done)

    def advance(self, count: int = 1, shown: Mapping[str, float | str] | None = None) -> None:
        """Move the progress display by `count`; `shown` is what stands beside it, e.g. `{"loss": 3.1, "lr": 7e-4}`."""
        if self._bar is not None:
            if shown is not None:
                self._bar.set_postfix_str(_format_shown(shown), refresh=False)
            self._bar.update(count)
        elif self._plain is not None:
            line = self._plain.advance(count, shown)
            if line is not None:
                self.say(line)

    def end_bar(self) -> None:
        """Close the progress display, leaving its last state on the screen."""
        if self._bar is not None:
            self._bar.close()
        if self._plain is not None:
            line = self._plain.last_line()
            if line is not None:
                self.say(line)
        self._bar = self._plain = None

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def scalars(self, step: int, values: Mapping[str, float], side: Side = "train") -> None:
        """Write numbers of one step: a line of `metrics.jsonl`, and a point for each in TensorBoard's run `side`."""
        if not self.enabled:
            return
        numbers = {tag: float(value) for tag, value in values.items()}
        self._write_line(step, side, numbers)
        for tag, value in numbers.items():
            self._writers[side].add_scalar(tag, value, step)

    def text(self, tag: str, step: int, text: str) -> None:
        """Write a text, such as sample translations, to TensorBoard's run `valid`, shown exactly as it is."""
        if not self.enabled:
            return
        # TensorBoard reads texts as Markdown; four spaces make a block in which * and < mean nothing
        self._writers["valid"].add_text(tag, "\n".join("    " + line for line in text.split("\n")), step)

    def hparams(self, values: Mapping[str, object], metrics: tuple[str, ...] = ("nll", "bleu", "chrf")) -> None:
        """Write the hyper-parameters to TensorBoard, once in a run's life; `metrics` are tags of the run `valid`.

        They go into the run `valid` itself: `SummaryWriter.add_hparams` would make a further run at each call.
        """
        if not self.enabled or self._has_hparams:
            return
        from torch.utils.tensorboard.summary import hparams

        plain = {key: v if isinstance(v, (bool, int, float, str)) else str(v) for key, v in values.items()}
        file_writer = self._writers["valid"]._get_file_writer()
        for summary in hparams(plain, dict.fromkeys(metrics, 0.0)):
            file_writer.add_summary(summary, 0)
        self._has_hparams = True

    def event(self, fields: Mapping[str, object]) -> None:
        """Write what happened as a line of `metrics.jsonl`, e.g. `{"event": "step_skipped", "step": 7, ...}`.

        Without `step` the line has the step of the line before it.
        """
        if not self.enabled:
            return
        rest = dict(fields)
        step = rest.pop("step", self.step)
        assert isinstance(step, int)
        self._write_line(step, "event", rest)

    def _write_line(self, step: int, kind: str, fields: Mapping[str, object]) -> None:
        assert self._file is not None, "the run log is closed"
        assert not fields.keys() & {"step", "time", "kind", "not_finite"}, f"reserved key in {sorted(fields)}"
        not_finite: dict[str, str] = {}
        line: dict[str, object] = {"step": step, "time": round(time.time(), 3), "kind": kind}
        for key, value in fields.items():
            line[key] = _to_json(value, key, not_finite)
        if not_finite:
            line["not_finite"] = not_finite
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        self.step = step

    # ── end ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Make TensorBoard's points visible now (`metrics.jsonl` always is)."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """End the progress display and close all files; may be called twice."""
        self.end_bar()
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
        if self._file is not None:
            self._file.close()
            self._file = None
        self.enabled = False

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _PlainProgress:
    """Progress as whole lines, for a log file: at the first step, the last one and every `PLAIN_LINE_SECONDS`."""

    def __init__(self, name: str, total: int | None, done: int) -> None:
        self.name, self.total, self.done, self.first = name, total, done, done
        self.start = time.monotonic()
        self.last_said: float | None = None
        self.last_said_done = done
        self.shown: Mapping[str, float | str] = {}

    def advance(self, count: int, shown: Mapping[str, float | str] | None) -> str | None:
        self.done += count
        if shown is not None:
            self.shown = shown
        now = time.monotonic()
        if self.last_said is not None and now - self.last_said < PLAIN_LINE_SECONDS and self.done != self.total:
            return None
        return self._line(now)

    def last_line(self) -> str | None:
        return self._line(time.monotonic()) if self.done != self.last_said_done else None

    def _line(self, now: float) -> str:
        self.last_said, self.last_said_done = now, self.done
        if self.total is None:
            place = f"{self.name} {self.done:,}"
        else:
            place = f"{self.name} {self.done:,}/{self.total:,} ({100 * self.done / max(self.total, 1):.0f}%)"
        elapsed, steps = now - self.start, self.done - self.first
        times = f"elapsed {tqdm.format_interval(elapsed)}"
        if self.total is not None and steps > 0:
            times += f" left {tqdm.format_interval((self.total - self.done) * elapsed / steps)}"
        return "  ".join(part for part in (place, _format_shown(self.shown), times) if part)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl` back, in order; a half-written last line, as a killed run leaves it, is passed over.

    Raises:
        DataError: another line is not a JSON object with a `step`.
    """
    good, bad = _parse(Path(path))
    if len(bad) > 1 or (bad and bad[0][0] <= len(good)):
        raise DataError(f"{path}:{bad[0][0]}: not a line of metrics (a JSON object with a step): {bad[0][1][:80]!r}")
    return [line for _, line in good]


def discard_after(metrics_path: Path, resume_step: int) -> int:
    """Move lines later than `resume_step` (all lines, if it is 0) and unreadable ones to `metrics.discarded.jsonl`.

    Returns how many lines were moved. An unreadable line is kept there as `{"unreadable": "<its text>"}`.
    """
    if not metrics_path.exists():
        return 0
    good, bad = _parse(metrics_path)
    stays = [text for text, line in good if 0 < resume_step >= line["step"]]
    moved = [text for text, line in good if not 0 < resume_step >= line["step"]]
    moved += [json.dumps({"unreadable": text}, ensure_ascii=False) for _, text in bad]
    ends_whole = metrics_path.stat().st_size == 0 or metrics_path.read_bytes().endswith(b"\n")
    if not moved and ends_whole:
        return 0
    if moved:  # first the copy, then the cut: a crash between the two doubles lines there but loses none
        with metrics_path.with_name(DISCARDED_NAME).open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(text + "\n" for text in moved)
            file.flush()
            os.fsync(file.fileno())
    atomic_write(metrics_path, "".join(text + "\n" for text in stays))
    return len(moved)


def _parse(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[int, str]]]:
    """Lines of a metrics file: the good ones (text, object) and the others (line number from 1, text)."""
    good: list[tuple[str, dict[str, Any]]] = []
    bad: list[tuple[int, str]] = []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not raw:
            continue
        text = raw.decode("utf-8", errors="backslashreplace")
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            good.append((text, line))
        else:
            bad.append((number, text))
    return good, bad


def _to_json(value: object, name: str, not_finite: dict[str, str]) -> object:
    """`value` as JSON can hold it; floats that are not finite become None and are named in `not_finite`."""
    if hasattr(value, "tolist"):  # a NumPy or torch scalar or array
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        not_finite[name] = str(value)
        return None
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, f"{name}.{key}", not_finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item, f"{name}.{index}", not_finite) for index, item in enumerate(value)]
    return str(value) if isinstance(value, Path) else value


def _format_shown(shown: Mapping[str, float | str]) -> str:
    """`{"loss": 3.14159, "tokens/s": 12345.6}` → `loss 3.142  tokens/s 12,346`."""
    parts = []
    for name, value in shown.items():
        if isinstance(value, str):
            text = value
        elif isinstance(value, int) or abs(value) >= 1000:
            text = f"{value:,.0f}"
        else:
            text = f"{value:.4g}"
        parts.append(f"{name} {text}")
    return "  ".join(parts)
