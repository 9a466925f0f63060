"""Policy `levels` of the RFC: merge the deepest ranges of the lowest level that is not well clustered.

A block's level is how often its rows were merged. Only blocks of one level are merged, the lowest level first. So old
and large runs are not rewritten for every few new blocks (the LSM idea): a row is rewritten about once a level.

The rule is Databend 1.2.453's (seen by running it, and in its source), with two additions: all disjoint ranges of the
highest depth become groups, and a range is skipped if its merge would change nothing (draft.py).

With `every_range` a round takes all ranges above the threshold, the deepest first. What exceeds a group's limit is cut
into neighbours by key. This trades work for time: a range cut by key stays deeper than one around its deepest point,
but a cluster has tasks for all its processors. It ends as the rule itself does: every group lifts its rows.

Each partition is treated as a table of its own. All partitions share one budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tblctl.metrics.intervals import (
    DepthCurve,
    Integers,
    grouped_selection_depths,
    rounded_mean,
)
from tblctl.metrics.order import stable_order
from tblctl.selector.budget import Budget, Room, split_in_key_order
from tblctl.selector.draft import MOST_GROUPS, Draft, changes, next_level, worth_merging
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.plan import Rejection
from tblctl.selector.policies.full import Full, FullOptions
from tblctl.selector.policies.shared_options import group_bytes, unclustered
from tblctl.selector.policy import Alternative, Decision, State
from tblctl.selector.ranges import HotRanges, around_deepest, hot_ranges, members, with_known_ranges
from tblctl.selector.rejections import left_out, rejection, summed_up
from tblctl.selector.table_view import TableView, joined, others
from tblctl.tableformat.model.block import FULL_SHARE

DEFAULT_GROUP_BYTES = 8 * 2**30
"""About 64 full blocks."""

_FORESEEN = 1 << 14
"""Blocks whose boxes are measured together: 20 ms for nothing if the first group takes the whole budget."""


@dataclass(frozen=True, kw_only=True)
class LevelsOptions:
    """The options of `levels`.

    Attributes:
        threshold: a level is well clustered while its average selection depth is at most this. At least 1, since no
            depth is below 1. None: by `ratio`, or clamp(0.001 x blocks of the table, 1, 64).
        ratio: the threshold as a share of the table's blocks, between 0 and 1. A resulting threshold below 1 counts
            as 1.
        max_group_bytes: most decoded bytes that are merged together.
        include_unclustered: also select blocks that are not sorted by the current key.
        every_range: one round takes every range above the threshold, not only the deepest ones.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    threshold: float | None = option(
        default=None,
        unit="depth",
        help="A level whose blocks have at most this average depth is left alone.",
        least=1,
    )
    ratio: float | None = option(
        default=None,
        unit="share",
        help="The threshold as a share of the table's blocks (default: 0.001).",
        least=0,
        most=1,
    )
    max_group_bytes: int = group_bytes(DEFAULT_GROUP_BYTES)
    include_unclustered: bool = unclustered(default=False)
    every_range: bool = option(
        default=False,
        unit="flag",
        help="Every range above the threshold in one round, not only the deepest ones: keeps a cluster busy.",
    )

    def __post_init__(self) -> None:
        require_valid(self, threshold_problems(self))

    def threshold_for(self, block_count: int) -> float:
        """Return the threshold for a table or partition of `block_count` blocks; at least 1."""
        if self.threshold is not None:
            return self.threshold
        if self.ratio is not None:
            return max(1.0, self.ratio * block_count)
        return min(max(1.0, 0.001 * block_count), 64.0)


def threshold_problems(options: Any) -> Sequence[str]:
    """Return what is wrong with `threshold` and `ratio` together."""
    if options.threshold is None or options.ratio is None:
        return ()
    return ("threshold and ratio set the same limit; give one of them",)


