"""`tblctl.tableformat.port` over Iceberg tables.

The id of a version is its snapshot's id, as text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CorruptTableError,
    InvalidKeyError,
    InvalidOptionError,
    SnapshotNotFoundError,
)
from tblctl.tableformat.iceberg.catalog import TableLoader
from tblctl.tableformat.iceberg.curves import Curves
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.location import IcebergLocation
from tblctl.tableformat.iceberg.log_place import log_place_of
from tblctl.tableformat.iceberg.metadata_files import KeptFiles, MetadataFiles
from tblctl.tableformat.iceberg.publish.summary import detail_of
from tblctl.tableformat.iceberg.version import EMPTY, IcebergVersion, branches_of
from tblctl.tableformat.model.snapshot import RECLUSTER, Summary
from tblctl.tableformat.model.version_numbers import is_version_number
from tblctl.tableformat.port import Checked, Garbage, Replacement, SortConflictError, VersionEntry
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage.file_cache import FileCache
from tblctl.tableformat.workload.place import LogPlace

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from tblctl.tableformat.iceberg.appending.appender import Appender
    from tblctl.tableformat.iceberg.block_io import IcebergBlockIO
    from tblctl.tableformat.iceberg.publish.commit import Branch
    from tblctl.tableformat.storage import Storage

MAIN = "main"
"""The branch that readers and writers take unless told otherwise."""

PLANS = "tblctl.plans"
"""The table's property that says where pending plans are kept."""


