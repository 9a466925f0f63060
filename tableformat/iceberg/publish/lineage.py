"""The ancestors of a snapshot. Some catalogs hide them, and old ones expire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A snapshot and its ancestors.

    Attributes:
        ids: those that the metadata has, and the id of the first that it lacks.
        is_whole: it lacks none, up to the table's first snapshot.
    """

    ids: frozenset[int]
    is_whole: bool

    @classmethod
    def of(cls, metadata: TableMetadata, snapshot: Snapshot | None) -> Lineage:
        """Return the lineage of a snapshot. O(n)."""
        by_id = {found.snapshot_id: found for found in metadata.snapshots}
        ids: set[int] = set()
        while snapshot is not None:
            ids.add(snapshot.snapshot_id)
            parent = snapshot.parent_snapshot_id
            if parent is None:
                # Some writers cut the lineage where they expire snapshots, so the first one need not be the table's.
                return cls(ids=frozenset(ids), is_whole=(snapshot.sequence_number or 0) <= 1)
            snapshot = by_id.get(parent) if parent not in ids else None
            if snapshot is None:
                return cls(ids=frozenset({*ids, parent}), is_whole=False)
        return cls(ids=frozenset(ids), is_whole=True)


def hides_history(metadata: TableMetadata) -> bool:
    """Return whether the catalog shows the newest snapshot alone, as Nessie does: others may need what it does not."""
    if any(name.startswith("nessie.") for name in metadata.properties):
        return True
    snapshots = metadata.snapshots
    alone = len(snapshots) == 1 and snapshots[0].parent_snapshot_id is None
    return alone and (snapshots[0].sequence_number or 0) > 1 and not metadata.metadata_log
