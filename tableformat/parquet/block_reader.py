"""Read a Parquet file inside a merge task, a row group or less at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import pyarrow as pa

from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet.block_writer import BlockEncoder, parquet_schema
from tblctl.tableformat.parquet.opened import Tails
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.statistics import Measured, joined
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage.ranges import KEY_GAP_BYTES


class ParquetBlockReader:
    """`tblctl.tableformat.port.BlockReader` of one Parquet file, all of whose rows are live.

    Args:
        file: the open file.
        schema: the columns to read.
        decoded_bytes: memory of all its rows.
        codec: of new blocks; row groups of another are not copied.
        tails: keeps the ends of files until their rows are read.
    """

    def __init__(
        self, file: BlockFile, schema: Schema, *, decoded_bytes: int, codec: str, tails: Tails
    ) -> None:
        self._file = file
        self._schema = schema
        self._decoded_bytes = decoded_bytes
        self._codec = codec
        self._tails = tails

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.__exit__(*exc)

    @property
    def path(self) -> str:
        """The file's name in the table."""
        return self._file.address.name

    @cached_property
    def _every(self) -> Projection:
        """How all columns are read. Made only if rows are read, not for keys."""
        return self._file.projection(self._schema).coded(self._file.coded)

    @cached_property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return self._rows_of_groups()

    @cached_property
    def group_bytes(self) -> tuple[int, ...]:
        """Approximate memory of each row group's rows: the block's size, divided in proportion to its pages."""
        return self._bytes_of_groups()

    @cached_property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each row group in the file."""
        return self._stored_bytes_of_groups()

    def _rows_of_groups(self) -> tuple[int, ...]:
        footer = self._file.metadata
        return tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))

    def _bytes_of_groups(self) -> tuple[int, ...]:
        footer = self._file.metadata
        sizes = [footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)]
        share = self._decoded_bytes / max(sum(sizes), 1)
        return tuple(int(size * share) for size in sizes)

    def _stored_bytes_of_groups(self) -> tuple[int, ...]:
        footer = self._file.metadata
        chunks = range(footer.num_columns)
        return tuple(
            sum(footer.row_group(group).column(chunk).total_compressed_size for chunk in chunks)
            for group in range(footer.num_row_groups)
        )

    @cached_property
    def copyable(self) -> frozenset[int]:
        """Row groups that can be copied as stored: they have the version's schema and codec."""
        return self._file.copyable(parquet_schema(self._schema), self._codec)

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
        self._tails.drop(self.path)
        self._file.close_after_use()

    def copy_into(self, encoder: BlockEncoder, groups: Sequence[int], sort: Sort | None) -> None:
        """Append some row groups to a block as they are stored; None for a block without an order."""
        figures = self._file.stated_figures(groups, self._schema.leaves)
        others = [leaf for leaf in self._schema.leaves if leaf.id not in figures]
        measured: Mapping[int, Measured] = {}
        for number, group in enumerate(groups):
            self.will_need(groups[number : number + 2])
            with self._file.in_memory([group], self._every):
                found = self._file.measured_figures(group, self._schema, others)
                encoder.copy(self._file, group, self.keys([group], sort) if sort else None, found)
                measured = joined(measured, found)
        rows = sum(self.group_rows[group] for group in groups)
        encoder.count(rows, sum(self.group_bytes[group] for group in groups), {**figures, **measured})
