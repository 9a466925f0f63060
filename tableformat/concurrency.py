"""Doing several slow things at once inside one call; no thread outlives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
