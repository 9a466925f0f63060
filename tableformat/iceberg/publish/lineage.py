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
        is_whole: it lacks none.
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
                break
            snapshot = by_id.get(parent) if parent not in ids else None
            if snapshot is None:
                return cls(ids=frozenset({*ids, parent}), is_whole=False)
        return cls(ids=frozenset(ids), is_whole=True)
