"""Position deletes: merges read the live rows of data files, and only these."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.merger.task.row_ranges import overlapping
from tblctl.tableformat.errors import CorruptTableError, InvalidOptionError

from .lake import Lake, append, fields, rewrite_metadata
from .merging import assert_refused, assert_same_rows, numbered, opened, paths_of, recluster, rows_seen
from .position_deletes import commit, data_file, delete_file, delete_rows, entry_of
from .replacing import port_of, sorted_ids

NUMBERS = itertools.count()
V2 = {"format-version": "2"}


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("deletes"))


def create(lake: Lake, **more: Any) -> Any:
    return lake.create(
        f"t{next(NUMBERS)}",
        fields(id=LongType(), text=StringType()),
        properties=V2 | more.pop("properties", {}),
        **more,
    )


def add_file(table: Any, ids: list[int], *, group_rows: int = 1000, **more: Any) -> str:
    """Commit a data file; return its path."""
    rows = numbered(pa.table({"id": pa.array(ids, pa.int64()), "text": [f"text {i}" for i in ids]}), (1, 2))
    counts = {"value_counts": {1: len(ids), 2: len(ids)}, "null_value_counts": {1: 0, 2: 0}}
    file = data_file(table, rows, write={"row_group_size": group_rows}, **counts | more)
    commit(table, [file])
    return str(file.file_path)


def commit_deletes(table: Any, *files: Any) -> Any:
    return commit(table, files, content=ManifestContent.DELETES)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def ids_read(rows: pa.Table) -> list[int]:
    return rows["id"].to_pylist()


def assert_reads(io: Any, block: Any, groups: list[list[int]], seed: int) -> None:
    """Require that a file has some live rows in its row groups, by each way to read it.

    Args:
        io: opens it.
        block: the file.
        groups: the ids of the live rows of each stored row group.
        seed: chooses what is read together.
    """
    rng = random.Random(seed)
    groups = [ids for ids in groups if ids]
    assert block.row_count == sum(map(len, groups))
    with io.open(block) as reader:
        assert list(reader.group_rows) == list(map(len, groups))
        assert len(reader.group_bytes) == len(reader.stored_bytes) == len(groups)
    chosen = sorted(rng.sample(range(len(groups)), rng.randint(1, len(groups))))
    wanted = [id_ for group in chosen for id_ in groups[group]]
    with io.open(block) as reader:
        reader.will_need(chosen)
        rows = reader.rows(chosen)
        assert ids_read(rows) == wanted
        assert rows["text"].to_pylist() == [f"text {id_}" for id_ in wanted]
    for group in chosen:
        most = rng.randint(1, 4)
        with io.open(block) as reader:
            pieces = list(reader.batches(group, most))
        assert all(0 < piece.num_rows <= most for piece in pieces)
        assert [id_ for piece in pieces for id_ in ids_read(piece)] == groups[group]
    every = list(itertools.chain(*groups))
    start = rng.randint(0, len(every) - 1)
    stop = rng.randint(start + 1, len(every))
    found = []
    with io.open(block) as reader:
        for group, low, high in overlapping(reader.group_rows, start, stop):
            found += ids_read(reader.rows([group]))[low:high]
    assert found == every[start:stop]


def _without(ids: list[int], gone: set[int]) -> list[int]:
    return [id_ for place, id_ in enumerate(ids) if place not in gone]


@settings(
    max_examples=cases(10),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_live_rows_are_read_whatever_was_deleted(shared_lake: Lake, data: st.DataObject) -> None:
    draw = data.draw
    table = create(shared_lake)
    ids: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for number in range(draw(st.integers(1, 3))):
        given_ids = [number * 100 + place for place in range(draw(st.integers(1, 20)))]
        random.Random(number).shuffle(given_ids)
        size = draw(st.integers(1, 7))
        path = add_file(table, given_ids, group_rows=size)
        ids[path], sizes[path] = given_ids, size
    gone: dict[str, set[int]] = {path: set() for path in ids}
    for _ in range(draw(st.integers(0, 4))):
        paths = draw(st.lists(st.sampled_from(sorted(ids)), min_size=1, max_size=3, unique=True))
        rows = []
        for path in paths:
            positions = draw(st.lists(st.integers(0, 25), min_size=1, max_size=25))
            positions += range(*sorted(draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))))
            gone[path].update(positions)
            rows += [(path, position) for position in positions]
        if draw(st.booleans()):
            rows.sort()
        written = delete_file(
            table,
            rows,
            bounds=draw(st.booleans()),
            ids=draw(st.booleans()),
            referenced=paths[0] if len(paths) == 1 and draw(st.booleans()) else None,
            row_group_size=draw(st.integers(1, 9)),
        )
        commit_deletes(table, written)
    live = {path: _without(stored, gone[path]) for path, stored in ids.items()}
    port = port_of(table)
    version = port.newest()
    io = port.block_io(version)
    sort = version.sort
    for block in io.live(list(version.blocks(list(ids)).values())):
        stored, size = ids[block.path], sizes[block.path]
        groups = [
            [
                id_
                for place, id_ in enumerate(stored[start : start + size], start)
                if place not in gone[block.path]
            ]
            for start in range(0, len(stored), size)
        ]
        if not any(groups):
            assert block.row_count == 0
            continue
        assert_reads(io, block, groups, draw(st.integers(0, 2**31)))
        groups = [one for one in groups if one]
        with pickle.loads(pickle.dumps(io)).open(block) as reader:
            keys = reader.keys(range(len(groups)), sort)
            assert keys.column(0).to_pylist() == live[block.path]
            assert reader.copyable == frozenset() or not gone[block.path]
    expected = sorted(itertools.chain(*live.values()))
    recluster(table)
    assert sorted_ids(table) == expected


def test_row_groups_without_live_rows_are_left_out_and_not_read(lake: Lake) -> None:
    table = create(lake)
    path = add_file(table, list(range(30)), group_rows=10)
    delete_rows(table, {path: range(10, 20)})
    whole = pq.read_metadata(local(path)).row_group(1).column(1)
    with local(path).open("r+b") as file:  # whoever reads the pages of the second row group fails
        file.seek(whole.dictionary_page_offset)
        file.write(b"\xff" * whole.total_compressed_size)
    io, (block,) = opened(table)
    with io.open(block) as reader:
        assert reader.group_rows == (10, 10)
        assert ids_read(reader.rows([0, 1])) == [*range(10), *range(20, 30)]


def test_a_file_without_live_rows_is_removed_without_a_new_one(lake: Lake) -> None:
    table = create(lake)
    dead, alive, other = (add_file(table, [place, place + 10]) for place in range(3))
    delete_rows(table, {dead: [0, 1]})
    outcome = recluster(table)
    assert outcome.committed_groups == 1
    assert sorted_ids(table) == [1, 2, 11, 12]
    assert not {dead, alive, other} & paths_of(table)


def test_files_all_of_whose_rows_are_deleted_leave_an_empty_table(lake: Lake) -> None:
    table = create(lake)
    paths = [add_file(table, [place, place + 10]) for place in range(2)]
    delete_rows(table, {path: [0, 1] for path in paths})
    recluster(table)
    assert paths_of(table) == set()
    assert port_of(table).newest().files.entries.path.to_pylist() == []


def test_duplicates_and_positions_beyond_the_file_count_once_or_not_at_all(lake: Lake) -> None:
    table = create(lake)
    path, other = add_file(table, list(range(10))), add_file(table, list(range(20, 25)))
    first = delete_file(table, [(path, 3), (path, 3), (path, 99), (path, 2**40)])
    second = delete_file(table, [(path, 3), (path, 10), (other, -1)])
    commit_deletes(table, first, second)
    _, blocks = opened(table)
    assert {block.path: block.row_count for block in blocks} == {path: 9, other: 5}
    recluster(table)
    assert sorted_ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9, *range(20, 25)]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_delete_files_of_any_writer_are_read(lake: Lake, kind: pa.DataType) -> None:
    table = create(lake)
    path, other = add_file(table, list(range(10))), add_file(table, list(range(20, 25)))
    written = delete_file(table, [(path, 3), (other, 0)], ids=False)
    rows = pq.read_table(local(written.file_path))
    rows = pa.table(
        {"extra": [1, 2], "pos": rows["pos"].cast(pa.int32()), "file_path": rows["file_path"].cast(kind)}
    )
    pq.write_table(rows, local(written.file_path))
    commit_deletes(
        table, entry_of(local(written.file_path), rows=2, content=DataFileContent.POSITION_DELETES)
    )
    recluster(table)
    assert sorted_ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 21, 22, 23, 24]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def without_positions(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["pos"]), path)


def with_null(path: Path, column: str) -> None:
    rows = pq.read_table(path)
    place = rows.schema.get_field_index(column)
    pq.write_table(
        rows.set_column(place, column, pa.nulls(rows.num_rows, rows.schema.field(place).type)), path
    )


def with_texts(path: Path) -> None:
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(1, "pos", pa.array(["three"] * rows.num_rows)), path)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        cut_off,
        lambda path: path.write_bytes(b""),
        without_positions,
        with_texts,
        lambda path: with_null(path, "pos"),
        lambda path: with_null(path, "file_path"),
    ],
    ids=["missing", "cut off", "empty", "no column", "texts", "null position", "null path"],
)
def test_a_damaged_delete_file_is_named_and_nothing_is_changed(lake: Lake, damage: Any) -> None:
    table = create(lake)
    path, _ = add_file(table, list(range(10))), add_file(table, list(range(20, 25)))
    written = delete_file(table, [(path, 3)])
    commit_deletes(table, written)
    damage(local(written.file_path))
    files = set(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    assert_refused(table, written.file_path, "position delete file")
    assert set(Path(table.location().removeprefix("file://")).rglob("*.parquet")) == files
    with pytest.raises(CorruptTableError, match="position delete file") as error:
        opened(table)
    assert error.value.details["name"] == written.file_path


def test_only_delete_files_of_planned_files_are_read(lake: Lake) -> None:
    """The delete file of another partition, and one whose bounds name another file, may even be missing."""
    by_text = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"))
    table = create(lake, partition_spec=by_text)
    for text in ("a", "b"):
        for place in range(2):
            append(table, id=[place, place + 5], text=[text, text])
    tasks = {task.file.file_path: task.file for task in table.refresh().scan().plan_files()}
    chosen = {
        text: sorted(path for path, file in tasks.items() if file.partition[0] == text) for text in "ab"
    }
    for text in "ab":
        for path in chosen[text]:
            commit_deletes(table, delete_file(table, [(path, 0)], like=tasks[path]))
    wanted = chosen["a"][0]
    needed = {
        file.file_path
        for task in table.refresh().scan().plan_files()
        if task.file.file_path == wanted
        for file in task.delete_files
    }
    assert len(needed) == 1
    for file in Path(table.location().removeprefix("file://")).rglob("deletes-*.parquet"):
        if str(file) not in {path.removeprefix("file://") for path in needed}:
            file.unlink()
    _, (block,) = opened(table, [wanted])
    assert block.row_count == 1
    with pytest.raises(CorruptTableError):
        opened(table, chosen["b"])


def assert_only_measured(table: Any, *texts: str) -> None:
    """Require that a table is refused before any work, and that `info` and a plan work."""
    snapshot = table.refresh().current_snapshot()
    files = set(Path(table.location().removeprefix("file://")).rglob("*"))
    opened_ = tblctl.from_iceberg(table)
    with pytest.raises(InvalidOptionError) as error:
        opened_.recluster(cluster_by="id")
    for text in (*texts, "cannot be reclustered", "`info`"):
        assert text in str(error.value)
    assert table.refresh().current_snapshot() == snapshot
    assert set(Path(table.location().removeprefix("file://")).rglob("*")) == files
    assert opened_.info(columns=["id"]).total_block_count == 2
    opened_.plan(policy="full", cluster_by=["id"])


def two_files(lake: Lake, **more: Any) -> tuple[Any, list[str]]:
    table = create(lake, **more)
    return table, [add_file(table, list(range(place, 50, 2))) for place in range(2)]


def test_equality_deletes_are_refused(lake: Lake) -> None:
    table, _ = two_files(lake)
    written = delete_file(table, [("x", 1)])
    equality = entry_of(
        local(written.file_path), rows=1, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1]
    )
    commit_deletes(table, equality)
    assert_only_measured(table, "1 equality delete file", "rewrite_data_files")


def test_format_version_3_is_refused(lake: Lake) -> None:
    table, _ = two_files(lake)
    rewrite_metadata(
        lake, table.name()[1], lambda found: found.update({"format-version": 3, "next-row-id": 0})
    )
    table = lake.load(table.name()[1])
    assert_only_measured(table, "format version 3", "rewrite_data_files")


@pytest.mark.parametrize("kind", [FileFormat.ORC, FileFormat.AVRO])
@pytest.mark.parametrize("content", [DataFileContent.DATA, DataFileContent.POSITION_DELETES])
def test_files_of_other_formats_are_refused(lake: Lake, kind: FileFormat, content: DataFileContent) -> None:
    table, paths = two_files(lake)
    entry = entry_of(local(paths[0]), rows=25, content=content)
    found = DataFile.from_args(
        content=content,
        file_path=f"{paths[0]}.{kind.value.lower()}",
        file_format=kind,
        partition=Record(),
        record_count=25,
        file_size_in_bytes=entry.file_size_in_bytes,
    )
    found.spec_id = 0
    if content == DataFileContent.DATA:
        table = create(lake)
        add_file(table, [1, 2])
        commit(table, [found])
    else:
        commit_deletes(table, found)
    assert_only_measured(table, kind.value, "write.format.default")


@pytest.mark.parametrize("content", [DataFileContent.DATA, DataFileContent.POSITION_DELETES])
def test_encrypted_files_are_refused(lake: Lake, content: DataFileContent) -> None:
    table = create(lake)
    path = add_file(table, [1, 2])
    if content == DataFileContent.DATA:
        add_file(table, [3, 4], key_metadata=b"key")
    else:
        add_file(table, [3, 4])
        commit_deletes(table, entry_of(local(path), rows=1, content=content, key_metadata=b"key"))
    assert_only_measured(table, "encrypted")


def test_a_data_file_that_is_missing_or_cut_off_fails_its_group_alone(lake: Lake) -> None:
    by_text = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"))
    table = create(lake, partition_spec=by_text)
    for place in range(2):
        append(table, id=[place, place + 5, place + 10], text=["a", "b", "c"])
    files = [task.file for task in table.refresh().scan().plan_files()]
    missing = next(file.file_path for file in files if file.partition[0] == "a")
    damaged = next(file.file_path for file in files if file.partition[0] == "b")
    expected = Counter(table.scan(row_filter="text == 'c'").to_arrow()["id"].to_pylist())
    local(missing).unlink()
    cut_off(local(damaged))
    outcome = recluster(table)
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 2)
    errors = " ".join(str(group.error) for group in outcome.groups if group.error)
    assert missing in errors
    assert damaged in errors
    left = paths_of(table)
    assert {file.file_path for file in files if file.partition[0] != "c"} <= left
    assert len(left) == 5
    assert Counter(table.scan(row_filter="text == 'c'").to_arrow()["id"].to_pylist()) == expected
    for path in (missing, damaged):
        io, (block,) = opened(table, [path])
        with pytest.raises(CorruptTableError) as error:
            io.open(block)
        assert path in str(error.value)
        assert error.value.details["name"] == path


def test_deletes_of_older_snapshots_do_not_reach_newer_files(lake: Lake) -> None:
    table = create(lake)
    path, _ = add_file(table, list(range(10))), add_file(table, list(range(20, 25)))
    written = delete_file(table, [(path, 1)])
    commit_deletes(table, written)
    recluster(table)
    expected = rows_seen(table)
    add_file(table, [40])
    expected.update(["{'id': 40, 'text': 'text 40'}"])
    assert_same_rows(table, expected=expected)
    assert np.sum(list(rows_seen(table).values())) == 15
