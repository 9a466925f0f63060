"""Columns of data files are found by their ids, or by the table's name mapping, or the file is refused."""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.iceberg.reading.column_ids import NameMapping

from .lake import Lake, fields
from .merging import (
    assert_refused,
    assert_same_rows,
    numbered,
    paths_of,
    recluster,
    rows_in,
    rows_seen,
    rows_stored,
)
from .position_deletes import commit, data_file
from .replacing import data_files, sorted_ids

NUMBERS = itertools.count()
MAPPING = "schema.name-mapping.default"


def create(lake: Lake, schema: Schema, mapping: Any = None, **more: Any) -> Any:
    properties = {"format-version": "2"} | ({} if mapping is None else {MAPPING: json.dumps(mapping)})
    return lake.create(f"t{next(NUMBERS)}", schema, properties=properties, **more)


def add(table: Any, rows: pa.Table, **more: Any) -> str:
    file = data_file(table, rows, **more)
    commit(table, [file])
    return str(file.file_path)


def counted(rows: pa.Table) -> dict[str, Any]:
    """Return counts of a manifest for columns that are not nested, with ids from 1."""
    plain = [
        (place, rows.column(place - 1))
        for place in range(1, rows.num_columns + 1)
        if not pa.types.is_nested(rows.schema.field(place - 1).type)
    ]
    return {
        "value_counts": {place: rows.num_rows for place, _ in plain},
        "null_value_counts": {place: column.null_count for place, column in plain},
    }


def mapped(id_: int | None, *names: str, fields: Any = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"names": list(names)}
    if id_ is not None:
        found["field-id"] = id_
    return found | ({"fields": list(fields)} if fields else {})


NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(6, "a", LongType()), NestedField(7, "b", StringType()))),
    NestedField(3, "l", ListType(8, StructType(NestedField(9, "x", IntegerType())), element_required=False)),
    NestedField(
        4,
        "m",
        MapType(10, StringType(), 11, StructType(NestedField(12, "y", DoubleType())), value_required=False),
    ),
    NestedField(5, "p", ListType(13, LongType(), element_required=False)),
)


def nested_mapping(**more: str) -> list[dict[str, Any]]:
    """Return the mapping of NESTED; `more` has another name of columns by their first one."""

    def one(id_: int, name: str, *fields: Any) -> dict[str, Any]:
        return mapped(id_, *([more[name], name] if name in more else [name]), fields=fields)

    return [
        one(1, "id"),
        one(2, "s", one(6, "a"), one(7, "b")),
        one(3, "l", one(8, "element", one(9, "x"))),
        one(4, "m", one(10, "key"), one(11, "value", one(12, "y"))),
        one(5, "p", one(13, "element")),
    ]


NESTED_MAPPING = nested_mapping()
NESTED_ARROW = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.struct({"a": pa.int64(), "b": pa.string()}),
        "l": pa.list_(pa.struct({"x": pa.int32()})),
        "m": pa.map_(pa.string(), pa.struct({"y": pa.float64()})),
        "p": pa.list_(pa.int64()),
    }
)


def nested_rows(ids: list[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": id_,
                "s": None if id_ % 5 == 0 else {"a": id_, "b": f"b{id_}" if id_ % 3 else None},
                "l": None if id_ % 7 == 0 else [{"x": id_}, None, {"x": None}][: id_ % 4],
                "m": None if id_ % 4 == 0 else [("k", {"y": id_ / 2}), ("n", None)][: id_ % 3],
                "p": [id_, None][: id_ % 3],
            }
            for id_ in ids
        ],
        schema=NESTED_ARROW,
    )


def renamed(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return rows with other names of columns, of fields in structs too."""

    def named(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([named(kind.field(place)) for place in range(kind.num_fields)])
        elif pa.types.is_list(kind):
            kind = pa.list_(named(kind.value_field))
        elif pa.types.is_map(kind):
            kind = pa.map_(kind.key_field, named(kind.item_field))
        return field.with_type(kind).with_name(names.get(field.name, field.name))

    schema = pa.schema([named(field) for field in rows.schema])
    return pa.Table.from_arrays(
        [
            pa.chunked_array([_viewed(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, schema, strict=True)
        ],
        schema=schema,
    )


def _viewed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values in a type that has other names."""
    if array.type == kind and array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(kind):
        children = [_viewed(array.field(place), kind.field(place).type) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            array.offsets, _viewed(array.values, kind.value_type), kind, mask=array.is_null()
        )
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            array.offsets, array.keys, _viewed(array.items, kind.item_type), kind, mask=array.is_null()
        )
    return array


