"""Merges of files that were written with other schemas and types: rows stay as they are."""

from __future__ import annotations

import datetime
import itertools
import uuid
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tblctl.tableformat.model.schema.field_ids import with_id

from .lake import Lake, fields
from .merging import assert_same_rows, numbered, paths_of, rows_in
from .position_deletes import commit, data_file, delete_rows

NUMBERS = itertools.count()
STRUCT = StructType(NestedField(90, "a", IntegerType()), NestedField(91, "b", StringType()))
WIDE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DecimalType(7, 2)),
    NestedField(5, "t", StringType()),
    NestedField(6, "s", STRUCT),
    NestedField(7, "l", ListType(92, STRUCT, element_required=False)),
    NestedField(8, "m", MapType(93, StringType(), 94, STRUCT, value_required=False)),
)


def value_of(kind: Any, seed: int) -> Any:
    """Return a value of an Iceberg type; null at times."""
    if seed % 5 == 0 and not isinstance(
        kind, (ListType, MapType)
    ):  # PyIceberg reads null lists as empty ones
        return None
    if isinstance(kind, StructType):
        return {
            field.name: value_of(field.field_type, seed + place) for place, field in enumerate(kind.fields, 1)
        }
    if isinstance(kind, ListType):
        return [value_of(kind.element_type, seed + place) for place in range(seed % 3)]
    if isinstance(kind, MapType):
        return [(f"k{place}", value_of(kind.value_type, seed + place)) for place in range(seed % 3)]
    if isinstance(kind, (IntegerType, LongType)):
        return seed - 10
    if isinstance(kind, (FloatType, DoubleType)):
        return seed / 4
    if isinstance(kind, DecimalType):
        return Decimal(seed).scaleb(-2)
    return f"text {seed}"


def add_rows(table: Any, start: int) -> None:
    """Append 12 rows of the table's present schema."""
    schema = table.refresh().schema()
    rows = [
        {
            field.name: id_ if field.field_id == 1 else value_of(field.field_type, id_ + place)
            for place, field in enumerate(schema.fields)
        }
        for id_ in range(start, start + 24, 2)
    ]
    table.append(pa.Table.from_pylist(rows, schema=schema.as_arrow()))


CHANGES: dict[str, Callable[[Any], None]] = {
    "rename": lambda update: update.rename_column("t", "text"),
    "rename in struct": lambda update: update.rename_column("s.b", "bee"),
    "rename in list": lambda update: update.rename_column("l.b", "bee"),
    "rename in map": lambda update: update.rename_column("m.b", "bee"),
    "swap names": lambda update: update.rename_column("n", "f2").rename_column("f", "n2"),
    "add": lambda update: update.add_column("new", LongType()),
    "add struct": lambda update: update.add_column("new", STRUCT),
    "add in struct": lambda update: update.add_column(("s", "c"), LongType()),
    "add in list": lambda update: update.add_column(("l", "c"), LongType()),
    "add in map": lambda update: update.add_column(("m", "c"), STRUCT),
    "drop": lambda update: update.delete_column("t"),
    "drop struct": lambda update: update.delete_column("s"),
    "drop in struct": lambda update: update.delete_column("s.a"),
    "drop in list": lambda update: update.delete_column("l.a"),
    "drop in map": lambda update: update.delete_column("m.a"),
    "widen": lambda update: update.update_column("n", LongType()),
    "widen float": lambda update: update.update_column("f", DoubleType()),
    "widen decimal": lambda update: update.update_column("d", DecimalType(20, 2)),
    "widen in struct": lambda update: update.update_column("s.a", LongType()),
    "widen in list": lambda update: update.update_column("l.a", LongType()),
    "widen in map": lambda update: update.update_column("m.a", LongType()),
    "reorder": lambda update: update.move_first("m"),
    "reorder in struct": lambda update: update.move_after("s.a", "s.b"),
    "reorder in list": lambda update: update.move_first("l.b"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_stay_as_they_are_after_a_change_of_the_schema(lake: Lake, name: str) -> None:
    table = lake.create(f"t{next(NUMBERS)}", WIDE, properties={"format-version": "2"})
    add_rows(table, 0)
    with table.update_schema(allow_incompatible_changes=True) as update:
        CHANGES[name](update)
    add_rows(table, 1)
    assert_same_rows(table)


@pytest.mark.parametrize(
    ("name", "kind", "other"),
    [("t", StringType(), LongType()), ("n", IntegerType(), IntegerType()), ("s", STRUCT, STRUCT)],
    ids=lambda item: str(item)[:10],
)
def test_a_column_that_was_dropped_does_not_return_under_its_name(
    lake: Lake, name: str, kind: Any, other: Any
) -> None:
    table = lake.create(f"t{next(NUMBERS)}", WIDE, properties={"format-version": "2"})
    add_rows(table, 0)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)
    add_rows(table, 1)
    with table.update_schema() as update:
        update.add_column(name, other)
    assert_same_rows(table)
    rows = table.refresh().scan().to_arrow()
    assert rows[name].null_count == 24
    add_rows(table, 100)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)
        update.rename_column("d", name)
    add_rows(table, 101)
    assert_same_rows(table)


