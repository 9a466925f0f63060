"""Draw the history of an Iceberg table from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from simulation.history import (
    _JUMPS,
    _RESTS,
    _SKEWS,
    JUMP,
    PAUSE,
    Event,
    History,
    Script,
    Step,
    _calls,
    _places_of_faults,
    _stalls,
    _switches,
)
from simulation.iceberg.actors import ICEBERG_ACTORS, ICEBERG_OPERATIONS, RESTS, SEARCHERS
from simulation.iceberg.faults import ICEBERG_FAULTS
from simulation.operation import Draws

_PAUSES = (0.05, 0.9, 2.0, 30.0, 400.0, 4000.0, 20_000.0)
"""Seconds. Nothing can stop a commit that was paused for half a day between its last look at its files and the
catalog's answer: gc may have deleted them meanwhile (see `publish/freshness.py`)."""

_TRAITS = {"hides": 0.1, "trims": 0.2, "strict": 0.3}
_OF_CATALOGS = {"reorders": 0.1, "pointers": 0.3}
_SHOWN = {"hides", "trims", "reorders"}
"""What a catalog that shows metadata may do; one with pointers shows none."""


def draw_iceberg(
    seed: int, *, roles: Sequence[str] = (), faults: Sequence[str] | None = None, gap: int | None = None
) -> History:
    """Return the history of a seed. Tests steer it as `simulation.history.draw`."""
    rng = random.Random(f"iceberg {seed}")
    draws = Draws(rng)
    ours = rng.choice(["reclusterer", "reclusterer", "plan executor"])
    chosen = [
        *(roles or [ours]),
        *rng.choices(list(ICEBERG_ACTORS), k=rng.randint(2, 5) - min(2, len(roles))),
    ]
    rng.shuffle(chosen)
    scripts = [_first(draws), *(_script(role, draws) for role in chosen)]
    kinds = list(ICEBERG_FAULTS) if faults is None else list(faults)
    fault_gap = rng.choice([0, 0, 200, 60, 25]) if faults is None else gap or 60
    switch_gap = rng.choice([2, 4, 10, 30, 150])
    pause_gap = rng.choice([0, 60, 200])
    events: list[Event] = []
    for actor in range(len(scripts)):
        others = [number for number in range(len(scripts)) if number != actor]
        events += _switches(rng, actor, others, switch_gap)
        for call in _calls(rng, pause_gap) if pause_gap else ():
            kind, values = (PAUSE, _PAUSES) if rng.random() < 0.8 else (JUMP, _JUMPS)
            events.append(Event(actor=actor, call=call, kind=kind, value=rng.choice(values)))
        events += _stalls(rng, actor)
        if fault_gap and kinds:
            weights = [ICEBERG_FAULTS[kind].weight for kind in kinds]
            for call, decisive in _places_of_faults(rng, fault_gap):
                kind = rng.choices(kinds, weights)[0]
                value = ICEBERG_FAULTS[kind].draw(rng)
                events.append(Event(actor=actor, call=call, kind=kind, value=value, decisive=decisive))
    traits = {name for name, share in _TRAITS.items() if rng.random() < share}
    cluster_by = rng.choice(["", "", "bucket", "s"])
    traits |= {name for name, share in _OF_CATALOGS.items() if rng.random() < share}
    if "pointers" in traits:
        traits -= _SHOWN
    return History(
        seed=seed,
        disk=False,
        cluster_by=cluster_by,
        scripts=tuple(scripts),
        events=tuple(events),
        format="iceberg",
        traits=frozenset(traits),
    )


def _first(draws: Draws) -> Script:
    """Return an appender, so that there are rows to work on."""
    steps = [Step(operation="append", args=ICEBERG_OPERATIONS["append"].draw(draws)) for _ in range(2)]
    return Script(role="appender", skew_seconds=0.0, steps=tuple(steps))


def _script(role: str, draws: Draws) -> Script:
    rng = draws.rng
    steps = []
    for _ in range(rng.randint(1, 4)):
        for name in rng.choice((SEARCHERS | ICEBERG_ACTORS)[role]):
            operation = ICEBERG_OPERATIONS[name]
            args = operation.draw(draws)
            rest = RESTS[role] if role in RESTS else rng.choice(_RESTS)
            steps.append(Step(operation=operation.known_as or name, args=args, rest_seconds=rest))
    restarts = rng.random() < 0.5
    return Script(role=role, skew_seconds=rng.choice(_SKEWS), steps=tuple(steps), restarts=restarts)
