"""The simulation of Iceberg tables: histories of this commit, seeded bugs, and that its parts do what they say."""

from __future__ import annotations

import random

import pytest
from profiles import PROFILE, cases

from simulation.faults import RARE
from simulation.iceberg.actors import ICEBERG_OPERATIONS
from simulation.iceberg.bugs import ICEBERG_BUGS
from simulation.iceberg.faults import ICEBERG_FAULTS
from simulation.iceberg.history import _OF_CATALOGS, _TRAITS, draw_iceberg
from simulation.policies import drawn_policies
from simulation.run import replay_command, run_history

HISTORIES = 50
PARTS = 5  # so that several processes share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_promise(part):
    count = cases(HISTORIES) // PARTS
    first = 1 + part * count if PROFILE == "ci" else random.randrange(2**40)
    for seed in range(first, first + count):
        result = run_history(draw_iceberg(seed))
        assert result.found is None, f"{result.kind}: {result.found}\n{replay_command(seed, 'iceberg')}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ICEBERG_BUGS)
def test_a_seeded_bug_is_found(name):
    bug = ICEBERG_BUGS[name]
    found = bug.search(bug.first, bug.most)
    assert found is not None, f"not in {bug.most} histories from seed {bug.first}"
    assert run_history(bug.draw(bug.first + found - 1)).found is None, "it is found without the bug, too"


@pytest.mark.parametrize(
    ("seed", "roles", "faults"),
    [
        (10, ("reclusterer", "reclusterer again"), ("sent again",)),
        (147, ("gc", "gc", "tagger", "tagger"), ()),
    ],
    ids=["a commit that is sent twice", "a tag that is set beside gc"],
)
def test_seeds_that_found_bugs_of_the_product(seed, roles, faults):
    result = run_history(draw_iceberg(seed, roles=roles, faults=faults))
    assert result.found is None, result.found


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_makes_the_same_requests_each_time(seed):
    found = {run_history(draw_iceberg(seed)).digest for _ in range(2)}
    assert len(found) == 1


def test_every_policy_operation_fault_and_kind_of_catalog_is_drawn():
    histories = [draw_iceberg(seed) for seed in range(400)]
    steps = [step for history in histories for script in history.scripts for step in script.steps]
    usual = {kind for kind, fault in ICEBERG_FAULTS.items() if fault.weight > RARE}
    # By actors of searches alone:
    searched = {"recluster part", "recluster slowly", "gc slowly", "tag an older one"}
    assert {step.operation for step in steps} == set(ICEBERG_OPERATIONS) - searched
    policies = {step.args["policy"] for step in steps if "policy" in step.args}
    assert policies >= set(drawn_policies())
    assert {event.kind for history in histories for event in history.events} >= usual
    assert {trait for history in histories for trait in history.traits} == {*_TRAITS, *_OF_CATALOGS}
