"""Collect garbage of an Iceberg table: expire snapshots if asked to, and delete what tblctl itself left behind.

tblctl's own files have the table's UUID in their names, and no other file is touched as left behind: a folder may hold
other tables' files, and other writers' files that wait for their commit. A file stays if any snapshot in the metadata
names it, on whatever branch, or if it is younger than the grace period. A recluster that takes longer than half of that
does not commit (see `publish/freshness.py`), so its files are never deleted between its last look and its commit.

Of what expired snapshots alone named, young files of keys stay, too: a recluster that read the metadata before they
expired, and commits after it, names these files again, and an expiry is no reason to refuse it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidOptionError,
    ObjectNotFoundError,
    TblctlError,
)
from tblctl.tableformat.iceberg.catalog import (
    catalog_errors,
    did_not_commit,
    forget_connections,
    load_table,
    named,
)
from tblctl.tableformat.iceberg.data_storage import DataStorage, split_uri
from tblctl.tableformat.iceberg.own_keys import side_files_named
from tblctl.tableformat.iceberg.publish.lineage import hides_history
from tblctl.tableformat.iceberg.upkeep.expiry import Retention, expired_snapshots, why_all_stay
from tblctl.tableformat.iceberg.upkeep.reachable import Place, Reachable
from tblctl.tableformat.iceberg.version import IcebergVersion
from tblctl.tableformat.port import Garbage
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.table import Table

LOG = logging.getLogger("tblctl")

LEAST_GRACE_SECONDS = 86_400.0
"""gc deletes nothing younger."""

_ENABLED = "gc.enabled"
_BATCH = 1000
_NEWEST_WRITTEN = 2
"""The newest format version whose metadata PyIceberg 0.12 writes."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to collect.

    Attributes:
        grace_seconds: what tblctl left behind stays if it is younger; at least a day.
        retention: what stays of branches; None to expire nothing.
        dry_run: change nothing.
    """

    grace_seconds: float
    retention: Retention | None
    dry_run: bool


def require_collectable(version: IcebergVersion, grace_seconds: float) -> None:
    """Refuse tables in which nothing may be deleted.

    Raises:
        InvalidOptionError: says why.
    """
    metadata = version.metadata
    if metadata.properties.get(_ENABLED, "true").lower() == "false":
        why = f"its property {_ENABLED} is false: other tables or catalogs may share its files"
    elif hides_history(metadata):
        why = "its catalog shows the newest snapshot alone, so what older ones need cannot be known"
    elif grace_seconds < LEAST_GRACE_SECONDS:
        why = "the files of reclusters that still run must stay: --older-than is at least 24h"
    else:
        return
    raise InvalidOptionError(f"{version.location}: nothing is deleted, since {why}")


def collect(version: IcebergVersion, table: Table, request: Request, env: Environment) -> Garbage:
    """Expire snapshots and delete files.

    Args:
        version: the newest one of the table.
        table: the table as it was loaded for it.
        request: what to collect.
        env: clocks.

    Raises:
        InvalidOptionError: nothing may be deleted in this table.
        AccessDeniedError: the credentials may not delete; nothing was changed.
        ConflictError: another writer moved a branch or a tag, or expired snapshots, meanwhile; nothing was deleted.
        CommitOutcomeUnknownError: it is unknown whether snapshots expired; nothing was deleted.
        TblctlError: metadata cannot be read; nothing was deleted.
    """
    require_collectable(version, request.grace_seconds)
    storages = DataStorage(version.io_properties)
    now = env.now()
    own = _own_objects(version, storages)  # listed before the named ones are read
    snapshots, expired, note = version.metadata.snapshots, list[int](), ""
    if request.retention is not None:
        expired = expired_snapshots(version.metadata, request.retention, int(now * 1000))
        note = why_all_stay(version.metadata, request.retention, int(now * 1000))
    if expired:
        _require_writable_metadata(version, table)
    named, unneeded, going = Reachable(version), Reachable(version), frozenset(expired)
    gone = [snapshot for snapshot in snapshots if snapshot.snapshot_id in going]
    try:
        named.add([snapshot for snapshot in snapshots if snapshot.snapshot_id not in going])
        unneeded.add(gone)
    except ObjectNotFoundError:
        _require_same_snapshots(version, table)
        raise
    old = {place: item for place, item in own.items() if item.modified < now - request.grace_seconds}
    keys = {split_uri(path) for snapshot in gone for path in side_files_named(snapshot)}
    chosen = {place: item for place, item in old.items() if place not in named.objects}
    chosen |= {
        place: own.get(place, _Object(path=path, size=unneeded.sizes.get(place, 0), modified=0.0))
        for place, path in unneeded.objects.items()
        if place not in named.objects and (place not in keys or place in old)
    }
    paths = sorted(item.path for item in chosen.values())
    if not request.dry_run:
        if expired or paths:
            _require_delete(version, storages)
        if expired:
            _expire(version, table, expired)
        _delete(storages, paths)
    return Garbage(
        versions=tuple(map(str, expired)),
        objects=tuple(paths),
        size_bytes=sum(item.size for item in chosen.values()),
        note=note,
    )


@dataclass(frozen=True, kw_only=True)
class _Object:
    path: str
    size: int
    modified: float


def _own_objects(version: IcebergVersion, storages: DataStorage) -> dict[Place, _Object]:
    """Return the objects with the table's UUID in their names."""
    mark = f"tblctl-{version.metadata.table_uuid.hex}-"
    found: dict[Place, _Object] = {}
    for folder in sorted({version.data_folder, version.metadata_folder}):
        storage = storages.folder(folder)
        for item in storage.list():
            if mark in item.name.rpartition("/")[2]:
                path = f"{folder}/{item.name}"
                found[split_uri(path)] = _Object(
                    path=path, size=item.size_bytes, modified=item.modified_seconds
                )
    return found


