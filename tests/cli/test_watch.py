"""`tblctl recluster --watch` on real tables, in this process and in one that is told to stop."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tables import SCHEMA

import tblctl
from tblctl.cli.failures import Terminated
from tblctl.cli.main import application


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application, ["recluster", *words], catch_exceptions=False)


def watch_for(monkeypatch: pytest.MonkeyPatch, count: int, *words: str, end: BaseException) -> Any:
    """Run the command until some rounds are printed; then `end` is raised, as by a signal."""
    watch = tblctl.watch

    def some(*args: Any, **named: Any) -> Iterator[tblctl.WatchedRound]:
        rounds = watch(*args, **named)
        for _ in range(count):
            yield next(rounds)
        raise end

    monkeypatch.setattr(tblctl, "watch", some)
    return invoke(*words)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Terminated()])
def test_a_line_for_each_round_until_the_end(
    monkeypatch: pytest.MonkeyPatch, overlapping: str, end: BaseException
) -> None:
    done = watch_for(monkeypatch, 2, overlapping, "--watch", "1s", "--threshold", "1", end=end)
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert f" {overlapping} reclustered: reclustered 12 rows in 1 round, 1 group" in first
    assert "; depth 3.00 -> 1.00, " in first
    assert first.endswith(" today")
    assert f" {overlapping} idle: nothing to do" in second
    assert done.stderr == "tblctl: stopped\n"


def test_help_says_the_exit_code_of_a_watch_that_was_told_to_stop() -> None:
    assert "SIGTERM or Ctrl-C (exit code 0)" in " ".join(invoke("--help").stdout.split())


def test_json_is_an_object_a_line(monkeypatch: pytest.MonkeyPatch, overlapping: str) -> None:
    words = (overlapping, "--watch", "1s", "--threshold", "1", "--json")
    done = watch_for(monkeypatch, 2, *words, end=KeyboardInterrupt())
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["location"], first["status"], second["status"]) == (overlapping, "reclustered", "idle")
    assert first["outcome"]["committed_groups"] == 1
    assert first["bytes_today"] == first["outcome"]["bytes_read"]


def test_all_tables_below_a_folder(monkeypatch: pytest.MonkeyPatch, overlapping: str, tmp_path: Path) -> None:
    tblctl.create(tmp_path / "keyless", SCHEMA)
    words = ("--watch", "1s", "--all", str(tmp_path), "--threshold", "1")
    done = watch_for(monkeypatch, 2, *words, end=KeyboardInterrupt())
    first, second = done.stdout.splitlines()
    assert f" {overlapping} reclustered: " in first
    assert f" {tmp_path / 'keyless'} error: " in second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--watch", "5m"], "name the tables to watch (LOC...), or --all DIR"),
        (["--watch", "soon", "LOC"], "--watch is wrong: 'soon' is not a duration"),
        (["--watch", "5", "LOC"], "--watch is wrong: '5' has no unit; write 5s, 5m or 5h"),
        (
            ["--watch", "0", "LOC"],
            "--watch is '0', expected a time above 0 and below 31 years, such as 60s or 5m",
        ),
        (["--watch", "5m", "LOC", "--namespace", "x"], "--namespace goes with --all iceberg://CATALOG"),
        (["--watch", "5m", "LOC", "--final"], "--watch and --final exclude each other"),
        (["--watch", "5m", "LOC", "--dry-run"], "--watch and --dry-run exclude each other"),
        (["--watch", "5m", "LOC", "--if-exists"], "--watch and --if-exists exclude each other"),
        (
            ["--watch", "5m", "LOC", "--cluster-by", "a"],
            "--watch and --cluster-by exclude each other: the key",
        ),
        (["--watch", "5m", "LOC", "--policy", "levles"], "did you mean levels"),
        (["--watch", "5m", "LOC", "--daily-bytes", "0MB"], "is not above 0"),
        ([], "name one table (LOC)"),
        (["LOC", "LOC"], "name one table (LOC); several go with --watch TIME"),
        (["LOC", "--daily-bytes", "1GiB"], "--daily-bytes goes with --watch TIME"),
        (["LOC", "--namespace", "x"], "--namespace goes with --watch TIME"),
        (["--all", "LOC"], "--all goes with --watch TIME"),
        (["LOC", "--branch", "b"], "--branch is for Iceberg tables"),
        (["LOC", "--refine"], "--refine is for Iceberg tables"),
        (["LOC", "--catalog-option", "a=b"], "--catalog-option is for Iceberg tables"),
    ],
)
def test_wrong_words(overlapping: str, words: list[str], message: str) -> None:
    done = invoke(*[overlapping if word == "LOC" else word for word in words])
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_a_folder_without_tables_is_an_error_at_once(tmp_path: Path) -> None:
    done = invoke("--watch", "5m", "--all", str(tmp_path))
    assert done.exit_code == 1
    assert "there is no table at or below" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_cleanly(overlapping: str, number: signal.Signals) -> None:
    words = ["recluster", overlapping, "--watch", "1h", "--threshold", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tblctl.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "the first round is printed at once, though the command goes on"
        line = process.stdout.readline()
        time.sleep(0.2)  # into the sleep between turns; before that the signal is as good
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert b" reclustered: " in line
    heard = "tblctl: stopping ...\n" if number == signal.SIGINT else ""
    assert (process.returncode, stderr.decode()) == (0, f"{heard}tblctl: stopped\n")
    assert tblctl.open(overlapping).check().ok
