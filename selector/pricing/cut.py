"""Keep a plan within its limits of seconds and money, and take the best drafts first where a limit cuts.

A draft is measured by what it brings for what it costs: how far it lowers the depths of its blocks, added up, for each
byte of their files. Both figures are of the forecast, so a draft that gets another sort than the current one, of which
no forecast is made, comes last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tblctl.metrics.intervals import Integers
from tblctl.selector.budget import Budget, Room, affordable, cut_draft
from tblctl.selector.draft import MOST_GROUPS, Draft
from tblctl.selector.predict.forecast import forecast
from tblctl.selector.pricing.predict import prices
from tblctl.selector.pricing.price import Price
from tblctl.selector.pricing.rates import Rates
from tblctl.selector.table_view import TableView, joined


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """The drafts that fit a budget, and what does not.

    Attributes:
        drafts: those that fit.
        priced: the price of each.
        left: the blocks that do not fit, by the rule that they break.
        least: by rule, for seconds and money: the price of the cheapest whole draft that breaks it.
    """

    drafts: list[Draft]
    priced: list[Price]
    left: dict[str, Integers]
    least: dict[str, Price] = field(default_factory=dict)


def fitting(view: TableView, drafts: Sequence[Draft], budget: Budget, rates: Rates) -> Fitting:
    """Return what fits the budget: the drafts as they are if all fit, else the best of them, best first."""
    priced = prices(view, drafts, rates, budget)
    if not Purse.of(budget).broken(priced) and Room.of(budget).holds(
        view, [draft.blocks for draft in drafts]
    ):
        return Fitting(drafts=list(drafts), priced=priced, left={})
    spends = any(limit is not None for limit in (budget.max_bytes, budget.max_seconds, budget.max_cost))
    ordered = best_first(view, drafts) if spends else list(drafts)
    taken, left = affordable(view, ordered, budget)
    within = _within(view, taken, budget, rates)
    return replace(within, left={**left, **within.left})


def best_first(view: TableView, drafts: Sequence[Draft]) -> list[Draft]:
    """Return the drafts by what they bring for a byte, most first; equal ones as they were. One forecast."""
    if len(drafts) < 2:  # noqa: PLR2004
        return list(drafts)
    found = forecast(view, drafts)
    gains = [
        0.0
        if before is None or after is None
        else (before - after) * draft.blocks.size / max(int(view.size_bytes[draft.blocks].sum()), 1)
        for draft, before, after in zip(
            drafts, found.group_depth_before, found.group_depth_after, strict=True
        )
    ]
    order = np.argsort(-np.array(gains), kind="stable").tolist()
    return [drafts[number] for number in order]


def _within(view: TableView, drafts: Sequence[Draft], budget: Budget, rates: Rates) -> Fitting:
    """Return what the seconds and the money hold.

    A draft that does not fit is cut to its first blocks, as many as do; then the next one is tried.
    """
    taken: list[Draft] = []
    priced: list[Price] = []
    left: dict[str, list[Integers]] = {}
    least: dict[str, Price] = {}
    purse = Purse.of(budget)
    most = MOST_GROUPS if budget.max_groups is None else min(budget.max_groups, MOST_GROUPS)
    for number, (draft, whole) in enumerate(zip(drafts, prices(view, drafts, rates, budget), strict=True)):
        rule = purse.broken([whole])
        parts, found = [draft], [whole]
        if rule:
            groups = most - len(taken) - (len(drafts) - number - 1)
            parts, found = _part_within(view, draft, purse, rule=rule, groups=groups, asked=(rates, budget))
            kept = joined(part.blocks for part in parts)
            left.setdefault(rule, []).append(np.setdiff1d(draft.blocks, kept, assume_unique=True))
            least[rule] = min(least.get(rule, whole), whole, key=SPENT[rule])
        taken += parts
        priced += found
        purse = purse.after(found)
    blocks_left = {rule: joined(blocks) for rule, blocks in left.items()}
    return Fitting(drafts=taken, priced=priced, left=blocks_left, least=least)


def _part_within(
    view: TableView, draft: Draft, purse: Purse, *, rule: str, groups: int, asked: tuple[Rates, Budget]
) -> tuple[list[Draft], list[Price]]:
    """Return what fits of a draft that does not fit as a whole, and its prices.

    Halving finds the number of blocks; what is returned fits even where the price does not grow with it.
    """
    parts: list[Draft] = []
    found: list[Price] = []
    fits, too_many = 1, draft.blocks.size
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        tried = cut_draft(view, draft, middle, rule, groups)
        tried_prices = prices(view, tried, *asked)
        if purse.broken(tried_prices):
            too_many = middle
        else:
            fits, parts, found = middle, tried, tried_prices
    return parts, found


SPENT: Mapping[str, Callable[[Price], float]] = {
    "max_seconds": lambda price: price.seconds,
    "max_cost": lambda price: price.cost or 0.0,
}
"""What a group takes of the limit that a rule names."""


@dataclass(frozen=True, kw_only=True)
class Purse:
    """The seconds and the money that are left; infinite without a limit."""

    seconds: float
    cost: float

    @classmethod
    def of(cls, budget: Budget) -> Purse:
        """Return what a budget gives."""
        return cls(
            seconds=math.inf if budget.max_seconds is None else budget.max_seconds,
            cost=math.inf if budget.max_cost is None else budget.max_cost,
        )

    def after(self, priced: Sequence[Price]) -> Purse:
        """Return what is left after groups of these prices."""
        return Purse(
            seconds=self.seconds - sum(item.seconds for item in priced),
            cost=self.cost - sum(item.cost or 0.0 for item in priced),
        )

    def broken(self, priced: Sequence[Price]) -> str:
        """Return the rule that groups of these prices break; "" for none."""
        left = self.after(priced)
        if left.seconds < 0:
            return "max_seconds"
        return "max_cost" if left.cost < 0 else ""
