"""A REPLACE commit whose catalog fails, does not answer, or lets others go first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tblctl import errors
from tblctl.tableformat.iceberg.metadata_files import MetadataFiles
from tblctl.tableformat.port import BlocksReplacedError
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.replacing import Meanwhile, data_files, ours, port_of, raising, replacement_of, sorted_ids

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


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_lost_race_is_tried_again_with_the_same_manifests(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    lost = raising(CommitFailedException("no"))
    with Meanwhile(table, lost, lost) as catalog:
        port.replace(base, change)
    assert catalog.calls == 3
    assert sorted_ids(table) == IDS
    id_ = table.refresh().current_snapshot().snapshot_id  # type: ignore[union-attr]
    kinds = sorted(name.rpartition("-")[2] for name in ours(table))
    # the manifest of the new file, three of the replaced, a list, a file of keys: nothing of earlier attempts
    assert kinds == sorted(["keys.parquet", *["m.avro"] * 4, f"{id_}.avro"])


def test_others_always_faster(table: Table) -> None:
    with table.transaction() as change_:
        change_.set_properties({"commit.retry.num-retries": "2"})
    port = port_of(table.refresh())
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with (
        Meanwhile(table, *[raising(CommitFailedException("no"))] * 9) as catalog,
        pytest.raises(errors.ConflictError, match="3 attempts"),
    ):
        port.replace(base, change)
    assert catalog.calls == 3
    assert not ours(table)


def test_a_catalog_that_refuses(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with (
        Meanwhile(table, raising(ForbiddenError("not you"))) as catalog,
        pytest.raises(errors.AccessDeniedError, match="not you"),
    ):
        port.replace(base, change)
    assert catalog.calls == 1
    assert not ours(table)
    assert sorted_ids(table) == IDS


@pytest.mark.parametrize(
    "error", [CommitStateUnknownException("?"), TimeoutError("slow"), RuntimeError("odd")]
)
def test_a_commit_that_landed_without_an_answer_is_found(table: Table, error: Exception) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def landed_then_appended(real: Callable[[], Any]) -> Any:
        real()
        append(table.refresh(), id=[80], s=["z"])
        raise error

    with Meanwhile(table, landed_then_appended) as catalog:
        version = port.replace(base, change)
    assert catalog.calls == 2
    assert sorted_ids(table) == [*IDS, 80]
    assert version.snapshot.summary.operation.value == "replace"
    assert all(Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table))


@pytest.mark.parametrize("retries", ["0", "3"])
@pytest.mark.parametrize("others", [False, True])
def test_a_commit_that_a_proxy_sent_twice_is_found_although_its_second_answer_is_a_refusal(
    table: Table, retries: str, others: bool
) -> None:
    with table.transaction() as change_:
        change_.set_properties({"commit.retry.num-retries": retries})
    port = port_of(table.refresh())
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def sent_twice(real: Callable[[], Any]) -> Any:
        real()
        if others:
            append(table.refresh(), id=[80], s=["z"])
        return real()

    with Meanwhile(table, sent_twice) as catalog:
        version = port.replace(base, change)
    assert catalog.calls == 1 + others
    assert version.snapshot.summary.operation.value == "replace"
    assert sorted_ids(table) == [*IDS, *[80] * others]
    assert all(Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table))


def test_a_commit_whose_manifests_cannot_be_read_afterwards_is_no_failure(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def unreadable(_files: object, _path: str) -> Any:
        raise errors.StorageError("busy")

    def landed(real: Callable[[], Any]) -> Any:
        found = real()
        monkeypatch.setattr(MetadataFiles, "manifests", unreadable)
        return found

    with Meanwhile(table, landed):
        version = port.replace(base, change)
    monkeypatch.undo()
    assert version.snapshot.summary.operation.value == "replace"
    assert sorted_ids(table) == IDS


def test_a_refusal_that_nobody_could_look_up_is_an_unknown_outcome(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.transaction() as change_:
        change_.set_properties({"commit.retry.num-retries": "0"})
    port = port_of(table.refresh())
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def sent_twice(real: Callable[[], Any]) -> Any:
        real()
        try:
            return real()
        finally:
            monkeypatch.setattr(table.catalog, "load_table", unreachable)

    def unreachable(_name: object) -> Any:
        raise OSError("no route to host")

    with Meanwhile(table, sent_twice), pytest.raises(errors.CommitOutcomeUnknownError, match="refused"):
        port.replace(base, change)
    monkeypatch.undo()
    assert sorted_ids(table) == IDS
    assert all(Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table))


def test_a_commit_that_did_not_land_is_tried_again(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with Meanwhile(table, raising(CommitStateUnknownException("?"))) as catalog:
        port.replace(base, change)
    assert catalog.calls == 2
    assert sorted_ids(table) == IDS


@pytest.mark.parametrize("landed", [False, True])
def test_a_catalog_that_is_busy_for_a_while_is_asked_again(
    table: Table, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    load, busy = table.catalog.load_table, [TimeoutError("locked")] * 3

    def load_table(identifier: Any) -> Table:
        if busy:
            raise busy.pop()
        return load(identifier)

    def refused(real: Callable[[], Any]) -> Any:
        if landed:
            real()
        monkeypatch.setattr(table.catalog, "load_table", load_table)
        raise TimeoutError("locked")

    with Meanwhile(table, refused) as catalog:
        version = port.replace(base, change)
    assert not busy
    assert catalog.calls == (1 if landed else 2)
    assert version.snapshot.summary.operation.value == "replace"
    assert sorted_ids(table) == IDS


def test_a_commit_that_a_locked_sqlite_rolls_back_later_is_not_taken_for_done(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.options["uri"] += "?timeout=0.01"
    table = Lake(tmp_path, uri=lake.options["uri"]).create("t", fields(id=LongType(), s=StringType()))
    append(table, id=[1, 3], s=["a", "b"])
    append(table, id=[2, 4], s=["a", "b"])
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)

    def locked(real: Callable[[], Any]) -> Any:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM iceberg_tables").fetchone()
        try:
            real()
        finally:
            reader.execute("ROLLBACK")

    with Meanwhile(table, locked) as catalog:
        version = port.replace(base, change)
    assert catalog.calls == 2
    assert str(lake.load("t").metadata.current_snapshot_id) == version.id
    assert sorted_ids(lake.load("t")) == [1, 2, 3, 4]


def test_an_outcome_that_stays_unknown_keeps_all_files(table: Table) -> None:
    with table.transaction() as change_:
        change_.set_properties({"commit.retry.num-retries": "2"})
    port = port_of(table.refresh())
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with (
        Meanwhile(table, *[raising(TimeoutError("slow"))] * 9) as catalog,
        pytest.raises(errors.CommitOutcomeUnknownError, match="slow"),
    ):
        port.replace(base, change)
    assert catalog.calls == 3
    assert ours(table)


def test_a_conflict_found_after_an_open_outcome_was_settled(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def lost(real: Callable[[], Any]) -> Any:
        del real
        table.refresh().delete(EqualTo("id", 3))
        raise TimeoutError("slow")

    with Meanwhile(table, lost), pytest.raises(BlocksReplacedError):
        port.replace(base, change)
    assert not ours(table)
    assert sorted_ids(table) == [id_ for id_ in IDS if id_ != 3]


def test_metadata_that_cannot_be_written_is_a_failure(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    monkeypatch.setattr("tblctl.tableformat.iceberg.publish.new_manifests.copy_entries", _raise_os_error)
    catalog = Meanwhile(table)
    with catalog, pytest.raises(errors.StorageError, match="no space"):
        port.replace(base, change)
    assert catalog.calls == 0
    assert not ours(table)
    assert sorted_ids(table) == IDS


def _raise_os_error(*_: Any, **__: Any) -> bytes:
    raise OSError("no space left")
