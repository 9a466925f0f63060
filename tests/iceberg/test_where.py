"""Plans with a condition read the manifests of partitions that may match, and their figures are of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.iceberg.own_keys import read_side_file, side_files_named
from tblctl.tableformat.iceberg.publish import draft

from .lake import NAME, Lake, append, fields
from .merging import rows_seen
from .position_deletes import commit, delete_rows, entry_of
from .replacing import Meanwhile, after, data_files, port_of, sorted_ids

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
EU = "region = 'eu'"
EVERYTHING = {"policy": "full"}


def rows(region: str, *ids: int) -> dict[str, Any]:
    return {"id": list(ids), "region": [region] * len(ids)}


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table with a manifest for each file: two that overlap in eu, three in us, none that overlap in za."""
    made = lake.create("t", fields(id=LongType(), region=StringType()), partition_spec=BY_REGION)
    made = with_key(made)
    for region, count in (("eu", 2), ("us", 3)):
        for first in range(count):
            append(made, **rows(region, *range(first, 12, count)))
    append(made, **rows("za", 1, 2))
    return made.refresh()


def with_key(table: Table) -> Table:
    with table.transaction() as transaction:
        transaction.set_properties({"tblctl.cluster-by": "id", "format-version": "2"})
    return table


def files_of(table: Table, region: str) -> list[DataFile]:
    return [file for file in data_files(table) if file.partition[0] == region]


def paths_of(table: Table, region: str) -> set[str]:
    return {str(file.file_path) for file in files_of(table, region)}


def manifests_of(table: Table, *regions: str) -> set[str]:
    """Return the paths of the manifests with data files of some partitions."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return {
        manifest.manifest_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if manifest.content == ManifestContent.DATA and entry.data_file.partition[0] in regions
    }


@contextmanager
def reads(table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Gather the paths of the files that are opened."""
    kind, opened = type(table.io), set()
    real = kind.new_input

    def new_input(self: Any, location: str) -> Any:
        opened.add(location)
        return real(self, location)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "new_input", new_input)
        yield opened


PLANS: dict[str, Callable[[Lake], Any]] = {
    "plan": lambda lake: lake.open("t").plan(where=EU, **EVERYTHING).to_json(),
    "plan of the command": lambda lake: command(lake, "plan"),
    "dry run": lambda lake: command(lake, "recluster", "--dry-run"),
    "info": lambda lake: lake.open("t").info(where=EU) and None,
}


def command(lake: Lake, *words: str) -> dict[str, Any]:
    options = [f"--catalog-option={name}={value}" for name, value in lake.options.items()]
    selection = ("--where", EU, "--policy", "full", "--json")
    line = [words[0], f"iceberg://{NAME}/db.t", *words[1:], *selection, *options]
    done = CliRunner().invoke(application, line)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", PLANS)
