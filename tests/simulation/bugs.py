"""Seeded bugs: faults in the product that the simulation must find. A bug is added with one entry in `BUGS`.

Each replaces functions of the product, in this process and for a while. It is searched for in histories that are
drawn as all others, with some actors and faults more likely, so that a search takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from simulation import actors, engine
from simulation.formats import FORMATS
from simulation.history import History
from simulation.run import run_history
from tblctl import importing_native
from tblctl.merger.round.group_run import GroupRun, State
from tblctl.tableformat.errors import CommitOutcomeUnknownError, CorruptTableError
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.statistics import ALL, SOME
from tblctl.tableformat.native.log import alter, commit, edit_applier, head, segment_reader
from tblctl.tableformat.native.read import handed_out
from tblctl.tableformat.native.upkeep import gc
from tblctl.tableformat.native.write import dml, write_planner
from tblctl.tableformat.native.write.taken_before import TakenBefore
from tblctl.tableformat.parquet import opened, sealed
from tblctl.tableformat.parquet import statistics as column_statistics
from tblctl.tableformat.port import BlocksReplacedError
from tblctl.tableformat.workload import writer

Patches = Callable[[], list[Any]]
TESTS = Path(__file__).parents[1]

_SEARCH = """
import sys
from simulation.bugs import BUGS
sys.exit(0 if BUGS[sys.argv[1]].search(*map(int, sys.argv[2:])) else 1)
"""


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A seeded bug.

    Attributes:
        what: for the table.
        patches: the replacements, as context managers.
        roles: actors that are in each history, beside those drawn.
        faults: the kinds of faults; None for all of them, as often as usual.
        gap: about so many requests of an actor lie between two faults; None for as many as usual.
        format: of the tables.
        traits: of each history; none: those drawn, of native histories none.
        first: the seed from which its test searches, chosen so that the search is short.
        most: histories in which the test must find it: many times what a search takes, since any change of the product
            lets other histories find it.
        may_crash: with it, Arrow may end the process, which is found, too.
    """

    what: str
    patches: Patches
    roles: tuple[str, ...] = ()
    faults: tuple[str, ...] | None = ()
    gap: int | None = None
    format: str = "native"
    traits: tuple[str, ...] = ()
    first: int = 1
    most: int = 1000
    may_crash: bool = False

    @contextlib.contextmanager
    def seeded(self) -> Iterator[None]:
        """Have the bug while open."""
        with contextlib.ExitStack() as opened:
            for patch in self.patches():
                opened.enter_context(patch)
            yield

    def draw(self, seed: int) -> History:
        """Return a history in which it is looked for."""
        found = FORMATS[self.format].draw(seed, roles=self.roles, faults=self.faults, gap=self.gap)
        is_plain = self.format == "native"  # reclusters after writes make a search longer
        return dataclasses.replace(found, traits=frozenset(self.traits)) if self.traits or is_plain else found

    def search(self, first: int, most: int) -> int | None:
        """Return after how many histories from the seed `first` it is found; None if it is not in so many."""
        with self.seeded():
            for count in range(1, most + 1):
                if self.may_crash:
                    print(count, flush=True)
                if run_history(self.draw(first + count - 1)).found is not None:
                    return count
        return None

    def search_apart(self, first: int, most: int) -> int | None:
        """Search in a process of its own, whose end by a signal is a find."""
        name = next(name for name, bug in BUGS.items() if bug is self)
        words = [sys.executable, "-c", _SEARCH, name, str(first), str(most)]
        done = subprocess.run(words, cwd=TESTS, capture_output=True, text=True, check=False)
        if done.returncode > 1:
            raise RuntimeError(done.stderr)
        return None if done.returncode == 1 else int(done.stdout.split()[-1])


def _replaced(owner: Any, name: str, value: Any) -> Any:
    return mock.patch.object(owner, name, value)


def _no_fence() -> list[Any]:
    return [_replaced(gc, "_fence", lambda *_: None)]


def _no_writers_check() -> list[Any]:
    return [_replaced(commit._Look, "lost", lambda *_: [])]


def _horizon_dropped() -> list[Any]:
    real = commit._stamped

    def stamped(snapshot: Snapshot, *args: Any) -> Snapshot:
        found = real(snapshot, *args)
        is_gc = found.summary.operation == "gc"
        return found if is_gc else dataclasses.replace(found, horizon_us=0)

    return [_replaced(commit, "_stamped", stamped)]


