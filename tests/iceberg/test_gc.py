"""gc of Iceberg tables: what tblctl left behind, and expired snapshots."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from faults import Faults, inject
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import LongType

import tblctl
from tblctl import errors
from tblctl.cli.main import application
from tblctl.tableformat.iceberg.upkeep import collect
from tests.iceberg.lake import Lake, append, fields, rewrite_metadata
from tests.iceberg.leftovers import named_files
from tests.iceberg.position_deletes import delete_rows, folder_of
from tests.iceberg.replacing import data_files, port_of, replacement_of, sorted_ids

DAY = 86_400


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of two files that tblctl made one of; the old ones are in earlier snapshots."""
    made = lake.create("t", fields(id=LongType()))
    append(made, id=[1, 3])
    append(made, id=[2, 4])
    port = port_of(made)
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(made)))
    return made.refresh()


def run(*words: str) -> Result:
    return CliRunner().invoke(application, list(words))


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def left_behind(
    table: Table, *, days: float, uuid: str | None = None, folder: str = "data", place: Path | None = None
) -> Path:
    """Leave a file of tblctl's that no snapshot names, in a folder of the table or in another place."""
    name = (
        f"tblctl-{uuid or table.metadata.table_uuid.hex}-l0-s000000000001-rab-{os.urandom(16).hex()}.parquet"
    )
    path = (place or folder_of(table) / folder) / name
    path.write_bytes(b"x" * 10)
    age(path, days)
    return path


def everything(table: Table) -> set[Path]:
    return {path for path in folder_of(table).rglob("*") if path.is_file()}


def test_old_files_of_tblctl_that_no_snapshot_names_go(table: Table) -> None:
    for path in everything(table):
        age(path, 30)
    old, young = left_behind(table, days=2), left_behind(table, days=0.5)
    manifest = left_behind(table, days=2, folder="metadata")
    other = left_behind(table, days=9, uuid="0" * 32)
    foreign = folder_of(table) / "data" / "00000-0-someone.parquet"
    foreign.write_bytes(b"y")
    age(foreign, 30)
    before = everything(table)
    opened = tblctl.from_iceberg(table)
    listed = opened.gc(dry_run=True)
    assert everything(table) == before
    done = opened.gc()
    assert before - everything(table) == {old, manifest}
    assert {young, other, foreign} <= everything(table)
    assert listed.objects_deleted == done.objects_deleted
    assert {Path(name.removeprefix("file://")) for name in done.objects_deleted} == {old, manifest}
    assert done.bytes_deleted == 20
    assert done.snapshots_expired == ()
    assert sorted_ids(table) == [1, 2, 3, 4]
    assert opened.gc().objects_deleted == ()


