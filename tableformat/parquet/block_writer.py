"""Build one block from sorted rows: encode and measure them window by window, and store the block when complete."""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import KeyRange, SameKeys, key_range, key_table
from tblctl.tableformat.model.block import CONSTANT_LEVEL, is_full
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet.dictionaries import (
    as_written,
    coded_schema,
    decoded_bytes,
    plain_inside,
    with_own_dictionaries,
    with_words_in_order,
    without_nested_dictionaries,
)
from tblctl.tableformat.parquet.encodings import Encodings, choose_encodings
from tblctl.tableformat.parquet.footer import (
    RawGroup,
    SortColumn,
    end_with_copies,
    with_uuids,
    without_bounds,
)
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.sealed import seal
from tblctl.tableformat.parquet.sinks import HeldPages, PageSink
from tblctl.tableformat.parquet.statistics import (
    Measured,
    column_records,
    joined,
    measure,
    nan_places,
    parquet_columns,
)
from tblctl.tableformat.parquet.style import NATIVE, FileStyle
from tblctl.tableformat.storage import Storage

_DICTIONARY_SHARE = 1 / 16
"""Every row group stores its whole dictionary. If it has more values than this share of the group's rows, each row
group gets a new one."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How rows become blocks: everything that a write needs to know of the table."""

    schema_id: int
    schema: Schema
    sort: Sort | None
    options: TableOptions
    style: FileStyle = NATIVE


@dataclass(frozen=True, kw_only=True)
class PreparedRows:
    """Rows prepared for encoding: everything that does not depend on the rows before them.

    Attributes:
        rows: in read types, the schema's columns, in the order of the sort.
        groups: the number of rows of each row group.
        tables: the rows of each row group, with dictionaries as in the file.
        decoded_bytes: their memory.
        measured: figures of their columns by id.
        keys: their keys by the sort; None without a sort.
    """

    rows: pa.Table
    groups: tuple[int, ...]
    tables: tuple[pa.Table, ...]
    decoded_bytes: int
    measured: Mapping[int, Measured]
    keys: pa.Table | None

    @classmethod
    def of(cls, rows: pa.Table, groups: Sequence[int], layout: Layout, sort: Sort | None) -> PreparedRows:
        """Prepare rows."""
        written = layout.schema.written
        given = pa.Table.from_arrays(rows.columns, schema=coded_schema(written, rows, written.names))
        starts = itertools.accumulate(groups, initial=0)
        return cls(
            rows=rows,
            groups=tuple(groups),
            tables=tuple(
                _with_dictionaries(given.slice(start, count), written)
                for start, count in zip(starts, groups, strict=False)
            ),
            decoded_bytes=decoded_bytes(rows, written),
            measured=measure(rows, layout.schema.leaves, before_writing=True),
            keys=key_table(rows, sort, layout.schema) if sort else None,
        )


def _with_dictionaries(group: pa.Table, written: pa.Schema) -> pa.Table:
    group = with_own_dictionaries(without_nested_dictionaries(group), share=_DICTIONARY_SHARE)
    return with_words_in_order(group, written)


