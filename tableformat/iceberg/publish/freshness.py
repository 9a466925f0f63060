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
    location: str,
    records: Sequence[DataFileRecord],
    begun_seconds: float,
    storages: DataStorage,
    env: Environment,
) -> None:
    """Refuse files of a merge that began too long ago, or of which the oldest is gone.

    Args:
        location: the table, for people.
        records: the new data files; there are none if all rows were deleted.
        begun_seconds: when the first metadata of the commit may have been written, since 1970-01-01 UTC.
        storages: of the files.
        env: clocks.

    Raises:
        ConflictError: says which file, and why.
    """
    oldest = min(records, key=lambda record: record.run_id or "", default=None)
    begun = begun_seconds if oldest is None else min(begun_seconds, _begun(oldest.run_id) or begun_seconds)
    if env.now() - begun > LONGEST_MERGE_SECONDS:
        hours = (env.now() - begun) / 3600
        msg = (
            f"{location}: the merge began {hours:.0f} hours ago; gc may delete what no snapshot names after 24 hours, "
            "so nothing was committed: merge less at once (--max-bytes), or commit more often"
        )
        raise ConflictError(msg)
    if oldest is None:
        return
    storage, name = storages.place_of(oldest.path)
    if storage.modified([name])[0] is None:
        msg = f"{location}: the new file {oldest.path} is gone, so nothing was committed: run the recluster again"
        raise ConflictError(msg)


def merge_seconds(records: Sequence[DataFileRecord], ended_seconds: float) -> float:
    """Return how long a merge took that ended then, in seconds since 1970-01-01 UTC; 0 if its files do not say."""
    begun = [found for record in records if (found := _begun(record.run_id)) is not None]
    return max(0.0, ended_seconds - min(begun, default=ended_seconds))


def _begun(run_id: str | None) -> float | None:
    """Return when a run began, in seconds since 1970-01-01 UTC; None if its id does not say."""
    if run_id is None or len(run_id) <= _RUN_DIGITS:
        return None
    return int(run_id[:_RUN_DIGITS], 16) / 1000
