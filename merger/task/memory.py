"""This process's memory: the allocator's free pages are returned to the system before tasks exceed their budgets.

Arrow's allocator keeps freed pages to use them again. With 300 columns or long lists these take as much memory as the
rows themselves, since pages freed by one thread are not reused by another. To return pages and take them again costs a
tenth of a merge of lineitem. So it is done only if all tasks together would exceed their budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa

from tblctl.tableformat.environment import Environment

SLACK_BYTES = 32 << 20
"""A sixth of what a task may take beyond its budget (benchmarks/memory.py). The rest is for growth between two looks at
the process."""


def release_unused() -> None:
    """Let the allocator return its free pages to the system."""
    pa.default_memory_pool().release_unused()


class ProcessMemory:
    """The memory that tasks add to this process. Threads and tasks may share one.

    Free pages of earlier tasks are returned first, so that they do not count as the process's own.

    Args:
        env: has the memory of the process.
        release: lets the allocator return its free pages.
    """

    def __init__(self, env: Environment, *, release: Callable[[], None] = release_unused) -> None:
        self._env = env
        self._release = release
        self._lock = Lock()
        release()
        self._most_bytes = env.resident_bytes() + SLACK_BYTES

    @contextmanager
    def task(self, memory_bytes: int) -> Iterator[None]:
        """Raise the limit by a task's budget while the task runs."""
        with self._lock:
            self._most_bytes += memory_bytes
        try:
            yield
        finally:
            with self._lock:
                self._most_bytes -= memory_bytes

    def give_back(self, coming_bytes: int = 0) -> None:
        """Return free pages if the process has more memory than its tasks may take, or would have with what comes.

        Args:
            coming_bytes: memory that the caller is about to take, at once.
        """
        if self._env.resident_bytes() + coming_bytes > self._most_bytes:
            self._release()
