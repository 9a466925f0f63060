"""What becomes of groups of blocks that are sorted by a key: predicted bounds, and what queries then read of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tblctl.selector.workload.asked import Asked, Floats, Ints, Key
from tblctl.selector.workload.replay import Blocks


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Groups of equally many blocks, and what they become.

    Attributes:
        members: the blocks, of shape (groups, blocks of a group).
        outputs: how many blocks each becomes.
        edges: for each column of the key, where its outputs end, of shape (groups, cuts + 1). Outputs of a pair are the
            cells of a grid.
        low, high: bounds of all rows of a group, of shape (columns, groups).
        read_seconds: of one output.
    """

    members: Ints
    outputs: Ints
    edges: dict[int, Floats]
    low: Floats
    high: Floats
    read_seconds: Floats


def sorted_groups(blocks: Blocks, members: Ints, key: Key, block_rows: float) -> Groups:
    """Return what groups become, sorted by a key and cut into blocks of `block_rows`.

    The bounds of the key are quantiles of the rows, which are taken to spread evenly within each block; those of a
    pair lie on a grid of as many cells as there are blocks. Other columns keep the bounds of the group.
    """
    rows = blocks.rows[members].sum(axis=1)
    outputs = np.maximum(np.ceil(rows / block_rows - 1e-9), 1).astype(np.int64)
    cuts = np.round(outputs ** (1 / len(key))).astype(np.int64)
    return Groups(
        members=members,
        outputs=outputs,
        edges={column: _quantiles(blocks, members, column, cuts) for column in key},
        low=blocks.low[:, members].min(axis=2),
        high=blocks.high[:, members].max(axis=2),
        read_seconds=blocks.read_seconds[members].sum(axis=1) / outputs,
    )


def _quantiles(blocks: Blocks, members: Ints, column: int, cuts: Ints) -> Floats:
    """Return where each group's rows are cut into equal parts by a column; NaN beyond the last cut."""
    found = np.full((len(members), int(cuts.max()) + 1), np.nan)
    low, high = blocks.low[column], blocks.high[column]
    for number, chosen in enumerate(members):
        ends = np.concatenate((low[chosen], high[chosen]))
        least = 1e-9 * max(float(np.ptp(ends)), 1e-300)
        width = np.maximum(high[chosen] - low[chosen], least)
        density = blocks.rows[chosen] / width
        ends = np.concatenate((low[chosen], low[chosen] + width))
        order = np.argsort(ends)
        ends = ends[order]
        slope = np.cumsum(np.concatenate((density, -density))[order])[:-1]
        below = np.concatenate(([0.0], np.cumsum(np.maximum(slope, 0) * np.diff(ends))))
        wanted = np.arange(cuts[number] + 1) / cuts[number] * below[-1]
        found[number, : cuts[number] + 1] = np.interp(wanted, below, ends)
    return found


def predicted_cost(groups: Groups, asked: Asked) -> Floats:
    """Return the seconds that all queries together take to read what each group becomes. O(boxes x outputs)."""
    found = np.zeros(len(groups.members))
    cells = np.prod([(~np.isnan(edges[:, 1:])).sum(axis=1) for edges in groups.edges.values()], axis=0)
    for part in asked.parts(len(groups.members) * int(groups.outputs.max())):
        share = part.of_queries(_outputs_met(groups, part) / cells, np.add)
        found += part.cost @ np.minimum(share, 1)
    return found * groups.outputs * groups.read_seconds


def _outputs_met(groups: Groups, asked: Asked) -> Floats:
    """Return how many outputs of each group each box meets, of shape (boxes, groups); of pairs, cells of the grid."""
    found = np.ones((len(asked.query), len(groups.members)))
    for column in np.flatnonzero(asked.limits.any(axis=0)):
        low, high = asked.low[:, column, None], asked.high[:, column, None]
        if column not in groups.edges:
            found *= (groups.high[column] >= low) & (groups.low[column] <= high)
    for key, edges in groups.edges.items():
        low, high = asked.low[:, key, None, None], asked.high[:, key, None, None]
        found *= np.count_nonzero((edges[:, 1:] >= low) & (edges[:, :-1] <= high), axis=2)
    return found