def test_files_without_ids_are_read_by_the_name_mapping(lake: Lake) -> None:
    table = create(lake, NESTED, NESTED_MAPPING)
    every = []
    for place in range(2):
        every.append(nested_rows(list(range(place, 40, 2))))
        add(table, every[-1], **counted(every[-1]), write={"row_group_size": 6})
    assert_same_rows(table, expected=rows_in(pa.concat_tables(every)))


def test_columns_have_several_names_in_files_without_ids(lake: Lake) -> None:
    names = {"id": "number", "s": "structure", "b": "bee", "x": "ex", "y": "why"}
    mapping = nested_mapping(**names)
    table = create(lake, NESTED, mapping)
    rows = [nested_rows(list(range(place, 40, 2))) for place in range(2)]
    add(table, rows[0], **counted(rows[0]))
    add(table, renamed(rows[1], names), **counted(rows[1]))
    assert_same_rows(table, expected=rows_in(pa.concat_tables(rows)))


def test_a_file_without_ids_is_read_after_a_rename(lake: Lake) -> None:
    table = create(lake, NESTED, NESTED_MAPPING)
    rows = nested_rows(list(range(20)))
    add(table, rows, **counted(rows))
    with table.update_schema() as update:
        update.rename_column("s.b", "sb")
        update.rename_column("p", "q")
        update.rename_column("id", "number")
    add(table, rows, **counted(rows))
    expected = rows_in(renamed(rows, {"b": "sb", "p": "q", "id": "number"}))
    assert_same_rows(table, "number", expected=expected + expected)


def test_a_column_outside_of_the_mapping_is_ignored_and_one_that_it_lacks_is_null(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()), [mapped(1, "id"), mapped(2, "other")])
    rows = pa.table({"id": [1, 2], "words": ["a", "b"], "more": [True, False]})
    for _ in range(2):
        add(table, rows)
    assert_same_rows(table, expected=Counter({"{'id': 1, 'text': None}": 2, "{'id': 2, 'text': None}": 2}))


def test_a_file_without_ids_is_refused_without_a_name_mapping(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    rows = pa.table({"id": [1, 2], "text": ["a", "b"]})
    add(table, numbered(rows, (1, 2)), **counted(rows))
    path = add(table, rows)
    assert_refused(table, path, "no column ids", MAPPING)


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"names": 1}]', '"text"'])
def test_a_name_mapping_that_is_none_is_told(lake: Lake, text: str) -> None:
    with pytest.raises(InvalidOptionError, match="is no name mapping"):
        NameMapping.parse(text)
    table = create(lake, fields(id=LongType()))
    rows = pa.table({"id": [1, 2]})
    for _ in range(2):
        add(table, rows)
    with table.transaction() as transaction:
        transaction.set_properties({MAPPING: text})
    assert_refused(table, MAPPING)


def tag(field: pa.Field, id_: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(id_)})