def _no_read_back() -> list[Any]:
    def create(storage: Any, _env: Any, snapshot: Snapshot) -> bool:
        try:
            return storage.create(commit.snapshot_path(snapshot.sequence), commit._readable(snapshot))
        except CommitOutcomeUnknownError:
            return False

    return [_replaced(commit, "create_snapshot", create)]


def _damaged_is_not_ours() -> list[Any]:
    def commit_id(data: bytes, sequence: int) -> str | None:
        try:
            return commit.decode(data, sequence).commit_id
        except CorruptTableError:
            return None

    return [_replaced(commit, "_commit_id", commit_id)]


def _hint_trusted() -> list[Any]:
    real = head._newest_from

    def newest_from(storage: Any, start: int) -> Any:
        data = storage.try_read(head.snapshot_path(start))
        is_hinted = storage.try_read(head.LATEST) == f'{{"sequence": {start}}}'.encode()
        return (start, data) if data is not None and is_hinted else real(storage, start)

    return [_replaced(head, "_newest_from", newest_from)]


def _no_salvage_check() -> list[Any]:
    applier = edit_applier.EditApplier
    real = applier._touched

    def touched(self: Any, edit: Any, newest: Snapshot) -> Any:
        try:
            return real(self, edit, newest)
        except BlocksReplacedError as error:
            gone = frozenset(error.details["paths"])
            rest = {key: paths - gone for key, paths in edit.removed.items()}
            return real(self, dataclasses.replace(edit, removed=rest), newest)

    return [_replaced(applier, "_touched", touched)]


def _every_attempt_counts() -> list[Any]:
    return [_replaced(actors, "first_of_each", lambda messages: [message for _, message in messages])]


def _second_attempt_loses_its_task() -> list[Any]:
    def once(messages: Any) -> list[Any]:
        tasks = [task for task, _ in messages]
        found = [message for task, message in messages if tasks.count(task) == 1]
        return found or [messages[0][1]]

    return [_replaced(actors, "first_of_each", once)]


def _merged_twice() -> list[Any]:
    def abandoned(_self: Any, outcome: Any, done: Any) -> None:
        done(outcome)

    def report(self: Any, item: Any) -> None:
        if self.state in (State.MERGING, State.MERGED):
            self._results.append(item)
            self.state = State.MERGED

    return [_replaced(engine.PlayedEngine, "abandoned", abandoned), _replaced(GroupRun, "report", report)]


def _name_free_again() -> list[Any]:
    def bury(storage: Any, version: Any) -> None:
        storage.delete([gc.snapshot_path(version.sequence)])

    return [_replaced(gc, "_bury", bury)]


def _zeros_left_out() -> list[Any]:
    real = column_statistics._measured

    def measured(table: pa.Table, leaf: Any, *, before_writing: bool) -> Any:
        found = real(table, leaf, before_writing=before_writing)
        if not pa.types.is_floating(found.min.type):
            return found
        low = pa.scalar(5e-324, found.min.type) if found.min.as_py() == 0 else found.min
        high = pa.scalar(-5e-324, found.max.type) if found.max.as_py() == 0 else found.max
        return dataclasses.replace(found, min=low, max=high)

    return [_replaced(column_statistics, "_measured", measured)]


def _footer_believed() -> list[Any]:
    def end(_place: Any, seal: Any, _size_bytes: int, data: pa.Buffer) -> pa.Buffer:
        return data if data.size <= seal.footer_bytes else data[-seal.footer_bytes :]

    return [_replaced(module, "verified_end", end) for module in (sealed, handed_out, opened, segment_reader)]


def _planned_once() -> list[Any]:
    real = write_planner.Planner.plan

    def plan(self: Any, newest: Snapshot) -> Any:
        return real(self, newest) if self._edit is None else self._edit

    return [_replaced(write_planner.Planner, "plan", plan)]


def _batches_forgotten() -> list[Any]:
    return [_replaced(Snapshot, "has_batch", lambda *_: False)]


def _unknown_is_failed() -> list[Any]:
    class Fate(commit.Fate):
        maybe_published = property(lambda _self: False, lambda _self, _value: None)
        __init__ = object.__init__

    return [_replaced(dml, "Fate", Fate)]


def _own_clock() -> list[Any]:
    return [_replaced(gc, "_storage_seconds", lambda _storage, env, _grace: env.now())]


