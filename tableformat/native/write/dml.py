"""Change rows by copying the blocks that hold them: append, delete, update, overwrite.

Every operation is planned on the head that it is committed on. It applies to the rows that the table has then, also
those that others added meanwhile. So after a lost race an operation is planned again (native/write/write_planner.py).
"""

from __future__ import annotations

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError, CorruptTableError
from tblctl.tableformat.model.snapshot import ROLLBACK, Snapshot
from tblctl.tableformat.native.log.commit import Fate, Published, StagedCommit, after_gc, publish, reload_head
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.log.head import summaries_since
from tblctl.tableformat.native.write.losses import lost_to_a_writer
from tblctl.tableformat.native.write.staged_write import check_staged
from tblctl.tableformat.native.write.taken_before import TakenBefore
from tblctl.tableformat.native.write.write_planner import Planner, Write
from tblctl.tableformat.native.write.writer import discard
from tblctl.tableformat.storage import Storage

MOST_REPLANS = 20
"""How often an edit is planned again because another writer replaced its blocks. Losses to a recluster do not count."""

_PLANNING_PATIENCE = 0.01
"""The wait of an operation that reads rows after a lost race, as a share of an append's wait. Waiting makes its next
plan larger. Beside an appender that never pauses (an append every 43 ms on local disk, each with a block to rewrite) an
overwrite takes up to 3 s. With the waits of an append (up to 1 s), it did not end in 38 s and 900 appends."""


def run_write(storage: Storage, env: Environment, write: Write, head: Snapshot) -> Published | None:
    """Carry out one operation; None if there was nothing to change, or it is superseded.

    It is if its batch was committed, or another import took one of its files.

    Raises:
        ConflictError: other writers replaced its blocks more than `MOST_REPLANS` times, or its staged write no longer
            fits.
        TableNotFoundError: the table was dropped meanwhile.
    """
    if write.is_superseded(head):
        return None  # perhaps with the blocks of this staged write: they must stay
    attempts = _Attempts(storage, env, write, head)
    fate = Fate()
    try:
        if write.staged is not None:
            check_staged(storage, write.staged, head)
        if write.reads_rows:
            published = publish(storage, env, attempts.draft_on, head, fate, patience=_PLANNING_PATIENCE)
        else:
            published = _published_in_turn(storage, env, attempts, head, fate)
    except Exception:
        if not fate.maybe_published:
            attempts.clean_up(is_committed=False)
        raise
    attempts.clean_up(is_committed=published is not None)
    return published


def _published_in_turn(
    storage: Storage, env: Environment, attempts: _Attempts, head: Snapshot, fate: Fate
) -> Published | None:
    """Publish new rows. The rows are written first; then this process's writers of the table commit one by one.

    So threads that append to one table lose no races to each other. One that waited begins on the newest head.
    """
    attempts.write_rows(head)
    with env.turn(storage.url) as waited:
        newest = reload_head(storage, head) if waited else head
        return publish(storage, env, attempts.draft_on, newest, fate)


class _Attempts:
    """The attempts of one operation, one on each head, until one is committed."""

    def __init__(self, storage: Storage, env: Environment, write: Write, base: Snapshot) -> None:
        self._storage = storage
        self._write = write
        self._planner = Planner(storage, env, write)
        self._applier = EditApplier(storage, env)
        self._taken_before = TakenBefore(storage, write.taken)
        self._head = base
        self._edit: Edit | None = None  # the plan for `_head`; None before the first
        self._losses = 0
        self._is_superseded = False

    def write_rows(self, head: Snapshot) -> None:
        """Write the new rows, unless they are staged or already committed. Only for writes that read no rows."""
        try:
            if self._superseded_on(head):
                return
        except CorruptTableError:
            self.write_rows(after_gc(self._storage, head))
        else:
            self._planner.plan(head)

    def _superseded_on(self, head: Snapshot) -> bool:
        return self._write.is_superseded(head) or self._taken_before.has_any(head)

    def draft_on(self, head: Snapshot) -> StagedCommit | None:
        """Return `head` after the operation; None if there is nothing to do.

        Raises:
            ConflictError: other writers were faster too often, or the new rows no longer fit.
        """
        self._check_rollbacks(head)
        if self._superseded_on(head):
            self._is_superseded = True
            return None
        edit = self._planner.plan(head)
        if self._edit is not None:
            self._count_loss(self._edit, edit, head)
        self._edit, self._head = edit, head
        return None if edit.is_empty else self._applier.propose(edit, self._planner.with_sorts(head))

    def clean_up(self, *, is_committed: bool) -> None:
        """Delete unused written objects, as far as possible. Only once the outcome is known."""
        in_table: list[str] = []
        if is_committed:
            self._applier.discard_unused()
            if self._edit is not None and self._edit.added is not None:
                in_table = self._edit.added["path"].to_pylist()
        else:
            self._applier.discard_all()
            if self._is_superseded and self._write.staged is not None:
                in_table = self._write.staged.paths  # perhaps the same blocks that were committed before
        kept = frozenset(in_table)
        discard(self._storage, [path for path in self._planner.written if path not in kept])

    def _check_rollbacks(self, head: Snapshot) -> None:
        """Refuse to commit new rows after a rollback to another schema: an older schema may not be able to read them.

        Raises:
            ConflictError: there was one since the last head.
        """
        if self._planner.fresh_schema_id in {None, head.schema_id}:
            return
        summaries = summaries_since(self._storage, self._head.sequence, head)
        if any(summary.operation == ROLLBACK for summary in summaries):
            msg = (
                f"{self._storage.url} was rolled back to another schema while rows were written; nothing was "
                "committed: write again"
            )
            raise ConflictError(msg)

    def _count_loss(self, before: Edit, now: Edit, head: Snapshot) -> None:
        """Count a race in which another writer replaced blocks of the plan. Added blocks and reclusters do not count.

        Raises:
            ConflictError: there were too many.
        """
        gone = before.removed_paths - now.removed_paths
        self._losses += bool(gone) and lost_to_a_writer(self._storage, self._head, head, gone)
        if self._losses > MOST_REPLANS:
            msg = (
                f"{self._storage.url}: other writers replaced the blocks of this {now.operation} "
                f"{self._losses} times in a row; nothing was changed: try again when they are done"
            )
            raise ConflictError(msg)
