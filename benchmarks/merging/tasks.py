"""The merge tasks of one group of all blocks of a table, cut as in a round."""

from __future__ import annotations

from typing import Any

import tblctl
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.cutting.cuts import Output, cut_into_tasks, whole_splits
from tblctl.merger.task.spec import MergeTask
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.port import BlockIO, TablePort
from tblctl.tableformat.storage import Storage


def merge_tasks(
    table: tblctl.Table, *, tasks: int, memory_bytes: int = 2**30
) -> tuple[BlockIO, tuple[MergeTask, ...]]:
    """Return the tasks of a table of the native format, and what they read and write with."""
    port = NativePort(NativeTable(Storage(table.location), SYSTEM))
    return tasks_in(port, tasks=tasks, memory_bytes=memory_bytes)


def tasks_in(
    port: TablePort[Any], *, tasks: int, memory_bytes: int = 2**30
) -> tuple[BlockIO, tuple[MergeTask, ...]]:
    """Return the tasks, and what they read and write with: as many tasks as requested, if memory allows."""
    version = port.newest()
    assert version.sort is not None
    io = port.block_io(version)
    (group,) = make_plan(version, Request.of(policy="full", condition=lambda _: None, options=None)).groups
    blocks = version.blocks(group.blocks)
    splits = whole_splits(version, version.sort, [blocks[path] for path in group.blocks])
    output = Output(
        sort=version.sort,
        level=group.output_level,
        run_id=SYSTEM.new_run_id(),
        memory_bytes=memory_bytes,
        same_key_rows=group.same_key_rows,
    )
    return io, cut_into_tasks(io, group.number, splits, output, tasks=tasks)


def rows_decoded(table: tblctl.Table, *, tasks: int) -> float:
    """Return how often a row is decoded on average. A row group that a cut divides is decoded on both sides."""
    io, found = merge_tasks(table, tasks=tasks)
    decoded = 0
    for task in found:
        for item in task.splits:
            with io.open(item.block) as reader:
                first = 0
                for rows in reader.group_rows:
                    if first < item.stop and first + rows > item.start:
                        decoded += rows
                    first += rows
    return decoded / sum(task.rows for task in found)
