"""The rows of a task's slices, each handed out in key order and little by little.

Nothing is read before it is needed, and what is read ahead stays within a budget: small slices are read whole, larger
ones row group by row group, and row groups that are too large piece by piece. What cannot be streamed so (more open
blocks than the budget has room for) is first copied to a scratch folder on the local disk; rows of blocks in another
order come sorted (`presort/portions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tblctl.merger.presort.portions import Portion
from tblctl.merger.presort.spill import Scratch
from tblctl.merger.task.row_ranges import overlapping, own, within
from tblctl.merger.task.spec import Slice
from tblctl.merger.task.verify import Fingerprint, VerificationError
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.keys.order import is_sorted, key_range, sort_indices
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.port import BlockIO, BlockReader

READ_SHARE = 4
"""Rows that were read and wait take so much of a task's memory, and pages half as much."""

MOST_OPEN = 256
"""Blocks that a task holds open at once; each takes a file handle."""

Tables = Generator[pa.Table, None, None]


class Source(Protocol):
    """Gives an input's rows table by table, and notes the fingerprint of what it decoded in `read`."""

    def __call__(self, read: list[Fingerprint]) -> Tables: ...


class Input:
    """Rows in key order, from a source that gives them table by table.

    Attributes:
        rows: how many.
        row_bytes: about what each takes in memory, float32.
        read: fingerprints of what was decoded for it so far.
    """

    def __init__(self, row_bytes: np.ndarray, source: Source) -> None:
        self.rows = len(row_bytes)
        self.row_bytes = row_bytes
        self.read: list[Fingerprint] = []
        self._source = source
        self._tables: Tables | None = None
        self._left = self.rows  # that were not handed out
        self._table: pa.Table | None = None  # that is being handed out
        self._given = 0  # of its rows

    def take(self, count: int) -> list[pa.Table]:
        """Return the next `count` rows, in tables one after the other. After the last one nothing is held."""
        self._left -= count
        self._tables = self._source(self.read) if self._tables is None else self._tables
        taken = []
        while count:
            if self._table is None:
                self._table, self._given = next(self._tables, None), 0
            if self._table is None:
                msg = f"an input of {self.rows} rows ended {count} rows too early. Nothing is committed"
                raise VerificationError(msg)
            piece = self._table.slice(self._given, count)
            taken.append(piece)
            count -= piece.num_rows
            self._given += piece.num_rows
            if self._given == self._table.num_rows:
                self._table = None
        if not self._left:
            self.close()
        return taken

    def close(self) -> None:
        """Let go of what is open."""
        if self._tables:
            self._tables.close()
        self._table = None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows of one row group.

    Attributes:
        row_bytes: about what one takes in memory.
        stored_bytes: of the row group in the file.
        group: the row group.
        start, stop: the stretch of it that they are in.
        is_copyable: it is the whole row group, and `BlockBuilder.copy` takes it.
    """

    row_bytes: float
    stored_bytes: int
    group: int
    start: int
    stop: int
    is_copyable: bool = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Rows of one block that are in key order.

    Attributes:
        pieces: the rows.
        copied: row groups whose rows are copied, not decoded.
        group_bytes, stored_bytes: of the largest row group concerned, see `BlockReader`.
        overhead_bytes: what the open block itself takes.
        codable: columns that can be read as dictionaries, see `BlockReader`.
    """

    slice: Slice
    pieces: tuple[Piece, ...]
    group_bytes: int
    stored_bytes: int
    overhead_bytes: int
    codable: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()

    @property
    def decoded(self) -> tuple[Piece, ...]:
        """The pieces that are decoded."""
        return tuple(piece for piece in self.pieces if piece.group not in self.copied)

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the parts of a task."""
        return self.slice.place, 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def row_bytes(self) -> float:
        """About what one that is decoded takes in memory."""
        return self.bytes / max(sum(piece.rows for piece in self.decoded), 1)

    @property
    def bytes_read(self) -> int:
        """Bytes of the file that are read for them."""
        return sum(piece.stored_bytes for piece in self.pieces)

    @property
    def bytes(self) -> float:
        """About what those that are decoded take in memory."""
        return sum(piece.rows * piece.row_bytes for piece in self.decoded)

    @property
    def each_row_bytes(self) -> np.ndarray:
        """About what each takes in memory, float32."""
        sizes = np.array([piece.row_bytes for piece in self.pieces], dtype=np.float32)
        return np.repeat(sizes, [piece.rows for piece in self.pieces])


_CHUNK_BYTES = 512
"""What one column chunk's entry in an open Parquet footer takes."""


def slice_keys(io: BlockIO, part: Slice, sort: Sort) -> pa.Table:
    """Return the keys of a slice in key order.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata promises.
    """
    with io.open(part.block) as reader:
        if part.is_ordered:
            return _ordered_keys(reader, part, sort)[0]
        keys = reader.keys(range(len(reader.group_rows)), sort).combine_chunks()
        return keys.take(sort_indices(keys, sort).slice(part.start, part.stop - part.start))


