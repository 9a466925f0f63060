"""How well a table is clustered, in figures: what `info` reports.

Pure: arrays of block metadata in, one frozen value out. Databend's `clustering_information` and Snowflake's
`SYSTEM$CLUSTERING_INFORMATION` define the figures (closed intervals; see intervals.py). Percentiles and levels are
added here.

A level's figures count its own blocks only, because reclustering looks at one level at a time. So overlaps and depths
of the levels do not add up to the table's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tblctl.metrics.boxes import BoxFigures
from tblctl.metrics.html import bars_html, fields_html
from tblctl.metrics.intervals import Integers, Mask, known_mean, overlaps_and_depths
from tblctl.metrics.worst import DeepRange

EXACT_BUCKETS = 16
"""Each depth up to this has its own bucket in the histogram; above it buckets end at powers of two."""


@dataclass(frozen=True, kw_only=True)
class DepthFigures:
    """Nearest-rank percentiles of block depth: 0 without blocks, None if no block is measured.

    The p-th percentile is the depth of block number ceil(p / 100 x blocks), counted from 1 in order of depth.
    It is never interpolated.
    """

    p50: int | None
    p95: int | None
    p99: int | None
    max: int | None

    def to_dict(self) -> dict[str, int | None]:
        """Return the figures as JSON values."""
        return {"p50": self.p50, "p95": self.p95, "p99": self.p99, "max": self.max}


@dataclass(frozen=True, kw_only=True)
class ClusteringFigures:
    """The figures of a table, or of one of its levels. Without blocks they are 0, never NaN.

    If there are blocks but none is measured, averages and percentiles are None.

    Attributes:
        total_block_count: all blocks, including the next three counts.
        constant_block_count: blocks of one key.
        unclustered_block_count: blocks not sorted by the key in question. No average, bucket or percentile counts them.
            Always 0 for a level: a block's level holds for its own sort.
        unknown_block_count: blocks whose bounds are missing. No average, bucket or percentile counts them.
        average_overlaps, average_depth: over the measured blocks, to four decimals, half up.
        block_depth_histogram: label and number of blocks of every bucket that is not empty, in order. The label is the
            largest depth in the bucket, in at least five digits.
        depth: percentiles.
        rows, bytes: of all blocks counted in `total_block_count`.
    """

    total_block_count: int
    constant_block_count: int
    unclustered_block_count: int
    unknown_block_count: int
    average_overlaps: float | None
    average_depth: float | None
    block_depth_histogram: tuple[tuple[str, int], ...]
    depth: DepthFigures
    rows: int
    bytes: int

    def __post_init__(self) -> None:
        measured = self.total_block_count - self.unclustered_block_count - self.unknown_block_count
        counted = sum(count for _, count in self.block_depth_histogram)
        if counted != measured or not 0 <= self.constant_block_count <= measured:
            msg = (
                f"{measured} blocks were measured, but the histogram counts {counted} and "
                f"{self.constant_block_count} are constant"
            )
            raise ValueError(msg)

    @property
    def is_mostly_unclustered(self) -> bool:
        """Whether more than half of the blocks are unclustered, so that averages and percentiles miss them."""
        return 2 * self.unclustered_block_count > self.total_block_count

    @property
    def unclustered_share(self) -> float:
        """The share of the blocks that are unclustered, to four decimals; 0 without blocks."""
        return round(self.unclustered_block_count / max(self.total_block_count, 1), 4)

    @property
    def depth_buckets(self) -> tuple[tuple[int, int, int], ...]:
        """The buckets of the histogram as (least depth, largest depth, blocks)."""
        buckets = ((int(label), count) for label, count in self.block_depth_histogram)
        return tuple(
            (most if most <= EXACT_BUCKETS else most // 2 + 1, most, count) for most, count in buckets
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "total_block_count": self.total_block_count,
            "constant_block_count": self.constant_block_count,
            "unclustered_block_count": self.unclustered_block_count,
            "unknown_block_count": self.unknown_block_count,
            "average_overlaps": self.average_overlaps,
            "average_depth": self.average_depth,
            "block_depth_histogram": dict(self.block_depth_histogram),
            "depth": self.depth.to_dict(),
            "rows": self.rows,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, kw_only=True)
class ClusteringInfo(ClusteringFigures):
    """How well a table is clustered by `cluster_by_keys`.

    Attributes:
        cluster_by_keys: the terms that ranges are measured by, as text.
        levels: every level that has blocks, ascending, with its figures.
        worst: the deepest ranges of keys where blocks overlap; at most the number asked for.
        inexact_block_count: measured blocks whose bounds may be wider than their keys: text that was truncated, floats
            of which nobody counted the NaN. They may overlap less than the figures say.
        outside: for a curve: by column, which share of the rows is in blocks that lie beyond its boundaries altogether.
        boxes: how well blocks separate the columns, if they are ordered by several alike (`zorder`, `hilbert`).
        live_sorts: of a table's own key: for each other live sort the figures of the blocks in its order alone. They
            count as unclustered above.
    """

    cluster_by_keys: tuple[str, ...]
    levels: tuple[tuple[int, ClusteringFigures], ...]
    worst: tuple[DeepRange, ...] = ()
    inexact_block_count: int = 0
    outside: tuple[tuple[str, float], ...] = ()
    boxes: BoxFigures | None = None
    live_sorts: tuple[ClusteringInfo, ...] = ()

    def _repr_html_(self) -> str:
        """Return the figures for a notebook."""
        depths = [
            (f"{most:,}" if least == most else f"{least:,} to {most:,}", count)
            for least, most, count in self.depth_buckets
        ]
        fields = {
            "cluster key": ", ".join(self.cluster_by_keys),
            "rows": self.rows,
            "blocks": self.total_block_count,
            "unclustered blocks": self.unclustered_block_count,
            "bytes": self.bytes,
            "overlaps on average": self.average_overlaps,
            "depth on average": self.average_depth,
            "deepest": self.depth.max,
        }
        return fields_html("Clustering", fields) + (bars_html(("depth", "blocks"), depths) if depths else "")

    def to_dict(self) -> dict[str, Any]:
        """Return what `info --json` prints."""
        figures = super().to_dict()
        totals = {name: figures.pop(name) for name in ("rows", "bytes")}
        levels = {str(level): found.to_dict() for level, found in self.levels}
        worst = [found.to_dict() for found in self.worst]
        return {
            "cluster_by_keys": list(self.cluster_by_keys),
            **figures,
            "levels": levels,
            **totals,
            "worst": worst,
            "inexact_block_count": self.inexact_block_count,
            "unclustered_share": self.unclustered_share,
            **({"outside": dict(self.outside)} if self.outside else {}),
            **({} if self.boxes is None else {"boxes": self.boxes.to_dict()}),
            **({"live_sorts": [found.to_dict() for found in self.live_sorts]} if self.live_sorts else {}),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedBlocks:
    """The blocks of a table as figures need them: bounds as ranks. Every array has one entry a block.

    Attributes:
        low, high: ranks of the block's bounds within its partition; a closed range, equal for equal keys. It may be
            wider than the keys. Meaningless for an unclustered or unknown block.
        level: how often its rows were clustered, -1 for constant and full; meaningless for an unclustered block.
        row_count, size_bytes: of its file.
        constant: it holds one key only. Equal ranks do not prove that if bounds are inexact.
        unclustered: it is not sorted by the key in question.
        unknown: a bound is missing, so it may overlap everything in its partition. An unclustered block is counted as
            unclustered only.

    Raises:
        ValueError: the arrays differ in length.
    """

    low: Integers
    high: Integers
    level: npt.NDArray[np.signedinteger[Any]]
    row_count: Integers
    size_bytes: Integers
    constant: Mask
    unclustered: Mask
    unknown: Mask

    def __post_init__(self) -> None:
        shapes = {name: array.shape for name, array in vars(self).items()}
        if len(set(shapes.values())) > 1 or self.low.ndim != 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            msg = f"the arrays must be flat and of one length; their shapes are {listed}"
            raise ValueError(msg)

    def pick(self, blocks: Mask | Integers) -> RankedBlocks:
        """Return the arrays of some blocks, given by a mask or by their numbers."""
        return RankedBlocks(**{item.name: getattr(self, item.name)[blocks] for item in fields(RankedBlocks)})


def clustering_info(cluster_by_keys: Sequence[str], blocks: RankedBlocks) -> ClusteringInfo:
    """Measure a table. The cost is that of `overlaps_and_depths`, over all blocks and once more over each level.

    Raises:
        ValueError: a block that is neither unclustered nor unknown has its low above its high.
    """
    levels = []
    leveled = np.flatnonzero(~blocks.unclustered)
    order = leveled[np.argsort(blocks.level[leveled], kind="stable")]
    numbers, begins = np.unique(blocks.level[order], return_index=True)
    whole = _figures(blocks)
    for number, members in zip(numbers.tolist(), np.split(order, begins[1:]), strict=False):
        alone = members.size == blocks.low.size  # the usual young table: all is level 0
        levels.append((int(number), whole if alone else _figures(blocks.pick(members))))
    return ClusteringInfo(cluster_by_keys=tuple(cluster_by_keys), levels=tuple(levels), **vars(whole))


def _figures(blocks: RankedBlocks) -> ClusteringFigures:
    unknown = blocks.unknown & ~blocks.unclustered
    measured = ~(blocks.unclustered | unknown)
    low, high = blocks.low, blocks.high
    count = int(np.count_nonzero(measured))
    if count < measured.size:
        low, high = low[measured], high[measured]
    overlap, depth = overlaps_and_depths(low, high)
    blocks_of_depth = np.bincount(depth)
    return ClusteringFigures(
        total_block_count=measured.size,
        constant_block_count=int(np.count_nonzero(blocks.constant & measured)),
        unclustered_block_count=int(np.count_nonzero(blocks.unclustered)),
        unknown_block_count=int(np.count_nonzero(unknown)),
        average_overlaps=known_mean(int(overlap.sum()), count, measured.size),
        average_depth=known_mean(int(depth.sum()), count, measured.size),
        block_depth_histogram=_histogram(blocks_of_depth),
        depth=_depth_figures(blocks_of_depth, measured.size),
        rows=int(blocks.row_count.sum()),
        bytes=int(blocks.size_bytes.sum()),
    )


def _histogram(blocks_of_depth: Integers) -> tuple[tuple[str, int], ...]:
    """Return label and number of blocks of every non-empty bucket; `blocks_of_depth[d]` blocks have depth d."""
    found = np.flatnonzero(blocks_of_depth)
    power = np.left_shift(
        1, np.frexp(np.maximum(found - 1, 0))[1].astype(np.int64)
    )  # the next power of two, or the depth itself
    labels, begins = np.unique(np.where(found <= EXACT_BUCKETS, found, power), return_index=True)
    counts = np.add.reduceat(blocks_of_depth[found], begins) if found.size else begins
    return tuple(
        (f"{label:05d}", count) for label, count in zip(labels.tolist(), counts.tolist(), strict=True)
    )


def _depth_figures(blocks_of_depth: Integers, blocks: int) -> DepthFigures:
    up_to = np.cumsum(blocks_of_depth)
    count = int(up_to[-1]) if up_to.size else 0
    if count == 0:
        nothing = None if blocks else 0
        return DepthFigures(p50=nothing, p95=nothing, p99=nothing, max=nothing)
    p50, p95, p99 = (int(np.searchsorted(up_to, -(-percent * count // 100))) for percent in (50, 95, 99))
    return DepthFigures(p50=p50, p95=p95, p99=p99, max=blocks_of_depth.size - 1)