class IcebergPort:
    """`tblctl.tableformat.port.TablePort` of an Iceberg table, at a branch."""

    def __init__(
        self,
        load: TableLoader,
        env: Environment,
        *,
        branch: str = MAIN,
        cache: FileCache | None = None,
        refine: bool = False,
        cluster_by: str | Sequence[str] | None = None,
    ) -> None:
        self._cluster_by = cluster_by
        self._location = str(load.location)
        self._load = load
        self._branch = branch
        self._cache = cache
        self._refine = refine
        self._kept = KeptFiles()
        self._curves = Curves(self._storages)
        self.entries_copied = 0  # of manifests, by all commits
        self.env = env

    @classmethod
    def of_catalog(
        cls,
        location: IcebergLocation,
        options: Mapping[str, str],
        env: Environment,
        *,
        branch: str = MAIN,
        cache: FileCache | None = None,
        refine: bool = False,
    ) -> IcebergPort:
        """Return the port of a table of a catalog.

        Args:
            location: of the table.
            options: of the catalog.
            env: clocks and names.
            branch: what `newest` means.
            cache: keeps manifests of remote storage.
            refine: read footers of files whose manifest has no bounds of a column, or inexact ones.
        """
        return cls(TableLoader(location, options), env, branch=branch, cache=cache, refine=refine)

    @classmethod
    def of_table(cls, table: Table, env: Environment, *, branch: str = MAIN) -> IcebergPort:
        """Return the port of a table that somebody opened. It is not changed: each call loads the newest metadata."""
        return cls(TableLoader.of(table), env, branch=branch)

    def clustered_by(self, terms: str | Sequence[str]) -> IcebergPort:
        """Return the port of the table with another cluster key. The first replacement sets it as a property."""
        return IcebergPort(
            self._load,
            self.env,
            branch=self._branch,
            cache=self._cache,
            refine=self._refine,
            cluster_by=terms,
        )

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""
        return self._location

    def newest(self) -> IcebergVersion:
        """Return the branch's newest version."""
        return self._newest_in(self._load())

    def _newest_in(self, table: Table) -> IcebergVersion:
        metadata = table.metadata
        branches = branches_of(metadata)
        if self._branch != MAIN and self._branch not in branches:
            tag = ", which is a tag: read it with as_of" if self._branch in metadata.refs else ""
            known = ", ".join(sorted({MAIN, *branches}))
            msg = f"{self._location} has no branch {self._branch!r}{tag}; branches are {known}"
            raise SnapshotNotFoundError(msg)
        id_ = branches.get(self._branch, metadata.current_snapshot_id)
        snapshot = None if id_ is None else metadata.snapshot_by_id(id_)
        if snapshot is None and id_ is not None:
            msg = f"{self._location}: branch {self._branch} is at snapshot {id_}, which the metadata lacks"
            raise CorruptTableError(msg, name=table.metadata_location)
        return self._version(table, snapshot)

    def version(self, id: str, *, newest: IcebergVersion | None = None) -> IcebergVersion:
        """Return the version of a snapshot's id."""
        base = newest or self.newest()
        snapshot = base.metadata.snapshot_by_id(int(id)) if is_version_number(id) else None
        if snapshot is None and not (id == EMPTY and base.snapshot is None):
            msg = f"{self._location} has no snapshot {id!r:.140}; `tblctl history` lists all"
            raise SnapshotNotFoundError(msg)
        return base.at(snapshot)

    def version_at(self, timestamp_ms: int, *, newest: IcebergVersion | None = None) -> IcebergVersion:
        """Return the version that was the branch's newest one at a time, rolled back since or not.

        Only main has a log of that; of other branches their snapshots count.
        """
        base = newest or self.newest()
        if self._branch == MAIN:
            logged = [entry for entry in base.metadata.snapshot_log if entry.timestamp_ms <= timestamp_ms]
            found = base.metadata.snapshot_by_id(logged[-1].snapshot_id) if logged else None
            if found is not None:
                return base.at(found)
        for snapshot in _ancestry(base.metadata, base.snapshot):
            if snapshot.timestamp_ms <= timestamp_ms:
                return base.at(snapshot)
        msg = f"{self._location} has no snapshot that old; `tblctl history` lists all"
        raise SnapshotNotFoundError(msg)

    def parse_id(self, text: str) -> str | None:
        """Return a whole number as an id; None for other texts."""
        return text if text.isdecimal() else None

    def ever_had(self, id: str, *, newest: IcebergVersion) -> bool:
        """Return whether there is a snapshot of that id; true as well if older ones expired: it may be one of them.

        None did if the oldest one is the table's first, of sequence number 1. A parent says nothing: PyIceberg removes
        the ids of expired ones there, too.
        """
        if is_version_number(id) and newest.metadata.snapshot_by_id(int(id)) is not None:
            return True
        oldest = deque(_ancestry(newest.metadata, newest.snapshot), maxlen=1)
        return any(snapshot.sequence_number != 1 for snapshot in oldest)

    def ever_had_sort(self, number: int, *, newest: IcebergVersion) -> bool:
        """Return true: ids follow from sorts, and metadata does not say which cluster keys there were."""
        del number, newest
        return True

    def entry(self, version: IcebergVersion, *, newest: IcebergVersion | None = None) -> VersionEntry:
        """Return a version's entry in the history."""
        return _entry((newest or version).metadata, version)

    def history(
        self, limit: int | None = None, *, start: IcebergVersion | None = None
    ) -> Iterator[VersionEntry]:
        """Yield the versions that the branch had, newest first, as far as the catalog has them."""
        base = start or self.newest()
        if base.snapshot is None:
            yield _entry(base.metadata, base)
            return
        for count, snapshot in enumerate(_ancestry(base.metadata, base.snapshot)):
            if limit is not None and count >= limit:
                return
            yield _entry(base.metadata, base.at(snapshot))

    def known_history(self, version: IcebergVersion) -> Iterator[VersionEntry]:
        """Yield the version and those before it: all are in the metadata that it was loaded with."""
        return self.history(start=version)

    def plan_storage(self, place: str | None) -> Storage:
        """Return where pending plans are kept: at `place`, or where the table's property `tblctl.plans` says.

        Below the table's own location, other engines may take them for orphans, and delete them.

        Raises:
            InvalidOptionError: neither says where, or what it says is a relative path.
        """
        version = self.newest()
        given = place or version.metadata.properties.get(PLANS)
        if not given:
            msg = (
                f"{self.location} does not say where to keep pending plans: set its property {PLANS} to a folder or "
                "URL, or give plans_at"
            )
            raise InvalidOptionError(msg)
        if "://" not in given and not given.startswith("/"):
            msg = f"pending plans are to be kept at {given!r:.140}: expected a URL, or a path that begins with /"
            raise InvalidOptionError(msg)
        return self._storages(version).folder(given)

    def log_place(self) -> LogPlace:
        """Return where the table's queries are recorded: below its location, or where `tblctl.workload.path` says.

        Below the location other engines may take the files for orphans, and delete them.

        Raises:
            InvalidOptionError: the property is a relative path.
        """
        version = self.newest()
        return log_place_of(version, self._storages(version))

    def block_io(self, version: IcebergVersion) -> IcebergBlockIO:
        """Return the `BlockIO` of merge tasks for this version.

        Raises:
            InvalidOptionError: tblctl does not rewrite such a table; says why, and what to do.
            AccessDeniedError, StorageError: objects cannot be created or deleted where its files would be.
        """
        from tblctl.tableformat.iceberg.block_io import IcebergBlockIO
        from tblctl.tableformat.iceberg.reading.inputs import Inputs
        from tblctl.tableformat.iceberg.rewritable import require_access, require_rewritable
        from tblctl.tableformat.iceberg.writing.outputs import Outputs

        require_rewritable(version)
        storages = self._storages(version)
        outputs = Outputs(version, storages, self.env)
        require_access(version, storages, self.env)
        return IcebergBlockIO(
            env=self.env, storages=storages, inputs=Inputs(version, storages), outputs=outputs
        )

    def _storages(self, version: IcebergVersion) -> DataStorage:
        return DataStorage(version.io_properties, self._io_properties, self.env)

    def _io_properties(self) -> dict[str, str]:
        return {name: str(value) for name, value in self._fresh_io().properties.items()}

    def _fresh_io(self) -> FileIO:
        """Return what reads the table's files, with the credentials of now."""
        return self._load().io

    def replace(self, base: IcebergVersion, replacement: Replacement) -> IcebergVersion:
        """Commit a REPLACE snapshot on top of the newest version."""
        from tblctl.tableformat.iceberg.publish.commit import commit_snapshot
        from tblctl.tableformat.iceberg.publish.draft import Drafts

        lost = tuple(sort.id for sort in replacement.sorts if not base.can_keep(sort))
        if lost:
            msg = f"{self._location}: a sort has an id that does not follow from it, or other boundaries than the table"
            raise SortConflictError(msg, sorts=lost)
        branch = self._at_branch()
        drafts = Drafts(base, replacement, self.env, self._storages(base))
        try:
            return commit_snapshot(branch, drafts, base.new_properties(replacement.sorts))
        finally:
            self.entries_copied += drafts.entries_copied

    def appender(self) -> Appender:
        """Return what adds rows of imported files."""
        from tblctl.tableformat.iceberg.appending.appender import Appender

        return Appender(self.newest, self._at_branch, self._storages, self.env)

    def _at_branch(self) -> Branch:
        from tblctl.tableformat.iceberg.publish.commit import Branch

        return Branch(
            location=self._location,
            name=self._branch,
            load=self._load,
            version=self._newest_in,
            env=self.env,
        )

    def gone(self, base: IcebergVersion, newest: IcebergVersion, paths: Collection[str]) -> frozenset[str]:
        """Return which files of `base` at `paths` are not in `newest`."""
        from tblctl.tableformat.iceberg.publish.head_state import HeadState, PlannedInputs

        inputs = PlannedInputs(version=base, paths=tuple(sorted(paths)))
        return frozenset(paths) - HeadState.of(newest, inputs, newest.entries_in).count(inputs.paths).keys()

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """Expire versions, and delete what they alone needed, and what tblctl left behind."""
        age_ms = int(older_than_seconds * 1000)
        return self.collect(older_than_seconds, expires=True, age_ms=age_ms, keep=keep, dry_run=dry_run)

    def collect(
        self,
        grace_seconds: float,
        *,
        expires: bool,
        age_ms: int | None,
        keep: int | None,
        dry_run: bool,
    ) -> Garbage:
        """Delete what tblctl left behind; if it `expires`, expire versions first, and delete what they alone needed.

        Args:
            grace_seconds: what tblctl left behind stays if it is younger; at least a day.
            expires: whether versions expire.
            age_ms: younger versions stay; None for the table's properties, or 5 days.
            keep: so many of the newest versions of each branch stay; None for the table's properties, or 1.
            dry_run: change nothing.
        """
        from tblctl.tableformat.iceberg.upkeep.collect import Request, collect
        from tblctl.tableformat.iceberg.upkeep.expiry import Retention

        table = self._load()
        version = self._newest_in(table)
        retention = Retention.of(table.metadata.properties, age_ms, keep) if expires else None
        request = Request(grace_seconds=grace_seconds, retention=retention, dry_run=dry_run)
        return collect(version, table, request, self.env)

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        """Read the metadata of the newest version; with `deep` its live files too. Changes nothing."""
        from tblctl.tableformat.iceberg.upkeep.check import check_table

        version = self.newest()
        storages = self._storages(version)
        return check_table(version, storages, deep=deep, progress=progress)

    def _version(self, table: Table, snapshot: Snapshot | None) -> IcebergVersion:
        files = MetadataFiles(self._location, table.io, self._kept, self._cache, self._fresh_io)
        return IcebergVersion(
            self._location,
            table.metadata,
            snapshot,
            files,
            curves=self._curves,
            cluster_by=self._cluster_by,
            refine=self._refine,
        )


