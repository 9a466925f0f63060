"""Make the sort of a tree from conditions and a sample of rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.keys.boundaries import Weights
from tblctl.tableformat.keys.tree_growth import grow
from tblctl.tableformat.model.cluster_key import Term
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_orderable, statistic_type
from tblctl.tableformat.model.tree import LEAF, Tree, TreeSource, columns_of
from tblctl.tableformat.predicate.cuts import cuts_of
from tblctl.tableformat.predicate.nodes import Node, tests_of

TREE_ROWS = 1 << 14
"""Rows of the sample that a tree grows from: 64 for each of its most leaves."""

LEAST_LEAVES = 64
"""Without `min_rows` a leaf needs half the rows of a block: two leaves that share a block are better than one as large
(`benchmarks/qdtree.py`). It needs no more rows than one of so many has, so that small tables get a tree too."""


class Layout(NamedTuple):
    """What a new sort gets beside its id and kind."""

    terms: tuple[Term, ...]
    parameters: tuple[tuple[str, Any], ...]


class TreeMaker:
    """A tree in the making: conditions, the cuts that they suggest, and the columns that they test.

    Args:
        source: what the key says.
        within: what the rows of a leaf are sorted by.
        conditions: what the source has.
        schema: of the table.

    Raises:
        InvalidKeyError: at construction: no condition suggests a cut.
    """

    def __init__(
        self, source: TreeSource, within: Sequence[Term], conditions: Sequence[Node], schema: Schema
    ) -> None:
        self._source, self._within, self._schema = source, within, schema
        self._conditions = conditions
        self._cuts = cuts_of(self._conditions)
        tested = {test.leaf.id for condition in self._conditions for test in tests_of(condition)}
        self.leaves: list[Leaf] = [
            leaf for leaf in schema.leaves if leaf.id in tested and is_orderable(leaf.type)
        ]
        if not self._cuts:
            msg = (
                f"no condition of {source.name} suggests a cut: expected comparisons of a column with =, <, <=, >, >=, "
                "BETWEEN, IN, LIKE 'prefix%' or IS NULL"
            )
            raise InvalidKeyError(msg)

    def layout(self, rows: pa.Table, weights: Weights, block_rows: int) -> Layout:
        """Return the tree that grows from some rows, and the columns that its cuts test.

        Args:
            rows: columns of `leaves`, in statistic types.
            weights: how many rows of the table each stands for.
            block_rows: of the table's blocks.

        Raises:
            InvalidKeyError: no cut helps.
        """
        total = float(weights.sum())
        rows, weights = _thinned(rows.rename_columns([leaf.name for leaf in self.leaves]), weights)
        given = self._source.min_rows
        min_rows = min(block_rows / 2, total / LEAST_LEAVES) if given is None else given
        nodes = grow(rows, weights, self._cuts, self._conditions, self._schema, min_rows=min_rows)
        if nodes == (LEAF,):
            msg = (
                f"no cut that the conditions of {self._source.name} suggest lets one of them skip rows and leaves "
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
            by=tuple(map(astuple, self._within)),
        )
        terms = tuple(Term(column_id=column_id) for column_id, _ in tree.columns)
        return Layout(terms, tree.to_parameters())


def _thinned(rows: pa.Table, weights: Weights) -> tuple[pa.Table, Weights]:
    """Return at most `TREE_ROWS` rows, at even distances, with the weight of all."""
    step = -(-len(rows) // TREE_ROWS)
    taken = np.arange(step // 2, len(rows), step)
    kept = weights[taken]
    return rows.take(pa.array(taken)), kept * (weights.sum() / kept.sum())
