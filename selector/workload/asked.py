"""The queries of a window, compiled: closed ranges of numbers on the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

HALF_LIFE = 384.0
"""After so many more queries, one counts half."""

LEAST_SHARE = 0.02
"""Columns that less than this share of a window's cost asks for are no keys."""

MOST_COLUMNS = 3
"""Columns that keys are made of: the ones that most of the cost asks for. Planning takes time for each key."""

_MOST_CELLS = 1 << 18
"""Numbers of an intermediate array: 2 MB, which a processor's cache holds."""

_MOST_PAIRS, _LEAST_BOXES = 100_000_000, 256
"""Pairs of a box and a block that a plan looks at: some 5 s for six keys. Of a larger table so many boxes at least."""

Key: TypeAlias = tuple[int, ...]
"""The columns, by number, that rows are sorted by: one, or two for a Hilbert curve."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """Queries as boxes. A query reads the blocks that one of its boxes meets.

    Attributes:
        low, high: of shape (boxes, columns); -inf and inf where a box does not limit a column.
        query: of shape (boxes,): the query of each box, ascending from 0, none left out.
        cost: of shape (queries,): its weight, times the share of a block's bytes that it reads.
    """

    low: Floats
    high: Floats
    query: Ints
    cost: Floats

    def __len__(self) -> int:
        return len(self.cost)

    @classmethod
    def of(cls, low: Floats, high: Floats, cost: Floats) -> Asked:
        """Return queries of one box each; those of the same box count as one."""
        if not len(low):
            return cls(low=low, high=high, query=np.arange(0), cost=cost)
        boxes, which = np.unique(np.hstack((low, high)), axis=0, return_inverse=True)
        columns = low.shape[1]
        return cls(
            low=boxes[:, :columns],
            high=boxes[:, columns:],
            query=np.arange(len(boxes)),
            cost=np.bincount(which.ravel(), cost, minlength=len(boxes)).astype(float),
        )

    @property
    def limits(self) -> Mask:
        """Which columns each box limits."""
        found: Mask = (self.low > -np.inf) | (self.high < np.inf)
        return found

    def parts(self, width: int) -> Iterator[Asked]:
        """Yield the queries some at a time, so that an array of `width` numbers for each box stays small."""
        starts = np.flatnonzero(np.diff(self.query, prepend=-1))
        ends = np.append(starts[1:], len(self.query))
        first = 0
        while first < len(self):
            last = int(np.searchsorted(ends, starts[first] + _MOST_CELLS // max(width, 1), side="right"))
            last = max(last, first + 1)
            boxes = slice(starts[first], ends[last - 1])
            yield Asked(
                low=self.low[boxes],
                high=self.high[boxes],
                query=self.query[boxes] - first,
                cost=self.cost[first:last],
            )
            first = last

    def of_queries(self, of_boxes: np.ndarray, combine: np.ufunc) -> np.ndarray:
        """Return figures of queries from those of their boxes, which lie along the first axis."""
        if len(self) == len(self.query):
            return of_boxes
        found: np.ndarray = combine.reduceat(
            of_boxes, np.flatnonzero(np.diff(self.query, prepend=-1)), axis=0
        )
        return found

    def sampled(self, blocks: int) -> tuple[Asked, Ints]:
        """Return queries that stand for all, where these are too many for so many blocks, and their numbers."""
        boxes = np.bincount(self.query, minlength=len(self))
        chosen, cost = stand_ins(self.cost, boxes, max(_MOST_PAIRS // max(blocks, 1), _LEAST_BOXES))
        if len(chosen) == len(self):
            return self, chosen
        kept = np.isin(self.query, chosen)
        query = np.repeat(np.arange(chosen.size), boxes[chosen])
        return Asked(low=self.low[kept], high=self.high[kept], query=query, cost=cost), chosen

    def candidate_keys(self) -> tuple[Key, ...]:
        """Return the keys worth a try: single columns, those asked for most first, and pairs of them."""
        asked = np.zeros((len(self), self.low.shape[1]))
        np.maximum.at(asked, self.query, self.limits.astype(float))
        share = self.cost @ asked
        order = np.argsort(-share, kind="stable")[:MOST_COLUMNS]
        columns = [int(column) for column in order if share[column] > LEAST_SHARE * self.cost.sum()]
        pairs = [(a, b) for place, a in enumerate(columns) for b in columns[place + 1 :]]
        return (*((column,) for column in columns), *pairs)


def recency(ages: Sequence[float] | Floats, half_life: float = HALF_LIFE) -> Floats:
    """Return what queries weigh that so many others followed."""
    found: Floats = 0.5 ** (np.asarray(ages, float) / half_life)
    return found


def stand_ins(cost: Floats, size: Ints, most: int) -> tuple[Ints, Floats]:
    """Return queries of about `most` together that stand for all, ascending, and what each costs then.

    All are returned if they are not larger. Else one is taken of each of equal parts of the cost, so that a dear one is
    sure to be. It counts as much as the parts that it was taken for.

    Args:
        cost: of each query.
        size: of each query, above 0.
        most: of their sizes, added up.
    """
    total = float(cost.sum())
    if int(size.sum()) <= most or total <= 0:
        return np.arange(cost.size), cost
    count = max(int(most * total / float(cost @ size)), 1)
    places = np.searchsorted(np.cumsum(cost), (np.arange(count) + 0.5) * (total / count))
    chosen, parts = np.unique(np.minimum(places, cost.size - 1), return_counts=True)
    return chosen.astype(np.int64), (parts * (total / count)).astype(float)
