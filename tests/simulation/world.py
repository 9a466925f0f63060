"""Runs a history: actors in threads, of which exactly one runs at a time.

An actor gives up its turn only at its requests to the storage, when it sleeps, and when an operation ends. Work that
the product gives to a thread pool is done at once in the actor's own thread (`inline_pools`). So the order of all
requests follows from the history alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self
from unittest import mock

import pyarrow as pa

import tblctl
from simulation.actors import CONDITIONS, OPERATIONS
from simulation.engine import PlayedEngine
from simulation.faults import DECISIVE, FAULTS, Fault, Killed, flipped
from simulation.history import JUMP, PAUSE, SWITCH, Event, History, Script, Step
from simulation.lake import Lake, imports_of, place_of
from simulation.model import SCHEMA
from simulation.operation import table_of
from simulation.oracle import Broken, Oracle
from simulation.recording import recording_of
from simulation.store import Store, storage_of
from tblctl.as_of import version_as_of
from tblctl.selector.plan import Plan
from tblctl.tableformat.environment import Beat, Environment
from tblctl.tableformat.errors import StorageError, TblctlError
from tblctl.tableformat.native.log.clock import MOST_SKEW_SECONDS
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.native.write.input_rows import InputRows
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.writer import LogWriter

START_SECONDS = 1_800_000_000.0
CALL_SECONDS = 0.002
OPTIONS = {"block_rows": 4, "row_group_rows": 2}
TRAITS: Mapping[str, Mapping[str, Any]] = {
    "reclusters inline": {"recluster.mode": "inline", "recluster.every": 2},
    "leaves plans": {"recluster.mode": "schedule", "recluster.every": 2},
    "records scans": {"recluster.record": "on"},
}
"""Options of some histories' tables. (Work in the background would be a thread that takes no turns.)"""
_TRIES = {"stream": 3, "import": 3}
_MOST_CALLS = 20_000  # of all actors: a history that takes more does not end
_RESTART_SECONDS = 5.0
_HANG_SECONDS = 120  # without a request


class Stopped(BaseException):
    """The history is over for an actor, because something was found."""


class InlinePool:
    """A thread pool that does its work at once, in the caller's thread."""

    def __init__(self, *_args: Any, **_options: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[[Any], Any], items: Any) -> Iterator[Any]:
        return iter([work(item) for item in items])

    def shutdown(self, **_options: Any) -> None: ...


@contextlib.contextmanager
def inline_pools() -> Iterator[None]:
    """Let the product do the work of its thread pools at once, in the caller's thread."""
    with contextlib.ExitStack() as opened:
        for module in ("tableformat.concurrency", "merger.task.threads", "merger.engines.local"):
            opened.enter_context(mock.patch(f"tblctl.{module}.ThreadPoolExecutor", InlinePool))
        never_twice = functools.partial(PlayedEngine, run_twice=lambda: False)
        opened.enter_context(mock.patch("tblctl.maintain.choose_engine.LocalEngine", never_twice))
        yield


@dataclass
class Run:
    """One operation of an actor while it is carried out, and what became of it.

    Attributes:
        commits: the sequences that it created, as the storage knows.
        error: what it raised; None if it succeeded or is not over.
        is_over: whether it returned or raised, or its process died.
        names: uids by the columns' names, of the rows that it writes.
        target: the version that it names.
        notes: what else it found out, for its model.
        gc_changes: what gcs had changed when it began.
    """

    world: World
    actor: Actor
    step: Step
    first: int
    started_seconds: float
    gc_changes: int
    commits: list[int] = field(default_factory=list)
    commits_reported: int | None = None
    faults: set[str] = field(default_factory=set)
    error: TblctlError | None = None
    is_over: bool = False
    is_killed: bool = False
    names: dict[str, str] = field(default_factory=dict)
    column: str = ""
    target: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.step.operation

    def __str__(self) -> str:
        return f"{self.name} of actor {self.actor.number} ({self.actor.script.role})"


@contextlib.contextmanager
def _one_beat(_seconds: float, action: Beat) -> Iterator[None]:
    """Stand for the thread beside a round: whatever it does comes last, after all that others did meanwhile."""
    yield
    action(lambda: False)


