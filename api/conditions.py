"""Conditions as callers give them, SQL or an expression of PyIceberg's, for the versions that they are about."""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.model.schema import Schema


def condition_of(where: Any, schema: Schema) -> Any:
    """Return a condition for several versions of a table; an expression, or None, as it is.

    Raises:
        InvalidPredicateError: it is none for the schema.
    """
    if not isinstance(where, str):
        return where
    from tblctl.tableformat.predicate.sql import parse_where

    return parse_where(where, schema)


def resolved(where: Any, schema: Schema) -> Any:
    """Return a condition for one version, resolved once and not for each block: a long list takes half a second.

    Raises:
        InvalidPredicateError: it is none for the schema.
    """
    if where is None:
        return None
    from tblctl.tableformat.predicate.nodes import node_of

    return node_of(condition_of(where, schema), schema)
