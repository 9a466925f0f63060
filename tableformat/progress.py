"""Progress events of a long operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, "int | None", str], None]
"""Called with the amount done, the total (None if unknown), and the unit: bytes, rows, groups."""
