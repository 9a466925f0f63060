"""What a unit of work takes: defaults that were measured, and how the last runs of a table correct them.

The defaults are of merges in one process on 2 processors, of lineitem at scale 1 (`benchmarks/results`). 6,001,215 rows
of 1.01 GB decoded and 138 MB stored take 2.77 s (`merge.txt`). Its profile gives 38 % of that to reading, ordering and
verifying, and 62 % to statistics, encoding and storing. With 91 % of 132 MB copied, a merge takes 1.12 s instead of
2.92 (`copy.txt`). Ten files of 0.3 MB in all take 0.25 s more than a look at the table does; a fifth of that is put
down to the group (`small.txt`). A request to S3 with 20 ms a reply adds 3.6 ms to a merge, since requests overlap
(`requests.txt`).

Another machine, engine or kind of rows may be several times faster or slower. So a run of the table itself counts more:
one factor for the work that grows with bytes, and one for that which does not, each the median over the runs in which
that work is the larger part. Runs of one engine say nothing of another: a cluster's seconds would be predicted for one
machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from tblctl.tableformat.errors import InvalidOptionError

BLOCK_REQUESTS = 2.5
"""Requests for a block that is read, besides those for its row groups (`requests.txt`: 61 blocks against 7)."""

ROW_GROUP_REQUESTS = 1.25
"""Requests for a row group that is read (`requests.txt`: 228 for 183 row groups)."""

OUTPUT_REQUESTS = 2.0
"""Requests for a block that is written (`requests.txt`: 13 for 7 blocks)."""

REMOTE_REQUEST_SECONDS = 0.0036
"""What a request to an object store adds to a merge (`requests.txt`, 20 ms a reply)."""

_LEAST_FACTOR = 0.01
"""No run says that this machine is more than a hundred times faster: its clock was too coarse."""


_LEAST_COPIED, _MOST_COPIED = 0.01, 10.0
"""A run in which less than a hundredth was to be copied says nothing of copies; none says more than tenfold."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a unit of work takes, in seconds of the whole run (not of one processor), and what becomes of bytes.

    Attributes:
        seconds_per_decoded_byte: for a byte of decoded rows in memory: to read, order and verify it.
        seconds_per_written_byte: for a stored byte that is encoded and written.
        seconds_per_copied_byte: for a stored byte that is copied undecoded.
        seconds_per_group: for a group, whatever its size.
        seconds_per_request: for a request to the storage: 0 on a local disk.
        copied_factor: stored bytes that are copied undecoded, as a multiple of what bounds of blocks suggest.
        written_factor: stored bytes written for each one read.
        runs: how many runs of the table these figures rest on; 0 for the defaults.

    Raises:
        InvalidOptionError: at construction: a figure is negative or not finite.
    """

    seconds_per_decoded_byte: float = 1.04e-9
    seconds_per_written_byte: float = 1.24e-8
    seconds_per_copied_byte: float = 7.0e-9
    seconds_per_group: float = 0.05
    seconds_per_request: float = 0.0
    copied_factor: float = 1.0
    written_factor: float = 1.0
    runs: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidOptionError(f"{item.name} is {value}, expected a number from 0 on")

    def byte_seconds(self, *, memory_bytes: float, encoded_bytes: float, copied_bytes: float) -> float:
        """Return the seconds that grow with bytes."""
        return (
            memory_bytes * self.seconds_per_decoded_byte
            + encoded_bytes * self.seconds_per_written_byte
            + copied_bytes * self.seconds_per_copied_byte
        )

    def fixed_seconds(self, *, groups: float, requests: float) -> float:
        """Return the seconds that do not: for groups and requests."""
        return groups * self.seconds_per_group + requests * self.seconds_per_request


DEFAULT_RATES = Rates()
"""The rates of a table that nobody has reclustered yet, on a local disk."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one commit of a recluster recorded of its work.

    Attributes:
        groups, requests: how many; requests as predicted, since nobody counts them.
        bytes_read, bytes_copied, bytes_written: of whole files; copied ones are among both others.
        memory_bytes: of the rows that were decoded.
        seconds: from the round's start, or the commit before, to the commit.
        suggested_bytes: the bytes to copy that the bounds of the blocks suggested beforehand; None if unknown.
        engine: what merged: local or spark.
    """

    groups: int
    requests: int
    bytes_read: int
    bytes_copied: int
    bytes_written: int
    memory_bytes: int
    seconds: float
    suggested_bytes: int | None
    engine: str = "local"


def of_engine(runs: Sequence[Run], engine: str | None) -> list[Run]:
    """Return the runs of an engine; of the one that ran first in the list for None, since it is likely to run again."""
    wanted = engine or (runs[0].engine if runs else None)
    return [run for run in runs if run.engine == wanted]


def learned(runs: Sequence[Run], known: Rates = DEFAULT_RATES) -> Rates:
    """Return `known` as the last runs of a table correct it: each factor is a median, which one odd run cannot move."""
    if not runs:
        return known
    by_bytes, fixed = [], []
    for run in runs:
        growing = known.byte_seconds(
            memory_bytes=run.memory_bytes,
            encoded_bytes=run.bytes_written - run.bytes_copied,
            copied_bytes=run.bytes_copied,
        )
        constant = known.fixed_seconds(groups=run.groups, requests=run.requests)
        if growing >= constant > 0 or growing > constant:
            by_bytes.append(max((run.seconds - constant) / growing, _LEAST_FACTOR))
        elif constant > 0:
            fixed.append(max((run.seconds - growing) / constant, _LEAST_FACTOR))
    copied = [
        min(run.bytes_copied / run.suggested_bytes, _MOST_COPIED)
        for run in runs
        if run.suggested_bytes and run.suggested_bytes >= _LEAST_COPIED * run.bytes_read
    ]
    written = [run.bytes_written / run.bytes_read for run in runs if run.bytes_read]
    faster, lighter = _median(by_bytes), _median(fixed)
    return replace(
        known,
        seconds_per_decoded_byte=known.seconds_per_decoded_byte * faster,
        seconds_per_written_byte=known.seconds_per_written_byte * faster,
        seconds_per_copied_byte=known.seconds_per_copied_byte * faster,
        seconds_per_group=known.seconds_per_group * lighter,
        seconds_per_request=known.seconds_per_request * lighter,
        copied_factor=_median(copied),
        written_factor=_median(written),
        runs=len(runs),
    )


def _median(factors: Sequence[float]) -> float:
    return statistics.median(factors) if factors else 1.0
