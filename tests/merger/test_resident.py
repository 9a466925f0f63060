"""What the allocator keeps is given back when tasks would take more than they may, and not before."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from tblctl.merger.task import memory as resident
from tblctl.merger.task.memory import Resident
from tblctl.tableformat.environment import SYSTEM

from .blocks import lake

MIB = 1 << 20
AT_REST = 500 * MIB


@pytest.fixture
def releases(monkeypatch):
    """How often unused memory was given back."""
    seen = []
    monkeypatch.setattr(resident, "_release_unused", lambda: seen.append(None))
    return seen


def process(monkeypatch):
    """Return what a process has, to be changed, and an environment that tells it."""
    sizes = [AT_REST]
    return sizes, replace(SYSTEM, resident_bytes=lambda: sizes[0])


def test_memory_is_given_back_once_the_process_has_more_than_its_tasks_may_take(monkeypatch, releases):
    sizes, env = process(monkeypatch)
    memory = Resident(env)
    releases.clear()
    with memory.task(100 * MIB):
        sizes[0] = AT_REST + 100 * MIB
        memory.bound()
        assert not releases
        sizes[0] = AT_REST + 100 * MIB + resident._SLACK_BYTES + 1
        memory.bound()
        assert len(releases) == 1
        with memory.task(100 * MIB):
            memory.bound()
            assert len(releases) == 1, "two tasks may take twice as much"
        memory.bound()
        assert len(releases) == 2, "the second one has ended"


def test_what_earlier_tasks_left_is_given_back_before_the_process_is_looked_at(monkeypatch):
    sizes, env = process(monkeypatch)
    monkeypatch.setattr(resident, "_release_unused", lambda: sizes.__setitem__(0, 200 * MIB))
    memory = Resident(env)
    assert memory._most_bytes == 200 * MIB + resident._SLACK_BYTES


def test_where_the_system_does_not_tell_nothing_is_given_back(releases):
    memory = Resident(replace(SYSTEM, resident_bytes=lambda: 0))
    releases.clear()
    with memory.task(1):
        memory.bound()
    assert not releases


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_linux_tells_how_much_memory_the_process_has():
    assert SYSTEM.resident_bytes() > 16 * MIB


@pytest.mark.parametrize("threads", [1, 2])
def test_a_merge_looks_at_the_process_after_every_window_and_writes_the_same(releases, threads):
    rows = pa.table({"k": range(300), "s": ["x" * 2_000] * 300})
    written = []
    for extra in (0, 1 << 40):
        with lake(rows.schema, "k", row_group_rows=30) as here:
            for first in (0, 1, 2):
                here.add(rows.slice(first, 290))
            (task,) = here.split(memory_bytes=MIB)
            sizes = iter([AT_REST])  # at the start, and then
            here.io = replace(
                here.io,
                env=replace(SYSTEM, resident_bytes=lambda at=sizes, more=extra: next(at, AT_REST + more)),
            )
            releases.clear()
            records = here.run([task], threads=threads)
            written.append([here.storage.read(record.path) for record in records])
            assert (len(releases) > 10) == bool(extra)
            assert bool(extra) or len(releases) == 1
    assert written[0] == written[1]
