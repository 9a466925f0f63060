"""Policy `newdata`: new blocks are filled into cubes, in order of arrival; a full cube is never written again.

It trades depth, which grows by one with every cube, against bytes rewritten: no row of a full cube is. The rule is that
of Delta Lake's liquid clustering (ZCubes of 100 to 150 GiB, filled in the order of file ids, not by key
range). So two cubes may overlap wholly, and a point read meets a block of each: 10 TB are 70 to 100 deep.

A *cube* is not stored anywhere; it is read off the levels: all blocks of a partition that are in the order of the
current key and of one level from 1 on are its cubes of that level.

- They are *open* if together they have fewer bytes on storage than `cube_bytes`, else *full*.
- New data, blocks of level 0, is merged with what is open, up to `FILL` x `cube_bytes` a group; what is left begins the
  next cube. Blocks of full cubes are not selected. (In Delta, too, each run writes the open cube again: small appends
  are dear.)
- What becomes full gets the highest level of full cubes, if that is high enough, so that these share few levels. What
  stays open gets the lowest level that no full cube has. So an open cube takes part in some 30 merges. Then, or when
  its new level meets that of a full cube, it counts as full, with fewer bytes.

Blocks that are sorted already, those of one append or of appends by time, are not written again just to be in a cube:
they stay new, and are merged with the next ones that overlap them.

Termination: every group has a block of level 0, or of no order, and writes none. So the number of such blocks falls
with every group, and never below 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.selector.budget import Budget
from tblctl.selector.draft import MOST_GROUPS, Draft, counted_level, next_level, worth_merging
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.policies.shared_options import unclustered
from tblctl.selector.policy import Decision, State
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import MOST_LEVEL, TableView, joined, others

CUBE_BYTES = 100 * 2**30
"""As in Delta Lake (`clustering.minCubeSize`)."""

FILL = 1.5
"""A cube is filled up to this many times the size from which on it is full, as in Delta Lake (150 GiB): once merged, it
may take fewer bytes."""


@dataclass(frozen=True, kw_only=True)
class NewDataOptions:
    """The options of `newdata`.

    Attributes:
        cube_bytes: a cube of so many bytes on storage is full.
        include_unclustered: blocks that are not sorted by the current key count as new.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    cube_bytes: int = option(
        default=CUBE_BYTES,
        unit="bytes",
        help="Bytes on storage from which on a cube is full, and left alone (default: 100GiB).",
    )
    include_unclustered: bool = unclustered(default=False)

    def __post_init__(self) -> None:
        require_valid(self)


class NewData:
    """A group for each cube that new blocks fill, in the order of the table's list. O(n log n) for n blocks."""

    name = "newdata"
    options = NewDataOptions
    summary = "fills new blocks into cubes that are not written again"

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: NewDataOptions,
        *,
        state: State = None,
        **_: object,
    ) -> Decision:
        """Return the cubes that new blocks are filled into, those of each partition in order of arrival."""
        del budget
        include = options.include_unclustered
        own = ~view.in_other_sort & (include | ~view.unclustered)
        level = np.where(own, counted_level(view, np.arange(len(view))), 0)
        chosen = np.flatnonzero(own & view.selectable)
        drafts: list[Draft] = []
        full, idle = [], []
        for blocks in _with_new(view, chosen, level):
            open_, closed = _cubes(view, blocks, level, options.cube_bytes)
            found = _filled(view, blocks[level[blocks] == 0], open_, closed, options.cube_bytes)
            drafts += found
            taken = joined(draft.blocks for draft in found)
            full.append(closed)
            if closed.size + taken.size < blocks.size:
                idle.append(np.setdiff1d(blocks, np.concatenate((closed, taken)), assume_unique=True))
        quiet = others(chosen, np.sort(joined((*full, *idle, *(draft.blocks for draft in drafts)))))
        reasons = (
            ("full_cube", joined(full), "of a full cube: never written again"),
            ("no_gain", joined(idle), "in order already, or nothing new to merge them with"),
            ("no_new_data", quiet, "no new data in their partition"),
        )
        found_reasons = [rejection(view, rule, blocks, why) for rule, blocks, why in reasons if blocks.size]
        return Decision(
            drafts=tuple(drafts),
            rejections=(*left_out(view, include_unclustered=include), *found_reasons),
            state=state,
        )


def _with_new(view: TableView, chosen: Integers, level: Integers) -> list[Integers]:
    """Return the blocks of each partition that has new ones."""
    new = np.zeros(int(view.partition.max(initial=0)) + 1, np.bool_)
    new[view.partition[chosen[level[chosen] == 0]]] = True
    wanted = chosen[new[view.partition[chosen]]]
    return list(view.by_partition(wanted)) if wanted.size else []


def _cubes(view: TableView, blocks: Integers, level: Integers, cube_bytes: int) -> tuple[Integers, Integers]:
    """Return the blocks of open and of full cubes of a partition, given all of its blocks that may be selected."""
    merged = blocks[level[blocks] > 0]
    sizes = np.bincount(level[merged], view.size_bytes[merged])
    is_full = sizes[level[merged]] >= cube_bytes
    return merged[~is_full], merged[is_full]


def _filled(view: TableView, new: Integers, open_: Integers, full: Integers, cube_bytes: int) -> list[Draft]:
    """Return a draft for each cube of a partition that new blocks fill; at most `MOST_GROUPS`.

    New blocks come first in a draft, so that one that a budget cuts does not write an open cube again for nothing.
    """
    levels = set(view.level[full].tolist())
    sizes = np.append(0, np.cumsum(view.size_bytes[new]))
    drafts: list[Draft] = []
    start, beside = 0, open_
    while start < new.size and len(drafts) < MOST_GROUPS:
        begun = int(view.size_bytes[beside].sum())
        end = int(np.searchsorted(sizes, sizes[start] + FILL * cube_bytes - begun, side="right")) - 1
        end = min(max(end, start + 1), new.size)
        cube = np.concatenate((new[start:end], beside))
        parts = worth_merging(view, cube)
        is_full = begun + sizes[end] - sizes[start] >= cube_bytes and joined(parts[:1]).size == cube.size
        for part in parts:
            if not (counted_level(view, part) == 0).any():
                continue  # two small neighbours of the open cube: nothing new
            level = _level(next_level(view, part), levels, is_full=is_full)
            levels |= {level} if is_full else set()
            state = "full" if is_full else "open"
            why = f"{end - start} new blocks and {beside.size} of an open cube: a cube that is {state} then"
            drafts.append(Draft(blocks=part, output_level=level, why=why))
        start, beside = end, open_[:0]
    return drafts[:MOST_GROUPS]


def _level(least: int, full: set[int], *, is_full: bool) -> int:
    """Return the level of a cube, at least `least`, given the levels of full cubes of its partition."""
    if is_full:
        return max((level for level in full if level >= least), default=least)
    return next((level for level in range(least, MOST_LEVEL) if level not in full), least)
