"""Policies that look at keys and not at queries; they are told the key that is best for each period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.workload.contenders import ByKey
from benchmarks.workload.table import TrialTable
from benchmarks.workload.traces import Trace
from benchmarks.workload.trial import Rewrite
from tblctl.selector.options import parts
from tblctl.selector.policy import Policy
from tblctl.selector.registry import policy_named
from tblctl.selector.table_view import TableView
from tblctl.selector.workload.asked import Ints
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.options import TableOptions

_ROUNDS = 2
"""Plans after each batch; a third one finds next to nothing."""

_SORT = Sort(id=1, terms=(Term(column_id=1),))


@dataclass
class FullSort(ByKey):
    """The whole table is sorted where a period begins, and each batch as it arrives."""

    def ends(self, table: TrialTable, number: int) -> Iterator[Rewrite]:
        if number in self.trace.periods or (not self.trace.periods and number == self.trace.acted):
            yield np.arange(len(table)), self.trace.key(number)


@dataclass
class OfRegistry(ByKey):
    """A policy of the product by the best key of the period (its first column), after each batch.

    Attributes:
        policy: its name. options: as a command takes them.
    """

    policy: str = "runs"
    options: Mapping[str, Any] = field(default_factory=dict)
    _level: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _run: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def ends(self, table: TrialTable, number: int) -> Iterator[Rewrite]:
        more = len(table) - len(self._level)
        self._level = np.concatenate((self._level, np.zeros(more, np.int64)))
        sorted_whole = number >= self.trace.acted
        fresh = np.full(more, number) if sorted_whole else np.arange(len(self._run), len(table)) + 10**6
        self._run = np.concatenate((self._run, fresh))
        if number < self.trace.acted:
            return
        policy: Policy = policy_named(self.policy)
        asked = parts(policy, {"max_group_bytes": 2**50, **self.options})
        for again in range(_ROUNDS):
            view = self._view(table, self.trace.key(number)[0])
            decision = policy.decide(
                view,
                asked.budget,
                asked.policy,
                workload=None,
                state=None,
                rates=None,
                now=0.0,
                rng=lambda: 0.5,
            )
            for place, draft in enumerate(decision.drafts):
                self._level[draft.blocks] = draft.output_level
                self._run[draft.blocks] = 10**9 + (number * _ROUNDS + again) * 10_000 + place
                yield draft.blocks, self.trace.key(number)[:1]
            if not decision.drafts:
                return

    def _view(self, table: TrialTable, column: int) -> TableView:
        count = len(table)
        ranks = np.unique(np.concatenate((table.low[column], table.high[column])), return_inverse=True)[1]
        low, high = ranks[:count], ranks[count:]
        rows = np.full(count, table.block_rows)
        return TableView(
            table_id="trial",
            snapshot=1,
            sort_id=_SORT.id,
            sorts={_SORT.id: _SORT},
            next_sort_id=_SORT.id + 1,
            table_options=TableOptions(block_rows=table.block_rows),
            paths=pa.array([f"{place:06d}" for place in range(count)]),
            low=low,
            high=high,
            level=np.minimum(self._level, 31),
            run=self._run,
            row_count=rows,
            size_bytes=rows * 8,
            decoded_bytes=rows * 8,
            same_key_rows=np.full(count, -1),
            constant=low == high,
            unclustered=np.zeros(count, np.bool_),
            unknown=np.zeros(count, np.bool_),
        )


def runs_by_key(trace: Trace, target: float) -> OfRegistry:
    """Return policy `runs` with the oracle's key at a target depth."""
    return OfRegistry(trace, policy="runs", options={"target_depth": target})
