"""What a check has found, told line by line as it comes; and the folder its trials write to."""

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from xyd.errors import XydError

Kind = Literal["ok", "warning", "failed", "skipped"]


class Skipped(Exception):  # noqa: N818  (no error: a trial that cannot be made, and why)
    """A trial cannot be made; its text says why."""


class Findings:
    """Says each finding, counts them, keeps the time."""

    def __init__(self, say: Callable[[str], None], seconds: float) -> None:
        self.say, self.seconds, self.began = say, seconds, time.perf_counter()
        self.counts: Counter[Kind] = Counter()

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.perf_counter() - self.began)

    def tell(self, kind: Kind, what: str, remedy: str = "") -> None:
        self.counts[kind] += 1
        self.say(f"{kind}: {what}" + (f" — {remedy}" if remedy else ""))

    def attempt(self, name: str, trial: Callable[[], None]) -> None:
        """One trial; whatever the user can mend in it is a finding, and the next one is made all the same."""
        if self.left <= 0:
            self.tell("skipped", f"{name}: the {self.seconds:.0f} s of a check are over", "`xyd train` tries it itself")
            return
        try:
            trial()
        except Skipped as reason:
            self.tell("skipped", f"{name}: {reason}")
        except XydError as error:
            self.tell("failed", f"{name}: {error}")
        except OSError as error:
            self.tell("failed", f"{name}: {error.filename or 'writing'}: {error.strerror or error}", _mend(error))

    def conclude(self) -> int:
        """The last line; the exit code."""
        kinds: tuple[Kind, ...] = ("ok", "warning", "failed", "skipped")
        told = ", ".join(f"{self.counts[kind]} {kind}" for kind in kinds)
        self.say(f"check: {told}, in {time.perf_counter() - self.began:.0f} s")
        return XydError.exit_code if self.counts["failed"] else 0


def _mend(error: OSError) -> str:
    if error.errno == errno.EFBIG:
        return "this process may write no larger file: raise the limit, ulimit -f unlimited"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, or choose another run.dir"
    return "see that it can be read and written, or choose another run.dir"


class Workplace:
    """A folder beside the run directory, on its file system, that is gone in the end, with all that had to be made."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.path: Path | None = None
        self.is_elsewhere = False
        self._made: list[Path] = []

    def make(self) -> Path:
        """Raises OSError where nothing can be written there."""
        parent = self.run_dir.parent
        missing = [folder for folder in (parent, *parent.parents) if not os.path.lexists(folder)]
        parent.mkdir(parents=True, exist_ok=True)
        self._made = missing
        self.path = Path(tempfile.mkdtemp(prefix=f".{self.run_dir.name}.check-", dir=parent))
        return self.path

    def make_elsewhere(self) -> None:
        """So that the other trials can be made where it could not be written."""
        self.path, self.is_elsewhere = Path(tempfile.mkdtemp(prefix="xyd-check-")), True

    def folder(self) -> Path:
        if self.path is None:
            raise Skipped("there is no folder to write to")
        return self.path

    def __enter__(self) -> "Workplace":
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()
