"""Policy `size`: stitch small blocks, whatever their keys. Hudi's size-based plan, and Iceberg's binpack.

It trades bytes rewritten against the number of files. Depth is not looked at: a table of full blocks that all overlap
is left alone. The rule comes from Apache Hudi (`SparkSizeBasedClusteringPlanStrategy`: small-file limit, target size,
bytes of a group) and Apache Iceberg (`rewrite_data_files`, strategy binpack: least number of inputs). Both write the
last, partly filled file again with every run. Two rules here keep that from happening:

- *Filled groups* are those whose every output is no longer small. Their rows are written once, and for the last time.
- What does not fill a block may be stitched to *one* block that is still small, if that is at least `GROWTH` times as
  large as the largest of its inputs. So the block of a row grows by half with each rewrite: from 1,000 rows to a full
  block of 1,000,000 in at most 18 rewrites. (From a single row it is half full when it reaches `MOST_LEVEL`.) In return
  a partition keeps some small blocks, whose sizes grow by half at least: 18 in this example.

Termination: every group takes k >= 2 small blocks. A block is small below `FULL_SHARE` of what it could hold. So a
filled group of n outputs, each at least that, has k > n; the other kind has n = 1. The number of blocks falls with
every group, and never below 0. Where rows vary so much in width that more blocks come out than planned, levels still
end it (`draft.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.budget import Budget, Room
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.partition_filter import filter_problems, of_wanted_partitions
from tblctl.selector.policy import Decision, Rates, Rng, State, Workload
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import TableView, joined, others
from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.cut import ROOM

GROWTH = 1.5
"""A block that stays small is at least this many times as large as the largest that it is made of."""

SMALL_OF_TARGET = 0.75
"""With a target size, blocks below this share of it are small, as in Iceberg (`min-file-size-bytes`)."""

_ROUNDING = 1e-9
"""Sums of shares are this exact: six times 0.4 is 2.4 and a little more or less."""

GROUP_BYTES = 2 * 2**30
"""As in Hudi (`max.bytes.per.group`): about 16 full blocks."""


@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """The options of `size`.

    Attributes:
        small_file_bytes: blocks of fewer bytes on storage are small, if they fill less than 0.8 of what the table's
            options allow. None: all that fill less than that; with `target_file_bytes`, 0.75 of it.
        target_file_bytes: of what is written, on storage; each group then becomes one block. The table's own options
            bound it too. None: the table's options alone.
        min_input_files: a group that fills no block has at least so many blocks.
        max_group_bytes: most decoded bytes that are merged together.
        recent_days: K:N: only blocks whose rows are all of days from K days ago to N days ago (UTC).
        day_column: the column of those days.
        partitions: values and closed ranges, as a,b,m..p: only blocks whose rows are all in one of them.
        partition_regex: only blocks of one value whose whole text this matches.
        day_rolling: only blocks of one value whose place among all values, modulo 24, is the hour of now (UTC).
        partition_column: the column of those values.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    small_file_bytes: int | None = option(
        default=None,
        unit="bytes",
        help="Only blocks of fewer bytes on storage are stitched (default: those under 0.8 of a full block).",
    )
    target_file_bytes: int | None = option(
        default=None,
        unit="bytes",
        help="Stitch small blocks to blocks of up to this size on storage, where the table allows as much.",
    )
    min_input_files: int = option(
        default=2, unit="blocks", help="Least blocks to stitch where they do not fill one block.", least=2
    )
    max_group_bytes: int = option(
        default=GROUP_BYTES,
        unit="bytes",
        help="Most bytes in memory of the blocks that are merged together, such as 2GiB.",
    )

    recent_days: str | None = option(
        default=None, unit="k:n", help="Only blocks all of whose rows are from K to N days old (UTC)."
    )
    day_column: str | None = option(default=None, unit="column", help="The days of --recent-days.")
    partitions: str | None = option(
        default=None, unit="values", help="Only blocks all of whose rows have one of these values: a,b,m..p."
    )
    partition_regex: str | None = option(
        default=None, unit="pattern", help="Only blocks of a single value that this matches as a whole."
    )
    day_rolling: bool = option(
        default=False, unit="flag", help="Only the 24th part of all values whose turn it is this hour (UTC)."
    )
    partition_column: str | None = option(
        default=None, unit="column", help="The values of --partitions, --partition-regex and --day-rolling."
    )

    def __post_init__(self) -> None:
        small, target = self.small_file_bytes, self.target_file_bytes
        contradict = isinstance(small, int) and isinstance(target, int) and small > target
        text = (
            f"small_file_bytes {small} is above target_file_bytes {target}: what is stitched would stay small"
        )
        require_valid(self, [*((text,) if contradict else ()), *filter_problems(self)])