def test_files_of_other_tables_in_a_shared_data_path_stay(lake: Lake, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    properties = {"write.data.path": f"file://{shared}"}
    tables = [lake.create(name, fields(id=LongType()), properties=properties) for name in ("t", "u")]
    for made in tables:
        append(made, id=[1, 2])
    mine, other = (left_behind(made, days=2, place=shared) for made in tables)
    before = set(shared.iterdir())
    tblctl.from_iceberg(tables[0]).gc()
    assert before - set(shared.iterdir()) == {mine}
    assert other.exists()
    assert sorted_ids(tables[1]) == [1, 2]


def test_each_gc_proves_that_it_may_delete_by_the_same_names(table: Table) -> None:
    """No object has them. In a versioned bucket a new name would stay each time, marked as deleted."""
    tried = []
    for _ in range(2):
        left_behind(table, days=2)
        there = {path.name for path in everything(table)}
        with inject(Faults()) as faults:
            port_of(table).collect(DAY, expires=False, age_ms=None, keep=None, dry_run=False)
        deleted = [name for call in faults.calls if call.operation == "delete" for name in call.names]
        tried.append({name for name in deleted if Path(name).name not in there})
    assert tried[0] == tried[1]
    assert tried[0]


def test_what_a_branch_or_a_tag_names_stays(lake: Lake, table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "dev").commit()
    first = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().set_current_snapshot(first).commit()  # type: ignore[attr-defined]
    for path in everything(table):
        age(path, 30)
    assert tblctl.from_iceberg(table.refresh()).gc().objects_deleted == ()
    assert sorted(lake.load("t").scan(snapshot_id=head.snapshot_id).to_arrow()["id"].to_pylist()) == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("given", [3600, "23h"])
def test_a_grace_of_less_than_a_day_is_refused(table: Table, given: Any) -> None:
    with pytest.raises(errors.InvalidOptionError, match="at least 24h"):
        tblctl.from_iceberg(table).gc(older_than=given)


def test_nothing_goes_where_gc_is_not_enabled(table: Table) -> None:
    path = left_behind(table, days=30)
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    for more in ({}, {"keep": 1}, {"dry_run": True}):
        with pytest.raises(errors.InvalidOptionError, match=r"gc\.enabled"):
            tblctl.from_iceberg(table.refresh()).gc(**more)  # type: ignore[arg-type]
    assert path.exists()


@pytest.mark.parametrize("sign", ["property", "alone"])
def test_nothing_goes_where_the_catalog_hides_history(lake: Lake, table: Table, sign: str) -> None:
    path = left_behind(table, days=30)

    def hide(found: dict[str, Any]) -> None:
        if sign == "property":
            found["properties"]["nessie.commit.id"] = "abc"
        else:
            found["snapshots"] = found["snapshots"][-1:]
            found["snapshots"][0].pop("parent-snapshot-id")
            found["snapshot-log"] = found["snapshot-log"][-1:]
            found["metadata-log"] = []

    rewrite_metadata(lake, "t", hide)
    with pytest.raises(errors.InvalidOptionError, match="newest snapshot alone"):
        lake.open("t").gc()
    assert path.exists()


def test_snapshots_expire_and_what_they_alone_needed_goes(table: Table) -> None:
    old = data_files(table)
    port = port_of(table, cluster_by=None)
    entries = [path for path in everything(table) if "tblctl-" not in path.name and path.suffix == ".parquet"]
    assert len(entries) == 2
    opened = tblctl.from_iceberg(table)
    found = opened.gc(keep=1, dry_run=True)
    assert (found.snapshots_expired, found.note) == (
        (),
        (
            "no snapshot expires: of 3, 1 named by branches or tags; 2 too young (history.expire.max-snapshot-age-ms, "
            "--expire-older-than; by default 5 days)"
        ),
    )
    before = table.refresh().metadata
    sizes = {path: path.stat().st_size for path in everything(table)}
    done = opened.gc(keep=1, expire_older_than=0)
    assert table.refresh().metadata.snapshots == [
        snapshot.model_copy(update={"parent_snapshot_id": None}) for snapshot in before.snapshots[-1:]
    ]
    assert done.snapshots_expired == tuple(str(snapshot.snapshot_id) for snapshot in before.snapshots[:-1])
    gone = {Path(name.removeprefix("file://")) for name in done.objects_deleted}
    assert set(entries) <= gone
    assert done.bytes_deleted == sum(sizes[path] for path in gone), "files of other writers count too"
    assert not any(path.exists() for path in gone)
    assert {
        Path(snapshot.manifest_list.removeprefix("file://")) for snapshot in before.snapshots[:-1]
    } <= gone
    assert data_files(table) == old
    assert sorted_ids(table) == [1, 2, 3, 4]
    assert port.newest().listing(port.newest().sort, None).own.all()


@pytest.mark.parametrize(
    ("properties", "more", "left"),
    [
        ({"history.expire.min-snapshots-to-keep": "3"}, {"keep": 1}, 3),
        ({"history.expire.max-snapshot-age-ms": str(DAY * 1000)}, {}, 3),
        ({}, {"keep": 2}, 2),
        ({}, {}, 1),
    ],
)
def test_what_the_table_promises_stays(
    table: Table, properties: dict[str, str], more: dict[str, Any], left: int
) -> None:
    with table.transaction() as change:
        change.set_properties(properties)
    found = tblctl.from_iceberg(table.refresh()).gc(expire_older_than=0, **more)
    assert len(table.refresh().metadata.snapshots) == left
    promised = "min-snapshots-to-keep" if more else "max-snapshot-age-ms"
    assert (promised in found.note) == (found.note != "") == (left == 3)


def test_branches_and_tags_keep_their_snapshots(table: Table) -> None:
    first, second, _ = table.metadata.snapshots
    table.manage_snapshots().create_tag(first.snapshot_id, "v1").commit()
    table.manage_snapshots().create_branch(second.snapshot_id, "dev", min_snapshots_to_keep=1).commit()
    done = tblctl.from_iceberg(table.refresh()).gc(expire_older_than=0)
    assert (done.snapshots_expired, done.note) == (
        (),
        "no snapshot expires: of 3, 3 named by branches or tags",
    )
    assert set(table.refresh().refs()) == {"main", "v1", "dev"}


def test_a_branch_s_own_settings_come_first(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "dev", min_snapshots_to_keep=2).commit()
    tblctl.from_iceberg(table.refresh()).gc(expire_older_than=0, keep=1)
    assert len(table.refresh().metadata.snapshots) == 2


def test_snapshots_that_wait_to_be_published_stay(lake: Lake, table: Table) -> None:
    def wait(found: dict[str, Any]) -> None:
        found["snapshots"][0]["summary"]["wap.id"] = "w"
        for snapshot in found["snapshots"]:
            if snapshot.get("parent-snapshot-id") == found["snapshots"][0]["snapshot-id"]:
                snapshot.pop("parent-snapshot-id")

    rewrite_metadata(lake, "t", wait)
    first = table.metadata.snapshots[0]
    opened = lake.open("t")
    opened.gc(expire_older_than=0, keep=1)
    assert first.snapshot_id in {snapshot.snapshot_id for snapshot in lake.load("t").metadata.snapshots}
    assert sorted(lake.load("t").scan(snapshot_id=first.snapshot_id).to_arrow()["id"].to_pylist()) == [1, 3]


def test_delete_files_go_with_the_last_snapshot_that_names_them(table: Table) -> None:
    file = data_files(table)[0]
    delete_rows(table.refresh(), {file.file_path: [0]})
    port = port_of(table)
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(table), without=[1]))
    deletes = [path for path in everything(table) if path.name.startswith("deletes-")]
    assert len(deletes) == 1
    tblctl.from_iceberg(table.refresh()).gc(expire_older_than=0)
    assert not deletes[0].exists()
    assert sorted_ids(table) == [2, 3, 4]


