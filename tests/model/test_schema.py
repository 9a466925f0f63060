from __future__ import annotations

import copy
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tblctl.tableformat.errors import InvalidSchemaError, UnknownColumnError, UnsupportedTypeError
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Schema, parse_schema, schema_differences

from .strategies import SCHEMAS


def make(text):
    return Schema.create(parse_schema(text))


NESTED = make(
    "a: int64 not null, s: struct<x: int32, l: list<struct<z: string>>>, m: map<string, struct<q: int8>>, t: date"
)


@given(SCHEMAS)
def test_every_schema_comes_back_from_json_and_from_pickle(columns):
    schema = Schema.create(columns)
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    assert again.arrow.equals(schema.arrow, check_metadata=True)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert schema.logical == columns.remove_metadata()


def test_ids_count_depth_first_from_one():
    assert [(leaf.id, leaf.name, leaf.nullable) for leaf in NESTED.leaves] == [
        (1, "a", False),
        (3, "s.x", True),
        (4, "s.l", True),
        (7, "m", True),
        (11, "t", True),
    ]
    assert NESTED.last_column_id == 11


def test_parquet_writer_keeps_the_ids_of_nested_fields(tmp_path):
    path = tmp_path / "x.parquet"
    schema = make(
        "s: struct<x: int32, l: list<struct<z: string>>>, m: map<string, struct<q: int8>>, "
        "f: fixed_size_list<int8, 2>, ll: large_list<int8>"
    )
    pq.write_table(schema.arrow.empty_table(), path)
    read = pq.ParquetFile(path).schema_arrow

    def ids(field):
        from tblctl.tableformat.model.schema.types import child_fields

        return [field_id(field), *(one for child in child_fields(field.type) for one in ids(child))]

    assert [one for field in read for one in ids(field)] == list(range(1, schema.last_column_id + 1))


def test_field_under_a_nullable_struct_is_a_nullable_leaf():
    schema = make(
        "s: struct<x: int32 not null>, r: struct<x: int32 not null, y: struct<z: int8 not null>> not null"
    )
    assert {leaf.name: leaf.nullable for leaf in schema.leaves} == {"s.x": True, "r.x": False, "r.y.z": True}


def test_creation_lists_every_problem_at_once():
    columns = pa.schema(
        [
            ("a", pa.int8()),
            ("a", pa.duration("s")),
            ("", pa.int8()),
            ("s", pa.struct([("b", pa.int8())])),
            ("s.b", pa.int8()),
        ]
    )
    with pytest.raises(InvalidSchemaError) as caught:
        Schema.create(columns)
    text = str(caught.value)
    assert "'a' is used by 2" in text
    assert "duration" in text
    assert "no name" in text
    assert "'s.b' is used by 2" in text
    with pytest.raises(UnsupportedTypeError):
        Schema.create(pa.schema([("a", pa.duration("s"))]))
    with pytest.raises(InvalidSchemaError, match="at least one column"):
        Schema.create(pa.schema([]))


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("s: struct<f: fixed_size_list<int8, 2> not null>", "s.f"),
        ("s: struct<r: struct<f: fixed_size_list<int8, 2> not null> not null>", "s.r.f"),
        ("f: fixed_size_list<fixed_size_list<int8, 2> not null, 2>", "f.element"),
        ("f: list<struct<f: fixed_size_list<int8, 2> not null>>", "f.element.f"),
        ("s: struct<f: fixed_size_list<int8, 2> not null> not null", None),
        ("s: struct<f: fixed_size_list<int8, 2>>", None),
        ("s: list<fixed_size_list<int8, 2> not null>", None),
    ],
)
def test_fixed_size_list_that_pyarrow_could_not_read_back_is_refused(text, refused):
    if refused is None:
        make(text)
        return
    with pytest.raises(InvalidSchemaError, match=f"^{refused}: a fixed_size_list inside a nullable field"):
        make(text)


def test_metadata_and_extensions_of_the_input_are_dropped():
    field = pa.field("u", pa.list_(pa.field("odd", pa.uuid(), metadata={"k": "v"})), metadata={"a": "b"})
    schema = Schema.create(pa.schema([field], metadata={"pandas": "..."}))
    assert schema.logical.equals(
        pa.schema([("u", pa.list_(pa.field("element", pa.binary(16))))]), check_metadata=True
    )


