"""What other writers did to a table since a round began, as looks at its newest version tell.

A look costs a request or two. It is only a hint that spares work: whether a group conflicts is decided when it is
committed, on top of the version that is newest then. So a look that fails tells nothing, and ends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Generic

from tblctl.merger.round.conflicts import left_the_table
from tblctl.merger.task.spec import TaskFailure
from tblctl.tableformat.errors import CorruptTableError, StorageError, TblctlError
from tblctl.tableformat.port import BlocksReplacedError, TablePort, VersionT

LOOK_SHARE = 0.1
"""The share of the time that slow looks may take: on some catalogs a look takes a second."""

QUICK_LOOK_SECONDS = 0.25
"""Looks that take less are not rationed."""

PAUSE_SECONDS = 1.0
"""Between looks while tasks run, also if these are quick: a group that is given up so much later costs no more."""


class OtherWriters(Generic[VersionT]):
    """Looks for commits of other writers, and for blocks that these removed.

    Args:
        port: the table.
        base: its newest version when the round began.
    """

    def __init__(self, port: TablePort[VersionT], base: VersionT) -> None:
        self._port, self._base = port, base
        self._newest = base
        self._own = base.id  # the id of the version that was committed last, or of the base
        self._wrote = self._removed = False
        self._next_look_seconds = -math.inf
        self._looked_seconds = port.env.elapsed()

    def note_own(self, version: VersionT) -> None:
        """Take note of the round's own commit."""
        self._wrote |= version.parent != self._own
        self._own, self._newest = version.id, version

    def wrote(self) -> bool:
        """Return whether another writer has committed since the round began, as far as is known."""
        if not self._wrote and self._is_due:
            with self._rationed(), suppress(TblctlError):
                self._look()
        return self._wrote

    @property
    def known_to_have_removed(self) -> bool:
        """Whether another writer is known to have removed a block of the round; asks nobody."""
        return self._removed

    @property
    def looked_lately(self) -> bool:
        """Whether the last look, or the round's start, is less than `PAUSE_SECONDS` ago, or the next one is put off."""
        return not self._is_due or self._port.env.elapsed() < self._looked_seconds + PAUSE_SECONDS

    def note_removal(self) -> None:
        """Take note that another writer removed a block of the round, as a commit found out."""
        self._removed = True

    def took(self, paths: Collection[str]) -> tuple[str, ...]:
        """Do `took_inputs`, unless slow looks used up their time: then none are returned."""
        if not self._is_due:
            return ()
        with self._rationed():
            return self.took_inputs(paths)

    def took_inputs(self, paths: Collection[str]) -> tuple[str, ...]:
        """Return which blocks of the base have left the table, sorted; none if that cannot be found out."""
        try:
            self._look()
            gone = self._port.gone(self._base, self._newest, paths) if self._wrote else ()
        except TblctlError:
            return ()
        self._removed |= bool(gone)
        return tuple(sorted(gone))

    def explained(self, failure: TaskFailure, paths: Collection[str]) -> TaskFailure:
        """Return a task's failure as a conflict, if it could not read blocks that have left the table."""
        if not isinstance(failure.error, CorruptTableError | StorageError):
            return failure
        gone = self.took_inputs(paths)
        if not gone:
            return failure
        error = BlocksReplacedError(left_the_table(gone), paths=gone)
        return TaskFailure(group=failure.group, number=failure.number, error=error)

    @property
    def _is_due(self) -> bool:
        return self._port.env.elapsed() >= self._next_look_seconds

    @contextmanager
    def _rationed(self) -> Iterator[None]:
        """Put off the next look if this one is slow."""
        began = self._port.env.elapsed()
        yield
        ended = self._port.env.elapsed()
        if ended - began >= QUICK_LOOK_SECONDS:
            self._next_look_seconds = ended + (ended - began) / LOOK_SHARE

    def _look(self) -> None:
        self._looked_seconds = self._port.env.elapsed()
        self._newest = self._port.newest()
        self._wrote |= self._newest.id != self._own
