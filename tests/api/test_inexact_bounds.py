"""Blocks whose bounds are shortened, missing or null: measured by what is known, or counted apart; never NaN."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.metrics.index import IntervalIndex
from tblctl.metrics.information import ClusteringInfo
from tblctl.metrics.intervals import depths, overlaps
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.port import Replacement

LONG = "x" * 1_200  # longer than any bound
TEXT = pa.schema([("s", pa.string()), ("n", pa.int64())])


def text_table(
    url: str, *blocks: list[str | None], cluster_by: str | None = "s", **options: Any
) -> tblctl.Table:
    table = tblctl.create(url, TEXT, cluster_by=cluster_by, options=options)
    for keys in blocks:
        table.append(pa.table({"s": keys, "n": range(len(keys))}, schema=TEXT))
    return table


def counts(info: ClusteringInfo) -> dict[str, int]:
    """Return the counts of blocks, after checking that every block is counted and no figure is NaN."""
    found = json.loads(json.dumps(info.to_dict(), allow_nan=False))
    measured = sum(found["block_depth_histogram"].values())
    apart = {name: found[f"{name}_block_count"] for name in ("constant", "unclustered", "unknown")}
    assert measured + apart["unclustered"] + apart["unknown"] == found["total_block_count"]
    return {"measured": measured, **apart}


@pytest.fixture(params=["by the key", "by column statistics"])
def measure(request):
    """Measure a table by `s`, both ways."""

    def info(table: tblctl.Table) -> ClusteringInfo:
        return table.info(columns=None if request.param == "by the key" else "s")

    return info


def test_shortened_bounds_are_measured_and_can_only_overlap_more(measure, memory_url):
    # The keys differ, but the bounds show only many times x and the rest.
    table = text_table(memory_url, [f"{LONG}1", f"{LONG}2"], [f"{LONG}3", f"{LONG}4"], ["a", "b"])
    info = measure(table)
    assert counts(info) == {"measured": 3, "constant": 0, "unclustered": 0, "unknown": 0}
    assert (info.average_overlaps, info.average_depth) == (0.6667, 1.6667)


def test_a_shortened_bound_is_not_taken_for_the_only_key(measure, memory_url):
    table = text_table(memory_url, [f"{LONG}1"] * 2, ["a", "a"])
    assert counts(measure(table)) == {"measured": 2, "constant": 1, "unclustered": 0, "unknown": 0}


def test_a_full_block_of_one_long_key_is_marked_as_constant(memory_url):
    table = text_table(memory_url, [LONG] * 4, block_rows=4)
    assert counts(table.info()) == {"measured": 1, "constant": 1, "unclustered": 0, "unknown": 0}


def test_blocks_of_nulls_are_measured_at_the_place_of_nulls(measure, memory_url):
    table = text_table(memory_url, [None, None], [None], ["a", None], ["a", "b"])
    info = measure(table)
    assert counts(info) == {"measured": 4, "constant": 2, "unclustered": 0, "unknown": 0}
    assert dict(info.block_depth_histogram) == {"00002": 1, "00003": 3}


def test_a_column_that_older_blocks_have_not_got_is_null_there(memory_url):
    table = text_table(memory_url, ["a"], ["b"])
    table.add_column("later", "int64")
    table.append(pa.table({"s": ["c"], "n": [1], "later": [5]}))
    info = table.info(columns="later")
    assert counts(info) == {"measured": 3, "constant": 3, "unclustered": 0, "unknown": 0}
    assert info.average_depth == 1.6667


def test_only_nan_is_a_key_like_any_other(memory_url):
    table = tblctl.create(memory_url, "x: float64", cluster_by="x")
    for values in ([float("nan")] * 2, [float("nan"), None], [1.0, 2.0]):
        table.append(pa.table({"x": values}))
    for info in (table.info(), table.info(columns="x")):
        assert counts(info) == {"measured": 3, "constant": 1, "unclustered": 0, "unknown": 0}
        assert info.average_depth == 1.6667


def without_bounds(table: tblctl.Table, *, null_count: int) -> None:
    """Replace the first block by one without bounds in its statistics; a null count of -1 of s is unknown."""
    port = NativePort(table._native)
    version = port.newest()
    column_id = version.schema.leaf("s").id
    path = table.files()[0].path
    builder = port.block_io(version).build(sort=None, level=0, run_id=None)
    rows = table.scan().to_arrow().slice(0, version.row_count([path]))
    builder.adding(rows, [rows.num_rows])()
    (record,) = builder.finish()
    columns = {
        number: dataclasses.replace(
            column,
            min=pa.scalar(None, column.min.type),
            max=pa.scalar(None, column.max.type),
            null_count=null_count if number == column_id else column.null_count,
            exact=False,
        )
        for number, column in record.columns.items()
    }
    added = (dataclasses.replace(record, columns=columns),)
    port.replace(version, Replacement(removed=frozenset([path]), added=added))


@pytest.mark.parametrize("null_count", [-1, 0, 1])
@pytest.mark.parametrize(("others", "average"), [([["b", "d"], ["c", "e"]], 2.0), ([], None)])
def test_blocks_without_bounds_are_counted_apart(others, average, null_count, memory_url):
    table = text_table(memory_url, ["a", "c" if null_count < 1 else None], *others, cluster_by=None)
    without_bounds(table, null_count=null_count)
    info = table.info(columns="s")
    assert counts(info) == {"measured": len(others), "constant": 0, "unclustered": 0, "unknown": 1}
    assert (info.average_depth, info.rows) == (average, 2 * len(others) + 2)


def test_a_block_without_statistics_by_one_column_of_two_is_unknown(memory_url):
    table = text_table(memory_url, ["a", "b"], ["a", "c"])
    info = table.info(columns="s, bucket(4, n)")
    assert counts(info) == {"measured": 0, "constant": 0, "unclustered": 0, "unknown": 2}
    assert (info.average_depth, info.average_overlaps, info.depth.max) == (None, None, None)


def test_a_block_as_wide_as_the_table_is_one_more_at_every_point_of_the_index():
    """This way a caller can count blocks without bounds as overlapping everything."""
    low = np.arange(0, 1000, 10)
    index = IntervalIndex(low, low + 12)
    before = [index.count(point, point) for point in range(1012)]
    wide = index.add(0, 2**63 - 1)
    assert [index.count(point, point) for point in range(1012)] == [depth + 1 for depth in before]
    assert index.overlapping(2**62, 2**62).tolist() == [wide]
    low, high = np.append(low, 0), np.append(low + 12, 2**63 - 1)
    assert (index.overlap_sum, index.depth_sum) == (overlaps(low, high).sum(), depths(low, high).sum())
    index._check()
