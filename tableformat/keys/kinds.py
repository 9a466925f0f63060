"""Sort kinds: how keys are made from rows. One file for each kind. Everything that depends on a kind uses `KeyMaker`.

A key is a tuple of values, one for each *key column*. Key columns compare left to right, each in its own direction
(`order.py`). A linear sort has a key column for each of its terms; a curve or a tree has one,
whatever its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tblctl.tableformat.keys.curve_keys import CurveKeys
from tblctl.tableformat.keys.linear import LinearKeys
from tblctl.tableformat.keys.listed import ListedKeys
from tblctl.tableformat.keys.tree_keys import TreeKeys
from tblctl.tableformat.model.cluster_key import LISTED, Sort
from tblctl.tableformat.model.curve import HILBERT, ZORDER
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.model.tree import TREE


class KeyOrder(Protocol):
    """How one key column compares."""

    @property
    def descending(self) -> bool:
        """Whether greater values come first."""

    @property
    def nulls_first(self) -> bool:
        """Whether nulls come before all values, whatever the direction."""


class SortingColumn(Protocol):
    """A column that rows are sorted by without a transform: what Parquet calls a sorting column."""

    @property
    def path(self) -> tuple[str, ...]:
        """Its name, through structs."""

    @property
    def order(self) -> KeyOrder:
        """Its direction."""


class Statistics(Protocol):
    """Statistics of the columns of n blocks."""

    @property
    def row_count(self) -> np.ndarray:
        """Rows of each block."""

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return bounds and counts of a column, or None."""

    def is_exact(self, leaf: Leaf) -> np.ndarray:
        """Return for each block whether the bounds of a column are values of it, not truncated."""


class KeyBounds(Protocol):
    """Bounds of the keys of n blocks, as far as column statistics give them.

    A block whose `known` is false may have any keys. `exact`: no bound was truncated.
    """

    @property
    def low(self) -> Sequence[pa.Array]:
        """The least keys, one array for each key column."""

    @property
    def high(self) -> Sequence[pa.Array]:
        """The greatest keys, one array for each key column."""

    @property
    def known(self) -> np.ndarray:
        """Where the bounds hold."""

    @property
    def exact(self) -> np.ndarray:
        """Where no bound was truncated."""


class KeyMaker(Protocol):
    """Makes the keys of one sort."""

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The ids of the columns that keys are made from, each once."""

    @property
    def orders(self) -> Sequence[KeyOrder]:
        """How the key columns compare."""

    def types(self, schema: Schema) -> list[pa.DataType | None]:
        """Return the type of each key column, a statistic type; None if the schema lacks its column."""

    def keys(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the key of each row: columns "0", "1", .. O(n).

        Raises:
            ValueError: the schema lacks a column that keys are made from.
        """

    def bounds(self, statistics: Statistics, schema: Schema) -> KeyBounds:
        """Return bounds of the keys of blocks from the statistics of columns. O(n)."""

    def sorting_columns(self, schema: Schema) -> Sequence[SortingColumn]:
        """Return the leading key columns that are plain columns of the table, for other readers."""

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return a text for each term, for people and, if the kind has a syntax, for `parse_key`."""

    def widening_problem(self, before: Leaf, after: Leaf) -> str | None:
        """Return why blocks would leave the order if a column became a wider type; None if they would not."""


KINDS: dict[str, Callable[[Sort], KeyMaker]] = {
    "linear": LinearKeys,
    ZORDER: CurveKeys,
    HILBERT: CurveKeys,
    TREE: TreeKeys,
    LISTED: ListedKeys,
}
"""Key makers by kind. Sorts of other kinds are not read: their blocks have no known order."""


def key_maker(sort: Sort) -> KeyMaker:
    """Return the key maker of a sort.

    Raises:
        ValueError: its kind is not known here.
    """
    make = KINDS.get(sort.kind)
    if make is None:
        raise ValueError(f"sort {sort.id} is of kind {sort.kind!r}, known kinds are {', '.join(KINDS)}")
    return make(sort)


def key_width(sort: Sort) -> int:
    """Return how many key columns a sort has."""
    return len(key_maker(sort).orders)


def key_leaves(sort: Sort, schema: Schema) -> list[Leaf]:
    """Return the columns that keys are made from, without those that the schema lacks."""
    found = (schema.leaf_by_id(column_id) for column_id in key_maker(sort).column_ids)
    return [leaf for leaf in found if leaf is not None]


def has_key_columns(sort: Sort, schema: Schema) -> bool:
    """Return whether the schema has all columns that keys are made from."""
    return len(key_leaves(sort, schema)) == len(key_maker(sort).column_ids)
