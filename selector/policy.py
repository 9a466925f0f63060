"""What a policy is: it decides which blocks to merge. The planner does the rest (`planner.py`).

    class Oldest:
        name = "oldest"
        options = OldestOptions  # a frozen dataclass of `option_fields.option` fields

        def decide(self, view, budget, options, *, workload, state, rates, now, rng):
            ...
            return Decision(drafts=(Draft(blocks=numbers, output_level=1, why="the oldest"),))

    register(Oldest())

A policy is pure: what it decides depends on its arguments alone, and it changes none of them.
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
"""What was asked of the table lately; None where that is not known."""

State: TypeAlias = Any
"""What a policy remembers from one plan to the next; None at first. The caller keeps it."""

Rates: TypeAlias = Any
"""What reading and rewriting cost; None where that is not known."""

Rng: TypeAlias = Callable[[], float]
"""Returns a number from [0, 1), another one each time."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a policy decided.

    Attributes:
        drafts: what to merge, the most urgent first. They share no block, each is within one partition, and all their
            blocks are `TableView.selectable`; or `selectable_for` the sort of a draft that names another one.
        rejections: what was not selected, and why.
        state: to hand in at the next plan.
    """

    drafts: tuple[Draft, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    state: State = None


class Policy(Protocol):
    """A way to choose what to merge.

    Attributes:
        name: what plans and commands call it.
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
            budget: what the plan may rewrite. The planner cuts what exceeds it; a policy may heed it to choose better.
            options: one of `self.options`.
            workload: what was asked of the table lately.
            state: that of the decision before.
            rates: what reading and rewriting cost.
            now: seconds since 1970-01-01 UTC.
            rng: the only source of chance.
        """
