"""Staged writes: tasks write blocks, one commit publishes them; changes in between, and batches of streams."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from faults import Faults, inject, kill_points
from tables import (
    SCHEMA,
    Places,
    assert_sound,
    ids_of,
    named_objects,
    native_of,
    objects_of,
    open_impatient,
    places,
    rows,
)

import tblctl
from tblctl.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    InternalError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
    TblctlError,
)
from tblctl.tableformat.model.snapshot import Batch
from tblctl.tableformat.native.log.commit import Published
from tblctl.tableformat.native.write.staged_write import StagedWrite, StagedWriter, joined


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def build(url: str) -> tblctl.Table:
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    table.append(rows(1, 2, 3))
    return table


def staged_writer(table: tblctl.Table) -> StagedWriter:
    native = native_of(table)
    return StagedWriter.of(native.storage, native.env, native.head())


def stage(writer: StagedWriter, *ids: int) -> StagedWrite:
    return writer.write(SCHEMA, [rows(*ids)])


def publish(
    table: tblctl.Table, staged: StagedWrite, batch: Batch | None = None, *, everything: bool = False
) -> Published | None:
    operation = "overwrite" if everything else "append"
    return native_of(table).write(operation, staged=staged, batch=batch, everything=everything)


def blocks_of(url: str) -> set[str]:
    return {name for name in objects_of(url) if name.startswith("data/")}


def named_blocks(url: str) -> set[str]:
    return {block.path for block in tblctl.open(url).files()}


def test_rows_written_elsewhere_are_committed_at_once(at: Places) -> None:
    table = build(url := at.fresh())
    writer = pickle.loads(pickle.dumps(staged_writer(table)))
    parts = [pickle.loads(pickle.dumps(stage(writer, *ids))) for ids in ((9, 8, 7, 6, 5), (4,))]
    assert ids_of(table) == [1, 2, 3]
    published = publish(table, joined([writer.nothing(), *parts]))
    assert published
    assert published.snapshot.sequence == 3
    assert ids_of(table) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert blocks_of(url) == named_blocks(url)
    assert [block.level for block in table.files()] == [0] * 4
    assert_sound(table)


def test_a_part_may_replace_all_rows_that_the_table_has_by_then(at: Places) -> None:
    table = build(at.fresh())
    staged = stage(staged_writer(table), 5, 6)
    table.append(rows(4))
    publish(table, staged, everything=True)
    assert ids_of(table) == [5, 6]
    assert_sound(table)


def test_a_part_without_rows_commits_nothing(at: Places) -> None:
    table = build(at.fresh())
    assert publish(table, staged_writer(table).nothing()) is None
    assert table.snapshot.sequence == 2


def test_staged_writes_of_several_versions_do_not_join(at: Places) -> None:
    table = build(at.fresh())
    first = staged_writer(table).nothing()
    table.append(rows(4))
    with pytest.raises(InternalError, match="2 versions"):
        joined([first, staged_writer(table).nothing()])


def test_a_task_that_fails_deletes_what_it_wrote(at: Places) -> None:
    table = build(url := at.fresh())
    writer = staged_writer(table)
    wide = pa.schema([("id", pa.int64()), ("v", pa.string())])
    tables = [pa.table({"id": [4] * 40, "v": ["x"] * 40}), pa.table({"id": [None], "v": ["x"]}, schema=wide)]
    small = StagedWriter(**{**vars(writer), "memory_bytes": 64})
    with pytest.raises(TblctlError, match="id"):
        small.write(wide, tables)
    assert blocks_of(url) == named_blocks(url)
    with pytest.raises(SchemaMismatchError):
        writer.write(pa.schema([("v", pa.string())]), [])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.add_column("w", "int64"),
        lambda table: table.rename_column("v", "name"),
        lambda table: table.drop_column("v"),
        lambda table: table.set_cluster_key(["v"]),
        lambda table: table.drop_cluster_key(),
    ],
)
def test_a_table_that_is_altered_meanwhile_takes_the_part(at: Places, change: object) -> None:
    table = build(at.fresh())
    staged = stage(staged_writer(table), 4, 5)
    change(table)  # type: ignore[operator]
    publish(table, staged)
    assert ids_of(table) == [1, 2, 3, 4, 5]
    assert_sound(table)


def test_a_column_that_is_widened_meanwhile_has_the_values_of_the_part(at: Places) -> None:
    table = tblctl.create(at.fresh(), "id: int32, k: int8", cluster_by="k")
    narrow = pa.schema([("id", pa.int32()), ("k", pa.int8())])
    staged = staged_writer(table).write(narrow, [pa.table({"id": [7], "k": [1]}, schema=narrow)])
    table.widen_column("id", "int64")
    publish(table, staged)
    assert table.scan(where="id > 6").to_arrow().to_pylist() == [{"id": 7, "k": 1}]
    assert_sound(table)


def test_a_recluster_and_an_append_meanwhile_commit_too(at: Places) -> None:
    table = build(at.fresh())
    table.append(rows(1, 2, 3))
    staged = stage(staged_writer(table), 2, 3)
    assert table.recluster().committed_groups == 1
    table.append(rows(9))
    publish(table, staged)
    assert ids_of(table) == [1, 1, 2, 2, 2, 3, 3, 3, 9]
    assert_sound(table)


def test_a_rollback_to_another_schema_refuses_the_part_and_deletes_it(at: Places) -> None:
    table = build(url := at.fresh())
    table.add_column("w", "int64")
    native = native_of(table)
    wide = pa.schema([*SCHEMA, ("w", pa.int64())])
    staged = staged_writer(table).write(wide, [pa.table({"id": [4], "v": ["x"], "w": [1]}, schema=wide)])
    table.rollback(2)
    with pytest.raises(ConflictError, match="rolled back to another schema"):
        publish(table, staged)
    assert native.head().sequence == 4
    assert blocks_of(url) == named_blocks(url)


def test_a_table_that_is_created_again_meanwhile_refuses_the_part(at: Places) -> None:
    table = build(url := at.fresh())
    staged = stage(staged_writer(table), 4)
    tblctl.drop(url)
    again = build(url)
    with pytest.raises(TableNotFoundError, match="dropped meanwhile"):
        publish(again, staged)
    assert ids_of(again) == [1, 2, 3]


def test_a_part_that_nobody_commits_is_garbage(at: Places) -> None:
    table = build(url := at.fresh())
    stage(staged_writer(table), 4)
    assert ids_of(table) == [1, 2, 3]
    table.gc(keep=1, older_than=0)
    assert blocks_of(url) == named_blocks(url)
    assert_sound(table)


def test_a_commit_that_dies_anywhere_published_all_or_nothing_of_its_batch(at: Places) -> None:
    batch = Batch(stream="query", number=0)

    def prepare() -> tuple[str, StagedWrite]:
        table = build(url := at.fresh())
        return url, stage(staged_writer(table), 4, 5, 6, 7, 8)

    def attempt(url: str, staged: StagedWrite) -> None:
        publish(open_impatient(url), staged, batch)

    first = prepare()
    for point in kill_points(lambda: attempt(*first)):
        url, staged = prepare()
        point.kill(lambda url=url, staged=staged: attempt(url, staged))  # type: ignore[misc]
        table = tblctl.open(url)
        assert ids_of(table) in ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8])
        replayed = stage(staged_writer(table), 4, 5, 6, 7, 8)
        publish(table, replayed, batch)
        assert ids_of(table) == [1, 2, 3, 4, 5, 6, 7, 8], point
        table.gc(keep=1, older_than=0)
        assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table)
        assert_sound(table)


def test_a_part_whose_commit_fails_is_deleted(at: Places) -> None:
    table = build(url := at.fresh())
    staged = stage(staged_writer(table), 4)
    faults = Faults()
    faults.fail(operation="create", name="snapshots/")
    with inject(faults), pytest.raises(StorageError):
        publish(open_impatient(url), staged)
    assert ids_of(table) == [1, 2, 3]
    assert blocks_of(url) == named_blocks(url)


def test_a_part_whose_commit_nobody_can_tell_of_is_kept(at: Places) -> None:
    table = build(url := at.fresh())
    staged = stage(staged_writer(table), 4)
    faults = Faults()
    faults.fail(CommitOutcomeUnknownError("lost"), operation="create", name="snapshots/", at="after")
    faults.fail(operation="read", name="snapshots/0*3", nth=3, times=100)  # after two looks for a newer head
    with inject(faults), pytest.raises(CommitOutcomeUnknownError):
        publish(open_impatient(url), staged)
    assert ids_of(table) == [1, 2, 3, 4]
    assert_sound(table)


def test_a_batch_is_committed_once_whoever_replays_it(at: Places) -> None:
    table = build(url := at.fresh())
    for number in (0, 0, 1, 0, 1):
        publish(table, stage(staged_writer(table), 10 + number), Batch(stream="query", number=number))
    assert ids_of(table) == [1, 2, 3, 10, 11]
    publish(table, stage(staged_writer(table), 20), Batch(stream="other", number=0))
    assert ids_of(table) == [1, 2, 3, 10, 11, 20]
    assert native_of(table).head().streams == {"query": 1, "other": 0}
    table.gc(keep=1, older_than=0)
    assert blocks_of(url) == named_blocks(url)


def test_the_very_blocks_of_a_batch_that_was_committed_are_not_deleted(at: Places) -> None:
    table = build(at.fresh())
    staged, batch = stage(staged_writer(table), 4), Batch(stream="query", number=0)
    publish(table, staged, batch)
    publish(table, staged, batch)
    assert ids_of(table) == [1, 2, 3, 4]
    assert_sound(table)


def test_of_two_drivers_that_race_with_one_batch_one_commits(at: Places) -> None:
    table = build(url := at.fresh())
    batch = Batch(stream="query", number=0)
    mine, theirs = (stage(staged_writer(table), 4) for _ in range(2))
    faults = Faults()
    pause = faults.pause(operation="create", name="snapshots/")
    with inject(faults):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(lambda: publish(open_impatient(url), mine, batch))
            pause.wait_until_reached()
            assert publish(open_impatient(url), theirs, batch)
            pause.resume()
            assert slow.result() is None
    assert ids_of(table) == [1, 2, 3, 4]
    assert_sound(table)


def test_batches_are_remembered_through_whatever_else_happens_to_the_table(at: Places) -> None:
    table = build(at.fresh())
    batch = Batch(stream="query", number=3)
    publish(table, stage(staged_writer(table), 4), batch)
    table.add_column("w", "int64")
    table.set_options({"block_rows": 5})
    table.delete("id = 4")
    table.append(rows(1).append_column("w", pa.array([1])))
    table.recluster()
    table.rollback(2)
    table.gc(keep=1, older_than=0)
    fresh = tblctl.open(table.location)
    assert publish(fresh, stage(staged_writer(fresh), 4), batch) is None
    assert ids_of(fresh) == [1, 2, 3]
