"""The grid of queries that layouts are compared by: the bound, and that no file with matching rows is skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.merging.queries import SELECTIVITIES, Layout, Query, as_numbers, make_queries


def test_the_bound_is_what_a_grid_of_as_many_files_reads() -> None:
    one = Query(selectivity=0.1, ranges={"a": (0, 1)}, shares={"a": 0.1})
    both = Query(selectivity=0.1, ranges={"a": (0, 1), "b": (0, 1)}, shares={"a": 0.1, "b": 0.9})
    assert one.bound(100, 2) == pytest.approx((0.1 * 10 + 1) * 10)
    assert both.bound(100, 2) == pytest.approx((0.1 * 10 + 1) * 10), "at most all slices"


def test_queries_are_as_many_of_each_kind_and_their_shares_are_counted() -> None:
    values = np.random.default_rng(1).zipf(1.5, 5000)
    columns = {"a": values, "b": np.arange(5000)}
    queries = make_queries(columns, 40)
    kinds = [(len(query.ranges), query.selectivity) for query in queries]
    assert sorted(set(kinds)) == [(count, share) for count in (1, 2) for share in SELECTIVITIES]
    assert {kinds.count(kind) for kind in kinds} == {5}
    for query in queries:
        for name, (low, high) in query.ranges.items():
            held = ((columns[name] >= low) & (columns[name] <= high)).mean()
            assert query.shares[name] == pytest.approx(held)
            assert held >= query.selectivity - 1 / 5000
    assert make_queries(columns, 40) == queries


def test_no_file_with_matching_rows_is_skipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    days, parts = rng.integers(8000, 10500, 2000), rng.integers(0, 50, 2000)
    rows = pa.table({"d": pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32()), "p": parts})
    files = [str(tmp_path / f"{number}.parquet") for number in range(10)]
    for number, file in enumerate(files):
        pq.write_table(rows.slice(200 * number, 200).sort_by("d"), file, row_group_size=50)
    layout = Layout(files, ["d", "p"])
    assert list(as_numbers(rows["d"])) == list(days)
    skipped = 0
    for query in make_queries({"d": days, "p": parts}, 80):
        matches = np.ones(2000, bool)
        for name, values in (("d", days), ("p", parts)):
            low, high = query.ranges.get(name, (-1, 1 << 40))
            matches &= (values >= low) & (values <= high)
        read = layout.read_by(query)
        assert not (matches.reshape(10, 200).any(axis=1) & ~read).any()
        skipped += int((~read).sum())
    assert skipped
