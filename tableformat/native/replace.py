"""The commit of a recluster: blocks replace others, and a record of the groups is stored beside the snapshot."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InternalError,
    TblctlError,
)
from tblctl.tableformat.model.snapshot import RECLUSTER, ROLLBACK, Snapshot
from tblctl.tableformat.native.log.alter import add_sorts
from tblctl.tableformat.native.log.checked_json import with_checksum
from tblctl.tableformat.native.log.commit import Fate, Published, StagedCommit, publish, reload_head
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.log.head import summaries_since
from tblctl.tableformat.native.log.names import RECORD, record_path
from tblctl.tableformat.native.log.segment_rows import segment_table
from tblctl.tableformat.port import BlocksReplacedError, Label, Replacement
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from tblctl.tableformat.native.port import NativeVersion

LOG = logging.getLogger("tblctl")

PATIENCE = 8.0
"""After a lost race, a recluster waits this many times longer than a writer, to give way."""


def replace_blocks(
    storage: Storage, env: Environment, base: NativeVersion, replacement: Replacement
) -> Snapshot:
    """Commit on top of the newest snapshot. Errors are as for `TablePort.replace`."""
    edit = _edit_unless_expired(storage, base, replacement)
    applier = EditApplier(storage, env)
    record = _Record(storage, env, replacement.record)

    def propose(head: Snapshot) -> StagedCommit:
        _check_schema(storage, base.snapshot, head)
        return record.named_by(applier.propose(edit, add_sorts(base.snapshot, head, replacement.sorts)))

    fate = Fate()
    try:
        record.write()
        head = reload_head(storage, base.snapshot)
        published = publish(storage, env, propose, head, fate, patience=PATIENCE)
    except TblctlError as error:
        if fate.maybe_published:
            raise _in_doubt(storage, error) from error
        applier.discard_all()
        record.discard(used=None)
        raise
    applier.discard_unused()
    record.discard(used=record.name)
    return cast("Published", published).snapshot  # there is always a proposal


class _Record:
    """Writes the record of a recluster."""

    def __init__(self, storage: Storage, env: Environment, content: Mapping[str, Any] | None) -> None:
        self._storage = storage
        self._env = env
        self._content = content
        self._paths: list[str] = []
        self.name: str | None = None

    def write(self) -> None:
        """Write the record, unless there is none or it was written."""
        if self._content is None or self.name is not None:
            return
        path = record_path(self._env.new_id())
        self._paths.append(path)
        self._storage.write(path, with_checksum(self._content))
        self.name = path

    def named_by(self, draft: StagedCommit) -> StagedCommit:
        """Return the proposal with the record in its summary."""
        self.write()
        if self.name is None:
            return draft

        def forget(names: Collection[str]) -> None:
            draft.forget(names)
            self.name = None if self.name in names else self.name

        summary = draft.snapshot.summary
        detail = {**summary.detail, RECORD: self.name}
        return dataclasses.replace(
            draft,
            snapshot=dataclasses.replace(draft.snapshot, summary=dataclasses.replace(summary, detail=detail)),
            objects=[*draft.objects, self.name],
            forget=forget,
        )

    def discard(self, *, used: str | None) -> None:
        """Delete written records except `used`, as far as possible. Only once the outcome is known."""
        try:
            self._storage.delete([path for path in self._paths if path != used])
        except TblctlError as error:
            LOG.warning("records that are not needed could not be deleted, gc will: %s", error)


def _edit_unless_expired(storage: Storage, base: NativeVersion, replacement: Replacement) -> Edit:
    """Return the change as an edit of the base's segments.

    Raises:
        ConflictError: gc removed the base's segments meanwhile.
        BlocksReplacedError, InternalError, CorruptTableError: as `_edit`.
    """
    try:
        return _edit(base, replacement)
    except CorruptTableError as error:
        if reload_head(storage, base.snapshot).is_retained(base.snapshot.sequence):
            raise
        msg = (
            f"{storage.url}: gc removed snapshot {base.id}, whose blocks were merged: it ran with an --older-than "
            "shorter than the merge took. Nothing was committed: plan again"
        )
        raise ConflictError(msg) from error


def _edit(base: NativeVersion, replacement: Replacement) -> Edit:
    """Return the change as an edit of the base's segments.

    Raises:
        BlocksReplacedError: the base lacks one of its blocks.
        InternalError: it would change the number of rows.
        CorruptTableError: it would change the number of nulls in a column.
    """
    concerned = [*replacement.removed, *replacement.relabelled]
    segments = base.segments_of(concerned)
    gone = sorted(set(concerned) - segments.keys())
    if gone:
        msg = f"{base.location}: {len(gone)} blocks are not in snapshot {base.id}, such as {gone[0]}"
        raise BlocksReplacedError(msg, paths=tuple(gone))
    rows = sum(item.row_count for item in replacement.added)
    rows_before = base.row_count(list(replacement.removed))
    if rows != rows_before:
        msg = f"{base.location}: a recluster would replace {rows_before} rows by {rows}"
        raise InternalError(msg)
    _require_nulls(base, replacement)
    removed: dict[str, set[str]] = {}
    for path in replacement.removed:
        removed.setdefault(segments[path], set()).add(path)
    relabelled: dict[str, dict[str, Label]] = {}
    for path, label in replacement.relabelled.items():
        relabelled.setdefault(segments[path], {})[path] = label
    return Edit(
        operation=RECLUSTER,
        base_segments=frozenset(segment.path for segment in base.snapshot.segments),
        removed={segment: frozenset(paths) for segment, paths in removed.items()},
        added=segment_table(
            replacement.added, base.schema, [*base.snapshot.sorts.values(), *replacement.sorts]
        )
        if replacement.added
        else None,
        copied_rows=rows,
        relabelled=relabelled,
        detail=replacement.detail,
    )


def _require_nulls(base: NativeVersion, replacement: Replacement) -> None:
    """Refuse blocks whose number of nulls in a column differs from the metadata of the blocks they replace.

    Raises:
        CorruptTableError: names the first such column.
    """
    paths = sorted(replacement.removed)
    added = replacement.added
    for column_id, stated in base.null_counts(paths).items():
        found = [record.columns[column_id].null_count for record in added if column_id in record.columns]
        if (stated < 0).any() or len(found) < len(added) or min(found, default=0) < 0:
            continue
        if sum(found) != stated.sum():
            leaf = base.schema.leaf_by_id(column_id)
            name = leaf.name if leaf else str(column_id)
            some = ", ".join(paths[:3])
            msg = (
                f"{base.location}: {len(paths)} blocks, such as {some}, were read with {sum(found)} nulls in "
                f"column {name!r}, their segments state {stated.sum()}: some are damaged. Nothing was changed: "
                "see `tblctl check --deep`"
            )
            raise CorruptTableError(msg, name=some, column=name)


def _check_schema(storage: Storage, base: Snapshot, head: Snapshot) -> None:
    """Refuse a head that cannot read blocks written for `base`. After a rollback its schema may be any older one."""
    if head.schema_id == base.schema_id:
        return
    summaries = summaries_since(storage, base.sequence, head)
    if any(summary.operation == ROLLBACK for summary in summaries):
        msg = f"{storage.url} was rolled back to another schema meanwhile; nothing was committed: plan again"
        raise ConflictError(msg)


def _in_doubt(storage: Storage, error: TblctlError) -> TblctlError:
    if isinstance(error, CommitOutcomeUnknownError):
        return error
    return CommitOutcomeUnknownError(
        f"{storage.url}: the commit may have happened before this failed: {error}", **error.details
    )