class Actor:
    """One actor: a script, a clock, a process that can die, and requests (see `store.Requests`)."""

    def __init__(self, world: World, number: int, script: Script) -> None:
        self.world = world
        self.number = number
        self.script = script
        self.calls = 0
        self.wake_seconds = 0.0
        self.skew_seconds = script.skew_seconds
        self.is_dead = False
        self.is_done = False
        self.run: Run | None = None
        self.plan: Plan | None = None
        self.gate = threading.Semaphore(0)
        self._failing = 0
        self._flipping: float | None = None
        self._rng = random.Random(f"{world.history.seed} {number}")
        self._decisive_calls = 0
        self._events: dict[tuple[int, bool], list[Event]] = {}
        for event in world.history.events:
            if event.actor == number:
                self._events.setdefault((event.call, event.decisive), []).append(event)
        self.env = Environment(
            now=lambda: world.seconds + self.skew_seconds,
            elapsed=lambda: world.seconds,
            cpu=lambda: 0.0,
            new_id=lambda: f"{self._rng.getrandbits(128):032x}",
            random=self._rng.random,
            sleep=self.sleep,
            resident_bytes=lambda: 0,
            beat=_one_beat,
        )
        self.start_process()

    def start_process(self) -> None:
        """Begin with what is on the storage, and a plan made before: it is a file of the actor's machine."""
        self.is_dead = False
        self._failing = 0
        self._flipping = None
        self.writers: dict[Any, LogWriter] = {}
        storage = storage_of(
            self.world.store,
            self,
            disk=self.world.history.disk,
            place_of=lambda url: place_of(self, url),
        )
        self.table = tblctl.Table(NativeTable(storage, self.env))

    def pinned(self, sequence: int) -> tblctl.Table:
        """Return a handle of one version."""
        version = version_as_of(self.table._port, sequence)
        return tblctl.Table(self.table._native, pinned=version.snapshot)

    def data(self, run: Run, rows: Any) -> pa.Table:
        """Return rows in the table's schema, and note its columns."""
        schema = self.table.schema
        run.names = {name: self.world.uids[name] for name in schema.names}
        return table_of(rows, schema)

    def sleep(self, seconds: float) -> None:
        """Let time pass, and others go on."""
        self.wake_seconds = self.world.seconds + seconds
        self.world.pass_on(self)

    # -- requests

    def around(self, operation: str, name: str, action: Callable[[], Any], data: bytes | None = None) -> Any:
        """Make one request, when it is this actor's turn."""
        if self is self.world.janitor:
            return action()
        if self.world.is_stopped:
            raise Stopped
        if self.is_dead:
            raise Killed
        self.calls += 1
        due = list(self._events.get((self.calls, False), ()))
        if operation in self.world.decisive:
            self._decisive_calls += 1
            due += self._events.get((self._decisive_calls, True), ())
        fault = self._take_turn(due)
        self.world.note(self, operation, name)
        if fault is None:
            return self._usual(operation, name, action)
        if self.run is None:
            return action()
        is_first = fault.kind not in self.run.faults
        self.run.faults.add(fault.kind)
        self.world.counts[f"fault {fault.kind}"] += 1
        call = _Call(self, operation, name, action, data, fault.kind if is_first else "")
        return self.world.faults[fault.kind].act(call, fault.value)

    def _usual(self, operation: str, name: str, action: Callable[[], Any]) -> Any:
        """Make a request that no fault of its own hits."""
        if self._failing:
            self._failing -= 1
            if self.run:
                self.run.faults.add("throttled")
            raise StorageError(f"simulated: {operation} {name} was throttled")
        found = action()
        if self._flipping is None or not isinstance(found, bytes):
            return found
        place, self._flipping = self._flipping, None
        return flipped(found, place)

    def _take_turn(self, due: Sequence[Event]) -> Event | None:
        """Let others come first as the history says; return the fault of this call, if there is one."""
        fault = None
        to = None
        for event in due:
            if event.kind == SWITCH:
                to = int(event.value)
            elif event.kind == PAUSE:
                self.wake_seconds = self.world.seconds + event.value
                to = self.number if to is None else to
            elif event.kind == JUMP:
                self._jump(event.value)
            else:
                fault = event
        if to is not None:
            self.world.pass_on(self, to)
        return fault

    def _jump(self, seconds: float) -> None:
        self.skew_seconds += seconds
        self.world.has_jumped_far |= abs(self.skew_seconds) > MOST_SKEW_SECONDS - 2
        if self.run:
            self.run.faults.add(JUMP)

    def fail_next(self, count: int) -> None:
        self._failing += count

    def flip_next(self, place: float) -> None:
        self._flipping = place
        if self.run:
            self.run.faults.add("flipped bit")

    # -- the thread

    def live(self) -> None:
        """Carry out the script, turn by turn; the thread's function."""
        self.world.local.actor = self
        self.gate.acquire()
        try:
            for step in self.script.steps:
                if self.world.is_stopped:
                    break
                if step.rest_seconds:
                    self.sleep(step.rest_seconds)
                self._carry_out(step)
                self.world.pass_on(self)
        except Stopped:
            pass
        except BaseException as error:
            self.world.stop(error)
        finally:
            self.is_done = True
            self.world.leave(self)

    def _carry_out(self, step: Step) -> None:
        """Carry out an operation; a batch of a stream, and an import, until it is surely committed."""
        for _ in range(_TRIES.get(step.operation, 1)):
            run = self.attempt(step)
            if run.error is None and not run.is_killed:
                return

    def attempt(self, step: Step) -> Run:
        world = self.world
        operation = world.operations[step.operation]
        if self.script.restarts:
            self.start_process()
        run = Run(
            world=world,
            actor=self,
            step=step,
            first=world.oracle.newest,
            started_seconds=world.seconds,
            gc_changes=world.oracle.gc_changes,
        )
        self.run = run
        world.runs.append(run)
        found: int | None = None
        try:
            found = operation.run(self, run, step.args)
        except TblctlError as error:
            run.error = error
        except Killed:
            pass
        run.is_killed = self.is_dead
        run.is_over = True
        self.run = None
        world.counts[f"operation {run.name}"] += 1
        world.oracle.judge(run, found)
        if run.is_killed:
            world.counts["crashes"] += 1
            self.start_process()
            self.sleep(_RESTART_SECONDS)
        return run


