"""Policy `depth`: merge the blocks at the deepest point, until the average depth is at most a target.

It trades the depth of point reads against bytes rewritten, and looks at nothing else: not at how large blocks are, nor
at how often their rows were merged. So a few new rows may rewrite a large old run: `levels` rewrites less at equal
depth. The rule is that of Dremio's `CLUSTER BY` (`target_clustering_depth`), and of Snowflake's "Automatic Clustering":
of the files at the deepest point the first ones, at most so many as one group holds, until the target is met.

One plan has many groups, so that a cluster is busy: of the deepest points those that share no block, and at each point
all its blocks, `most_blocks` in a group. Groups are taken, the deepest first, until the depth that is expected after
them is the target. What is expected is careful: blocks of a group no longer lie over each other, and no other changes.

Touching at one key is no overlap here (selection depth, `metrics/intervals.py`): no merge could part such blocks.

Termination: call what lies between two neighbouring keys of the table a stretch. A merge keeps the rows, so it keeps
these. Blocks of a group all contain one point, so together they cover one range, each stretch of it at least once; what
they become covers each at most once. So at no stretch do more blocks lie over each other than before, and where two of
the group did, fewer do. So the lengths of all blocks, in stretches, added up, fall with each group whose blocks share a
stretch, and never below 0. What shares a single key alone ([1,9] and [5,5]) is a sorted run after one merge. There,
for blocks that are packed, and where bounds are not exact, levels end it (`draft.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial

import numpy as np

from tblctl.metrics.intervals import DepthCurve, Integers, grouped_selection_depths, rounded_mean
from tblctl.selector.budget import Budget, Room, split_in_key_order
from tblctl.selector.draft import MOST_GROUPS, Draft, next_level, worth_merging
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.plan import Rejection
from tblctl.selector.policies.shared_options import group_bytes, unclustered
from tblctl.selector.policy import Decision, State
from tblctl.selector.ranges import with_known_ranges
from tblctl.selector.rejections import left_out, rejection, summed_up
from tblctl.selector.table_view import TableView, joined, others


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """The options of `depth`.

    Attributes:
        clustering_depth: a partition is well clustered while the average selection depth of its blocks is at most this.
        most_blocks: blocks of a group.
        max_group_bytes: most decoded bytes that are merged together; None for no limit.
        include_unclustered: also select blocks that are not sorted by the current key.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    clustering_depth: float = option(
        default=3.0,
        unit="depth",
        help="The deepest points are merged until the average depth of a partition is this (default: 3).",
        least=1,
    )
    most_blocks: int = option(
        default=64, unit="blocks", help="Most blocks of the deepest point in a group (default: 64).", least=2
    )
    max_group_bytes: int | None = group_bytes(None)
    include_unclustered: bool = unclustered(default=False)

    def __post_init__(self) -> None:
        require_valid(self)


