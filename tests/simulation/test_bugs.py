"""The simulation can fail: it finds every seeded bug."""

from __future__ import annotations

import pytest

from simulation.bugs import BUGS
from simulation.run import run_history


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name):
    bug = BUGS[name]
    search = bug.search_apart if bug.may_crash else bug.search
    assert search(bug.first, bug.most), f"not in {bug.most} histories from seed {bug.first}"


@pytest.mark.parametrize("name", BUGS)
def test_without_the_bug_nothing_is_found_there(name):
    bug = BUGS[name]
    with bug.seeded():
        pass
    result = run_history(bug.draw(bug.first))
    assert result.found is None, result.found
