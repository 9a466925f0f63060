"""A table as a pyarrow dataset: other engines find the same rows, skip blocks, and see old blocks as they are now."""

from __future__ import annotations

import math
import threading

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from arrow_rows import canonical, memory_table, multiset
from faults import storage_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.errors import CorruptTableError
from tblctl.tableformat.model.schema.types import is_orderable

from ..predicate.test_match_and_rows import tables as model_tables
from .test_statistics import real_table

FILTERS = ["i64", "f64", "text", "day", "ts_us", "dec128", "flag", "fixed", "u64", "f32", "view", "t64"]


@given(model_tables(max_rows=16), st.data())
@settings(max_examples=cases(15), suppress_health_check=list(HealthCheck))
def test_filters_pushed_into_the_dataset_lose_no_row(rows, data):
    """The guarantees must not rule out a fragment that holds a row: the same filter over plain rows finds as many."""
    plain = real_table(rows)
    with memory_table(plain.schema, options={"block_rows": 3, "row_group_rows": 2}) as table:
        table.append(plain)
        if data.draw(st.booleans()):
            table.rename_column("n", "m")  # all blocks now have another schema, and are exposed converted
            table.rename_column("m", "n")
            table.widen_column("i8", "int16")
        dataset = table.to_dataset()
        loaded = dataset.to_table()
        assert multiset(loaded.select(["n"])) == multiset(plain.select(["n"]))
        if not loaded.num_rows:
            return
        for name in data.draw(st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3)):
            value = data.draw(st.sampled_from(list(loaded[name])))
            if is_nan(value):  # Arrow 26 takes `c <= NaN` for true, by the statistics of any Parquet file
                continue
            condition = data.draw(st.sampled_from(CONDITIONS))(pads.field(name), value)
            found = dataset.to_table(filter=condition, columns=["n"])
            expected = loaded.filter(condition).select(["n"])
            assert multiset(found) == multiset(expected), condition


def is_nan(value: pa.Scalar) -> bool:
    return pa.types.is_floating(value.type) and value.is_valid and math.isnan(value.as_py())


CONDITIONS = [
    lambda field, value: field == value,
    lambda field, value: field != value,
    lambda field, value: field >= value,
    lambda field, value: field < value,
    lambda field, value: ~(field <= value),
    lambda field, _: field.is_null(),
    lambda field, _: field.is_valid(),
    lambda field, value: field.isin(pa.array([value] if value.is_valid else [], value.type)),
    lambda field, value: (field == value) | field.is_null(),
]


@pytest.fixture
def mixed():
    """Blocks of three schemas: `b` came later, `a` was renamed from `x` and widened."""
    with memory_table("x: int32, s: string", options={"block_rows": 10}) as table:
        table.append(pa.table({"x": pa.array(range(20), pa.int32()), "s": [f"s{i:02d}" for i in range(20)]}))
        table.add_column("b", "double")
        table.append(pa.table({"x": pa.array(range(20, 40), pa.int32()), "s": ["t"] * 20, "b": [0.5] * 20}))
        table.rename_column("x", "a")
        table.widen_column("a", "int64")
        table.append(pa.table({"a": range(40, 60), "s": ["u"] * 20, "b": [1.5] * 20}))
        yield table


def test_blocks_of_several_schemas_are_one_dataset(mixed):
    dataset = mixed.to_dataset()
    assert dataset.schema == mixed.scan().schema
    assert multiset(dataset.to_table()) == multiset(mixed.scan().to_arrow())
    assert dataset.count_rows() == 60
    assert dataset.count_rows(filter=pads.field("b").is_null()) == 20
    assert dataset.to_table(columns=["b"], filter=pads.field("a") == 25)["b"].to_pylist() == [0.5]
    assert duckdb.from_arrow(dataset).filter("a >= 15 and a < 45").aggregate(
        "count(*), sum(a)"
    ).fetchall() == [(30, 885)]
    lazy = polars.scan_pyarrow_dataset(dataset)
    assert lazy.filter(polars.col("a") >= 55).collect()["a"].to_list() == list(range(55, 60))
    assert lazy.select("s").collect().height == 60


def test_old_blocks_are_skipped_by_their_guarantees_too(mixed):
    dataset = mixed.to_dataset()  # opens the blocks that are exposed unconverted, for their footers
    calls = storage_calls(lambda: dataset.to_table(filter=pads.field("a") < 10))
    opened = {call.name for call in calls if call.name.startswith("data/")}
    assert len(opened) == 1


def test_a_dataset_serves_several_threads_at_once(mixed):
    dataset = mixed.to_dataset()
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(dataset.to_table().num_rows)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts == [60] * 8


def test_a_dataset_of_an_older_version_shows_that_version(mixed):
    old = tblctl.open(mixed.location, as_of=2).to_dataset()
    assert old.schema.names == ["x", "s"]
    assert old.to_table()["x"].to_pylist() == list(range(20))


def test_a_dataset_stays_what_it_was_when_the_table_goes_on(mixed):
    dataset = mixed.to_dataset()
    mixed.delete("a < 30")
    mixed.append(pa.table({"a": [1000], "s": ["v"], "b": [None]}, schema=mixed.schema))
    assert dataset.count_rows() == 60


def test_a_missing_old_block_is_an_error_not_fewer_rows(mixed):
    storage = mixed._native.storage
    storage.delete([mixed.files()[0].path])
    with pytest.raises((CorruptTableError, OSError)):
        mixed.to_dataset().to_table()


def test_a_table_on_disk_is_read_by_engines_through_the_file_system(tmp_path):
    data = pa.table({"n": range(1_000), "s": [str(i) for i in range(1_000)]})
    table = tblctl.create(tmp_path / "with space é", data.schema, cluster_by="n", options={"block_rows": 100})
    table.append(data)
    dataset = table.to_dataset()
    assert duckdb.from_arrow(dataset).filter("n between 250 and 349").aggregate("sum(n)").fetchall() == [
        (29_950,)
    ]
    assert canonical(dataset.to_table()) == canonical(data)
    assert len(list(dataset.get_fragments(filter=pads.field("n") == 500))) == 1


def test_every_orderable_top_level_column_without_nan_is_promised(mixed):
    promised = [str(fragment.partition_expression) for fragment in mixed.to_dataset().get_fragments()]
    for field in mixed.schema:
        if is_orderable(field.type):
            assert all(f"({field.name} " in text or f"is_null({field.name}" in text for text in promised), (
                field.name
            )
