"""How often a commit is tried, and how long to wait in between, by the table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_RETRIES = 20  # Iceberg's default is 4: a recluster lets every other writer pass
_LEAST_WAIT_MS = 100
_MOST_WAIT_MS = 60_000
_MOST_TIME_MS = 30 * 60_000
LEAST_SILENCE_SECONDS = 60.0
"""A catalog or storage that cannot be reached is waited for so long, or as long as the merge took, which may be hours:
that is what giving up costs."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The properties `commit.retry.*` of a table.

    Attributes:
        retries: after the first attempt.
        least_wait, most_wait: seconds; the wait doubles in between.
        most_time: seconds of all attempts together.
    """

    retries: int
    least_wait: float
    most_wait: float
    most_time: float

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Patience:
        """Return what the properties say. One that is no number counts as not set."""

        def number(name: str, default: int) -> int:
            text = properties.get(f"commit.retry.{name}", "")
            return int(text) if text.isdecimal() else default

        return cls(
            retries=number("num-retries", _RETRIES),
            least_wait=number("min-wait-ms", _LEAST_WAIT_MS) / 1000,
            most_wait=number("max-wait-ms", _MOST_WAIT_MS) / 1000,
            most_time=number("total-timeout-ms", _MOST_TIME_MS) / 1000,
        )

    def is_over(self, attempt: int, *, seconds: float, silent_seconds: float, merge_seconds: float) -> bool:
        """Return whether no attempt follows the one with this number, counted from 1.

        Args:
            attempt: the number.
            seconds: since the first one began.
            silent_seconds: since when neither catalog nor storage has answered; 0 if they did.
            merge_seconds: what the merge took.
        """
        longest_silence = max(LEAST_SILENCE_SECONDS, merge_seconds)
        return attempt > self.retries or seconds > self.most_time or silent_seconds > longest_silence

    def wait(self, attempt: int, chance: float) -> float:
        """Return the seconds to wait after an attempt, counted from 1; `chance` is in [0, 1)."""
        longest = min(self.most_wait, self.least_wait * 2.0 ** min(attempt - 1, 30))
        return longest * (0.5 + chance / 2)
