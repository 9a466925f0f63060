"""One test of one column: an operator, and literals on the column's own grid. Does not import PyIceberg."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string, statistic_type, type_to_text
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.like import Pattern
from tblctl.tableformat.predicate.literals import LiteralError, Operand
from tblctl.tableformat.predicate.nodes import Operator, Test

_SHOWN_VALUES = 5
# off the grid, with `floor` the greatest value below the literal: x < literal and x <= literal are x <= floor
_OFF_GRID = {
    Operator.LESS: Operator.LESS_EQUAL,
    Operator.LESS_EQUAL: Operator.LESS_EQUAL,
    Operator.GREATER: Operator.GREATER,
    Operator.GREATER_EQUAL: Operator.GREATER,
}


def unary_test(operator: Operator, leaf: Leaf, *, negated: bool) -> Test:
    """Return IS NULL or IS NAN. Only floats have NaN, so IS NAN is false for other types."""
    no = "NOT " if negated else ""
    text = f"{leaf.name} IS {no}{'NULL' if operator is Operator.NULL else 'NAN'}"
    if operator is Operator.NAN:
        if pat.is_null(leaf.type):
            operator = Operator.NEVER
        elif not pat.is_floating(statistic_type(leaf.type)):
            operator = Operator.FALSE
    return Test(leaf=leaf, operator=operator, negated=negated, text=text)


def comparison_test(operator: Operator, leaf: Leaf, operand: Operand, *, negated: bool) -> Test:
    """Return a comparison with one literal.

    Raises:
        LiteralError: it cannot be compared with the column.
    """
    text = f"{leaf.name} {'!=' if negated else operator.value} {operand.text:.60}"
    if pat.is_null(leaf.type):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    place = literals.place(operand, leaf)
    if not place.exact:
        if place.floor is None:  # every value is greater; float types never get here, so NaN does not matter
            above = operator in (Operator.GREATER, Operator.GREATER_EQUAL)
            return Test(leaf=leaf, operator=Operator.FALSE, negated=negated or above, text=text)
        if operator is Operator.EQUAL:
            return Test(leaf=leaf, operator=Operator.FALSE, negated=negated, text=text)
        operator = _OFF_GRID[operator]
    assert place.floor is not None
    value = literals.scalar_of(place.floor, statistic_type(leaf.type))
    return Test(leaf=leaf, operator=operator, negated=negated, value=value, text=text)


def in_test(leaf: Leaf, operands: Sequence[Operand], *, negated: bool) -> Test:
    """Return the test whether a value is one of several literals. O(n log n).

    Raises:
        LiteralError: one cannot be compared with the column.
    """
    texts = heapq.nsmallest(_SHOWN_VALUES, (operand.text for operand in operands))
    carriers: set[Any] = set() if pat.is_null(leaf.type) else literals.exact_places(operands, leaf)
    return listed_test(leaf, carriers, texts, len(operands), negated=negated)


def listed_test(leaf: Leaf, carriers: set[Any], texts: list[str], count: int, *, negated: bool) -> Test:
    """Return the test whether a value is one of some values of the column's grid.

    Args:
        leaf: the column.
        carriers: the values.
        texts: the first literals.
        count: the number of literals.
        negated: test for none of them.
    """
    more = f", ... {count} values" if count > _SHOWN_VALUES else ""
    shown = ", ".join(text[:60] for text in texts[:_SHOWN_VALUES])
    text = f"{leaf.name} {'NOT IN' if negated else 'IN'} ({shown}{more})"
    if pat.is_null(leaf.type):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    if not carriers:
        return Test(leaf=leaf, operator=Operator.FALSE, negated=negated, text=text)
    values = literals.array_of(sorted(carriers), statistic_type(leaf.type))
    return Test(leaf=leaf, operator=Operator.IN, negated=negated, values=values, text=text)


def prefix_test(leaf: Leaf, operand: Operand, *, negated: bool) -> Test:
    """Return the test whether text or bytes begin with a literal.

    Raises:
        LiteralError: the literal is of another kind, or the column's values have no prefixes.
    """
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


def pattern_test(leaf: Leaf, pattern: Pattern, *, negated: bool) -> Test:
    """Return the test whether text matches a pattern of LIKE. The column has strings, or is of type null."""
    text = f"{leaf.name} {'NOT LIKE' if negated else 'LIKE'} '{pattern.text:.60}'"
    if pat.is_null(leaf.type):
        return Test(leaf=leaf, operator=Operator.NEVER, text=text)
    return Test(
        leaf=leaf,
        operator=Operator.PATTERN,
        negated=negated,
        value=pa.scalar(pattern.prefix.encode(), pa.binary()),
        pattern=pattern.regex,
        text=text,
    )


def pattern_holds(test: Test, values: Any) -> Any:
    """Return whether strings, or a dataset expression for them, match the test's pattern: for rows and bounds."""
    return pc.match_substring_regex(values, test.pattern)
