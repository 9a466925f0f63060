"""How deep a table was after each of its last snapshots.

Reclusters state the figures before and after in their summaries. Other writers do not: working them out takes the key
ranges of all blocks, which no append should have to read. So what no summary says is measured now, from the metadata of
snapshots that can still be read, as far as a bound on the blocks allows; what is left stays unknown.
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
"""Of all snapshots together: about three seconds. The newest one is measured in any case."""

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
        average_depth, average_overlaps: None where unknown: no cluster key, no block in its order, or expired and no
            recluster states them.
        source: `summary` (of a recluster; what others committed during its round left out) or `metadata` (measured
            now); None where unknown.
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
    snapshots: Sequence[SnapshotInfo], version_of: Callable[[int], Version]
) -> tuple[DepthPoint, ...]:
    """Return the figures of snapshots, in their order: newest first.

    Args:
        snapshots: newest first, without gaps.
        version_of: opens one that is readable.
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
        if place and measured_blocks + item.blocks > MOST_MEASURED_BLOCKS:
            continue
        version = version_of(item.sequence)
        if version.sort is not None:
            known[origin.sequence] = View.of(version, version.sort).averages, METADATA
            measured_blocks += item.blocks
    return tuple(
        _point(item, known.get(_origin(snapshots, place).sequence)) for place, item in enumerate(snapshots)
    )


def _recorded(snapshots: Sequence[SnapshotInfo]) -> dict[int, Averages]:
    """Return what the summaries of reclusters say: of their own snapshots, and of those that they were planned on."""
    after: dict[int, Averages] = {}
    before: dict[int, Averages] = {}
    for item in snapshots:
        run = item.detail.get("recluster", {})
        if "depth_after" in run:
            after[item.sequence] = _stated(run, "after")
            before[run["planned_on"]] = _stated(run, "before")
    return after | before  # the figures before are exact; of several commits of a round, those of the first


def _stated(run: Mapping[str, Any], when: str) -> Averages:
    """Return what a summary states. A depth below 1 is none: so unknown ones were written once."""
    depth, overlaps = run[f"depth_{when}"], run[f"overlaps_{when}"]
    return Averages(depth=depth, overlaps=overlaps) if depth else Averages(depth=None, overlaps=None)


def _origin(snapshots: Sequence[SnapshotInfo], place: int) -> SnapshotInfo:
    """Return the snapshot that made the blocks and key of this one, as far as `snapshots` goes back."""
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
