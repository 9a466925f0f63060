"""Rows of every type are read back unchanged, by every way of reading."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from arrow_rows import canonical, memory_table, multiset, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.tableformat.model.schema.types import is_orderable, read_type

from ..model.strategies import SCHEMAS

RANDOM = settings(max_examples=cases(30), suppress_health_check=list(HealthCheck))
SMALL = {"block_rows": 5, "row_group_rows": 2}


def numbers(kind, *counts):
    return pa.array([*counts, None], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


TIMES = [
    *(
        numbers(pa.timestamp(unit, zone), -1, 0, 1, 10**9)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC")
    ),
    numbers(pa.timestamp("us", "America/New_York"), -1, 0, 1, 10**9),
    numbers(pa.date32(), -1, 0, 20_000),
    numbers(pa.date64(), -86_400_000, 0, 86_400_000),
    *(numbers(pa.time32(unit), 0, 1, 86_399) for unit in ("s", "ms")),
    *(numbers(pa.time64(unit), 0, 1, 86_399) for unit in ("us", "ns")),
]
TEXT = ["", "a", None, "é" * 300, "\ud7ff", "\U0010ffff" * 200, "x" * 1_000_000]
BYTES = [b"", b"\0", None, b"\xff" * 300]
ITEMS = [
    *(
        pa.array([-(2 ** (bits - 1)), 1, None, 2 ** (bits - 1) - 1], getattr(pa, f"int{bits}")())
        for bits in (8, 16, 32, 64)
    ),
    *(
        pa.array([0, 1, None, 2**bits - 1], getattr(pa, f"uint{bits}")())
        for bits in (8, 16, 32, 64)
    ),
    *(
        pa.array([1.5, None, math.nan, -0.0, 0.0, math.inf, -math.inf]).cast(kind)
        for kind in (pa.float16(), pa.float32(), pa.float64())
    ),
    *(
        pa.array([Decimal("-99999.99"), None, Decimal("0.01")], make(precision, 2))
        for make, precision in (
            (pa.decimal32, 7), (pa.decimal64, 7), (pa.decimal128, 7), (pa.decimal128, 38), (pa.decimal256, 70)
        )
    ),
    pa.array([True, None, False]),
    *(pa.array(TEXT, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array(BYTES, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    pa.array([b"abc", None, b"\0\xff\0"], pa.binary(3)),
    *TIMES,
    pa.array(["b", None, "a", "b"]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([7, 8])),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([datetime.date(2020, 1, 1)] * 2)),
    pa.array([{"a": 1, "[b": {"c": "x"}}, None, {"a": None, "[b": None}]),
    *(
        pa.array([[1, None], None, []], pa.list_(pa.int64())).cast(kind)
        for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64()))
    ),
    pa.array([[1, None], None, [3, 4]], pa.list_(pa.int64(), 2)),
    pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    pa.array([[{"d": [1]}], None, [None]]),
    pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([datetime.date(2020, 1, 1), None])),
    ),
    pa.nulls(3),
]  # fmt: skip


def keys_for(kind):
    return [[], ["c"], ["c desc nulls first", "n"]] if is_orderable(kind) else [[]]


@pytest.mark.parametrize("values", ITEMS, ids=lambda values: str(values.type))
def test_values_of_this_type_come_back_whatever_the_key(values):
    data = pa.table({"c": values, "n": list(range(len(values)))})
    for key in keys_for(values.type):
        with memory_table(data.schema, cluster_by=key, options=SMALL) as table:
            table.append(data)
            again = tblctl.open(table.location)
            assert again.schema.field("c").type == values.type
            found = again.scan().to_arrow().sort_by("n")
            assert found.schema.field("c").type == read_type(values.type)
            assert canonical(found) == canonical(data)
            report = again.check(deep=True)
            assert report.ok, report.problems
            dataset = again.to_dataset()
            assert dataset.schema == found.schema
            assert canonical(dataset.to_table().sort_by("n")) == canonical(data)


@given(st.data())
@RANDOM
def test_rows_of_any_schema_come_back_from_scan_and_dataset(data):
    schema = data.draw(SCHEMAS)
    batches = data.draw(st.lists(tables(schema), min_size=1, max_size=3))
    orderable = [
        f'"{field.name}"'.replace('""', '"')
        for field in schema
        if is_orderable(field.type) and '"' not in field.name
    ]
    key = data.draw(st.lists(st.sampled_from(orderable), max_size=2, unique=True)) if orderable else []
    scope = data.draw(st.sampled_from(["append", "block"]))
    with memory_table(schema, cluster_by=key, options={**SMALL, "sort_scope": scope}) as table:
        for batch in batches:
            table.append(batch)
        again = tblctl.open(table.location)
        expected = multiset(pa.concat_tables(batches))
        assert multiset(again.scan().to_arrow()) == expected
        report = again.check(deep=True)
        assert report.ok, report.problems
        assert multiset(again.to_dataset().to_table()) == expected


def frame() -> pa.Table:
    count = 60
    return pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "f": pa.array([math.nan if i % 11 == 0 else None if i % 7 == 0 else i / 4 for i in range(count)]),
            "s": pa.array([None if i % 5 == 0 else f"row {i}" for i in range(count)], pa.string_view()),
            "d": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(i) for i in range(count)]),
            "t": pa.array(
                [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=i) for i in range(count)],
                pa.timestamp("us"),
            ),
            "m": pa.array([Decimal(i) / 4 for i in range(count)], pa.decimal128(12, 2)),
            "b": pa.array([i % 3 == 0 if i % 4 else None for i in range(count)]),
            "x": pa.array([{"y": i, "z": [i]} if i % 6 else None for i in range(count)]),
        }
    )


@pytest.fixture
def clustered():
    data = frame()
    with memory_table(
        data.schema, cluster_by=["d"], options={"block_rows": 10, "row_group_rows": 4}
    ) as table:
        table.append(data)
        yield table, data


CONDITIONS = [
    ("d >= '2020-02-01'", "d >= '2020-02-01'::date"),
    ("n between 7 and 13", "n between 7 and 13"),
    ("f > 3", "f > 3 and not isnan(f)"),  # DuckDB places NaN above all numbers, tblctl compares as IEEE says
    ("s is null or n = 1", "s is null or n = 1"),
    ("m <= 2.5", "m <= 2.5"),
    ("t < TIMESTAMP '2020-01-02 03:00:00'", "t < TIMESTAMP '2020-01-02 03:00:00'"),
    ("not (b = true)", "not (b = true)"),
]


@pytest.mark.parametrize(("ours", "theirs"), CONDITIONS)
def test_duckdb_over_the_dataset_finds_the_rows_of_a_scan(clustered, ours, theirs):
    table, data = clustered
    asked = duckdb.from_arrow(table.to_dataset()).filter(theirs)
    found = asked.project("n").order("n").fetchall()
    assert [row[0] for row in found] == sorted(table.scan(ours, columns=["n"]).to_arrow()["n"].to_pylist())
    whole = duckdb.from_arrow(table.to_dataset()).order("n").to_arrow_table()
    assert whole["n"].to_pylist() == data["n"].to_pylist()
    assert whole["x"].to_pylist() == data["x"].to_pylist()


def test_polars_over_the_dataset_finds_the_rows_of_a_scan(clustered):
    table, data = clustered
    lazy = polars.scan_pyarrow_dataset(table.to_dataset())
    wanted = polars.col("d") >= datetime.date(2020, 2, 1)
    found = lazy.filter(wanted & polars.col("s").is_not_null()).collect().sort("n")
    assert found["n"].to_list() == sorted(
        table.scan("d >= '2020-02-01' and s is not null").to_arrow()["n"].to_pylist()
    )
    everything = lazy.collect().sort("n")
    assert repr(everything["f"].to_list()) == repr(data["f"].to_pylist())
    assert everything["s"].to_list() == data["s"].to_pylist()


def test_scan_gives_polars_and_pandas_the_same_rows(clustered):
    table, data = clustered
    assert table.scan(columns=["n", "s"]).to_polars().sort("n")["s"].to_list() == data["s"].to_pylist()
    frame = table.scan(columns=["n", "m"]).to_pandas().sort_values("n")
    assert frame["m"].tolist() == data["m"].to_pylist()


def test_dataset_guarantees_prune_the_blocks_that_statistics_rule_out(clustered):
    table, _ = clustered
    fragments = list(table.to_dataset().get_fragments())
    wanted = pads.field("d") >= datetime.date(2020, 2, 20)
    left = list(table.to_dataset().get_fragments(filter=wanted))
    assert len(fragments) == 6
    assert len(left) == 6 - table.scan("d >= '2020-02-20'").explain().blocks_pruned == 1


def test_dataset_keeps_rows_whose_floats_are_nan_or_null():
    data = pa.table({"f": [1.0, math.nan, None, 2.0], "n": [1, 2, 3, 4]})
    with memory_table(data.schema) as table:
        table.append(data)
        rows = duckdb.from_arrow(table.to_dataset()).project("f, n")
        assert [row[1] for row in rows.filter("f > 5").fetchall()] == [2]  # DuckDB: NaN is above all numbers
        assert [row[1] for row in rows.filter("f is null").fetchall()] == [3]
        assert [row[1] for row in rows.filter("isnan(f)").fetchall()] == [2]


def test_an_empty_table_reads_as_its_schema_with_no_rows():
    with memory_table("a: int64 not null, s: struct<b: string>, v: list<int8>") as table:
        assert table.scan().to_arrow().num_rows == 0
        assert table.scan().to_arrow().schema == table.scan().schema
        assert table.to_dataset().to_table().schema == table.scan().schema
        assert table.scan(columns=["s.b"]).schema.names == ["s.b"]
        assert table.scan("a = 1", limit=3).to_reader().read_all().num_rows == 0
        assert table.check(deep=True).ok


def test_nested_fields_are_read_alone_and_beside_their_parent():
    with memory_table(
        pa.schema([("s", pa.struct([("a", pa.int64()), ("[b", pa.string())])), ("[x", pa.int8())])
    ) as table:
        table.append(pa.table({"s": [{"a": 1, "[b": "u"}, None], "[x": [7, 8]}, schema=table.schema))
        assert table.scan(columns=["s.[b", "[x"]).to_arrow().to_pydict() == {
            "s.[b": ["u", None],
            "[x": [7, 8],
        }
        assert table.scan("s.a = 1", columns=["[x"]).to_arrow().to_pydict() == {"[x": [7]}
        both = table.scan("s.a is null", columns=["s.a", "s"]).to_arrow().to_pydict()
        assert both == {"s.a": [None], "s": [None]}


def test_a_dictionary_longer_than_its_rows_is_cut_to_what_they_use():
    """Was: each slice kept the whole dictionary, so that no cut made a block small enough: one block a row."""
    words = pa.array([f"word number {i:07d}" for i in range(20_000)])
    picks = pa.array(np.arange(6_000) * 7 % 20_000, pa.int32())
    for nested in (False, True):
        column = pa.DictionaryArray.from_arrays(picks, words)
        values = pa.StructArray.from_arrays([column], ["w"]) if nested else column
        data = pa.table({"c": values, "n": range(6_000)})
        with memory_table(
            data.schema, cluster_by="n", options={"block_bytes": 65_536, "row_group_rows": 500}
        ) as table:
            table.append(data)
            blocks = table.files()
            assert 2 <= len(blocks) <= 8
            assert all(block.decoded_bytes <= 65_536 for block in blocks)
            assert sum(block.uncompressed_bytes for block in blocks) < 400_000  # the words used take 120,000
            assert canonical(table.scan().to_arrow().sort_by("n")) == canonical(data)
            assert table.check(deep=True).ok


def test_dictionaries_of_halffloat_survive_being_put_together():
    kind = pa.dictionary(pa.int8(), pa.float16())  # pyarrow 26 would make 15872.0 of 1.5

    def one(value):
        words = pa.array([value], pa.float32()).cast(pa.float16())
        return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), words)

    data = pa.table({"n": [3, 1, 2], "c": pa.chunked_array([one(1.5), one(2.5), one(3.5)], kind)})
    with memory_table(data.schema, cluster_by="n", options={"row_group_rows": 1}) as table:
        table.append(data)
        assert table.scan().to_arrow()["c"].to_pylist() == [2.5, 3.5, 1.5]
        table.delete("n = 2")
        assert table.scan().to_arrow()["c"].to_pylist() == [2.5, 1.5]
        assert table.check(deep=True).ok
