from __future__ import annotations

import datetime
import decimal
import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tblctl.tableformat.errors import InvalidDataError, SchemaMismatchError, UnknownColumnError
from tblctl.tableformat.model.schema.schema import Schema, parse_schema
from tblctl.tableformat.model.schema.types import type_from_text
from tblctl.tableformat.projection import Conformer, Projection, conform


def make(text):
    return Schema.create(parse_schema(text))


def write(data, schema, *, store_schema=True, row_group_rows=3):
    """Write rows as the table does, and return the open file."""
    table = conform(data if isinstance(data, pa.Table) else rows(data, schema), schema)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, store_schema=store_schema) as writer:
        writer.write_table(table, row_group_size=row_group_rows)
    return pq.ParquetFile(buffer)


def rows(data, schema):
    return pa.Table.from_pylist(data, schema.logical)


def read(file, schema, columns=None):
    """Read a file as the schema, as the scan does."""
    projection = Projection.plan(file.schema_arrow, schema, columns)
    groups = list(range(file.metadata.num_row_groups))
    table = projection.apply(file.read_row_groups(groups, columns=projection.file_columns))
    table.validate(full=True)
    assert table.schema.equals(projection.schema)
    assert table.num_rows == file.metadata.num_rows
    if columns is None:
        assert table.schema.equals(schema.read_schema)
    return table


BASE = make(
    "a: int32, s: struct<x: int32, y: struct<z: string>>, l: list<struct<p: int32, q: string>>, "
    "m: map<string, struct<v: float32>>, d: dictionary<int8, string>, t: date"
)
ROWS = [
    {
        "a": 1,
        "s": {"x": 10, "y": {"z": "zz"}},
        "l": [{"p": 1, "q": "one"}, None, {"p": None, "q": "three"}],
        "m": [("k", {"v": 1.5}), ("n", None)],
        "d": "red",
        "t": datetime.date(1969, 12, 31),
    },
    {"a": None, "s": None, "l": None, "m": None, "d": None, "t": None},
    {"a": 3, "s": {"x": None, "y": None}, "l": [], "m": [], "d": "blue", "t": datetime.date(9999, 12, 31)},
    {
        "a": 4,
        "s": {"x": 40, "y": {"z": None}},
        "l": [{"p": 4, "q": None}],
        "m": [("o", {"v": None})],
        "d": "red",
        "t": None,
    },
]


def base_file(**how):
    return write(ROWS, BASE, **how)


class TestUnchanged:
    def test_file_reads_as_it_was_written(self):
        assert read(base_file(), BASE).to_pylist() == ROWS

    def test_file_without_arrow_schema_reads_the_same(self):
        assert read(base_file(store_schema=False), BASE).to_pylist() == ROWS

    def test_columns_that_need_nothing_are_not_copied(self):
        schema = make(
            "a: int64, s: struct<x: int32>, l: list<string>, m: map<string, int8>, f: fixed_size_list<int8, 2>"
        )
        data = [{"a": 1, "s": {"x": 2}, "l": ["q"], "m": [("k", 1)], "f": [1, 2]}]
        file = write(data, schema)
        table = file.read()
        result = Projection.plan(file.schema_arrow, schema).apply(table)
        for before, after in zip(table.columns, result.columns, strict=True):
            assert before.chunk(0).equals(after.chunk(0))
            assert [one and one.address for one in before.chunk(0).buffers()] == [
                one and one.address for one in after.chunk(0).buffers()
            ]

    def test_zero_rows_and_no_chunks(self):
        file = write([], BASE)
        assert read(file, BASE).num_rows == 0
        changed = BASE.drop_column("s.x").add_column("l.element.r", pa.int8()).add_column("n", pa.int8())
        assert read(file, changed).num_rows == 0
        none = Projection.plan(BASE.arrow, changed).apply(pa.schema(BASE.arrow).empty_table())
        assert none.schema.equals(changed.read_schema)


