"""Bounds are decoded as PyIceberg decodes them; what cannot be is unknown."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tblctl.tableformat.iceberg.bounds import TRUNCATION, decode, file_column
from tblctl.tableformat.iceberg.entries import ColumnBounds
from tblctl.tableformat.iceberg.schema import schema_of
from tblctl.tableformat.keys.order import shorten
from tblctl.tableformat.model.schema.types import statistic_type

INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 86_400_000_000 - 1)
FLOATS = st.floats(width=32)


def decimals(precision, scale):
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: Decimal((int(n < 0), tuple(int(digit) for digit in str(abs(n))), -scale))
    )


VALUES = {
    BooleanType(): st.booleans(),
    IntegerType(): INTS,
    LongType(): LONGS,
    FloatType(): FLOATS,
    DoubleType(): st.floats(),
    DateType(): INTS,
    TimeType(): TIMES,
    TimestampType(): LONGS,
    TimestamptzType(): LONGS,
    TimestampNanoType(): LONGS,
    TimestamptzNanoType(): LONGS,
    StringType(): st.text(max_size=20),
    BinaryType(): st.binary(max_size=20),
    FixedType(7): st.binary(min_size=7, max_size=7),
    UUIDType(): st.uuids(),
    DecimalType(9, 2): decimals(9, 2),
    DecimalType(18, 0): decimals(18, 0),
    DecimalType(38, 10): decimals(38, 10),
}
WIDTHS = {
    BooleanType(): (1,),
    IntegerType(): (4,),
    LongType(): (4, 8),
    FloatType(): (4,),
    DoubleType(): (4, 8),
    DateType(): (4,),
    TimeType(): (8,),
    TimestampType(): (8,),
    TimestamptzType(): (8,),
    TimestampNanoType(): (8,),
    TimestamptzNanoType(): (8,),
    DecimalType(9, 2): tuple(range(1, 17)),
}


def leaf_of(kind):
    return schema_of(Schema(NestedField(1, "c", kind, required=False))).leaf("c")


def decoded(kind, encoded, *, offset=0):
    """Return encoded values as Arrow has them, from an array that begins at an offset."""
    values = pa.array([b"filler"] * offset + list(encoded), pa.large_binary())[offset:]
    found = decode(values, statistic_type(leaf_of(kind).type))
    found.validate(full=True)
    assert found.type == statistic_type(leaf_of(kind).type)
    return found


def plain(found):
    """Return Arrow's values as PyIceberg has them."""
    if pa.types.is_temporal(found.type):
        found = found.cast(pa.int32() if found.type.bit_width == 32 else pa.int64())
    return found.to_pylist()


def same(found, expected):
    if isinstance(expected, float):
        return (
            found is None if math.isnan(expected) else struct.pack("<d", found) == struct.pack("<d", expected)
        )
    return found == expected


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
@settings(max_examples=cases(20))
def test_bounds_are_decoded_as_pyiceberg_decodes_them(kind, data):
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=20))
    encoded = [None if value is None else to_bytes(kind, value) for value in values]
    found = plain(decoded(kind, encoded, offset=data.draw(st.integers(0, 3))))
    expected = [None if value is None else from_bytes(kind, value) for value in encoded]
    assert len(found) == len(expected)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (DecimalType(9, 2), DecimalType(20, 2)),
        (DecimalType(9, 2), DecimalType(38, 2)),
    ],
    ids=str,
)
@given(data=st.data())
@settings(max_examples=cases(20))
def test_bounds_from_before_a_column_was_widened_keep_their_values(narrow, wide, data):
    values = data.draw(st.lists(VALUES[narrow], max_size=9))
    encoded = [to_bytes(narrow, value) for value in values]
    mixed = [*encoded, to_bytes(wide, from_bytes(narrow, encoded[0]))] if encoded else []
    assert all(
        same(one, from_bytes(narrow, other))
        for one, other in zip(plain(decoded(wide, mixed)), [*encoded, *encoded[:1]], strict=True)
    )


@pytest.mark.parametrize("kind", WIDTHS, ids=str)
@given(values=st.lists(st.binary(max_size=20), max_size=20))
@settings(max_examples=cases(20))
def test_bounds_of_a_wrong_length_are_unknown(kind, values):
    found = plain(decoded(kind, values))
    for value, one in zip(values, found, strict=True):
        if len(value) not in WIDTHS[kind]:
            assert one is None
        elif isinstance(kind, DecimalType):
            expected = from_bytes(kind, value)
            assert one == (expected if abs(expected) < 10**7 else None)
        elif isinstance(kind, TimeType):
            expected = from_bytes(kind, value)
            assert one == (expected if 0 <= expected < 86_400_000_000 else None)
        else:
            assert same(one, from_bytes(kind, value))


@given(
    values=st.lists(st.none() | st.binary(max_size=12) | st.text(max_size=12).map(str.encode), max_size=20)
)
@settings(max_examples=cases(30))
def test_text_that_is_no_utf8_is_unknown(values):
    found = decoded(StringType(), values).to_pylist()
    for value, one in zip(values, found, strict=True):
        try:
            assert one == (None if value is None else value.decode())
        except UnicodeDecodeError:
            assert one is None


