"""Policy `size` where there is no cluster key, or rows get another order: on native and Iceberg tables alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidKeyError, InvalidOptionError

from .lake import Lake, append, fields
from .merging import rows_seen

Make = Callable[..., Any]


class Native:
    """A native table, with what tests ask of it."""

    def __init__(self, folder: Path, cluster_by: str | None, **more: Any) -> None:
        self.table: Any = tblctl.create(
            folder / "t", "k: int64, region: string", cluster_by=cluster_by, options=more
        )

    def append(self, k: list[int], region: list[str]) -> None:
        self.table.append(pa.table({"k": pa.array(k, pa.int64()), "region": region}))

    def rows(self) -> list[tuple[int, str]]:
        """Return the rows as the blocks have them, one after the other."""
        return [(row["k"], row["region"]) for row in self.table.scan().to_arrow().to_pylist()]

    @property
    def key(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.table.cluster_by
        return found

    def set_key(self) -> None:
        self.table.set_cluster_key("k")


class Iceberg:
    """An Iceberg table, with what tests ask of it."""

    def __init__(self, lake: Lake, cluster_by: str | None) -> None:
        self.lake = lake
        properties = {} if cluster_by is None else {"tblctl.cluster-by": cluster_by}
        lake.create("t", fields(k=LongType(), region=StringType()), properties=properties)
        self.table = lake.open("t")

    def append(self, k: list[int], region: list[str]) -> None:
        append(self.lake.load("t"), k=k, region=region)

    def rows(self) -> list[tuple[int, str]]:
        return [(row["k"], row["region"]) for row in self.lake.load("t").scan().to_arrow().to_pylist()]

    @property
    def key(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.table.cluster_by
        return found

    def set_key(self) -> None:
        with self.lake.load("t").transaction() as change:
            change.set_properties({"tblctl.cluster-by": "k"})


@pytest.fixture(params=["native", "iceberg"])
def make(request: pytest.FixtureRequest, tmp_path: Path, lake: Lake) -> Make:
    def made(cluster_by: str | None = None) -> Any:
        return Native(tmp_path, cluster_by) if request.param == "native" else Iceberg(lake, cluster_by)

    return made


def fill(subject: Any, appends: int = 4) -> list[tuple[int, str]]:
    """Append rows that are in no order; return them as they came."""
    came = []
    for number in range(appends):
        k = [number * 7 % 11 + 5, 90 - number, number]
        subject.append(k, ["us", "ap", "eu"])
        came += list(zip(k, ["us", "ap", "eu"], strict=True))
    return came


def in_order_of_append(rows: list[tuple[int, str]], came: list[tuple[int, str]]) -> bool:
    """Return whether the rows of each append follow each other in their order, whatever the order of appends."""
    parts = [tuple(came[at : at + 3]) for at in range(0, len(came), 3)]
    return sorted(tuple(rows[at : at + 3]) for at in range(0, len(rows), 3)) == sorted(parts)


def test_without_a_key_small_blocks_are_stitched_as_they_come(make: Make) -> None:
    subject = make()
    came = fill(subject)
    outcome = subject.table.recluster(policy="size", final=True)
    assert (outcome.blocks_in, outcome.blocks_out, outcome.rows) == (4, 1, 12)
    assert (outcome.depth_before, outcome.depth_after) == (None, None)
    assert in_order_of_append(subject.rows(), came)
    assert subject.key == ()
    assert subject.table.check(deep=True).problems == ()
    again = subject.table.recluster(policy="size", final=True)
    assert (again.rounds, again.commits) == (0, 0)


def test_a_dry_run_without_a_key_says_what_a_recluster_does(make: Make) -> None:
    subject = make()
    fill(subject)
    plan = subject.table.plan(policy="size")
    assert [len(group.blocks) for group in plan.groups] == [4]
    assert (plan.predicted.block_count_before, plan.predicted.block_count_after) == (4, 1)
    assert (plan.predicted.average_depth_after, plan.predicted.unknown_block_count) == (None, 0)
    outcome = subject.table.recluster(tblctl.Plan.from_json(plan.to_json()))
    assert (outcome.committed_groups, outcome.blocks_out) == (1, 1)


def test_other_policies_still_need_a_key_and_say_that_size_does_not(make: Make) -> None:
    subject = make()
    fill(subject, appends=2)
    for policy in ("levels", "full", "runs", "depth", "newdata", "sort-one"):
        with pytest.raises(InvalidKeyError, match=r"no cluster key to recluster by.*--policy size"):
            subject.table.recluster(policy=policy)


def test_a_plan_without_a_key_changes_nothing_once_the_table_has_one(make: Make) -> None:
    subject = make()
    came = fill(subject)
    plan = subject.table.plan(policy="size")
    subject.set_key()
    outcome = subject.table.recluster(plan)
    assert [group.status for group in outcome.groups] == ["conflicted"]
    assert "cluster key was altered" in outcome.groups[0].error
    assert sorted(subject.rows()) == sorted(came)


def test_what_was_stitched_without_a_key_is_clustered_by_one_that_comes_later(make: Make) -> None:
    subject = make()
    came = fill(subject)
    subject.table.recluster(policy="size")
    subject.set_key()
    assert subject.table.recluster(policy="full", final=True).rows == 12
    assert [k for k, _ in subject.rows()] == sorted(k for k, _ in came)


def test_a_block_stitched_without_a_key_keeps_count_of_its_merges(make: Make) -> None:
    subject = make()
    levels = []
    for _ in range(3):
        fill(subject)
        levels += [group.output_level for group in subject.table.plan(policy="size").groups]
        subject.table.recluster(policy="size")
    assert levels == [1, 2, 3], "so that --final ends, however many blocks come out"


@pytest.mark.parametrize("cluster_by", [None, "k"], ids=["no key", "key"])
def test_sort_columns_give_an_order_that_is_not_the_table_s_key(make: Make, cluster_by: str | None) -> None:
    subject = make(cluster_by)
    came = fill(subject)
    options = {"sort_columns": "region desc, k"}
    outcome = subject.table.recluster(policy="size", options=options, final=True)
    assert (outcome.blocks_in, outcome.blocks_out) == (4, 1)
    assert subject.rows() == sorted(sorted(came), key=lambda row: row[1], reverse=True)
    assert subject.key == (() if cluster_by is None else ("k",))
    assert subject.table.check(deep=True).problems == ()
    again = subject.table.recluster(policy="size", options=options, final=True)
    assert (again.rounds, again.commits) == (0, 0)


@pytest.mark.parametrize("cluster_by", [None, "k"], ids=["no key", "key"])
def test_blocks_in_the_order_of_sort_columns_are_stitched_again_and_counted(
    make: Make, cluster_by: str | None
) -> None:
    subject = make(cluster_by)
    options, levels = {"sort_columns": "region"}, []
    for _ in range(3):
        fill(subject)
        levels += [g.output_level for g in subject.table.plan(policy="size", options=options).groups]
        subject.table.recluster(policy="size", options=options)
    assert levels == [1, 2, 3]
    assert [region for _, region in subject.rows()] == ["ap"] * 12 + ["eu"] * 12 + ["us"] * 12


@pytest.mark.parametrize("cluster_by", [None, "k"], ids=["no key", "key"])
def test_a_plan_carries_the_order_of_sort_columns(make: Make, cluster_by: str | None) -> None:
    subject = make(cluster_by)
    fill(subject)
    plan = subject.table.plan(policy="size", options={"sort_columns": "region"})
    assert len(plan.sorts) == 1
    outcome = subject.table.recluster(tblctl.Plan.from_json(plan.to_json()))
    assert [group.status for group in outcome.groups] == ["committed"]
    assert [region for _, region in subject.rows()] == ["ap"] * 4 + ["eu"] * 4 + ["us"] * 4


@pytest.mark.parametrize(
    ("cluster_by", "columns", "warns"), [(None, "region", 0), ("k", "k", 0), ("k", "region", 1)]
)
def test_who_takes_blocks_out_of_the_order_of_the_key_is_warned_before(
    make: Make, caplog: pytest.LogCaptureFixture, cluster_by: str | None, columns: str, warns: int
) -> None:
    subject = make(cluster_by)
    fill(subject)
    for act in (subject.table.plan, subject.table.recluster):
        caplog.clear()
        act(policy="size", options={"sort_columns": columns})
        said = [text for text in caplog.messages if "they leave the order of the cluster key" in text]
        assert len(said) == warns
        assert not said or "is clustered by k, but the plan sorts 4 blocks by region" in said[0]


def test_sort_columns_that_are_the_key_are_the_key(make: Make) -> None:
    subject = make("k")
    fill(subject)
    plan = subject.table.plan(policy="size", options={"sort_columns": "k"})
    assert (plan.sorts, len(plan.groups)) == ((), 1)
    subject.table.recluster(plan)
    assert subject.table.info().average_depth == 1


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("regoin", InvalidKeyError, "sort_columns 'regoin'.*did you mean 'region'"),
        ("k, k", InvalidKeyError, "given twice"),
        ("k up", InvalidKeyError, "sort_columns 'k up'"),
        (" ", InvalidOptionError, "sort_columns is empty"),
    ],
)
def test_sort_columns_that_are_wrong_are_refused(
    make: Make, text: str, kind: type[Exception], message: str
) -> None:
    subject = make()
    came = fill(subject, appends=2)
    with pytest.raises(kind, match=message):
        subject.table.recluster(policy="size", options={"sort_columns": text})
    assert len(subject.rows()) == len(came)


def test_native_blocks_in_other_orders_are_left_to_them(tmp_path: Path) -> None:
    subject = Native(tmp_path, "k")
    fill(subject)
    subject.table.recluster(policy="size", options={"sort_columns": "region"})
    fill(subject)
    outcome = subject.table.recluster(policy="size", final=True)
    assert (outcome.blocks_in, outcome.blocks_out) == (4, 1)
    assert {item.rule: item.blocks for item in subject.table.plan("size").rejected} == {
        "other_sort": 1,
        "too_few_small": 1,
    }
    by_region = subject.table.recluster(policy="size", options={"sort_columns": "region"}, final=True)
    assert (by_region.blocks_in, by_region.blocks_out) == (2, 1)


def test_a_given_key_and_sort_columns_exclude_each_other(lake: Lake) -> None:
    subject = Iceberg(lake, None)
    fill(subject)
    for act in (subject.table.plan, subject.table.recluster):
        with pytest.raises(InvalidOptionError, match="exclude each other"):
            act(policy="size", options={"sort_columns": "region"}, cluster_by="k")
    assert subject.key == ()


def test_files_in_the_order_of_sort_columns_claim_no_sort_order(lake: Lake) -> None:
    subject = Iceberg(lake, None)
    fill(subject)
    subject.table.recluster(policy="size", options={"sort_columns": "region"})
    (task,) = lake.load("t").scan().plan_files()
    assert task.file.sort_order_id is None
    assert lake.load("t").properties.get("tblctl.cluster-by") is None


def test_partitions_are_stitched_each_by_itself_without_a_key(lake: Lake) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = lake.create("p", fields(k=LongType(), region=StringType()), partition_spec=spec)
    for number in range(4):
        append(table, k=[9 - number, number], region=["ap", "eu"])
    before = rows_seen(lake.load("p"))
    outcome = lake.open("p").recluster(policy="size", final=True)
    assert (outcome.committed_groups, outcome.blocks_in, outcome.blocks_out) == (2, 8, 2)
    assert rows_seen(lake.load("p")) == before


def test_two_hundred_tiny_appends_become_few_blocks_by_the_command(tmp_path: Path) -> None:
    subject = Native(tmp_path, None)
    for number in range(200):
        subject.append([number], ["eu"])
    run = CliRunner().invoke
    location = str(tmp_path / "t")
    refused = run(application, ["recluster", location])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--policy size" in refused.stderr
    done = run(application, ["recluster", location, "--policy", "size", "--final"])
    assert (done.exit_code, done.stdout.splitlines()[0][:36]) == (0, "reclustered 200 rows in 1 round, 1 g")
    assert sorted(k for k, _ in subject.rows()) == list(range(200))
    assert "nothing to do" in run(application, ["recluster", location, "--policy", "size", "--final"]).stdout


def test_several_tasks_keep_the_order_of_rows_across_the_blocks_that_they_write(tmp_path: Path) -> None:
    subject = Native(tmp_path, None, block_rows=10)
    came = fill(subject, appends=12)
    listed = subject.rows()
    outcome = subject.table.recluster(policy="size", final=True)
    assert (outcome.blocks_in, outcome.blocks_out) == (12, 4)
    assert subject.rows() == listed
    assert in_order_of_append(listed, came)


def test_large_row_groups_are_copied_undecoded_without_a_key(tmp_path: Path) -> None:
    subject = Native(tmp_path, None, block_rows=16, row_group_rows=4)
    for number in range(4):
        subject.append([4 * number + at for at in (3, 1, 2, 0)], ["eu", "us", "ap", "eu"])
    listed = subject.rows()
    outcome = subject.table.recluster(policy="size")
    assert (outcome.rows, outcome.groups[0].rows_copied) == (16, 16)
    assert subject.rows() == listed
    assert subject.table.check(deep=True).problems == ()
