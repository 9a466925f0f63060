"""How long a recluster loop waits between its steps."""

from __future__ import annotations

from dataclasses import dataclass

from tblctl.tableformat.environment import Environment


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long to wait between steps, and how often.

    Attributes:
        first_retry_seconds, longest_retry_seconds: before a round after one that lost all groups to other writers; the
            wait doubles from the first to the longest, and is shortened by up to a half at random.
        first_idle_seconds, longest_idle_seconds: the same with nothing to do.
        most_fruitless: rounds in a row that may commit nothing before the loop gives up; an endless one then waits
            about `longest_retry_seconds` before each further round.
    """

    first_retry_seconds: float = 0.1
    longest_retry_seconds: float = 10.0
    first_idle_seconds: float = 1.0
    longest_idle_seconds: float = 60.0
    most_fruitless: int = 10


def wait_seconds(env: Environment, number: int, first: float, longest: float) -> float:
    """Return a wait that doubles with its number, and differs from one process to another."""
    doubled = first * 2.0 ** min(number, _MOST_DOUBLINGS)
    return min(longest, doubled) * (0.5 + env.random() / 2)


_MOST_DOUBLINGS = 60  # 2.0 ** 1024 is no float