def test_ids_that_are_missing_inside_lists_and_maps_are_of_no_account(lake: Lake) -> None:
    """Plain Spark writes ids for columns and for fields of structs only."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "l", ListType(3, LongType(), element_required=False)),
        NestedField(4, "m", MapType(5, StringType(), 6, LongType(), value_required=False)),
        NestedField(
            7, "s", StructType(NestedField(8, "a", ListType(9, StringType(), element_required=False)))
        ),
    )
    table = create(lake, schema)
    kinds = pa.schema(
        [
            tag(pa.field("id", pa.int64()), 1),
            tag(pa.field("l", pa.list_(pa.int64())), 2),
            tag(pa.field("m", pa.map_(pa.string(), pa.int64())), 3),
            tag(pa.field("s", pa.struct([tag(pa.field("a", pa.list_(pa.string())), 8)])), 4),
        ]
    )
    rows = pa.Table.from_pylist(
        [
            {"id": place, "l": [place, None], "m": [("a", place)], "s": {"a": [str(place)] * (place % 3)}}
            for place in range(30)
        ],
        schema=kinds,
    )
    for _ in range(2):
        add(table, rows, write={"row_group_size": 7})
    assert_same_rows(table, expected=rows_in(pa.concat_tables([rows, rows])))


@pytest.mark.parametrize("mapping", [None, NESTED_MAPPING])
def test_a_field_of_a_struct_without_id_in_a_file_with_ids_is_refused_or_mapped(
    lake: Lake, mapping: Any
) -> None:
    table = create(lake, NESTED, mapping)
    rows = nested_rows(list(range(20)))
    kinds = [tag(field, id_) for field, id_ in zip(NESTED_ARROW, (1, 2, 3, 4, 5), strict=True)]
    given = pa.Table.from_arrays(rows.columns, schema=pa.schema(kinds))
    for _ in range(2):
        path = add(table, given, **counted(rows))
    if mapping is None:
        assert_refused(table, path, "has no id", MAPPING)
    else:
        assert_same_rows(table, expected=rows_in(pa.concat_tables([rows, rows])))


def test_a_file_with_ids_of_another_table_is_refused_by_the_counts_of_its_manifest(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    rows = pa.table({"id": [1, 2, 3], "text": ["a", "b", None]})
    add(table, numbered(rows, (1, 2)), **counted(rows))
    with table.update_schema() as update:
        update.add_column("gone", StringType())
    with table.update_schema() as update:
        update.delete_column("gone")
    path = add(table, numbered(rows, (1, 3)), **counted(rows))
    assert_refused(table, path, "3 nulls would be read of column 'text'", "counts 1", "nothing was changed")


def test_the_counts_of_a_manifest_differ_from_those_of_a_column_that_is_there(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), a=StringType(), b=StringType()))
    rows = pa.table({"id": [1, 2, 3], "a": ["a", "b", None], "b": ["c", "d", "e"]})
    add(table, numbered(rows, (1, 2, 3)), **counted(rows))
    path = add(table, numbered(rows, (1, 3, 2)), **counted(rows))
    assert_refused(table, path, "0 nulls would be read of column 'a'", "counts 1")


def test_a_file_with_ids_that_the_table_never_had_is_refused_without_counts_too(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    rows = pa.table({"id": [1, 2, 3], "text": ["a", "b", None]})
    add(table, numbered(rows, (1, 2)))
    path = add(table, numbered(rows, (1, 7)))
    assert_refused(table, path, "'text'", "id 7", "id 2")


def test_a_nested_column_with_other_ids_is_refused(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "s", StructType(NestedField(3, "a", LongType())))
    )
    table = create(lake, schema)
    rows = pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]})

    def ids(inner: int) -> pa.Table:
        kind = pa.struct([tag(pa.field("a", pa.int64()), inner)])
        return rows.cast(pa.schema([tag(pa.field("id", pa.int64()), 1), tag(pa.field("s", kind), 2)]))

    counts = {"value_counts": {1: 2, 3: 2}, "null_value_counts": {1: 0, 3: 0}}
    add(table, ids(3), **counts)
    path = add(table, ids(5), **counts)
    assert_refused(table, path, "'s.a'")


def test_a_column_that_was_added_later_is_null_in_files_without_it(lake: Lake) -> None:
    """Without counts nothing is wrong: the file was written before the column."""
    table = create(lake, fields(id=LongType()))
    add(table, numbered(pa.table({"id": [1, 2]}), (1,)))
    with table.update_schema() as update:
        update.add_column("text", StringType())
    add(table, numbered(pa.table({"id": [3], "text": ["x"]}), (1, 2)))
    assert_same_rows(table)


PARTITION_VALUES = [
    (LongType(), 7, 7),
    (IntegerType(), -3, -3),
    (StringType(), "a/b c", "a/b c"),
    (BooleanType(), True, True),
    (DateType(), 19_000, None),
    (TimestampType(), 1_700_000_000_123_456, None),
    (TimestamptzType(), 1_700_000_000_123_456, None),
    (TimeType(), 3_600_000_000, None),
    (DecimalType(9, 2), Decimal("-12.34"), Decimal("-12.34")),
    (BinaryType(), b"\x00\xff", b"\x00\xff"),
    (DoubleType(), 1.5, 1.5),
    (StringType(), None, None),
]


@pytest.mark.parametrize("numbered_", [True, False], ids=["ids", "names"])
@pytest.mark.parametrize(("kind", "value", "shown"), PARTITION_VALUES, ids=lambda item: str(item)[:20])
def test_a_partition_column_that_files_lack_has_the_value_of_their_partition(
    lake: Lake, kind: Any, value: Any, shown: Any, numbered_: bool
) -> None:
    """Files of Hive have no columns that their folders name."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    mapping = [mapped(1, "id"), mapped(2, "part")]
    table = create(lake, fields(id=LongType(), part=kind), mapping, partition_spec=spec)
    for place in range(2):
        rows = pa.table({"id": list(range(place, 20, 2))})
        given = numbered(rows, (1,)) if numbered_ else rows
        found = data_file(table, given, like=_like(table, value))
        commit(table, [found])
    before = rows_seen(table)
    recluster(table, "part, id")
    assert sorted_ids(table) == list(range(20))
    (path,) = paths_of(table)
    stored = pq.read_table(path.removeprefix("file://"))["part"]
    assert stored.null_count == (20 if value is None else 0)
    assert rows_seen(table) == before
    if shown is not None:
        assert set(stored.to_pylist()) == {shown}
    assert data_files(table)[0].partition[0] == value


