"""Columns are added, dropped, renamed and widened without rewriting rows."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from arrow_rows import canonical_values, memory_table
from faults import storage_calls
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from profiles import cases

import tblctl
from tblctl.errors import InvalidKeyError, InvalidSchemaError, UnknownColumnError
from tblctl.tableformat.model.cluster_key import parse_terms
from tblctl.tableformat.model.schema.schema import Schema, parse_schema
from tblctl.tableformat.model.schema.types import can_widen, read_type
from tblctl.tableformat.model.term_values import transform_array, widening_problem

NARROW = {
    "int8": "int16",
    "int16": "int32",
    "int32": "int64",
    "float": "double",
    "decimal(5, 2)": "decimal(12, 2)",
}
NAMES = ["a", "b", "c", "d"]


class Columns(RuleBasedStateMachine):
    """Changes of columns between appends, deletes and rollbacks; the model keeps rows by column id."""

    @initialize(block_rows=st.integers(1, 4), key=st.booleans())
    def create(self, block_rows, key):
        self.context = memory_table(
            "n: int64, a: int8", cluster_by="n" if key else (), options={"block_rows": block_rows}
        )
        self.table = self.context.__enter__()
        self.columns = {"n": (1, "int64"), "a": (2, "int8")}  # name: (id, type)
        self.last_id = 2
        self.rows = []  # value by column id
        self.history = {1: (dict(self.columns), [])}
        self.next = 0

    def note(self, outcome):
        self.history[outcome.snapshot] = (dict(self.columns), list(self.rows))

    @rule(data=st.data(), count=st.integers(1, 5))
    def append(self, data, count):
        rows = []
        for _ in range(count):
            row = {1: self.next}
            self.next += 1
            for column_id, kind in list(self.columns.values())[1:]:
                number = data.draw(st.none() | st.integers(0, 100))
                row[column_id] = Decimal(number) if number is not None and "decimal" in kind else number
            rows.append(row)
        names = {name: column_id for name, (column_id, _) in self.columns.items()}
        plain = [{name: row[column_id] for name, column_id in names.items()} for row in rows]
        self.rows += rows
        self.note(self.table.append(pa.Table.from_pylist(plain, self.table.schema)))

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(sorted(NARROW)))
    def add(self, name, kind):
        if name in self.columns:
            with pytest.raises(InvalidSchemaError, match="exists"):
                self.table.add_column(name, kind)
            return
        outcome = self.table.add_column(name, kind)
        self.last_id += 1
        self.columns[name] = (self.last_id, kind)
        self.note(outcome)

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name):
        if name not in self.columns:
            with pytest.raises(UnknownColumnError):
                self.table.drop_column(name)
            return
        outcome = self.table.drop_column(name)
        del self.columns[name]
        self.note(outcome)

    @rule(name=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, name, new):
        if name not in self.columns or new in self.columns:
            return
        outcome = self.table.rename_column(name, new)
        self.columns = {new if old == name else old: item for old, item in self.columns.items()}
        self.note(outcome)

    @rule(name=st.sampled_from(NAMES))
    def widen(self, name):
        column_id, kind = self.columns.get(name, (0, ""))
        if kind in NARROW:
            outcome = self.table.widen_column(name, NARROW[kind])
            self.columns[name] = (column_id, NARROW[kind])
            self.note(outcome)

    @rule(number=st.integers(0, 100))
    def delete(self, number):
        name = list(self.columns)[-1]
        column_id = self.columns[name][0]
        kept = [row for row in self.rows if row.get(column_id) is None or row[column_id] < number]
        outcome = self.table.delete(f"{name} >= {number}")
        assert outcome.rows_removed == len(self.rows) - len(kept)
        self.rows = kept
        if outcome.snapshot:
            self.note(outcome)

    @rule(data=st.data())
    def roll_back(self, data):
        sequence = data.draw(st.sampled_from(sorted(self.history)))
        columns, rows = self.history[sequence]
        self.columns, self.rows = dict(columns), list(rows)
        self.note(self.table.rollback(sequence))

    @invariant()
    def rows_follow_their_columns(self):
        self.holds(self.table, self.columns, self.rows)

    @rule(number=st.integers(0, 100))
    def prune(self, number):
        for name, (column_id, _) in self.columns.items():
            found = self.table.scan(f"{name} > {number}", columns=["n"]).to_arrow()["n"].to_pylist()
            assert sorted(found) == sorted(
                row[1] for row in self.rows if row.get(column_id) is not None and row[column_id] > number
            )
            nulls = self.table.scan(f"{name} is null", columns=["n"]).to_arrow()["n"].to_pylist()
            assert sorted(nulls) == sorted(row[1] for row in self.rows if row.get(column_id) is None)

    @staticmethod
    def holds(table, columns, rows):
        expected = [{name: row.get(column_id) for name, (column_id, _) in columns.items()} for row in rows]
        expected.sort(key=lambda row: row["n"])
        found = table.scan().to_arrow()
        assert found.schema.names == list(columns)
        assert sorted(found.to_pylist(), key=lambda row: row["n"]) == expected
        dataset = table.to_dataset().to_table()
        assert dataset.schema == found.schema
        assert sorted(dataset.to_pylist(), key=lambda row: row["n"]) == expected

    def teardown(self):
        if not hasattr(self, "table"):
            return
        report = self.table.check(deep=True)
        assert report.ok, report.problems
        for sequence, (columns, rows) in self.history.items():
            self.holds(tblctl.open(self.table.location, as_of=sequence), columns, rows)
        self.context.__exit__(None, None, None)


TestRowsFollowTheirColumns = Columns.TestCase
TestRowsFollowTheirColumns.settings = settings(
    max_examples=cases(10), stateful_step_count=14, suppress_health_check=list(HealthCheck)
)

DAYS = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2020, 2, 29), None]
WIDENINGS = [
    (pa.int8(), pa.int64(), [-128, 0, 127, None], "c < 0"),
    (pa.uint8(), pa.int16(), [0, 1, 255, None], "c > 200"),
    (pa.uint32(), pa.uint64(), [0, 1, 2**32 - 1, None], "c >= 4294967295"),
    (pa.float16(), pa.float64(), [-1.5, 0.0, math.inf, None], "c > 1"),
    (pa.float32(), pa.float64(), [-1.5, 0.25, math.nan, None], "c < 0"),
    (
        pa.decimal128(5, 2),
        pa.decimal128(20, 2),
        [Decimal("-1.50"), Decimal("0.01"), Decimal("9.99"), None],
        "c < 0",
    ),
    (
        pa.decimal32(5, 2),
        pa.decimal256(60, 2),
        [Decimal("-1.50"), Decimal("0.01"), Decimal("9.99"), None],
        "c > 5.5",
    ),
    (pa.date32(), pa.timestamp("us"), DAYS, "c < TIMESTAMP '1970-01-01 00:00:00'"),
    (pa.date32(), pa.date64(), DAYS, "c > '2000-01-01'"),
    (pa.date64(), pa.timestamp("ms"), DAYS, "c >= TIMESTAMP '1970-01-01 00:00:00'"),
    (
        pa.timestamp("s", "UTC"),
        pa.timestamp("us", "UTC"),
        [-1, 0, 10**9, None],
        "c < TIMESTAMP '1970-01-01 00:00:00Z'",
    ),
    (
        pa.time32("s"),
        pa.time64("us"),
        [datetime.time(0), datetime.time(23, 59, 59), None, None],
        "c > '12:00:00'",
    ),
    (pa.string(), pa.large_string(), ["", "a", "é", None], "c >= 'a'"),
    (pa.string(), pa.string_view(), ["", "a", "é", None], "c < 'b'"),
    (pa.binary(), pa.binary_view(), [b"", b"a", b"\xff", None], "c is not null"),
    (pa.null(), pa.int64(), [None, None, None, None], "c is null"),
    (
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.string()),
        ["a", "b", "a", None],
        "c = 'a'",
    ),
]


@pytest.mark.parametrize(("old", "new", "values", "where"), WIDENINGS, ids=str)
def test_a_widened_column_keeps_its_values_and_its_pruning(old, new, values, where):
    assert can_widen(old, new)
    with memory_table(pa.schema([("n", pa.int64()), ("c", old)]), options={"block_rows": 1}) as table:
        if pa.types.is_timestamp(old):
            column = pa.array(values, pa.int64()).cast(old)
        elif pa.types.is_float16(old):
            column = pa.array(values, pa.float32()).cast(old)
        else:
            column = pa.array(values, old)
        data = pa.table({"n": range(4), "c": column})
        table.append(data)
        before = table.scan(where).to_arrow()["n"].to_pylist()
        pruned = table.scan(where).explain()
        calls = storage_calls(lambda: table.widen_column("c", new))
        assert not [call for call in calls if call.name.startswith(("data/", "metadata/segments/"))]
        expected = canonical_values(
            column.cast(table.scan().schema.field("c").type) if not pa.types.is_dictionary(old) else column
        )
        found = table.scan().to_arrow().sort_by("n")["c"]
        assert [value for chunk in found.chunks for value in canonical_values(chunk)] == expected
        assert table.scan(where).to_arrow()["n"].to_pylist() == before
        assert table.scan(where).explain().blocks_read == pruned.blocks_read
        table.append(table.scan().to_arrow())  # blocks of both types, then segments folded over both
        for _ in range(4):
            table.append(table.scan("n = 0", limit=1).to_arrow())
        assert sorted(table.scan(where).to_arrow()["n"].to_pylist()) == sorted(
            before * 2 + [0] * 4 * (0 in before)
        )
        assert len(table._native.head().segments) < 6
        assert table.check(deep=True).ok
        assert table.to_dataset().to_table().num_rows == 12
        table.rollback(2)
        assert table.schema.field("c").type == old
        assert table.scan(where).to_arrow()["n"].to_pylist() == before


def test_a_widened_column_prunes_whole_segments():
    with memory_table("n: int32", options={"block_rows": 5}) as table:
        table.append(pa.table({"n": pa.array(range(5), pa.int32())}))
        table.widen_column("n", "int64")
        table.append(pa.table({"n": [2**40]}))
        assert table.scan("n > 1000").explain().segments_pruned == 1
        assert table.scan("n > 1000").to_arrow()["n"].to_pylist() == [2**40]
        assert table.scan("n < 1000").to_arrow()["n"].to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("old", "new"), [("int64", "int32"), ("double", "float"), ("string", "int64"), ("int64", "double")]
)
def test_what_would_lose_values_is_no_widening(old, new):
    with memory_table(f"n: {old}") as table, pytest.raises(InvalidSchemaError):
        table.widen_column("n", new)


def test_dates_beyond_what_a_timestamp_counts_cannot_be_widened():
    with memory_table("d: date") as table:
        table.append(pa.table({"d": pa.array([200_000_000], pa.int32()).cast(pa.date32())}))
        with pytest.raises(InvalidSchemaError, match="values that do not fit"):
            table.widen_column("d", "timestamp")
        assert table.snapshot.sequence == 2
        table.widen_column("d", "timestamp[ms]")
        assert canonical_values(table.scan().to_arrow()["d"].chunk(0)) == [200_000_000 * 86_400_000]
        assert table.check(deep=True).ok
        table.set_cluster_key("d")
        assert table.files()[0].min == (200_000_000 * 86_400_000,)  # Python's calendar ends before


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("date", "timestamp", datetime.date(2020, 1, 2)),
        ("int32", "int64", 1),
        ("float", "double", 0.5),
        ("decimal(5, 2)", "decimal(50, 2)", Decimal("1.25")),
    ],
)
def test_segments_with_keys_of_a_column_that_was_widened_and_dropped_are_folded(old, new, value):
    with memory_table(f"k: {old}, n: int64", cluster_by="k") as table:
        for kind in (old, new):
            if kind == new:
                table.widen_column("k", new)
            key = pa.array([value]).cast(table.schema.field("k").type)
            table.append(pa.table({"k": key, "n": [0]}, schema=table.schema))
        table.set_cluster_key("n")
        table.drop_column("k")
        for number in range(1, 8):
            table.append(pa.table({"n": [number]}))
        assert len(table._native.head().segments) < 9
        assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [0, *range(8)]
        assert table.check(deep=True).problems == ()


def test_a_name_used_again_is_another_column():
    with memory_table("a: int64, b: int64") as table:
        table.append(pa.table({"a": [1], "b": [2]}))
        table.drop_column("b")
        table.add_column("b", "string")
        assert table.scan().to_arrow().to_pylist() == [{"a": 1, "b": None}]
        assert table.to_dataset().to_table().to_pylist() == [{"a": 1, "b": None}]
        assert table.scan("b is null").to_arrow().num_rows == 1
        table.rename_column("a", "c")
        table.rename_column("b", "a")
        assert table.to_dataset().to_table().to_pylist() == [{"c": 1, "a": None}]
        dataset = table.to_dataset()
        assert duckdb.from_arrow(dataset).filter("c = 1").fetchall() == [(1, None)]


def test_fields_of_structs_change_like_columns():
    with memory_table("n: int64, s: struct<a: int32, t: struct<b: string>>") as table:
        table.append(pa.table({"n": [1], "s": [{"a": 5, "t": {"b": "x"}}]}, schema=table.schema))
        table.add_column("s.t.c", "int64")
        table.rename_column("s.a", "z")
        table.widen_column("s.z", "int64")
        table.append(
            pa.table({"n": [2, 3], "s": [{"z": 2**40, "t": {"b": None, "c": 9}}, None]}, schema=table.schema)
        )
        expected = [{"z": 5, "t": {"b": "x", "c": None}}, {"z": 2**40, "t": {"b": None, "c": 9}}, None]
        assert table.scan().to_arrow().sort_by("n")["s"].to_pylist() == expected
        assert table.to_dataset().to_table().sort_by("n")["s"].to_pylist() == expected
        assert table.scan("s.z > 1000", columns=["s.t.c"]).to_arrow().to_pylist() == [{"s.t.c": 9}]
        assert sorted(table.scan("s.t.c is null", columns=["n"]).to_arrow()["n"].to_pylist()) == [1, 3]
        table.drop_column("s.t.b")
        assert table.scan(columns=["s.t"]).to_arrow().num_rows == 3
        assert table.check(deep=True).ok
        assert tblctl.open(table.location, as_of=2).scan().to_arrow()["s"].to_pylist() == [
            {"a": 5, "t": {"b": "x"}}
        ]


def test_key_columns_are_protected_with_a_way_out():
    with memory_table(
        "a: int32, s: struct<b: date, e: int64>, c: int64", cluster_by=["a", "year(s.b)"]
    ) as table:
        for change in (
            lambda: table.drop_column("a"),
            lambda: table.drop_column("s.b"),
            lambda: table.drop_column("s"),
        ):
            with pytest.raises(InvalidKeyError, match="--drop-cluster-by"):
                change()
        assert table.snapshot.sequence == 1
        table.rename_column("a", "x")
        assert table.cluster_by == ("x", "year(s.b)")
        table.drop_cluster_key()
        table.drop_column("x")
        assert table.schema.names == ["s", "c"]


def test_altering_the_key_back_and_forth_keeps_the_ids():
    with memory_table("a: int64, b: int64", cluster_by="a") as table:
        ids = []
        for key in ("b", "a", "a desc", "b", "a"):
            table.set_cluster_key(key)
            ids.append(table._native.head().cluster_key_id)
        assert ids == [2, 1, 3, 2, 1]
        table.append(pa.table({"a": [1], "b": [2]}))
        assert [block.cluster_key_id for block in table.files()] == [1]
        table.set_cluster_key("b")
        assert [(block.cluster_key_id, block.min, block.max) for block in table.files()] == [(1, (2,), (2,))]


DAYS = [datetime.date(2020, month, 1) for month in range(1, 7)]
MOMENTS = [datetime.datetime(2020, month, 1, 5) for month in range(1, 7)]
WIDENED_KEYS = [
    ("int8", "int16", [-128, 0, 5, 7, 9, 127]),
    ("int32", "int64", [-(2**31), -1, 0, 5, 7, 2**31 - 1]),
    ("uint32", "int64", [0, 1, 2, 3, 4, 2**32 - 1]),
    ("float16", "float64", [float("-inf"), -1.5, -0.0, 0.0, 2.0, math.nan]),
    ("float32", "float64", [-1.5, -0.0, 0.5, 2.0, math.inf, math.nan]),
    ("decimal128(5, 2)", "decimal256(50, 2)", [Decimal(n) for n in (-5, -1, 0, 1, 2, 999)]),
    ("date", "timestamp", DAYS),
    ("date", "timestamp[s]", DAYS),
    ("date", "date64[ms]", DAYS),
    ("timestamp[s]", "timestamp[us]", MOMENTS),
    ("time32[ms]", "time64[ns]", [datetime.time(hour) for hour in range(6)]),
    ("string", "large_string", ["", "a", "b", "c", "d", "é" * 2000]),
    ("binary", "binary_view", [b"", b"a", b"b", b"c", b"d", b"\xff" * 2000]),
    ("dictionary<int8, int32>", "dictionary<int8, int64>", [1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize("order", ["", " desc", " desc nulls first"])
@pytest.mark.parametrize(
    ("old", "new", "values"), WIDENED_KEYS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_key_column_is_widened_and_blocks_stay_clustered(old, new, values, order):
    kind = type_of(old)
    halves = [values[::2], [*values[1::2], None]]
    with memory_table(pa.schema([("c", kind), ("n", pa.int64())]), cluster_by=f"c{order}") as table:
        for half in halves:
            table.append(pa.table({"c": column_of(half, kind), "n": range(len(half))}))
        before, old_files = table.info(), table.files()
        table.widen_column("c", type_of(new))
        after = table.info()
        assert (after.average_depth, after.unclustered_block_count) == (before.average_depth, 0)
        assert [file.path for file in table.files()] == [file.path for file in old_files]
        for _ in range(2):  # with more segments than are kept apart: keys of both types meet in one
            for half in halves:
                table.append(pa.table({"c": column_of(half, kind), "n": range(len(half))}))
        assert {file.cluster_key_id for file in table.files()} == {1}
        assert table.check(deep=True).ok
        outcome = table.recluster(final=True)
        assert (outcome.failed_groups, table.info().average_depth) == (0, 1.0)
        assert table.check(deep=True).ok
        assert sorted(
            map(repr, table.scan().to_arrow()["c"].cast(read_type(type_of(new))).to_pylist())
        ) == sorted(
            map(repr, column_of((halves[0] + halves[1]) * 3, kind).cast(read_type(type_of(new))).to_pylist())
        )
        table.set_cluster_key(f"c{order}")
        assert table._native.head().cluster_key_id == 1
        table.rollback(3)
        assert table.schema.field("c").type == kind
        table.append(pa.table({"c": column_of(halves[0], kind), "n": range(3)}))
        assert table.check(deep=True).ok


def type_of(text):
    if text.startswith("dictionary"):
        index, value = text.removeprefix("dictionary<").removesuffix(">").split(", ")
        return pa.dictionary(type_of(index), type_of(value))
    return parse_schema(f"c: {text}").field("c").type


def column_of(values, kind):
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, pa.float32()).cast(kind) if pa.types.is_float16(kind) else pa.array(values, kind)


@pytest.mark.parametrize(
    ("term", "old", "new", "problem"),
    [
        ("year(c)", "date", "timestamp", None),
        ("day(c)", "date", "timestamp", None),
        ("hour(c)", "timestamp[ms]", "timestamp[us]", None),
        ("truncate(3, c)", "string", "large_string", None),
        ("truncate(3, c)", "int8", "int32", None),
        ("truncate(3, c)", "uint32", "int64", None),
        ("truncate(3, c)", "decimal128(5, 2)", "decimal128(20, 2)", None),
        ("bucket(4, c)", "int8", "int64", None),
        ("bucket(4, c)", "uint32", "int64", None),
        ("bucket(4, c)", "decimal128(5, 2)", "decimal128(20, 2)", None),
        ("bucket(4, c)", "timestamp[s]", "timestamp[us]", None),
        ("bucket(4, c)", "date", "date64[ms]", None),
        ("bucket(4, c)", "string", "large_string", None),
        ("bucket(4, c)", "date", "timestamp", "a date and the same moment have different buckets"),
        ("truncate(3, c)", "int32", "int64", "rounds the least values of int32 differently"),
        ("bucket(4, c)", "uint32", "uint64", "bucket cannot be taken"),
        ("truncate(3, c)", "decimal128(5, 2)", "decimal256(50, 2)", "truncate cannot be taken"),
    ],
)
def test_a_column_of_a_transform_is_widened_where_its_values_stay(term, old, new, problem):
    before, after = (Schema.create(pa.schema([("c", type_of(text))])) for text in (old, new))
    (parsed,) = parse_terms(term, before)
    found = widening_problem(parsed, before.leaf("c"), after.leaf("c"))
    with memory_table(before.logical, cluster_by=term) as table:
        if problem is not None:
            assert found.startswith(problem) or problem in found
            with pytest.raises(InvalidKeyError, match="--drop-cluster-by") as caught:
                table.widen_column("c", type_of(new))
            assert problem in str(caught.value)
            return
        assert found is None
        values = key_values(type_of(old))
        table.append(pa.table({"c": values}))
        table.widen_column("c", type_of(new))
        table.append(pa.table({"c": values}))
        assert table.check(deep=True).ok
        assert table.recluster(final=True).failed_groups == 0
        assert table.check(deep=True).ok
        # the key of each value is the same before and after
        narrow = transform_array(parsed, values, type_of(old))
        wide = transform_array(parsed, values.cast(type_of(new)), type_of(new))
        assert narrow.cast(wide.type).equals(wide)


def key_values(kind):
    if pa.types.is_string(kind):
        return pa.array(["", "abcd", "abce", "z"], kind)
    if pa.types.is_decimal(kind):
        return pa.array([Decimal("-999.99"), Decimal("1.05"), Decimal("999.99")], kind)
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        return pa.array([low, low + 1, 5, low + 2**kind.bit_width - 1], kind)
    return pa.array([-1, 0, 1, 20_000], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


@pytest.mark.parametrize("term", ["c", "year(c)", "bucket(4, c)"])
def test_a_key_whose_column_was_widened_gets_a_new_id(term):
    """Was: keys of both types met in one column of a segment; every later append failed while folding."""
    with memory_table("c: date, n: int64", cluster_by=term) as table:
        rows = pa.table({"c": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], "n": [1, 2]})
        table.append(rows)
        table.drop_cluster_key()
        table.widen_column("c", "timestamp")
        table.set_cluster_key(term)
        for _ in range(5):
            table.append(rows)
        assert {block.cluster_key_id for block in table.files()} == {1, 2}
        table.delete("n = 1")
        table.append(rows)
        assert table.check(deep=True).ok
        assert table.scan("n = 2").to_arrow().num_rows == 7
        table.rollback(2)
        table.append(rows)
        assert {block.cluster_key_id for block in table.files()} == {1}
        assert table.check(deep=True).ok


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("a", (1,), (None,)),  # nulls are last
        ("a nulls first", (None,), (3,)),
        ("a desc", (3,), (None,)),
        ("a desc nulls first", (None,), (1,)),
        ("b", (4,), (6,)),
        ("b desc, truncate(2, b)", (6, 4), (4, 6)),
        ("f", (0.5,), (math.nan,)),
        ("f desc", (math.nan,), (0.5,)),
        ("bucket(4, b)", (None,), (None,)),  # unknown: a bucket keeps no order
        ("year(d)", (50,), (51,)),
    ],
)
def test_bounds_of_a_key_that_a_block_is_not_sorted_by_come_from_column_statistics(key, low, high):
    data = pa.table(
        {
            "a": [2, None, 1, 3],
            "b": [4, 5, 6, 5],
            "f": [1.5, math.nan, 0.5, 2.0],
            "d": [datetime.date(2020, 5, 1), datetime.date(2021, 5, 1), None, None][:2] * 2,
        }
    )
    with memory_table(data.schema) as table:
        table.append(data)
        table.set_cluster_key(key)
        (block,) = table.files()
        assert block.cluster_key_id is None
        assert repr((block.min, block.max)) == repr((low, high))


def test_files_without_a_key_have_no_bounds():
    with memory_table("a: int64", cluster_by="a") as table:
        table.append(pa.table({"a": [1, 2]}))
        table.drop_cluster_key()
        assert [(block.min, block.max, block.cluster_key_id) for block in table.files()] == [((), (), 1)]


def test_a_column_that_is_added_reads_as_null_and_prunes():
    with memory_table("n: int64", options={"block_rows": 2}) as table:
        table.append(pa.table({"n": range(4)}))
        table.add_column("f", "double")
        table.append(pa.table({"n": [9], "f": [1.5]}))
        explained = table.scan("f > 1").explain()
        assert (explained.blocks_pruned, explained.blocks_read) == (2, 1)
        assert table.scan("f > 1").to_arrow()["n"].to_pylist() == [9]
        assert table.scan("f is null").to_arrow().num_rows == 4
        assert table.delete("f is null").rows_removed == 4
        assert table.scan().to_arrow().to_pylist() == [{"n": 9, "f": 1.5}]


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        ("int32", "int64", [3, 1, 2, None]),
        ("float32", "float64", [0.3, 0.1, None, float("nan")]),
        ("decimal128(5, 2)", "decimal128(12, 2)", [Decimal("3.25"), Decimal("-1.5"), None, Decimal(0)]),
    ],
)
def test_a_delete_after_a_key_was_widened_keeps_the_block_in_order(narrow, wide, values, memory_url):
    table = tblctl.create(memory_url, f"k: {narrow}, v: int64", cluster_by="k")
    rows = pa.table(
        {"k": values, "v": range(4)},
        schema=pa.schema([("k", table.schema.field("k").type), ("v", pa.int64())]),
    )
    table.append(rows)
    table.append(rows)
    table.widen_column("k", wide)
    table.delete("v = 1")
    table.update({"v": 7}, "v = 2")
    assert table.info().unclustered_block_count == 0
    assert table.check(deep=True).problems == ()
    assert table.recluster(policy="full").committed_groups == 1
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [0, 0, 3, 3, 7, 7]
    assert table.check(deep=True).problems == ()
