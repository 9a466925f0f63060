"""Policy `runs`: merge the smaller ones of the runs that overlap where a table is deepest, until a target depth.

Two quantities are traded: rows rewritten, and the depth at which the table is kept. `runs_rule.py` has the rule, and
says where it comes from.

Rounds come to an end. A group is connected by overlaps, and at its place at least two of its blocks overlap. Call the
space between two neighbouring keys of a partition's rows a gap. Of the blocks of a group, each gap between its ends is
covered by one at least, some by several; of what they become, each by one at most. So the number of blocks that cover
a gap, added up over all gaps, falls with every group by one at least. It is a whole number, and merges bring no new
keys. No level is needed for that: blocks that were merged `MOST_LEVEL` times are taken too (`draft.lowers_coverage`).
It holds for bounds that are keys. Where any may be wider, blocks are taken below that level only, so that `draft.py`
proves the end. A group that exceeds a limit is cut, and only connected parts of it are taken, of two blocks at least.

Each partition is treated as a table of its own. All partitions share one budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.budget import Budget, Room, split_in_key_order
from tblctl.selector.connected import components
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import require_valid
from tblctl.selector.plan import Rejection
from tblctl.selector.policies.full import Full, FullOptions
from tblctl.selector.policies.runs_places import Places, separable
from tblctl.selector.policies.runs_rule import group_at
from tblctl.selector.policies.shared_options import group_bytes, unclustered
from tblctl.selector.policy import Alternative, Decision, State
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import MOST_LEVEL, TableView, joined, others

DEFAULT_TARGET_DEPTH = 5.0
"""Deeper tables are merged unless `target_depth` says otherwise. That rewrites rows about 3 times on uniform keys."""

_MOST_WORK = 4_000_000
"""Blocks looked at for one plan, over all places: half a second. A place counts its connected blocks, and 4,000 more
for what it takes in any case. What is left waits for the next plan, where a cluster is busy for longer than that."""

_WORK_OF_A_PLACE = 4_000


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """The options of `runs`. Its target is the budget's `target_depth`.

    Attributes:
        max_group_bytes: most decoded bytes that are merged together; None for no limit. A larger group is cut into
            neighbours by key, which leaves overlaps between these.
        include_unclustered: also select blocks that are not sorted by the current key, or of unknown range.
    """

    max_group_bytes: int | None = group_bytes(None)
    include_unclustered: bool = unclustered(default=False)

    def __post_init__(self) -> None:
        require_valid(self)


class Runs:
    """Groups of whole runs, or of neighbours, at the deepest places. O(n log n) for n blocks, and O(n) for each place.

    Blocks that are not sorted by the key, if selected, get a round of their own in their partition: no figure counts
    them until they are merged.
    """

    name = "runs"
    summary = "merges the smaller runs where the table is deepest, until --target-depth"
    options = RunsOptions
    lowers_depth = True

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: RunsOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return groups at the deepest places of partitions that are deeper than the target, until they reach it."""
        target = DEFAULT_TARGET_DEPTH if budget.target_depth is None else budget.target_depth
        found = _Found(view=view, room=Room.of(budget, group_bytes=options.max_group_bytes))
        if options.include_unclustered:
            _take_unordered(found)
        waiting = np.isin(view.partition, view.partition[found.unordered])
        places = Places.of(view, target, waiting)
        _take_deepest(found, places, target)
        return Decision(
            drafts=tuple(found.drafts),
            rejections=(*_left_out(found, waiting, options), *found.rejected, *_fine(found, places, target)),
            state=state,
            alternatives=() if found.drafts else (_everything(options),),
        )


@dataclass(kw_only=True)
class _Found:
    """The drafts found so far, and the room left: the only mutable state of planning.

    `left` are blocks that a limit leaves for later, `unordered` those whose order or range is not known, and that are
    selected.
    """

    view: TableView
    room: Room
    drafts: list[Draft] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    left: list[Integers] = field(default_factory=list)
    unordered: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    def take(self, parts: Sequence[Integers], why: str) -> None:
        for part in parts:
            level = min(next_level(self.view, part), MOST_LEVEL)
            self.drafts.append(Draft(blocks=part, output_level=level, why=why))
        self.room = self.room.after(self.view, parts)

    def leave(self, rule: str, blocks: Integers) -> None:
        if blocks.size:
            self.left.append(blocks)
            self.rejected.append(rejection(self.view, rule, blocks, f"left for later by {rule}"))


