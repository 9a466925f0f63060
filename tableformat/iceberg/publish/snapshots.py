"""A new snapshot on top of a head, as a commit proposes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.iceberg.publish.new_manifests import NewManifests

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Operation, Snapshot

    from tblctl.tableformat.iceberg.version import IcebergVersion

_ID_BITS = 63


def new_snapshot_id(env: Environment) -> int:
    """Return the id of a snapshot to come."""
    return int(env.new_id(), 16) >> (128 - _ID_BITS)


def snapshot_on(
    head: IcebergVersion,
    table: Table,
    manifests: Sequence[ManifestFile],
    new: NewManifests,
    *,
    operation: Operation,
    summary: Mapping[str, str],
    now_ms: int,
) -> Snapshot:
    """Write a manifest list, and return the snapshot with it.

    Args:
        head: the version below it.
        table: the same, as it was loaded.
        manifests: all of the snapshot.
        new: writes the list, and has the snapshot's id.
        operation: what the snapshot does.
        summary: of it, beside the operation.
        now_ms: the time, in milliseconds since 1970-01-01 UTC. The snapshot is no older than the table's last change.
    """
    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot, Summary

    metadata = table.metadata
    sequence = metadata.last_sequence_number + 1 if isinstance(metadata, TableMetadataV2) else 0
    parent_id = None if head.snapshot is None else head.snapshot.snapshot_id
    return Snapshot.model_validate(
        {
            "snapshot-id": new.snapshot_id,
            "parent-snapshot-id": parent_id,
            "sequence-number": sequence,
            "timestamp-ms": max(now_ms, metadata.last_updated_ms),
            "manifest-list": new.write_list(table, manifests, parent=parent_id, sequence_number=sequence),
            "summary": Summary(operation, **summary),
            "schema-id": metadata.current_schema_id,
        }
    )
