"""Rows in, blocks out: sort rows that fit the memory budget, cut them into blocks, write these on all processors.

Half of the budget holds the rows that are sorted together. The other half holds first their keys and order, and then
the unfinished blocks, each at most 1.5 times its decoded size (its sorted rows, and its growing file).
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from tblctl.tableformat.buffered_rows import BufferedRows
from tblctl.tableformat.concurrency import cpu_threads, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.keys.order import is_sorted, key_table, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import cut_rows, most_rows
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log.names import block_path
from tblctl.tableformat.parquet.block_writer import BlockEncoder, Layout, PreparedRows
from tblctl.tableformat.parquet.dictionaries import (
    decoded_bytes,
    with_own_dictionaries,
)
from tblctl.tableformat.parquet.whole_files import WholeFile, copied
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.projection import Conformer
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

_WORKING_SHARE = 1.5

OrderOf: TypeAlias = Callable[[Sequence[pa.Table]], Sort | None]
"""Returns another order than the table's for rows that are sorted together; None to leave it at that."""


class BlockWriter:
    """Writes rows as blocks of one table. Keeps the names of written blocks, to clean up after a failure.

    Args:
        order_of: chooses the order of each run that `write_stream` writes; None for the table's own.
    """

    def __init__(
        self, storage: Storage, env: Environment, layout: Layout, order_of: OrderOf | None = None
    ) -> None:
        self._storage = storage
        self._env = env
        self._layout = layout
        self._order_of = order_of if layout.options.sort_scope == "append" else None
        self.paths: list[str] = []
        self.other_sorts: dict[int, Sort] = {}

    def write_stream(
        self, tables: Iterable[pa.Table], *, memory_bytes: int, progress: Progress | None = None
    ) -> list[BlockRecord]:
        """Write all rows of `tables` (read types, the schema's columns), in runs of half the memory budget."""
        records: list[BlockRecord] = []
        waiting: list[pa.Table] = []
        waiting_bytes = row_count = 0
        limit = max(memory_bytes // 2, 1)
        for part in _slices(tables, limit / 32):
            table = with_own_dictionaries(part, share=1)
            waiting.append(table)
            waiting_bytes += self._held_bytes(table)
            row_count += table.num_rows
            if waiting_bytes >= limit:
                records += self._write_run(waiting, memory_bytes)
                waiting_bytes = 0
                if progress:
                    progress(row_count, None, "rows")
        records += self._write_run(waiting, memory_bytes)
        if progress:
            progress(row_count, row_count, "rows")
        return records

    def _held_bytes(self, table: pa.Table) -> int:
        """Return the bytes that rows count towards half the budget: their size, or half of sorting's if more."""
        layout = self._layout
        if self._order_of is not None:  # keys take at most what the rows do, and places 16 bytes a row
            return int(table.nbytes + 8 * table.num_rows)
        if layout.sort is None or layout.options.sort_scope != "append":
            return int(table.nbytes)
        return max(int(table.nbytes), BufferedRows.sorting_bytes(table, layout.sort, layout.schema) // 2)

    def _write_run(self, waiting: list[pa.Table], memory_bytes: int) -> list[BlockRecord]:
        """Write the rows of `waiting` as one run, and empty it."""
        if not waiting:
            return []
        sort, options = self._layout.sort, self._layout.options
        other = None if self._order_of is None else self._order_of(waiting)
        if other is not None:
            sort = self.other_sorts[other.id] = other
        whole = sort is not None and options.sort_scope == "append"
        if sort and whole:
            buffered = BufferedRows.sorted(waiting, sort, self._layout.schema)
        else:
            buffered = BufferedRows.arrived(waiting)
        run_id = self._env.new_run_id() if whole else None
        row_bytes = max(buffered.nbytes / buffered.row_count, 1)
        block_rows = most_rows(options, row_bytes)

        def write_piece(cut: tuple[int, int]) -> list[BlockRecord]:
            rows = buffered.rows(*cut)
            return (
                self.write_ordered(rows, sort=sort, level=0, run_id=run_id)
                if whole
                else self.write_rows(rows)
            )

        share = _WORKING_SHARE * min(options.block_bytes, row_bytes * block_rows, memory_bytes / 2)
        threads = max(1, min(cpu_threads(), int(memory_bytes / 2 / share)))
        written = in_parallel(write_piece, _ranges(cut_rows(buffered.row_count, block_rows)), threads=threads)
        return [record for records in written for record in records]

    def write_rows(self, rows: pa.Table) -> list[BlockRecord]:
        """Write rows in any order as a run of their own: one block, or more if one would be too large."""
        sort = self._layout.sort
        if sort is None:
            return self.write_ordered(rows, sort=None, level=0, run_id=None)
        keys = key_table(rows, sort, self._layout.schema)
        if not is_sorted(keys, sort):
            rows = rows.take(sort_indices(keys, sort))
        return self.write_ordered(rows, sort=sort, level=0, run_id=self._env.new_run_id())

    def write_ordered(
        self, rows: pa.Table, *, sort: Sort | None, level: int, run_id: str | None
    ) -> list[BlockRecord]:
        """Write rows that are in the order of `sort` as one block, or more if one would be too large."""
        if (
            rows.num_rows > 1
            and decoded_bytes(rows, self._layout.schema.written) > self._layout.options.block_bytes
        ):
            half = rows.num_rows // 2
            parts = rows.slice(0, half), rows.slice(half)
            return [
                record
                for part in parts
                for record in self.write_ordered(part, sort=sort, level=level, run_id=run_id)
            ]
        return [self.write_block(rows, sort=sort, level=level, run_id=run_id)]

    def write_block(
        self, rows: pa.Table, *, sort: Sort | None, level: int, run_id: str | None
    ) -> BlockRecord:
        """Write one block of rows that are in the order of `sort`, and return its row for a segment.

        A block that is constant and full gets level -1, any other block `level`; -1 becomes 0 if it no longer holds.
        """
        file = BlockEncoder(self._layout, sort)
        groups = cut_rows(rows.num_rows, self._layout.options.row_group_rows)
        file.add(PreparedRows.of(rows, groups, self._layout, sort))
        path = block_path(self._env.new_id())
        self.paths.append(path)
        return file.store(self._storage, path, level=level, run_id=run_id)

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self._layout.options

    def copy_file(self, file: WholeFile) -> BlockRecord | None:
        """Write a file of another writer as one block, undecoded; None if it must be encoded. Threads may share this.

        A file whose rows are not in the order of the table's sort becomes a block of no known order.

        Raises:
            InvalidDataError, ValueError, CorruptTableError: as `whole_files.copied`.
        """
        found = copied(file, self._layout)
        if found is None:
            return None
        encoder, sort = found
        path = block_path(self._env.new_id())
        self.paths.append(path)
        run_id = self._env.new_run_id() if sort else None
        return encoder.store(self._storage, path, level=0, run_id=run_id)

    def discard(self) -> None:
        """Delete written blocks, as far as possible. Only if it is certain that none of them was published."""
        discard(self._storage, self.paths)


def discard(storage: Storage, paths: Sequence[str]) -> None:
    """Delete blocks, as far as possible. Only if it is certain that none of them was published."""
    try:
        storage.delete(paths)
    except TblctlError as error:
        LOG.warning("blocks that are not needed could not be deleted, gc will: %s", error)


def conformed(tables: Iterable[pa.Table], schema: Schema) -> Iterator[pa.Table]:
    """Yield incoming rows, of any schemas that fit, converted to the table's. Several tables are cast at once."""
    planned: list[tuple[pa.Schema, Conformer]] = []

    def conform(table: pa.Table) -> pa.Table:
        for known, conformer in planned:
            if known.equals(table.schema):
                return conformer.apply(table)
        conformer = Conformer.plan(table.schema, schema)
        planned[:] = [(table.schema, conformer)]  # one entry: tables of one schema mostly follow each other
        return conformer.apply(table)

    rest = iter(tables)
    while group := list(itertools.islice(rest, 2 * cpu_threads())):
        yield from in_parallel(conform, group, threads=cpu_threads())


def _slices(tables: Iterable[pa.Table], most_bytes: float) -> Iterator[pa.Table]:
    """Yield the rows of `tables` in tables of about `most_bytes` at most; none without rows."""
    for table in tables:
        rows = max(1, math.ceil(table.num_rows / max(1, math.ceil(table.nbytes / most_bytes))))
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)


def _ranges(sizes: Iterable[int]) -> list[tuple[int, int]]:
    ranges, start = [], 0
    for size in sizes:
        ranges.append((start, size))
        start += size
    return ranges
