"""How deep a table was after each of its last snapshots.

Reclusters record the figures before and after in their summaries. Other writers do not, since an append should not have
to read the key ranges of all blocks. Figures that no summary has are measured from the metadata of snapshots that are
still readable, up to a limit of blocks. The rest is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tblctl.maintain.view import Averages, View
from tblctl.metrics.partitions import TABLE
from tblctl.tableformat.errors import InvalidKeyError, ObjectNotFoundError
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.port import Version, VersionEntry

SUMMARY, METADATA = "summary", "metadata"

MOST_MEASURED_BLOCKS = 1_000_000
"""Limit of blocks in all snapshots together: about three seconds. The newest snapshot is always measured."""

_SAME_BLOCKS = ("tag", "untag", "gc")
"""Operations that leave blocks and cluster key as they were."""


@dataclass(frozen=True, kw_only=True)
class DepthPoint:
    """The figures of one snapshot, by its own cluster key.

    Attributes:
        snapshot: its number, in the native format; in others its id.
        timestamp: when it was committed, ISO 8601 in UTC.
        operation: what committed it.
        rows, blocks: of the whole table then; None if its writer did not say (Iceberg).
        average_depth, average_overlaps: None if unknown. That is so without a cluster key, without a block in its
            order, or if the snapshot has expired and no recluster recorded them.
        source: `summary` if a recluster recorded the figures (without what others committed during its round),
            `metadata` if they were measured, None if unknown.
    """

    snapshot: int | str
    timestamp: str
    operation: str
    rows: int | None
    blocks: int | None
    average_depth: float | None
    average_overlaps: float | None
    source: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return dict(vars(self))


def depth_history(
    entries: Sequence[VersionEntry],
    version_of: Callable[[str], Version],
    *,
    most_measured_blocks: int = MOST_MEASURED_BLOCKS,
) -> tuple[DepthPoint, ...]:
    """Return the figures of versions, newest first.

    Args:
        entries: newest first, without gaps.
        version_of: opens a readable version by its id.
        most_measured_blocks: blocks of all measured versions together; the newest one is measured in any case.
    """
    recorded = _recorded(entries)
    known = {
        _origin(entries, place).id: (recorded[item.public_id], SUMMARY)
        for place, item in enumerate(entries)
        if item.public_id in recorded
    }
    measured_blocks = last_blocks = 0
    for place, item in enumerate(entries):
        origin = _origin(entries, place)
        if origin.id in known or not item.is_readable:
            continue
        stated = item.summary.blocks
        if place and measured_blocks + (last_blocks if stated is None else stated) > most_measured_blocks:
            continue
        try:
            version = version_of(item.id)
            if version.sort is not None:
                view = View.of(version, version.sort)
                known[origin.id] = view.averages, METADATA
                last_blocks = len(view.listing.level)
                measured_blocks += last_blocks
        except ObjectNotFoundError:
            if not place:
                raise
            # An older version whose metadata is gone has no figures. The newest one must be readable.
        except InvalidKeyError:  # one that its writer misspelled; `info` says so
            continue
    return tuple(_point(item, known.get(_origin(entries, place).id)) for place, item in enumerate(entries))


def _recorded(entries: Sequence[VersionEntry]) -> dict[int | str, Averages]:
    """Return what the summaries of reclusters say: of their own versions, and of those that they were planned on.

    Those of a recluster with a condition may be of some partitions only.
    """
    after: dict[int | str, Averages] = {}
    before: dict[int | str, Averages] = {}
    for item in entries:
        run = item.summary.detail.get("recluster", {})
        if "depth_after" in run and run.get("figures_of", TABLE) == TABLE:
            after[item.public_id] = _stated(run, "after")
            before[run["planned_on"]] = _stated(run, "before")
    return after | before  # `before` is exact. Of several commits of a round the first counts


def _stated(run: Mapping[str, Any], when: str) -> Averages:
    """Return the figures in a summary. Early versions wrote an unknown depth as 0."""
    depth, overlaps = run[f"depth_{when}"], run[f"overlaps_{when}"]
    return Averages(depth=depth, overlaps=overlaps) if depth else Averages(depth=None, overlaps=None)


def _origin(entries: Sequence[VersionEntry], place: int) -> VersionEntry:
    """Return the version that made the blocks and key of this one, as far as `entries` goes back."""
    while entries[place].summary.operation in _SAME_BLOCKS and place + 1 < len(entries):
        place += 1
    return entries[place]


def _point(item: VersionEntry, found: tuple[Averages, str] | None) -> DepthPoint:
    averages, source = found if found is not None else (None, None)
    return DepthPoint(
        snapshot=item.public_id,
        timestamp=iso_timestamp(item.timestamp_ms),
        operation=item.summary.operation,
        rows=item.summary.rows,
        blocks=item.summary.blocks,
        average_depth=None if averages is None else averages.depth,
        average_overlaps=None if averages is None else averages.overlaps,
        source=source,
    )
