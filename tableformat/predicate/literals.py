"""Place a literal on a column's grid, exactly.

A column's type is a grid of values: integers, multiples of 0.01, whole days, microseconds. A literal of the right kind
need not lie on it (`count > 1.5`, `day < TIMESTAMP '1995-01-01 12:00:00'`, a constant that the type cannot hold). A
comparison needs only two facts: the greatest grid value at or below the literal, and whether this equals the literal.
`x < 1.5` is `x <= 1` on integers. Arithmetic is rational, so it loses nothing. Only literals for float columns are
rounded, to the column's nearest value, since `price = 0.1` would otherwise never hold.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.types as pat

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type, type_to_text

Kind = Literal["boolean", "number", "text", "bytes", "date", "timestamp", "time"]
Carrier = (
    bool | int | float | str | bytes
)  # what `scalar_of` builds a scalar from; decimals are unscaled integers

_EXPONENT_LIMIT = 500  # beyond every type's range: 1e999999999 is placed like 1e500, without computing it
MOST_DIGITS = 2_000
"""Most characters of a number or of a fraction of a second. No type has more than 1,075 significant digits, and
parsing a million digits would take minutes."""

_EXACT = Context(
    prec=MOST_DIGITS + 100, Emax=MAX_EMAX, Emin=MIN_EMIN
)  # enough digits that scaling a literal never rounds it
_MOST_BITS = math.floor(MOST_DIGITS * math.log2(10))
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROS = 10**6
_INT64_MAX = 2**63 - 1
_CLOCK = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?"
_TIME = re.compile(_CLOCK, re.ASCII)
_INSTANT = re.compile(
    rf"(\d{{4}})-(\d{{2}})-(\d{{2}})(?:[Tt ]{_CLOCK}\s*([Zz]|UTC|[+-]\d{{2}}(?::?\d{{2}})?)?)?", re.ASCII
)
_FLOAT_MAX = {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}
_FLOAT_FORMAT = {16: "e", 32: "f", 64: "d"}


class LiteralError(ValueError):
    """A literal is malformed, or of a kind that the column cannot be compared with."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A literal before it meets a column.

    The type of `value` depends on `kind`: bool, Decimal or float (number), str, bytes, and for date, timestamp and time
    a Fraction of seconds (since 1970-01-01, or since midnight). `zoned`: the timestamp has an offset, so it is an
    instant.
    """

    kind: Kind
    value: bool | Decimal | float | str | bytes | Fraction
    text: str
    zoned: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a literal lies: `floor` is the greatest value of the type at or below it, None if all are above."""

    floor: Carrier | None
    exact: bool


def number(text: str) -> Operand:
    """Return the number written in `text` (decimal or exponent notation), exactly.

    Raises:
        LiteralError: the text is not a finite number, or longer than `MOST_DIGITS`.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        msg = f"{text:.40} is not a number"
        raise LiteralError(msg) from None
    return _number_operand(value, text)


def _check_length(text: str, digits: int) -> None:
    if digits > MOST_DIGITS:
        msg = f"{text:.40}.. has {digits:,} digits, at most {MOST_DIGITS:,} are read; round it"
        raise LiteralError(msg)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = f"{text!r:.60} is not valid text: half a surrogate pair at {error.start}"
        raise LiteralError(msg) from error


def _number_operand(value: Decimal, text: str) -> Operand:
    if not value.is_finite():
        msg = f"{text:.40} is not a finite number; for NaN use the expressions IsNaN and NotNaN"
        raise LiteralError(msg)
    _check_length(text, len(text))
    if not value:
        value = Decimal(0)
    elif abs(value.adjusted()) > _EXPONENT_LIMIT:
        exponent = math.copysign(_EXPONENT_LIMIT, value.adjusted())
        value = Decimal((value.as_tuple().sign, (1,), int(exponent)))
    return Operand(kind="number", value=value, text=text)


def date(text: str) -> Operand:
    """Return the day written as YYYY-MM-DD. Raises LiteralError."""
    operand = timestamp(text)
    if operand.kind != "date":
        msg = f"'{text:.60}' is not a date; write DATE 'YYYY-MM-DD'"
        raise LiteralError(msg)
    return operand


def timestamp(text: str) -> Operand:
    """Return the instant written as YYYY-MM-DD[ hh:mm[:ss[.fraction]][offset]]; kind "date" if it is only a day.

    Raises:
        LiteralError: the text has another form, or no such day or time exists.
    """
    found = _INSTANT.fullmatch(text.strip())
    if not found:
        msg = f"'{text:.60}' is not a date or timestamp; write 'YYYY-MM-DD' or 'YYYY-MM-DD hh:mm:ss'"
        raise LiteralError(msg)
    year, month, day, *clock, offset = found.groups()
    try:
        days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError as error:
        msg = f"'{text:.60}' is not a day of the calendar: {error}"
        raise LiteralError(msg) from None
    midnight = days * _DAY_SECONDS
    if clock[0] is None:
        return Operand(kind="date", value=Fraction(midnight), text=text)
    seconds = _clock_seconds(clock, text, midnight - _offset_seconds(offset, text))
    return Operand(kind="timestamp", value=seconds, text=text, zoned=offset is not None)


def time(text: str) -> Operand:
    """Return the time of day written as hh:mm[:ss[.fraction]]. Raises LiteralError."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        msg = f"'{text:.60}' is not a time; write 'hh:mm:ss'"
        raise LiteralError(msg)
    return Operand(kind="time", value=_clock_seconds(found.groups(), text), text=text)


