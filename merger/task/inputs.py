"""Stream the rows of a task's inputs, each input in key order, a few rows at a time.

Rows are read when they are needed, and read-ahead stays within a budget: small inputs are read whole, larger ones row
group by row group, and too large row groups piece by piece. If the budget cannot keep a block open, its rows are first
copied to the spill folder. Presorted rows come as portions (`presort/portions.py`).

A block is opened twice: for its keys (`block_input.py`) and for its rows. The reader is not kept open in between. Only
after all inputs were looked at is it known which columns come as dictionaries and which blocks are open at the same
time. Until then each open reader would hold a file handle and a footer. Opening again costs no request on a remote
storage (`BlockIO` caches the ends of files); on a local disk it costs parsing the footer again.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

import numpy as np
import pyarrow as pa

from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.presort.portions import Portion
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.block_input import BlockInput, RowGroupRange
from tblctl.merger.task.decode_ahead import Begin, DecodeAhead, DecodedAhead
from tblctl.merger.task.row_ranges import own, within
from tblctl.merger.task.verify import Fingerprint, VerificationError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import BlockIO, BlockReader

Tables = Generator[pa.Table, None, None]


class RowSource(Protocol):
    """Reads an input's rows, once."""

    @property
    def decoded(self) -> Sequence[Fingerprint]:
        """The fingerprints of the rows decoded so far."""

    def tables(self) -> Tables:
        """Yield the rows, table by table, in key order."""


class RowStream:
    """Rows in key order, taken a few at a time.

    Attributes:
        rows: how many.
        row_bytes: approximate memory of each row, float32.
    """

    def __init__(
        self, row_bytes: np.ndarray, source: RowSource, ahead: DecodeAhead, *, table_bytes: int
    ) -> None:
        self.rows = len(row_bytes)
        self.row_bytes = row_bytes
        self._source = source
        self._ahead = ahead
        self._table_bytes = table_bytes
        self._next: DecodedAhead | None = None
        self._coming = self.rows  # rows of tables that are not decoded yet
        self._tables: Tables | None = None
        self._left = self.rows  # rows not taken yet
        self._table: pa.Table | None = None  # the table that rows are taken from
        self._given = 0  # number of its rows already taken

    @property
    def decoded(self) -> Sequence[Fingerprint]:
        """The fingerprints of the rows decoded so far."""
        return self._source.decoded

    def take(self, count: int) -> list[pa.Table]:
        """Return the next `count` rows as consecutive tables. After the last row nothing is held."""
        self._left -= count
        self._tables = self._source.tables() if self._tables is None else self._tables
        taken = []
        while count:
            if self._table is None:
                self._table, self._given = self._following(self._tables), 0
            if self._table is None:
                msg = f"an input of {self.rows} rows ended {count} rows too early. Nothing is committed"
                raise VerificationError(msg)
            rows = self._table.slice(self._given, count)
            taken.append(rows)
            count -= rows.num_rows
            self._given += rows.num_rows
            if self._given == self._table.num_rows:
                self._table = None
        if not self._left:
            self.close()
        return taken

    def _following(self, tables: Tables) -> pa.Table | None:
        """Return the next table, and begin to decode the one after it."""
        table = self._next.take() if self._next else next(tables, None)
        self._next = None
        if table is not None:
            self._coming -= table.num_rows
            if self._coming > 0:
                self._next = self._ahead.begin(lambda: next(tables, None), self._table_bytes)
        return table

    def close(self) -> None:
        """Close the source."""
        if self._next:
            self._next.stop()
            self._next = None
        if self._tables:
            self._tables.close()
        self._table = None


