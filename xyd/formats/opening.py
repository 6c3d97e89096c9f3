"""Files as bytes: found by name, list, folder or glob, and unpacked while they are read."""

from __future__ import annotations

import contextlib
import difflib
import glob
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from xyd.config import SourceConfig
from xyd.errors import DataError

_MAGIC = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}
_PACKED_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
_SUFFIXES = {
    "tsv": (".tsv", ".tab", ".txt"),
    "csv": (".csv",),
    "json": (".json", ".jsonl", ".ndjson"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".ipc", ".feather"),
    "tmx": (".tmx",),
    "xliff": (".xlf", ".xliff"),
    "po": (".po",),
    "xml": (".xml",),
}
"""What of a folder is read."""


def local_files(source: SourceConfig) -> list[Path]:
    """The files of a source that are there, in the order in which they are read; none for a data set.

    Files of a folder, a glob or a list are ordered by name, so that neither a list's nor a folder's order matters.
    """
    if source.files_by_language:
        return [*source.files_by_language.values(), *source.side_files.values()]
    found = {path for given in source.paths for path in _matches(given, source.format)}
    return sorted(found, key=lambda path: (path.name, str(path)))


def document_files(source: SourceConfig) -> list[Path]:
    """As `local_files`, but each name given must stand for at least one file; else DataError says what is there."""
    for given in source.paths:
        if not _matches(given, source.format):
            suffixes = " ".join(_SUFFIXES[source.format])
            if given.is_dir():
                held = sorted(path.name for path in given.iterdir())[:5]
                there = f"it holds {', '.join(held)}" if held else "it is empty"
                raise DataError(f"{given}: no file for {source.format} in this folder ({suffixes}); {there}")
            raise DataError(f"{given}: no file matches; check the path, or give a folder")
    return local_files(source)


def _matches(given: Path, form: str) -> list[Path]:
    """The files that a file, a folder or a glob stands for; a plain name stands for itself, there or not."""
    if given.is_dir():
        inside = (path for path in given.rglob("*") if not path.name.startswith(".") and path.is_file())
        return [path for path in inside if _bare_suffix(path) in _SUFFIXES[form]]
    if given.exists() or not glob.has_magic(str(given)):
        return [given]
    root = next(parent for parent in given.parents if parent.exists())  # its own name may hold a bracket
    pattern = str(Path(glob.escape(str(root))) / given.relative_to(root))
    return [path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file()]


def _bare_suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in _PACKED_SUFFIXES else path).suffix.lower()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if it is gzip, xz or zstd; what the system says against it becomes a `DataError`."""
    packed = ""
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a directory; name a text file")
        if not path.exists():
            beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            near = difflib.get_close_matches(path.name, beside, n=1)
            raise DataError(f"{path}: no such file; " + (f"did you mean {near[0]}?" if near else "check the path"))
        if not path.is_file():
            raise DataError(f"{path}: is no regular file, but must be read more than once; save its content to a file")
        with path.open("rb") as plain:
            head = plain.read(6)
            plain.seek(0)
            packed = next((name for name, magic in _MAGIC.items() if head.startswith(magic)), "")
            named = _PACKED_SUFFIXES.get(path.suffix)
            if named is not None and packed != named:
                raise DataError(
                    f"{path}: is named {path.suffix} but holds no {named} data; fetch it again, or rename it"
                )
            with _unpacked(plain, packed) as file:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise DataError(f"{path}: damaged {packed} file ({error}); fetch or compress it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path and its rights") from error


def _unpacked(plain: BinaryIO, packed: str) -> contextlib.AbstractContextManager[BinaryIO]:
    if packed == "gzip":
        return cast(Any, gzip.GzipFile(fileobj=plain))
    if packed == "xz":
        return cast(Any, lzma.LZMAFile(plain))
    if packed == "zstd":
        return cast(Any, io.BufferedReader(_Zstd(plain), 1 << 16))
    return contextlib.nullcontext(plain)


class _Zstd(io.RawIOBase):
    """Unpacks zstd through Arrow, which is needed anyway; the standard library can from Python 3.14 on."""

    def __init__(self, plain: BinaryIO) -> None:
        import pyarrow

        self._stream = pyarrow.CompressedInputStream(plain, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, ValueError) as error:
            raise EOFError(str(error)) from error
        buffer[: len(data)] = data
        return len(data)


def skip(file: BinaryIO, count: int) -> None:
    """Read past `count` bytes: not every packed stream can seek."""
    while count > 0 and (piece := file.read(min(count, 1 << 20))):
        count -= len(piece)


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of the file, unpacked."""
    with opened(path) as file:
        return file.read(size)


def file_names(paths: Sequence[Path]) -> str:
    """How messages name several files."""
    names = [path.name for path in paths]
    return " + ".join(names[:3]) + (f" + {len(names) - 3} more" if len(names) > 3 else "")
