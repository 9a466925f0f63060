"""The queries of a window on the bounds of a version's blocks: what policies decide by, and savings are counted by.

What a scan reads of a block costs what a merge takes to decode it, times the share of the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tblctl.selector.pricing.rates import Rates
from tblctl.selector.workload.asked import Asked, Floats, recency, stand_ins
from tblctl.selector.workload.numbers import Numbers
from tblctl.selector.workload.replay import Blocks
from tblctl.tableformat.errors import InvalidPredicateError, UnknownColumnError

_MOST_CHARACTERS = 250_000
"""Of conditions that are read in one plan: some 3 s."""


class Seen(Protocol):
    """What is known of blocks: a `TableView`, or rows that arrive (`arrive.py`). None of either may be missing here."""

    @property
    def bounds_of(self) -> Any: ...

    @property
    def condition_boxes(self) -> Any: ...

    @property
    def column_count(self) -> int: ...

    @property
    def row_count(self) -> Any: ...

    @property
    def decoded_bytes(self) -> Any: ...

    @property
    def size_bytes(self) -> Any: ...

    def __len__(self) -> int: ...


@dataclass(kw_only=True)
class Compiled:
    """Queries as boxes of numbers, and the bounds of the columns that they name, on one version of a table.

    Attributes:
        names: the columns that conditions name, in the order in which they were met; keys number them.
        texts: the conditions that could be used.
        unused: how many could not, and why the first of them.
    """

    view: Seen
    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    unused: int = 0
    problem: str = ""
    _numbers: dict[str, Numbers] = field(default_factory=dict)
    _bounds: list[tuple[Floats, Floats]] = field(default_factory=list)

    def asked(
        self,
        queries: Sequence[Any],
        *,
        half_life: float | None = None,
        most_characters: int | None = None,
    ) -> Asked:
        """Return the queries; those that do not fit the table are counted, and left out.

        Args:
            queries: the oldest first.
            half_life: after so many more, one counts half. None: all count alike.
            most_characters: of conditions that are read, of more, some stand for all. None: as many as take 3 s.
        """
        weights = np.array([query.weight for query in queries], float)
        if half_life is not None:
            weights = weights * recency(np.cumsum(weights[::-1])[::-1] - weights, half_life)
        costs: dict[str, float] = {}
        for query, weight in zip(queries, weights, strict=True):
            seen = costs.get(query.where, 0.0)
            costs[query.where] = seen + float(weight) * self._share(query.columns)
        few = _fewer(costs, most_characters or _MOST_CHARACTERS)
        found = {where: boxes for where in few if (boxes := self._boxes(where))}
        self.texts = list(found)
        low = np.full((sum(map(len, found.values())), len(self.names)), -np.inf)
        high = -low
        for row, box in enumerate(box for boxes in found.values() for box in boxes):
            for name, limits in box.items():
                low[row, self.names.index(name)], high[row, self.names.index(name)] = limits
        query = np.repeat(np.arange(len(found)), [len(boxes) for boxes in found.values()])
        cost = np.array([few[where] for where in found])
        asked, kept = Asked(low=low, high=high, query=query, cost=cost).sampled(len(self.view))
        self.texts = [self.texts[number] for number in kept.tolist()]
        return asked

    def _boxes(self, where: str) -> Sequence[Any]:
        """Return the boxes of a condition; none if it limits nothing, or does not fit the table."""
        assert self.view.condition_boxes is not None
        try:
            boxes = self.view.condition_boxes(where, self._place) if where else ()
        except (InvalidPredicateError, UnknownColumnError) as error:
            self.unused += 1
            self.problem = self.problem or str(error)
            return ()
        return boxes if all(boxes) else ()  # one that limits nothing reads all, however rows lie

    def _place(self, leaf: Any, value: pa.Scalar) -> float | None:
        name = leaf.name
        if name not in self._numbers:
            assert self.view.bounds_of is not None
            low, high, _ = self.view.bounds_of(name)
            numbers = Numbers.of(low, high)
            self._numbers[name] = numbers
            self.names.append(name)
            self._bounds.append((numbers.array(low), numbers.array(high)))
        return self._numbers[name].scalar(value)

    def _share(self, columns: Sequence[str]) -> float:
        """Return the share of a block's bytes that a query reads: that of its columns, taken to be alike."""
        total = self.view.column_count
        return min(len(columns), total) / total if columns and total else 1.0

    def values(self) -> Floats:
        """Return the low bounds of all blocks, of shape (columns, blocks); NaN where they are not known."""
        return np.array([low for low, _ in self._bounds]).reshape(len(self.names), len(self.view))

    def blocks(self, asked: Asked, rates: Rates) -> Blocks:
        """Return all blocks; bounds that are not known are as wide as all others, and all that is asked for."""
        view = self.view
        low, high = np.empty((2, len(self.names), len(view)))
        for number, (least, most) in enumerate(self._bounds):
            known = np.isfinite(least) & np.isfinite(most)
            ends = np.concatenate((least[known], most[known], asked.low[:, number], asked.high[:, number]))
            ends = ends[np.isfinite(ends)] if np.isfinite(ends).any() else np.zeros(1)
            low[number] = np.where(known, least, ends.min())
            high[number] = np.where(known, most, ends.max())
        decode = view.decoded_bytes.astype(float) * rates.seconds_per_decoded_byte
        write = view.size_bytes.astype(float) * (rates.written_factor * rates.seconds_per_written_byte)
        return Blocks(
            low=low,
            high=high,
            rows=view.row_count.astype(float),
            read_seconds=decode,
            rewrite_seconds=decode + write,
        )


def _fewer(costs: Mapping[str, float], most: int) -> Mapping[str, float]:
    """Return conditions that stand for all, and their costs, where these take long to read."""
    wheres = list(costs)
    size = np.array([len(where) + 1 for where in wheres], np.int64)
    chosen, cost = stand_ins(np.array(list(costs.values())), size, most)
    return {wheres[number]: float(share) for number, share in zip(chosen, cost, strict=True)}
