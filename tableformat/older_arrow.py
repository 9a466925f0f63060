"""What newer releases of pyarrow can do, with the same results on every release that is supported. Pure.

A cluster's workers have one pyarrow for all that runs there, and rarely the newest one. This module can be deleted
when pyarrow 26 is the oldest that is supported: each function is then one call of pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

_MAJOR = int(pa.__version__.partition(".")[0])

READS_NULL_FIXED_SIZE_LISTS = _MAJOR >= 26  # noqa: PLR2004
"""Older releases write them, and then cannot read them back."""

_NULLS_BY_KEY = _MAJOR >= 25  # noqa: PLR2004
_HAS_SEARCH = hasattr(pc, "search_sorted")

SortKey = tuple[str, Literal["ascending", "descending"], Literal["at_start", "at_end"]]
"""A column's name, its direction, and the place of its nulls."""


def sort_indices(table: pa.Table, keys: Sequence[SortKey]) -> pa.Array:
    """Return the row numbers of `table` in the order of `keys`; equal rows keep their order. O(n log n)."""
    if _NULLS_BY_KEY:
        return pc.sort_indices(table, sort_keys=list(keys))
    columns: dict[str, Any] = {}
    ordered: list[tuple[str, str]] = []
    for name, direction, nulls in keys:
        column = table.column(name)
        if (
            column.null_count
        ):  # whether a value is NULL is compared first: so it does not matter where nulls are put
            columns[f"{name} is null"] = pc.is_null(column)
            ordered.append((f"{name} is null", "descending" if nulls == "at_start" else "ascending"))
        columns[name] = column
        ordered.append((name, direction))
    return pc.sort_indices(pa.table(columns), sort_keys=ordered)


def search_sorted(
    values: pa.Array, needles: pa.Array | pa.ChunkedArray, side: Literal["left", "right"] = "left"
) -> npt.NDArray[np.int64]:
    """Return for each needle how many of `values` lie below it, with `right` or equal it; 0 for a null.

    `values` are ascending and of the needles' type. O((n + m) log m); O((n + m) log(n + m)) where there is no kernel.
    """
    if isinstance(needles, pa.ChunkedArray):
        needles = needles.combine_chunks()
    if _HAS_SEARCH and not pat.is_decimal(values.type):
        if pat.is_fixed_size_binary(values.type):
            values, needles = values.cast(pa.binary()), needles.cast(pa.binary())
        found = pc.search_sorted(values, needles, side=side)
        return np.asarray(pc.fill_null(found, pa.scalar(0, found.type))).astype(np.int64)
    first, second = (needles, values) if side == "left" else (values, needles)
    order = pc.sort_indices(
        pa.concat_arrays([first, second])
    ).to_numpy()  # stable: equal values stay as they are
    start = 0 if side == "left" else len(values)
    is_needle = (order >= start) & (order < start + len(needles))
    places = np.zeros(len(needles), np.int64)
    places[order[is_needle] - start] = np.cumsum(~is_needle)[is_needle]
    if needles.null_count:
        places[np.asarray(needles.is_null())] = 0
    return places


def size_in_memory(array: pa.Array) -> int:
    """Return about how many bytes an array's values take. Before pyarrow 24, slices of views count as the whole."""
    try:
        return int(array.nbytes)
    except pa.ArrowTypeError:  # string_view, binary_view, list_view
        return int(array.get_total_buffer_size())
