"""Import: files become a table, each once, whatever happens in between."""

from __future__ import annotations

import contextlib
import json
import os
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import memory_table
from faults import Faults, Killed, fault_points, inject, kill_points
from tables import assert_sound, named_objects, objects_of

import tblctl
from tblctl.errors import (
    CommitOutcomeUnknownError,
    CorruptTableError,
    InvalidDataError,
    InvalidKeyError,
    InvalidOptionError,
    SchemaMismatchError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.import_lists import lists_to_fold
from tblctl.tableformat.model.snapshot import ImportList
from tblctl.tableformat.native.log import snapshot_file
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.identity import identities

from .files import LONG_AGO, interleaved, write


def bring(folder, target, **how):
    return tblctl.import_parquet(folder, target, **how)


def ids(target, name="id"):
    return sorted(tblctl.open(target).scan().to_arrow()[name].to_pylist())


def test_files_become_a_clustered_table_and_each_is_taken_once(tmp_path):
    folder = interleaved(tmp_path / "in", count=3, rows=4)
    first = bring(folder, tmp_path / "t", cluster_by="at")
    assert (first.is_new, first.files_taken, first.rows_added, first.commits) == (True, 3, 12, 1)
    assert tblctl.open(tmp_path / "t").cluster_by == ("at",)
    again = bring(folder, tmp_path / "t", cluster_by="at")
    assert (again.is_new, again.files_taken, again.files_known, again.snapshot) == (False, 0, 3, None)
    assert "no new file" in again.note
    write(folder, "more.parquet", {"at": [99], "id": [99]})
    third = bring(folder, tmp_path / "t")
    assert (third.files_taken, third.files_known, third.rows_added) == (1, 3, 1)
    assert ids(tmp_path / "t") == [*range(12), 99]
    assert_sound(tblctl.open(tmp_path / "t"))
    newest = next(iter(tblctl.open(tmp_path / "t").history()))
    size = (folder / "more.parquet").stat().st_size
    assert newest.detail["import"] == {"from": str(folder), "files": 1, "bytes": size}


def test_a_file_that_was_written_again_is_reported_and_not_taken_again(tmp_path):
    folder = interleaved(tmp_path / "in", count=2, rows=2)
    bring(folder, tmp_path / "t")
    path = write(folder, "part-1.parquet", {"at": [5], "id": [500]})
    longer = bring(folder, tmp_path / "t")
    assert (longer.files_changed, longer.files_known, longer.files_taken) == ((str(path),), 1, 0)
    bring(folder, tmp_path / "u")
    os.utime(path, (LONG_AGO, LONG_AGO + 1))
    assert bring(folder, tmp_path / "u").files_changed == (str(path),)
    assert ids(tmp_path / "t") == [0, 1, 2, 3]


def test_what_was_taken_is_known_by_any_path_to_it(tmp_path, monkeypatch):
    folder = interleaved(tmp_path / "in", count=3, rows=1)
    (tmp_path / "link").symlink_to(folder)
    bring(folder / "part-0.parquet", tmp_path / "t")
    bring([str(folder / "*-1.parquet"), folder / "part-0.parquet"], tmp_path / "t")
    monkeypatch.chdir(tmp_path)
    assert bring("link", "t").files_taken == 1
    assert bring(["in", "in/*.parquet", "in/part-2.parquet"], "t").files_taken == 0
    assert ids("t") == [0, 1, 2]


def test_a_url_of_this_machine_names_the_same_files_as_a_path(tmp_path):
    folder = interleaved(tmp_path / "in", count=3, rows=1)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "one.parquet").symlink_to(folder / "part-0.parquet")
    target = tmp_path / "t"
    assert bring(f"file://{tmp_path}/one.parquet", target).files_taken == 1
    assert bring(tmp_path / "link", target).files_taken == 2
    names = ("link", "in", "in/*.parquet", "link/*.parquet", "link/part-1.parquet")
    urls = [
        f"{scheme}{tmp_path}/{name}"
        for name in names
        for scheme in ("file://", "file://localhost", "local://")
    ]
    assert bring(urls, target).files_taken == 0
    assert ids(target) == [0, 1, 2]
    table = tblctl.create(tmp_path / "u", "at: int64, id: int64")
    table.append(f"file://{tmp_path}/link")
    assert ids(tmp_path / "u") == [0, 1, 2]