def _tags_expire() -> list[Any]:
    def is_retained(self: Snapshot, sequence: int) -> bool:
        return self.retained_from <= sequence <= self.sequence

    return [_replaced(gc.Snapshot, "is_retained", is_retained)]


def _schema_stays() -> list[Any]:
    real = alter.roll_back

    def roll_back(newest: Snapshot, target: Snapshot) -> Snapshot:
        return dataclasses.replace(real(newest, target), schema_id=newest.schema_id)

    return [_replaced(alter, "roll_back", roll_back)]


def _half_is_whole() -> list[Any]:
    real = write_planner.select_blocks

    def select(*args: Any) -> Any:
        found = real(*args)
        outcome = found.outcome.copy()
        outcome[outcome == SOME] = ALL
        return dataclasses.replace(found, outcome=outcome)

    return [_replaced(write_planner, "select_blocks", select)]


def _gc_unaware() -> list[Any]:
    def after(_storage: Any, _head: Snapshot) -> Snapshot:
        raise  # noqa: PLE0704 (callers are in an except clause)

    return [_replaced(gc, "after_gc", after), _replaced(commit, "after_gc", after)]


def _discards_in_doubt() -> list[Any]:
    everything = property(lambda run: [record.path for record in run.records])
    return [_replaced(GroupRun, "deletable", everything)]


_REPLIES = ("lost reply", "sent again")


def _pending_plans_are_garbage() -> list[Any]:
    real = gc._dead_plans
    return [_replaced(gc, "_dead_plans", lambda objects, _now_us: real(objects, 1 << 62))]


def _claims_outlive_their_plans() -> list[Any]:
    return [_replaced(gc, "claim_of", lambda _name: None)]


def _lists_forgotten() -> list[Any]:
    nothing = importing_native._Known()
    return [_replaced(importing_native, "_known_of", lambda *_, **__: nothing), *_lists_not_compared()]


def _lists_not_compared() -> list[Any]:
    return [_replaced(TakenBefore, "has_any", lambda *_: False)]


def _logs_go_at_once() -> list[Any]:
    return [_replaced(gc, "KEEP_SECONDS", 0.0)]


def _logs_written_again() -> list[Any]:
    def write(self: Any, batch: Any, lost: int) -> None:
        real(self, batch, lost)
        real(self, batch, lost)

    real = writer.LogWriter._write
    return [_replaced(writer.LogWriter, "_write", write)]


