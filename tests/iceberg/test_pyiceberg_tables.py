"""Tables that PyIceberg wrote, against the rows in their files (oracle.py)."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.iceberg import files
from tblctl.tableformat.iceberg.entries import read_entries
from tblctl.tableformat.model.cluster_key import Sort, parse_terms

from .lake import Lake, append, fields, version_of
from .oracle import assert_true
from .values import TRANSFORMS, VALUES


def create_and_append(lake: Lake, kind: Any, batches: list[list[Any]], **more: Any) -> Any:
    table = lake.create("t", fields(c=kind), **more)
    for values in batches:
        append(table, c=values)
    return table


@pytest.mark.parametrize("name", VALUES)
def test_bounds_of_every_type_enclose_all_rows(lake: Lake, name: str) -> None:
    kind, values = VALUES[name]
    table = lake.create("t", fields(**{name: kind}))
    for rows in (
        values,
        values[:1],
        values[-2:],
        [*values[1:2], None],
        [None],
        [None, None, *values],
        values[::2],
    ):
        append(table, **{name: rows})
    assert_true(table, name, f"{name} desc", f"{name} nulls first", *TRANSFORMS.get(name, ()))
    opened = lake.open("t")
    assert opened.suggest().total_block_count == 7
    assert opened.plan("full", cluster_by=name).groups
    opened.picture(lake.folder / "t.html", columns=name)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(4)", "truncate(20)", "full"])
@pytest.mark.parametrize("name", ["int", "double", "long_text", "binary"])
def test_bounds_are_true_in_every_metrics_mode(lake: Lake, name: str, mode: str) -> None:
    kind, values = VALUES[name]
    table = lake.create("t", fields(**{name: kind}), properties={"write.metadata.metrics.default": mode})
    for rows in (values, values[:1], values[-1:], [None], [None, *values[1:3]]):
        append(table, **{name: rows})
    assert_true(table, name)
    known = int(version_of(table).listing(sort_by(table, name), None).known.sum())
    assert known == {"none": 0, "counts": 1}.get(mode, known)  # counts show that a column is all null


def sort_by(table: Any, *terms: str) -> Sort:
    return Sort(id=1, terms=parse_terms(list(terms), version_of(table).schema))


def test_text_cut_short_by_the_columns_own_metrics_mode_is_not_exact(lake: Lake) -> None:
    table = lake.create(
        "t",
        fields(s=StringType(), other=StringType()),
        properties={"write.metadata.metrics.column.s": "truncate(4)"},
    )
    append(table, s=["abcdef", "xyz"], other=["abcdef", "xyz"])
    append(table, s=["abcd", "abcd"], other=["q", "q"])
    version = version_of(table)
    listing = version.listing(sort_by(table, "s"), None)
    ends = zip(
        listing.low.column(0).to_pylist(), listing.high.column(0).to_pylist(), listing.exact, strict=True
    )
    assert sorted(ends) == [("abcd", "abcd", True), ("abcd", "xyz", False)]
    assert_true(table, "s", "other")


def test_a_float_of_which_no_nan_was_counted_may_be_nan(lake: Lake) -> None:
    table = create_and_append(lake, DoubleType(), [[1.0, 2.0], [1.0, math.nan], [math.nan]])
    listing = version_of(table).listing(sort_by(table, "c"), None)
    ends = dict(zip(listing.low.column(0).to_pylist(), listing.high.column(0).to_pylist(), strict=True))
    assert math.isnan(ends[1.0])
    assert not listing.exact.any()
    assert_true(table, "c", "c desc")


def test_combined_bounds_of_two_columns_are_not_exact_unless_all_rows_have_one_key(lake: Lake) -> None:
    table = lake.create("t", fields(a=IntegerType(), b=IntegerType()))
    append(table, a=[1, 2], b=[9, 3])  # the least key is (1, 9), not (1, 3)
    append(table, a=[5, 5], b=[7, 7])
    assert_true(table, "a, b", "a desc, b nulls first", "b", "a")
    listing = version_of(table).listing(sort_by(table, "a, b"), None)
    exact = dict(zip(listing.low.column(0).to_pylist(), listing.exact.tolist(), strict=True))
    assert exact == {1: False, 5: True}


def test_nested_columns_are_measured_where_their_bounds_are_known(lake: Lake) -> None:
    inner = StructType(
        NestedField(11, "x", IntegerType()),
        NestedField(12, "y", StructType(NestedField(13, "z", LongType()))),
    )
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", inner),
        NestedField(3, "l", ListType(31, IntegerType(), element_required=False)),
        NestedField(4, "m", MapType(41, StringType(), 42, DoubleType(), value_required=False)),
        NestedField(
            5, "ls", ListType(51, StructType(NestedField(52, "q", IntegerType())), element_required=False)
        ),
    )
    table = lake.create("t", schema)
    row = {"s": {"x": 1, "y": {"z": 2}}, "l": [1, None], "m": [("k", 1.0)], "ls": [{"q": 1}]}
    for first in (0, 5, 9):
        append(
            table,
            id=[first, first + 1, first + 6],
            s=[row["s"], None, {"x": None, "y": None}],
            l=[row["l"], None, []],
            m=[row["m"], None, []],
            ls=[row["ls"], None, []],
        )
    assert_true(table, "id", "s.x", "s.y.z, id")
    info = lake.open("t").info(columns="s.x")
    assert info.unknown_block_count == 3  # PyIceberg gives no bounds of nested columns


def test_nested_columns_with_bounds_are_measured(lake: Lake) -> None:
    table = lake.create(
        "t",
        Schema(
            NestedField(
                1, "s", StructType(NestedField(2, "x", IntegerType()), NestedField(3, "y", LongType()))
            )
        ),
    )
    append(table, s=[None, {"x": None, "y": 1}])
    append(table, s=[None, None])
    assert_true(table, "s.x", "s.y desc")
    assert lake.open("t").info(columns="s.x").unknown_block_count == 0  # all null, and counted


def test_a_table_without_snapshots_has_no_files(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType()))
    opened = lake.open("t")
    assert_true(table, "id")
    assert opened.info(columns="id").total_block_count == 0
    assert opened.plan(cluster_by="id").groups == ()
    assert [item.operation for item in opened.history()] == ["create"]
    assert opened.suggest().total_block_count == 0
    assert opened.check().ok
    assert opened.snapshot.rows == 0


def test_files_without_rows_are_left_out(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType()))
    append(table, id=[1, 2])
    empty = lake.folder / "empty.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), empty)
    table.add_files([str(empty)])
    assert_true(table, "id")
    assert lake.open("t").info(columns="id").total_block_count == 1


def test_files_without_field_ids_are_measured_by_the_bounds_that_were_added(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType(), s=StringType()))
    for place, ids in enumerate(([1, 5], [3, None], [9, 9])):
        path = lake.folder / f"{place}.parquet"
        pq.write_table(pa.table({"s": ["a", "b" * 20], "id": pa.array(ids, pa.int64())}), path)
        table.add_files([str(path)])
    assert_true(table, "id", "s", "id desc, s")
    assert lake.open("t").info(columns="id").average_depth == 2.0


def test_a_file_that_the_table_has_twice_is_measured_and_never_planned(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    append(table, id=[1, 9])
    append(table, id=[2, 8])
    path = lake.folder / "twice.parquet"
    pq.write_table(pa.table({"id": [3, 7]}), path)
    for _ in range(2):
        table.add_files([str(path)], check_duplicate_files=False)
    opened = lake.open("t")
    found = opened.info()
    assert (found.total_block_count, found.rows, found.average_depth) == (4, 8, 4.0)
    for plan in (opened.plan("full"), opened.plan("full", cluster_by="id desc")):
        assert sorted(len(group.blocks) for group in plan.groups) == [2]
        assert not any("twice" in path for group in plan.groups for path in group.blocks)
        assert [(item.rule, item.blocks) for item in plan.rejected][:1] == [("listed_twice", 2)]
        assert (plan.predicted.block_count_before, plan.predicted.average_depth_before) == (4, 4.0)
    decoded = []
    monkeypatch.setattr(
        files, "read_entries", lambda *words, **more: decoded.extend(words[0]) or read_entries(*words, **more)
    )
    opened.plan("full", cluster_by="id desc")
    assert len(decoded) == 4, "manifests are decoded once for each plan"


SPEC_ROWS = {
    "id": list(range(8)),
    "region": ["eu", "us", None, "eu", "a/b=c", "us", "eu", None],
    "ts": [datetime.datetime(2024, 1, 1 + place % 3, place) for place in range(8)],
}
SPEC_SCHEMA = fields(id=LongType(), region=StringType(), ts=TimestampType())


@pytest.mark.parametrize(
    "parts",
    [
        [("region", 2, IdentityTransform())],
        [("ts_day", 3, DayTransform())],
        [("id_bucket", 1, BucketTransform(3))],
        [("region_trunc", 2, TruncateTransform(1)), ("ts_month", 3, MonthTransform())],
        [("id_trunc", 1, TruncateTransform(4))],
        [("gone", 2, VoidTransform())],
    ],
    ids=lambda parts: "+".join(name for name, *_ in parts),
)
def test_partitions_share_no_overlap(lake: Lake, parts: list[Any]) -> None:
    spec = PartitionSpec(
        *(
            PartitionField(source, 1000 + place, change, name)
            for place, (name, source, change) in enumerate(parts)
        )
    )
    table = lake.create("t", SPEC_SCHEMA, partition_spec=spec)
    for _ in range(2):
        append(table, **SPEC_ROWS)
    assert_true(table, "id", "ts desc", "region, id")
    plan = lake.open("t").plan("full", cluster_by="id")
    partitions = {group.partition for group in plan.groups}
    assert len(plan.groups) == 0 or all(name.startswith(parts[0][0]) for name in partitions)


def test_partitions_of_values_that_look_alike_stay_apart(lake: Lake) -> None:
    spec = PartitionSpec(
        *(PartitionField(place, 1000 + place, IdentityTransform(), f"p{place}") for place in (1, 2))
    )
    table = lake.create("t", fields(a=StringType(), b=StringType(), id=LongType()), partition_spec=spec)
    pairs = [
        (None, "x"),
        ("null", "x"),
        ("None", "x"),
        ("", "x"),
        ("1/p2=2", "3"),
        ("1", "2/p2=3"),
        ("x (spec 0)", ""),
    ]
    for _ in range(2):
        append(table, a=[a for a, _ in pairs], b=[b for _, b in pairs], id=list(range(len(pairs))))
    assert_true(table, "id")
    assert len(set(version_of(table).partitions.texts)) == len(pairs)


def test_files_of_an_old_spec_stay_in_it(lake: Lake) -> None:
    table = lake.create("t", SPEC_SCHEMA)
    append(table, **SPEC_ROWS)
    with table.update_spec() as update:
        update.add_identity("region")
    append(table, **SPEC_ROWS)
    with table.update_spec() as update:
        update.remove_field("region")
        update.add_field("id", BucketTransform(2), "b")
    append(table, **SPEC_ROWS)
    append(table, **SPEC_ROWS)
    assert_true(table, "id", "ts")


def test_a_dropped_partition_column_keeps_its_partitions(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = lake.create("t", SPEC_SCHEMA, partition_spec=spec)
    append(table, **SPEC_ROWS)
    with table.update_spec() as update:
        update.remove_field("region")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("region")
    append(table, id=[1, 2], ts=SPEC_ROWS["ts"][:2])
    assert_true(table, "id")
    assert lake.open("t").info(columns="id", worst=9).total_block_count == 5


def test_columns_are_found_by_id_through_every_change_of_the_schema(lake: Lake) -> None:
    schema = fields(id=IntegerType(), f=FloatType(), d=DecimalType(9, 2), gone=StringType(), s=StringType())
    table = lake.create("t", schema)
    old = {
        "id": [1, 5],
        "f": [0.1, 2.5],
        "d": [Decimal("1.28"), Decimal("-5.00")],
        "gone": ["a", "b"],
        "s": ["x", "y"],
    }
    append(table, **old)
    append(table, **(old | {"id": [-3, 2], "f": [math.nan, -0.0]}))
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(18, 2))
        update.delete_column("gone")
        update.rename_column("s", "renamed")
        update.add_column("gone", IntegerType())
        update.add_column("late", StructType(NestedField(1, "x", LongType())))
        update.move_first("d")
    new = {"id": [2**40, 3], "f": [0.1, 1e300], "d": [Decimal("9999999999.99"), None], "renamed": ["x", "z"]}
    append(table, **new, gone=[1, 2], late=[{"x": 1}, None])
    assert_true(table, "id", "f", "d", "renamed", "gone", "late.x", "id desc, gone")
    assert lake.open("t").info(columns="gone").unknown_block_count == 2
    before = lake.open("t", as_of=table.history()[0].snapshot_id)
    assert before.schema.names == ["id", "f", "d", "gone", "s"]
    assert before.info(columns="gone").unknown_block_count == 0


ORDERED = {"id": [3, 1, None], "s": ["b" * 20, "a", None], "ts": [*SPEC_ROWS["ts"][:2], None]}
ORDERED_SCHEMA = fields(id=LongType(), s=StringType(), ts=TimestampType())


def order_of(*parts: tuple[int, Any, SortDirection, NullOrder]) -> SortOrder:
    return SortOrder(
        *(SortField(source, change, direction, nulls) for source, change, direction, nulls in parts)
    )


def test_the_sort_order_is_the_cluster_key_with_its_transforms_directions_and_nulls(lake: Lake) -> None:
    asc, desc, first, last = (
        SortDirection.ASC,
        SortDirection.DESC,
        NullOrder.NULLS_FIRST,
        NullOrder.NULLS_LAST,
    )
    order = order_of(
        (3, DayTransform(), desc, first),
        (1, IdentityTransform(), asc, last),
        (2, TruncateTransform(4), asc, first),
    )
    table = lake.create("t", ORDERED_SCHEMA, sort_order=order)
    append(table, **ORDERED)
    append(table, **ORDERED)
    assert lake.open("t").cluster_by == ("day(ts) desc nulls first", "id", "truncate(4, s) nulls first")
    assert lake.open("t").info().average_depth == 2.0
    assert_true(table)


def test_terms_that_tblctl_cannot_sort_by_end_the_key(lake: Lake) -> None:
    asc, first = SortDirection.ASC, NullOrder.NULLS_FIRST
    order = order_of(
        (1, IdentityTransform(), asc, first),
        (2, VoidTransform(), asc, first),
        (3, IdentityTransform(), asc, first),
    )
    append(lake.create("t", ORDERED_SCHEMA, sort_order=order), **ORDERED)
    assert lake.open("t").cluster_by == ("id nulls first",)


def test_an_order_by_nothing_that_tblctl_can_sort_by_is_no_cluster_key(lake: Lake) -> None:
    order = order_of((2, VoidTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST))
    append(lake.create("t", ORDERED_SCHEMA, sort_order=order), **ORDERED)
    opened = lake.open("t")
    assert opened.cluster_by == ()
    with pytest.raises(InvalidKeyError, match=r"no cluster key .*--columns a,b.*WRITE ORDERED BY") as caught:
        opened.info()
    assert "tblctl alter" not in str(caught.value)
    with pytest.raises(InvalidKeyError, match="no cluster key"):
        opened.plan()
    assert [len(group.blocks) for group in opened.plan("full", cluster_by=["id"]).groups] == [1]


def test_the_property_takes_the_place_of_the_sort_order(lake: Lake) -> None:
    order = order_of((1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST))
    properties = {"tblctl.cluster-by": "day(ts) desc, s"}
    table = lake.create("t", ORDERED_SCHEMA, sort_order=order, properties=properties)
    append(table, **ORDERED)
    assert lake.open("t").cluster_by == ("day(ts) desc", "s")
    assert_true(table)


def test_an_invalid_property_is_named_and_stops_only_what_needs_it(lake: Lake) -> None:
    table = lake.create("t", ORDERED_SCHEMA, properties={"tblctl.cluster-by": "id, nothing"})
    append(table, **ORDERED)
    opened = lake.open("t")
    for use in (opened.info, opened.plan, lambda: opened.cluster_by):
        with pytest.raises(
            InvalidKeyError, match=r"property tblctl.cluster-by is 'id, nothing'.*correct the property"
        ):
            use()
    assert opened.info(columns="id").total_block_count == 1
    assert opened.plan(cluster_by="id") is not None
    assert opened.history()[0].cluster_by is None
    assert opened.check().ok


def test_a_key_of_a_column_that_older_snapshots_lack_does_not_stop_the_history(lake: Lake) -> None:
    table = lake.create("t", ORDERED_SCHEMA)
    append(table, **ORDERED)
    with table.update_schema() as update:
        update.add_column("late", LongType())
    with table.transaction() as change:
        change.set_properties({"tblctl.cluster-by": "late"})
    append(table, **ORDERED, late=[1, 2, 3])
    assert [item.cluster_by for item in lake.open("t").history()] == [("late",), ()]


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_deletes_and_overwrites_leave_only_live_files(lake: Lake, format_version: str) -> None:
    table = lake.create("t", ORDERED_SCHEMA, properties={"format-version": format_version})
    assert table.format_version == int(format_version)
    for first in range(4):
        append(table, id=[first, first + 1, first + 2], s=["a", "b", None], ts=ORDERED["ts"])
    table.delete(EqualTo("id", 2))  # rewrites files
    table.delete(GreaterThanOrEqual("id", 4))
    table.overwrite(table.scan().to_arrow().slice(0, 1), overwrite_filter=EqualTo("id", 1))
    assert_true(table, "id", "s", "ts desc")
    for entry in table.history():
        old = version_of(table)
        assert_true(table, "id", version=old.at(old.metadata.snapshot_by_id(entry.snapshot_id)))