def test_a_list_of_files_is_kept_without_their_credentials_and_with_their_containers(tmp_path):
    names = pa.array(["x.parquet?X-Amz-Signature=hunter2", "y#z"], pa.large_string())
    root = Storage("https://me:hunter2@h:1/in?sig=hunter2").identity
    assert identities(root, names).to_pylist() == ["https://h:1/in/x.parquet", "https://h:1/in/y"]
    assert identities("s3://b/", names[1:]).to_pylist() == ["s3://b/y#z"]
    with memory_table("id: int64") as table:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [1]}), sink)
        Storage(f"{table.location}-in").write("a.parquet", sink.getvalue())
        assert bring(f"{table.location}-in/", table.location).files_taken == 1
        assert (
            bring(f"{table.location}-in".replace("memory://", "MEMORY:///"), table.location).files_known == 1
        )


def test_files_are_opened_with_the_options_of_their_place(tmp_path):
    folder, asked = interleaved(tmp_path / "in", count=1, rows=1), []

    def options_of(place):
        asked.append(place)
        return {}

    assert bring(folder, tmp_path / "t", source_options=options_of).files_taken == 1
    assert asked == [str(folder)]


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/in", "memory://nothing/in"])
def test_a_signature_in_a_url_is_shown_in_no_error(place, tmp_path):
    table = tblctl.create(tmp_path / "t", "id: int64")
    url = f"{place}/x.parquet?sv=1&sig=hunter2"
    for act in (
        lambda: table.append(url),
        lambda: table.append([url], hive=True),
        lambda: bring(url, tmp_path / "u"),
    ):
        with pytest.raises(TblctlError) as caught:
            act()
        shown = "".join(traceback.format_exception(caught.value))
        assert "x.parquet" in str(caught.value)
        assert "hunter2" not in shown.replace(f'"{url}"', "")


def test_folders_become_columns_if_that_is_said(tmp_path):
    write(tmp_path / "in", "year=2024/city=x/a.parquet", {"id": [1]})
    write(tmp_path / "in", "year=2025/city=__HIVE_DEFAULT_PARTITION__/a.parquet", {"id": [2]})
    with pytest.raises(InvalidOptionError, match=r"year=2024/city=x.*year, city.*--hive.*--no-hive"):
        bring(tmp_path / "in", tmp_path / "t")
    assert not tblctl.exists(tmp_path / "t")
    bring(tmp_path / "in", tmp_path / "t", hive=True, cluster_by="year")
    table = tblctl.open(tmp_path / "t")
    assert table.schema.field("year").type == pa.int32()
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [
        {"id": 1, "year": 2024, "city": "x"},
        {"id": 2, "year": 2025, "city": None},
    ]
    # In the table's type from then on, though these values alone would be numbers; from folders above the location too.
    write(tmp_path / "in", "year=2026/city=7/a.parquet", {"id": [3]})
    bring(tmp_path / "in" / "year=2026", tmp_path / "t", hive=True)
    assert table.scan("id = 3").to_arrow().to_pylist() == [{"id": 3, "year": 2026, "city": "7"}]
    write(tmp_path / "in", "year=none/city=7/a.parquet", {"id": [4]})
    with pytest.raises(
        SchemaMismatchError, match=r"year=none/city=7: 'none' is no int32, the type of .* year"
    ):
        bring(tmp_path / "in", tmp_path / "t", hive=True)
    bring(tmp_path / "in" / "year=2024", tmp_path / "u", hive=False)
    assert tblctl.open(tmp_path / "u").schema.names == ["id"]


