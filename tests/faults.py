"""Faults at storage calls: fail, kill, pause, and force the steps of several writers into a given order.

Everything goes through `tblctl.tableformat.storage.Storage._call`, the one method that every public operation of
every Storage passes. `inject` replaces it for all Storages of this process while it is open, so the code under test
needs no hook. A call has an operation ("read" for read, try_read and read_many; "write", "create", "delete", "list",
"look for" (modified), "look into" (is_empty), "delete all of", "open" (open_input, arrow_filesystem)) and names. A
delete of several names counts as one call per name, so that it can be cut in the middle.

Fail or kill at one call, chosen by operation, name (a regular expression, searched for) and nth match:

    faults = Faults()
    faults.fail(operation="create", name="snapshots/", nth=2, at="after")    # it happened, but the caller sees an error
    faults.kill(nth=5)                                                       # at the 5th call of any kind
    with inject(faults), pytest.raises(Killed):
        table.append(data)
    assert faults.fired

`Killed` is a BaseException, and once it was raised every further call of that Storage user raises it too: a process
that is dead cleans nothing up. Leave `inject`, then open the table afresh and look. To kill at every call in turn:

    for point in kill_points(lambda: fresh_table().append(data)):
        table = fresh_table()
        point.kill(lambda: table.append(data))          # asserts that it was hit
        assert rows_of(open_again(table)) in (before, after)

Pause one thread at a call while others go on:

    pause = faults.pause(operation="create", name="snapshots/")
    with inject(faults):
        slow = start_thread(lambda: a.append(x))
        pause.wait_until_reached()
        b.append(y)                                     # other calls that match go through: a pause holds once
        pause.resume()

Run two writers step by step in every order (`steps` says which calls count; all others run freely):

    for schedule in interleavings(a=3, b=3):            # "aaabbb", "aababb", ...: 20 of them
        outcomes = run_interleaved(schedule, {"a": lambda: t1.append(x), "b": lambda: t2.append(y)},
                                   steps=lambda call: call.name.startswith("metadata/snapshots/"))
        # outcomes["a"].error is None or the error raised; outcomes["a"].result
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tblctl.tableformat.errors import StorageError
from tblctl.tableformat.storage import Storage

READS = frozenset({"read", "open", "list", "look for", "look into"})  # operations that change nothing
WAIT_SECONDS = 60.0  # a test that waits longer hangs: fail it


class Killed(BaseException):
    """The process "died" at a storage call."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One storage call: `name` is the first of `names`, or ''; `number` counts from 1 over all calls."""

    number: int
    operation: str
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""


@dataclass(kw_only=True)
class Pause:
    """A thread that is held at a call."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def wait_until_reached(self, timeout_seconds: float = WAIT_SECONDS) -> None:
        assert self.reached.wait(timeout_seconds), "no thread reached the call to pause at"

    def resume(self) -> None:
        self.released.set()

    def hold(self) -> None:
        self.reached.set()
        assert self.released.wait(WAIT_SECONDS), "nobody resumed the paused thread"


@dataclass(kw_only=True)
class _Rule:
    operation: str | None
    name: re.Pattern[str]
    nth: int
    times: int
    at: str
    act: Callable[[], None]
    seen: int = 0

    def is_due(self, call: Call) -> bool:
        """Count the call if it matches, and return whether the rule applies to it."""
        if self.operation not in (None, call.operation) or not any(
            map(self.name.search, call.names or ("",))
        ):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class Faults:
    """Rules, and a record of every call made under `inject`: `calls`, and `fired`, those that a rule hit."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fired: list[Call] = []
        self.is_dead = False
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def fail(
        self,
        error: Exception | None = None,
        *,
        operation: str | None = None,
        name: str = "",
        nth: int = 1,
        times: int = 1,
        at: str = "before",
    ) -> None:
        """Raise `error` (a StorageError) instead of ("before") or after having run the nth to nth+times-1th match."""
        raised = error or StorageError("injected fault: the storage does not answer")

        def act() -> None:
            raise raised

        self._add(operation, name, nth, times, at, act)

    def kill(self, *, operation: str | None = None, name: str = "", nth: int = 1, at: str = "before") -> None:
        """Raise `Killed` before or after the nth match, and at every call from then on."""

        def act() -> None:
            self.is_dead = True
            raise Killed

        self._add(operation, name, nth, 1, at, act)

    def pause(
        self, *, operation: str | None = None, name: str = "", nth: int = 1, at: str = "before"
    ) -> Pause:
        """Hold the thread that makes the nth match until `resume`."""
        pause = Pause()
        self._add(operation, name, nth, 1, at, pause.hold)
        return pause

    def do(
        self,
        act: Callable[[], None],
        *,
        operation: str | None = None,
        name: str = "",
        nth: int = 1,
        at: str = "before",
    ) -> None:
        """Run `act` in the caller's thread at the nth match; its own storage calls go through, and count."""
        self._add(operation, name, nth, 1, at, act)

    def _add(
        self, operation: str | None, name: str, nth: int, times: int, at: str, act: Callable[[], None]
    ) -> None:
        assert at in {"before", "after"}, at
        rule = _Rule(operation=operation, name=re.compile(name), nth=nth, times=times, at=at, act=act)
        self._rules.append(rule)

    def around(self, operation: str, names: tuple[str, ...], action: Callable[[], Any]) -> Any:
        """Run one storage call with the rules that are due."""
        with self._lock:
            if self.is_dead:
                raise Killed
            call = Call(number=len(self.calls) + 1, operation=operation, names=names)
            self.calls.append(call)
            due = [rule for rule in self._rules if rule.is_due(call)]
            if due:
                self.fired.append(call)
        for rule in due:
            if rule.at == "before":
                rule.act()
        result = action()
        for rule in due:
            if rule.at == "after":
                rule.act()
        return result


