"""A column that would be read as null, although its file has values of it, is found, whatever counts are missing."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.iceberg.reading.null_check import NullCheck
from tblctl.tableformat.parquet.reader import BlockFile

from .lake import Lake, fields
from .merging import assert_refused, assert_same_rows, numbered, opened, rows_in
from .position_deletes import delete_rows
from .test_column_ids import add, counted, create, mapped, tag

TEXTS = pa.table({"id": [1, 2, 3], "text": ["a", "b", None]})
BARE: dict[str, Any] = {"write": {"write_statistics": False}}
NUMBER = struct.pack("<q", 7)


def dropped_twice(lake: Lake) -> Any:
    """Return a table of `id` (1) and `text` (4), which gave the ids 2 and 3 to columns of other names before."""
    table = create(lake, fields(id=LongType(), gone=StringType(), left=StringType()))
    with table.update_schema() as update:
        update.delete_column("gone")
        update.delete_column("left")
    with table.update_schema() as update:
        update.add_column("text", StringType())
    add(table, numbered(TEXTS, (1, 4)), **counted(TEXTS.select(["id"])))
    return table


@pytest.mark.parametrize(
    "said",
    [
        {"value_counts": {4: 3}},
        {"column_sizes": {4: 60}},
        {"lower_bounds": {4: b"a"}},
        {"upper_bounds": {4: b"b"}},
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_manifest_that_says_anything_of_a_column_that_its_file_lacks_contradicts_it(
    lake: Lake, said: dict[str, Any]
) -> None:
    table = dropped_twice(lake)
    path = add(table, numbered(TEXTS.rename_columns(["id", "words"]), (1, 3)), **said)
    assert_refused(table, path, "its manifest has values of column 'text' (id 4)", "nothing was changed")


def test_a_name_under_an_id_that_the_table_gave_to_another_name_is_refused(lake: Lake) -> None:
    table = dropped_twice(lake)
    path = add(table, numbered(TEXTS, (1, 3)))
    assert_refused(table, path, "'text' has id 3", "no schema of the table gives to that name", "id 4")


def test_a_name_that_iceberg_writes_in_another_way_is_found_too(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), **{"a b": StringType()}, other=StringType()))
    with table.update_schema() as update:
        update.delete_column("other")
    rows = TEXTS.rename_columns(["id", "a_x20b"])
    add(table, numbered(rows, (1, 2)))
    path = add(table, numbered(rows, (1, 3)))
    assert_refused(table, path, "'a b' has id 3")


def test_a_name_without_id_in_a_file_with_ids_is_refused(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    add(table, numbered(TEXTS, (1, 2)))
    path = add(table, TEXTS.cast(pa.schema([tag(pa.field("id", pa.int64()), 1), TEXTS.schema.field("text")])))
    assert_refused(table, path, "'text' has no id")


def test_a_name_that_the_mapping_does_not_name_is_refused(lake: Lake) -> None:
    """Of a column that was added later, and a mapping that nobody went on with."""
    table = create(lake, fields(id=LongType(), text=StringType()), [mapped(1, "id")])
    add(table, numbered(TEXTS, (1, 2)))
    path = add(table, TEXTS)
    assert_refused(table, path, "'text' has no id", "schema.name-mapping.default", "id 2")


def test_columns_that_were_dropped_renamed_and_added_again_are_null_in_older_files(lake: Lake) -> None:
    """Each file has the table's names under ids of before, and its manifest counts nothing."""
    table = create(lake, fields(id=LongType(), a=StringType(), b=StringType()))
    rows = pa.table({"id": [1, 2], "a": ["x", None], "b": ["y", "z"]})
    add(table, numbered(rows, (1, 2, 3)))
    with table.update_schema() as update:
        update.delete_column("a")
        update.rename_column("b", "c")
    with table.update_schema() as update:
        update.add_column("a", StringType())
        update.add_column("b", LongType())
    add(table, numbered(pa.table({"id": [3], "c": ["c"], "a": ["a"], "b": [7]}), (1, 3, 4, 5)))
    assert_same_rows(table)


def test_the_counts_of_older_columns_are_no_sign_of_those_that_took_their_names(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), a=StringType()))
    rows = pa.table({"id": [1, 2], "a": ["x", None]})
    add(table, numbered(rows, (1, 2)), **counted(rows))
    with table.update_schema() as update:
        update.delete_column("a")
    with table.update_schema() as update:
        update.add_column("a", StringType())
    add(table, numbered(rows, (1, 3)))
    assert_same_rows(table)


INSIDE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(5, "a", LongType()))),
    NestedField(3, "l", ListType(6, StructType(NestedField(7, "x", LongType())), element_required=False)),
    NestedField(4, "m", MapType(8, StringType(), 9, LongType(), value_required=False)),
)


def inside(*, s: int = 2, a: int = 5, l: int = 3, x: int = 7, m: int = 4, x_name: str = "x") -> pa.Table:  # noqa: E741
    """Return rows of INSIDE by some ids."""
    columns = [
        tag(pa.field("id", pa.int64()), 1),
        tag(pa.field("s", pa.struct([tag(pa.field("a", pa.int64()), a)])), s),
        tag(
            pa.field(
                "l", pa.list_(tag(pa.field("element", pa.struct([tag(pa.field(x_name, pa.int64()), x)])), 6))
            ),
            l,
        ),
        tag(pa.field("m", pa.map_(pa.string(), pa.int64())), m),
    ]
    values = [
        {"id": place, "s": {"a": place}, "l": [{x_name: place}], "m": [("k", place)]} for place in range(9)
    ]
    return pa.Table.from_pylist(values, schema=pa.schema(columns))


