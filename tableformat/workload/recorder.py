"""Decide whether a scan is recorded, and hand what it did to the log. Nothing here fails or delays a scan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.workload.queries import MOST_BLOCKS, BlockUse, Query
from tblctl.tableformat.workload.writer import LogWriter

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records scans of one table.

    Attributes:
        rate: the share of the scans that are recorded, above 0.
        env: clocks and randomness.
        writer: returns the log's writer.
    """

    rate: float
    env: Environment
    writer: Callable[[], LogWriter]

    def tally(self) -> Tally | None:
        """Return what counts a scan that begins now; None if it is not recorded."""
        is_left_out = self.rate < 1 and self.env.random() >= self.rate
        return None if is_left_out else Tally(started=self.env.elapsed())

    def add(self, make: Callable[[], Query]) -> None:
        """Record what `make` returns, as one of a sample."""
        try:
            query = make()
            self.writer().add(query if self.rate >= 1 else replace(query, weight=query.weight / self.rate))
        except Exception as error:  # noqa: BLE001 (a log is a hint: whatever is wrong with it, scans go on)
            LOG.warning("a query is not recorded: %s", error)

    def flush(self, seconds: float) -> None:
        """Write what waits, and wait for that, but no longer than some seconds."""
        try:
            self.writer().flush(seconds)
        except Exception as error:  # noqa: BLE001 (as above)
            LOG.warning("queries are not recorded: %s", error)


@dataclass(kw_only=True, slots=True)
class Tally:
    """What a scan used, block by block. Threads share it. `bytes_a_row` are those of the first block that was read.

    `first` has (path, rows read, rows matched) of the first blocks: appending needs no lock.
    """

    started: float
    bytes_a_row: float | None = None
    first: list[tuple[str, int, int]] = field(default_factory=list)
    _rest: list[int] = field(default_factory=lambda: [0, 0, 0])
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, path: str, rows_read: int, rows_matched: int) -> None:
        """Count a block."""
        if len(self.first) < MOST_BLOCKS:
            self.first.append((path, rows_read, rows_matched))
            return
        with self._lock:
            for place, count in enumerate((1, rows_read, rows_matched)):
                self._rest[place] += count

    def totals(self) -> tuple[int, int, int]:
        """Return the blocks, rows read and rows that matched."""
        blocks, read, matched = self._rest
        return (
            blocks + len(self.first),
            read + sum(use[1] for use in self.first),
            matched + sum(use[2] for use in self.first),
        )

    def uses(self) -> tuple[BlockUse, ...]:
        """Return what was used of the first blocks."""
        return tuple(
            BlockUse(path=path, rows_read=read, rows_matched=matched)
            for path, read, matched in self.first[:MOST_BLOCKS]
        )
