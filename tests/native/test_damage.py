"""Random damage to any object of small tables is an error of tblctl's, or harmless: never other rows, nor an abort.

TBLCTL_DAMAGES sets how many cases there are in all; with HYPOTHESIS_PROFILE=thorough they are 20,000.
A failure names the seeds, and each alone makes its case again: `python tests/damage.py <table> <seed> 1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from profiles import THOROUGH

SCRIPT = Path(__file__).parents[1] / "damage.py"
CASES = int(os.environ.get("TBLCTL_DAMAGES") or (20_000 if THOROUGH else 120))
CASE_SECONDS = 2  # at most, on a busy machine; 0.1 as a rule
TABLES = ["sorted", "plain", "released"]


@pytest.mark.timeout(120 + CASE_SECONDS * CASES)
@pytest.mark.parametrize("table", TABLES)
def test_random_damage_is_never_read_as_rows_nor_ends_the_process(table):
    count = CASES // len(TABLES)
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), table, "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + CASE_SECONDS * count)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-2_000:])
    assert lines.count(f"seed {count - 1}") == 1
    assert [line for line in lines if line.startswith("wrong")] == []