@pytest.mark.parametrize(
    ("ids", "said", "text"),
    [
        ({"a": 11}, {}, "'s.a' has id 11"),
        ({"x": 12}, {}, "'l.element.x' has id 12"),
        ({"l": 13}, {}, "'l' has id 13"),
        ({"m": 14}, {}, "'m' has id 14"),
        ({"x": 12, "x_name": "z"}, {"lower_bounds": {7: NUMBER}}, "column 'l.element.x' (id 7)"),
        ({"x": 12, "x_name": "z"}, {"value_counts": {7: 9}, "null_value_counts": {7: 0}}, "'l.element.x'"),
        ({"m": 14}, {"column_sizes": {9: 70}}, "column 'm' (id 4)"),
    ],
    ids=str,
)
def test_a_field_inside_others_that_a_file_has_by_another_id_is_refused(
    lake: Lake, ids: dict[str, Any], said: dict[str, Any], text: str
) -> None:
    table = create(lake, INSIDE)
    add(table, inside())
    path = add(table, inside(**ids), **said)
    assert_refused(table, path, text)


def test_nested_columns_are_null_in_files_from_before_they_were_added(lake: Lake) -> None:
    table = create(lake, fields(id=LongType()))
    add(table, numbered(pa.table({"id": [1, 2]}), (1,)))
    with table.update_schema() as update:
        update.add_column("s", StructType(NestedField(0, "a", LongType())))
        update.add_column("l", ListType(0, LongType(), element_required=False))
    rows = pa.Table.from_pylist([{"id": 3, "s": {"a": 1}, "l": [1, None]}])
    schema = table.schema().as_arrow()
    table.append(rows.cast(schema))
    expected = rows_in(pa.concat_tables([pa.table({"id": [1, 2]}), rows], promote_options="default"))
    assert_same_rows(table, expected=expected)


def test_footers_without_statistics_are_compared_with_the_manifest_by_reading(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    for _ in range(2):
        path = add(table, numbered(TEXTS, (1, 2)), **counted(TEXTS), **BARE)
    delete_rows(table, {path: [2]})
    assert_same_rows(table)


def test_a_manifest_that_counts_other_nulls_than_are_read_contradicts_a_file_without_statistics(
    lake: Lake,
) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    add(table, numbered(TEXTS, (1, 2)), **counted(TEXTS), **BARE)
    path = add(table, numbered(TEXTS, (1, 2)), **counted(TEXTS.slice(0, 2)), **BARE)
    delete_rows(table, {path: [2]})
    assert_refused(table, path, "1 nulls were read of column 'text'", "manifest counts 0")


def test_rows_are_read_once_more_in_a_process_not_by_each_task(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    paths = [add(table, numbered(TEXTS, (1, 2)), **counted(TEXTS), **BARE) for _ in range(2)]
    checked: list[str] = []
    real = NullCheck._require_stated

    def require_stated(self: NullCheck, leaves: Any) -> None:
        checked.append(self._file.address.name)
        real(self, leaves)

    monkeypatch.setattr(NullCheck, "_require_stated", require_stated)
    for _ in range(3):  # each time as another task does, from a pickle
        io, blocks = opened(table, paths)
        for block in blocks:
            with pickle.loads(pickle.dumps(io)).open(block) as file:
                assert file.rows([0]).num_rows == 3
    assert len(checked) == len(set(checked)) == 2


def test_a_file_that_differs_from_its_manifest_is_refused_each_time(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    paths = [add(table, numbered(TEXTS, (1, 2)), **counted(TEXTS.slice(0, 2)), **BARE)]
    io, (block,) = opened(table, paths)
    for _ in range(2):
        with io.open(block) as file:
            for _ in range(2):
                with pytest.raises(CorruptTableError, match="manifest counts 0"):
                    file.rows([0])


def test_a_file_of_which_nobody_counts_nulls_is_read_by_its_ids(lake: Lake) -> None:
    table = create(lake, fields(id=LongType(), text=StringType()))
    for _ in range(2):
        add(table, numbered(TEXTS, (1, 2)), **BARE)
    assert_same_rows(table)


STRUCT = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "s", StructType(NestedField(3, "a", LongType())))
)


@pytest.mark.parametrize(("stated", "fits"), [(1, False), (2, True), (7, True), (8, False)])
def test_nulls_inside_structs_are_those_of_the_field_or_with_those_of_the_struct(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, stated: int, fits: bool
) -> None:
    """Of 8 rows 5 have no struct, and 2 a struct without the value. DuckDB counts the 2, others count 7."""
    values = [None, None, None, None, None, {"a": None}, {"a": None}, {"a": 1}]
    kind = pa.struct([tag(pa.field("a", pa.int64()), 3)])
    schema = pa.schema([tag(pa.field("id", pa.int64()), 1), tag(pa.field("s", kind), 2)])
    table = create(lake, STRUCT)
    add(table, pa.table([list(range(8)), values], schema=schema))
    io, (block,) = opened(table)
    counts = {1: 0, 3: stated}
    monkeypatch.setattr(BlockFile, "stored_nulls", lambda _, groups, leaf: counts[leaf.id])
    with io.open(block) as reader:
        if fits:
            assert reader.rows([0]).num_rows == 8
            assert sum(piece.num_rows for piece in reader.batches(0, 3)) == 8
        else:
            for read in (lambda: reader.rows([0]), lambda: list(reader.batches(0, 3))):
                with pytest.raises(CorruptTableError, match=r"nulls were read of column 's\.a'"):
                    read()
