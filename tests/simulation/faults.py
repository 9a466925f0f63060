"""Faults: what may happen to one call of an actor. A fault is added with one line in `FAULTS`.

A fault is a function of a `Call`. It returns what the caller gets, or raises what the caller sees. Where a fault means
nothing, as a lost reply to a read, the call goes through.

What is modelled is what `Storage` and its backends promise: an error says that nothing was changed, except for
`create`, which has an outcome of its own for lost replies. A request that timed out may have its effect later.
Listings are never stale: S3 and MinIO list consistently. But they come in pages, and others act in between.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tblctl.tableformat.errors import CommitOutcomeUnknownError, StorageError
from tblctl.tableformat.native.log.names import sequence_of

DECISIVE = frozenset({"create", "delete"})
CHANGES = frozenset({"write", "create", "delete"})
HOURS = 3600.0

RARE = 1e-9
"""The weight of faults that are special cases of others: searches for seeded bugs ask for them."""


class Killed(BaseException):
    """The process of an actor died."""


class Call(Protocol):
    """A call of an actor, as a fault sees it."""

    operation: str
    name: str

    def run(self) -> Any:
        """Have the effect of the call, and return its result."""

    def go_on(self) -> Any:
        """Let it be as without a fault."""

    def run_later(self, seconds: float) -> None:
        """Have the effect after so much time, whatever becomes of the actor."""

    def die(self) -> None:
        """End the actor's process; raises `Killed`."""

    def wait(self, seconds: float) -> None:
        """Let time pass for the actor."""

    def fail_next(self, count: int) -> None:
        """Let the actor's next calls fail before they have an effect."""

    def flip_next(self, place: float) -> None:
        """Let one bit of the next object that the actor reads be wrong; `place` from 0 to 1."""

    def tear(self, share: float) -> None:
        """Leave a part of what is written in a temporary file, if the storage is a local disk."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault.

    Attributes:
        act: what happens to a call; its second argument is the event's value.
        weight: how often it is drawn.
        draw: returns the event's value.
    """

    act: Callable[[Call, float], Any]
    weight: float = 1.0
    draw: Callable[[random.Random], float] = lambda _rng: 0.0


def _refused(call: Call, _value: float) -> Any:
    raise StorageError(f"simulated: {call.operation} {call.name} was refused, without effect")


def _lost_reply(call: Call, _value: float) -> Any:
    if call.operation not in CHANGES:
        return _refused(call, 0)
    call.run()
    return _no_reply(call)


def _no_reply(call: Call) -> Any:
    if call.operation == "create":
        raise CommitOutcomeUnknownError(f"simulated: no reply to create {call.name}")
    raise StorageError(f"simulated: no reply to {call.operation} {call.name}")


def _sent_again(call: Call, _value: float) -> Any:
    """The reply to a create is lost; the driver sends it again, and meets its own object."""
    taken = call.run()
    return False if call.operation == "create" else taken


def _timeout(call: Call, value: float) -> Any:
    """No reply within a minute. With a value above 0 the request has its effect that much later, else never."""
    if call.operation in CHANGES and value:
        call.run_later(value)
    call.wait(60.0)
    return _no_reply(call)


def _throttled(call: Call, value: float) -> Any:
    call.fail_next(int(value))
    return _refused(call, 0)


def _crash_before(call: Call, _value: float) -> Any:
    return call.die()


def _crash_after(call: Call, _value: float) -> Any:
    call.run()
    return call.die()


def _torn(call: Call, value: float) -> Any:
    call.tear(value)
    return call.die()


def _flip(call: Call, value: float) -> Any:
    """One bit of what is read is wrong. The value chooses which."""
    found = call.run()
    return flipped(found, value) if isinstance(found, bytes) else found


def _misspell(call: Call, value: float) -> Any:
    """One bit is wrong in the footer of a segment that is read, within the name of a column of null counts."""
    found = call.run()
    if not isinstance(found, bytes) or found[-4:] != b"PAR1":
        return found
    start = len(found) - 8 - int.from_bytes(found[-8:-4], "little")
    places = [place for name in _NULL_COUNTS.finditer(found, start) for place in range(*name.span())]
    if not places:
        return found
    place = places[int(value * len(places))]
    return found[:place] + flipped(found[place : place + 1], value * len(places) % 1) + found[place + 1 :]


_NULL_COUNTS = re.compile(rb"column_\d+_null_count")


def flipped(data: bytes, place: float) -> bytes:
    """Return the bytes with one bit changed; `place` from 0 to 1 chooses which."""
    if not data:
        return data
    changed = bytearray(data)
    bit = int(place * 8 * len(changed))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _damaged_reply(call: Call, value: float) -> Any:
    """As `_sent_again`; and what is read back of the object has a wrong bit."""
    found = _sent_again(call, 0)
    call.flip_next(value)
    return found


def _cut_off(call: Call, value: float) -> Any:
    """The request has its effect; neither its reply nor those of the next ones arrive."""
    call.fail_next(int(value))
    return _lost_reply(call, 0)


def _commit_cut_off(call: Call, value: float) -> Any:
    """As `_cut_off`, at the creation of a snapshot."""
    is_commit = call.operation == "create" and sequence_of(call.name) is not None
    return _cut_off(call, value) if is_commit else call.go_on()


FAULTS: dict[str, Fault] = {
    "refused": Fault(act=_refused, weight=2),
    "lost reply": Fault(act=_lost_reply, weight=3),
    "sent again": Fault(act=_sent_again, weight=2),
    "timeout": Fault(act=_timeout, weight=2, draw=lambda rng: rng.choice([0.0, 10.0, 90.0, 5 * HOURS])),
    "damaged reply": Fault(act=_damaged_reply, draw=lambda rng: rng.random()),
    "cut off": Fault(act=_cut_off, draw=lambda rng: rng.choice([2, 6, 12])),
    "throttled": Fault(act=_throttled, draw=lambda rng: rng.choice([1, 3, 12])),
    "crash before": Fault(act=_crash_before, weight=2),
    "crash after": Fault(act=_crash_after, weight=2),
    "torn write": Fault(act=_torn, draw=lambda rng: rng.random()),
    "flipped bit": Fault(act=_flip, weight=2, draw=lambda rng: rng.random()),
    "misspelt name": Fault(act=_misspell, weight=RARE, draw=lambda rng: rng.random()),
    "commit cut off": Fault(act=_commit_cut_off, weight=RARE, draw=lambda _rng: 5.0),
}