def test_many_changes_and_deletes_together(lake: Lake) -> None:
    table = lake.create(f"t{next(NUMBERS)}", WIDE, properties={"format-version": "2"})
    for place, name in enumerate(
        (
            "rename",
            "add in list",
            "drop in map",
            "widen",
            "reorder",
            "widen in struct",
            "swap names",
            "add struct",
        )
    ):
        add_rows(table, 1000 * place)
        if place % 3 == 1:
            delete_rows(table, {min(paths_of(table)): [0, 5, 11]})
        with table.update_schema(allow_incompatible_changes=True) as update:
            CHANGES[name](update)
    assert_same_rows(table, "id")


def files_of(lake: Lake, kinds: dict[str, Any], *rows: pa.Table, **options: Any) -> Any:
    """Return a table with files that were written as they are."""
    table = lake.create(f"t{next(NUMBERS)}", fields(**kinds), properties={"format-version": "2"})
    for one in rows:
        given = numbered(one, range(1, one.num_columns + 1))
        counts = {
            "value_counts": dict.fromkeys(range(1, one.num_columns + 1), one.num_rows),
            "null_value_counts": {
                place: one.column(place - 1).null_count for place in range(1, one.num_columns + 1)
            },
        }
        commit(table, [data_file(table, given, write={"row_group_size": 5} | options, **counts)])
    return table


IDS = pa.array([5, 1, 4, 2, 3, 9, 8], pa.int64())
TEXTS = ["b", None, "a", "a", "", "ü" * 40, "c"]


