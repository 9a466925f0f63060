"""Groups are cut into tasks by tasks of Spark's: as in this process, and without a request for keys on the driver."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tblctl
from tblctl.maintain.recluster import recluster as run_recluster
from tblctl.maintain.request import Request
from tblctl.merger.cutting.cuts import CutTask, Output, whole_splits
from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark.cut_jobs import CutJobs, groups_a_job
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.merger.engines.spark.on_worker import WorkerSetup
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.spark.code import CODE
from tblctl.tableformat.errors import AccessDeniedError, CorruptTableError, EngineError
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.native.block_io import NativeBlockIO

from .test_tables import make_table, rows, shape

TASKS = 3


class OnWorker:
    """What the worker that takes it runs while it unpickles it; a part of a group here."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self.code,)


def to_cut(table: tblctl.Table, groups: int = 5, **of_group: Any) -> tuple[Any, list[CutTask]]:
    """Return the table's io, and groups of two of its blocks each; `of_group` has the run id of some, such as `_1`."""
    port = open_port(table.location)
    version = port.newest()
    found = list(version.blocks([block.path for block in table.files()]).values())
    made = []
    for number in range(groups):
        run_id: Any = of_group.get(f"_{number}", f"run {number}")
        output = Output(sort=version.sort, level=1, run_id=run_id, memory_bytes=1 << 30)
        splits = whole_splits(version, version.sort, found[2 * number : 2 * number + 2])
        made.append(CutTask(group=number, splits=tuple(splits), output=output, tasks=TASKS))
    return port.block_io(version), made


def cut(engine: Engine, io: Any, groups: Iterable[CutTask]) -> list[Any]:
    return list(engine.cut(io, groups, title="toys", groups_ahead=2))


