"""Evaluate a condition on rows, with the same three-valued logic as match.py."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.predicate.leaf_tests import pattern_holds
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Constant,
    Negation,
    Node,
    Operator,
    Test,
    Truth,
    node_of,
    tests_of,
)

_NULL = pa.scalar(None, pa.bool_())
_FALSE = pa.scalar(value=False)


def needed_columns(expression: Any, schema: Schema) -> tuple[str, ...]:
    """Return the dotted names of the leaves that the condition tests, each once, in the order written."""
    return tuple(dict.fromkeys(test.leaf.name for test in tests_of(node_of(expression, schema))))


def filter_table(table: pa.Table, expression: Any, schema: Schema) -> pa.BooleanArray:
    """Return the condition's value for each row of `table`, null where it is NULL.

    Raises:
        InvalidPredicateError: see `resolve`.
    """
    result = _evaluate(node_of(expression, schema), table)
    if isinstance(result, pa.Scalar):
        return pa.repeat(result, table.num_rows)
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


def _evaluate(node: Node, table: pa.Table) -> Any:
    match node:
        case Test():
            if node.operator is Operator.NEVER:
                return _NULL
            result = _test(node, table.column(node.leaf.name))
            return pc.invert(result) if node.negated else result
        case Constant():
            return pa.scalar(node.value, pa.bool_())
        case AllOf():
            return reduce(pc.and_kleene, (_evaluate(child, table) for child in node.children))
        case AnyOf():
            return reduce(pc.or_kleene, (_evaluate(child, table) for child in node.children))
        case Negation():
            return pc.invert(_evaluate(node.child, table))
        case Truth():
            result = _evaluate(node.child, table)
            if node.value is None:
                return pc.is_null(result)
            return pc.coalesce(result if node.value else pc.invert(result), _FALSE)


def _test(test: Test, column: Any) -> Any:
    """Return the test's value per row, before negation."""
    values = _comparable(column, test.leaf)
    match test.operator:
        case Operator.NULL:
            return pc.is_null(values)
        case Operator.FALSE:
            return pc.if_else(pc.is_valid(values), _FALSE, _NULL)
        case Operator.NAN:
            return pc.is_nan(values)
        case Operator.IN:
            return pc.if_else(pc.is_valid(values), pc.is_in(values, value_set=_listed(test)), _NULL)
        case Operator.PREFIX:
            assert test.value is not None
            if pat.is_fixed_size_binary(statistic_type(test.leaf.type)):
                values = values.cast(pa.binary())
            return pc.starts_with(values, pattern=test.value.as_py())
        case Operator.PATTERN:
            return pattern_holds(test, values)
    return _COMPARISONS[test.operator](values, test.value)


def _comparable(column: Any, leaf: Leaf) -> Any:
    """Return the column in its statistic type if kernels need that: for dictionaries and half floats."""
    kind = statistic_type(leaf.type)
    if pat.is_dictionary(leaf.type) or pat.is_float16(leaf.type):
        column = column.cast(kind)
    return column


def _listed(test: Test) -> pa.Array:
    """Return the values of IN for a hash lookup. A hash lookup distinguishes 0.0 and -0.0, although they are equal."""
    values = test.values
    assert values is not None
    if pat.is_floating(values.type) and pc.any(pc.equal(values, 0.0)).as_py():
        return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
    return values


_COMPARISONS = {
    Operator.LESS: pc.less,
    Operator.LESS_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_EQUAL: pc.greater_equal,
    Operator.EQUAL: pc.equal,
}
