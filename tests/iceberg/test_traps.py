"""Traps of PyIceberg and of Iceberg that no other test shows; docs/reliability.md lists which test shows which."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib.metadata import version as version_of_package
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import DataScan, Table
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl import errors
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.port import BlocksReplacedError

from .lake import Lake, append, fields
from .merging import assert_refused, numbered, paths_of, recluster
from .position_deletes import commit, data_file, entry_of
from .replacing import Meanwhile, after, data_files, ours, port_of, replacement_of, sorted_ids
from .rest_catalog import RestCatalog

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of three overlapping files."""
    made = lake.create("t", fields(id=LongType(), s=StringType()))
    for first in range(3):
        ids = list(range(first, 12, 3))
        append(made, id=ids, s=[str(id_) for id_ in ids])
    return made.refresh()


def test_pyiceberg_is_capped_below_its_next_minor_version() -> None:
    """No name that a REPLACE needs is public. Who raises the cap looks at test_pyiceberg_members.py first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["iceberg"]]
    found = [one for one in map(Requirement, texts) if one.name == "pyiceberg"]
    assert [str(one.specifier) for one in found] == ["<0.13,>=0.12"] * 2
    assert all(version_of_package("pyiceberg") in one.specifier for one in found)


def test_no_operation_plans_files_as_pyiceberg_does(
    table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scans drop sequence numbers, and a REST catalog that plans scans itself drops bounds: manifests are read."""
    monkeypatch.setattr(DataScan, "plan_files", lambda _: pytest.fail("files were planned by PyIceberg"))
    with RestCatalog(lake.catalog) as server:
        options = {"type": "rest", "uri": server.uri, "scan-planning-mode": "server"}
        opened = tblctl.open("iceberg://rest/db.t", catalog_options=options)
        assert opened.info(columns="id").average_depth == 3.0
        assert opened.plan(policy="full", cluster_by="id").groups
        assert opened.recluster(policy="full", cluster_by="id").committed_groups == 1
        assert opened.check(deep=True).ok
        assert opened.gc(keep=1, expire_older_than=0).snapshots_expired
        assert not [request for request in server.requests if "plan" in request]
    monkeypatch.undo()
    assert sorted_ids(table) == list(range(12))