@dataclass
class _Call:
    """A call that a fault hits; see `faults.Call`."""

    actor: Actor
    operation: str
    name: str
    run: Callable[[], Any]
    data: bytes | None
    first_of: str  # the fault that the operation had not met before, if it is its first

    def go_on(self) -> Any:
        if self.actor.run is not None:
            self.actor.run.faults.discard(self.first_of)
        return self.actor._usual(self.operation, self.name, self.run)

    def run_later(self, seconds: float) -> None:
        run, world, by = self.run, self.actor.world, self.actor.run

        def act() -> None:
            now, self.actor.run = self.actor.run, by
            try:
                run()
            finally:
                self.actor.run = now

        world.store.later(seconds, act)

    def die(self) -> None:
        self.actor.is_dead = True
        raise Killed

    def wait(self, seconds: float) -> None:
        self.actor.sleep(seconds)

    def fail_next(self, count: int) -> None:
        self.actor.fail_next(count)

    def flip_next(self, place: float) -> None:
        self.actor.flip_next(place)

    def tear(self, share: float) -> None:
        if self.data is not None:
            folder = self.name.rpartition("/")[0]
            part = self.data[: int(share * len(self.data))]
            self.actor.world.store.write(f"{folder}/.tmp-{self.actor.env.new_id()}", part, None)


