"""Spark jobs that run at once. A thread waits for each, because Spark's Python API blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from tblctl.merger.engines.spark import workers
from tblctl.merger.engines.spark.workers import reason
from tblctl.tableformat.errors import EngineError

_NAMED_GROUPS = 8  # of a job, in Spark's UI
_CANCEL_TRIES = 30  # with a second between them


def named(title: str, groups: Collection[int]) -> str:
    """Return the title with the numbers of the first groups, such as `title: groups 0, 3, 4 and 20 more`."""
    numbers = sorted(set(groups))
    more = len(numbers) - _NAMED_GROUPS
    texts = ", ".join(map(str, numbers[:_NAMED_GROUPS])) + (f" and {more} more" if more > 0 else "")
    return f"{title}: group{'s' if len(numbers) > 1 else ''} {texts}"


class JobThreads:
    """Starts and cancels jobs of one purpose.

    Args:
        session: pyspark's.
        tag: marks the jobs, to cancel them; no others have it.
    """

    def __init__(self, session: Any, tag: str) -> None:
        self._session = session
        self._tag = tag
        self._threads: list[Any] = []

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread of its own: it starts a job, and waits for it."""
        from pyspark.util import InheritableThread  # inherits the caller's scheduler pool and job group

        thread = InheritableThread(work, session=self._session, daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        thread.start()

    def mark(self, name: str) -> None:
        """Name the jobs that this thread starts from now on, and make them cancellable."""
        if workers.is_connect(self._session):
            self._session.addTag(self._tag)
            self._session.addTag(name.replace(",", ";"))  # a tag must not contain commas
        else:
            self._session.sparkContext.addJobTag(self._tag)
            self._session.sparkContext.setJobDescription(name)

    def require_session(self, cause: Exception) -> None:
        """Raise unless the session still works; nothing is started on its executors.

        Raises:
            EngineError: it ended.
        """
        try:
            self._session.sql("SELECT 1").collect()
        except Exception:  # noqa: BLE001 (the one that ended the job says more)
            raise EngineError(
                f"the Spark session ended while tblctl was merging ({reason(cause)}): start a session and run it again"
            ) from cause

    def cancel(self) -> None:
        """Cancel what runs, repeatedly: a thread may have been about to start its job."""
        for _ in range(_CANCEL_TRIES):
            alive = [thread for thread in self._threads if thread.is_alive()]
            if not alive:
                return
            with suppress(Exception):  # a session that is gone runs nothing
                if workers.is_connect(self._session):
                    self._session.interruptTag(self._tag)
                else:
                    self._session.sparkContext.cancelJobsWithTag(self._tag)
            alive[0].join(1)


def given_up(group: int, what: str, error: Exception) -> EngineError:
    """Return the error of a group whose job Spark gave up."""
    return EngineError(
        f"Spark gave up the job that {what} group {group} ({reason(error)}). A worker that dies has usually "
        "run out of memory: give tasks less memory (memory_bytes), or executors more outside of the JVM "
        "(spark.executor.memoryOverhead)"
    )
