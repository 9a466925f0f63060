"""The engine on Spark, classic or Connect: tasks run on executors.

Tasks are sent as a few jobs. Each job is a list of task descriptions, a partition each (`frame.py`): a worker gets only
the pickle of its own share of tasks, however many others there are. On local[2], warm, 2 empty tasks take 0.2 s and 8
take 0.5 s.

The function carries the BlockIO, which holds secrets (storage options). Spark prints plans, expressions and rows in its
UI, its event log and its messages. Of a Python function it prints only the name.

There are several jobs instead of one, so that outcomes are reported early. If Spark gives up a job (a worker dies
repeatedly), only its own groups fail, and these are tried one by one.

Spark's UI names jobs and stages by the table and the groups that they merge. A classic session uses the description; a
Connect session uses a tag, because its server describes jobs itself.
"""

from __future__ import annotations

import pickle
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

from tblctl.merger.cutting.cuts import Cuts, CutTask
from tblctl.merger.engines.engine import Advance, Done, Wanted, always
from tblctl.merger.engines.spark import on_worker, workers
from tblctl.merger.engines.spark.cut_jobs import CutJobs, groups_a_job
from tblctl.merger.engines.spark.frame import Work, results
from tblctl.merger.engines.spark.jobs import JobThreads, given_up, named
from tblctl.merger.engines.spark.on_worker import TaskFunction, WorkerSetup
from tblctl.merger.engines.spark.shipping import Code
from tblctl.merger.engines.spark.shuffled import sorted_and_merged
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds, deal, decodings, units
from tblctl.merger.presort.sort_tasks import SortTask, sort_tasks
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import BlockIO

Outcome = TaskResult | TaskFailure

JOB_BYTES = 128 << 20
"""Bytes of files that each processor reads in a job: seconds of work for the 0.1 s (Connect: 0.2 s) a job costs."""

_JOBS_AT_ONCE = 3
"""Jobs at once: one runs, one uses the processors that the first leaves idle at its end, one is being planned."""


class SparkEngine:
    """Runs tasks on the caller's Spark session, classic or Connect; an `Engine`.

    Args:
        session: pyspark's. Its settings stay unchanged; tblctl's code is added to its Python files.
        code: the parts of tblctl that are sent to the session's workers.
        function: runs a task; by default `on_worker.run`.
        thresholds: for cutting groups into tasks, and for presorting.
        job_bytes: bytes of files that each processor reads in a job.
    """

    name = "spark"

    def __init__(
        self,
        session: Any,
        code: Code,
        *,
        function: TaskFunction | None = None,
        thresholds: Thresholds = THRESHOLDS,
        job_bytes: int = JOB_BYTES,
    ) -> None:
        self.thresholds = thresholds
        self._session = session
        self._code = code
        self._job_bytes = job_bytes
        self._function = function or partial(on_worker.run, thresholds=thresholds)

    @property
    def parallelism(self) -> int:
        """How many tasks the session runs at once, estimated by its default number of partitions."""
        return workers.parallelism(self._session)

    def cut(
        self,
        io: BlockIO,
        groups: Iterable[CutTask],
        *,
        title: str,
        groups_ahead: int,  # noqa: ARG002 (workers have room for more)
    ) -> Generator[Cuts | TblctlError, None, None]:
        """See `Engine.cut`. The keys are read by tasks on executors (`cut_jobs.py`).

        Raises:
            EngineError: the session does not answer, or its workers lack what tasks need.
        """
        workers.prepare(self._session, self._code)
        setup = WorkerSetup(io=io, thresholds=self.thresholds)
        jobs = CutJobs(self._session, setup, title=title, tag=io.env.new_id())
        return jobs.cuts(groups, groups_a_job(self.parallelism))

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,
        advance: Advance | None = None,
        wanted: Wanted = always,  # noqa: ARG002 (tasks that run on workers go on)
    ) -> None:
        """See `Engine.run`. Outcomes and rows of a job are reported together, when it ends.

        Raises:
            EngineError: the session does not answer, or its workers lack what tasks need.
        """

        def report(outcome: Outcome) -> None:
            done(outcome)
            if advance and isinstance(outcome, TaskResult):
                advance(outcome.rows)

        workers.prepare(self._session, self._code)
        setup = WorkerSetup(io=io, thresholds=self.thresholds)
        jobs = _Jobs(self._session, setup, self._function, title=title, tag=io.env.new_id())
        found = units(tasks, group_rows=io.options.row_group_rows, thresholds=self.thresholds)
        dealt = (_dealt(unit, self.parallelism, io.options.row_group_rows, self.thresholds) for unit in found)
        jobs.run(_in_jobs(dealt, self.parallelism, self._job_bytes), report)


class _DealtUnit(NamedTuple):
    """A unit of tasks, and how it runs on workers.

    Attributes:
        shares: neighbouring tasks that one worker runs one after the other. It sorts their rows for itself.
        sorts: alternatively, if each share is one task: sort tasks for all of them, which run before.
    """

    shares: Sequence[tuple[MergeTask, ...]]
    sorts: Sequence[SortTask] = ()

    @property
    def group(self) -> int:
        return self.shares[0][0].group

    @property
    def tasks(self) -> list[MergeTask]:
        return list(chain(*self.shares))


