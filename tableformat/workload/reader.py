"""Read the log of a table's queries, the newest files first, until there are enough.

Memory: one file's line at a time, and the queries that are kept.
"""

from __future__ import annotations

import heapq
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

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
    found = (log_file(item.name, place.folder) for item in place.storage.list(place.folder))
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
        now: queries that ran later count as run now: clocks disagree. None: the time of their file.
    """
    found = ReadLog()
    kept: list[tuple[float, int, Query]] = []
    order = itertools.count(0, -1)
    for file in log_files(place):
        is_full = len(kept) >= limit
        if file.time < since or (is_full and (not limit or kept[0][0] >= file.time)):
            break
        for query in _queries(place, file, table_id, found):
            time = min(query.time, file.time if now is None else min(now, file.time))
            if time < since:
                continue
            item = (time, next(order), query)
            if len(kept) < limit:
                heapq.heappush(kept, item)
            elif kept and item > kept[0]:
                heapq.heapreplace(kept, item)
    found.queries = tuple(query for _, _, query in sorted(kept, key=lambda item: (item[0], -item[1])))
    return found


def _queries(place: LogPlace, file: LogFile, table_id: str, found: ReadLog) -> Iterator[Query]:
    """Yield the queries of a file, and count in `found` what cannot be used."""
    try:
        lines = _lines(place, file.name)
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
    """Yield the lines of an object. Of one that is too long only the beginning is kept, which no query begins with."""
    with place.storage.open_input(name) as file:
        stream = io.BufferedReader(file, _READ_BYTES)
        skips = False
        while line := _next_line(stream, place, name):
            if not skips:
                yield line
            skips = not line.endswith(b"\n") and len(line) > MOST_LINE_BYTES


def _next_line(stream: io.BufferedReader, place: LogPlace, name: str) -> bytes:
    try:
        return stream.readline(MOST_LINE_BYTES + 1)
    except OSError as error:
        raise place.storage.explain(error, "read", name) from error