def test_a_commit_makes_objects_of_new_entries_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg's objects cost 150 microseconds an entry; those of other files are copied as they are encoded."""
    table = lake.create(
        "parted",
        fields(id=LongType(), p=LongType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    )
    for number in range(2):
        append(table, id=[10 * number + part for part in range(9)], p=list(range(9)))
    port = port_of(table.refresh())
    base = port.newest()
    change = replacement_of(base, [file for file in data_files(table) if file.partition[0] == 4])
    made: list[Any] = []
    real = ManifestEntry.from_args

    def from_args(*args: Any, **named: Any) -> Any:
        made.append(named)
        return real(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(ManifestEntry, "from_args", from_args)
        patch.setattr(ManifestFile, "fetch_manifest_entry", lambda *_, **__: pytest.fail("read as objects"))
        port.replace(base, change)
    assert len(made) == 1
    assert len(data_files(table)) == 17
    assert sorted_ids(table) == sorted([*range(9), *range(10, 19)])


def test_one_commit_writes_a_manifest_for_each_spec(table: Table) -> None:
    with table.update_spec() as update:
        assert isinstance(update, UpdateSpec)
        update.add_field("id", BucketTransform(1), "b")
    for first in (100, 101):
        append(table, id=[first, first + 2], s=["a", "b"])
    outcome = recluster(table)
    assert (outcome.commits, outcome.committed_groups) == (1, 2)
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    found = {
        manifest.partition_spec_id: [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]
        for manifest in snapshot.manifests(table.io)
        if manifest.added_files_count
    }
    assert {spec: [len(file.partition) for file in files] for spec, files in found.items()} == {
        0: [0],
        1: [1],
    }
    assert found[1][0].partition[0] == 0, "the record of the inputs"
    assert sorted_ids(table) == [*range(12), 100, 101, 102, 103]


@pytest.mark.parametrize("count", [2, 4])
def test_a_file_of_other_rows_than_its_manifest_counts_is_refused(lake: Lake, count: int) -> None:
    """Rows that are stored, deleted ones among them, against rows as planned."""
    table = lake.create("t", fields(id=LongType()))
    append(table, id=[1, 5])
    path = data_file(table, numbered(pa.table({"id": [2, 3, 4]}), [1])).file_path
    commit(table, [entry_of(Path(path.removeprefix("file://")), rows=count)])
    assert_refused(table, path)


def test_a_commit_whose_oldest_new_file_is_gone_is_refused_before_the_catalog_is_asked(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    Path(change.added[0].path.removeprefix("file://")).unlink()
    with pytest.raises(errors.ConflictError, match="is gone, so nothing was committed"):
        port.replace(base, change)
    assert table.refresh().current_snapshot().snapshot_id == int(base.id)  # type: ignore[union-attr]
    assert not ours(table)
    assert sorted_ids(table) == list(range(12))


def test_a_file_that_another_writer_adds_once_more_meanwhile_conflicts(table: Table) -> None:
    """Its rows count twice then, and a replacement would have them once."""
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    change = replacement_of(base, files)
    path = files[0].file_path
    again = entry_of(path, rows=files[0].record_count, size_bytes=files[0].file_size_in_bytes)
    with (
        Meanwhile(table, after(lambda: commit(table.refresh(), [again]))),
        pytest.raises(BlocksReplacedError) as caught,
    ):
        port.replace(base, change)
    assert caught.value.details["paths"] == (path,)
    assert not ours(table)
    assert len(sorted_ids(table)) == 12 + files[0].record_count


def test_a_clock_that_is_behind_makes_no_snapshot_that_is_older_than_the_table(table: Table) -> None:
    """Catalogs and readers refuse such metadata."""
    behind = dataclasses.replace(SYSTEM, now=lambda: SYSTEM.now() - 3600)
    port = IcebergPort.of_table(table, behind).clustered_by("id")
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(table)))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.timestamp_ms >= table.metadata.snapshots[-2].timestamp_ms
    assert sorted_ids(table) == list(range(12))


def test_a_column_that_took_the_name_of_the_key_is_another_key(table: Table) -> None:
    """A counter would give both keys one id, and believe that files are in the order of the new column."""
    recluster(table, "s")

    def owned() -> list[bool]:
        version = port_of(table.refresh(), cluster_by=None).newest()
        found: list[bool] = version.listing(version.sort, None).own.tolist()
        return found

    first = port_of(table, cluster_by=None).newest().sort.id
    assert owned() == [True]
    with table.update_schema() as change:
        change.delete_column("s")
    with table.update_schema() as change:
        change.add_column("s", StringType())
    assert port_of(table.refresh(), cluster_by=None).newest().sort.id != first
    assert owned() == [False]
    with table.transaction() as change:
        change.set_properties({"tblctl.cluster-by": "id"})
    assert owned() == [False]


def test_the_id_of_a_key_is_the_same_whenever_it_is_set_again(table: Table) -> None:
    def id_of(key: str) -> int:
        found: int = port_of(table, cluster_by=key).newest().sort.id
        return found

    ids = [
        id_of(key) for key in ("id", "s", "id, s", "s, id", "id desc", "id nulls first", "truncate(10, id)")
    ]
    assert len(set(ids)) == len(ids)
    with table.transaction() as change:
        change.set_properties({"tblctl.cluster-by": "s"})
    table.refresh()
    assert id_of("id") == ids[0]


def test_a_catalog_in_memory_is_used_by_the_process_that_has_it(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", fields(id=LongType()))
    for first in range(2):
        append(table, id=list(range(first, 10, 2)))
    opened = tblctl.from_iceberg(table)
    assert opened.info(columns="id").average_depth == 2.0
    assert opened.recluster(cluster_by="id", final=True).depth_after == 1.0
    assert opened.gc(keep=1, expire_older_than=0).snapshots_expired
    assert len(paths_of(table)) == 1
    assert sorted_ids(table) == list(range(10))
    options = {"type": "in-memory", "warehouse": f"file://{tmp_path}"}
    assert load_catalog("memory", **options).list_namespaces() == []
    with pytest.raises(errors.TableNotFoundError):
        tblctl.open("iceberg://memory/db.t", catalog_options=options)
