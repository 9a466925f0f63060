"""No command leaves files, processes, threads or connections behind: after success, failure, SIGINT, SIGTERM."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from faults import Faults, inject, storage_calls
from servers import Location, S3Server
from tables import SCHEMA, assert_sound, named_objects, objects_of, rows

import tblctl
from tblctl.cli.main import COMMANDS, application

TESTS = Path(__file__).parent.parent
DESCRIPTORS = Path("/proc/self/fd")

WATCH = "recluster --watch"
PENDING = "recluster --pending"
WORDS: dict[str, tuple[str, ...]] = {
    "create": ("NEW", "--schema", "id: int64, v: string", "--cluster-by", "id"),
    "import": ("FILE", "LOC"),
    "append": ("LOC", "FILE"),
    "scan": ("LOC", "--where", "id > 3"),
    "export": ("LOC", "OUT"),
    "delete": ("LOC", "--where", "id > 5"),
    "update": ("LOC", "--where", "id > 5", "--set", "v='y'"),
    "overwrite": ("LOC", "FILE", "--where", "id > 5"),
    "alter": ("LOC", "--add-column", "w: int64"),
    "info": ("LOC",),
    "depth": ("LOC", "id"),
    "suggest": ("LOC",),
    "suggest --layouts": ("LOC", "--layouts", "--predicates", "CONDITIONS"),
    "workload": ("LOC",),
    "workload import": ("LOC", "import", "QUERIES", "--kind", "sql", "--table", "t"),
    "estimate": ("LOC",),
    "plan": ("LOC", "--policy", "full"),
    "plan --output": ("LOC", "--policy", "full", "--output", "OUT"),
    "plan --schedule": ("LOC", "--policy", "full", "--schedule"),
    "recluster": ("LOC", "--final"),
    PENDING: ("LOC", "--pending"),
    WATCH: ("LOC", "--watch", "1s"),
    "sql": ("ALTER TABLE 'LOC' RECLUSTER FINAL",),
    "history": ("LOC",),
    "rollback": ("LOC", "--to", "3"),
    "tag": ("LOC", "here"),
    "drop": ("LOC", "--yes"),
    "files": ("LOC",),
    "gc": ("LOC", "--keep", "1", "--older-than", "0"),
    "check": ("LOC", "--deep"),
}
"""A call of every command. LOC is a table, NEW a free place, FILE a Parquet file with rows, OUT a file to be.
CONDITIONS and QUERIES are texts of a condition, and of a query."""

PROGRAM = """
import importlib, json, os, sys
sys.path.append(os.environ["TESTS"])
from faults import Faults, inject
from tblctl.cli import main
for name in os.environ["PRELOADED"].split():
    importlib.import_module(name)
for line in sys.stdin:
    case = json.loads(line)
    child = os.fork()
    if not child:
        sys.argv = ["tblctl", *case["words"]]
        faults = Faults()
        faults.do(lambda: os.kill(os.getpid(), case["signal"]), nth=case["call"])
        with inject(faults):
            main.run()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr, flush=True)
"""
"""Runs each command in a fork of its own, which sends itself a signal at a storage call."""

PRELOADED = """
    pandas pyiceberg.expressions sqlglot
    tblctl.advise.suggest tblctl.maintain.choose_engine tblctl.maintain.measure tblctl.maintain.recluster
    tblctl.merger.engines.local tblctl.statement tblctl.tableformat.native.block_io
    tblctl.tableformat.native.read.scan tblctl.tableformat.native.upkeep.check tblctl.tableformat.native.upkeep.gc
    tblctl.tableformat.native.write.dml tblctl.tableformat.predicate.sql tblctl.warehouse tblctl.watching
