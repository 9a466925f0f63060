"""Cut a group into tasks: each writes whole blocks, and together they write what one task would.

A task takes a range of the group's key order that starts where a block of the output does (`key_cuts.py` finds it).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.merger.cutting.key_cuts import KeyCuts, KeyEstimate, SplitKeys, estimate_keys
from tblctl.merger.presort.decide import (
    THRESHOLDS,
    Thresholds,
    presort_many_small,
    presort_unstreamable,
)
from tblctl.merger.presort.spill import SpillFolder
from tblctl.merger.task.spec import ORDER_BYTES, InputSplit, MergeTask
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import cut_rows, leaf_cuts, most_rows, slack_rows
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.tree import TREE
from tblctl.tableformat.port import BlockIO, Version

_NO_TASK = 0.05
"""A remainder of the load up to this share does not get a task of its own."""


_FILES_PER_TASK = 2

_READING_DIVISOR = 2
"""Part of a task's memory for the keys of blocks that are read at the same time."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The properties of a group's output blocks, and the memory of a task.

    `same_key_rows`: most rows that any key of the group has; None if unknown.
    """

    sort: Sort
    level: int
    run_id: str
    memory_bytes: int
    same_key_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class CutTask:
    """A group whose cuts between its merge tasks are to be found.

    Attributes:
        group: its number in the plan.
        splits: all rows of each of its blocks; at least one.
        output: of the merge.
        tasks: the desired number of merge tasks; there are fewer if there are fewer output blocks, and more if memory
            requires it.
    """

    group: int
    splits: tuple[InputSplit, ...]
    output: Output
    tasks: int

    @property
    def title(self) -> str:
        """Its name in errors."""
        return f"planning the tasks of group {self.group}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cuts:
    """Where a group is cut, and how its blocks are read: all that its merge tasks need besides its `CutTask`.

    Attributes:
        group: its number in the plan.
        firsts: the first output block of each task.
        bounds: how many rows of each block (columns) lie before each task, and in all (rows).
        is_ordered, is_presorted: of each block, as in `InputSplit`.
        rows: of each output block, if these end where leaves of a tree end; None if they are as planned.
    """

    group: int
    firsts: tuple[int, ...]
    bounds: np.ndarray
    is_ordered: tuple[bool, ...]
    is_presorted: tuple[bool, ...]
    rows: tuple[int, ...] | None = None


def whole_splits(version: Version, sort: Sort, blocks: Iterable[Block]) -> list[InputSplit]:
    """Return all rows of a group's blocks, given in its order; blocks without rows have no split."""
    return [
        InputSplit(
            block=block,
            place=place,
            start=0,
            stop=block.row_count,
            is_ordered=not sort.is_order or version.is_ordered(block, sort),
        )
        for place, block in enumerate(blocks)
        if block.row_count
    ]


def cut_into_tasks(
    io: BlockIO,
    group: int,
    splits: Sequence[InputSplit],
    output: Output,
    *,
    tasks: int,
    thresholds: Thresholds = THRESHOLDS,
) -> tuple[MergeTask, ...]:
    """Return the tasks that merge some whole blocks: `find_cuts` and `tasks_of` in one."""
    task = CutTask(group=group, splits=tuple(splits), output=output, tasks=tasks)
    return tasks_of(task, find_cuts(io, task, thresholds), io.options)


def reads_no_keys(io: BlockIO, task: CutTask, thresholds: Thresholds = THRESHOLDS) -> bool:
    """Return whether `find_cuts` certainly reads nothing: one task can hold all rows, or they stay as they come."""
    if not task.output.sort.is_order:
        return True
    decoded_bytes = sum(item.block.decoded_bytes for item in task.splits)
    blocks = _OutputBlocks.of(task, io.options)
    return (
        not _ends_at_leaves(io, task, blocks)
        and _needs_no_estimate(_with_whole_files(io, task, blocks), blocks, thresholds)
        and decoded_bytes <= task.output.memory_bytes // thresholds.read_divisor
        and len(task.splits) <= thresholds.open_blocks
    )


