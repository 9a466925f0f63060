"""Reclusters in the background: one at a time, no thread left, stopped by close, SIGTERM and the end of a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tblctl
from tblctl.maintain import background
from tblctl.maintain.background import Background, Stopped
from tblctl.merger.engines import local
from tblctl.tableformat.progress import Progress

WAIT_SECONDS = 60.0
NAME = "tblctl-recluster"


class Held:
    """Work that goes on until it is let go or stopped, and notes what happened."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log, self._name = log, name
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, report: Progress) -> None:
        self._log.append(f"{self._name} begins")
        self.begun.set()
        try:
            while not self.go_on.wait(0.001):
                report(0, None, "rows")
        except Stopped:
            self._log.append(f"{self._name} is stopped")
            raise
        self._log.append(f"{self._name} ends")


class Bench:
    """A background, and work for it."""

    def __init__(self) -> None:
        self.background = Background()
        self.log: list[str] = []

    def work(self, name: str) -> Held:
        return Held(self.log, name)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.background.shut()
    assert NAME not in {thread.name for thread in threading.enumerate()}


def test_a_process_does_one_work_at_a_time_and_each_table_waits_once(bench: Bench) -> None:
    first, again, unneeded, other = map(bench.work, ["first", "again", "unneeded", "other"])
    bench.background.begin("a", first)
    assert first.begun.wait(WAIT_SECONDS)
    for key, work in (("b", other), ("a", again), ("a", unneeded)):
        bench.background.begin(key, work)
    assert sum(thread.name == NAME for thread in threading.enumerate()) == 1
    for work in (first, other, again):
        work.go_on.set()
    bench.background.end("a", wait=True)
    assert bench.log == [
        *("first begins", "first ends", "other begins", "other ends", "again begins", "again ends")
    ]


def test_the_thread_ends_with_the_work_and_another_one_begins_with_the_next(bench: Bench) -> None:
    for _ in range(3):
        work = bench.work("x")
        bench.background.begin("a", work)
        assert work.begun.wait(WAIT_SECONDS)
        (thread,) = (item for item in threading.enumerate() if item.name == NAME)
        work.go_on.set()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_without_wait_work_of_the_table_stops_and_that_of_others_goes_on(bench: Bench) -> None:
    running, waiting, other = map(bench.work, ["running", "waiting", "other"])
    bench.background.begin("a", running)
    assert running.begun.wait(WAIT_SECONDS)
    bench.background.begin("a", waiting)
    bench.background.begin("b", other)
    bench.background.end("a", wait=False)
    other.go_on.set()
    bench.background.end("b", wait=True)
    assert bench.log == ["running begins", "running is stopped", "other begins", "other ends"]


def test_whoever_takes_over_waits_for_work_of_the_table_that_runs_and_does_what_waits_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, waiting, other = map(bench.work, ["running", "waiting", "other"])
    bench.background.begin("a", running)
    assert running.begun.wait(WAIT_SECONDS)
    for key, work in (("a", waiting), ("b", other)):
        bench.background.begin(key, work)
    let_go_when_waited_for(bench.background, running, monkeypatch)
    bench.background.take_over("a")
    bench.log.append("taken over")
    bench.background.take_over("a")  # nothing is left to wait for, whatever runs of other tables
    other.go_on.set()
    bench.background.end("b", wait=True)
    assert [line for line in bench.log if "other" not in line] == [
        *("running begins", "running ends", "taken over")
    ]
    assert bench.log[-1] == "other ends"


