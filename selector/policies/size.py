"""Policy `size`: stitch small blocks, whatever their keys. Hudi's size-based plan, and Iceberg's binpack.

It trades bytes rewritten against the number of files. Depth is not looked at: a table of full blocks that all overlap
is left alone. The rule comes from Apache Hudi (`SparkSizeBasedClusteringPlanStrategy`: small-file limit, target size,
bytes of a group) and Apache Iceberg (`rewrite_data_files`, strategy binpack: least number of inputs). Both write the
last, partly filled file again with every run. Two rules here keep that from happening:

- *Filled groups* are those whose every output is no longer small. Their rows are written once, and for the last time;
  unless other writers take blocks of the group meanwhile, and it goes on without them (`goes_on_without`): its last
  output may then be small, and is stitched again.
- What does not fill a block may be stitched to *one* block that is still small, if that is at least `GROWTH` times as
  large as the largest of its inputs. So the block of a row grows by half with each rewrite: from 1,000 rows to a full
  block of 1,000,000 in at most 18 rewrites. (From a single row it is half full when it reaches `MOST_LEVEL`.) In return
  a partition keeps some small blocks, whose sizes grow by half at least: 18 in this example.

A block is also rewritten, alone if need be, where too many of its rows are marked deleted, or by too many files: these
are two triggers of binpack (`BinPackRewriteFilePlanner`). When blocks are put together, only rows that stay count. One
that is rewritten alone keeps its level (`draft.py`), so that is done however often its rows are deleted.

Keys do not matter to the choice, so it also works in tables without a cluster key: there rows stay as they come.

Termination: a stitched group takes k >= 2 small blocks. A block is small below `FULL_SHARE` of what it could hold. So a
filled group of n outputs, each at least that, has k > n; the other kind has n = 1. The number of blocks falls with
every such group. The number of pairs of a block and a file of deletes that applies to it does not rise: none applies to
what was just written. A block that is rewritten alone had such a pair. So this number falls, or else that of blocks; no
other group raises either, and neither falls below 0. Levels still end it (`draft.py`), of blocks in no order, too, if
k > n does not hold: if rows vary so much in width that more blocks come out than planned, or if a group goes on without
blocks that other writers took, and what is left of it makes as many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.budget import Budget, Room
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.partition_filter import filter_problems, of_wanted_partitions
from tblctl.selector.policies.shared_options import group_bytes
from tblctl.selector.policy import Decision, State
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import MOST_LEVEL, TableView, joined
from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.cluster_key import Sort
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
        sort_columns: terms by which what is stitched is sorted; None for the table's cluster key, or without one for
            rows as they come.
        delete_ratio_threshold: a block with this share of its rows marked deleted is rewritten, whatever its size.
        delete_file_threshold: a block to which so many files of deletes apply is rewritten; None for no limit.
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
    max_group_bytes: int = group_bytes(GROUP_BYTES)
    sort_columns: str | None = option(
        default=None,
        unit="columns",
        help="Sort what is stitched by these columns (a, b desc), not by the table's cluster key. Without both, rows "
        "stay as they come.",
    )
    delete_ratio_threshold: float = option(
        default=0.3,
        unit="share",
        help="Rewrite files, alone if need be, with at least this share of rows marked deleted (Iceberg). Position "
        "deletes of one data file are counted; data files share those of several by their rows.",
        above=0,
        most=1,
    )
    delete_file_threshold: int | None = option(
        default=None,
        unit="files",
        help="Rewrite files, alone if need be, to which at least so many files of position deletes apply (Iceberg).",
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
        blank = isinstance(self.sort_columns, str) and not self.sort_columns.strip()
        empty = "sort_columns is empty, expected columns such as 'a, b desc'"
        own = [*((text,) if contradict else ()), *((empty,) if blank else ())]
        require_valid(self, [*own, *filter_problems(self)])


class Size:
    """Groups of small blocks, those that get rid of most blocks for their bytes first. O(n log n) for n blocks."""

    name = "size"
    options = SizeOptions
    summary = "stitches small blocks whatever their keys"
    works_without_key = True

    def sort_terms(self, options: SizeOptions) -> str | None:
        """Return the terms by which groups are sorted."""
        return options.sort_columns

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: SizeOptions,
        *,
        state: State = None,
        now: float = 0.0,
        **_: object,
    ) -> Decision:
        """Return groups of small blocks of each partition, in the order in which the table lists them."""
        packer = _Packer(view, options)
        sort = None if view.asked_sort is None or view.asked_sort.id == view.sort_id else view.asked_sort
        sort_id = view.sort_id if sort is None else sort.id
        in_reach = ~view.in_other_sort | (view.sort_ids == sort_id)
        renewed = in_reach & packer.is_worn & view.renewable
        selectable = in_reach & view.selectable_for(sort_id)
        may = selectable | renewed
        wanted = of_wanted_partitions(view, options, now)
        allowed = may if wanted is None else may & wanted
        small, worn = allowed & selectable & packer.is_small, allowed & packer.is_worn
        room = Room.of(budget, group_bytes=options.max_group_bytes)
        in_partitions = view.by_partition(np.flatnonzero(small))
        groups = [
            group
            for blocks in in_partitions
            for group in packer.packed(blocks, Room(group_bytes=room.group_bytes))
        ]
        alone = np.setdiff1d(np.flatnonzero(worn), joined(groups), assume_unique=True)
        ordered = [*packer.most_gain_first(groups), *(alone[at : at + 1] for at in range(alone.size))]
        taken, left = _affordable(packer, ordered, room)
        found = np.setdiff1d(
            np.flatnonzero(small | worn), joined((*taken, *left.values())), assume_unique=True
        )
        short = packer.held_back(found, Room(group_bytes=room.group_bytes))
        reasons = (
            ("other_partition", np.flatnonzero(may & ~allowed), "of no partition that is asked for"),
            (
                "large_enough",
                np.flatnonzero(allowed & ~(small | worn)),
                "large enough: only small blocks are stitched",
            ),
            ("too_few_small", np.setdiff1d(found, short, assume_unique=True), _why_waiting(options)),
            ("max_group_bytes", short, "small, but max_group_bytes holds too few of them to stitch"),
            *((rule, blocks, f"left for later by {rule}") for rule, blocks in left.items()),
        )
        out = left_out(view, include_unclustered=True, admitted=renewed, sort_id=sort_id)
        rejections = [rejection(view, rule, blocks, why) for rule, blocks, why in reasons if blocks.size]
        return Decision(
            drafts=tuple(_draft(packer, group, sort) for group in taken),
            rejections=(*out, *rejections),
            state=state,
        )


def _why_waiting(options: SizeOptions) -> str:
    return (
        "small, but they wait for others: together they fill no block, nor do "
        f"{options.min_input_files} or more of them make one {GROWTH:g} times as large as the largest"
    )


def _draft(packer: _Packer, group: Integers, sort: Sort | None) -> Draft:
    view = packer.view
    why = f"{group.size} small blocks, {int(view.size_bytes[group].sum())} bytes together"
    worn = int(np.count_nonzero(packer.is_worn[group]))
    if worn:
        stored = int(view.row_count[group].sum())
        gone = stored - float((view.row_count * packer.kept)[group].sum())
        of = f"{worn} of {group.size} blocks" if group.size > 1 else "a block"
        why = f"{of} with too many deletes: of {stored} rows in all, about {gone:.0f} are deleted"
    level = next_level(view, group)
    if worn and group.size == 1:  # a file that is often deleted from is not to reach the last level by that
        level = min(max(level - 1, 1), MOST_LEVEL)
    return Draft(blocks=group, output_level=level, why=why, sort=sort)


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
        here = room if group.size > 1 else replace(room, group_bytes=math.inf)
        rule = here.fitting(view, group)[1]
        parts = [group] if not rule else packer.packed(group, room)[:1]
        taken += parts
        room = room.after(view, parts)
        if rule:
            left.setdefault(rule, []).append(np.setdiff1d(group, joined(parts), assume_unique=True))
    return taken, {rule: joined(blocks) for rule, blocks in left.items()}


def _deleted(view: TableView, options: SizeOptions) -> tuple[Mask, np.ndarray]:
    """Return which blocks have too many deletes, and which part of each block's rows counts."""
    found = view.deletions
    if found is None:
        return np.zeros(len(view), np.bool_), np.ones(len(view))
    share = found.rows / view.row_count
    worn: Mask = (found.files > 0) & (share >= options.delete_ratio_threshold)
    if options.delete_file_threshold is not None:
        worn |= found.files >= options.delete_file_threshold
    return worn, np.where(worn, 1.0 - share, 1.0)


