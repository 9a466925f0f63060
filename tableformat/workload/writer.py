"""Write queries to the log of a table in the background.

`LogWriter.add` never waits and never raises: it puts a query into a queue, whose size is bounded. A thread writes a
file once enough queries wait, the queue is half full, or some time has passed; it lives only as long as something
waits. Queries that find the
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

from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import LogPlace, log_path
from tblctl.tableformat.workload.queries import Query, size_of

LOG = logging.getLogger("tblctl")

Rewrite = Callable[[str], str]
"""Returns what is kept of a condition. It runs in the background, and may raise: then nothing of it is kept."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When the queue is written, and what it may hold.

    Attributes:
        flush_queries: a file is written once so many wait.
        flush_seconds: or once so much time has passed since the first.
        most_bytes: of the queue, estimated; further queries are dropped. A file is written at half of it.
        exit_seconds: at the end of the process, and of a handle, it is waited so long for the last files.
    """

    flush_queries: int = 1_000
    flush_seconds: float = 60.0
    most_bytes: int = 8 << 20
    exit_seconds: float = 5.0


LIMITS = Limits()


class LogWriter:
    """Writes the queries of one table that this process sees. Threads share it.

    A garbage collection may call it at any place of its own code, since it ends scans that nobody reads any more. So
    its lock is one that the same thread may take again.

    Attributes:
        place: of the log.
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
        self.place = place
        self._env = env
        self._table_id = table_id
        self._rewrite = rewrite
        self._limits = limits
        self._changed = threading.Condition(threading.RLock())
        self._waiting: list[Query] = []
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._hurries = False
        self._added = self._done = 0  # queries that were put into the queue, and those written or lost since
        self._told = 0  # of the dropped queries, those that a file tells of
        self.dropped = 0

    def add(self, query: Query) -> None:
        """Put a query into the queue, or drop it."""
        size = size_of(query)
        with self._changed:
            if self._waiting_bytes + size > self._limits.most_bytes:
                self.dropped += 1
                return
            self._waiting.append(query)
            self._waiting_bytes += size
            self._added += 1
            if self._thread is None:
                self._start()
            elif self._is_due():
                self._changed.notify_all()

    def _start(self) -> None:
        """Start the thread. If there can be no more threads, the next query tries again."""
        self._thread = threading.Thread(target=self._work, name="tblctl-workload", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # too many threads, or the process ends
            LOG.debug("queries are not recorded now: %r", error)
            self._thread = None

    def hurry(self) -> int:
        """Have what waits written now, and return what `wait` takes to wait for it."""
        with self._changed:
            if self._waiting:
                self._hurries = True
                self._changed.notify_all()
                if self._thread is None:
                    self._start()
            return self._added

    def wait(self, number: int, seconds: float) -> bool:
        """Wait until what `hurry` returned a number for is written or lost, or no longer than some seconds.

        Return whether it is.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number or self._thread is None, seconds)
            return self._done >= number

    def flush(self, seconds: float | None = None) -> bool:
        """Write what waits, and wait for it: `seconds` at most, or else the limit. Return whether that is done."""
        return self.wait(self.hurry(), self._limits.exit_seconds if seconds is None else seconds)

    def _work(self) -> None:
        """Write files until nothing waits."""
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._limits.flush_seconds)
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
                self._hurries = False  # it was for these; those that come meanwhile have time again
                lost = self.dropped
            self._write(batch, lost)
            with self._changed:
                self._done += len(batch)
                self._changed.notify_all()
                if not self._waiting:
                    self._thread = None
                    return

    def _is_due(self) -> bool:
        limits = self._limits
        is_half_full = self._waiting_bytes >= limits.most_bytes / 2  # before queries are dropped
        return self._hurries or is_half_full or len(self._waiting) >= limits.flush_queries

    def _write(self, batch: Sequence[Query], lost: int) -> None:
        try:
            if not self.place.has_table():
                return
            header = Header(table_id=self._table_id, dropped=lost - self._told)
            lines = [encode_header(header), *(encode_query(kept(query, self._rewrite)) for query in batch)]
            name = log_path(self.place.folder, self._env.now_ms(), self._env.new_id())
            self.place.storage.write(name, b"".join(lines))
            self._told = lost
        except Exception as error:  # noqa: BLE001 (a log is a hint: whatever is wrong with it, scans go on)
            LOG.warning("%d queries could not be recorded: %s", len(batch), error)
            with self._changed:
                self.dropped += len(batch)


def kept(query: Query, rewrite: Rewrite | None) -> Query:
    """Return a query with what is to be kept of its condition: nothing, if it cannot be rewritten."""
    if rewrite is None or not query.where:
        return query
    try:
        return replace(query, where=rewrite(query.where))
    except Exception as error:  # noqa: BLE001 (what cannot be rounded is not kept)
        LOG.debug("a condition is not recorded: %r", error)
        return replace(query, where="")


@dataclass(frozen=True, kw_only=True)
class _Log:
    """What has a writer of its own.

    Attributes:
        storage: its `access_id`, in which its options are, too: what one handle may write, another may not.
        folder: of the log.
        table_id: of the table.
        form: what is kept of conditions.
    """

    storage: str
    folder: str
    table_id: str
    form: str


class _Writers:
    """The writers of this process that are in use, one for each log.

    A garbage collection may get a writer at any place, as it may add to one: the lock lets it, and nothing is made
    while it is held.
    """

    def __init__(self, elapsed: Callable[[], float] = SYSTEM.elapsed) -> None:
        self._elapsed = elapsed
        self._lock = threading.RLock()
        self._found: WeakValueDictionary[_Log, LogWriter] = WeakValueDictionary()

    def get(self, key: _Log, make: Callable[[], LogWriter]) -> LogWriter:
        with self._lock:
            found = self._found.get(key)
        if found is not None:
            return found
        made = make()
        with self._lock:
            return self._found.setdefault(key, made)

    def at(self, url: str | None = None) -> list[LogWriter]:
        """Return the writers for the table at a location; None for all."""
        with self._lock:
            found = [writer for ref in self._found.valuerefs() if (writer := ref()) is not None]
        return [writer for writer in found if url in (None, writer.place.storage.url)]

    def flush(self, url: str | None = None, seconds: float | None = None) -> None:
        """Write what waits for the table at a location; None for all. Wait `seconds` for all together, or the limit."""
        found = self.at(url)
        ends = self._elapsed() + (LIMITS.exit_seconds if seconds is None else seconds)
        asked = [(writer, writer.hurry()) for writer in found]
        for writer, number in asked:
            writer.wait(number, max(0.0, ends - self._elapsed()))


_WRITERS = _Writers()


def writer_of(
    place: LogPlace, env: Environment, table_id: str, *, rewrite: Rewrite | None = None, form: str = ""
) -> LogWriter:
    """Return this process's writer of a log; `form` names what `rewrite` does."""
    key = _Log(storage=place.storage.access_id, folder=place.folder, table_id=table_id, form=form)
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
