"""The budget of equation 5 of the WAIR paper: reclusters may take what earlier ones saved, less what these took.

Savings are realised ones (`workload/savings.py`): queries of the log, replayed on the bounds of the blocks before and
after each recluster. To that comes an allowance of seconds for each query, without which nobody could begin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tblctl.maintain.experience import rates_of
from tblctl.maintain.request import Request
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.workload.queries import Query, Workload
from tblctl.workload.savings import RealisedSaving, realised

MOST_VERSIONS = 50
"""Versions of the history that are looked at for reclusters."""

_NOTHING_SECONDS = 1e-9
"""A budget that no group keeps to."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """What reclusters may take now, in seconds.

    Attributes:
        allowed: for queries.
        saved: by the reclusters since the first of the queries; nothing by those of which it is not known.
        spent: by the same.
    """

    allowed: float
    saved: float
    spent: float

    @property
    def seconds(self) -> float:
        """What is left."""
        return max(self.allowed + self.saved - self.spent, 0.0)

    @property
    def text(self) -> str:
        """The same in words."""
        return (
            f"the budget of savings is {self.seconds:.3g} s: {self.allowed:.3g} s allowed to queries, and "
            f"{self.saved:.3g} s saved by reclusters, which took {self.spent:.3g} s"
        )


def credit_of(queries: Sequence[Query], savings: Iterable[RealisedSaving], allowance: float) -> Credit:
    """Return what reclusters may take. Pure.

    Args:
        queries: of the log.
        savings: of the reclusters since the first of them.
        allowance: seconds for each query.
    """
    found = list(savings)
    return Credit(
        allowed=allowance * math.fsum(query.weight for query in queries),
        saved=math.fsum(item.saved_seconds or 0.0 for item in found),
        spent=math.fsum(item.spent_seconds or 0.0 for item in found),
    )


def within_savings(
    request: Request, port: TablePort[Any] | None, version: Version, workload: Workload
) -> Request:
    """Return the request with its seconds limited to what reclusters may take, if its policy has such an option.

    `workload` is what the policy gets. Queries older than the versions that are looked at count for nothing, since what
    was spent then is not known.
    """
    allowance = getattr(request.options.policy, "allowance", None)
    if allowance is None or port is None:
        return request
    found = list(port.history(MOST_VERSIONS, start=version))
    since = found[-1].timestamp_ms / 1000 if len(found) == MOST_VERSIONS else -math.inf
    queries = [query for query in workload.queries if query.time >= since]
    first = min((query.time for query in queries), default=math.inf)
    entries = itertools.takewhile(lambda entry: entry.timestamp_ms >= first * 1000, found)
    version_of = partial(port.version, newest=port.newest())
    credit = credit_of(queries, realised(entries, version_of, queries, rates_of(port, version)), allowance)
    budget = request.options.budget
    seconds = max(credit.seconds, _NOTHING_SECONDS)
    if budget.max_seconds is not None and budget.max_seconds <= seconds:
        return request
    options = replace(request.options, budget=replace(budget, max_seconds=seconds))
    return replace(request, options=options, limited_by=credit.text)
