"""Decide which groups of a round may still be committed after others changed the table.

Pure. Invariant: a group conflicts only with edits that removed one of its blocks. Appends never conflict, since a merge
keeps the rows of its inputs and touches no other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


def conflicts(groups: Mapping[int, Collection[str]], gone: Collection[str]) -> dict[int, tuple[str, ...]]:
    """Return the groups that lost blocks now that the blocks `gone` have left the table, and these blocks, sorted.

    Groups are given, and returned, by number.
    """
    left = frozenset(gone)
    lost = {number: tuple(sorted(left.intersection(paths))) for number, paths in groups.items()}
    return {number: paths for number, paths in lost.items() if paths}


def left_the_table(paths: Sequence[str]) -> str:
    """Return the reason why a group conflicts, for people."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more} left the table"
