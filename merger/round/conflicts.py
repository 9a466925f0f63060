"""Decide which groups of a round may still be committed after others changed the table.

Pure. Invariant: a group conflicts only with edits that removed one of its blocks. Appends never conflict, since a merge
keeps the rows of its inputs and touches no other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tblctl.tableformat.errors import InvalidOptionError


class OnConflict(StrEnum):
    """What a conflict does: drop its group and commit the rest, or commit nothing and raise."""

    SALVAGE = "salvage"
    FAIL = "fail"

    @classmethod
    def named(cls, name: str) -> OnConflict:
        """Return the choice of a name.

        Raises:
            InvalidOptionError: there is none.
        """
        try:
            return cls(name)
        except ValueError as error:
            choices = " or ".join(repr(str(choice)) for choice in cls)
            raise InvalidOptionError(f"on_conflict is {name!r}, expected {choices}") from error


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which groups are `kept`, and which are `dropped` with their missing blocks; by number."""

    kept: tuple[int, ...]
    dropped: Mapping[int, tuple[str, ...]]


def salvage(groups: Mapping[int, Collection[str]], gone: Collection[str]) -> Verdict:
    """Return which of `groups` (blocks by number) remain after the blocks `gone` left the table."""
    left = frozenset(gone)
    lost = {number: tuple(sorted(left.intersection(paths))) for number, paths in groups.items()}
    return Verdict(
        kept=tuple(number for number, paths in lost.items() if not paths),
        dropped={number: paths for number, paths in lost.items() if paths},
    )
