"""Conditions as callers give them, SQL or an expression of PyIceberg's, for the versions that they are about."""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.model.schema.schema import Schema


def resolved(where: Any, schema: Schema) -> Any:
    """Return a condition for one version, resolved once and not for each block: a long list takes half a second.

    Another version needs its own, also of the same text: a column may have another type there.

    Raises:
        InvalidPredicateError: it is none for the schema.
    """
    if where is None:
        return None
    from tblctl.tableformat.predicate.nodes import node_of

    if isinstance(where, str):
        from tblctl.tableformat.predicate.sql.conditions import parse_where

        where = parse_where(where, schema)
    return node_of(where, schema)
