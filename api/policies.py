"""The policies that choose what to merge: their names, their options, and how a program adds its own."""

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
    """An option of policies as a command's flag. Options of the same name in several policies are one flag.

    Attributes:
        option: as the first policy declares it.
        policies: the names of the policies that have it.
    """

    option: Option
    policies: tuple[str, ...]


def flags() -> tuple[Flag, ...]:
    """Return the options of all policies, in the order of registration."""
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
    """Return the summary of each policy by name; "" if it has none."""
    return {policy.name: getattr(policy, "summary", "") for policy in registered()}
