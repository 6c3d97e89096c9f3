"""Parquet and Arrow tables, batch by batch and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from xyd.config import SourceConfig
from xyd.errors import DataError
from xyd.formats.report import FileReport
from xyd.formats.rows import Row, columns_of, mapping_rows

_ROWS = 1000


def read_columnar(path: Path, source: SourceConfig, report: FileReport) -> Iterator[Row]:
    """Rows of a Parquet file, or of an Arrow file in file or stream form.

    Raises DataError for a column that is not there and for what is no such file.
    """
    import pyarrow as pa

    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    try:
        yield from (_parquet if source.format == "parquet" else _arrow)(path, source, report)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as {source.format}: {error}; fetch or write it again") from error


def _parquet(path: Path, source: SourceConfig, report: FileReport) -> Iterator[Row]:
    from pyarrow import parquet

    # without buffering ahead, so that a row group never lies in memory as a whole
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        names = _leaves(file.schema_arrow)
        needed = list(dict.fromkeys(columns_of(names, source, str(path)).values()))
        batches = file.iter_batches(_ROWS, columns=needed, use_threads=False)
        yield from mapping_rows(_numbered(batches, path, report), source, str(path), names)


def _arrow(path: Path, source: SourceConfig, report: FileReport) -> Iterator[Row]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            reader: Any = pa.ipc.open_file(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            file.seek(0)
            reader = batches = pa.ipc.open_stream(file)
        names, held = _leaves(reader.schema), reader.schema.names
        needed = columns_of(names, source, str(path)).values()
        chosen = list(dict.fromkeys(name if name in held else name.split(".")[0] for name in needed))
        slices = (
            batch.select(chosen).slice(start, _ROWS) for batch in batches for start in range(0, len(batch), _ROWS)
        )
        yield from mapping_rows(_numbered(slices, path, report), source, str(path), names)


def _numbered(batches: Iterable[Any], path: Path, report: FileReport) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for batch in batches:
        for row in batch.to_pylist():
            report.lines += 1
            yield f"{path.name}:row {report.lines}", row


def _leaves(fields: Any, above: str = "") -> list[str]:
    """Names of all columns, those inside of structs dotted."""
    import pyarrow as pa

    names: list[str] = []
    for field in fields:
        name = f"{above}{field.name}"
        inner = (
            [field.type.field(place) for place in range(field.type.num_fields)]
            if pa.types.is_struct(field.type)
            else []
        )
        names += _leaves(inner, f"{name}.") if inner else [name]
    return names
