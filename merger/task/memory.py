"""What tasks keep of this process's memory: what an allocator holds on to after use is given back once it matters.

Arrow's allocator keeps freed pages to hand them out again. With 300 columns or long lists that comes to as much as the
rows themselves, since pages freed by one thread wait for the next of another. Giving them back and taking them anew
costs a tenth of a merge of lineitem, so it is done only where the tasks together would take more than they may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa

from tblctl.tableformat.environment import Environment

_SLACK_BYTES = 32 << 20
"""A sixth of what a task may take beside its budget (benchmarks/memory.py): the rest is for what comes between two
looks at the process."""


class Resident:
    """The memory of this process, beside what it has when this is made. Threads and tasks may share one.

    What earlier tasks left in the allocator is given back first, so that it does not count as the process's own.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = Lock()
        _release_unused()
        self._most_bytes = env.resident_bytes() + _SLACK_BYTES

    @contextmanager
    def task(self, memory_bytes: int) -> Iterator[None]:
        """Allow for so much more while a task runs."""
        with self._lock:
            self._most_bytes += memory_bytes
        try:
            yield
        finally:
            with self._lock:
                self._most_bytes -= memory_bytes

    def bound(self) -> None:
        """Give back what is not in use, if the process has more memory than its tasks may take."""
        if self._env.resident_bytes() > self._most_bytes:
            _release_unused()


def _release_unused() -> None:
    pa.default_memory_pool().release_unused()