def test_the_folders_of_several_sources_have_one_type_of_a_column(tmp_path):
    write(tmp_path / "in", "m=1/a.parquet", {"id": [1]})
    write(tmp_path / "in", "m=x/a.parquet", {"id": [2]})
    write(tmp_path / "own", "a.parquet", {"id": [3], "m": [7]})
    bring([tmp_path / "in" / "m=1", tmp_path / "in" / "m=x"], tmp_path / "t", hive=True)
    rows = tblctl.open(tmp_path / "t").scan().to_arrow().to_pylist()
    assert sorted(rows, key=str) == [{"id": 1, "m": "1"}, {"id": 2, "m": "x"}]
    with pytest.raises(SchemaMismatchError, match=r"own/a\.parquet: .*m: expected string, got int64"):
        bring([tmp_path / "own", tmp_path / "in" / "m=x"], tmp_path / "u", hive=True)
    assert not tblctl.exists(tmp_path / "u"), "nothing is created before all files are known to fit"


def test_a_column_of_the_table_that_becomes_null_since_folders_do_not_count_is_warned_of(tmp_path, caplog):
    write(tmp_path / "in", "year=2024/a.parquet", {"id": [1]})
    write(tmp_path / "own", "year=2025/a.parquet", {"id": [2], "year": pa.array([2025], pa.int32())})
    bring(tmp_path / "in", tmp_path / "new", hive=False)
    table = tblctl.create(tmp_path / "t", "id: int64, year: int32")
    bring(tmp_path / "own", table.location, hive=False)
    table.append(tmp_path / "in", hive=True)
    assert not caplog.messages, "nothing is lost"
    for number, take in enumerate(
        (
            lambda: bring(tmp_path / "in", table.location, hive=False),
            lambda: table.append(tmp_path / "in", hive=False),
            lambda: table.append(tmp_path / "in" / "year=2024" / "a.parquet", hive=False),
        ),
        1,
    ):
        take()
        assert len(caplog.messages) == number
        assert "NULL in their rows: year" in caplog.messages[-1]


def test_files_of_a_folder_that_are_left_out_for_their_ending_are_counted_with_an_example(tmp_path, caplog):
    for name in ("a.PARQUET", "b.parquet", "c.parquet.snappy", "y=1/d.pq", "part-0"):
        write(tmp_path / "in", name, {"id": [1]})
    for name in ("_SUCCESS", ".b.parquet.crc", "_temporary/x.pq", "notes.txt"):
        write(tmp_path / "in", name, {"id": [1]})
    (tmp_path / "in" / "l.parquet").symlink_to(tmp_path / "in" / "b.parquet")
    bring(tmp_path / "in", tmp_path / "t")
    said, links = caplog.messages
    assert f"{tmp_path / 'in'}: 4 files are left out, such as 'a.PARQUET': the ending" in said
    assert "1 file is left out, such as 'l.parquet': links are not followed" in links
    tblctl.open(tmp_path / "in")
    assert caplog.messages == [said, links] * 2, "whoever measures a folder is told, too"
    bring([tmp_path / "in" / "b.parquet", str(tmp_path / "in" / "*.PARQUET")], tmp_path / "t")
    assert len(caplog.messages) == 4, "a file and a glob say what is meant"


def test_a_link_to_a_file_is_taken_by_append_as_by_import(tmp_path):
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "l.parquet").symlink_to(write(tmp_path, "a.parquet", {"id": [1]}))
    bring(tmp_path / "up" / "l.parquet", tmp_path / "t")
    tblctl.open(tmp_path / "t").append(str(tmp_path / "up" / "l.parquet"))
    assert ids(tmp_path / "t") == [1, 1]


def test_a_table_inside_of_its_source_is_refused_at_once(tmp_path, monkeypatch):
    folder = interleaved(tmp_path / "in", count=1, rows=1)
    (tmp_path / "link").symlink_to(folder)
    for source, target in (
        ("in", "in/tab"),
        ("in/*.parquet", "in/x/tab"),
        ("link", "in/tab"),
        ("in", "link/tab"),
    ):
        with pytest.raises(InvalidOptionError, match="place outside"):
            bring(str(tmp_path / source), tmp_path / target)
    assert [path.name for path in folder.iterdir()] == ["part-0.parquet"]
    bring([folder / "part-0.parquet", str(folder / "p*.parquet")], folder / "tab")
    assert bring(str(folder / "p*.parquet"), folder / "tab").files_known == 1, (
        "such a list does not meet the table"
    )