class Levels:
    """The next round's groups: O(n log n) for n blocks, in numpy but for the groups and the partitions.

    Unclustered blocks, if selected, get a round of their own before all levels: no figure counts them until they are
    merged.
    """

    name = "levels"
    summary = "merges the deepest ranges, level by level"
    options = LevelsOptions
    lowers_depth = True

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: LevelsOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return the deepest ranges of the lowest level of each partition that is not well clustered."""
        include = options.include_unclustered
        found = _Found(room=Room.of(budget, group_bytes=options.max_group_bytes))
        known = with_known_ranges(view)
        counts = np.bincount(view.partition)  # once for all partitions: there may be 40,000
        chosen = np.flatnonzero(view.selectable & ~view.in_other_sort & (include | ~view.unclustered))
        depths = _Depths(known, chosen[~view.unclustered[chosen]] if include else chosen)
        for blocks in view.by_partition(chosen) if chosen.size else ():
            if found.drafts and found.room.spent:
                why = f"left for later by {found.room.spent}"
                found.rejected.append(rejection(view, found.room.spent, blocks, why))
                continue
            unclustered = blocks[view.unclustered[blocks]] if include else blocks[:0]
            if not (unclustered.size and _take_unclustered(view, unclustered, found)):
                clustered = blocks[~view.unclustered[blocks]] if include else blocks
                threshold = options.threshold_for(int(counts[view.partition[blocks[0]]]))
                partition = _Partition(
                    view=known,
                    blocks=clustered,
                    depths=depths,
                    threshold=threshold,
                    every_range=options.every_range,
                )
                _take_lowest_level(partition, found)
        rejections = found.rejected if not view.is_partitioned else summed_up(found.rejected)
        return Decision(
            drafts=tuple(found.drafts),
            rejections=(*left_out(view, include_unclustered=include), *rejections),
            state=state,
            alternatives=() if found.drafts else tuple(alternatives(view, options)),
        )


def alternatives(view: TableView, options: LevelsOptions) -> Iterator[Alternative]:
    """Yield what takes more than `levels` with `options`, the cheapest first."""
    if options.threshold_for(len(view)) > 1:
        lower = replace(options, threshold=1.0, ratio=None)
        yield Alternative(policy=Levels(), options=lower, threshold=1.0)
    asked = {
        item.name: getattr(options, item.name)
        for item in fields(FullOptions)
        if getattr(options, item.name) != getattr(LevelsOptions(), item.name)
    }
    yield Alternative(policy=Full(), options=FullOptions(**asked))


@dataclass(kw_only=True)
class _Found:
    """The drafts found so far, and the room left: the only mutable state of planning."""

    room: Room
    drafts: list[Draft] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Partition:
    """The clustered blocks of one partition that may be selected.

    Attributes:
        view: the table; every unknown range is replaced by the partition's whole known range.
        depths: of all levels of all partitions.
        threshold: a level up to this average depth is well clustered.
        every_range: whether all ranges above the threshold are taken.
    """

    view: TableView
    blocks: Integers
    depths: _Depths
    threshold: float
    every_range: bool

    def by_level(self) -> list[tuple[int, Integers]]:
        """Return the blocks of each level, the lowest level first."""
        own = self.view.level[self.blocks]
        if own.size and (own == own[0]).all():  # as in most of many partitions
            return [(int(own[0]), self.blocks)]
        order = self.blocks[stable_order(own)]
        levels, begins = np.unique(self.view.level[order], return_index=True)
        return list(zip(levels.tolist(), np.split(order, begins[1:]), strict=False))


class _Depths:
    """The selection depths of blocks, and their curves, within each level of each partition.

    Args:
        view: the table; no range is unknown.
        blocks: all that may be taken.
    """

    def __init__(self, view: TableView, blocks: Integers) -> None:
        level = view.level[blocks] - view.level[blocks].min(initial=0)
        group = np.unique(view.partition[blocks] * (level.max(initial=0) + 1) + level, return_inverse=True)[1]
        depths, self._curves = grouped_selection_depths(view.low[blocks], view.high[blocks], group)
        self._totals = np.bincount(group, depths)
        self._group = np.full(len(view), -1)
        self._group[blocks] = group

    def of(self, chosen: Integers) -> tuple[float, DepthCurve]:
        """Return the average of all blocks of a level of a partition, and their curve."""
        group = self._group[chosen[0]]
        return rounded_mean(int(self._totals[group]), chosen.size), self._curves.of(group)


def _take_lowest_level(partition: _Partition, found: _Found) -> None:
    """Add the groups of a partition's lowest level that needs merging."""
    before = len(found.drafts)
    for level, blocks in partition.by_level():
        _take_level(partition, level, blocks, found)
        if len(found.drafts) > before:
            return