BUGS: dict[str, Bug] = {
    "live plans are garbage": Bug(
        what="gc deletes pending plans that have not expired",
        patches=_pending_plans_are_garbage,
        roles=("gc", "gc", "appender", "scheduler"),
        first=2004,
    ),
    "claims outlive their plans": Bug(
        what="gc leaves claims whose plan is gone",
        patches=_claims_outlive_their_plans,
        roles=("appender", "scheduler", "executor of pending plans", "executor of pending plans"),
        faults=None,
        first=2001,
    ),
    "no fence": Bug(
        what="gc deletes without a fence",
        patches=_no_fence,
        roles=("gc", "gc", "appender", "updater"),
        first=3006,
    ),
    "no writers' check": Bug(
        what="writers do not compare their objects with the fence",
        patches=_no_writers_check,
        roles=("gc", "gc", "appender", "updater"),
        first=1005,
    ),
    "horizon dropped": Bug(
        what="commits do not carry the horizon on",
        patches=_horizon_dropped,
        roles=("gc", "appender"),
        first=2001,
    ),
    "no read-back": Bug(
        what="a lost create is not read back",
        patches=_no_read_back,
        roles=("appender", "appender"),
        faults=_REPLIES,
        first=1001,
    ),
    "damaged is not ours": Bug(
        what="a damaged read-back counts as another writer's snapshot",
        patches=_damaged_is_not_ours,
        roles=("appender", "appender", "appender"),
        faults=("damaged reply",),
        first=1001,
    ),
    "hint trusted": Bug(
        what="the hint is trusted",
        patches=_hint_trusted,
        roles=("appender", "appender"),
        faults=("refused", "crash before", "timeout"),
        first=1002,
    ),
    "no salvage check": Bug(
        what="a recluster commits groups that lost blocks",
        patches=_no_salvage_check,
        roles=("plan executor", "updater", "reclusterer"),
        first=3004,
    ),
    "every attempt counts": Bug(
        what="a second attempt of a staged task is counted too",
        patches=_every_attempt_counts,
        roles=("staged writer",),
        first=1001,
    ),
    "second attempt lost": Bug(
        what="a task that ran twice is not counted",
        patches=_second_attempt_loses_its_task,
        roles=("staged writer",),
        first=2001,
    ),
    "merged twice": Bug(
        what="an abandoned attempt of a merge task is counted too",
        patches=_merged_twice,
        roles=("reclusterer", "reclusterer", "appender"),
        first=3001,
    ),
    "name free again": Bug(
        what="gc leaves no tombstones: a sequence can be used again",
        patches=_name_free_again,
        roles=("gc", "gc"),
        first=1001,
    ),
    "zeros left out": Bug(
        what="bounds of floats leave zeros out, as if -0.0 and 0.0 differed",
        patches=_zeros_left_out,
        roles=("reader", "deleter"),
        first=3001,
    ),
    "footer believed": Bug(
        what="the checksum of footers is not compared",
        patches=_footer_believed,
        roles=("reader", "deleter", "updater", "overwriter"),
        faults=("misspelt name",),
        gap=2,
        may_crash=True,
        first=1002,
    ),
    "planned once": Bug(
        what="an overwrite, update or delete is not planned again after a lost race",
        patches=_planned_once,
        roles=("overwriter", "deleter", "appender", "appender"),
        first=3001,
    ),
    "batches forgotten": Bug(
        what="a batch of a stream is committed again after a restart",
        patches=_batches_forgotten,
        roles=("streaming writer", "streaming writer"),
        faults=("lost reply", "crash after"),
        first=2002,
    ),
    "unknown is failed": Bug(
        what="a writer that does not know its outcome deletes its blocks",
        patches=_unknown_is_failed,
        roles=("appender", "appender", "updater"),
        faults=("cut off",),
        first=3002,
    ),
    "discards in doubt": Bug(
        what="a recluster that does not know its outcome deletes its blocks",
        patches=_discards_in_doubt,
        roles=("reclusterer", "reclusterer", "plan executor"),
        faults=("commit cut off",),
        gap=2,
        first=3001,
    ),
    "own clock": Bug(
        what="gc takes ages from its own clock",
        patches=_own_clock,
        roles=("gc", "gc", "appender", "updater"),
        first=2002,
    ),
    "tags expire": Bug(
        what="gc does not keep tagged versions",
        patches=_tags_expire,
        roles=("gc", "gc", "tagger"),
        first=1001,
    ),
    "schema stays": Bug(
        what="a rollback does not restore the schema",
        patches=_schema_stays,
        roles=("schema changer", "rollback", "rollback"),
        first=3001,
    ),
    "half is whole": Bug(
        what="a block of which some rows match counts as one of which all do",
        patches=_half_is_whole,
        roles=("deleter",),
        first=3001,
    ),
    "lists forgotten": Bug(
        what="an import does not look up which files were taken",
        patches=_lists_forgotten,
        roles=("importer", "importer"),
        first=1001,
    ),
    "lists not compared": Bug(
        what="an import does not look whether another one took its files meanwhile",
        patches=_lists_not_compared,
        roles=("importer", "importer", "importer", "producer"),
        first=2001,
    ),
    "logs go at once": Bug(
        what="gc deletes logs of queries of any age",
        patches=_logs_go_at_once,
        roles=("recording reader", "gc", "gc"),
        first=1001,
    ),
    "logs written again": Bug(
        what="queries are recorded twice",
        patches=_logs_written_again,
        roles=("recording reader",),
        first=3001,
    ),
    "gc unaware": Bug(
        what="what another gc removed meanwhile counts as damage",
        patches=_gc_unaware,
        roles=("gc", "gc", "gc", "gc", "gc", "updater", "deleter"),
        first=1010,
    ),
}


def table(bugs: Mapping[str, Bug], first: int, trials: int, *, most: int = 1000) -> str:
    """Return how many histories it takes to find each bug: the median of some searches from different seeds."""
    lines = ["| seeded bug | searches | histories until found (median) | most |", "|---|--:|--:|--:|"]
    for bug in bugs.values():
        search = bug.search_apart if bug.may_crash else bug.search
        found = [search(first + trial * most, most) for trial in range(trials)]
        counts = [most + 1 if count is None else count for count in found]
        shown = [
            f"{value:g}" if value <= most else f"not in {most}"
            for value in (statistics.median(counts), max(counts))
        ]
        lines.append(f"| {bug.what} | {trials} | {shown[0]} | {shown[1]} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)
