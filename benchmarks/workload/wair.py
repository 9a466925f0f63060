"""Policy `wair`: section 4 of the WAIR paper, with the choices that it leaves open named.

After each query, Algorithm 2: savings by equation 3 from the utilisation that queries of the window saw, equation 1
with `alpha` (equation 4), the debt of equation 2, optionally the budget of equation 5 and the bonus of equation 6.

Choices: the cut of Algorithm 2 is a threshold, since costs are linear in bytes; a limit is filled with the most gainful
blocks instead of all or nothing; the cost limit is what the window's queries cost; the window begins at 32 queries,
within 16 and 4,096, and what its queries save is compared with what the reclusters of the window before were predicted
to save. What a query saves is what it reads less than of the blocks as they arrived. Each block gets the layout whose
anchor is nearest to its savings signature.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.workload.boundary import at_most
from benchmarks.workload.contenders import Nothing
from benchmarks.workload.table import READ_SECONDS, TrialTable
from benchmarks.workload.traces import Question, Trace
from benchmarks.workload.trial import Rewrite
from tblctl.selector.workload.asked import Floats, Ints, Key

FIRST_WINDOW, LEAST_WINDOW, MOST_WINDOW = 32, 16, 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """A query of the window: the blocks that it read, their generation then, and what each would save, by column."""

    blocks: Ints
    generation: Ints
    saved: Floats
    columns: tuple[int, ...]
    cost: float


@dataclass(kw_only=True)
class Wair(Nothing):
    """WAIR.

    Attributes:
        most: blocks that are sorted together (`k_max`); None for all.
        skips_lone: blocks that overlap no other are left alone: a correction of ours. Otherwise a sorted table is
            rewritten for nothing.
        alpha: equation 4. beta: equation 6, seconds for a block that is skipped. allowance: `c` of equation 5, seconds
            a query; None for no budget.
        fixed_key, fixed_window: the paper's ablations FK and FW.
    """

    trace: Trace
    most: int | None = 64
    skips_lone: bool = True
    alpha: float = 1.0
    beta: float = 0.0
    allowance: float | None = None
    fixed_key: int | None = None
    fixed_window: bool = False
    window: int = FIRST_WINDOW
    _asked: int = 0
    _since: int = 0
    _credit: float = 0.0
    _actual: float = 0.0
    _seen: deque[_Seen] = field(default_factory=deque)
    _actual_of: deque[float] = field(default_factory=deque)
    _spent: deque[tuple[int, float]] = field(default_factory=deque)
    _predicted: float = 0.0
    _expected: float = 0.0
    _before: Floats = field(default_factory=lambda: np.empty((2, 0, 0)))
    _generation: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _saved: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def asked(self, table: TrialTable, question: Question, number: int) -> Iterator[Rewrite]:
        if number < self.trace.watched:
            return
        self._grow(table)
        self._asked += 1
        self._credit += self.allowance or 0.0
        self._note(table, question)
        if number < self.trace.acted:
            return
        chosen = self._cut(table)
        if chosen.size:
            yield from self._laid_out(table, chosen)
        self._adapt()

    def _grow(self, table: TrialTable) -> None:
        more = len(table) - len(self._generation)
        self._generation = np.concatenate((self._generation, np.zeros(more, np.int64)))
        empty = np.zeros((len(self.trace.columns), more))
        self._saved = np.concatenate((self._saved.reshape(len(empty), -1), empty), axis=1)
        fresh = np.array([table.low, table.high])[:, :, len(table) - more :]
        self._before = np.concatenate((self._before.reshape(2, len(empty), -1), fresh), axis=2)

    def _fewer(self, table: TrialTable, question: Question, read: Ints) -> int:
        """Return how many blocks fewer a query reads than of the blocks as they arrived."""
        low, high = self._before
        found = np.ones(len(table), np.bool_)
        for column, (begin, end) in question.ranges.items():
            found &= (high[column] >= begin) & (low[column] <= end)
        return int(found.sum()) - len(read)

    def _note(self, table: TrialTable, question: Question) -> None:
        """Add a query to the window: what its blocks would save (equation 3), by the columns that it asks for."""
        read = np.flatnonzero(table.met(question))
        columns = tuple(question.ranges)
        saved = (1 - table.utilisation(question, read)) * (question.share * READ_SECONDS + self.beta)
        seen = _Seen(
            blocks=read,
            generation=self._generation[read],
            saved=saved / len(columns),
            columns=columns,
            cost=len(read) * question.share * READ_SECONDS,
        )
        self._seen.append(seen)
        self._saved[np.ix_(columns, read)] += seen.saved
        while len(self._seen) > self.window:
            self._forget(self._seen.popleft())
        gained = self._fewer(table, question, read) * question.share * READ_SECONDS
        self._actual_of.append(gained)
        self._actual += gained
        self._credit += gained

    def _forget(self, old: _Seen) -> None:
        alive = self._generation[old.blocks] == old.generation
        self._saved[np.ix_(old.columns, old.blocks[alive])] -= old.saved[alive]

    def _cut(self, table: TrialTable) -> Ints:
        """Return the blocks of Algorithm 2's cut, as far as the limits let it."""
        total, cost = self._saved.sum(axis=0), table.rewrite_seconds
        worth = np.flatnonzero(total > self.alpha * cost)
        if self.skips_lone and worth.size:
            worth = worth[self._overlap(table, worth)]
        ordered = worth[np.argsort(-total[worth], kind="stable")]
        while self._spent and self._spent[0][0] <= self._asked - self.window:
            self._spent.popleft()
        debt = sum(seconds for _, seconds in self._spent) - sum(
            itertools.islice(reversed(self._actual_of), self.window)
        )
        limit = sum(seen.cost for seen in self._seen) - debt
        if self.allowance is not None:
            limit = min(limit, self._credit)
        return ordered[: max(int(limit / cost), 0)]

    def _overlap(self, table: TrialTable, chosen: Ints) -> np.ndarray:
        """Return which blocks overlap another one on the column that saves most of them."""
        column = self._saved[:, chosen].argmax(axis=0)
        found = np.zeros(len(chosen), np.bool_)
        for number in np.unique(column):
            low, high = table.low[number], table.high[number]
            mine = column == number
            begin = np.searchsorted(np.sort(low), high[chosen[mine]], side="left")
            ended = np.searchsorted(np.sort(high), low[chosen[mine]], side="right")
            found[mine] = begin - ended > 1
        return found

    def _laid_out(self, table: TrialTable, chosen: Ints) -> Iterator[Rewrite]:
        signatures = self._saved[:, chosen].copy()
        keys = [self._layout(signatures[:, place]) for place in range(len(chosen))]
        for key in sorted(set(keys)):
            mine = chosen[[found == key for found in keys]]
            for part in at_most(mine, table.low[key[0]], self.most):
                if len(part) <= self.skips_lone:
                    continue
                self._spent.append((self._asked, len(part) * table.rewrite_seconds))
                self._predicted += float(self._saved[:, part].sum())
                self._credit -= len(part) * table.rewrite_seconds
                yield part, key
                self._saved[:, part] = 0.0
                self._generation[part] += 1

    def _layout(self, signature: Floats) -> Key:
        """Return the columns of the nearest anchor: one, or an equal blend of two or three."""
        if self.fixed_key is not None:
            return (self.fixed_key,)
        order = np.argsort(-signature, kind="stable")[:3]
        cosines = np.cumsum(signature[order]) / np.sqrt(np.arange(1, len(order) + 1))
        return tuple(int(column) for column in order[: int(cosines.argmax()) + 1])

    def _adapt(self) -> None:
        """Double the window if its queries saved more than the window before had predicted, else halve it."""
        self._since += 1
        if self._since < self.window:
            return
        if (self._expected or self._actual) and not self.fixed_window:
            doubled = self._actual > self._expected
            self.window = min(
                max(self.window * 2 if doubled else self.window // 2, LEAST_WINDOW), MOST_WINDOW
            )
        while len(self._seen) > self.window:
            self._forget(self._seen.popleft())
        while len(self._actual_of) > MOST_WINDOW:
            self._actual_of.popleft()
        self._since, self._actual, self._expected, self._predicted = 0, 0.0, self._predicted, 0.0
