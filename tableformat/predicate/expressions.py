"""Conditions that PyIceberg's expressions cannot express: a resolved tree in place of an expression."""

from __future__ import annotations

from typing import Any

from pyiceberg import expressions as ice

from tblctl.tableformat.predicate.nodes import Node


class Resolved(ice.BooleanExpression):
    """A condition already resolved for the columns of one table. It can be combined with others by AND, OR and NOT.

    It stands for NULL, LIKE with wildcards, IS TRUE and the like, and long lists. PyIceberg cannot bind it.
    """

    node: Any

    def __init__(self, node: Node) -> None:
        super().__init__(**{"node": node})  # noqa: PIE804 (mypy takes the base class for what has no fields)

    def __invert__(self) -> ice.BooleanExpression:
        """Return the negation; three-valued, so the tree is not changed."""
        return ice.Not(self)
