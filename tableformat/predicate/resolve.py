"""Turn a boolean expression into tests on columns, with three-valued logic kept exact.

PyIceberg's expression classes are the one expression type of the project. Its own rewriting is not used:
`~(x > 5)` there is `x <= 5`, which differs for NaN. A resolved expression is a tree of and, or, not over a
handful of tests; every test is NULL where its column is NULL (except IS NULL), and "not equal", "not in" and the
like are their positive test negated.

Comparisons are exact on the column's own grid (see literals.py): what no value equals becomes "false when not
null".
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat
from pyiceberg import expressions as ice
from pyiceberg.expressions import literals as ice_literals

from tblctl.tableformat.errors import InvalidPredicateError, UnknownColumnError
from tblctl.tableformat.model.schema import Leaf, Schema
from tblctl.tableformat.model.types import is_any_binary, is_any_string, statistic_type, type_to_text
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.literals import LiteralError, Operand

DEPTH_LIMIT = 150  # of AND, OR, NOT inside each other, a chain of one kind counting once
_SHOWN_VALUES = 5


class Operator(enum.Enum):
    """What a test asks of one value; all but NULL and NEVER are NULL for a null.

    NaN is neither less than, nor greater than, nor equal to anything.
    """

    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    EQUAL = "="
    IN = "IN"
    PREFIX = "LIKE"
    NULL = "IS NULL"
    NAN = "IS NAN"
    FALSE = "FALSE"  # false for every value: what a comparison that no value can meet becomes
    NEVER = "NEVER"  # NULL for every row: any comparison of a column of type null


@dataclass(frozen=True, kw_only=True)
class Test:
    """One predicate on one column; `negated` swaps true and false.

    `value` is a scalar of the column's statistic type (for PREFIX: the prefix as binary), `values` holds ascending
    distinct values of it, for IN.
    """

    leaf: Leaf
    operator: Operator
    text: str
    negated: bool = False
    value: pa.Scalar | None = None
    values: pa.Array | None = None


@dataclass(frozen=True, kw_only=True)
class Constant:
    """TRUE or FALSE."""

    value: bool


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


Node: TypeAlias = "Test | Constant | AllOf | AnyOf | Negation"

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
# off the grid, with `floor` the greatest value below the literal: x < literal and x <= literal are x <= floor
_OFF_GRID = {
    Operator.LESS: Operator.LESS_EQUAL,
    Operator.LESS_EQUAL: Operator.LESS_EQUAL,
    Operator.GREATER: Operator.GREATER,
    Operator.GREATER_EQUAL: Operator.GREATER,
}


def resolve(expression: Any, schema: Schema) -> Node:
    """Return `expression` as a tree of tests on the columns of `schema`. O(size).

    Raises:
        InvalidPredicateError: not an unbound PyIceberg expression, an unknown column, a literal of another kind than
            its column, or more than 150 levels of AND, OR and NOT inside each other.
    """
    return _resolve(expression, schema, 0)


def tests_of(node: Node) -> Iterator[Test]:
    """Yield the tests in the order in which they were written."""
    if isinstance(node, Test):
        yield node
    elif isinstance(node, AllOf | AnyOf):
        for child in node.children:
            yield from tests_of(child)
    elif isinstance(node, Negation):
        yield from tests_of(node.child)


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
    """Return the parts of `a AND b AND c ...`, however the chain leans, without recursion."""
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
        return _unary(_UNARY[kind], leaf, negated=negated)
    if kind in (ice.In, ice.NotIn):
        return _in(leaf, [operand_of(each) for each in expression.literals], negated=negated)
    operand = operand_of(expression.literal)
    if _COMPARISONS[kind] is Operator.PREFIX:
        return _prefix(leaf, operand, negated=negated)
    return _comparison(_COMPARISONS[kind], leaf, operand, negated=negated)


def operand_of(literal: ice_literals.Literal[Any]) -> Operand:
    """Return what a PyIceberg literal stands for.

    Raises:
        LiteralError: it is one that stands for no value (above the maximum, below the minimum).
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


def _unary(operator: Operator, leaf: Leaf, *, negated: bool) -> Test:
    no = "NOT " if negated else ""
    text = f"{leaf.name} IS {no}{'NULL' if operator is Operator.NULL else 'NAN'}"
    if operator is Operator.NAN:
        if pat.is_null(leaf.type):
            operator = Operator.NEVER
        elif not pat.is_floating(statistic_type(leaf.type)):
            operator = Operator.FALSE
    return Test(leaf=leaf, operator=operator, negated=negated, text=text)


def _comparison(operator: Operator, leaf: Leaf, operand: Operand, *, negated: bool) -> Test:
    text = f"{leaf.name} {'!=' if negated else operator.value} {operand.text:.60}"
    if pat.is_null(leaf.type):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    place = literals.place(operand, leaf)
    if not place.exact:
        if place.floor is None:  # every value is greater; no float type comes here, so NaN is no concern
            above = operator in (Operator.GREATER, Operator.GREATER_EQUAL)
            return Test(leaf=leaf, operator=Operator.FALSE, negated=negated or above, text=text)
        if operator is Operator.EQUAL:
            return Test(leaf=leaf, operator=Operator.FALSE, negated=negated, text=text)
        operator = _OFF_GRID[operator]
    assert place.floor is not None
    value = literals.scalar_of(place.floor, statistic_type(leaf.type))
    return Test(leaf=leaf, operator=operator, negated=negated, value=value, text=text)


def _in(leaf: Leaf, operands: list[Operand], *, negated: bool) -> Test:
    operands = sorted(operands, key=lambda operand: operand.text)
    shown = ", ".join(operand.text[:60] for operand in operands[:_SHOWN_VALUES])
    more = f", ... {len(operands)} values" if len(operands) > _SHOWN_VALUES else ""
    text = f"{leaf.name} {'NOT IN' if negated else 'IN'} ({shown}{more})"
    if pat.is_null(leaf.type):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    places = [literals.place(operand, leaf) for operand in operands]
    carriers: list[Any] = sorted({place.floor for place in places if place.exact})
    if not carriers:
        return Test(leaf=leaf, operator=Operator.FALSE, negated=negated, text=text)
    kind = statistic_type(leaf.type)
    values = literals.array_of(carriers, kind)
    return Test(leaf=leaf, operator=Operator.IN, negated=negated, values=values, text=text)


def _prefix(leaf: Leaf, operand: Operand, *, negated: bool) -> Test:
    shown = operand.text[1:-1] if operand.kind == "text" else operand.text
    text = f"{leaf.name} {'NOT LIKE' if negated else 'LIKE'} '{shown:.60}%'"
    kind = statistic_type(leaf.type)
    if pat.is_null(kind):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    wanted = "text" if is_any_string(kind) else "bytes"
    if not (is_any_string(kind) or is_any_binary(kind) or pat.is_fixed_size_binary(kind)):
        msg = f"column {leaf.name} of type {type_to_text(leaf.type)} has no prefixes; only strings have"
        raise LiteralError(msg)
    if operand.kind != wanted:
        column = f"column {leaf.name} of type {type_to_text(leaf.type)}"
        msg = f"a prefix of {column} must be {wanted}, not {operand.text:.60}"
        raise LiteralError(msg)
    prefix = operand.value if isinstance(operand.value, bytes) else str(operand.value).encode()
    return Test(
        leaf=leaf, operator=Operator.PREFIX, negated=negated, value=pa.scalar(prefix, pa.binary()), text=text
    )
