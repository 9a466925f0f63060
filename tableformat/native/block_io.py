"""Read and write blocks of a native table inside merge tasks, a row group or less at a time."""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InternalError, TblctlError
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.blocks import address_of
from tblctl.tableformat.native.log.names import block_path
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout, PreparedRows, parquet_schema
from tblctl.tableformat.parquet.dictionaries import decoded_bytes
from tblctl.tableformat.parquet.opened import IdleBlocks, Tails
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.statistics import Measured, joined
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.ranges import KEY_GAP_BYTES

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class NativeBlockIO:
    """`tblctl.tableformat.port.BlockIO` of one snapshot.

    `layout` is the snapshot's. `column_ids` has the column ids of every schema that the table had, by schema id.
    """

    storage: Storage
    env: Environment
    layout: Layout
    column_ids: Mapping[int, frozenset[int]]
    tails: Tails = field(default_factory=Tails, compare=False)
    idle: IdleBlocks = field(default_factory=IdleBlocks, compare=False)

    @property
    def schema(self) -> Schema:
        """The columns that are read and written."""
        return self.layout.schema

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self.layout.options

    @property
    def opens(self) -> int:
        """How many blocks to open at once."""
        return 1 if self.storage.is_local else IO_THREADS

    def open(self, block: Block, *, coded: Collection[int] = ()) -> NativeBlockReader:
        """Open a block."""
        return NativeBlockReader(self, block, coded=coded)

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return the blocks unchanged: native blocks have no deleted rows."""
        return tuple(blocks)

    def can_copy(self, block: Block) -> bool:
        """Return true: every block was written by tblctl."""
        del block
        return True

    def build(
        self, *, sort: Sort | None, level: int, run_id: str | None, partition: str = ""
    ) -> NativeBlockBuilder:
        """Begin a block. Its rows become several blocks if one would exceed `block_bytes`.

        Raises:
            InternalError: a partition is given; native tables have none.
        """
        if partition:
            msg = f"a block of partition {partition!r} cannot be written into a table without partitions"
            raise InternalError(msg)
        return NativeBlockBuilder(self, sort=sort, level=level, run_id=run_id)

    def discard(self, paths: Sequence[str]) -> None:
        """Delete blocks, as far as possible."""
        try:
            self.storage.delete(list(paths))
        except TblctlError as error:
            LOG.warning("blocks that are not needed could not be deleted, gc will: %s", error)


class NativeBlockReader:
    """`tblctl.tableformat.port.BlockReader` of one Parquet file."""

    def __init__(self, io: NativeBlockIO, block: Block, *, coded: Collection[int]) -> None:
        self._io = io
        self._schema = io.schema
        self._tails = io.tails
        self._block = block
        address = address_of(block, io.column_ids)
        self._file = BlockFile(io.storage, address, io.tails, coded=coded, idle=io.idle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.__exit__(*exc)

    @cached_property
    def _every(self) -> Projection:
        """How all columns are read. Made only if rows are read, not for keys."""
        return self._file.projection(self._schema).coded(self._file.coded)

    @cached_property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        footer = self._file.metadata
        return tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))

    @cached_property
    def group_bytes(self) -> tuple[int, ...]:
        """Approximate memory of each row group's rows: the block's size, divided in proportion to its pages."""
        footer = self._file.metadata
        sizes = [footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)]
        share = self._block.decoded_bytes / max(sum(sizes), 1)
        return tuple(int(size * share) for size in sizes)

    @cached_property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each row group in the file."""
        footer = self._file.metadata
        chunks = range(footer.num_columns)
        return tuple(
            sum(footer.row_group(group).column(chunk).total_compressed_size for chunk in chunks)
            for group in range(footer.num_row_groups)
        )

    @cached_property
    def copyable(self) -> frozenset[int]:
        """Row groups that can be copied as stored: they have the version's schema and codec."""
        return self._file.copyable(parquet_schema(self._schema), self._io.options.compression)

    @property
    def codable(self) -> frozenset[int]:
        """Text columns, by id, with few distinct values in the block."""
        return self._file.codable

    def keys(self, groups: Sequence[int], sort: Sort) -> pa.Table:
        """Return the keys of the rows of some row groups."""
        names = list(dict.fromkeys(leaf.path[0] for leaf in key_leaves(sort, self._schema)))
        projection = self._file.projection(self._schema, names)
        rows = self._file.read(groups, projection, use_threads=False, gap_bytes=KEY_GAP_BYTES)
        return key_table(rows, sort, self._schema)

    def will_need(self, groups: Sequence[int]) -> int:
        """Begin to fetch the bytes that `rows` or `batches` will need of some row groups; return their number."""
        self._reads_rows()
        return self._file.will_need(groups, self._every)

    def rows(self, groups: Sequence[int]) -> pa.Table:
        """Return all columns of some row groups."""
        self._reads_rows()
        return self._file.read(groups, self._every, use_threads=False)

    def batches(self, group: int, most_rows: int) -> Iterator[pa.Table]:
        """Yield a row group in pieces of at most `most_rows` rows."""
        self._reads_rows()
        return self._file.batches(group, self._every, most_rows)

    def _reads_rows(self) -> None:
        """Drop what is cached of the block: its rows are read only once."""
        self._tails.drop(self._block.path)
        self._file.close_after_use()

    def copy_into(self, encoder: BlockEncoder, groups: Sequence[int], sort: Sort) -> None:
        """Append some row groups to a block as they are stored."""
        figures = self._file.stated_figures(groups, self._schema)
        others = [leaf for leaf in self._schema.leaves if leaf.id not in figures]
        measured: Mapping[int, Measured] = {}
        for number, group in enumerate(groups):
            self.will_need(groups[number : number + 2])
            with self._file.in_memory([group], self._every):
                found = self._file.measured_figures(group, self._schema, others)
                encoder.copy(self._file, group, self.keys([group], sort), found)
                measured = joined(measured, found)
        rows = sum(self.group_rows[group] for group in groups)
        encoder.count(rows, sum(self.group_bytes[group] for group in groups), {**figures, **measured})


