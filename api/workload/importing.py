"""Import what engines log of their queries into the log of a table.

A log is read as a stream. Of more queries than the limit a uniform sample is kept, whose weights stand for the rest. A
file is known by the hash of its bytes, so that none is imported twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InvalidDataError, InvalidOptionError
from tblctl.tableformat.model.options import ROUNDED
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import log_path
from tblctl.tableformat.workload.queries import MOST_WHERE, Query
from tblctl.tableformat.workload.reader import MOST_QUERIES, log_files
from tblctl.tableformat.workload.writer import kept
from tblctl.workload.conjuncts import PARSER_ERRORS, Conditions
from tblctl.workload.duckdb_profile import KIND as DUCKDB
from tblctl.workload.duckdb_profile import DuckDBReader, is_profile
from tblctl.workload.files import Reading, csv_rows, json_lines, lines_of, open_stream, parquet_rows
from tblctl.workload.iceberg_report import KIND as ICEBERG
from tblctl.workload.iceberg_report import IcebergReader, is_report
from tblctl.workload.selects import TableName
from tblctl.workload.spark_log import KIND as SPARK
from tblctl.workload.spark_log import SparkReader
from tblctl.workload.text_logs import TEXT_LOGS, TextLog, TextReader, kind_of_row

SQL, TEXT = "sql", "text"
KINDS = (SPARK, DUCKDB, ICEBERG, *TEXT_LOGS, SQL, TEXT)
"""The kinds of logs that are read."""

_MOST_WHOLE_BYTES = 64 << 20
"""A file that is one JSON object, or SQL, is read whole, and not larger."""

_NAMES_SHOWN = 12
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ImportedLog:
    """What became of one file, or of one folder of a rolling log.

    Attributes:
        path: as it was given.
        kind: of the log; empty if it was imported before.
        queries: how many are in the table's log now.
        stand_for: the queries that they stand for: more of them if the log had more than the limit.
        unused: queries and lines that were not used, by reason.
        left_out: parts of conditions that were left out, by reason: these queries are taken to read more.
        undated: queries whose time cannot be read, or is missing, in a log with times: they have that of the file.
        was_known: it was imported before, and nothing was done.
    """

    path: str
    kind: str = ""
    queries: int = 0
    stand_for: int = 0
    unused: Mapping[str, int]
    left_out: Mapping[str, int]
    undated: int = 0
    was_known: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**vars(self), "unused": dict(self.unused), "left_out": dict(self.left_out)}


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """How logs are read.

    Attributes:
        kind: of `KINDS`; None to tell it from the file.
        table: what queries call the table; None for the last part of its location.
        text_column: the column with the queries' text, for the kind text.
        time_column: the column with their times, for the kind text.
        dialect: of SQL, as sqlglot calls it; None for that of the kind.
        limit: queries to keep of each file.
    """

    kind: str | None = None
    table: str | None = None
    text_column: str | None = None
    time_column: str | None = None
    dialect: str | None = None
    limit: int = MOST_QUERIES

    def __post_init__(self) -> None:
        problems = []
        if self.kind is not None and self.kind not in KINDS:
            problems.append(f"kind is {self.kind!r:.60}, expected one of {', '.join(KINDS)}")
        if self.kind == TEXT and not self.text_column:
            problems.append("the kind text needs text_column, the column with the queries")
        if self.limit < 1:
            problems.append(f"limit is {self.limit}, expected at least 1")
        if self.dialect is not None and not _is_dialect(self.dialect):
            problems.append(f"dialect is {self.dialect!r:.60}, which sqlglot does not know")
        if problems:
            raise InvalidOptionError("; ".join(problems), problems=tuple(problems))


def _is_dialect(name: str) -> bool:
    from sqlglot.dialects.dialect import Dialect

    try:
        return Dialect.get(name.lower()) is not None
    except ValueError:
        return False


def import_logs(
    port: TablePort[Any], version: Version, paths: Sequence[str | Path], request: ImportRequest
) -> tuple[ImportedLog, ...]:
    """Import files, in order. What was imported before an error stays.

    Raises:
        InvalidDataError: a file cannot be read, or of what kind it is cannot be told.
        InvalidOptionError: nothing is recorded of such tables; or no row of a file has the column of times.
    """
    place = port.log_place()
    known = {file.id for file in log_files(place)}
    found = []
    for given in paths:
        files = _files(Path(given))
        id_ = _content_id(files)
        if id_ in known:
            found.append(ImportedLog(path=str(given), unused={}, left_out={}, was_known=True))
            continue
        source = _Source.of(port, version, files, request)
        taken, total = sampled(source.queries(), request.limit, port.env)
        if taken:
            header = Header(table_id=version.table_id, imported=Path(given).name[:200], kind=source.kind)
            taken = [_rounded(query, version) for query in taken]
            lines = [encode_query(query) for query in sorted(taken, key=lambda item: item.time)]
            name = log_path(place.folder, port.env.now_ms(), id_)
            place.storage.write(name, b"".join([encode_header(header), *lines]))
            known.add(id_)
        found.append(
            ImportedLog(
                path=str(given),
                kind=source.kind,
                queries=len(taken),
                stand_for=total,
                unused=dict(source.reading.unused.most_common()),
                left_out=dict(source.conditions.left_out.most_common()),
                undated=source.reading.undated,
            )
        )
    return tuple(found)


def sampled(queries: Iterable[Query], limit: int, env: Environment) -> tuple[list[Query], int]:
    """Return at most so many queries, a uniform sample if there are more, and how many there were.

    Source: Vitter, "Random sampling with a reservoir", algorithm R.
    """
    kept: list[Query] = []
    total = 0
    for query in queries:
        total += 1
        if len(kept) < limit:
            kept.append(query)
        elif (place := int(env.random() * total)) < limit:
            kept[place] = query
    if total > len(kept):
        kept = [replace(query, weight=query.weight * total / len(kept)) for query in kept]
    return kept, total


def _rounded(query: Query, version: Version) -> Query:
    """Return a query as the table's options want it kept; a condition that is too long is not kept."""
    if len(query.where) > MOST_WHERE:
        return replace(query, where="")
    if version.options.recluster_record_literals != ROUNDED:
        return query
    from tblctl.tableformat.workload.rounding import rounded_where

    return kept(query, lambda where: rounded_where(where, version.schema))


