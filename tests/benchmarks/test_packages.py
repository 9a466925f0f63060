"""Sessions that load packages start one after the other, in all processes of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.merging.packages import loaded_alone

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
from benchmarks.merging.packages import loaded_alone
print("waits", flush=True)
with loaded_alone():
    print("loads", flush=True)
"""


def test_a_second_process_waits_until_the_first_has_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with loaded_alone():
        other = subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert other.stdout.readline() == "waits\n"
        lock = next(tmp_path.iterdir())
        assert f"-> FLOCK  ADVISORY  WRITE {other.pid}" in until_waiting(lock)
    assert other.communicate() == ("loads\n", None)


def until_waiting(lock):
    """Return the kernel's list of locks once somebody waits for this one."""
    inode = f":{lock.stat().st_ino} "
    while True:
        found = Path("/proc/locks").read_text()
        if any("->" in line and inode in line for line in found.splitlines()):
            return found