class World:
    """The clock, the storage, the actors and the oracle of one history. Another format's world overrides some parts."""

    actor_class: type[Actor] = Actor
    oracle_class: type[Any] = Oracle
    operations: Mapping[str, Any] = OPERATIONS
    faults: Mapping[str, Fault] = FAULTS
    decisive: frozenset[str] = DECISIVE

    def __init__(self, history: History) -> None:
        self.history = history
        self.local = threading.local()
        self.seconds = START_SECONDS
        self.oracle = self.oracle_class(self)
        self.store = Store(
            now=lambda: self.seconds, step_seconds=0.01 if history.disk else 1.0, watcher=self.oracle
        )
        self.lake = Lake(lambda: self.seconds, self.store.step_seconds)
        self.uids = {name: name for name in self.oracle.versions[1].names}
        self.counts: Counter[str] = Counter()
        self.runs: list[Run] = []
        self.found: BaseException | None = None
        self.is_stopped = False
        self.has_jumped_far = False  # an actor's clock was too far off, perhaps after it was compared
        self.trace = hashlib.sha256()
        self.lines: list[str] | None = None
        self.calls = 0
        self._over = threading.Semaphore(0)
        self.janitor = self.actor_class(self, -1, Script(role="janitor", skew_seconds=0.0, steps=()))
        self.actors = [
            self.actor_class(self, number, script) for number, script in enumerate(history.scripts)
        ]

    def run(self) -> None:
        """Run the whole history.

        Raises:
            Broken: a promise was broken.
            Exception: the product raised what is no error of its own.
        """
        with inline_pools(), imports_of(self), recording_of(self):
            self.create_table()
            threads = [threading.Thread(target=actor.live, daemon=True) for actor in self.actors]
            for thread in threads:
                thread.start()
            if self.actors:
                self.actors[0].gate.release()
                self._over.acquire()
            if self.found is not None:
                raise self.found
            for thread in threads:
                thread.join()
            self.seconds = max(self.seconds, self.store.last_late_seconds) + 1.0
            self.store.settle()
            self.oracle.judge_end()

    @property
    def acting(self) -> Actor:
        """The actor whose thread this is."""
        found: Actor = getattr(self.local, "actor", self.janitor)
        return found

    def create_table(self) -> None:
        options = dict(OPTIONS)
        for trait in sorted(self.history.traits):
            options |= TRAITS[trait]
        file_conditions()
        self.janitor.table._native.create(_schema(), self.history.cluster_by, options, _sample)

    def note(self, actor: Actor, operation: str, name: str) -> None:
        """Count a request, and let time pass."""
        self.calls += 1
        self.seconds += CALL_SECONDS
        line = f"{self.seconds:.6f} {actor.number} {operation} {name}"
        self.trace.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)
        if self.calls > _MOST_CALLS:
            raise Broken(f"the history does not end: {self.calls} requests")
        self.store.settle()

    def pass_on(self, actor: Actor, to: int | None = None) -> None:
        """Give the turn to the actor `to` if it is awake, else to the next one that is. Return when it comes back."""
        if actor is self.janitor:
            self.seconds = max(self.seconds, actor.wake_seconds)
            return
        following = self._next(actor, to)
        if following is not None and following is not actor:
            following.gate.release()
            if not self._waited(actor):
                self.stop(Broken("the history hangs: an actor waits for another one outside of the storage"))
                self._over.release()
        if self.is_stopped:
            raise Stopped

    def _waited(self, actor: Actor) -> bool:
        """Wait for an actor's turn; return whether it came. While the whole process is stopped no time counts."""
        idle, seen = 0, -1
        while not actor.gate.acquire(timeout=1.0):
            idle = idle + 1 if self.calls == seen else 0
            seen = self.calls
            if idle >= _HANG_SECONDS:
                return False
        return True

    def leave(self, actor: Actor) -> None:
        """Give the turn on for good."""
        following = self._next(actor, None)
        (following.gate if following else self._over).release()

    def stop(self, error: BaseException) -> None:
        """End the history: something was found."""
        self.found = self.found or error
        self.is_stopped = True

    def _next(self, actor: Actor, to: int | None) -> Actor | None:
        """Return whose turn it is. If nobody is awake, time passes until somebody is."""
        present = [other for other in self.actors if not other.is_done]
        if not present:
            return None
        if self.is_stopped:
            return present[0]
        wake = min(other.wake_seconds for other in present)
        self.seconds = max(self.seconds, wake)
        awake = [other for other in present if other.wake_seconds <= self.seconds]
        chosen = [other for other in awake if other.number == to]
        return (chosen or sorted(awake, key=lambda other: other.number <= actor.number))[0]


def file_conditions() -> None:
    """Write the conditions that trees are made from. They are no object of the table: no fault meets them."""
    folder, _, name = CONDITIONS.rpartition("/")
    Storage(folder).write(name, b"k < 4; k = 6; x IS NULL; x BETWEEN 0 AND 1")


def _sample() -> InputRows:
    """Return rows that a curve or a tree is made from: few enough that others lie beyond these, or share ranges."""
    rows = pa.table({"k": [1, 4, 8], "x": [0.0, 1.5, None]})
    return InputRows(schema=rows.schema, read=lambda: iter([rows]), name="a sample")


def _schema() -> pa.Schema:
    from tblctl.tableformat.model.schema.schema import parse_schema

    return parse_schema(SCHEMA)
