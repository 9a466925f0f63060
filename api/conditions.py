"""Resolve a caller's condition, SQL text or a PyIceberg expression, against one version's schema."""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.model.schema.schema import Schema


def resolved(where: Any, schema: Schema) -> Any:
    """Return a condition resolved against `schema`; None for None.

    Resolve a condition once for each version, not for each block: a long IN list takes half a second. Do not use the
    result for another version: a column may have another type there.

    Raises:
        InvalidPredicateError: the condition does not fit the schema.
    """
    if where is None:
        return None
    from tblctl.tableformat.predicate.nodes import node_of

    if isinstance(where, str):
        from tblctl.tableformat.predicate.sql.conditions import parse_where

        where = parse_where(where, schema)
    return node_of(where, schema)
