"""The threads of one task, and the processor time that they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Self, TypeVar

from tblctl.tableformat.port import BlockIO

WRITING = 4
"""Windows that are written, or wait for it: while one block's follow each other, those of the next are begun."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Threads:
    """Threads of one task: for reading many inputs at once, and for writing beside reading. With one, nothing waits.

    `opens` are for reading, where it waits for a network: they cost no processor time.
    """

    def __init__(self, threads: int, clock: Clock, opens: int) -> None:
        self.threads = threads
        self.clock = clock
        self.pool = _pool(threads)
        self._readers = _pool(opens) if opens > threads else None
        self._writing: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pool in (self.pool, self._readers):
            if pool:
                pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return `work` of every item."""
        return self._map(self.pool, work, items)

    def read(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return `work` of every item, work that waits for the storage."""
        return self._map(self._readers or self.pool, work, items)

    def _map(
        self, pool: ThreadPoolExecutor | None, work: Callable[[_T], _R], items: Iterable[_T]
    ) -> list[_R]:
        waiting = list(items)
        if pool is None or len(waiting) <= 1:
            return [work(item) for item in waiting]
        return list(pool.map(lambda item: self.clock.counted(work, item), waiting))

    def begin(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[Future[_R]]:
        """Begin `work` of every item, and return what will have it."""
        if self.pool:
            return [self.pool.submit(self.clock.counted, work, item) for item in items]
        return [_done(work(item)) for item in items]

    def write(self, line: Line, work: Callable[[], _R]) -> Future[_R]:
        """Put work into a line, once fewer than `WRITING` pieces of work are waiting or being done."""
        raise_failures(self._writing)
        self._writing = [future for future in self._writing if not future.done()]
        while len(self._writing) >= WRITING:
            self._writing[0].result()
            self._writing.pop(0)
        future = line.submit(work)
        self._writing.append(future)
        return future

    def settle(self) -> None:
        """Wait until nothing is being written, whatever came of it."""
        for future in self._writing:
            future.exception()


def _pool(threads: int) -> ThreadPoolExecutor | None:
    return ThreadPoolExecutor(threads, thread_name_prefix="tblctl-merge") if threads > 1 else None


def _done(result: _R) -> Future[_R]:
    future: Future[_R] = Future()
    future.set_result(result)
    return future


def raise_failures(futures: Iterable[Future[Any]]) -> None:
    """Raise what a piece of work that is done failed with, if any did."""
    for future in futures:
        if future.done():
            future.result()


class Line:
    """Work that is done one after the other, beside the caller; after a failure all that follows fails the same."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = False
        self._failed: BaseException | None = None

    def submit(self, work: Callable[[], _R]) -> Future[_R]:
        """Queue some work."""
        future: Future[_R] = Future()
        with self._lock:
            self._waiting.append((future, work))
            start = not self._running
            self._running = True
        if start and self._threads.pool:
            self._threads.pool.submit(self._threads.clock.counted, lambda _: self._run(), None)
        elif start:
            self._run()
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                future, work = self._waiting.popleft()
            try:
                result = work() if self._failed is None else None
            except BaseException as error:  # noqa: BLE001 (raised again by whoever asks for the result)
                self._failed = error
                future.set_exception(error)
            else:
                if self._failed is None:
                    future.set_result(result)
                else:
                    future.set_exception(self._failed)
            del future, work


class Clock:
    """Wall and processor seconds of one task, over all its threads."""

    def __init__(self, io: BlockIO) -> None:
        self._env = io.env
        self._wall = self._env.elapsed()
        self._cpu = self._env.cpu()
        self._others: list[float] = []

    def counted(self, work: Callable[[_T], _R], item: _T) -> _R:
        """Do work in another thread, counting its time."""
        started = self._env.cpu()
        try:
            return work(item)
        finally:
            self._others.append(self._env.cpu() - started)

    def wall(self) -> float:
        return self._env.elapsed() - self._wall

    def cpu(self) -> float:
        return self._env.cpu() - self._cpu + sum(self._others)