class Size:
    """Groups of small blocks, those that get rid of most blocks for their bytes first. O(n log n) for n blocks."""

    name = "size"
    options = SizeOptions
    summary = "stitches small blocks whatever their keys"

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: SizeOptions,
        *,
        workload: Workload = None,
        state: State = None,
        rates: Rates = None,
        now: float = 0.0,
        rng: Rng | None = None,
    ) -> Decision:
        """Return groups of small blocks of each partition, in the order in which the table lists them."""
        del workload, rates, rng
        packer = _Packer(view, options)
        may = view.selectable & ~view.in_other_sort
        wanted = of_wanted_partitions(view, options, now)
        allowed = may if wanted is None else may & wanted
        small = allowed & packer.is_small
        room = Room.of(budget, group_bytes=options.max_group_bytes)
        in_partitions = view.by_partition(np.flatnonzero(small))
        groups = [
            group
            for blocks in in_partitions
            for group in packer.packed(blocks, Room(group_bytes=room.group_bytes))
        ]
        taken, left = _affordable(packer, packer.most_gain_first(groups), room)
        waiting = others(np.flatnonzero(small), joined((*taken, *left.values())))
        reasons = (
            ("other_partition", np.flatnonzero(may & ~allowed), "of no partition that is asked for"),
            (
                "large_enough",
                np.flatnonzero(allowed & ~small),
                "large enough: only small blocks are stitched",
            ),
            ("too_few_small", waiting, _why_waiting(options)),
            *((rule, blocks, f"left for later by {rule}") for rule, blocks in left.items()),
        )
        found = [rejection(view, rule, blocks, why) for rule, blocks, why in reasons if blocks.size]
        return Decision(
            drafts=tuple(_draft(view, group) for group in taken),
            rejections=(*left_out(view, include_unclustered=True), *found),
            state=state,
        )


def _why_waiting(options: SizeOptions) -> str:
    return (
        "small, but they wait for others: together they fill no block, nor do "
        f"{options.min_input_files} or more of them make one {GROWTH:g} times as large as the largest"
    )


def _draft(view: TableView, group: Integers) -> Draft:
    why = f"{group.size} small blocks, {int(view.size_bytes[group].sum())} bytes together"
    return Draft(blocks=group, output_level=next_level(view, group), why=why)


def _affordable(
    packer: _Packer, groups: Sequence[Integers], room: Room
) -> tuple[list[Integers], dict[str, Integers]]:
    """Return the groups for which there is room, taken in order, and the blocks left over, by the rule.

    A group that fits in part is packed anew within the room, so that what is taken of it is worth its bytes, too.
    """
    view = packer.view
    if room.holds(view, groups):
        return list(groups), {}
    taken: list[Integers] = []
    left: dict[str, list[Integers]] = {}
    for number, group in enumerate(groups):
        if room.spent:
            left.setdefault(room.spent, []).extend(groups[number:])
            break
        rule = room.fitting(view, group)[1]
        parts = [group] if not rule else packer.packed(group, room)[:1]
        taken += parts
        room = room.after(view, parts)
        if rule:
            left.setdefault(rule, []).append(np.setdiff1d(group, joined(parts), assume_unique=True))
    return taken, {rule: joined(blocks) for rule, blocks in left.items()}


