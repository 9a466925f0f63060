"""In which order rows that arrive are written: the one in which the window's queries would read least of them.

A what-if on the rows themselves, or on some of them that stand for all: they are put into each order, cut into blocks,
and the queries replayed on the bounds of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.metrics.intervals import Integers
from tblctl.selector.workload.asked import Asked, Floats, Ints
from tblctl.selector.workload.choose import DEFAULT_ALPHA
from tblctl.selector.workload.replay import Blocks, read_cost

SORT_SHARE = 0.3
"""Of what a rewrite takes, to sort rows while they are written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows that arrive, as `Compiled` sees the blocks of a table: each is a block of its own.

    Attributes:
        bounds_of: returns the values of a column twice, and how many are null (as `TableView.bounds_of`).
        condition_boxes, column_count: as of `TableView`.
        row_count, decoded_bytes, size_bytes: of each; of rows that stand for all, their share of all.
    """

    bounds_of: Callable[[str], tuple[pa.Array, pa.Array, Integers]]
    condition_boxes: Callable[[str, Callable[[Any, pa.Scalar], float | None]], Sequence[Any]]
    column_count: int
    row_count: Floats
    decoded_bytes: Floats
    size_bytes: Floats

    def __len__(self) -> int:
        return len(self.row_count)


def blocks_in_order(values: Floats, order: Ints, blocks: int, *, rows: float, read_seconds: float) -> Blocks:
    """Return the blocks that rows become in an order, all of one size.

    Args:
        values: of each column and row, of shape (columns, rows); NaN for null, which no query asks for.
        order: the rows' numbers.
        blocks: how many; at most as many as rows.
        rows: of all blocks.
        read_seconds: of all blocks.
    """
    starts = np.arange(blocks) * len(order) // blocks
    ordered = values[:, order]
    return Blocks(
        low=np.fmin.reduceat(np.where(np.isnan(ordered), np.inf, ordered), starts, axis=1),
        high=np.fmax.reduceat(np.where(np.isnan(ordered), -np.inf, ordered), starts, axis=1),
        rows=np.full(blocks, rows / blocks),
        read_seconds=np.full(blocks, read_seconds / blocks),
        rewrite_seconds=np.zeros(blocks),
    )


def best_order(
    present: Blocks,
    others: Sequence[Blocks],
    asked: Asked,
    *,
    sort_seconds: float,
    alpha: float = DEFAULT_ALPHA,
) -> int | None:
    """Return which of several orders saves the window's queries most; None if none saves enough.

    Args:
        present: the blocks that rows become if nothing is decided.
        others: those that they become in other orders.
        asked: the queries of the window.
        sort_seconds: what to sort the rows takes.
        alpha: what a second of it has to save.
    """
    if not len(asked):
        return None
    best, found = float(read_cost(present, asked).sum()) - alpha * sort_seconds, None
    for number, blocks in enumerate(others):
        after = float(read_cost(blocks, asked).sum())
        if after < best:
            best, found = after, number
    return found
