"""The boxes of blocks in a plane of two columns, for keys that order rows by both alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.maintain.boxes import BoxListing, box_listing
from tblctl.maintain.measure import ConditionFor
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.values import python_value, value_for_people
from tblctl.tableformat.port import Version

MOST_BOXES = 1000
"""The most boxes that all planes of a picture show together. Of more, some are drawn: evenly over the blocks listed."""

_PLANE_COLUMNS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneAxis:
    """The bounds of one column in order. A bound's rank is its place among those of all planes of a picture.

    Attributes:
        name: the column.
        rank_count: how many different bounds there are.
        least, greatest: the first and the last as people read them.
    """

    name: str
    rank_count: int
    least: str
    greatest: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """Boxes of one version.

    Attributes:
        axes: the two columns, shared by all planes of a picture.
        low, high: for each column the ranks of the bounds of the drawn blocks.
        level: of the drawn blocks.
        block_count: how many blocks have boxes; more than are drawn, if there are too many.
    """

    axes: tuple[PlaneAxis, PlaneAxis]
    low: tuple[Integers, Integers]
    high: tuple[Integers, Integers]
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
    axes, lows, highs = [], [], []
    for place, name in enumerate(listings[-1].names):
        axis, low, high = _axis(name, place, listings, kept)
        axes.append(axis)
        lows.append(np.split(low, cuts))
        highs.append(np.split(high, cuts))
    return tuple(
        Plane(
            axes=(axes[0], axes[1]),
            low=(lows[0][number], lows[1][number]),
            high=(highs[0][number], highs[1][number]),
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
) -> tuple[PlaneAxis, Integers, Integers]:
    """Return the axis of one column, and the ranks of the bounds of all drawn blocks, version after version."""
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
    both = np.concatenate(ranks)
    values = pa.concat_tables([low, high]).column(0)
    least, greatest = (_text(values, both, end) for end in (0, -1))
    count = int(both.max(initial=-1)) + 1
    return PlaneAxis(name=name, rank_count=count, least=least, greatest=greatest), *ranks


def _text(values: pa.ChunkedArray, ranks: Integers, end: int) -> str:
    """Return the value of the first (0) or the last (-1) rank as people read it; nothing without values."""
    if not len(values):
        return ""
    found = value_for_people(python_value(values[int(np.argsort(ranks, kind="stable")[end])]))
    return "null" if found is None else str(found)
