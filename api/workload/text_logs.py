"""Logs that hold the text of queries: which column has it, and which have the figures, for engines that are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.workload.queries import Query
from tblctl.workload.conjuncts import Conditions
from tblctl.workload.files import Reading, count_of, time_of, value_at
from tblctl.workload.selects import Asked, TableName, asked_of

_CACHED = 1_024
"""So many texts are remembered: dashboards ask the same again and again."""

NOT_FINISHED = "it did not finish, or a line tells of its start only"


@dataclass(frozen=True, kw_only=True)
class TextLog:
    """The columns of a log, by name, dots leading into nested objects.

    Attributes:
        text: the query's text.
        time: when it began.
        dialect: of SQL, as sqlglot calls it; None for its own.
        done: a column, and its values for queries that finished; None if all did.
        seconds: the column with the duration, and its units in a second.
        rows_read, bytes_read, blocks_read, blocks_total: columns with figures of the whole query.
    """

    text: str
    time: str = ""
    dialect: str | None = None
    done: tuple[str, frozenset[str]] | None = None
    seconds: tuple[str, float] | None = None
    rows_read: str = ""
    bytes_read: str = ""
    blocks_read: str = ""
    blocks_total: str = ""


TEXT_LOGS: Mapping[str, TextLog] = {
    "databend": TextLog(  # system_history.query_history, and system.query_log before it
        text="query_text",
        time="query_start_time",
        dialect="databricks",
        done=("log_type_name", frozenset({"finish"})),
        seconds=("query_duration_ms", 1e3),
        rows_read="scan_rows",
        bytes_read="scan_bytes",
        blocks_read="scan_partitions",
        blocks_total="total_partitions",
    ),
    "clickhouse": TextLog(  # system.query_log
        text="query",
        time="query_start_time",
        dialect="clickhouse",
        done=("type", frozenset({"queryfinish", "2"})),
        seconds=("query_duration_ms", 1e3),
        rows_read="read_rows",
        bytes_read="read_bytes",
    ),
    "snowflake": TextLog(  # ACCOUNT_USAGE.QUERY_HISTORY
        text="QUERY_TEXT",
        time="START_TIME",
        dialect="snowflake",
        done=("EXECUTION_STATUS", frozenset({"success"})),
        seconds=("TOTAL_ELAPSED_TIME", 1e3),
        bytes_read="BYTES_SCANNED",
        blocks_read="PARTITIONS_SCANNED",
        blocks_total="PARTITIONS_TOTAL",
    ),
    "dremio": TextLog(  # queries.json
        text="queryText",
        time="start",
        dialect="dremio",
        done=("outcome", frozenset({"completed"})),
        rows_read="inputRecords",
        bytes_read="inputBytes",
    ),
    "trino": TextLog(  # QueryCompletedEvent of the HTTP event listener
        text="metadata.query",
        time="createTime",
        dialect="trino",
        done=("metadata.queryState", frozenset({"finished"})),
        rows_read="statistics.physicalInputRows",
        bytes_read="statistics.physicalInputBytes",
    ),
    "trino-mysql": TextLog(  # trino_queries of the MySQL event listener, which has no time
        text="query",
        dialect="trino",
        done=("query_state", frozenset({"finished"})),
        seconds=("wall_time_millis", 1e3),
        rows_read="physical_input_rows",
        bytes_read="physical_input_bytes",
    ),
}


def kind_of_row(row: Mapping[str, Any]) -> str | None:
    """Return the kind of the log that a row is of; None if its columns are those of none."""
    return next((kind for kind, log in TEXT_LOGS.items() if _is_of(row, log)), None)


def _is_of(row: Mapping[str, Any], log: TextLog) -> bool:
    named = (log.text, log.time, log.done[0] if log.done else "", log.bytes_read)
    return all(value_at(row, name) is not None for name in named if name)


@dataclass(kw_only=True)
class TextReader:
    """Reads queries of one table from their texts."""

    table: TableName
    conditions: Conditions
    reading: Reading
    kind: str
    log: TextLog

    def __post_init__(self) -> None:
        self._known: dict[str, list[Asked] | str] = {}
        self.names: tuple[str, ...] = ()
        """Columns of the first row."""
        self.has_times = False
        """Whether any row so far has a value in the column of times."""

    def read(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Query]:
        """Yield the queries of some rows."""
        log = self.log
        for row in rows:
            self.names = self.names or tuple(map(str, row))
            self.has_times = self.has_times or value_at(row, log.time) is not None
            text = value_at(row, log.text)
            if not isinstance(text, str) or not text.strip():
                self.reading.unused[f"a row has no text in {log.text}"] += 1
                continue
            state = None if log.done is None else value_at(row, log.done[0])
            if state is not None and log.done is not None and str(state).lower() not in log.done[1]:
                self.reading.unused[NOT_FINISHED] += 1
                continue
            yield from self._queries(text, row)

    def _queries(self, text: str, row: Mapping[str, Any]) -> Iterator[Query]:
        asked = self._asked(text)
        if isinstance(asked, str):
            self.reading.unused[asked] += 1
            return
        time = time_of(value_at(row, self.log.time)) if self.log.time else None
        if time is None and self.log.time:
            self.reading.undated += len(asked)
        figures = self._figures(row) if len(asked) == 1 else {}
        for item in asked:
            yield Query(
                time=self.reading.time if time is None else time,
                where=item.where,
                columns=item.columns,
                source=self.kind,
                **figures,
            )

    def _asked(self, text: str) -> list[Asked] | str:
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            found = self._known[text] = asked_of(text, self.table, self.conditions, self.log.dialect)
        return found

    def _figures(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the log tells of a query that names the table once. Other tables of a join count too."""
        names = ("rows_read", "bytes_read", "blocks_read", "blocks_total")
        found: dict[str, Any] = {
            name: count_of(value_at(row, column)) for name in names if (column := getattr(self.log, name))
        }
        if self.log.seconds is not None:
            column, units = self.log.seconds
            count = count_of(value_at(row, column))
            found["seconds"] = None if count is None else count / units
        return found
