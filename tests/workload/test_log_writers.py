"""Writers of logs: shared, bounded, reentrant, and none of them holds up the end of a process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from query_logs import SOON, TABLE, place

from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.place import LogPlace
from tblctl.tableformat.workload.queries import BlockUse, Query
from tblctl.tableformat.workload.reader import log_files, read_log
from tblctl.tableformat.workload.writer import LIMITS, LogWriter, _Log, _Writers, writer_of

PATIENCE_SECONDS = 60.0

PLAIN = Query(time=1.0, where="")


def log(name: str) -> _Log:
    return _Log(storage=name, folder="", table_id=TABLE, form="")


def ends(action: Callable[[], object]) -> bool:
    """Return whether a call returns: in a thread of its own, since one that waits for itself never does."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return not thread.is_alive()


def test_a_writer_is_got_while_the_same_thread_makes_another(tmp_path: Path) -> None:
    writers = _Writers()
    made = LogWriter(place(tmp_path), SYSTEM, TABLE)
    got: list[LogWriter] = []

    def make() -> LogWriter:  # a garbage collection in it ends a scan of another table
        got.append(writers.get(log("inner"), lambda: made))
        return LogWriter(place(tmp_path), SYSTEM, TABLE)

    assert ends(lambda: got.append(writers.get(log("outer"), make)))
    assert writers.get(log("inner"), make) is got[0] is made
    assert writers.get(log("outer"), make) is got[1]


def test_a_writer_is_got_while_the_same_thread_looks_another_up(tmp_path: Path) -> None:
    writers = _Writers()
    inner, outer = (LogWriter(place(tmp_path), SYSTEM, TABLE) for _ in range(2))

    class Collecting(str):  # noqa: SLOT000 (stands for a garbage collection wherever the registry is looked into)
        def __hash__(self) -> int:
            writers.get(log("inner"), lambda: inner)
            return 1

    got: list[LogWriter] = []
    assert ends(lambda: got.append(writers.get(log(Collecting("outer")), lambda: outer)))
    assert got == [outer]


def test_handles_with_other_credentials_have_writers_of_their_own(tmp_path: Path) -> None:
    mine = writer_of(place(tmp_path, key="mine"), SYSTEM, TABLE)
    assert writer_of(place(tmp_path, key="mine"), SYSTEM, TABLE) is mine
    assert writer_of(place(tmp_path, key="other"), SYSTEM, TABLE) is not mine
    nested = writer_of(place(tmp_path, client={"region": "a"}), SYSTEM, TABLE)
    assert writer_of(place(tmp_path, client={"region": "b"}), SYSTEM, TABLE) is not nested


def test_an_identity_holds_no_secret(tmp_path: Path) -> None:
    assert "hidden" not in Storage(tmp_path, {"secret": "hidden"}).access_id


def test_all_writers_are_hurried_before_the_first_is_awaited_and_share_one_deadline(tmp_path: Path) -> None:
    now = 100.0
    happened: list[tuple[str, float]] = []

    class Hung(LogWriter):
        def hurry(self) -> int:
            happened.append(("hurry", 0.0))
            return 1

        def wait(self, number: int, seconds: float) -> bool:
            nonlocal now
            assert number == 1
            now += seconds
            happened.append(("wait", seconds))
            return False

    writers = _Writers(elapsed=lambda: now)
    kept = [writers.get(log(name), lambda: Hung(place(tmp_path), SYSTEM, TABLE)) for name in "abc"]
    writers.flush()
    assert happened == [("hurry", 0.0)] * 3 + [("wait", LIMITS.exit_seconds), ("wait", 0.0), ("wait", 0.0)]
    writers.flush(kept[0].place.storage.url, 2.0)
    assert happened[6:] == [("hurry", 0.0)] * 3 + [("wait", 2.0), ("wait", 0.0), ("wait", 0.0)]
    writers.flush("/elsewhere")
    assert len(happened) == 12


@pytest.mark.parametrize(
    "large",
    [
        {"where": "x" * 20_000},
        {"columns": tuple(f"column_{number}" for number in range(200))},
        {"tested": (("column", "="),) * 200},
        {"blocks": (BlockUse(path="data/a.parquet", rows_read=1, rows_matched=1),) * 100},
        {"blocks": (BlockUse(path="a" * 20_000, rows_read=1, rows_matched=1),)},
    ],
    ids=["where", "columns", "tested", "blocks", "paths"],
)
def test_whatever_is_large_of_a_query_counts_in_the_queue(tmp_path: Path, large: dict[str, Any]) -> None:
    writer = LogWriter(place(tmp_path), SYSTEM, TABLE, limits=dataclasses.replace(SOON, most_bytes=10_000))
    writer.add(dataclasses.replace(PLAIN, **large))
    assert writer.dropped == 1
    writer.add(PLAIN)
    assert writer.dropped == 1
    assert writer.flush(PATIENCE_SECONDS)


def test_a_queue_that_is_half_full_is_written_before_queries_are_dropped(tmp_path: Path) -> None:
    written = threading.Event()

    class Watched(Storage):
        def write(self, name: str, data: Any) -> None:
            super().write(name, data)
            written.set()

    here = LogPlace(storage=Watched(tmp_path / "table"))
    writer = LogWriter(here, SYSTEM, TABLE, limits=dataclasses.replace(SOON, most_bytes=10_000))
    for time in (1.0, 2.0):
        writer.add(Query(time=time, where="x" * 4_000))
    assert written.wait(PATIENCE_SECONDS)
    assert len(read_log(here, TABLE).queries) == 2


def test_a_flush_writes_what_waited_and_not_what_comes_meanwhile(tmp_path: Path) -> None:
    class Busy(Storage):
        more = 20

        def write(self, name: str, data: Any) -> None:
            if self.more:  # a scan ends while each file is written
                self.more -= 1
                writer.add(PLAIN)
            super().write(name, data)

    here = LogPlace(storage=Busy(tmp_path / "table"))
    writer = LogWriter(here, SYSTEM, TABLE, limits=SOON)
    writer.add(PLAIN)
    assert writer.flush(PATIENCE_SECONDS)
    assert len(log_files(here)) == 1
    here.storage.more = 0  # type: ignore[attr-defined]
    assert writer.flush(PATIENCE_SECONDS)
    assert [len(log_files(here)), len(read_log(here, TABLE).queries)] == [2, 2]


def test_a_flush_of_a_writer_without_a_thread_starts_one_or_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    writer = LogWriter(place(tmp_path), SYSTEM, TABLE, limits=SOON)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", fail)
        writer.add(PLAIN)
        assert not writer.flush(PATIENCE_SECONDS)
    assert writer.flush(PATIENCE_SECONDS)
    assert len(read_log(writer.place, TABLE).queries) == 1
