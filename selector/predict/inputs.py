"""Blocks and groups as intervals of ranks: the axis of the table, and the inputs of groups on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.metrics.order import stable_order
from tblctl.selector.draft import Draft
from tblctl.selector.table_view import TableView, joined

DENSE_SPAN = 8
"""Ranks that span more than DENSE_SPAN times the number of blocks are renumbered first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """The blocks' bounds as dense ranks below `size`.

    Each partition has a section of its own. A block of unknown bounds covers the whole section. No other block has the
    section's first or last rank.
    """

    low: Integers
    high: Integers
    size: int


def axis_of(view: TableView) -> Axis:
    """Return the axis of a table: O(n) for n blocks where ranks are dense."""
    known = ~view.unknown
    partition, partitions = _numbered(view)
    if not known.any():
        return Axis(low=2 * partition, high=2 * partition + 1, size=2 * partitions)
    low, high = view.low[known], view.high[known]
    least, most = int(low.min()), int(high.max())
    span = most - least + 1
    section = partition[known] if partitions > 1 else 0
    low, high = low - least + section * span, high - least + section * span
    first, last = np.arange(partitions) * span, np.arange(1, partitions + 1) * span
    if partitions * span > DENSE_SPAN * low.size:
        points, places = np.unique(np.concatenate((low, high)), return_inverse=True)
        low, high = places[: low.size], places[low.size :]
        first, last = np.searchsorted(points, first), np.searchsorted(points, last)
    edges = 2 * np.arange(partitions)  # each partition before adds two ranks: its section's first and last
    every_low, every_high = (first + edges)[partition], (last + edges + 1)[partition]
    every_low[known], every_high[known] = low + 2 * section + 1, high + 2 * section + 1
    return Axis(low=every_low, high=every_high, size=int(last[-1]) + 2 * partitions)


def _numbered(view: TableView) -> tuple[Integers, int]:
    """Return the partition of each block, numbered from 0 without gaps, and how many there are."""
    if not view.is_partitioned:
        return np.zeros(len(view), np.int64), 1
    values, numbers = np.unique(view.partition, return_inverse=True)
    return numbers, values.size


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """The blocks to merge, group by group.

    Each group has an axis of its own: number x `size` is added to its ranks, so that one sort or search serves all
    groups. Rows are numbered consecutively over all groups.

    Attributes:
        blocks: their numbers in the table.
        group: the group of each block.
        low, high: the bounds of each block, on the axis of its group.
        by_low, by_high: the blocks' places, in order of low and of high.
        rows, decoded_bytes: of each block.
        same_key_rows: for each group, most rows that any key has; -1 if unknown.
        size: number of ranks of the table's axis.
    """

    blocks: Integers
    group: Integers
    low: Integers
    high: Integers
    by_low: Integers
    by_high: Integers
    rows: Integers
    decoded_bytes: Integers
    same_key_rows: Integers
    size: int

    @classmethod
    def of(cls, axis: Axis, view: TableView, drafts: Sequence[Draft]) -> Inputs:
        chosen = joined(draft.blocks for draft in drafts)
        group = np.repeat(np.arange(len(drafts)), [draft.blocks.size for draft in drafts])
        low, high = axis.low[chosen] + group * axis.size, axis.high[chosen] + group * axis.size
        rows, same = view.row_count[chosen], view.same_key_rows[chosen]
        by_low, by_high = stable_order(low), stable_order(high)
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        most = np.maximum.reduceat(_weight_at_lows(low, high, same, by_low, by_high), begins)
        known = np.minimum.reduceat(same, begins) > 0
        return cls(
            blocks=chosen,
            group=group,
            low=low,
            high=high,
            by_low=by_low,
            by_high=by_high,
            rows=rows,
            decoded_bytes=view.decoded_bytes[chosen],
            same_key_rows=np.where(known, np.minimum(most, np.add.reduceat(rows, begins)), -1),
            size=axis.size,
        )

    @property
    def spans(self) -> tuple[Integers, Integers]:
        """The span of each group, on the axis of the table."""
        begins = np.flatnonzero(np.diff(self.group, prepend=-1))
        shift = self.group[begins] * self.size
        return np.minimum.reduceat(self.low, begins) - shift, np.maximum.reduceat(self.high, begins) - shift


def _weight_at_lows(
    low: Integers, high: Integers, weight: Integers, by_low: Integers, by_high: Integers
) -> Integers:
    """Return for each interval, in order of `low`, the weight of all intervals that contain its low, with its own."""
    begun = np.concatenate(([0], np.cumsum(weight[by_low])))
    ended = np.concatenate(([0], np.cumsum(weight[by_high])))
    lows, highs = low[by_low], high[by_high]  # sorted values are found fastest in a sorted array
    found: Integers = begun[np.searchsorted(lows, lows, side="right")] - ended[np.searchsorted(highs, lows)]
    return found
