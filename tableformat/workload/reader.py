"""Read the log of a table's queries, the newest files first, until there are enough.

Memory: 8 MiB of small files, or one line of a large one; and the queries that are kept, at most `MOST_KEPT_BYTES`.
"""

from __future__ import annotations

import heapq
import io
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from tblctl.tableformat.errors import ObjectNotFoundError
from tblctl.tableformat.workload.lines import (
    MOST_LINE_BYTES,
    VERSION,
    Header,
    decode_header,
    decode_query,
)
from tblctl.tableformat.workload.place import LogFile, LogPlace, log_file
from tblctl.tableformat.workload.queries import Query, Workload, size_of

MOST_QUERIES = 10_000
"""So many of the newest queries are read unless the caller says otherwise."""

MOST_KEPT_BYTES = 64 << 20
"""Of the queries that are kept, estimated: a hundred thousand usual ones. One with a thousand blocks is 240 kB."""

_READ_BYTES = 1 << 20
_FILES_AT_ONCE, _BYTES_AT_ONCE = 64, 8 << 20


@dataclass(kw_only=True)
class ReadLog:
    """What was read of a log.

    Attributes:
        queries: kept, the oldest first.
        files: that were read.
        damaged_lines: that are no queries, such as half a line of a killed process.
        other_files: of another table, of a later version, or without a header: not used.
        dropped: queries that writers lost, since they could not keep up.
        imports: (name, kind) of what was imported into the files that were read.
    """

    queries: tuple[Query, ...] = ()
    files: int = 0
    damaged_lines: int = 0
    other_files: int = 0
    dropped: int = 0
    imports: list[tuple[str, str]] = field(default_factory=list)

    @property
    def workload(self) -> Workload:
        """The queries."""
        return Workload(queries=self.queries)


def log_files(place: LogPlace) -> list[LogFile]:
    """Return the files of a log, the newest first."""
    found = (log_file(item.name, place.folder, item.size_bytes) for item in place.storage.list(place.folder))
    return sorted((item for item in found if item is not None), key=lambda item: item.name, reverse=True)


def read_log(
    place: LogPlace,
    table_id: str,
    *,
    since: float = 0.0,
    limit: int = MOST_QUERIES,
    now: float | None = None,
    with_blocks: bool = False,
) -> ReadLog:
    """Return the newest queries of a log.

    Args:
        place: of the log.
        table_id: of the table. Files of others are counted, and not used.
        since: queries that ran before are left out, in seconds since 1970.
        limit: at most so many, the newest ones; fewer if these would take more than `MOST_KEPT_BYTES`.
        now: queries that ran later count as run now, since clocks disagree; none ran after its file was written.
        with_blocks: whether `Query.blocks` are read: those of the queries read first, up to half of `MOST_KEPT_BYTES`.
    """
    found = ReadLog()
    kept = _Kept(limit=limit, most_bytes=MOST_KEPT_BYTES)
    for file, lines in _opened(place, log_files(place)):
        if file.time < since or kept.has_no_place_for(file.time):
            break
        latest = file.time if now is None else min(now, file.time)
        for query in _queries(lines, table_id, found, with_blocks=with_blocks):
            time = min(query.time, latest)
            if time >= since:
                kept.add(query if time == query.time else replace(query, time=time))
    found.queries = kept.queries()
    return found


class _Kept:
    """The newest of the queries that were added: so many, and of so many bytes in all."""

    def __init__(self, *, limit: int, most_bytes: int) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._is_full = not limit
        self._order = itertools.count(0, -1)
        self._heap: list[tuple[float, int, int, Query]] = []  # time, order, bytes

    def has_no_place_for(self, time: float) -> bool:
        """Return whether queries that ran at a time, or before, would not be kept."""
        return self._is_full and (not self._heap or self._heap[0][0] >= time)

    def add(self, query: Query) -> None:
        """Keep a query, and let the oldest go for it. Blocks that are too many go first."""
        size = size_of(query)
        if query.blocks and self._bytes + size > self._most_bytes / 2:
            query = replace(query, blocks=())
            size = size_of(query)
        heapq.heappush(self._heap, (query.time, next(self._order), size, query))
        self._bytes += size
        while len(self._heap) > self._limit or self._bytes > self._most_bytes:
            self._bytes -= heapq.heappop(self._heap)[2]
            self._is_full = True
        self._is_full = self._is_full or len(self._heap) == self._limit

    def queries(self) -> tuple[Query, ...]:
        """Return what is kept, the oldest first."""
        return tuple(item[3] for item in sorted(self._heap, key=lambda item: (item[0], -item[1])))


def _opened(place: LogPlace, files: Sequence[LogFile]) -> Iterator[tuple[LogFile, Iterator[bytes]]]:
    """Yield files with their lines. Small ones are fetched several at once: a log may have thousands of them."""
    todo = deque(files)
    while todo:
        batch = [todo.popleft()]
        size = batch[0].size_bytes
        while todo and len(batch) < _FILES_AT_ONCE and size + todo[0].size_bytes <= _BYTES_AT_ONCE:
            size += todo[0].size_bytes
            batch.append(todo.popleft())
        if size > _BYTES_AT_ONCE:
            yield batch[0], _lines(place, batch[0].name)
            continue
        contents = place.storage.read_many([file.name for file in batch])
        for file, data in zip(batch, contents, strict=True):
            if data is not None:  # gc removed others since they were listed
                yield file, _cut(io.BytesIO(data))


def _queries(lines: Iterator[bytes], table_id: str, found: ReadLog, *, with_blocks: bool) -> Iterator[Query]:
    """Yield the queries of a file, and count in `found` what cannot be used."""
    try:
        header = decode_header(next(lines, b""))
    except ObjectNotFoundError:  # gc removed it since it was listed
        return
    if header is None or not _is_usable(header, table_id):
        found.other_files += 1
        return
    found.files += 1
    found.dropped += header.dropped
    if header.kind:
        found.imports.append((header.imported, header.kind))
    for line in lines:
        query = decode_query(line, with_blocks=with_blocks)
        if query is None:
            found.damaged_lines += 1
        else:
            yield query


def _is_usable(header: Header, table_id: str) -> bool:
    return header.version == VERSION and header.table_id == table_id


def _lines(place: LogPlace, name: str) -> Iterator[bytes]:
    """Yield the lines of an object, which is read as a stream."""
    with place.storage.open_input(name) as file:
        try:
            yield from _cut(io.BufferedReader(file, _READ_BYTES))
        except OSError as error:
            raise place.storage.explain(error, "read", name) from error


def _cut(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines. Of one that is too long only the beginning is kept, which no query begins with."""
    skips = False
    while line := stream.readline(MOST_LINE_BYTES + 1):
        if not skips:
            yield line
        skips = not line.endswith(b"\n") and len(line) > MOST_LINE_BYTES
