"""Statistics of many blocks (or segments, or row groups), and the result of matching a condition with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.schema.schema import Leaf

NONE, SOME, ALL = 0, 1, 2
"""How many rows of a block satisfy a condition, by statistics. NONE and ALL are certain."""

Bound: TypeAlias = Any  # pa.Array or pa.ChunkedArray; pyarrow is not typed


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnStatistics:
    """Statistics of one column in each of n blocks.

    `min` and `max` (statistic type) are closed bounds of the values that are neither null nor NaN. They may be too
    wide; null means unknown on that side. `null_count` and `nan_count` are exact, -1 if unknown; `nan_count` is None if
    the type has no NaN.

    Raises:
        CrossedBoundsError: at construction: a min is above its max. Such bounds would prune existing rows.
    """

    min: Bound
    max: Bound
    null_count: npt.NDArray[np.int64]
    nan_count: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.min.null_count == len(self.min):  # also of types without an order, which cannot be compared
            return
        crossed = pc.fill_null(pc.greater(self.min, self.max), fill_value=pa.scalar(value=False))
        if pc.any(crossed).as_py():
            raise CrossedBoundsError(pc.index(crossed, pa.scalar(value=True)).as_py())


class CrossedBoundsError(ValueError):
    """The least value of one of n blocks is above its greatest; `place` is the block's number."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place

    def __str__(self) -> str:
        return f"the least value is above the greatest in entry {self.place + 1}"


class BlockStatistics(Protocol):
    """Statistics of n blocks (or segments, or row groups), all arrays of length n."""

    @property
    def row_count(self) -> npt.NDArray[np.int64]:
        """Rows of each block."""

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the statistics of one column; None if no block has any."""


@runtime_checkable
class Described(Protocol):
    """Blocks of which more is known than statistics."""

    def described(self, condition: Any) -> Callable[[Any], npt.NDArray[np.uint8]] | None:
        """Return what tells, of a condition and of each part of it, the outcomes that rows of each block may have.

        None if nothing is known. The sets are those of `tblctl.tableformat.predicate.outcomes`.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class Deletions:
    """The deletes of rows of n blocks, as far as metadata tells.

    Attributes:
        files: int64: how many files with deletes apply to each block.
        rows: float64: about how many of its rows are deleted; at most all that it stores.
    """

    files: np.ndarray
    rows: np.ndarray
