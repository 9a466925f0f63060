"""The storage's clock: it decides what is old, and shows whether the writer's clock is right.

gc compares the storage's times of objects with another time of the storage. A writer's clock only gives a snapshot's
time, for people. A time that is far off is refused before it gets into the table.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import pyarrow as pa

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ClockError, StorageError, TblctlError
from tblctl.tableformat.model.snapshot import Snapshot, iso_timestamp
from tblctl.tableformat.native.log.names import probe_path
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

MOST_SKEW_SECONDS = 300.0
"""A writer's clock may differ from the storage's by this much."""

_PROBES = 5  # a gc that deletes everything unnamed may delete a probe before its time is read


@dataclass(frozen=True, kw_only=True)
class Written:
    """The writer's clock before and after one small write, in seconds since 1970-01-01 UTC."""

    name: str
    before_seconds: float
    after_seconds: float


def microseconds(seconds: float) -> int:
    """Return whole microseconds, rounded down: the unit in which times of objects and horizons are compared."""
    return math.floor(seconds * 1e6)


def write_timed(storage: Storage, env: Environment, name: str, data: bytes | pa.Buffer) -> Written:
    """Write an object, and read the writer's clock before and after."""
    before = env.now()
    storage.write(name, data)
    return Written(name=name, before_seconds=before, after_seconds=env.now())


def write_probe(storage: Storage, env: Environment) -> tuple[Written, float]:
    """Write a small object. Return the write, and the storage's time of it. Three requests.

    Raises:
        StorageError: the object never becomes visible.
    """
    for _ in range(_PROBES):
        name = probe_path(env.new_id())
        written = write_timed(storage, env, name, b"clock")
        try:
            (modified,) = storage.modified([name])
        finally:
            _sweep(storage, name)
        if modified is not None:
            return written, modified
    msg = f"{storage.url}: objects written there to read its time disappeared at once, {_PROBES} times"
    raise StorageError(msg)


def _sweep(storage: Storage, name: str) -> None:
    """Delete a probe, if that works: it may be forbidden while writing is allowed. Then gc removes it."""
    try:
        storage.delete([name])
    except TblctlError as error:
        LOG.debug("%s stays: %s", name, error)


def check_clock(storage: Storage, written: Written, modified_seconds: float) -> None:
    """Refuse a writer whose clock is far from the storage's.

    Raises:
        ClockError: the clocks differ by more than `MOST_SKEW_SECONDS`; nothing was committed.
    """
    ahead = written.before_seconds - (modified_seconds + storage.time_step_seconds)
    behind = modified_seconds - written.after_seconds
    if max(ahead, behind) <= MOST_SKEW_SECONDS:
        return
    msg = (
        f"{storage.url}: this machine's clock says {_shown(written.after_seconds)}, the storage's says "
        f"{_shown(modified_seconds)}; expected at most {MOST_SKEW_SECONDS / 60:.0f} minutes between them. Nothing was "
        "committed: set the clock that is wrong, then try again"
    )
    raise ClockError(msg, skew_seconds=ahead if ahead > behind else -behind)


def is_ahead(head: Snapshot, now_seconds: float) -> bool:
    """Return whether a snapshot's time or horizon lies in the future: a clock was ahead."""
    return max(head.timestamp_ms / 1e3, head.horizon_us / 1e6) - now_seconds > MOST_SKEW_SECONDS


def _shown(seconds: float) -> str:
    return iso_timestamp(round(seconds * 1000))
