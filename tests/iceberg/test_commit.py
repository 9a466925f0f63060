"""A REPLACE commit: what it leaves in the table, and what stands against it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from tblctl import errors
from tblctl.tableformat.port import BlocksReplacedError
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.position_deletes import delete_rows, folder_of
from tests.iceberg.replacing import (
    Meanwhile,
    after,
    data_files,
    ids_of,
    ours,
    port_of,
    replacement_of,
    sorted_ids,
)

IDS = list(range(12))


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of three overlapping files: ids 0, 3, 6, 9; 1, 4, ..; 2, 5, .."""
    made = lake.create(
        "t", fields(id=LongType(), s=StringType()), properties={"commit.retry.min-wait-ms": "1"}
    )
    for first in range(3):
        ids = IDS[first::3]
        append(made, id=ids, s=[str(id_) for id_ in ids])
    return made.refresh()


def entries(table: Table) -> dict[str, Any]:
    """Return the live entries of the newest snapshot by path."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return {
        entry.data_file.file_path: entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def foreign(table: Table) -> list[Any]:
    """Return the data files that tblctl did not write."""
    return [file for file in data_files(table) if "tblctl-" not in file.file_path]


# -- what a commit leaves ---------------------------------------------------------------------------------------


def test_files_are_replaced_and_rows_stay(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    old_snapshot = table.current_snapshot()
    version = port.replace(base, replacement_of(base, files[:2]))
    table.refresh()
    snapshot = table.current_snapshot()
    assert sorted_ids(table) == IDS
    assert snapshot is not None
    assert old_snapshot is not None
    assert str(snapshot.snapshot_id) == version.id
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.parent_snapshot_id == old_snapshot.snapshot_id
    assert snapshot.sequence_number == 4
    found = snapshot.summary.additional_properties
    expected = {
        "added-data-files": "1",
        "deleted-data-files": "2",
        "added-records": "8",
        "deleted-records": "8",
        "total-data-files": "2",
        "total-records": "12",
        "total-delete-files": "0",
        "changed-partition-count": "1",
        "engine-name": "tblctl",
    }
    assert {name: found.get(name) for name in expected} == expected
    size = sum(file.file_size_in_bytes for file in data_files(table))
    assert found["total-files-size"] == str(size)
    assert table.properties["tblctl.cluster-by"] == "id"
    assert sorted(table.scan(snapshot_id=old_snapshot.snapshot_id).to_arrow()["id"].to_pylist()) == IDS


def test_new_files_have_the_planned_sequence_number_and_others_keep_theirs(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    before = entries(table)
    append(table, id=[50], s=["x"])
    port.replace(base, replacement_of(base, files[:2]))
    after_ = entries(table)
    kept = {path for path in before if path in after_}
    assert kept == {files[2].file_path}
    for path in kept:
        for name in ("snapshot_id", "sequence_number", "file_sequence_number"):
            assert getattr(after_[path], name) == getattr(before[path], name), name
    added = [entry for path, entry in after_.items() if "tblctl-" in path]
    assert [(entry.sequence_number, entry.file_sequence_number) for entry in added] == [(3, 5)]


def test_entries_that_are_carried_over_state_what_they_inherited(lake: Lake) -> None:
    table = lake.create("one", fields(id=LongType()))
    partitioned = lake.create(
        "many",
        fields(id=LongType(), p=LongType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    )
    append(table, id=[1])
    append(partitioned, id=[1, 2, 3, 4], p=[0, 0, 1, 2])  # one manifest of three files
    append(partitioned, id=[0], p=[0])
    port = port_of(partitioned)
    base = port.newest()
    files = [file for file in data_files(partitioned) if file.partition[0] == 0]
    before = entries(partitioned)
    port.replace(base, replacement_of(base, files))
    found = {path: entry for path, entry in entries(partitioned).items() if path in before}
    assert len(found) == 2
    for path, entry in found.items():
        assert entry.status == ManifestEntryStatus.EXISTING
        assert entry.sequence_number == before[path].sequence_number == 1
        assert entry.file_sequence_number == 1
        assert entry.snapshot_id == before[path].snapshot_id
    assert sorted_ids(partitioned) == [0, 1, 2, 3, 4]
    append(partitioned, id=[9], p=[0])  # PyIceberg reads what is there, and goes on
    partitioned.delete(EqualTo("id", 4))
    assert sorted_ids(partitioned) == [0, 1, 2, 3, 9]


def test_branches_and_tags_survive(table: Table) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "then").commit()  # type: ignore[union-attr]
    table.manage_snapshots().create_branch(  # type: ignore[union-attr]
        table.current_snapshot().snapshot_id,  # type: ignore[union-attr]
        "dev",
        max_ref_age_ms=10**9,
        max_snapshot_age_ms=10**8,
        min_snapshots_to_keep=3,
    ).commit()
    main = table.refresh().current_snapshot()
    port = port_of(table, branch="dev")
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(table)))
    refs = table.refresh().refs()
    assert table.current_snapshot() == main
    assert refs["then"].snapshot_id == main.snapshot_id  # type: ignore[union-attr]
    dev = refs["dev"]
    assert dev.snapshot_id != main.snapshot_id  # type: ignore[union-attr]
    assert (dev.max_ref_age_ms, dev.max_snapshot_age_ms, dev.min_snapshots_to_keep) == (10**9, 10**8, 3)
    assert sorted(table.scan(snapshot_id=dev.snapshot_id).to_arrow()["id"].to_pylist()) == IDS


def test_files_of_an_old_spec_stay_in_it(table: Table) -> None:
    with table.update_spec() as update:
        assert isinstance(update, UpdateSpec)
        update.add_field("id", BucketTransform(2), "b")
    table.refresh()
    append(table, id=[100, 101], s=["a", "b"])
    port = port_of(table)
    base = port.newest()
    files = [file for file in data_files(table) if file.spec_id == 0]
    port.replace(base, replacement_of(base, files))
    assert sorted_ids(table) == [*IDS, 100, 101]
    assert sorted({file.spec_id for file in data_files(table)}) == [0, 1]
    summary = table.refresh().current_snapshot().summary  # type: ignore[union-attr]
    assert summary["changed-partition-count"] == "1"  # type: ignore[index]


def test_format_version_1(lake: Lake) -> None:
    table = lake.create("old", fields(id=LongType(), s=StringType()), properties={"format-version": "1"})
    append(table, id=[1, 3], s=["a", "b"])
    append(table, id=[2, 4], s=["a", "b"])
    append(table, id=[5], s=["c"])
    port = port_of(table)
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(table)[:2]))
    assert sorted_ids(table) == [1, 2, 3, 4, 5]
    append(table, id=[6], s=["c"])
    assert sorted_ids(table) == [1, 2, 3, 4, 5, 6]
    assert len(data_files(table)) == 3


def test_the_number_of_manifests_stays_bounded(lake: Lake) -> None:
    table = lake.create("long", fields(id=LongType()), properties={"commit.manifest.min-count-to-merge": "5"})
    counts = []
    for number in range(14):
        append(table, id=[number])
        append(table, id=[number + 100])
        port = port_of(table)
        base = port.newest()
        port.replace(base, replacement_of(base, foreign(table)))
        manifests = table.refresh().current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        counts.append(len(manifests))
        for manifest in manifests:
            found = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            by_status = [sum(entry.status == status for entry in found) for status in (0, 1, 2)]
            assert by_status == [
                manifest.existing_files_count,
                manifest.added_files_count,
                manifest.deleted_files_count,
            ]
            live = [entry.sequence_number for entry in found if entry.status != 2]
            assert manifest.min_sequence_number <= min(live, default=10**9)
    assert max(counts) <= 8
    assert sorted_ids(table) == sorted([*range(14), *range(100, 114)])


def test_manifests_are_merged_with_the_bounds_of_their_partitions(lake: Lake) -> None:
    table = lake.create(
        "parted",
        fields(id=LongType(), p=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
        properties={"commit.manifest.min-count-to-merge": "3"},
    )
    for number, p in enumerate(["b", "a", None, "c", "b"]):
        append(table, id=[number], p=[p])
    port = port_of(table)
    base = port.newest()
    files = [file for file in data_files(table) if file.partition[0] == "b"]
    port.replace(base, replacement_of(base, files))
    manifests = table.refresh().current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    assert len(manifests) == 2
    merged = next(manifest for manifest in manifests if manifest.existing_files_count)
    assert merged.partitions is not None
    bounds = merged.partitions[0]
    assert (bounds.lower_bound, bounds.upper_bound, bounds.contains_null) == (b"a", b"c", True)
    assert table.scan(row_filter=EqualTo("p", "a")).to_arrow()["id"].to_pylist() == [1]
    assert sorted_ids(table) == [0, 1, 2, 3, 4]


# -- the keys of its files --------------------------------------------------------------------------------------


def test_keys_of_new_files_come_back(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    port.replace(base, replacement_of(base, files[:2]))
    port.replace(port.newest(), replacement_of(port.newest(), files[2:]))
    for lost in (False, True):
        if lost:  # without the side files the keys are read from footers
            side = list((folder_of(table) / "metadata").glob("tblctl-*-keys.parquet"))
            assert len(side) == 2
            for path in side:
                path.unlink()
        version = port_of(table, cluster_by=None).newest()
        listing = version.listing(version.sort, None)
        assert listing.own.tolist() == [True, True]
        assert listing.exact.all()
        assert listing.level.tolist() == [1, 1]
        assert listing.sort_id.tolist() == [version.sort.id] * 2
        found = dict(zip(listing.low["0"].to_pylist(), listing.high["0"].to_pylist(), strict=True))
        ids = [sorted(file_ids) for file_ids in ids_of(files)]
        joined = sorted(ids[0] + ids[1])
        assert found == {joined[0]: joined[-1], ids[2][0]: ids[2][-1]}
        assert listing.same_key_rows.tolist() == [1, 1]


def test_side_files_are_gathered(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tblctl.tableformat.iceberg.publish.draft.MOST_SIDE_FILES", 3)
    table = lake.create("t", fields(id=LongType()))
    named = []
    for number in range(6):
        append(table, id=[2 * number])
        append(table, id=[2 * number + 1])
        port = port_of(table)
        base = port.newest()
        port.replace(base, replacement_of(base, foreign(table)))
        summary = table.refresh().current_snapshot().summary  # type: ignore[union-attr]
        named.append(len(json.loads(summary["tblctl.keys-files"])))  # type: ignore[index, arg-type]
    assert named == [1, 2, 3, 1, 2, 3]
    monkeypatch.setattr(
        "tblctl.tableformat.iceberg.metadata_files.MetadataFiles.own_keys",
        lambda *_: pytest.fail("footers read"),
    )
    version = port_of(table, cluster_by=None).newest()
    assert version.listing(version.sort, None).own.sum() == len(data_files(table))


# -- what stands against it -------------------------------------------------------------------------------------


def test_appends_meanwhile_are_no_conflict(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    append(table, id=[70], s=["x"])
    with Meanwhile(table, after(lambda: append(table, id=[71], s=["y"]))) as catalog:
        port.replace(base, change)
    assert catalog.calls == 3  # the commit, the append inside it, and the commit again
    assert sorted_ids(table) == [*IDS, 70, 71]
    assert len(data_files(table)) == 3


def test_an_input_that_was_never_there_is_refused(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table)[:1])
    port.replace(base, change)
    before = table.refresh().metadata
    with pytest.raises(BlocksReplacedError) as caught:
        port.replace(port.newest(), change)
    assert caught.value.details["paths"] == tuple(change.removed)
    assert table.refresh().metadata == before


@pytest.mark.parametrize("when", ["before", "between"])
def test_an_input_that_was_deleted_meanwhile_conflicts(table: Table, when: str) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def delete() -> None:
        table.refresh().delete(EqualTo("id", 3))

    acts = [after(delete)] if when == "between" else []
    if when == "before":
        delete()
    with Meanwhile(table, *acts), pytest.raises(BlocksReplacedError) as caught:
        port.replace(base, change)
    assert len(caught.value.details["paths"]) == 1
    assert sorted_ids(table) == [id_ for id_ in IDS if id_ != 3]
    assert not ours(table)


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("bounds", [True, False])
def test_a_new_position_delete_of_an_input_conflicts(table: Table, when: str, bounds: bool) -> None:
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    change = replacement_of(base, files[:2])
    lost = ids_of(files)[0][1]

    def delete() -> None:
        delete_rows(table.refresh(), {files[0].file_path: [1]}, bounds=bounds)

    if when == "before":
        delete()
    with (
        Meanwhile(table, *([after(delete)] if when == "between" else [])),
        pytest.raises(BlocksReplacedError) as caught,
    ):
        port.replace(base, change)
    assert caught.value.details["paths"] == (files[0].file_path,)
    assert sorted_ids(table) == [id_ for id_ in IDS if id_ != lost]
    assert not ours(table)


@pytest.mark.parametrize("bounds", [True, False])
def test_a_new_position_delete_of_other_files_is_no_conflict(table: Table, bounds: bool) -> None:
    port = port_of(table)
    append(table, id=[90, 91], s=["x", "y"])
    base = port.newest()
    files = data_files(table)
    chosen = files[1:3]  # the delete's bounds cover these, its rows do not name them
    change = replacement_of(base, chosen)
    ids = ids_of(files)
    delete_rows(table.refresh(), {files[0].file_path: [0], files[3].file_path: [1]}, bounds=bounds)
    port.replace(base, change)
    assert sorted_ids(table) == sorted({*IDS, 90, 91} - {ids[0][0], ids[3][1]})


def test_a_delete_that_was_applied_and_is_gone_conflicts(table: Table) -> None:
    files = data_files(table)
    delete_rows(table.refresh(), {files[0].file_path: [1]})
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, files, without=[ids_of(files)[0][1]])
    snapshots = table.refresh().metadata.snapshots
    table.manage_snapshots().set_current_snapshot(snapshots[-2].snapshot_id).commit()  # type: ignore[attr-defined]
    with pytest.raises(errors.ConflictError):
        port.replace(base, change)
    assert sorted_ids(table) == IDS


def test_a_rolled_back_branch_conflicts(table: Table) -> None:
    port = port_of(table)
    append(table, id=[55], s=["x"])
    base = port.newest()
    files = data_files(table)
    change = replacement_of(
        base, [file for file, ids in zip(files, ids_of(files), strict=True) if ids != [55]]
    )
    snapshots = table.refresh().metadata.snapshots
    table.manage_snapshots().set_current_snapshot(snapshots[-2].snapshot_id).commit()  # type: ignore[attr-defined]
    with pytest.raises(errors.ConflictError, match="rolled back"):
        port.replace(base, change)
    assert sorted_ids(table) == IDS
    assert not ours(table)


def test_a_table_that_took_the_place_of_another(lake: Lake, table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    lake.catalog.drop_table("db.t")
    new = lake.create("t", fields(id=LongType(), s=StringType()))
    append(new, id=[1], s=["new"])
    with pytest.raises(errors.TableNotFoundError, match="dropped"):
        port.replace(base, change)
    lake.catalog.drop_table("db.t")
    with pytest.raises(errors.TableNotFoundError):
        port.replace(base, change)


# -- deletes ------------------------------------------------------------------------------------------------------


def test_a_delete_file_leaves_with_the_last_data_file_that_it_is_about(table: Table) -> None:
    files = data_files(table)
    ids = ids_of(files)
    delete_rows(table.refresh(), {files[0].file_path: [0], files[1].file_path: [1]})
    delete_rows(table.refresh(), {files[2].file_path: [2]})
    left = sorted({*IDS} - {ids[0][0], ids[1][1], ids[2][2]})
    assert sorted_ids(table) == left
    port = port_of(table)
    for number, (chosen, lost, deletes) in enumerate(
        [(files[:1], ids[0][:1], 2), (files[1:2], ids[1][1:2], 1), (files[2:], ids[2][2:3], 0)]
    ):
        base = port.newest()
        port.replace(base, replacement_of(base, chosen, without=lost))
        assert sorted_ids(table) == left, number
        summary = table.refresh().current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        assert len(port.newest().deletes) == deletes
        assert summary.get("removed-position-delete-files", "0") == ("1" if number else "0")


def test_a_file_whose_rows_are_all_deleted_leaves_without_a_new_one(table: Table) -> None:
    files = data_files(table)
    delete_rows(table.refresh(), {files[0].file_path: [0, 1, 2, 3]})
    lost = ids_of(files)[0]
    port = port_of(table)
    base = port.newest()
    port.replace(base, replacement_of(base, files[:1], without=lost))
    assert sorted_ids(table) == sorted({*IDS} - {*lost})
    assert len(data_files(table)) == 2
    assert len(port.newest().deletes) == 0


def test_records_of_old_snapshots_are_found_in_history(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    port.replace(base, replacement_of(base, data_files(table)))
    entry = next(iter(port.history()))
    assert entry.summary.operation == "recluster"
    assert entry.summary.detail == {"recluster": {"policy": "test"}}


def gone_of(port: Any, base: Any, files: list[Any]) -> list[str]:
    paths = [str(file.file_path) for file in files]
    return sorted(port.gone(base, port.newest(), paths))


def test_the_planned_files_that_left_the_table_are_gone(table: Table) -> None:
    port = port_of(table)
    base, files = port.newest(), data_files(table)
    assert gone_of(port, base, files) == []
    (lost,) = [file for file, ids in zip(files, ids_of(files), strict=True) if 3 in ids]
    table.delete(EqualTo("id", 3))  # PyIceberg writes the file's other rows into a new one
    assert gone_of(port, base, files) == [lost.file_path]
    assert gone_of(port, base, [file for file in files if file != lost]) == []


def test_a_file_that_only_got_a_delete_file_is_not_gone(table: Table) -> None:
    port = port_of(table)
    base, files = port.newest(), data_files(table)
    delete_rows(table.refresh(), {files[0].file_path: [1]})
    assert gone_of(port, base, files) == []


def test_files_whose_entries_another_writer_copied_into_a_new_manifest_are_not_gone(table: Table) -> None:
    port = port_of(table)
    base, files = port.newest(), data_files(table)
    before = {manifest.manifest_path for manifest in base.manifests}
    with table.transaction() as transaction:
        transaction.set_properties(
            {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
        )
    append(table, id=[70], s=["x"])
    assert not before & {manifest.manifest_path for manifest in port.newest().manifests}
    assert gone_of(port, base, files) == []


def test_files_of_a_version_that_was_rolled_back_are_gone(table: Table) -> None:
    port = port_of(table)
    older = data_files(table)
    append(table, id=[55], s=["x"])
    base, files = port.newest(), data_files(table)
    snapshots = table.refresh().metadata.snapshots
    table.manage_snapshots().set_current_snapshot(snapshots[-2].snapshot_id).commit()  # type: ignore[attr-defined]
    (lost,) = [file.file_path for file in files if file not in older]
    assert gone_of(port, base, files) == [lost]


def test_what_is_gone_is_found_in_manifests_that_had_the_files_or_are_new(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_of(table)
    base, files = port.newest(), data_files(table)
    append(table, id=[70], s=["x"])
    newest = port.newest()
    read: list[str] = []
    entries_in = type(newest).entries_in

    def noted(version: Any, manifests: Any) -> Any:
        read.extend(manifest.manifest_path for manifest in manifests)
        return entries_in(version, manifests)

    monkeypatch.setattr(type(newest), "entries_in", noted)
    assert port.gone(base, newest, [files[0].file_path]) == frozenset()
    old = {manifest.manifest_path for manifest in base.manifests}
    assert len(old) == 3
    assert len(old & {*read}) == len({*read} - old) == 1, "its own, and that of the append"
