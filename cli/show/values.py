"""Convert Arrow values to JSON values without loss, for `--json` and for tables.

| Arrow | JSON |
|---|---|
| integers | number |
| floats | number; `"NaN"`, `"Infinity"`, `"-Infinity"` as strings, since JSON has no such numbers |
| decimals | string, such as `"1.50"` |
| bool, strings | themselves |
| binary | string of hexadecimal digits |
| date, time, timestamp | ISO 8601 string with the type's digits; with a zone: UTC and `Z` |
| dictionary | its value |
| list | list |
| struct | object |
| map | list of `[key, value]` |
| null | `null` |

Arrow's own `to_pylist` cannot do this: it fails on nanoseconds without pandas, and on years after 9999.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def to_json(array: pa.Array) -> list[Any]:
    """Return one JSON value for each value of `array`. O(values)."""
    kind = array.type
    for is_kind, convert in CONVERTERS:
        if is_kind(kind):
            return convert(array)
    return array.to_pylist()  # type: ignore[no-any-return]


def rows_to_json(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of `batch`, each a tuple of JSON values in column order."""
    if batch.num_columns == 0:
        return [()] * batch.num_rows
    return list(zip(*(to_json(column) for column in batch.columns), strict=True))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of `kind` are aligned to the right."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    """Put None where `array` is null."""
    if array.null_count == 0:
        return values
    return [
        value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)
    ]


def floats(array: pa.Array) -> list[Any]:
    """NaN and the infinities as strings."""
    return [
        value if value is None or math.isfinite(value) else number_name(value)
        for value in array.cast(pa.float64()).to_pylist()
    ]


def number_name(value: float) -> str:
    """Return the name of a float that is not a JSON number."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def decimals(array: pa.Array) -> list[Any]:
    """All digits, as text: a float would round them."""
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def binaries(array: pa.Array) -> list[Any]:
    """Hexadecimal digits."""
    return [None if value is None else value.hex() for value in array.to_pylist()]


def timestamps(array: pa.Array) -> list[Any]:
    """ISO 8601 with the digits of the unit. With a zone: in UTC, with Z."""
    kind = array.type
    return [
        text if text is None or kind.tz is None else text + "Z"
        for text in iso_texts(array.cast(pa.int64()), unit=kind.unit)
    ]


def dates(array: pa.Array) -> list[Any]:
    """ISO 8601 days."""
    days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return iso_texts(days, unit="D")


def iso_texts(numbers: pa.Array, *, unit: str) -> list[Any]:
    """Format counts of `unit` since 1970 as ISO 8601. numpy does it, since it supports years after 9999."""
    filled = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return with_nulls(numbers, np.datetime_as_string(filled.view(f"datetime64[{unit}]")).tolist())


def times(array: pa.Array) -> list[Any]:
    """ISO 8601 times of day with the digits of the unit."""
    digits = UNIT_DIGITS[array.type.unit]
    numbers = array.cast(pa.int32() if pt.is_time32(array.type) else pa.int64()).to_pylist()
    return [None if number is None else time_text(number, digits) for number in numbers]


def time_text(number: int, digits: int) -> str:
    """Write a count of 10**-digits seconds since midnight."""
    seconds, fraction = divmod(number, 10**digits)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{text}.{fraction:0{digits}d}" if digits else text


def structs(array: pa.Array) -> list[Any]:
    """Objects by field name."""
    names = [field.name for field in array.type]
    columns = [to_json(array.field(i)) for i in range(len(names))]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    return with_nulls(array, [dict(zip(names, row, strict=True)) for row in rows])


def lists(array: pa.Array) -> list[Any]:
    """Lists, of fixed size too."""
    return with_nulls(array, cut(array, array.values))


def maps(array: pa.Array) -> list[Any]:
    """Lists of pairs, since keys of a JSON object can only be strings."""
    keys, items = cut(array, array.keys), cut(array, array.items)
    pairs = [[list(pair) for pair in zip(k, i, strict=True)] for k, i in zip(keys, items, strict=True)]
    return with_nulls(array, pairs)


def cut(array: pa.Array, children: pa.Array) -> list[list[Any]]:
    """Cut the children of a list-like array, which may be a slice, at its offsets."""
    if pt.is_fixed_size_list(array.type):
        step = array.type.list_size
        offsets = [(array.offset + i) * step for i in range(len(array) + 1)]
    else:
        offsets = array.offsets.to_pylist()
    first = offsets[0]
    values = to_json(children.slice(first, offsets[-1] - first))
    return [values[a - first : b - first] for a, b in itertools.pairwise(offsets)]


def is_list(kind: pa.DataType) -> bool:
    """Return whether `kind` is a list, of any layout that a scan returns."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of `kind` are bytes."""
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (pt.is_floating, floats),
    (pt.is_decimal, decimals),
    (is_binary, binaries),
    (pt.is_timestamp, timestamps),
    (pt.is_date, dates),
    (pt.is_time, times),
    (pt.is_dictionary, lambda array: to_json(array.dictionary_decode())),
    (pt.is_struct, structs),
    (pt.is_map, maps),
    (is_list, lists),
)
