"""Write queries to the log of a table in the background.

`LogWriter.add` never waits and never raises: it puts a query into a queue, whose size is bounded. A thread writes a
file once enough queries wait, or some time has passed; it lives only as long as something waits. Queries that find the
queue full are counted, not kept. If the storage fails, or the process is killed, the queries that wait are lost, and
nothing else.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 (its own function is to be registered before ours)
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import LogPlace, log_path
from tblctl.tableformat.workload.queries import Query

LOG = logging.getLogger("tblctl")

Rewrite = Callable[[str], str]
"""Returns what is kept of a condition. It runs in the background, and may raise: then nothing of it is kept."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When the queue is written, and what it may hold.

    Attributes:
        flush_queries: a file is written once so many wait.
        flush_seconds: or once so much time has passed since the first.
        most_bytes: of the queue, estimated; further queries are dropped.
        exit_seconds: at the end of the process, and of a handle, it is waited so long for the last file.
    """

    flush_queries: int = 1_000
    flush_seconds: float = 60.0
    most_bytes: int = 8 << 20
    exit_seconds: float = 5.0


LIMITS = Limits()
_QUERY_BYTES, _BLOCK_BYTES = 400, 160


class LogWriter:
    """Writes the queries of one table that this process sees. Threads share it.

    Attributes:
        dropped: queries that found the queue full, or were in a file that could not be written.
    """

    def __init__(
        self,
        place: LogPlace,
        env: Environment,
        table_id: str,
        *,
        rewrite: Rewrite | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._place = place
        self._env = env
        self._table_id = table_id
        self._rewrite = rewrite
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting: list[Query] = []
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._hurries = False
        self._told = 0  # of the dropped queries, those that a file tells of
        self.dropped = 0

    def add(self, query: Query) -> None:
        """Put a query into the queue, or drop it."""
        size = _QUERY_BYTES + len(query.where) + _BLOCK_BYTES * len(query.blocks)
        with self._changed:
            if self._waiting_bytes + size > self._limits.most_bytes:
                self.dropped += 1
                return
            self._waiting.append(query)
            self._waiting_bytes += size
            if self._thread is None:
                self._start()
            elif len(self._waiting) >= self._limits.flush_queries:
                self._changed.notify_all()

    def _start(self) -> None:
        """Start the thread. If there can be no more threads, the next query tries again."""
        thread = threading.Thread(target=self._work, name="tblctl-workload", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or the process ends
            LOG.debug("queries are not recorded now: %r", error)
            return
        self._thread = thread

    def flush(self, seconds: float | None = None) -> bool:
        """Write what waits, and wait for it; `seconds` at most, or else the limit. Return whether nothing waits."""
        with self._changed:
            self._hurries = True
            self._changed.notify_all()
            return self._changed.wait_for(
                lambda: self._thread is None, self._limits.exit_seconds if seconds is None else seconds
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._limits.flush_seconds)
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
                lost = self.dropped
                if not batch:
                    self._thread, self._hurries = None, False
                    self._changed.notify_all()
                    return
            self._write(batch, lost)

    def _is_due(self) -> bool:
        return self._hurries or len(self._waiting) >= self._limits.flush_queries

    def _write(self, batch: Sequence[Query], lost: int) -> None:
        try:
            if not self._place.has_table():
                return
            header = Header(table_id=self._table_id, dropped=lost - self._told)
            lines = [encode_header(header), *(encode_query(self._kept(query)) for query in batch)]
            name = log_path(self._place.folder, self._env.now_ms(), self._env.new_id())
            self._place.storage.write(name, b"".join(lines))
            self._told = lost
        except Exception as error:  # noqa: BLE001 (a log is a hint: whatever is wrong with it, scans go on)
            LOG.warning("%d queries could not be recorded: %s", len(batch), error)
            with self._changed:
                self.dropped += len(batch)

    def _kept(self, query: Query) -> Query:
        """Return the query with what is to be kept of its condition."""
        if self._rewrite is None or not query.where:
            return query
        try:
            return replace(query, where=self._rewrite(query.where))
        except Exception as error:  # noqa: BLE001 (what cannot be rounded is not kept)
            LOG.debug("a condition is not recorded: %r", error)
            return replace(query, where="")


class _Writers:
    """The writers of this process that are in use, one for each log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: WeakValueDictionary[tuple[str, str, str, str], LogWriter] = WeakValueDictionary()

    def get(self, key: tuple[str, str, str, str], make: Callable[[], LogWriter]) -> LogWriter:
        with self._lock:
            writer = self._found.get(key)
            if writer is None:
                writer = self._found[key] = make()
            return writer

    def flush(self, url: str | None = None, seconds: float | None = None) -> None:
        """Write what waits for the table at a location; None for all. It is waited `seconds` for each, or the limit."""
        with self._lock:
            found = [writer for key, writer in self._found.items() if url in (None, key[0])]
        for writer in found:
            writer.flush(seconds)


_WRITERS = _Writers()


def writer_of(
    place: LogPlace, env: Environment, table_id: str, *, rewrite: Rewrite | None = None, form: str = ""
) -> LogWriter:
    """Return this process's writer of a log; `form` names what `rewrite` does."""
    key = (place.storage.url, place.folder, table_id, form)
    return _WRITERS.get(key, lambda: LogWriter(place, env, table_id, rewrite=rewrite))


def flush(url: str, seconds: float | None = None) -> None:
    """Write the queries that wait for the table at a location, and wait for that: `seconds`, or the limit."""
    _WRITERS.flush(url, seconds)


def _forget() -> None:
    """Be empty again: a forked process has no other thread than the one that forked it."""
    global _WRITERS  # noqa: PLW0603
    _WRITERS = _Writers()


def _flush_all() -> None:
    _WRITERS.flush()


os.register_at_fork(after_in_child=_forget)

# `atexit` is too late: before it, pools of threads are shut, which storages use. Of the functions that are registered
# here, the last comes first.
with contextlib.suppress(RuntimeError):  # the process ends already
    threading._register_atexit(_flush_all)  # type: ignore[attr-defined]  # noqa: SLF001
