"""A trace, replayed: after every event the policy runs until it wants nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tblctl.selector.budget import affordable
from tblctl.selector.checks import checked
from tblctl.selector.draft import Draft
from tblctl.selector.options import parts
from tblctl.selector.policy import Policy
from tblctl.selector.registry import policy_named
from tblctl.selector.table_view import TableView
from tblctl.selector.traces.events import Event
from tblctl.selector.traces.table import Cut, KeyTable, equal_parts

Choose: TypeAlias = Callable[[TableView], Sequence[Draft]]
"""What to merge next in a table; nothing if it is fine."""

_MOST_ROUNDS = 10_000
"""Rounds after one event. None takes a hundredth of that."""

_SAMPLED = 16
"""Point queries ask for the key of every so many rows of a block."""

_RANGES = 100
"""Range queries: as many, of an equal share of the rows each, that cover the table."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measurement of a table.

    Attributes:
        event: the number of the event before.
        depth, p99_depth: of the blocks: mean closed depth, and its nearest-rank percentile.
        point_blocks: blocks that a query for one row's key meets, averaged over rows.
        range_share: rows of the blocks that a query for a hundredth of the rows meets, as a multiple of these rows.
    """

    event: int
    depth: float
    p99_depth: int
    point_blocks: float
    range_share: float


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What happened.

    Attributes:
        ingested_rows, rewritten_rows: by event.
        rounds: how often something was merged, in all.
        measured: the measurements, in order.
    """

    ingested_rows: tuple[int, ...]
    rewritten_rows: tuple[int, ...]
    rounds: int
    measured: tuple[Measured, ...]

    @property
    def rewritten(self) -> float:
        """Rows rewritten as a multiple of the rows ingested so far, averaged over the second half of the events."""
        share = np.cumsum(self.rewritten_rows) / np.maximum(np.cumsum(self.ingested_rows), 1)
        return float(share[len(share) // 2 :].mean())

    @property
    def depth(self) -> float:
        """The mean depth, averaged over the measurements of the last three quarters of the events."""
        return self._mean("depth")

    @property
    def p99_depth(self) -> float:
        """The 99th percentile of the depth, averaged likewise."""
        return self._mean("p99_depth")

    @property
    def point_blocks(self) -> float:
        """Blocks met by a point query, averaged likewise."""
        return self._mean("point_blocks")

    @property
    def range_share(self) -> float:
        """Rows read by range queries as a multiple of those asked for, averaged likewise."""
        return self._mean("range_share")

    def _mean(self, name: str) -> float:
        first = len(self.ingested_rows) // 4
        return float(np.mean([getattr(item, name) for item in self.measured if item.event >= first]))


def by_policy(policy: str | Policy, **options: Any) -> Choose:
    """Return what a policy of the product chooses. `options` are those of `SelectOptions` and of the policy itself.

    Its decisions are checked and cut to the budget, as the planner does; only forecasts are left out, which cost most.
    """
    chosen = policy_named(policy) if isinstance(policy, str) else policy
    asked = parts(chosen, options)

    def choose(view: TableView) -> Sequence[Draft]:
        decision = chosen.decide(
            view, asked.budget, asked.policy, workload=None, state=None, rates=None, now=0.0, rng=lambda: 0.5
        )
        return affordable(view, checked(view, chosen, decision).drafts, asked.budget)[0]

    return choose


def replayed(events: Iterable[Event], choose: Choose, *, cut: Cut = equal_parts) -> Replayed:
    """Replay a trace.

    Args:
        events: the trace.
        choose: asked after every event, again and again until it names nothing.
        cut: how rows become blocks.

    Raises:
        RuntimeError: it does not come to an end after an event.
    """
    table = KeyTable(cut)
    ingested: list[int] = []
    rewritten: list[int] = []
    measured: list[Measured] = []
    rounds = 0
    for number, event in enumerate(events):
        ingested.append(table.ingest(event))
        rewritten.append(0)
        for _ in range(_MOST_ROUNDS):
            drafts = choose(table.view()) if len(table) else ()
            if not drafts:
                break
            rewritten[-1] += table.merge(drafts)
            rounds += 1
        else:
            raise RuntimeError(
                f"event {number}: there is still something to merge after {_MOST_ROUNDS} rounds"
            )
        if event.is_measured and table.is_measured.any():
            measured.append(_measured(number, table))
    return Replayed(
        ingested_rows=tuple(ingested),
        rewritten_rows=tuple(rewritten),
        rounds=rounds,
        measured=tuple(measured),
    )


def _measured(event: int, table: KeyTable) -> Measured:
    found = np.sort(table.block_depths())
    mask = table.is_measured
    low, high, rows = table.low[mask], table.high[mask], table.rows[mask]
    keys = np.sort(np.concatenate([table.keys[at][::_SAMPLED] for at in np.flatnonzero(mask).tolist()]))
    met = np.searchsorted(keys, high, side="right") - np.searchsorted(keys, low)
    edges = keys[np.linspace(0, keys.size - 1, _RANGES + 1).astype(np.int64)]
    ended = np.concatenate(([0], np.cumsum(rows[np.argsort(high)])))[
        np.searchsorted(np.sort(high), edges[:-1])
    ]
    begun = np.concatenate(([0], np.cumsum(rows[np.argsort(low)])))[
        np.searchsorted(np.sort(low), edges[1:], side="right")
    ]
    return Measured(
        event=event,
        depth=float(found.mean()),
        p99_depth=int(found[-(-99 * found.size // 100) - 1]),
        point_blocks=float(met.sum() / keys.size),
        range_share=float((begun - ended).sum() / rows.sum()),
    )
