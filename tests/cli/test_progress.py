"""The progress bar: on a terminal only, and only for work that takes a while."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import click
import pytest

from tblctl.cli.arguments.common import QUIET
from tblctl.cli.show import progress

PROGRAM = """
import sys, time
from tblctl.cli.show import progress
progress.QUIET_SECONDS, progress.ANNOUNCED_AFTER_SECONDS = map(float, sys.argv[1:])
with progress.progress("appending", first="planning") as report:
    if report is not None and not progress.ANNOUNCED_AFTER_SECONDS:
        report.timer.join()
    if report is None:
        print("nobody watches")
    else:
        for done in (1, 2000, 3000):
            report(done, 4000, "rows")
            report(done // 1000, 4, "groups")
            time.sleep(0.15)
print("rich" in sys.modules)
"""


def run_on_terminal(quiet_seconds: float, announced_after: float = 60) -> tuple[str, str]:
    """Return what the program wrote to its standard output (a pipe) and to its standard error (a terminal)."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(quiet_seconds), str(announced_after)],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other side closed
            break
        if not chunk:
            break
        seen += chunk
    stdout, _ = process.communicate(timeout=60)
    os.close(leader)
    assert process.returncode == 0
    return stdout, seen.decode()


def test_long_work_shows_counts_on_the_terminal_and_nothing_on_stdout() -> None:
    stdout, terminal = run_on_terminal(0)
    assert stdout == "True\n"
    assert "appending" in terminal
    assert "3,000 of 4,000 rows" in terminal
    assert "3 of 4 groups" in terminal


def test_short_work_shows_nothing_and_does_not_load_rich() -> None:
    assert run_on_terminal(60) == ("False\n", "")


def test_what_is_done_is_said_before_anything_can_be_counted_and_taken_back() -> None:
    assert run_on_terminal(60, 0) == ("False\n", "planning ...\r\x1b[K")


def test_a_quiet_command_reports_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with click.Context(click.Command("x")) as ctx:
        ctx.meta[QUIET] = True
        with progress.progress("appending") as report:
            assert report is None


def test_without_a_terminal_nobody_is_reported_to(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress("appending") as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_counts_of_bytes_are_sizes() -> None:
    assert progress.count_text(1536, 2**30, "bytes") == "1.5 KiB of 1.0 GiB"
    assert progress.count_text(2000, None, "rows") == "2,000 rows"
