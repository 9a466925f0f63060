"""A commit must not name files that gc may have deleted: gc deletes what no snapshot names after a day."""

from __future__ import annotations

from collections.abc import Sequence

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.record import DataFileRecord

LONGEST_MERGE_SECONDS = 12 * 3600.0
"""Half of the least grace of gc."""

_RUN_DIGITS = 12  # of milliseconds, in front of a run's id


def require_fresh(
    location: str, records: Sequence[DataFileRecord], storages: DataStorage, env: Environment
) -> None:
    """Refuse files of a merge that began too long ago, or of which the oldest is gone.

    Raises:
        ConflictError: says which file, and why.
    """
    if not records:
        return
    oldest = min(records, key=lambda record: record.run_id or "")
    begun = _begun(oldest.run_id)
    if begun is not None and env.now() - begun > LONGEST_MERGE_SECONDS:
        hours = (env.now() - begun) / 3600
        msg = (
            f"{location}: the merge began {hours:.0f} hours ago; gc may delete what no snapshot names after 24 hours, "
            "so nothing was committed: merge less at once (--max-bytes), or commit more often"
        )
        raise ConflictError(msg)
    storage, name = storages.place_of(oldest.path)
    if storage.modified([name])[0] is None:
        msg = f"{location}: the new file {oldest.path} is gone, so nothing was committed: run the recluster again"
        raise ConflictError(msg)


def _begun(run_id: str | None) -> float | None:
    """Return when a run began, in seconds since 1970-01-01 UTC; None if its id does not say."""
    if run_id is None or len(run_id) <= _RUN_DIGITS:
        return None
    return int(run_id[:_RUN_DIGITS], 16) / 1000
