"""Decide which rows are sorted before tasks merge them, which tasks do so together, and how much at a time.

Pure. Rows of a block in key order are best merged as they are read. Three kinds of blocks are presorted instead:

- blocks in another order;
- blocks in key order that tasks cannot stream well: very many small ones, or more at one place of the key order than
  memory or file handles allow;
- blocks in key order that many tasks take rows of: each task would decode the row groups at its ends again.

A presorted row is decoded once, sorted, and passed to its merge task (`portions.py`). Each task presorts for itself if
rows are then decoded little more than once. Otherwise tasks presort together, so that rows are not decoded again.

Nothing here changes what is written: rows with equal keys keep the order of the group.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.merger.task.spec import InputSplit, MergeTask


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits for the sizes of blocks and of a task's memory. A `_divisor` d means memory_bytes // d.

    Attributes:
        keys_divisor: of a task's memory, for its keys and their order; more tasks are made until they fit.
        sampled_keys, sampled_key_bytes: keys of a group that are sampled to find its cuts, at most. A cut then lies
            within rows / 65,536 rows of a sample, and the samples take 32 MiB.
        key_piece_rows: keys in the spill folder are read back this many at a time.
        many_blocks, small_block_bytes: in a group of more blocks than the first, blocks of at most the second, decoded,
            are presorted. Sorting one takes 1 ms. Streaming one takes 5 ms in each task, for keys and for rows.
        repeated_decodings: a block that tasks would decode this many times is presorted. Presorting costs about as much
            as decoding it four times, and eight times where Spark carries the rows.
        useful_piece_bytes: blocks in key order are presorted only if pieces are at least as large: smaller ones take
            too long to read.
        read_divisor: of a task's memory, for rows that were read and wait; pages may take half as much.
        open_blocks: blocks that a task may have open at once; each takes a file handle.
        decodings_alone: rows that tasks would decode at most this many times on average are sorted by each task for
            itself. When tasks sort together, the first one waits until everything is sorted.
        decodings_by_worker: the same for Spark's workers that each sort the rows of their tasks. Sorting once for all
            costs a shuffle and one more stage. For 6 M unsorted rows of lineitem on local[2] that takes 19 to 23 s of
            processor time for 2, 4 or 8 tasks, 5 to 8 s of them the JVM's. If each task reads all blocks and sorts for
            itself, 2 tasks take 11 s, 4 take 15 s, and 8 take 20 to 21 s.
        share_memories: rows that one worker sorts for its tasks take at most this many times a task's memory, decoded:
            they are in the worker's spill folder, and are lost with it.
        sort_divisor: of a task's memory, for rows that one thread sorts at once. Sorting takes up to three times as
            much (rows as read, as sorted, a column, pages), and two threads of a task may sort.
        most_sort_bytes: most bytes that are sorted at once: Spark carries portions of at most 2 GiB.
        sorts_per_task, least_sort_divisor: fewer bytes are sorted at once, down to that part of the memory, until there
            are this many sort tasks for each merge task. With fewer, processors wait for the last ones.
        piece_divisor: of a task's memory, for one piece of every portion that it reads, together.
        least_piece_bytes: no piece is smaller.
        held_divisor: of a task's memory, for portions that stay in memory; more go to the spill folder.
        dictionary_divisor: text keeps its stored dictionaries while these together take at most that part of a piece:
            each piece has them whole.
        reader_bytes: memory for each block that is opened at once, if opening waits for a network.
    """

    keys_divisor: int = 4
    sampled_keys: int = 65_536
    sampled_key_bytes: int = 32 << 20
    key_piece_rows: int = 65_536
    many_blocks: int = 256
    small_block_bytes: int = 1 << 20
    repeated_decodings: int = 8
    useful_piece_bytes: int = 1 << 16
    read_divisor: int = 4
    open_blocks: int = 256
    decodings_alone: float = 1.2
    decodings_by_worker: float = 8.0
    share_memories: int = 16
    sort_divisor: int = 6
    most_sort_bytes: int = 1 << 28
    sorts_per_task: int = 4
    least_sort_divisor: int = 32
    piece_divisor: int = 8
    least_piece_bytes: int = 1 << 14
    held_divisor: int = 4
    dictionary_divisor: int = 16
    reader_bytes: int = 64 << 20

    def sort_bytes(self, memory_bytes: int, total_bytes: int, tasks: int) -> int:
        """Return how much is sorted at once, of `total_bytes` that `tasks` merge tasks take rows of."""
        most = min(memory_bytes // self.sort_divisor, self.most_sort_bytes)
        even = total_bytes // (self.sorts_per_task * tasks)
        return max(1, min(most, max(memory_bytes // self.least_sort_divisor, even)))

    def piece_bytes(self, memory_bytes: int, inputs: int) -> int:
        """Return the size of the pieces that portions are stored in, for tasks that merge `inputs` inputs each."""
        return max(self.least_piece_bytes, memory_bytes // self.piece_divisor // max(inputs, 1))


THRESHOLDS = Thresholds()


# -- which blocks in key order are presorted ---------------------------------------------------------------------------


def presort_many_small(splits: Sequence[InputSplit], thresholds: Thresholds) -> Sequence[InputSplit]:
    """Return the splits; in a group of very many blocks the small ones are presorted."""
    if len(splits) <= thresholds.many_blocks:
        return splits
    return [
        replace(item, is_presorted=True) if item.block.decoded_bytes <= thresholds.small_block_bytes else item
        for item in splits
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Spans:
    """Where each block has rows in a group's key order, counted in samples of all blocks' keys.

    Attributes:
        first, last: the number of each block's first sample and of its last one.
        own: how many samples are the block's own.
    """

    first: np.ndarray
    last: np.ndarray
    own: np.ndarray

    @property
    def sparseness(self) -> np.ndarray:
        """How many samples lie in each block's span for one of its own."""
        return np.asarray((self.last - self.first + 1) / self.own)

    def changes(self, values: np.ndarray) -> np.ndarray:
        """Return for each sample the sum of `values` of the blocks whose span it lies in."""
        steps = np.zeros(int(self.last.max()) + 2)
        np.add.at(steps, self.first, values)
        np.subtract.at(steps, self.last + 1, values)
        return np.cumsum(steps)[:-1]


def presort_unstreamable(
    splits: Sequence[InputSplit],
    bounds: np.ndarray,
    spans: Callable[[], Spans],
    *,
    group_rows: Sequence[int],
    memory_bytes: int,
    thresholds: Thresholds,
) -> Sequence[InputSplit]:
    """Return the splits. Blocks in key order that tasks cannot stream well are marked as presorted.

    Args:
        splits: all rows of each block.
        bounds: how many rows of each block (columns) lie before each task, and in the end (rows).
        spans: called only if the streamed blocks together exceed memory or file handles.
        group_rows: the most rows of a row group of each block.
        memory_bytes: of a task.
        thresholds: to compare with.
    """
    tasks = len(bounds) - 1
    total_bytes = sum(item.block.decoded_bytes for item in splits)
    sorts = -(-total_bytes // thresholds.sort_bytes(memory_bytes, total_bytes, tasks))
    if thresholds.piece_bytes(memory_bytes, sorts) < thresholds.useful_piece_bytes:
        return splits
    most_rows = np.array(group_rows)
    row_groups = -(-bounds[-1] // most_rows)
    decoded = _row_groups_decoded(bounds, most_rows)
    presorted = decoded >= thresholds.repeated_decodings * row_groups
    held = np.array([_held_bytes(*pair) for pair in zip(splits, group_rows, strict=True)])
    most_bytes = memory_bytes // thresholds.read_divisor
    if held.sum() > most_bytes or np.count_nonzero(held) > thresholds.open_blocks:
        presorted |= crowded(spans(), held, most_bytes=most_bytes, most_open=thresholds.open_blocks)
    return [
        replace(item, is_presorted=True) if one else item
        for item, one in zip(splits, presorted.tolist(), strict=True)
    ]


def _row_groups_decoded(bounds: np.ndarray, group_rows: int | np.ndarray) -> np.ndarray:
    """Return how many row groups of each block the tasks decode in all."""
    start, stop = bounds[:-1], bounds[1:]
    touched = -(-stop // group_rows) - start // group_rows
    return np.asarray(np.where(start < stop, touched, 0).sum(axis=0))


def _held_bytes(split: InputSplit, group_rows: int) -> float:
    """Return about what one row group of a block takes in memory, if it is streamed."""
    if not split.is_streamed:
        return 0.0
    return split.block.decoded_bytes * min(1.0, group_rows / split.block.row_count)


def crowded(spans: Spans, held_bytes: np.ndarray, *, most_bytes: int, most_open: int) -> np.ndarray:
    """Return which blocks not to stream, so that the others fit at every place of the key order.

    At a place, the blocks whose span contains it are open. They fit if there are at most `most_open`, and they hold at
    most `most_bytes`. The sparsest blocks are left out first: they overlap most others for the fewest rows. Blocks at
    least half as sparse as the last necessary one are left out too. O(samples x log blocks).

    Args:
        spans: of all blocks.
        held_bytes: memory of each while it is open; 0 for a block that is not streamed anyway.
        most_bytes: see above.
        most_open: see above.
    """

    def overfull(held: np.ndarray) -> np.ndarray:
        return (spans.changes(held) > most_bytes) | (spans.changes(held > 0) > most_open)

    overfull_before = np.cumsum([0, *overfull(held_bytes)])
    is_candidate = (overfull_before[spans.last + 1] > overfull_before[spans.first]) & (held_bytes > 0)
    candidates = np.flatnonzero(is_candidate)
    left_out = np.zeros(len(held_bytes), dtype=bool)
    if not len(candidates):
        return left_out
    sparseness = spans.sparseness
    sparsest_first = candidates[np.argsort(-sparseness[candidates], kind="stable")]

    def fits_without(count: int) -> bool:
        rest = held_bytes.copy()
        rest[sparsest_first[:count]] = 0
        return not overfull(rest).any()

    last = bisect.bisect_left(range(1, len(candidates)), 1, key=fits_without)
    left_out[candidates[sparseness[candidates] >= sparseness[sparsest_first[last]] / 2]] = True
    return left_out


# -- which tasks sort together -----------------------------------------------------------------------------------------


def units(
    tasks: Iterable[MergeTask], *, group_rows: int, thresholds: Thresholds
) -> Iterator[tuple[MergeTask, ...]]:
    """Yield the units of tasks: one task, or the tasks of a group that sort their rows together.

    Args:
        tasks: of groups, one group after the other; of a group that is given up, maybe only the first ones.
        group_rows: the most rows of a row group.
        thresholds: to compare with.
    """
    waiting: list[MergeTask] = []  # the tasks of one group that take presorted rows
    for task in tasks:
        if task.is_streamed:
            yield (task,)
            continue
        if waiting and waiting[0].group != task.group:  # the others of that group are not wanted any more
            yield from ((one,) for one in waiting)
            waiting = []
        waiting.append(task)
        if len(waiting) == task.presorted_tasks:
            alone = [(one,) for one in waiting]
            together = decodings(alone, group_rows) > thresholds.decodings_alone
            yield from [tuple(waiting)] if together else alone
            waiting = []
    yield from ((one,) for one in waiting)


def deal(tasks: Sequence[MergeTask], workers: int, thresholds: Thresholds) -> list[tuple[MergeTask, ...]]:
    """Return the share of each worker: neighbouring tasks of a group. There are more shares if one is too large."""
    tasks = sorted(tasks, key=lambda task: task.number)
    total_bytes = sum(task.presorted_bytes for task in tasks)
    least = -(-total_bytes // (thresholds.share_memories * tasks[0].memory_bytes))
    count = min(max(workers, least), len(tasks))
    ends = [-(-len(tasks) * number // count) for number in range(count + 1)]
    return [tuple(tasks[start:stop]) for start, stop in itertools.pairwise(ends)]


def decodings(shares: Iterable[Sequence[MergeTask]], group_rows: int) -> float:
    """Return how many times a presorted row is decoded, on average, if each share sorts the rows of its tasks."""
    once: dict[int, int] = {}
    decoded = 0
    for tasks in shares:
        for item in read_together(tasks).values():
            if not item.is_streamed:
                once[item.place] = item.block.row_count
                decoded += min(item.rows + group_rows, item.block.row_count)
    return decoded / max(sum(once.values()), 1)


def read_together(tasks: Iterable[MergeTask]) -> dict[int, InputSplit]:
    """Return the split of each block, by its place, that must be read for neighbouring tasks.

    For a block in key order it reaches from the first task's first row to the last task's last one. Any other block is
    read whole.
    """
    read: dict[int, InputSplit] = {}
    for task in tasks:
        for item in task.splits:
            if not item.is_ordered:
                read[item.place] = replace(item, start=0, stop=item.block.row_count)
            elif item.place in read:
                read[item.place] = replace(item, start=read[item.place].start)
            else:
                read[item.place] = item
    return read
