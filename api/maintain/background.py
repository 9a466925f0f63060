"""Reclusters in the background of a writer: one at a time in a process, whatever the number of tables and handles.

The thread lives as long as there is work, so none is left behind. A table waits at most once: what its writers commit
meanwhile is seen by the round that waits. Work is stopped at its next report of progress: what it has committed stays,
and blocks that no commit names are deleted, as after an interrupt. While it plans, or waits before it tries again what
lost a race (10 seconds at most), it reports nothing: whoever stops it waits for so long.

A process that ends by itself, or by an exception such as a handler of SIGTERM raises, first stops the work and waits
for it. One that is killed leaves what any killed recluster leaves: objects for gc.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 (registers its function for the exit before ours)
import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tblctl.tableformat.progress import Progress

LOG = logging.getLogger("tblctl")

Work: TypeAlias = Callable[[Progress], object]
"""Does something, and calls its argument as it goes on; that raises `Stopped` once the work is to end."""


class Stopped(BaseException):
    """Work in the background is to end now."""


@dataclass(eq=False)
class _Job:
    """Some work of a table, from when it waits until it is over."""

    key: str
    work: Work
    stop: threading.Event = field(default_factory=threading.Event)
    is_over: bool = False

    def report(self, _done: int, _total: int | None, _unit: str) -> None:
        """Take note of progress; see `Progress`."""
        if self.stop.is_set():
            raise Stopped


class Background:
    """One queue of work, and a thread while there is some. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, _Job] = {}
        self._running: _Job | None = None
        self._thread: threading.Thread | None = (
            None  # the last one; it has ended, or is about to, unless it works
        )
        self._works = False
        self._is_shut = False

    def begin(self, key: str, work: Work) -> None:
        """Do the work of `key` once its turn comes, unless some of it waits already. Returns at once.

        Raises:
            RuntimeError: the process is ending, or cannot start a thread.
        """
        with self._changed:
            if self._is_shut:
                raise RuntimeError("this process is ending")
            if not self._works:
                self._start()
            self._waiting.setdefault(key, _Job(key, work))

    def end(self, key: str, *, wait: bool) -> None:
        """Return once the work of `key` that there is now is over: when it is done, or without `wait` when it stops.

        Interrupting the wait stops the work.
        """
        with self._changed:
            found = [job for job in (self._running, self._waiting.get(key)) if job and job.key == key]
            try:
                if wait:
                    self._changed.wait_for(lambda: all(job.is_over for job in found))
            except BaseException as error:
                error.add_note("the recluster in the background was stopped; what it has committed stays")
                raise
            finally:
                self._stop(found)
                self._changed.wait_for(lambda: all(job.is_over for job in found))

    def take_over(self, key: str) -> None:
        """Let the caller do what work of `key` waits for, and return once that which runs is done.

        What runs is not stopped: the caller would have to do again what it has merged by now. Interrupting the wait
        leaves it running.
        """
        with self._changed:
            if waiting := self._waiting.get(key):
                self._stop([waiting])
            running = self._running
            if running is not None and running.key == key:
                self._changed.wait_for(lambda: running.is_over)

    def shut(self) -> None:
        """Stop all work, and take no more."""
        with self._changed:
            self._is_shut = True
            self._stop([*self._waiting.values(), *([self._running] if self._running else [])])
            thread = self._thread
        if thread is not None:
            thread.join()

    def _stop(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            job.stop.set()
            if self._waiting.get(job.key) is job:
                del self._waiting[job.key]
                job.is_over = True
        self._changed.notify_all()

    def _start(self) -> None:
        """Start the thread, which waits for the lock that the caller holds."""
        thread = threading.Thread(target=self._work_off, args=(self._thread,), name="tblctl-recluster")
        thread.start()
        self._thread, self._works = thread, True

    def _work_off(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # so that whoever joins the last thread has joined all
        while (job := self._next()) is not None:
            try:
                job.work(job.report)
            except Stopped:
                LOG.info("a recluster in the background was stopped; what it committed stays")
            except BaseException as error:  # noqa: BLE001 (there is nobody to pass it on to)
                LOG.warning("a recluster in the background ended: %r", error)

    def _next(self) -> _Job | None:
        """Return what is next; None, and the thread is to end, if there is nothing."""
        with self._changed:
            if self._running is not None:
                self._running.is_over = True
            self._running = self._waiting.pop(next(iter(self._waiting)), None) if self._waiting else None
            self._works = self._running is not None
            self._changed.notify_all()
            return self._running


BACKGROUND = Background()
"""That of this process."""


def _shut() -> None:
    BACKGROUND.shut()


def _forget() -> None:
    """Be empty again: a forked process has no other thread than the one that forked it."""
    global BACKGROUND  # noqa: PLW0603
    BACKGROUND = Background()


os.register_at_fork(after_in_child=_forget)

# `atexit` is too late: before it, pools of threads are shut, which the work needs to end properly. Of the functions
# that are registered here, the last comes first.
threading._register_atexit(_shut)  # type: ignore[attr-defined]  # noqa: SLF001
