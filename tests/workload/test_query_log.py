"""The log of a table's queries: what is written is read again, and whatever is wrong with it is counted."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
from query_logs import SOON, TABLE, at, line, place, put

from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.lines import (
    MOST_LINE_BYTES,
    Header,
    decode_header,
    decode_query,
    encode_header,
    encode_query,
)
from tblctl.tableformat.workload.place import LogPlace, log_file, log_path
from tblctl.tableformat.workload.queries import MOST_BLOCKS, BlockUse, Query
from tblctl.tableformat.workload.reader import log_files, read_log
from tblctl.tableformat.workload.writer import LogWriter

WHOLE = Query(
    time=1_764_132_373.123,
    where="name = 'it''s' AND x > 5",
    columns=("name", "x"),
    weight=10.0,
    blocks_read=3,
    blocks_total=40,
    bytes_read=12_345,
    rows_read=300,
    rows_matched=7,
    seconds=0.25,
    cpu_seconds=0.125,
    snapshot="17",
    source="spark",
    blocks=(
        BlockUse(path="data/a.parquet", rows_read=100, rows_matched=7),
        BlockUse(path="b", rows_read=1, rows_matched=0),
    ),
    tested=(("x", ">"),),
)


def test_a_query_is_read_as_it_was_written() -> None:
    assert decode_query(encode_query(WHOLE)) == WHOLE
    assert decode_query(encode_query(Query(time=1.0, where=""))) == Query(time=1.0, where="")


def test_only_the_first_thousand_blocks_of_a_query_are_written() -> None:
    use = BlockUse(path="data/a.parquet", rows_read=1, rows_matched=1)
    found = decode_query(encode_query(dataclasses.replace(WHOLE, blocks=(use,) * (MOST_BLOCKS + 1))))
    assert found is not None
    assert len(found.blocks) == MOST_BLOCKS


def test_a_header_is_read_as_it_was_written() -> None:
    header = Header(table_id=TABLE, dropped=3, imported="a.log", kind="spark")
    assert decode_header(encode_header(header)) == header


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"{", b"[]", b"1", b'{"where": ""}', b'{"time": "1"}', b'{"time": -1}', b'{"time": NaN}', b"\xff",
        b'{"time": 1, "weight": 0}', b'{"time": 1, "blocks_read": -1}', b'{"time": 1, "blocks": [[1]]}',
        b'{"time": 1, "columns": 5}', b'{"time": 1, "tested": [["a"]]}', b"[" * 100_000, b'{"time": 1e999}',
    ],
)  # fmt: skip
def test_a_damaged_line_is_no_query(damaged: bytes) -> None:
    assert decode_query(damaged) is None


def test_only_names_of_the_form_are_files_of_the_log() -> None:
    name = log_path("workload/", 1_764_132_373_123, "0" * 32)
    file = log_file(name, "workload/")
    assert file is not None
    assert file.time == 1_764_132_373.123
    for other in (name + ".tmp", "workload/notes.txt", name.removeprefix("workload/"), f"x{name}"):
        assert log_file(other, "workload/") is None


def test_half_written_and_foreign_lines_are_counted_and_the_others_read(tmp_path: Any) -> None:
    log = place(tmp_path)
    long = b"x" * (2 * MOST_LINE_BYTES) + b"\n"
    put(log, 100, line(10, "a"), b"\xff\xfe\n", long, line(20, "b"), line(30, "c")[:-9])
    put(log, 200, line(40, "d"), table_id="cd" * 16)
    log.storage.write(log_path(log.folder, 300_000, SYSTEM.new_id()), b"no header\n")
    log.storage.write("workload/notes.txt", b"mine")
    found = read_log(log, TABLE)
    assert [query.where for query in found.queries] == ["a", "b"]
    assert (found.files, found.damaged_lines, found.other_files) == (1, 3, 2)


def test_the_newest_queries_are_kept_and_older_files_are_not_opened(tmp_path: Any) -> None:
    log = place(tmp_path)
    put(log, 100, line(99, "old"))
    put(log, 200, line(150, "a"), line(199, "c"), line(160, "b"))
    put(log, 300, line(201, "e"), line(200, "d"))
    found = read_log(log, TABLE, limit=3)
    assert [query.where for query in found.queries] == ["c", "d", "e"]
    assert found.files == 2
    assert [query.where for query in read_log(log, TABLE, since=160).queries] == ["b", "c", "d", "e"]
    assert read_log(log, TABLE, limit=0).queries == ()


def test_a_query_of_a_clock_that_is_ahead_does_not_outlive_others(tmp_path: Any) -> None:
    log = place(tmp_path)
    put(log, 100, line(10_000_000, "from the future"))
    put(log, 200, line(150, "a"), line(160, "b"))
    assert [query.where for query in read_log(log, TABLE, limit=2).queries] == ["a", "b"]


def test_what_was_added_is_in_one_file_after_a_flush(tmp_path: Any) -> None:
    log = place(tmp_path)
    writer = LogWriter(log, at(500), TABLE, limits=SOON)
    for time in (1.0, 2.0):
        writer.add(Query(time=time, where=f"x = {time:g}"))
    assert writer.flush(30)
    assert [file.time for file in log_files(log)] == [500.0]
    assert [query.where for query in read_log(log, TABLE).queries] == ["x = 1", "x = 2"]
    assert writer.flush(30), "nothing waits"
    assert len(log_files(log)) == 1


def test_enough_queries_are_written_without_a_flush(tmp_path: Any) -> None:
    written = threading.Event()

    class Watched(Storage):
        def write(self, name: str, data: Any) -> None:
            super().write(name, data)
            written.set()

    log = LogPlace(storage=Watched(tmp_path / "table"))
    writer = LogWriter(log, SYSTEM, TABLE, limits=dataclasses.replace(SOON, flush_queries=3))
    for time in (1.0, 2.0):
        writer.add(Query(time=time, where=""))
    assert not written.is_set()
    writer.add(Query(time=3.0, where=""))
    assert written.wait(30)
    assert len(read_log(log, TABLE).queries) == 3


def test_a_full_queue_drops_queries_and_the_next_file_says_how_many(tmp_path: Any) -> None:
    log = place(tmp_path)
    writer = LogWriter(log, SYSTEM, TABLE, limits=dataclasses.replace(SOON, most_bytes=1_000))
    for time in range(5):
        writer.add(Query(time=float(time), where=""))
    assert writer.dropped == 3
    assert writer.flush(30)
    found = read_log(log, TABLE)
    assert (len(found.queries), found.dropped) == (2, 3)


def test_a_failing_storage_loses_queries_and_nothing_else(tmp_path: Any) -> None:
    class Failing(Storage):
        def write(self, name: str, data: Any) -> None:
            raise OSError(name)

    good = place(tmp_path)
    bad = LogPlace(storage=Failing(tmp_path / "table"), folder=good.folder)
    writer = LogWriter(bad, SYSTEM, TABLE, limits=SOON)
    writer.add(Query(time=1.0, where=""))
    assert writer.flush(30)
    assert writer.dropped == 1
    assert read_log(good, TABLE).queries == ()
    writer.place = good
    writer.add(Query(time=2.0, where="b"))
    assert writer.flush(30)
    found = read_log(good, TABLE)
    assert ([query.where for query in found.queries], found.dropped) == (["b"], 1)


def test_a_storage_that_hangs_holds_up_nobody(tmp_path: Any) -> None:
    go_on = threading.Event()

    class Hanging(Storage):
        def write(self, name: str, data: Any) -> None:
            go_on.wait(60)
            super().write(name, data)

    writer = LogWriter(LogPlace(storage=Hanging(tmp_path)), SYSTEM, TABLE, limits=SOON)
    writer.add(Query(time=1.0, where=""))
    assert not writer.flush(0.01)
    writer.add(Query(time=2.0, where=""))  # returns
    go_on.set()
    assert writer.flush(30)


def test_nothing_is_written_beside_a_table_that_was_dropped(tmp_path: Any) -> None:
    log = LogPlace(storage=Storage(tmp_path / "table"), has_table=lambda: False)
    writer = LogWriter(log, SYSTEM, TABLE, limits=SOON)
    writer.add(Query(time=1.0, where=""))
    assert writer.flush(30)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("rewrite", [lambda text: f"about {text}", lambda _text: 1 / 0])
def test_of_a_condition_only_what_is_to_be_kept_is_written(
    tmp_path: Any, rewrite: Callable[[str], str]
) -> None:
    log = place(tmp_path)
    writer = LogWriter(log, SYSTEM, TABLE, rewrite=rewrite, limits=SOON)
    writer.add(Query(time=1.0, where="secret"))
    assert writer.flush(30)
    assert next(query.where for query in read_log(log, TABLE).queries) in ("about secret", "")
    assert all(b': "secret' not in log.storage.read(file.name) for file in log_files(log))


def test_a_file_that_gc_removed_meanwhile_is_skipped(tmp_path: Any) -> None:
    class Losing(Storage):
        def open_input(self, name: str, *, size_bytes: int | None = None) -> Any:
            self.delete([name])
            return super().open_input(name)

        def read_many(self, names: Any) -> Any:
            self.delete(names[:1])
            return super().read_many(names)

    log = place(tmp_path)
    put(log, 100, *[line(10, "x" * 1_000)] * 9_000)
    put(log, 200, line(20, "a"))
    put(log, 300, line(30, "b"))
    assert max(file.size_bytes for file in log_files(log)) > 8 << 20, "this one is read as a stream"
    found = read_log(LogPlace(storage=Losing(tmp_path / "table"), folder=log.folder), TABLE)
    assert [query.where for query in found.queries] == ["a"]


def test_a_large_file_is_read_as_a_stream_among_small_ones(tmp_path: Any) -> None:
    log = place(tmp_path)
    put(log, 100, line(10, "a"))
    put(log, 200, *[line(20, "x" * 1_000)] * 9_000, line(20, "b"))
    put(log, 300, line(30, "c"))
    found = read_log(log, TABLE, limit=100_000)
    assert len(found.queries) == 9_003
    assert [found.queries[place].where for place in (0, -2, -1)] == ["a", "b", "c"]


def test_of_many_small_files_only_the_newest_are_fetched(tmp_path: Any) -> None:
    log = place(tmp_path)
    for number in range(130):
        put(log, 100 + number, line(100 + number, f"x = {number}"))
    found = read_log(log, TABLE, limit=3)
    assert [query.where for query in found.queries] == ["x = 127", "x = 128", "x = 129"]
    assert found.files == 3


def test_a_clock_that_is_ahead_is_corrected_to_now(tmp_path: Any) -> None:
    log = place(tmp_path)
    put(log, 10_000, line(9_000, "ahead"))
    (query,) = read_log(log, TABLE, now=500).queries
    assert query.time == 500


def test_what_queries_used_of_blocks_is_read_only_if_asked_for(tmp_path: Any) -> None:
    log = place(tmp_path)
    put(log, 2e9, encode_query(WHOLE))
    assert read_log(log, TABLE).queries == (dataclasses.replace(WHOLE, blocks=()),)
    assert read_log(log, TABLE, with_blocks=True).queries == (WHOLE,)


def test_kept_queries_take_bounded_memory_and_the_newest_are_kept(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place(tmp_path)
    put(log, 100, line(98, "too old"))
    put(log, 200, *[line(150 + number, f"{number}" + "x" * 3_000) for number in range(5)])
    put(log, 300, line(250, "new"))
    monkeypatch.setattr("tblctl.tableformat.workload.reader.MOST_KEPT_BYTES", 10_000)
    found = read_log(log, TABLE)
    assert [query.where[:3] for query in found.queries] == ["3xx", "4xx", "new"]
    assert found.files == 2, "older files have no newer query"


def test_blocks_are_let_go_before_queries(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = place(tmp_path)
    uses = (BlockUse(path="data/a.parquet", rows_read=1, rows_matched=1),) * 20
    for time in (100, 200, 300):
        put(log, time, encode_query(Query(time=time, where="", blocks=uses)))
    monkeypatch.setattr("tblctl.tableformat.workload.reader.MOST_KEPT_BYTES", 20_000)
    found = read_log(log, TABLE, with_blocks=True)
    assert [len(query.blocks) for query in found.queries] == [0, 20, 20]
