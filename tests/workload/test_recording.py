"""Scans are recorded as the table's options say, and gc removes logs by age."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

import tblctl
from tblctl.errors import InvalidOptionError, StorageError
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.native.record import recorder_of
from tblctl.tableformat.workload.queries import MOST_BLOCKS, BlockUse
from tblctl.tableformat.workload.reader import ReadLog, read_log
from tblctl.tableformat.workload.recorder import Recorder, Tally
from tblctl.tableformat.workload.writer import _WRITERS, flush

ROWS = pa.table({"id": list(range(100)), "name": [f"name {item:02d}" for item in range(100)]})
DAY = 86_400.0
PATIENCE_SECONDS = 120.0


def test_closing_a_handle_writes_what_waits(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    table.scan("id = 1").to_arrow()
    (waiting,) = _WRITERS.at(table._native.storage.url)
    asked: list[int] = []
    waiting.wait = lambda number, seconds: asked.append(number) or True  # type: ignore[method-assign, func-returns-value]
    table.close(wait=False)
    assert asked == []
    table.close()
    assert asked == [1]


def make(path: Path, **options: Any) -> tblctl.Table:
    named = {name.replace("__", "."): value for name, value in options.items()}
    table = tblctl.create(
        path / "table", ROWS.schema, cluster_by="id", options={"block_rows": 10, "row_group_rows": 5, **named}
    )
    table.append(ROWS)
    return table


def read(table: tblctl.Table) -> ReadLog:
    native = table._native
    flush(native.storage.url, PATIENCE_SECONDS)
    return read_log(native.log_place(), native.head().table_id, with_blocks=True)


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.scan("id < 5").to_arrow()
    assert read(table).queries == ()
    assert not (tmp_path / "table" / "workload").exists()


def test_a_scan_is_recorded_with_what_it_read_of_each_block(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    assert table.scan("id >= 13 AND id < 21", columns=["name"]).to_arrow().num_rows == 8
    (query,) = read(table).queries
    assert (query.where, query.columns, query.weight) == ("id >= 13 AND id < 21", ("name", "id"), 1.0)
    assert (query.blocks_read, query.blocks_total, query.snapshot, query.source) == (2, 10, "2", "scan")
    assert (query.rows_read, query.rows_matched) == (15, 8)
    assert sorted((use.rows_read, use.rows_matched) for use in query.blocks) == [(5, 1), (10, 7)]
    assert {use.path for use in query.blocks} <= {block.path for block in table.files()}
    about = table.scan("id >= 13 AND id < 21", columns=["name"]).explain().bytes_to_read
    assert query.bytes_read is not None
    assert 0.4 * about < query.bytes_read <= about
    assert abs(query.time - time.time()) < 600
    assert query.seconds is not None


def test_every_run_of_a_scan_is_recorded_and_all_columns_are_left_out(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    scan = table.scan()
    scan.to_arrow()
    scan.to_reader().read_all()
    assert [(query.where, query.columns, query.blocks_read) for query in read(table).queries] == [
        ("", (), 10)
    ] * 2


def test_a_look_at_a_few_rows_is_not_recorded(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    table.scan(limit=3).to_arrow()
    table.scan("id > 90", limit=3).to_arrow()
    assert [query.where for query in read(table).queries] == ["id > 90"]


def test_an_expression_is_recorded_as_sql(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    table.scan(EqualTo("name", "it's")).to_arrow()
    (query,) = read(table).queries
    assert query.where == "\"name\" = 'it''s'"


def test_a_handle_overrides_what_the_table_says(tmp_path: Path) -> None:
    make(tmp_path, recluster__record="on")
    off = tblctl.open(tmp_path / "table", record="off")
    off.scan("id = 1").to_arrow()
    assert read(off).queries == ()
    tblctl.open(tmp_path / "table").set_options({"recluster.record": "off"})
    on = tblctl.open(tmp_path / "table", record="on")
    pickle.loads(pickle.dumps(on)).scan("id = 2").to_arrow()
    assert [query.where for query in read(on).queries] == ["id = 2"]
    with pytest.raises(InvalidOptionError, match=r"record: expected off, on or sample:"):
        tblctl.open(tmp_path / "table", record="sometimes")


@pytest.mark.parametrize(("drawn", "kept"), [(0.05, 1), (0.1, 0), (0.7, 0)])
def test_a_sample_weighs_for_the_scans_that_it_left_out(tmp_path: Path, drawn: float, kept: int) -> None:
    table = make(tmp_path, recluster__record="sample:0.1")
    native = table._native
    native.env = dataclasses.replace(SYSTEM, random=lambda: drawn)
    table.scan("id = 1").to_arrow()
    assert [query.weight for query in read(table).queries] == [10.0] * kept


def test_rounded_literals_say_roughly_what_was_asked(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on", recluster__record_literals="rounded")
    table.scan("name = 'name 17' AND id < 1234").to_arrow()
    (query,) = read(table).queries
    assert query.where == '("name" LIKE \'na%\' AND "id" < 1200)'
    files = list((tmp_path / "table" / "workload").iterdir())
    assert len(files) == 1
    assert b"name 17" not in files[0].read_bytes()


def test_scans_of_an_old_version_are_recorded_as_the_newest_one_says(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    asked = "name = 'name 17'"

    def old(record: str | None = None) -> tblctl.Table:
        return tblctl.open(tmp_path / "table", as_of=2, record=record)

    opened_before = old()
    table.set_options({"recluster.record_literals": "rounded"})
    assert old().count(asked) == opened_before.count(asked) == 1
    assert [query.where for query in read(table).queries] == ["\"name\" LIKE 'na%'"] * 2
    table.set_options({"recluster.record": "off"})
    assert old().count(asked) == opened_before.count(asked) == 1
    assert len(read(table).queries) == 2
    old("on").count(asked)
    assert [query.where for query in read(table).queries] == ["\"name\" LIKE 'na%'"] * 3
    table.set_options({"recluster.record": "on", "recluster.record_literals": "full"})
    old().count(asked)
    assert read(table).queries[-1].where == asked


def test_an_old_version_costs_no_look_at_the_newest_one_unless_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path)
    off = tblctl.open(tmp_path / "table", as_of=2)
    table.set_options({"recluster.record": "on"})
    on, never = (tblctl.open(tmp_path / "table", as_of=2, record=record) for record in (None, "off"))

    def fail(_native: object) -> None:
        raise StorageError("no head today")

    monkeypatch.setattr("tblctl.tableformat.native.table.NativeTable.head", fail)
    with caplog.at_level(logging.WARNING, logger="tblctl"):
        assert off.count("id < 5") == never.count("id < 5") == 5
        assert "no head today" not in caplog.text
        assert on.count("id < 5") == 5
        assert "no head today" in caplog.text
    monkeypatch.undo()
    assert read(table).queries == ()


def test_a_scan_goes_on_whatever_is_wrong_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path, recluster__record="on")

    def fail(*_: object) -> None:
        raise OSError("no log today")

    monkeypatch.setattr("tblctl.tableformat.workload.writer.LogWriter.add", fail)
    with caplog.at_level(logging.WARNING, logger="tblctl"):
        assert table.scan("id < 5").to_arrow().num_rows == 5
    assert "no log today" in caplog.text


def test_a_scan_that_its_reader_leaves_is_recorded_too(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    tables = table._native and table.scan("id < 50")._scanner.tables(window_bytes=1)
    next(tables)
    tables.close()
    (query,) = read(table).queries
    assert query.blocks_read == 1


def test_a_scan_that_failed_is_not_recorded(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    (tmp_path / "table" / table.files()[3].path).unlink()
    with pytest.raises(tblctl.errors.TblctlError):
        table.scan("id < 50").to_arrow()
    assert read(table).queries == ()


def test_a_recorder_that_draws_nothing_counts_nothing() -> None:
    def no_writer() -> Any:
        raise AssertionError

    env = dataclasses.replace(SYSTEM, random=lambda: 0.5)
    assert Recorder(rate=0.5, env=env, writer=no_writer).tally() is None


def test_a_long_condition_is_recorded_without_its_list(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    listed = ", ".join(map(str, range(10_000)))
    table.scan(f"id IN ({listed}) AND name > 'name 5'").to_arrow()
    (query,) = read(table).queries
    assert query.where == '("id" BETWEEN 0 AND 9999 AND "name" > \'name 5\')'


def _age(path: Path, seconds: float) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - seconds,) * 2)


def test_gc_removes_logs_that_are_a_month_old_and_no_younger_ones(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    table.scan("id = 1").to_arrow()
    read(table)
    folder = tmp_path / "table" / "workload"
    (folder / "notes.txt").write_text("mine")
    (folder / ".tmp-1").write_text("a killed writer's")
    _age(folder, 29 * DAY)
    assert [name for name in table.gc(keep=1).objects_deleted if "workload" in name] == ["workload/.tmp-1"]
    assert len(read(table).queries) == 1
    _age(folder, 31 * DAY)
    found = table.gc(keep=1, dry_run=True).objects_deleted
    assert len([name for name in found if name.startswith("workload/")]) == 1
    table.gc(keep=1)
    assert [item.name for item in folder.iterdir()] == ["notes.txt"]
    assert table.check(deep=True).ok


def test_no_recorder_costs_no_writer(tmp_path: Path) -> None:
    native = make(tmp_path)._native
    head = native.head()
    assert recorder_of(native, head, head) is None
    assert recorder_of(native, head, head, "sample:0.25").rate == 0.25
    assert recorder_of(native, head, None, "on") is None, "whether literals are rounded is unknown"


def test_a_dropped_table_takes_its_log_along(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    table.scan("id = 1").to_arrow()
    tblctl.drop(tmp_path / "table")
    table.close()
    assert not list((tmp_path / "table").glob("workload/*"))
    make(tmp_path)


def test_a_process_that_ends_writes_what_waits(tmp_path: Path) -> None:
    table = make(tmp_path, recluster__record="on")
    program = (
        f"import tblctl; from tblctl.tableformat.workload import writer as w; object.__setattr__(w.LIMITS, "
        f"'exit_seconds', {PATIENCE_SECONDS}); tblctl.open({str(tmp_path / 'table')!r}).scan('id = 7').to_arrow()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [query.where for query in read(table).queries] == ["id = 7"]


def test_blocks_beyond_the_first_thousand_are_counted_together() -> None:
    tally = Tally(started=0.0)
    for number in range(MOST_BLOCKS + 3):
        tally.add(f"b{number}", 10, 2)
    assert tally.totals() == (MOST_BLOCKS + 3, 10 * (MOST_BLOCKS + 3), 2 * (MOST_BLOCKS + 3))
    assert len(tally.uses()) == MOST_BLOCKS
    assert tally.uses()[0] == BlockUse(path="b0", rows_read=10, rows_matched=2)
