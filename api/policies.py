"""The policies that choose what to merge: their names, what may be asked of each, and how others are added.

A program adds one with `register`, or hands it to `Table.plan` and `Table.recluster`. A package offers one to every
program and to the command with an entry point (`installed.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.installed import INSTALLED
from tblctl.selector import registry
from tblctl.selector.budget import Budget, Room
from tblctl.selector.checks import require_policy
from tblctl.selector.draft import Draft, next_level, worth_merging
from tblctl.selector.option_fields import Option, option, options_of
from tblctl.selector.plan import Rejection
from tblctl.selector.policy import Alternative, Decision, Policy, Rates, Rng, State, Workload, summary_of
from tblctl.selector.registry import DEFAULT_POLICY, register, unregister
from tblctl.selector.rejections import rejection
from tblctl.selector.table_view import TableView
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.options import POLICY, TableOptions

TBLCTL = "tblctl"
"""The source of tblctl's own policies."""

__all__ = [
    "DEFAULT_POLICY",
    "Alternative",
    "Budget",
    "Decision",
    "Draft",
    "Flag",
    "Option",
    "Policy",
    "PolicyInfo",
    "Rates",
    "Rejection",
    "Rng",
    "Room",
    "Sort",
    "State",
    "TableView",
    "Term",
    "Workload",
    "budget_options",
    "flags",
    "listed",
    "next_level",
    "option",
    "policy_of",
    "register",
    "rejection",
    "summaries",
    "unregister",
    "worth_merging",
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


@dataclass(frozen=True, kw_only=True)
class PolicyInfo:
    """What is known of a policy, or of one that a package offers and that cannot be used.

    Attributes:
        name: what plans and commands call it.
        summary: what it does, after "NAME, which ..".
        source: tblctl; the package that offers it, with its version; or program, if a program registered it.
        options: its own options. Those of the budget go with any policy.
        is_default: it decides where none is named.
        problem: why it cannot be used; None if it can.
    """

    name: str
    summary: str = ""
    source: str = TBLCTL
    options: tuple[Option, ...] = ()
    is_default: bool = False
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON values; an option with its name, type, default, unit, least, most and help."""
        options = [
            {
                "name": item.name,
                "type": item.kind.__name__,
                "default": item.default,
                "unit": item.unit,
                "least": item.least,
                "most": item.most,
                "help": item.help,
            }
            for item in self.options
        ]
        return {**vars(self), "options": options}


def policy_of(policy: str | Policy | None) -> Policy:
    """Return the policy of a name, or the given one; the default for None.

    Raises:
        InvalidOptionError: there is none of that name, it cannot be loaded, or the given one is no policy.
    """
    name = DEFAULT_POLICY if policy is None else policy
    if not isinstance(name, str):
        return require_policy(name)
    if not registry.is_registered(name):
        broken = INSTALLED.load()
        if name in broken and not registry.is_registered(name):
            raise InvalidOptionError(broken[name])
    return registry.policy_named(name)


def require_policy_of(options: Mapping[str, Any]) -> None:
    """Refuse options of a table whose `recluster.policy` names no policy that is known here.

    Raises:
        InvalidOptionError: it does.
    """
    name = TableOptions.from_mapping({POLICY: options.get(POLICY)}).recluster_policy
    if name is not None:
        policy_of(name)


def flags() -> tuple[Flag, ...]:
    """Return the options of all policies, in the order of registration."""
    found: dict[str, list[Option]] = {}
    owners: dict[str, list[str]] = {}
    for policy in _all():
        for item in options_of(policy.options):
            found.setdefault(item.name, []).append(item)
            owners.setdefault(item.name, []).append(policy.name)
    return tuple(Flag(option=items[0], policies=tuple(owners[name])) for name, items in found.items())


def budget_options() -> tuple[Option, ...]:
    """Return the options of a budget."""
    return options_of(Budget)


def summaries() -> dict[str, str]:
    """Return what each policy does, by name."""
    return {policy.name: summary_of(policy) for policy in _all()}


def listed() -> tuple[PolicyInfo, ...]:
    """Return all policies in the order of registration, then those of packages that cannot be used."""
    found = [
        PolicyInfo(
            name=policy.name,
            summary=summary_of(policy),
            source=TBLCTL if registry.is_own(policy.name) else INSTALLED.sources.get(policy.name, "program"),
            options=options_of(policy.options),
            is_default=policy.name == DEFAULT_POLICY,
        )
        for policy in _all()
    ]
    broken = (
        PolicyInfo(name=name, source="package", problem=problem)
        for name, problem in INSTALLED.load().items()
        if not registry.is_registered(name)
    )
    return (*found, *broken)


def _all() -> tuple[Policy, ...]:
    INSTALLED.load()
    return registry.registered()
