"""Policy `boundary`: WAIR's Algorithm 1 with the extensions of its section 3.3, on one key at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.workload.contenders import Nothing
from benchmarks.workload.table import TrialTable
from benchmarks.workload.traces import Question, Trace
from benchmarks.workload.trial import Rewrite
from tblctl.selector.workload.asked import Floats, Ints


def on_boundary(low: Floats, high: Floats, at: float) -> Ints:
    """Return the blocks whose closed range holds a key, but for those of a single key."""
    return np.flatnonzero((low <= at) & (at <= high) & (low < high))


def at_most(chosen: Ints, low: Floats, most: int | None) -> Iterator[Ints]:
    """Yield blocks in the order of their low bounds, at most so many together (`k_max`)."""
    ordered = chosen[np.argsort(low[chosen], kind="stable")]
    yield from np.split(ordered, range(most, len(ordered), most)) if most else [ordered]


@dataclass(kw_only=True)
class Boundary(Nothing):
    """Recluster what covers either end of a query's range, after each query.

    Attributes:
        most: blocks that are sorted together (`k_max`); None for all.
        start: blocks that may be rewritten for each query so far (warm start); None for no limit.
        reselect: after so many queries, the key becomes the column that most of them asked for.
        skips_lone: blocks that overlap no other one are left alone: a correction of ours.
    """

    trace: Trace
    most: int | None = 64
    start: float | None = 64.0
    reselect: int = 200
    skips_lone: bool = True
    key: int | None = None
    _asked: int = 0
    _columns: Counter[int] = field(default_factory=Counter)

    def asked(self, table: TrialTable, question: Question, number: int) -> Iterator[Rewrite]:
        if number < self.trace.watched:
            return
        self._columns.update(list(question.ranges))
        self._asked += 1
        if self.key is None or self._asked % self.reselect == 0:
            self.key = self._columns.most_common(1)[0][0]
            self._columns.clear()
        if number < self.trace.acted or self.key not in question.ranges:
            return
        for end in question.ranges[self.key]:
            chosen = on_boundary(table.low[self.key], table.high[self.key], end)
            if self.start is not None:
                left = self.start * self._asked - table.rewritten
                chosen = chosen[: max(math.floor(left), 0)]
            for part in at_most(chosen, table.low[self.key], self.most):
                if len(part) > self.skips_lone:
                    yield part, (self.key,)
