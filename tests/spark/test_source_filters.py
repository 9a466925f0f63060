"""Spark's filters as conditions: by hand what is taken, and on Spark that nothing is lost or added."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

import tblctl
from tblctl.spark.filters import condition_of
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.rows import filter_table

NAN = float("nan")
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
NEW_YEAR = datetime.datetime(2024, 1, 1)

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False, None]),
    "i": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1, None]),
    "u": (pa.uint64(), [0, 1, 2**64 - 1, None]),
    "f": (pa.float32(), [0.1, -0.0, 0.0, NAN, float("inf"), float("-inf"), None]),
    "x": (pa.float64(), [0.1, -0.0, 0.0, NAN, float("inf"), float("-inf"), None]),
    "h": (pa.float16(), [0.1, NAN, None]),
    "d": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-1.51"), Decimal(0), None]),
    "s": (pa.string(), ["", "a", "aé", "A", "z", "\U0001f600", "\uffff", None]),
    "e": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "b", None]),
    "y": (pa.binary(), [b"", b"\x7f", b"\x80", None]),
    "t": (pa.date32(), [datetime.date(2024, 1, 1), datetime.date(1969, 12, 31), None]),
    "n": (pa.timestamp("us"), [NEW_YEAR, NEW_YEAR + datetime.timedelta(microseconds=1), None]),
    "z": (pa.timestamp("ms", tz="Europe/Berlin"), [NEW_YEAR.replace(tzinfo=datetime.UTC), None]),
}
NESTED = [("p", pa.struct([("q", pa.int64())])), ("l", pa.list_(pa.int8()))]
SCHEMA = Schema.create(pa.schema([*((name, kind) for name, (kind, _) in COLUMNS.items()), *NESTED]))
COMPARISONS = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.LessThan,
    spark.LessThanOrEqual,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
)


def spark_holds(given: Any, value: Any) -> bool | None:
    """Return what Spark says of a value: NaN equals itself and is greater than all else, -0.0 equals 0.0."""
    if isinstance(given, spark.Not):
        child = spark_holds(given.child, value)
        return None if child is None else not child
    if isinstance(given, spark.IsNull):
        return value is None
    if isinstance(given, spark.IsNotNull):
        return value is not None
    if isinstance(given, spark.EqualNullSafe):
        return value is not None and key(value) == key(given.value)
    if value is None:
        return None
    if isinstance(given, spark.In):
        return key(value) in [key(item) for item in given.value]
    if isinstance(given, spark.StringStartsWith):
        return bool(value.startswith(given.value))
    mine, theirs = key(value), key(given.value)
    return {
        spark.EqualTo: mine == theirs,
        spark.LessThan: mine < theirs,
        spark.LessThanOrEqual: mine <= theirs,
        spark.GreaterThan: mine > theirs,
        spark.GreaterThanOrEqual: mine >= theirs,
    }[type(given)]


def key(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)  # noqa: PLR0124 (NaN)
    return value.encode() if isinstance(value, str) else value


def filters_on(name: str, values: list[Any]) -> list[Any]:
    at = (name,)
    known = [value for value in values if value is not None]
    found = [kind(at, value) for kind, value in itertools.product(COMPARISONS, known)]
    found += [spark.In(at, known[:2]), spark.In(at, known[-1:]), spark.IsNull(at), spark.IsNotNull(at)]
    if isinstance(known[0], str):
        found += [spark.StringStartsWith(at, prefix) for prefix in ("", "a", "aé", "b")]
    return [*found, *(spark.Not(item) for item in found)]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_filter_that_is_taken_holds_for_the_rows_that_spark_keeps(name: str) -> None:
    kind, values = COLUMNS[name]
    column = pa.array(values, kind)
    seen = column.to_pylist()  # halves and floats as they are stored
    shown = [Decimal(value) if name == "u" and value is not None else value for value in seen]
    taken = 0
    for given in filters_on(name, shown):
        condition = condition_of(given, SCHEMA)
        if condition is None:
            continue
        taken += 1
        found = filter_table(pa.table({name: column}), condition, SCHEMA).to_pylist()
        assert found == [spark_holds(given, value) for value in shown], given
    assert taken == 4 if name == "h" else taken > 15


@pytest.mark.parametrize(
    "given",
    [
        spark.EqualTo(("x",), NAN),
        spark.LessThan(("x",), NAN),
        spark.In(("x",), [1.0, NAN]),
        spark.In(("i",), [1, None]),
        spark.In(("i",), []),
        spark.EqualTo(("i",), True),
        spark.EqualTo(("i",), "1"),
        spark.EqualTo(("i",), 1.0),
        spark.EqualTo(("b",), 1),
        spark.EqualTo(("x",), 1),
        spark.EqualTo(("h",), 0.1),
        spark.EqualTo(("d",), 1.5),
        spark.EqualTo(("s",), b"a"),
        spark.EqualTo(("y",), "a"),
        spark.EqualTo(("t",), NEW_YEAR),
        spark.EqualTo(("n",), NEW_YEAR.replace(tzinfo=BERLIN)),
        spark.EqualTo(("z",), NEW_YEAR),
        spark.EqualTo(("l",), [1]),
        spark.EqualTo(("p",), {"q": 1}),
        spark.EqualTo(("other",), 1),
        spark.EqualTo(("p.q",), 1),
        spark.IsNull(("p",)),
        spark.StringStartsWith(("y",), "a"),
        spark.StringEndsWith(("s",), "a"),
        spark.StringContains(("s",), "a"),
        spark.Not(spark.StringContains(("s",), "a")),
    ],
)
def test_what_is_not_surely_the_same_stays_with_spark(given: Any) -> None:
    assert condition_of(given, SCHEMA) is None


def test_fields_and_moments_with_another_offset_are_taken() -> None:
    assert condition_of(spark.EqualTo(("p", "q"), 1), SCHEMA) is not None
    moment = NEW_YEAR.replace(tzinfo=datetime.UTC)
    column = pa.table({"z": pa.array([moment], pa.timestamp("ms", tz="Europe/Berlin"))})
    condition = condition_of(spark.EqualTo(("z",), moment.astimezone(BERLIN)), SCHEMA)
    assert condition is not None
    assert filter_table(column, condition, SCHEMA).to_pylist() == [True]


CONDITIONS = [
    "i > 0",
    "i <> 1 and i is not null",
    "i in (1, 0, 77)",
    "not (i <=> 1)",
    "u > 1",
    "f = cast(0.1 as float)",
    "f >= 0",
    "x > 1e300",
    "x = 0",
    "x <> 0.1",
    "x = double('NaN')",
    "x < double('NaN')",
    "x in (0.1, double('inf'))",
    "h >= 0.1",
    "d = 1.5",
    "d < -1.509",
    "s < 'a'",
    "s > 'z'",
    "s like 'a%'",
    "s like '%a'",
    "s in ('A', '')",
    "e = 'a'",
    "y >= X'80'",
    "t <= date'1969-12-31'",
    "n > timestamp_ntz'2024-01-01 00:00:00'",
    "n <= timestamp_ntz'2024-01-01 00:00:00'",
    "z = timestamp'2024-01-01 01:00:00+01:00'",
    "z is null and b is null",
    "b",
    "not b",
    "p.q > 0",
    "p.q is null",
    "l is null",
    "i > 0 or x > 0",
]


@pytest.mark.parametrize("spark", ["local-cluster[2,1,1024]"], indirect=True)
def test_spark_finds_the_same_rows_with_and_without_the_tables_help(spark: Any, tmp_path: Path) -> None:
    count = 3 * max(len(values) for _, values in COLUMNS.values())
    data = {
        name: pa.array([values[row % len(values)] for row in range(count)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    data["p"] = pa.array([None if row % 5 == 0 else {"q": row % 3} for row in range(count)], NESTED[0][1])
    data["l"] = pa.array([None if row % 2 else [row] for row in range(count)], NESTED[1][1])
    data["id"] = pa.array(range(count), pa.int64())
    schema = pa.schema([*SCHEMA.logical, ("id", pa.int64())])
    table = tblctl.create(
        str(tmp_path), schema, cluster_by=["i"], options={"block_rows": 5, "row_group_rows": 2}
    )
    table.append(pa.table(data, schema=schema))
    tblctl.spark.register(spark.session)
    frame = spark.session.read.format("tblctl").load(str(tmp_path))
    apart = frame.localCheckpoint()  # Spark's own rows: nothing is pushed down
    held = [f"coalesce({text}, false) as c{number}" for number, text in enumerate(CONDITIONS)]
    expected = apart.selectExpr("id", *held).collect()
    for number, text in enumerate(CONDITIONS):
        found = sorted(row.id for row in frame.where(text).select("id").collect())
        assert found == sorted(row.id for row in expected if row[f"c{number}"]), text
