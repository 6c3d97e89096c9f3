"""Files that are whole or absent, their hashes, and the names of everything inside a run directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from xyd.errors import CheckpointError

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

_CHUNK = 1 << 20


def atomic_write(path: str | os.PathLike[str], data: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Put ``data`` at ``path`` so that a reader finds the old file or the whole new one, never a part.

    ``data`` is bytes, a string (written as UTF-8), or a function that writes to the open binary file it is given.
    The parent folder is made if it is missing. A failure leaves the old file alone and no remains beside it.
    Raises ``OSError`` (disk full, no permission) and whatever the function raises.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, because a rename is atomic only within one file system.
    handle, aside = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(data, str):
                file.write(data.encode("utf-8"))
            elif isinstance(data, bytes):
                file.write(data)
            else:
                data(file)
            file.flush()
            os.fchmod(file.fileno(), _mode_for(target))
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    sync_folder(target.parent)


def _mode_for(target: Path) -> int:
    """Permission bits for a new file: those of the file it replaces, else what the umask leaves of 0666."""
    try:
        return target.stat().st_mode & 0o7777
    except FileNotFoundError:
        # mkstemp makes files private to their owner; a run directory should be as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    # Some network file systems refuse to sync a folder; the file itself is safe by then.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of ``data``, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file's content, 64 hexadecimal digits; reads a piece at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes free for this user on the file system that holds ``path``; the path itself need not exist yet."""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def file_size_limit() -> int | None:
    """Bytes that a file written by this process may have (`ulimit -f`); None where there is no limit."""
    if resource is None:
        return None  # type: ignore[unreachable]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


class Lock:
    """A run directory has one writer: held from `acquire` to `release`, or to the end of the process that took it.

    The file lies beside the directory, because the directory itself may be moved aside. Without `fcntl` (Windows)
    nothing is locked.
    """

    def __init__(self, run: RunDir) -> None:
        self.run, self.path = run, run.root.with_name(f".{run.root.name}.lock")
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Raises CheckpointError where another process holds it."""
        if fcntl is None:
            return  # type: ignore[unreachable]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise CheckpointError(
                f"{self.run.root}: another xyd (process {holder}) is writing this run; wait for it, end it, or choose "
                "another run.name"
            ) from e
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True)
class RunDir:
    """The names inside a run directory; makes no file by itself.

    The prepared data lives inside too, so that the directory is all that is needed to resume.
    """

    root: Path

    @property
    def config_path(self) -> Path:
        """The configuration as it was resolved, loadable again."""
        return self.root / "config.yaml"

    @property
    def run_path(self) -> Path:
        """What the run knows about itself: versions, rules, directions."""
        return self.root / "run.json"

    @property
    def manifest_path(self) -> Path:
        """What the prepared data is and how it came to be."""
        return self.root / "manifest.json"

    @property
    def search_path(self) -> Path:
        """How many processes search on this machine, as measured at the first start of training."""
        return self.root / "search.json"

    @property
    def health_path(self) -> Path:
        """The health report on the corpora; beside it the same as health.html, if it was asked for."""
        return self.root / "health.json"

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.root / "tokenizer.model"

    @property
    def data_dir(self) -> Path:
        """The prepared data: train.arrow, valid.arrow, test.arrow."""
        return self.root / "data"

    @property
    def checkpoints_dir(self) -> Path:
        """Every checkpoint of the run."""
        return self.root / "checkpoints"

    @property
    def metrics_path(self) -> Path:
        """One JSON object per line for each logged step."""
        return self.root / "metrics.jsonl"

    @property
    def report_path(self) -> Path:
        """The final evaluation."""
        return self.root / "report.json"

    @property
    def tensorboard_dir(self) -> Path:
        """Event files for TensorBoard."""
        return self.root / "tensorboard"
