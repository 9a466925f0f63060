"""What a run of several rounds has spent, and what its budget still gives: pure.

`max_bytes`, `max_seconds` and `max_cost` say what a run may spend, so with `final` they hold for all rounds together.
`max_blocks` and `max_groups` say how large a round may be, and hold for each (`pacing.py` for groups that were put
back). `target_depth` is of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tblctl.merger.round.group_run import LEFT, GroupOutcome
from tblctl.selector.budget import Budget
from tblctl.selector.plan import Plan
from tblctl.selector.pricing.price import cost_of
from tblctl.sizes import size_text

_NOTHING_SECONDS = 1e-9
_NOTHING_COST = 1e-12
_NOTHING_BYTES = 1
"""The least that a budget can be given: no group fits into it."""

SPENDING = ("max_bytes", "max_seconds", "max_cost")
"""The limits of what is spent."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Bytes of all groups that began, committed or not: those decoded, and those of all their files."""

    decoded_bytes: int = 0
    read_bytes: int = 0

    def plus(self, groups: Iterable[GroupOutcome]) -> Spent:
        """Return what is spent after another round."""
        decoded, read = self.decoded_bytes, self.read_bytes
        for group in groups:
            if group.status == LEFT:
                continue
            # Tasks that share a row group count it each; the files are the most that a group has.
            most = group.bytes_read if group.predicted is None else group.predicted.bytes_read
            decoded += min(group.bytes_read - group.bytes_copied, most)
            read += most
        return Spent(decoded_bytes=decoded, read_bytes=read)


def left_of(budget: Budget, spent: Spent, seconds: float) -> Budget:
    """Return the budget of a round that begins after so many seconds of the run."""
    found = budget
    if budget.max_bytes is not None:
        found = replace(found, max_bytes=max(budget.max_bytes - spent.decoded_bytes, _NOTHING_BYTES))
    if budget.max_seconds is not None:
        found = replace(found, max_seconds=max(budget.max_seconds - seconds, _NOTHING_SECONDS))
    if budget.max_cost is not None:
        cost = cost_of(
            spent.read_bytes,
            seconds,
            price_per_gib=budget.price_per_gib,
            price_per_hour=budget.price_per_hour,
        )
        found = replace(found, max_cost=max(budget.max_cost - (cost or 0.0), _NOTHING_COST))
    return found


def used_up(plan: Plan, budget: Budget) -> Plan:
    """Return a plan for the rest of a budget. If that left no room for groups, its note says what it leaves out."""
    limits = {rule: limit for rule in SPENDING if (limit := getattr(budget, rule)) is not None}
    short = [item for item in plan.rejected if item.rule in plan.options.limits]
    named = {rule: limit for rule, limit in limits.items() if any(item.rule == rule for item in short)}
    if plan.groups or not named:
        return plan
    blocks, size = sum(item.blocks for item in short), size_text(sum(item.size_bytes for item in short))
    texts = " and ".join(
        f"{rule}, {size_text(limit) if rule == 'max_bytes' else limit}" for rule, limit in named.items()
    )
    note = f"the rest of the budget ({texts}) holds no further group: it leaves out {blocks} blocks of {size}"
    return replace(plan, note=note)