def _files(path: Path) -> list[Path]:
    """Return the files of a log: of a rolling log of Spark its parts, in order.

    Raises:
        InvalidDataError: there is no file, or a folder that is no rolling log.
    """
    if not path.is_dir():
        if not path.is_file():
            msg = f"{path}: there is no such file"
            raise InvalidDataError(msg)
        return [path]
    parts = [(int(found[1]), item) for item in path.iterdir() if (found := _PART.match(item.name))]
    if not parts:
        msg = f"{path} is a folder, and no rolling event log of Spark (events_1_..): name the files"
        raise InvalidDataError(msg)
    return [item for _, item in sorted(parts)]


_PART = re.compile(r"events_(\d{1,9})_")


def _content_id(files: Sequence[Path]) -> str:
    """Return the hash of the bytes of some files, one after the other."""
    found = xxhash.xxh3_128()
    for path in files:
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    found.update(chunk)
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror}"
            raise InvalidDataError(msg) from error
    return found.hexdigest()


@dataclass(kw_only=True)
class _Source:
    """A log that is read: `reading` and `conditions` count what is not used."""

    kind: str
    files: Sequence[Path]
    table: TableName
    location: str
    request: ImportRequest
    conditions: Conditions
    reading: Reading

    @classmethod
    def of(
        cls, port: TablePort[Any], version: Version, files: Sequence[Path], request: ImportRequest
    ) -> _Source:
        last = port.location.rstrip("/").rpartition("/")[2]
        return cls(
            kind=request.kind or (TEXT if request.text_column else _kind_of(files[0])),
            files=files,
            table=TableName.of(request.table or last),
            location=port.location,
            request=request,
            conditions=Conditions(schema=version.schema),
            reading=Reading(time=files[-1].stat().st_mtime),
        )

    def queries(self) -> Iterator[Query]:
        """Yield the queries of the table."""
        if self.kind == SPARK:
            events = (event for path in self.files for event in _events(path, self.reading))
            yield from SparkReader(**self._common, location=self.location).read(events)
        elif self.kind in (DUCKDB, ICEBERG):
            duckdb = DuckDBReader(**self._common, location=self.location)
            iceberg = IcebergReader(**self._common)
            for found in (item for path in self.files for item in _objects(path, self.reading)):
                yield from duckdb.read(found) if self.kind == DUCKDB else iceberg.read(found)
        else:
            log = self._text_log()
            reader = TextReader(**self._common, kind=self.kind, log=log)
            yield from reader.read(row for path in self.files for row in self._rows(path))
            if self.request.time_column and reader.names and not reader.has_times:
                names = ", ".join(reader.names[:_NAMES_SHOWN])
                msg = f"{self.files[0]}: no row has a time in {self.request.time_column!r}; the first has: {names}"
                raise InvalidOptionError(msg)

    @property
    def _common(self) -> dict[str, Any]:
        return {"table": self.table, "conditions": self.conditions, "reading": self.reading}

    def _text_log(self) -> TextLog:
        request = self.request
        log = TEXT_LOGS.get(self.kind) or TextLog(text=request.text_column or _STATEMENT)
        if request.text_column:
            log = replace(log, text=request.text_column)
        if request.time_column:
            log = replace(log, time=request.time_column)
        return replace(log, dialect=request.dialect.lower()) if request.dialect else log

    def _rows(self, path: Path) -> Iterator[Mapping[str, Any]]:
        if self.kind == SQL:
            return ({_STATEMENT: text} for text in _statements(path, self.request.dialect, self.reading))
        return _rows(path, self.reading)