@given(data=st.data(), precision=st.integers(1, 38))
@settings(max_examples=cases(50))
def test_decimals_of_more_digits_than_the_precision_are_unknown(data, precision):
    values = data.draw(
        st.lists(st.integers(-(2**127), 2**127 - 1) | decimals(precision, 0).map(int), max_size=9)
    )
    edge = 10**precision
    values += [edge - 1, 1 - edge, edge, -edge]
    encoded = [
        value.to_bytes(
            data.draw(st.integers(max(value, ~value).bit_length() // 8 + 1, 16)), "big", signed=True
        )
        for value in values
    ]
    expected = [value if abs(value) < edge else None for value in values]
    assert decoded(DecimalType(precision, 0), encoded).to_pylist() == expected


def test_a_truncated_bound_of_a_fixed_type_is_filled_up_and_a_longer_one_is_unknown():
    assert decoded(FixedType(3), [b"", b"a", b"abc", b"abcd", None]).to_pylist() == [
        bytes(3),
        b"a\0\0",
        b"abc",
        None,
        None,
    ]


def bounds(kind, low, high, *, nulls=None, nans=None):
    """Return statistics of a column as manifests have them, and the rows of each file: 10."""
    none = [0] * len(low)
    encode = lambda value: value if value is None or isinstance(value, bytes) else to_bytes(kind, value)  # noqa: E731
    found = ColumnBounds(
        nulls=np.array(nulls or none),
        nans=np.array(nans or none),
        lower=pa.array([encode(value) for value in low], pa.large_binary()),
        upper=pa.array([encode(value) for value in high], pa.large_binary()),
    )
    return file_column(leaf_of(kind), found, np.full(len(low), 10))


PAIRS = {
    BooleanType(): (False, True),
    IntegerType(): (1, 2),
    LongType(): (-5, 2**40),
    FloatType(): (0.5, 1.5),
    DoubleType(): (-math.inf, 1.5),
    DateType(): (5, 9),
    TimeType(): (5, 9),
    TimestampType(): (5, 9),
    TimestamptzType(): (5, 9),
    TimestampNanoType(): (5, 9),
    StringType(): ("a", "b"),
    BinaryType(): (b"a\0", b"b\0"),
    FixedType(3): (b"aaa", b"aab"),
    UUIDType(): (bytes(16), bytes(15) + b"\1"),
    DecimalType(9, 2): (Decimal("-1.00"), Decimal("2.00")),
}


@pytest.mark.parametrize("kind", PAIRS, ids=str)
def test_bounds_that_cross_are_unknown_and_others_stay(kind):
    low, high = PAIRS[kind]
    found = bounds(kind, [low, high, low, None, low], [high, low, low, high, None])
    statistics = found.statistics
    assert statistics.min.is_valid().to_pylist() == [True, False, True, False, True]
    assert statistics.max.is_valid().to_pylist() == [True, False, True, True, False]
    assert found.exact.tolist() == [True, False, True, False, False]


def test_counts_that_cannot_be_are_unknown():
    found = bounds(DoubleType(), [1.0] * 5, [2.0] * 5, nulls=[0, 10, 11, -5, -1], nans=[11, 10, 0, -2, -1])
    assert found.statistics.null_count.tolist() == [0, 10, -1, -1, -1]
    assert found.statistics.nan_count.tolist() == [-1, 0, 0, -1, -1], "of nulls alone, none is NaN"


def test_only_floats_count_nan():
    assert bounds(LongType(), [1], [2], nans=[5]).statistics.nan_count is None
    assert bounds(FloatType(), [1.0], [2.0], nans=[5]).statistics.nan_count.tolist() == [5]


def test_nan_as_a_bound_is_unknown():
    found = bounds(DoubleType(), [math.nan, 1.0], [2.0, math.nan])
    assert found.statistics.min.to_pylist() == [None, 1.0]
    assert found.statistics.max.to_pylist() == [2.0, None]
    assert found.exact.tolist() == [False, False]


@pytest.mark.parametrize("kind", [StringType(), BinaryType()], ids=str)
def test_text_as_long_as_the_truncation_is_inexact_unless_both_bounds_are_equal(kind):
    texts = ["", "x" * (TRUNCATION - 1), "x" * TRUNCATION, "x" * (TRUNCATION + 1)]
    if kind == BinaryType():
        texts = [text.encode() for text in texts]
    highest = "y" if kind == StringType() else b"y\0"
    assert bounds(kind, texts, [highest] * 4).exact.tolist() == [True, True, False, False]
    assert bounds(kind, texts, texts).exact.tolist() == [True] * 4
    assert bounds(kind, [texts[0]] * 2, [None, texts[2]]).exact.tolist() == [False, False]


def test_a_short_upper_bound_of_binary_may_have_been_truncated_before_bytes_of_255():
    value = b"\xff\xf9\x00" * 6
    upper = shorten(pa.scalar(value), up=True, length=TRUNCATION).value.as_py()  # as Iceberg's own writers do
    assert (len(upper), upper > value) == (TRUNCATION - 1, True)
    found = bounds(BinaryType(), [b"", b"", upper], [upper, b"\xff\x00", upper])
    assert found.exact.tolist() == [False, True, True], "no truncated bound ends with 0"


def test_truncation_counts_characters_of_text_not_bytes():
    assert bounds(StringType(), ["é" * 15, "é" * 16], ["ê", "ê"]).exact.tolist() == [True, False]


def test_long_fixed_values_may_be_truncated_and_short_ones_are_not():
    low, high = b"a" * 20, b"b" * 20
    assert bounds(FixedType(20), [low, low], [high, low]).exact.tolist() == [False, True]
    assert bounds(FixedType(16), [low[:16]], [high[:16]]).exact.tolist() == [True]


def test_no_files_have_no_statistics():
    found = bounds(StringType(), [], [])
    assert len(found.statistics.min) == 0
    assert len(found.exact) == 0
