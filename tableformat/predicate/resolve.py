"""Turn a boolean expression into tests on columns, with three-valued logic kept exact.

PyIceberg's expression classes are the one expression type of the project. Its own rewriting is not used: it turns
`~(x > 5)` into `x <= 5`, which differs for NaN. A resolved expression is a tree of nodes.py. In it "not equal", "not
in" and the like are a negated positive test.

Comparisons are exact on the column's own grid (see literals.py). A test that no value satisfies becomes "false if not
null".
"""

from __future__ import annotations

from typing import Any

from pyiceberg import expressions as ice
from pyiceberg.expressions import literals as ice_literals

from tblctl.tableformat.errors import InvalidPredicateError, UnknownColumnError
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.expressions import Resolved
from tblctl.tableformat.predicate.leaf_tests import comparison_test, in_test, prefix_test, unary_test
from tblctl.tableformat.predicate.literals import LiteralError, Operand
from tblctl.tableformat.predicate.nodes import AllOf, AnyOf, Constant, Negation, Node, Operator, Test

DEPTH_LIMIT = 150  # nested levels of AND, OR and NOT; a chain of one kind counts once


_COMPARISONS: dict[Any, Operator] = {
    ice.LessThan: Operator.LESS,
    ice.LessThanOrEqual: Operator.LESS_EQUAL,
    ice.GreaterThan: Operator.GREATER,
    ice.GreaterThanOrEqual: Operator.GREATER_EQUAL,
    ice.EqualTo: Operator.EQUAL,
    ice.NotEqualTo: Operator.EQUAL,
    ice.StartsWith: Operator.PREFIX,
    ice.NotStartsWith: Operator.PREFIX,
}
_UNARY: dict[Any, Operator] = {
    ice.IsNull: Operator.NULL,
    ice.NotNull: Operator.NULL,
    ice.IsNaN: Operator.NAN,
    ice.NotNaN: Operator.NAN,
}
_NEGATIVE = (ice.NotEqualTo, ice.NotStartsWith, ice.NotIn, ice.NotNull, ice.NotNaN)


def resolve(expression: Any, schema: Schema) -> Node:
    """Return `expression` as a tree of tests on the columns of `schema`. O(size).

    Raises:
        InvalidPredicateError: not an unbound PyIceberg expression, an unknown column, a literal of another kind than
            its column, or more than 150 nested levels of AND, OR and NOT.
    """
    return _resolve(expression, schema, 0)


def _resolve(expression: Any, schema: Schema, depth: int) -> Node:
    if depth > DEPTH_LIMIT:
        msg = f"the condition nests AND, OR and NOT more than {DEPTH_LIMIT} levels deep; write it flatter"
        raise InvalidPredicateError(msg)
    kind = type(expression)
    if kind in (ice.And, ice.Or):
        children = tuple(_resolve(part, schema, depth + 1) for part in _chain(expression))
        return AllOf(children=children) if kind is ice.And else AnyOf(children=children)
    if kind is ice.Not:
        return Negation(child=_resolve(expression.child, schema, depth + 1))
    if kind is Resolved:
        node: Node = expression.node
        return node
    if kind in (ice.AlwaysTrue, ice.AlwaysFalse):
        return Constant(value=kind is ice.AlwaysTrue)
    if kind in _COMPARISONS or kind in _UNARY or kind in (ice.In, ice.NotIn):
        return _predicate(expression, schema)
    if isinstance(expression, ice.BoundPredicate):
        msg = (
            f"{kind.__name__} is bound to another schema; pass the unbound expression, which names its column"
        )
    else:
        msg = (
            f"a condition is SQL text or a PyIceberg expression such as EqualTo('a', 1), not {kind.__name__}"
        )
    raise InvalidPredicateError(msg)


def _chain(expression: Any) -> list[Any]:
    """Return the parts of `a AND b AND c ...`, left- or right-nested, without recursion."""
    kind, parts, todo = type(expression), [], [expression]
    while todo:
        part = todo.pop()
        if type(part) is kind:
            todo += (part.right, part.left)
        else:
            parts.append(part)
    return parts


def _predicate(expression: Any, schema: Schema) -> Test:
    if not isinstance(expression.term, ice.Reference):
        msg = f"a condition's term must be a column's name, not {type(expression.term).__name__}"
        raise InvalidPredicateError(msg)
    try:
        leaf = schema.leaf(expression.term.name)
        return test_of(expression, leaf)
    except (UnknownColumnError, LiteralError) as error:
        raise InvalidPredicateError(str(error), column=expression.term.name) from error


def test_of(expression: Any, leaf: Leaf) -> Test:
    """Return one unbound predicate as a test on `leaf`.

    Raises:
        LiteralError: a literal cannot be compared with the column.
    """
    kind, negated = type(expression), isinstance(expression, _NEGATIVE)
    if kind in _UNARY:
        return unary_test(_UNARY[kind], leaf, negated=negated)
    if kind in (ice.In, ice.NotIn):
        return in_test(leaf, [operand_of(each) for each in expression.literals], negated=negated)
    operand = operand_of(expression.literal)
    if _COMPARISONS[kind] is Operator.PREFIX:
        return prefix_test(leaf, operand, negated=negated)
    return comparison_test(_COMPARISONS[kind], leaf, operand, negated=negated)


def operand_of(literal: ice_literals.Literal[Any]) -> Operand:
    """Return the operand of a PyIceberg literal.

    Raises:
        LiteralError: the literal has no value (above the maximum, below the minimum).
    """
    match literal:
        case ice_literals.DateLiteral():
            return literals.from_days(literal.value)
        case ice_literals.TimestampLiteral():
            return literals.from_micros(literal.value)
        case ice_literals.TimeLiteral():
            return literals.from_time_micros(literal.value)
        case ice_literals.AboveMax() | ice_literals.BelowMin():
            msg = f"{type(literal).__name__} is not a value"
            raise LiteralError(msg)
    return literals.from_python(literal.value)
