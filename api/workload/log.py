"""Read the log of a table's queries, for policies, suggestions and reports."""

from __future__ import annotations

import logging
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.workload import typical
from tblctl.tableformat.workload.queries import Workload
from tblctl.tableformat.workload.reader import MOST_QUERIES, ReadLog, read_log

LOG = logging.getLogger("tblctl")

SUGGESTED = 24
"""So many typical conditions are drawn for `suggest`."""


def log_of(
    port: TablePort[Any],
    version: Version,
    *,
    since: float = 0.0,
    limit: int = MOST_QUERIES,
    with_blocks: bool = False,
) -> ReadLog:
    """Return the newest queries of a table.

    Args:
        port: the table.
        version: of the table; it tells it from an earlier one at the same location.
        since: queries that ran before are left out, in seconds since 1970.
        limit: at most so many, the newest ones.
        with_blocks: whether what each query used of each block is read, too.

    Raises:
        InvalidOptionError: nothing is recorded of such tables, or `limit` is negative.
    """
    if limit < 0:
        msg = f"limit is {limit}, expected 0 or more"
        raise InvalidOptionError(msg)
    return read_log(
        port.log_place(),
        version.table_id,
        since=since,
        limit=limit,
        now=port.env.now(),
        with_blocks=with_blocks,
    )


def workload_of(
    port: TablePort[Any], version: Version, *, since: float = 0.0, limit: int = MOST_QUERIES
) -> Workload:
    """Return the newest queries of a table, as `log_of` does."""
    return log_of(port, version, since=since, limit=limit).workload


def wants_workload(policy: object) -> bool:
    """Return whether a policy reads what the table was asked."""
    return bool(getattr(policy, "wants_workload", False))


def workload_for(policy: object, port: TablePort[Any] | None, version: Version) -> Workload | None:
    """Return the newest queries for a policy that wants them; None for others, and where none are recorded.

    A log that cannot be read is no reason not to recluster: the policy gets None then, and the program's log a warning.
    """
    if port is None or not wants_workload(policy):
        return None
    try:
        found = workload_of(port, version)
    except TblctlError as error:
        LOG.warning("%s goes without the log of its queries: %s", port.location, error)
        return None
    return found if found.queries else None


def typical_conditions(port: TablePort[Any], version: Version) -> tuple[list[tuple[str, Any]], int]:
    """Return typical conditions, as text and as expressions, and how many queries of the log they stand for.

    None of a table without a log, or with one that cannot be read.
    """
    try:
        queries = log_of(port, version, limit=typical.MOST_TYPICAL).queries
    except TblctlError as error:
        LOG.debug("%s has no log of queries that can be read: %s", port.location, error)
        return [], 0
    return typical.typical(queries, version.schema, SUGGESTED)