def test_only_manifests_that_may_match_are_read(
    kind: str, lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = manifests_of(table, "eu", "us", "za")
    with reads(table, monkeypatch) as opened:
        plan = PLANS[kind](lake)
    assert opened & every == manifests_of(table, "eu")
    if plan is not None:
        found = plan["predicted"]
        assert (found["figures_of"], found["block_count_before"]) == ("partitions that may match", 2)
        assert {path for group in plan["groups"] for path in group["blocks"]} == paths_of(table, "eu")


def test_a_recluster_reads_and_changes_partitions_that_may_match_alone(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, others = rows_seen(table), manifests_of(table, "us", "za")
    files = {region: paths_of(table, region) for region in ("eu", "us", "za")}
    with reads(table, monkeypatch) as opened:
        outcome = lake.open("t").recluster(where=EU, final=True, **EVERYTHING)
    assert not opened & others
    assert (outcome.committed_groups, outcome.blocks_in) == (1, 2)
    assert rows_seen(table) == before
    assert manifests_of(table, "us", "za") == others
    assert {region: paths_of(table, region) for region in ("us", "za")} == {
        region: files[region] for region in ("us", "za")
    }
    assert not paths_of(table, "eu") & files["eu"]


def test_all_figures_are_of_the_partitions_that_may_match(lake: Lake, table: Table) -> None:
    opened = lake.open("t")
    depth = opened.info(where=EU).average_depth
    plan = opened.plan(where=EU, **EVERYTHING)
    outcome = opened.recluster(where=EU, **EVERYTHING)
    assert depth == plan.predicted.average_depth_before == outcome.depth_before == 2.0
    assert opened.info(where=EU).average_depth == plan.predicted.average_depth_after == outcome.depth_after
    assert outcome.figures_of == "partitions that may match"
    recorded = opened.history(1)[0].detail["recluster"]
    assert (recorded["depth_before"], recorded["depth_after"]) == (2.0, 1.0)
    assert recorded["figures_of"] == "partitions that may match"
    newest, older = opened.depth_history(2)
    assert newest.average_depth == opened.info().average_depth, "the table's, not those of the recluster"
    assert older.average_depth == round((2 * 2 + 3 * 3 + 1) / 6, 4)


def test_figures_are_the_same_however_files_share_manifests(lake: Lake, table: Table) -> None:
    together = with_key(lake.create("t2", table.schema(), partition_spec=BY_REGION))
    apart = lake.open("t").plan(where=EU, **EVERYTHING).predicted
    for first in range(3):
        regions = ("eu", "us") if first < 2 else ("us", "za")
        found: dict[str, list[Any]] = {"id": [], "region": []}
        for region in regions:
            count = {"eu": 2, "us": 3}.get(region, 1)
            ids = range(first, 12, count) if region != "za" else (1, 2)
            found["id"] += ids
            found["region"] += [region] * len(ids)
        append(together, **found)
    assert len(manifests_of(together, "eu")) == len(
        manifests_of(together, "eu") & manifests_of(together, "us")
    )
    shared = tblctl.from_iceberg(together)
    assert shared.plan(where=EU, **EVERYTHING).predicted == apart
    before = paths_of(together, "us")
    assert shared.recluster(where=EU, **EVERYTHING).depth_after == 1.0
    assert paths_of(together, "us") == before
    assert shared.info(where="region = 'us'").average_depth == 3.0


@pytest.mark.parametrize(("where", "groups"), [(EU, 0), ("region = 'us'", 1), (None, 2)])
def test_a_target_depth_is_that_of_what_is_looked_at(
    where: str | None, groups: int, lake: Lake, table: Table
) -> None:
    target = 2.0 if where else 1.0
    plan = lake.open("t").plan(where=where, policy="full", options={"target_depth": target})
    assert len(plan.groups) == groups


def test_a_condition_that_excludes_all_partitions_is_said(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = manifests_of(table, "eu", "us", "za")
    with reads(table, monkeypatch) as opened:
        outcome = lake.open("t").recluster(where="region = 'nowhere'")
    assert outcome.note == "nothing to do: the condition excludes all partitions"
    assert not opened & every


def test_conditions_on_other_columns_leave_no_partition_out(lake: Lake, table: Table) -> None:
    plan = lake.open("t").plan(where="id > 10", **EVERYTHING)
    assert (plan.predicted.figures_of, plan.predicted.block_count_before) == ("table", 6)


def test_files_of_an_older_spec_are_looked_at_and_those_of_a_newer_one_pruned(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_key(lake.create("t", fields(id=LongType(), region=StringType())))
    for first in range(2):
        append(table, **rows("us", *range(first, 12, 2)))
    with table.update_spec() as update:
        update.add_identity("region")
    table.refresh()
    for region in ("eu", "us"):
        for first in range(2):
            append(table, **rows(region, *range(first, 12, 2)))
    before = rows_seen(table)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    excluded = {
        manifest.manifest_path
        for manifest in snapshot.manifests(table.io)
        if manifest.partition_spec_id == 1 and manifest.partitions[0].upper_bound == b"us"
    }
    assert len(excluded) == 2
    with reads(table, monkeypatch) as opened:
        outcome = lake.open("t").recluster(where=EU, **EVERYTHING)
    assert not opened & excluded
    assert outcome.committed_groups == 1, "bounds of the old spec's files exclude eu"
    assert rows_seen(table) == before
    assert lake.open("t").info(where="region = 'us'").average_depth == 2.0


# -- deletes ------------------------------------------------------------------------------------------------------


def test_deletes_of_other_partitions_stay_and_those_of_inputs_are_applied(lake: Lake, table: Table) -> None:
    eu, us = files_of(table, "eu"), files_of(table, "us")
    delete_rows(table, {str(eu[0].file_path): [0]}, like=eu[0])
    delete_rows(table, {str(us[0].file_path): [0]}, like=us[0])
    before = rows_seen(table)
    outcome = lake.open("t").recluster(where=EU, **EVERYTHING)
    assert (outcome.committed_groups, outcome.rows) == (1, 11)
    assert rows_seen(table) == before
    left = [len(task.delete_files) for task in table.refresh().scan().plan_files()]
    assert sum(left) == 1


def test_a_delete_file_that_also_names_a_file_of_an_unread_manifest_stays(lake: Lake, table: Table) -> None:
    """No reader applies it to another partition by its spec; but some match by path."""
    eu, us = files_of(table, "eu"), files_of(table, "us")
    delete_rows(table, {str(eu[0].file_path): [0], str(us[0].file_path): [0]}, like=eu[0])
    lake.open("t").recluster(where=EU, **EVERYTHING)
    assert deletes_in(table) == 1
    lake.open("t").recluster(**EVERYTHING)
    assert len(sorted_ids(table)) == 12 + 12 + 2 - 1, "the row of us was never deleted by the spec"


def deletes_in(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return sum(
        len(manifest.fetch_manifest_entry(table.io))
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
    )


def test_equality_deletes_of_any_partition_are_refused(lake: Lake, table: Table) -> None:
    us = files_of(table, "us")[0]
    entry = entry_of(
        str(us.file_path), rows=1, size_bytes=us.file_size_in_bytes, like=us, equality_ids=[1],
        content=DataFileContent.EQUALITY_DELETES,
    )  # fmt: skip
    commit(table, [entry], content=ManifestContent.DELETES)
    with pytest.raises(InvalidOptionError, match="1 equality delete files"):
        lake.open("t").recluster(where=EU, **EVERYTHING)


# -- conflicts ----------------------------------------------------------------------------------------------------


def test_a_group_whose_file_left_after_the_plan_is_dropped(lake: Lake, table: Table) -> None:
    with Meanwhile(table, after(lambda: lake.load("t").delete("id = 0 and region = 'eu'"))):
        outcome = tblctl.from_iceberg(table).recluster(where=EU, **EVERYTHING)
    assert (outcome.committed_groups, outcome.conflicted_groups) == (0, 1)
    assert sorted_ids(table) == sorted([*range(1, 12), *range(12), 1, 2])


def test_a_group_that_lost_rows_after_the_plan_is_dropped(lake: Lake, table: Table) -> None:
    eu = files_of(table, "eu")[0]
    with Meanwhile(table, after(lambda: delete_rows(lake.load("t"), {str(eu.file_path): [0]}, like=eu))):
        outcome = tblctl.from_iceberg(table).recluster(where=EU, **EVERYTHING)
    assert (outcome.committed_groups, outcome.conflicted_groups) == (0, 1)


def test_appends_to_all_partitions_do_not_conflict(lake: Lake, table: Table) -> None:
    def write() -> None:
        append(lake.load("t"), **rows("eu", 50))
        append(lake.load("t"), **rows("us", 51))

    before = sorted_ids(table)
    with Meanwhile(table, after(write)):
        outcome = tblctl.from_iceberg(table).recluster(where=EU, **EVERYTHING)
    assert (outcome.committed_groups, outcome.conflicted_groups) == (1, 0)
    assert sorted_ids(table) == sorted([*before, 50, 51])


# -- keys ---------------------------------------------------------------------------------------------------------


def test_keys_of_files_in_unread_manifests_stay_when_files_of_keys_are_joined(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "MOST_SIDE_FILES", 1)
    opened = tblctl.from_iceberg(table)
    opened.recluster(where="region = 'us'", **EVERYTHING)
    opened.recluster(where=EU, **EVERYTHING)
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    (path,) = side_files_named(snapshot)
    held = read_side_file(port_of(table).newest().content_of(path))
    assert isinstance(held, pa.Table)
    assert set(held["path"].to_pylist()) == paths_of(table, "eu") | paths_of(table, "us")


@pytest.mark.parametrize("is_twice", [False, True])
def test_manifests_that_the_plan_did_not_read_are_merged_whole(
    lake: Lake, table: Table, is_twice: bool
) -> None:
    """Also if one lists an input once more, in another partition: then the input stays."""
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    if is_twice:
        file = files_of(table, "eu")[0]
        double = entry_of(
            file.file_path,
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            like=files_of(table, "za")[0],
        )
        commit(table, [double])
    before, every = rows_seen(table), manifests_of(table, "eu", "us", "za")
    outcome = lake.open("t").recluster(where=EU, **EVERYTHING)
    assert outcome.committed_groups == (0 if is_twice else 1)
    assert rows_seen(table) == before
    assert len(manifests_of(table, "eu", "us", "za")) == (len(every) if is_twice else 2)
