"""The rule of `runs` for one partition: which runs to merge at the deepest place of a table.

A run is what one append or one merge wrote: blocks that do not overlap each other. So the depth at a place is the
number of runs there. Two things are traded: rows rewritten, and how many blocks overlap at the middles of blocks.

At the first deepest plateau, several groups are compared:

- Whole runs, the smaller ones. The runs there stand in order of their rows, most first; for each i, a group is what
  overlaps of the i-th and all after it around the plateau, directly or by others between.
- Sparse blocks. The blocks at the plateau stand in order of their density: rows per rank. They are cut where the sum
  of the densities after i is most, as a multiple of that of i. Then blocks join that lie half inside, and are hardly
  denser than the densest. It catches late data: a few sparse blocks over dense ones are merged without these.

The gain of a group is how many more blocks of it than one are at the middle of a block, added up over all blocks. The
group with the most gain / rows ** 0.3 is taken. Gain per row would be greedy: the cheapest merge, of the two smallest
runs, would win each time, and their rows be rewritten soon again. Gain alone would merge everything. Between these, on
runs of equal size that all overlap, powers of 0.28 to 0.38 choose as well as binomial merging, which is the best for a
fixed number of runs (Mathieu et al., "Bigtable merge compaction", 2014). The power was found on the traces of
`tblctl.selector.traces`; why it is best is not known.

Touching is no overlap (`connected.py`), so all is counted in the *gaps* between neighbouring ranks: a block covers the
gaps from its low to its high - 1, and one of a single key covers none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.connected import component_at

ROWS_POWER = 0.3
"""A group's gain is divided by its rows to this power."""

_MOST_CUTS = 32
_CUT_WORK = 4_000_000
"""At most so many groups of whole runs are compared, and fewer among very many blocks: times these, at most so much."""

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
    middles = _middles(field)
    best, most = here[:0], -1.0
    for group in (*_whole_runs(field, here, gap), _local(field, here)):
        if not group.size:
            continue
        score = _gain(field, middles, group) / float(field.rows[group].sum()) ** ROWS_POWER
        if score > most:
            best, most = group, score
    return best


def gain(field: Field, group: Integers) -> int:
    """Return how many more blocks of a group than one are at the middle of a block, added up over all blocks.

    About so much falls the sum of all blocks' depths when the group is merged.
    """
    return _gain(field, _middles(field), group)


def _middles(field: Field) -> Integers:
    """Return how many blocks have their middle in each gap."""
    found: Integers = np.bincount((field.low + field.high - 1) // 2, minlength=int(field.high.max()))
    return found


def _gain(field: Field, middles: Integers, group: Integers) -> int:
    low, high = field.low[group], field.high[group]
    least, most = int(low.min()), int(high.max())
    covered = gap_depths(low - least, high - least, most - least)
    return int(middles[least:most] @ np.maximum(covered - 1, 0))


def _ratios(weights: Floats | Integers) -> Floats:
    """Return for each place but the last of descending weights the sum of those after it, as a multiple of its own."""
    found: Floats = ((weights.sum() - np.cumsum(weights)) / weights)[:-1]
    return found


def _whole_runs(field: Field, here: Integers, gap: int) -> Iterator[Integers]:
    """Yield what overlaps around a gap of the smaller runs there, for all numbers of these, most first.

    Of many numbers, only those are tried before which the next larger run is large beside the smaller ones together.
    """
    rows = np.bincount(field.run, field.rows)
    runs = np.unique(field.run[here])
    runs = runs[np.argsort(-rows[runs], kind="stable")]
    place = np.full(rows.size, -1)
    place[runs] = np.arange(runs.size)
    chosen = np.flatnonzero(field.free & (place[field.run] >= 0))
    cuts = np.zeros(1, np.int64)
    if runs.size > 1:
        most = min(_MOST_CUTS, max(_CUT_WORK // field.low.size, 1))
        cuts = np.sort(np.argsort(-_ratios(rows[runs]), kind="stable")[:most])
    for cut in cuts.tolist():
        chosen = chosen[place[field.run[chosen]] >= cut]
        yield chosen[component_at(field.low[chosen], field.high[chosen], gap)]


def _local(field: Field, here: Integers) -> Integers:
    """Return sparse blocks; none where they are all of one run."""
    density = field.rows / (field.high - field.low)
    ordered = here[np.argsort(-density[here], kind="stable")]
    taken = ordered[int(_ratios(density[ordered]).argmax()) :]
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
