"""The threads of one task, and the processor time that they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Self, TypeVar

from tblctl.tableformat.port import BlockIO

WRITING = 4
"""Most windows that are being written or wait. Writes of one block follow each other; the next block's may begin."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Threads:
    """Threads of one task: to read many inputs at once, and to write while reading. With one thread, work runs at once.

    `opens` more are for reads that wait for a network: they take no processor time. One more than asked
    for lets a write go on beside reads, since what is read next often waits to know its bytes; `map` does not use it.
    Another decodes ahead: it takes the processor while others wait, see `decode_ahead.py`.
    """

    def __init__(self, threads: int, clock: Clock, opens: int) -> None:
        self._clock = clock
        self._mappers = _pool(threads)
        self._pool = _pool(threads + 1 if threads > 1 else threads)
        self._readers = _pool(opens) if opens > threads else None
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="tblctl-merge-ahead") if threads > 1 else None
        self._writing: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pool in (self._mappers, self._pool, self._readers, self._ahead):
            if pool:
                pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return `work` of every item, for work whose memory counts on as many threads as were asked for."""
        return self._map(self._mappers, work, items)

    def read(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return `work` of every item, for work that waits for the storage."""
        return self._map(self._readers or self._pool, work, items)

    def _map(
        self, pool: ThreadPoolExecutor | None, work: Callable[[_T], _R], items: Iterable[_T]
    ) -> list[_R]:
        waiting = list(items)
        if pool is None or len(waiting) <= 1:
            return [work(item) for item in waiting]
        return list(pool.map(lambda item: self._clock.counted(work, item), waiting))

    def start(self, work: Callable[[], None]) -> None:
        """Start some work; with one thread, do it at once."""
        if self._pool:
            self._pool.submit(self._clock.counted, lambda _: work(), None)
        else:
            work()

    @property
    def begin_ahead(self) -> Callable[[Callable[[], _R]], Future[_R]] | None:
        """Begins work that is not needed yet; None with one thread."""
        pool = self._ahead
        if pool is None:
            return None
        return lambda work: pool.submit(self._clock.counted, lambda _: work(), None)

    def begin(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[Future[_R]]:
        """Begin `work` of every item, and return the futures."""
        if self._pool:
            return [self._pool.submit(self._clock.counted, work, item) for item in items]
        return [_done(work(item)) for item in items]

    def write(self, queue: SerialQueue, work: Callable[[], _R]) -> Future[_R]:
        """Put a write into a queue, after fewer than `WRITING` writes are waiting or running."""
        raise_failures(self._writing)
        self._writing = [future for future in self._writing if not future.done()]
        while len(self._writing) >= WRITING:
            self._writing[0].result()
            self._writing.pop(0)
        future = queue.submit(work)
        self._writing.append(future)
        return future

    def settle(self) -> None:
        """Wait until no write is running, failed or not."""
        for future in self._writing:
            future.exception()


def _pool(threads: int) -> ThreadPoolExecutor | None:
    return ThreadPoolExecutor(threads, thread_name_prefix="tblctl-merge") if threads > 1 else None


def _done(result: _R) -> Future[_R]:
    future: Future[_R] = Future()
    future.set_result(result)
    return future


def raise_failures(futures: Iterable[Future[Any]]) -> None:
    """Raise the failure of any finished work."""
    for future in futures:
        if future.done():
            future.result()


class SerialQueue:
    """Runs work one piece at a time, in order of arrival, in a task's threads.

    After a failure no more work runs: all later pieces fail with the same error.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_draining = False  # a thread is running the waiting work
        self._error: BaseException | None = None

    def submit(self, work: Callable[[], _R]) -> Future[_R]:
        """Queue some work."""
        future: Future[_R] = Future()
        with self._lock:
            self._waiting.append((work, future))
            if self._is_draining:
                return future
            self._is_draining = True
        self._threads.start(self._drain)
        return future

    def _drain(self) -> None:
        while (item := self._next()) is not None:
            self._do(*item)

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._lock:
            self._is_draining = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _do(self, work: Callable[[], Any], future: Future[Any]) -> None:
        if self._error is not None:
            future.set_exception(self._error)
            return
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised again by whoever asks for the result)
            self._error = error
            future.set_exception(error)


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
