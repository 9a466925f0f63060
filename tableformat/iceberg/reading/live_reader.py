"""Read a data file of an Iceberg table without its deleted rows, with columns that only its partition has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.reading.null_check import Counts, NullCheck, added
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.opened import Tails
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage.ranges import KEY_GAP_BYTES


class LiveReader(ParquetBlockReader):
    """A `BlockReader` of a data file. Row groups without live rows are left out.

    Nulls read are compared with those that the footer counts, or else the manifest: see `NullCheck`.

    Args:
        file: the open file.
        schema: the columns to read.
        tails: keeps the ends of files until their rows are read.
        decoded_bytes: memory of all its stored rows.
        codec: of new files.
        positions: of deleted rows, ascending.
        constants: the values of all rows of columns that the file lacks, by id.
        null_counts: how many nulls the manifest counts in columns, by id.
    """

    def __init__(
        self,
        file: BlockFile,
        schema: Schema,
        *,
        decoded_bytes: int,
        codec: str,
        tails: Tails,
        positions: np.ndarray,
        constants: Mapping[int, pa.Scalar],
        null_counts: Mapping[int, int],
    ) -> None:
        super().__init__(file, schema, decoded_bytes=decoded_bytes, codec=codec, tails=tails)
        self._positions = positions
        self._constants = {
            leaf.path[0]: constants[leaf.id]
            for leaf in schema.leaves
            if leaf.id in constants and len(leaf.path) == 1 and leaf.id not in file.leaf_ids
        }
        self._nulls = NullCheck(file, schema, null_counts, frozenset(self._constants))

    @once
    def _stored_rows(self) -> tuple[int, ...]:
        return self._rows_of_groups()

    @once
    def _deleted(self) -> tuple[np.ndarray, ...]:
        """The deleted rows of each stored row group, counted in it."""
        stops = np.cumsum(self._stored_rows)
        bounds = np.searchsorted(self._positions, np.concatenate(([0], stops)))
        return tuple(
            self._positions[low:high] - (stop - rows)
            for low, high, stop, rows in zip(bounds, bounds[1:], stops, self._stored_rows, strict=False)
        )

    @once
    def _groups(self) -> tuple[int, ...]:
        """The stored row groups that have live rows."""
        return tuple(
            group
            for group, (rows, deleted) in enumerate(zip(self._stored_rows, self._deleted, strict=True))
            if rows > len(deleted)
        )

    @once
    def group_rows(self) -> tuple[int, ...]:
        """Live rows of each row group."""
        return tuple(self._stored_rows[group] - len(self._deleted[group]) for group in self._groups)

    @once
    def group_bytes(self) -> tuple[int, ...]:
        """Approximate memory of each row group's live rows, before the deleted ones are left out."""
        every = self._bytes_of_groups()
        return tuple(every[group] for group in self._groups)

    @once
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each row group in the file."""
        every = self._stored_bytes_of_groups()
        return tuple(every[group] for group in self._groups)

    @once
    def copyable(self) -> frozenset[int]:
        """Return none: their rows are not as stored."""
        return frozenset()

    def keys(self, groups: Sequence[int], sort: Sort) -> pa.Table:
        """Return the keys of the live rows of some row groups."""
        names = list(dict.fromkeys(leaf.path[0] for leaf in key_leaves(sort, self._schema)))
        projection = self._file.projection(self._schema, names)
        stored = [self._groups[group] for group in groups]
        rows = self._file.read(stored, projection, use_threads=False, gap_bytes=KEY_GAP_BYTES)
        return key_table(self._live(rows, stored, projection), sort, self._schema)

    def will_need(self, groups: Sequence[int]) -> int:
        """Begin to fetch the bytes that `rows` or `batches` will need of some row groups; return their number."""
        return super().will_need([self._groups[group] for group in groups])

    def rows(self, groups: Sequence[int]) -> pa.Table:
        """Return all columns of the live rows of some row groups."""
        self._reads_rows()
        self._nulls.require_stated()
        stored = [self._groups[group] for group in groups]
        found = self._file.read(stored, self._every, use_threads=False)
        return self._live(found, stored, self._every)

    def batches(self, group: int, most_rows: int) -> Iterator[pa.Table]:
        """Yield the live rows of a row group in pieces of at most `most_rows` rows."""
        self._reads_rows()
        self._nulls.require_stated()
        stored = self._groups[group]
        keep = self._kept(stored)
        nulls: Counts = {}
        start = 0
        for piece in self._file.batches(stored, self._every, most_rows):
            nulls = added(nulls, self._nulls.of(piece))
            mask = keep[start : start + piece.num_rows]
            start += piece.num_rows
            found = self._with_constants(piece)
            found = found if mask.all() else found.filter(pa.array(mask))
            if found.num_rows:
                yield found
        self._nulls.compare(nulls, [stored], self._every)

    def _live(self, rows: pa.Table, stored: Sequence[int], projection: Projection) -> pa.Table:
        self._nulls.compare_rows(rows, stored, projection)
        rows = self._with_constants(rows)
        if not any(len(self._deleted[group]) for group in stored):
            return rows
        keep = np.concatenate([self._kept(group) for group in stored])
        return rows.filter(pa.array(keep))

    def _kept(self, stored: int) -> np.ndarray:
        keep = np.ones(self._stored_rows[stored], bool)
        keep[self._deleted[stored]] = False
        return keep

    def _with_constants(self, rows: pa.Table) -> pa.Table:
        for name, value in self._constants.items():
            place = rows.schema.get_field_index(name)
            if place >= 0:
                column = pa.repeat(value, rows.num_rows).cast(rows.schema.field(place).type)
                rows = rows.set_column(place, rows.schema.field(place), column)
        return rows
