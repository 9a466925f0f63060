"""Whether a group of a round may still begin, by the seconds and the money that the plan's budget gives.

A group begins only if it is expected to end within them. So the round exceeds them by at most what the groups under
way take longer than predicted: one group, where groups follow each other. Spark gets the tasks of many groups at once;
there the plan alone keeps to the budget.
"""

from __future__ import annotations

from collections.abc import Callable

from tblctl.selector.plan import Group, PlanOptions
from tblctl.selector.pricing.price import cost_of


class BudgetClock:
    """Follows the groups of a round from its begin on.

    Args:
        options: of the plan, with its budget.
        elapsed: returns seconds by a clock that never goes back.
    """

    def __init__(self, options: PlanOptions, elapsed: Callable[[], float]) -> None:
        self._budget, self._elapsed = options.budget, elapsed
        self._begin = elapsed()
        self._settled = 0.0  # seconds from the begin to the last end of a group
        self._open: dict[int, float] = {}  # predicted seconds of groups under way
        self._size_bytes = 0  # of the files of all groups that began

    def refusal(self, group: Group) -> str:
        """Return why a group may not begin any more; "" if it may. One without a price always may."""
        if group.price is None:
            return ""
        seconds = self._settled + sum(self._open.values()) + group.price.seconds
        most = self._budget.max_seconds
        if most is not None and seconds > most:
            return (
                f"max_seconds: it was expected to end after {seconds:.1f} s of the {most:.1f} s that are left"
            )
        cost = cost_of(
            self._size_bytes + group.price.bytes_read,
            seconds,
            price_per_gib=self._budget.price_per_gib,
            price_per_hour=self._budget.price_per_hour,
        )
        limit = self._budget.max_cost
        if limit is not None and cost is not None and cost > limit:
            return f"max_cost: with it the round was expected to cost {cost:.4g} of the {limit:.4g} that are left"
        return ""

    def begin(self, group: Group) -> None:
        """Note that a group begins."""
        self._open[group.number] = 0.0 if group.price is None else group.price.seconds
        self._size_bytes += group.size_bytes

    def end(self, number: int) -> None:
        """Note that a group ended, one way or another; one that never began changes nothing."""
        if self._open.pop(number, None) is not None:
            self._settled = self._elapsed() - self._begin
