"""A history as a value: what every actor does, when the turn passes to another one, and what fails.

`draw` makes it from a seed. The rest of the simulation has no source of chance of its own: a history runs the same
way each time, and one that fails can be cut (`shrink.py`).

Calls are numbered for each actor, from 1. So an event stays where it is if another actor's events are cut.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulation.actors import ACTORS, LAYOUTS, OPERATIONS
from simulation.faults import FAULTS
from simulation.operation import Draws

SWITCH, PAUSE, JUMP = "switch", "pause", "jump"
"""Events that are no faults: another actor's turn, a pause of an actor, and a jump of its clock, both in seconds."""

_PAUSES = (0.05, 0.9, 2.0, 30.0, 400.0, 4000.0, 90_000.0)
_JUMPS = (-200.0, -5.0, 5.0, 200.0)
_FAR_JUMPS = (-90_000.0, 90_000.0)
_RESTS = (0.0, 0.0, 0.0, 1.0, 60.0, 4000.0, 90_000.0)
_SKEWS = (0.0, 0.0, 0.3, -3.0, 120.0, -120.0, 290.0, -290.0)
_MOST_DECISIVE = 8
_MOST_CALLS = 400  # an actor's events are drawn up to this call


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happens at the call with this number of an actor; `value` depends on the kind.

    `decisive`: the number counts only creates and deletes, the calls on which the protocol depends.
    """

    actor: int
    call: int
    kind: str
    value: float = 0.0
    decisive: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operation of an actor, and how long it rests before."""

    operation: str
    args: Mapping[str, Any]
    rest_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Script:
    """All that one actor does.

    Attributes:
        skew_seconds: how far its clock is ahead.
        restarts: each operation is a process of its own, as a command is; else one process does all.
    """

    role: str
    skew_seconds: float
    steps: Sequence[Step]
    restarts: bool = False


@dataclass(frozen=True, kw_only=True)
class History:
    """What happens.

    `disk`: the storage behaves as a local disk, else as an object store. `format`: of the table.

    `traits`: how else this history's world differs, in words that its format knows.
    """

    seed: int
    disk: bool
    cluster_by: str
    scripts: Sequence[Script]
    events: Sequence[Event]
    format: str = "native"
    traits: frozenset[str] = frozenset()

    @property
    def step_count(self) -> int:
        """The operations of all actors."""
        return sum(len(script.steps) for script in self.scripts)

    def __str__(self) -> str:
        place = "local disk" if self.disk else "object store"
        lines = [", ".join([f"seed {self.seed}", place, f"key {self.cluster_by}", *sorted(self.traits)])]
        for number, script in enumerate(self.scripts):
            lines.append(
                f"actor {number}, {script.role}, clock {script.skew_seconds:+} s{', restarts' * script.restarts}"
            )
            for step in script.steps:
                args = ", ".join(f"{name}={value}" for name, value in step.args.items())
                rest = f" after {step.rest_seconds} s" if step.rest_seconds else ""
                lines.append(f"    {step.operation}({args}){rest}")
        lines += [
            f"at {'decisive ' * event.decisive}call {event.call} of actor {event.actor}: {event.kind} {event.value:g}"
            for event in self.events
        ]
        return "\n".join(lines)


def draw(
    seed: int, *, roles: Sequence[str] = (), faults: Sequence[str] | None = None, gap: int | None = None
) -> History:
    """Return the history of a seed. Tests steer it.

    Args:
        seed: of everything that is not given.
        roles: are among the actors.
        faults: the only ones that happen; None for all kinds.
        gap: about so many requests of an actor lie between two faults.
    """
    rng = random.Random(seed)
    draws = Draws(rng)
    chosen = [*roles, *rng.choices(list(ACTORS), k=rng.randint(2, 5) - min(2, len(roles)))]
    rng.shuffle(chosen)
    scripts = [_first(draws), *(_script(role, draws) for role in chosen)]
    kinds = list(FAULTS) if faults is None else list(faults)
    fault_gap = rng.choice([0, 0, 200, 60, 25]) if faults is None else gap or 12
    switch_gap = rng.choice([2, 4, 10, 30, 150])
    pause_gap = rng.choice([0, 60, 200])
    events: list[Event] = []
    for actor in range(len(scripts)):
        others = [number for number in range(len(scripts)) if number != actor]
        events += _switches(rng, actor, others, switch_gap)
        events += _pauses(rng, actor, pause_gap)
        events += _stalls(rng, actor)
        if fault_gap and kinds:
            weights = [FAULTS[kind].weight for kind in kinds]
            for call, decisive in _places_of_faults(rng, fault_gap):
                kind = rng.choices(kinds, weights)[0]
                value = FAULTS[kind].draw(rng)
                events.append(Event(actor=actor, call=call, kind=kind, value=value, decisive=decisive))
    return History(
        seed=seed,
        disk=rng.random() < 0.3,
        cluster_by=rng.choice(["k", "k", "k, x", "x", LAYOUTS[0], LAYOUTS[2]]),
        scripts=tuple(scripts),
        events=tuple(events),
        traits=frozenset(
            rng.choice([(), (), (), ("reclusters inline",), ("leaves plans",), ("records scans",)])
        ),
    )


def _first(draws: Draws) -> Script:
    """Return an appender, so that there are rows to work on."""
    steps = [Step(operation="append", args=OPERATIONS["append"].draw(draws)) for _ in range(2)]
    return Script(role="appender", skew_seconds=0.0, steps=tuple(steps))


def _script(role: str, draws: Draws) -> Script:
    rng = draws.rng
    steps = []
    for _ in range(rng.randint(1, 4)):
        for name in rng.choice(ACTORS[role]):
            args = OPERATIONS[name].draw(draws)
            steps.append(Step(operation=name, args=args, rest_seconds=rng.choice(_RESTS)))
    return Script(role=role, skew_seconds=rng.choice(_SKEWS), steps=tuple(steps), restarts=rng.random() < 0.5)


def _calls(rng: random.Random, gap: float) -> Iterator[int]:
    """Yield ascending numbers of calls, on average `gap` apart."""
    call = 0
    while (call := call + 1 + int(rng.expovariate(1 / gap))) <= _MOST_CALLS:
        yield call


def _switches(rng: random.Random, actor: int, others: Sequence[int], gap: float) -> Iterator[Event]:
    for call in _calls(rng, gap) if others else ():
        yield Event(actor=actor, call=call, kind=SWITCH, value=rng.choice(others))


def _pauses(rng: random.Random, actor: int, gap: float) -> Iterator[Event]:
    for call in _calls(rng, gap) if gap else ():
        if rng.random() < 0.8:
            yield Event(actor=actor, call=call, kind=PAUSE, value=rng.choice(_PAUSES))
        else:
            jumps = _FAR_JUMPS if rng.random() < 0.1 else _JUMPS
            yield Event(actor=actor, call=call, kind=JUMP, value=rng.choice(jumps))


def _stalls(rng: random.Random, actor: int) -> Iterator[Event]:
    for _ in range(rng.choice([0, 0, 1, 2])):
        call = rng.randint(1, _MOST_DECISIVE)
        yield Event(actor=actor, call=call, kind=PAUSE, value=rng.choice(_PAUSES[:4]), decisive=True)


def _places_of_faults(rng: random.Random, gap: float) -> Iterator[tuple[int, bool]]:
    yield from ((call, False) for call in _calls(rng, gap))
    for _ in range(rng.choice([0, 1, 2])):
        yield rng.randint(1, _MOST_DECISIVE), True