def _require_delete(version: IcebergVersion, storages: DataStorage) -> None:
    """Delete names that no object has: files that only expired snapshots named are never found again.

    They are always the same: in a versioned bucket each new one would stay, marked as deleted. This shows what an
    object store allows. On a local disk it shows nothing: there is no object to be denied.

    Raises:
        AccessDeniedError: credentials may not delete; nothing was changed.
    """
    for folder in sorted({version.data_folder, version.metadata_folder}):
        storage, name = storages.place_of(
            f"{folder}/tblctl-{version.metadata.table_uuid.hex}-{'0' * 32}-probe"
        )
        try:
            storage.delete([name])
        except AccessDeniedError as error:
            msg = f"{version.location}: {error}; gc needs credentials that may delete in {folder}; nothing was changed"
            raise AccessDeniedError(msg, **error.details) from error


def _expire(version: IcebergVersion, table: Table, expired: list[int]) -> None:
    """Remove snapshots from the metadata, if all branches and tags are where they were.

    An error is followed by a look whether they were removed. A request without an answer may arrive after it, so files
    that they alone name stay then.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

    requirements: list[Any] = [AssertTableUUID(uuid=version.metadata.table_uuid)]
    requirements += [
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in version.metadata.refs.items()
    ]
    _require_same_refs(version, table)
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired})
    with catalog_errors(version.location, table.catalog.properties):
        try:
            table.catalog.commit_table(table, tuple(requirements), (update,))
        except Exception as error:
            # A proxy may send a request twice: the second one is refused.
            if _is_expired(version, table, expired):
                return
            # Others committed, and perhaps deleted old metadata.
            if isinstance(error, CommitFailedException | FileNotFoundError):
                raise _conflict(version) from error
            found = named(version.location, error, table.catalog.properties)
            raise (found if did_not_commit(error) else _in_doubt(version, found)) from found.__cause__


def _is_expired(version: IcebergVersion, table: Table, expired: Iterable[int]) -> bool:
    """Return whether snapshots are gone, and all branches and tags where they were; false if nobody can be asked."""
    forget_connections(table.catalog)
    try:
        with catalog_errors(version.location, table.catalog.properties):
            now = load_table(table.catalog, table.name()).metadata
    except Exception:  # noqa: BLE001 (a catalog that fails may answer with anything)
        return False
    if now.table_uuid != version.metadata.table_uuid:
        return False
    left = {snapshot.snapshot_id for snapshot in now.snapshots}
    return left.isdisjoint(expired) and now.refs == version.metadata.refs


def _require_writable_metadata(version: IcebergVersion, table: Table) -> None:
    """Refuse to expire where PyIceberg writes the metadata, but not of this format version: it leaves an empty file."""
    from pyiceberg.catalog import MetastoreCatalog

    if version.metadata.format_version > _NEWEST_WRITTEN and isinstance(table.catalog, MetastoreCatalog):
        msg = (
            f"{version.location}: snapshots of format version {version.metadata.format_version} cannot be expired in "
            "this catalog, since PyIceberg does not write such metadata yet; have an engine do it (in Spark: CALL "
            "system.expire_snapshots). No snapshot expired and nothing was deleted"
        )
        raise InvalidOptionError(msg)


def _require_same_refs(version: IcebergVersion, table: Table) -> None:
    """Refuse if a branch or a tag was set since the files were read, which may take minutes.

    Removing a snapshot removes the tags that name it, and no requirement of a commit names what may not be there. So a
    tag that is set between this look and the commit is lost.
    """
    with catalog_errors(version.location, table.catalog.properties):
        now = load_table(table.catalog, table.name()).metadata
    if now.refs != version.metadata.refs:
        raise _conflict(version)


def _require_same_snapshots(version: IcebergVersion, table: Table) -> None:
    """Refuse if another writer expired snapshots since they were listed: their files may be gone."""
    with catalog_errors(version.location, table.catalog.properties):
        now = load_table(table.catalog, table.name()).metadata
    left = {snapshot.snapshot_id for snapshot in now.snapshots}
    if not left.issuperset(snapshot.snapshot_id for snapshot in version.metadata.snapshots):
        raise _conflict(version)


def _conflict(version: IcebergVersion) -> ConflictError:
    return ConflictError(
        f"{version.location}: another writer committed meanwhile; no snapshot expired and nothing was deleted"
    )


def _in_doubt(version: IcebergVersion, error: TblctlError) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"{version.location}: it is unknown whether snapshots expired ({error}). No file was deleted. Run gc again: if "
        "they are gone already, files that they alone named are left, and remove_orphan_files of Iceberg finds them"
    )


def _delete(storages: DataStorage, paths: Iterable[str]) -> None:
    """Delete objects. Those that cannot be deleted are logged, and found again by the next run if they are tblctl's."""
    names: dict[str, list[str]] = {}
    found: dict[str, Storage] = {}
    for path in paths:
        storage, name = storages.place_of(path)
        found[storage.url] = storage
        names.setdefault(storage.url, []).append(name)
    for url, storage in found.items():
        for start in range(0, len(names[url]), _BATCH):
            try:
                storage.delete(names[url][start : start + _BATCH])
            except TblctlError as error:
                LOG.warning("objects that no snapshot needs could not be deleted: %s", error)
