"""Commit a snapshot: a replacement of files, or imported rows.

Each attempt loads the table again, and decides by its state whether the snapshot may still be made; of a replacement:
the inputs are live, and their delete files are those that were applied. Then it writes manifests and asks the catalog
to move the branch, if it is still where the attempt found it.

An error of the catalog leaves the outcome open. It is settled by looking at the branch later: the snapshot's id, chosen
once for all attempts, is there; or the branch went on from the expected parent without it. Files are deleted only then.
A refusal is looked up as well: a proxy may have sent the request twice, and the second answer is that of a lost race.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
    TblctlError,
)
from tblctl.tableformat.iceberg.catalog import did_not_commit, forget_connections, named
from tblctl.tableformat.iceberg.curves import require_same
from tblctl.tableformat.iceberg.publish.attempts import Patience
from tblctl.tableformat.iceberg.publish.lineage import Lineage
from tblctl.tableformat.iceberg.version import EMPTY, IcebergVersion

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch of a table of a catalog.

    Attributes:
        location: the table, for people.
        name: of the branch.
        load: loads the table as it is now.
        version: returns the branch's newest version in a loaded table.
        env: clocks and names.
    """

    location: str
    name: str
    load: Callable[[], Table]
    version: Callable[[Table], IcebergVersion]
    env: Environment


class Proposals(Protocol):
    """The snapshots that the attempts of one commit propose: `Drafts`, or `AppendDrafts`."""

    base: IcebergVersion
    """What the commit was planned on."""

    snapshot_id: int
    """Of the snapshot, in all attempts."""

    @property
    def merge_seconds(self) -> float:
        """How long making the data files took: so long a silent catalog is waited for."""
        ...

    def draft(self, table: Table, head: IcebergVersion) -> Snapshot:
        """Write the metadata of a snapshot on top of the head, and return it. Raises if the commit no longer holds."""
        ...

    def require_fresh(self) -> None:
        """Refuse new files that gc may have deleted."""
        ...

    def is_committed(self, head: IcebergVersion) -> bool:
        """Return whether the head shows that the commit happened."""
        ...

    def inputs_are_live(self, head: IcebergVersion) -> bool:
        """Return whether the head shows that it did not."""
        ...

    def discard(self) -> None:
        """Delete all metadata files that were written."""
        ...

    def discard_unused(self, done: IcebergVersion) -> None:
        """Delete those that the commit does not use, as far as possible."""
        ...


@dataclass(kw_only=True)
class _Fate:
    """What is known of the outcome.

    Attributes:
        parents: the versions that the branch was at when the catalog was asked without an answer.
        refused: the one when the catalog last refused, if nobody looked since.
        error: the last answer.
    """

    parents: list[str] = field(default_factory=list)
    refused: str | None = None
    error: TblctlError | None = None

    @property
    def is_open(self) -> bool:
        return bool(self.parents) or self.refused is not None


@dataclass(frozen=True, kw_only=True)
class _Proposal:
    """A snapshot, and properties of the table to set with it."""

    snapshot: Snapshot
    properties: Mapping[str, str]


def commit_snapshot(branch: Branch, drafts: Proposals, properties: Mapping[str, str]) -> IcebergVersion:
    """Commit, and return the version that the branch has then.

    Args:
        branch: where to.
        drafts: writes the metadata of each attempt.
        properties: to set with the commit.

    Raises:
        CommitOutcomeUnknownError: it is unknown whether the commit happened. Nothing was deleted.
        ConflictError: the commit no longer holds (see `draft`), or other writers were always faster.
        TblctlError: anything else. As with a conflict, nothing was committed.
    """
    fate = _Fate()
    try:
        return _commit(branch, drafts, properties, fate)
    except TblctlError as error:
        if fate.is_open:
            raise _in_doubt(branch, error if isinstance(error, TableNotFoundError) else fate.error) from error
        drafts.discard()
        raise


def _commit(branch: Branch, drafts: Proposals, properties: Mapping[str, str], fate: _Fate) -> IcebergVersion:
    env = branch.env
    patience = Patience.of(drafts.base.metadata.properties)
    begun, attempt = env.elapsed(), 0
    answered = begun
    while True:
        attempt += 1
        answer = _attempt(branch, drafts, properties, fate)
        if isinstance(answer, IcebergVersion):
            break
        now = env.elapsed()
        answered = now if answer is None else answered
        if patience.is_over(
            attempt,
            seconds=now - begun,
            silent_seconds=now - answered,
            merge_seconds=drafts.merge_seconds,
        ):
            answer = _last_look(branch, drafts, fate, answer or _too_slow(branch, attempt))
            break
        env.sleep(patience.wait(attempt, env.random()))
    LOG.info("committed snapshot %s after %d attempts", answer.id, attempt)
    drafts.discard_unused(answer)
    return answer


def _last_look(branch: Branch, drafts: Proposals, fate: _Fate, error: TblctlError) -> IcebergVersion:
    """Return the version of a commit that took effect although it was refused; else raise the error."""
    if fate.refused is not None:
        done = _settled(_head_of(branch, drafts, branch.load()), drafts, fate)
        if done is not None:
            return done
    raise error