class _Like:
    def __init__(self, partition: Record, spec_id: int) -> None:
        self.partition, self.spec_id = partition, spec_id


def _like(table: Any, value: Any) -> Any:
    return _Like(Record(value), table.refresh().spec().spec_id)


def test_a_partition_column_that_files_have_is_read_from_them(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = create(lake, fields(id=LongType(), part=LongType()), partition_spec=spec)
    with_it = numbered(pa.table({"id": [1, 2], "part": [5, 5]}), (1, 2))
    commit(table, [data_file(table, with_it, like=_like(table, 5))])
    commit(table, [data_file(table, numbered(pa.table({"id": [3, 4]}), (1,)), like=_like(table, 5))])
    assert_same_rows(table, "part, id")
    (path,) = paths_of(table)
    assert set(pq.read_table(path.removeprefix("file://"))["part"].to_pylist()) == {5}


def test_a_partition_column_without_id_is_not_read_from_files(lake: Lake) -> None:
    """Readers take it from the partition, whatever the file calls so."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = create(lake, fields(id=LongType(), part=LongType()), partition_spec=spec)
    for first in range(2):
        rows = numbered(pa.table({"id": [first, first + 2]}), (1,)).append_column("part", pa.array([7, 7]))
        commit(table, [data_file(table, rows, like=_like(table, 5))])
    recluster(table)
    (path,) = paths_of(table)
    assert set(pq.read_table(path.removeprefix("file://"))["part"].to_pylist()) == {5}


def test_a_uuid_partition_column_that_files_lack(lake: Lake) -> None:
    value = uuid.UUID(int=2**100 + 5)
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = create(lake, fields(id=LongType(), part=UUIDType()), partition_spec=spec)
    for place in range(2):
        rows = numbered(pa.table({"id": list(range(place, 20, 2))}), (1,))
        commit(table, [data_file(table, rows, like=_like(table, value))])
    recluster(table)
    (path,) = paths_of(table)
    found = pq.read_table(path.removeprefix("file://"))["part"].combine_chunks()
    assert {getattr(one, "bytes", one) for one in found.to_pylist()} == {value.bytes}


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_column_with_a_dot_is_not_the_field_of_a_struct(lake: Lake, with_ids: bool) -> None:
    """A table cannot have both, but its files: the struct's field was dropped before the column was added."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a.b", StringType()),
        NestedField(3, "a", StructType(NestedField(4, "c", LongType()))),
    )
    mapping = [mapped(1, "id"), mapped(2, "a.b"), mapped(3, "a", fields=[mapped(4, "c")])]
    table = create(lake, schema, mapping)
    inner = pa.struct([tag(pa.field("b", pa.int64()), 9), tag(pa.field("c", pa.int64()), 4)])
    kinds = pa.schema(
        [
            tag(pa.field("id", pa.int64()), 1),
            tag(pa.field("a.b", pa.string()), 2),
            tag(pa.field("a", inner), 3),
        ]
    )
    plain = pa.schema(
        {"id": pa.int64(), "a.b": pa.string(), "a": pa.struct({"b": pa.int64(), "c": pa.int64()})}
    )
    expected = []
    for place in range(2):
        ids = range(place, 40, 2)
        texts = [f"t{id_ % 7}" if id_ % 3 else None for id_ in ids]
        insides = [{"b": 1000 + id_, "c": -id_} if id_ % 4 else None for id_ in ids]
        rows = pa.table([list(ids), texts, insides], schema=kinds if with_ids else plain)
        add(table, rows, write={"row_group_size": 6})
        kept = [inside and {"c": inside["c"]} for inside in insides]
        expected += [
            {"id": id_, "a.b": text, "a": inside} for id_, text, inside in zip(ids, texts, kept, strict=True)
        ]
    recluster(table)
    assert rows_stored(table) == Counter(map(repr, expected))