@pytest.mark.parametrize("key", ["id", "v, id"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_texts_of_any_arrow_type_are_read(lake: Lake, kind: pa.DataType, key: str) -> None:
    rows = pa.table({"id": IDS, "v": pa.array(TEXTS, pa.string()).cast(kind)})
    plain = pa.table({"id": IDS, "v": pa.array(TEXTS, pa.string())})
    table = files_of(lake, {"id": LongType(), "v": StringType()}, rows, plain)
    assert_same_rows(table, key, expected=rows_in(pa.concat_tables([plain, plain])))


MOMENTS = [None, -62_135_596_800_000_000, -1, 0, 1_700_000_000_123_456, 253_402_300_799_999_999, 5]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96_timestamps_are_read_at_all_years(lake: Lake, zone: str | None) -> None:
    kind = pa.timestamp("us", zone)
    # from year 1 to year 9999: nanoseconds reach from 1677 to 2262 only
    rows = pa.table({"id": IDS, "v": pa.array(MOMENTS, kind)})
    table = files_of(
        lake,
        {"id": LongType(), "v": TimestamptzType() if zone else TimestampType()},
        rows,
        rows,
        use_deprecated_int96_timestamps=True,
    )
    for path in paths_of(table):
        assert pq.read_schema(path.removeprefix("file://")).field("v").type.unit == "ns"
    assert_same_rows(table, "v, id", expected=rows_in(pa.concat_tables([rows, rows])))


STORED: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "boolean": (BooleanType(), pa.bool_(), [True, False, None]),
    "date": (DateType(), pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "time": (TimeType(), pa.time64("us"), [datetime.time(23, 59, 59, 999_999), datetime.time(0), None]),
    "timestamp ms": (TimestampType(), pa.timestamp("ms"), [1, -1, None]),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC"), [1, -1, None]),
    "binary": (BinaryType(), pa.binary(), [b"", b"\xff\x00", None]),
    "large binary": (BinaryType(), pa.large_binary(), [b"", b"\xff\x00", None]),
    "binary view": (BinaryType(), pa.binary_view(), [b"", b"\xff\x00", None]),
    "fixed": (FixedType(3), pa.binary(3), [b"abc", b"\xff\xff\xff", None]),
    "uuid": (UUIDType(), pa.uuid(), [uuid.UUID(int=2**127).bytes, uuid.UUID(int=5).bytes, None]),
    "uuid as fixed": (UUIDType(), pa.binary(16), [uuid.UUID(int=2**127).bytes, uuid.UUID(int=5).bytes, None]),
    "decimal": (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.01"), None]),
    "long decimal": (
        DecimalType(38, 10),
        pa.decimal128(38, 10),
        [Decimal(1).scaleb(-10), Decimal(-(10**27)), None],
    ),
    "float": (FloatType(), pa.float32(), [float("nan"), -0.0, None]),
    "double": (DoubleType(), pa.float64(), [float("inf"), -0.0, None]),
}


@pytest.mark.parametrize("integers", [False, True], ids=["fixed decimals", "whole decimals"])
@pytest.mark.parametrize("name", STORED)
def test_values_of_all_types_stay_as_they_are(lake: Lake, name: str, integers: bool) -> None:
    iceberg, kind, values = STORED[name]
    if integers and not pa.types.is_decimal(kind):
        pytest.skip("only decimals are stored in two ways")
    column = pa.array((values * 3)[:7], pa.binary(16) if kind == pa.uuid() else kind)
    rows = pa.table({"id": IDS, "v": column.cast(kind) if kind == pa.uuid() else column})
    options = {"store_decimal_as_integer": integers}
    table = files_of(lake, {"id": LongType(), "v": iceberg}, rows, rows, **options)
    expected = _sorted_values(rows)
    key = "id" if name == "fixed" else "v, id"
    assert_same_rows(table, key)
    (path,) = paths_of(table)
    found = pq.read_table(path.removeprefix("file://"))
    assert _sorted_values(found) == sorted(expected * 2, key=repr)
    logical = pq.read_metadata(path.removeprefix("file://")).schema.column(1).logical_type
    if isinstance(iceberg, UUIDType):
        assert logical.type == "UUID"


def _sorted_values(rows: pa.Table) -> list[Any]:
    pairs = zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)
    plain = [(id_, repr(_plain(value))) for id_, value in pairs]
    return sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat()
    return value


def test_null_lists_structs_and_maps_stay_null(lake: Lake) -> None:
    """PyIceberg 0.12 reads null lists as empty ones, so the files are compared."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "l", ListType(4, LongType(), element_required=False)),
        NestedField(3, "m", MapType(5, StringType(), 6, LongType(), value_required=False)),
    )
    table = lake.create(f"t{next(NUMBERS)}", schema, properties={"format-version": "2"})
    element = with_id(pa.field("element", pa.int64()), 4)
    key, value = (
        with_id(pa.field("key", pa.string(), nullable=False), 5),
        with_id(pa.field("value", pa.int64()), 6),
    )
    kinds = pa.schema(
        [
            with_id(pa.field("id", pa.int64()), 1),
            with_id(pa.field("l", pa.list_(element)), 2),
            with_id(pa.field("m", pa.map_(key, value)), 3),
        ]
    )
    lists = [None, [], [1], [None], [1, 2], None, []]
    maps = [[], None, [("a", 1)], [("a", None)], None, [], None]
    rows = pa.table([IDS, lists, maps], schema=kinds)
    large = rows.set_column(
        1, with_id(pa.field("l", pa.large_list(element)), 2), rows["l"].cast(pa.large_list(element))
    )
    for one in (rows, large):
        commit(table, [data_file(table, one, write={"row_group_size": 3})])
    delete_rows(table, {min(paths_of(table)): [0]})
    assert_same_rows(table, expected=rows_in(pa.concat_tables([rows, rows.slice(1)])))


def test_a_list_that_was_added_is_null_in_older_files(lake: Lake) -> None:
    table = lake.create(f"t{next(NUMBERS)}", fields(id=LongType()), properties={"format-version": "2"})
    for place in range(2):
        table.append(pa.table({"id": [place]}))
    with table.update_schema() as update:
        update.add_column("new", ListType(1, LongType(), element_required=False))
    assert_same_rows(table, expected=Counter({"{'id': 0, 'new': None}": 1, "{'id': 1, 'new': None}": 1}))


def test_int96_timestamps_inside_others_are_read(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(
            2, "s", StructType(NestedField(4, "z", TimestamptzType()), NestedField(5, "n", TimestampType()))
        ),
        NestedField(3, "l", ListType(6, TimestamptzType(), element_required=False)),
    )
    mapping = (
        '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["s"], "fields": '
        '[{"field-id": 4, "names": ["z"]}, '
        '{"field-id": 5, "names": ["n"]}]}, {"field-id": 3, "names": ["l"], "fields": [{"field-id": 6, "names": '
        '["element"]}]}]'
    )
    properties = {"format-version": "2", "schema.name-mapping.default": mapping}
    table = lake.create(f"t{next(NUMBERS)}", schema, properties=properties)
    zoned = pa.timestamp("us", "UTC")
    kinds = pa.schema(
        {
            "id": pa.int64(),
            "s": pa.struct({"z": zoned, "n": pa.timestamp("us")}),
            "l": pa.list_(zoned),
        }
    )
    rows = pa.table(
        [IDS, [{"z": one, "n": one} for one in MOMENTS], [None, [], *([one, None] for one in MOMENTS[2:])]],
        schema=kinds,
    )
    for _ in range(2):
        commit(table, [data_file(table, rows, write={"use_deprecated_int96_timestamps": True})])
    assert_same_rows(table, expected=rows_in(pa.concat_tables([rows, rows])))
