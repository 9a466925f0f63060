"""Doing several slow things at once inside one call; no thread outlives it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

IO_THREADS = 16
"""Requests under way at once; object stores answer each in tens of milliseconds, so they are worth overlapping."""


def cpu_threads() -> int:
    """Return how many threads keep every processor busy with work that releases the interpreter's lock."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T], *, threads: int) -> list[_R]:
    """Return `work` of every item, in their order; the first failure stops what has not begun and is raised."""
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
    """Yield `work` of every item, in their order, while as many threads are at the next ones; close it to stop them."""
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
