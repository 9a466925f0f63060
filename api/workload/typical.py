"""Typical conditions of a table's queries, drawn from its log for `suggest`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.workload.queries import Query
from tblctl.workload.log import log_of

LOG = logging.getLogger("tblctl")

COUNT = 24
"""So many conditions are drawn."""

MOST_QUERIES = 2_000
"""So many of the newest queries are looked at: each different condition takes a millisecond to parse."""

HALF_LIFE_SECONDS = 7 * 86400.0
"""A query weighs half as much as one that ran a week later."""


def typical_conditions(port: TablePort[Any], version: Version) -> tuple[list[tuple[str, Any]], int]:
    """Return typical conditions, as text and as expressions, and how many queries of the log they stand for.

    None of a table without a log, or with one that cannot be read.
    """
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    try:
        queries = log_of(port, version, limit=MOST_QUERIES).queries
    except TblctlError as error:
        LOG.debug("%s has no log of queries that can be read: %s", port.location, error)
        return [], 0
    fitting: dict[str, Any] = {}
    for where in {query.where for query in queries if query.where}:
        try:
            fitting[where] = parse_where(where, version.schema)
        except TblctlError:
            continue
    usable = [query for query in queries if query.where in fitting]
    if not usable:
        return [], 0
    newest = max(query.time for query in usable)
    texts = drawn(usable, COUNT, now=newest, half_life_seconds=HALF_LIFE_SECONDS)
    return [(text, fitting[text]) for text in texts], len(usable)


def drawn(queries: Sequence[Query], count: int, *, now: float, half_life_seconds: float) -> list[str]:
    """Return conditions of queries, as often as they weigh, up to `count` in all.

    A query weighs half as much for each half-life that it is older than another. Drawn at even steps through the
    queries by their conditions, so that the same log gives the same.
    """
    weights: dict[str, float] = {}
    for query in queries:
        if query.where:
            age = max(0.0, now - query.time)
            weights[query.where] = weights.get(query.where, 0.0) + query.weight * 0.5 ** (
                age / half_life_seconds
            )
    total = sum(weights.values())
    if not total:
        return []
    found, passed = [], 0.0
    step = total / count
    for where, weight in sorted(weights.items()):
        before = round(passed / step)
        passed += weight
        found += [where] * (round(passed / step) - before)
    return found