def open_streams(
    io: BlockIO,
    inputs: Sequence[BlockInput | Portion],
    folder: SpillFolder,
    *,
    budget_bytes: int,
    at_once: int,
    most_open: int = THRESHOLDS.open_blocks,
    begin: Begin | None = None,
) -> list[RowStream]:
    """Return a stream for each input; they hold about `budget_bytes` of rows at a time, and half as much of pages.

    Args:
        io: of the table.
        inputs: the inputs to read.
        folder: for blocks that cannot stay open.
        budget_bytes: see above.
        at_once: the most inputs that are partly read at any time.
        most_open: the most blocks that may be open at once.
        begin: begins to decode in another thread; None to decode only when rows are needed.
    """
    each_bytes = max(1, budget_bytes // max(at_once, 1))
    spilled = _to_spill(inputs, each_bytes, budget_bytes // 4, at_once, most_open)
    coded = frozenset[int].intersection(*(item.codable for item in inputs)) if inputs else frozenset[int]()
    has_portions = any(isinstance(item, Portion) for item in inputs)
    fetched = _ReadAhead(0 if has_portions else budget_bytes // 4, at_once)
    table_bytes = [_table_bytes(item, each_bytes) for item in inputs]
    decoded = DecodeAhead(budget_bytes - sum(sorted(table_bytes)[-at_once:]), begin)
    streams = []
    for number, (item, size) in enumerate(zip(inputs, table_bytes, strict=True)):
        source: RowSource
        if isinstance(item, Portion):
            source = _PortionSource(item, io.schema, coded)
        else:
            source = _BlockSource(io, item, each_bytes, fetched, coded)
            source = _SpillSource(source, folder) if number in spilled else source
        streams.append(RowStream(item.each_row_bytes, source, decoded, table_bytes=size))
    return streams


def _table_bytes(item: BlockInput | Portion, each_bytes: int) -> int:
    """Return about the most bytes of rows that an input decodes at a time."""
    if isinstance(item, Portion):
        return each_bytes
    if item.decoded_bytes <= each_bytes:
        return math.ceil(item.decoded_bytes)
    return min(item.group_bytes, each_bytes)


def _to_spill(
    inputs: Sequence[BlockInput | Portion], each_bytes: int, budget_bytes: int, at_once: int, most_open: int
) -> set[int]:
    """Return the numbers of the blocks to spill, so that any `at_once` of the others fit the budget.

    Those that hold most are spilled first. A block that is read whole at once is not kept open.
    """
    held = {
        number: item.footer_bytes + (item.stored_bytes if item.group_bytes > each_bytes else 0)
        for number, item in enumerate(inputs)
        if isinstance(item, BlockInput) and item.decoded_bytes > each_bytes
    }
    largest = sorted(held, key=lambda number: -held[number])
    sums = np.cumsum([0] + [held[number] for number in largest])
    firsts = np.arange(len(sums))
    stops = np.minimum(firsts + at_once, len(largest))
    fits = (sums[stops] - sums <= budget_bytes) & (stops - firsts <= most_open)
    return set(largest[: int(np.argmax(fits))])


@dataclass(frozen=True)
class _PortionSource:
    """Presorted rows. Their fingerprint is from when they were decoded."""

    portion: Portion
    schema: Schema
    coded: frozenset[int]
    decoded: list[Fingerprint] = field(default_factory=list)

    def tables(self) -> Tables:
        self.decoded.append(self.portion.decoded)
        yield from self.portion.tables(self.schema, self.coded)


class _ReadAhead:
    """Fetches the next row groups while others are merged, within a budget for all `streams` together.

    A stream without fetched row groups asks for as many as fit its equal share of the budget, as one request; for at
    least one if there is room.
    """

    def __init__(self, budget_bytes: int, streams: int) -> None:
        self._free_bytes = budget_bytes
        self._each_bytes = budget_bytes // max(streams, 1)
        self._lock = Lock()

    def begin(self, reader: BlockReader, ranges: Sequence[RowGroupRange]) -> tuple[int, int]:
        """Begin to fetch the first of some row groups. Return how many, and the bytes to release after the last."""
        sizes = np.cumsum([item.stored_bytes for item in ranges])
        count = max(1, int(np.searchsorted(sizes, self._each_bytes, side="right")))
        wanted = int(sizes[count - 1])
        with self._lock:
            if wanted > self._free_bytes:
                return 0, 0
            self._free_bytes -= wanted
        held = reader.will_need([item.group for item in ranges[:count]])
        self.end(wanted - held)
        return count, held

    def end(self, held_bytes: int) -> None:
        """Release bytes."""
        with self._lock:
            self._free_bytes += held_bytes


@dataclass(frozen=True)
class _BlockSource:
    """Reads an input of a block, holding about `each_bytes` at a time.

    A small input is read whole, so that its block can be closed. A row group is read whole if it fits. Otherwise half
    of the bytes are for rows, and half for their pages.
    """

    io: BlockIO
    block: BlockInput
    each_bytes: int
    ahead: _ReadAhead
    coded: frozenset[int]
    decoded: list[Fingerprint] = field(default_factory=list)

    def tables(self) -> Tables:
        with self.io.open(self.block.split.block, coded=self.coded) as reader:
            if self.block.decoded_bytes > self.each_bytes:
                for table in self._by_row_group(reader):
                    self.decoded.append(Fingerprint.of(table))
                    yield table
                return
            whole = self._whole(reader)
        self.decoded.append(Fingerprint.of(whole))
        yield whole

    def _whole(self, reader: BlockReader) -> pa.Table:
        ranges = self.block.decoded
        if sum(reader.group_bytes[item.group] for item in ranges) > self.each_bytes:
            return pa.concat_tables(self._by_row_group(reader)).combine_chunks()
        rows = reader.rows([item.group for item in ranges])
        return own(rows, ranges[0].start, ranges[0].start + sum(item.rows for item in ranges))

    def _by_row_group(self, reader: BlockReader) -> Tables:
        ranges = self.block.decoded
        fetched, held_bytes = self.ahead.begin(reader, ranges)  # row groups being fetched or in memory
        try:
            for number, item in enumerate(ranges):
                tables = self._row_group(reader, item)
                rows = next(tables)
                fetched -= 1
                if fetched <= 0 and number + 1 < len(ranges):
                    self.ahead.end(held_bytes)
                    fetched, held_bytes = self.ahead.begin(reader, ranges[number + 1 :])
                yield rows
                del rows
                yield from tables
        finally:
            self.ahead.end(held_bytes)

    def _row_group(self, reader: BlockReader, item: RowGroupRange) -> Tables:
        """Yield some rows of a row group: at once, or in batches if it is large."""
        if reader.group_bytes[item.group] <= self.each_bytes:
            yield own(reader.rows([item.group]), item.start, item.stop)
            return
        yield from within(reader.batches(item.group, self.batch_rows), item.start, item.stop)

    @property
    def batch_rows(self) -> int:
        """How many rows of a larger row group are decoded at a time."""
        return max(1, int(self.each_bytes / 2 / self.block.row_bytes))


@dataclass(frozen=True)
class _SpillSource:
    """Copies a block's rows to the spill folder at the first call, and reads them back piece by piece."""

    source: _BlockSource
    folder: SpillFolder

    @property
    def decoded(self) -> Sequence[Fingerprint]:
        return self.source.decoded

    def tables(self) -> Tables:
        rows = self.source.batch_rows
        spilled = self.folder.write(
            table.slice(start, rows)
            for table in self.source.tables()
            for start in range(0, table.num_rows, rows)
        )
        for piece in range(len(spilled)):
            yield spilled.read(piece)
