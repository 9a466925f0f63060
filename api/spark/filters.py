"""Translate Spark's filters into conditions of the table, if both mean the same for every value.

Spark applies all other filters itself. Both sides have three truth values, compare text and bytes by unsigned bytes,
and compare numbers exactly. The differences:

- NaN: for Spark it equals itself and is greater than everything else. The table's comparisons never hold for it. So
  "greater than" becomes "greater than, or NaN", and filters with a literal NaN stay with Spark.
- Half floats: Spark compares them as wider floats, also with literals that no half float can hold. Such filters stay
  with Spark.
- Literals: Spark casts them to the column's type first. A filter with a literal of another type stays with Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import datasource as spark

from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.leaf_tests import comparison_test, in_test, prefix_test, unary_test
from tblctl.tableformat.predicate.literals import LiteralError, Operand
from tblctl.tableformat.predicate.nodes import AllOf, AnyOf, Negation, Node, Operator

_COMPARISONS = {
    spark.EqualTo: Operator.EQUAL,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.LESS_EQUAL,
    spark.GreaterThan: Operator.GREATER,
    spark.GreaterThanOrEqual: Operator.GREATER_EQUAL,
}
_NAN_IS_ABOVE = (Operator.GREATER, Operator.GREATER_EQUAL)


def condition_of(given: spark.Filter, schema: Schema) -> Node | None:
    """Return the condition that holds for exactly the same rows as the filter; None if there may be none."""
    leaves = {leaf.path: leaf for leaf in schema.leaves}
    try:
        return _node(given, leaves)
    except LiteralError:
        return None


def _node(given: Any, leaves: Mapping[tuple[str, ...], Leaf]) -> Node | None:
    if isinstance(given, spark.Not):
        child = _node(given.child, leaves)
        return None if child is None else Negation(child=child)
    leaf = leaves.get(tuple(given.attribute))
    if leaf is None or schema_clash(leaf, leaves):
        return None
    if isinstance(given, spark.IsNull | spark.IsNotNull):
        return unary_test(Operator.NULL, leaf, negated=isinstance(given, spark.IsNotNull))
    if isinstance(given, spark.In):
        operands = [_operand(value, leaf) for value in given.value]
        found = [operand for operand in operands if operand is not None]
        return in_test(leaf, found, negated=False) if found and len(found) == len(operands) else None
    operand = _operand(given.value, leaf)
    if operand is None:
        return None
    if isinstance(given, spark.EqualNullSafe):
        equal = comparison_test(Operator.EQUAL, leaf, operand, negated=False)
        return AllOf(children=(equal, unary_test(Operator.NULL, leaf, negated=True)))
    if isinstance(given, spark.StringStartsWith):
        return prefix_test(leaf, operand, negated=False) if is_any_string(_plain(leaf)) else None
    operator = _COMPARISONS.get(type(given))
    return None if operator is None else _comparison(operator, leaf, operand)


def schema_clash(leaf: Leaf, leaves: Mapping[tuple[str, ...], Leaf]) -> bool:
    """Return whether another leaf has the same dotted name, so that a condition would be ambiguous."""
    return any(other.name == leaf.name for path, other in leaves.items() if path != leaf.path)


def _comparison(operator: Operator, leaf: Leaf, operand: Operand) -> Node:
    test = comparison_test(operator, leaf, operand, negated=False)
    if operator in _NAN_IS_ABOVE and pt.is_floating(_plain(leaf)):
        return AnyOf(children=(test, unary_test(Operator.NAN, leaf, negated=False)))
    return test


def _operand(value: Any, leaf: Leaf) -> Operand | None:
    """Return the literal; None if its type is not the one that Spark has for the column.

    Raises:
        LiteralError: it cannot be compared with the column's values, such as NaN.
    """
    return literals.from_python(value) if _is_of(value, _plain(leaf)) else None


def _plain(leaf: Leaf) -> pa.DataType:
    return leaf.type.value_type if pt.is_dictionary(leaf.type) else leaf.type


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if pt.is_boolean(kind):
        return isinstance(value, bool)
    if pt.is_integer(kind):
        return isinstance(value, int | Decimal) and not isinstance(value, bool)
    if pt.is_float32(kind) or pt.is_float64(kind):
        return isinstance(value, float)
    if pt.is_decimal(kind):
        return isinstance(value, Decimal)
    if is_any_string(kind):
        return isinstance(value, str)
    if is_any_binary(kind) or pt.is_fixed_size_binary(kind):
        return isinstance(value, bytes)
    if pt.is_date(kind):
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    if pt.is_timestamp(kind):
        return isinstance(value, datetime.datetime) and bool(value.tzinfo) == bool(kind.tz)
    return False
