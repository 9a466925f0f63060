"""Linear sorts: rows are ordered by one term after the other, as ORDER BY does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.cluster_key import Sort, Term, term_to_text
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.term_values import monotonic, term_type, transform_array, widening_problem

if TYPE_CHECKING:
    from tblctl.tableformat.keys.kinds import Statistics


@dataclass(frozen=True, kw_only=True)
class Column:
    """A plain column of the table that rows are sorted by."""

    path: tuple[str, ...]
    order: Term


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """Bounds of keys; see `KeyBounds`."""

    low: list[pa.Array]
    high: list[pa.Array]
    known: np.ndarray
    exact: np.ndarray


class LinearKeys:
    """Keys with one value for each term; a `KeyMaker`."""

    def __init__(self, sort: Sort) -> None:
        self._sort = sort

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The columns of the terms, each once."""
        return tuple(dict.fromkeys(term.column_id for term in self._sort.terms))

    @property
    def orders(self) -> Sequence[Term]:
        """The terms, which define how they compare."""
        return self._sort.terms

    def types(self, schema: Schema) -> list[pa.DataType | None]:
        """Return the type of each term's values; None if the schema lacks its column."""
        return [
            None if schema.leaf_by_id(term.column_id) is None else term_type(term, schema)
            for term in self._sort.terms
        ]

    def keys(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the values of the terms for each row, from rows in read types."""
        columns = []
        for term in self._sort.terms:
            leaf = needed_leaf(term.column_id, self._sort, schema)
            values = leaf_values(rows, leaf.path)
            if term.transform == "identity":
                columns.append(values)
                continue
            chunks = [transform_array(term, chunk, leaf.type) for chunk in values.chunks]
            kind = (
                chunks[0].type if chunks else transform_array(term, pa.array([], values.type), leaf.type).type
            )
            columns.append(pa.chunked_array(chunks, kind))
        return pa.table(columns, names=[str(index) for index in range(len(columns))])

    def bounds(self, statistics: Statistics, schema: Schema) -> Bounds:
        """Return bounds of each term from those of its column."""
        count = len(statistics.row_count)
        found = Bounds(low=[], high=[], known=np.ones(count, bool), exact=np.ones(count, bool))
        for term in self._sort.terms:
            ends, known, exact = _term_bounds(term, statistics, schema)
            found.low.append(ends[0])
            found.high.append(ends[1])
            found.known[~known] = False
            found.exact[~exact] = False
        return found

    def sorting_columns(self, schema: Schema) -> list[Column]:
        """Return the leading terms that are plain top-level columns.

        Floats are left out: Parquet does not define the place of NaN.
        """
        found: list[Column] = []
        for term in self._sort.terms:
            leaf = schema.leaf_by_id(term.column_id)
            if leaf is None or term.transform != "identity":
                break
            if len(leaf.path) > 1 or pa.types.is_floating(leaf.type):
                break
            found.append(Column(path=tuple(leaf.path), order=term))
        return found

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return the terms as texts."""
        return tuple(term_to_text(term, schema) for term in self._sort.terms)

    def widening_problem(self, before: Leaf, after: Leaf) -> str | None:
        """Return the first problem of a term of the column."""
        problems = (
            widening_problem(term, before, after) for term in self._sort.terms if term.column_id == before.id
        )
        return next((problem for problem in problems if problem), None)


def needed_leaf(column_id: int, sort: Sort, schema: Schema) -> Leaf:
    """Return a column that keys of a sort are made from.

    Raises:
        ValueError: the schema lacks it.
    """
    leaf = schema.leaf_by_id(column_id)
    if leaf is None:
        msg = f"the schema has no column with id {column_id}, which sort {sort.id} needs"
        raise ValueError(msg)
    return leaf


def leaf_values(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return the column at `path`, through structs; null where a parent is null, in its statistic type."""
    values = table.column(path[0])
    for name in path[1:]:
        # By number: a name with a dot would be read as a path.
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    return to_statistic(values)


def to_statistic(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `values` in the type of statistics and keys."""
    target = statistic_type(values.type)
    return values if target == values.type else values.cast(target)


def _term_bounds(
    term: Term, statistics: Statistics, schema: Schema
) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
    """Return the bounds of a term from column statistics, where they hold, and where they are not truncated.

    The bounds are its least and greatest value in key order. A transform that keeps order turns bounds into bounds; a
    bucket does not. Column statistics leave out nulls and NaN, but these have a place in key order. If a block may have
    any, they are its bound on their side.
    """
    count = len(statistics.row_count)
    leaf = schema.leaf_by_id(term.column_id)
    column = statistics.column(leaf) if leaf and monotonic(term) else None
    if leaf is None or column is None:
        kind = term_type(term, schema) if leaf else pa.null()
        nowhere = np.zeros(count, dtype=bool)
        return [pa.nulls(count, kind)] * 2, nowhere, nowhere
    ends = [column.min, column.max]
    empty = column.null_count == statistics.row_count
    exact = empty | statistics.is_exact(leaf)
    known = empty | (_mask(ends[0].is_valid()) & _mask(ends[1].is_valid()))
    if term.transform != "identity":
        ends = [transform_array(term, bound, leaf.type) for bound in ends]
    if column.nan_count is not None:
        some_nan = column.nan_count != 0
        nan = pa.scalar(math.nan, ends[1].type)
        ends[1] = pc.if_else(pa.array(some_nan), nan, ends[1])
        only_nan = some_nan & (column.nan_count + column.null_count == statistics.row_count)
        ends[0] = pc.if_else(pa.array(only_nan), nan, ends[0])
        known |= only_nan
    if term.descending:
        ends.reverse()
    side = 0 if term.nulls_first else 1
    ends[side] = pc.if_else(pa.array(column.null_count != 0), pa.scalar(None, ends[side].type), ends[side])
    return ends, known, exact


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False), dtype=bool)  # noqa: FBT003
