"""Sizes as people read them. Loads nothing, since every command needs it."""

from __future__ import annotations

_SIZE_STEP = 1024


def size_text(size_bytes: int) -> str:
    """Return bytes for people: `512 B`, `1.5 KiB`, `194.0 MiB`."""
    value, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= _SIZE_STEP and len(units) > 1:
        value, units = value / _SIZE_STEP, units[1:]
    return f"{value:,.1f} {units[0]}" if units[0] != "B" else f"{size_bytes} B"
