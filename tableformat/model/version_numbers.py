"""The numbers of versions: sequences of tables of tblctl's own, and ids of Iceberg's snapshots."""

from __future__ import annotations

_MOST_DIGITS = 19
"""Ids of snapshots have 63 bits. A longer number is none, and Python refuses to read one of thousands of digits."""


def is_version_number(text: str) -> bool:
    """Return whether a text may be the number of a version, so that `int` reads it."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
