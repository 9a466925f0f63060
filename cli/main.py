"""The command's entry point."""

from __future__ import annotations


def run() -> None:
    """Run."""
