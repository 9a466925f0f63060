"""Convert SQL literals between text, operands, PyIceberg's literals and plain Python values. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow.types as pat
from pyiceberg.expressions import literals as ice_literals

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import is_any_string
from tblctl.tableformat.predicate import literals
from tblctl.tableformat.predicate.literals import Operand
from tblctl.tableformat.predicate.sql.long_lists import Value

_MICROS = 10**6
_LONG_DIGITS = 40
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")


def typed_operand(word: str, text: str) -> Operand:
    """Return DATE, TIMESTAMP, TIMESTAMPTZ or TIME '...'.

    Raises:
        LiteralError: the text has another form.
    """
    if word == "DATE":
        return literals.date(text)
    if word == "TIME":
        return literals.time(text)
    moment = literals.timestamp(text)
    return dataclasses.replace(moment, kind="timestamp", zoned=True) if word == "TIMESTAMPTZ" else moment


def listed_operand(value: Value) -> Operand:
    """Return a literal of a long list, read as in a short list.

    Raises:
        LiteralError: the literal is malformed.
    """
    if value.number:
        return literals.number("".join(value.number.split()))
    text = value.text.replace("''", "'")
    return typed_operand(value.word.upper(), text) if value.word else literals.from_python(text)


def listed_carriers(values: Sequence[Value], leaf: Leaf) -> set[Any]:
    """Return the literals of a long list that are values of the column; see `literals.exact_places`.

    Integers for an integer column, and text for a string column, are converted in one step. This takes a tenth of the
    time for 100,000 of them.

    Raises:
        LiteralError: a literal is malformed, or cannot be compared with the column.
    """
    kind = leaf.type.value_type if pat.is_dictionary(leaf.type) else leaf.type
    if pat.is_integer(kind) and all(_WHOLE.fullmatch(value.number) for value in values):
        low = -(2 ** (kind.bit_width - 1)) if pat.is_signed_integer(kind) else 0
        numbers = {int(value.number) for value in values}
        return {number for number in numbers if low <= number < low + 2**kind.bit_width}
    if is_any_string(kind) and not any(value.number or value.word for value in values):
        return {value.text.replace("''", "'") for value in values}
    moment = "TIME" if pat.is_time(kind) else "TIMESTAMP" if pat.is_temporal(kind) else ""
    operands = [
        typed_operand(value.word.upper() or moment, value.text)
        if moment and not value.number
        else listed_operand(value)
        for value in values
    ]
    return set() if pat.is_null(kind) else literals.exact_places(operands, leaf)


def literal_of(operand: Operand, leaf: Leaf) -> ice_literals.Literal[Any]:
    """Return a PyIceberg literal from which `resolve` gets `operand` again.

    Moments become typed literals if microseconds hold them, and stay text otherwise. Integers become LongLiteral even
    above 64 bits. Only binding to an Iceberg schema would fail for these.
    """
    moment = literals.temporal(operand, leaf)
    value: Any = moment.value
    if moment.kind == "number":
        integral = value == value.to_integral_value() if abs(value.adjusted()) < _LONG_DIGITS else False
        return ice_literals.LongLiteral(int(value)) if integral else ice_literals.DecimalLiteral(value)
    if isinstance(value, Fraction):
        micros = value * _MICROS
        if moment.kind == "date":
            return ice_literals.DateLiteral(int(value) // 86_400)
        if micros.denominator != 1:
            return ice_literals.StringLiteral(moment.text)
        kind = ice_literals.TimestampLiteral if moment.kind == "timestamp" else ice_literals.TimeLiteral
        return kind(int(micros))
    return ice_literals.literal(value)


def python_value(moment: Operand) -> Any:
    """Return a literal as a plain value, as `parse_assignments` returns it."""
    value: Any = moment.value
    if moment.kind == "number":
        return int(value) if value == value.to_integral_value() else value
    if not isinstance(value, Fraction):
        return value
    micros = value * _MICROS
    if micros.denominator != 1:
        return moment.text
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if moment.zoned else None)
    try:
        instant = start + datetime.timedelta(microseconds=int(micros))
    except OverflowError:  # with its offset it is outside of the years 1 to 9999
        return moment.text
    if moment.kind == "timestamp":
        return instant
    return instant.date() if moment.kind == "date" else instant.time()
