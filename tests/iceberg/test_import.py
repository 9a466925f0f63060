"""Import into an Iceberg table: files become one that every engine reads, each once, whatever happens in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InvalidDataError,
    InvalidKeyError,
    InvalidOptionError,
    InvalidSchemaError,
)
from tblctl.importing_iceberg import IcebergTarget
from tblctl.tableformat.iceberg.appending import lists
from tests.iceberg.lake import Lake, append, fields

TABLE = "iceberg://lake/db.t"


def write(folder: Path, name: str, **columns: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def bring(lake: Lake, folder: Path, **how: Any) -> tblctl.ImportOutcome:
    return tblctl.import_parquet(folder, TABLE, catalog_options=lake.options, **how)


def ids(lake: Lake) -> list[int]:
    return sorted(lake.load("t").scan().to_arrow()["id"].to_pylist())


def listed(lake: Lake) -> list[Path]:
    return sorted((lake.folder / "tables" / "db" / "t" / lists.FOLDER).glob("*"))


def data_paths(lake: Lake) -> set[str]:
    found = (lake.folder / "tables").rglob("*.parquet")
    return {str(path) for path in found}


def live_paths(table: Table) -> set[str]:
    return {file.removeprefix("file://") for file in table.inspect.files()["file_path"].to_pylist()}


def test_files_become_an_iceberg_table_with_ids_and_a_sort_order_and_each_is_taken_once(
    lake: Lake, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    nested = pa.array([{"x": [1, None]}, None], pa.struct([("x", pa.list_(pa.int16()))]))
    for day in (1, 2):
        write(
            folder,
            f"day={day}/a.parquet",
            id=pa.array([day * 10 + 1, day * 10], pa.int16()),
            at=pa.array([5000, None], pa.timestamp("ns", "UTC")),
            kind=pa.array(["a", None]).dictionary_encode(),
            nested=nested,
            bits=pa.array([2**63 - 1, 0], pa.uint64()),
        )
    first = bring(lake, folder, hive=True, cluster_by="id desc, day")
    assert (first.is_new, first.files_taken, first.rows_added, first.commits) == (True, 2, 4, 1)
    table = lake.load("t")
    assert [field.field_id for field in table.schema().fields] == [1, 2, 3, 4, 5, 6]
    assert [
        str(field.field_type) for field in table.schema().fields if field.name in {"at", "bits", "day"}
    ] == [
        "timestamptz",
        "long",
        "int",
    ]
    assert [(field.source_id, field.direction.name) for field in table.sort_order().fields] == [
        (1, "DESC"),
        (6, "ASC"),
    ]
    assert table.spec().is_unpartitioned()
    rows = table.scan().to_arrow()
    assert rows["id"].to_pylist() == [21, 20, 11, 10]
    assert rows["day"].to_pylist() == [2, 2, 1, 1]
    assert rows["nested"].to_pylist() == [{"x": [1, None]}, None] * 2
    info = lake.open("t").info()
    assert (info.unclustered_block_count, info.cluster_by_keys) == (0, ("id desc", "day"))
    assert lake.open("t").check(deep=True).ok

    again = bring(lake, folder, hive=True)
    assert (again.is_new, again.files_taken, again.files_known, again.snapshot) == (False, 0, 2, None)
    write(folder, "day=2/b.parquet", id=[7])
    third = bring(lake, folder, hive=True)
    assert (third.files_taken, third.files_known, ids(lake)) == (1, 2, [7, 10, 11, 20, 21])
    assert lake.load("t").current_snapshot().snapshot_id == int(third.snapshot or 0)


def test_a_commit_says_what_appends_say_and_rows_are_newer_than_delete_files(
    lake: Lake, tmp_path: Path
) -> None:
    append(lake.create("t", fields(id=LongType())), id=[1, 2, 3])
    write(tmp_path / "in", "a.parquet", id=[4])
    bring(lake, tmp_path / "in")
    table = lake.load("t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"
    said = snapshot.summary.additional_properties
    assert (said["added-records"], said["total-records"], said["total-data-files"]) == ("1", "4", "2")
    assert json.loads(said["tblctl.detail"])["import"]["files"] == 1
    entries = table.inspect.entries().to_pylist()
    assert {entry["sequence_number"] for entry in entries} == {1, 2}
    assert [entry["sequence_number"] for entry in entries if entry["data_file"]["record_count"] == 1] == [2]


@pytest.mark.parametrize("how", ["lost", "refused"])
def test_a_commit_whose_answer_is_lost_or_refused_adds_rows_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    lake.create("t", fields(id=LongType()), properties={"commit.retry.min-wait-ms": "1"})
    write(tmp_path / "in", "a.parquet", id=[1, 2])
    real, calls = SqlCatalog.commit_table, []

    def commit(self: SqlCatalog, *words: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return real(self, *words)
        if how == "lost":
            real(self, *words)
            raise ConnectionError("the reply is lost")
        raise CommitFailedException("somebody was faster")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    assert bring(lake, tmp_path / "in").rows_added == 2
    assert ids(lake) == [1, 2]
    assert len(calls) == (1 if how == "lost" else 2)
    assert data_paths(lake) == live_paths(lake.load("t"))
    assert bring(lake, tmp_path / "in").files_known == 1


def test_two_imports_at_once_take_no_file_twice_and_lose_none(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("t", fields(id=LongType()), properties={"commit.retry.min-wait-ms": "1"})
    folder = tmp_path / "in"
    for number in range(3):
        write(folder, f"{number}.parquet", id=[number])
    real, races = SqlCatalog.commit_table, [folder / "1.parquet", folder / "2.parquet"]

    def slow(self: SqlCatalog, *words: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        if races:
            other = races.pop(0)
            bring(lake, other)
            monkeypatch.setattr(SqlCatalog, "commit_table", slow)
        return real(self, *words)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    outcome = bring(lake, folder, commit_bytes=1)
    assert ids(lake) == [0, 1, 2]
    assert outcome.files_taken == 1
    assert data_paths(lake) == live_paths(lake.load("t"))
    assert bring(lake, folder).files_known == 3


def test_an_interrupted_import_goes_on_where_it_was(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    for number in range(3):
        write(folder, f"{number}.parquet", id=[number])
    real, calls = SqlCatalog.commit_table, []

    def commit(self: SqlCatalog, *words: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *words)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    with pytest.raises(KeyboardInterrupt) as caught:
        bring(lake, folder, commit_bytes=1)
    assert "1 files were taken before that" in caught.value.__notes__[0]
    assert ids(lake) == [0]
    assert bring(lake, folder, commit_bytes=1).files_taken == 2
    assert ids(lake) == [0, 1, 2]


def test_an_interrupt_while_the_catalog_commits_leaves_the_rows_whole(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", "a.parquet", id=[1, 2])
    real = SqlCatalog.commit_table

    def commit(self: SqlCatalog, *words: Any) -> Any:
        real(self, *words)
        raise KeyboardInterrupt

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    with pytest.raises(KeyboardInterrupt):
        bring(lake, tmp_path / "in")
    monkeypatch.setattr(SqlCatalog, "commit_table", real)
    assert ids(lake) == [1, 2]
    assert bring(lake, tmp_path / "in").files_known == 1


def test_an_outcome_that_stays_unknown_deletes_nothing_and_the_next_import_finds_out(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"commit.retry.min-wait-ms": "1", "commit.retry.num-retries": "1"}
    append(lake.create("t", fields(id=LongType()), properties=properties), id=[0])
    write(tmp_path / "in", "a.parquet", id=[1])
    real = SqlCatalog.commit_table
    late: list[Any] = []

    def commit(self: SqlCatalog, *words: Any) -> Any:
        late[:] = [(self, *words)]
        raise ConnectionError("no answer")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    with pytest.raises(CommitOutcomeUnknownError):
        bring(lake, tmp_path / "in")
    real(*late[0])
    monkeypatch.setattr(SqlCatalog, "commit_table", real)
    assert bring(lake, tmp_path / "in").files_known == 1
    assert ids(lake) == [0, 1]


def test_a_table_that_another_import_creates_meanwhile_gets_no_file_twice(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", "a.parquet", id=[1, 2])
    real = IcebergTarget.create

    def late(self: IcebergTarget, *words: Any) -> None:
        monkeypatch.setattr(IcebergTarget, "create", real)
        bring(lake, tmp_path / "in")
        real(self, *words)

    monkeypatch.setattr(IcebergTarget, "create", late)
    with pytest.raises(ConflictError, match="was created meanwhile"):
        bring(lake, tmp_path / "in")
    assert (bring(lake, tmp_path / "in").files_known, ids(lake)) == (1, [1, 2])


def test_files_that_another_import_took_while_an_answer_was_lost_are_not_taken_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("t", fields(id=LongType()), properties={"commit.retry.min-wait-ms": "1"})
    folder = tmp_path / "in"
    for number in range(3):
        write(folder, f"{number}.parquet", id=[number])
    real = SqlCatalog.commit_table

    def commit(self: SqlCatalog, *words: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        real(self, *words)
        bring(lake, folder / "1.parquet")
        raise ConnectionError("the reply is lost")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    bring(lake, folder, commit_bytes=1)
    assert ids(lake) == [0, 1, 2]
    assert bring(lake, folder).files_known == 3


def test_rows_have_the_sequence_number_of_the_attempt_that_was_committed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equality deletes of commits that won before do not apply to them."""
    lake.create("t", fields(id=LongType()), properties={"commit.retry.min-wait-ms": "1"})
    write(tmp_path / "in", "a.parquet", id=[1, 2])
    real, others = SqlCatalog.commit_table, [10, 11]

    def commit(self: SqlCatalog, *words: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        if others:
            append(lake.load("t"), id=[others.pop()])
            monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        return real(self, *words)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    bring(lake, tmp_path / "in")
    assert ids(lake) == [1, 2, 10, 11]
    found = lake.load("t").inspect.entries().to_pylist()
    numbers = {entry["data_file"]["record_count"]: entry["sequence_number"] for entry in found}
    assert numbers[2] == 3


def test_lists_of_another_table_at_the_same_place_stay(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[1])
    bring(lake, tmp_path / "in")
    (mine,) = listed(lake)
    other = mine.with_name(f"{'0' * 32}-{'1' * 32}.arrow")
    other.write_bytes(b"")
    os.utime(other, (1_000_000_000, 1_000_000_000))
    write(tmp_path / "in", "b.parquet", id=[2])
    bring(lake, tmp_path / "in")
    assert other in listed(lake)


def test_an_import_goes_on_when_another_one_has_folded_the_lists(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    for number in range(2):
        write(folder, f"{number}.parquet", id=[number])
        bring(lake, folder / f"{number}.parquet")
    for number in (2, 3):
        write(folder, f"{number}.parquet", id=[number])
    real = lists.Lists.with_files

    def late(self: lists.Lists, *words: Any) -> Any:
        monkeypatch.setattr(lists.Lists, "with_files", real)
        for path in listed(lake):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        bring(lake, folder / "2.parquet")
        return real(self, *words)

    monkeypatch.setattr(lists.Lists, "with_files", late)
    bring(lake, folder / "3.parquet")
    assert ids(lake) == [0, 1, 2, 3]
    assert bring(lake, folder).files_known == 4


def test_the_list_survives_expiry_and_gc_and_old_ones_are_removed(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number in range(3):
        write(folder, f"{number}.parquet", id=[number])
        bring(lake, folder)
    table = lake.open("t")
    assert len(table.gc(keep=1, expire_older_than=0).snapshots_expired) == 2
    assert bring(lake, folder).files_known == 3
    long_ago = 1_000_000_000
    for path in listed(lake):
        os.utime(path, (long_ago, long_ago))
    assert len(listed(lake)) == 3
    write(folder, "3.parquet", id=[3])
    bring(lake, folder)
    named = [item["path"] for item in json.loads(lake.load("t").properties[lists.LISTS])]
    assert sorted(named) == [path.name for path in listed(lake)]
    assert bring(lake, folder).files_known == 4


def test_changed_files_can_be_settled(lake: Lake, tmp_path: Path) -> None:
    path = write(tmp_path / "in", "a.parquet", id=[1])
    bring(lake, tmp_path / "in")
    write(tmp_path / "in", "a.parquet", id=[1, 2])
    assert bring(lake, tmp_path / "in").files_changed == (str(path),)
    bring(lake, tmp_path / "in", accept_changed=True)
    assert (bring(lake, tmp_path / "in").files_known, ids(lake)) == (1, [1])


def test_a_list_that_is_gone_or_a_wrong_property_ends_imports_and_says_so(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[1])
    bring(lake, tmp_path / "in")
    for path in listed(lake):
        path.unlink()
    with pytest.raises(CorruptTableError, match="files might be taken twice"):
        bring(lake, tmp_path / "in")
    with lake.load("t").transaction() as change:
        change.set_properties({lists.LISTS: '[{"path": "../x"}]'})
    with pytest.raises(CorruptTableError, match="does not say which files"):
        bring(lake, tmp_path / "in")
    assert ids(lake) == [1]


def test_what_an_iceberg_table_cannot_have_is_refused_before_there_is_one(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "a.parquet", wide=pa.array([1], pa.decimal256(50, 0)), id=[1])
    with pytest.raises(InvalidSchemaError, match=r"wide is decimal256\(50, 0\)"):
        bring(lake, folder)
    plain = write(tmp_path / "plain", "a.parquet", id=[1], x=[2]).parent
    with pytest.raises(InvalidKeyError, match="sort order cannot be a hilbert"):
        bring(lake, plain, cluster_by="hilbert(id, x)")
    with pytest.raises(InvalidOptionError, match="no namespace 'nowhere'"):
        tblctl.import_parquet(plain, "iceberg://lake/nowhere.t", catalog_options=lake.options)
    assert lake.catalog.list_tables("db") == []


def test_a_value_that_would_lose_something_leaves_nothing_behind(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[1, 2], at=pa.array([1000, 1001], pa.timestamp("ns")))
    with pytest.raises(InvalidDataError, match="at"):
        bring(lake, tmp_path / "in")
    assert lake.load("t").current_snapshot() is None
    assert data_paths(lake) == set()


def test_tables_that_get_no_rows_by_import_are_refused(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[1], region=["eu"])
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    lake.create("t", schema, partition_spec=spec)
    with pytest.raises(InvalidOptionError, match="partitioned"):
        bring(lake, tmp_path / "in")
    lake.catalog.drop_table("db.t")
    lake.create("t", schema, properties={"write.format.default": "orc"})
    with pytest.raises(InvalidOptionError, match="writes Parquet alone"):
        bring(lake, tmp_path / "in")
    with pytest.raises(InvalidKeyError, match="clustered by nothing"):
        bring(lake, tmp_path / "in", cluster_by="id")


def test_rows_are_sorted_in_runs_within_the_memory_and_files_have_the_target_size(
    lake: Lake, tmp_path: Path
) -> None:
    table = lake.create("t", fields(id=IntegerType()), properties={"write.target-file-size-bytes": "1"})
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    write(tmp_path / "in", "a.parquet", id=pa.array(range(150_000, 0, -1), pa.int32()))
    outcome = bring(lake, tmp_path / "in", memory_bytes=1 << 22)
    info = lake.open("t").info()
    assert outcome.rows_added == info.rows == 150_000
    assert info.total_block_count == outcome.blocks_added > 2
    assert (info.unclustered_block_count, info.average_depth) == (0, 1.0)


def test_the_command_imports_into_a_catalog_and_reclusters(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", id=[2, 1])
    options = [word for key, value in lake.options.items() for word in ("--catalog-option", f"{key}={value}")]
    words = ["import", str(tmp_path / "in"), TABLE, "--cluster-by", "id", "--recluster", *options]
    said = CliRunner().invoke(application, words)
    assert said.exit_code == 0, said.output
    assert f"into a new table, {TABLE}: 2 rows in 1 block" in " ".join(said.stdout.split())
    again = CliRunner().invoke(application, [*words, "--json"])
    assert json.loads(again.stdout)["files_known"] == 1
