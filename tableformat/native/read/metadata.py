"""The blocks of a snapshot as columns. Each column is fetched when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot
from tblctl.tableformat.model.statistics import ColumnStatistics, CrossedBoundsError
from tblctl.tableformat.model.values import values_from_json
from tblctl.tableformat.native.blocks import known_ids
from tblctl.tableformat.native.log.names import SNAPSHOTS
from tblctl.tableformat.native.log.segment_columns import (
    BASE_COLUMNS,
    SEAL_COLUMNS,
    key_kinds,
    key_names,
    statistic_names,
)
from tblctl.tableformat.native.log.segment_reader import blocks_of, read_segment, seals_of
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged
from tblctl.tableformat.predicate.outcomes import ANY
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from tblctl.tableformat.keys.tree_leaves import TreeLeaves
    from tblctl.tableformat.predicate.nodes import Node

_ADDRESS_FACTS = ("path", "size_bytes", "row_count", "uncompressed_bytes", "schema_id")
ADDRESS_COLUMNS = (*_ADDRESS_FACTS, *SEAL_COLUMNS)
"""The columns needed to open blocks."""


class SegmentSummaries:
    """The snapshot's summaries of its segments, in the form that `match` takes: one row for each segment."""

    def __init__(self, segments: Sequence[SegmentRef]) -> None:
        self._segments = segments

    @cached_property
    def row_count(self) -> np.ndarray:
        """Rows of each segment, int64."""
        return np.array([segment.row_count for segment in self._segments], dtype=np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the bounds of one column; None if no segment has any. NaN counts are not kept, so they are unknown."""
        bounds = [segment.bounds.get(leaf.id) for segment in self._segments]
        if not any(bounds):
            return None
        kind = statistic_type(leaf.type)
        floats = pa.types.is_floating(kind)
        try:
            low = values_from_json([item.min if item else None for item in bounds], kind)
            high = values_from_json([item.max if item else None for item in bounds], kind)
            return ColumnStatistics(
                min=low,
                max=high,
                null_count=np.array([item.null_count if item else -1 for item in bounds], dtype=np.int64),
                nan_count=np.full(len(bounds), -1, dtype=np.int64) if floats else None,
            )
        except ValueError as error:
            places = f"{SNAPSHOTS} (the newest there): bounds of {leaf.name} in the summaries of its segments"
            raise CorruptTableError(f"{places} are damaged: {error}", name=SNAPSHOTS) from error


class BlockMetadata:
    """Columnar metadata of the blocks of some segments of one table; rows are in the segments' order."""

    def __init__(
        self,
        storage: Storage,
        segments: Sequence[SegmentRef],
        schema: Schema,
        sorts: Iterable[Sort] = (),
    ) -> None:
        self._storage = storage
        self._sorts = tuple(sorts)
        self.segments = tuple(segments)
        self.schema = schema
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._starts = np.cumsum([0] + [segment.block_count for segment in self.segments])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def fetch(self, names: Iterable[str]) -> None:
        """Read the columns `names` of all segments at once. A column that no segment has is all null."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._columns]
        if not wanted:
            return
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, wanted), self.segments, threads=IO_THREADS
        )
        for name in wanted:
            chunks: list[pa.Array] = []
            for ref, table in zip(self.segments, tables, strict=True):
                if name in table.column_names:
                    chunks.extend(table.column(name).chunks)
                else:
                    chunks.append(pa.nulls(ref.block_count))
            try:
                kind = self._kind_of(name, {chunk.type for chunk in chunks} - {pa.null()})
                self._columns[name] = pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind)
            except ARROW_ERRORS as error:
                raise self._damaged(error) from error

    @cached_property
    def _kinds(self) -> dict[str, pa.DataType]:
        """The types of the statistics of the table's present columns, and of the keys by its sorts."""
        kinds = {name: kind for leaf in self.schema.leaves for name, kind in statistic_names(leaf).items()}
        return kinds | key_kinds(self._sorts, self.schema)

    def _kind_of(self, name: str, kinds: set[pa.DataType]) -> pa.DataType:
        """Return the type of a metadata column that segments have in the types `kinds`, or lack."""
        if name in self._kinds:
            return self._kinds[name]
        fields = [pa.schema([(name, kind)]) for kind in kinds]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type if fields else pa.null()

    def _damaged(self, error: Exception) -> CorruptTableError:
        """Return the error that some segment is damaged, if only their combined columns show it."""
        names = ", ".join(segment.path for segment in self.segments[:3])
        return CorruptTableError(f"one of {names} .. is damaged: {str(error)[:300]}", name=names)

    def values(self, name: str) -> pa.Array:
        """Return one metadata column, with a value for each block; null if the segment lacks it."""
        self.fetch([name])
        return self._columns[name].combine_chunks()

    @cached_property
    def row_count(self) -> np.ndarray:
        """Rows of each block, int64."""
        return np.asarray(self.values("row_count"), dtype=np.int64)

    def fetch_statistics(self, leaves: Iterable[Leaf], others: Iterable[str] = ()) -> None:
        """Read the statistics of columns for `match`, and other metadata columns, in one pass."""
        names = ["row_count", *others]
        for leaf in leaves:
            names += [name for name in statistic_names(leaf) if name.endswith(("_min", "_max", "_count"))]
        self.fetch(names)

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column, in its present statistic type."""
        names = statistic_names(leaf)
        self.fetch_statistics([leaf])
        kind = statistic_type(leaf.type)
        prefix = f"column_{leaf.id}_"
        older = pc.is_null(self.values(f"{prefix}null_count"))  # the block is older than the column: all null
        null_count = pc.if_else(
            older, self.values("row_count"), self.values(f"{prefix}null_count")
        ).to_numpy()
        bounded = f"{prefix}min" in names
        nothing = pa.nulls(len(self), kind)
        nan_count = None
        if pa.types.is_floating(kind):
            nan_count = pc.if_else(older, 0, pc.fill_null(self.values(f"{prefix}nan_count"), -1)).to_numpy()
        try:
            return ColumnStatistics(
                min=self.values(f"{prefix}min").cast(kind) if bounded else nothing,
                max=self.values(f"{prefix}max").cast(kind) if bounded else nothing,
                null_count=null_count,
                nan_count=nan_count,
            )
        except CrossedBoundsError as error:
            raise self.crossed(error.place, f"values of {leaf.name}") from error

    def is_exact(self, leaf: Leaf) -> np.ndarray:
        """Return which blocks have untruncated bounds of a column; blocks older than the column have none."""
        self.fetch_statistics([leaf])
        marks = pc.fill_null(self.values(f"column_{leaf.id}_exact").cast(pa.bool_()), False)  # noqa: FBT003
        return np.asarray(marks.to_numpy(zero_copy_only=False), dtype=bool)

    def fetch_for(self, condition: Node, leaves: Iterable[Leaf], others: Iterable[str] = ()) -> None:
        """Read all that `match` needs for a condition on some columns, and other metadata columns, in one pass."""
        names = [name for tree in self._trees(condition) for name in _leaf_columns(tree.sort_id)]
        self.fetch_statistics(leaves, [*names, *others])

    def described(self, condition: Node) -> Callable[[Node], npt.NDArray[np.uint8]] | None:
        """Return what the leaves of trees tell of a condition, see `tree_leaves.py`; None if no block is in such order.

        A block counts that names a live tree, and whose first and last leaf are exact.
        """
        known = []
        for tree in self._trees(condition):
            low, high, exact = _leaf_columns(tree.sort_id)
            own = pc.equal(self.values("cluster_key_id"), pa.scalar(tree.sort_id, pa.int32()))
            sure = pc.fill_null(pc.and_(own, self.values(exact).cast(pa.bool_())), False)  # noqa: FBT003
            first, last = (
                self.values(name).cast(pa.int64()).fill_null(-1).to_numpy() for name in (low, high)
            )
            within = (first >= 0) & (first <= last) & (last < tree.leaf_count)
            rows = np.flatnonzero(sure.to_numpy(zero_copy_only=False) & within)
            if len(rows):
                known.append((tree, rows, first[rows], last[rows]))

        def outcomes(part: Node) -> npt.NDArray[np.uint8]:
            found = np.full(len(self), ANY, np.uint8)
            for tree, rows, first, last in known:
                found[rows] = tree.outcomes(part, first, last)
            return found

        return outcomes if known else None

    def _trees(self, condition: Node) -> list[TreeLeaves]:
        from tblctl.tableformat.keys.tree_leaves import leaves_for

        return leaves_for(self._sorts, condition, self.schema)

    def crossed(self, row: int, what: str) -> CorruptTableError:
        """Return the error that the bounds of the block in this row contradict each other."""
        path = self.segment_of(row).path
        block = self.values("path")[row].as_py()
        return CorruptTableError(
            f"{path} is damaged: in {block} the least {what} are above the greatest", name=path
        )

    def of_segments_with(self, rows: np.ndarray) -> BlockMetadata:
        """Return the metadata of only the segments that list the blocks in these rows. Nothing of it is read yet."""
        places = np.unique(np.searchsorted(self._starts, np.asarray(rows, dtype=np.int64), side="right") - 1)
        segments = [self.segments[place] for place in places.tolist()]
        return BlockMetadata(self._storage, segments, self.schema, self._sorts)

    def null_counts(self, leaves: Sequence[Leaf], paths: Sequence[str]) -> list[np.ndarray]:
        """Return for each column how many rows of some blocks are null in it; -1 if unknown."""
        names = [f"column_{leaf.id}_null_count" for leaf in leaves]
        self.fetch(["path", "row_count", *names])
        chosen = pc.index_in(pa.array(paths, pa.string()), self.values("path"))
        every = self.values("row_count").take(chosen)
        return [
            np.asarray(pc.coalesce(self.values(name).take(chosen).cast(pa.int64()), every), dtype=np.int64)
            for name in names
        ]

    def addresses(self, rows: np.ndarray, column_ids: Mapping[int, frozenset[int]]) -> list[BlockAddress]:
        """Return how to open the blocks in these rows. `column_ids` has the ids of every schema of the table.

        The blocks' names were checked when the segments were read.
        """
        self.fetch(ADDRESS_COLUMNS)
        table = pa.table({name: self.values(name).take(pa.array(rows)) for name in ADDRESS_COLUMNS})
        facts = (table[name].to_pylist() for name in _ADDRESS_FACTS)
        try:
            seals = seals_of(table)
        except ARROW_ERRORS as error:
            raise self._damaged(error) from error
        return [
            BlockAddress(
                path=path,
                size_bytes=size,
                row_count=count,
                uncompressed_bytes=decompressed,
                column_ids=known_ids(path, schema_id, column_ids),
                seal=seal,
            )
            for path, size, count, decompressed, schema_id, seal in zip(*facts, seals, strict=True)
        ]

    def segment_of(self, row: int) -> SegmentRef:
        """Return the segment that lists the block in this row."""
        return self.segments[int(np.searchsorted(self._starts, row, side="right")) - 1]

    def blocks(self, rows: np.ndarray) -> tuple[Block, ...]:
        """Return the blocks in these rows, reading only the segments that list them."""
        found: list[Block] = []
        rows = np.asarray(rows)
        places = np.searchsorted(self._starts, rows, side="right") - 1
        wanted = list(dict.fromkeys(places.tolist()))
        tables = in_parallel(
            lambda place: read_segment(
                self._storage, self.segments[place], BASE_COLUMNS.names, keys=True
            ).take(pa.array(rows[places == place] - self._starts[place])),
            wanted,
            threads=IO_THREADS,
        )
        by_row: dict[int, Block] = {}
        for place, table in zip(wanted, tables, strict=True):
            try:
                by_row |= dict(zip(rows[places == place].tolist(), blocks_of(table), strict=True))
            except ARROW_ERRORS as error:
                raise damaged(self.segments[place].path, error) from error
        found.extend(by_row[row] for row in rows.tolist())
        return tuple(found)


def _leaf_columns(sort_id: int) -> tuple[str, str, str]:
    """Return the names of the columns of the first and the last leaf by a tree, and of whether these are exact."""
    (low, *_), (high, *_), exact = key_names(sort_id, 1)
    return low, high, exact


def block_metadata(storage: Storage, snapshot: Snapshot) -> BlockMetadata:
    """Return the metadata of all blocks of a snapshot."""
    return BlockMetadata(storage, snapshot.segments, snapshot.schema, snapshot.sorts.values())