def find_cuts(io: BlockIO, task: CutTask, thresholds: Thresholds = THRESHOLDS) -> Cuts:
    """Return where a group is cut.

    Args:
        io: of the version that has its blocks.
        task: the group.
        thresholds: to compare sizes with.

    Keys are read only if there is more than one task, if more row groups may be needed at once than a task can hold, if
    it is not known whether blocks are in key order, and a few row groups of them are, or if blocks end at leaves.
    They are read once, except keys of large blocks in key order, which are not kept. Memory: 12 bytes for each sample,
    half of a task's memory for keys that are being read (or those of one block), and a quarter for other keys.

    Raises:
        CorruptTableError: a block is missing or damaged; named.
    """
    splits = presort_many_small(task.splits, thresholds)
    blocks = _OutputBlocks.of(task, io.options)
    task = _with_whole_files(io, task, blocks)
    output = task.output
    if not output.sort.is_order:
        return _cuts_as_listed(replace(task, splits=tuple(splits)), blocks, thresholds)
    key_memory_bytes = max(1, output.memory_bytes // thresholds.keys_divisor)
    expected = _expected_keys(io, task, blocks, thresholds)
    most_rows_held = key_memory_bytes / (expected.key_bytes + ORDER_BYTES)
    with SpillFolder() as folder:
        keys = SplitKeys(
            io,
            splits,
            output.sort,
            folder,
            most_bytes=key_memory_bytes,
            reading_bytes=output.memory_bytes // _READING_DIVISOR,
            key_bytes=expected.key_bytes,
            piece_rows=thresholds.key_piece_rows,
        )
        cuts = KeyCuts(keys, expected.key_bytes, thresholds)
        if _ends_at_leaves(io, task, blocks):
            blocks = blocks.cut_again(leaf_cuts(cuts.leaf_rows(), blocks.most))
        firsts = _first_blocks(cuts, blocks, task.tasks, most_rows_held)
        if len(firsts) == 1 and expected.may_be_sorted:  # otherwise the cuts read all keys
            keys.find_order()
        found = [cuts.rows_before(blocks.ranks[first], blocks.slack[first - 1]) for first in firsts[1:]]
        bounds = np.array([[item.start for item in splits], *found, [item.stop for item in splits]])
        splits = presort_unstreamable(
            keys.splits,
            bounds,
            cuts.spans,
            group_rows=[keys.group_rows(place, io.options.row_group_rows) for place in range(len(splits))],
            memory_bytes=output.memory_bytes,
            thresholds=thresholds,
        )
    return Cuts(
        group=task.group,
        firsts=tuple(firsts),
        bounds=bounds,
        is_ordered=tuple(item.is_ordered for item in splits),
        is_presorted=tuple(item.is_presorted for item in splits),
        rows=blocks.rows if _ends_at_leaves(io, task, blocks) else None,
    )


def _ends_at_leaves(io: BlockIO, task: CutTask, blocks: _OutputBlocks) -> bool:
    """Return whether blocks end where leaves of a tree end. Files that have a size do not."""
    return task.output.sort.kind == TREE and len(blocks.rows) > 1 and io.file_bytes is None


@dataclass(frozen=True, kw_only=True)
class _OutputBlocks:
    """The planned output blocks of a group.

    Attributes:
        rows: of each block.
        slack: for each cut between two blocks, how many rows it may move back.
        most: the most rows of a block.
    """

    rows: tuple[int, ...]
    slack: tuple[int, ...]
    most: int

    @classmethod
    def of(cls, task: CutTask, options: TableOptions) -> _OutputBlocks:
        """Return the output blocks for all rows of a group."""
        all_rows = sum(item.rows for item in task.splits)
        most = most_rows(options, sum(item.block.decoded_bytes for item in task.splits) / all_rows)
        rows = tuple(cut_rows(all_rows, most, task.output.same_key_rows))
        return cls(rows=rows, slack=tuple(slack_rows(rows, most)), most=most)

    def cut_again(self, rows: tuple[int, ...]) -> _OutputBlocks:
        """Return other blocks, whose cuts do not move."""
        return replace(self, rows=rows, slack=(0,) * (len(rows) - 1))

    @property
    def ranks(self) -> list[int]:
        """How many rows lie before each block, and in all."""
        return list(itertools.accumulate(self.rows, initial=0))


def _with_whole_files(io: BlockIO, task: CutTask, blocks: _OutputBlocks) -> CutTask:
    """Return the group with fewer tasks where the size of files counts: rows in order take less than planned.

    A task for each planned file would write small ones.
    """
    if io.file_bytes is None:
        return task
    return replace(task, tasks=min(task.tasks, max(1, len(blocks.rows) // _FILES_PER_TASK)))


def _needs_no_estimate(task: CutTask, blocks: _OutputBlocks, thresholds: Thresholds) -> bool:
    """Return whether nothing depends on the size of keys: there is one task, and whole rows fit the memory for keys."""
    decoded_bytes = sum(item.block.decoded_bytes + ORDER_BYTES * item.rows for item in task.splits)
    fits = decoded_bytes <= max(1, task.output.memory_bytes // thresholds.keys_divisor)
    return len(blocks.rows) == 1 or (task.tasks == 1 and fits)


def _expected_keys(io: BlockIO, task: CutTask, blocks: _OutputBlocks, thresholds: Thresholds) -> KeyEstimate:
    """Return what to expect of the keys. They are not read if nothing depends on it."""
    if not _needs_no_estimate(task, blocks, thresholds):
        return estimate_keys(io, task.splits, task.output.sort)
    rows = sum(item.rows for item in task.splits)
    decoded_bytes = sum(item.block.decoded_bytes for item in task.splits)
    return KeyEstimate(key_bytes=decoded_bytes / rows, may_be_sorted=False)


def _first_blocks(cuts: KeyCuts, blocks: _OutputBlocks, tasks: int, most_rows_held: float) -> list[int]:
    """Return the first block of each task.

    A block's load is its share of the bytes, so that `tasks` take equally long, or its share of the rows that a task
    can hold, if that is more.
    """
    count = _whole_waves(sum(blocks.rows) / most_rows_held, tasks)
    if not 1 < count < len(blocks.rows):
        return _shared_out(blocks.rows, count)
    sizes = cuts.bytes_between(blocks.ranks)
    even = max(sum(sizes), 1) / tasks
    loads = [max(size / even, rows / most_rows_held) for size, rows in zip(sizes, blocks.rows, strict=True)]
    least = (1 - _NO_TASK) * sum(loads)
    return _shared_out(loads, max(count, _whole_waves(least, tasks)))


def _cuts_as_listed(task: CutTask, blocks: _OutputBlocks, thresholds: Thresholds) -> Cuts:
    """Return the cuts of a group whose rows stay as they come: where each row goes follows from the sizes of blocks.

    So no key is read. A merge task still has a number for each of its rows in memory, and a key of one byte.
    """
    most_rows_held = max(1, task.output.memory_bytes // thresholds.keys_divisor // (1 + ORDER_BYTES))
    firsts = _shared_out(blocks.rows, _whole_waves(sum(blocks.rows) / most_rows_held, task.tasks))
    rows = np.array([item.rows for item in task.splits])
    begins = np.cumsum(rows) - rows
    places = np.array([blocks.ranks[first] for first in (*firsts, len(blocks.rows))])
    return Cuts(
        group=task.group,
        firsts=tuple(firsts),
        bounds=np.clip(places[:, None] - begins, 0, rows),
        is_ordered=tuple(item.is_ordered for item in task.splits),
        is_presorted=tuple(item.is_presorted for item in task.splits),
    )


def _whole_waves(least: float, tasks: int) -> int:
    """Return `least` rounded up to a multiple of `tasks`: all processors should end at about the same time."""
    return tasks * max(1, math.ceil(least / tasks))


def _shared_out(loads: Sequence[float], tasks: int) -> list[int]:
    """Return the first block of each of `tasks` tasks of about equal load, of one block each if there are fewer."""
    blocks, before = len(loads), list(itertools.accumulate(loads, initial=0.0))
    count = min(tasks, blocks)
    firsts = [0]
    for number in range(1, count):
        fewest, most = firsts[-1] + 1, blocks - count + number  # a block for each task
        even = before[-1] * number / count
        place = bisect.bisect_left(before, even, fewest, most)
        firsts.append(min(range(max(fewest, place - 1), place + 1), key=lambda at: abs(before[at] - even)))
    return firsts


def tasks_of(task: CutTask, cuts: Cuts, options: TableOptions) -> tuple[MergeTask, ...]:
    """Return the merge tasks of a group, given where it is cut. Pure.

    Args:
        task: the group.
        cuts: as found for it.
        options: of the table, with which they were found.
    """
    splits = [
        replace(item, is_ordered=is_ordered, is_presorted=is_presorted)
        for item, is_ordered, is_presorted in zip(
            task.splits, cuts.is_ordered, cuts.is_presorted, strict=True
        )
    ]
    output, blocks, bounds = task.output, _OutputBlocks.of(task, options), cuts.bounds
    if cuts.rows is not None:
        blocks = blocks.cut_again(cuts.rows)
    parts = [_parts(splits, start, stop) for start, stop in itertools.pairwise(bounds.tolist())]
    presorted_tasks = sum(not all(item.is_streamed for item in part) for part in parts)
    ranks = blocks.ranks
    made = []
    for number, (first, stop) in enumerate(itertools.pairwise([*cuts.firsts, len(blocks.rows)])):
        # The cuts at both ends of the task have moved back to where a key ends.
        ends = [int(bounds[number].sum()), *ranks[first + 1 : stop], int(bounds[number + 1].sum())]
        made.append(
            MergeTask(
                group=task.group,
                number=number,
                presorted_tasks=presorted_tasks,
                splits=parts[number],
                cuts=tuple(np.diff(ends).tolist()),
                slack=blocks.slack[first : stop - 1],
                sort=output.sort,
                level=output.level,
                run_id=output.run_id,
                memory_bytes=output.memory_bytes,
            )
        )
    return tuple(made)


def _parts(splits: Sequence[InputSplit], start: Sequence[int], stop: Sequence[int]) -> tuple[InputSplit, ...]:
    """Return the rows `start` to `stop` of each split that has some."""
    return tuple(
        replace(item, start=low, stop=high)
        for item, low, high in zip(splits, start, stop, strict=True)
        if low < high
    )
