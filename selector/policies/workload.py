"""Policy `workload`: sort together, by whatever key, the blocks of which recent queries would then read enough less.

It trades seconds of queries against seconds of rewriting. The queries of a window are replayed on the bounds of today's
blocks, and on those that groups are predicted to have; `workload/choose.py` has the rule. A group gets the sort of its
key: the cluster key, another live sort, or one that the plan brings: one column, or a Hilbert curve through two.

What a scan reads of a block costs what a merge takes to decode it (`Rates.seconds_per_decoded_byte`; a full scan of
lineitem at scale 1 takes 1.27 s, that part of a merge 1.05 s), times the share of the columns that it reads. What a
group costs is priced as if nothing of it were copied undecoded.

Rounds come to an end as for all policies: a group lifts the level of its rows (`draft.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.plan import Rejection
from tblctl.selector.policy import Decision, State
from tblctl.selector.pricing.rates import DEFAULT_RATES
from tblctl.selector.pricing.rates import Rates as MergeRates
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import TableView, joined
from tblctl.selector.workload.asked import Asked, Floats, Key, recency, stand_ins
from tblctl.selector.workload.choose import DEFAULT_ALPHA, Regroup, regroups
from tblctl.selector.workload.numbers import Numbers
from tblctl.selector.workload.replay import Blocks
from tblctl.selector.workload.savings import savings
from tblctl.tableformat.errors import (
    InvalidKeyError,
    InvalidOptionError,
    InvalidPredicateError,
    UnknownColumnError,
)
from tblctl.tableformat.model.cluster_key import Sort

NO_WORKLOAD = (
    "policy workload needs the queries that the table is asked, and none are known: record its scans "
    "(`tblctl alter LOC --set recluster.record=on`), import a log (`tblctl workload LOC import FILE`), or hand them "
    "in: workload=Workload(queries=(..))"
)

_EXPLAINED_GROUPS, _EXPLAINED_QUERIES = 100, 3
"""Groups of which the queries that gain most are told, and how many of these: to find them takes time."""

_MOST_TEXT = 80

_MOST_CHARACTERS = 250_000
"""Of conditions that are read in one plan: some 3 s."""


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The options of `workload`.

    Attributes:
        window: the last queries that count.
        alpha: seconds of queries that a second of rewriting has to save.
    """

    window: int = option(default=4096, unit="queries", help="How many of the last queries count.")
    alpha: float = option(
        default=DEFAULT_ALPHA,
        unit="ratio",
        help="Seconds of queries that a second of rewriting has to save. More: rewrite less.",
        above=0,
    )

    def __post_init__(self) -> None:
        require_valid(self)


class Workload:
    """Groups that pay for the queries of a window. O(boxes x blocks) for each key that is tried, at most six."""

    name = "workload"
    summary = "sorts blocks together where recent queries would then read enough less"
    options = WorkloadOptions
    works_without_key = True
    wants_workload = True

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: WorkloadOptions,
        *,
        workload: Any = None,
        state: State = None,
        rates: MergeRates | None = None,
        **_: object,
    ) -> Decision:
        """Return the groups whose rewrite pays, the most gainful for its price first.

        Raises:
            InvalidOptionError: no workload is known.
        """
        del budget
        if workload is None or view.condition_boxes is None or view.sort_by is None:
            raise InvalidOptionError(NO_WORKLOAD)
        compiled = _Compiled(view=view)
        asked = compiled.asked(workload.queries[-options.window :])
        sorts = _Sorts(view, compiled.names)
        chosen = np.flatnonzero(view.selectable)
        blocks = compiled.blocks(asked, rates or DEFAULT_RATES).pick(chosen)
        found = regroups(
            blocks,
            asked,
            keys=[key for key in asked.candidate_keys() if sorts.may_be(key)],
            block_rows=_full_rows(view),
            alpha=options.alpha,
            group_seconds=(rates or DEFAULT_RATES).seconds_per_group,
            partition=view.partition[chosen] if view.is_partitioned else None,
        )
        drafts = []
        for number, group in enumerate(found):
            sort = sorts.of(group.key)
            members = chosen[group.blocks]
            members = members[view.selectable_for(sort.id)[members]]
            if members.size:
                why = _why(compiled, sorts, blocks, asked, group, with_queries=number < _EXPLAINED_GROUPS)
                level = next_level(view, members)
                drafts.append(Draft(blocks=members, output_level=level, why=why, sort=sort))
        return Decision(
            drafts=tuple(drafts),
            rejections=_rejections(view, drafts, compiled, options),
            state=state,
        )