def test_a_commit_meanwhile_ends_the_expiry(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = table.catalog
    real = type(catalog).commit_table

    def commit_table(*arguments: Any) -> Any:
        monkeypatch.undo()
        append(table.refresh(), id=[9])
        return real(catalog, *arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    before = everything(table)
    with pytest.raises(errors.ConflictError, match="another writer"):
        tblctl.from_iceberg(table).gc(expire_older_than=0)
    assert before <= everything(table)


def test_keys_of_a_snapshot_that_expires_before_a_recluster_commits_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expiry moves no branch, so the recluster goes on, and names the files of keys that it knew."""
    table = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    for ids in ([1, 3], [2, 4]):
        append(table, id=ids)
    assert tblctl.from_iceberg(table).recluster(policy="full").commits == 1
    append(table.refresh(), id=[2, 5])
    catalog = table.catalog
    real = type(catalog).commit_table

    def commit_table(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert tblctl.from_iceberg(lake.load("t")).gc(keep=1, expire_older_than=0).snapshots_expired
        return real(catalog, *arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    assert tblctl.from_iceberg(table.refresh()).recluster(policy="full").commits == 1
    missing = {
        name for name in named_files(lake.load("t")) if not Path(name.removeprefix("file://")).exists()
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("arrives", "answer"),
    [
        (True, TimeoutError("no reply")),
        (True, CommitFailedException("a proxy sent it twice")),
        (True, BadRequestError("there are no such snapshots")),
        (False, TimeoutError("no reply")),
    ],
)
def test_an_expiry_whose_reply_is_lost_deletes_only_if_it_took_place(
    table: Table, monkeypatch: pytest.MonkeyPatch, arrives: bool, answer: Exception
) -> None:
    catalog = table.catalog
    real = type(catalog).commit_table

    def commit_table(*arguments: Any) -> Any:
        monkeypatch.undo()
        if arrives:
            real(catalog, *arguments)
        raise answer

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    before = everything(table)
    old = {path for path in before if "tblctl-" not in path.name and path.suffix == ".parquet"}
    if arrives:
        done = tblctl.from_iceberg(table).gc(expire_older_than=0)
        assert old <= {Path(name.removeprefix("file://")) for name in done.objects_deleted}
        assert not old & everything(table)
    else:
        with pytest.raises(errors.CommitOutcomeUnknownError, match=r"No file was deleted. Run gc again"):
            tblctl.from_iceberg(table).gc(expire_older_than=0)
        assert before <= everything(table)
    assert sorted_ids(table) == [1, 2, 3, 4]


def test_a_tag_that_is_set_while_gc_reads_files_ends_the_expiry(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = table.metadata.snapshots[0].snapshot_id
    real = collect.expired_snapshots

    def expired(*arguments: Any) -> list[int]:
        table.refresh().manage_snapshots().create_tag(oldest, "kept").commit()
        return real(*arguments)

    monkeypatch.setattr(collect, "expired_snapshots", expired)
    with pytest.raises(errors.ConflictError, match="nothing was deleted"):
        tblctl.from_iceberg(table).gc(expire_older_than=0)
    assert table.refresh().refs()["kept"].snapshot_id == oldest


def test_the_command(lake: Lake, table: Table) -> None:
    path = left_behind(table, days=2)
    options = [
        word for name, value in lake.options.items() for word in ("--catalog-option", f"{name}={value}")
    ]
    listed = run("gc", "iceberg://lake/db.t", "--dry-run", *options)
    assert listed.exit_code == 0, listed.stderr
    assert path.name in listed.stdout
    assert "would expire 0 snapshots; would delete 1 object (10 B)" in listed.stdout
    assert path.exists()
    kept = " ".join(run("gc", "iceberg://lake/db.t", "--dry-run", "--keep", "1", *options).stdout.split())
    assert "no snapshot expires: of 3, 1 named by branches or tags; 2 too young" in kept
    done = run("gc", "iceberg://lake/db.t", "--expire-older-than", "0s", "--keep", "1", "--json", *options)
    assert done.exit_code == 0, done.stderr
    assert not path.exists()
    refused = run("gc", str(lake.folder / "nothing"), "--expire-older-than", "1d")
    assert refused.exit_code != 0


def test_a_merge_that_took_too_long_does_not_commit(table: Table) -> None:
    append(table, id=[7])
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    import dataclasses

    begun = int((time.time() - 13 * 3600) * 1000)
    late = dataclasses.replace(change.added[0], run_id=f"{begun:012x}" + "0" * 20)
    with pytest.raises(errors.ConflictError, match="13 hours ago"):
        port.replace(base, dataclasses.replace(change, added=(late,)))
    Path(change.added[0].path.removeprefix("file://")).unlink()
    with pytest.raises(errors.ConflictError, match="is gone"):
        port.replace(base, change)
    assert sorted_ids(table) == [1, 2, 3, 4, 7]
