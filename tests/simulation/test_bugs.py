"""The simulation can fail: it finds every seeded bug."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulation.bugs import BUGS
from simulation.history import draw
from simulation.run import run_history

TESTS = Path(__file__).parent.parent

SEARCH = """
import sys
from simulation.bugs import BUGS
bug = BUGS[sys.argv[1]]
sys.exit(0 if bug.search(bug.first, bug.most) else 1)
"""


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name):
    bug = BUGS[name]
    if bug.may_crash:
        words = [sys.executable, "-c", SEARCH, name]
        done = subprocess.run(words, cwd=TESTS, capture_output=True, text=True, check=False)
        assert done.returncode <= 0, done.stderr
        return
    found = bug.search(bug.first, bug.most)
    assert found is not None, f"not in {bug.most} histories from seed {bug.first}"


@pytest.mark.parametrize("name", BUGS)
def test_without_the_bug_nothing_is_found_there(name):
    bug = BUGS[name]
    with bug.seeded():
        pass
    result = run_history(draw(bug.first, roles=bug.roles, faults=bug.faults))
    assert result.found is None, result.found