class Depth:
    """Groups at the deepest points that share no block; O(n log n) for n blocks.

    Unclustered blocks, if selected, are sorted in first: of their keys too little is known.
    """

    name = "depth"
    options = DepthOptions
    lowers_depth = True
    summary = "merges the blocks at the deepest points until a target depth"

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: DepthOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return the blocks at the deepest points of each partition that is deeper than the target."""
        include = options.include_unclustered
        allowed = view.selectable & ~view.in_other_sort
        drafts, rejected, room = _unclustered(
            view, np.flatnonzero(allowed & view.unclustered & include), budget, options
        )
        chosen = np.flatnonzero(allowed & ~view.unclustered)
        chosen = chosen[np.argsort(view.partition[chosen], kind="stable")]
        if chosen.size and not room.spent:
            found, reasons = _deep(with_known_ranges(view), chosen, options)
            drafts += found
            rejected += reasons if not view.is_partitioned else summed_up(reasons)
        elif chosen.size:
            rejected.append(rejection(view, room.spent, chosen, f"left for later by {room.spent}"))
        return Decision(
            drafts=tuple(drafts),
            rejections=(*left_out(view, include_unclustered=include), *rejected),
            state=state,
        )


def _unclustered(
    view: TableView, chosen: Integers, budget: Budget, options: DepthOptions
) -> tuple[list[Draft], list[Rejection], Room]:
    """Return groups of unclustered blocks, neighbours by key together, why others are left, and the room after them."""
    room = Room.of(budget, group_bytes=options.max_group_bytes)
    drafts: list[Draft] = []
    left: dict[str, list[Integers]] = {}
    for blocks in view.by_partition(chosen) if chosen.size else ():
        groups, rest, rule = split_in_key_order(view, blocks, room)
        room = room.after(view, groups)
        drafts += [
            Draft(
                blocks=group,
                output_level=next_level(view, group),
                why="not sorted by the current key: sorted in",
            )
            for group in groups
        ]
        if rule:
            left.setdefault(rule, []).append(rest)
    rejected = [
        rejection(
            view, rule, joined(blocks), f"blocks that are not sorted by the key: left for later by {rule}"
        )
        for rule, blocks in left.items()
    ]
    return drafts, rejected, room


def _deep(view: TableView, chosen: Integers, options: DepthOptions) -> tuple[list[Draft], list[Rejection]]:
    """Return the groups of clustered blocks, given partition by partition, and why others are left."""
    partition = np.unique(view.partition[chosen], return_inverse=True)[1]
    depths, curves = grouped_selection_depths(view.low[chosen], view.high[chosen], partition)
    totals, counts = np.bincount(partition, depths), np.bincount(partition)
    ends = np.cumsum(counts)
    deepest: list[tuple[int, Draft]] = []
    rejected: list[Rejection] = []
    for number, (total, count, end) in enumerate(
        zip(totals.tolist(), counts.tolist(), ends.tolist(), strict=True)
    ):
        blocks, average = chosen[end - count : end], rounded_mean(int(total), count)
        explain = partial(
            rejection, view, average_selection_depth=average, threshold=options.clustering_depth
        )
        if average <= options.clustering_depth:
            why = f"well clustered: average selection depth {average:g}, target {options.clustering_depth:g}"
            rejected.append(explain("well_clustered", blocks, why))
            continue
        spare = total - options.clustering_depth * count
        found = _groups(view, blocks, curves.of(number), options, spare)
        why = f"average selection depth {average:g} is above {options.clustering_depth:g}"
        deepest += [
            (depth, _draft(view, group, f"{why}; {group.size} blocks at a depth of {depth}"))
            for depth, group in found
        ]
        rest = others(blocks, joined(group for _, group in found))
        if rest.size:
            why = "not at the deepest points, or not needed to bring the average depth to the target"
            rejected.append(explain("not_deepest", rest, why))
    deepest.sort(key=lambda item: -item[0])
    return [draft for _, draft in deepest], rejected


def _draft(view: TableView, group: Integers, why: str) -> Draft:
    return Draft(blocks=group, output_level=next_level(view, group), why=why)


def _groups(
    view: TableView, blocks: Integers, curve: DepthCurve, options: DepthOptions, spare: float
) -> list[tuple[int, Integers]]:
    """Return groups at the deepest points of a partition, with the depth there, the deepest point first.

    Points at which merging changes nothing are skipped, and others looked for that share blocks with them.

    Args:
        view: the table; no range is unknown.
        blocks: of the partition, in order.
        curve: their depths.
        options: how many blocks a group has, at most.
        spare: by how much the depths of all blocks, added up, exceed what is wanted.
    """
    low, high = view.low[blocks], view.high[blocks]
    depths = curve.depths.copy()
    while (points := _apart(low, high, DepthCurve(points=curve.points, depths=depths))).size:
        deepest = _members(view, blocks, curve, points)
        if found := _chunks(view, deepest, options, spare):
            return found
        depths[points] = 1
    return []


def _chunks(
    view: TableView, deepest: list[tuple[int, Integers]], options: DepthOptions, spare: float
) -> list[tuple[int, Integers]]:
    """Return groups of the blocks at some points, until the depths added up are expected to fall by `spare`."""
    room = Room(group_bytes=np.inf if options.max_group_bytes is None else options.max_group_bytes)
    found: list[tuple[int, Integers]] = []
    for depth, inside in deepest:
        start = 0
        while start < inside.size - 1:
            part = inside[start : start + options.most_blocks]
            part = part[: max(room.fitting(view, part)[0], 1)]
            start += part.size
            merged = worth_merging(view, part) if part.size > 1 else []
            found += [(depth, group) for group in merged]
            spare -= sum(group.size * (group.size - 1) for group in merged)
            if found and (spare <= 0 or len(found) >= MOST_GROUPS):
                return found
    return found


def _apart(low: Integers, high: Integers, curve: DepthCurve) -> Integers:
    """Return the places in the curve of deep points that share no block, ascending; O(n log n) for n blocks.

    Of the points that are no shallower than their neighbours, the deepest first, and the first of equals. A point is
    left out if some block lies over it and over one that was taken. At most `MOST_GROUPS` points.
    """
    order = np.argsort(low, kind="stable")
    begun = np.searchsorted(low[order], curve.points, side="right")
    reach = np.maximum.accumulate(high[order])[begun - 1]  # of the blocks that begin by each point
    after = np.searchsorted(curve.points, reach, side="right")  # the first point beyond all of these
    firsts, lasts = _tops(curve.depths, after)
    deepest_first = np.argsort(-curve.depths[firsts], kind="stable")
    taken: list[int] = []  # ascending
    for first, last in zip(firsts[deepest_first].tolist(), lasts[deepest_first].tolist(), strict=True):
        place, at = first, bisect_left(taken, first)
        before = int(after[taken[at - 1]]) if at else 0
        beyond = taken[at] if at < len(taken) else after.size
        place = max(place, before)
        while place <= last and after[place] <= beyond and len(taken) < MOST_GROUPS:
            taken.insert(at, place)
            place, at = int(after[place]), at + 1
    return np.array(taken, np.int64)


def _tops(depths: Integers, after: Integers) -> tuple[Integers, Integers]:
    """Return the first and last places of the stretches of equal depth, above 1, with no deeper neighbour.

    Points between which no block lies are no neighbours; `after` has the first point beyond the blocks of each.
    """
    apart = after[:-1] == np.arange(1, depths.size)
    before = np.append(0, np.where(apart, 0, depths[:-1]))
    behind = np.append(np.where(apart, 0, depths[1:]), 0)
    begins, ends = np.flatnonzero(before != depths), np.flatnonzero(behind != depths)
    tops = (before[begins] < depths[begins]) & (behind[ends] < depths[begins]) & (depths[begins] > 1)
    return begins[tops], ends[tops]


def _members(
    view: TableView, blocks: Integers, curve: DepthCurve, places: Integers
) -> list[tuple[int, Integers]]:
    """Return the depth at each of some points, and the blocks there in order, the deepest point first."""
    points = curve.points[places]
    first = np.searchsorted(points, view.low[blocks])
    inside = np.flatnonzero(first < points.size)
    inside = inside[points[first[inside]] <= view.high[blocks[inside]]]
    order = inside[np.argsort(first[inside], kind="stable")]
    parts = np.split(blocks[order], np.cumsum(np.bincount(first[inside], minlength=points.size))[:-1])
    depths = curve.depths[places]
    return [(int(depths[place]), parts[place]) for place in np.argsort(-depths, kind="stable").tolist()]
