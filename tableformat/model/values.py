"""Single values as JSON: exact both ways for every type that statistics are kept in.

Integers, dates, times and timestamps are JSON integers (the latter three count the type's unit), floats are numbers
or one of "NaN", "Infinity", "-Infinity", decimals are strings, binary is hexadecimal, null is null.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_FLOAT_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def value_to_json(value: pa.Scalar) -> Any:
    """Return the JSON form of a scalar of a statistic type."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_temporal(kind):
        return value.value
    if pa.types.is_floating(kind):
        number = float(value.as_py())
        if math.isnan(number):
            return "NaN"
        return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
    if pa.types.is_decimal(kind):
        return format(value.as_py(), "f")
    if _is_bytes(kind):
        return value.as_py().hex()
    return value.as_py()


def values_from_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of `kind` from `value_to_json` forms.

    Raises:
        ValueError: a value is not of the form that `kind` has.
    """
    try:
        carrier = [None if value is None else _carrier(value, kind) for value in values]
        if pa.types.is_temporal(kind):
            width = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
            return pa.array(carrier, width).cast(kind)
        return pa.array(carrier, kind)
    except (pa.ArrowException, TypeError, OverflowError, decimal.InvalidOperation) as error:
        msg = f"a value is not of type {kind}: {error}"
        raise ValueError(msg) from error


def _carrier(value: Any, kind: pa.DataType) -> Any:
    """Return the Python value that pyarrow builds `kind` from; ValueError if it has another form."""
    if pa.types.is_boolean(kind):
        expected: Any = bool
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        expected = int
    elif pa.types.is_floating(kind):
        if isinstance(value, str):
            return _FLOAT_WORDS[value] if value in _FLOAT_WORDS else _refuse(value, kind)
        expected = (int, float)
    else:
        expected = str
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        return _refuse(value, kind)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    return bytes.fromhex(value) if _is_bytes(kind) else value


def _refuse(value: Any, kind: pa.DataType) -> Any:
    msg = f"{value!r:.80} is not the JSON form of {kind}"
    raise ValueError(msg)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def python_value(value: pa.Scalar) -> Any:
    """Return a scalar as a Python value.

    Python's times lack nanoseconds, so values with nanoseconds become ISO text. Moments beyond Python's years 1 to 9999
    become their count of the type's unit.
    """
    try:
        return _python_value(value)
    except (OverflowError, ValueError):
        return value.value


def _python_value(value: pa.Scalar) -> Any:
    kind = value.type
    if value.is_valid and getattr(kind, "unit", None) == "ns" and value.value % 1000:
        return value.cast(pa.string()).as_py()
    if value.is_valid and getattr(kind, "unit", None) == "ns":
        coarse = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
        return value.cast(coarse).as_py()
    return value.as_py()


def value_for_people(value: Any) -> Any:
    """Return a Python value as JSON that people read: ISO dates and times, decimals and binary as text."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: value_for_people(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [value_for_people(item) for item in value]
    return value