class TestChangedSchemas:
    @pytest.mark.parametrize("store_schema", [True, False])
    def test_renames_at_every_depth(self, store_schema):
        changed = BASE
        for old, new in [
            ("a", "b"),
            ("s.y.z", "zed"),
            ("s.y", "why"),
            ("l.element.q", "queue"),
            ("m.value.v", "vee"),
            ("m", "em"),
        ]:
            changed = changed.rename_column(old, new)
        table = read(base_file(store_schema=store_schema), changed)
        first = table.to_pylist()[0]
        assert first["b"] == 1
        assert first["s"] == {"x": 10, "why": {"zed": "zz"}}
        assert first["l"] == [{"p": 1, "queue": "one"}, None, {"p": None, "queue": "three"}]
        assert first["em"] == [("k", {"vee": 1.5}), ("n", None)]
        assert table["s"].null_count == table["l"].null_count == table["em"].null_count == 1

    def test_added_columns_are_null_at_every_depth(self):
        changed = BASE.add_column("n", pa.struct([("k", pa.int8())])).add_column("s.w", pa.list_(pa.int8()))
        changed = changed.add_column("s.y.u", pa.string()).add_column("l.element.r", pa.int64())
        changed = changed.add_column("m.value.e", pa.dictionary(pa.int32(), pa.string()))
        table = read(base_file(), changed).to_pylist()
        assert table[0]["n"] is None
        assert table[0]["s"] == {"x": 10, "y": {"z": "zz", "u": None}, "w": None}
        assert table[1]["s"] is None
        assert table[0]["l"] == [{"p": 1, "q": "one", "r": None}, None, {"p": None, "q": "three", "r": None}]
        assert table[0]["m"] == [("k", {"v": 1.5, "e": None}), ("n", None)]

    def test_dropped_columns_are_gone_and_not_read(self):
        changed = BASE.drop_column("a").drop_column("s.x").drop_column("l.element.p")
        file = base_file()
        assert Projection.plan(file.schema_arrow, changed).file_columns == ["s.y", "l", "m", "d", "t"]
        table = read(file, changed).to_pylist()
        assert table[0]["s"] == {"y": {"z": "zz"}}
        assert table[0]["l"] == [{"q": "one"}, None, {"q": "three"}]

    def test_dropped_and_added_again_under_the_same_name_is_null(self):
        changed = BASE.drop_column("a").add_column("a", pa.int32())
        changed = changed.drop_column("s.x").add_column("s.x", pa.int32())
        table = read(base_file(), changed).to_pylist()
        assert [row["a"] for row in table] == [None] * 4
        assert table[0]["s"] == {"y": {"z": "zz"}, "x": None}

    def test_a_struct_keeps_its_nulls_when_none_of_its_old_fields_is_left(self):
        schema = make("s: struct<x: int32, y: struct<z: string>>")
        changed = schema.add_column("s.n", pa.int8()).drop_column("s.y").drop_column("s.x")
        file = write([{"s": {"x": 1, "y": None}}, {"s": None}], schema)
        assert Projection.plan(file.schema_arrow, changed).file_columns == ["s.x"]
        assert read(file, changed).to_pylist() == [{"s": {"n": None}}, {"s": None}]

    def test_swapped_names_swap_values(self):
        schema = make("a: int8, b: int8, s: struct<a: int8, b: string>")
        changed = schema
        for prefix in ("", "s."):
            for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
                changed = changed.rename_column(prefix + old, new)
        file = write([{"a": 1, "b": 2, "s": {"a": 3, "b": "four"}}], schema)
        assert read(file, changed).to_pylist() == [{"b": 1, "a": 2, "s": {"b": 3, "a": "four"}}]
        assert read(file, changed, ["a"]).to_pylist() == [{"a": 2}]
        assert read(file, changed, ["s.a"]).to_pylist() == [{"s.a": "four"}]

    def test_widened_columns_at_every_depth(self):
        changed = BASE.widen_column("a", pa.int64()).widen_column("s.x", pa.int64())
        changed = changed.widen_column("l.element.p", pa.int64()).widen_column("m.value.v", pa.float64())
        changed = changed.widen_column("t", pa.timestamp("us")).widen_column("s.y.z", pa.large_string())
        changed = changed.widen_column("l", pa.large_list(changed.logical.field("l").type.value_type))
        table = read(base_file(), changed)
        expected = [dict(row) for row in ROWS]
        for row in expected:
            row["t"] = row["t"] and datetime.datetime.combine(row["t"], datetime.time())
        assert table.to_pylist() == expected

    @pytest.mark.parametrize(
        ("old", "new", "value"),
        [
            ("null", "string", None),
            ("uint8", "int64", 255),
            ("float16", "float64", 0.5),
            ("decimal64(12, 2)", "decimal256(50, 2)", decimal.Decimal("-1.25")),
            ("date64", "timestamp[ms]", datetime.date(1969, 1, 1)),
            ("time32[s]", "time64[ns]", datetime.time(1, 2, 3)),
            ("string_view", "large_string", "é"),
            ("binary", "binary_view", b"\0"),
            ("list<int8>", "large_list<int8>", [1, None]),
            ("dictionary<int8, string>", "dictionary<int8, large_string>", "x"),
        ],
    )
    @pytest.mark.parametrize("store_schema", [True, False])
    def test_every_kind_of_widening_reads_old_files(self, old, new, value, store_schema):
        schema = make(f"c: {old}")
        changed = schema.widen_column("c", type_from_text(new))
        file = write([{"c": value}, {"c": None}], schema, store_schema=store_schema)
        result = read(file, changed)["c"]
        wide = pa.array([value, None], schema.logical.field("c").type)
        expected = wide.to_pylist()
        if old == "date64":
            expected = [datetime.datetime(1969, 1, 1), None]
        assert [str(one) for one in result.to_pylist()] == [str(one) for one in expected]

    def test_value_beyond_the_wider_types_range_is_an_error_not_another_value(self):
        schema = make("t: date32")
        file = write(pa.table({"t": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}), schema)
        with pytest.raises(InvalidDataError, match="column 't'"):
            read(file, schema.widen_column("t", pa.timestamp("us")))


