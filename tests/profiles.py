"""How many cases random tests try.

Each test says how many it needs on every commit. `HYPOTHESIS_PROFILE=thorough` (`make test-thorough`) multiplies all of
them alike; tests that say nothing take what their profile has in conftest.py.
"""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "default")
THOROUGH = PROFILE == "thorough"

_TIMES = 60
"""4,800 cases for a test without its own count: 60 times those of CI."""


def cases(count: int) -> int:
    """Return how many cases a test tries that needs `count` on every commit."""
    return count * _TIMES if THOROUGH else count
