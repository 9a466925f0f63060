"""Conditions as trees of tests on columns. `resolve` makes them from expressions, and matching needs nothing else.

A tree has AND, OR and NOT over a few kinds of tests. Every test is NULL where its column is NULL (except IS NULL).
Trees can be pickled, and nothing here imports PyIceberg. So other processes get the tree instead of the expression.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tblctl.tableformat.model.schema.schema import Leaf, Schema

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


class Operator(enum.Enum):
    """The kinds of tests of a value. All except NULL and NEVER are NULL for a null.

    NaN is neither less than, nor greater than, nor equal to anything.
    """

    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    EQUAL = "="
    IN = "IN"
    PREFIX = "STARTS WITH"
    PATTERN = "LIKE"
    NULL = "IS NULL"
    NAN = "IS NAN"
    FALSE = "FALSE"  # false for every value: a comparison that no value satisfies
    NEVER = "NEVER"  # NULL for every row: any comparison of a column of type null


@dataclass(frozen=True, kw_only=True)
class Test:
    """One predicate on one column; `negated` swaps true and false.

    `value` is a scalar of the column's statistic type (for PREFIX and PATTERN: the prefix, as binary). `values` are
    ascending distinct values, for IN. `pattern` is a regular expression, for PATTERN.
    """

    leaf: Leaf
    operator: Operator
    text: str
    negated: bool = False
    value: pa.Scalar | None = None
    values: pa.Array | None = None
    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class Constant:
    """TRUE, FALSE, or NULL as None."""

    value: bool | None


@dataclass(frozen=True, kw_only=True)
class AllOf:
    """AND of at least two."""

    children: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class AnyOf:
    """OR of at least two."""

    children: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class Negation:
    """NOT."""

    child: Node


@dataclass(frozen=True, kw_only=True)
class Truth:
    """IS TRUE, IS FALSE, or with None IS UNKNOWN: whether the child has that value. Never NULL itself."""

    child: Node
    value: bool | None


Node: TypeAlias = "Test | Constant | AllOf | AnyOf | Negation | Truth"
Condition: TypeAlias = "BooleanExpression | Node"


def node_of(condition: Any, schema: Schema) -> Node:
    """Return the tree of a condition: an expression resolved for `schema`, or the condition itself if it is a tree.

    Raises:
        InvalidPredicateError: see `resolve`.
    """
    if isinstance(condition, Test | Constant | AllOf | AnyOf | Negation | Truth):
        return condition
    from tblctl.tableformat.predicate.resolve import resolve

    return resolve(condition, schema)


def tests_of(node: Node) -> Iterator[Test]:
    """Yield the tests in the order in which they were written."""
    if isinstance(node, Test):
        yield node
    elif isinstance(node, AllOf | AnyOf):
        for child in node.children:
            yield from tests_of(child)
    elif isinstance(node, Negation | Truth):
        yield from tests_of(node.child)