class TestChosenColumns:
    def test_only_the_named_columns_are_read_in_the_order_given(self):
        file = base_file()
        projection = Projection.plan(file.schema_arrow, BASE, ["t", "a"])
        assert projection.file_columns == ["t", "a"]
        assert read(file, BASE, ["t", "a"]).column_names == ["t", "a"]

    def test_nested_leaf_becomes_a_column_of_its_dotted_name(self):
        file = base_file()
        projection = Projection.plan(file.schema_arrow, BASE, ["s.y.z", "s.x"])
        assert projection.file_columns == ["s.y.z", "s.x"]
        assert read(file, BASE, ["s.y.z", "s.x"]).to_pylist() == [
            {"s.y.z": "zz", "s.x": 10},
            {"s.y.z": None, "s.x": None},
            {"s.y.z": None, "s.x": None},
            {"s.y.z": None, "s.x": 40},
        ]

    def test_nested_leaf_that_the_file_lacks_reads_nothing(self):
        changed = BASE.add_column("s.n", pa.int8())
        file = base_file()
        projection = Projection.plan(file.schema_arrow, changed, ["s.n"])
        assert projection.file_columns == []
        assert projection.apply(file.read(columns=[])).to_pylist() == [{"s.n": None}] * 4
        assert projection.apply(pa.table({}), row_count=2).num_rows == 2

    def test_a_struct_and_its_field_are_read_once(self):
        file = base_file()
        projection = Projection.plan(file.schema_arrow, BASE, ["s", "s.x", "a"])
        assert projection.file_columns == ["s", "a"]
        assert read(file, BASE, ["s", "s.x", "a"])["s.x"].to_pylist() == [10, None, None, 40]

    def test_no_columns_keep_the_row_count(self):
        file = base_file()
        projection = Projection.plan(file.schema_arrow, BASE, [])
        assert projection.file_columns == []
        assert projection.apply(file.read(columns=[])).num_rows == 4

    def test_field_of_a_struct_that_is_never_null_keeps_its_nullability(self):
        schema = make("s: struct<x: int8 not null> not null, r: struct<x: int8 not null>")
        file = write([{"s": {"x": 1}, "r": None}], schema)
        assert [field.nullable for field in read(file, schema, ["s.x", "r.x"]).schema] == [False, True]

    def test_names_with_dots_are_not_mistaken_for_fields(self):
        schema = Schema.create(pa.schema([("a", pa.struct([("c", pa.int8())])), ("a.b", pa.int8())]))
        file = write([{"a": {"c": 1}, "a.b": 2}], schema)
        assert read(file, schema).to_pylist() == [{"a": {"c": 1}, "a.b": 2}]
        assert read(file, schema, ["a"]).to_pylist() == [{"a": {"c": 1}}]
        assert read(file, schema, ["a.b"]).to_pylist() == [{"a.b": 2}]

    def test_unknown_columns_and_parts_of_lists_are_refused(self):
        with pytest.raises(UnknownColumnError, match="did you mean"):
            Projection.plan(BASE.arrow, BASE, ["s.xx"])
        with pytest.raises(UnknownColumnError, match="name 'l'"):
            Projection.plan(BASE.arrow, BASE, ["l.element.p"])


