"""Read one block: the row groups and columns that a scan needs, in the types of the table's schema.

A block's file must agree with its metadata. A wrong size, a wrong row count or an unreadable page raises a
`CorruptTableError` that names the block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import NONE
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.columns import FileColumns, has_int96
from tblctl.tableformat.parquet.footer import (
    TAIL_BYTES,
    RawGroup,
    has_exact_bounds,
    raw_group,
    read_footer,
)
from tblctl.tableformat.parquet.group_statistics import RowGroupStatistics
from tblctl.tableformat.parquet.opened import (
    BlockAddress,
    CheckedFooters,
    IdleBlocks,
    OpenBlock,
    Tails,
    open_block,
    opening,
)
from tblctl.tableformat.parquet.read_errors import explained
from tblctl.tableformat.parquet.statistics import Measured, measure, stored_figures
from tblctl.tableformat.parquet.thrift import Struct
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.ranges import GAP_BYTES, Fetched

if TYPE_CHECKING:
    from tblctl.tableformat.predicate.nodes import Node


@dataclass(frozen=True)
class _Announced:
    """Columns of row groups that are being fetched or are in memory. `groups` are those not read yet."""

    columns: list[str]
    groups: set[int]
    fetched: Fetched


class BlockFile:
    """An open block. Use as a context manager.

    On a remote storage it reads its row groups in few, concurrent requests (`storage.ranges.joined`). See `open_block`
    for `tails`, `ahead` and `checked`. Columns of `codable` whose ids are in `coded` are returned as Arrow
    dictionaries. With `idle`, the open file is taken from there if possible, and put back at the end. `named` gives
    columns of a schema their ids, for files whose writer gave none; and INT96 timestamps, if its second argument says
    that there are any, their zone.
    """

    def __init__(
        self,
        storage: Storage,
        address: BlockAddress,
        tails: Tails | None = None,
        *,
        coded: Collection[int] = (),
        ahead: bool = False,
        idle: IdleBlocks | None = None,
        checked: CheckedFooters | None = None,
        named: Callable[[pa.Schema, bool], pa.Schema] | None = None,
    ) -> None:
        self._storage = storage
        self.address = address
        self._idle = idle
        kept = idle.take(address.name) if idle else None
        self._open = kept or open_block(storage, address, tails, ahead=ahead, checked=checked)
        self._file = self._open.file
        self._named = named
        self._named_before: tuple[pa.Schema, pa.Schema] | None = None  # a schema as read, and with ids
        self._columns = self._open.columns or _columns(self._open, named)
        self._announced: list[_Announced] = []
        self.coded = frozenset[int]()
        if coded:
            with opening(storage, address):
                self.coded = self.codable.intersection(coded)
                names = [item.name for item in self.schema if field_id(item) in self.coded]
                self._file = self._open.with_dictionaries(names) if names else self._open.file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        if self._idle and error is None:
            self._idle.keep(self.address.name, replace(self._open, columns=self._columns))
        else:
            self._open.source.close()

    def close_after_use(self) -> None:
        """Close it after use instead of putting it into `idle`: it will not be read again."""
        self._idle = None

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._columns.metadata

    @property
    def schema(self) -> pa.Schema:
        """The file's own schema, without coded columns."""
        return self._columns.schema

    @property
    def leaf_ids(self) -> Collection[int]:
        """The ids of the file's leaf columns."""
        return self._columns.leaves.keys()

    def place(self, leaf: Leaf) -> int:
        """Return the place of a leaf column that is in the file, among all that it has."""
        return self._columns.leaves[leaf.id][0]

    def stored_nulls(self, groups: Sequence[int], leaf: Leaf) -> int | None:
        """Return how many nulls a column that is not nested has in some row groups; None if the footer does not say."""
        return self._columns.nulls(groups, leaf)

    @property
    def decoded_bytes(self) -> int:
        """About how many bytes all rows take in memory, by the footer."""
        return self._columns.decoded_bytes

    @property
    def codable(self) -> frozenset[int]:
        """The columns, by id, that may be opened as `coded`."""
        return self._columns.codable

    def will_need(self, groups: Sequence[int], projection: Projection) -> int:
        """Begin to fetch the bytes that `read` or `batches` will need of some row groups; return their number.

        They are held until all of these row groups have been read. On a local disk this does nothing.
        """
        if self._open.ranges is None:
            return 0
        fetched = self._open.ranges.begin(self._columns.ranges(groups, projection.file_columns))
        self._announced.append(_Announced(projection.file_columns, set(groups), fetched))
        return fetched.size_bytes

    @contextmanager
    def in_memory(
        self, groups: Sequence[int], projection: Projection, *, gap_bytes: int = GAP_BYTES
    ) -> Iterator[None]:
        """Fetch the bytes of some row groups into memory all at once, and free them at the end."""
        if self._open.ranges is None:
            yield
            return
        ranges = self._columns.ranges(groups, projection.file_columns)
        with self._open.ranges.begin(ranges, gap_bytes=gap_bytes):
            yield
        for item in self._announced:
            if item.columns == projection.file_columns:
                item.groups.difference_update(groups)
                if not item.groups:
                    item.fetched.close()
        self._announced = [item for item in self._announced if item.groups]

    def row_groups(self, condition: Node | None, schema: Schema) -> list[int]:
        """Return the row groups that may hold rows satisfying the condition."""
        every = list(range(self.metadata.num_row_groups))
        if condition is None or len(every) <= 1:
            return every
        from tblctl.tableformat.predicate.match import match

        with self._explained():  # bounds may not be values of the column's type
            outcome = match(condition, self.statistics(every), schema).outcome
        return [group for group in every if outcome[group] != NONE]

    def statistics(self, groups: Sequence[int]) -> RowGroupStatistics:
        """Return the footer's statistics of some row groups."""
        return RowGroupStatistics(self.address.name, self._columns, groups)

    def projection(self, schema: Schema, columns: Sequence[str] | None = None) -> Projection:
        """Return how the file is read as columns of a table's schema: `Projection.plan`.

        Raises:
            CorruptTableError: a column has a type that it never had.
        """
        with self._explained():
            return Projection.plan(self.schema, schema, columns)

    def read(
        self,
        groups: Sequence[int],
        projection: Projection,
        *,
        use_threads: bool,
        gap_bytes: int = GAP_BYTES,
    ) -> pa.Table:
        """Return the columns of `projection` of some row groups, in read types.

        Ranges of the file that are up to `gap_bytes` apart are fetched together, see `storage.ranges`.
        """
        with self._explained():
            if not projection.file_columns:
                rows = sum(self.metadata.row_group(group).num_rows for group in groups)
                return projection.apply(pa.table({"": pa.nulls(rows)}).select([]))
            with self.in_memory(groups, projection, gap_bytes=gap_bytes):
                raw = self._file.read_row_groups(
                    list(groups), columns=projection.file_columns, use_threads=use_threads
                )
            return projection.apply(self._with_names(raw))

    def batches(self, group: int, projection: Projection, most_rows: int) -> Iterator[pa.Table]:
        """Yield the columns of `projection` of one row group in pieces of at most `most_rows` rows."""
        if not projection.file_columns:
            rows = self.metadata.row_group(group).num_rows
            for start in range(0, rows, most_rows):
                size = min(most_rows, rows - start)
                yield projection.apply(pa.table({"": pa.nulls(size)}).select([]), row_count=size)
            return
        with self._explained(), self.in_memory([group], projection):
            for batch in self._file.iter_batches(
                most_rows, [group], columns=projection.file_columns, use_threads=False
            ):
                yield projection.apply(self._with_names(pa.Table.from_batches([batch])))

    def _explained(self) -> AbstractContextManager[None]:
        """Turn errors inside into those of this file."""
        return explained(self._storage, self.address.path, uri=self.address.uri)

    def _with_names(self, rows: pa.Table) -> pa.Table:
        """Return rows with the ids that their columns have in the table."""
        if self._named is None:
            return rows
        if self._columns.is_named:
            return rows.replace_schema_metadata(None)
        before = self._named_before
        if before is None or not before[0].equals(rows.schema, check_metadata=True):
            before = self._named_before = rows.schema, self._named(rows.schema, self._columns.has_int96)
        schema = before[1]
        columns = rows.columns
        if self._columns.has_int96:
            columns = [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
        return pa.Table.from_arrays(columns, schema=schema)

    def copyable(self, schema: pq.ParquetSchema, compression: str) -> frozenset[int]:
        """Return the row groups that can be copied as stored into a file of `schema` with `compression`."""
        return self._columns.copyable(schema, compression)

    def raw_group(self, group: int) -> tuple[RawGroup, pa.Buffer]:
        """Return a row group as stored, and its pages, verified against its footer and their checksums."""
        with self._explained():
            return raw_group(
                self._footer, group, self._open.read_at, verified=self._open.verified is not None
            )

    def stated_figures(self, groups: Sequence[int], leaves: Sequence[Leaf]) -> dict[int, Measured]:
        """Return figures of some columns in some row groups by column id, for those whose figures the footer has."""
        statistics = self.statistics(groups)
        found = (
            (leaf, stored_figures(leaf, statistics.column(leaf), statistics.row_count)) for leaf in leaves
        )
        with self._explained():
            return {
                leaf.id: figures
                for leaf, figures in found
                if figures is not None and self._has_exact_bounds(groups, leaf)
            }

    def measured_figures(self, group: int, schema: Schema, leaves: Sequence[Leaf]) -> dict[int, Measured]:
        """Return the figures of some columns in a row group by column id, by reading them."""
        if not leaves:
            return {}
        names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
        projection = self.projection(schema, names)
        return measure(self.read([group], projection, use_threads=False), leaves)

    def _has_exact_bounds(self, groups: Sequence[int], leaf: Leaf) -> bool:
        place, _ = self._columns.leaves[leaf.id]
        return all(has_exact_bounds(self._footer, group, place) for group in groups)

    @once
    def _footer(self) -> Struct:
        size = self.metadata.serialized_size
        return read_footer(bytes(self._open.read_at(self.address.size_bytes - TAIL_BYTES - size, size)))

    def column_bytes(self, groups: Sequence[int], leaves: Sequence[Leaf]) -> Mapping[str, int]:
        """Return the compressed bytes of each leaf that the file has in some row groups, by name."""
        sizes = ((leaf.name, self._columns.stored_bytes(groups, leaf)) for leaf in leaves)
        return {name: size for name, size in sizes if size is not None}


def _columns(block: OpenBlock, named: Callable[[pa.Schema, bool], pa.Schema] | None) -> FileColumns:
    metadata = block.file.metadata
    if named is None:
        return FileColumns(metadata, block.schema)
    int96 = has_int96(metadata)
    schema = named(block.schema, int96)
    is_named = schema.equals(pa.schema(list(block.schema)), check_metadata=True)
    return FileColumns(metadata, schema, is_named=is_named, has_int96=int96)


def row_group_windows(file: pq.FileMetaData, groups: Sequence[int], most_bytes: int) -> Iterator[list[int]]:
    """Yield row groups to read at once: neighbours of `most_bytes` together, decoded, or one that has more."""
    window: list[int] = []
    used = 0
    for group in groups:
        size = int(file.row_group(group).total_byte_size)
        if window and used + size > most_bytes:
            yield window
            window, used = [], 0
        window.append(group)
        used += size
    if window:
        yield window