def test_tables_of_other_formats_are_no_sources_and_the_error_says_how_to_go_on(tmp_path):
    table = tblctl.create(tmp_path / "t", "id: int64")
    for given, way in (("delta:x", "info delta:PATH --columns"), ("iceberg://c/a.b", "recluster iceberg://")):
        for use in (table.append, lambda paths: bring(paths, tmp_path / "t")):
            with pytest.raises(UnsupportedFormatError, match=way):
                use(given)


def test_columns_like_those_of_a_folder_are_refused_with_what_to_name(tmp_path):
    folder = interleaved(tmp_path / "in", count=1, rows=1)
    with pytest.raises(InvalidDataError, match=r"in is a folder: name one of its files"):
        tblctl.read_schema(folder)


def test_a_files_own_column_goes_before_the_folders(tmp_path):
    write(tmp_path / "in", "id=7/a.parquet", {"id": [1]})
    bring(tmp_path / "in", tmp_path / "t")
    assert ids(tmp_path / "t") == [1]


def test_columns_are_united_by_name(tmp_path):
    write(tmp_path / "in", "a.parquet", {"id": pa.array([1], pa.int32()), "a": ["x"]})
    write(tmp_path / "in", "b.parquet", {"b": [0.5], "id": pa.array([2**40])})
    bring(tmp_path / "in", tmp_path / "t", cluster_by="hilbert(id, a)")
    assert tblctl.open(tmp_path / "t").schema.field("id").type == pa.int64()
    assert sorted(tblctl.open(tmp_path / "t").scan().to_arrow().to_pylist(), key=str) == [
        {"id": 1, "a": "x", "b": None},
        {"id": 2**40, "a": None, "b": 0.5},
    ]


def test_files_that_differ_or_do_not_fit_are_refused_before_anything_is_written(tmp_path):
    write(tmp_path / "in", "a.parquet", {"id": [1]})
    write(tmp_path / "in", "b.parquet", {"id": ["x"]})
    with pytest.raises(SchemaMismatchError, match=r"id is string in b\.parquet, and int64 in a\.parquet"):
        bring(tmp_path / "in", tmp_path / "t")
    assert not tblctl.exists(tmp_path / "t")
    bring(tmp_path / "in" / "a.parquet", tmp_path / "t")
    write(tmp_path / "more", "0.parquet", {"id": [2]})
    write(tmp_path / "more", "1.parquet", {"id": [0.5]})
    with pytest.raises(SchemaMismatchError, match=r"more/1\.parquet: .*id: expected int64, got float64"):
        bring(tmp_path / "more", tmp_path / "t")
    assert ids(tmp_path / "t") == [1]
    write(tmp_path / "odd", "a.parquet", {"t": pa.array([1], pa.duration("s")), "id": [1]})
    with pytest.raises(TblctlError, match=r"odd/a\.parquet: .*duration"):
        bring(tmp_path / "odd", tmp_path / "u")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"PAR1" + b"x" * 40, "is cut short"),
        (b"PAR1xxxxPARE", "is encrypted"),
    ],
)
def test_unreadable_files_are_named_before_anything_is_written(data, problem, tmp_path):
    folder = interleaved(tmp_path / "in", count=2, rows=1)
    (folder / "part-9.parquet").write_bytes(data)
    with pytest.raises(InvalidDataError, match=rf"part-9\.parquet {problem}"):
        bring(folder, tmp_path / "t")
    assert not tblctl.exists(tmp_path / "t")


def test_a_file_damaged_inside_ends_the_import_and_the_next_one_goes_on(tmp_path):
    folder = interleaved(tmp_path / "in", count=3, rows=2)
    path = folder / "part-1.parquet"
    good = path.read_bytes()
    path.write_bytes(good[:4] + b"\xff" * 40 + good[44:])
    with pytest.raises(InvalidDataError, match=r"part-1\.parquet is damaged") as caught:
        bring(folder, tmp_path / "t", commit_bytes=1)
    assert caught.value.__notes__ == ["1 files were taken before that: the same import goes on"]
    assert ids(tmp_path / "t") == [0, 1]
    path.write_bytes(good)
    assert bring(folder, tmp_path / "t").files_taken == 2
    assert ids(tmp_path / "t") == list(range(6))