def test_unknown_leaf_names_the_nearest_and_struct_names_its_fields():
    with pytest.raises(UnknownColumnError, match=r"did you mean 's\.x'"):
        NESTED.leaf("s.xx")
    with pytest.raises(UnknownColumnError, match=r"fields: s\.x, s\.l"):
        NESTED.leaf("s")
    assert NESTED.leaf_by_id(99) is None


def test_names_may_hold_dots_and_quotes_where_they_mean_one_field():
    schema = Schema.create(pa.schema([("a.b", pa.int8()), ('q"', pa.int8())]))
    assert schema.leaf("a.b").path == ("a.b",)
    assert schema.rename_column("a.b", "c").names == ("c", 'q"')


class TestChanges:
    def test_dropped_and_added_again_is_a_new_column(self):
        changed = NESTED.drop_column("t").add_column("t", pa.date32())
        assert changed.leaf("t").id == 12 != NESTED.leaf("t").id
        assert changed.last_column_id == 12

    def test_dropping_the_last_id_does_not_free_it(self):
        dropped = NESTED.drop_column("t")
        assert Schema.from_json(dropped.to_json()).add_column("u", pa.int8()).leaf("u").id == 12

    def test_fields_are_added_inside_structs_lists_and_map_values(self):
        changed = NESTED.add_column("s.y", pa.struct([("k", pa.int8())]))
        changed = changed.add_column("s.l.element.w", pa.int8()).add_column("m.value.r", pa.int8())
        assert changed.logical.field("s").type.field("l").type.value_type.names == ["z", "w"]
        assert changed.logical.field("m").type.item_type.names == ["q", "r"]
        assert changed.leaf("s.y.k").id == 13
        assert changed.last_column_id == 15

    def test_names_swap_in_three_renames(self):
        schema = make("a: int8, b: string")
        swapped = schema.rename_column("a", "x").rename_column("b", "a").rename_column("x", "b")
        assert [(leaf.name, leaf.id) for leaf in swapped.leaves] == [("b", 1), ("a", 2)]

    def test_widening_keeps_ids_also_of_list_elements(self):
        changed = NESTED.widen_column("s.l", pa.large_list(pa.struct([("z", pa.string())])))
        assert pa.types.is_large_list(changed.leaf("s.l").type)
        assert [leaf.id for leaf in changed.leaves] == [leaf.id for leaf in NESTED.leaves]
        assert (
            changed.widen_column("s.l.element.z", pa.large_string()).last_column_id == NESTED.last_column_id
        )

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda s: s.add_column("a", pa.int8()), "already exists"),
            (lambda s: s.add_column("s.x", pa.int8()), "already exists"),
            (lambda s: s.add_column("a.b", pa.int8()), "is not a struct"),
            (lambda s: s.add_column("m.key.b", pa.int8()), "keys of a map"),
            (lambda s: s.add_column("b", pa.duration("s")), "cannot be stored"),
            (lambda s: s.add_column("", pa.int8()), "needs a name"),
            (lambda s: s.rename_column("a", "s"), "used by 2"),
            (lambda s: s.rename_column("a", ""), "not empty"),
            (lambda s: s.rename_column("s.l.element", "x"), "part of 's.l'"),
            (lambda s: s.rename_column("a", "s.x"), "used by 2"),
            (lambda s: s.drop_column("m.key"), "keys of a map"),
            (lambda s: s.drop_column("m.value.q"), "last one of struct"),
            (lambda s: s.drop_column("m.value"), "part of 'm'"),
            (lambda s: s.drop_column("s.l.element.z"), "last one"),
            (lambda s: s.drop_column("s").drop_column("m").drop_column("t").drop_column("a"), "last one"),
            (lambda s: s.widen_column("a", pa.int32()), "cannot be widened"),
            (lambda s: s.widen_column("a", pa.int64()), "has that type already"),
            (lambda s: s.widen_column("t", pa.timestamp("ns")), "2262"),
            (lambda s: s.widen_column("m.key", pa.large_string()), "keys of a map"),
            (lambda s: s.drop_column("zz"), "no column 'zz'"),
        ],
    )
    def test_impossible_change_is_refused_and_says_why(self, change, words):
        before = copy.deepcopy(NESTED)
        with pytest.raises(InvalidSchemaError, match=words):
            change(NESTED)
        assert before == NESTED


