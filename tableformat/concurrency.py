"""Run several slow operations at once inside one call. No thread outlives the call."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

IO_THREADS = 16
"""Concurrent requests. Object stores answer each in tens of milliseconds, so overlapping them pays off."""


def cpu_threads() -> int:
    """Return how many threads keep every processor busy with work that releases the interpreter's lock."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T], *, threads: int) -> list[_R]:
    """Return the result of `work` for each item, in order. The first failure stops further items and is raised."""
    waiting: Sequence[_T] = list(items)
    if len(waiting) <= 1 or threads <= 1:
        return [work(item) for item in waiting]
    with ThreadPoolExecutor(min(threads, len(waiting)), thread_name_prefix="tblctl") as pool:
        try:
            return list(pool.map(work, waiting))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def ahead(work: Callable[[_T], _R], items: Iterable[_T], *, threads: int) -> Generator[_R, None, None]:
    """Yield the result of `work` for each item, in order, while threads work on the next ones. `close` stops them."""
    begun: deque[Future[_R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="tblctl") as pool:
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) > threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