def look_at(io: BlockIO, part: Slice, sort: Sort) -> tuple[pa.Table, Part]:
    """Return the rows of a slice of a block in key order, and their keys.

    Raises:
        CorruptTableError: the block is damaged, or not in the order that its metadata promises.
    """
    with io.open(part.block) as reader:
        keys, pieces = _ordered_keys(reader, part, sort)
        if not io.can_copy(part.block):
            pieces = tuple(replace(piece, is_copyable=False) for piece in pieces)
        return keys, _part(io, reader, part, pieces)


def _ordered_keys(reader: BlockReader, part: Slice, sort: Sort) -> tuple[pa.Table, tuple[Piece, ...]]:
    """Return the keys of a slice in key order, checked, and which rows of which row groups they are of."""
    pieces = tuple(_piece(reader, *one) for one in overlapping(reader.group_rows, part.start, part.stop))
    groups = [piece.group for piece in pieces]
    keys = reader.keys(groups, sort).slice(pieces[0].start, part.stop - part.start)
    if not is_sorted(keys, sort):
        raise _damaged(part.block, f"is not in the order of cluster key {sort.id}, as its metadata says")
    _check_ends(part, keys, sort)
    return keys, pieces


def _check_ends(part: Slice, keys: pa.Table, sort: Sort) -> None:
    """Compare the first and last key with what the metadata says, where the slice has them."""
    cluster = part.block.cluster
    if cluster is None or cluster.cluster_key_id != sort.id or not cluster.exact:
        return
    found = key_range(keys, sort)
    if part.start == 0 and _differ(found.min, cluster.min):
        raise _damaged(part.block, f"begins with the key {found.min}, its metadata says {cluster.min}")
    if part.stop == part.block.row_count and _differ(found.max, cluster.max):
        raise _damaged(part.block, f"ends with the key {found.max}, its metadata says {cluster.max}")


def _differ(found: Sequence[pa.Scalar], said: Sequence[Any]) -> bool:
    """Tell whether keys surely differ. Values of a column that was widened since may be of other Python types."""
    return any(_differs(scalar, value) for scalar, value in zip(found, said, strict=True))


def _differs(scalar: pa.Scalar, said: Any) -> bool:
    value = python_value(scalar)
    counts_units = pa.types.is_temporal(scalar.type) and isinstance(value, int)
    is_nan = isinstance(value, float) and math.isnan(value)
    return type(value) is type(said) and not counts_units and not is_nan and value != said


def _damaged(block: Block, problem: str) -> CorruptTableError:
    msg = f"block {block.path} {problem}; `tblctl check --deep` tells what else is wrong"
    return CorruptTableError(msg, name=block.path)


def _piece(reader: BlockReader, group: int, start: int, stop: int) -> Piece:
    return Piece(
        row_bytes=max(1.0, reader.group_bytes[group] / reader.group_rows[group]),
        stored_bytes=reader.stored_bytes[group],
        group=group,
        start=start,
        stop=stop,
        is_copyable=stop - start == reader.group_rows[group] and group in reader.copyable,
    )


def _part(io: BlockIO, reader: BlockReader, part: Slice, pieces: tuple[Piece, ...]) -> Part:
    return Part(
        slice=part,
        pieces=pieces,
        group_bytes=max(reader.group_bytes[piece.group] for piece in pieces),
        stored_bytes=max(piece.stored_bytes for piece in pieces),
        overhead_bytes=_CHUNK_BYTES * len(reader.group_rows) * len(io.schema.leaves),
        codable=reader.codable,
    )


