"""Resolve a caller's condition, SQL text or a PyIceberg expression, against one version's schema."""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.errors import InvalidPredicateError
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
    _require_condition(where)
    from tblctl.tableformat.predicate.nodes import node_of

    if isinstance(where, str):
        from tblctl.tableformat.predicate.sql.conditions import parse_where

        where = parse_where(where, schema)
    return node_of(where, schema)


def _require_condition(where: Any) -> None:
    """Refuse what is neither SQL text nor a PyIceberg expression, such as an expression of pyarrow."""
    kinds = type(where).__mro__
    if isinstance(where, str) or any(kind.__module__.startswith(_OURS) for kind in kinds):
        return
    kind = f"{kinds[0].__module__.partition('.')[0]}.{kinds[0].__qualname__}".removeprefix("builtins.")
    msg = (
        f'a condition is SQL text, such as where="l_tax > 0.05 and l_comment is not null", or a PyIceberg expression, '
        f"got {kind}: write it as SQL"
    )
    raise InvalidPredicateError(msg)


_OURS = ("pyiceberg.", "tblctl.")
