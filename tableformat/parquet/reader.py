"""Read one block: the row groups and columns that a scan needs, as the table's schema now says.

A block's file is only trusted as far as its metadata: a wrong size, row count or an unreadable page is
`CorruptTableError` naming the block.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.schema.field_ids import field_id, ids_in
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.statistics import NONE, ColumnStatistics
from tblctl.tableformat.native.log.names import checked_block_path
from tblctl.tableformat.parquet.damage import ARROW_ERRORS, damaged, read_error
from tblctl.tableformat.parquet.footer import (
    MAGIC,
    TAIL_BYTES,
    RawGroup,
    footer_of,
    has_exact_bounds,
    raw_group,
    read_footer,
)
from tblctl.tableformat.parquet.footer_check import check_footer
from tblctl.tableformat.parquet.sealed import Place, VerifiedFile, open_verified, reader
from tblctl.tableformat.parquet.statistics import Measured, measure, parquet_columns, stored_figures
from tblctl.tableformat.parquet.thrift import Struct
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.ranges import GAP_BYTES, Fetched, Range, RangedInput, RangeFile

if TYPE_CHECKING:
    from tblctl.tableformat.predicate.nodes import Condition


_CODED_BYTES = 2
"""A value, its share of the dictionary included, where text may stay coded: so whoever holds a few rows and the whole
dictionary of their row group holds little."""

_CODECS = {"none": "UNCOMPRESSED"}
"""Options' names of codecs that are not Parquet's."""


@dataclass(frozen=True, kw_only=True)
class BlockAddress:
    """What is needed to open a block: its name, and what its file must agree with.

    Attributes:
        uncompressed_bytes: of its column chunks.
        column_ids: of the schema that it was written with, at every depth: its file has them all.
        seal: of its end; None for a block of a tblctl that kept no checksums.
    """

    path: str
    size_bytes: int
    row_count: int
    uncompressed_bytes: int
    column_ids: frozenset[int]
    seal: Seal | None

    @classmethod
    def of(cls, block: Block, column_ids: Mapping[int, frozenset[int]]) -> BlockAddress:
        """Return how to open a block.

        Args:
            block: the block.
            column_ids: those of every schema that the table had.

        Raises:
            CorruptTableError: the table never had the block's schema.
        """
        return cls(
            path=block.path,
            size_bytes=block.size_bytes,
            row_count=block.row_count,
            uncompressed_bytes=block.uncompressed_bytes,
            column_ids=known_ids(block.path, block.schema_id, column_ids),
            seal=block.seal,
        )


def known_ids(path: str, schema_id: int, column_ids: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the ids that a block of a schema has.

    Raises:
        CorruptTableError: the table never had the schema.
    """
    found = column_ids.get(schema_id)
    if found is None:
        msg = f"block {path} is said to be of schema {schema_id}, which the snapshot does not define"
        raise CorruptTableError(msg, name=path)
    return found


class Tails:
    """The ends of blocks, with their footers: a merge opens each block for its keys, and later for its rows.

    Takes `most_bytes` at most: what comes when it is full is not kept. Threads may share one; pickles empty.
    """

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[str, bytes] = {}
        self._lock = Lock()

    def keep(self, path: str, tail: bytes) -> None:
        """Keep the end of a block."""
        with self._lock:
            if sum(map(len, self._kept.values())) + len(tail) <= self._most_bytes:
                self._kept[path] = tail

    def get(self, path: str) -> bytes | None:
        """Return the end of a block, None if it is not kept."""
        return self._kept.get(path)

    def drop(self, path: str) -> None:
        """Keep the end of a block no longer."""
        with self._lock:
            self._kept.pop(path, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._most_bytes,))


@dataclass(frozen=True)
class _Announced:
    """Row groups of which some columns are being fetched, or are there, and were not all read."""

    columns: list[str]
    groups: set[int]
    fetched: Fetched


_TAIL_BYTES = 64 << 10
_TAIL_SHARE = 128
"""A footer is 0.2 % of a block of lineitem, 8 bytes and 130 a column chunk: this share holds it in one request."""