def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path):
    folder = interleaved(tmp_path / "in", count=2, rows=2)

    def rewrite(_done, _total, unit):
        if unit == "bytes":
            os.utime(folder / "part-0.parquet", (LONG_AGO, LONG_AGO + 5))

    with pytest.raises(InvalidDataError, match=r"part-0\.parquet was written or deleted while it was read"):
        bring(folder, tmp_path / "t", progress=rewrite)
    assert ids(tmp_path / "t") == []


def test_tables_and_places_without_files_are_refused_and_links_are_not_followed(tmp_path):
    folder = interleaved(tmp_path / "in", count=1, rows=1)
    (folder / "loop").symlink_to(folder)
    bring(folder, tmp_path / "t")
    assert ids(tmp_path / "t") == [0]
    with pytest.raises(UnsupportedFormatError, match="a table of tblctl"):
        bring(tmp_path / "t", tmp_path / "u")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    write(tmp_path / "delta", "a.parquet", {"id": [1]})
    (tmp_path / "delta" / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(UnsupportedFormatError, match="a Delta table"):
        bring(tmp_path / "delta", tmp_path / "u")
    for nothing in ([], tmp_path / "missing", str(folder / "*.pq")):
        with pytest.raises(InvalidOptionError, match="file"):
            bring(nothing, tmp_path / "u")
    with pytest.raises(InvalidOptionError, match="commit_bytes is 0"):
        bring(folder, tmp_path / "u", commit_bytes=0)


def test_an_empty_source_is_refused_and_not_the_folder_of_now(tmp_path, monkeypatch):
    interleaved(tmp_path, count=1, rows=1)
    monkeypatch.chdir(tmp_path)
    table = tblctl.create(tmp_path / "t", "at: int64, id: int64")
    for paths in ("", ["part-0.parquet", ""], " "):
        for use in (table.append, table.overwrite, lambda given: bring(given, tmp_path / "t")):
            with pytest.raises(InvalidOptionError, match="empty text"):
                use(paths)
    assert table.snapshot.sequence == 1


def test_a_key_that_the_table_does_not_have_is_refused(tmp_path):
    folder = interleaved(tmp_path / "in", count=1, rows=1)
    bring(folder, tmp_path / "t", cluster_by="at")
    with pytest.raises(InvalidKeyError, match="is clustered by at"):
        bring(folder, tmp_path / "t", cluster_by="id")


def test_the_list_of_files_outlives_expiry_and_gc_and_a_rollback_takes_it_back(tmp_path):
    folder = interleaved(tmp_path / "in", count=4, rows=1)
    bring(folder, tmp_path / "t", commit_bytes=1)
    table = tblctl.open(tmp_path / "t")
    lists = [item.file_count for item in table._native.head().imports]
    assert sum(lists) == 4
    table.append(pa.table({"at": [50], "id": [50]}))
    table.gc(keep=1, older_than=0)
    assert {item for item in objects_of(table.location) if "imports" in item} == {
        item.path for item in table._native.head().imports
    }
    assert bring(folder, tmp_path / "t").files_taken == 0
    kept = table.snapshot.sequence
    write(folder, "more.parquet", {"at": [7], "id": [7]})
    bring(folder, tmp_path / "t")
    table.rollback(kept)
    assert bring(folder, tmp_path / "t").files_taken == 1  # its rows were taken away with it
    assert ids(tmp_path / "t") == [0, 1, 2, 3, 7, 50]
    assert_sound(table)


def test_lists_are_folded_so_that_there_are_few():
    lists = ()
    for number in range(1000):
        stay, folded = lists_to_fold(lists, 1)
        made = ImportList(
            path=str(number), size_bytes=1, checksum=0, file_count=1 + sum(item.file_count for item in folded)
        )
        lists = (*stay, made)
        assert len(lists) <= 10
        assert sum(item.file_count for item in lists) == number + 1
    assert lists_to_fold(lists, 2000) == ((), lists)


def test_two_imports_at_once_take_no_file_twice(tmp_path):
    folder = interleaved(tmp_path / "in", count=4, rows=1)
    target, inner = tmp_path / "t", []

    def meanwhile(_done, _total, unit):
        if unit == "bytes" and not inner:
            inner.append(bring(folder, target, commit_bytes=1))

    outer = bring(folder, target, progress=meanwhile)
    assert (inner[0].files_taken, outer.files_taken) == (4, 0)
    assert ids(target) == [0, 1, 2, 3]
    assert_sound(tblctl.open(target))
    table = tblctl.open(target)
    table.gc(keep=1, older_than=0)
    assert set(objects_of(str(target))) - {"metadata/latest"} == named_objects(table)


def test_an_import_of_other_files_meanwhile_discards_nothing(tmp_path):
    folder, others = interleaved(tmp_path / "in", count=3, rows=1), tmp_path / "others"
    target, faults = tmp_path / "t", Faults()
    bring(folder / "part-0.parquet", target)
    brought = []

    def meanwhile(_done, _total, unit):
        if unit == "bytes":
            number = 90 + len(brought)
            brought.append(number)
            bring(write(others, f"{number}.parquet", {"at": [number], "id": [number]}), target)

    with inject(faults):
        outer = bring(folder, target, commit_bytes=1, progress=meanwhile)
    assert not [call for call in faults.calls if call.operation == "delete" and call.name.startswith("data/")]
    assert (outer.files_taken, outer.commits, len(brought)) == (2, 2, 2)
    assert ids(target) == [0, 1, 2, 90, 91]
    assert (bring(folder, target).files_known, bring(others, target).files_known) == (3, 2)
    assert_sound(tblctl.open(target))


def test_files_to_come_that_another_import_takes_are_not_taken_again(tmp_path):
    folder = interleaved(tmp_path / "in", count=4, rows=1)
    target, inner = tmp_path / "t", []

    def meanwhile(_done, _total, unit):
        if unit == "bytes" and not inner:
            inner.append(bring(folder / "part-2.parquet", target))

    outer = bring(folder, target, commit_bytes=1, progress=meanwhile)
    assert (inner[0].files_taken, outer.files_taken, outer.commits) == (1, 3, 3)
    assert ids(target) == [0, 1, 2, 3]
    assert sum(item.file_count for item in tblctl.open(target)._native.head().imports) == 4


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_an_import_that_ends_at_any_storage_call_and_runs_again_loses_and_doubles_nothing(how):
    source = Storage("memory://import-faults/in")
    for number in range(2):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [2 * number, 2 * number + 1]}), sink)
        source.write(f"year=2024/{number}.parquet", sink.getvalue())
    target = "memory://import-faults/table"

    def act():
        return bring(source.url, target, hive=True, cluster_by="id", commit_bytes=1)

    points = list((kill_points if how == "killed" else fault_points)(act))
    assert {point.call.operation for point in points} >= {
        "list",
        "open",
        "read",
        "write",
        "create",
        "look for",
    }
    seen = set()
    for point in points:
        Storage(target).delete_all()
        faults = Faults()
        if how == "killed":
            faults.kill(nth=point.number, at=point.at)
        else:
            unsure = point.call.operation == "create" and point.at == "after"
            error = CommitOutcomeUnknownError("injected: no reply") if unsure else None
            faults.fail(error, nth=point.number, at=point.at)
        with inject(faults), contextlib.suppress(TblctlError, Killed):
            act()
        assert faults.fired, str(point)
        taken = ids(target) if tblctl.exists(target) else None
        act()
        assert ids(target) == list(range(4)), str(point)
        table = tblctl.open(target)
        assert sum(item.file_count for item in table._native.head().imports) == 2, str(point)
        if str(taken) not in seen:
            assert_sound(table)
        seen.add(str(taken))
    assert len(seen) == 4  # no table, an empty one, and one or two files
    Storage("memory://import-faults").delete_all()


