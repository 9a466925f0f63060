"""The boxes of blocks in a plane of two columns, for keys that order rows by both alike.

A bound lies at the share of the rows that come before it, as far as the ranges of blocks tell. So a range of 1 % of the
rows is as wide anywhere. Ranks would not do: most lie at the edges if the blocks of a version hold nearly everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.maintain.boxes import BoxListing, box_listing
from tblctl.maintain.measure import ConditionFor
from tblctl.metrics.boxes import row_places
from tblctl.metrics.cuts import Floats
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.values import python_value, value_for_people
from tblctl.tableformat.port import Version

MOST_BOXES = 600
"""The most boxes that all planes of a picture show together. Of more, some are drawn: evenly over the blocks listed."""

_PLANE_COLUMNS = 2


@dataclass(frozen=True, kw_only=True)
class PlaneAxis:
    """One column: its name, and the first and the last bound that all planes of a picture have, as people read them."""

    name: str
    least: str
    greatest: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """Boxes of one version.

    Attributes:
        axes: the two columns, shared by all planes of a picture.
        begin, end: for each column where the drawn blocks begin and end, from 0 to 1.
        level: of the drawn blocks.
        block_count: how many blocks have boxes; more than are drawn, if there are too many.
    """

    axes: tuple[PlaneAxis, PlaneAxis]
    begin: tuple[Floats, Floats]
    end: tuple[Floats, Floats]
    level: Integers
    block_count: int


def planes_of(versions: Sequence[Version], sort: Sort, condition: ConditionFor) -> tuple[Plane, ...]:
    """Return a plane for each version; none if the sort is no curve, or not of two columns."""
    ids = key_maker(sort).column_ids
    if not sort.is_curve or len(ids) != _PLANE_COLUMNS:
        return ()
    listings = [box_listing(version, ids, condition(version.schema)) for version in versions]
    most = MOST_BOXES // len(versions)
    kept = [_evenly(listing.numbers, most) for listing in listings]
    cuts = np.cumsum([len(chosen) for chosen in kept])[:-1]
    axes, begins, ends = [], [], []
    for place, name in enumerate(listings[-1].names):
        axis, begin, end = _axis(name, place, listings, kept)
        axes.append(axis)
        begins.append(np.split(begin, cuts))
        ends.append(np.split(end, cuts))
    return tuple(
        Plane(
            axes=(axes[0], axes[1]),
            begin=(begins[0][number], begins[1][number]),
            end=(ends[0][number], ends[1][number]),
            level=listing.blocks.level[chosen],
            block_count=len(listing.numbers),
        )
        for number, (listing, chosen) in enumerate(zip(listings, kept, strict=True))
    )


def _evenly(numbers: Integers, most: int) -> Integers:
    """Return at most `most` of the numbers, the first and the last among them."""
    places = np.linspace(0, len(numbers) - 1, min(most, len(numbers))).round().astype(np.int64)
    return numbers[places]


def _axis(
    name: str, place: int, listings: Sequence[BoxListing], kept: Sequence[Integers]
) -> tuple[PlaneAxis, Floats, Floats]:
    """Return the axis of one column, and where all drawn blocks begin and end on it, version after version."""
    low, high = (
        pa.concat_tables(
            [
                pa.table({"0": getattr(listing.blocks, side).column(place)}).take(pa.array(chosen))
                for listing, chosen in zip(listings, kept, strict=True)
            ],
            promote_options="permissive",  # a column may have been widened in between
        )
        for side in ("low", "high")
    )
    ranks = key_ranks(low, high, Sort(id=1, terms=(Term(column_id=1),)))
    rows = [listing.blocks.stored_rows[chosen] for listing, chosen in zip(listings, kept, strict=True)]
    weights = np.maximum(np.concatenate(rows), 1).astype(np.float64)
    begin, end = row_places(*ranks, weights)
    both, values = np.concatenate(ranks), pa.concat_tables([low, high]).column(0)
    least, greatest = (_text(values, both, place) for place in (0, -1))
    total = weights.sum()
    return PlaneAxis(name=name, least=least, greatest=greatest), begin / total, end / total


def _text(values: pa.ChunkedArray, ranks: Integers, place: int) -> str:
    """Return the value of the first (0) or the last (-1) rank as people read it; nothing without values."""
    if not len(values):
        return ""
    found = value_for_people(python_value(values[int(np.argsort(ranks, kind="stable")[place])]))
    return "null" if found is None else str(found)
