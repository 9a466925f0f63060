"""The allocator's free pages are returned when tasks would exceed their budgets, and not before."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from tblctl.merger.presort.portions import sorted_portions
from tblctl.merger.presort.sort_tasks import sort_tasks
from tblctl.merger.task.memory import SLACK_BYTES, ProcessMemory
from tblctl.tableformat.environment import SYSTEM

from .blocks import lake
from .test_presort import presorted

MIB = 1 << 20
AT_REST = 500 * MIB


class Process:
    """A fake process with settable memory. Counts how often its allocator should return pages."""

    def __init__(self, after_release=AT_REST):
        self.size_bytes = AT_REST
        self.released = 0
        self._after_release = after_release
        self.memory = ProcessMemory(
            replace(SYSTEM, resident_bytes=lambda: self.size_bytes), release=self.release
        )

    def release(self):
        self.released += 1
        self.size_bytes = min(self.size_bytes, self._after_release)


def test_memory_is_given_back_once_the_process_has_more_than_its_tasks_may_take():
    process = Process()
    memory = process.memory
    assert process.released == 1
    with memory.task(100 * MIB):
        process.size_bytes = AT_REST + 100 * MIB
        memory.give_back()
        assert process.released == 1
        process.size_bytes = AT_REST + 100 * MIB + SLACK_BYTES + 1
        memory.give_back()
        assert process.released == 2
        process.size_bytes = AT_REST + 100 * MIB + SLACK_BYTES + 1
        with memory.task(100 * MIB):
            memory.give_back()
            assert process.released == 2, "two tasks may take twice as much"
        memory.give_back()
        assert process.released == 3, "the second one has ended"


def test_memory_is_given_back_before_more_is_taken_than_tasks_may():
    process = Process()
    with process.memory.task(100 * MIB):
        process.size_bytes = AT_REST + 50 * MIB
        process.memory.give_back(50 * MIB + SLACK_BYTES)
        assert process.released == 1
        process.memory.give_back(50 * MIB + SLACK_BYTES + 1)
        assert process.released == 2


def test_what_earlier_tasks_left_is_given_back_before_the_process_is_looked_at():
    process = Process(after_release=200 * MIB)
    process.size_bytes = 200 * MIB + SLACK_BYTES + 1
    process.memory.give_back()
    assert process.released == 2


def test_where_the_system_does_not_tell_nothing_is_given_back():
    released = []
    memory = ProcessMemory(replace(SYSTEM, resident_bytes=lambda: 0), release=lambda: released.append(None))
    released.clear()
    with memory.task(1):
        memory.give_back()
    assert not released


def test_the_memory_that_putting_all_keys_of_a_block_in_order_takes_is_announced():
    announced = []
    with lake("k: int64, s: string", "k", block_rows=3000) as here:
        keys = [n * 7919 % 3001 for n in range(3000)]
        here.unordered(pa.table({"k": keys, "s": [f"{n:0100d}" for n in keys]}))
        (task,) = sort_tasks(presorted(here.cut(1, memory_bytes=1 << 20), {0}))
        assert task.sorting_bytes > task.sort_bytes, "else its rows are read first, and then sorted at once"
        read = sorted_portions(here.io, task, lambda coming_bytes=0: announced.append(coming_bytes))
        assert sum(portion.rows for _, portion in read) == 3000
    assert max(announced) >= 3000 * 2 * 8, "at least a key and a place for each row"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
def test_linux_tells_how_much_memory_the_process_has():
    assert SYSTEM.resident_bytes() > 16 * MIB


@pytest.mark.parametrize("threads", [1, 2])
def test_a_merge_looks_at_the_process_after_every_window_and_writes_the_same(threads):
    rows = pa.table({"k": range(300), "s": ["x" * 2_000] * 300})
    written = []
    for extra in (0, 1 << 40):
        process = Process(after_release=1 << 50)
        process.size_bytes = AT_REST + extra
        with lake(rows.schema, "k", row_group_rows=30) as here:
            for first in (0, 1, 2):
                here.add(rows.slice(first, 290))
            (task,) = here.cut(memory_bytes=MIB)
            records = here.run([task], threads=threads, memory=process.memory)
            written.append([here.storage.read(record.path) for record in records])
            assert (process.released > 10) == bool(extra)
            assert bool(extra) or process.released == 1
    assert written[0] == written[1]
