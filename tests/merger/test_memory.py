"""The allocator's free pages are returned when tasks would exceed their budgets, and not before."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from tblctl.merger.task.memory import SLACK_BYTES, ProcessMemory
from tblctl.tableformat.environment import SYSTEM

from .blocks import lake

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
