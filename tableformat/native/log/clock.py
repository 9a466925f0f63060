"""The storage's clock: it decides what is old, and shows whether the writer's clock is right.

gc compares the times that the storage gave to objects with a time that the storage gave too. A writer's clock only
says when a snapshot was made, for people; one that is far off is refused before it gets into the table.
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

_PROBES = 5  # a gc that deletes everything unnamed may take a probe away before its time was read


@dataclass(frozen=True, kw_only=True)
class Written:
    """One small write between two looks at the writer's clock, in seconds since 1970-01-01 UTC."""

    name: str
    before_seconds: float
    after_seconds: float


def microseconds(seconds: float) -> int:
    """Return whole microseconds, rounded down: in these, times of objects and horizons are compared."""
    return math.floor(seconds * 1e6)


def write_timed(storage: Storage, env: Environment, name: str, data: bytes | pa.Buffer) -> Written:
    """Write an object, looking at the writer's clock before and after."""
    before = env.now()
    storage.write(name, data)
    return Written(name=name, before_seconds=before, after_seconds=env.now())


def write_probe(storage: Storage, env: Environment) -> tuple[Written, float]:
    """Write a small object, and return that with the storage's time of it. Three requests.

    Raises:
        StorageError: the object is never to be seen.
    """
    for _ in range(_PROBES):
        name = probe_path(env.new_id())
        written = write_timed(storage, env, name, b"clock")
        (modified,) = storage.modified([name])
        try:
            storage.delete([name])
        except TblctlError as error:  # who may not delete may still write; gc sweeps it
            LOG.debug("%s stays: %s", name, error)
        if modified is not None:
            return written, modified
    msg = f"{storage.url}: objects that were written there to see its time were gone at once, {_PROBES} times"
    raise StorageError(msg)


def check_clock(storage: Storage, written: Written, modified_seconds: float) -> None:
    """Refuse a writer whose clock is far from the storage's.

    Raises:
        ClockError: it is off by more than `MOST_SKEW_SECONDS`; nothing was committed.
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
    """Return whether a snapshot says that it was made in the future, or its horizon lies there: a clock was ahead."""
    return max(head.timestamp_ms / 1e3, head.horizon_us / 1e6) - now_seconds > MOST_SKEW_SECONDS


def _shown(seconds: float) -> str:
    return iso_timestamp(round(seconds * 1000))
