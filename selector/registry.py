"""The policies by name. A program may add its own: `register(policy)`."""

from __future__ import annotations

import difflib

from tblctl.selector.checks import require_agreement, require_policy
from tblctl.selector.policies.depth import Depth
from tblctl.selector.policies.full import Full
from tblctl.selector.policies.levels import Levels
from tblctl.selector.policies.newdata import NewData
from tblctl.selector.policies.runs import Runs
from tblctl.selector.policies.size import Size
from tblctl.selector.policies.sort_one import SortOne
from tblctl.selector.policies.workload import Workload
from tblctl.selector.policy import Policy
from tblctl.tableformat.errors import InvalidOptionError

DEFAULT_POLICY = "levels"

_POLICIES: dict[str, Policy] = {}


def register(policy: Policy) -> None:
    """Add a policy, so that plans can name it; the command gets a flag for each of its options.

    Raises:
        InvalidOptionError: it is no policy; lists every problem. Or there is another policy of that name, or one with
            an option of that name that is of another kind or unit.
    """
    require_policy(policy)
    require_agreement(policy, registered())
    known = _POLICIES.setdefault(policy.name, policy)
    if known is not policy:
        raise InvalidOptionError(f"there is a policy {policy.name!r} already; give yours another name")


def unregister(name: str) -> None:
    """Remove a policy that a program added."""
    if is_own(name):
        raise InvalidOptionError(f"{name!r} is one of tblctl's own policies, which cannot be removed")
    _POLICIES.pop(name, None)


def registered() -> tuple[Policy, ...]:
    """Return the policies, tblctl's own first."""
    return tuple(_POLICIES.values())


def is_registered(name: str) -> bool:
    """Tell whether there is a policy of a name."""
    return name in _POLICIES


def is_own(name: str) -> bool:
    """Tell whether a policy is one of tblctl's own."""
    return name in _OWN


def policy_named(name: str) -> Policy:
    """Return the policy of a name.

    Raises:
        InvalidOptionError: there is none; the error suggests the nearest name.
    """
    found = _POLICIES.get(name)
    if found is None:
        near = difflib.get_close_matches(str(name), _POLICIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"policies are {', '.join(_POLICIES)}"
        raise InvalidOptionError(f"unknown policy {name!r}; {hint}")
    return found


for _policy in (Levels(), Full(), Runs(), Size(), SortOne(), Workload(), Depth(), NewData()):
    register(_policy)
_OWN = frozenset(_POLICIES)
