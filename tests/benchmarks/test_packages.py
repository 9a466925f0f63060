"""Sessions that load packages start one after the other, in all processes of the machine."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.merging.packages import loaded_alone

OTHER = """
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(3)
"""


def test_while_one_process_loads_packages_no_other_may(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def other():
        (lock,) = tmp_path.iterdir()
        return subprocess.run([sys.executable, "-c", OTHER, lock]).returncode

    with loaded_alone():
        assert other() == 3
    assert other() == 0