class BlockFile:
    """An open block. Use as a context manager.

    On a remote storage it takes one request to open, none if its end is among `tails`, and reads what it needs of
    its row groups in few requests, at once (`storage.ranges.joined`).

    Columns of `codable` whose ids are in `coded` come as Arrow dictionaries. `ahead`: the memory is there to hold what
    one call reads, as stored, all at once.
    """

    def __init__(
        self,
        storage: Storage,
        address: BlockAddress,
        tails: Tails | None = None,
        *,
        coded: Collection[int] = (),
        ahead: bool = False,
    ) -> None:
        self._storage = storage
        self.address = address
        path = checked_block_path(address.path)
        self._announced: list[_Announced] = []
        try:
            self._source = storage.open_input(path, size_bytes=address.size_bytes)
            self._ranges = self._source.ranges if isinstance(self._source, RangedInput) else None
            self._require_size()
            if self._ranges:
                self._fetch_tail(self._ranges, tails)
            # Where ranges cannot be announced, Arrow joins what it reads: on a local disk that is only worth it to come
            # through Python's lock once for many column chunks, 7 % of a scan, and holds them all at once.
            self._pre_buffer = not self._ranges and (ahead or not storage.is_local)
            self._verified: VerifiedFile | None = None
            metadata = None
            if address.seal:
                self._verified, metadata = self._opened_verified(address.seal)
            else:
                self._check_footer()
            self._file = self._opened(metadata=metadata)
            self.metadata: pq.FileMetaData = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow
            self.coded = self.codable.intersection(coded) if coded else frozenset[int]()
            if self.coded:
                names = [item.name for item in self.schema if field_id(item) in self.coded]
                self._file = self._opened(metadata=self.metadata, read_dictionary=names)
        except (ObjectNotFoundError, FileNotFoundError) as error:
            msg = f"{storage.url}: block {path} is missing, although the snapshot names it"
            raise CorruptTableError(msg, name=path) from error
        except ARROW_ERRORS as error:
            raise self._explained(error) from error
        self._require_rows_and_columns()

    def _require_size(self) -> None:
        """Refuse a file of another size than the segment says."""
        size_bytes, expected = self._source.size(), self.address.size_bytes
        if size_bytes != expected:
            self._refuse(f"has {size_bytes} bytes, expected {expected}")

    def _require_rows_and_columns(self) -> None:
        """Refuse a footer of another number of rows, or without a column: its rows would read as null."""
        row_count, expected = self.metadata.num_rows, self.address.row_count
        if row_count != expected:
            self._refuse(f"has {row_count} rows, expected {expected}")
        missing = self.address.column_ids - ids_in(self.schema)
        if missing:
            ids = ", ".join(map(str, sorted(missing)[:8]))
            self._refuse(
                f"lacks {len(missing)} columns of the schema it was written with: those of ids {ids}"
            )

    def _refuse(self, why: str) -> NoReturn:
        path = self.address.path
        msg = f"{self._storage.url}: block {path} {why}"
        raise CorruptTableError(msg, name=path)

    def _opened_verified(self, seal: Seal) -> tuple[VerifiedFile, pq.FileMetaData]:
        size = self.address.size_bytes
        fetch = reader(self._ranges or self._source)
        end = fetch(max(0, size - seal.footer_bytes), size)
        path = self.address.path
        place = Place(name=path, title=f"{self._storage.url}: block {path}")
        return open_verified(place, seal, size, end, fetch)

    def _check_footer(self) -> None:
        """Refuse the footer of a block without checksums that pyarrow is not to see."""
        size = self.address.size_bytes
        footer, start = footer_of(reader(self._ranges or self._source), size)
        check_footer(
            footer,
            pages_stop=start,
            row_count=self.address.row_count,
            most_chunk_bytes=self.address.uncompressed_bytes,
        )

    def _opened(self, **more: Any) -> pq.ParquetFile:
        if self._verified is None:
            return pq.ParquetFile(
                self._source, pre_buffer=self._pre_buffer, page_checksum_verification=True, **more
            )
        return pq.ParquetFile(pa.PythonFile(self._verified, mode="r"), pre_buffer=self._pre_buffer, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    @cached_property
    def codable(self) -> frozenset[int]:
        """The columns, by id, that may be opened as `coded`: text with a small dictionary in every row group.

        Not text of Arrow's large types, which pyarrow does not read as dictionaries.
        """
        groups = [self.metadata.row_group(group) for group in range(self.metadata.num_row_groups)]
        return frozenset(
            id_
            for item in self.schema
            if (id_ := field_id(item)) is not None
            and (pa.types.is_string(item.type) or pa.types.is_binary(item.type))
            and all(_has_small_dictionary(group.column(self.leaves[id_][0])) for group in groups)
        )

    def _fetch_tail(self, ranges: RangeFile, tails: Tails | None) -> None:
        path, size = self.address.path, self.address.size_bytes
        tail = tails.get(path) if tails else None
        if tail is None:
            seal = self.address.seal
            guessed = max(_TAIL_BYTES, size // _TAIL_SHARE)
            tail = ranges.fetch(max(0, size - (seal.footer_bytes if seal else guessed)), size)
            if tails:
                tails.keep(path, tail)
        ranges.keep(size - len(tail), tail)

    def will_need(self, groups: Sequence[int], projection: Projection) -> int:
        """Begin to fetch what `read` or `batches` will need of some row groups; return how many bytes that holds.

        They are held until all of these row groups have been read. On a local disk it does nothing.
        """
        if self._ranges is None:
            return 0
        fetched = self._ranges.begin(self._chunks(groups, projection))
        self._announced.append(_Announced(projection.file_columns, set(groups), fetched))
        return fetched.size_bytes

    @contextmanager
    def in_memory(
        self, groups: Sequence[int], projection: Projection, *, gap_bytes: int = GAP_BYTES
    ) -> Iterator[None]:
        """Have the bytes of some row groups in memory, all of them fetched at once; then let go of them."""
        if self._ranges is None:
            yield
            return
        with self._ranges.begin(self._chunks(groups, projection), gap_bytes=gap_bytes):
            yield
        for item in self._announced:
            if item.columns == projection.file_columns:
                item.groups.difference_update(groups)
                if not item.groups:
                    item.fetched.close()
        self._announced = [item for item in self._announced if item.groups]

    def _chunks(self, groups: Sequence[int], projection: Projection) -> list[Range]:
        """Return where in the file some columns of some row groups are."""
        names = projection.file_columns
        parents = tuple(f"{name}." for name in names)
        columns = [
            place
            for place in range(self.metadata.num_columns)
            if (path := self.metadata.schema.column(place).path) in names or path.startswith(parents)
        ]
        chunks = (self.metadata.row_group(group).column(place) for group in groups for place in columns)
        return [_range(chunk) for chunk in chunks]

    @cached_property
    def leaves(self) -> Mapping[int, tuple[int, pa.DataType]]:
        """By column id: the place of the leaf's first Parquet column, and its type in the file."""
        found: dict[int, tuple[int, pa.DataType]] = {}
        place = 0
        for item, kind in _file_leaves(self.schema):
            if item is not None:
                found[item] = (place, kind)
            place += parquet_columns(kind)
        return found

    def row_groups(self, condition: Condition | None, schema: Schema) -> list[int]:
        """Return the row groups that may hold rows satisfying the condition."""
        every = list(range(self.metadata.num_row_groups))
        if condition is None or len(every) <= 1:
            return every
        from tblctl.tableformat.predicate.match import match

        try:
            outcome = match(condition, RowGroupStatistics(self, every), schema).outcome
        except ARROW_ERRORS as error:  # bounds that are no values of the column's type
            raise self._explained(error) from error
        return [group for group in every if outcome[group] != NONE]

    def projection(self, schema: Schema, columns: Sequence[str] | None = None) -> Projection:
        """Return how the file is read as columns of a table's schema: `Projection.plan`.

        Raises:
            CorruptTableError: a column is of a type that it can never have had.
        """
        try:
            return Projection.plan(self.schema, schema, columns)
        except ARROW_ERRORS as error:
            raise self._explained(error) from error

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
        try:
            if not projection.file_columns:
                rows = sum(self.metadata.row_group(group).num_rows for group in groups)
                return projection.apply(pa.table({"": pa.nulls(rows)}).select([]))
            with self.in_memory(groups, projection, gap_bytes=gap_bytes):
                raw = self._file.read_row_groups(
                    list(groups), columns=projection.file_columns, use_threads=use_threads
                )
            return projection.apply(raw)
        except ARROW_ERRORS as error:
            raise self._explained(error) from error

    def batches(self, group: int, projection: Projection, most_rows: int) -> Iterator[pa.Table]:
        """Yield the columns of `projection` of one row group in pieces of at most `most_rows` rows."""
        if not projection.file_columns:
            rows = self.metadata.row_group(group).num_rows
            for start in range(0, rows, most_rows):
                size = min(most_rows, rows - start)
                yield projection.apply(pa.table({"": pa.nulls(size)}).select([]), row_count=size)
            return
        try:
            with self.in_memory([group], projection):
                for batch in self._file.iter_batches(
                    most_rows, [group], columns=projection.file_columns, use_threads=False
                ):
                    yield projection.apply(pa.Table.from_batches([batch]))
        except ARROW_ERRORS as error:
            raise self._explained(error) from error

    def copyable(self, schema: pq.ParquetSchema, compression: str) -> frozenset[int]:
        """Return the row groups that can stand in a file of `schema`, with `compression`, as they are stored."""
        if not self.metadata.schema.equals(schema):
            return frozenset()
        codec = _CODECS.get(compression, compression.upper())
        groups = (self.metadata.row_group(group) for group in range(self.metadata.num_row_groups))
        return frozenset(number for number, group in enumerate(groups) if _is_whole(group, codec))

    def raw_group(self, group: int) -> tuple[RawGroup, pa.Buffer]:
        """Return a row group as it is stored, and its pages; they agree with its footer and their checksums."""
        try:
            return raw_group(self._footer, group, self._read_at, verified=self._verified is not None)
        except ARROW_ERRORS as error:
            raise self._explained(error) from error

    def told_figures(self, groups: Sequence[int], schema: Schema) -> dict[int, Measured]:
        """Return the figures in some row groups of the columns that the footer tells enough of, by column id."""
        statistics = RowGroupStatistics(self, groups)
        found = (
            (leaf, stored_figures(leaf, statistics.column(leaf), statistics.row_count))
            for leaf in schema.leaves
        )
        try:
            return {
                leaf.id: figures
                for leaf, figures in found
                if figures is not None and self._has_exact_bounds(groups, leaf)
            }
        except ARROW_ERRORS as error:
            raise self._explained(error) from error

    def measured_figures(self, group: int, schema: Schema, leaves: Sequence[Leaf]) -> dict[int, Measured]:
        """Return the figures of some columns in a row group by column id, by reading them."""
        if not leaves:
            return {}
        names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
        projection = self.projection(schema, names)
        return measure(self.read([group], projection, use_threads=False), leaves)

    def _has_exact_bounds(self, groups: Sequence[int], leaf: Leaf) -> bool:
        place, _ = self.leaves[leaf.id]
        return all(has_exact_bounds(self._footer, group, place) for group in groups)

    def _read_at(self, start: int, size: int) -> bytes | pa.Buffer:
        if self._verified is None:
            return self._source.read_at(size, start)
        return self._verified.read_at(start, start + size)

    @cached_property
    def _footer(self) -> Struct:
        size = self.metadata.serialized_size
        return read_footer(bytes(self._read_at(self.address.size_bytes - TAIL_BYTES - size, size)))

    def column_bytes(self, groups: Sequence[int], leaves: Sequence[Leaf]) -> dict[str, int]:
        """Return the compressed bytes of each leaf in some row groups, by name."""
        sizes: dict[str, int] = {}
        for leaf in leaves:
            if leaf.id in self.leaves:
                place, kind = self.leaves[leaf.id]
                places = range(place, place + parquet_columns(kind))
                sizes[leaf.name] = sum(
                    self.metadata.row_group(group).column(item).total_compressed_size
                    for group in groups
                    for item in places
                )
        return sizes

    def _explained(self, error: Exception) -> Exception:
        """Return the storage's error where the storage failed, else that the block is damaged."""
        path = self.address.path
        return read_error(self._storage, path, error)


def _range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Return where in the file a column chunk is."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    stop = start + chunk.total_compressed_size
    return 0 if start == len(MAGIC) else start, stop  # the first chunk's checksum covers the magic


def _has_small_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(
        chunk.has_dictionary_page and chunk.total_uncompressed_size <= _CODED_BYTES * chunk.num_values
    )


def _is_whole(group: pq.RowGroupMetaData, codec: str) -> bool:
    """Tell whether the column chunks of a row group are of one codec and lie one after the other."""
    chunks = [group.column(place) for place in range(group.num_columns)]
    ranges = [_range(chunk) for chunk in chunks]
    follow = all(stop == start for (_, stop), (start, _) in itertools.pairwise(ranges))
    return follow and all(chunk.compression == codec for chunk in chunks)


def _file_leaves(fields: Any) -> Iterator[tuple[int | None, pa.DataType]]:
    for item in fields:
        if pa.types.is_struct(item.type):
            yield from _file_leaves([item.type.field(place) for place in range(item.type.num_fields)])
        else:
            yield field_id(item), item.type


class RowGroupStatistics:
    """The footer's statistics of some of a block's row groups, in the form that `match` takes: one row a row group."""

    def __init__(self, file: BlockFile, groups: Sequence[int]) -> None:
        self._file = file
        self._groups = [file.metadata.row_group(group) for group in groups]

    @cached_property
    def row_count(self) -> np.ndarray:
        """Rows of each row group, int64."""
        return np.array([group.num_rows for group in self._groups], dtype=np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column; None where the footer has none that can be used.

        Raises:
            CorruptTableError: the footer contradicts itself.
        """
        try:
            return self._column(leaf)
        except ARROW_ERRORS as error:
            raise damaged(self._file.address.path, error) from error

    def _column(self, leaf: Leaf) -> ColumnStatistics | None:
        kind = statistic_type(leaf.type)
        unknown = np.full(len(self._groups), -1, dtype=np.int64)
        if leaf.id not in self._file.leaves:  # the block is older than the column
            return ColumnStatistics(
                min=pa.nulls(len(self._groups), kind),
                max=pa.nulls(len(self._groups), kind),
                null_count=self.row_count,
                nan_count=np.zeros_like(unknown) if pa.types.is_floating(kind) else None,
            )
        place, stored = self._file.leaves[leaf.id]
        stored = statistic_type(stored)
        if pa.types.is_nested(stored) or pa.types.is_float16(self._file.leaves[leaf.id][1]):
            return None
        found = [group.column(place).statistics for group in self._groups]
        raw = pa.types.is_temporal(stored)
        low, high = (
            [
                None if item is None or not item.has_min_max else getattr(item, end + ("_raw" if raw else ""))
                for item in found
            ]
            for end in ("min", "max")
        )
        return ColumnStatistics(
            min=_typed(low, stored, kind),
            max=_typed(high, stored, kind),
            null_count=np.array(
                [-1 if item is None or not item.has_null_count else item.null_count for item in found],
                dtype=np.int64,
            ),
            nan_count=unknown if pa.types.is_floating(kind) else None,
        )


def _typed(values: list[Any], stored: pa.DataType, kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(stored):
        width = pa.int32() if stored.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array(values, width).cast(stored).cast(kind)
    return pa.array(values, stored).cast(kind)