class _Packer:
    """Puts small blocks together.

    Sizes are in *blocks' worth*: a share of the rows and of the bytes that one output block holds; the larger counts.
    """

    def __init__(self, view: TableView, options: SizeOptions) -> None:
        self.view = view
        self._options = options
        target, small = options.target_file_bytes, options.small_file_bytes
        planned = np.maximum(view.decoded_bytes, view.row_count)  # at least one byte a row (`cut.most_rows`)
        shares = [
            view.row_count / view.table_options.block_rows,
            planned / (ROOM * view.table_options.block_bytes),
        ]
        self.is_small: Mask = np.maximum(*shares) < FULL_SHARE
        self._limit_bytes = math.inf
        if small is not None or target is not None:
            self._limit_bytes = small if small is not None else SMALL_OF_TARGET * (target or 0)
            self.is_small &= view.size_bytes < self._limit_bytes
        self._most_outputs = math.inf if target is None else 1
        self._shares = shares if target is None else [*shares, view.size_bytes / target]

    def packed(self, blocks: Integers, room: Room) -> list[Integers]:
        """Return groups of small blocks of one partition; each by itself fits `room`. O(n log n) for n blocks."""
        if blocks.size < 2:  # noqa: PLR2004 (one block has nothing to be stitched to)
            return []
        shares, sizes = self._sums(blocks)
        ends = self._ends(blocks, sizes, room)
        groups: list[Integers] = []
        left: list[int] = []
        start = 0
        while start < blocks.size - 1:
            end = int(ends[start])
            worth = np.maximum.reduce([share[start + 2 : end + 1] - share[start] for share in shares])
            filling = np.flatnonzero(self._fills(worth, sizes[start + 2 : end + 1] - sizes[start]))
            if filling.size:
                stop = start + 2 + int(filling[-1])
                groups.append(blocks[start:stop])
                start = stop
            elif end == blocks.size and worth[-1] <= 1 + _ROUNDING:
                break  # together they make one small block, so no part of them fills one
            else:
                left.append(start)
                start += 1
        rest = np.concatenate((blocks[np.array(left, np.int64)], blocks[start:]))
        return [*groups, *self._growing(rest, room)]

    def _ends(self, blocks: Integers, sizes: Integers, room: Room) -> Integers:
        """Return for every block the end of the largest group that begins with it and fits `room`."""
        begins = np.arange(blocks.size)
        decoded = np.append(0, np.cumsum(self.view.decoded_bytes[blocks]))
        ends: Integers = np.minimum(begins + room.blocks, blocks.size).astype(np.int64)
        for sums, most in ((decoded, room.group_bytes), (sizes, room.size_bytes)):
            if most < sums[-1]:
                fitting: Integers = np.searchsorted(sums, sums[:-1] + int(most), side="right") - 1
                ends = np.minimum(ends, fitting)
        return ends

    def _fills(self, worth: np.ndarray, size_bytes: np.ndarray) -> Mask:
        """Return which groups, of so many blocks' worth and bytes on storage, leave no small block."""
        count = np.maximum(np.ceil(worth - _ROUNDING), 1)
        large = (worth >= FULL_SHARE * count - _ROUNDING) | (size_bytes >= self._limit_bytes * count)
        found: Mask = large & (count <= self._most_outputs)
        return found

    def _growing(self, blocks: Integers, room: Room) -> list[Integers]:
        """Return the most of the smallest blocks that make one block `GROWTH` times as large as any of them."""
        own = np.maximum.reduce([share[blocks] for share in self._shares])
        order = np.argsort(own, kind="stable")
        order = order[: room.fitting(self.view, blocks[order])[0]]
        shares, sizes = self._sums(blocks[order])
        together = np.maximum.reduce([share[1:] for share in shares])
        enough = np.arange(1, order.size + 1) >= self._options.min_input_files
        found = np.flatnonzero(
            (together <= 1 + _ROUNDING)
            & (together >= GROWTH * own[order])
            & (enough | self._fills(together, sizes[1:]))
        )
        return [np.sort(blocks[order[: found[-1] + 1]])] if found.size else []

    def _sums(self, blocks: Integers) -> tuple[list[np.ndarray], Integers]:
        """Return the shares and the bytes on storage of the first 0, 1, 2, .. blocks."""
        shares = [np.append(0.0, np.cumsum(share[blocks])) for share in self._shares]
        return shares, np.append(0, np.cumsum(self.view.size_bytes[blocks]))

    def most_gain_first(self, groups: Sequence[Integers]) -> list[Integers]:
        """Return groups in order of the blocks that each gets rid of for each byte that it rewrites."""

        def gain(group: Integers) -> float:
            outputs = math.ceil(max(float(share[group].sum()) for share in self._shares) - _ROUNDING)
            return (group.size - outputs) / max(int(self.view.size_bytes[group].sum()), 1)

        return sorted(groups, key=gain, reverse=True)
