"""Faults over Iceberg: requests to the catalog fail in ways of their own, those to the storage as elsewhere.

Flipped bits are left out: other writers' files have no checksums. So are torn writes: an object store has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)

from simulation.faults import FAULTS, RARE, Call, Fault
from simulation.iceberg.actors import is_ours
from simulation.iceberg.catalog import COMMIT, LOAD

ASLEEP = "asleep"


def _refused(call: Call, _value: float) -> Any:
    raise CommitFailedException(f"simulated: {call.operation} was refused")


def _lost_reply(call: Call, _value: float) -> Any:
    call.run()
    raise CommitStateUnknownException("simulated: no reply to a commit")


def _cut_off(call: Call, value: float) -> Any:
    """The connection is gone after the commit took effect, and for the next calls."""
    call.fail_next(int(value))
    return _lost_reply(call, 0)


def _commit_cut_off(call: Call, value: float) -> Any:
    return _cut_off(call, value) if call.operation == COMMIT else call.go_on()


def _sent_again(call: Call, _value: float) -> Any:
    """A proxy sends the commit again, and the client gets the second answer."""
    call.run()
    return call.run()


def _timeout(call: Call, value: float) -> Any:
    """No reply within a minute. With a value above 0 the commit may take effect that much later."""
    if value:
        call.run_later(min(value, 90.0))
    call.wait(60.0)
    raise TimeoutError("simulated: no reply to a commit in a minute")


def _server_error(call: Call, value: float) -> Any:
    """The catalog fails, before its effect or, with a value above a half, after it."""
    if value > 0.5:
        call.run()
    raise ServerError("simulated: error 500")


def _unavailable(_call: Call, _value: float) -> Any:
    raise ServiceUnavailableError("simulated: error 503")


def _down_after(call: Call, value: float) -> Any:
    """A commit and its reply arrive; the next requests do not."""
    found = call.go_on()
    if call.operation == COMMIT:
        call.fail_next(int(value))
    return found


def _asleep(call: Call, value: float) -> Any:
    """A process of tblctl sleeps for days before it writes a file: at a commit that would be too late to notice."""
    if call.operation in ("write", "create") and is_ours(call.name):
        call.wait(value)
    return call.go_on()


def _is_read(call: Call) -> bool:
    return call.operation == LOAD


_AT_COMMITS: dict[str, Callable[[Call, float], Any]] = {
    "refused": _refused,
    "lost reply": _lost_reply,
    "cut off": _cut_off,
    "sent again": _sent_again,
    "timeout": _timeout,
    "server error": _server_error,
}


def _of(name: str, native: Callable[[Call, float], Any]) -> Callable[[Call, float], Any]:
    def act(call: Call, value: float) -> Any:
        if call.operation == COMMIT and name in _AT_COMMITS:
            return _AT_COMMITS[name](call, value)
        return _unavailable(call, value) if _is_read(call) and name in _AT_COMMITS else native(call, value)

    return act


_LEFT_OUT = ("flipped bit", "damaged reply", "torn write")
_NATIVE = {name: FAULTS[name] for name in FAULTS if name not in _LEFT_OUT}
ICEBERG_FAULTS: dict[str, Fault] = {
    name: dataclasses.replace(fault, act=_of(name, fault.act)) for name, fault in _NATIVE.items()
} | {
    "server error": Fault(act=_of("server error", FAULTS["refused"].act), draw=lambda rng: rng.random()),
    "commit cut off": Fault(act=_commit_cut_off, weight=RARE, draw=lambda rng: rng.choice([1, 2])),
    "down after": Fault(act=_down_after, draw=lambda rng: rng.choice([1, 3, 12])),
    ASLEEP: Fault(act=_asleep, draw=lambda rng: rng.choice([90_000.0, 200_000.0])),
}
