"""Pass 2: pairs become rows of ids, written to and read from Arrow files in stream format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from xyd.corpus.augmented import Augmented, AugmentedRows
from xyd.corpus.pairs import BATCH_ROWS, Mask, Pairs, sorted_pair
from xyd.corpus.pool import in_order
from xyd.errors import DataError
from xyd.files import atomic_write
from xyd.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.number)


@dataclass(frozen=True)
class _Encoded:
    """Rows of a batch of pairs; how many and how many of them are over-long, by direction; (pair, origin) left out."""

    batch: pa.RecordBatch
    rows: Counter[int]
    over: Counter[int]
    dropped: list[tuple[int, str]]
    augmented: AugmentedRows | None


class RowWriter:
    """Writes a split: ids of both sides, one row per pair and direction."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        directions: list[tuple[str, str]],
        max_ids: int,
        corpus_directions: Sequence[Collection[str]],
    ) -> None:
        """`corpus_directions`: of each corpus, the directions its pairs are used for."""
        self.tokenizer = tokenizer
        self.directions = directions
        names = ["-".join(direction) for direction in directions]
        # The last row is for the user's own valid and test pairs, which belong to no corpus (-1).
        self._is_used = np.array([[name in own for name in names] for own in [*corpus_directions, names]])
        self.max_ids = max_ids

    def write(
        self,
        path: Path,
        pairs: Pairs,
        select: Mask,
        first_id: int,
        with_text: bool,
        drop: Callable[[int, str], None] | None,
        augmented: Augmented | None = None,
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Write the selected pairs; returns rows and over-long rows by direction, without those of `augmented`.

        `drop` hears (pair, origin) of each pair left out for its length; without it over-long pairs are kept.
        `augmented` makes additional rows, which stand behind those of the pairs they were made from.
        """
        rows: Counter[int] = Counter()
        over: Counter[int] = Counter()
        schema = _row_schema(with_text)

        def encode(item: tuple[Ints, pa.RecordBatch]) -> _Encoded:
            return self._encode(pairs, *item, first_id, schema, drop is not None, augmented)

        def write(file: BinaryIO) -> None:
            waiting: list[pa.RecordBatch] = []
            with pa.ipc.new_stream(file, schema) as writer:
                for encoded in in_order(encode, pairs.batches(select)):
                    rows.update(encoded.rows)
                    over.update(encoded.over)
                    for number, origin in encoded.dropped:
                        assert drop is not None
                        drop(number, origin)
                    waiting.append(encoded.batch)
                    if encoded.augmented is not None:
                        assert augmented is not None
                        augmented.count(encoded.augmented)
                        waiting.append(encoded.augmented.batch)
                    if sum(map(len, waiting)) >= BATCH_ROWS:
                        _write_together(writer, waiting)
                _write_together(writer, waiting)

        atomic_write(path, write)
        names = ["-".join(direction) for direction in self.directions]
        return {name: rows[i] for i, name in enumerate(names)}, {
            name: over[i] for i, name in enumerate(names) if over[i]
        }

    def drop_too_long(self, pairs: Pairs, select: Mask, drop: Callable[[int, str], None]) -> None:
        """Tell `drop` (pair, origin) of each selected pair that has a side of more than `max_ids` tokens."""
        for numbers, batch in pairs.batches(select):
            for number, origin in _chosen(numbers, batch, self._ids(batch)[2]):
                drop(number, origin)

    def _ids(self, batch: pa.RecordBatch) -> tuple[list[list[int]], Ints, Mask]:
        """Ids of all sides a, then of all sides b; their lengths; which pairs are too long."""
        ids = self.tokenizer.encode_normalised(batch.column("a").to_pylist() + batch.column("b").to_pylist())
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return ids, lengths, np.any(lengths.reshape(2, -1) > self.max_ids, axis=0)

    def _encode(
        self,
        pairs: Pairs,
        numbers: Ints,
        batch: pa.RecordBatch,
        first_id: int,
        schema: pa.Schema,
        must_fit: bool,
        augmented: Augmented | None,
    ) -> _Encoded:
        size = len(batch)
        ids, lengths, too_long = self._ids(batch)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = np.fromiter(chain.from_iterable(ids), np.int32, int(offsets[-1]))
        sides = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        fits = ~too_long if must_fit else np.ones(size, bool)
        rows: Counter[int] = Counter()
        over: Counter[int] = Counter()

        positions: list[Ints] = []
        direction_numbers: list[npt.NDArray[np.int16]] = []
        src: list[Ints] = []
        tgt: list[Ints] = []
        for number, (src_lang, tgt_lang) in enumerate(self.directions):
            own = pairs.language_pair[numbers] == pairs.language_pairs.index(sorted_pair(src_lang, tgt_lang))
            position = np.flatnonzero(own & fits & self._is_used[pairs.corpus[numbers], number])
            rows[number] += len(position)
            over[number] += int(too_long[position].sum())
            positions.append(position)
            direction_numbers.append(np.full(len(position), number, np.int16))
            src.append(position if src_lang < tgt_lang else position + size)
            tgt.append(position + size if src_lang < tgt_lang else position)
        order = np.argsort(np.concatenate(positions), kind="stable")
        place = np.concatenate(positions)[order]
        src_rows, tgt_rows = pa.array(np.concatenate(src)[order]), pa.array(np.concatenate(tgt)[order])
        columns = [
            sides.take(src_rows),
            sides.take(tgt_rows),
            pa.array(np.concatenate(direction_numbers)[order]),
            pa.array(pairs.corpus[numbers[place]]),
            pa.array(first_id + numbers[place]),
            batch.column("origin").take(pa.array(place)),
        ]
        if "src_text" in schema.names:
            texts = pa.concat_arrays([pc.coalesce(batch.column("raw_" + side), batch.column(side)) for side in "ab"])
            columns += [texts.take(src_rows), texts.take(tgt_rows)]
        dropped = _chosen(numbers, batch, ~fits)
        used = self._is_used[pairs.corpus[numbers]] & fits[:, None]
        more = None
        if augmented is not None:
            more = augmented.make(pairs, numbers, batch, used, self.directions, first_id, schema)
        return _Encoded(pa.record_batch(columns, schema=schema), rows, over, dropped, more)


def _chosen(numbers: Ints, batch: pa.RecordBatch, select: Mask) -> list[tuple[int, str]]:
    """(pair, origin) of the selected ones."""
    return [(int(numbers[i]), batch.column("origin")[i].as_py()) for i in np.flatnonzero(select).tolist()]


def _row_schema(with_text: bool) -> pa.Schema:
    ids = pa.list_(pa.int32())
    fields = [
        ("src_ids", ids),
        ("tgt_ids", ids),
        ("direction", pa.int16()),
        ("corpus", pa.int16()),
        ("pair_id", pa.int64()),
        ("origin", pa.string()),
    ]
    return pa.schema(fields + ([("src_text", pa.string()), ("tgt_text", pa.string())] if with_text else []))


def _write_together(writer: pa.RecordBatchWriter, waiting: list[pa.RecordBatch]) -> None:
    """Few large batches instead of many small ones, so that opening stays fast."""
    if waiting:
        for batch in pa.Table.from_batches(waiting).combine_chunks().to_batches():
            writer.write_batch(batch)
        waiting.clear()


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class PreparedSplit:
    """One prepared split, memory-mapped. Nothing is tokenised or copied on opening.

    `src_lengths`, `tgt_lengths` (N,) int32: bare ids per row · `direction` (N,) int16: index into `directions` ·
    `corpus` (N,) int16: the corpus, in the order of the manifest; -1 in valid and test files of the user's own ·
    `pair_id` (N,) int64: the pair, whose rows in several directions share it.
    """

    def __init__(self, path: Path, directions: list[str]) -> None:
        """Raises DataError if the file is not one that `prepare` wrote."""
        self.path = path
        self.directions = directions
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                self._table = reader.read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"{path}: cannot open the prepared data ({error}); run `xyd prepare` again") from error
        missing = [name for name in _row_schema(False).names if name not in self._table.column_names]
        if missing:
            raise DataError(
                f"{path}: was prepared by an older xyd (it has no {', '.join(missing)}); run `xyd prepare` again"
            )
        batches = self._table.to_batches()
        self._starts = np.cumsum([0] + [len(batch) for batch in batches])
        self._sides = {name: [_arrays(batch.column(name)) for batch in batches] for name in ("src_ids", "tgt_ids")}
        self.src_lengths = self._lengths("src_ids")
        self.tgt_lengths = self._lengths("tgt_ids")
        self.direction: npt.NDArray[np.int16] = _joined(self._table, "direction", np.int16)
        self.corpus: npt.NDArray[np.int16] = _joined(self._table, "corpus", np.int16)
        self.pair_id: npt.NDArray[np.int64] = _joined(self._table, "pair_id", np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedSplit, (self.path, self.directions)

    def __len__(self) -> int:
        return len(self.direction)

    def _lengths(self, side: str) -> npt.NDArray[np.int32]:
        return np.concatenate([np.zeros(0, np.int32)] + [np.diff(offsets) for offsets, _ in self._sides[side]])

    def _ids(self, side: str, row: int) -> npt.NDArray[np.int32]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        offsets, values = self._sides[side][number]
        row -= int(self._starts[number])
        return values[offsets[row] : offsets[row + 1]]

    def src_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare source ids, a view into the file."""
        return self._ids("src_ids", row)

    def tgt_ids(self, row: int) -> npt.NDArray[np.int32]:
        """Bare target ids, a view into the file."""
        return self._ids("tgt_ids", row)

    def src_text(self, row: int) -> str:
        """The user's source line as it was (valid and test only)."""
        return self._text("src_text", row)

    def tgt_text(self, row: int) -> str:
        """The user's target line as it was (valid and test only)."""
        return self._text("tgt_text", row)

    def origin(self, row: int) -> str:
        """Where the pair came from, such as `train.en:17`."""
        return self._text("origin", row)

    def origins_from(self, origin: str) -> list[str]:
        """This origin, if there are rows from it, and those of the rows that augmentation made of it."""
        column = self._table.column("origin")
        is_from = pc.or_(pc.equal(column, origin), pc.starts_with(column, f"{origin} ("))
        return pc.unique(column.filter(is_from)).to_pylist()

    def rows_of(self, origin: str) -> list[int]:
        """All rows from this origin."""
        return np.flatnonzero(pc.equal(self._table.column("origin"), origin).to_numpy()).tolist()

    def _text(self, column: str, row: int) -> str:
        assert column in self._table.column_names, f"{self.path.name} keeps no {column}"
        return str(self._table.column(column)[int(row)].as_py())


def _arrays(lists: pa.ListArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Offsets (rows + 1,) and values of a batch of lists, views into the file."""
    offsets = _view(lists.buffers()[1], np.int32)[lists.offset :][: len(lists) + 1]
    return offsets, _view(lists.values.buffers()[1], np.int32)


def _joined(table: pa.Table, column: str, dtype: type[_Number]) -> npt.NDArray[_Number]:
    chunks = table.column(column).chunks
    views = [_view(chunk.buffers()[1], dtype)[chunk.offset :][: len(chunk)] for chunk in chunks]
    return np.concatenate([np.zeros(0, dtype), *views])


def _view(buffer: pa.Buffer | None, dtype: type[_Number]) -> npt.NDArray[_Number]:
    # not to_numpy(), which imports pandas and so makes opening a hundred times slower
    return np.frombuffer(buffer, dtype) if buffer is not None and buffer.size else np.zeros(0, dtype)
