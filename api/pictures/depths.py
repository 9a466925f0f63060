"""How deep a table was after each of its last snapshots.

Reclusters record the figures before and after in their summaries. Other writers do not, since an append should not have
to read the key ranges of all blocks. Figures that no summary has are measured from the metadata of snapshots that are
still readable, up to a limit of blocks. The rest is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tblctl.maintain.view import Averages, View
from tblctl.tableformat.port import Version

if TYPE_CHECKING:
    from tblctl.results import SnapshotInfo

SUMMARY, METADATA = "summary", "metadata"

MOST_MEASURED_BLOCKS = 1_000_000
"""Limit of blocks in all snapshots together: about three seconds. The newest snapshot is always measured."""

_SAME_BLOCKS = ("tag", "untag", "gc")
"""Operations that leave blocks and cluster key as they were."""


@dataclass(frozen=True, kw_only=True)
class DepthPoint:
    """The figures of one snapshot, by its own cluster key.

    Attributes:
        snapshot: its number.
        timestamp: when it was committed, ISO 8601 in UTC.
        operation: what committed it.
        rows, blocks: of the whole table then.
        average_depth, average_overlaps: None if unknown. That is so without a cluster key, without a block in its
            order, or if the snapshot has expired and no recluster recorded them.
        source: `summary` if a recluster recorded the figures (without what others committed during its round),
            `metadata` if they were measured, None if unknown.
    """

    snapshot: int
    timestamp: str
    operation: str
    rows: int
    blocks: int
    average_depth: float | None
    average_overlaps: float | None
    source: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return dict(vars(self))


def depth_history(
    snapshots: Sequence[SnapshotInfo],
    version_of: Callable[[int], Version],
    *,
    most_measured_blocks: int = MOST_MEASURED_BLOCKS,
) -> tuple[DepthPoint, ...]:
    """Return the figures of snapshots, newest first.

    Args:
        snapshots: newest first, without gaps.
        version_of: opens a readable snapshot by its number.
        most_measured_blocks: blocks of all measured snapshots together; the newest one is measured in any case.
    """
    recorded = _recorded(snapshots)
    known = {
        _origin(snapshots, place).sequence: (recorded[item.sequence], SUMMARY)
        for place, item in enumerate(snapshots)
        if item.sequence in recorded
    }
    measured_blocks = 0
    for place, item in enumerate(snapshots):
        origin = _origin(snapshots, place)
        if origin.sequence in known or not item.readable:
            continue
        if place and measured_blocks + item.blocks > most_measured_blocks:
            continue
        version = version_of(item.sequence)
        if version.sort is not None:
            known[origin.sequence] = View.of(version, version.sort).averages, METADATA
            measured_blocks += item.blocks
    return tuple(
        _point(item, known.get(_origin(snapshots, place).sequence)) for place, item in enumerate(snapshots)
    )


def _recorded(snapshots: Sequence[SnapshotInfo]) -> dict[int, Averages]:
    """Return the figures in the summaries of reclusters, for their own snapshots and for those they planned on."""
    after: dict[int, Averages] = {}
    before: dict[int, Averages] = {}
    for item in snapshots:
        run = item.detail.get("recluster", {})
        if "depth_after" in run:
            after[item.sequence] = _stated(run, "after")
            before[run["planned_on"]] = _stated(run, "before")
    return after | before  # `before` is exact. Of several commits of a round the first counts


def _stated(run: Mapping[str, Any], when: str) -> Averages:
    """Return the figures in a summary. Early versions wrote an unknown depth as 0."""
    depth, overlaps = run[f"depth_{when}"], run[f"overlaps_{when}"]
    return Averages(depth=depth, overlaps=overlaps) if depth else Averages(depth=None, overlaps=None)


def _origin(snapshots: Sequence[SnapshotInfo], place: int) -> SnapshotInfo:
    """Return the snapshot that this one has its blocks and key from, as far as `snapshots` goes back."""
    while snapshots[place].operation in _SAME_BLOCKS and place + 1 < len(snapshots):
        place += 1
    return snapshots[place]


def _point(item: SnapshotInfo, found: tuple[Averages, str] | None) -> DepthPoint:
    averages, source = found if found is not None else (None, None)
    return DepthPoint(
        snapshot=item.sequence,
        timestamp=item.timestamp,
        operation=item.operation,
        rows=item.rows,
        blocks=item.blocks,
        average_depth=None if averages is None else averages.depth,
        average_overlaps=None if averages is None else averages.overlaps,
        source=source,
    )