class _Packer:
    """Puts small blocks together.

    Sizes are in *blocks' worth*: a share of the rows and of the bytes that one output block holds; the larger counts.

    `is_worn` are the blocks with too many deletes. `kept` is the part of each block's rows that counts: of these, about
    the part that is not deleted.
    """

    def __init__(self, view: TableView, options: SizeOptions) -> None:
        self.view = view
        self._options = options
        target, small = options.target_file_bytes, options.small_file_bytes
        self.is_worn, self.kept = _deleted(view, options)
        planned = np.maximum(view.decoded_bytes, view.row_count)  # at least one byte a row (`cut.most_rows`)
        shares = [
            self.kept * view.row_count / view.table_options.block_rows,
            self.kept * planned / (ROOM * view.table_options.block_bytes),
        ]
        self._kept_bytes = self.kept * view.size_bytes
        self.is_small: Mask = np.maximum(*shares) < FULL_SHARE
        self._limit_bytes = math.inf
        if small is not None or target is not None:
            self._limit_bytes = small if small is not None else SMALL_OF_TARGET * (target or 0)
            self.is_small &= self._kept_bytes < self._limit_bytes
        self._most_outputs = math.inf if target is None else 1
        self._shares = shares if target is None else [*shares, self._kept_bytes / target]

    def packed(self, blocks: Integers, room: Room) -> list[Integers]:
        """Return groups of small blocks of one partition; each by itself fits `room`. O(n log n) for n blocks."""
        if blocks.size < 2:  # noqa: PLR2004 (one block has nothing to be stitched to)
            return []
        shares, sizes = self._sums(blocks)
        ends = self._ends(blocks, room)
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

    def held_back(self, blocks: Integers, room: Room) -> Integers:
        """Return those of some blocks left over that a group of any size would stitch; none if all fit one group."""
        if int(self.view.decoded_bytes[blocks].sum()) <= room.group_bytes:
            return blocks[:0]
        return joined(group for part in self.view.by_partition(blocks) for group in self.packed(part, Room()))

    def _ends(self, blocks: Integers, room: Room) -> Integers:
        """Return for every block the end of the largest group that begins with it and fits `room`."""
        begins = np.arange(blocks.size)
        decoded, sizes = (
            np.append(0, np.cumsum(sizes[blocks]))
            for sizes in (self.view.decoded_bytes, self.view.size_bytes)
        )
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

    def _sums(self, blocks: Integers) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the shares and the bytes on storage of the rows that count in the first 0, 1, 2, .. blocks."""
        shares = [np.append(0.0, np.cumsum(share[blocks])) for share in self._shares]
        return shares, np.append(0.0, np.cumsum(self._kept_bytes[blocks]))

    def most_gain_first(self, groups: Sequence[Integers]) -> list[Integers]:
        """Return groups in order of the blocks that each gets rid of for each byte that it rewrites."""

        def gain(group: Integers) -> float:
            outputs = math.ceil(max(float(share[group].sum()) for share in self._shares) - _ROUNDING)
            return (group.size - outputs) / max(int(self.view.size_bytes[group].sum()), 1)

        return sorted(groups, key=gain, reverse=True)
