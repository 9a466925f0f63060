"""A table of several columns as arrays, and what its queries and rewrites cost.

Costs are in seconds, of blocks of 32 MB: reading takes 9 ms a MB of the columns asked for, matching rows 15 ms a
block's worth, rewriting 50 ms a MB. To sort a batch while it is written takes 0.3 of a rewrite.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.workload.traces import Question
from tblctl.selector.workload.asked import Asked, Floats, Ints, Key, Mask
from tblctl.selector.workload.replay import Blocks
from tblctl.tableformat.keys.curves import hilbert_numbers, interleaved

BLOCK_MB = 32
READ_SECONDS = 0.009 * BLOCK_MB
MATCH_SECONDS = 0.015
REWRITE_MS_PER_MB = 50.0
SORT_SHARE = 0.3

_CURVE_BITS = 16


class TrialTable:
    """Blocks of equally many rows, by number. Those of a rewrite take the places of its inputs.

    Attributes:
        low, high: bounds, of shape (columns, blocks).
        rewritten: blocks that were rewritten, in all.
        rewrite_seconds: of one block.
    """

    def __init__(self, columns: int, block_rows: int, rewrite_ms_per_mb: float = REWRITE_MS_PER_MB) -> None:
        self.low = self.high = np.empty((columns, 0))
        self.block_rows = block_rows
        self.rewritten = 0
        self.rewrite_seconds = rewrite_ms_per_mb / 1000 * BLOCK_MB
        self._rows = np.empty((columns, 0, block_rows))

    def __len__(self) -> int:
        return self.low.shape[1]

    def append(self, rows: Floats, key: Key | None = None) -> None:
        """Add rows, of shape (columns, rows): as they come, or sorted by a key."""
        if not rows.size:
            return
        blocks = self._cut(rows, key)
        self._rows = np.concatenate((self._rows, blocks), axis=1)
        self.low, self.high = self._rows.min(axis=2), self._rows.max(axis=2)

    def bounds_if(self, rows: Floats, key: Key | None) -> tuple[Floats, Floats]:
        """Return the bounds of the blocks that `append` would add."""
        blocks = self._cut(rows, key)
        return blocks.min(axis=2), blocks.max(axis=2)

    def rewrite(self, chosen: Ints, key: Key) -> None:
        """Sort blocks together by a key."""
        columns = len(self.low)
        made = self._cut(self._rows[:, chosen].reshape(columns, -1), key)
        self._rows[:, chosen] = made
        self.low[:, chosen], self.high[:, chosen] = made.min(axis=2), made.max(axis=2)
        self.rewritten += len(chosen)

    def _cut(self, rows: Floats, key: Key | None) -> Floats:
        ordered = rows if key is None else rows[:, order_by(rows, key)]
        found: Floats = ordered.reshape(len(rows), -1, self.block_rows)
        return found

    def blocks(self) -> Blocks:
        """Return the blocks as policies see them."""
        return blocks_of(self.low, self.high, self.block_rows, self.rewrite_seconds)

    def met(self, question: Question) -> Mask:
        """Return the blocks that a query reads."""
        found = np.ones(len(self), np.bool_)
        for column, (low, high) in question.ranges.items():
            found &= (self.high[column] >= low) & (self.low[column] <= high)
        return found

    def matching(self, question: Question) -> float:
        """Return how many blocks' worth of rows a query asks for."""
        return float(self.utilisation(question, np.flatnonzero(self.met(question))).sum())

    def utilisation(self, question: Question, read: Ints) -> Floats:
        """Return which share of the rows of some blocks a query asks for."""
        found = np.ones((len(read), self.block_rows), np.bool_)
        for column, (low, high) in question.ranges.items():
            rows = self._rows[column, read]
            found &= (rows >= low) & (rows <= high)
        shares: Floats = found.mean(axis=1)
        return shares


def blocks_of(low: Floats, high: Floats, block_rows: int, rewrite_seconds: float) -> Blocks:
    """Return blocks of equal size as policies see them."""
    count = low.shape[1]
    return Blocks(
        low=low,
        high=high,
        rows=np.full(count, float(block_rows)),
        read_seconds=np.full(count, READ_SECONDS),
        rewrite_seconds=np.full(count, rewrite_seconds),
    )


def order_by(rows: Floats, key: Key) -> Ints:
    """Return the order of rows by one column, or along a Hilbert curve of places of several."""
    if len(key) == 1:
        return np.argsort(rows[key[0]], kind="stable")
    numbers = np.zeros(rows.shape[1], np.uint64)
    for axis, column in enumerate(key):
        ordered = np.sort(rows[column])
        places = np.searchsorted(ordered, rows[column]) * (2**_CURVE_BITS) // len(ordered)
        numbers |= interleaved(axis, len(key), places)
    return np.argsort(hilbert_numbers(numbers, axes=len(key), bits=_CURVE_BITS), kind="stable")


def asked_of(questions: Sequence[Question], weights: Floats, columns: int) -> Asked:
    """Return queries as policies see them."""
    low, high = np.full((len(questions), columns), -np.inf), np.full((len(questions), columns), np.inf)
    for number, question in enumerate(questions):
        for column, (begin, end) in question.ranges.items():
            low[number, column], high[number, column] = begin, end
    cost = np.array([question.share for question in questions]) * weights
    return Asked.of(low, high, cost)