def _take_unclustered(view: TableView, chosen: Integers, found: _Found) -> bool:
    """Add blocks that are not sorted by the key, neighbours by key together. Return whether any was added."""
    groups, rest, rule = split_in_key_order(view, chosen, found.room)
    found.drafts += [
        Draft(
            blocks=group,
            output_level=next_level(view, group),
            why="not sorted by the current key: sorted in",
        )
        for group in groups
    ]
    found.room = found.room.after(view, groups)
    if rule:
        found.rejected.append(_over_limit(view, rule, None, rest))
    return bool(groups)


def _take_level(partition: _Partition, level: int, chosen: Integers, found: _Found) -> None:
    """Add the groups of one level, or the reason why it has none."""
    view, options = partition.view, partition.view.table_options
    if chosen.size < 2:  # noqa: PLR2004 - one block has nothing to merge with
        why = f"level {level} has one block only"
        found.rejected.append(rejection(view, "too_few_blocks", chosen, why, level=level))
        return
    rows, decoded = int(view.row_count[chosen].sum()), int(view.decoded_bytes[chosen].sum())
    if rows <= math.floor(FULL_SHARE * options.block_rows) and decoded < FULL_SHARE * options.block_bytes:
        _take_small(view, level, chosen, found)
        return
    (average, curve), threshold = partition.depths.of(chosen), partition.threshold
    if average <= threshold:
        why = f"level {level} is well clustered: average selection depth {average:g}, threshold {threshold:g}"
        figures = {"average_selection_depth": average, "threshold": threshold}
        found.rejected.append(rejection(view, "well_clustered", chosen, why, level=level, **figures))
        return
    text = f"level {level}: average selection depth {average:g} is above the threshold {threshold:g}"
    here = _Level(number=level, blocks=chosen, curve=curve, text=text, every_range=partition.every_range)
    _take_ranges(view, here, threshold, found)


def _take_small(view: TableView, level: int, chosen: Integers, found: _Found) -> None:
    """Add a whole level that does not fill a block: few rows to rewrite, and fewer blocks afterwards."""
    groups, _, rule = split_in_key_order(view, chosen, replace(found.room, groups=MOST_GROUPS))
    picked = next((group for group in groups if group.size > 1), chosen[:0])
    if picked.size:
        rows = int(view.row_count[chosen].sum())
        why = f"level {level} is small: {rows} rows in {chosen.size} blocks make one block"
        found.drafts.append(Draft(blocks=picked, output_level=level + 1, why=why))
        found.room = found.room.after(view, [picked])
    rest = others(chosen, picked)
    if rest.size:
        ended = "max_group_bytes" if len(groups) > 1 else rule
        found.rejected.append(_over_limit(view, ended, level, rest))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Level:
    """The blocks of one level of a partition, their depth, why they are merged, and whether every range is taken."""

    number: int
    blocks: Integers
    curve: DepthCurve
    text: str
    every_range: bool


def _take_ranges(view: TableView, level: _Level, threshold: float, found: _Found) -> None:
    """Add the deepest hot ranges whose merge changes anything, as groups."""
    low, high = view.low[level.blocks], view.high[level.blocks]
    unchanged: list[Integers] = []
    free = np.ones(level.blocks.size, np.bool_)  # in no group yet: a block may reach into several ranges
    for depth, ranges in hot_ranges(level.curve, threshold).by_depth():
        inside, number = members(low, high, level.curve, ranges)
        inside, number = inside[free[inside]], number[free[inside]]
        useful = changes(view, level.blocks[inside], number)
        enough = np.bincount(number, minlength=useful.size) > 1
        futile = ~(useful & enough)[number]
        unchanged.append(level.blocks[inside[futile]])
        inside, number = inside[~futile], number[~futile]
        free[inside] = False
        blocks = level.blocks[inside]
        taken = blocks.size and _take_groups(view, level, (depth, ranges), (blocks, number), found)
        if taken and not level.every_range:
            break
    if any(some.size for some in unchanged):
        futile_blocks = np.unique(joined(unchanged))
        why = (
            f"level {level.number}: merging would only write the same again: blocks share at most one key with each "
            "other, or no other block of the level is left to merge with"
        )
        found.rejected.append(rejection(view, "no_gain", futile_blocks, why, level=level.number))


