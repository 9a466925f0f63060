"""Which tasks of a group have their rows sorted together, and by how many workers."""

from __future__ import annotations

from dataclasses import replace

from tblctl.merger.presort.decide import (
    THRESHOLDS,
    deal,
    decodings,
    units,
)
from tblctl.merger.presort.sort_tasks import PortionRange, sort_tasks
from tblctl.merger.task.spec import ORDER_BYTES

from .blocks import lake
from .test_presort import COLUMNS, presorted, rows


def test_tasks_that_would_read_the_same_blocks_again_and_again_are_one_unit():
    with lake(COLUMNS, "k", block_rows=100) as here:
        for seed in range(4):
            here.unordered(rows(seed, 200))
        here.add(rows(9, 200))
        tasks = here.cut(tasks=5)
        assert [len(unit) for unit in units(tasks, group_rows=1, thresholds=THRESHOLDS)] == [5]
        other = [replace(task, group=8) for task in tasks]
        assert [len(unit) for unit in units([*tasks, *other], group_rows=1, thresholds=THRESHOLDS)] == [5, 5]


def test_a_group_that_is_given_up_half_way_takes_no_part_in_the_next_ones_unit():
    with lake(COLUMNS, "k", block_rows=100) as here:
        for seed in range(4):
            here.unordered(rows(seed, 200))
        tasks = here.cut(tasks=4)
        other = [replace(task, group=8) for task in tasks]
        found = [*units([*tasks[:2], *other], group_rows=1, thresholds=THRESHOLDS)]
        assert [[task.group for task in unit] for unit in found] == [[7], [7], [8] * 4]


def test_tasks_that_would_read_little_more_than_once_are_units_of_their_own():
    with lake(COLUMNS, "k", block_rows=100) as here:
        for seed in range(4):
            here.add(rows(seed, 200, most=10_000))
        tasks = presorted(here.cut(tasks=5), {0, 1, 2, 3})
        assert 1 < decodings([(task,) for task in tasks], group_rows=5) < 1.2
        assert [len(unit) for unit in units(tasks, group_rows=5, thresholds=THRESHOLDS)] == [1] * 5
        assert [len(unit) for unit in units(tasks, group_rows=50, thresholds=THRESHOLDS)] == [5]


def test_workers_get_neighbouring_tasks_and_decode_what_these_take_once():
    with lake(COLUMNS, "k", block_rows=100) as here:
        here.unordered(rows(0, 200, most=10_000))
        here.add(rows(1, 300, most=10_000))
        tasks = presorted(here.cut(tasks=5), {1})
        numbers = [[task.number for task in some] for some in deal(tasks[::-1], 2, THRESHOLDS)]
        assert numbers == [[0, 1, 2], [3, 4]]
        assert [len(some) for some in deal(tasks, 7, THRESHOLDS)] == [1] * 5
        few = sum(item.sorting_bytes for task in tasks for item in task.splits) // (3 * 16)
        small = [replace(task, memory_bytes=few) for task in tasks]
        assert [len(some) for some in deal(small, 1, THRESHOLDS)] == [2, 1, 1, 1], (
            "16 times a task's memory at most"
        )
        assert decodings(deal(tasks, 1, THRESHOLDS), 10) == 1
        halves = deal(tasks, 2, THRESHOLDS)
        taken = [
            sum(item.stop - item.start for task in some for item in task.splits if item.place)
            for some in halves
        ]
        assert sum(taken) == 300
        assert decodings(halves, 10) == (2 * 200 + taken[0] + 10 + min(taken[1] + 10, 300)) / 500


def test_tasks_of_ordered_blocks_wait_for_no_others():
    with lake(COLUMNS, "k", block_rows=50) as here:
        here.add(rows(0, 400, most=10_000))
        here.unordered(rows(1, 10, most=10))
        tasks = here.cut(tasks=4)
        assert [task.is_streamed for task in tasks] == [False] + [True] * 3
        asked = iter(tasks[1:])
        for task in tasks[1:]:
            assert next(units(asked, group_rows=1, thresholds=THRESHOLDS)) == (task,)


def test_small_neighbours_are_sorted_together_and_blocks_in_order_part_them():
    with lake(COLUMNS, "k", block_rows=60) as here:
        for seed, ordered in enumerate([False, False, True, False, False, False]):
            (here.add if ordered else here.unordered)(rows(seed, 40))
        tasks = here.cut(tasks=2)
        found = sort_tasks(tasks)
        assert [(task.place, len(task.splits)) for task in found] == [(0, 2), (3, 3)]
        for task in found:
            first, second = task.ranges
            assert (first.task, first.start, second.task) == (0, 0, 1)
            assert (first.stop, second.stop) == (second.start, 40 * len(task.splits))
        block_bytes = here.splits[0].block.decoded_bytes
        small = [replace(task, memory_bytes=2 * (block_bytes + 40 * ORDER_BYTES) * 32) for task in tasks]
        assert [(task.place, len(task.splits)) for task in sort_tasks(small)] == [(0, 2), (3, 2), (5, 1)]


def test_a_task_alone_takes_its_own_range():
    with lake(COLUMNS, "k", block_rows=60) as here:
        here.unordered(rows(0, 120))
        tasks = here.cut(tasks=2)
        for task, taken in zip(
            tasks,
            (PortionRange(task=0, start=0, stop=60), PortionRange(task=1, start=60, stop=120)),
            strict=True,
        ):
            (found,) = sort_tasks([task])
            assert found.ranges == (taken,)