def _ancestry(metadata: TableMetadata, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot, its parent, and so on, as far as the metadata has them. O(1) each."""
    by_id = {found.snapshot_id: found for found in metadata.snapshots}
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)


def _entry(metadata: TableMetadata, version: IcebergVersion) -> VersionEntry:
    snapshot = version.snapshot
    return VersionEntry(
        id=version.id,
        parent=version.parent,
        public_id=version.public_id,
        timestamp_ms=metadata.last_updated_ms if snapshot is None else snapshot.timestamp_ms,
        summary=_summary(snapshot),
        is_readable=True,
        tags=tuple(
            sorted(
                name
                for name, ref in metadata.refs.items()
                if ref.snapshot_ref_type == "tag" and str(ref.snapshot_id) == version.id
            )
        ),
        cluster_by=_cluster_by(version),
        options=None,  # its properties are not tblctl's options
    )


def _cluster_by(version: IcebergVersion) -> tuple[str, ...] | None:
    """Return the cluster key's terms; None if the property that names them is wrong."""
    try:
        return version.cluster_by
    except InvalidKeyError:
        return None


def _summary(snapshot: Snapshot | None) -> Summary:
    """Return what a commit did, from the standard keys of its summary. A total that it does not say is None."""
    if snapshot is None:
        return Summary(operation="create", rows=0, blocks=0, data_bytes=0)
    found = {} if snapshot.summary is None else snapshot.summary.additional_properties
    detail = detail_of(found)
    operation = "unknown" if snapshot.summary is None else snapshot.summary.operation.value

    def total(key: str) -> int | None:
        text = str(found.get(key, ""))
        return int(text) if is_version_number(text) else None

    def change(key: str) -> int:
        return total(key) or 0

    return Summary(
        operation=RECLUSTER if detail else operation,
        rows=total("total-records"),
        blocks=total("total-data-files"),
        data_bytes=total("total-files-size"),
        rows_added=change("added-records"),
        rows_removed=change("deleted-records"),
        blocks_added=change("added-data-files"),
        blocks_removed=change("deleted-data-files"),
        bytes_added=change("added-files-size"),
        detail=detail,
    )
