"""Policy `workload`: sort together, by whatever key, the blocks of which recent queries would then read enough less.

It trades seconds of queries against seconds of rewriting. The queries of a window are replayed on the bounds of today's
blocks, and on those that groups are predicted to have; `workload/choose.py` has the rule. A group gets the sort of its
key: the cluster key, another live sort, or one that the plan brings: one column, or a Hilbert curve through two.

What a scan reads of a block costs what a merge takes to decode it (`Rates.seconds_per_decoded_byte`; a full scan of
lineitem at scale 1 takes 1.27 s, that part of a merge 1.05 s), times the share of the columns that it reads. What a
group costs is priced as if nothing of it were copied undecoded.

Where no query speaks, `runs` maintains: blocks that no query of the window reads are merged by its rule, unless some
group of before sorted them.

Rounds come to an end as for all policies: a group lifts the level of its rows (`draft.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.box_test import worth_reading
from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option, require_valid
from tblctl.selector.plan import Rejection
from tblctl.selector.policies.runs import Runs, RunsOptions
from tblctl.selector.policy import Decision, State
from tblctl.selector.pricing.rates import DEFAULT_RATES
from tblctl.selector.pricing.rates import Rates as MergeRates
from tblctl.selector.rejections import left_out, rejection
from tblctl.selector.table_view import MOST_LEVEL, TableView, joined
from tblctl.selector.workload.asked import HALF_LIFE, Asked, Key
from tblctl.selector.workload.choose import DEFAULT_ALPHA, Regroup, regroups
from tblctl.selector.workload.compiled import Compiled
from tblctl.selector.workload.replay import Blocks, read_cost
from tblctl.selector.workload.savings import savings
from tblctl.tableformat.errors import (
    InvalidKeyError,
    InvalidOptionError,
)
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort
from tblctl.tableformat.model.runs import NO_RUN

NO_WORKLOAD = (
    "policy workload needs the queries that the table is asked, and none are known: record its scans "
    "(`tblctl alter LOC --set recluster.record=on`), import a log (`tblctl workload LOC import FILE`), or hand them "
    "in: workload=Workload(queries=(..))"
)

_EXPLAINED_GROUPS, _EXPLAINED_QUERIES = 100, 3
"""Groups of which the queries that gain most are told, and how many of these: to find them takes time."""

_MOST_TEXT = 80


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The options of `workload`.

    Attributes:
        window: the last queries that count.
        alpha: seconds of queries that a second of rewriting has to save.
        maintain: blocks that no query of the window reads are merged by the rule of `runs`.
        allowance: whoever plans limits the seconds of a plan to what earlier reclusters saved, less what they took, and
            so many for each query (`maintain/credit.py`); None for no such limit.
    """

    window: int = option(default=4096, unit="queries", help="How many of the last queries count.")
    alpha: float = option(
        default=DEFAULT_ALPHA,
        unit="ratio",
        help="Seconds of queries that a second of rewriting has to save. More: rewrite less.",
        above=0,
    )
    maintain: bool = option(
        default=True,
        unit="flag",
        help="Where no query of the window reads, also merge as policy runs does.",
    )
    allowance: float | None = option(
        default=None,
        unit="seconds",
        help="Take no longer than reclusters have saved the queries of the log, less what they took, and so much for "
        "each query.",
        least=0,
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
        """Return the groups whose rewrite pays, the most gainful for its price first; then those of `runs`.

        Raises:
            InvalidOptionError: no workload is known.
        """
        if workload is None or view.condition_boxes is None or view.sort_by is None:
            raise InvalidOptionError(NO_WORKLOAD)
        compiled = Compiled(view=view)
        asked = compiled.asked(workload.queries[-options.window :], half_life=HALF_LIFE)
        sorts = _Sorts(view, compiled.names)
        levels = _written_levels(view)
        chosen = np.flatnonzero(view.selectable & (levels < MOST_LEVEL))
        everything = compiled.blocks(asked, rates or DEFAULT_RATES)
        blocks = everything.pick(chosen)
        block_rows = full_rows(view)
        found = regroups(
            blocks,
            asked,
            keys=[key for key in asked.candidate_keys() if sorts.may_be(key)],
            block_rows=block_rows,
            alpha=options.alpha,
            group_seconds=(rates or DEFAULT_RATES).seconds_per_group,
            partition=view.partition[chosen] if view.is_partitioned else None,
        )
        drafts = []
        for number, group in enumerate(found):
            sort = sorts.of(group.key)
            members = chosen[group.blocks]
            members = members[view.selectable_for(sort.id)[members]]
            if members.size and not sorts.is_one_run(sort, members):
                explained = number < _EXPLAINED_GROUPS
                why = _why(
                    compiled, sorts, blocks, asked, group, block_rows=block_rows, with_queries=explained
                )
                level = max(next_level(view, members), int(levels[members].max()) + 1)
                drafts.append(Draft(blocks=members, output_level=level, why=why, sort=sort))
        unread = _unread(view, everything, asked, levels) & options.maintain
        rest = _maintained(view, unread, budget)
        return Decision(
            drafts=(*drafts, *rest.drafts),
            rejections=(*rest.rejections, *_rejections(view, drafts, compiled, options, unread)),
            state=state,
        )


class _Sorts:
    """The sorts of keys, live ones or new. New curves have no boundaries yet: rows are read for those of the plan."""

    def __init__(self, view: TableView, names: Sequence[str]) -> None:
        self._view, self._names = view, names
        self._found: dict[Key, Sort] = {}
        self._runs: dict[int, Integers] = {}

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

    def is_one_run(self, sort: Sort, members: Integers) -> bool:
        """Return whether one merge wrote these blocks in the order of a sort: then another one by it changes nothing.

        Bounds do not show that where they are truncated, as those of text are.
        """
        if sort.id not in self._runs:
            self._runs[sort.id] = _runs_in(self._view, sort)
        run = self._runs[sort.id][members]
        return bool(run[0] != NO_RUN and (run == run[0]).all())

    def text(self, key: Key) -> str:
        """Return a key as text."""
        names = ", ".join(self._names[column] for column in key)
        return names if len(key) == 1 else f"hilbert({names})"

    def _made(self, key: Key) -> Sort:
        assert self._view.sort_by is not None
        return self._view.sort_by(tuple(self._names[column] for column in key))


def _written_levels(view: TableView) -> Integers:
    """Return the level of each block, by whatever sort it was given; 0 where it has none.

    The sorts of groups are not live in an Iceberg table, and the levels of their files count for none elsewhere. Here
    they count, so that rounds come to an end there, too.
    """
    unsorted = view.sort_ids == NO_SORT
    known = view.level
    if view.written_levels is not None and unsorted.any():
        known = np.where(unsorted, view.written_levels(), known)
    found: Integers = np.maximum(known, 0)
    return found


def _runs_in(view: TableView, sort: Sort) -> Integers:
    """Return the run of each block in the order of a sort; -1 for others."""
    if sort.id in view.sorts:
        return np.where(view.sort_ids == sort.id, view.run, NO_RUN)
    if view.runs_in is None or not (view.sort_ids == NO_SORT).any():
        return np.full(len(view), NO_RUN)
    return view.runs_in(sort)


def _unread(view: TableView, blocks: Blocks, asked: Asked, levels: Integers) -> Mask:
    """Return the blocks that no query of the window reads, and that are not in the order of a group of before.

    Queries that limit nothing are not among those asked: they read all, in whatever order it is.
    """
    own = (view.sort_ids == view.sort_id) | (levels == 0)
    found: Mask = view.selectable & own & ~(view.unclustered | view.unknown)
    return found & ~(read_cost(blocks, asked) > 0)


def _maintained(view: TableView, unread: Mask, budget: Budget) -> Decision:
    """Return what `runs` decides of some blocks, and why it leaves others of them."""
    if not unread.any():
        return Decision()

    def decide(seen: TableView) -> Decision:
        return Runs().decide(seen, budget, RunsOptions())

    only = replace(view, restricted=unread)
    found = decide(only) if view.boxes_of is None else worth_reading(only, decide)
    elsewhere = {item.rule for item in left_out(only, include_unclustered=False)}
    return Decision(
        drafts=tuple(
            replace(draft, why=f"no query of the window reads it, so as runs: {draft.why}")
            for draft in found.drafts
        ),
        rejections=tuple(item for item in found.rejections if item.rule not in elsewhere),
    )


def full_rows(view: TableView) -> float:
    """Return about how many rows a full block has."""
    options, rows = view.table_options, max(int(view.row_count.sum()), 1)
    found: float = max(
        min(options.block_rows, options.block_bytes / max(view.decoded_bytes.sum() / rows, 1e-9)), 1.0
    )
    return found


def _why(
    compiled: Compiled,
    sorts: _Sorts,
    blocks: Blocks,
    asked: Asked,
    group: Regroup,
    *,
    block_rows: float,
    with_queries: bool,
) -> str:
    """Return what a group gains, and by which queries."""
    text = (
        f"by {sorts.text(group.key)}: queries of the window read it in {group.after:.3g} s instead of "
        f"{group.before:.3g} s; its rewrite takes {group.price:.3g} s"
    )
    if not with_queries:
        return text
    gained: dict[str, float] = {}
    for query, seconds in enumerate(savings(blocks, asked, group, block_rows=block_rows)):
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
    compiled: Compiled,
    options: WorkloadOptions,
    maintained: Mask,
) -> tuple[Rejection, ...]:
    """Return why blocks are left, those aside of which `runs` decides."""
    fine = view.selectable & ~maintained
    fine[joined(draft.blocks for draft in drafts)] = False
    found = [item for item in left_out(view, include_unclustered=True) if item.rule != "other_sort"]
    if fine.any():
        why = f"no group of them saves the window's queries {options.alpha:g} times what its rewrite takes"
        found.append(rejection(view, "no_gain", fine, why))
    if compiled.unused:
        why = f"conditions of the window that do not fit the table: {compiled.unused}; {_shortened(compiled.problem)}"
        found.append(rejection(view, "queries", np.empty(0, np.int64), why))
    return tuple(found)
