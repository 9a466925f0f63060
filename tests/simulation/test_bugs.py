"""The simulation can fail: it finds every seeded bug."""

from __future__ import annotations

import pytest

from simulation.bugs import BUGS
from simulation.history import draw
from simulation.run import run_history


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name):
    bug = BUGS[name]
    found = bug.search(bug.first, bug.most)
    assert found is not None, f"not in {bug.most} histories from seed {bug.first}"


@pytest.mark.parametrize("name", BUGS)
def test_without_the_bug_nothing_is_found_there(name):
    bug = BUGS[name]
    with bug.seeded():
        pass
    result = run_history(draw(bug.first, roles=bug.roles, faults=bug.faults))
    assert result.found is None, result.found