@contextlib.contextmanager
def inject(faults: Any) -> Iterator[Any]:
    """Send every storage call of this process through `faults.around(operation, names, action)` while open."""
    original = Storage._call

    def call(storage: Storage, operation: str, names: tuple[str, ...], action: Callable[[], Any]) -> Any:
        if operation == "delete" and len(names) > 1:
            for name in names:
                one = (name,)
                faults.around(
                    operation,
                    one,
                    lambda one=one: original(storage, operation, one, lambda: storage._backend.delete(one)),
                )
            return None
        return faults.around(operation, names, lambda: original(storage, operation, names, action))

    assert original.__name__ == "_call", "inject does not nest"
    Storage._call = call  # type: ignore[assignment,method-assign]
    try:
        yield faults
    finally:
        Storage._call = original  # type: ignore[method-assign]


def storage_calls(action: Callable[[], Any]) -> list[Call]:
    """Run `action` and return the storage calls that it made."""
    with inject(Faults()) as faults:
        action()
    return faults.calls


@dataclass(frozen=True, kw_only=True)
class KillPoint:
    """One moment to die: before or after the call with this number."""

    number: int
    at: str
    call: Call  # the call that had this number in the trial run, for messages

    def kill(self, action: Callable[[], Any]) -> None:
        """Run `action` until it dies there. It may swallow nothing: `Killed` must come out."""
        faults = Faults()
        faults.kill(nth=self.number, at=self.at)
        with inject(faults):
            try:
                action()
            except Killed:
                return
        raise AssertionError(f"not killed {self}: {len(faults.calls)} calls were made")

    def __str__(self) -> str:
        return f"{self.at} call {self.number}, {self.call.operation} {self.call.name}"


def kill_points(action: Callable[[], Any]) -> list[KillPoint]:
    """Run `action` once in full, and return a point before each storage call that it made and one after the last.

    To die after a call is to die before the next. The next run must make as many calls: give it the same state.
    """
    calls = storage_calls(action)
    return [
        *(KillPoint(number=call.number, at="before", call=call) for call in calls),
        KillPoint(number=calls[-1].number, at="after", call=calls[-1]),
    ]


def fault_points(action: Callable[[], Any]) -> list[KillPoint]:
    """Run `action` once in full, and return a point before each storage call that it made, and after each change.

    A read that fails is the same before and after. The next run must make as many calls: give it the same state.
    """
    return [
        KillPoint(number=call.number, at=at, call=call)
        for call in storage_calls(action)
        for at in (("before",) if call.operation in READS else ("before", "after"))
    ]


@dataclass(kw_only=True)
class Outcome:
    result: Any = None
    error: BaseException | None = None


def interleavings(**steps: int) -> list[str]:
    """Return every order of the actors' steps: interleavings(a=1, b=2) is ["abb", "bab", "bba"]. One letter each."""
    letters = "".join(actor * count for actor, count in steps.items())
    if len(steps) == 2:  # the usual case, without going through all permutations
        (a, count), (b, _) = steps.items()
        chosen = itertools.combinations(range(len(letters)), count)
        return ["".join(a if i in places else b for i in range(len(letters))) for places in map(set, chosen)]
    return sorted(set(map("".join, itertools.permutations(letters))))


class _Turns:
    """Lets the actors' steps run one at a time, in the order of the schedule; when it is used up, freely."""

    def __init__(self, schedule: str, steps: Callable[[Call], bool]) -> None:
        self._left = list(schedule)
        self._steps = steps
        self._done: set[str] = set()
        self._changed = threading.Condition()
        self._running = False
        self.order: list[tuple[str, Call]] = []

    def around(self, operation: str, names: tuple[str, ...], action: Callable[[], Any]) -> Any:
        actor = threading.current_thread().name
        call = Call(number=len(self.order) + 1, operation=operation, names=names)
        if not actor.startswith("actor-") or not self._steps(call):
            return action()
        actor = actor.removeprefix("actor-")
        with self._changed:
            assert self._changed.wait_for(lambda: self._may_go(actor), WAIT_SECONDS), f"{actor} is stuck"
            scheduled = bool(self._left)
            self._running = scheduled
            self.order.append((actor, call))
        try:
            return action()
        finally:
            with self._changed:
                if scheduled:
                    self._left.pop(0)
                    self._running = False
                self._changed.notify_all()

    def _may_go(self, actor: str) -> bool:
        while self._left and not self._running and self._left[0] in self._done:
            self._left.pop(0)
        return not self._left or (not self._running and self._left[0] == actor)

    def finish(self, actor: str) -> None:
        with self._changed:
            self._done.add(actor)
            self._changed.notify_all()


def run_interleaved(
    schedule: str,
    actors: Mapping[str, Callable[[], Any]],
    *,
    steps: Callable[[Call], bool] = lambda _call: True,
) -> dict[str, Outcome]:
    """Run the actors (named by one letter) in threads, their steps in the order of `schedule`.

    A step is a storage call from the actor's own thread (not its thread pools) that `steps` accepts. Turns of an
    actor that has ended are skipped; steps beyond the schedule run freely.
    """
    turns = _Turns(schedule, steps)
    outcomes = {actor: Outcome() for actor in actors}

    def run(actor: str) -> None:
        try:
            outcomes[actor].result = actors[actor]()
        except BaseException as error:
            outcomes[actor].error = error
        finally:
            turns.finish(actor)

    with inject(turns):
        threads = [
            threading.Thread(target=run, args=(actor,), name=f"actor-{actor}", daemon=True)
            for actor in actors
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * WAIT_SECONDS)
            assert not thread.is_alive(), f"{thread.name} did not end; steps so far: {turns.order}"
    return outcomes