def test_a_list_that_gc_may_have_removed_before_the_commit_is_written_again(tmp_path):
    folder = interleaved(tmp_path / "in", count=1, rows=1)
    bring(folder, tmp_path / "t")
    table = tblctl.open(tmp_path / "t")
    write(folder, "empty.parquet", {"at": pa.array([], pa.int64()), "id": pa.array([], pa.int64())})
    faults = Faults()
    faults.do(lambda: table.gc(keep=1, older_than=0), operation="write", name="metadata/imports/", at="after")
    with inject(faults):
        done = bring(folder, tmp_path / "t")
    assert (done.files_taken, done.rows_added, len(faults.fired)) == (1, 0, 1)
    assert bring(folder, tmp_path / "t").files_known == 2
    assert_sound(table)


def test_a_list_that_is_damaged_or_missing_is_found_and_named(tmp_path):
    folder = interleaved(tmp_path / "in", count=2, rows=1)
    bring(folder, tmp_path / "t")
    table = tblctl.open(tmp_path / "t")
    (item,) = table._native.head().imports
    data = table._native.storage.read(item.path)
    table._native.storage.write(item.path, data[:-9] + b"x" + data[-8:])
    with pytest.raises(CorruptTableError, match=f"{item.path} is damaged"):
        bring(folder, tmp_path / "t")
    assert item.path in table.check(deep=True).problems[0]
    assert table.check().ok
    table._native.storage.delete([item.path])
    with pytest.raises(CorruptTableError, match=f"{item.path} is missing"):
        bring(folder, tmp_path / "t")
    assert f"{item.path}: missing" in table.check().problems[0]