_STATEMENT = "statement"


def _rows(path: Path, reading: Reading) -> Iterator[Mapping[str, Any]]:
    ending = _ending(path)
    if ending == ".parquet":
        return parquet_rows(path)
    return csv_rows(path, reading) if ending == ".csv" else json_lines(path, reading)


def _ending(path: Path) -> str:
    """Return the ending of a name, without that of a compressed file."""
    return (
        path.suffixes[-2]
        if path.suffix in (".gz", ".zst", ".zstd", ".bz2") and len(path.suffixes) > 1
        else path.suffix
    )


def _kind_of(path: Path) -> str:
    """Return the kind of a log, from its name and its first rows.

    Raises:
        InvalidDataError: it cannot be told.
    """
    if _ending(path) == ".sql":
        return SQL
    reading = Reading(time=0.0)
    objects = _rows(path, reading) if _ending(path) in (".parquet", ".csv") else _objects(path, reading)
    for place, found in enumerate(objects):
        if str(found.get("Event", "")).startswith(("SparkListener", "org.apache.spark.")):
            return SPARK
        if is_profile(found):
            return DUCKDB
        inner = found.get("report", found)
        if isinstance(inner, dict) and is_report(inner):
            return ICEBERG
        kind = kind_of_row(found)
        if kind is not None:
            return kind
        if place >= _LOOKED_AT:
            break
    msg = f"{path}: of what kind this log is cannot be told: give kind, or text_column, the column with the queries"
    raise InvalidDataError(msg)


_LOOKED_AT = 20


def _events(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the events of queries of a Spark log. Others are most of it: their lines are not even parsed."""
    for line in lines_of(path, reading):
        if not any(word in line[:200] for word in _WANTED):
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            reading.unused["a line is damaged, or half a line"] += 1
            continue
        if isinstance(found, dict):
            yield found


_WANTED = (b".ui.SparkListenerSQLExecution", b".ui.SparkListenerDriverAccumUpdates", b"EnvironmentUpdate")


def _objects(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file: one that is whole JSON, a list of them, or one in each line."""
    with open_stream(path) as stream:
        start = stream.peek(1)[:1]
        head = stream.read(_MOST_WHOLE_BYTES + 1) if start in (b"{", b"[") else b""
    if head and len(head) <= _MOST_WHOLE_BYTES:
        try:
            found = json.loads(head)
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            yield from (
                item for item in (found if isinstance(found, list) else [found]) if isinstance(item, dict)
            )
            return
    yield from json_lines(path, reading)


def _statements(path: Path, dialect: str | None, reading: Reading) -> Iterator[str]:
    """Yield the statements of a file of SQL.

    Raises:
        InvalidDataError: it is too large.
    """
    from sqlglot import tokenize
    from sqlglot.tokenizer_core import TokenType

    with open_stream(path) as stream:
        data = stream.read(_MOST_WHOLE_BYTES + 1)
    if len(data) > _MOST_WHOLE_BYTES:
        msg = f"{path} has more than {_MOST_WHOLE_BYTES >> 20} MiB of SQL: cut it into files"
        raise InvalidDataError(msg)
    text = data.decode(errors="replace")
    try:
        tokens = tokenize(text, read=dialect)
    except PARSER_ERRORS:
        reading.unused["the file is no SQL"] += 1
        return
    start = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if text[start : token.start].strip():
                yield text[start : token.start]
            start = token.end + 1
    if text[start:].strip():
        yield text[start:]
