"""How much a plan may rewrite, and which part of a list of drafts fits.

The planner applies the budget to the drafts of any policy (`affordable`). A policy may shrink its groups itself, to
keep their best part. It then asks a `Room` for what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.selector.draft import MOST_GROUPS, Draft, key_order, sort_id_of, worth_merging
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.table_view import TableView, joined


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a plan rewrites at most; None for no limit, and no more than `MOST_GROUPS` groups in any case.

    `target_depth` is an average depth, as `info` counts it: groups that are not needed to reach it are left out.
    `max_bytes` is never exceeded by the bytes of files that are decoded: a plan counts all bytes of the files that it
    reads, since which row groups can be copied undecoded is known only while merging. `max_seconds` and `max_cost` are
    of predictions (`pricing/`): no group is planned or begun that is expected to exceed them.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    max_bytes: int | None = option(
        default=None, unit="bytes", help="Most bytes of files that are decoded; --final: of all rounds."
    )
    max_blocks: int | None = option(default=None, unit="blocks", help="Most blocks that a round rewrites.")
    max_groups: int | None = option(default=None, unit="groups", help="Most groups of a round.")
    target_depth: float | None = option(
        default=None,
        unit="depth",
        help="Merge no more than brings the average depth of the table to this; nothing if it is there.",
        least=1,
    )
    max_seconds: float | None = option(
        default=None,
        unit="seconds",
        help="Begin no group that is expected to end later; --final: of all rounds.",
        above=0,
    )
    max_cost: float | None = option(
        default=None,
        unit="money",
        help="Begin no group that is expected to cost more than this; needs a price. --final: of all rounds.",
        above=0,
    )
    price_per_gib: float | None = option(
        default=None, unit="money", help="Price of a GiB of files that is read to be merged.", above=0
    )
    price_per_hour: float | None = option(
        default=None, unit="money", help="Price of an hour of all machines that merge.", above=0
    )

    def __post_init__(self) -> None:
        require_valid(self, price_problems(self))


def price_problems(asked: Any) -> list[str]:
    """Return what is wrong with the prices beside the limits of a budget, or of options with the same names."""
    if asked.max_cost is None or asked.price_per_gib is not None or asked.price_per_hour is not None:
        return []
    return ["max_cost needs price_per_gib or price_per_hour: without a price nothing costs anything"]


TYPICAL: Mapping[str, Callable[[TableView], tuple[int, str]]] = {
    "max_group_bytes": lambda view: _two(view.decoded_bytes, "take {} bytes of memory"),
    "max_bytes": lambda view: _two(view.size_bytes, "are {} bytes of files"),
    "max_blocks": lambda _: (2, "a group has at least 2 blocks"),
}
"""By each rule of a `Room`: the least limit that holds two blocks of average size, and a text that says so."""


def _two(sizes: Integers, text: str) -> tuple[int, str]:
    size = round(2 * float(sizes.mean()))
    return size, f"two blocks of average size {text.format(size)}"


@dataclass(frozen=True, kw_only=True)
class Room:
    """What is left of a budget, and how much one group may hold.

    Attributes:
        group_bytes: decoded bytes of one group.
        size_bytes: bytes of files for all further groups.
        blocks, groups: number of further blocks and groups.
    """

    group_bytes: float = math.inf
    size_bytes: float = math.inf
    blocks: float = math.inf
    groups: int = MOST_GROUPS

    @classmethod
    def of(cls, budget: Budget, *, group_bytes: int | None = None) -> Room:
        """Return the room at the start of a plan; None for groups of any size."""
        return cls(
            group_bytes=_or_endless(group_bytes),
            size_bytes=_or_endless(budget.max_bytes),
            blocks=_or_endless(budget.max_blocks),
            groups=MOST_GROUPS if budget.max_groups is None else min(budget.max_groups, MOST_GROUPS),
        )

    def after(self, view: TableView, groups: Sequence[Integers]) -> Room:
        """Return what is left after some groups are taken."""
        taken = joined(groups)
        return replace(
            self,
            size_bytes=self.size_bytes - int(view.size_bytes[taken].sum()),
            blocks=self.blocks - taken.size,
            groups=self.groups - len(groups),
        )

    @property
    def spent(self) -> str:
        """The rule that leaves no room for another group; "" if there is room."""
        if self.groups <= 0:
            return "max_groups"
        if self.size_bytes <= 0:
            return "max_bytes"
        return "max_blocks" if self.blocks <= 0 else ""

    def fitting(self, view: TableView, order: Integers) -> tuple[int, str]:
        """Return how many blocks from the start of `order` fit into one group, and the rule that the next one breaks.

        The rule is "" if all of them fit. O(n).
        """
        if self._holds_all(view, order):
            return order.size, ""
        sums = (
            ("max_group_bytes", np.cumsum(view.decoded_bytes[order]), self.group_bytes),
            ("max_bytes", np.cumsum(view.size_bytes[order]), self.size_bytes),
            ("max_blocks", np.arange(1, order.size + 1), self.blocks),
        )
        counts = [(int(np.searchsorted(total, most, side="right")), rule) for rule, total, most in sums]
        count, rule = min(counts, key=lambda found: found[0])
        return (count, rule) if count < order.size else (count, "")

    def _holds_all(self, view: TableView, order: Integers) -> bool:
        return (
            order.size <= self.blocks
            and (self.size_bytes == math.inf or int(view.size_bytes[order].sum()) <= self.size_bytes)
            and (self.group_bytes == math.inf or int(view.decoded_bytes[order].sum()) <= self.group_bytes)
        )

    def holds(self, view: TableView, groups: Sequence[Integers]) -> bool:
        """Return whether some groups fit together; the limit of each group's size is not checked."""
        left = self.after(view, groups)
        return min(left.size_bytes, left.blocks, left.groups) >= 0