def test_a_writer_that_does_not_know_lists_of_files_is_kept_out(tmp_path, monkeypatch):
    bring(interleaved(tmp_path / "in", count=1, rows=1), tmp_path / "t")
    table = tblctl.open(tmp_path / "t")
    document = json.loads((tmp_path / "t/metadata/snapshots/00000000000000000002.json").read_bytes())
    assert (document["min_writer_version"], len(document["imports"])) == (6, 1)
    monkeypatch.setattr(snapshot_file, "WRITER_VERSION", 5)
    with pytest.raises(UnsupportedFormatError, match="writers of version 6"):
        table.append(pa.table({"id": [1]}))
    assert ids(tmp_path / "t") == [0]


def test_appends_take_folders_and_globs_on_any_backend():
    with memory_table("id: int64, year: int16") as table:
        place = f"{table.location}-in"
        for number in range(3):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": pa.array([number], pa.int8())}), sink)
            Storage(place).write(f"year=202{number}/a.parquet", sink.getvalue())
        with pytest.raises(InvalidOptionError, match="--hive"):
            table.append(place)
        Storage(place).write("_SUCCESS", b"")
        with pytest.raises(InvalidOptionError, match="--hive"):
            table.append(f"{place}/year=2021/a.parquet")
        table.append(f"{place}/", hive=True)
        table.append(f"{place}/*0/*.parquet", hive=True)
        table.append(f"{place}/year=2021/a.parquet", hive=False)
        table.overwrite(f"{place}/year=2022", "id = 2", hive=True)
        found = sorted(
            (row["id"], row["year"]) for row in table.scan("year is not null").to_arrow().to_pylist()
        )
        assert found == [(0, 2020), (0, 2020), (1, 2021), (2, 2022)]
        assert table.scan("year is null").to_arrow()["id"].to_pylist() == [1]


def test_an_append_of_a_folder_names_the_file_that_does_not_fit(tmp_path):
    write(tmp_path / "in", "a.parquet", {"id": [1]})
    write(tmp_path / "in", "b.parquet", {"ID": [1]})
    table = tblctl.create(tmp_path / "t", "id: int64")
    with pytest.raises(SchemaMismatchError, match=r"in/b\.parquet: .*ID: not a column of the table; id is"):
        table.append(tmp_path / "in")
    (tmp_path / "in" / "b.parquet").write_bytes(b"")
    with pytest.raises(InvalidDataError, match=r"b\.parquet is empty"):
        table.append([tmp_path / "in"])
    assert table.snapshot.sequence == 1
