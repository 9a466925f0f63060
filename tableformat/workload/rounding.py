"""Round the literals of a condition, so that a log of queries does not hold what people asked for exactly. Pure.

Numbers keep 2 significant digits, text and bytes their first 2 characters, timestamps their hour; dates stay. An
equality of text becomes a test of its beginning. So a condition still says which part of a table was asked for, though
only roughly.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string
from tblctl.tableformat.predicate.as_sql import as_sql
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Negation,
    Node,
    Operator,
    Test,
    Truth,
    node_of,
)

KEPT_CHARACTERS = 2
_DIGITS = Context(prec=2)
_SECONDS = {"s": 3600, "ms": 3600 * 10**3, "us": 3600 * 10**6, "ns": 3600 * 10**9}


def rounded_where(text: str, schema: Schema) -> str:
    """Return a condition with rounded literals; empty if nothing of it can be kept.

    Raises:
        InvalidPredicateError: the text is no condition of the schema.
    """
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    return as_sql(_rounded(node_of(parse_where(text, schema), schema)))


def _rounded(node: Node) -> Node:
    match node:
        case Test():
            return _test(node)
        case AllOf(children=children) | AnyOf(children=children):
            return replace(node, children=tuple(map(_rounded, children)))
        case Negation(child=child) | Truth(child=child):
            return replace(node, child=_rounded(child))
    return node


def _test(test: Test) -> Node:
    if test.operator in (Operator.PREFIX, Operator.PATTERN) and test.value is not None:
        return replace(test, operator=Operator.PREFIX, value=_cut(test.value), pattern=None)
    if test.value is not None:
        if test.operator is Operator.EQUAL and is_any_string(test.value.type):
            return _beginning(test, test.value)
        return replace(test, value=_value(test.value))
    if test.values is not None:
        kind = test.values.type
        if is_any_string(kind):
            found = {value.as_py(): value for value in map(_value, test.values)}
            parts = tuple(_beginning(replace(test, negated=False), value) for value in found.values())
            either = AnyOf(children=parts) if len(parts) > 1 else parts[0]
            return Negation(child=either) if test.negated else either
        values = sorted({_value(value).as_py() for value in test.values})
        return replace(test, values=pa.array(values, kind))
    return test


def _beginning(test: Test, value: pa.Scalar) -> Test:
    """Return the test whether text begins as a value does."""
    text = pa.scalar(str(value.as_py())[:KEPT_CHARACTERS].encode(), pa.binary())
    return replace(test, operator=Operator.PREFIX, value=text, values=None)


def _cut(value: pa.Scalar) -> pa.Scalar:
    """Return the prefix of a pattern, cut to whole characters."""
    text = value.as_py().decode(errors="ignore")[:KEPT_CHARACTERS]
    return pa.scalar(text.encode(), value.type)


def _value(value: pa.Scalar) -> pa.Scalar:
    kind = value.type
    if pt.is_timestamp(kind) or pt.is_time(kind):
        step = _SECONDS[kind.unit]
        count = pa.int32() if pt.is_time32(kind) else pa.int64()
        return pa.scalar(int(value.value) // step * step, count).cast(kind)
    found: Any = value.as_py()
    if isinstance(found, bool | datetime.date):
        return value
    if is_any_string(kind) or is_any_binary(kind):
        return pa.scalar(found[:KEPT_CHARACTERS], kind)
    if isinstance(found, bytes):  # of a fixed width: an id as a rule
        return pa.scalar(found[:KEPT_CHARACTERS].ljust(len(found), b"\0"), kind)
    return _number(found, kind)


def _number(found: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a number with 2 significant digits, or as many fewer as its type can hold."""
    near = _DIGITS.create_decimal(Decimal(str(found)))
    towards_zero = _down(found)
    for number in (near, towards_zero):
        try:
            return pa.scalar(_as(kind)(number), kind)
        except (pa.ArrowInvalid, OverflowError, ValueError):
            continue
    return pa.scalar(_as(kind)(Decimal(0)), kind)


def _down(found: Any) -> Decimal:
    return Context(prec=2, rounding="ROUND_DOWN").create_decimal(Decimal(str(found)))


def _as(kind: pa.DataType) -> Callable[[Decimal], Any]:
    if pt.is_decimal(kind):
        quantum = Decimal(1).scaleb(-kind.scale)
        return lambda number: number.quantize(quantum, context=Context(prec=kind.precision))
    return int if pt.is_integer(kind) else float
