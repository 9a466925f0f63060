"""Logs of queries for tests: where they lie, and lines in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import LogPlace, log_path
from tblctl.tableformat.workload.queries import Query
from tblctl.tableformat.workload.writer import Limits

TABLE = "ab" * 16
SOON = Limits(flush_queries=1_000_000, flush_seconds=600.0)
"""A writer with these flushes only when it is closed."""


def at(seconds: float) -> Environment:
    """Return an environment at a time."""
    return dataclasses.replace(SYSTEM, now=lambda: seconds)


def place(path: Path, **options: Any) -> LogPlace:
    """Return the log of a table below a folder."""
    return LogPlace(storage=Storage(path / "table", options), folder="workload/")


def put(log: LogPlace, seconds: float, *lines: bytes, table_id: str = TABLE) -> None:
    """Write a file of a log, at a time."""
    name = log_path(log.folder, int(seconds * 1000), SYSTEM.new_id())
    log.storage.write(name, b"".join([encode_header(Header(table_id=table_id)), *lines]))


def line(time: float, where: str = "") -> bytes:
    """Return the line of a query."""
    return encode_query(Query(time=time, where=where))
