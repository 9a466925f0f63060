"""Snapshots, branches, tags and time: which version of an Iceberg table is read, and at what cost."""

from __future__ import annotations

import datetime
import functools
import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType

import tblctl
from tblctl.cli.main import application
from tblctl.pictures.depths import depth_history
from tblctl.tableformat.errors import InvalidKeyError, SnapshotNotFoundError

from .lake import Lake, append, fields, rewrite_metadata, version_of, with_snapshots
from .oracle import assert_true


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of four snapshots with one file more each: 0, 1, 2 and 3. Tag `t1` and branch `b1` are at the second."""
    found = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    for number in range(4):
        append(found, id=[number, number + 1])
    second = found.history()[1].snapshot_id
    found.manage_snapshots().create_tag(second, "t1").create_branch(second, "b1").commit()
    return found.refresh()


def ids_of(table: Table) -> list[int]:
    return [entry.snapshot_id for entry in table.history()]


def test_history_lists_the_ancestors_with_their_figures(lake: Lake, table: Table) -> None:
    found = lake.open("t").history()
    assert [item.sequence for item in found] == [str(id_) for id_ in reversed(ids_of(table))]
    assert [(item.operation, item.rows, item.blocks, item.rows_added) for item in found] == [
        ("append", 2 * count, count, 2) for count in (4, 3, 2, 1)
    ]
    assert [item.tags for item in found] == [(), (), ("t1",), ()], "branches are no tags"
    assert [item.options for item in found] == [None] * 4, "properties are not options of tblctl's"
    assert [item.cluster_by for item in found] == [("id",)] * 4
    assert [item.sequence for item in lake.open("t").history(2)] == [item.sequence for item in found[:2]]


def without_totals(metadata: dict[str, Any]) -> None:
    for snapshot in metadata["snapshots"]:
        for key in ("total-records", "total-data-files", "total-files-size"):
            del snapshot["summary"][key]


def test_totals_that_summaries_lack_are_unknown(lake: Lake, table: Table) -> None:
    rewrite_metadata(lake, "t", without_totals)
    newest = lake.open("t").history()[0].to_dict()
    assert [newest[name] for name in ("rows", "blocks", "bytes", "rows_added")] == [None, None, None, 2]
    assert [point.blocks for point in lake.open("t").depth_history()] == [None] * 4
    words = [f"--catalog-option={key}={value}" for key, value in lake.options.items()]
    text = CliRunner().invoke(application, ["history", "iceberg://lake/db.t", *words]).output
    assert text.splitlines()[2].split()[-3:] == ["?", "?", "?"]
    assert "?" in CliRunner().invoke(application, ["info", "--history", "iceberg://lake/db.t", *words]).output
    survey = functools.partial(tblctl.survey, ["iceberg://lake/db.t"], catalog_options=lake.options)
    assert (survey()[0].rows, survey(where="id = 1")[0].rows) == (8, None)
    info = CliRunner().invoke(application, ["info", "--all", "iceberg://lake", "--where", "id = 1", *words])
    assert "?" in info.output


def test_the_limit_of_measured_blocks_holds_without_totals_too(lake: Lake, table: Table) -> None:
    rewrite_metadata(lake, "t", without_totals)
    port = lake.open("t")._port
    found = depth_history(list(port.history()), port.version, most_measured_blocks=8)
    assert [point.average_depth is not None for point in found] == [True, True, False, False]


def test_as_of_a_snapshot_a_tag_a_branch_and_a_time(lake: Lake, table: Table) -> None:
    ids = ids_of(table)

    def blocks(as_of: object) -> int:
        return int(lake.open("t", as_of=as_of).info().total_block_count)

    assert [blocks(id_) for id_ in ids] == [1, 2, 3, 4]
    assert blocks(str(ids[2])) == 3
    assert blocks("t1") == blocks("b1") == 2
    assert blocks("main") == 4
    for place, entry in enumerate(table.history(), start=1):
        at = datetime.datetime.fromtimestamp(entry.timestamp_ms / 1000, datetime.UTC)
        assert (
            blocks(at)
            == max(
                number
                for number, other in enumerate(table.history(), 1)
                if other.timestamp_ms <= entry.timestamp_ms
            )
            >= place
        )
    version = version_of(table)
    assert_true(table, "id", version=version.at(version.metadata.snapshot_by_id(ids[1])))


@pytest.mark.parametrize("as_of", [7, "7", "nope", "2001-01-01", "9" * 5000])
def test_unknown_snapshots_are_named(lake: Lake, table: Table, as_of: object) -> None:
    with pytest.raises(SnapshotNotFoundError, match=r"snapshot|tag"):
        lake.open("t", as_of=as_of)


def test_a_branch_has_its_own_files_and_history(lake: Lake, table: Table) -> None:
    opened = lake.open("t", branch="b1")
    assert opened.info().total_block_count == 2
    assert [item.rows for item in opened.history()] == [4, 2]
    assert tblctl.from_iceberg(table, branch="b1").info().total_block_count == 2
    assert_true(table, "id", version=version_of(table, branch="b1"))


def test_a_branch_shows_the_columns_that_the_table_has_now(lake: Lake, table: Table) -> None:
    table.manage_snapshots().create_tag(table.history()[0].snapshot_id, "t0").commit()
    with table.update_schema() as update:
        update.rename_column("id", "renamed")
        update.add_column("late", LongType())
    assert lake.open("t", branch="b1").schema.names == ["renamed", "late"]
    assert lake.open("t", as_of="t0").schema.names == ["id"]


def test_an_unknown_branch_is_named_with_those_there_are(lake: Lake, table: Table) -> None:
    with pytest.raises(SnapshotNotFoundError, match=r"no branch 'b2'.*b1, main"):
        lake.open("t", branch="b2")


def test_a_tag_is_no_branch(lake: Lake, table: Table) -> None:
    with pytest.raises(SnapshotNotFoundError, match=r"'t1', which is a tag.*as_of"):
        lake.open("t", branch="t1")


def test_a_time_means_what_readers_saw_then_also_after_a_rollback(lake: Lake, table: Table) -> None:
    ids = ids_of(table)

    def roll_back(metadata: dict) -> None:
        for place, snapshot in enumerate(metadata["snapshots"]):
            snapshot["timestamp-ms"] = 1_000_000 + place * 1000
        metadata["snapshot-log"] = [
            {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}
            for snapshot in metadata["snapshots"]
        ]
        metadata["snapshot-log"].append({"snapshot-id": ids[0], "timestamp-ms": 1_010_000})
        metadata["last-updated-ms"] = 1_010_000
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = ids[0]

    rewrite_metadata(lake, "t", roll_back)

    def blocks(milliseconds: int, **more: str) -> int:
        at = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
        return int(lake.open("t", as_of=at, **more).info(columns="id").total_block_count)

    assert blocks(1_003_500) == 4  # before the rollback
    assert blocks(1_010_000) == 1
    assert blocks(1_000_999) == 1
    assert blocks(1_003_500, branch="b1") == 2
    with pytest.raises(SnapshotNotFoundError, match="no snapshot that old"):
        blocks(999_999)


def test_expired_parents_end_the_history(lake: Lake, table: Table) -> None:
    def expire(metadata: dict) -> None:
        gone = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"][:3]}
        metadata["snapshots"] = metadata["snapshots"][3:]
        metadata["snapshot-log"] = metadata["snapshot-log"][3:]
        metadata["refs"] = {
            name: ref for name, ref in metadata["refs"].items() if ref["snapshot-id"] not in gone
        }

    rewrite_metadata(lake, "t", expire)
    assert [item.rows for item in lake.open("t").history()] == [8]
    assert lake.open("t").info().total_block_count == 4


def test_ten_thousand_snapshots_are_read_once_and_held_in_little_memory(lake: Lake, table: Table) -> None:
    many = with_snapshots(table.metadata, 10_000)
    Path(table.metadata_location.removeprefix("file://")).write_text(json.dumps(many))
    opened = lake.open("t")
    loads = counted_loads(opened)
    tracemalloc.start()
    newest = opened.history(20)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [item.sequence for item in newest] == [str(10_010_000 - place) for place in range(20)]
    assert peak_bytes < 100 * 2**20
    assert opened.info().total_block_count == 4
    assert [point.average_depth for point in opened.depth_history()] == [2.0] * 20
    assert len(loads) == 3
    opened.picture(lake.folder / "t.svg")
    assert len(loads) <= 5


def counted_loads(opened: Any) -> list[None]:
    """Return a list that grows whenever the table is loaded from its catalog."""
    loads: list[None] = []
    load = opened._port._load

    def counting() -> Any:
        loads.append(None)
        return load()

    opened._port._load = counting
    return loads


def test_history_reads_no_manifests(lake: Lake, table: Table) -> None:
    for path in lake.folder.rglob("*.avro"):
        path.unlink()
    assert len(lake.open("t").history()) == 4


def test_a_table_of_a_metadata_file_alone_is_measured(lake: Lake, table: Table) -> None:
    static = StaticTable.from_metadata(table.metadata_location)
    found = tblctl.from_iceberg(static)
    assert found.info().total_block_count == 4
    assert len(found.history()) == 4


def test_a_table_of_a_catalog_is_opened_again_in_another_process(lake: Lake, table: Table) -> None:
    opened = pickle.loads(pickle.dumps(lake.open("t")))
    assert opened.info().total_block_count == 4
    append(table, id=[9])
    assert opened.info().total_block_count == 5


def test_a_handle_sees_what_others_committed_since(lake: Lake, table: Table) -> None:
    opened = lake.open("t")
    pinned = lake.open("t", as_of=ids_of(table)[-1])
    append(table, id=[9])
    assert opened.info().total_block_count == 5
    assert pinned.info().total_block_count == 4
    assert [point.info.total_block_count for point in opened.compare("t1", "main")] == [2, 5]


def test_looking_changes_nothing(lake: Lake, table: Table) -> None:
    opened = lake.open("t")
    before = sorted(lake.folder.rglob("*"))
    opened.info()
    opened.plan(cluster_by="id")
    opened.gc(dry_run=True)
    assert not opened.check(deep=True).problems
    assert sorted(lake.folder.rglob("*")) == before
    assert lake.load("t").metadata_location == table.metadata_location


def test_pictures_and_depths_are_drawn(lake: Lake, table: Table) -> None:
    opened = lake.open("t")
    path = lake.folder / "t.svg"
    opened.picture(path, compare=("t1", "main"))
    assert path.stat().st_size > 1000
    assert [point.average_depth for point in opened.depth_history()] == [2.0, 2.0, 2.0, 1.0]


def test_an_empty_key_is_refused(lake: Lake, table: Table) -> None:
    for key in ("", [], " "):
        with pytest.raises(InvalidKeyError, match="cluster_by"):
            lake.open("t").plan(cluster_by=key)
