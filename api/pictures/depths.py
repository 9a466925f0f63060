"""How deep a table was after each of its last snapshots.

Reclusters state the figures before and after in their summaries. Other writers do not: working them out takes the key
ranges of all blocks, which no append should have to read. So what no summary says is measured now, from the metadata of
snapshots that can still be read, as far as a bound on the blocks allows; what is left stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tblctl.maintain.view import Averages, View
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.port import Version, VersionEntry

SUMMARY, METADATA = "summary", "metadata"

MOST_MEASURED_BLOCKS = 1_000_000
"""Of all snapshots together: about three seconds. The newest one is measured in any case."""

_SAME_BLOCKS = ("tag", "untag", "gc")
"""Operations that leave blocks and cluster key as they were."""


@dataclass(frozen=True, kw_only=True)
class DepthPoint:
    """The figures of one snapshot, by its own cluster key.

    Attributes:
        snapshot: its number, in the native format; in others its id.
        timestamp: when it was committed, ISO 8601 in UTC.
        operation: what committed it.
        rows, blocks: of the whole table then.
        average_depth, average_overlaps: None where unknown: no cluster key, no block in its order, or expired and no
            recluster states them.
        source: `summary` (of a recluster; what others committed during its round left out) or `metadata` (measured
            now); None where unknown.
    """

    snapshot: int | str
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
    entries: Sequence[VersionEntry], version_of: Callable[[str], Version]
) -> tuple[DepthPoint, ...]:
    """Return the figures of versions, in their order: newest first.

    Args:
        entries: newest first, without gaps.
        version_of: opens one that is readable, by its id.
    """
    recorded = _recorded(entries)
    known = {
        _origin(entries, place).id: (recorded[item.public_id], SUMMARY)
        for place, item in enumerate(entries)
        if item.public_id in recorded
    }
    measured_blocks = 0
    for place, item in enumerate(entries):
        origin = _origin(entries, place)
        if origin.id in known or not item.is_readable:
            continue
        if place and measured_blocks + item.summary.blocks > MOST_MEASURED_BLOCKS:
            continue
        version = version_of(item.id)
        if version.sort is not None:
            known[origin.id] = View.of(version, version.sort).averages, METADATA
            measured_blocks += item.summary.blocks
    return tuple(_point(item, known.get(_origin(entries, place).id)) for place, item in enumerate(entries))


def _recorded(entries: Sequence[VersionEntry]) -> dict[int | str, Averages]:
    """Return what the summaries of reclusters say: of their own versions, and of those that they were planned on."""
    after: dict[int | str, Averages] = {}
    before: dict[int | str, Averages] = {}
    for item in entries:
        run = item.summary.detail.get("recluster", {})
        if "depth_after" in run:
            after[item.public_id] = _stated(run, "after")
            before[run["planned_on"]] = _stated(run, "before")
    return after | before  # the figures before are exact; of several commits of a round, those of the first


def _stated(run: Mapping[str, Any], when: str) -> Averages:
    """Return what a summary states. A depth below 1 is none: so unknown ones were written once."""
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