class TestDamage:
    def test_file_of_another_type_is_refused(self):
        file = write([{"a": "text"}], make("a: string"))
        with pytest.raises(ValueError, match="column 'a' is int32, but the file has string"):
            Projection.plan(file.schema_arrow, make("a: int32"))
        with pytest.raises(ValueError, match="element"):
            Projection.plan(make("a: list<string>").arrow, make("a: list<int8>"))

    def test_column_that_was_not_fetched_is_an_error_not_nulls(self):
        file = base_file()
        projection = Projection.plan(file.schema_arrow, BASE, ["a", "t"])
        with pytest.raises(ValueError, match="'t' is in the file"):
            projection.apply(file.read(columns=["a"]))

    def test_cached_steps_do_not_serve_a_table_with_other_ids(self):
        first, second = make("a: int8, b: int8"), make("b: int8, a: int8")
        file = write([{"a": 1, "b": 2}], first)
        projection = Projection.plan(file.schema_arrow, first)
        projection.apply(file.read())
        other = write([{"b": 5, "a": 6}], second).read().select(["a", "b"])
        assert projection.apply(other).to_pylist() == [{"a": 5, "b": 6}]


class TestConform:
    def test_result_has_read_types_order_and_ids(self):
        data = rows(ROWS, BASE).select(["t", "d", "m", "l", "s", "a"])
        result = conform(data, BASE)
        assert result.schema.names == list(BASE.names)
        assert result.to_pylist() == ROWS
        assert result.schema.field("a").metadata == {b"PARQUET:field_id": b"1"}
        assert result.schema.field("l").type.value_field.metadata == {b"PARQUET:field_id": b"7"}
        assert result.schema.equals(BASE.read_schema)

    def test_every_difference_is_in_one_error(self):
        with pytest.raises(SchemaMismatchError) as caught:
            conform(pa.table({"a": ["x"], "z": [1]}), make("a: int8, b: int8 not null"))
        assert caught.value.details["differences"] == (
            "a: expected int8, got string; if that loses nothing that you need, give CAST(a AS TINYINT)",
            "b: missing, expected int8 not null",
            "z: not a column of the table",
        )

    @pytest.mark.parametrize(
        ("text", "data", "path", "count"),
        [
            ("a: int8 not null", pa.array([1, None, None], pa.int8()), "a", 2),
            ("a: int8 not null", pa.nulls(3), "a", 3),
            ("a: struct<x: int8 not null>", pa.array([{"x": 1}, None, {"x": None}]), "a.x", 1),
            (
                "a: struct<x: struct<y: string not null>>",
                pa.array([{"x": None}, {"x": {"y": None}}]),
                "a.x.y",
                1,
            ),
            ("a: list<string not null>", pa.array([["q"], None, ["q", None]]), "a.element", 1),
            (
                "a: fixed_size_list<int8 not null, 2>",
                pa.array([[1, 2], None, [1, None]], pa.list_(pa.int8(), 2)),
                "a.element",
                1,
            ),
            (
                "a: map<string, int8 not null>",
                pa.array([[("k", 1)], None, [("k", None)]], pa.map_(pa.string(), pa.int8())),
                "a.value",
                1,
            ),
            (
                "a: list<struct<x: int8 not null>>",
                pa.array([[{"x": 1}, None], [{"x": None}]]),
                "a.element.x",
                1,
            ),
            (
                "a: dictionary<int8, string> not null",
                pa.DictionaryArray.from_arrays([0, 1], ["x", None]),
                "a",
                1,
            ),
        ],
    )
    def test_null_where_none_may_be_is_found_at_any_depth(self, text, data, path, count):
        table = pa.table({"a": data})
        schema = make(text)
        table = table.set_column(0, "a", _as_logical(table["a"], schema))
        with pytest.raises(
            InvalidDataError, match=f"column '{path}' may not be null, but {count} of"
        ) as caught:
            conform(table, schema)
        assert caught.value.details["null_count"] == count
        ahead = pa.concat_tables([table, table]).combine_chunks().slice(1)
        with pytest.raises(InvalidDataError, match=f"column '{path}' may not be null"):
            conform(ahead, schema)

    def test_null_under_a_null_struct_is_no_null(self):
        schema = make("a: struct<x: int8 not null>, m: map<string, struct<y: int8 not null>>")
        data = [{"a": None, "m": None}, {"a": {"x": 1}, "m": [("k", None)]}]
        nullable = pa.schema(
            [("a", pa.struct([("x", pa.int8())])), ("m", pa.map_(pa.string(), pa.struct([("y", pa.int8())])))]
        )
        file = write(pa.Table.from_pylist(data, nullable), schema)
        assert read(file, schema).to_pylist() == data

    @pytest.mark.parametrize(
        ("text", "data", "words"),
        [
            (
                "a: timestamp[ns]",
                pa.array([datetime.datetime(9999, 12, 31)], pa.timestamp("us")),
                "column 'a'",
            ),
            ("a: struct<x: timestamp[ns]>", pa.array([{"x": datetime.date(9999, 12, 31)}]), "column 'a.x'"),
            ("a: date64", pa.array([1], pa.int64()).cast(pa.date64()), "cannot be stored"),
            (
                "a: list<date64>",
                pa.array([[1]], pa.list_(pa.int64())).cast(pa.list_(pa.date64())),
                "'a.element'",
            ),
            ("a: timestamp[s]", pa.array([2**62], pa.int64()).cast(pa.timestamp("s")), "cannot be stored"),
        ],
    )
    def test_value_that_does_not_fit_is_refused_naming_the_column(self, text, data, words):
        with pytest.raises(InvalidDataError, match=words):
            conform(pa.table({"a": data}), make(text))

    def test_data_of_other_kinds_is_brought_to_the_columns_types(self):
        schema = make(
            "a: int64, b: string, c: binary, d: dictionary<int8, string>, e: decimal(15, 2), f: list<string>, "
            "g: timestamp[us, tz=UTC], h: large_list<int64>, i: string"
        )
        data = pa.table(
            {
                "a": pa.array([1, None], pa.uint8()),
                "b": pa.array(["x", None], pa.string_view()),
                "c": pa.array([b"abc", None], pa.binary(3)),
                "d": pa.array(["x", None], pa.large_string()),
                "e": pa.array([decimal.Decimal("1.5"), None], pa.decimal32(4, 1)),
                "f": pa.array([["q", None], None], pa.large_list_view(pa.string_view())),
                "g": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("s", "Europe/Paris")),
                "h": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
                "i": pa.array(["p", None])
                .dictionary_encode()
                .cast(pa.dictionary(pa.uint32(), pa.large_string())),
            }
        )
        result = conform(data, schema)
        result.validate(full=True)
        assert result.schema.equals(schema.read_schema)
        assert result.to_pylist() == data.to_pylist()

    @pytest.mark.parametrize("name", ["list_view", "large_list_view"])
    def test_list_views_keep_trailing_nulls_and_any_order(self, name):
        """pyarrow 26 drops them when it casts: [["x"], [null]] becomes [["x"], []]."""
        schema = make("a: list<string>")
        for lists in ([["x"], [None]], [[None]], [None, [None, None]], [], [[], None]):
            array = pa.array(lists, type_from_text(f"{name}<string>"))
            assert conform(pa.table({"a": array}), schema)["a"].to_pylist() == lists
        kind = pa.ListViewArray if name == "list_view" else pa.LargeListViewArray
        offsets = pa.array([2, 0, 1], pa.int32() if name == "list_view" else pa.int64())
        mixed = kind.from_arrays(offsets, pa.array([2, 1, 1], offsets.type), pa.array(["a", "b", "c", "d"]))
        assert conform(pa.table({"a": mixed}), schema)["a"].to_pylist() == [["c", "d"], ["a"], ["b"]]
        assert conform(pa.table({"a": mixed.slice(1)}), schema)["a"].to_pylist() == [["a"], ["b"]]

    def test_what_nulls_hide_is_never_looked_at(self):
        far = pa.array([2**60, 2], pa.timestamp("us"))  # the first does not fit nanoseconds
        mask = pa.array([True, False])
        offsets = pa.array([0, 1, 2], pa.int32())
        keys = pa.array(["a", "b"])
        two = datetime.datetime(1970, 1, 1, microsecond=2)
        for text, array, expected in (
            ("struct<x: timestamp[ns]>", pa.StructArray.from_arrays([far], ["x"], mask=mask), {"x": two}),
            ("list<timestamp[ns]>", pa.ListArray.from_arrays(offsets, far, mask=mask), [two]),
            ("large_list<timestamp[ns]>", pa.FixedSizeListArray.from_arrays(far, 1, mask=mask), [two]),
            (
                "fixed_size_list<timestamp[ns], 1>",
                pa.FixedSizeListArray.from_arrays(far, 1, mask=mask),
                [two],
            ),
            (
                "map<string, timestamp[ns]>",
                pa.MapArray.from_arrays(offsets, keys, far, mask=mask),
                [("b", two)],
            ),
        ):
            result = conform(pa.table({"a": array}), make(f"a: {text}"))["a"]
            result.validate(full=True)
            assert result.to_pylist() == [None, expected]

    @pytest.mark.parametrize(
        "inner",
        [
            "int8", "bool", "string", "large_binary", "float16", "decimal(5, 2)", "decimal(50, 2)", "date", "time",
            "timestamp[ns, tz=UTC]", "uuid", "list<int8>", "large_list<int8 not null>", "map<string, int8 not null>",
            "struct<f: fixed_size_list<date not null, 2>>", "struct<y: struct<z: string not null> not null>",
            "dictionary<int8, string>", "dictionary<int32, int64>",
        ],
    )  # fmt: skip
    def test_nulls_hidden_in_required_fields_can_be_written(self, inner):
        """Other libraries leave nulls in the fields of null structs; Parquet's writer refuses them if required."""
        required = type_from_text(f"struct<x: {inner} not null>")
        loose = type_from_text(f"struct<x: {inner}>")
        hidden = pa.StructArray.from_arrays(
            [pa.nulls(2, loose.field(0).type)], fields=list(loose), mask=pa.array([True] * 2)
        )
        declared = pa.StructArray.from_arrays(
            [pa.nulls(2, required.field(0).type)], fields=list(required), mask=pa.array([True] * 2)
        )
        schema = Schema.create(pa.schema([("a", required), ("n", pa.int8())]))
        for array in (hidden, declared):
            file = write(pa.table({"a": array, "n": pa.nulls(2)}), schema)
            assert read(file, schema)["a"].to_pylist() == [None, None]
        added = schema.add_column("b", required).add_column(
            "a.c", pa.list_(pa.field("element", required, nullable=False), 2)
        )
        again = write(read(file, added), added)
        assert read(again, added).to_pylist() == [{"a": None, "n": None, "b": None}] * 2

    def test_extension_types_are_unwrapped(self):
        schema = make("u: uuid, j: string, b: bool, s: struct<j: string>")
        storage = pa.array(["{}", None])
        table = pa.table(
            {
                "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
                "j": pa.ExtensionArray.from_storage(pa.json_(), storage),
                "b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([7, None], pa.int8())),
                "s": pa.StructArray.from_arrays([pa.ExtensionArray.from_storage(pa.json_(), storage)], ["j"]),
            }
        )
        result = conform(table, schema)
        assert result.schema.equals(schema.read_schema)
        assert result.to_pylist()[0] == {"u": b"0" * 16, "j": "{}", "b": True, "s": {"j": "{}"}}

    def test_data_of_pandas_polars_and_duckdb_fits(self):
        duckdb = pytest.importorskip("duckdb")
        pandas = pytest.importorskip("pandas")
        polars = pytest.importorskip("polars")
        schema = make("i: int64, s: string, c: dictionary<int32, string>, t: timestamp[us], l: list<int64>")
        expected = [
            {"i": 1, "s": "x", "c": "red", "t": datetime.datetime(2020, 1, 1), "l": [1, None]},
            {"i": 2, "s": None, "c": None, "t": None, "l": None},
        ]
        frame = polars.DataFrame(
            expected, schema_overrides={"c": polars.Categorical, "t": polars.Datetime("us")}
        )
        assert conform(pa.table(frame), schema).to_pylist() == expected
        panda = pandas.DataFrame({"i": [1, 2], "s": ["x", None], "c": pandas.Categorical(["red", None])})
        flat = make("i: int64, s: string, c: dictionary<int32, string>")
        wanted = [{name: row[name] for name in ("i", "s", "c")} for row in expected]
        assert conform(pa.Table.from_pandas(panda, preserve_index=False), flat).to_pylist() == wanted
        query = (
            "select 1::bigint i, 'x' s, 'red' c, timestamp '2020-01-01' t, [1, null]::bigint[] l, uuid() u, "
            "'{}'::json j union all select 2, null, null, null, null, null, null"
        )
        given = duckdb.sql(query).to_arrow_table()
        whole = make(
            "i: int64, s: string, c: dictionary<int32, string>, t: timestamp[us], l: list<int64>, u: uuid, j: string"
        )
        if pa.types.is_string(given.schema.field("u").type):
            given = given.drop_columns(["u"])
            whole = whole.drop_column("u")
        result = conform(given, whole)
        assert result.select(["i", "s", "c", "t", "l"]).sort_by("i").to_pylist() == expected

    def test_pieces_of_a_table_cost_only_their_own_part(self):
        schema = make("l: list<int64>, m: map<string, int64>")
        data = pa.table(
            {
                "l": pa.array([[number, None] for number in range(1000)], pa.list_(pa.int32())),
                "m": pa.array(
                    [[(str(number), number)] for number in range(1000)], pa.map_(pa.string(), pa.int32())
                ),
            }
        )
        piece = conform(data.slice(500, 3), schema)
        assert piece.to_pylist() == data.slice(500, 3).to_pylist()
        assert len(piece["l"].chunk(0).values) == 6
        assert len(piece["m"].chunk(0).items) == 3

    def test_one_conformer_serves_tables_and_batches(self):
        schema = make("a: int64")
        batch = pa.record_batch({"a": pa.array([1], pa.int8())})
        conformer = Conformer.plan(batch.schema, schema)
        assert (
            conformer.apply(batch).to_pylist() == conformer.apply(pa.table(batch)).to_pylist() == [{"a": 1}]
        )


def _as_logical(column, schema):
    """Cast test data where its kind is the same as the column's but for nullability."""
    target = schema.logical.field("a").type
    if pa.types.is_integer(target) and pa.types.is_integer(column.type):
        return column.cast(target)
    if pa.types.is_struct(target) or pa.types.is_list(target):
        return pc.cast(column, _loose(target)) if not pa.types.is_null(column.type) else column
    return column


def _loose(data_type):
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(one.name, _loose(one.type)) for one in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_loose(data_type.value_type))
    return data_type
