"""The interface of a policy: it decides which blocks to merge. The planner does the rest (`planner.py`).

    class Oldest:
        name = "oldest"
        options = OldestOptions  # a frozen dataclass of `option_fields.option` fields

        def decide(self, view, budget, options, *, workload, state, rates, now, rng):
            ...
            return Decision(drafts=(Draft(blocks=numbers, output_level=1, why="the oldest"),))

    register(Oldest())

A policy is pure: its decision depends on its arguments alone, and it changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft
from tblctl.selector.plan import Rejection
from tblctl.selector.table_view import TableView

Workload: TypeAlias = Any
"""Recent queries of the table; None if unknown."""

State: TypeAlias = Any
"""A policy's state from one plan to the next; None at first. The caller keeps it."""

Rates: TypeAlias = Any
"""Costs of reading and rewriting; None if unknown."""

Rng: TypeAlias = Callable[[], float]
"""Returns a new random number from [0, 1) at each call."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a policy decided.

    Attributes:
        drafts: what to merge, the most urgent first. They share no block, each is within one partition, and all their
            blocks are `TableView.selectable`.
        rejections: what was not selected, and why.
        state: for the next plan.
    """

    drafts: tuple[Draft, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    state: State = None


class Policy(Protocol):
    """A way to choose what to merge.

    Attributes:
        name: its name in plans and commands.
        options: a frozen dataclass of its own options; each has a default. Its flags and their help follow from that.
        summary: what it does, after "NAME, which .."; may be missing.
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
            budget: how much the plan may rewrite. The planner cuts the excess; a policy may use it to choose better.
            options: an instance of `self.options`.
            workload: recent queries of the table.
            state: from the decision before.
            rates: costs of reading and rewriting.
            now: seconds since 1970-01-01 UTC.
            rng: the only source of randomness.
        """
