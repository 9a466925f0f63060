"""Policies `size`, `sort-one`, `depth` and `newdata` on Iceberg tables, and on native ones of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidDataError

from .lake import Lake, append, fields

REGIONS = ("ap", "eu", "us")


def native(folder: Path) -> Any:
    """Return a native table in which each append is of one region."""
    table = tblctl.create(folder, "k: int64, region: string", cluster_by="k")
    for begin in range(3):
        for region in REGIONS:
            rows = range(begin, begin + 30, 3)
            table.append(pa.table({"k": pa.array(rows, pa.int64()), "region": [region] * 10}))
    return table


def iceberg(lake: Lake) -> Any:
    """Return an Iceberg table of the same rows, partitioned by region."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = lake.create("t", fields(k=LongType(), region=StringType()), partition_spec=spec)
    for begin in range(3):
        for region in REGIONS:
            append(table, k=[*range(begin, begin + 30, 3)], region=[region] * 10)
    return lake.open("t")


@pytest.fixture(params=["native", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path, lake: Lake) -> Any:
    return native(tmp_path / "t") if request.param == "native" else iceberg(lake)


def keyed(table: Any) -> dict[str, str]:
    return {} if isinstance(table, tblctl.Table) else {"cluster_by": "k"}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"partitions": "ap,us"}, 60),
        ({"partitions": "ap..eu"}, 60),
        ({"partition_regex": "u."}, 30),
        ({"partitions": "nowhere"}, 0),
    ],
    ids=str,
)
def test_size_stitches_the_partitions_that_are_asked_for(
    table: Any, options: dict[str, str], rows: int
) -> None:
    outcome = table.recluster(
        policy="size", options={**options, "partition_column": "region"}, **keyed(table)
    )
    assert outcome.rows == rows
    assert bool(outcome.groups) == bool(rows)


@pytest.mark.parametrize(
    ("policy", "options"),
    [("size", {}), ("depth", {"clustering_depth": 1}), ("newdata", {}), ("sort-one", {})],
)
def test_each_policy_keeps_the_rows_and_comes_to_an_end(
    table: Any, policy: str, options: dict[str, Any]
) -> None:
    outcome = table.recluster(policy=policy, options=options, final=True, **keyed(table))
    foreign = not isinstance(table, tblctl.Table)
    assert bool(outcome.groups) == (policy != "sort-one" or foreign)
    again = table.recluster(policy=policy, options=options, final=True, **keyed(table))
    assert (again.commits, again.rounds) == (0, 0)
    assert table.info(**({"columns": "k"} if foreign else {})).rows == 90


@pytest.mark.parametrize(
    ("whole", "group", "said"),
    [
        ({"snapshot": "12345"}, {}, "made on snapshot '12345', which iceberg://lake/db.t never had"),
        ({}, {"partition": "region=xx"}, "partition is 'region=xx', expected 'region="),
        ({}, {"decoded_bytes": 2**60}, "decoded_bytes is 1152921504606846976, expected"),
        ({}, {"size_bytes": 7}, "size_bytes is 7, expected"),
    ],
    ids=str,
)
def test_an_edited_plan_is_refused(
    lake: Lake, whole: dict[str, Any], group: dict[str, Any], said: str
) -> None:
    made = iceberg(lake).plan("full", cluster_by="k").to_json()
    made["groups"][0] |= group
    with pytest.raises(InvalidDataError, match=said):
        lake.open("t").recluster(tblctl.Plan.from_json(made | whole), cluster_by="k")


def test_a_plan_of_a_snapshot_that_may_have_expired_is_carried_out(lake: Lake) -> None:
    made = iceberg(lake).plan("full", cluster_by="k").to_json()
    table = lake.load("t")
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    plan = tblctl.Plan.from_json(made | {"snapshot": str(first)})
    assert lake.open("t").recluster(plan, cluster_by="k").committed_groups == 3


def test_a_column_that_the_table_does_not_have_is_refused_with_the_nearest_name(table: Any) -> None:
    options = {"partitions": "ap", "partition_column": "regoin"}
    with pytest.raises(tblctl.errors.UnknownColumnError, match="region"):
        table.plan("size", options=options, **keyed(table))


def test_the_command_takes_hudi_s_filters(tmp_path: Path) -> None:
    native(tmp_path / "t")
    words = ["recluster", str(tmp_path / "t"), "--policy", "size", "--partition-column", "region"]
    done = CliRunner().invoke(application, [*words, "--partitions", "us"])
    assert "30 rows" in done.stdout
    refused = CliRunner().invoke(application, [*words, "--recent-days", "3"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--recent-days: expected K:N" in refused.stderr
