"""Evaluate a condition on rows, with the same three-valued logic as match.py.

Built once from compute functions that take arrays and dataset expressions alike, so a filter that is pushed into a scan
and a mask computed on a table cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model.schema import Leaf, Schema
from tblctl.tableformat.model.types import statistic_type
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
_GROUP = 256  # tests in one chain of AND or OR; Arrow overflows between 3,000 and 10,000


def row_filter(expression: Any, schema: Schema) -> pc.Expression:
    """Return a pyarrow expression that is true, false or null per row.

    It is for tables of read types that hold `needed_columns`; a nested leaf is a column named `a.b` there.

    Raises:
        InvalidPredicateError: see `resolve`.
    """
    return _evaluate(node_of(expression, schema), _Source(lambda leaf: pc.field(leaf.name), pc.scalar))


def needed_columns(expression: Any, schema: Schema) -> tuple[str, ...]:
    """Return the dotted names of the leaves that the condition tests, each once, in the order written."""
    return tuple(dict.fromkeys(test.leaf.name for test in tests_of(node_of(expression, schema))))


def filter_table(table: pa.Table, expression: Any, schema: Schema) -> pa.BooleanArray:
    """Return the condition's value for each row of `table`, null where it is NULL.

    Raises:
        InvalidPredicateError: see `resolve`.
    """
    source = _Source(lambda leaf: table.column(leaf.name), lambda scalar: scalar)
    result = _evaluate(node_of(expression, schema), source)
    if isinstance(result, pa.Scalar):
        return pa.repeat(result, table.num_rows)
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


class _Source(NamedTuple):
    """Where values come from: arrays and scalars, or expressions that stand for them."""

    column: Callable[[Leaf], Any]
    constant: Callable[[pa.Scalar], Any]


def _evaluate(node: Node, source: _Source) -> Any:
    match node:
        case Test():
            if node.operator is Operator.NEVER:
                return source.constant(_NULL)
            result = _test(node, source.column(node.leaf))
            return pc.invert(result) if node.negated else result
        case Constant():
            return source.constant(pa.scalar(node.value, pa.bool_()))
        case AllOf():
            return _joined(pc.and_kleene, [_evaluate(child, source) for child in node.children])
        case AnyOf():
            return _joined(pc.or_kleene, [_evaluate(child, source) for child in node.children])
        case Negation():
            return pc.invert(_evaluate(node.child, source))
        case Truth():
            result = _evaluate(node.child, source)
            if node.value is None:
                return pc.is_null(result)
            return pc.coalesce(result if node.value else pc.invert(result), _FALSE)


def _joined(combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    """Combine all parts in groups, since Arrow walks expressions recursively and 10,000 ANDs would overflow its stack.

    It also turns a balanced tree of one operator back into a chain before binding it. NOT NOT between the groups, which
    changes nothing else, keeps it from that; the chain in each group is short enough.
    """
    while len(parts) > _GROUP:
        groups = [reduce(combine, parts[i : i + _GROUP]) for i in range(0, len(parts), _GROUP)]
        parts = [pc.invert(pc.invert(group)) for group in groups]
    return reduce(combine, parts)


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
            if pat.is_fixed_size_binary(test.leaf.type):
                values = values.cast(pa.binary())
            return pc.starts_with(values, pattern=test.value.as_py())
        case Operator.PATTERN:
            return pattern_holds(test, values)
    return _COMPARISONS[test.operator](values, test.value)


def _comparable(column: Any, leaf: Leaf) -> Any:
    """Return the column in its statistic type where kernels need that: dictionaries and half floats."""
    kind = statistic_type(leaf.type)
    if pat.is_dictionary(leaf.type) or pat.is_float16(leaf.type):
        column = column.cast(kind)
    return column


def _listed(test: Test) -> pa.Array:
    """Return the values of IN for a hash lookup, which tells 0.0 from -0.0 though they are equal."""
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
