"""Where the columns of a Parquet file are: its leaves, and the column chunks of its row groups. Reads nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.parquet.decoded_size import decoded_bytes
from tblctl.tableformat.parquet.footer import MAGIC
from tblctl.tableformat.parquet.statistics import parquet_columns
from tblctl.tableformat.storage.ranges import Range

_CODED_BYTES = 2
"""Text may stay coded if a value, with its share of the dictionary, takes at most this many bytes.

Coded rows hold the whole dictionary of their row group, however few rows there are. So the dictionary must be small.
"""

_CODECS = {"none": "UNCOMPRESSED"}
"""Codecs whose option name differs from Parquet's name."""


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The columns of a file, from its footer and its Arrow schema. What the footer says is worked out once.

    Attributes:
        metadata: the footer.
        schema: with the ids that columns have in the table.
        is_named: the file has these ids itself.
        has_int96: it has timestamps stored as INT96.
    """

    metadata: pq.FileMetaData
    schema: pa.Schema
    is_named: bool = True
    has_int96: bool = False
    _nulls: dict[int, tuple[int | None, ...]] = field(default_factory=dict, repr=False)

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

    @property
    def has_all_ids(self) -> bool:
        """Whether each leaf has an id, so that the file certainly lacks other columns."""
        return all(item is not None for item, _ in _file_leaves(self.schema))

    @property
    def groups(self) -> Iterator[pq.RowGroupMetaData]:
        """The row groups, in order."""
        return (self.metadata.row_group(group) for group in range(self.metadata.num_row_groups))

    @cached_property
    def codable(self) -> frozenset[int]:
        """The columns, by id, that can be read as dictionaries: text with a small one in every row group.

        Arrow's large text types are left out, because pyarrow does not read them as dictionaries.
        """
        groups = list(self.groups)
        return frozenset(
            id_
            for item in self.schema
            if (id_ := field_id(item)) is not None
            and (pa.types.is_string(item.type) or pa.types.is_binary(item.type))
            and all(_has_small_dictionary(group.column(self.leaves[id_][0])) for group in groups)
        )

    @cached_property
    def decoded_bytes(self) -> int:
        """About how many bytes all rows take in memory."""
        return decoded_bytes(self.metadata)

    def nulls(self, groups: Sequence[int], leaf: Leaf) -> int | None:
        """Return how many nulls a column that is not nested has in some row groups; None if the footer does not say."""
        if leaf.id not in self.leaves:
            return None
        place, _ = self.leaves[leaf.id]
        every = self._nulls.get(place)
        if every is None:
            every = self._nulls[place] = tuple(_nulls(group.column(place)) for group in self.groups)
        total = 0
        for group in groups:
            found = every[group]
            if found is None:
                return None
            total += found
        return total

    def copyable(self, schema: pq.ParquetSchema, compression: str) -> frozenset[int]:
        """Return the row groups that can be copied as stored into a file of `schema` with `compression`."""
        if not self.metadata.schema.equals(schema):
            return frozenset()
        codec = _CODECS.get(compression, compression.upper())
        return frozenset(
            number for number, group in enumerate(self.groups) if is_whole(group) and _has_codec(group, codec)
        )

    def ranges(self, groups: Sequence[int], names: Sequence[str]) -> list[Range]:
        """Return the byte ranges of some top-level columns in some row groups."""
        parents = tuple(f"{name}." for name in names)
        places = [
            place
            for place in range(self.metadata.num_columns)
            if (path := self.metadata.schema.column(place).path) in names or path.startswith(parents)
        ]
        return [_range(self.metadata.row_group(group).column(place)) for group in groups for place in places]

    def stored_bytes(self, groups: Sequence[int], leaf: Leaf) -> int | None:
        """Return the compressed bytes of a leaf in some row groups; None if the file lacks it."""
        if leaf.id not in self.leaves:
            return None
        place, kind = self.leaves[leaf.id]
        places = range(place, place + parquet_columns(kind))
        row_groups = [self.metadata.row_group(group) for group in groups]
        return sum(int(group.column(item).total_compressed_size) for group in row_groups for item in places)


def has_int96(footer: pq.FileMetaData) -> bool:
    """Return whether a file has timestamps stored as INT96, as old programs do."""
    columns = (footer.schema.column(place) for place in range(footer.num_columns))
    return any(column.physical_type == "INT96" for column in columns)


def _nulls(chunk: pq.ColumnChunkMetaData) -> int | None:
    found = chunk.statistics
    return int(found.null_count) if found is not None and found.has_null_count else None


def _range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Return the byte range of a column chunk."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    stop = start + chunk.total_compressed_size
    return 0 if start == len(MAGIC) else start, stop  # the first chunk's checksum covers the magic


def _has_small_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(
        chunk.has_dictionary_page and chunk.total_uncompressed_size <= _CODED_BYTES * chunk.num_values
    )


def is_whole(group: pq.RowGroupMetaData) -> bool:
    """Return whether the column chunks of a row group follow each other without gaps."""
    ranges = [_range(group.column(place)) for place in range(group.num_columns)]
    return all(stop == start for (_, stop), (start, _) in itertools.pairwise(ranges))


def _has_codec(group: pq.RowGroupMetaData, codec: str) -> bool:
    return all(group.column(place).compression == codec for place in range(group.num_columns))


def _file_leaves(fields: Any) -> Iterator[tuple[int | None, pa.DataType]]:
    for item in fields:
        if pa.types.is_struct(item.type):
            yield from _file_leaves([item.type.field(place) for place in range(item.type.num_fields)])
        else:
            yield field_id(item), item.type
