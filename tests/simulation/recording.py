"""Scans that are recorded in the table's log of queries. A process writes the log when it is asked to.

The product has a thread for that; a thread of its own would take no turns.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import tblctl
from simulation.model import sql
from simulation.operation import Args, Draws, Operation
from tblctl.tableformat.workload.place import FOLDER, KEEP_SECONDS
from tblctl.tableformat.workload.writer import LogWriter

if TYPE_CHECKING:
    from simulation.world import Actor, Run, World

_ABOVE_IDS = 10_000


class PlayedWriter(LogWriter):
    """Writes in the thread that asks for it."""

    def _start(self) -> None: ...

    def hurry(self) -> int:
        if self._waiting:
            self._hurries = True
            self._work()
        return self._added


class _Writers:
    """The writers of the process of whoever acts: its end loses what they have not written."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, key: Any, make: Callable[[], LogWriter]) -> LogWriter:
        writers = self._world.acting.writers
        if key not in writers:
            writers[key] = make()
        return writers[key]

    def flush(self, _url: str | None = None, _seconds: float | None = None) -> None:
        for writer in list(self._world.acting.writers.values()):
            writer.hurry()


@contextlib.contextmanager
def recording_of(world: World) -> Iterator[None]:
    """Let scans be recorded by the process of the actor that makes them."""
    module = "tblctl.tableformat.workload.writer"
    with mock.patch(f"{module}._WRITERS", _Writers(world)), mock.patch(f"{module}.LogWriter", PlayedWriter):
        yield


class RecordScans(Operation):
    """Scan by conditions that nobody else has, and write the log."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        scans = [("id", "between", (draws.number(), _ABOVE_IDS)) for _ in range(rng.randint(1, 3))]
        return {
            "scans": scans,
            "record": rng.choice([None, "on", "on", "sample:0.5"]),
            "closes": rng.random() < 0.8,
        }

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        world = actor.world
        table = tblctl.Table(actor.table._native, record=args["record"])
        for condition in args["scans"]:
            first = world.oracle.newest
            found = table.scan(sql(condition)).to_arrow()
            world.oracle.require_rows(
                found, range(first, world.oracle.newest + 1), condition, "a recorded scan"
            )
        if args["closes"]:
            table.close()
        if args["closes"] and args["record"] == "on" and not run.faults:
            lost = {sql(condition) for condition in args["scans"]} - set(recorded(world))
            if lost:
                raise world.oracle.broken(f"{run} lost {len(lost)} of its scans, such as {min(lost)}")
        return None


class BeAway(Operation):
    """Do nothing for so long that logs become old."""

    commits = "none"

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        actor.sleep(KEEP_SECONDS + 3600.0)
        return None


def recorded(world: World) -> Iterator[str]:
    """Yield the condition of each query in the log."""
    for name, item in world.store.objects.items():
        if name.startswith(FOLDER):
            yield from conditions_of(item.data)


def conditions_of(log: bytes) -> list[str]:
    """Return the conditions of the queries of one file, which has no damaged line."""
    _, *queries = map(json.loads, log.splitlines())
    return [query["where"] for query in queries]