def _attempt(
    branch: Branch, drafts: Proposals, properties: Mapping[str, str], fate: _Fate
) -> IcebergVersion | TblctlError | None:
    """Try once. Return the version; None if others were faster; else why the catalog did not do it, for now."""
    table = _loaded(branch)
    if isinstance(table, StorageError):
        return table
    head = _head_of(branch, drafts, table)
    try:
        done = _settled(head, drafts, fate)
        if done is not None:
            return done
        require_same(branch.location, properties, base=drafts.base.metadata, head=head.metadata)
        snapshot = drafts.draft(table, head)
    except ObjectNotFoundError:
        newest = _loaded(branch)
        if isinstance(newest, StorageError):
            return newest
        if branch.version(newest).id == head.id:
            raise
        return None  # others committed, and what they replaced expired while it was read
    drafts.require_fresh()
    return _ask(branch, table, head, _Proposal(snapshot=snapshot, properties=properties), fate)


def _loaded(branch: Branch) -> Table | StorageError:
    """Return the table; or why the catalog, busy or out of reach, did not give it: a merge of hours waits for that."""
    try:
        return branch.load()
    except ObjectNotFoundError:
        raise
    except StorageError as error:
        LOG.warning("%s; it is asked again", error)
        return error


def _head_of(branch: Branch, drafts: Proposals, table: Table) -> IcebergVersion:
    """Return the newest version. Refuse a table that took the place of the planned one."""
    head = branch.version(table)
    if head.table_id != drafts.base.table_id:
        raise TableNotFoundError(
            f"{branch.location}: the table was dropped meanwhile, and another one created"
        )
    return head


def _settled(head: IcebergVersion, drafts: Proposals, fate: _Fate) -> IcebergVersion | None:
    """Return the version of the commit if it is there after all; forget attempts that can no longer succeed."""
    if not fate.is_open:
        return None
    ours = head.metadata.snapshot_by_id(drafts.snapshot_id)
    if ours is not None:
        return head.at(ours)
    lineage = Lineage.of(head.metadata, head.snapshot)
    known = {str(id_) for id_ in lineage.ids} | ({EMPTY} if lineage.is_whole else set())
    is_shown = not fate.parents and fate.refused in known  # every snapshot since the refusal
    if not is_shown and drafts.is_committed(head):  # the catalog hides the snapshots between
        return head
    fate.refused = None
    fate.parents[:] = [
        parent
        for parent in fate.parents
        if head.id == parent or (parent not in known and not drafts.inputs_are_live(head))
    ]
    return None


def _ask(
    branch: Branch, table: Table, head: IcebergVersion, proposal: _Proposal, fate: _Fate
) -> IcebergVersion | TblctlError | None:
    """Ask the catalog to add a snapshot. Return the version; None if others were faster; else what it answered.

    Raises:
        TblctlError: the catalog refused for a reason that stays.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        AssertRefSnapshotId,
        AssertTableUUID,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    snapshot = proposal.snapshot
    parent = None if head.snapshot is None else head.snapshot.snapshot_id
    ref = table.metadata.refs.get(branch.name)
    kept = {} if ref is None else ref.model_dump(by_alias=True)
    moved = {"ref-name": branch.name, "type": "branch", "snapshot-id": snapshot.snapshot_id}
    updates: list[Any] = [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate({**kept, **moved}),
    ]
    if proposal.properties:
        updates.append(SetPropertiesUpdate(updates=dict(proposal.properties)))
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": branch.name, "snapshot-id": parent}),
    )
    try:
        response = table.catalog.commit_table(table, requirements, tuple(updates))
    except CommitFailedException as error:
        fate.error = ConflictError(f"{branch.location}: the catalog refused the commit: {error}")
        fate.refused = head.id
        return None
    except Exception as error:  # noqa: BLE001 (catalogs share no class of errors: after any other, look)
        found = named(branch.location, error, table.catalog.properties)
        if did_not_commit(error):
            raise found from found.__cause__
        LOG.warning("%s; it is looked up whether it committed", found)
        forget_connections(table.catalog)
        fate.error = found
        fate.parents.append(head.id)
        return found
    table.metadata = response.metadata
    return head.of(table.metadata, table.metadata.snapshot_by_id(snapshot.snapshot_id))


def _too_slow(branch: Branch, attempts: int) -> ConflictError:
    return ConflictError(
        f"{branch.location}: other writers were faster in {attempts} attempts to commit; nothing was committed. "
        "Run it again when fewer write, or set the table's property commit.retry.num-retries"
    )


def _in_doubt(branch: Branch, error: TblctlError | None) -> CommitOutcomeUnknownError:
    if isinstance(error, TableNotFoundError):
        return CommitOutcomeUnknownError(
            f"{branch.location}: the table was dropped while the recluster committed ({error}). It is unknown whether "
            "the commit happened before; the new files are kept"
        )
    return CommitOutcomeUnknownError(
        f"{branch.location}: it is unknown whether the commit happened ({error}). All files are kept: "
        "see `tblctl history`, and run the recluster again"
    )