"""
"""Modules that commands import late (pyarrow imports pandas where it finds it): without them each fork takes five times
as long."""


def words_of(command: str, folder: Path) -> list[str]:
    """Return a call of the command on the table below `folder`."""
    return placed(command, {"LOC": folder / "t", "NEW": folder / "new"}, folder)


def placed(command: str, tables: Mapping[str, object], folder: Path) -> list[str]:
    """Return a call of the command on tables, and on files below `folder`."""
    texts = {"CONDITIONS": folder / "conditions.sql", "QUERIES": folder / "queries.sql"}
    places = {**tables, **texts, "FILE": folder / "rows.parquet", "OUT": folder / "out"}
    words = [command.partition(" ")[0]]
    for word in WORDS[command]:
        found = next((name for name in places if name in word), None)
        words.append(word.replace(found, str(places[found])) if found else word)
    return words


def make_files(folder: Path) -> None:
    """Make what commands read below `folder`: a file of rows, conditions, and queries."""
    pq.write_table(rows(90, 91), folder / "rows.parquet")
    (folder / "conditions.sql").write_text("id > 3;\n")
    (folder / "queries.sql").write_text("SELECT v FROM t WHERE id > 3;\n")


def make_table(folder: Path, command: str) -> Path:
    """Make a table of overlapping blocks that a command works on, and files of rows and texts, below `folder`."""
    make_files(folder)
    table = tblctl.create(folder / "t", SCHEMA, cluster_by="id", options={"block_rows": 4})
    table.append(rows(*range(0, 12, 2)))
    table.append(rows(*range(1, 12, 2)))
    table.append(rows(3, 30))
    if command == PENDING:
        table.schedule("full")
    return folder / "t"


def test_every_command_is_here() -> None:
    of_tables = {command.name for command in COMMANDS if command.of_tables}
    assert {words.partition(" ")[0] for words in WORDS} == of_tables


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, of this process and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def living(marker: str) -> list[str]:
    """Return the processes that have `marker` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_nothing_but_what_gc_removes(
    number: signal.Signals, tmp_path: Path, temporary: Path
) -> None:
    marker = f"TBLCTL_LEAKS={uuid.uuid4().hex}"
    cases: list[tuple[Path, dict[str, Any]]] = []
    for command in WORDS:
        trial = tmp_path / command / "trial"
        trial.mkdir(parents=True)
        make_table(trial, command)
        calls = storage_calls(lambda at=trial, of=command: invoke(words_of(of, at)))
        # How a signal ends a command does not depend on the moment: one of them comes at three.
        moments = {1, len(calls) // 2, len(calls)} if number == signal.SIGINT else {len(calls) // 2}
        for call in sorted(moments):
            folder = tmp_path / command / str(call)
            folder.mkdir()
            make_table(folder, command)
            cases.append(
                (folder, {"words": words_of(command, folder), "signal": int(number), "call": max(1, call)})
            )
    name, _, value = marker.partition("=")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="".join(f"{json.dumps(case)}\n" for _, case in cases),
        env=os.environ | {name: value, "TESTS": str(TESTS), "PRELOADED": PRELOADED},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = done.stderr.splitlines()
    word = "interrupted" if number == signal.SIGINT else "terminated"
    watches = [folder.parent.name == WATCH for folder, _ in cases]
    codes = [int(line) for line in said if line.lstrip("-").isdigit()]
    assert codes == [0 if watched else 128 + number for watched in watches], said
    assert sum(line.startswith(f"tblctl: {word}") for line in said) == watches.count(False), said
    assert sum(line.startswith("tblctl: stopped") for line in said) == watches.count(True), said
    assert living(marker) == []
    assert sorted(temporary.iterdir()) == []
    for folder, case in cases:
        for place in (folder / "t", folder / "new"):
            if place.exists() and (place / "metadata" / "snapshots").exists() and case["words"][0] != "drop":
                table = tblctl.open(place)
                assert_sound(table)
                table.gc(keep=1, older_than=0)
                assert named_objects(table) >= {
                    item for item in objects_of(str(place)) if item.startswith("data/")
                }


def invoke(words: Sequence[str]) -> int:
    """Run a command; a watch is interrupted after its first round."""
    with mock.patch.object(tblctl, "watch", functools.partial(watch_once, tblctl.watch)):
        return CliRunner().invoke(application, words).exit_code


def watch_once(watch: Callable[..., Iterator[Any]], *tables: Any, **how: Any) -> Iterator[Any]:
    yield next(watch(*tables, **how))
    raise KeyboardInterrupt


def opened() -> tuple[int, set[str]]:
    """Return how many file descriptors this process has, and the names of its threads."""
    gc.collect()
    return len(list(DESCRIPTORS.iterdir())), {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("command", WORDS)
def test_a_command_closes_all_that_it_opens(command: str, tmp_path: Path, temporary: Path) -> None:
    """Of two calls the first loads libraries, which keep files open; a third fails since there is no table."""
    looks = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        if number < 2:
            make_table(folder, command)
            (folder / "new").mkdir(exist_ok=True)
        code = invoke(words_of(command, folder))
        assert code == 0 or (number == 2), (command, code)
        looks.append(opened())
    assert looks[1] == looks[0]
    assert looks[2] == looks[0]
    assert list(temporary.iterdir()) == []


CONNECTIONS = 20
OPENINGS = 25


def test_connections_to_a_server_are_used_again(s3_table_url: Callable[[], Location]) -> None:
    place = s3_table_url()
    tblctl.create(place.url, SCHEMA, cluster_by="id", storage_options=place.storage_options).append(rows(1))
    for _ in range(OPENINGS):
        assert tblctl.open(place.url, storage_options=place.storage_options).info().rows == 1
    assert sum("socket:" in target for target in descriptor_targets()) < CONNECTIONS


@pytest.mark.parametrize("command", WORDS)
def test_a_command_leaves_no_client_of_a_server_open(
    command: str, minio: S3Server, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After success, after an interrupt in the middle, and without a table. A client has at most ten connections."""
    for name, value in (
        ("AWS_ENDPOINT_URL", minio.endpoint_url),
        ("AWS_ACCESS_KEY_ID", minio.key),
        ("AWS_SECRET_ACCESS_KEY", minio.secret),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    make_files(tmp_path)
    clients = []
    calls: Sequence[Any] = ()
    for number in range(3):
        place = minio.location().url
        if number < 2:
            table = tblctl.create(place, SCHEMA, cluster_by="id", options={"block_rows": 4})
            table.append(rows(*range(0, 12, 2)))
            table.append(rows(*range(1, 12, 2)))
            if command == PENDING:
                table.schedule("full")
        words = placed(command, {"LOC": place, "NEW": f"{place}-new"}, tmp_path)
        faults = Faults()
        if number == 1:
            faults.do(interrupted, nth=max(1, len(calls) // 2))
        with inject(faults):
            code = invoke(words)
        calls = faults.calls
        assert code == 0 or number > 0, (command, code)
        assert faults.fired or number != 1
        clients.append(open_clients())
    assert clients[1] <= clients[0] + 1, "an interrupted call may leave one to the next"
    assert clients[2] == clients[0]
    assert sum("socket:" in target for target in descriptor_targets()) < CONNECTIONS


def interrupted() -> None:
    raise KeyboardInterrupt


def open_clients() -> int:
    """Return how many clients of S3 have not been closed."""
    from aiohttp import ClientSession

    gc.collect()
    return sum(isinstance(item, ClientSession) and not item.closed for item in gc.get_objects())


def descriptor_targets() -> Iterator[str]:
    """Yield what this process's file descriptors refer to."""
    for descriptor in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # the one by which they are listed
            yield str(descriptor.readlink())
