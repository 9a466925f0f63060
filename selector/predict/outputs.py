"""The output blocks of groups: how many, with which row each begins, and whether two may share a key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.draft import most_rows
from tblctl.selector.predict.inputs import Inputs
from tblctl.tableformat.model.cut import block_counts, cut_slack
from tblctl.tableformat.model.options import TableOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """The output blocks of groups, in order of group and key.

    Attributes:
        group: the group of each.
        is_first, is_last: whether it is the first or last of its group.
        begin: the number of the row with which it is planned to begin, counted over all groups.
        slack: the most rows by which its begin may move back, to where a key begins.
        may_share: whether it may share a key with the output before.
    """

    group: Integers
    is_first: Mask
    is_last: Mask
    begin: Integers
    slack: Integers
    may_share: Mask

    @classmethod
    def of(cls, inputs: Inputs, options: TableOptions) -> Outputs:
        rows = np.bincount(inputs.group, inputs.rows).astype(np.int64)
        decoded = np.bincount(inputs.group, inputs.decoded_bytes).astype(np.int64)
        most = most_rows(rows, decoded, options)
        counts, evenly = block_counts(rows, most, inputs.same_key_rows)
        group = np.repeat(np.arange(rows.size), counts)
        begin = (np.cumsum(rows) - rows)[group] + expected_cuts(rows, most, counts, evenly)
        size = np.diff(begin, append=rows.sum())
        is_first = np.diff(group, prepend=-1) > 0
        slack = np.where(is_first, 0, cut_slack(np.roll(size, 1), size, most[group]))
        same = np.where(inputs.same_key_rows < 0, rows, inputs.same_key_rows)[group]
        return cls(
            group=group,
            is_first=is_first,
            is_last=np.roll(is_first, -1),
            begin=begin,
            slack=slack,
            may_share=~is_first & (same >= slack + 2) & _may_be_one_key(inputs, begin - slack - 1, begin),
        )


def _may_be_one_key(inputs: Inputs, one: Integers, other: Integers) -> Mask:
    """Return whether two rows of a group, given by their numbers in key order, may have the same key.

    A row's key is at least the greatest low with at most as many rows of inputs before it as the row's number. It is at
    most the smallest high with more rows of inputs up to it.
    """
    rows_by_low, rows_by_high = np.cumsum(inputs.rows[inputs.by_low]), np.cumsum(inputs.rows[inputs.by_high])
    least = inputs.low[inputs.by_low[np.searchsorted(rows_by_low, other, side="right")]]
    most = inputs.high[inputs.by_high[np.searchsorted(rows_by_high, np.maximum(one, 0), side="right")]]
    found: Mask = least <= most
    return found


def expected_cuts(rows: Integers, most: Integers, counts: Integers, evenly: Mask) -> Integers:
    """Return the row with which each output is planned to begin, counted from its group's first row."""
    group = np.repeat(np.arange(rows.size), counts)
    number = np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts)
    size, more = np.divmod(rows, counts)
    even = number * size[group] + np.minimum(number, more[group])
    cuts: Integers = np.where(evenly[group], even, number * most[group])
    return cuts
