"""Read one file of an Iceberg table whole, and compare it with what the table's metadata says of it.

Of data files: rows, nulls and NaN; that no value is beyond the bounds in the manifest, or beside the partition's value
of a column; of tblctl's own files also that bounds are values, and the order and keys of the rows. A value beyond its
bounds would be lost to readers that skip files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import POSITION
from tblctl.tableformat.iceberg.own_files import OwnName, parse_name
from tblctl.tableformat.iceberg.own_keys import keys_in_footer
from tblctl.tableformat.iceberg.reading.data_file import DataFile
from tblctl.tableformat.iceberg.reading.inputs import Inputs, address_of
from tblctl.tableformat.iceberg.reading.position_deletes import PositionDeletes
from tblctl.tableformat.iceberg.version import IcebergVersion
from tblctl.tableformat.keys.order import KeyRange, SameKeys, is_sorted, key_range, key_table, keys_after
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_any_string
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.parquet.columns import FileColumns
from tblctl.tableformat.parquet.opened import open_block, opening
from tblctl.tableformat.parquet.reader import BlockFile, row_group_windows
from tblctl.tableformat.parquet.statistics import Measured, joined, measure
from tblctl.tableformat.port import Listing

_PIECE_ROWS = 65_536
_PIECE_BYTES = 32 * 2**20
"""Of rows that are held at once, about."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileCheck:
    """A live data file.

    Attributes:
        version: has it.
        inputs: opens it.
        block: what single value the version has of it.
        row: its place in the version's list.
        listing: all files by the table's cluster key; None without one.
    """

    version: IcebergVersion
    inputs: Inputs
    block: Block
    row: int
    listing: Listing | None

    @property
    def path(self) -> str:
        """The file's URI."""
        return self.block.path

    def problems(self) -> Iterator[str]:
        """Yield the differences between the file and the metadata.

        Raises:
            CorruptTableError: the file is missing or damaged, or its rows or columns are not those of its manifest.
            InvalidDataError: its columns have no ids.
        """
        file = self.version.data_file(self.block)
        sort, schema = self.version.sort, self.version.schema
        keys = None
        if self.listing is not None and sort is not None and self._is_own_of(sort):
            keys = _Keys(sort, schema)
        with self.inputs.open_stored(file) as opened:
            found, rows = _read(opened, schema, keys)
            there, footer = set(opened.leaf_ids), keys_in_footer(opened.metadata.metadata)
        if rows != file.stored_rows:
            yield f"{self.path}: {rows} rows were read, its manifest says {file.stored_rows}"
        counted = dict(file.null_counts)
        for leaf in schema.leaves:
            if leaf.id in there:
                yield from self._column(leaf, found[leaf.id], counted.get(leaf.id, -1))
        yield from self._partition(file, found, there)
        if keys is not None:
            yield from self._keys(keys, footer)

    @property
    def _is_own(self) -> bool:
        return self._own_name is not None

    def _is_own_of(self, sort: Sort) -> bool:
        """Return whether tblctl wrote the file in the order of a sort. Other writers' claims are theirs."""
        return self._own_name is not None and self._own_name.sort_id == sort.id

    @property
    def _own_name(self) -> OwnName | None:
        name = parse_name(self.path)
        return name if name is not None and name.table == self.version.metadata.table_uuid.hex else None

    def _column(self, leaf: Leaf, found: Measured, nulls: int) -> Iterator[str]:
        where = f"{self.path}: column {leaf.name}"
        # How nulls inside structs are counted differs among writers.
        if nulls >= 0 and not pa.types.is_nested(leaf.type) and (self._is_own or len(leaf.path) == 1):
            yield from _differs(f"{where}: its nulls", found.null_count, nulls)
        files = self.version.files
        stated = files.column(leaf)
        if stated is None:
            return
        if found.nan_count is not None and stated.nan_count is not None and nulls != self.block.stored_rows:
            nans = int(stated.nan_count[self.row])
            if nans >= 0:
                yield from _differs(f"{where}: its NaN", found.nan_count, nans)
        if not found.min.is_valid:
            return
        exact = self._is_own and bool(files.is_exact(leaf)[self.row])
        for what, value, bound, beyond in (
            ("least", found.min, stated.min[self.row], pc.less),
            ("greatest", found.max, stated.max[self.row], pc.greater),
        ):
            if not bound.is_valid:
                continue
            # A short upper bound of text may have been truncated before U+10FFFF.
            may_be_more = beyond is pc.greater and is_any_string(bound.type)
            wrong = pc.not_equal if exact and not may_be_more else beyond
            if wrong(value.cast(bound.type), bound).as_py():
                yield (
                    f"{where}: its {what} value is {_shown(value)}, and its manifest's bound is {_shown(bound)}"
                )

    def _partition(self, file: DataFile, found: Mapping[int, Measured], there: set[int]) -> Iterator[str]:
        """Yield the columns that have other values than the partition that the file is in."""
        for id_, value in file.constants:
            leaf = self.version.schema.leaf_by_id(id_)
            if leaf is None or id_ not in there:
                continue
            ends = {python_value(found[id_].min), python_value(found[id_].max)}
            wanted = python_value(value) if isinstance(value, pa.Scalar) else value
            nulls = found[id_].null_count == file.stored_rows if wanted is None else not found[id_].null_count
            if (ends != {wanted} and not found[id_].nan_count) or not nulls:
                yield (
                    f"{self.path}: column {leaf.name}: its values are not all {_short(wanted)}, which is that of the "
                    "file's partition"
                )

    def _keys(self, keys: _Keys, footer: pa.Table | None) -> Iterator[str]:
        found = keys.found()
        if found is None:
            yield f"{self.path}: its rows are not in the order of the cluster key, although its name says so"
            return
        if footer is not None:
            ends = [
                [footer[f"{side}.{place}"][0] for place in range(len(found.min))] for side in ("low", "high")
            ]
            yield from self._compared("its footer", found, ends, footer["exact"][0].as_py())
        listing = self.listing
        assert listing is not None
        if listing.own[self.row]:
            ends = [[column[self.row] for column in side.columns] for side in (listing.low, listing.high)]
            yield from self._compared("the table's file of keys", found, ends, bool(listing.exact[self.row]))
            same = int(listing.same_key_rows[self.row])
            if same >= 0 and keys.same.most_rows is not None:
                yield from _differs(f"{self.path}: the rows of its commonest key", keys.same.most_rows, same)

    def _compared(
        self, source: str, found: KeyRange, ends: list[list[pa.Scalar]], exact: bool
    ) -> Iterator[str]:
        for what, mine, theirs in (("first", found.min, ends[0]), ("last", found.max, ends[1])):
            if not all(_equal(one, other) for one, other in zip(mine, theirs, strict=True)):
                key, stated = (", ".join(map(_shown, side)) for side in (mine, theirs))
                yield f"{self.path}: the key of its {what} row is ({key}), {source} says ({stated})"
        if exact != found.exact:
            yield f"{self.path}: {source} says that its keys are {'' if exact else 'not '}exact"