class BlockEncoder:
    """A block under construction. Its pages go to a sink as they are made; by default they are held in memory.

    Row groups end where windows end. Between them, row groups of other blocks are copied as stored. The first rows or
    the first copied row group decide how columns are encoded.
    """

    def __init__(self, layout: Layout, sort: Sort | None, sink: PageSink | None = None) -> None:
        self._layout = layout
        self._sort = sort
        self._sink = sink or HeldPages()
        self._writer: pq.ParquetWriter | None = None
        self._groups: list[tuple[RawGroup, int] | None] = []  # see `end_with_copies`
        # The column chunks with NaN of each row group. Parquet's bounds leave NaN out. So other readers believe that
        # all rows of [5, NaN] are 5, and find none for `x <> 5`. Such chunks get no bounds.
        self._with_nan: list[Collection[int]] = []
        self._measured: Mapping[int, Measured] = {}
        self._ends: list[pa.Table] = []  # the keys of the first row and the last
        self._same_keys = SameKeys() if sort else None
        self.row_count = 0
        self.decoded_bytes = 0

    def add(self, window: PreparedRows) -> None:
        """Append at least one row. Rows are in the order of the sort, and follow the earlier ones."""
        written = self._layout.schema.written
        first = window.groups[0]
        differences = self._layout.style.differences
        writer = self._opened(
            lambda: choose_encodings(window.rows.slice(0, first), written, differences=differences),
            window.rows,
        )
        for group in window.tables:
            writer.write_table(as_written(group, writer.schema), row_group_size=group.num_rows)
        self._groups += [None] * len(window.tables)
        self._with_nan += self._places_of_nan(window)
        self.count(window.rows.num_rows, window.decoded_bytes, window.measured)
        if window.keys is not None:
            self._add_keys(window.keys)

    def _places_of_nan(self, window: PreparedRows) -> Iterator[Collection[int]]:
        """Yield for each row group which of its column chunks have NaN. Only columns with NaN are searched."""
        leaves = [leaf for leaf in self._layout.schema.leaves if window.measured[leaf.id].nan_count]
        start = 0
        for count in window.groups:
            rows = window.rows.slice(start, count)
            yield nan_places(measure(rows, leaves), self._layout.schema) if leaves else ()
            start += count

    def copy(
        self, file: BlockFile, group: int, keys: pa.Table | None, measured: Mapping[int, Measured]
    ) -> None:
        """Append a copyable row group of another block as it is stored. It must be in the order of the sort.

        `keys` are the keys of its rows; None without a sort. `measured` are the figures of columns that may have NaN,
        which Parquet does not count. The caller passes rows and figures to `count`.
        """
        raw, pages = file.raw_group(group)
        self._opened(raw.encodings)
        self._groups.append((raw, self._sink.tell()))
        self._with_nan.append(nan_places(measured, self._layout.schema))
        self._sink.write(pages)
        if keys is not None:
            self._add_keys(keys)

    def count(self, rows: int, decoded: int, measured: Mapping[int, Measured]) -> None:
        """Add the number of appended rows, their bytes in memory, and the figures of their columns."""
        self._measured = joined(self._measured, measured)
        self.row_count += rows
        self.decoded_bytes += decoded

    def _add_keys(self, keys: pa.Table) -> None:
        """Add the keys of appended rows."""
        if self._same_keys:
            self._same_keys.add(keys)
        first, last = keys.slice(0, 1), keys.slice(keys.num_rows - 1)
        self._ends = [end.combine_chunks() for end in (self._ends[0] if self._ends else first, last)]

    def store(self, storage: Storage, path: str, *, level: int, run_id: str | None) -> BlockRecord:
        """Write the file, and return the block's row for a segment.

        A block that is constant and full gets level -1, any other block `level`; -1 becomes 0 if it no longer holds, or
        the block has no order.
        """
        record = self.record(path, level=level, run_id=run_id)
        assert isinstance(self._sink, HeldPages)
        end = self.end()
        made = seal(self._sink.pages(), end)
        storage.write(path, made.data)
        return replace(
            self.completed(record, made.metadata, made.data.size),
            footer_bytes=made.seal.footer_bytes,
            footer_checksum=made.seal.footer_checksum,
        )

    def record(self, path: str, *, level: int, run_id: str | None) -> BlockRecord:
        """Return what is known of the block before its end: all but sizes in the file and statistics of columns."""
        if self.is_empty:
            msg = f"block {path} has no rows"
            raise InternalError(msg)
        keys = key_range(pa.concat_tables(self._ends), self._sort) if self._sort else None
        return BlockRecord(
            path=path,
            row_count=self.row_count,
            size_bytes=0,
            uncompressed_bytes=0,
            decoded_bytes=self.decoded_bytes,
            schema_id=self._layout.schema_id,
            level=self._level(keys, level),
            run_id=run_id,
            cluster_key_id=None if self._sort is None else self._sort.id,
            key_min=keys.min if keys else (),
            key_max=keys.max if keys else (),
            key_exact=keys.exact if keys else True,
            same_key_rows=self._same_keys.most_rows if self._same_keys else None,
        )

    def completed(self, record: BlockRecord, footer: pq.FileMetaData, size_bytes: int) -> BlockRecord:
        """Return the block's record with what its file says."""
        groups = range(footer.num_row_groups)
        return replace(
            record,
            size_bytes=size_bytes,
            uncompressed_bytes=sum(footer.row_group(group).total_byte_size for group in groups),
            columns=column_records(self._measured, self._layout.schema, footer),
        )

    @property
    def measured(self) -> Mapping[int, Measured]:
        """The figures of the columns so far, by id."""
        return self._measured

    @property
    def page_bytes(self) -> int:
        """Bytes of the pages so far."""
        return self._sink.tell()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was appended."""
        return self._writer is None

    def end(self, metadata: Mapping[str, str] | None = None) -> pa.Buffer:
        """Complete the file, which is not empty: return its end, the bytes after those that the sink has got.

        Args:
            metadata: more entries of the footer's key-value metadata.
        """
        assert self._writer is not None
        style = self._layout.style
        entries = dict(metadata or {})
        if style.arrow_schema:
            entries = {"ARROW:schema": _arrow_schema(self._layout.schema.written), **entries}
        self._writer.add_key_value_metadata(entries)
        self._sink.before_end()
        self._writer.close()
        start, end = self._sink.end()
        if any(self._groups):
            end = end_with_copies(end, start, self._groups, _sorting(self._layout.schema, self._sort))
        if any(self._with_nan):
            end = without_bounds(end, self._with_nan)
        return with_uuids(end, style.uuids) if style.uuids else end

    def is_full(self) -> bool:
        """Return whether the block counts as full."""
        options = self._layout.options
        return is_full(
            self.row_count,
            self.decoded_bytes,
            block_rows=options.block_rows,
            block_bytes=options.block_bytes,
        )

    def _level(self, keys: KeyRange | None, level: int) -> int:
        if keys is None:
            return max(level, 0)
        return CONSTANT_LEVEL if keys.constant and self.is_full() else max(level, 0)

    def _opened(self, encodings: Callable[[], Encodings], rows: pa.Table | None = None) -> pq.ParquetWriter:
        """Return the writer. A new one uses `encodings`, and text with a dictionary is coded as in `rows`.

        Decimals of up to 18 digits become integers, smaller and faster to read.
        """
        if self._writer is None:
            layout = self._layout
            columns = _sorting(layout.schema, self._sort)
            chosen = encodings()
            schema = plain = plain_inside(layout.schema.written)
            if rows is not None:
                schema = coded_schema(plain, rows, chosen.dictionaries)
            self._writer = pq.ParquetWriter(
                self._sink.target,
                schema,
                use_dictionary=list(chosen.dictionaries),
                column_encoding=dict(chosen.named) or None,
                compression=layout.options.compression,
                compression_level=layout.options.compression_level,
                sorting_columns=[
                    pq.SortingColumn(item.place, descending=item.descending, nulls_first=item.nulls_first)
                    for item in columns
                ]
                or None,
                write_batch_size=chosen.batch_values,
                **layout.style.writer_options(),
                **PHYSICAL,
            )
        return self._writer


PHYSICAL = {
    "store_decimal_as_integer": True,
    "store_schema": False,  # the table's schema is stored instead, without coded columns
    "write_page_checksum": True,  # 2.3 % of encoding lineitem, 1.6 % of reading it
}


def _arrow_schema(written: pa.Schema) -> str:
    """Return the schema as stored for Arrow's readers, so that they restore types that Parquet lacks.

    Not cached: to Arrow, schemas that differ in column ids only are equal.
    """
    return base64.b64encode(plain_inside(written).serialize()).decode()


@functools.lru_cache
def parquet_schema(schema: Schema) -> pq.ParquetSchema:
    """Return the Parquet schema of written blocks. Copied row groups must agree with it."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, plain_inside(schema.written), **PHYSICAL).close()
    return pq.read_metadata(pa.BufferReader(sink.getvalue())).schema


def _sorting(schema: Schema, sort: Sort | None) -> list[SortColumn]:
    """Return the sorting columns for other readers of the file, by their places among Parquet's columns."""
    found: list[SortColumn] = []
    for column in key_maker(sort).sorting_columns(schema) if sort else ():
        before = list(schema.written)[: schema.names.index(column.path[0])]
        place = sum(parquet_columns(item.type) for item in before)
        order = column.order
        found.append(SortColumn(place=place, descending=order.descending, nulls_first=order.nulls_first))
    return found
