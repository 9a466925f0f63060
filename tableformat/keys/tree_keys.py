"""Tree sorts: rows are ordered by the leaf of a tree that they fall into, then perhaps by terms within it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.keys.curve_keys import aligned
from tblctl.tableformat.keys.linear import Bounds, LinearKeys, leaf_values, needed_leaf
from tblctl.tableformat.keys.listed import Ascending
from tblctl.tableformat.model import tree as trees
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import ALL, NONE, ColumnStatistics
from tblctl.tableformat.model.tree import LEAF, Cut, Tree, tree_of
from tblctl.tableformat.predicate.nodes import Operator, Test

if TYPE_CHECKING:
    from tblctl.tableformat.keys.kinds import KeyOrder, SortingColumn, Statistics

Bools = npt.NDArray[np.bool_]

_BLOCKS_AT_ONCE = 1 << 16
"""Blocks whose outcomes of all cuts are in memory: at most 16 MB."""

_OPERATORS = {
    trees.LESS: Operator.LESS,
    trees.LESS_EQUAL: Operator.LESS_EQUAL,
    trees.IN: Operator.IN,
    trees.PREFIX: Operator.PREFIX,
    trees.NULL: Operator.NULL,
}


class TreeKeys:
    """The number of a row's leaf, uint64, and a key column for each term within leaves; a `KeyMaker`.

    A column that was widened since the tree was made keeps its cuts: their values are widened too.
    """

    def __init__(self, sort: Sort) -> None:
        self._sort = sort
        within = sort.within
        self._within = LinearKeys(Sort(id=sort.id, terms=within)) if within else None

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The columns that cuts test, and those of the terms within leaves, each once."""
        return tuple(dict.fromkeys((*self._cut_ids, *(term.column_id for term in self._sort.within))))

    @property
    def orders(self) -> Sequence[KeyOrder]:
        """Ascending by leaf, then as the terms say."""
        return (Ascending(), *self._sort.within)

    @property
    def _cut_ids(self) -> tuple[int, ...]:
        return tuple(term.column_id for term in self._sort.terms)

    def types(self, schema: Schema) -> list[pa.DataType | None]:
        """Return the types of the key columns; None if the schema lacks a column."""
        leaf = pa.uint64() if all(map(schema.leaf_by_id, self._cut_ids)) else None
        return [leaf, *(self._within.types(schema) if self._within else ())]

    def keys(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the leaf of each row and its terms, from rows in read types. O(rows x depth)."""
        found = pa.table({"0": self._leaves(rows, schema)})
        terms = self._within.keys(rows, schema).columns if self._within else []
        for place, column in enumerate(terms, 1):
            found = found.append_column(str(place), column)
        return found

    def _leaves(self, rows: pa.Table, schema: Schema) -> pa.Array:
        leaves = [needed_leaf(column_id, self._sort, schema) for column_id in self._cut_ids]
        tests = self._tests(schema)
        columns = [leaf_values(rows, leaf.path) for leaf in leaves]
        found = np.empty(rows.num_rows, np.uint64)
        start = 0
        for pieces in aligned(columns, rows.num_rows):
            piece = pa.table(pieces, names=[leaf.name for leaf in leaves])
            found[start : start + len(piece)] = _leaves_of_rows(self._tree, tests, piece, schema)
            start += len(piece)
        return pa.array(found)

    def bounds(self, statistics: Statistics, schema: Schema) -> Bounds:
        """Return the first and last leaf that rows of each block may fall into, and bounds of the terms.

        O(blocks x nodes).
        """
        count = len(statistics.row_count)
        known = np.ones(count, bool)
        for column_id in self._cut_ids:
            leaf = schema.leaf_by_id(column_id)
            known &= _is_known(None if leaf is None else statistics.column(leaf), statistics)
        first, last = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        if known.any():
            tests = self._tests(schema)
            for start in range(0, count, _BLOCKS_AT_ONCE):
                some = slice(start, start + _BLOCKS_AT_ONCE)
                first[some], last[some] = _reached(self._tree, tests, _Part(statistics, some), schema)
        exact = known & (first == last)
        if self._within is None:
            return Bounds(low=[pa.array(first)], high=[pa.array(last)], known=known, exact=exact)
        within = self._within.bounds(statistics, schema)
        return Bounds(
            low=[pa.array(first), *within.low],
            high=[pa.array(last), *within.high],
            known=known & within.known,
            exact=exact & within.exact,
        )

    def sorting_columns(self, schema: Schema) -> Sequence[SortingColumn]:
        """Return none: no column alone is in order."""
        del schema
        return ()

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return the key as it was typed."""
        del schema
        return (self._tree.text,)

    def widening_problem(self, before: Leaf, after: Leaf) -> str | None:
        """Return whether a value of a cut does not fit the wider type, or a term has a problem with it."""
        for cut in self._tree.cuts:
            try:
                if cut.column_id == before.id:
                    test_of_cut(cut, before)
                    test_of_cut(cut, after)
            except pa.ArrowInvalid as error:
                return f"a value of the tree does not fit ({error})"
        return self._within.widening_problem(before, after) if self._within else None

    @property
    def _tree(self) -> Tree:
        return tree_of(self._sort.parameters)

    def _tests(self, schema: Schema) -> list[Test]:
        return [test_of_cut(cut, needed_leaf(cut.column_id, self._sort, schema)) for cut in self._tree.cuts]


def test_of_cut(cut: Cut, leaf: Leaf) -> Test:
    """Return a cut as a test of the column, in its present type.

    Raises:
        pa.ArrowInvalid: a value does not fit the type.
    """
    operator = _OPERATORS[cut.operator]
    values = cut.values if cut.operator in (trees.PREFIX, trees.NULL) else _in_type(cut.values, leaf)
    single = operator not in (Operator.IN, Operator.NULL)
    if operator is Operator.IN:
        values = values.take(pc.sort_indices(values))
    return Test(
        leaf=leaf,
        operator=operator,
        text=f"{leaf.name} {cut.operator}",
        value=values[0] if single else None,
        values=values if operator is Operator.IN else None,
    )


def _in_type(values: pa.Array, leaf: Leaf) -> pa.Array:
    kind = statistic_type(leaf.type)
    return values if values.type == kind else values.cast(kind)


def holds(test: Test, rows: pa.Table, schema: Schema) -> Bools:
    """Return for which rows a test is true: not for those for which it is NULL. Columns are in statistic types."""
    from tblctl.tableformat.predicate.rows import filter_table  # makes scalars, for which Arrow loads pandas

    found = pc.fill_null(filter_table(rows, test, schema), fill_value=pa.scalar(value=False))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def _leaves_of_rows(
    tree: Tree, tests: Sequence[Test], rows: pa.Table, schema: Schema
) -> npt.NDArray[np.uint64]:
    found = np.empty(len(rows), np.uint64)
    outcomes: dict[int, Bools] = {}
    todo = [(0, np.arange(len(rows)))]
    while todo:
        node, some = todo.pop()
        cut = tree.nodes[node]
        if cut == LEAF:
            found[some] = tree.leaf_numbers[node]
        elif len(some):
            if cut not in outcomes:
                outcomes[cut] = holds(tests[cut], rows, schema)
            left = outcomes[cut][some]
            todo += [(node + 1, some[left]), (tree.rights[node], some[~left])]
    return found


def _reached(
    tree: Tree, tests: Sequence[Test], statistics: _Part, schema: Schema
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the first and the last leaf that each block may reach; 0 for a block without rows."""
    from tblctl.tableformat.predicate.match import match

    count = len(statistics.row_count)
    first, last, begun = np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.zeros(count, bool)
    for leaf, reached in _walk(tree, [match(test, statistics, schema).outcome for test in tests], count):
        first[reached & ~begun] = leaf
        last[reached] = leaf
        begun |= reached
    return first, last


def _walk(tree: Tree, outcomes: Sequence[npt.NDArray[np.int8]], count: int) -> Iterator[tuple[int, Bools]]:
    """Yield the leaves from left to right, and which blocks may reach each."""
    todo = [(0, np.ones(count, bool))]
    while todo:
        node, reached = todo.pop()
        cut = tree.nodes[node]
        if cut == LEAF:
            yield tree.leaf_numbers[node], reached
        elif reached.any():
            todo.append((tree.rights[node], reached & (outcomes[cut] != ALL)))
            todo.append((node + 1, reached & (outcomes[cut] != NONE)))


class _Part:
    """Statistics of some of the blocks."""

    def __init__(self, whole: Statistics, some: slice) -> None:
        self._whole, self._some = whole, some
        self.row_count = whole.row_count[some]

    def column(self, leaf: Leaf) -> ColumnStatistics | None:
        """Return the bounds and counts of these blocks."""
        found = self._whole.column(leaf)
        if found is None:
            return None
        start, count = self._some.start, len(self.row_count)
        return ColumnStatistics(
            min=found.min.slice(start, count),
            max=found.max.slice(start, count),
            null_count=found.null_count[self._some],
            nan_count=None if found.nan_count is None else found.nan_count[self._some],
        )


def _is_known(column: ColumnStatistics | None, statistics: Statistics) -> Bools:
    """Return of which blocks both bounds of a column are known, or that they have no values."""
    rows = statistics.row_count
    if column is None:
        return np.zeros(len(rows), bool)
    bounded = pc.and_(column.min.is_valid(), column.max.is_valid())
    others = column.null_count
    if column.nan_count is not None:
        others = np.where((others < 0) | (column.nan_count < 0), -1, others + column.nan_count)
    known: Bools = bounded.to_numpy(zero_copy_only=False) | (others == rows)
    return known
