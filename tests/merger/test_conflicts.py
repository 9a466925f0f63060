"""The decisions of a round that need no table: what may be salvaged, and whether tasks cover their blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tblctl.merger.round.conflicts import conflicts
from tblctl.merger.round.group_run import covers
from tblctl.merger.task.spec import InputSplit, MergeTask
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort, Term

GROUPS = {0: ("a", "b"), 1: ("c",), 2: ("d", "e", "f")}


@pytest.mark.parametrize(
    ("gone", "dropped"),
    [
        ((), {}),
        (("x",), {}),
        (("c",), {1: ("c",)}),
        (("f", "a", "d", "x"), {0: ("a",), 2: ("d", "f")}),
        (tuple("abcdef"), {0: ("a", "b"), 1: ("c",), 2: ("d", "e", "f")}),
    ],
)
def test_a_group_conflicts_only_for_blocks_of_its_own(
    gone: tuple[str, ...], dropped: dict[int, tuple[str, ...]]
) -> None:
    assert conflicts(GROUPS, gone) == dropped


SORT = Sort(id=1, terms=(Term(column_id=1, transform="identity", descending=False, nulls_first=False),))


def block(path: str, rows: int) -> Block:
    return Block(
        path=path, row_count=rows, size_bytes=1, uncompressed_bytes=1, decoded_bytes=1, schema_id=1, run_id=None,
        cluster=None,
    )  # fmt: skip


A, B = block("a", 10), block("b", 4)


def task(number: int, *splits: tuple[Block, int, int]) -> MergeTask:
    found = tuple(
        InputSplit(block=of, place=place, start=start, stop=stop, is_ordered=True)
        for place, (of, start, stop) in enumerate(splits)
    )
    rows = sum(item.stop - item.start for item in found)
    return MergeTask(
        group=0,
        number=number,
        presorted_tasks=0,
        splits=found,
        cuts=(rows,),
        slack=(),
        sort=SORT,
        level=1,
        run_id="r",
        memory_bytes=1,
    )


def test_tasks_that_take_every_row_once_cover_their_blocks() -> None:
    assert covers([task(0, (A, 0, 10), (B, 0, 4))], [A, B])
    assert covers([task(1, (A, 7, 10)), task(0, (B, 0, 4), (A, 0, 7))], [A, B])


@pytest.mark.parametrize(
    "tasks",
    [
        [task(0, (A, 0, 10))],
        [task(0, (A, 0, 10), (B, 0, 3))],
        [task(0, (A, 0, 10), (B, 1, 4))],
        [task(0, (A, 0, 6), (B, 0, 4)), task(1, (A, 7, 10))],
        [task(0, (A, 0, 8), (B, 0, 4)), task(1, (A, 7, 10))],
        [task(0, (A, 0, 10), (B, 0, 4)), task(1, (B, 0, 4))],
        [task(0, (A, 0, 10), (B, 0, 4), (block("c", 1), 0, 1))],
        [replace(task(0, (A, 0, 10), (B, 0, 4)), cuts=(10, 3))],
    ],
    ids=["block left out", "end", "start", "gap", "overlap", "twice", "foreign block", "cuts"],
)
def test_tasks_that_lose_or_repeat_a_row_do_not(tasks: list[MergeTask]) -> None:
    assert not covers(tasks, [A, B])
