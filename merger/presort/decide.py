"""Which rows are read once and sorted, and portioned out to the merge tasks that take them (`portions.py` does it).

These are of blocks in another order, and of blocks in key order that are too many to be merged as they are read
(`round/cuts.py`). Merge tasks of a group say which rows of a block they take by where these are in its sorted order.
So of the rows that a sort task sorts together each merge task takes one stretch: its portion.

How blocks are sorted together changes no output: rows with equal keys keep the order of the group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tblctl.merger.task.spec import MergeTask, Slice
from tblctl.tableformat.model.cluster_key import Sort

SORT_SHARE = 6
"""What a thread sorts at once takes so much of a task's memory, up to three times: as read, as sorted, a column, pages.
Two threads of a task may do so. Fewer and larger portions are merged faster: each is read piece by piece."""

_MOST_SORT_BYTES = 1 << 28
"""But no more than that: Spark carries portions of at most 2 GiB."""

_EVEN_SORTS = 4
_LEAST_SORT_SHARE = 32
"""Less is sorted at once, down to such a part of the memory, where there were fewer sort tasks than so many for each
merge task: processors would wait for the last ones."""

ORDER_BYTES = 24
"""What ordering takes a row, beside its key."""

_DECODINGS_ALONE = 1.2
"""Of rows that are portioned out, at most, by tasks that sort for themselves. What is not decoded again is worth the
wait for the last of what is sorted together."""

_MOST_TOGETHER = 16
"""Neighbours that one worker runs take so many times a task's memory at most, decoded: they lie in its scratch folder
together, and are lost with it."""

_PIECES_SHARE = 8
"""One piece of every portion that a merge task reads takes so much of its memory."""

_LEAST_PIECE_BYTES = 1 << 14


@dataclass(frozen=True, kw_only=True)
class Taker:
    """The merge task `number` takes the rows `start` to `stop` of those of a sort task, counted in key order."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class SortTask:
    """Rows of blocks that are read and sorted together.

    Attributes:
        group: their number in the plan.
        place: of the first of them in the group, which the others follow.
        slices: what is read of blocks: one, or as many as may be sorted at once.
        takers: the merge tasks that take rows of them, in key order.
        sort: the order.
        sort_bytes: how much is sorted at once.
        piece_bytes: the size of the pieces that portions are stored in.
    """

    group: int
    place: int
    slices: tuple[Slice, ...]
    takers: tuple[Taker, ...]
    sort: Sort
    sort_bytes: int
    piece_bytes: int

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"group {self.group}, sorting {self.slices[0].block.path}"

    @property
    def decoded_bytes(self) -> int:
        """About what the blocks' rows take in memory."""
        return sum(map(decoded_bytes, self.slices))


def units(tasks: Iterable[MergeTask], *, group_rows: int) -> Iterator[tuple[MergeTask, ...]]:
    """Yield the tasks that are run as one: those of a group that had better sort together what they take, or else one.

    Args:
        tasks: of groups, all tasks of one after the other.
        group_rows: the most rows of a row group.
    """
    sharing: list[MergeTask] = []
    for task in tasks:
        if task.is_streamed:
            yield (task,)
            continue
        sharing.append(task)
        if len(sharing) < task.sharing:
            continue
        alone = [(one,) for one in sharing]
        yield from [tuple(sharing)] if decodings(alone, group_rows) > _DECODINGS_ALONE else alone
        sharing = []
    yield from ((one,) for one in sharing)


