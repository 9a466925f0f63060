"""Policy `full`: everything that overlaps, in one sort. The baseline: the best clustering for the most work."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.selector.budget import Budget, Room, split_in_key_order
from tblctl.selector.draft import MOST_GROUPS, Draft, key_order, next_level
from tblctl.selector.option_fields import require_valid
from tblctl.selector.passing import worth_sorting
from tblctl.selector.policies.shared_options import group_bytes, unclustered
from tblctl.selector.policy import Decision, State
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import TableView, joined, others


@dataclass(frozen=True, kw_only=True)
class FullOptions:
    """The options of `full`.

    Attributes:
        max_group_bytes: most decoded bytes that are merged together; None for no limit.
        include_unclustered: also select blocks that are not sorted by the current key.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    max_group_bytes: int | None = group_bytes(None)
    include_unclustered: bool = unclustered(default=True)

    def __post_init__(self) -> None:
        require_valid(self)


class Full:
    """One group of all blocks that overlap or are small.

    Full blocks that overlap nothing pass through unwritten. Each stretch between them is a group (`passing.py`). If all
    blocks are one sorted run already, only neighbours that fit into one block are merged; each such block is a group.
    Unclustered blocks are included, unless the options say otherwise. So are, last of all, blocks of other writers that
    nothing else would merge: each is a group, which puts its rows in order. Full blocks of one key stay. A group that
    exceeds the limits is cut into neighbours by key. The overlap between these is left for another plan.
    """

    name = "full"
    options = FullOptions
    summary = "sorts everything that overlaps"

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: FullOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return groups of blocks that overlap or are small. O(n log n) for n blocks of one partition."""
        include = options.include_unclustered
        chosen = np.flatnonzero(view.selectable & ~view.in_other_sort & (include | ~view.unclustered))
        chosen = chosen[key_order(view, chosen, view.partition[chosen])]
        room = Room.of(budget, group_bytes=options.max_group_bytes)
        drafts: list[Draft] = []
        left: dict[str, list[Integers]] = {"no_gain": []}
        for in_order in view.by_partition(chosen):
            parts = worth_sorting(view, in_order, most=MOST_GROUPS + 1)
            left["no_gain"].append(others(in_order, joined(parts)))
            for part in parts:
                groups, rules = _within(view, part, room)
                drafts += [_draft(view, group, in_order) for group in groups]
                room = room.after(view, groups)
                for rule, rest in rules.items():
                    left.setdefault(rule, []).append(rest)
        if include:
            idle = joined(left.pop("no_gain"))
            lone = idle[view.unordered[idle]]
            taken, rules = _alone(view, lone, room)
            drafts += [_lone_draft(view, block) for block in taken.reshape(-1, 1)]
            for rule, rest in (("no_gain", others(idle, lone)), *rules.items()):
                left.setdefault(rule, []).append(rest)
        rejections = left_out(view, include_unclustered=include)
        rejections += [
            rejection(
                view, rule, blocks, _no_gain(view, blocks) if rule == "no_gain" else f"left out by {rule}"
            )
            for rule, some in left.items()
            if (blocks := joined(some)).size
        ]
        return Decision(drafts=tuple(drafts), rejections=tuple(rejections), state=state)


def _within(view: TableView, part: Integers, room: Room) -> tuple[list[Integers], dict[str, Integers]]:
    """Return the groups of a part for which there is room, and the blocks left over, by the rule."""
    if room.groups and not room.fitting(view, part)[1]:
        return [part], {}
    groups, rest, rule = split_in_key_order(view, part, room)
    worth: list[Integers] = []
    for group in groups:
        worth += worth_sorting(view, group, most=room.groups - len(worth) + 1)
        if len(worth) > room.groups:
            rule, worth = rule or "max_groups", worth[: room.groups]
            break
    idle = others(joined(groups), joined(worth))
    return worth, {rule or "max_group_bytes": joined((idle, rest))}


def _alone(view: TableView, blocks: Integers, room: Room) -> tuple[Integers, dict[str, Integers]]:
    """Return the blocks of which each may be a group, and those for which there is no room, by the rule. O(n)."""
    too_large = view.decoded_bytes[blocks] > room.group_bytes
    fit = blocks[~too_large]
    count, rule = replace(room, group_bytes=math.inf).fitting(view, fit)
    if count > room.groups:
        count, rule = room.groups, "max_groups"
    return fit[:count], {rule or "max_groups": fit[count:], "max_group_bytes": blocks[too_large]}


def _no_gain(view: TableView, blocks: Integers) -> str:
    """Return why blocks that are one run stay. Rows inside those of other writers may be in any order (Iceberg)."""
    unordered = int(np.count_nonzero(view.unordered[blocks]))
    if not unordered:
        return "merging would only write the same again: these blocks are in order already"
    return (
        "merging would make no key lie in fewer blocks: none of these overlaps or can be joined with another; in "
        f"{unordered:,} of them rows may be in another order than the key's: --include-unclustered sorts these, too"
    )


def _lone_draft(view: TableView, block: Integers) -> Draft:
    why = "overlaps nothing, but its rows may be in another order"
    return Draft(blocks=block, output_level=next_level(view, block), why=why)


def _draft(view: TableView, part: Integers, group: Integers) -> Draft:
    whole = part.size == group.size
    why = (
        f"all of {part.size} blocks in one sort"
        if whole
        else f"{part.size} neighbours that overlap, or fit into one block"
    )
    return Draft(blocks=part, output_level=next_level(view, part), why=why)
