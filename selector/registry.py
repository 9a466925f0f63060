"""The policies by name. A program may add its own: `POLICIES["mine"] = function`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TypeAlias

from tblctl.selector.candidates import Context
from tblctl.selector.plan import Plan
from tblctl.selector.policies.full import plan_full
from tblctl.selector.policies.levels import plan_levels
from tblctl.tableformat.errors import InvalidOptionError

Policy: TypeAlias = Callable[[Context], Plan]
"""A pure function: what it returns depends on the context alone."""

DEFAULT_POLICY = "levels"

POLICIES: dict[str, Policy] = {"levels": plan_levels, "full": plan_full}


def policy_named(name: str) -> Policy:
    """Return the policy of a name.

    Raises:
        InvalidOptionError: there is none; the nearest name is named.
    """
    found = POLICIES.get(name)
    if found is None:
        near = difflib.get_close_matches(str(name), POLICIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"policies are {', '.join(POLICIES)}"
        raise InvalidOptionError(f"unknown policy {name!r}; {hint}")
    return found
