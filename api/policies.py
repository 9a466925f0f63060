"""The policies that choose what to merge: their names, what may be asked of each, and how a program adds its own."""

from __future__ import annotations

from dataclasses import dataclass

from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft
from tblctl.selector.option_fields import Option, option, options_of
from tblctl.selector.policy import Decision, Policy
from tblctl.selector.registry import DEFAULT_POLICY, register, registered, unregister
from tblctl.selector.table_view import TableView

__all__ = [
    "DEFAULT_POLICY",
    "Budget",
    "Decision",
    "Draft",
    "Flag",
    "Option",
    "Policy",
    "TableView",
    "budget_options",
    "flags",
    "option",
    "register",
    "summaries",
    "unregister",
]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An option of policies, as a command takes it: named alike in several policies, it is one flag.

    Attributes:
        option: as the first policy that has it declares it.
        policies: the names of those that have it.
    """

    option: Option
    policies: tuple[str, ...]


def flags() -> tuple[Flag, ...]:
    """Return the options of all policies, in the order in which these were registered."""
    found: dict[str, list[Option]] = {}
    owners: dict[str, list[str]] = {}
    for policy in registered():
        for item in options_of(policy.options):
            found.setdefault(item.name, []).append(item)
            owners.setdefault(item.name, []).append(policy.name)
    return tuple(Flag(option=items[0], policies=tuple(owners[name])) for name, items in found.items())


def budget_options() -> tuple[Option, ...]:
    """Return the options of a budget."""
    return options_of(Budget)


def summaries() -> dict[str, str]:
    """Return what each policy does, by name; "" where it does not say."""
    return {policy.name: getattr(policy, "summary", "") for policy in registered()}