class TestStrictJson:
    def broken(self, **changes):
        value = make(
            "a: int64, s: struct<x: int8>, d: dictionary<int8, string>, l: fixed_size_list<int8, 2>"
        ).to_json()
        for path, new in changes.items():
            *steps, last = path.split("__")
            target = value
            for step in steps:
                target = target[int(step) if step.isdigit() else step]
            target[int(last) if last.isdigit() else last] = new
        return value

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"last_column_id": 3}, "from 1 to 3"),
            ({"last_column_id": True}, "last_column_id: expected a whole number"),
            ({"last_column_id": 2**31}, "last_column_id"),
            ({"columns": {}}, "columns: expected an array"),
            ({"columns": []}, "at least one column"),
            ({"extra": 1}, "expected the keys"),
            ({"columns__0": None}, r"columns\[0\]: expected an object"),
            ({"columns__0__id": 2}, "also the id of"),
            ({"columns__0__id": 0}, "from 1 to"),
            ({"columns__0__id": "1"}, r"columns\[0\].id: expected a whole number"),
            ({"columns__0__id": 1.0}, "whole number"),
            ({"columns__0__name": 5}, "name: expected a string"),
            ({"columns__0__name": ""}, "no name"),
            ({"columns__0__name": "s"}, "used by 2"),
            ({"columns__0__name": "\ud800"}, "Unicode"),
            ({"columns__0__nullable": 1}, "true or false"),
            ({"columns__0__type": "int65"}, "is not a type"),
            ({"columns__0__type": "bigint"}, "as tblctl writes it"),
            ({"columns__0__type": "list<int8>"}, "as tblctl writes it"),
            ({"columns__0__type": "duration[s]"}, "cannot be stored"),
            ({"columns__0__type": 5}, "known kind"),
            ({"columns__0__type": {"kind": "set"}}, "known kind"),
            ({"columns__0__type": {"kind": ["list"]}}, "known kind"),
            ({"columns__0__type": {"kind": "struct", "fields": []}}, "without fields"),
            ({"columns__1__type__fields": 5}, "expected an array"),
            ({"columns__1__type__more": 5}, "expected the keys"),
            ({"columns__2__type__index": "string"}, "integer type"),
            ({"columns__2__type__value": {"kind": "list"}}, "expected a type's name"),
            ({"columns__3__type__length": 0}, "length: expected"),
            ({"columns__3__type__length": 2**40}, "length: expected"),
            ({"columns__3__type__element__name": "e"}, "expected the keys"),
        ],
    )
    def test_malformed_schema_is_refused_naming_where(self, changes, words):
        with pytest.raises(ValueError, match=words):
            Schema.from_json(self.broken(**changes))

    def test_absurd_nesting_is_refused_before_the_stack_ends(self):
        kind = "int8"
        for depth in range(400, 0, -1):
            kind = {"kind": "list", "element": {"id": depth + 1, "type": kind, "nullable": True}}
        value = {"last_column_id": 500, "columns": [{"id": 1, "name": "a", "type": kind, "nullable": True}]}
        with pytest.raises(ValueError, match="64 deep"):
            Schema.from_json(value)

    @pytest.mark.parametrize("value", [None, [], "x", 5, {}])
    def test_anything_but_a_schema_object_is_refused(self, value):
        with pytest.raises(ValueError, match="schema: expected"):
            Schema.from_json(value)


