"""Decide which groups of a round may still be committed once others changed the table.

Pure. Invariant: a group conflicts only with edits that removed one of its blocks. Appends never conflict, since a merge
keeps the rows of its inputs and touches no others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which groups are `kept`, and for those that are `dropped`, the blocks of theirs that are gone; by number."""

    kept: tuple[int, ...]
    dropped: Mapping[int, tuple[str, ...]]


def salvage(groups: Mapping[int, Collection[str]], gone: Collection[str]) -> Verdict:
    """Return what is left of `groups`, blocks by number, now that the blocks `gone` have left the table."""
    left = frozenset(gone)
    lost = {number: tuple(sorted(left.intersection(paths))) for number, paths in groups.items()}
    return Verdict(
        kept=tuple(number for number, paths in lost.items() if not paths),
        dropped={number: paths for number, paths in lost.items() if paths},
    )
