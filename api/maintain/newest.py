"""Read the newest version of a table while others commit, and gc removes what they replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tblctl.tableformat.errors import ConflictError, CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.port import TablePort, VersionT

ResultT = TypeVar("ResultT")

GONE = (CorruptTableError, ObjectNotFoundError)
"""What reading a version raises whose metadata gc removes meanwhile."""

_TRIES = 10


def on_newest(port: TablePort[VersionT], read: Callable[[VersionT], ResultT]) -> ResultT:
    """Return what `read` returns for the newest version; if that expires meanwhile, for the one that is newest then.

    Raises:
        ConflictError: version after version expired.
        CorruptTableError, ObjectNotFoundError: the newest version lacks an object, or one of its objects is damaged.
    """
    version, problem = port.newest(), None
    for _ in range(_TRIES):
        try:
            return read(version)
        except GONE as error:
            newest = port.newest()
            if newest.id == version.id:
                raise
            problem, version = error, newest
    msg = (
        f"{port.location}: {_TRIES} times in a row the newest version was replaced, and could not be read any more "
        f"({problem}); try again, and let gc keep versions that are younger than this takes (--older-than)"
    )
    raise ConflictError(msg) from problem
