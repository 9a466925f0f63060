"""How far a long operation is, told while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, "int | None", str], None]
"""Is called with what is done, what there is in all (None if that is not known), and the unit: bytes, rows, groups."""
