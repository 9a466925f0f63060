"""`suggest(layouts=True)`: layouts are tried on a sample of rows, and what is estimated is what is read afterwards."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.advise.arranged import Arranged, Rows, Sparse
from tblctl.advise.layout_sample import SampleLimits, read_sample
from tblctl.advise.layouts import MEASURED_ERRORS, Layouts, rank_layouts
from tblctl.advise.suggest import read_predicates, suggest
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.schema.schema import Schema

ROWS, BLOCK_ROWS = 6000, 150
CONDITIONS = [
    "a BETWEEN 100 AND 130",
    "b BETWEEN 500 AND 510 AND a < 300",
    "b = 77",
    "c IN ('c2', 'c7') AND a > 900",
    "amount > 200",
]
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "layout_estimates.txt"


def events(count: int = ROWS) -> pa.Table:
    """Return rows in no order: two columns of whole numbers, one of texts, a skewed one with NULL and NaN."""
    rng = np.random.default_rng(5)
    amount = np.where(rng.random(count) < 0.01, np.nan, rng.lognormal(3, 2, count))
    return pa.table(
        {
            "a": rng.integers(0, 1000, count),
            "b": rng.integers(0, 1000, count),
            "c": [f"c{number}" for number in rng.integers(0, 10, count).tolist()],
            "amount": pa.array(amount, mask=rng.random(count) < 0.02),
        }
    )


def table_of(url: str, rows: pa.Table, **options: int) -> tblctl.Table:
    made = {"block_rows": BLOCK_ROWS, "row_group_rows": 50} | options
    table = tblctl.create(url, rows.schema, options=made)
    table.append(rows)
    return table


def ranked(table: Any, conditions: list[str], limits: SampleLimits, **more: Any) -> Layouts:
    version = table._port.newest()
    given = read_predicates(conditions, version.schema)
    found = replace(suggest(version, given, ()), **more)
    return rank_layouts(table._port.block_io(version), version, given, found, limits)


@pytest.mark.parametrize("kind", ["hilbert", "qdtree"])
def test_estimates_from_a_sample_are_what_the_table_reads_once_it_is_reclustered(
    memory_url: str, tmp_path: Path, kind: str
) -> None:
    table = table_of(memory_url, events())
    found = ranked(table, CONDITIONS, SampleLimits(places=64, rows=ROWS // 3))
    best = next(item for item in found.candidates if item.kind == kind)
    (tmp_path / "cuts.sql").write_text("\n".join(CONDITIONS))
    table.set_cluster_key(best.key.replace("FILE", str(tmp_path / "cuts.sql")))
    assert table.recluster(policy="full").commits == 1
    plans = [table.scan(where=text).explain() for text in CONDITIONS]
    real = [plan.blocks_read / plan.blocks_total for plan in plans]
    assert best.average_read_share == pytest.approx(np.mean(real), rel=0.2)


def test_blocks_of_a_tree_are_estimated_as_merges_cut_them(memory_url: str, tmp_path: Path) -> None:
    table = table_of(memory_url, events())
    (tmp_path / "cuts.sql").write_text("\n".join(CONDITIONS))
    table.set_cluster_key(f"qdtree(file:{tmp_path}/cuts.sql, min_rows=100)")
    table.recluster(policy="full")
    version = table._port.newest()
    listing = version.listing(version.sort, None)
    rows = Rows(schema=version.schema, table=events())
    for found in (
        Arranged(rows, version.sort, ROWS // BLOCK_ROWS),
        Sparse(rows, version.sort, ROWS // BLOCK_ROWS, np.ones(ROWS)),
    ):
        assert sorted(found.row_count.tolist()) == sorted(listing.stored_rows.tolist())
        first, last = found._leaves  # type: ignore[misc]
        assert (first == last).sum() > len(first) / 2
    assert len(listing.known) > ROWS // BLOCK_ROWS


def test_bounds_of_a_sample_are_widened_to_those_of_whole_blocks() -> None:
    rows = events(40_000)
    schema = Schema.create(rows.schema)
    sort = Sort(id=1, terms=(Term(column_id=schema.leaf("a").id),))
    sample = rows.take(pa.array(np.arange(0, 40_000, 25)))
    weights = np.full(len(sample), 25.0)
    whole = Arranged(Rows(schema=schema, table=rows), sort, 40)
    narrow = Arranged(Rows(schema=schema, table=sample), sort, 40)
    sparse = Sparse(Rows(schema=schema, table=sample), sort, 40, weights)

    def width(arranged: Arranged, name: str) -> float:
        column = arranged.column(schema.leaf(name))
        assert column is not None
        return float(np.mean(column.max.to_numpy() - column.min.to_numpy()))

    assert width(narrow, "b") < 0.96 * width(whole, "b")
    assert width(sparse, "b") == pytest.approx(width(whole, "b"), rel=0.025)
    assert width(sparse, "a") == pytest.approx(width(whole, "a"), rel=0.05), "also of the key"
    assert sparse._stands_for.sum() == 40_000


def test_bounds_of_all_rows_are_left_as_they_are() -> None:
    rows = events(2000)
    schema = Schema.create(rows.schema)
    sort = Sort(id=1, terms=(Term(column_id=schema.leaf("a").id),))
    given = Rows(schema=schema, table=rows)
    for leaf in schema.leaves:
        whole, sparse = (
            each.column(leaf) for each in (Arranged(given, sort, 9), Sparse(given, sort, 9, np.ones(2000)))
        )
        assert whole is not None
        assert sparse is not None
        assert (sparse.min, sparse.max) == (whole.min, whole.max)
        assert sparse.null_count.tolist() == whole.null_count.tolist()


def test_rows_beyond_the_sample_are_in_some_block(memory_url: str) -> None:
    rows = pa.table({"ts": range(ROWS), "b": [number * 7919 % 1000 for number in range(ROWS)]})
    found = ranked(
        table_of(memory_url, rows), [f"ts >= {ROWS - 5}", "ts = 0"], SampleLimits(places=4, rows=320)
    )
    by_time = next(item for item in found.candidates if item.key == "ts")
    assert min(by_time.read_share) > 0


def test_a_column_without_values_prunes_nothing_and_breaks_nothing(memory_url: str) -> None:
    rows = events(2000).append_column("nothing", pa.nulls(2000, pa.int64()))
    found = ranked(table_of(memory_url, rows), ["nothing IS NULL", "a = 5", "amount IS NULL"], SampleLimits())
    assert {item.read_share[0] for item in found.candidates if item.kind != "qdtree"} == {1.0}


def test_each_kind_is_first_where_it_belongs(memory_url: str) -> None:
    table = table_of(memory_url, events())
    both = table.suggest(["a BETWEEN 10 AND 40", "b BETWEEN 700 AND 730"], layouts=True).layouts
    one = table.suggest(["a BETWEEN 10 AND 40", "a = 700"], layouts=True).layouts
    assert both is not None
    assert one is not None
    shares = {item.key: item.average_read_share for item in both.candidates}
    assert shares["hilbert(a, b)"] < 0.5 * min(shares["a"], shares["b"])
    assert {item.kind for item in both.candidates} == {"linear", "zorder", "hilbert", "qdtree"}
    assert [item.key for item in one.candidates if item.kind != "qdtree"] == ["a"], (
        "one column makes no curve"
    )
    averages = [item.average_read_share for item in both.candidates]
    assert averages == sorted(averages)
    assert both.read_share_now == 1.0


def test_the_second_column_is_listed_only_where_it_helps(memory_url: str) -> None:
    found = ranked(
        table_of(memory_url, events()), ["c = 'c3' AND a < 100", "a = 5 AND b > 10"], SampleLimits()
    )
    keys = {item.key for item in found.candidates}
    assert "c, a" in keys
    assert "a" in keys
    assert "a, b" not in keys


def test_no_more_is_read_than_the_limits_say(memory_url: str) -> None:
    table = table_of(memory_url, events())
    found = ranked(table, CONDITIONS[:2], SampleLimits(places=10, rows=400))
    assert found.row_group_count == 10
    assert found.row_count == 400
    assert found.block_count == ROWS // BLOCK_ROWS
    assert found.part_count == 400 // 32 == 12, "a part has 32 rows at least"


def test_a_sample_stands_for_all_rows_whatever_the_sizes_of_blocks(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64", options={"block_rows": 100})
    table.append(pa.table({"a": [0] * 100}))
    for start in range(1, 11):
        table.append(pa.table({"a": [start] * 10}))
    version = table._port.newest()
    sample = read_sample(
        table._port.block_io(version), version, version.schema.leaves, SampleLimits(places=10, rows=200)
    )
    values = sample.rows.table["a"].to_numpy()
    assert np.count_nonzero(values == 0) == 2 * np.count_nonzero(values), (
        "the small blocks have fewer to give"
    )
    assert sample.weights.sum() == pytest.approx(200)
    assert sample.weights[values == 0].sum() == pytest.approx(100)
    assert (sample.block_rows, sample.block_count) == (100, 2)


def test_conditions_of_the_log_make_a_tree_of_the_workload(memory_url: str) -> None:
    found = ranked(table_of(memory_url, events()), CONDITIONS, SampleLimits(), queries=9)
    assert {item.key for item in found.candidates if item.kind == "qdtree"} >= {"qdtree(workload)"}


def test_why_there_is_no_tree_is_said(memory_url: str) -> None:
    table = table_of(memory_url, events())
    none = ranked(table, ["a <> 5"], SampleLimits())
    assert none.left_out.startswith(
        "no cut that the conditions of file:FILE suggest lets one of them skip rows"
    )
    many = ranked(table, [f"a = {number}" for number in range(201)], SampleLimits(places=4, rows=64))
    assert many.left_out == "201 conditions, a tree takes at most 200"
    assert all(item.kind != "qdtree" for item in (*none.candidates, *many.candidates))


def test_columns_inside_of_others_are_counted_but_make_no_key(memory_url: str) -> None:
    rows = events(2000)
    inner = pa.StructArray.from_arrays([rows["a"].combine_chunks()], ["x"])
    table = table_of(memory_url, pa.table({"s": inner, "b": rows["b"]}))
    found = ranked(table, ["s.x < 100 AND b < 100"], SampleLimits())
    assert [item.key for item in found.candidates] == ["b"]
    assert "inside of others" in found.left_out


@pytest.mark.parametrize(
    ("count", "conditions", "said"),
    [
        (2000, None, "no condition tests a column"),
        (2000, ["true"], "no condition tests"),
        (0, ["a = 5"], "no rows"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    memory_url: str, count: int, conditions: list[str] | None, said: str
) -> None:
    table = table_of(memory_url, events(count))
    with pytest.raises(InvalidOptionError, match=said):
        table.suggest(conditions, layouts=True)


def test_plain_files_are_refused(tmp_path: Path) -> None:
    pq.write_table(events(100), tmp_path / "a.parquet")
    with pytest.raises(InvalidOptionError, match="plain Parquet files, which is only read"):
        tblctl.open(str(tmp_path)).suggest(["a = 5"], layouts=True)


def test_a_ranking_becomes_json_values(memory_url: str) -> None:
    found = (
        table_of(memory_url, events(2000)).suggest(["a < 90", "b > 910"], layouts=True).to_dict()["layouts"]
    )
    assert (found["block_count"], found["row_count"], found["left_out"]) == (14, 2000, "")
    first = found["candidates"][0]
    assert set(first) == {"key", "kind", "read_share", "error", "average_read_share"}
    assert len(first["read_share"]) == 2
    assert table_of(f"{memory_url}/b", events(10)).suggest(["a = 5"]).to_dict()["layouts"] is None


def test_the_stated_errors_are_the_measured_ones() -> None:
    text = RESULTS.read_text()
    figures = re.findall(r"^  (\w+) +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)   of ", text, re.MULTILINE)
    measured = {kind: math.ceil(round(float(p90) * 100, 6)) / 100 for kind, p90 in figures}
    assert measured == MEASURED_ERRORS
    assert "MISSED" not in text