def open_inputs(
    io: BlockIO, parts: Sequence[Part | Portion], scratch: Scratch, *, budget_bytes: int, at_once: int
) -> list[Input]:
    """Return an input for each part; they hold about `budget_bytes` of rows at a time, and half as much of pages.

    At most `at_once` of them have given some of their rows and not all, at any time.
    """
    share = max(1, budget_bytes // max(at_once, 1))
    spilled = _to_spill(parts, share, budget_bytes // 4, at_once)
    coded = _coded(parts)
    ahead = _Ahead(0 if any(isinstance(part, Portion) for part in parts) else budget_bytes // 4, at_once)
    return [
        _portion_input(part, io.schema, coded)
        if isinstance(part, Portion)
        else Input(
            part.each_row_bytes,
            _source(_Stream(io, part, share, ahead, coded), scratch if number in spilled else None),
        )
        for number, part in enumerate(parts)
    ]


def _coded(parts: Sequence[Part | Portion]) -> frozenset[int]:
    """Return the columns that every part can give as dictionaries: those of one column are of one kind, then."""
    return frozenset[int].intersection(*(part.codable for part in parts)) if parts else frozenset()


def _source(stream: _Stream, scratch: Scratch | None) -> Source:
    return stream if scratch is None else _Spilled(stream, scratch)


def _portion_input(portion: Portion, schema: Schema, coded: frozenset[int]) -> Input:
    def source(read: list[Fingerprint]) -> Tables:
        read.append(portion.read)
        yield from portion.tables(schema, coded)

    return Input(np.full(portion.rows, portion.row_bytes, dtype=np.float32), source)


def _to_spill(parts: Sequence[Part | Portion], share: int, budget_bytes: int, at_once: int) -> set[int]:
    """Return the numbers of the parts to spill, so that what `at_once` of the others hold open fits the budget."""
    held = {
        number: part.overhead_bytes + (part.stored_bytes if part.group_bytes > share else 0)
        for number, part in enumerate(parts)
        if isinstance(part, Part) and part.bytes > share
    }
    largest = sorted(held, key=lambda number: -held[number])
    sums = np.cumsum([0] + [held[number] for number in largest])
    firsts = np.arange(len(sums))
    stops = np.minimum(firsts + at_once, len(largest))
    fits = (sums[stops] - sums <= budget_bytes) & (stops - firsts <= MOST_OPEN)
    return set(largest[: int(np.argmax(fits))])


class _Ahead:
    """Has the next row groups fetched while others are merged, within a budget for all `streams` together.

    A stream that has none on its way asks for as many as its even share holds, which then are one request; for one
    at least, if there is room.
    """

    def __init__(self, budget_bytes: int, streams: int) -> None:
        self._free_bytes = budget_bytes
        self._share_bytes = budget_bytes // max(streams, 1)
        self._lock = Lock()

    def begin(self, reader: BlockReader, pieces: Sequence[Piece]) -> tuple[int, int]:
        """Begin to fetch the first of some pieces; return how many, and the bytes to give back after the last."""
        sizes = np.cumsum([piece.stored_bytes for piece in pieces])
        count = max(1, int(np.searchsorted(sizes, self._share_bytes, side="right")))
        wanted = int(sizes[count - 1])
        with self._lock:
            if wanted > self._free_bytes:
                return 0, 0
            self._free_bytes -= wanted
        held = reader.will_need([piece.group for piece in pieces[:count]])
        self.end(wanted - held)
        return count, held

    def end(self, held_bytes: int) -> None:
        """Give back what was held."""
        with self._lock:
            self._free_bytes += held_bytes


@dataclass(frozen=True)
class _Stream:
    """Reads a part's rows, holding `share` bytes at a time where it can.

    A small part is read at once, so that its block is closed; a row group at once if it fits; else half of the share is
    for rows, and half for the pages that they come from.
    """

    io: BlockIO
    part: Part
    share: int
    ahead: _Ahead
    coded: frozenset[int] = frozenset()

    def __call__(self, read: list[Fingerprint]) -> Tables:
        with self.io.open(self.part.slice.block, coded=self.coded) as reader:
            if self.part.bytes > self.share:
                for table in self._tables(reader):
                    read.append(Fingerprint.of(table))
                    yield table
                return
            whole = self._whole(reader)
        read.append(Fingerprint.of(whole))
        yield whole

    def _whole(self, reader: BlockReader) -> pa.Table:
        pieces = self.part.decoded
        if sum(reader.group_bytes[piece.group] for piece in pieces) > self.share:
            return pa.concat_tables(self._tables(reader)).combine_chunks()
        rows = reader.rows([piece.group for piece in pieces])
        return own(rows, pieces[0].start, pieces[0].start + sum(piece.rows for piece in pieces))

    def _tables(self, reader: BlockReader) -> Tables:
        pieces = self.part.decoded
        begun, held = self.ahead.begin(reader, pieces)  # pieces on their way or in memory, and their bytes
        try:
            for number, piece in enumerate(pieces):
                tables = self._piece(reader, piece)
                rows = next(tables)
                begun -= 1
                if begun <= 0 and number + 1 < len(pieces):
                    self.ahead.end(held)
                    begun, held = self.ahead.begin(reader, pieces[number + 1 :])
                yield rows
                del rows
                yield from tables
        finally:
            self.ahead.end(held)

    def _piece(self, reader: BlockReader, piece: Piece) -> Tables:
        """Yield the rows of a piece: at once, or in batches if its row group is large."""
        if reader.group_bytes[piece.group] <= self.share:
            yield own(reader.rows([piece.group]), piece.start, piece.stop)
            return
        yield from within(reader.batches(piece.group, self.table_rows), piece.start, piece.stop)

    @property
    def table_rows(self) -> int:
        """How many rows of a larger row group are decoded at a time."""
        return max(1, int(self.share / 2 / self.part.row_bytes))


@dataclass(frozen=True)
class _Spilled:
    """Copies a stream to the scratch folder when first asked, and reads it back little by little."""

    stream: _Stream
    scratch: Scratch

    def __call__(self, read: list[Fingerprint]) -> Tables:
        rows = self.stream.table_rows
        spilled = self.scratch.write(
            table.slice(start, rows)
            for table in self.stream(read)
            for start in range(0, table.num_rows, rows)
        )
        for piece in range(len(spilled)):
            yield spilled.read(piece)
