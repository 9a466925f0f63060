"""Blocks in another order: read once and sorted, and their rows portioned out to the merge tasks that take them.

Merge tasks of a group say which rows of such a block they take by where these are in its sorted order. So of the rows
that a sort task sorts together each merge task takes one stretch: its portion, which is merged as a block in key order
would be. What was decoded is compared with the portions here, and the portions with what is merged there (`verify.py`).

How blocks are sorted together changes no output: rows with equal keys keep the order of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from tblctl.merger.scratch import Pieces, Scratch
from tblctl.merger.task import MergeTask, Slice
from tblctl.merger.verify import Fingerprint, require_equal
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.keys import key_table, sort_indices
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema import Schema
from tblctl.tableformat.port import BlockIO, BlockReader

_SORT_SHARE = 32
"""What is sorted at once takes so much of a task's memory, three times: as read, as sorted, and the pages."""

_MOST_SORT_BYTES = 1 << 28
"""But no more than that: Spark carries portions of at most 2 GiB."""

_HELD_SHARE = 4
"""Portions that take more of a task's memory go to the scratch folder."""

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
    """Blocks in another order that are read and sorted together.

    Attributes:
        group: their number in the plan.
        place: of the first of them in the group, which the others follow.
        blocks: one, or as many as may be sorted at once.
        takers: the merge tasks that take rows of them, in key order.
        sort: the order.
        sort_bytes: how much is sorted at once.
        piece_bytes: the size of the pieces that portions are stored in.
    """

    group: int
    place: int
    blocks: tuple[Block, ...]
    takers: tuple[Taker, ...]
    sort: Sort
    sort_bytes: int
    piece_bytes: int

    @property
    def decoded_bytes(self) -> int:
        """About what the blocks' rows take in memory."""
        return sum(block.decoded_bytes for block in self.blocks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Portion:
    """The rows that one merge task takes of what was sorted together, in key order.

    Attributes:
        place: of the sort task.
        number: of what it sorted at once, in the order of the blocks' rows.
        rows: how many.
        row_bytes: about what one takes in memory.
        bytes_read: of files, for them.
        read: their fingerprint, as they were decoded.
        content: the rows.
    """

    place: int
    number: int
    rows: int
    row_bytes: float
    bytes_read: int
    read: Fingerprint
    content: pa.Table | Pieces

    @property
    def order(self) -> tuple[int, int]:
        """Its place among the parts of a merge task."""
        return self.place, self.number

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, piece by piece."""
        if isinstance(self.content, pa.Table):
            yield self.content
            return
        for piece in range(len(self.content)):
            yield self.content.read(piece)

    def keys(self, sort: Sort, schema: Schema) -> pa.Table:
        """Return their keys, without reading more columns than these need."""
        if isinstance(self.content, pa.Table):
            return key_table(self.content, sort, schema)
        leaves = (schema.leaf_by_id(term.column_id) for term in sort.terms)
        names = list(dict.fromkeys(leaf.path[0] for leaf in leaves if leaf))
        pieces = [self.content.read(piece, names) for piece in range(len(self.content))]
        return pa.concat_tables([key_table(piece, sort, schema) for piece in pieces])


# -- deciding ----------------------------------------------------------------------------------------------------------


def units(tasks: Iterable[MergeTask], *, most_reads: float) -> Iterator[tuple[MergeTask, ...]]:
    """Yield tasks that are run as one: those of a group for which blocks are better sorted beforehand, or else one.

    Args:
        tasks: of groups, all tasks of one after the other.
        most_reads: how many times a group's blocks in another order may be read, on average, by tasks that sort them
            for themselves.
    """
    sharing: list[MergeTask] = []
    for task in tasks:
        if task.is_ordered:
            yield (task,)
            continue
        sharing.append(task)
        if len(sharing) < task.sharing:
            continue
        if _reads(sharing) > most_reads:
            yield tuple(sharing)
        else:
            yield from ((one,) for one in sharing)
        sharing = []
    yield from ((one,) for one in sharing)


def _reads(tasks: Sequence[MergeTask]) -> float:
    slices = [item for task in tasks for item in task.slices if not item.is_ordered]
    once = {item.place: item.block.decoded_bytes for item in slices}
    return sum(item.block.decoded_bytes for item in slices) / max(sum(once.values()), 1)


def sort_tasks(tasks: Sequence[MergeTask]) -> tuple[SortTask, ...]:
    """Return what sorts the blocks in another order for some neighbouring tasks of a group.

    Neighbours in the group are sorted together, as many as fit, so that many small blocks become few portions.
    """
    tasks = sorted(tasks, key=lambda task: task.number)
    firsts: dict[int, Slice] = {}
    for task in tasks:
        for item in task.slices:
            firsts.setdefault(item.place, item)
    if not firsts:
        return ()
    sort_bytes = _sort_bytes(tasks[0].memory_bytes)
    together = list(_together([firsts[place] for place in sorted(firsts)], sort_bytes))
    mine = {item.place: number for number, some in enumerate(together) for item in some}
    takers: list[list[Taker]] = [[] for _ in together]
    ends = [sum(item.start for item in some) for some in together]
    for task in tasks:
        counts: dict[int, int] = {}
        for item in task.slices:
            if not item.is_ordered:
                counts[mine[item.place]] = counts.get(mine[item.place], 0) + item.stop - item.start
        for number, count in counts.items():
            takers[number].append(Taker(number=task.number, start=ends[number], stop=ends[number] + count))
            ends[number] += count
    ordered = sum(item.is_ordered for item in firsts.values())
    sizes = [sum(item.block.decoded_bytes for item in some) for some in together]
    stored_bytes = piece_bytes(sizes, tasks[0].memory_bytes, others=ordered)
    return tuple(
        SortTask(
            group=tasks[0].group,
            place=some[0].place,
            blocks=tuple(item.block for item in some),
            takers=tuple(takers[number]),
            sort=tasks[0].sort,
            sort_bytes=sort_bytes,
            piece_bytes=stored_bytes,
        )
        for number, some in enumerate(together)
    )


def piece_bytes(sizes: Sequence[int], memory_bytes: int, *, others: int = 0) -> int:
    """Return the size of the pieces that portions are stored in.

    Args:
        sizes: decoded bytes of what is sorted together.
        memory_bytes: of a merge task.
        others: blocks that it merges as they are.
    """
    sorts = sum(-(-size // _sort_bytes(memory_bytes)) for size in sizes)
    return max(_LEAST_PIECE_BYTES, memory_bytes // _PIECES_SHARE // max(others + sorts, 1))


def _sort_bytes(memory_bytes: int) -> int:
    return max(1, min(memory_bytes // _SORT_SHARE, _MOST_SORT_BYTES))


def _together(slices: Sequence[Slice], most_bytes: int) -> Iterator[list[Slice]]:
    """Yield the slices in another order in lists of neighbours of at most so many bytes, or of one."""
    some: list[Slice] = []
    size = 0
    for item in slices:
        is_full = size + item.block.decoded_bytes > most_bytes
        if some and (item.is_ordered or is_full):
            yield some
            some, size = [], 0
        if not item.is_ordered:
            some.append(item)
            size += item.block.decoded_bytes
    if some:
        yield some


# -- doing -------------------------------------------------------------------------------------------------------------


def portions(io: BlockIO, task: SortTask) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of a sort task, each with the number of the merge task that takes it.

    Raises:
        CorruptTableError: a block is missing or damaged; named.
        VerificationError: the portions are not what was read.
    """
    if task.decoded_bytes <= task.sort_bytes:
        read = in_parallel(partial(_rows, io), task.blocks, threads=io.opens)
        rows = pa.concat_tables(read).combine_chunks()
        del read
        order = sort_indices(key_table(rows, task.sort, io.schema), task.sort).to_numpy()
        yield from _portioned(task, 0, rows, order, np.arange(len(order)))
        return
    (block,) = task.blocks
    with io.open(block) as reader:
        keys = reader.keys(range(len(reader.group_rows)), task.sort).combine_chunks()
        ranks = np.empty(keys.num_rows, dtype=np.int64)
        ranks[sort_indices(keys, task.sort).to_numpy()] = np.arange(keys.num_rows)
        del keys
        first = 0
        for number, rows in enumerate(_stretches(reader, task.sort_bytes)):
            mine = ranks[first : first + rows.num_rows]
            order = np.argsort(mine)
            yield from _portioned(task, number, rows, order, mine[order])
            first += rows.num_rows


def _rows(io: BlockIO, block: Block) -> pa.Table:
    with io.open(block) as reader:
        return reader.rows(range(len(reader.group_rows)))


def _stretches(reader: BlockReader, most_bytes: int) -> Iterator[pa.Table]:
    """Yield all rows of a block, as many at once as take about `most_bytes`."""
    some: list[pa.Table] = []
    size = 0.0
    for group, (rows, group_bytes) in enumerate(zip(reader.group_rows, reader.group_bytes, strict=True)):
        fits = group_bytes <= most_bytes
        most_rows = max(1, rows * most_bytes // max(group_bytes, 1))
        for table in [reader.rows([group])] if fits else reader.batches(group, most_rows):
            table_bytes = group_bytes * table.num_rows / rows
            if some and size + table_bytes > most_bytes:
                yield pa.concat_tables(some).combine_chunks()
                some, size = [], 0.0
            some.append(table)
            size += table_bytes
    yield pa.concat_tables(some).combine_chunks()


def _portioned(
    task: SortTask, number: int, rows: pa.Table, order: np.ndarray, ranks: np.ndarray
) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of rows; `order` sorts them, and has them at `ranks` among all rows of the task."""
    bounds = np.searchsorted(ranks, [(taker.start, taker.stop) for taker in task.takers])
    taken = [
        (taker.number, rows.take(pa.array(order[low:high])))
        for taker, (low, high) in zip(task.takers, bounds.tolist(), strict=True)
        if low < high
    ]
    found = [Fingerprint.of(table) for _, table in taken]
    if sum(table.num_rows for _, table in taken) == rows.num_rows:
        where = f"group {task.group}, sorting {task.blocks[0].path}"
        require_equal(Fingerprint.of(rows), Fingerprint.total(found), where)
    row_count = sum(block.row_count for block in task.blocks)
    size_bytes = sum(block.size_bytes for block in task.blocks)
    for (taker, table), read in zip(taken, found, strict=True):
        yield (
            taker,
            Portion(
                place=task.place,
                number=number,
                rows=table.num_rows,
                row_bytes=max(1.0, table.nbytes / table.num_rows),
                bytes_read=size_bytes * table.num_rows // row_count,
                read=read,
                content=table,
            ),
        )


def cut(portion: Portion, piece_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of a portion in pieces of about `piece_bytes`."""
    rows = max(1, int(piece_bytes / portion.row_bytes))
    for table in portion.tables():
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)


_Portions = list[tuple[int, Portion]]
SortAll = Callable[[Callable[[SortTask], _Portions], Iterable[SortTask]], list[_Portions]]
"""Calls a function with every sort task, several at once."""


def sort_blocks(
    io: BlockIO, tasks: Sequence[MergeTask], scratch: Scratch, sort_all: SortAll
) -> dict[int, list[Portion]]:
    """Sort the blocks in another order for some neighbouring tasks of a group; return the portions of each task.

    They stay in memory if they are small, or go to the scratch folder.
    """
    is_large = sum(_decoded_bytes(task) for task in tasks) > tasks[0].memory_bytes // _HELD_SHARE

    def stored(task: SortTask) -> _Portions:
        return [
            (
                taker,
                replace(portion, content=scratch.write(cut(portion, task.piece_bytes)))
                if is_large
                else portion,
            )
            for taker, portion in portions(io, task)
        ]

    found: dict[int, list[Portion]] = {task.number: [] for task in tasks}
    for some in sort_all(stored, sort_tasks(tasks)):
        for taker, portion in some:
            found[taker].append(portion)
    return found


def _decoded_bytes(task: MergeTask) -> int:
    return sum(
        item.block.decoded_bytes * (item.stop - item.start) // item.block.row_count
        for item in task.slices
        if not item.is_ordered
    )
