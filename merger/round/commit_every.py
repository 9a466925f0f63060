"""When a round commits merged groups before its end.

Committed groups stay, whatever happens to the rest: a driver that dies loses only groups that waited. A commit costs
writers nothing; it costs the table a snapshot and a rewrite of the segments that it touches. A group that waits may
lose a block to another writer, and was then merged in vain. So a round that is free to choose (`BESIDE_OTHERS`) makes
one commit where nobody else writes, and otherwise commits each group as it is merged.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import parse_duration


@dataclass(frozen=True, kw_only=True)
class CommitEvery:
    """A commit is due if `groups` merged groups wait, or one waits and the last commit is `seconds` seconds ago.

    With `adapts`, also if one waits and another writer has committed since the round began.
    """

    groups: float = math.inf
    seconds: float = math.inf
    adapts: bool = False

    @classmethod
    def of(cls, value: int | str | datetime.timedelta | None) -> CommitEvery:
        """Return the rule for a caller's value: 8 (groups), "8", "60s", a timedelta, or None to adapt to other writers.

        Raises:
            InvalidOptionError: it is none of these, or not above 0.
        """
        if value is None:
            return BESIDE_OTHERS
        found = _read(value)
        if found is None or min(found.groups, found.seconds) <= 0:
            msg = f"commit_every is {value!r}, expected a number of groups such as 8, or a time such as 60s or 5m"
            raise InvalidOptionError(msg)
        return found

    def is_due(self, *, groups: int, seconds: float) -> bool:
        """Return whether to commit `groups` that wait, `seconds` after the last commit or the round's start."""
        return groups > 0 and (groups >= self.groups or seconds >= self.seconds)


AT_END = CommitEvery()
"""One commit a round."""

BESIDE_OTHERS = CommitEvery(adapts=True)
"""One commit a round, or from another writer's commit on one for each group."""


def _read(value: Any) -> CommitEvery | None:
    if isinstance(value, datetime.timedelta):
        return CommitEvery(seconds=value.total_seconds())
    if isinstance(value, int) and not isinstance(value, bool):
        return CommitEvery(groups=value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return CommitEvery(groups=int(text))
    try:
        return CommitEvery(seconds=parse_duration(text))
    except InvalidOptionError:
        return None