Job = Sequence[_DealtUnit]


def _dealt(
    unit: tuple[MergeTask, ...], parallelism: int, group_rows: int, thresholds: Thresholds
) -> _DealtUnit:
    """Return how a unit runs: workers sort for themselves, or all rows are sorted before, whichever decodes less."""
    if len(unit) == 1:
        return _DealtUnit([unit])
    shares = deal(unit, parallelism, thresholds)
    if decodings(shares, group_rows) <= thresholds.decodings_by_worker:
        return _DealtUnit(shares)
    return _DealtUnit([(task,) for task in unit], sort_tasks(unit, thresholds))


def _in_jobs(units: Iterable[_DealtUnit], parallelism: int, job_bytes: int) -> Iterator[Job]:
    """Yield the units as jobs, in order. Each job occupies all processors and is worth its overhead."""
    job: list[_DealtUnit] = []
    size_bytes = processors = 0
    for unit in units:
        job.append(unit)
        size_bytes += sum(task.size_bytes for task in unit.tasks)
        processors += len(unit.shares)
        if processors >= parallelism and size_bytes >= parallelism * job_bytes:
            yield job
            job, size_bytes, processors = [], 0, 0
    if job:
        yield job


def _by_group(job: Job) -> list[Job]:
    group = attrgetter("group")
    return [list(of_one) for _, of_one in groupby(sorted(job, key=group), key=group)]


class _Jobs:
    """The jobs of one run. A thread waits for each, because Spark's Python API blocks."""

    def __init__(
        self, session: Any, setup: WorkerSetup, function: TaskFunction, *, title: str, tag: str
    ) -> None:
        self._session = session
        self._setup = setup
        self._function = function
        self._title = title
        self._threads = JobThreads(session, tag)
        self._ended: queue.SimpleQueue[tuple[Job, deque[Outcome] | BaseException]] = queue.SimpleQueue()
        self._written: dict[int, deque[Outcome]] = {}  # and not reported, by identity

    def run(self, jobs: Iterable[Job], report: Callable[[Outcome], None]) -> None:
        """Run all jobs, and report the outcomes of each when it ends. Errors cancel jobs and delete their blocks."""
        waiting = iter(jobs)
        running = 0
        try:
            while True:
                for job in islice(waiting, _JOBS_AT_ONCE - running):
                    self._threads.start(partial(self._wait_for, job))
                    running += 1
                if not running:
                    return
                job, outcomes = self._ended.get()
                running -= 1
                if not isinstance(outcomes, BaseException):
                    while outcomes:
                        report(outcomes.popleft())  # from here on it belongs to the caller
                    self._written.pop(id(outcomes), None)
                    continue
                if not isinstance(outcomes, Exception):
                    raise outcomes  # noqa: TRY301
                self._threads.require_session(outcomes)
                apart = _by_group(job)
                if len(apart) > 1:
                    waiting = chain(apart, waiting)
                else:
                    for failure in _given_up(job, outcomes):
                        report(failure)
        except BaseException:
            self._threads.cancel()
            results = [item for item in chain(*self._written.values()) if isinstance(item, TaskResult)]
            self._setup.io.discard([record.path for result in results for record in result.records])
            raise

    def _wait_for(self, job: Job) -> None:
        try:
            outcomes = self._outcomes(job)
            self._written[id(outcomes)] = outcomes
            self._ended.put((job, outcomes))
        except BaseException as error:  # noqa: BLE001 (judged in the caller's thread)
            self._ended.put((job, error))

    def _outcomes(self, job: Job) -> deque[Outcome]:
        self._threads.mark(named(self._title, [unit.group for unit in job]))
        shares = [share for unit in job for share in unit.shares]
        sorts = [sort for unit in job for sort in unit.sorts]
        if sorts:
            frame = sorted_and_merged(self._session, self._setup, shares, sorts, self._function)
            found = [row.outcome for row in frame.collect()]
        else:
            work = _merging(pickle.dumps(self._setup), self._function)
            found = results(self._session, [pickle.dumps(share) for share in shares], work)
        return deque(pickle.loads(outcome) for outcome in found)  # noqa: S301 (made by our own function)


def _merging(setup: bytes, function: TaskFunction) -> Work:
    """Return the function that runs a share."""

    def merge(share: bytes) -> Iterable[bytes]:  # nested: pickled whole, and importable nowhere
        from tblctl.merger.engines.spark.on_worker import run_pickled

        return run_pickled(setup, share, function)

    return merge


def _given_up(job: Job, error: Exception) -> list[TaskFailure]:
    own = given_up(job[0].group, "merged", error)
    return [
        TaskFailure(group=task.group, number=task.number, error=own) for unit in job for task in unit.tasks
    ]
