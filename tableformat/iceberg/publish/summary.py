"""The summary of a snapshot: Iceberg's standard keys, and tblctl's own."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.iceberg.record import DataFileRecord

DETAIL = "tblctl.detail"
"""The key with what tblctl says of its commit, as JSON."""

COPIED = "tblctl.entries-copied"
"""The key with how many entries of other files were written again, since they shared a manifest with replaced ones."""

_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)

NOTHING = {total: "0" for total, *_ in _TOTALS}
"""The totals of a table without snapshots."""


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What leaves the table: data files, and delete files that are about no live data file any more.

    Attributes:
        files, records, size_bytes: of data files; deleted records among them.
        partitions: the partitions that they are in.
        delete_files, deletes, delete_bytes: of position deletes.
    """

    files: int
    records: int
    size_bytes: int
    partitions: Collection[str]
    delete_files: int = 0
    deletes: int = 0
    delete_bytes: int = 0


def summary_of(
    removed: Removed,
    added: Sequence[DataFileRecord],
    before: Mapping[str, str],
    detail: Mapping[str, Any],
) -> dict[str, str]:
    """Return the summary's entries beside its operation. Totals follow from those before, as far as these are known.

    Args:
        removed: what leaves.
        added: what comes.
        before: the summary of the parent snapshot.
        detail: of tblctl.
    """
    changed = {
        "added-data-files": len(added),
        "deleted-data-files": removed.files,
        "added-records": sum(record.row_count for record in added),
        "deleted-records": removed.records,
        "added-files-size": sum(record.size_bytes for record in added),
        "removed-files-size": removed.size_bytes + removed.delete_bytes,
        "removed-delete-files": removed.delete_files,
        "removed-position-delete-files": removed.delete_files,
        "removed-position-deletes": removed.deletes,
        "changed-partition-count": len({*removed.partitions, *(record.partition for record in added)}),
    }
    found = {name: str(number) for name, number in changed.items() if number}
    for total, plus, minus in _TOTALS:
        number = _total(before.get(total), changed.get(plus, 0) - changed.get(minus, 0))
        if number is not None:
            found[total] = number
    return {**found, "engine-name": "tblctl", DETAIL: json.dumps(detail, separators=(",", ":"))}


def detail_of(summary: Mapping[str, str]) -> dict[str, Any]:
    """Return what tblctl said of its commit; empty if another writer committed."""
    try:
        found = json.loads(summary.get(DETAIL, "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _total(before: str | None, change: int) -> str | None:
    """Return a total after a change; None if the one before is not known, or cannot be right."""
    if before is None or not before.isdecimal() or int(before) + change < 0:
        return None
    return str(int(before) + change)
