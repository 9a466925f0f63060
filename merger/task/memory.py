"""This process's memory: freed pages that the allocator keeps are given back once tasks would exceed their budgets.

Arrow's allocator keeps freed pages to hand them out again. With 300 columns or long lists that comes to as much as the
rows themselves, since pages freed by one thread wait for the next of another. Giving them back and taking them anew
costs a tenth of a merge of lineitem, so it is done only where the tasks together would take more than they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa

from tblctl.tableformat.environment import Environment

SLACK_BYTES = 32 << 20
"""A sixth of what a task may take beside its budget (benchmarks/memory.py): the rest is for what comes between two
looks at the process."""


def release_unused() -> None:
    """Have the allocator give back what it keeps."""
    pa.default_memory_pool().release_unused()


class ProcessMemory:
    """The memory that tasks add to this process. Threads and tasks may share one.

    What earlier tasks left in the allocator is given back first, so that it does not count as the process's own.

    Args:
        env: tells how much memory the process has.
        release: has the allocator give back what it keeps.
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

    def give_back(self) -> None:
        """Give back what is not in use, if the process has more memory than its tasks may take."""
        if self._env.resident_bytes() > self._most_bytes:
            self._release()
