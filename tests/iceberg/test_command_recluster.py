"""`tblctl recluster` on Iceberg tables from the command line: what it rewrites, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from tblctl.cli.main import application

from .lake import Lake, append, fields
from .replacing import data_files

LOCATION = "iceberg://lake/db.t"
REGIONS = ("eu", "us", "za")


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of three partitions, of two files each that overlap: ids 0 to 35, a region for every third."""
    made = lake.create(
        "t",
        fields(id=LongType(), region=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
        properties={"commit.retry.min-wait-ms": "1"},
    )
    for parity in range(2):
        ids = [id_ for id_ in range(36) if id_ // 3 % 2 == parity]
        append(made, id=ids, region=[REGIONS[id_ % 3] for id_ in ids])
    return made.refresh()


def recluster(lake: Lake, *words: str, code: int = 0) -> Any:
    options = [
        word for name, value in lake.options.items() for word in ("--catalog-option", f"{name}={value}")
    ]
    command = ["recluster", LOCATION, "--cluster-by", "id", "--policy", "full", "--json", *options, *words]
    result = CliRunner().invoke(application, command)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def paths(table: Table, region: str) -> set[str]:
    return {file.file_path for file in data_files(table) if file.partition[0] == region}


def ids_at(table: Table, ref: str) -> list[int]:
    snapshot = table.refresh().snapshot_by_name(ref)
    assert snapshot is not None
    found: list[int] = sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist())
    return found


def operations(table: Table) -> list[str]:
    """Return what each snapshot of the table did, in the order of the commits."""
    return [found.summary.operation.value for found in table.refresh().snapshots() if found.summary]


def test_a_branch_is_reclustered_alone(lake: Lake, table: Table) -> None:
    main = table.current_snapshot()
    assert main is not None
    table.manage_snapshots().create_branch(main.snapshot_id, "audit").commit()
    rows = table.refresh().scan(row_filter="id >= 34").to_arrow()
    table.append(rows, branch="audit")
    expected = sorted([*range(36), 34, 35])
    assert ids_at(table, "audit") == expected
    outcome = recluster(lake, "--branch", "audit")
    assert (outcome["commits"], outcome["committed_groups"]) == (1, 3)
    assert table.refresh().current_snapshot() == main
    audit = table.snapshot_by_name("audit")
    assert audit is not None
    assert audit.summary is not None
    assert (audit.summary.operation.value, str(audit.snapshot_id)) == ("replace", outcome["snapshot"])
    assert ids_at(table, "audit") == expected
    assert ids_at(table, "main") == list(range(36))
    assert {path for path in map(str, paths(table, "eu")) if "tblctl-" in path} == set()
    assert recluster(lake, "--branch", "audit", "--final")["commits"] == 0
    assert recluster(lake)["commits"] == 1
    assert ids_at(table, "audit") == expected
    assert ids_at(table, "main") == list(range(36))


@pytest.mark.parametrize("words", [(), ("--final",)])
def test_where_rewrites_the_partitions_that_may_match_alone(
    lake: Lake, table: Table, words: tuple[str, ...]
) -> None:
    before = {region: paths(table, region) for region in REGIONS}
    outcome = recluster(lake, "--where", "region in ('eu', 'za')", *words)
    assert outcome["committed_groups"] == 2
    assert paths(table, "us") == before["us"]
    for region in ("eu", "za"):
        assert len(paths(table, region)) == 1
        assert not paths(table, region) & before[region]
    assert ids_at(table, "main") == list(range(36))


def test_commits_in_between_are_snapshots_of_their_own(lake: Lake, table: Table) -> None:
    outcome = recluster(lake, "--commit-every", "1")
    assert (outcome["commits"], outcome["committed_groups"]) == (3, 3)
    assert operations(table) == ["append", "append", "replace", "replace", "replace"]
    assert ids_at(table, "main") == list(range(36))


def test_what_was_committed_stays_if_a_later_group_conflicts(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = SqlCatalog.commit_table, []

    def commit_table(self: SqlCatalog, asked: Table, *more: Any) -> Any:
        calls.append(asked)
        if len(calls) == 2:  # a group was committed; now another writer deletes rows of all others
            monkeypatch.setattr(SqlCatalog, "commit_table", real)
            left = next(region for region in REGIONS if "tblctl-" in min(paths(table, region)))
            lake.load("t").delete(f"id < 6 and region != '{left}'")
        return real(self, asked, *more)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    outcome = recluster(lake, "--commit-every", "1")
    assert (outcome["committed_groups"], outcome["conflicted_groups"]) == (1, 2)
    assert operations(table) == ["append", "append", "replace", "overwrite"]
    done = [region for region in REGIONS if "tblctl-" in min(paths(table, region))]
    assert len(done) == 1
    assert ids_at(table, "main") == [i for i in range(36) if i >= 6 or REGIONS[i % 3] == done[0]]


def test_what_was_committed_stays_if_a_later_group_fails(lake: Lake, table: Table) -> None:
    for path in paths(table, "us"):
        Path(path.removeprefix("file://")).unlink()
    outcome = recluster(lake, "--commit-every", "1", code=1)
    assert (outcome["committed_groups"], outcome["failed_groups"]) == (2, 1)
    assert operations(table) == ["append", "append", "replace", "replace"]
    assert [len(paths(table, region)) for region in REGIONS] == [1, 2, 1]
