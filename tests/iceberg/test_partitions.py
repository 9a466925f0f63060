"""Partitions of files are named as PyIceberg names them, without URL encoding."""

from __future__ import annotations

import dataclasses
import math
import time
from decimal import Decimal
from urllib.parse import unquote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tblctl.tableformat.iceberg.entries import read_entries
from tblctl.tableformat.iceberg.partitions import partitions_of

from .manifest_files import records_of, repacked, source_of, written
from .test_manifests import entry

IDENTITY = IdentityTransform()
MICROS = st.integers(-(10**15), 4 * 10**15)
DECIMALS = st.integers(-(10**8), 10**8).map(lambda n: Decimal(n).scaleb(-2))
CASES = [
    (IDENTITY, BooleanType(), st.booleans()),
    (IDENTITY, IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (IDENTITY, LongType(), st.integers(-(2**63), 2**63 - 1)),
    (IDENTITY, FloatType(), st.floats(width=32, allow_nan=False)),
    (IDENTITY, DoubleType(), st.floats(allow_nan=False)),
    (IDENTITY, DateType(), st.integers(-20_000, 40_000)),
    (IDENTITY, TimeType(), st.integers(0, 86_399_999_999)),
    (IDENTITY, TimestampType(), MICROS),
    (IDENTITY, TimestamptzType(), MICROS),
    (IDENTITY, StringType(), st.text(max_size=9)),
    (IDENTITY, BinaryType(), st.binary(max_size=9)),
    (IDENTITY, FixedType(5), st.binary(min_size=5, max_size=5)),
    (IDENTITY, UUIDType(), st.uuids()),
    (IDENTITY, DecimalType(9, 2), DECIMALS),
    (BucketTransform(16), StringType(), st.integers(0, 15)),
    (BucketTransform(16), UUIDType(), st.integers(0, 15)),
    (TruncateTransform(3), StringType(), st.text(max_size=3)),
    (TruncateTransform(3), BinaryType(), st.binary(max_size=3)),
    (TruncateTransform(10), IntegerType(), st.integers(-99, 99).map(lambda n: n * 10)),
    (TruncateTransform(10), LongType(), st.integers(-99, 99).map(lambda n: n * 10)),
    (TruncateTransform(50), DecimalType(9, 2), DECIMALS),
    (YearTransform(), DateType(), st.integers(-50, 90)),
    (YearTransform(), TimestampType(), st.integers(-50, 90)),
    (MonthTransform(), DateType(), st.integers(-600, 900)),
    (MonthTransform(), TimestamptzType(), st.integers(-600, 900)),
    (DayTransform(), DateType(), st.integers(-20_000, 40_000)),
    (DayTransform(), TimestampType(), st.integers(-20_000, 40_000)),
    (HourTransform(), TimestampType(), st.integers(-400_000, 900_000)),
    (VoidTransform(), StringType(), st.none()),
]


def spec_of(*transforms, spec_id=0, names=None):
    names = names or [f"p{i}" for i in range(len(transforms))]
    return PartitionSpec(
        *(
            PartitionField(source_id=i + 1, field_id=1000 + i, transform=transform, name=name)
            for i, (transform, name) in enumerate(zip(transforms, names, strict=True))
        ),
        spec_id=spec_id,
    )


def schema_of(*kinds):
    return Schema(*(NestedField(i + 1, f"c{i}", kind, required=False) for i, kind in enumerate(kinds)))


def source(values, schema, spec, version=2):
    entries = [entry(i, partition=Record(*value)) for i, value in enumerate(values)]
    return source_of(*written(entries, schema=schema, spec=spec, version=version))


def named(sources, schema, *specs, current=0):
    """Return the partition of each file, as text."""
    decoded = read_entries(sources)
    found = partitions_of(
        decoded.entries, decoded.layouts, {spec.spec_id: spec for spec in specs}, schema, current
    )
    return [found.texts[code] for code in found.code.tolist()]


def by_pyiceberg(value, schema, spec):
    return unquote_plus(spec.partition_to_path(Record(*value), schema)) if spec.fields else ""


@pytest.mark.parametrize(("transform", "kind", "values"), CASES, ids=lambda case: str(case)[:40])
@given(data=st.data())
@settings(max_examples=cases(15))
def test_partitions_of_every_transform_are_named_as_pyiceberg_names_them(transform, kind, values, data):
    schema, spec = schema_of(kind), spec_of(transform)
    held = data.draw(st.lists(st.tuples(st.none() | values), min_size=1, max_size=9))
    assume(("null",) not in held)  # PyIceberg names it as the partition of nulls; tblctl tells them apart
    for version in (1, 2):
        assert named([source(held, schema, spec, version)], schema, spec) == [
            by_pyiceberg(value, schema, spec) for value in held
        ]


@given(data=st.data())
@settings(max_examples=cases(30))
def test_partitions_of_several_fields_are_named_in_the_order_of_the_spec(data):
    chosen = data.draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=4))
    schema = schema_of(*(kind for _, kind, _ in chosen))
    spec = spec_of(
        *(transform for transform, _, _ in chosen), names=[f"näme {i}/" for i in range(len(chosen))]
    )
    held = data.draw(
        st.lists(st.tuples(*(st.none() | values for *_, values in chosen)), min_size=1, max_size=9)
    )
    found = named([source(held, schema, spec)], schema, spec)
    assert found == [by_pyiceberg(value, schema, spec) for value in held]


def test_files_of_a_table_without_partitions_are_in_the_empty_one():
    schema, spec = schema_of(LongType()), spec_of()
    assert named([source([()] * 3, schema, spec)], schema, spec) == [""] * 3
    assert named([], schema, spec) == []


