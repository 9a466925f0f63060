"""The rows of a task's slices, each handed out in key order and little by little.

Nothing is read before it is needed, and what is read ahead stays within a budget: small slices are read whole, larger
ones row group by row group, and row groups that are too large piece by piece. What cannot be streamed so (rows in
another order, more open blocks than the budget has room for) is first copied to a scratch folder on the local disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.merger.scratch import Scratch
from tblctl.merger.task import Slice
from tblctl.merger.verify import Fingerprint
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.keys import is_sorted, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.port import BlockIO, BlockReader

MOST_OPEN = 256
"""Blocks that a task holds open at once; each takes a file handle."""

Tables = Generator[pa.Table, None, None]


class Input:
    """Rows in key order, from a source that gives them table by table."""

    def __init__(self, rows: int, row_bytes: float, source: Callable[[], Tables]) -> None:
        self.rows = rows
        self.row_bytes = row_bytes
        self._source = source
        self._tables: Tables | None = None
        self._rest: pa.Table | None = None
        self.read: list[Fingerprint] = []
        """Of each table that the source gave, before it is cut."""

    def take(self, count: int) -> list[pa.Table]:
        """Return the next `count` rows, in tables one after the other."""
        self._tables = self._source() if self._tables is None else self._tables
        taken = []
        while count:
            if self._rest is None:
                self._rest = next(self._tables)
                self.read.append(Fingerprint.of(self._rest))
            piece = self._rest.slice(0, count)
            taken.append(piece)
            count -= piece.num_rows
            self._rest = None if piece.num_rows == self._rest.num_rows else self._rest.slice(piece.num_rows)
        return taken

    def close(self) -> None:
        """Let go of what is open."""
        if self._tables:
            self._tables.close()
        self._rest = None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What of one row group a slice needs.

    Attributes:
        rows: how many.
        stored_bytes: of the row group in the file.
        group: the row group.
        start, stop: the rows, where they are in key order.
        picked: the rows in key order, where they are not; None where they are.
    """

    rows: int
    stored_bytes: int
    group: int
    start: int
    stop: int
    picked: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Rows of one block that are in key order, or become so within one row group.

    Attributes:
        pieces: the rows.
        row_bytes: about what one takes in memory.
        group_bytes, stored_bytes: of the largest row group concerned, see `BlockReader`.
        overhead_bytes: what the open block itself takes.
    """

    slice: Slice
    pieces: tuple[Piece, ...]
    row_bytes: float
    group_bytes: int
    stored_bytes: int
    overhead_bytes: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes_read(self) -> int:
        """Bytes of the row groups that they are in."""
        return sum(piece.stored_bytes for piece in self.pieces)


_CHUNK_BYTES = 512
"""What one column chunk's entry in an open Parquet footer takes."""


def slice_keys(io: BlockIO, part: Slice, sort: Sort) -> pa.Table:
    """Return the keys of a slice in key order.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata promises.
    """
    with io.open(part.block) as reader:
        if part.is_ordered:
            return _ordered_part(io, reader, part, sort)[0]
        keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
        return keys.take(sort_indices(keys, sort).slice(part.start, part.stop - part.start))


def look_at(io: BlockIO, part: Slice, sort: Sort) -> list[tuple[pa.Table, Part]]:
    """Return the rows of a slice with their keys, in order: one part if its block is, else one for each row group.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata promises.
    """
    with io.open(part.block) as reader:
        if part.is_ordered:
            return [_ordered_part(io, reader, part, sort)]
        return list(_unordered_parts(io, reader, part, sort))


def _ordered_part(io: BlockIO, reader: BlockReader, part: Slice, sort: Sort) -> tuple[pa.Table, Part]:
    pieces = tuple(_overlapping(reader, part.start, part.stop))
    groups = [piece.group for piece in pieces]
    keys = reader.keys(groups, sort).slice(pieces[0].start, part.stop - part.start)
    if not is_sorted(keys, sort):
        msg = (
            f"block {part.block.path} is not in the order of cluster key {sort.id}, as its metadata says; "
            "`tblctl check --deep` tells what else is wrong"
        )
        raise CorruptTableError(msg, name=part.block.path)
    return keys, _part(io, reader, part, pieces)


def _overlapping(reader: BlockReader, start: int, stop: int) -> Generator[Piece, None, None]:
    """Yield which rows of which row groups the rows `start` to `stop` of a block are."""
    first = 0
    for group, rows in enumerate(reader.group_rows):
        low, high = max(start - first, 0), min(stop - first, rows)
        if low < high:
            stored = reader.stored_bytes[group]
            yield Piece(rows=high - low, stored_bytes=stored, group=group, start=low, stop=high)
        first += rows