def neighbours(tasks: Sequence[MergeTask], workers: int) -> list[tuple[MergeTask, ...]]:
    """Return a group's tasks in key order, parted for so many workers, or more where they would have too much."""
    tasks = sorted(tasks, key=lambda task: task.number)
    least = -(-portioned_bytes(tasks) // (_MOST_TOGETHER * tasks[0].memory_bytes))
    count = min(max(workers, least), len(tasks))
    ends = [-(-len(tasks) * number // count) for number in range(count + 1)]
    return [tuple(tasks[start:stop]) for start, stop in itertools.pairwise(ends)]


def decodings(shares: Iterable[Sequence[MergeTask]], group_rows: int) -> float:
    """Return how many times the rows that are portioned out are decoded, on average, if each share sorts its own."""
    once: dict[int, int] = {}
    decoded = 0
    for tasks in shares:
        read = _read_together(tasks)
        for item in read.values():
            if not item.is_streamed:
                once[item.place] = item.block.row_count
                decoded += min(item.stop - item.start + group_rows, item.block.row_count)
    return decoded / max(sum(once.values()), 1)


def _read_together(tasks: Iterable[MergeTask]) -> dict[int, Slice]:
    """Return what must be read of each block to have the rows that neighbouring tasks, in key order, take of it."""
    read: dict[int, Slice] = {}
    for task in tasks:
        for item in task.slices:
            first = read.get(item.place)
            read[item.place] = _to_read(item if first is None else replace(item, start=first.start))
    return read


def sort_tasks(tasks: Sequence[MergeTask]) -> tuple[SortTask, ...]:
    """Return what sorts the rows that are portioned out to some neighbouring tasks of a group.

    Neighbours in the group are sorted together, as many as fit, so that many small blocks become few portions.
    """
    tasks = sorted(tasks, key=lambda task: task.number)
    read = _read_together(tasks)
    if not read:
        return ()
    portioned = [item for item in read.values() if not item.is_streamed]
    sort_bytes = _sort_bytes(tasks[0].memory_bytes, sum(map(decoded_bytes, portioned)), len(tasks))
    together = list(_together([read[place] for place in sorted(read)], sort_bytes))
    firsts: dict[int, int] = {}
    for task in tasks:
        for item in task.slices:
            firsts.setdefault(item.place, item.start)
    mine = {item.place: number for number, some in enumerate(together) for item in some}
    takers: list[list[Taker]] = [[] for _ in together]
    ends = [sum(firsts[item.place] - item.start for item in some) for some in together]
    for task in tasks:
        counts: dict[int, int] = {}
        for item in task.slices:
            if not item.is_streamed:
                counts[mine[item.place]] = counts.get(mine[item.place], 0) + item.stop - item.start
        for number, count in counts.items():
            takers[number].append(Taker(number=task.number, start=ends[number], stop=ends[number] + count))
            ends[number] += count
    sizes = [sum(map(decoded_bytes, some)) for some in together]
    parts = len(read) - len(portioned) + sum(-(-size // sort_bytes) for size in sizes)
    return tuple(
        SortTask(
            group=tasks[0].group,
            place=some[0].place,
            slices=tuple(some),
            takers=tuple(takers[number]),
            sort=tasks[0].sort,
            sort_bytes=sort_bytes,
            piece_bytes=_piece_bytes(parts, tasks[0].memory_bytes),
        )
        for number, some in enumerate(together)
    )


def _to_read(part: Slice) -> Slice:
    """Return what must be read of a block to have some of its rows."""
    return part if part.is_ordered else replace(part, start=0, stop=part.block.row_count)


def decoded_bytes(part: Slice) -> int:
    """Return about what the rows of a slice take in memory, and their order."""
    rows = part.stop - part.start
    return part.block.decoded_bytes * rows // part.block.row_count + ORDER_BYTES * rows


def portioned_bytes(tasks: Iterable[MergeTask]) -> int:
    """Return about what the rows that are portioned out to some tasks take in memory, and their order."""
    return sum(decoded_bytes(item) for task in tasks for item in task.slices if not item.is_streamed)


def shared_piece_bytes(sizes: Sequence[int], memory_bytes: int, tasks: int) -> int:
    """Return the size of the pieces that portions are stored in, where blocks of such decoded sizes are all sorted."""
    total_bytes = sum(sizes)
    return _piece_bytes(-(-total_bytes // _sort_bytes(memory_bytes, total_bytes, tasks)), memory_bytes)


def _piece_bytes(parts: int, memory_bytes: int) -> int:
    """Return the size of the pieces that portions are stored in, for tasks that merge so many parts each."""
    return max(_LEAST_PIECE_BYTES, memory_bytes // _PIECES_SHARE // max(parts, 1))


def _sort_bytes(memory_bytes: int, total_bytes: int, tasks: int) -> int:
    """Return how much is sorted at once, of so much that so many merge tasks take rows of."""
    most = min(memory_bytes // SORT_SHARE, _MOST_SORT_BYTES)
    least = memory_bytes // _LEAST_SORT_SHARE
    return max(1, min(most, max(least, total_bytes // (_EVEN_SORTS * tasks))))


def _together(slices: Sequence[Slice], most_bytes: int) -> Iterator[list[Slice]]:
    """Yield the slices to portion out in lists of neighbours of at most so many bytes, or of one."""
    some: list[Slice] = []
    size = 0
    for item in slices:
        is_full = size + decoded_bytes(item) > most_bytes
        if some and (item.is_streamed or is_full):
            yield some
            some, size = [], 0
        if not item.is_streamed:
            some.append(item)
            size += decoded_bytes(item)
    if some:
        yield some