def test_equal_values_of_two_specs_are_two_partitions():
    schema = schema_of(LongType(), LongType())
    old, new = spec_of(IDENTITY), spec_of(IDENTITY, spec_id=4)
    sources = [source([(5,), (6,)], schema, old), source([(5,)], schema, new)]
    assert named(sources, schema, old, new, current=4) == ["p0=5 (spec 0)", "p0=6 (spec 0)", "p0=5"]
    assert named(sources, schema, old, new, current=0) == ["p0=5", "p0=6", "p0=5 (spec 4)"]


def test_files_from_before_a_table_was_partitioned_are_in_a_partition_of_their_own():
    schema = schema_of(LongType())
    old, new = spec_of(), spec_of(IDENTITY, spec_id=1)
    sources = [source([()], schema, old), source([(5,)], schema, new)]
    assert named(sources, schema, old, new, current=1) == ["(spec 0)", "p0=5"]


def test_a_value_that_reads_like_another_spec_is_not_the_same_partition():
    schema = schema_of(StringType())
    old, new = spec_of(IDENTITY), spec_of(IDENTITY, spec_id=1)
    sources = [source([("x",)], schema, old), source([("x (spec 0)",)], schema, new)]
    decoded = read_entries(sources)
    found = partitions_of(decoded.entries, decoded.layouts, {0: old, 1: new}, schema, 1)
    assert found.code[0] != found.code[1]
    assert found.texts[0] != found.texts[1]


def test_values_that_read_alike_are_different_partitions():
    schema, spec = schema_of(StringType(), StringType()), spec_of(IDENTITY, IDENTITY)
    held = [("null", "b"), (None, "b"), ("a/p1=b", "c"), ("a", "b/p1=c"), ("a", "b/p1=c")]
    decoded = read_entries([source(held, schema, spec)])
    found = partitions_of(decoded.entries, decoded.layouts, {0: spec}, schema, 0)
    assert len(set(found.code.tolist())) == 4
    assert found.code[3] == found.code[4]
    assert len(set(found.texts)) == 4


@pytest.mark.parametrize(
    ("transform", "kind", "value"),
    [
        (IDENTITY, StringType(), "eu"),
        (IDENTITY, BinaryType(), b"\xff\x00"),
        (IDENTITY, LongType(), 5),
        (BucketTransform(4), LongType(), 3),
        (DayTransform(), TimestampType(), 19_000),
        (IDENTITY, UUIDType(), b"x" * 16),
    ],
)
def test_partitions_by_a_dropped_column_are_still_told_apart(transform, kind, value):
    spec = spec_of(transform)
    data = source([(value,), (None,), (value,)], schema_of(kind), spec)
    without = Schema(NestedField(9, "other", LongType(), required=False))
    first, second, third = named([data], without, spec)
    assert first == third
    assert first.startswith("p0=")
    assert second == "p0=null"
    if kind == StringType():
        assert first == "p0=eu"
    if transform == DayTransform():
        assert first == "p0=2022-01-08"


def test_files_of_a_spec_that_the_table_no_longer_has_are_told_apart():
    schema, spec = schema_of(LongType()), spec_of(IDENTITY, spec_id=3)
    first, second, third = named([source([(5,), (6,), (5,)], schema, spec)], schema, current=0)
    assert first == third
    assert first != second
    assert first.startswith("(spec 3)")
    assert second.startswith("(spec 3)")


def test_equal_values_of_two_writers_are_one_partition():
    schema, spec = schema_of(DecimalType(9, 2), StringType()), spec_of(IDENTITY, IDENTITY)
    held = [(Decimal("1.25"), "x"), (Decimal("-7.00"), None)]
    ours = source(held, schema, spec)
    layout, records = records_of(ours.data)
    kind = partition_type(layout)
    for field in kind["fields"]:
        field["type"] = field["type"][::-1]  # the branches of unions in the other order
        del field["default"]
    kind["fields"][0]["type"][0] = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    kind["fields"].reverse()
    other = dataclasses.replace(ours, data=repacked(layout, records, sizes=[2]))
    decoded = read_entries([ours, other])
    assert len(decoded.layouts) == 2
    found = partitions_of(decoded.entries, decoded.layouts, {0: spec}, schema, 0)
    assert found.code.tolist() == [0, 1, 0, 1]
    assert found.texts == ("p0=1.25/p1=x", "p0=-7.00/p1=null")


def partition_type(layout):
    file = next(field["type"] for field in layout["fields"] if field["name"] == "data_file")
    return next(field["type"] for field in file["fields"] if field["name"] == "partition")


@given(
    values=st.lists(
        st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, None]), min_size=1, max_size=12
    )
)
@settings(max_examples=cases(10))
def test_nan_is_one_partition_and_zeros_are_told_apart_by_their_sign(values):
    schema, spec = schema_of(DoubleType()), spec_of(IDENTITY)
    found = named([source([(value,) for value in values], schema, spec)], schema, spec)
    assert found == [f"p0={'null' if value is None else value}" for value in values]


def test_ten_thousand_partitions_of_many_files_take_little_time():
    schema, spec = schema_of(DateType(), StringType()), spec_of(DayTransform(), IDENTITY)
    held = [(i % 2_000, f"r{i % 10_000 // 2_000}") for i in range(20_000)]
    sources = [source(held, schema, spec)]
    decoded = read_entries(sources)
    began = time.process_time()
    found = partitions_of(decoded.entries, decoded.layouts, {0: spec}, schema, 0)
    assert time.process_time() - began < 2
    assert len(found.texts) == 10_000
    expected = [by_pyiceberg(value, schema, spec) for value in held[:100]]
    assert [found.texts[code] for code in found.code[:100].tolist()] == expected