def affordable(
    view: TableView, drafts: Sequence[Draft], budget: Budget
) -> tuple[list[Draft], dict[str, Integers]]:
    """Return the drafts that fit the budget, taken in order, and the blocks that do not fit, by the rule they break.

    A draft that fits in part is cut: as many of its first blocks as fit are taken, if merging these changes anything.
    """
    room = Room.of(budget)
    if room.holds(view, [draft.blocks for draft in drafts]):
        return list(drafts), {}
    taken: list[Draft] = []
    left: dict[str, list[Integers]] = {}
    for number, draft in enumerate(drafts):
        if room.spent:
            left.setdefault(room.spent, []).extend(rest.blocks for rest in drafts[number:])
            break
        count, rule = room.fitting(view, draft.blocks)
        parts = [draft] if not rule else cut_draft(view, draft, count, rule, room.groups)
        taken += parts
        room = room.after(view, [part.blocks for part in parts])
        if rule:
            kept = joined(part.blocks for part in parts)
            left.setdefault(rule, []).append(np.setdiff1d(draft.blocks, kept, assume_unique=True))
    return taken, {rule: joined(blocks) for rule, blocks in left.items()}


def cut_draft(view: TableView, draft: Draft, count: int, rule: str, most: int) -> list[Draft]:
    """Return what is worth merging of the first `count` blocks of a draft, as at most `most` drafts.

    With another sort than the current one that is all of them: what is known of their keys says nothing about it.
    """
    first = draft.blocks[:count]
    if sort_id_of(view, draft) == view.sort_id:
        parts = worth_merging(view, first, most=most)
    else:
        parts = [first] if first.size else []
    return [
        replace(draft, blocks=part, why=f"{draft.why}; {part.size} of {draft.blocks.size} blocks by {rule}")
        for part in parts
    ]


def split_in_key_order(view: TableView, chosen: Integers, room: Room) -> tuple[list[Integers], Integers, str]:
    """Return `chosen` cut into groups of neighbours by key, the blocks left over, and the rule they break, or "".

    Blocks of unknown range come last. A block that is too large for a group is left over, and the next ones are tried.
    """
    waiting = chosen[key_order(view, chosen, np.zeros(chosen.size, np.int64))]
    alone = view.decoded_bytes[waiting] > room.group_bytes
    too_large, waiting = waiting[alone], waiting[~alone]
    groups: list[Integers] = []
    rule = "max_group_bytes" if too_large.size else ""
    affordable_blocks, broken = replace(room, group_bytes=math.inf).fitting(view, waiting)
    decoded = np.concatenate(([0], np.cumsum(view.decoded_bytes[waiting])))
    start = 0
    while start < waiting.size:
        if len(groups) == room.groups or start == affordable_blocks:
            rule = "max_groups" if start < affordable_blocks else broken
            break
        fits = int(np.searchsorted(decoded, decoded[start] + room.group_bytes, side="right")) - 1
        end = min(fits, affordable_blocks)
        groups.append(waiting[start:end])
        start = end
    return groups, joined((too_large, waiting[start:])), rule


def _or_endless(limit: int | None) -> float:
    return math.inf if limit is None else limit