def test_a_schema_that_was_written_first_reads_for_ever():
    """The stored form is part of the format: a change here is a new format version."""
    text = (
        '{"last_column_id": 9, "columns": [{"id": 1, "name": "a", "type": "decimal128(12, 2)", "nullable": false}, '
        '{"id": 2, "name": "s", "type": {"kind": "struct", "fields": [{"id": 3, "name": "l", "type": {"kind": "list", '
        '"element": {"id": 4, "type": "timestamp[us, tz=UTC]", "nullable": true}}, "nullable": true}]}, '
        '"nullable": true}, {"id": 5, "name": "m", "type": {"kind": "map", '
        '"key": {"id": 6, "type": "string", "nullable": false}, '
        '"value": {"id": 7, "type": {"kind": "dictionary", "index": "int32", "value": "string", "ordered": false}, '
        '"nullable": true}, "keys_sorted": false}, "nullable": true}, '
        '{"id": 8, "name": "f", "type": {"kind": "fixed_size_list", "length": 3, '
        '"element": {"id": 9, "type": "float32", "nullable": true}}, "nullable": true}]}'
    )
    schema = Schema.from_json(json.loads(text))
    assert json.dumps(schema.to_json()) == text
    assert schema == make(
        "a: decimal(12,2) not null, s: struct<l: list<timestamp[us, tz=UTC]>>, "
        "m: map<string, dictionary<int32, string>>, f: fixed_size_list<float32, 3>"
    )


class TestDifferences:
    TABLE = make(
        "a: int64 not null, l_tax: decimal(15,2), s: struct<x: int32, l: list<struct<z: string>>>, "
        "d: dictionary<int8, string>, t: timestamp[us, tz=UTC]"
    )

    def test_every_difference_is_listed_at_once(self):
        data = parse_schema(
            "l_tax: string, s: struct<x: float32, l: large_list<struct<z: int8, q: int8>>>, u: int8, d: string"
        )
        cast = "; if that loses nothing that you need, give CAST"
        assert schema_differences(self.TABLE, data) == (
            "a: missing, expected int64 not null",
            f"l_tax: expected decimal128(15, 2), got string{cast}(l_tax AS DECIMAL(15, 2))",
            "s.x: expected int32, got float32",
            "s.l.element.z: expected string, got int8",
            "s.l.element.q: not a column of the table",
            "u: not a column of the table",
        )

    def test_columns_that_may_be_null_may_be_absent_at_any_depth(self):
        assert schema_differences(self.TABLE, parse_schema("a: int64")) == ()
        assert schema_differences(self.TABLE, parse_schema("a: int64, s: struct<x: int32>")) == ()

    def test_integers_and_times_of_other_widths_are_no_difference_since_each_value_is_checked(self):
        table = make("a: int8, t: timestamp[ms], d: time32[s], z: timestamp[us, tz=UTC]")
        data = parse_schema("a: uint64, t: timestamp[ns], d: time64[ns], z: timestamp[ns, tz=UTC]")
        assert schema_differences(table, data) == ()
        (problem,) = schema_differences(make("t: timestamp[us, tz=UTC]"), parse_schema("t: timestamp[us]"))
        assert problem.endswith("give CAST(t AS TIMESTAMP WITH TIME ZONE)")

    def test_a_name_that_differs_in_case_alone_is_suggested(self):
        table = make("CustomerId: int64, s: struct<Inner: int8>")
        data = parse_schema("customerid: int64, s: struct<inner: int8>")
        assert schema_differences(table, data) == (
            "s.inner: not a column of the table; s.Inner is: rename it",
            "customerid: not a column of the table; CustomerId is: rename it",
        )

    def test_types_that_hold_the_same_values_are_no_difference(self):
        data = pa.schema(
            [
                ("t", pa.timestamp("s", "Europe/Paris")),
                ("d", pa.dictionary(pa.uint32(), pa.large_string())),
                (
                    "s",
                    pa.struct([("l", pa.large_list(pa.struct([("z", pa.string_view())]))), ("x", pa.null())]),
                ),
                ("l_tax", pa.decimal64(10, 1)),
                ("a", pa.uint32()),
            ]
        )
        assert schema_differences(self.TABLE, data) == ()

    def test_a_type_that_cannot_be_stored_is_named_as_arrow_does(self):
        assert schema_differences(make("a: int8"), pa.schema([("a", pa.duration("s"))])) == (
            "a: expected int8, got duration[s]",
        )

    def test_a_name_given_twice_is_a_difference(self):
        assert "a: given 2 times" in schema_differences(
            make("a: int8"), pa.schema([("a", pa.int8()), ("a", pa.int8())])
        )
