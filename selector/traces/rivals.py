"""Published rules of others, to compare with.

They choose from what policies see, but none is a policy of the product: they do not heed levels, which limit how often
rows of a policy's groups are merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tblctl.metrics.intervals import Integers, depth_curve, depths
from tblctl.selector.connected import components
from tblctl.selector.draft import Draft
from tblctl.selector.table_view import TableView
from tblctl.selector.traces.replay import Choose
from tblctl.tableformat.model.block import CONSTANT_LEVEL

DREMIO_BLOCKS = 64
"""Most blocks that Dremio's rule merges at once."""


def dremio(target_depth: float) -> Choose:
    """Merge the first 64 blocks at the first deepest point, until the mean depth is at most a target (Dremio)."""
    return partial(_deepest, target_depth)


def _deepest(target_depth: float, view: TableView) -> Sequence[Draft]:
    chosen = np.flatnonzero(view.level != CONSTANT_LEVEL)
    low, high = view.low[chosen], view.high[chosen]
    if not chosen.size or depths(low, high).mean() <= target_depth:
        return ()
    curve = depth_curve(low, high)
    point = curve.points[curve.depths.argmax()]
    here = chosen[(low <= point) & (high >= point)][:DREMIO_BLOCKS]
    return (_draft(here),) if here.size > 1 else ()


def hudi(blocks: int) -> Choose:
    """Sort new blocks, so many together, once they are there; never again (Hudi: a group of `max.bytes.per.group`)."""
    return partial(_next_new, blocks)


def _next_new(blocks: int, view: TableView) -> Sequence[Draft]:
    new = np.flatnonzero(view.level == 0)[:blocks]
    return (_draft(new),) if new.size == blocks else ()


class RewriteAll:
    """Sort the whole table after every so many appends: Iceberg's `rewrite_data_files` with `rewrite-all`.

    It remembers what it wrote, so each object is for one table.

    Args:
        appends: sort once there are so many that it has not sorted.
    """

    def __init__(self, appends: int) -> None:
        self._appends = appends
        self._sorted = np.empty(0, np.int64)  # runs that need no sorting
        self._has_merged = False

    def __call__(self, view: TableView) -> Sequence[Draft]:
        live = np.flatnonzero(view.level != CONSTANT_LEVEL)
        if self._has_merged:
            self._sorted = np.unique(view.run[live])
            self._has_merged = False
        if np.setdiff1d(view.run[live], self._sorted).size < self._appends:
            return ()
        self._has_merged = True
        return (_draft(live),)


@dataclass(frozen=True, kw_only=True)
class _Heap:
    """Runs that were merged as one.

    Attributes:
        weight: of how many appends it is made.
        runs: the numbers of the runs that its blocks were written as.
    """

    weight: int
    runs: frozenset[int]


class Binomial:
    """Keep runs whose weights are the digits of the number of appends in the binomial number system.

    n appends make runs of the weights C(c_D, D), .., C(c_1, 1), whose sum is n, and c_D > .. > c_1 >= 0. The oldest
    runs that agree with these are kept, and the rest becomes one run. Blocks of it that overlap nothing of it pass
    through. It remembers what it did, so each object is for one table.

    Args:
        digits: D, the most runs that there are.
    """

    def __init__(self, digits: int) -> None:
        self._digits = digits
        self._heaps: list[_Heap] = []  # the oldest first
        self._has_merged = False

    def __call__(self, view: TableView) -> Sequence[Draft]:
        live = view.level != CONSTANT_LEVEL
        fresh = np.setdiff1d(view.run[live], [run for heap in self._heaps for run in heap.runs]).tolist()
        if self._has_merged:  # these are what the last merge wrote
            last = self._heaps[-1]
            self._heaps[-1] = _Heap(weight=last.weight, runs=last.runs | frozenset(fresh))
            self._has_merged = False
            return ()
        self._heaps += [_Heap(weight=1, runs=frozenset([run])) for run in fresh]
        wanted = digits_of(sum(heap.weight for heap in self._heaps), self._digits)
        kept = 0
        while kept < min(len(wanted), len(self._heaps)) and self._heaps[kept].weight == wanted[kept]:
            kept += 1
        rest = self._heaps[kept:]
        if len(rest) < 2:  # noqa: PLR2004 (one run has nothing to merge with)
            return ()
        one = _Heap(
            weight=sum(heap.weight for heap in rest), runs=frozenset().union(*(heap.runs for heap in rest))
        )
        self._heaps[kept:] = [one]
        blocks = np.flatnonzero(live & np.isin(view.run, list(one.runs)))
        number = components(view.low[blocks], view.high[blocks])
        order = np.argsort(number, kind="stable")
        groups = np.split(blocks[order], np.flatnonzero(np.diff(number[order])) + 1)
        drafts = [_draft(group) for group in groups if group.size > 1]
        self._has_merged = bool(drafts)
        return drafts


def digits_of(number: int, digits: int) -> list[int]:
    """Return the digits of a number in the binomial number system as weights, without those that are 0."""
    found = []
    for place in range(digits, 0, -1):
        top = place - 1
        while math.comb(top + 1, place) <= number:
            top += 1
        found.append(math.comb(top, place))
        number -= found[-1]
    return [weight for weight in found if weight]


def _draft(blocks: Integers) -> Draft:
    return Draft(blocks=blocks, output_level=1, why="")