def _take_groups(
    view: TableView,
    level: _Level,
    deepest: tuple[int, HotRanges],
    inside: tuple[Integers, Integers],
    found: _Found,
) -> bool:
    """Add every range as a group while there is room. Return whether any was added."""
    depth, ranges = deepest
    begins = np.flatnonzero(np.append(True, inside[1][1:] != inside[1][:-1]))
    numbers = inside[1][begins]
    left: dict[str, list[Integers]] = {}
    before = len(found.drafts)
    edges = np.append(begins, inside[1].size)
    foreseen = 0
    for at, (number, begin, end) in enumerate(
        zip(numbers.tolist(), begins.tolist(), edges[1:].tolist(), strict=True)
    ):
        if view.may_ask and at >= foreseen:
            foreseen = _foresee(view.may_ask, inside[0], edges, at)
        if found.room.spent:
            left.setdefault(found.room.spent, []).append(inside[0][begin:])
            break
        hot = (int(ranges.first[number]), int(ranges.last[number]))
        parts, others, rule = _fitting(view, level, hot, inside[0][begin:end], found.room)
        if rule:
            left.setdefault(rule, []).append(others)
        parts, more = _worth_it(view, parts, found.room.groups)
        if more:
            left.setdefault("max_groups", []).append(joined(more))
        found.room = found.room.after(view, parts)
        for part in parts:
            why = f"{level.text}; {part.size} blocks around a depth of {depth}"
            found.drafts.append(Draft(blocks=part, output_level=level.number + 1, why=why))
    found.rejected += [_over_limit(view, rule, level.number, joined(rest)) for rule, rest in left.items()]
    return len(found.drafts) > before


def _foresee(
    may_ask: Callable[[Sequence[Integers]], None], blocks: Integers, edges: Integers, at: int
) -> int:
    """Say which ranges, from number `at` on, come next; return the number of the first one after them."""
    stop = max(at + 1, int(np.searchsorted(edges, edges[at] + _FORESEEN, side="right")) - 1)
    may_ask(np.split(blocks[edges[at] : edges[stop]], edges[at + 1 : stop] - edges[at]))
    return stop


def _worth_it(
    view: TableView, parts: Sequence[Integers], most: int
) -> tuple[list[Integers], Sequence[Integers]]:
    """Return at most so many parts to merge, without those that the view spares, and those that are left."""
    taken: list[Integers] = []
    for place, part in enumerate(parts):
        if len(taken) >= most:
            return taken, parts[place:]
        if view.spares is None or not view.spares(part):
            taken.append(part)
    return taken, ()


def _fitting(
    view: TableView, level: _Level, hot: tuple[int, int], chosen: Integers, room: Room
) -> tuple[list[Integers], Integers, str]:
    """Return what to merge of a range (nothing if that changes nothing), what does not fit, and the rule broken."""
    fits, rule = room.fitting(view, chosen)
    if fits == chosen.size:
        picked, rest, rule = [chosen], chosen[:0], ""
    elif level.every_range:
        picked, rest, rule = split_in_key_order(view, chosen, room)
    else:
        around, rest, rule = around_deepest(view, chosen, level.curve, hot, room)
        picked = [around]
    parts = [part for group in picked for part in worth_merging(view, group)]
    return parts, rest if parts else chosen, rule


def _over_limit(view: TableView, rule: str, level: int | None, blocks: Integers) -> Rejection:
    where = "blocks that are not sorted by the key" if level is None else f"level {level}"
    return rejection(view, rule, blocks, f"{where}: left for later by {rule}", level=level)