def same(found: Any, expected: Any) -> bool:
    names = ("group", "firsts", "is_ordered", "is_presorted")
    return [getattr(found, name) for name in names] == [
        getattr(expected, name) for name in names
    ] and np.array_equal(found.bounds, expected.bounds)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the blocks that this process opens, and so requests."""
    paths: list[str] = []
    real = NativeBlockIO.open

    def recorded(self: Any, block: Any, **more: Any) -> Any:
        paths.append(block.path)
        return real(self, block, **more)

    monkeypatch.setattr(NativeBlockIO, "open", recorded)
    return paths


def test_tables_are_as_those_of_the_local_engine_and_the_driver_opens_no_block(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    make_table(str(tmp_path / "here"))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    here, there = (tblctl.open(str(tmp_path / name)) for name in ("here", "there"))
    for engine in (LocalEngine, SparkEngine):
        monkeypatch.setattr(engine, "parallelism", 2 * TASKS)
    before = rows(here)
    request = Request.of(policy="levels", condition=lambda _: None, options={"every_range": True})
    outcomes = []
    for table, engine in ((there, SparkEngine(spark.session, CODE)), (here, LocalEngine())):
        made: Any = engine
        opened.clear()
        outcomes.append(run_recluster(open_port(table.location), request, lambda _, made=made: made))
        assert bool(opened) == (made.name == "local")
    assert [outcome.committed_groups for outcome in outcomes] == [2, 2]
    assert shape(here) == shape(there)
    assert rows(here) == rows(there) == before
    assert there.check(deep=True).problems == ()


def test_cuts_are_those_of_this_process_and_in_the_order_of_groups(
    spark: Any, tmp_path: Path, opened: list[str]
) -> None:
    io, groups = to_cut(make_table(str(tmp_path)))
    expected = cut(LocalEngine(), io, groups)
    opened.clear()
    found = cut(SparkEngine(spark.session, CODE), io, groups)  # three jobs of two groups at most
    assert opened == []
    assert [one.group for one in found] == [group.group for group in groups]
    assert all(same(*pair) for pair in zip(found, expected, strict=True))
    assert {len(one.firsts) for one in found} == {2}, "blocks of 500 rows, two a group: a task for each"


def test_a_missing_block_fails_its_group_alone_with_the_error_as_it_was(spark: Any, tmp_path: Path) -> None:
    io, groups = to_cut(make_table(str(tmp_path)), 3)
    lost = groups[1].splits[0].block.path
    (tmp_path / lost).unlink()
    first, second, third = cut(SparkEngine(spark.session, CODE), io, groups)
    assert (first.group, third.group) == (0, 2)
    assert isinstance(second, CorruptTableError)
    assert second.details["name"] == lost


def test_a_worker_that_dies_takes_only_its_group_with_it(spark: Any, tmp_path: Path) -> None:
    io, groups = to_cut(make_table(str(tmp_path)), 4, _1=OnWorker("import os; os._exit(1)"))
    found = cut(SparkEngine(spark.session, CODE), io, groups)
    assert [isinstance(one, EngineError) for one in found] == [False, True, False, False]
    assert "gave up the job that cut group 1" in str(found[1])
    assert "memory" in str(found[1])


def test_whoever_takes_no_more_cuts_cancels_what_runs(spark: Any, tmp_path: Path) -> None:
    started = tmp_path / "started"
    sleeps = OnWorker(f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(600)")
    io, groups = to_cut(make_table(str(tmp_path / "table")), 3, _2=sleeps)
    before = set(threading.enumerate())
    found = SparkEngine(spark.session, CODE).cut(io, groups, title="toys", groups_ahead=2)
    assert [next(found).group, next(found).group] == [0, 1]
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline, "no worker began to cut the third group within 60 seconds"
        spark.session.range(1).count()
    found.close()
    assert not [
        thread for thread in set(threading.enumerate()) - before if "InheritableThread" in repr(thread)
    ]
    assert spark.session.range(10).count() == 10


# -- without Spark -----------------------------------------------------------------------------------------------------


class Jobs(CutJobs):
    """Jobs that run in this process. `sent` has their groups; `fails` raises for some of these."""

    def __init__(self, io: Any, fails: Callable[[list[int]], None] = lambda _: None) -> None:
        super().__init__(None, WorkerSetup(io=io, thresholds=THRESHOLDS), title="toys", tag="t")
        self.sent: list[list[int]] = []
        self._fails = fails
        self._threads: Any = self

    def start(self, work: Callable[[], None]) -> None:
        work()

    def require_session(self, cause: Exception) -> None: ...

    def cancel(self) -> None: ...

    def _outcomes(self, groups: Any) -> Any:
        numbers = [group.group for group in groups]
        self.sent.append(numbers)
        self._fails(numbers)
        return cut(LocalEngine(), self._setup.io, groups)


@pytest.fixture
def table(tmp_path: Path) -> tblctl.Table:
    return make_table(str(tmp_path / "table"))


def test_the_next_job_begins_before_the_groups_of_the_last_one_are_merged(table: tblctl.Table) -> None:
    io, groups = to_cut(table)
    taken: list[int] = []

    def watched() -> Iterator[CutTask]:
        for group in groups:
            taken.append(group.group)
            yield group

    jobs = Jobs(io)
    found = jobs.cuts(watched(), 2)
    assert next(found).group == 0
    assert (jobs.sent, taken) == ([[0, 1], [2, 3]], [0, 1, 2, 3]), "and no more are held"
    assert [one.group for one in found] == [1, 2, 3, 4]
    assert jobs.sent == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(("parallelism", "expected"), [(1, 1), (2, 2), (16, 16), (40, 16), (400, 100)])
def test_a_job_has_groups_for_a_quarter_of_the_processors_of_a_large_cluster(
    parallelism: int, expected: int
) -> None:
    assert groups_a_job(parallelism) == expected


def test_a_single_group_is_cut_on_the_driver(table: tblctl.Table, opened: list[str]) -> None:
    io, groups = to_cut(table, 1)
    jobs = Jobs(io)
    assert [one.group for one in jobs.cuts(groups, 2)] == [0]
    assert jobs.sent == []
    assert opened


def test_a_group_of_one_task_is_not_sent(table: tblctl.Table, opened: list[str]) -> None:
    io, groups = to_cut(table, 4)
    groups[1:3] = [dataclasses.replace(group, tasks=1) for group in groups[1:3]]
    jobs = Jobs(io)
    found = list(jobs.cuts(groups, 4))
    assert jobs.sent == [[0, 3]]
    assert [len(one.firsts) for one in found] == [2, 1, 1, 2]
    assert not {split.block.path for group in groups[1:3] for split in group.splits} & set(opened)


def test_groups_of_a_job_that_was_given_up_are_tried_in_halves_until_one_is_alone(
    table: tblctl.Table,
) -> None:
    def dies(numbers: list[int]) -> None:
        if 2 in numbers:
            raise RuntimeError("the worker died")

    io, groups = to_cut(table)
    jobs = Jobs(io, dies)
    found = list(jobs.cuts(groups, 5))
    assert [isinstance(one, EngineError) for one in found] == [False, False, True, False, False]
    assert jobs.sent == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4]]


@pytest.mark.parametrize(
    ("renewals", "expected"),
    [(True, [False] * 4), (False, [False, True, False, True])],
    ids=["renewed", "nobody vends"],
)
def test_groups_that_were_denied_are_tried_again_with_fresh_credentials(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch, renewals: bool, expected: list[bool]
) -> None:
    times: Counter[int] = Counter()

    class Denying(Jobs):
        def _outcomes(self, groups: Any) -> Any:
            times.update(group.group for group in groups)
            found = super()._outcomes(groups)
            return [
                AccessDeniedError("expired") if one.group % 2 and times[one.group] < 3 else one
                for one in found
            ]

    monkeypatch.setattr(NativeBlockIO, "renew", lambda _: renewals)
    io, groups = to_cut(table, 4)
    found = list(Denying(io).cuts(groups, 4))
    assert [isinstance(one, AccessDeniedError) for one in found] == expected
    assert times == ({0: 1, 1: 3, 2: 1, 3: 3} if renewals else dict.fromkeys(range(4), 1))
