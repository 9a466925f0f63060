"""Statistics agree with the rows; pruning by them never loses a row; reports count the rows and bytes read."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import canonical, canonical_values, memory_table, tables
from faults import storage_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predicate_model import KINDS
from profiles import cases

import tblctl
from tblctl.tableformat.keys.order import BOUND_LENGTH
from tblctl.tableformat.model.schema.types import is_orderable
from tblctl.tableformat.model.values import value_to_json, values_from_json
from tblctl.tableformat.native.log.segment_columns import statistic_names
from tblctl.tableformat.native.read.metadata import SegmentSummaries, block_metadata
from tblctl.tableformat.native.read.scan import select_blocks
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage

from ..model.strategies import SCHEMAS
from ..predicate.test_match_and_rows import models, trees
from ..predicate.test_match_and_rows import tables as model_tables

MANY = settings(max_examples=cases(20), suppress_health_check=list(HealthCheck))


def native(table):
    return table._native.storage, table._native.head()


def plain_values(values: list, kind) -> tuple[list, int, int]:
    """Return the values that bounds are taken of, in comparable form, how many are null and how many NaN."""
    present = [value for value in values if value is not None]
    nulls = len(values) - len(present)
    if pa.types.is_floating(kind):
        numbers = [float(value) for value in present]
        return [number for number in numbers if not math.isnan(number)], nulls, sum(map(math.isnan, numbers))
    return [value.encode() if isinstance(value, str) else value for value in present], nulls, 0


def leaf_rows(table: pa.Table, path) -> pa.Array:
    """Return the column at `path`, null where a parent is."""
    column = table.column(path[0]).combine_chunks()
    column = column if isinstance(column, pa.Array) else column.chunk(0)
    for name in path[1:]:
        place = column.type.get_field_index(name)
        column = column.flatten()[place]
    return column


@given(st.data())
@MANY
def test_statistics_equal_what_plain_python_finds_in_the_file(data):
    schema = data.draw(SCHEMAS)
    rows = data.draw(tables(schema, min_rows=1))
    with memory_table(schema, options={"block_rows": 4, "row_group_rows": 2}) as table:
        table.append(rows)
        storage, head = native(table)
        metadata = block_metadata(storage, head)
        everything = table.scan().to_arrow()
        start = 0
        for place, count in enumerate(metadata.row_count.tolist()):
            block = everything.slice(start, count)
            start += count
            for leaf in head.schema.leaves:
                check_leaf(metadata, place, leaf, leaf_rows(block, leaf.path))


def check_leaf(metadata, place, leaf, column):
    found = metadata.column(leaf)
    kind = found.min.type
    values, nulls, nans = plain_values(canonical_values(column), kind)
    assert found.null_count[place] == nulls
    if pa.types.is_floating(kind):
        assert found.nan_count[place] == nans
    low, high = (
        plain_values(canonical_values(end.slice(place, 1)), kind)[0] for end in (found.min, found.max)
    )
    if not is_orderable(leaf.type) or not values:
        assert (low, high) == ([], [])
        return
    exact = metadata.values(f"column_{leaf.id}_exact")[place].as_py()
    if exact:
        assert (low[0], high[0]) == (min(values), max(values))
    else:
        assert low[0] <= min(values)
        assert high[0] >= max(values)
        assert any(len(value) > BOUND_LENGTH for value in values)
        assert (
            max(len(str(bound, "utf8")) if pa.types.is_large_string(kind) else 0 for bound in (low[0],))
            <= BOUND_LENGTH
        )


@given(st.data())
@MANY
def test_a_segments_bounds_contain_those_of_its_blocks(data):
    schema = data.draw(SCHEMAS)
    with memory_table(schema, options={"block_rows": 3}) as table:
        for rows in data.draw(st.lists(tables(schema, min_rows=1, max_rows=6), min_size=1, max_size=5)):
            table.append(rows)
        storage, head = native(table)
        metadata = block_metadata(storage, head)
        summaries = SegmentSummaries(head.segments)
        starts = np.cumsum([0] + [segment.block_count for segment in head.segments])
        for leaf in head.schema.leaves:
            summary = summaries.column(leaf)
            if summary is None:
                assert not is_orderable(leaf.type)
                continue
            blocks = metadata.column(leaf)
            for place in range(len(head.segments)):
                own = slice(starts[place], starts[place + 1])
                kind = blocks.min.type
                lows = plain_values(canonical_values(blocks.min[own.start : own.stop]), kind)[0]
                highs = plain_values(canonical_values(blocks.max[own.start : own.stop]), kind)[0]
                low, high = (
                    plain_values(canonical_values(end.slice(place, 1)), kind)[0]
                    for end in (summary.min, summary.max)
                )
                assert not low or not lows or low[0] == min(lows)
                assert not high or not highs or high[0] == max(highs)
                assert summary.null_count[place] == blocks.null_count[own].sum()


@given(st.data())
@MANY
def test_bounds_survive_their_json_form(data):
    schema = data.draw(SCHEMAS)
    with memory_table(schema) as table:
        table.append(data.draw(tables(schema, min_rows=1)))
        storage, head = native(table)
        metadata = block_metadata(storage, head)
        for leaf in head.schema.leaves:
            bounds = metadata.column(leaf)
            for array in (bounds.min, bounds.max):
                if is_orderable(leaf.type):
                    again = values_from_json([value_to_json(value) for value in array], array.type)
                    assert canonical_values(again) == canonical_values(array)


# -- pruning ----------------------------------------------------------------------------------------------------------


def real_table(rows) -> pa.Table:
    """Return the model's rows as a table of the model's own types, nested fields in their struct, and a number n.

    The number comes last: conditions may be bound to the ids of the model's columns.
    """
    count = len(next(iter(rows.values())))
    columns = {}
    for name, pairs in rows.items():
        kind = KINDS[name]
        if pa.types.is_null(kind.type):
            columns[name] = pa.nulls(count)
            continue
        values = kind.build([raw for raw, _ in pairs], kind.type)
        if "." in name:
            parent, field = name.split(".")
            columns[parent] = pa.StructArray.from_arrays([values], [field])
        else:
            columns[name] = values
    return pa.table(columns | {"n": pa.array(range(count), pa.int64())})


@given(model_tables(max_rows=20), st.lists(trees, min_size=1, max_size=6), st.data())
@settings(max_examples=cases(20), suppress_health_check=list(HealthCheck))
def test_a_scan_with_a_condition_finds_exactly_the_rows_for_which_it_is_true(rows, conditions, data):
    table_rows = real_table(rows)
    key = data.draw(st.sampled_from([[], ["f64"], ["text desc nulls first", "i8"], ["day"]]))
    options = {"block_rows": data.draw(st.sampled_from([3, 7, 50])), "row_group_rows": 2}
    with memory_table(table_rows.schema, cluster_by=key, options=options) as table:
        cut = data.draw(st.integers(0, table_rows.num_rows))
        table.append(table_rows.slice(0, cut))
        table.append(table_rows.slice(cut))
        wanted = models(rows)
        for condition in conditions:
            expected = [place for place, row in enumerate(wanted) if condition.evaluate(row) is True]
            scan = table.scan(condition.expression, columns=["n"])
            found = scan.to_arrow()["n"].to_pylist()
            assert sorted(found) == expected, condition.expression
            explained = scan.explain()
            assert explained.blocks_total == explained.blocks_pruned + explained.blocks_read


def test_row_group_statistics_bound_the_rows_of_every_type():
    count = 24
    columns = {"n": pa.array(range(count))}
    for name, kind in KINDS.items():
        if "." not in name and kind.values:
            raws = [kind.values[i * len(kind.values) // count][0] for i in range(count)]
            columns[name] = kind.build(raws, kind.type)
    data = pa.table(columns)
    with memory_table(data.schema, options={"row_group_rows": 4}) as table:
        table.append(data)
        storage, head = native(table)
        (address,) = select_blocks(storage, head, None).addresses()
        rows = table.scan().to_arrow()
        with BlockFile(storage, address) as file:
            statistics = file.statistics(range(file.metadata.num_row_groups))
            assert statistics.row_count.tolist() == [4] * 6
            for leaf in head.schema.leaves:
                found = statistics.column(leaf)
                if pa.types.is_float16(leaf.type):
                    assert found is None
                    continue
                for group in range(6):
                    column = leaf_rows(rows.slice(group * 4, 4), leaf.path)
                    values, nulls, nans = plain_values(canonical_values(column), found.min.type)
                    low, high = (
                        plain_values(canonical_values(end.slice(group, 1)), end.type)[0]
                        for end in (found.min, found.max)
                    )
                    assert found.null_count[group] == nulls
                    if nans:  # other readers would take the bounds to be of NaN too
                        assert (low, high) == ([], []), leaf.name
                    elif values:
                        assert low[0] <= min(values), leaf.name
                        assert high[0] >= max(values), leaf.name


@pytest.fixture
def stairs():
    """100 rows in 10 blocks of 10 in order of `k`, row groups of 5; `k` is 0 to 99."""
    data = pa.table(
        {"k": range(100), "s": [f"row {i:02d}" for i in range(100)], "f": [i / 2 for i in range(100)]}
    )
    with memory_table(data.schema, cluster_by="k", options={"block_rows": 10, "row_group_rows": 5}) as table:
        table.append(data)
        yield table


@pytest.mark.parametrize(
    ("where", "read", "whole"),
    [
        ("k < 10", 1, 1),
        ("k <= 10", 2, 1),
        ("k between 35 and 52", 3, 1),
        ("k = 1000", 0, 0),
        ("s = 'row 77'", 1, 0),
        ("k >= 0", 10, 10),
        ("f < 5 or k > 94", 2, 1),
        ("not (k < 90)", 1, 1),
        ("k is null", 0, 0),
        ("k in (5, 55, 500)", 2, 0),
        ("s like 'row 3%'", 1, 1),
    ],
)
def test_explain_counts_the_blocks_that_statistics_leave(stairs, where, read, whole):
    explained = stairs.scan(where).explain()
    assert (explained.blocks_total, explained.blocks_pruned) == (10, 10 - read)
    assert (explained.blocks_read, explained.blocks_whole) == (read, whole)
    opened = [
        call for call in storage_calls(lambda: stairs.scan(where).to_arrow()) if call.name.startswith("data/")
    ]
    assert len(opened) == read


def test_explain_counts_the_bytes_of_the_columns_and_blocks_needed(stairs):
    storage = native(stairs)[0]
    everything = stairs.scan().explain()
    assert everything.bytes_total == sum(block.bytes for block in stairs.files())
    sizes = {}
    for block in stairs.files():
        footer = pq.read_metadata(pa.BufferReader(storage.read(block.path)))
        for group in range(footer.num_row_groups):
            for place in range(3):
                chunk = footer.row_group(group).column(place)
                key = chunk.path_in_schema, block.min[0] // 10
                sizes[key] = sizes.get(key, 0) + chunk.total_compressed_size
    assert everything.bytes_to_read == sum(sizes.values())
    assert stairs.scan("k < 20", columns=["s"]).explain().bytes_to_read == sum(
        sizes[name, block] for name in ("k", "s") for block in (0, 1)
    )


def test_whole_segments_are_skipped_by_the_snapshots_summary():
    with memory_table("k: int64, s: string", cluster_by="k", options={"block_rows": 2}) as table:
        for start in (0, 100):
            table.append(
                pa.table({"k": range(start, start + 10), "s": [f"v{start + i:03d}" for i in range(10)]})
            )
        assert len(native(table)[1].segments) == 2
        for where in ("k >= 100", "s >= 'v1'", "k = 104 and s is not null"):
            explained = table.scan(where).explain()
            assert (explained.segments_total, explained.segments_pruned) == (2, 1), where
            assert explained.blocks_total == 10
            assert explained.blocks_pruned >= 5
            calls = storage_calls(lambda where=where: table.scan(where).to_arrow())
            assert len({call.name for call in calls if call.name.startswith("metadata/segments/")}) == 1
        assert table.scan("k < 0").explain().segments_pruned == 2
        assert table.scan("k < 0").to_arrow().num_rows == 0


def test_row_groups_that_cannot_match_are_not_decoded(tmp_path):
    reports = []
    data = pa.table({"k": range(1000), "v": [str(i) for i in range(1000)]})
    tblctl.create(tmp_path / "t", data.schema, cluster_by="k", options={"row_group_rows": 100}).append(data)
    table = tblctl.open(tmp_path / "t", on_scan=reports.append)
    assert table.scan("k = 250").to_arrow().num_rows == 1
    assert [(block.rows_read, block.rows_matched) for block in reports[0].blocks] == [(100, 1)]


# -- limits and reports -----------------------------------------------------------------------------------------------


def test_a_limit_reads_only_blocks_that_it_needs(stairs):
    def blocks_opened(**arguments):
        calls = storage_calls(lambda: stairs.scan(**arguments).to_arrow())
        return len({call.name for call in calls if call.name.startswith("data/")})

    assert stairs.scan(limit=3).to_arrow().num_rows == 3
    assert blocks_opened(limit=3) == 1
    assert blocks_opened(limit=10) == 1
    assert blocks_opened(limit=11) == 2
    assert blocks_opened(limit=0) == 0
    assert stairs.scan(limit=1_000).to_arrow().num_rows == 100
    assert blocks_opened(where="k >= 15", limit=5) == 1  # a block that matches whole is preferred
    assert stairs.scan("k >= 15", limit=5).to_arrow().num_rows == 5
    assert blocks_opened(where="s like '%'", limit=25) == 3
    with pytest.raises(tblctl.errors.InvalidOptionError, match="limit is -1"):
        stairs.scan(limit=-1)


def test_a_limited_scan_returns_matching_rows_only(stairs):
    found = stairs.scan("k in (7, 18, 29, 95)", limit=3).to_arrow()["k"].to_pylist()
    assert len(found) == 3
    assert set(found) <= {7, 18, 29, 95}


def test_a_report_counts_what_the_scan_read(stairs):
    reports = []
    table = tblctl.open(stairs.location, on_scan=reports.append)
    found = table.scan("k between 35 and 52", columns=["s"]).to_arrow()
    (report,) = reports
    assert (report.snapshot, report.where, report.columns) == (2, "k between 35 and 52", ("s",))
    assert (report.blocks_total, report.blocks_pruned, report.blocks_read) == (10, 7, 3)
    assert (report.rows, report.complete) == (18, True)
    by_start = {block.path: block.min[0] for block in table.files()}
    read = {by_start[block.path]: block for block in report.blocks}
    assert {start: (block.rows_read, block.rows_matched) for start, block in read.items()} == {
        30: (5, 5),  # its first row group was skipped
        40: (10, 10),  # matches whole: the condition's column is not even read
        50: (5, 3),
    }
    assert set(read[40].column_bytes) == {"s"}
    assert set(read[30].column_bytes) == {"k", "s"}
    storage = native(table)[0]
    footer = pq.read_metadata(pa.BufferReader(storage.read(read[30].path)))
    assert read[30].column_bytes["s"] == footer.row_group(1).column(1).total_compressed_size
    assert sum(block.bytes_matched for block in report.blocks) >= sum(map(len, found["s"].to_pylist()))
    assert report.seconds >= 0
    assert all(block.cpu_seconds >= 0 and block.io_seconds >= 0 for block in report.blocks)
    assert report.to_dict()["blocks"][0]["path"] in by_start


def test_a_report_of_a_reader_that_gave_up_says_so(stairs):
    reports = []
    table = tblctl.open(stairs.location, on_scan=reports.append)
    reader = table.scan(limit=50).to_reader()
    reader.read_next_batch()
    del reader
    assert [(report.complete, report.blocks_total) for report in reports] == [(False, 10)]
    assert reports[0].blocks_read <= 5, "50 rows of 10 a block"


def test_nothing_is_measured_when_nobody_listens(stairs, monkeypatch):
    def measured(*_):
        raise AssertionError("measured")

    monkeypatch.setattr(BlockFile, "column_bytes", measured)
    assert stairs.scan("k < 20").to_arrow().num_rows == 20
    with pytest.raises(AssertionError, match="measured"):
        tblctl.open(stairs.location, on_scan=print).scan("k < 20").to_arrow()


def test_a_scan_that_reads_no_block_is_reported(stairs):
    reports = []
    assert tblctl.open(stairs.location, on_scan=reports.append).scan("k < 0").to_arrow().num_rows == 0
    assert [(report.blocks_read, report.blocks_pruned, report.rows) for report in reports] == [(0, 10, 0)]


def test_segments_hold_the_statistics_that_are_foreseen(stairs):
    storage, head = native(stairs)
    table = pq.read_table(pa.BufferReader(storage.read(head.segments[0].path)))
    for leaf in head.schema.leaves:
        assert set(statistic_names(leaf)) <= set(table.column_names)
        assert min(table[f"column_{leaf.id}_compressed_bytes"].to_pylist()) > 0
        assert min(table[f"column_{leaf.id}_uncompressed_bytes"].to_pylist()) > 0
    assert isinstance(storage, Storage)
    assert canonical(table.select(["row_count"])) == [(10,)] * 10
