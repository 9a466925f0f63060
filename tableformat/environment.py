"""The only owner of clocks, randomness, new names and waiting. All other code gets an `Environment` as an argument.

Tests pass their own, so that time, names and races repeat exactly.
"""

from __future__ import annotations

import logging
import mmap
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

LOG = logging.getLogger("tblctl")

Beat: TypeAlias = Callable[[Callable[[], bool]], None]
"""What is done at every beat. Its argument says whether the body has ended, so that the rest may be left out."""


def _new_id() -> str:
    return uuid.uuid4().hex


_STATM = Path("/proc/self/statm")
"""Linux's figures of this process, in pages. The second is the resident memory. Reading takes 0.01 ms."""


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _chance() -> float:
    return random.random()  # noqa: S311 (jitter); a function of ours pickles by name, random's own with its state


def _no_turns(_name: str) -> AbstractContextManager[bool]:
    return nullcontext(enter_result=False)


class _Turn:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_TURNS: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
_TURNS_LOCK = threading.Lock()

_LONGEST_TURN_SECONDS = 10.0
"""So long one waits for its turn. Then it goes on without: a turn spares lost races, nothing depends on it."""


@contextmanager
def _in_turn(name: str) -> Iterator[bool]:
    """Let one thread of this process at a time into the turn of `name`; the value is whether it had to wait."""
    with _TURNS_LOCK:
        turn = _TURNS.setdefault(name, _Turn())
    waited = not turn.lock.acquire(blocking=False)
    has_turn = not waited or turn.lock.acquire(timeout=_LONGEST_TURN_SECONDS)
    try:
        yield waited
    finally:
        if has_turn:
            turn.lock.release()


def _no_beat(_seconds: float, _action: Beat) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def _beating(seconds: float, action: Beat) -> Iterator[None]:
    """Call `action` every so many seconds, in a thread that ends with the body. What it raises is only logged."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds):
            try:
                action(ended.is_set)
            except Exception as error:  # noqa: BLE001 (the next beat may do better)
                LOG.warning("a beat beside a round failed, the next one comes all the same: %r", error)

    thread = threading.Thread(target=beat, name="tblctl-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # what the caller does next, no beat undoes


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Everything that a call may use of the world outside its arguments.

    Attributes:
        now: seconds since 1970-01-01 UTC.
        elapsed: seconds on a clock that never goes back; for durations.
        cpu: processor seconds of the calling thread; for durations.
        new_id: returns a unique id of 32 lower-case hexadecimal digits.
        random: a float in [0, 1), for jitter.
        sleep: waits for a number of seconds.
        resident_bytes: memory of this process; 0 if the system does not report it, as on systems other than Linux.
        turn: a context in which no other thread of this process is in the turn of the same name; its value is whether
            it had to wait. A hint only: one that waits for too long goes on. As a rule nobody waits.
        beat: a context beside which a function is called every so many seconds, in another thread. When the context
            ends, so has the last call, whose argument says so meanwhile. A hint only: as a rule it is never called.
    """

    now: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.thread_time
    new_id: Callable[[], str] = _new_id
    random: Callable[[], float] = _chance
    sleep: Callable[[float], None] = time.sleep
    resident_bytes: Callable[[], int] = _resident_bytes
    turn: Callable[[str], AbstractContextManager[bool]] = _no_turns
    beat: Callable[[float, Beat], AbstractContextManager[None]] = _no_beat

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return int(self.now() * 1000)

    def new_run_id(self) -> str:
        """Return a run's name: 12 digits of milliseconds, then 20 random ones, so that runs sort by age."""
        return f"{self.now_ms():012x}{self.new_id()[:20]}"


SYSTEM = Environment(turn=_in_turn, beat=_beating)
