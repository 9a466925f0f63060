"""One block from sorted rows: encoded window by window, measured on the way, stored when complete."""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from tblctl.tableformat.model.snapshot import Snapshot
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
    footer_start,
    without_bounds,
)
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.sealed import seal
from tblctl.tableformat.parquet.statistics import (
    Measured,
    column_records,
    joined,
    measure,
    nan_places,
    parquet_columns,
)
from tblctl.tableformat.storage import Storage

_DICTIONARY_SHARE = 1 / 16
"""A dictionary is written whole into every row group: longer ones, per row of the group, are made anew for each."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How rows become blocks: everything that a write needs to know of the table."""

    schema_id: int
    schema: Schema
    sort: Sort | None
    options: TableOptions

    @classmethod
    def of(cls, snapshot: Snapshot) -> Layout:
        """Return the layout of what is written on top of `snapshot`."""
        return cls(
            schema_id=snapshot.schema_id, schema=snapshot.schema, sort=snapshot.sort, options=snapshot.options
        )


@dataclass(frozen=True, kw_only=True)
class Window:
    """Rows that are ready to be encoded: what can be found out of them whatever they come to stand behind.

    Attributes:
        rows: in read types, the schema's columns, in the order of the sort.
        groups: rows of each row group that they become.
        tables: the rows of each row group, with dictionaries as a file has them.
        decoded_bytes: what they take in memory.
        measured: figures of their columns by id.
        keys: of the sort; None without one.
    """

    rows: pa.Table
    groups: tuple[int, ...]
    tables: tuple[pa.Table, ...]
    decoded_bytes: int
    measured: Mapping[int, Measured]
    keys: pa.Table | None

    @classmethod
    def of(cls, rows: pa.Table, groups: Sequence[int], layout: Layout, sort: Sort | None) -> Window:
        """Make rows ready."""
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
    """A block on its way to the storage; its file grows in memory.

    Row groups end where windows end, and others are copied between them as they are stored. What comes first, rows
    or a copied row group, decides how columns are encoded.
    """

    def __init__(self, layout: Layout, sort: Sort | None) -> None:
        self._layout = layout
        self._sort = sort
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._groups: list[tuple[RawGroup, int] | None] = []  # see `end_with_copies`
        # Of each row group the column chunks with NaN. Parquet's bounds leave NaN out, so that other readers take every
        # row of [5, NaN] for 5, and find none of `x <> 5`: such chunks get no bounds.
        self._with_nan: list[Collection[int]] = []
        self._measured: Mapping[int, Measured] = {}
        self._ends: list[pa.Table] = []  # the keys of the first row and the last
        self._same_keys = SameKeys() if sort else None
        self.row_count = 0
        self.decoded_bytes = 0

    def add(self, window: Window) -> None:
        """Append rows, at least one, that are in the order of the sort and behind those before."""
        written = self._layout.schema.written
        first = window.groups[0]
        writer = self._opened(lambda: choose_encodings(window.rows.slice(0, first), written), window.rows)
        for group in window.tables:
            writer.write_table(as_written(group, writer.schema), row_group_size=group.num_rows)
        self._groups += [None] * len(window.tables)
        self._with_nan += self._places_of_nan(window)
        self.count(window.rows.num_rows, window.decoded_bytes, window.measured)
        if window.keys is not None:
            self._add_keys(window.keys)

    def _places_of_nan(self, window: Window) -> Iterator[Collection[int]]:
        """Yield for each row group which of its column chunks have NaN; counts them only in columns that have some."""
        leaves = [leaf for leaf in self._layout.schema.leaves if window.measured[leaf.id].nan_count]
        start = 0
        for count in window.groups:
            rows = window.rows.slice(start, count)
            yield nan_places(measure(rows, leaves), self._layout.schema) if leaves else ()
            start += count

    def copy(self, file: BlockFile, group: int, keys: pa.Table, measured: Mapping[int, Measured]) -> None:
        """Append a row group of another block as it is stored: a copyable one, in the order of the sort.

        `keys` are those of its rows, `measured` the figures of its columns that Parquet does not count NaN in; `count`
        is to be told of them.
        """
        raw, pages = file.raw_group(group)
        self._opened(raw.encodings)
        self._groups.append((raw, self._sink.tell()))
        self._with_nan.append(nan_places(measured, self._layout.schema))
        self._sink.write(pages)
        self._add_keys(keys)

    def count(self, rows: int, decoded: int, measured: Mapping[int, Measured]) -> None:
        """Count rows that were appended, their bytes in memory, and the figures of their columns."""
        self._measured = joined(self._measured, measured)
        self.row_count += rows
        self.decoded_bytes += decoded

    def _add_keys(self, keys: pa.Table) -> None:
        """Note the keys of rows that were appended."""
        if self._same_keys:
            self._same_keys.add(keys)
        first, last = keys.slice(0, 1), keys.slice(keys.num_rows - 1)
        self._ends = [end.combine_chunks() for end in (self._ends[0] if self._ends else first, last)]

    def store(self, storage: Storage, path: str, *, level: int, run_id: str | None) -> BlockRecord:
        """Write the file, and return the block's row for a segment.

        `level` holds unless the block is constant and full; -1 is kept only while it is.
        """
        if self._writer is None:
            msg = f"block {path} has no rows"
            raise InternalError(msg)
        self._writer.add_key_value_metadata({"ARROW:schema": _arrow_schema(self._layout.schema.written)})
        self._writer.close()
        data = self._sink.getvalue()
        start = footer_start(data)
        end = data[start:]
        if any(self._groups):
            end = end_with_copies(end, start, self._groups, _sorting(self._layout.schema, self._sort))
        if any(self._with_nan):
            end = without_bounds(end, self._with_nan)
        made = seal(data[:start], end)
        storage.write(path, made.data)
        footer = made.metadata
        keys = key_range(pa.concat_tables(self._ends), self._sort) if self._sort else None
        return BlockRecord(
            path=path,
            row_count=self.row_count,
            size_bytes=made.data.size,
            footer_bytes=made.seal.footer_bytes,
            footer_checksum=made.seal.footer_checksum,
            uncompressed_bytes=sum(
                footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)
            ),
            decoded_bytes=self.decoded_bytes,
            schema_id=self._layout.schema_id,
            level=self._level(keys, level),
            run_id=run_id,
            cluster_key_id=None if self._sort is None else self._sort.id,
            key_min=keys.min if keys else (),
            key_max=keys.max if keys else (),
            key_exact=keys.exact if keys else True,
            same_key_rows=self._same_keys.most_rows if self._same_keys else None,
            columns=column_records(self._measured, self._layout.schema, footer),
        )

    def _level(self, keys: KeyRange | None, level: int) -> int:
        if keys is None:
            return 0
        options = self._layout.options
        full = is_full(
            self.row_count,
            self.decoded_bytes,
            block_rows=options.block_rows,
            block_bytes=options.block_bytes,
        )
        return CONSTANT_LEVEL if keys.constant and full else max(level, 0)

    def _opened(self, encodings: Callable[[], Encodings], rows: pa.Table | None = None) -> pq.ParquetWriter:
        """Return the writer; if it is new, with `encodings`, and text that gets a dictionary coded as in `rows`.

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
                self._sink,
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
                **PHYSICAL,
            )
        return self._writer


PHYSICAL = {
    "store_decimal_as_integer": True,
    "store_schema": False,  # that of the table is, whatever is coded on its way
    "write_page_checksum": True,  # 2.3 % of encoding lineitem, 1.6 % of reading it
}


def _arrow_schema(written: pa.Schema) -> str:
    """Return the schema as Arrow's readers look for it, so that they give back types that Parquet has not.

    Not cached: Arrow takes schemas for equal whose column ids differ.
    """
    return base64.b64encode(plain_inside(written).serialize()).decode()


@functools.lru_cache
def parquet_schema(schema: Schema) -> pq.ParquetSchema:
    """Return what blocks are written with, as Parquet has it; copied row groups must agree with it."""
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
