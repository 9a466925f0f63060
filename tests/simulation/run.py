"""Run histories, one or thousands, and say what was found."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from simulation.history import History
from simulation.oracle import Broken
from simulation.world import World


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one history: what was found (None: nothing), figures, and a digest of all requests."""

    history: History
    found: BaseException | None
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    @property
    def kind(self) -> str:
        """What was found, in a few words: the class of the error."""
        return type(self.found).__name__


def run_history(history: History, *, lines: list[str] | None = None) -> Result:
    """Run one history. `lines` gets one line for each request."""
    world = World(history)
    world.lines = lines
    found: BaseException | None = None
    try:
        world.run()
    except (Exception, Broken) as error:
        found = error
    counts = world.counts
    counts["requests"] = world.calls
    counts["rows compared"] = world.oracle.rows_compared
    return Result(history=history, found=found, counts=counts, digest=world.trace.hexdigest())
