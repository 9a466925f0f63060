"""Find where the rows of a task go: only the keys are read and put in order, before any row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.merger.presort.portions import GiveBack, Portion
from tblctl.merger.task.block_input import BlockInput, look_at
from tblctl.merger.task.copying import Copy, least_copied, plan_copies, without_copied
from tblctl.merger.task.file_ends import FileEnds
from tblctl.merger.task.spec import MergeTask
from tblctl.merger.task.threads import Threads
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.keys.order import key_changes, sort_indices
from tblctl.tableformat.model.cut import rows_back
from tblctl.tableformat.port import BlockIO

_COPY_DIVISOR = 16
"""Part of a task's memory that a copied row group may take: each thread has a whole one in memory."""


_COPIES_OF_FILE = 8
"""Row groups above this part of a file's size are not copied where files have a size: no file ends inside a copy."""


@dataclass(frozen=True, kw_only=True)
class MergeOrder:
    """Where the rows of a task go.

    Attributes:
        inputs: the inputs of the merge.
        order: the places of all rows, counted over all inputs, in key order; equal keys keep their order. 4 bytes a
            row, and 8 more while keys are sorted.
        cuts: the rows of each block to write; those of all blocks together where `ends` is there.
        ends: where files may end; None if they end at the cuts.
        copies: the row groups that are copied undecoded.
        copied_ends: the keys of the first and the last row of each copy.
        at_once: the most inputs that have rows both before and after a place in the order.
    """

    inputs: tuple[BlockInput | Portion, ...]
    order: np.ndarray
    cuts: tuple[int, ...]
    ends: FileEnds | None
    copies: tuple[Copy, ...]
    copied_ends: tuple[pa.Table, ...]
    at_once: int


def order_rows(
    io: BlockIO, task: MergeTask, portions: Sequence[Portion], threads: Threads, give_back: GiveBack
) -> MergeOrder:
    """Read the keys, and find out where every row goes. What that frees is given back."""
    streamed = [item for item in task.splits if item.is_streamed]
    found: list[tuple[pa.Table, BlockInput | Portion]] = [
        *threads.read(lambda item: look_at(io, item, task.sort), streamed),
        *((portion.keys(task.sort, io.schema), portion) for portion in portions),
    ]
    found.sort(key=lambda pair: pair[1].order)
    keys = pa.concat_tables([keys for keys, _ in found]).combine_chunks()
    inputs = [item for _, item in found]
    del found
    give_back()
    places = sort_indices(keys, task.sort).to_numpy()
    if len(places) != task.rows:
        msg = f"{task.title} has splits of {len(places)} rows for cuts of {task.rows}"
        raise InternalError(msg)
    order = places.astype(np.uint32) if len(places) < 1 << 32 else places
    is_sized = io.file_bytes is not None
    cuts = (task.rows,) if is_sized else _clean_cuts(task, keys, places)
    del places
    give_back()
    most_bytes = task.memory_bytes // _COPY_DIVISOR
    if io.file_bytes is not None:
        most_bytes = min(most_bytes, io.file_bytes // _COPIES_OF_FILE)
    group_rows = io.options.row_group_rows
    # Each of these passes over all rows, and nothing else can go on before they are done: so they share the threads.
    (at_once,) = threads.begin(lambda rows: _at_once(order, rows), [[item.rows for item in inputs]])
    copies = plan_copies(order, inputs, cuts, group_rows=group_rows, most_bytes=most_bytes)
    ends = FileEnds(keys, order, copies, least=least_copied(group_rows)) if is_sized else None
    return MergeOrder(
        inputs=without_copied(inputs, copies),
        order=order,
        cuts=cuts,
        ends=ends,
        copies=copies,
        copied_ends=tuple(keys.take(pa.array(order[[copy.start, copy.stop - 1]])) for copy in copies),
        at_once=at_once.result(),
    )


def _at_once(order: np.ndarray, rows: Sequence[int]) -> int:
    """Return the most inputs that have rows both at or before and at or after a place; `rows` has each input's rows."""
    stops = np.cumsum(rows)
    marks = np.zeros(len(order), dtype=np.uint8)  # 1: an input's first row, 2: its last
    marks[stops - rows] = 1
    marks[stops - 1] |= 2
    found = marks[order]
    places = np.flatnonzero(found)
    found = found[places]
    begun, ended = places[found & 1 > 0], places[found & 2 > 0]
    return int((np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun)).max())


def _clean_cuts(task: MergeTask, keys: pa.Table, places: np.ndarray) -> tuple[int, ...]:
    """Return the rows of each block, every cut moved back to where a key ends if its slack allows."""
    ends = np.cumsum(task.cuts)
    for number, slack in enumerate(task.slack):
        if slack:
            around = keys.take(pa.array(places[ends[number] - slack - 1 : ends[number] + 1]))
            ends[number] -= rows_back(key_changes(around))
    return tuple(np.diff(ends, prepend=0).tolist())
