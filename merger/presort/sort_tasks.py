"""Cut presorted rows into sort tasks, and find which rows of each sort task every merge task takes.

Pure. Merge tasks name rows of a block by their place in the block's sorted order. So each merge task takes a range of
the rows that one sort task sorts: its portion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tblctl.merger.presort.decide import THRESHOLDS, Thresholds, read_together
from tblctl.merger.task.spec import InputSplit, MergeTask
from tblctl.tableformat.model.cluster_key import Sort


@dataclass(frozen=True, kw_only=True)
class PortionRange:
    """The merge task `task` takes the rows `start` to `stop` of a sort task, counted in key order."""

    task: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class SortTask:
    """Rows of blocks that are read and sorted together.

    Attributes:
        group: their number in the plan.
        place: of the first block in the group; the others follow it.
        splits: the rows to read: of one block, or of as many as may be sorted at once.
        ranges: the portions of merge tasks, in key order.
        sort: the order.
        sort_bytes: bytes that are sorted at once.
        piece_bytes: the size of the pieces that portions are stored in.
    """

    group: int
    place: int
    splits: tuple[InputSplit, ...]
    ranges: tuple[PortionRange, ...]
    sort: Sort
    sort_bytes: int
    piece_bytes: int

    @property
    def title(self) -> str:
        """Its name in errors."""
        return f"group {self.group}, sorting {self.splits[0].block.path}"

    @property
    def sorting_bytes(self) -> int:
        """Approximate memory of the rows and their order."""
        return sum(item.sorting_bytes for item in self.splits)


def sort_tasks(tasks: Sequence[MergeTask], thresholds: Thresholds = THRESHOLDS) -> tuple[SortTask, ...]:
    """Return the sort tasks for the presorted rows of neighbouring tasks of a group.

    Neighbouring blocks are sorted together, as many as fit, so that many small blocks become few portions.
    """
    tasks = sorted(tasks, key=lambda task: task.number)
    read = [item for _, item in sorted(read_together(tasks).items())]
    if not read:
        return ()
    memory_bytes = tasks[0].memory_bytes
    total_bytes = sum(item.sorting_bytes for item in read if not item.is_streamed)
    sort_bytes = thresholds.sort_bytes(memory_bytes, total_bytes, len(tasks))
    batches = list(_batches(read, sort_bytes))
    streamed = sum(item.is_streamed for item in read)
    sorted_inputs = sum(-(-sum(item.sorting_bytes for item in batch) // sort_bytes) for batch in batches)
    piece_bytes = thresholds.piece_bytes(memory_bytes, streamed + sorted_inputs)
    takes = _takes(tasks)
    return tuple(
        SortTask(
            group=tasks[0].group,
            place=batch[0].place,
            splits=tuple(batch),
            ranges=tuple(_ranges(batch, takes)),
            sort=tasks[0].sort,
            sort_bytes=sort_bytes,
            piece_bytes=piece_bytes,
        )
        for batch in batches
    )


def _batches(splits: Iterable[InputSplit], most_bytes: int) -> Iterator[list[InputSplit]]:
    """Yield the presorted splits in lists of neighbouring blocks, of at most `most_bytes` or of one split."""
    batch: list[InputSplit] = []
    size = 0
    for item in splits:
        is_full = size + item.sorting_bytes > most_bytes
        if batch and (item.is_streamed or is_full):
            yield batch
            batch, size = [], 0
        if not item.is_streamed:
            batch.append(item)
            size += item.sorting_bytes
    if batch:
        yield batch


def _takes(tasks: Iterable[MergeTask]) -> Mapping[int, Sequence[PortionRange]]:
    """Return which rows of each block, by its place, the tasks take, in key order."""
    takes: dict[int, list[PortionRange]] = defaultdict(list)
    for task in tasks:
        for item in task.splits:
            takes[item.place].append(PortionRange(task=task.number, start=item.start, stop=item.stop))
    return takes


def _ranges(
    batch: Sequence[InputSplit], takes: Mapping[int, Sequence[PortionRange]]
) -> Iterator[PortionRange]:
    """Yield which rows each task takes of a batch in key order.

    Tasks are neighbours, so their ranges follow each other. Rows before the first range are read only because their
    block is read whole: other tasks take them.
    """
    rows: Counter[int] = Counter()
    for item in batch:
        for taken in takes[item.place]:
            rows[taken.task] += taken.stop - taken.start
    start = sum(takes[item.place][0].start - item.start for item in batch)
    for task, count in sorted(rows.items()):
        yield PortionRange(task=task, start=start, stop=start + count)
        start += count
