"""The rule of `runs` for one partition: which runs to merge at the deepest place of a table.

A run is what one append or one merge wrote: blocks that do not overlap each other. So the depth at a place is the
number of runs there. Two things are traded: rows rewritten, and how many blocks overlap at the middles of blocks.

At the first deepest plateau, two groups are compared:

- A, whole runs. The runs there stand in order of their rows, most first. A merge of all but the first i of them
  rewrites run i for the sake of the smaller ones after it; so the cut is where the rows after i are most, as a multiple
  of those of i. On runs of equal size the optimal rule is known, binomial merging (Mathieu et al., "Bigtable merge
  compaction", 2014); this one does not need them equal. The group is what overlaps of these runs around the plateau,
  directly or by others between.
- B, local. The same cut, but blocks at the plateau stand in order of their density: rows per rank. Then blocks join
  that lie half inside, and are hardly denser than the densest. It catches late and clustered data: a few sparse blocks
  over dense ones are merged without these.

The value of a group is how many more blocks of it than one are at the middle of a block, added up over all blocks, per
row rewritten. B is taken where its value is three times that of A. The rule, and its three constants, were found in a
search of some 45 variants on the traces of `tblctl.selector.traces`; why these are best is not known.

Touching is no overlap (`connected.py`), so all is counted in the *gaps* between neighbouring ranks: a block covers the
gaps from its low to its high - 1, and one of a single key covers none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.connected import component_at

LOCAL_GAIN = 3.0
"""B is taken if its value is so many times that of A."""

_INSIDE = 0.5
_DENSER = 1.05
_PASSES = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """Blocks of one partition that cover gaps. Every array has one entry a block.

    Attributes:
        low, high: ranks without gaps, over the bounds of these blocks; low < high.
        rows: of each.
        run: a number for each run, from 0 on.
        free: which may be merged.
    """

    low: Integers
    high: Integers
    rows: Integers
    run: Integers
    free: Mask


def deepest_gap(depth: Integers) -> int:
    """Return the middle of the first deepest plateau of the depths of gaps."""
    first = int(depth.argmax())
    rest = np.flatnonzero(depth[first:] != depth[first])
    last = first + (int(rest[0]) if rest.size else depth.size - first) - 1
    return (first + last) // 2


def gap_depths(low: Integers, high: Integers, gaps: int) -> Integers:
    """Return how many blocks cover each gap."""
    found: Integers = np.cumsum(np.bincount(low, minlength=gaps + 1) - np.bincount(high, minlength=gaps + 1))
    return found[:gaps]


def group_at(field: Field, gap: int) -> Integers:
    """Return the group that the rule chooses at a gap, by the places of its blocks; empty for none. O(n log n)."""
    here = np.flatnonzero(field.free & (field.low <= gap) & (field.high > gap))
    if here.size < 2:  # noqa: PLR2004 (one block has nothing to merge with)
        return here[:0]
    whole = _whole_runs(field, here, gap)
    local = _local(field, here)
    if local.size and _value(field, local) >= LOCAL_GAIN * _value(field, whole):
        return local
    return whole


def _cut(weights: Floats | Integers) -> int:
    """Return the place i of descending weights where the sum of those after i is most, as a multiple of that of i."""
    after = weights.sum() - np.cumsum(weights)
    return int((after[:-1] / weights[:-1]).argmax())


def _whole_runs(field: Field, here: Integers, gap: int) -> Integers:
    """Return A."""
    rows = np.bincount(field.run, field.rows)
    runs = np.unique(field.run[here])
    runs = runs[np.argsort(-rows[runs], kind="stable")]
    is_taken = np.zeros(rows.size, np.bool_)
    is_taken[runs[_cut(rows[runs]) :] if runs.size > 1 else runs] = True
    chosen = np.flatnonzero(field.free & is_taken[field.run])
    return chosen[component_at(field.low[chosen], field.high[chosen], gap)]


def _local(field: Field, here: Integers) -> Integers:
    """Return B; empty where it is all of one run."""
    density = field.rows / (field.high - field.low)
    ordered = here[np.argsort(-density[here], kind="stable")]
    taken = ordered[_cut(density[ordered]) :]
    most = _DENSER * density[taken].max()
    could = field.free & (density <= most)
    for _ in range(_PASSES):
        low, high = field.low[taken].min(), field.high[taken].max()
        inside = np.minimum(field.high, high) - np.maximum(field.low, low)
        more = could & (inside >= _INSIDE * (field.high - field.low))
        more[taken] = True
        found = np.flatnonzero(more)
        if found.size == taken.size:
            break
        taken = found
    runs = field.run[taken]
    return taken if (runs != runs[0]).any() else taken[:0]


def _value(field: Field, group: Integers) -> float:
    """Return what a group brings per row that it rewrites."""
    covered = gap_depths(field.low[group], field.high[group], int(field.high.max()))
    middle = (field.low + field.high - 1) // 2
    return float(np.maximum(covered[middle] - 1, 0).sum() / field.rows[group].sum())
