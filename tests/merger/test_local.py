"""The engine in threads: every task is reported once, failures affect only their task, interrupts leave no blocks."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter

import pyarrow as pa
import pytest
from arrow_rows import canonical
from faults import Faults, Killed, inject

from tblctl.merger.engines import local
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.task.spec import TaskFailure, TaskResult
from tblctl.tableformat.errors import ConflictError, CorruptTableError, InternalError, StorageError

from .blocks import lake, merge_threads


@pytest.fixture
def here():
    """400 rows in 8 blocks that overlap, to be merged into 8."""
    with lake("k: int64, n: int64", "k", block_rows=50) as found:
        for start in range(8):
            keys = [start + 8 * n for n in range(50)]
            found.add(pa.table({"k": keys, "n": range(start * 50, start * 50 + 50)}))
        yield found
    assert merge_threads() == []


@pytest.fixture(params=[1, 2, 8])
def processors(request):
    return request.param


def run(here, tasks, done=lambda _: None, *, processors=2, **more):
    found = []

    def note(item):
        found.append(item)
        done(item)

    LocalEngine(processors=lambda: processors).run(here.io, tasks, note, title="a test", **more)
    return sorted(found, key=lambda item: item.number)


def paths(results):
    return {record.path for result in results for record in result.records}


def test_every_task_is_reported_once_from_the_calling_thread(here, processors):
    callers, advanced = set(), []

    def advance(rows):
        callers.add(threading.current_thread())
        advanced.append(rows)

    tasks = here.cut(tasks=4)
    found = run(
        here, tasks, lambda _: callers.add(threading.current_thread()), processors=processors, advance=advance
    )
    assert [(item.group, item.number) for item in found] == [(7, number) for number in range(4)]
    assert callers == {threading.current_thread()}
    assert sum(advanced) == 400
    assert len(advanced) == 8, "told as it goes on"
    assert canonical(here.rows_of([record for item in found for record in item.records])) == canonical(
        here.expected()
    )
    assert here.stored() == paths(found)


def test_a_result_says_what_was_done(here):
    (result,) = run(here, here.cut(tasks=1))
    assert isinstance(result, TaskResult)
    assert result.rows == 400
    assert result.bytes_written == sum(record.size_bytes for record in result.records)
    assert 0 < result.bytes_read <= sum(item.block.size_bytes for item in here.splits)
    assert result.wall_seconds >= 0
    assert result.cpu_seconds >= 0


def test_no_tasks_are_done_at_once(here):
    assert run(here, []) == []


def test_tasks_begin_in_the_order_given_and_are_asked_for_when_there_is_room(here, monkeypatch):
    began, planned, ahead = [], [], []
    monkeypatch.setattr(local, "run_task", lambda io, task, **_: began.append(task) or result_of(task))

    def plan():
        for task in here.cut(tasks=7):
            ahead.append(len(planned) - len(done))
            planned.append(task)
            yield task

    done = []
    run(here, plan(), done.append, processors=1)
    assert [task.number for task in began] == list(range(7))
    assert max(ahead) == 1, "one runs and one fills in"


def result_of(task):
    return TaskResult(
        group=task.group, number=task.number, records=(), rows=task.rows, rows_copied=0,
        bytes_read=0, bytes_written=0, wall_seconds=0, cpu_seconds=0,
    )  # fmt: skip


def test_a_task_that_fails_does_not_stop_the_others(here, processors):
    tasks = here.cut(tasks=8)
    lost = here.add(pa.table({"k": [0, 1], "n": [0, 0]}))
    here.storage.delete([lost.block.path])
    (broken,) = here.cut(tasks=1)
    here.splits.pop()
    found = run(here, [*tasks[:3], broken, *tasks[4:]], processors=processors)
    failed = [item for item in found if isinstance(item, TaskFailure)]
    (failure,) = failed
    assert isinstance(failure.error, CorruptTableError)
    assert (failure.group, failure.error.details["name"]) == (7, lost.block.path)
    assert here.stored() == paths(item for item in found if item is not failure)
    assert len(found) == 8


def test_a_failed_task_deletes_what_it_stored(here, processors):
    faults = Faults()
    faults.fail(operation="write", name="data/", nth=5)
    tasks = here.cut(tasks=2)
    with inject(faults):
        found = run(here, tasks, processors=processors)
    (failure,) = (item for item in found if isinstance(item, TaskFailure))
    assert isinstance(failure.error, StorageError)
    assert here.stored() == paths(item for item in found if item is not failure)


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), OSError(28, "No space left on device"), KeyError("x")]
)
def test_an_error_of_another_library_is_wrapped_and_names_the_task(here, monkeypatch, error):
    real = local.run_task

    def run_task(io, task, **more):
        if task.number == 1:
            raise error
        return real(io, task, **more)

    monkeypatch.setattr(local, "run_task", run_task)
    found = run(here, here.cut(tasks=3))
    assert [type(item) for item in found] == [TaskResult, TaskFailure, TaskResult]
    assert isinstance(found[1].error, InternalError)
    text = str(found[1].error)
    assert text.startswith(f"group 7, task 1 failed: {type(error).__name__}: ")
    assert str(error) in text


def test_an_interrupt_while_rows_advance_leaves_nothing(here, processors):
    def advance(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(here, here.cut(tasks=4), processors=processors, advance=advance)
    assert here.stored() == set()
    assert merge_threads() == []


def test_an_interrupt_stops_tasks_that_run_and_those_that_wait(here, monkeypatch):
    began = []
    real = local.run_task
    monkeypatch.setattr(
        local, "run_task", lambda io, task, **more: began.append(task) or real(io, task, **more)
    )
    (task,) = here.cut(tasks=1)
    faults = Faults()
    pause = faults.pause(operation="write", name="data/", nth=2)

    def advance(_):
        pause.resume()
        raise KeyboardInterrupt

    with inject(faults), pytest.raises(KeyboardInterrupt):
        run(here, [task] * 5, processors=1, advance=advance)
    assert len(began) == 2, "one fills in where the other waits"
    assert len([call for call in faults.calls if call.operation == "write"]) < 8
    assert here.stored() == set()


def test_an_interrupt_deletes_what_was_written_except_what_the_caller_was_told_of(here, monkeypatch):
    both = threading.Barrier(3)
    real = local.run_task

    def run_task(*arguments, **more):
        result = real(*arguments, **more)
        both.wait(30)
        return result

    monkeypatch.setattr(local, "run_task", run_task)
    told = []

    def done(result):
        told.append(result)
        raise KeyboardInterrupt

    def advance(rows, left=[400]):  # noqa: B006 (counts down)
        left[0] -= rows
        if not left[0]:
            both.wait(30)  # both tasks are merged before any is reported

    with pytest.raises(KeyboardInterrupt):
        run(here, here.cut(tasks=2), done, processors=2, advance=advance)
    assert len(told) == 1
    assert here.stored() == paths(told) != set()


def test_what_is_no_error_of_a_task_is_raised(here, processors):
    faults = Faults()
    faults.kill(operation="write", name="data/", nth=3)
    told = []
    with inject(faults), pytest.raises(Killed):
        run(here, here.cut(tasks=4), told.append, processors=processors)
    assert merge_threads() == []


@pytest.mark.parametrize(("processors", "tasks"), [(1, 1), (2, 1), (4, 2), (9, 4)])
def test_two_processors_work_on_one_task_and_four_on_two(processors, tasks):
    assert LocalEngine(processors=lambda: processors).parallelism == tasks


def test_a_task_whose_group_is_not_wanted_any_more_is_stopped_and_leaves_no_blocks(here):
    tasks = here.cut(tasks=2)
    asked = []

    def wanted(group):
        asked.append(group)
        return len(asked) <= 2

    found = run(here, tasks, wanted=wanted)
    assert [type(item) for item in found] == [TaskFailure] * 2
    assert all(isinstance(item.error, ConflictError) for item in found)
    assert "was stopped: its group is not merged any more" in str(found[0].error)
    assert here.stored() == set()
    assert set(asked) == {7}


def test_tasks_of_other_groups_go_on_when_one_is_stopped(here):
    tasks = here.cut(tasks=2)
    other = [dataclasses.replace(task, group=8) for task in tasks]
    found = run(here, [*tasks, *other], wanted=lambda group: group != 7)
    assert Counter((item.group, type(item)) for item in found) == {(7, TaskFailure): 2, (8, TaskResult): 2}
    assert here.stored() == paths(item for item in found if item.group == 8)