class NativeBlockBuilder:
    """`tblctl.tableformat.port.BlockBuilder`."""

    def __init__(self, io: NativeBlockIO, *, sort: Sort | None, level: int, run_id: str | None) -> None:
        self._io = io
        self._sort = sort
        self._level = level
        self._run_id = run_id
        self._open: BlockEncoder | None = None
        self._written: list[BlockRecord] = []
        self._paths: list[str] = []

    def adding(self, rows: pa.Table, groups: Sequence[int]) -> Callable[[], None]:
        """Prepare rows that are in key order, and return a function that appends them."""
        if sum(groups) != rows.num_rows:
            msg = f"row groups of {sum(groups)} rows in all were to be made of {rows.num_rows}"
            raise InternalError(msg)
        return partial(self._append, self._window(rows, groups))

    def _window(self, rows: pa.Table, groups: Sequence[int]) -> PreparedRows:
        return PreparedRows.of(rows, groups, self._io.layout, self._sort)

    def _append(self, window: PreparedRows) -> None:
        """Append rows. A block is stored if the next row does not fit `block_bytes`."""
        while window.groups:
            room = self._io.options.block_bytes - (self._open.decoded_bytes if self._open else 0)
            count = _fitting(window, self._io.schema.written, room)
            if self._open and not count:
                self._store(self._open)
                continue
            self._open = self._open or BlockEncoder(self._io.layout, self._sort)
            if count == window.rows.num_rows:
                self._open.add(window)
                return
            first, others = _parted(window.groups, max(count, 1))
            self._open.add(self._window(window.rows.slice(0, sum(first)), first))
            if not others:
                return
            window = self._window(window.rows.slice(sum(first)), others)

    def copy(self, block: Block, groups: Sequence[int]) -> None:
        """Append row groups as they are stored. A block is stored if the next one does not fit `block_bytes`."""
        if self._sort is None:
            msg = f"row groups of {block.path} cannot be copied into a block without an order"
            raise InternalError(msg)
        with self._io.open(block) as reader:
            while groups:
                room = self._io.options.block_bytes - (self._open.decoded_bytes if self._open else 0)
                sizes = itertools.accumulate(reader.group_bytes[group] for group in groups)
                count = bisect.bisect_right(list(sizes), room)
                if self._open and not count:
                    self._store(self._open)
                    continue
                self._open = self._open or BlockEncoder(self._io.layout, self._sort)
                reader.copy_into(self._open, groups[: max(count, 1)], self._sort)
                groups = groups[max(count, 1) :]

    def finish(self) -> tuple[BlockRecord, ...]:
        """Store the added rows."""
        if self._open:
            self._store(self._open)
        return tuple(self._written)

    def _store(self, file: BlockEncoder) -> None:
        path = block_path(self._io.env.new_id())
        self._paths.append(path)
        record = file.store(self._io.storage, path, level=self._level, run_id=self._run_id)
        self._written.append(record)
        self._open = None

    def discard(self) -> None:
        """Delete the stored blocks, as far as possible."""
        self._io.discard(self._paths)


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
