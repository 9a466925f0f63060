"""Curves and trees for the rows of a table, or for those of a sample: columns and parameters of a new sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tblctl.tableformat.errors import InvalidDataError, InvalidKeyError
from tblctl.tableformat.keys.boundaries import Weights
from tblctl.tableformat.keys.tree_growth import grow
from tblctl.tableformat.model.cluster_key import Key, Term, members_of
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_orderable, statistic_type
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.tree import LEAF, Tree, TreeSource, columns_of
from tblctl.tableformat.native.read.conditions import read_conditions
from tblctl.tableformat.native.read.key_sample import (
    no_rows,
    ranges_of_rows,
    ranges_of_table,
    sample_of_rows,
    sample_of_table,
)
from tblctl.tableformat.predicate.cuts import cuts_of
from tblctl.tableformat.predicate.nodes import Node, tests_of
from tblctl.tableformat.storage import Storage

TREE_ROWS = 1 << 14
"""Rows of the sample that a tree grows from: 64 for each of its most leaves."""

LEAST_LEAVES = 64
"""Without `min_rows` a leaf needs no more rows than one of so many has, so that small tables get a tree too."""

_TREE = "a tree takes its cuts"


class Sample(Protocol):
    """Rows like those to come: `InputRows`."""

    @property
    def schema(self) -> pa.Schema:
        """Of all rows."""

    @property
    def name(self) -> str:
        """For messages."""

    def sample(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of the rows, or of some of them."""


class Layout(NamedTuple):
    """What a new sort gets beside its id and kind."""

    terms: tuple[Term, ...]
    parameters: tuple[tuple[str, Any], ...]


def layout_of_table(storage: Storage, snapshot: Snapshot, key: Key) -> Layout:
    """Return a curve or a tree for the rows of a snapshot. Reads at most `SAMPLED_PLACES` row groups of them.

    Raises:
        InvalidKeyError: the table has no rows; or the file of conditions cannot be used, see `read_conditions`.
        InvalidPredicateError: a condition of the file is wrong.
    """
    if key.tree is None:
        return Layout(key.terms, ranges_of_table(storage, snapshot, key.terms).to_parameters())
    work = _Work(key.tree, key.terms, storage.elsewhere, snapshot.schema)
    if not snapshot.row_count:
        raise no_rows(_TREE, f"{storage.url} has none")
    sample = sample_of_table(storage, snapshot, work.leaves)
    weights = sample.weights * (snapshot.row_count / sample.weights.sum())
    return work.layout(sample.rows, weights, snapshot.options.block_rows)


def layout_of_rows(
    key: Key,
    schema: Schema,
    open_sample: Callable[[], Sample | None],
    *,
    reach: Callable[[str], Storage],
    block_rows: int,
) -> Layout:
    """Return a curve or a tree for the rows of a sample.

    Raises:
        InvalidKeyError: there are no rows; or as for `layout_of_table`.
        InvalidDataError: the sample lacks a column, or has values of another type.
        InvalidPredicateError: a condition of the file is wrong.
    """
    work = None if key.tree is None else _Work(key.tree, key.terms, reach, schema)
    leaves = (
        work.leaves if work else [leaf for term in key.terms if (leaf := schema.leaf_by_id(term.column_id))]
    )
    what = (
        _TREE if work else f"a curve through {', '.join(leaf.name for leaf in leaves)} takes its boundaries"
    )
    sample = open_sample()
    if sample is None:
        raise no_rows(what, "a new table has none")
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    missing = [name for name in names if name not in sample.schema.names]
    if missing:
        msg = f"{sample.name} has no column {', '.join(missing)}: {what} from it"
        raise InvalidDataError(msg)
    if work is None:
        return Layout(
            key.terms, ranges_of_rows(sample.sample(names), schema, key.terms, sample.name).to_parameters()
        )
    rows = sample_of_rows(sample.sample(names), leaves, sample.name)
    if rows is None:
        raise no_rows(what, f"{sample.name} has none")
    return work.layout(rows, np.ones(len(rows)), block_rows)


class _Work:
    """A tree in the making: conditions, the cuts that they suggest, and the columns that they test."""

    def __init__(
        self, source: TreeSource, within: Sequence[Term], reach: Callable[[str], Storage], schema: Schema
    ) -> None:
        self._source, self._within, self._schema = source, within, schema
        self._conditions: Sequence[Node] = read_conditions(source.file, reach, schema)
        self._cuts = cuts_of(self._conditions)
        tested = {test.leaf.id for condition in self._conditions for test in tests_of(condition)}
        self.leaves: list[Leaf] = [
            leaf for leaf in schema.leaves if leaf.id in tested and is_orderable(leaf.type)
        ]
        if not self._cuts:
            msg = (
                f"no condition of {source.file} suggests a cut: expected comparisons of a column with =, <, <=, >, >=, "
                "BETWEEN, IN, LIKE 'prefix%' or IS NULL"
            )
            raise InvalidKeyError(msg)

    def layout(self, rows: pa.Table, weights: Weights, block_rows: int) -> Layout:
        """Return the tree that grows from some rows, and the columns that its cuts test."""
        total = float(weights.sum())
        rows, weights = _thinned(rows.rename_columns([leaf.name for leaf in self.leaves]), weights)
        given = self._source.min_rows
        min_rows = min(block_rows, total / LEAST_LEAVES) if given is None else given
        nodes = grow(rows, weights, self._cuts, self._conditions, self._schema, min_rows=min_rows)
        if nodes == (LEAF,):
            msg = (
                f"no cut that the conditions of {self._source.file} suggest lets one of them skip rows and leaves "
                f"{min_rows:,.0f} of about {total:,.0f} rows on both sides; give a smaller min_rows, or other "
                "conditions"
            )
            raise InvalidKeyError(msg)
        used = list(dict.fromkeys(node for node in nodes if node != LEAF))
        numbers = {LEAF: LEAF, **{cut: number for number, cut in enumerate(used)}}
        cuts = tuple(self._cuts[cut] for cut in used)
        kinds = {leaf.id: statistic_type(leaf.type) for leaf in self.leaves}
        tree = Tree(
            text=self._source.text,
            columns=columns_of(cuts, kinds),
            cuts=cuts,
            nodes=tuple(numbers[node] for node in nodes),
            by=tuple(map(members_of, self._within)),
        )
        terms = tuple(Term(column_id=column_id) for column_id, _ in tree.columns)
        return Layout(terms, tree.to_parameters())


def _thinned(rows: pa.Table, weights: Weights) -> tuple[pa.Table, Weights]:
    """Return at most `TREE_ROWS` rows, at even distances, with the weight of all."""
    step = -(-len(rows) // TREE_ROWS)
    taken = np.arange(step // 2, len(rows), step)
    kept = weights[taken]
    return rows.take(pa.array(taken)), kept * (weights.sum() / kept.sum())
