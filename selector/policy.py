"""The interface of a policy: it decides which blocks to merge. The planner does the rest (`planner.py`).

    class Oldest:
        name = "oldest"
        summary = "merges the blocks that were written first"
        options = OldestOptions  # a frozen dataclass of `option_fields.option` fields

        def decide(self, view, budget, options, *, workload, state, rates, now, rng):
            ...
            level = next_level(view, numbers)
            return Decision(drafts=(Draft(blocks=numbers, output_level=level, why="the oldest"),))

    register(Oldest())

A policy is pure: what it decides depends on its arguments alone, and it changes none of them.

Every group lifts its rows: its output's level is above that of each of its blocks (`draft.next_level`). So rounds come
to an end whatever a policy selects; the planner refuses a decision that breaks this, or another rule of `Decision`. Of
blocks at the highest level, a group must instead lower what they cover (`draft.lowers_coverage`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft
from tblctl.selector.plan import Rejection
from tblctl.selector.pricing.rates import Rates as MergeRates
from tblctl.selector.table_view import TableView

Workload: TypeAlias = Any
"""Recent queries of the table; None if unknown."""

State: TypeAlias = Any
"""A policy's state from one plan to the next; None at first. The caller keeps it."""

Rates: TypeAlias = MergeRates | None
"""What reading and rewriting take; None if unknown. The planner hands in the stated defaults then."""

Rng: TypeAlias = Callable[[], float]
"""Returns a new random number from [0, 1) at each call."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """What else could be asked for, where a policy finds nothing to merge.

    Attributes:
        policy: decides instead.
        options: one of that policy's `options`.
        threshold: the one that the options name; None for none.
    """

    policy: Policy
    options: Any
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a policy decided.

    Attributes:
        drafts: what to merge, the most urgent first. They share no block, each is within one partition, and all their
            blocks are `TableView.selectable`; or `selectable_for` the sort of a draft that names another one. Each has
            a level from `next_level` of its blocks to `MOST_LEVEL`. One that lowers what its blocks cover
            (`draft.lowers_coverage`) may have `TableView.separable` blocks too, and the level `MOST_LEVEL`. One of a
            single `TableView.renewable` block may keep its level, at least 1.
        rejections: what was not selected, and why.
        state: to hand in at the next plan, once this one was carried out.
        alternatives: what may find something where there are no drafts, the cheapest first. Each is planned too; those
            that would part blocks are the plan's advice.
    """

    drafts: tuple[Draft, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    state: State = None
    alternatives: tuple[Alternative, ...] = ()


class Policy(Protocol):
    """A way to choose what to merge.

    Three members may be missing: `works_without_key`, true where it selects in tables without a cluster key, too
    (`TableView.sort_id` is then that of `AS_LISTED`); `sort_terms(options)`, which returns the terms of the sort that
    all its groups get (`TableView.asked_sort`), or None for the cluster key; and `lowers_depth`, true where it merges
    to bring down depth: then groups along a curve that would not let ranges read less are taken from its decision, and
    it is asked again if none is left (`box_test.py`). It may ask `TableView.spares` itself, and go on to others.

    Attributes:
        name: what plans and commands call it.
        summary: what it does, after "NAME, which .."; help shows it. It may be missing (`summary_of`).
        options: a frozen dataclass of its own options; each has a default. Its flags and their help follow from that.
    """

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> type: ...

    def decide(
        self,
        view: TableView,
        budget: Budget,
        options: Any,
        *,
        workload: Workload,
        state: State,
        rates: Rates,
        now: float,
        rng: Rng,
    ) -> Decision:
        """Return what to merge.

        Args:
            view: the table.
            budget: what the plan may rewrite. The planner cuts what exceeds it; a policy may heed it to choose better.
                One whose state says what was merged has to: it fits its drafts to the budget itself, with `Room`,
                since nobody tells it what was cut.
            options: one of `self.options`.
            workload: what was asked of the table lately.
            state: that of the last decision that was carried out, at least in part, or had nothing to merge. Groups of
                it may have failed, or lost to other writers: the view tells what the table has become.
            rates: what reading and rewriting take: measured in the last runs of the table, else stated defaults.
            now: seconds since 1970-01-01 UTC.
            rng: the only source of randomness.
        """


def summary_of(policy: Policy) -> str:
    """Return what a policy does, as its `summary` says; "" without one."""
    found: str = getattr(policy, "summary", "")
    return found


def works_without_key(policy: Policy) -> bool:
    """Return whether a policy selects in tables without a cluster key, too."""
    return bool(getattr(policy, "works_without_key", False))


def lowers_depth(policy: Policy) -> bool:
    """Return whether a policy merges to bring down depth."""
    return bool(getattr(policy, "lowers_depth", False))


def sort_terms(policy: Policy, options: Any) -> str | None:
    """Return the terms of the sort that a policy's groups get; None for the cluster key."""
    terms = getattr(policy, "sort_terms", None)
    found: str | None = None if terms is None else terms(options)
    return found
