"""What a table was asked lately: methods that tables of any format share."""

from __future__ import annotations

import datetime
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import parse_time
from tblctl.tableformat.port import TablePort, Version

if TYPE_CHECKING:
    from tblctl.advise.key_choice import KeyChoice
    from tblctl.tableformat.workload.queries import Workload
    from tblctl.workload.importing import ImportedLog
    from tblctl.workload.report import WorkloadReport
    from tblctl.workload.savings import RealisedSaving

ResultT = TypeVar("ResultT")


class Recorded(ABC):
    """A table whose queries are recorded, or imported from logs of engines."""

    _port: TablePort[Any]

    @abstractmethod
    def _read(self, read: Callable[[Version], ResultT]) -> ResultT:
        """Return what a function returns of the version that the handle is of."""

    @abstractmethod
    def _require_live(self) -> None:
        """Refuse a handle of an old version."""

    def workload(
        self, *, since: float | str | datetime.timedelta | None = None, limit: int = 10_000
    ) -> WorkloadReport:
        """Return what the table was asked lately, from its log of queries (`docs/workload.md`).

        Args:
            since: only queries of the last so many seconds, a timedelta, or text such as "7d". None: all.
            limit: at most so many queries, the newest ones that 64 MiB of memory hold.

        Raises:
            InvalidOptionError: nothing is recorded of such tables, or an argument is wrong.
        """
        from tblctl.workload.log import log_of
        from tblctl.workload.report import report

        age = None if since is None else seconds_of(since, "since")
        start = 0.0 if age is None else self._port.env.now() - age

        def read(version: Version) -> WorkloadReport:
            found = log_of(self._port, version, since=start, limit=limit, with_blocks=True)
            return report(found, version.schema, version.public_id)

        return self._read(read)

    def import_workload(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        kind: str | None = None,
        table: str | None = None,
        text_column: str | None = None,
        time_column: str | None = None,
        dialect: str | None = None,
        limit: int = 10_000,
    ) -> tuple[ImportedLog, ...]:
        """Import what engines log of their queries into the table's own log. A file is imported once.

        Args:
            paths: files of this machine, or folders of rolling event logs of Spark; .gz and .zst are decompressed.
            kind: spark (event logs), duckdb (JSON profiles), iceberg (scan reports); databend, clickhouse, snowflake,
                dremio, trino, trino-mysql (their query histories, exported as JSON lines, CSV or Parquet); sql (a file
                of statements), text (with `text_column`). None: told from the file.
            table: what queries call the table, such as "db.events"; None for the last part of its location.
            text_column: the column with the queries' SQL.
            time_column: the column with when they ran.
            dialect: of their SQL, as sqlglot calls it; None for that of the kind.
            limit: so many queries of each file are kept; of more, a sample with weights.

        Raises:
            InvalidDataError: a file cannot be read, or it is not clear what it is. What was imported before it stays.
            InvalidOptionError: an argument is wrong, or nothing is recorded of such tables.
        """
        from tblctl.workload.importing import ImportRequest, import_logs

        request = ImportRequest(
            kind=kind,
            table=table,
            text_column=text_column,
            time_column=time_column,
            dialect=dialect,
            limit=limit,
        )
        self._require_live()
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        files = [os.fspath(path) for path in given]
        return import_logs(self._port, self._port.newest(), files, request)

    def choose_key(self, *, workload: Workload | None = None) -> KeyChoice:
        """Return the cluster key that the queries of late call for, and why. Nothing is changed.

        Args:
            workload: the queries; None for those of the table's log.

        Raises:
            InvalidOptionError: no queries are known.
        """
        from tblctl.advise.key_choice import key_for_queries
        from tblctl.workload.log import workload_of

        return self._read(
            lambda version: key_for_queries(
                self._port, version, workload_of(self._port, version) if workload is None else workload
            )
        )

    def savings(self, *, limit: int = 50, workload: Workload | None = None) -> tuple[RealisedSaving, ...]:
        """Return for each recluster what it took, and what it saved the queries that ran since, newest first.

        Queries are replayed on the statistics of the version before and of the one it committed: nothing is scanned.

        Args:
            limit: versions of the history that are looked at.
            workload: the queries; None for the newest 10,000 of the table's log.

        Raises:
            InvalidOptionError: nothing is recorded of such tables, or `limit` is below 1.
        """
        from tblctl.maintain.experience import rates_of
        from tblctl.workload.log import workload_of
        from tblctl.workload.savings import realised

        if limit < 1:
            msg = f"limit is {limit}, expected 1 or more"
            raise InvalidOptionError(msg)

        def read(version: Version) -> tuple[RealisedSaving, ...]:
            asked = workload_of(self._port, version) if workload is None else workload
            entries = list(self._port.history(limit, start=version))
            version_of = partial(self._port.version, newest=self._port.newest())
            return realised(entries, version_of, asked.queries, rates_of(self._port, version))

        return self._read(read)


def seconds_of(given: float | str | datetime.timedelta, name: str) -> float:
    """Return a duration in seconds; `name` is the argument's, for errors."""
    if isinstance(given, datetime.timedelta):
        return given.total_seconds()
    return parse_time(given, name) if isinstance(given, str) else float(given)
