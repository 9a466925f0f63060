"""Bounds from elsewhere than manifests: from footers, where asked for, and from partitions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidOptionError
from tblctl.tableformat.iceberg.pruning import matching_manifests
from tblctl.tableformat.iceberg.schema import schema_of
from tblctl.tableformat.predicate.nodes import node_of
from tblctl.tableformat.predicate.sql.conditions import parse_where

from .lake import Lake, fields, version_of
from .oracle import assert_true

LONG = "a text of more than sixteen characters, "
NONE = {"write.metadata.metrics.default": "none"}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def create(options: dict[str, str], kind: Any, *, partitioned: bool = False, properties: Any = None) -> Table:
    catalog = load_catalog("lake", type="sql", **options)
    catalog.create_namespace("a")
    schema = Schema(
        NestedField(1, "c", kind, required=False), NestedField(2, "id", LongType(), required=False)
    )
    spec = (
        PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c")) if partitioned else PartitionSpec()
    )
    return catalog.create_table("a.t", schema, partition_spec=spec, properties=properties or {})


def append(table: Table, *values: Any) -> None:
    table.append(pa.table([values, range(len(values))], schema=table.schema().as_arrow()))


def opened(options: dict[str, str], **more: Any) -> tblctl.Table:
    return tblctl.open("iceberg://lake/a.t", catalog_options=options, **more)


def test_long_text_is_told_apart_by_its_footers_only(options: dict[str, str]) -> None:
    table = create(options, StringType())
    for begin in "abc":
        append(table, f"{LONG}{begin}", f"{LONG}{begin}z")
    assert opened(options).info("c").average_depth == 3.0
    refined = opened(options, refine=True)
    assert refined.info("c").average_depth == 1.0
    assert refined.info("c", where=f"c = '{LONG}b'").total_block_count == 1


def test_bounds_that_manifests_lack_are_read_from_footers(options: dict[str, str]) -> None:
    table = create(options, LongType(), properties=NONE)
    append(table, 1, 5)
    append(table, 4, None)
    append(table, None, None)
    assert opened(options).info("c").unknown_block_count == 3
    refined = opened(options, refine=True)
    assert (refined.info("c").unknown_block_count, refined.info("c").average_depth) == (0, 2.0)
    assert refined.info("c", where="c < 4").total_block_count == 1
    assert refined.info("c", where="c is null").total_block_count == 2


@pytest.mark.parametrize("kind", [LongType(), DoubleType(), StringType()])
def test_a_column_that_a_file_lacks_is_null_in_it(lake: Lake, kind: Any) -> None:
    table = lake.create("t", fields(id=LongType()))
    table.append(pa.table({"id": [1, 2]}))
    with table.update_schema() as update:
        update.add_column("late", kind)
    assert lake.open("t").info("late").unknown_block_count == 1
    refined = lake.open("t", refine=True)
    assert (refined.info("late").unknown_block_count, refined.info("late").constant_block_count) == (0, 1)
    assert refined.info("id", where="late is not null").total_block_count == 0


def test_columns_of_partitions_and_of_format_3_may_have_values_that_files_lack(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = lake.create("t", fields(c=LongType(), id=LongType()), partition_spec=spec)
    assert version_of(table)._null_if_absent == {2}
    version = version_of(table)
    version.metadata = SimpleNamespace(format_version=3)
    assert version._null_if_absent == frozenset()


def test_nan_that_nobody_counted_stays_possible(options: dict[str, str]) -> None:
    table = create(options, DoubleType(), properties=NONE)
    append(table, 1.0, float("nan"))
    append(table, 7.0, 8.0)
    assert opened(options, refine=True).info("c").average_depth == 2.0  # the first may reach to NaN, above 8


def test_a_file_whose_footer_cannot_be_read_stays_unknown(options: dict[str, str], tmp_path: Path) -> None:
    table = create(options, LongType(), properties=NONE)
    append(table, 1, 5)
    append(table, 2, 9)
    first, second = sorted(tmp_path.glob("warehouse/**/*.parquet"))
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    found = opened(options, refine=True).info("c")
    assert (found.total_block_count, found.unknown_block_count) == (2, 2)


def test_plans_and_surveys_refine_too(options: dict[str, str]) -> None:
    table = create(options, StringType())
    for begin in "abc":
        append(table, f"{LONG}{begin}", f"{LONG}{begin}z")
    plan = opened(options, refine=True).plan("full", cluster_by="c")  # type: ignore[call-arg]
    assert plan.predicted.average_depth_before == 1.0
    [found] = tblctl.survey(["iceberg://lake/a.t"], columns="c", catalog_options=options, refine=True)
    assert found.info is not None
    assert found.info.average_depth == 1.0


def test_figures_say_how_many_bounds_are_inexact_and_what_to_do(options: dict[str, str]) -> None:
    table = create(options, StringType())
    for begin in "abc":
        append(table, f"{LONG}{begin}", f"{LONG}{begin}z")
    append(table, "short", "text")
    assert opened(options).info("c").inexact_block_count == 3
    assert opened(options).info("c, id").inexact_block_count == 3, "two columns are no truncation"
    assert opened(options).info("c", where="c = 'short'").inexact_block_count == 0
    assert opened(options, refine=True).info("c").inexact_block_count == 0
    plan = opened(options).plan("full", cluster_by="c")  # type: ignore[call-arg]
    assert (plan.predicted.unknown_block_count, plan.predicted.inexact_block_count) == (0, 3)
    assert tblctl.Plan.from_json(plan.to_json()) == plan
    candidates = {item.terms: item for item in opened(options).suggest().candidates}
    assert (candidates["c",].inexact_block_count, candidates["id",].inexact_block_count) == (3, 0)
    assert any("bounds of 3 blocks may be wider" in text for text in candidates["c",].caveats)


def test_the_command_advises_to_refine_only_where_that_helps(options: dict[str, str]) -> None:
    table = create(options, StringType())
    for begin in "abc":
        append(table, f"{LONG}{begin}", f"{LONG}{begin}z")
    words = ["iceberg://lake/a.t", *(f"--catalog-option={key}={value}" for key, value in options.items())]
    by_key = ["--cluster-by", "c", "--dry-run"]
    for command in (["info", "--columns", "c"], ["recluster", *by_key], ["suggest"]):
        found = CliRunner().invoke(application, [command[0], *words, *command[1:]])
        assert "--refine reads them" in found.output, found.output
        refined = CliRunner().invoke(application, [command[0], *words, *command[1:], "--refine"])
        assert "--refine reads" not in refined.output
    found = CliRunner().invoke(application, ["info", *words, "--columns", "c"])
    assert "3 (3 of inexact range)" in found.output
    assert "the bounds of 3 blocks may be wider than the keys" in found.output


def test_native_tables_have_nothing_to_refine(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "id: int64", cluster_by="id")
    with pytest.raises(InvalidOptionError, match="Iceberg"):
        tblctl.open(str(tmp_path / "t"), refine=True)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (LongType(), -5, 7),
        (StringType(), LONG, f"{LONG}z"),
        (BooleanType(), False, True),
        (DateType(), pa.scalar(-3, pa.date32()), pa.scalar(19_000, pa.date32())),
        (TimestampType(), pa.scalar(-3, pa.timestamp("us")), pa.scalar(10**15, pa.timestamp("us"))),
        (DecimalType(9, 2), "-1.25", "3.50"),
        (BinaryType(), b"\0" * 20, b"\0" * 20 + b"\1"),
        (DoubleType(), -1.5, 2.5),
    ],
    ids=lambda value: str(value) if not isinstance(value, bytes) else None,
)
def test_a_column_that_partitions_are_made_of_has_the_partitions_value(
    options: dict[str, str], kind: Any, low: Any, high: Any
) -> None:
    table = create(options, kind, partitioned=True, properties=NONE)
    values = pa.array([_plain(low), _plain(high), _plain(low), None])
    values = values.cast(table.schema().as_arrow().field("c").type)
    table.append(pa.table([values, pa.array(range(4), pa.int64())], schema=table.schema().as_arrow()))
    found = opened(options).info("c", worst=9)
    assert (found.total_block_count, found.unknown_block_count, found.average_depth) == (3, 0, 1.0)
    assert found.constant_block_count == 3
    assert opened(options).info("c", where="c is null").total_block_count == 1


@pytest.mark.parametrize(
    ("kind", "values", "where"),
    [
        (StringType(), [f"{LONG}{number}" for number in range(4)], f"c = '{LONG}2'"),
        (DoubleType(), [0.5, 1.5, 2.5, 3.5], "c = 2.5"),
    ],
    ids=["long text", "floats"],
)
def test_a_partitions_value_takes_the_place_of_inexact_bounds(
    options: dict[str, str], kind: Any, values: list[Any], where: str
) -> None:
    append(create(options, kind, partitioned=True), *values)
    table = opened(options)
    assert table.info("c").constant_block_count == 4
    assert table.info("c", where=where).total_block_count == 1


@pytest.mark.parametrize(
    ("kind", "transform", "term", "values"),
    [
        (TimestampType(), DayTransform(), "day(c)", [0, 5, 86_400_000_000, 3 * 86_400_000_000, None]),
        (TimestampType(), YearTransform(), "year(c) desc", [0, 5, 370 * 86_400_000_000, None]),
        (DateType(), MonthTransform(), "month(c)", [0, 20, 40, 70, None]),
        (LongType(), BucketTransform(4), "bucket(4, c)", [*range(20), None]),
        (StringType(), BucketTransform(3), "bucket(3, c) nulls first", [*map(str, range(20)), None]),
        (LongType(), TruncateTransform(10), "truncate(10, c)", [-15, -3, 7, 9, 12, None]),
        (StringType(), TruncateTransform(2), "truncate(2, c)", ["aaa", "aab", "abc", None]),
        (DecimalType(9, 2), TruncateTransform(50), "truncate(50, c)", ["-1.25", "0.49", "0.50", None]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_key_that_partitions_are_made_of_is_the_partitions_value(
    lake: Lake, kind: Any, transform: Any, term: str, values: list[Any]
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    table = lake.create("t", fields(c=kind, id=LongType()), partition_spec=spec, properties=NONE)
    column = table.schema().as_arrow().field("c").type
    for _ in range(2):
        typed = pa.array(values, pa.int32()) if kind == DateType() else pa.array(values)
        table.append(pa.table([typed.cast(column), range(len(values))], schema=table.schema().as_arrow()))
    assert_true(table, term, f"{term}, id")
    found = lake.open("t").info(term)
    assert (found.unknown_block_count, found.inexact_block_count, found.average_depth) == (0, 0, 2.0)
    assert found.constant_block_count == found.total_block_count


def test_a_bucket_is_one_of_its_numbers_or_that_of_the_only_value(lake: Lake) -> None:
    table = lake.create("t", fields(c=LongType(), id=LongType()))
    for values in ([1, 2, 3], [5, 5, 5], [None, 5, 7], [None] * 3):
        table.append(pa.table([pa.array(values, pa.int64()), range(3)], schema=table.schema().as_arrow()))
    assert_true(table, "bucket(8, c)", "bucket(8, c) desc nulls first", "id, bucket(8, c)")
    found = lake.open("t").info("bucket(8, c)")
    assert (found.unknown_block_count, found.inexact_block_count) == (0, 2)


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


@pytest.mark.parametrize(
    ("kind", "transform", "values", "where", "kept"),
    [
        (LongType(), BucketTransform(4), list(range(40)), "c = 5", 1),
        (LongType(), BucketTransform(4), list(range(40)), "c in (5, 9)", None),
        (LongType(), TruncateTransform(10), list(range(40)), "c = 5", 1),
        (LongType(), TruncateTransform(10), list(range(40)), "c < 12", 2),
        (LongType(), TruncateTransform(10), list(range(40)), "not (c < 12)", 3),
        (LongType(), TruncateTransform(10), list(range(40)), "c = 5 or c = 31", 2),
        (StringType(), TruncateTransform(2), ["aaa", "aab", "abc", "zzz"], "c like 'aa%'", 1),
        (DateType(), MonthTransform(), [0, 20, 40, 70], "c >= date '1970-02-01'", 2),
        (TimestampType(), DayTransform(), [0, 86_400_000_000, 3 * 86_400_000_000], "c < '1970-01-02'", 1),
        (TimestampType(), YearTransform(), [0, 370 * 86_400_000_000], "c is null", 0),
    ],
)
def test_where_leaves_out_partitions_without_bounds_of_columns(
    options: dict[str, str], kind: Any, transform: Any, values: list[Any], where: str, kept: int | None
) -> None:
    catalog = load_catalog("lake", type="sql", **options)
    catalog.create_namespace("a")
    schema = Schema(
        NestedField(1, "c", kind, required=False), NestedField(2, "id", LongType(), required=False)
    )
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    table = catalog.create_table("a.t", schema, partition_spec=spec, properties=NONE)
    typed = pa.array(values).cast(pa.int32() if kind == DateType() else pa.array(values).type)
    column = typed.cast(table.schema().as_arrow().field("c").type)
    table.append(
        pa.table([column, pa.array(range(len(values)), pa.int64())], schema=table.schema().as_arrow())
    )
    found = opened(options).info("id", where=where)
    expected = len(list(table.scan(row_filter=_pyiceberg(where)).plan_files())) if kept is None else kept
    assert found.total_block_count == expected


@pytest.mark.parametrize(
    ("kind", "transform", "values", "where"),
    [
        (LongType(), IdentityTransform(), [1, 2, 3, 4], "c = 3"),
        (LongType(), BucketTransform(64), [1, 2, 3, 4], "c = 3"),
        (LongType(), TruncateTransform(10), [5, 15, 25, 35], "c between 21 and 29"),
        (StringType(), IdentityTransform(), ["a", "b", None, "d"], "c is null"),
        (TimestampType(), DayTransform(), [n * 86_400_000_000 for n in range(4)], "c >= '1970-01-04'"),
    ],
)
def test_info_reads_only_manifests_whose_partitions_may_match(
    lake: Lake, kind: Any, transform: Any, values: list[Any], where: str
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    table = lake.create("t", fields(c=kind, id=LongType()), partition_spec=spec)
    for value in values:
        column = pa.array([value]).cast(table.schema().as_arrow().field("c").type)
        table.append(pa.table([column, pa.array([1])], schema=table.schema().as_arrow()))
    assert_true(table, "id")
    expected = lake.open("t").info("id", where=where)
    assert expected.total_block_count == 1
    plan = lake.open("t").plan("full", where=where, cluster_by="id")
    assert plan.predicted.block_count_before == 1, "a plan's figures are of the partitions that may match"
    version = version_of(table)
    needed = {
        file.manifest_path for file in version.pruned(parse_where(where, version.schema)).data_manifests
    }
    assert len(needed) == 1
    for manifest in version.manifests:
        if manifest.manifest_path not in needed:
            Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert lake.open("t").info("id", where=where) == expected
    assert len(lake.open("t").compare(version.id, version.id, columns="id", where=where)) == 2


def test_manifests_of_floats_and_without_summaries_are_read(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = lake.create("t", fields(c=DoubleType(), id=LongType()), partition_spec=spec)
    for value in (1.0, 2.0, 3.0):  # PyIceberg cannot write a partition of NaN
        table.append(pa.table([pa.array([value]), pa.array([1])], schema=table.schema().as_arrow()))
    assert_true(table, "id")
    version = version_of(table)
    assert version.pruned(parse_where("c > 5", version.schema)).data_manifests == version.data_manifests


@pytest.mark.parametrize(
    ("lower", "upper", "nulls", "kept"),
    [
        (1, 2, False, False),
        (1, 9, False, True),
        (None, None, True, False),
        (None, None, False, True),
        (1, None, True, True),
        (None, 2, True, True),
    ],
)
def test_a_summary_counts_only_if_it_is_complete(
    lower: int | None, upper: int | None, nulls: bool, kept: bool
) -> None:
    iceberg = fields(c=LongType())
    schema = schema_of(iceberg)
    encoded = [None if end is None else end.to_bytes(8, "little") for end in (lower, upper)]
    summary = PartitionFieldSummary(nulls, False, *encoded)
    manifest = SimpleNamespace(partition_spec_id=0, partitions=[summary])
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    node = node_of(parse_where("c = 5", schema), schema)
    found = matching_manifests(node, [manifest], {0: spec}, iceberg)
    assert bool(found) is kept
    assert matching_manifests(node, [manifest], {}, iceberg), "an unknown spec"


def test_conditions_on_an_old_snapshot_are_about_its_columns(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = lake.create("t", fields(c=LongType(), id=LongType()), partition_spec=spec)
    for value in (1, 2):
        table.append(pa.table({"c": [value], "id": [value]}))
    old = table.current_snapshot().snapshot_id
    with table.update_schema() as update:
        update.rename_column("c", "was")
    with table.update_schema() as update:
        update.add_column("c", LongType())
    with table.update_spec() as update:
        update.add_identity("c")
    table.append(pa.table({"was": [7], "id": [3], "c": [1]}))
    assert lake.open("t", as_of=old).info("id", where="c = 2").total_block_count == 1
    assert lake.open("t").info("id", where="c = 1").total_block_count == 3, "old files lack c"


def _pyiceberg(where: str) -> str:
    return where.replace("c in", "c IN")
