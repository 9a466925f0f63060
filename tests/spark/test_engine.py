"""The engine keeps its contract on every kind of session, also if tasks fail."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tblctl.merger.engines.spark.engine import SparkEngine, _by_group, _DealtUnit, _in_jobs, _Jobs
from tblctl.merger.engines.spark.jobs import named
from tblctl.merger.engines.spark.on_worker import WorkerSetup
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.round.renewal import run_renewed
from tblctl.merger.task.spec import TaskFailure, TaskResult
from tblctl.spark.code import CODE
from tblctl.tableformat.errors import CorruptTableError, EngineError, InternalError

from .toys import ROWS, ToyIO, block_io, outcomes_of, result, task


@pytest.mark.parametrize(
    ("slots", "parallelism", "expected"),
    [
        ([], 2, []),
        ([3, 2, 1], 2, [[3, 2], [1]]),
        ([3, 2, 1], 8, [[3, 2, 1]]),
        ([0.5] * 9, 2, [[0.5] * 4, [0.5] * 4, [0.5]]),
        ([0.001] * 50, 2, [[0.001] * 50]),
    ],
)
def test_jobs_fill_all_cores_with_work_for_seconds_in_the_order_of_tasks(
    slots: list[float], parallelism: int, expected: list[list[float]]
) -> None:
    units = [_DealtUnit([(SimpleNamespace(size_bytes=slot * 1_000),)]) for slot in slots]
    jobs = _in_jobs(units, parallelism, job_bytes=1_000)
    assert [[task.size_bytes / 1_000 for unit in job for task in unit.tasks] for job in jobs] == expected


def test_jobs_are_cut_before_all_tasks_are_planned() -> None:
    planned = []

    def plan() -> Any:
        for _ in range(5):
            planned.append(_DealtUnit([(SimpleNamespace(size_bytes=1_000),)]))
            yield planned[-1]

    next(_in_jobs(plan(), 2, 1_000))
    assert len(planned) == 2


def setup(io: Any) -> WorkerSetup:
    return WorkerSetup(io=io, thresholds=THRESHOLDS)


def alone(group: int, number: int = 0) -> _DealtUnit:
    return _DealtUnit([(task(group, number),)])


def test_a_job_is_named_by_its_groups() -> None:
    assert named("t", [3, 3]) == "t: group 3"
    assert named("t", [5, 1, 5]) == "t: groups 1, 5"
    assert named("t", range(20)) == "t: groups 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_a_job_that_was_given_up_is_parted_by_group() -> None:
    job = [alone(2, 0), alone(1, 0), alone(2, 1)]
    assert _by_group(job) == [[alone(1, 0)], [alone(2, 0), alone(2, 1)]]


class NoSpark:
    """A fake session. It runs nothing, and records the size of a job's function."""

    defaultParallelism = 2  # noqa: N815 (pyspark's)

    def __init__(self) -> None:
        self.weights: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._any

    def _any(self, *_: Any) -> NoSpark:
        return self

    @property
    def sparkContext(self) -> NoSpark:  # noqa: N802 (pyspark's)
        return self

    @property
    def conf(self) -> dict[str, str]:
        return {}

    def mapPartitions(self, function: Any) -> NoSpark:  # noqa: N802 (pyspark's)
        from pyspark import cloudpickle

        self.weights.append(len(cloudpickle.dumps(function)))
        return self

    def collect(self) -> list[Any]:
        return []


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads that wait for jobs, which need no JVM here."""
    started: list[threading.Thread] = []

    class Thread(threading.Thread):
        def __init__(self, target: Any, *, session: Any, **more: Any) -> None:
            super().__init__(target=target, **more)
            started.append(self)

    monkeypatch.setattr("pyspark.util.InheritableThread", Thread)
    return started


def test_whatever_ends_a_run_deletes_what_its_tasks_wrote_except_what_was_reported(
    threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes(_: Any, job: Any) -> deque[TaskResult]:
        tasks = [task for unit in job for task in unit.tasks]
        return deque(
            result(None, task, records=(SimpleNamespace(path=f"block-{task.group}"),)) for task in tasks
        )

    told = set()

    def interrupted(found: Any) -> None:
        told.update(record.path for record in found.records)
        for thread in threads:
            thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(_Jobs, "_outcomes", outcomes)
    io = block_io()
    with pytest.raises(KeyboardInterrupt):
        _Jobs(NoSpark(), setup(io), result, title="toys", tag="t").run(
            [[alone(0), alone(1)], [alone(2), alone(3)]], interrupted
        )
    assert len(told) == 1
    assert io.discarded == {f"block-{group}" for group in range(4)} - told


def test_what_ends_a_thread_ends_the_run(
    threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes(_: Any, __: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(_Jobs, "_outcomes", outcomes)
    jobs = _Jobs(NoSpark(), setup(block_io()), result, title="toys", tag="t")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            jobs.run([[alone(0)]], print)
        except SystemExit as error:
            ended.append(error)

    caller = threading.Thread(target=run, daemon=True)  # one that waits for ever must not stop pytest
    caller.start()
    caller.join(30)
    assert [error.code for error in ended] == [3]


def test_a_worker_is_not_sent_the_tasks_of_others() -> None:
    session = NoSpark()
    for count in (1, 100):
        job = [alone(group) for group in range(count)]
        _Jobs(session, setup(block_io()), result, title="toys", tag="t")._outcomes(job)
    one, many = session.weights
    assert many == one


@pytest.mark.parametrize(
    "groups", [1, 2, 7]
)  # in partitions that Spark makes by itself, and that a shuffle does
def test_every_task_runs_alone_in_its_partition_and_is_reported_once_from_the_calling_thread(
    spark: Any, groups: int
) -> None:
    def where(io, what):
        from pyspark import TaskContext

        attempt = TaskContext.get().taskAttemptId()
        return result(io, what, bytes_read=attempt)

    threads, rows = set(), []
    found = []

    def done(outcome) -> None:
        threads.add(threading.get_ident())
        found.append(outcome)

    tasks = [task(group, number) for group in range(groups) for number in range(groups)]
    SparkEngine(spark.session, CODE, function=where).run(
        block_io(), tasks, done, title="toys", advance=rows.append
    )
    assert sorted((one.group, one.number) for one in found) == [(one.group, one.number) for one in tasks]
    assert len({one.bytes_read for one in found}) == len(tasks)
    assert threads == {threading.get_ident()}
    assert sum(rows) == len(tasks) * ROWS


def test_tasks_denied_on_workers_run_again_with_what_the_driver_has_renewed(spark: Any) -> None:
    def denied(io: Any, what: Any, **more: Any) -> Any:  # nested: reaches workers by value
        from tblctl.tableformat.errors import AccessDeniedError

        if io.token == "of before":
            raise AccessDeniedError("expired")
        return result(io, what)

    class Vended(ToyIO):
        def renew(self) -> bool:
            self.token = "fresh"
            return True

    io: Any = Vended(**vars(block_io()), token="of before")
    found: list[Any] = []
    tasks = [task(group) for group in range(4)]
    run_renewed(SparkEngine(spark.session, CODE, function=denied), io, tasks, found.append, title="toys")
    assert [type(one) for one in found] == [TaskResult] * len(tasks)
    assert io.token == "fresh"


def test_as_many_tasks_as_cores_are_one_job_of_sparks_without_a_shuffle(spark: Any) -> None:
    if spark.kind == "connect":
        pytest.skip("a Connect client does not know how many there are now")
    outcomes_of(spark.session, [task(70), task(71)], result)
    starts = [event for event in spark.events() if event["Event"] == "SparkListenerJobStart"]
    ours = [event for event in starts if "toys: groups 70" in json.dumps(event["Properties"])]
    assert [len(event["Stage IDs"]) for event in ours] == [1]


def test_no_tasks_start_nothing(spark: Any) -> None:
    assert outcomes_of(spark.session, [], result) == {}


def test_parallelism_is_the_sessions_cores(spark: Any) -> None:
    assert SparkEngine(spark.session, CODE).parallelism == 2


def test_parallelism_is_what_the_sessions_settings_say(spark: Any) -> None:
    if spark.kind == "connect":
        pytest.skip("a Connect session is asked once how many parts a range has")
    session = spark.session.newSession()
    session.conf.set("spark.sql.leafNodeDefaultParallelism", 3)
    assert SparkEngine(session, CODE).parallelism == 3


def test_the_code_comes_from_the_zip_that_was_sent(spark: Any) -> None:
    def named(io, what):
        import tblctl.merger.task.merge
        from tblctl.tableformat.errors import InvalidDataError

        raise InvalidDataError(tblctl.merger.task.merge.__file__)

    (outcome,) = outcomes_of(spark.session, [task(0)], named).values()
    assert ".zip/tblctl/merger/task/merge.py" in str(outcome.error)


def test_a_task_that_raises_is_a_failure_of_its_own_with_the_error_as_it_was(spark: Any) -> None:
    def fails(io, what):
        from tblctl.tableformat.errors import CorruptTableError

        if what.group == 1:
            raise CorruptTableError("block b is damaged", name="b")
        if what.group == 2:
            raise ZeroDivisionError("by nothing")
        return result(io, what)

    found = outcomes_of(spark.session, [task(group) for group in range(4)], fails)
    assert isinstance(found[0, 0], TaskResult)
    assert isinstance(found[3, 0], TaskResult)
    assert isinstance(found[1, 0].error, CorruptTableError)
    assert found[1, 0].error.details == {"name": "b"}
    assert isinstance(found[2, 0].error, InternalError)
    assert "ZeroDivisionError: by nothing" in str(found[2, 0].error)


def test_a_worker_that_dies_takes_only_its_group_with_it(spark: Any) -> None:
    def dies(io, what):
        import os

        if what.group == 1:
            os._exit(1)
        return result(io, what)

    found = outcomes_of(
        spark.session, [task(group, number) for group in range(3) for number in range(2)], dies
    )
    failed = {place for place, outcome in found.items() if isinstance(outcome, TaskFailure)}
    assert failed == {(1, 0), (1, 1)}
    assert len(found) == 6
    assert isinstance(found[1, 0].error, EngineError)
    assert "group 1" in str(found[1, 0].error)
    assert "memory" in str(found[1, 0].error)


def test_only_the_attempt_that_spark_took_is_reported(spark: Any, tmp_path: Path) -> None:
    if spark.kind != "local-cluster[2,1,1024]":
        pytest.skip("a local master gives up at the first attempt that dies")

    def dies_once(io, what):
        import os
        from pathlib import Path

        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        (Path(io.folder) / f"{what.group}-{attempt}").touch()
        if what.group == 1 and attempt == 0:
            os._exit(1)
        return result(io, what, bytes_read=attempt)

    found = outcomes_of(spark.session, [task(0), task(1)], dies_once, io=block_io(folder=str(tmp_path)))
    assert {path.name for path in tmp_path.iterdir()} == {"0-0", "1-0", "1-1"}
    assert {place: outcome.bytes_read for place, outcome in found.items()} == {(0, 0): 0, (1, 0): 1}


def test_an_interrupt_cancels_what_runs_and_ends_its_workers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"

    def sleeps(io, what):
        import os
        import time
        from pathlib import Path

        from tblctl.tableformat.errors import InvalidDataError

        if what.group == 0:
            for _ in range(600):
                if Path(io.started).exists():
                    break
                time.sleep(0.1)
            raise InvalidDataError("enough")
        process = Path(f"{io.started}-new")
        process.write_text(str(os.getpid()))
        process.rename(io.started)
        time.sleep(600)

    def interrupted(outcome) -> None:
        assert str(outcome.error) == "enough"
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkEngine, "parallelism", 1)  # with no bytes to fill a job, each task is one
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        SparkEngine(spark.session, CODE, function=sleeps, job_bytes=0).run(
            block_io(started=str(started)), [task(0), task(1)], interrupted, title="toys"
        )
    assert not [
        thread for thread in set(threading.enumerate()) - before if "InheritableThread" in repr(thread)
    ]
    worker = Path("/proc") / started.read_text()
    while worker.exists():  # until the timeout of the test; its task would go on for ten minutes
        time.sleep(0.1)
    assert spark.session.range(10).count() == 10


def test_two_engines_and_two_threads_share_a_session(spark: Any) -> None:
    def echoes(io, what):
        return result(io, what, bytes_read=io.mark)

    tasks = [task(group) for group in range(5)]
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(outcomes_of, spark.session, tasks, echoes, io=block_io(mark=mark)) for mark in (1, 2)
        ]
        for mark, run in enumerate(runs, start=1):
            assert [outcome.bytes_read for outcome in run.result().values()] == [mark] * 5
    assert spark.session.range(10).count() == 10


def test_secrets_are_in_no_plan_event_or_message(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    secret = "PASSWORD-0123456789"

    def fails(io, what):
        import os

        assert io.storage_options["secret"].startswith("PASSWORD-")
        if what.group == 1:
            os._exit(1)
        raise ValueError("no")

    caplog.set_level(logging.INFO)
    io = block_io(storage_options={"secret": secret})
    found = outcomes_of(spark.session, [task(0), task(1), task(2)], fails, io=io)
    traces = spark.traces()
    assert b"toys: group" in traces, "the log is not where the test looks"
    for form in (secret, secret.encode().hex()):
        assert form.encode() not in traces
        assert form not in caplog.text + "".join(map(str, found.values()))


def test_jobs_and_stages_show_the_title_and_groups_and_leave_the_callers_as_it_was(spark: Any) -> None:
    if spark.kind == "connect":  # whose server describes jobs itself
        outcomes_of(spark.session, [task(0), task(2)], result)
        assert spark.session.getTags() == set()
        wanted = {"spark.job.tags": "_Tag_toys: groups 0; 2"}
    else:
        context = spark.session.sparkContext
        context.setJobDescription("the caller's")
        try:
            outcomes_of(spark.session, [task(0), task(2)], result)
            assert context.getLocalProperty("spark.job.description") == "the caller's"
        finally:
            context.setJobDescription(None)
        wanted = {"spark.job.description": "toys: groups 0, 2"}
    ((name, text),) = wanted.items()
    shown = [event for event in spark.events() if text in event.get("Properties", {}).get(name, "")]
    assert {event["Event"] for event in shown} == {"SparkListenerJobStart", "SparkListenerStageSubmitted"}