def let_go_when_waited_for(background: Background, work: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for = background._changed.wait_for

    def waited(predicate: Any) -> Any:
        work.go_on.set()
        return wait_for(predicate)

    monkeypatch.setattr(background._changed, "wait_for", waited)


def test_whoever_shuts_it_joins_a_thread_that_has_no_work_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_, is_over, go_on = bench.background._next, threading.Event(), threading.Event()

    def held() -> Any:
        found = next_()
        if found is None:
            is_over.set()
            assert go_on.wait(WAIT_SECONDS)
        return found

    monkeypatch.setattr(bench.background, "_next", held)
    work = bench.work("x")
    work.go_on.set()
    bench.background.begin("a", work)
    assert is_over.wait(WAIT_SECONDS)
    (thread,) = (item for item in threading.enumerate() if item.name == NAME)
    join = thread.join

    def joined(timeout: float | None = None) -> None:
        go_on.set()
        join(timeout)

    monkeypatch.setattr(thread, "join", joined)
    bench.background.shut()
    go_on.set()
    assert not thread.is_alive()
    assert bench.log == ["x begins", "x ends"]


def test_work_that_raises_keeps_nobody_from_what_follows(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_report: Progress) -> None:
        raise SystemExit("out of order")

    other = bench.work("other")
    other.go_on.set()
    bench.background.begin("a", fail)
    bench.background.begin("b", other)
    bench.background.end("b", wait=True)
    assert bench.log == ["other begins", "other ends"]
    assert "a recluster in the background ended: SystemExit('out of order')" in caplog.text


def test_whoever_waits_for_work_can_be_interrupted_which_stops_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = bench.work("x")
    bench.background.begin("a", work)
    assert work.begun.wait(WAIT_SECONDS)
    changed = bench.background._changed
    wait_for = changed.wait_for
    found: list[BaseException] = [KeyboardInterrupt()]

    def interrupted(predicate: Any) -> Any:
        if found:
            raise found.pop()
        return wait_for(predicate)

    monkeypatch.setattr(changed, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        bench.background.end("a", wait=True)
    assert bench.log == ["x begins", "x is stopped"]
    assert caught.value.__notes__ == [
        "the recluster in the background was stopped; what it has committed stays"
    ]


def test_a_process_that_ends_begins_nothing_more(bench: Bench) -> None:
    bench.background.shut()
    with pytest.raises(RuntimeError, match="this process is ending"):
        bench.background.begin("a", bench.work("x"))
    assert bench.log == []


# -- real reclusters, of real processes

PROGRAM = """
import os, signal, sys, threading
import pyarrow as pa, pyarrow.parquet as pq
import tblctl, tblctl.merger.engines.local as local
from tblctl.maintain import background

begun, run_task = threading.Event(), local.run_task

def held(*args, **how):  # a merge that goes on until it is to stop
    print("merging", flush=True)
    begun.set()
    background.BACKGROUND._running.stop.wait(60)
    return run_task(*args, **how)

local.run_task = held
location, how = sys.argv[1:]
keys = pa.table({"k": [1, 3, 5, 7]})

def begin():
    table = tblctl.open(location)
    table.append(keys)
    table.append(keys)
    begun.wait(60)
    return table

if how == "ends":
    begin()
elif how == "handles SIGTERM":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    begin()
    signal.pause()
elif how == "is killed":
    begin()
    signal.pause()
elif how == "is the command":
    tblctl.open(location).append(keys)
    pq.write_table(keys, location + ".parquet")
    wait_for = background.BACKGROUND._changed.wait_for
    def told(predicate):
        print("waiting", flush=True)
        return wait_for(predicate)
    background.BACKGROUND._changed.wait_for = told
    sys.argv[1:] = ["append", location, location + ".parquet"]
    from tblctl.cli.main import run
    run()
elif how == "forks":
    begin()
    child = os.fork()
    if child == 0:  # locks of Arrow's threads stay held here, so nothing of Arrow is called
        own = background.BACKGROUND
        os._exit(own._running is not None or bool(own._waiting) or own._thread is not None)
    assert background.BACKGROUND._running is not None
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    options = {"block_rows": 4, "recluster.mode": "async", "recluster.every": 2}
    tblctl.create(str(tmp_path / "t"), "k: int64", cluster_by="k", options=options)
    return tmp_path / "t"


@contextlib.contextmanager
def started(place: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", PROGRAM, str(place), how]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def merging(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert "merging\n" in iter(process.stdout.readline, "")


def named(table: tblctl.Table) -> set[str]:
    return {file.path for file in table.files()}


def blocks(place: Path) -> set[str]:
    return {f"data/{path.name}" for path in (place / "data").iterdir()}


@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("handles SIGTERM", 7)])
def test_a_process_that_ends_stops_the_merge_and_leaves_nothing(place: Path, how: str, code: int) -> None:
    with started(place, how) as process:
        merging(process)
        if how == "handles SIGTERM":
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (code, "")
    table = tblctl.open(place)
    assert [item.operation for item in table.history()] == ["append", "append", "create"]
    assert blocks(place) == named(table)


def test_a_process_that_sigterm_kills_in_a_merge_leaves_a_sound_table(place: Path) -> None:
    with started(place, "is killed") as process:
        merging(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == -signal.SIGTERM
    table = tblctl.open(place)
    assert table.check(deep=True).ok
    assert table.recluster().committed_groups == 1
    assert table.scan().to_arrow().num_rows == 8


def test_the_command_waits_for_the_round_and_sigterm_stops_it(place: Path) -> None:
    with started(place, "is the command") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 143
    assert {"merging\n", "waiting\n"} < set(lines)
    assert [line for line in lines if "appended 4 rows" in line and "goes on in the background" in line]
    assert errors.startswith(
        "tblctl: terminated\nthe recluster in the background was stopped; what it has committed stays\n"
    )
    table = tblctl.open(place)
    assert table.scan().to_arrow().num_rows == 8
    assert blocks(place) == named(table)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_forked_process_has_a_background_of_its_own(place: Path) -> None:
    with started(place, "forks") as process:
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert [item.operation for item in tblctl.open(place).history()] == ["append", "append", "create"]


def test_a_handle_closed_by_an_exception_stops_the_merge_and_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, run_task = threading.Event(), local.run_task

    def held(*args: Any, **how: Any) -> Any:
        begun.set()
        running = background.BACKGROUND._running
        assert running is not None
        running.stop.wait(WAIT_SECONDS)
        return run_task(*args, **how)

    monkeypatch.setattr(local, "run_task", held)
    options = {"block_rows": 4, "recluster.mode": "async"}
    table = tblctl.create(str(tmp_path / "t"), "k: int64", cluster_by="k", options=options)

    def use() -> None:
        with table:
            for _ in range(2):
                table.append(pa.table({"k": [1, 3, 5, 7]}))  # returns although the merge goes on
            assert begun.wait(WAIT_SECONDS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    monkeypatch.setattr(local, "run_task", run_task)
    assert table.snapshot.sequence == 3
    assert blocks(tmp_path / "t") == named(table)
    table.append(pa.table({"k": [1, 3, 5, 7]}))
    table.close()
    assert table.snapshot.operation == "recluster"
