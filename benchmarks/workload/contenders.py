"""Contenders on workloads: ours, oracles that know the key, and rules of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.workload.table import SORT_SHARE, TrialTable, asked_of, blocks_of
from benchmarks.workload.traces import Batch, Question, Trace
from benchmarks.workload.trial import Rewrite
from tblctl.selector.workload.arrive import best_order
from tblctl.selector.workload.asked import Asked, Key, recency
from tblctl.selector.workload.choose import DEFAULT_ALPHA, SIZES, regroups
from tblctl.selector.workload.replay import read_cost

_MOST_ASKED = 4096


class Nothing:
    """Rewrites nothing: NR, and what others begin with."""

    def arrives(self, *_: object) -> Key | None:
        return None

    def asked(self, *_: object) -> Sequence[Rewrite]:
        return ()

    def ends(self, *_: object) -> Sequence[Rewrite]:
        return ()


@dataclass(kw_only=True)
class Ours(Nothing):
    """Policy `workload`.

    Attributes:
        sorts_arrivals: batches are ours to sort while they are written.
        sampled: of so many queries one is kept, by chance, with a weight of as many.
        predicted: of each plan, the cost of the window that was expected afterwards, and the cost it had.
    """

    trace: Trace
    alpha: float = DEFAULT_ALPHA
    sizes: Sequence[int] = SIZES
    sorts_arrivals: bool = True
    sampled: int = 1
    predicted: list[tuple[float, float]] = field(default_factory=list)
    _questions: list[Question] = field(default_factory=list)
    _chance: Any = field(default_factory=lambda: np.random.default_rng(0))

    def window(self) -> Asked:
        ages = np.arange(len(self._questions))[::-1] * self.sampled
        return asked_of(self._questions, self.sampled * recency(ages), len(self.trace.columns))

    def arrives(self, table: TrialTable, batch: Batch, number: int) -> Key | None:
        if number < self.trace.acted or not self.sorts_arrivals or not self._questions:
            return None
        window = self.window()
        keys = window.candidate_keys()
        as_it_comes, *others = (
            blocks_of(*table.bounds_if(batch.rows, key), table.block_rows, table.rewrite_seconds)
            for key in (None, *keys)
        )
        found = best_order(
            as_it_comes,
            others,
            window,
            sort_seconds=SORT_SHARE * table.rewrite_seconds * len(as_it_comes),
            alpha=self.alpha,
        )
        return None if found is None else keys[found]

    def asked(self, _table: TrialTable, question: Question, number: int) -> Sequence[Rewrite]:
        if number >= self.trace.watched and self._chance.random() * self.sampled < 1:
            self._questions = [*self._questions[1 - _MOST_ASKED :], question]
        return ()

    def ends(self, table: TrialTable, number: int) -> Sequence[Rewrite]:
        if number < self.trace.acted or not self._questions:
            return ()
        window = self.window()
        found = regroups(
            table.blocks(), window, block_rows=table.block_rows, alpha=self.alpha, sizes=self.sizes
        )
        for group in found:
            table.rewrite(group.blocks, group.key)
            after = float(read_cost(table.blocks().pick(group.blocks), window).sum())
            self.predicted.append((group.after, after))
        return ()


@dataclass
class ByKey(Nothing):
    """NN: each batch is sorted by the key that is best for its period, and left so."""

    trace: Trace

    def arrives(self, _table: TrialTable, _batch: Batch, number: int) -> Key | None:
        return self.trace.key(number) if number >= self.trace.acted else None