def _clock_seconds(parts: Any, text: str, midnight: int = 0) -> Fraction:
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004
        msg = f"'{text:.60}' is not a time of day; hours end at 23, minutes and seconds at 59"
        raise LiteralError(msg)
    _check_length(text, len(parts[3] or ""))
    seconds = midnight + hour * 3600 + minute * 60 + second
    if not parts[3]:
        return Fraction(seconds)
    unit: int = 10 ** len(parts[3])
    return Fraction(seconds * unit + int(parts[3]), unit)


def _offset_seconds(offset: str | None, text: str) -> int:
    if offset is None or offset[0] not in "+-":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:  # noqa: PLR2004
        msg = f"'{text:.60}' has an impossible offset {offset}"
        raise LiteralError(msg)
    return (-1 if offset[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def from_python(value: Any) -> Operand:
    """Return the operand for a plain Python value.

    Raises:
        LiteralError: the value is of another type, NaN, longer than `MOST_DIGITS`, or text that is not UTF-8.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:  # Python refuses to print it
        msg = (
            f"an integer of {value.bit_length():,} bits is too long, at most {MOST_DIGITS:,} digits are read"
        )
        raise LiteralError(msg)
    text = repr(value) if not isinstance(value, datetime.date | datetime.time) else str(value)
    match value:
        case bool():
            return Operand(kind="boolean", value=value, text=text.upper())
        case int():
            return _number_operand(Decimal(value), str(Decimal(value)))
        case float():
            if math.isinf(value):
                return Operand(kind="number", value=value, text=text)
            return _number_operand(Decimal(repr(float(value))), text)
        case Decimal():
            return _number_operand(value, str(value))
        case str():
            _check_text(value)
            return Operand(kind="text", value=value, text=text)
        case bytes():
            return Operand(kind="bytes", value=value, text=f"X'{value.hex()}'")
        case uuid.UUID():
            return Operand(kind="bytes", value=value.bytes, text=f"X'{value.hex}'")
        case datetime.datetime() | datetime.date():
            return timestamp(value.isoformat())
        case datetime.time():
            return time(value.isoformat())
    msg = f"a value of type {type(value).__name__} cannot be compared with a column"
    raise LiteralError(msg)


def from_days(days: int) -> Operand:
    """Return the day `days` after 1970-01-01."""
    return Operand(
        kind="date", value=Fraction(days * _DAY_SECONDS), text=_instant_text(days * _DAY_SECONDS * _MICROS)
    )


def from_micros(micros: int) -> Operand:
    """Return the timestamp `micros` microseconds after 1970-01-01. Whether it had a zone is unknown."""
    return Operand(kind="timestamp", value=Fraction(micros, _MICROS), text=_instant_text(micros))


def from_time_micros(micros: int) -> Operand:
    """Return the time `micros` microseconds after midnight."""
    if not 0 <= micros < _DAY_SECONDS * _MICROS:
        msg = f"{micros} microseconds is not a time of day"
        raise LiteralError(msg)
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)
    return Operand(kind="time", value=Fraction(micros, _MICROS), text=f"'{moment.time()}'")


def _instant_text(micros: int) -> str:
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)  # noqa: DTZ001
    except OverflowError:
        return f"{micros} microseconds after 1970"
    return f"'{moment.date() if micros % (_DAY_SECONDS * _MICROS) == 0 else moment}'"


def place(operand: Operand, leaf: Leaf) -> Place:
    """Return where `operand` lies among the values of the column's type.

    Raises:
        LiteralError: the literal is of another kind than the column, or the column's values have no order.
    """
    return _placing(leaf)(operand)


def _placing(leaf: Leaf) -> Callable[[Operand], Place]:
    """Return the function that places literals among the values of the column's type; made once for many literals."""
    kind = leaf.type.value_type if pat.is_dictionary(leaf.type) else leaf.type
    if pat.is_boolean(kind):
        return lambda operand: Place(floor=_expect(operand, leaf, "boolean", "TRUE or FALSE"), exact=True)
    if pat.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1)) if pat.is_signed_integer(kind) else 0
        high = low + 2**kind.bit_width - 1
        return lambda operand: _on_grid(_number(operand, leaf), 0, low, high)
    if pat.is_floating(kind):
        width = kind.bit_width
        return lambda operand: _on_float(_expect(operand, leaf, "number", "a number"), width)
    if pat.is_decimal(kind):
        scale, most = kind.scale, 10**kind.precision - 1
        return lambda operand: _on_grid(_number(operand, leaf), scale, -most, most)
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return lambda operand: Place(floor=_expect(operand, leaf, "text", "a string"), exact=True)
    binary = "a binary literal X'00ff'"
    if pat.is_fixed_size_binary(kind):
        return lambda operand: _on_fixed(_expect(operand, leaf, "bytes", binary), kind.byte_width)
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return lambda operand: Place(floor=_expect(operand, leaf, "bytes", binary), exact=True)
    return lambda operand: _on_clock(operand, leaf, kind)


