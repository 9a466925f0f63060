"""Read the log of a table's queries, the newest files first, until there are enough.

Memory: 8 MiB of small files, or one line of a large one; and the queries that are kept.
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
from tblctl.tableformat.workload.queries import Query, Workload

MOST_QUERIES = 10_000
"""So many of the newest queries are read unless the caller says otherwise."""

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
    place: LogPlace, table_id: str, *, since: float = 0.0, limit: int = MOST_QUERIES, now: float | None = None
) -> ReadLog:
    """Return the newest queries of a log.

    Args:
        place: of the log.
        table_id: of the table. Files of others are counted, and not used.
        since: queries that ran before are left out, in seconds since 1970.
        limit: at most so many, the newest ones.
        now: queries that ran later count as run now, since clocks disagree; none ran after its file was written.
    """
    found = ReadLog()
    kept: list[tuple[float, int, Query]] = []
    order = itertools.count(0, -1)
    for file, lines in _opened(place, log_files(place)):
        is_full = len(kept) >= limit
        if file.time < since or (is_full and (not limit or kept[0][0] >= file.time)):
            break
        latest = file.time if now is None else min(now, file.time)
        for query in _queries(lines, table_id, found):
            time = min(query.time, latest)
            if time < since:
                continue
            item = (time, next(order), query if time == query.time else replace(query, time=time))
            if len(kept) < limit:
                heapq.heappush(kept, item)
            elif kept and item > kept[0]:
                heapq.heapreplace(kept, item)
    found.queries = tuple(query for _, _, query in sorted(kept, key=lambda item: (item[0], -item[1])))
    return found


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


def _queries(lines: Iterator[bytes], table_id: str, found: ReadLog) -> Iterator[Query]:
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
        query = decode_query(line)
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
