"""The parameters of curve sorts: how finely each column is divided, and by which boundaries.

k ascending boundaries divide a column into k + 1 ranges: a value is in range i if i boundaries are at most it. The
first range and the last are open. NaN and NULL are in none of them; each has its own place after all values. Places of
ranges are as far apart as the ranges are heavy: so each half of an axis has about half of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tblctl.tableformat.errors import InvalidSchemaError, UnsupportedTypeError
from tblctl.tableformat.model.schema.types import is_orderable, statistic_type, type_from_text, type_to_text
from tblctl.tableformat.model.values import value_to_json, values_from_json

ZORDER, HILBERT = "zorder", "hilbert"
CURVES = (ZORDER, HILBERT)
"""The kinds of sorts whose rows lie along a curve through the ranges of several columns."""

LEAST_COLUMNS, MOST_COLUMNS = 2, 4
LEAST_BITS, MOST_BITS = 2, 16
"""The least, and the most bits of a column's place: keys of four columns are uint64."""

SAME = "same"
"""In the place of a cluster key: the present curve, with new boundaries."""

PLACES_APART = 2
"""The last two places of each column: of NaN and of NULL."""

BITS = {2: 10, 3: 8, 4: 7}
"""The bits of a new curve, by its columns: 1.05, 16.8 and 268 million cells, at least ten for each of 100,000 blocks.
So blocks seldom share a cell, and all boundaries fit into every snapshot: at most 2 x 1021, 3 x 253 or 4 x 125, which
take up to 40, 15 or 10 kB as numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranges:
    """The boundaries of each column of a curve.

    Attributes:
        bits: of each column's place.
        boundaries: for each column its ascending boundaries, of the statistic type that the column had then.
        places: for each column the ascending places of its ranges; () if they are as far apart as can be.

    Raises:
        ValueError: at construction: bits or columns are too few or too many, boundaries or places do not ascend.
    """

    bits: int
    boundaries: tuple[pa.Array, ...]
    places: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not LEAST_COLUMNS <= len(self.boundaries) <= MOST_COLUMNS:
            msg = f"a curve of {len(self.boundaries)} columns, expected {LEAST_COLUMNS} to {MOST_COLUMNS}"
            raise ValueError(msg)
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            msg = f"a curve of {self.bits} bits a column, expected {LEAST_BITS} to {MOST_BITS}"
            raise ValueError(msg)
        for values in self.boundaries:
            if len(values) > most_boundaries(self.bits):
                msg = f"{len(values)} boundaries of a column, {self.bits} bits hold {most_boundaries(self.bits)}"
                raise ValueError(msg)
            if not _ascends(values):
                msg = "the boundaries of a column do not ascend"
                raise ValueError(msg)
        if len(self.places) != len(self.boundaries):
            msg = f"places of {len(self.places)} columns, boundaries of {len(self.boundaries)}"
            raise ValueError(msg)
        for places, values in zip(self.places, self.boundaries, strict=True):
            _check_places(places, len(values) + 1, self.bits)

    def to_parameters(self) -> tuple[tuple[str, Any], ...]:
        """Return the parameters of the sort."""
        return (
            ("bits", self.bits),
            ("types", tuple(type_to_text(values.type) for values in self.boundaries)),
            ("boundaries", tuple(tuple(map(value_to_json, values)) for values in self.boundaries)),
            ("places", self.places),
        )


def bare_parameters(kinds: Sequence[pa.DataType]) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of a curve through columns of some types that has no boundaries, so one range each."""
    kinds = [statistic_type(kind) for kind in kinds]
    empty = tuple(pa.array([], kind) for kind in kinds)
    return Ranges(bits=BITS[len(kinds)], boundaries=empty, places=((),) * len(kinds)).to_parameters()


def is_bare(parameters: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether the parameters of a curve have no boundaries: those of columns without values, or not yet made."""
    return not any(len(values) for values in ranges_of(parameters).boundaries)


def _check_places(places: tuple[int, ...], ranges: int, bits: int) -> None:
    if not places:
        return
    if len(places) != ranges or any(type(place) is not int for place in places):
        msg = f"{len(places)} places for the {ranges} ranges of a column, expected as many whole numbers, or none"
        raise ValueError(msg)
    last = (1 << bits) - PLACES_APART - 1
    if places[0] < 0 or places[-1] > last or any(low >= high for low, high in pairwise(places)):
        msg = f"the places of a column do not ascend from 0 on to at most {last}"
        raise ValueError(msg)


def most_boundaries(bits: int) -> int:
    """Return how many boundaries a column of so many bits can have."""
    return (1 << bits) - PLACES_APART - 1


def ranges_of(parameters: tuple[tuple[str, Any], ...]) -> Ranges:
    """Return the boundaries in the parameters of a sort. Cached.

    Raises:
        ValueError: they are not those of a curve; says what is wrong.
    """
    try:
        return _ranges_of(parameters)
    except TypeError as error:
        msg = f"expected numbers and texts, got {str(parameters)[:100]}"
        raise ValueError(msg) from error


@functools.lru_cache(maxsize=128)
def _ranges_of(parameters: tuple[tuple[str, Any], ...]) -> Ranges:
    given = dict(parameters)
    if given.keys() != {"bits", "types", "boundaries", "places"}:
        msg = f"expected bits, types, boundaries and places, got {', '.join(map(str, given))[:100]}"
        raise ValueError(msg)
    bits, types, boundaries, places = (given[name] for name in ("bits", "types", "boundaries", "places"))
    if type(bits) is not int or not all(
        isinstance(each, tuple) for each in (types, boundaries, places, *places)
    ):
        msg = "expected a number of bits, and arrays of types, boundaries and places"
        raise ValueError(msg)
    if len(types) != len(boundaries):
        msg = f"types of {len(types)} columns, boundaries of {len(boundaries)}"
        raise ValueError(msg)
    return Ranges(bits=bits, boundaries=tuple(map(_values_of, types, boundaries)), places=places)


def _values_of(text: object, values: object) -> pa.Array:
    if not isinstance(text, str) or not isinstance(values, tuple) or None in values:
        msg = "a column needs the name of a type, and an array of boundaries"
        raise ValueError(msg)
    try:
        kind = type_from_text(text)
    except (InvalidSchemaError, UnsupportedTypeError) as error:
        raise ValueError(str(error)) from error
    if not is_orderable(kind) or statistic_type(kind) != kind:
        msg = f"{text} is not a type of bounds"
        raise ValueError(msg)
    return values_from_json(values, kind)


def frozen(value: Any) -> Any:
    """Return a JSON value with tuples in the place of lists: parameters can be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def curve_text(kind: str, names: Sequence[str]) -> str:
    """Return a curve as people write it."""
    return f"{kind}({', '.join(names)})"


def means_same(text: str | Sequence[str], names: Sequence[str], *, is_curve: bool) -> bool:
    """Return whether the text of a cluster key is `SAME`. A column of that name is meant if the key is no curve."""
    given = text if isinstance(text, str) else text[0] if len(text) == 1 else ""
    return given.strip().lower() == SAME and (is_curve or given.strip() not in names)


def _ascends(values: pa.Array) -> bool:
    import pyarrow.compute as pc

    if values.null_count:
        return False
    if len(values) < 2:  # noqa: PLR2004
        return True
    return bool(pc.all(pc.less(values.slice(0, len(values) - 1), values.slice(1))).as_py())