def exact_places(operands: Sequence[Operand], leaf: Leaf) -> set[Any]:
    """Return the carriers of the literals that are values of the column's type.

    Raises:
        LiteralError: as `place`.
    """
    placed = _placing(leaf)
    found = (placed(operand) for operand in operands)
    return {one.floor for one in found if one.exact}


def array_of(carriers: Sequence[Carrier], kind: pa.DataType) -> pa.Array:
    """Return `carriers` as an array of the statistic type `kind`."""
    if pat.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array(carriers, width).cast(kind)
    if pat.is_decimal(kind):
        return pa.array([_EXACT.scaleb(int(carrier), -kind.scale) for carrier in carriers], kind)
    return pa.array(carriers, kind)


def scalar_of(carrier: Carrier, kind: pa.DataType) -> pa.Scalar:
    """Return `carrier` as a scalar of the statistic type `kind`."""
    return array_of([carrier], kind)[0]


def column_value(leaf: Leaf, value: Any) -> pa.Scalar:
    """Return `value` as a scalar of the column's statistic type, to write it into the column.

    Accepts the results of `parse_assignments` and the values of a caller's mapping: None, bool, int, float, Decimal,
    str, bytes, UUID, date, datetime, time (text also for decimals, dates, times and timestamps); lists and dicts for
    columns of such types.

    Raises:
        LiteralError: the column cannot hold the value exactly, or it is None and the column is not nullable.
    """
    kind = statistic_type(leaf.type)
    if value is None:
        if not leaf.nullable:
            msg = f"column {leaf.name} is not nullable, so it cannot be set to NULL"
            raise LiteralError(msg)
        return pa.scalar(None, kind)
    if pat.is_nested(kind) or pat.is_null(kind):
        try:
            return pa.scalar(value, kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            msg = f"column {leaf.name} of type {type_to_text(leaf.type)} cannot hold {value!r:.60}: {error}"
            raise LiteralError(msg) from error
    if isinstance(value, float) and (math.isnan(value) or value == 0) and pat.is_floating(kind):
        return pa.scalar(value, kind)  # -0.0 stays
    operand = from_python(value)
    placed = place(operand, leaf)
    if not placed.exact or placed.floor is None:
        msg = f"column {leaf.name} of type {type_to_text(leaf.type)} cannot hold {operand.text:.60} exactly"
        raise LiteralError(msg)
    return scalar_of(placed.floor, kind)


def temporal(operand: Operand, leaf: Leaf) -> Operand:
    """Return text as the moment it names, if the column has dates, timestamps or times; anything else unchanged."""
    kind = leaf.type.value_type if pat.is_dictionary(leaf.type) else leaf.type
    if operand.kind != "text":
        return operand
    if pat.is_time(kind):
        return time(str(operand.value))
    return timestamp(str(operand.value)) if pat.is_date(kind) or pat.is_timestamp(kind) else operand


def _expect(operand: Operand, leaf: Leaf, kind: Kind, wanted: str) -> Any:
    if operand.kind != kind:
        _refuse(operand, leaf, wanted)
    return operand.value


def _refuse(operand: Operand, leaf: Leaf, wanted: str) -> None:
    column = f"column {leaf.name} of type {type_to_text(leaf.type)}"
    msg = f"{column} takes {wanted}, not the {operand.kind} {operand.text:.60}"
    raise LiteralError(msg)


def _number(operand: Operand, leaf: Leaf) -> Decimal:
    """Return the literal as a number. An infinity becomes a number beyond every type's range."""
    value: Any = operand.value
    if operand.kind == "text" and pat.is_decimal(statistic_type(leaf.type)):
        value = number(str(value).strip()).value
    elif operand.kind != "number":
        _refuse(operand, leaf, "a number")
    if isinstance(value, float):
        return Decimal((int(value < 0), (1,), _EXPONENT_LIMIT))
    return Decimal(value)


def _on_grid(value: Decimal | Fraction, scale: int, low: int, high: int) -> Place:
    """Place a number among the multiples of 10^-scale, counted in these. A fraction is already counted in them."""
    if isinstance(value, Decimal):
        scaled = value.scaleb(scale, _EXACT)
        whole = scaled.to_integral_value(ROUND_FLOOR, _EXACT)
        floor, exact = int(whole), whole == scaled
    else:
        floor = math.floor(value)
        exact = floor == value
    if floor < low:
        return Place(floor=None, exact=False)
    return Place(floor=min(floor, high), exact=exact and floor <= high)


def _on_float(value: Decimal | float, bit_width: int) -> Place:
    """Round to the nearest value of the width; a finite number beyond the largest is between it and infinity."""
    if isinstance(value, float):
        return Place(floor=value, exact=True)
    code = _FLOAT_FORMAT[bit_width]
    try:
        nearest = struct.unpack(code, struct.pack(code, float(value)))[0]
    except OverflowError:  # raised where rounding would give infinity
        nearest = math.copysign(math.inf, value)
    if math.isinf(nearest):
        return Place(floor=_FLOAT_MAX[bit_width] if nearest > 0 else -math.inf, exact=False)
    return Place(floor=nearest, exact=True)


def _on_fixed(value: bytes, width: int) -> Place:
    """Place bytes of another length among values of `width` bytes, in the order of bytes (a prefix comes first)."""
    if len(value) >= width:
        return Place(floor=value[:width], exact=len(value) == width)
    below = int.from_bytes(value.ljust(width, b"\0"), "big") - 1
    return Place(floor=below.to_bytes(width, "big") if below >= 0 else None, exact=False)


def _on_clock(operand: Operand, leaf: Leaf, kind: pa.DataType) -> Place:
    """Place a date, timestamp or time; timestamps without an offset mean UTC where the column has a zone."""
    moment = temporal(operand, leaf)
    if pat.is_time(kind):
        seconds: Fraction = _expect(moment, leaf, "time", "a time 'hh:mm:ss'")
        per_second = _UNITS_PER_SECOND[kind.unit]
        return _on_grid(seconds * per_second, 0, 0, _DAY_SECONDS * per_second - 1)
    if not (pat.is_date(kind) or pat.is_timestamp(kind)):
        msg = f"column {leaf.name} of type {type_to_text(leaf.type)} has no order; only IS [NOT] NULL works on it"
        raise LiteralError(msg)
    if moment.kind not in ("date", "timestamp"):
        _refuse(operand, leaf, "a date or timestamp")
    if moment.zoned and getattr(kind, "tz", None) is None:
        column = f"column {leaf.name} of type {type_to_text(leaf.type)}"
        msg = f"{column} has no zone; write {operand.text:.60} without an offset"
        raise LiteralError(msg)
    seconds = cast("Fraction", moment.value)
    if pat.is_date32(kind):
        return _on_grid(seconds / _DAY_SECONDS, 0, -(2**31), 2**31 - 1)
    per_second = 1000 if pat.is_date64(kind) else _UNITS_PER_SECOND[kind.unit]
    return _on_grid(seconds * per_second, 0, -_INT64_MAX - 1, _INT64_MAX)
