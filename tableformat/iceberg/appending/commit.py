"""Commit data files with imported rows as an APPEND snapshot, together with the list of their source files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError
from tblctl.tableformat.iceberg.appending.lists import LISTS
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.pruning import has_live
from tblctl.tableformat.iceberg.publish.freshness import merge_seconds, require_fresh
from tblctl.tableformat.iceberg.publish.new_manifests import NewManifests, writing
from tblctl.tableformat.iceberg.publish.snapshots import new_snapshot_id, snapshot_on
from tblctl.tableformat.iceberg.publish.summary import NOTHING, Removed, summary_of
from tblctl.tableformat.iceberg.record import DataFileRecord

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from tblctl.tableformat.iceberg.version import IcebergVersion


class OtherImportError(ConflictError):
    """Another import committed meanwhile, so the lists of files are others than those that this one read."""


class AppendDrafts:
    """The snapshots that the attempts of one append propose; `publish.commit.Proposals`. All have one id.

    Args:
        base: the version whose lists have none of the files.
        records: the new data files.
        lists: what the table's property `LISTS` says with the commit.
        detail: what is said of the commit beside the figures.
        env: clocks and names.
        storages: finds the storage of a file; their credentials are renewed.
    """

    def __init__(
        self,
        base: IcebergVersion,
        records: Sequence[DataFileRecord],
        lists: str,
        detail: Mapping[str, Any],
        *,
        env: Environment,
        storages: DataStorage,
    ) -> None:
        self.base = base
        self.snapshot_id = new_snapshot_id(env)
        self._records = records
        self._lists = lists
        self._detail = detail
        self._env = env
        self._begun_seconds = env.now()
        self._storages = storages
        self._new = NewManifests(env, self.snapshot_id)
        self._io: Any = None

    def draft(self, table: Table, head: IcebergVersion) -> Snapshot:
        """Write the metadata of a snapshot on top of the head, and return it.

        Raises:
            OtherImportError: the head names other lists than the base.
            TblctlError: metadata cannot be read or written.
        """
        from pyiceberg.table.snapshots import Operation

        if head.metadata.properties.get(LISTS) != self.base.metadata.properties.get(LISTS):
            raise OtherImportError(f"{head.location}: another import committed meanwhile")
        self._io = table.io
        self._storages.take({name: str(value) for name, value in table.io.properties.items()})
        before: Mapping[str, str] = NOTHING
        if head.snapshot is not None:
            found = head.snapshot.summary
            before = {} if found is None else found.additional_properties
        nothing = Removed(files=0, records=0, size_bytes=0, partitions=())
        summary = summary_of(nothing, self._records, before, self._detail)
        with writing(head.location, table.io, self._new.paths):
            manifests = [
                *self._new.added(table, self._records, None),
                *(manifest for manifest in head.manifests if has_live(manifest)),
            ]
            return snapshot_on(
                head,
                table,
                manifests,
                self._new,
                operation=Operation.APPEND,
                summary=summary,
                now_ms=self._env.now_ms(),
            )

    @property
    def merge_seconds(self) -> float:
        """How long writing the files took, as far as they say."""
        return merge_seconds(self._records, self._begun_seconds)

    def require_fresh(self) -> None:
        """Refuse new files that gc may have deleted.

        Raises:
            ConflictError: it took too long, or the oldest file is gone.
        """
        require_fresh(self.base.location, self._records, self._begun_seconds, self._storages, self._env)

    def is_committed(self, head: IcebergVersion) -> bool:
        """Return whether the head shows that the commit happened: its lists, or one of its files."""
        if head.metadata.properties.get(LISTS) == self._lists:
            return True
        paths = {record.path for record in self._records}
        return not paths.isdisjoint(head.files.entries.path.to_pylist())

    def inputs_are_live(self, head: IcebergVersion) -> bool:
        """Return whether the head shows that the commit did not happen: no import did since the base."""
        return head.metadata.properties.get(LISTS) == self.base.metadata.properties.get(LISTS)

    def discard(self) -> None:
        """Delete all metadata files that were written. Only for a commit that certainly did not happen."""
        if self._io is not None:
            self._new.discard(self._io)

    def discard_unused(self, done: IcebergVersion) -> None:
        """Delete the manifest lists of earlier attempts, as far as possible."""
        if self._io is not None and done.id == str(self.snapshot_id) and done.snapshot is not None:
            self._new.discard(self._io, [done.snapshot.manifest_list, *self._new.added_paths])
