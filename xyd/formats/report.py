"""What a reader has to tell about its source besides the pairs: the counts that prove nothing went unseen."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class FileReport:
    """What was found while reading one file or data set."""

    lines: int = 0
    """Where a format has no lines: rows, units or documents."""
    bytes: int = 0
    """As read, after decompression; 0 for a data set."""
    bom: int = 0
    """Byte order marks taken off the start: 0 or 1."""
    crlf: int = 0
    """Lines that ended in CR LF."""
    bad_lines: int = 0
    """Lines that could not be decoded, where these are to be dropped."""


class ReadReport:
    """A `FileReport` for each path read; filled while the pairs are drawn, whole once the stream has ended."""

    def __init__(self) -> None:
        self.files: dict[str, FileReport] = {}

    def start(self, name: str) -> FileReport:
        """A fresh report under `name`, in place of one from an earlier reading."""
        self.files[name] = FileReport()
        return self.files[name]

    def as_dict(self) -> dict[str, dict[str, int]]:
        """`{path: {lines, bytes, bom, crlf, bad_lines}}`, fit for JSON."""
        return {name: asdict(file) for name, file in self.files.items()}
