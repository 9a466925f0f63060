"""Decide which row groups a task copies undecoded.

Pure. A row group can be copied if its rows follow each other in the output, within one block. Copying is about ten
times faster than decoding and encoding, but keeps the size of row groups. Repeated merges must not make them ever
smaller. So a row group is copied only if it has at least half of `row_group_rows` rows, and the rows encoded before and
after it are none or at least as many. Then no merged block has a smaller row group, unless the block itself is smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.merger.presort.portions import Portion
from tblctl.merger.task.block_input import BlockInput, RowGroupRange
from tblctl.tableformat.model.block import Block


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Row groups of one input that follow each other in the input and in the output: one, until `between` joins them.

    Attributes:
        input: its number.
        block: which block it is of.
        groups: the row groups.
        start, stop: where their rows are in the task's output.
    """

    input: int
    block: Block
    groups: tuple[int, ...]
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many it copies."""
        return self.stop - self.start


def least_copied(group_rows: int) -> int:
    """Return the fewest rows of a row group that is copied, and of rows that are encoded beside it."""
    return (group_rows + 1) // 2


def plan_copies(
    order: np.ndarray,
    inputs: Sequence[BlockInput | Portion],
    cuts: Sequence[int],
    *,
    group_rows: int,
    most_bytes: int,
) -> tuple[Copy, ...]:
    """Return the copies, in the order of the output, each of one row group. O(rows), temporarily 2 bytes a row.

    Args:
        order: the places of all rows, counted over all inputs, in key order.
        inputs: the inputs of the merge.
        cuts: rows of each block to write.
        group_rows: the most rows of a row group to write.
        most_bytes: the most bytes of a row group that is copied: it is in memory as a whole.
    """
    least = least_copied(group_rows)
    found = [
        (first, rows, number, block)
        for first, rows, number, block in _row_groups(inputs)
        if rows.is_copyable and least <= rows.rows <= group_rows and rows.stored_bytes <= most_bytes
    ]
    if not found:  # as of files of other writers: then no row has to be looked at
        return ()
    ends = np.cumsum(cuts)
    starts = _positions(order, np.array([first for first, *_ in found], dtype=order.dtype))
    copies = []
    for start, (first, rows, number, block) in zip(starts.tolist(), found, strict=True):
        stop = start + rows.rows
        in_one_block = stop <= ends[np.searchsorted(ends, start, side="right")]
        if in_one_block and _counts_on(order[start:stop], first):
            copies.append(Copy(input=number, block=block, groups=(rows.group,), start=start, stop=stop))
    copies.sort(key=lambda copy: copy.start)
    return tuple(_without_slivers(copies, cuts, least))


def _row_groups(
    inputs: Sequence[BlockInput | Portion],
) -> Iterator[tuple[int, RowGroupRange, int, Block]]:
    """Yield the rows of each row group with the place of the first one, the number of their input, and its block."""
    first = 0
    for number, item in enumerate(inputs):
        if isinstance(item, BlockInput):
            starts = itertools.accumulate((rows.rows for rows in item.ranges), initial=first)
            for start, rows in zip(starts, item.ranges, strict=False):
                yield start, rows, number, item.split.block
        first += item.rows


def _positions(order: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the positions of ascending places in `order`; 0 for a missing one."""
    wanted = np.zeros(len(order), dtype=bool)
    wanted[places] = True
    found = np.flatnonzero(wanted[order])
    positions = np.zeros(len(places), dtype=np.int64)
    positions[np.searchsorted(places, order[found])] = found
    return positions


def _counts_on(places: np.ndarray, first: int) -> bool:
    """Return whether some places are `first`, `first` + 1, and so on."""
    last = first + len(places) - 1
    is_likely = places[0] == first and places[-1] == last
    return is_likely and bool((places == np.arange(first, last + 1, dtype=places.dtype)).all())


def _without_slivers(copies: Sequence[Copy], cuts: Sequence[int], least: int) -> Iterator[Copy]:
    """Yield the copies that leave no rows or at least `least` rows between them in each block."""
    stop = 0
    waiting = list(reversed(copies))
    for count in cuts:
        start, stop = stop, stop + count
        kept: list[Copy] = []
        while waiting and waiting[-1].stop <= stop:
            copy = waiting.pop()
            if 0 < copy.start - (kept[-1].stop if kept else start) < least:
                if not kept or kept[-1].rows > copy.rows:
                    continue
                kept.pop()
            kept.append(copy)
        if kept and 0 < stop - kept[-1].stop < least:
            kept.pop()
        yield from kept


def _joined(copies: Sequence[Copy]) -> Iterator[Copy]:
    """Yield the same copies. Those that follow each other in input and output are joined into one."""
    last: Copy | None = None
    for copy in copies:
        if last is None:
            last = copy
        elif (copy.input, copy.groups[0], copy.start) == (last.input, last.groups[-1] + 1, last.stop):
            last = replace(last, groups=last.groups + copy.groups, stop=copy.stop)
        else:
            yield last
            last = copy
    if last is not None:
        yield last


def between(copies: Sequence[Copy], places: range) -> Iterator[Copy | range]:
    """Yield the copies among some places of the output, joined if possible, and the ranges between them, in order."""
    start = places.start
    for copy in _joined([copy for copy in copies if copy.start in places]):
        if start < copy.start:
            yield range(start, copy.start)
        yield copy
        start = copy.stop
    if start < places.stop:
        yield range(start, places.stop)


def without_copied(
    inputs: Sequence[BlockInput | Portion], copies: Sequence[Copy]
) -> tuple[BlockInput | Portion, ...]:
    """Return the inputs with copied row groups marked, so that they are not decoded."""
    groups: dict[int, set[int]] = {}
    for copy in copies:
        groups.setdefault(copy.input, set()).update(copy.groups)
    return tuple(
        replace(item, copied=frozenset(groups.get(number, ()))) if isinstance(item, BlockInput) else item
        for number, item in enumerate(inputs)
    )
