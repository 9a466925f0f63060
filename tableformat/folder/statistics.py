"""The statistics of the columns of files: those of footers, and values that folders' names give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.partitions import FolderColumn
from tblctl.tableformat.folder.parts import Part
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import BlockStatistics, ColumnStatistics, CrossedBoundsError


class FileStatistics(BlockStatistics, Protocol):
    """Statistics of n files: arrays of length n, and columns."""

    names: pa.Array
    size_bytes: np.ndarray

    @property
    def decoded_bytes(self) -> np.ndarray:
        """Bytes of each file's rows before compression, int64; or its size, if that is all that is known."""

    def is_exact(self, leaf: Leaf) -> np.ndarray:
        """Return for each file whether the bounds of a column are values of it, and its nulls and NaN are counted."""


Look = Callable[[Leaf], tuple[ColumnStatistics | None, np.ndarray]]
"""Returns the statistics of a column, and for each file whether its bounds are exact."""


class ColumnsOnce:
    """Answers for columns from statistics that are looked up once for each."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._found: dict[int, tuple[ColumnStatistics | None, np.ndarray]] = {}

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column; None if no file has any, or its type has no bounds."""
        return self._of(leaf)[0]

    def is_exact(self, leaf: Leaf) -> np.ndarray:
        """Return for each file whether the bounds of a column are values of it, and its nulls and NaN are counted."""
        return self._of(leaf)[1]

    def _of(self, leaf: Leaf) -> tuple[ColumnStatistics | None, np.ndarray]:
        if leaf.id not in self._found:
            self._found[leaf.id] = self._look(leaf)
        return self._found[leaf.id]


class FolderStatistics(ColumnsOnce):
    """Statistics of n files, in the order of their names; a `BlockStatistics`, for keys too.

    Args:
        parts: what the footers say. Files without rows are left out.
        columns: what folders' names say; of `files`.
        files: all that were listed.
    """

    def __init__(self, parts: Sequence[Part], columns: Sequence[FolderColumn], files: Files) -> None:
        super().__init__(self._looked_up)
        names = pa.concat_arrays([_column(part, "name") for part in parts])
        order = np.asarray(pc.index_in(files.names, names))  # the row of each file in all parts together
        rows = np.concatenate([np.asarray(_column(part, "rows")) for part in parts])[order]
        chosen = np.flatnonzero(rows > 0)
        self._parts = parts
        self._order = order[chosen]
        self._given = {column.name: column.values.take(pa.array(chosen)) for column in columns}
        self.row_count = rows[chosen]
        self.names = files.names.take(pa.array(chosen))
        self.size_bytes = files.size_bytes[chosen]

    @cached_property
    def decoded_bytes(self) -> np.ndarray:
        """Bytes of each file's rows before compression, int64."""
        return self._numbers("decoded_bytes")

    def _looked_up(self, leaf: Leaf) -> tuple[ColumnStatistics | None, np.ndarray]:
        kind = statistic_type(leaf.type)
        if leaf.path[0] in self._given:
            values = self._given[leaf.path[0]]
            nulls = np.where(np.asarray(values.is_valid()), 0, self.row_count)
            return ColumnStatistics(min=values, max=values, null_count=nulls), np.ones(len(values), bool)
        take = pa.array(self._order)
        pieces = [_piece(part, leaf.path, kind) for part in self._parts]
        if all(piece is None for piece in pieces):
            return None, np.zeros(len(take), bool)
        known = [
            piece or _unknown(len(part.rows), kind) for piece, part in zip(pieces, self._parts, strict=True)
        ]
        low, high = (pa.concat_arrays([piece[side] for piece in known]).take(take) for side in (0, 1))
        nulls, exact = (np.concatenate([piece[side] for piece in known])[self._order] for side in (2, 3))
        nans = np.where(nulls == self.row_count, 0, -1) if pa.types.is_floating(kind) else None
        exact &= nulls >= 0
        if nans is not None:
            exact &= nans >= 0
        low, high = without_crossed(low, high)
        return ColumnStatistics(min=low, max=high, null_count=nulls, nan_count=nans), exact

    def _numbers(self, name: str) -> np.ndarray:
        found: np.ndarray = np.concatenate([np.asarray(_column(part, name)) for part in self._parts])[
            self._order
        ]
        return found


_Piece = tuple[pa.Array, pa.Array, np.ndarray, np.ndarray]


def _piece(part: Part, path: tuple[str, ...], kind: pa.DataType) -> _Piece | None:
    """Return least and greatest value, nulls, and whether these are exact; None for a column without bounds."""
    for number, leaf in enumerate(part.layout.leaves):
        if leaf.path == path:
            low, high = (_column(part, f"{name} {number}").cast(kind) for name in ("low", "high"))
            return (
                low,
                high,
                np.asarray(_column(part, f"null_count {number}")),
                _flags(part, f"exact {number}"),
            )
    if path in part.layout.paths:
        return None
    count = len(part.rows)  # files without the column: it is null in all their rows
    nulls = pa.nulls(count, kind)
    return nulls, nulls, np.asarray(_column(part, "rows")), np.ones(count, bool)


def _unknown(count: int, kind: pa.DataType) -> _Piece:
    nulls = pa.nulls(count, kind)
    return nulls, nulls, np.full(count, -1, np.int64), np.zeros(count, bool)


def _column(part: Part, name: str) -> pa.Array:
    found = part.rows.column(name)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def _flags(part: Part, name: str) -> np.ndarray:
    return np.asarray(_column(part, name).to_numpy(zero_copy_only=False), bool)


def without_crossed(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bounds without those of files whose least value is above the greatest: these are damaged."""
    try:
        ColumnStatistics(min=low, max=high, null_count=np.zeros(len(low), np.int64))
    except CrossedBoundsError:
        fine = pc.fill_null(pc.less_equal(low, high), fill_value=True)
        null = pa.scalar(None, low.type)
        return pc.if_else(fine, low, null), pc.if_else(fine, high, null)
    return low, high