class _Keys:
    """The keys of rows as they are read: whether they are in order, and the first and last."""

    def __init__(self, sort: Sort, schema: Schema) -> None:
        self._sort = sort
        self._schema = schema
        self._first: pa.Table | None = None
        self._last: pa.Table | None = None
        self._is_ordered = True
        self.same = SameKeys()

    def add(self, rows: pa.Table) -> None:
        """Add the next rows, at least one."""
        keys = key_table(rows, self._sort, self._schema)
        first = keys.slice(0, 1).combine_chunks()
        if self._last is not None and keys_after(self._last, first, self._sort).any():
            self._is_ordered = False
        self._is_ordered = self._is_ordered and is_sorted(keys, self._sort)
        if self._is_ordered:
            self.same.add(keys)
        self._first = first if self._first is None else self._first
        self._last = keys.slice(keys.num_rows - 1).combine_chunks()

    def found(self) -> KeyRange | None:
        """Return the keys of all rows; None if they are not in order."""
        if not self._is_ordered or self._first is None or self._last is None:
            return None
        return key_range(pa.concat_tables([self._first, self._last]), self._sort)


def _read(file: BlockFile, schema: Schema, keys: _Keys | None) -> tuple[dict[int, Measured], int]:
    """Return the figures of all columns by id, and the rows, from reading them a piece at a time."""
    projection = file.projection(schema)
    found: dict[int, Measured] = {}
    rows = 0
    for part in row_group_windows(file.metadata, range(file.metadata.num_row_groups), _PIECE_BYTES):
        file.will_need(part, projection)
        for group in part:
            footer = file.metadata.row_group(group)
            most = _PIECE_BYTES * footer.num_rows // max(footer.total_byte_size, 1)
            for piece in file.batches(group, projection, max(1, min(_PIECE_ROWS, most))):
                if piece.num_rows:
                    found = joined(found, measure(piece, schema.leaves))
                    rows += piece.num_rows
                    if keys is not None:
                        keys.add(piece)
    return found, rows


@dataclass(frozen=True, kw_only=True)
class DeleteCheck:
    """A live delete file, as its manifest describes it. Deletion vectors, and other formats, must be there."""

    path: str
    form: str
    content: int
    rows: int
    size_bytes: int

    def problems(self, storages: DataStorage) -> Iterator[str]:
        """Yield what is wrong with the file.

        Raises:
            CorruptTableError: it is missing or damaged.
        """
        storage, name = storages.place_of(self.path)
        if self.form.upper() != "PARQUET":
            (modified,) = storage.modified([name])
            if modified is None:
                yield f"delete file {self.path} is missing, although the snapshot names it"
            return
        address = address_of(self.path, name, size_bytes=self.size_bytes, rows=self.rows)
        opened = open_block(storage, address)
        with opening(storage, address), opened.source:
            columns = FileColumns(opened.file.metadata, opened.schema)
            for part in row_group_windows(
                opened.file.metadata, range(opened.file.metadata.num_row_groups), _PIECE_BYTES
            ):
                ranges = columns.ranges(part, opened.schema.names)
                with opened.ranges.begin(ranges) if opened.ranges else nullcontext():
                    for _ in opened.file.iter_batches(_PIECE_ROWS, part):
                        pass
        if self.content == POSITION:
            PositionDeletes(storages).paths(self.path)


def _differs(what: str, found: int, stated: int) -> Iterator[str]:
    if found != stated:
        yield f"{what}: {found} were read, metadata says {stated}"


def _equal(one: pa.Scalar, other: pa.Scalar) -> bool:
    found, stated = python_value(one), python_value(other.cast(one.type))
    return bool(found == stated or (found != found and stated != stated))  # noqa: PLR0124 (NaN)


def _shown(value: pa.Scalar) -> str:
    return _short(python_value(value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}.."  # noqa: PLR2004
