"""Column types from tblctl to Spark and back, without a session."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tblctl.spark.types import cast_columns, returned_schema, spark_schema, spark_type
from tblctl.tableformat.errors import InvalidDataError, UnsupportedTypeError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.projection import Conformer

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 0, 1)
POINT = pa.struct([("x", pa.uint16()), ("y", pa.list_(pa.timestamp("ms")))])

CASES: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.bool_(), pa.bool_(), [True, False, None]),
    (pa.int8(), pa.int8(), [-128, 127, None]),
    (pa.uint8(), pa.int16(), [0, 255, None]),
    (pa.uint16(), pa.int32(), [0, 65535]),
    (pa.uint32(), pa.int64(), [0, 2**32 - 1]),
    (pa.uint64(), pa.decimal128(20, 0), [0, 2**64 - 1, None]),
    (pa.float32(), pa.float32(), [1.5, float("inf"), None]),
    (pa.decimal128(38, 3), pa.decimal128(38, 3), [Decimal("-1.125"), None]),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), [Decimal("1.25")]),
    (pa.string(), pa.string(), ["", "é", None]),
    (pa.large_string(), pa.string(), ["a", None]),
    (pa.string_view(), pa.string(), ["a", None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b", "a", None]),
    (pa.binary(), pa.binary(), [b"\x00", None]),
    (pa.binary(3), pa.binary(), [b"abc", None]),
    (pa.date32(), pa.date32(), [DAY, None]),
    (pa.date64(), pa.date32(), [DAY, None]),
    (pa.timestamp("s"), pa.timestamp("us"), [NOON, None]),
    (pa.timestamp("us"), pa.timestamp("us"), [NOON]),
    (
        pa.timestamp("ms", tz="Europe/Berlin"),
        pa.timestamp("us", tz="UTC"),
        [NOON.replace(tzinfo=datetime.UTC), None],
    ),
    (pa.time32("s"), pa.time64("ns"), [datetime.time(23, 59, 59), None]),
    (pa.list_(pa.uint8()), pa.list_(pa.int16()), [[1, None], [], None]),
    (pa.large_list(pa.string()), pa.list_(pa.string()), [["a"], None]),
    (pa.list_(pa.uint8(), 2), pa.list_(pa.int16()), [[1, 2], None]),
    (pa.map_(pa.string(), pa.uint8()), pa.map_(pa.string(), pa.int16()), [[("a", 1)], [], None]),
    (
        POINT,
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.timestamp("us")))]),
        [{"x": 1, "y": [NOON]}, {"x": None, "y": None}, None],
    ),
]


@pytest.mark.parametrize(("column", "shown", "values"), CASES, ids=[str(case[0]) for case in CASES])
def test_values_go_to_spark_and_come_back_unchanged(
    column: pa.DataType, shown: pa.DataType, values: list[Any]
) -> None:
    schema = Schema.create(pa.schema([("c", column)]))
    given = pa.table({"c": pa.array(values, column)}, schema=schema.logical)
    read = Conformer.plan(schema.logical, schema).apply(given)
    target = spark_schema(schema.read_schema)
    assert target.field("c").type.equals(shown)
    there = cast_columns(read, target)
    back = cast_columns(there, returned_schema(schema.logical, there.schema))
    found = Conformer.plan(back.schema, schema).apply(back)
    assert found.column("c").to_pylist() == read.column("c").to_pylist()
    assert found.schema.field("c").type == read.schema.field("c").type


def test_halves_are_read_as_floats_and_not_written() -> None:
    halves = pa.table({"c": pa.array([1.5, None], pa.float16())})
    shown = cast_columns(halves, spark_schema(halves.schema))
    assert shown.column("c").to_pylist() == [1.5, None]
    assert returned_schema(halves.schema, shown.schema) == shown.schema


@pytest.mark.parametrize(
    ("kind", "path", "reason"),
    [
        (pa.timestamp("ns"), "c", "microseconds"),
        (pa.list_(pa.timestamp("ns", tz="UTC")), "c.", "microseconds"),
        (pa.struct([("a", pa.int8()), ("b", pa.decimal256(39, 0))]), "c.b", "Spark has none"),
    ],
)
def test_a_type_that_spark_does_not_have_names_its_column(kind: pa.DataType, path: str, reason: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=rf"column {path}.* has type .*{reason}"):
        spark_type(kind, "c")


def test_all_such_columns_are_told_and_how_to_read_the_others() -> None:
    schema = pa.schema([("a", pa.timestamp("ns")), ("b", pa.int8()), ("c", pa.decimal256(76, 2))])
    with pytest.raises(
        UnsupportedTypeError, match=r"column a .*; column c .*; read the other columns: .option"
    ):
        spark_schema(schema)


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        (pa.uint8(), 256, pa.int16()),
        (pa.uint64(), Decimal(-1), pa.decimal128(20, 0)),
        (pa.binary(3), b"ab", pa.binary()),
    ],
)
def test_a_value_that_does_not_fit_on_the_way_back_is_refused(
    column: pa.DataType, value: Any, shown: pa.DataType
) -> None:
    data = pa.table({"c": pa.array([value], shown)})
    with pytest.raises(InvalidDataError, match=r"column c: a value of .* does not fit"):
        cast_columns(data, returned_schema(pa.schema([("c", column)]), data.schema))


def test_a_moment_that_is_no_whole_second_is_refused_by_append() -> None:
    schema = Schema.create(pa.schema([("c", pa.timestamp("s"))]))
    data = pa.table({"c": pa.array([NOON.replace(microsecond=1)], pa.timestamp("us"))})
    returned = cast_columns(data, returned_schema(schema.logical, data.schema))
    with pytest.raises(InvalidDataError, match=r"column 'c': a value does not fit"):
        Conformer.plan(returned.schema, schema).apply(returned)


def test_what_spark_never_showed_is_left_for_append_to_judge() -> None:
    table = pa.schema([("a", pa.uint8()), ("b", pa.list_(pa.int8())), ("c", POINT), ("d", pa.timestamp("s"))])
    data = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.int8()),
            ("c", pa.int8()),
            ("d", pa.timestamp("us", "UTC")),
            ("e", pa.int8()),
        ]
    )
    assert returned_schema(table, data) == data
