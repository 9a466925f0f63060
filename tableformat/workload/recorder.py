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


@dataclass(kw_only=True)
class Tally:
    """What a scan used, block by block. Threads share it. `bytes_a_row` are those of the first block that was read."""

    started: float
    blocks_read: int = 0
    bytes_a_row: float | None = None
    rows_read: int = 0
    rows_matched: int = 0
    blocks: list[BlockUse] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, use: BlockUse) -> None:
        """Count a block."""
        with self._lock:
            self.blocks_read += 1
            self.rows_read += use.rows_read
            self.rows_matched += use.rows_matched
            if len(self.blocks) < MOST_BLOCKS:
                self.blocks.append(use)
