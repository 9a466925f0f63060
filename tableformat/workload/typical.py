"""Typical conditions of a table's queries: drawn by weight and age, for `suggest` and for trees. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.workload.queries import Query

MOST_TYPICAL = 2_000
"""So many of the newest queries are looked at: each different condition takes a millisecond to parse."""

HALF_LIFE_SECONDS = 7 * 86400.0
"""A query weighs half as much as one that ran a week later."""


def typical(queries: Sequence[Query], schema: Schema, count: int) -> tuple[list[tuple[str, Any]], int]:
    """Return up to `count` typical conditions, as text and as expressions, and how many queries they stand for.

    Queries without a condition, or with one that does not fit the schema, are left out.
    """
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    fitting: dict[str, Any] = {}
    for where in {query.where for query in queries if query.where}:
        try:
            fitting[where] = parse_where(where, schema)
        except TblctlError:
            continue
    usable = [query for query in queries if query.where in fitting]
    if not usable:
        return [], 0
    newest = max(query.time for query in usable)
    texts = drawn(usable, count, now=newest, half_life_seconds=HALF_LIFE_SECONDS)
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