def _take_unordered(found: _Found) -> None:
    """Add blocks that are in no known order, neighbours by key together."""
    view = found.view
    unordered = view.selectable & ~view.in_other_sort & (view.unclustered | view.unknown)
    for blocks in view.by_partition(np.flatnonzero(unordered)) if unordered.any() else ():
        several = view.unclustered[blocks].any() or blocks.size > 1
        if not several:
            continue
        groups, rest, rule = split_in_key_order(view, blocks, found.room)
        kept = [group for group in groups if group.size > 1 or view.unclustered[group].any()]
        if len(kept) < len(groups):  # a limit left a block of unknown range alone
            groups, rest, rule = kept, others(blocks, joined(kept)), rule or "max_group_bytes"
        found.take(groups, "not sorted by the current key, or of unknown range: sorted in")
        found.leave(rule, rest)
        found.unordered = joined((found.unordered, blocks))


def _take_deepest(found: _Found, places: Places, target: float) -> None:
    """Add the groups at the deepest places, until the target is reached or the budget is spent."""
    work = 0
    while (place := places.deepest()) is not None:
        work += place.field.low.size + _WORK_OF_A_PLACE
        rule = found.room.spent or ("one_plan" if work > _MOST_WORK and found.drafts else "")
        if rule:
            found.leave(rule, joined((place.left(), places.left())))
            return
        group = group_at(place.field, place.gap)
        _take_group(found, place.numbers[group], f"{place.depth} runs overlap, more than {target:g}")
        places.close(place, group)


def _take_group(found: _Found, blocks: Integers, why: str) -> None:
    """Add a group, cut to the budget."""
    text = f"{why}; {blocks.size} blocks of the smaller ones"
    if not found.room.fitting(found.view, blocks)[1]:
        found.take([blocks], text)
        return
    groups, _, rule = split_in_key_order(found.view, blocks, found.room)
    parts = [part for group in groups for part in _connected(found.view, group)]
    kept, more = parts[: found.room.groups], parts[found.room.groups :]
    found.take(kept, text)
    found.leave("max_groups" if more else rule or "max_group_bytes", others(blocks, joined(kept)))


def _connected(view: TableView, blocks: Integers) -> list[Integers]:
    """Return the parts of blocks that overlaps connect, of two blocks at least."""
    number = components(view.low[blocks], view.high[blocks])
    order = np.argsort(number, kind="stable")
    parts = np.split(blocks[order], np.flatnonzero(np.diff(number[order])) + 1)
    return [part for part in parts if part.size > 1]


def _left_out(found: _Found, waiting: Mask, options: RunsOptions) -> list[Rejection]:
    """Return the blocks that the rule does not look at."""
    view, include = found.view, options.include_unclustered
    may_part = separable(view) & (view.low < view.high)
    rejections = left_out(view, include_unclustered=include, admitted=may_part)
    is_unordered = np.zeros(len(view), np.bool_)
    is_unordered[found.unordered] = True
    could = (view.selectable | may_part) & ~(view.unclustered | is_unordered)
    unknown, ordered = could & view.unknown, could & ~view.unknown & waiting
    if unknown.any():
        more = (
            "no other one is there to merge with" if include else "`tblctl recluster LOC --final` merges them"
        )
        rejections.append(rejection(view, "unknown", unknown, f"of unknown range: {more}"))
    if ordered.any():
        why = "left for later: blocks in no known order are sorted in first"
        rejections.append(rejection(view, "unordered_first", ordered, why))
    return rejections


def _fine(found: _Found, places: Places, target: float) -> list[Rejection]:
    """Return the blocks that need no merge, or that none would part."""
    taken = np.zeros(len(found.view), np.bool_)
    spared = places.spared()
    taken[joined((*found.left, spared, *(draft.blocks for draft in found.drafts)))] = True
    rejections = []
    if spared.size:
        why = f"not needed for the target depth {target:g}"
        rejections.append(rejection(found.view, "target_reached", spared, why))
    if places.fine.size:
        why = f"well clustered: average selection depth {places.fine_depth:g}, target {target:g}"
        rejections.append(
            rejection(
                found.view,
                "well_clustered",
                places.fine,
                why,
                average_selection_depth=places.fine_depth,
                threshold=target,
            )
        )
    if places.points.size:
        why = "of one key each, which no merge would part from others"
        rejections.append(rejection(found.view, "no_gain", places.points, why))
    shallow = places.shallow[~taken[places.shallow]]
    if shallow.size:
        why = f"where they lie, at most {target:g} of the blocks that may be merged overlap"
        rejections.append(rejection(found.view, "no_gain", shallow, why))
    return rejections


def _everything(options: RunsOptions) -> Alternative:
    asked = {"include_unclustered": True} if options.include_unclustered else {}
    return Alternative(policy=Full(), options=FullOptions(max_group_bytes=options.max_group_bytes, **asked))