def _unordered_parts(
    io: BlockIO, reader: BlockReader, part: Slice, sort: Sort
) -> Generator[tuple[pa.Table, Part], None, None]:
    keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
    chosen = sort_indices(keys, sort).to_numpy()[part.start : part.stop]
    first = 0
    for group, rows in enumerate(reader.group_rows):
        mine = chosen[(chosen >= first) & (chosen < first + rows)]
        if mine.size:
            piece = Piece(
                rows=mine.size,
                stored_bytes=reader.stored_bytes[group],
                group=group,
                start=0,
                stop=rows,
                picked=mine - first,
            )
            yield keys.take(pa.array(mine)), _part(io, reader, part, (piece,))
        first += rows


def _part(io: BlockIO, reader: BlockReader, part: Slice, pieces: tuple[Piece, ...]) -> Part:
    groups = [piece.group for piece in pieces]
    decoded = [reader.group_bytes[group] for group in groups]
    return Part(
        slice=part,
        pieces=pieces,
        row_bytes=max(1.0, sum(decoded) / sum(reader.group_rows[group] for group in groups)),
        group_bytes=max(decoded),
        stored_bytes=max(piece.stored_bytes for piece in pieces),
        overhead_bytes=_CHUNK_BYTES * len(reader.group_rows) * len(io.schema.leaves),
    )


def open_inputs(io: BlockIO, parts: Sequence[Part], scratch: Scratch, *, budget_bytes: int) -> list[Input]:
    """Return an input for each part; together they hold about `budget_bytes` of rows and pages at a time."""
    share = max(1, budget_bytes // (2 * max(len(parts), 1)))
    spilled = _to_spill(parts, share, budget_bytes // 2)
    inputs = []
    for number, part in enumerate(parts):
        source = _Stream(io, part, share)
        inputs.append(
            Input(part.rows, part.row_bytes, _Spilled(source, scratch) if number in spilled else source)
        )
    return inputs


def _to_spill(parts: Sequence[Part], share: int, budget_bytes: int) -> set[int]:
    """Return the numbers of the parts that must be spilled for what the others hold open to fit the budget."""
    spilled: set[int] = set()
    unordered = [number for number, part in enumerate(parts) if part.pieces[0].picked is not None]
    if sum(parts[number].rows * parts[number].row_bytes for number in unordered) > budget_bytes // 2:
        spilled.update(unordered)
    held = {
        number: part.overhead_bytes + (part.stored_bytes if part.group_bytes > share else 0)
        for number, part in enumerate(parts)
        if number not in spilled and part.rows * part.row_bytes > share
    }
    total, count = sum(held.values()), len(held)
    for number, size in sorted(held.items(), key=lambda item: -item[1]):
        if total <= budget_bytes // 2 and count <= MOST_OPEN:
            break
        spilled.add(number)
        total -= size
        count -= 1
    return spilled


@dataclass(frozen=True)
class _Stream:
    """Reads a part's rows, `share` bytes at a time where it can."""

    io: BlockIO
    part: Part
    share: int

    def __call__(self) -> Tables:
        part = self.part
        first = part.pieces[0]
        with self.io.open(part.slice.block) as reader:
            if first.picked is not None:
                whole = reader.rows([first.group]).take(pa.array(first.picked))
            elif part.rows * part.row_bytes <= self.share:
                groups = [piece.group for piece in part.pieces]
                whole = reader.rows(groups).slice(first.start, part.rows)
            else:
                for piece in part.pieces:
                    yield from self._streamed(reader, piece)
                return
        yield whole

    def _streamed(self, reader: BlockReader, piece: Piece) -> Tables:
        if reader.group_bytes[piece.group] <= self.share:
            yield reader.rows([piece.group]).slice(piece.start, piece.rows)
            return
        place = 0
        for batch in reader.batches(piece.group, self.piece_rows):
            low, high = max(piece.start - place, 0), min(piece.stop - place, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            place += batch.num_rows

    @property
    def piece_rows(self) -> int:
        """How many rows fit the share."""
        return max(1, int(self.share / self.part.row_bytes))


@dataclass(frozen=True)
class _Spilled:
    """Copies a stream to the scratch folder when first asked, and reads it back piece by piece."""

    stream: _Stream
    scratch: Scratch

    def __call__(self) -> Tables:
        rows = self.stream.piece_rows
        spilled = self.scratch.write(
            table.slice(start, rows) for table in self.stream() for start in range(0, table.num_rows, rows)
        )
        for piece in range(spilled.pieces):
            yield spilled.read(piece)