@dataclass(kw_only=True)
class _Compiled:
    """The queries as boxes of numbers, and the bounds of the columns that they name.

    Attributes:
        names: the columns that conditions name, in the order in which they were met; keys number them.
        texts: the conditions that could be used.
        unused: how many could not, and why the first of them.
    """

    view: TableView
    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    unused: int = 0
    problem: str = ""
    _numbers: dict[str, Numbers] = field(default_factory=dict)
    _bounds: list[tuple[Floats, Floats]] = field(default_factory=list)

    def asked(self, queries: Sequence[Any]) -> Asked:
        """Return the queries; those that do not fit the table are counted, and left out."""
        weights = np.array([query.weight for query in queries], float)
        recent = weights * recency(np.cumsum(weights[::-1])[::-1] - weights)
        costs: dict[str, float] = {}
        for query, weight in zip(queries, recent, strict=True):
            seen = costs.get(query.where, 0.0)
            costs[query.where] = seen + float(weight) * self._share(query.columns)
        few = _fewer(costs)
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

    def blocks(self, asked: Asked, rates: MergeRates) -> Blocks:
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


def _fewer(costs: Mapping[str, float]) -> Mapping[str, float]:
    """Return conditions that stand for all, and their costs, where these take long to read."""
    wheres = list(costs)
    size = np.array([len(where) + 1 for where in wheres], np.int64)
    chosen, cost = stand_ins(np.array(list(costs.values())), size, _MOST_CHARACTERS)
    return {wheres[number]: float(share) for number, share in zip(chosen, cost, strict=True)}


class _Sorts:
    """The sorts of keys, live ones or new. Those of curves are made only where a group gets one: that reads rows."""

    def __init__(self, view: TableView, names: Sequence[str]) -> None:
        self._view, self._names = view, names
        self._found: dict[Key, Sort] = {}

    def may_be(self, key: Key) -> bool:
        """Return whether rows can be sorted by each column of a key."""
        try:
            return all(self._made((column,)) for column in key)
        except InvalidKeyError:
            return False

    def of(self, key: Key) -> Sort:
        """Return the sort of a key. New ones get ids that follow each other."""
        if key not in self._found:
            sort = self._made(key)
            taken = [other.id for other in self._found.values()]
            self._found[key] = replace(sort, id=max(taken) + 1) if sort.id in taken else sort
        return self._found[key]

    def text(self, key: Key) -> str:
        """Return a key as text."""
        names = ", ".join(self._names[column] for column in key)
        return names if len(key) == 1 else f"hilbert({names})"

    def _made(self, key: Key) -> Sort:
        assert self._view.sort_by is not None
        return self._view.sort_by(tuple(self._names[column] for column in key))


def _full_rows(view: TableView) -> float:
    """Return about how many rows a full block has."""
    options, rows = view.table_options, max(int(view.row_count.sum()), 1)
    found: float = max(
        min(options.block_rows, options.block_bytes / max(view.decoded_bytes.sum() / rows, 1e-9)), 1.0
    )
    return found


def _why(
    compiled: _Compiled, sorts: _Sorts, blocks: Blocks, asked: Asked, group: Regroup, *, with_queries: bool
) -> str:
    """Return what a group gains, and by which queries."""
    text = (
        f"by {sorts.text(group.key)}: queries of the window read it in {group.after:.3g} s instead of "
        f"{group.before:.3g} s; its rewrite takes {group.price:.3g} s"
    )
    if not with_queries:
        return text
    gained: dict[str, float] = {}
    for query, seconds in enumerate(savings(blocks, asked, group, block_rows=_full_rows(compiled.view))):
        where = compiled.texts[query]
        gained[where] = gained.get(where, 0.0) + float(seconds)
    best = sorted(gained.items(), key=lambda item: -item[1])[:_EXPLAINED_QUERIES]
    shown = [f"{_shortened(where)} gains {seconds:.3g} s" for where, seconds in best if seconds > 0]
    return "; ".join((text, *shown))


def _shortened(where: str) -> str:
    """Return a condition as one printable line; a log may hold anything."""
    line = "".join(char if char.isprintable() else " " for char in where)
    return line if len(line) <= _MOST_TEXT else line[: _MOST_TEXT - 2] + ".."


def _rejections(
    view: TableView,
    drafts: Sequence[Draft],
    compiled: _Compiled,
    options: WorkloadOptions,
) -> tuple[Rejection, ...]:
    fine = view.selectable.copy()
    fine[joined(draft.blocks for draft in drafts)] = False
    found = [item for item in left_out(view, include_unclustered=True) if item.rule != "other_sort"]
    if fine.any():
        why = f"no group of them saves the window's queries {options.alpha:g} times what its rewrite takes"
        found.append(rejection(view, "no_gain", fine, why))
    if compiled.unused:
        why = f"conditions of the window that do not fit the table: {compiled.unused}; {_shortened(compiled.problem)}"
        found.append(rejection(view, "queries", np.empty(0, np.int64), why))
    return tuple(found)
