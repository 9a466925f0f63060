"""The cuts of groups, found on Spark by jobs of many groups, a task for each group.

While the groups of one job are merged, the next job already finds cuts: Spark runs it first, because it was submitted
before their merges. So once the first job has ended, no processor waits for cuts. Only the places of the cuts return to
the driver, not the keys: 10 KB for a group of 64 blocks and 15 tasks.

A group that is one task is cut without reading keys, unless its blocks end at leaves of a tree, so this is done on the
driver; and so is a single group, since nothing is merged before its cuts are found anyway.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

from tblctl.merger.cutting.cuts import Cuts, CutTask, reads_no_keys
from tblctl.merger.engines.engine import cuts_here, renewed
from tblctl.merger.engines.spark.frame import Work, results
from tblctl.merger.engines.spark.jobs import JobThreads, given_up, named
from tblctl.merger.engines.spark.on_worker import WorkerSetup
from tblctl.tableformat.errors import AccessDeniedError, TblctlError

Found = Cuts | TblctlError

_JOBS_AHEAD = 1
_PROCESSORS_A_GROUP = 4
_LEAST_GROUPS = 16  # of a job, if there are as many processors: a job costs 0.1 s
_TRIES = 3
"""Tries of a group whose keys the storage denied: credentials that were sent along may have expired."""


def groups_a_job(parallelism: int) -> int:
    """Return how many groups a job has: for large clusters a quarter of its processors.

    All processors merge these for three times as long as it takes to find the cuts of one, so the next ones are known
    in time. There are not more, because a processor that reads keys sends 400 GETs a second, and one that merges 34.
    """
    return max(parallelism // _PROCESSORS_A_GROUP, min(parallelism, _LEAST_GROUPS))


class CutJobs:
    """The jobs that find the cuts of a round's groups.

    Args:
        session: pyspark's.
        setup: for the workers.
        title: names the work for people.
        tag: of the jobs; no others have it.
    """

    def __init__(self, session: Any, setup: WorkerSetup, *, title: str, tag: str) -> None:
        self._session = session
        self._setup = setup
        self._title = f"{title}, cuts"
        self._threads = JobThreads(session, tag)

    def cuts(self, groups: Iterable[CutTask], at_once: int) -> Generator[Found, None, None]:
        """Yield the cuts of each group, in order; an error where they cannot be found. `close` cancels jobs.

        A job has `at_once` groups.

        Raises:
            EngineError: the session ended.
        """
        waiting = iter(groups)
        begun: deque[tuple[list[CutTask], _Job | None]] = deque()
        is_first = True
        try:
            while batch := list(islice(waiting, at_once)):
                sent = [group for group in batch if not self._reads_no_keys(group)]
                is_only = is_first and len(batch) < at_once and len(sent) == 1
                begun.append((batch, self._started(sent) if sent and not is_only else None))
                is_first = False
                if len(begun) > _JOBS_AHEAD:
                    yield from self._ended(*begun.popleft())
            while begun:
                yield from self._ended(*begun.popleft())
        finally:
            self._threads.cancel()

    def _reads_no_keys(self, group: CutTask) -> bool:
        return reads_no_keys(self._setup.io, group, self._setup.thresholds)

    def _ended(self, batch: Sequence[CutTask], job: _Job | None) -> Iterator[Found]:
        found = (
            {}
            if job is None
            else dict(zip([group.group for group in job.groups], self._found(job), strict=True))
        )
        for group in batch:
            if group.group in found:
                yield found.pop(group.group)
            else:
                yield cuts_here(self._setup.io, group, self._setup.thresholds)

    def _found(self, job: _Job, tries_left: int = _TRIES - 1) -> list[Found]:
        """Wait for a job; return what it found for each of its groups. Groups that were denied are tried again."""
        groups = job.groups
        try:
            found = job.outcomes.result()
        except Exception as error:  # noqa: BLE001 (whatever it is, only one group may be to blame)
            self._threads.require_session(error)
            if len(groups) == 1:
                return [given_up(groups[0].group, "cut", error)]
            middle = len(groups) // 2
            halves = [self._started(half) for half in (groups[:middle], groups[middle:])]
            return [outcome for half in halves for outcome in self._found(half, tries_left)]
        denied = [place for place, outcome in enumerate(found) if isinstance(outcome, AccessDeniedError)]
        if denied and tries_left and renewed(self._setup.io):
            again = self._started([groups[place] for place in denied])
            for place, outcome in zip(denied, self._found(again, tries_left - 1), strict=True):
                found[place] = outcome
        return found

    def _started(self, groups: Sequence[CutTask]) -> _Job:
        outcomes: Future[list[Found]] = Future()

        def work() -> None:
            try:
                outcomes.set_result(self._outcomes(groups))
            except BaseException as error:  # noqa: BLE001 (judged in the caller's thread)
                outcomes.set_exception(error)

        self._threads.start(work)
        return _Job(groups, outcomes)

    def _outcomes(self, groups: Sequence[CutTask]) -> list[Found]:
        self._threads.mark(named(self._title, [group.group for group in groups]))
        work = _cutting(pickle.dumps(self._setup))
        found = results(self._session, [pickle.dumps(group) for group in groups], work)
        return [pickle.loads(cuts) for cuts in found]  # noqa: S301 (made by our own function)


class _Job(NamedTuple):
    """Groups whose cuts a job finds, and what it will have found for each."""

    groups: Sequence[CutTask]
    outcomes: Future[list[Found]]


def _cutting(setup: bytes) -> Work:
    """Return the function that finds the cuts of a group."""

    def cut(group: bytes) -> Iterable[bytes]:  # nested: pickled whole, and importable nowhere
        from tblctl.merger.engines.spark.on_worker import cut_pickled

        return [cut_pickled(setup, group)]

    return cut
