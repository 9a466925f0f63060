"""Other engines that delete old metadata files with each commit (`write.metadata.delete-after-commit.enabled`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from threading import Lock
from typing import Any, Self
from unittest import mock

import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tblctl import errors
from tblctl.tableformat.iceberg.metadata_files import MetadataFiles
from tblctl.tableformat.iceberg.upkeep.reachable import Reachable
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.replacing import data_files, port_of, replacement_of, sorted_ids

REAL = FromInputFile.table_metadata


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of which only the newest two metadata files are there: ids 0 to 5 in two files."""
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
        "commit.retry.min-wait-ms": "1",
    }
    made = lake.create("t", fields(id=LongType()), properties=properties)
    append(made, id=[0, 2, 4])
    append(made, id=[1, 3, 5])
    return made.refresh()


class Overtaken:
    """While open, others act after the catalog said where the metadata is, and before the file is read: at the loads
    with these numbers, from 1."""

    def __init__(self, act: Callable[[], Any], *loads: int) -> None:
        self.loads = 0
        self._is_busy = False
        self._patch = mock.patch("pyiceberg.catalog.sql.FromInputFile.table_metadata", self._read)
        self._act, self._at = act, loads

    def __enter__(self) -> Self:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _read(self, *args: Any, **options: Any) -> Any:
        if not self._is_busy:
            self.loads += 1
            if self.loads in self._at:
                self._is_busy = True
                try:
                    self._act()
                finally:
                    self._is_busy = False
        return REAL(*args, **options)


def two_appends(lake: Lake) -> Callable[[], None]:
    """Return what deletes the metadata file that was the newest one."""

    def act() -> None:
        for id_ in (100, 200):
            append(lake.load("t"), id=[id_])

    return act


def test_a_table_whose_metadata_others_delete_while_it_is_loaded_is_loaded_again(
    lake: Lake, table: Table
) -> None:
    port = port_of(table)
    with Overtaken(two_appends(lake), 1, 2) as overtaken:
        version = port.newest()
    assert overtaken.loads == 3
    assert int(version.files.row_count.sum()) == 10


def test_a_commit_whose_look_at_the_table_is_overtaken_is_made(lake: Lake, table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with Overtaken(two_appends(lake), 1, 3):  # in the look, and in the catalog's own one
        done = port.replace(base, change)
    assert done.snapshot.summary.operation.value == "replace"
    assert sorted_ids(table) == [0, 1, 2, 3, 4, 5, 100, 100, 200, 200]


def test_gc_that_is_overtaken_conflicts_and_deletes_nothing(lake: Lake, table: Table) -> None:
    port = port_of(table)
    for load in (2, 3):  # its look at branches and tags, and the catalog's at its commit
        with (
            Overtaken(two_appends(lake), load),
            pytest.raises(errors.ConflictError, match="nothing was deleted"),
        ):
            port.collect(86_400.0, expires=True, age_ms=0, keep=1, dry_run=False)
    assert len(table.refresh().metadata.snapshots) == 6


def test_gc_beside_an_engine_that_expires_snapshots_conflicts(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = table.metadata.snapshots[0]
    real = Reachable.add

    def add(reachable: Reachable, snapshots: Any) -> None:
        if Path(old.manifest_list.removeprefix("file://")).exists():
            lake.load("t").maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
            Path(old.manifest_list.removeprefix("file://")).unlink()
        real(reachable, snapshots)

    monkeypatch.setattr(Reachable, "add", add)
    with pytest.raises(errors.ConflictError, match="nothing was deleted"):
        port_of(table).collect(86_400.0, expires=False, age_ms=None, keep=None, dry_run=False)


def test_gc_of_a_table_that_lacks_a_file_conflicts_with_nobody(table: Table) -> None:
    Path(table.metadata.snapshots[0].manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(errors.ObjectNotFoundError, match="the table's metadata names it"):
        port_of(table).collect(86_400.0, expires=False, age_ms=None, keep=None, dry_run=False)


def test_metadata_that_is_gone_for_good_is_named(table: Table) -> None:
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(errors.ObjectNotFoundError, match="its metadata file is missing"):
        port_of(table).newest()


class Expired:
    """While open, before the nth file of metadata is read, another engine rewrites the files of `t`, and what it
    replaced expires and goes."""

    def __init__(self, lake: Lake, nth: int) -> None:
        self.reads = 0
        self._lake, self._nth, self._is_busy = lake, nth, False
        self._lock = Lock()
        self._real = MetadataFiles._fetched
        self._patch = mock.patch.object(MetadataFiles, "_fetched", partialmethod(_read, expired=self))

    def __enter__(self) -> Self:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def read(self, files: MetadataFiles, path: str) -> bytes:
        with self._lock:  # files are read by many threads
            self.reads += not self._is_busy
            is_nth = not self._is_busy and self.reads == self._nth
            self._is_busy = self._is_busy or is_nth
        if is_nth:
            table = self._lake.load("t")
            table.overwrite(table.scan().to_arrow())
            self._lake.open("t").gc(keep=1, expire_older_than=0)
            self._is_busy = False
        return self._real(files, path)


def _read(files: MetadataFiles, path: str, *, expired: Expired) -> bytes:
    return expired.read(files, path)


@pytest.mark.parametrize("name", ["info", "suggest", "plan", "recluster"])
def test_a_version_that_expires_while_it_is_looked_at_is_no_error(name: str, lake: Lake) -> None:
    """Nor are conflicts of its groups: a recluster plans again, or leaves them out."""
    reads, nth = 1, 0
    while nth <= reads:
        made = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
        append(made, id=[0, 2, 4])
        append(made, id=[1, 3, 5])
        with Expired(lake, nth) as expired:  # at first, none
            getattr(lake.open("t"), name)()
        reads = reads if nth else expired.reads
        assert sorted_ids(made) == list(range(6)), nth
        lake.catalog.purge_table("db.t")
        nth += 1
    assert reads > 2


def test_a_commit_on_a_version_that_lacks_a_file_conflicts_with_nobody(lake: Lake, table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    append(table, id=[6])
    Path(table.refresh().metadata.snapshots[-1].manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(errors.ObjectNotFoundError, match="the table's metadata names it"):
        port.replace(base, change)
