"""The simulation: histories of this commit, that one is the same each time, and that its parts do what they say."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from profiles import PROFILE, cases

from simulation import actors
from simulation.faults import FAULTS, RARE
from simulation.history import SWITCH, Event, History, Script, Step, draw
from simulation.model import Version, matches, normal
from simulation.oracle import LAST_GC
from simulation.policies import drawn_policies
from simulation.recording import recorded
from simulation.run import replay_command, run_history
from simulation.shrink import shrink, signature
from simulation.world import TRAITS, World
from tblctl.tableformat.native.log.names import plan_of

TESTS = Path(__file__).parents[1]
HISTORIES = 250
PARTS = 5  # so that several processes share them

APPEND = {"rows": [(1, 1, 1.5, "a", 0), (2, 9, -0.0, None, 1)]}
MORE = {"rows": [(3, 2, None, "b", 0)]}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_promise(part):
    count = cases(HISTORIES) // PARTS
    first = 1 + part * count if PROFILE == "ci" else random.randrange(2**40)
    for seed in range(first, first + count):
        result = run_history(draw(seed))
        assert result.found is None, f"{result.kind}: {result.found}\n{replay_command(seed)}"


def _digest(seed: int, hash_seed: str) -> str:
    script = (
        "import sys; from simulation.history import draw; from simulation.run import run_history; "
        f"print(run_history(draw({seed})).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=TESTS, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("seed", [7, 23])
def test_a_seed_makes_the_same_requests_in_every_process(seed):
    found = {_digest(seed, hash_seed) for hash_seed in ("0", "12345")}
    assert found == {run_history(draw(seed)).digest}


def test_other_seeds_make_other_histories():
    assert len({str(draw(seed)) for seed in range(20)}) == 20


def test_every_policy_of_the_registry_and_every_operation_is_drawn():
    steps = [step for seed in range(300) for script in draw(seed).scripts for step in script.steps]
    assert {step.operation for step in steps} == actors.OPERATIONS.keys() - {"reset clock"}
    policies = {step.args["policy"] for step in steps if "policy" in step.args}
    assert policies >= set(drawn_policies())


def test_histories_of_every_mode_are_drawn_and_do_what_it_says():
    assert {trait for seed in range(60) for trait in draw(seed).traits} == TRAITS.keys()
    history = _history([("append", APPEND), ("append", MORE)])
    for trait, merged, planned in (("reclusters inline", 1, 0), ("leaves plans", 0, 1)):
        world = World(dataclasses.replace(history, traits=frozenset({trait})))
        world.run()
        assert world.counts["reclusters inline"] == merged
        assert sum(plan_of(name) is not None for name in world.store.objects) == planned


def test_every_fault_is_drawn():
    usual = {kind for kind, fault in FAULTS.items() if fault.weight > RARE}
    assert {event.kind for seed in range(200) for event in draw(seed).events} >= usual


def _history(*scripts: list[tuple[str, dict]], events: tuple[Event, ...] = ()) -> History:
    return History(
        seed=0,
        disk=False,
        cluster_by="k",
        scripts=tuple(
            Script(
                role="any",
                skew_seconds=0.0,
                steps=tuple(Step(operation=name, args=args) for name, args in steps),
            )
            for steps in scripts
        ),
        events=events,
    )


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_call_of_an_append_breaks_no_promise(kind):
    history = _history([("append", APPEND)], [("append", MORE)])
    calls = run_history(history).counts["requests"]
    for call in range(1, calls + 1):
        event = Event(actor=0, call=call, kind=kind, value=0.5)
        result = run_history(dataclasses.replace(history, events=(event,)))
        assert result.found is None, (event, result.found)


def test_recorded_scans_are_in_the_log_until_a_gc_a_month_later():
    scans = {"scans": [("id", "between", (5, 10_000))], "record": "on", "closes": True}
    steps = [("append", APPEND), ("record", scans)]
    for later, kept in (([], 1), ([("be away", {})], 0)):
        world = World(_history([*steps, *later, ("gc", LAST_GC)]))
        world.run()
        assert len(list(recorded(world))) == kept


def test_a_history_that_breaks_a_promise_is_cut_to_what_breaks_it(monkeypatch):
    class Liar(actors.Append):
        def model(self, before, run, args):
            return before.plus(actors.modelled(args["rows"], run.names)) if run.actor.number else before

    monkeypatch.setitem(actors.OPERATIONS, "append", Liar())
    events = tuple(
        Event(actor=actor, call=call, kind=SWITCH, value=1) for actor in (0, 1) for call in (2, 4, 9)
    )
    history = _history(
        [("append", APPEND), ("gc", LAST_GC)], [("append", MORE), ("read", {"where": None})], events=events
    )
    result = run_history(history)
    assert signature(result) is not None
    smaller = shrink(history)
    assert signature(run_history(smaller)) == signature(result)
    assert (smaller.step_count, len(smaller.events)) == (1, 0), str(smaller)
    assert smaller.scripts[0].steps[0].operation == "append"


def test_arguments_of_a_history_are_plain_values():
    for seed in range(50):
        for script in draw(seed).scripts:
            for step in script.steps:
                json.dumps(step.args)


def test_the_model_compares_as_sql_does_and_keeps_signs_of_zeros():
    row = {"k": None, "x": -0.0}
    assert matches(("x", "=", 0.0), row)
    assert not matches(("k", "!=", 3), row)
    assert matches(("k", "is null", None), row)
    assert normal(-0.0) != normal(0.0)
    assert normal(float("nan")) == normal(float("nan"))


def test_the_model_drops_values_of_columns_that_are_gone():
    version = Version(names={"id": "id"}).plus({1: {"id": 1, "gone": 2}})
    assert version.rows == {1: {"id": 1}}
