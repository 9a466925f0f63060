"""Build Parquet files from rows and copied row groups inside a merge task: several if one would be too large."""

from __future__ import annotations

import bisect
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout, PreparedRows
from tblctl.tableformat.parquet.dictionaries import decoded_bytes


def _nothing() -> None:
    """Do nothing: nothing was written."""


@dataclass(frozen=True, kw_only=True)
class NewBlock:
    """A file under construction.

    Attributes:
        path: its name.
        encoder: takes its rows.
        store: completes the file, and returns what is recorded of it.
        abandon: removes what was written of it; after `store` it does nothing.
    """

    path: str
    encoder: BlockEncoder
    store: Callable[[], BlockRecord]
    abandon: Callable[[], None] = _nothing


class ParquetBlockBuilder:
    """`tblctl.tableformat.port.BlockBuilder` of Parquet files.

    Args:
        layout: how rows become blocks.
        sort: the order in which rows come; None for none.
        begin: begins a file.
        open: opens a block whose row groups are copied.
        discard: deletes files, as far as possible.
        most_bytes: of rows in memory in a file; None if one file takes all.
    """

    def __init__(
        self,
        layout: Layout,
        sort: Sort | None,
        *,
        begin: Callable[[], NewBlock],
        open: Callable[[Block], ParquetBlockReader],
        discard: Callable[[Sequence[str]], None],
        most_bytes: int | None,
    ) -> None:
        self._layout = layout
        self._sort = sort
        self._begin = begin
        self._open_block = open
        self._discard = discard
        self._most_bytes = sys.maxsize if most_bytes is None else most_bytes
        self._open: NewBlock | None = None
        self._written: list[BlockRecord] = []
        self._paths: list[str] = []

    @property
    def stored_bytes(self) -> int:
        """Bytes on storage of the rows that were appended so far: pages of complete row groups, and complete files."""
        complete = sum(record.size_bytes for record in self._written)
        return complete + (self._open.encoder.page_bytes if self._open else 0)

    def adding(self, rows: pa.Table, groups: Sequence[int]) -> Callable[[], None]:
        """Prepare rows that are in key order, and return a function that appends them."""
        if sum(groups) != rows.num_rows:
            msg = f"row groups of {sum(groups)} rows in all were to be made of {rows.num_rows}"
            raise InternalError(msg)
        return partial(self._append, self._window(rows, groups))

    def copy(self, block: Block, groups: Sequence[int]) -> None:
        """Append row groups as they are stored. A file is stored if the next one does not fit."""
        with self._open_block(block) as reader:
            while groups:
                sizes = itertools.accumulate(reader.group_bytes[group] for group in groups)
                count = bisect.bisect_right(list(sizes), self._room)
                if self._open and not count:
                    self._store(self._open)
                    continue
                reader.copy_into(self._opened().encoder, groups[: max(count, 1)], self._sort)
                groups = groups[max(count, 1) :]

    def finish(self) -> tuple[BlockRecord, ...]:
        """Store the added rows."""
        if self._open:
            self._store(self._open)
        return tuple(self._written)

    def discard(self) -> None:
        """Delete the stored files, as far as possible."""
        if self._open:
            self._open.abandon()
        self._discard(self._paths)

    @property
    def _room(self) -> int:
        """How many bytes of rows the open file can still take."""
        return self._most_bytes - (self._open.encoder.decoded_bytes if self._open else 0)

    def _window(self, rows: pa.Table, groups: Sequence[int]) -> PreparedRows:
        return PreparedRows.of(rows, groups, self._layout, self._sort)

    def _append(self, window: PreparedRows) -> None:
        """Append rows. A file is stored if the next row does not fit."""
        while window.groups:
            count = _fitting(window, self._layout.schema.written, self._room)
            if self._open and not count:
                self._store(self._open)
                continue
            encoder = self._opened().encoder
            if count == window.rows.num_rows:
                encoder.add(window)
                return
            first, others = _parted(window.groups, max(count, 1))
            encoder.add(self._window(window.rows.slice(0, sum(first)), first))
            if not others:
                return
            window = self._window(window.rows.slice(sum(first)), others)

    def _opened(self) -> NewBlock:
        if self._open is None:
            self._open = self._begin()
            self._paths.append(self._open.path)
        return self._open

    def _store(self, file: NewBlock) -> None:
        self._written.append(file.store())
        self._open = None


def _parted(groups: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Return the row groups of the first `count` rows, and those of the others."""
    stops = list(itertools.accumulate(groups))
    return (
        [
            min(stop, count) - (stop - rows)
            for stop, rows in zip(stops, groups, strict=True)
            if stop - rows < count
        ],
        [stop - max(stop - rows, count) for stop, rows in zip(stops, groups, strict=True) if stop > count],
    )


def _fitting(window: PreparedRows, schema: pa.Schema, room: int) -> int:
    """Return how many of the first rows take at most `room` bytes."""
    rows = window.rows
    if window.decoded_bytes <= room:
        return int(rows.num_rows)
    return bisect.bisect_right(
        range(1, rows.num_rows), room, key=lambda count: decoded_bytes(rows.slice(0, count), schema)
    )
