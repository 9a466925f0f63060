"""Cut a history that fails to the fewest actors, operations, events and traits with which it fails the same way.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): remove halves,
then quarters and so on of what is left, as long as something can go.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from simulation.history import Event, History, Step
from simulation.run import Result, run_history

_T = TypeVar("_T")
MOST_RUNS = 300


def shrink(history: History, *, most_runs: int = MOST_RUNS) -> History:
    """Return a smaller history that fails as `history` does; after so many runs the smallest one so far."""
    wanted = signature(run_history(history))
    runs = 0

    def fails(smaller: History) -> bool:
        nonlocal runs
        runs += 1
        return runs <= most_runs and signature(run_history(smaller)) == wanted

    def without_actors(kept: Sequence[int]) -> History:
        return _only(history, set(kept))

    history = without_actors(_fewest(range(len(history.scripts)), lambda kept: fails(without_actors(kept))))
    history = _with_events(history, _fewest(history.events, lambda kept: fails(_with_events(history, kept))))
    steps = [(number, step) for number, script in enumerate(history.scripts) for step in script.steps]
    history = _with_steps(history, _fewest(steps, lambda kept: fails(_with_steps(history, kept))))
    traits = _fewest(sorted(history.traits), lambda kept: fails(_with_traits(history, kept)))
    history = _with_traits(history, traits)
    calm = dataclasses.replace(
        history, scripts=tuple(dataclasses.replace(item, skew_seconds=0.0) for item in history.scripts)
    )
    return calm if fails(calm) else history


def signature(result: Result) -> str | None:
    """Return what a result's finding has in common with others of its kind; None without one."""
    if result.found is None:
        return None
    words = re.sub(r"'[^']*'|[0-9a-f]{32}|\d+", "#", str(result.found)).split()
    return f"{result.kind} {' '.join(words[:4])}"


def _fewest(items: Sequence[_T], still: Callable[[list[_T]], bool]) -> list[_T]:
    """Return a part of `items` for which `still` holds, and from which nothing of the last size tried can go."""
    kept = list(items)
    size = max(1, len(kept) // 2)
    while kept:
        start, found = 0, False
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if still(rest):
                kept, found = rest, True
            else:
                start += size
        if size == 1 and not found:
            break
        size = max(1, size // 2)
    return kept


def _only(history: History, actors: set[int]) -> History:
    """Return the history with the work of some actors; the others stay, with nothing to do."""
    return dataclasses.replace(
        history,
        scripts=tuple(
            script if number in actors else dataclasses.replace(script, steps=())
            for number, script in enumerate(history.scripts)
        ),
        events=tuple(event for event in history.events if event.actor in actors),
    )


def _with_traits(history: History, traits: Sequence[str]) -> History:
    return dataclasses.replace(history, traits=frozenset(traits))


def _with_events(history: History, events: Sequence[Event]) -> History:
    return dataclasses.replace(history, events=tuple(events))


def _with_steps(history: History, steps: Sequence[tuple[int, Step]]) -> History:
    scripts = [
        dataclasses.replace(script, steps=tuple(step for actor, step in steps if actor == number))
        for number, script in enumerate(history.scripts)
    ]
    return dataclasses.replace(history, scripts=tuple(scripts))
