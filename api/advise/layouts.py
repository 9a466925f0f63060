"""Which layout a table could have: linear keys, curves and trees, ranked by what conditions would read.

A sample of the table's rows is put in the order of each candidate and cut into as many parts as the table would have
blocks. A part counts as read unless its bounds, widened to those of a block (`arranged.py`), or its leaves, rule a
condition out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from tblctl.advise.arranged import Rows, Sparse
from tblctl.advise.layout_sample import DEFAULT_SAMPLE, LayoutSample, SampleLimits, read_sample
from tblctl.advise.suggest import WORTH_A_TERM, Suggestion
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.sampling import ranges_of_columns
from tblctl.tableformat.keys.tree_making import TreeMaker
from tblctl.tableformat.model.cluster_key import Sort, Term, parse_key
from tblctl.tableformat.model.curve import HILBERT, LEAST_COLUMNS, ZORDER
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_orderable
from tblctl.tableformat.model.statistics import NONE
from tblctl.tableformat.model.tree import TREE, TreeSource
from tblctl.tableformat.port import BlockIO, Version
from tblctl.tableformat.predicate.cuts import contradiction
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.nodes import Node, node_of, tests_of

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

LINEAR = "linear"

MEASURED_ERRORS = {LINEAR: 0.03, ZORDER: 0.06, HILBERT: 0.05, TREE: 0.04}
"""By kind: nine of ten estimates of the share of blocks that conditions read on average were off by at most this share
of the real one. Measured by `python -m benchmarks.layout_estimates`, on rows that were really sorted."""

CURVE_COLUMNS = 3
"""The columns that most conditions test, of which curves and pairs are tried."""

LINEAR_KEYS = 4
"""So many of the best linear keys of the ranking by statistics are tried, too."""

LEAST_PART = 32
"""Rows of the sample in a part. Of a table of more blocks, parts are larger than blocks."""

MOST_TREE_CONDITIONS = 200
"""That a tree grows from, as from a file."""


@dataclass(frozen=True, kw_only=True)
class LayoutEstimate:
    """A layout that the table could have, and what conditions would read by it.

    Attributes:
        key: as `set_cluster_key` takes it. FILE in that of a tree stands for a file with the conditions.
        kind: linear, zorder, hilbert or qdtree.
        read_share: for each condition, the share of the blocks that it would read, from 0 to 1. An estimate.
        error: how far the average may be off, as a share of it: nine of ten of its kind were not in the measurements.
    """

    key: str
    kind: str
    read_share: tuple[float, ...]
    error: float

    @property
    def average_read_share(self) -> float:
        """The mean of `read_share`."""
        return mean(self.read_share)

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as JSON values."""
        return {
            **vars(self),
            "read_share": list(self.read_share),
            "average_read_share": round(self.average_read_share, 4),
        }


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """Layouts that the table could have, those first that conditions read the least blocks of.

    Attributes:
        candidates: ranked by `average_read_share`.
        read_share_now: the share of the blocks that conditions read now, on average.
        block_count: the blocks of the table if all were written anew.
        part_count: the parts of the sample that were counted: as many, or fewer of a large table.
        row_count, row_group_count: rows of the sample, and row groups that were read for it.
        left_out: why there is no tree; empty if there is one.
    """

    candidates: tuple[LayoutEstimate, ...]
    read_share_now: float
    block_count: int
    part_count: int
    row_count: int
    row_group_count: int
    left_out: str

    def to_dict(self) -> dict[str, Any]:
        """Return the ranking as JSON values."""
        return {**vars(self), "candidates": [item.to_dict() for item in self.candidates]}


def rank_layouts(
    io: BlockIO,
    version: Version,
    conditions: Sequence[tuple[str, BooleanExpression]],
    suggestion: Suggestion,
    limits: SampleLimits = DEFAULT_SAMPLE,
) -> Layouts:
    """Return layouts ranked by what conditions would read. Reads a bounded sample of the rows of tested columns.

    Args:
        io: reads the version.
        version: of the table.
        conditions: as text and as expressions.
        suggestion: the linear keys, ranked by statistics.
        limits: of the sample.

    Raises:
        InvalidOptionError: there are no conditions, or none tests a column that can be a key; see also `read_sample`.
    """
    nodes = [node_of(expression, version.schema) for _, expression in conditions]
    leaves = tested_leaves(nodes, version.schema)
    if not leaves:
        msg = (
            f"{version.location}: layouts rank by what conditions of queries read, and no condition tests a column "
            "that can be a key; name conditions (`tblctl suggest LOC --layouts --predicates FILE`), or record queries "
            "(`tblctl alter LOC --set recluster.record=on`)"
        )
        raise InvalidOptionError(msg)
    sample = read_sample(io, version, leaves, limits)
    best = [item.terms for item in suggestion.candidates]
    trial = Trial(sample, nodes, leaves)
    found = trial.ranked(best, TreeSource(file="" if suggestion.queries else "FILE"))
    now = mean(item.blocks_read for item in suggestion.predicates) / max(suggestion.total_block_count, 1)
    return replace(found, read_share_now=round(now, 4))


def tested_leaves(nodes: Sequence[Node], schema: Schema) -> list[Leaf]:
    """Return the columns with an order that conditions test, those that most of them do first."""
    counts = Counter(leaf for node in nodes for leaf in {test.leaf.id for test in tests_of(node)})
    known = [leaf for leaf in schema.leaves if leaf.id in counts and is_orderable(leaf.type)]
    return sorted(known, key=lambda leaf: -counts[leaf.id])


class Trial:
    """A sample on which layouts are tried.

    Args:
        sample: rows of the columns `leaves`.
        nodes: conditions.
        leaves: the columns that they test, those that most do first.
    """

    def __init__(self, sample: LayoutSample, nodes: Sequence[Node], leaves: Sequence[Leaf]) -> None:
        self._sample, self._nodes, self._leaves = sample, nodes, leaves
        self._plain = [leaf for leaf in leaves if len(leaf.path) == 1]
        most = max(1, sample.rows.table.num_rows // LEAST_PART)
        self._parts = min(sample.block_count, most)

    @property
    def rows(self) -> Rows:
        """The rows of the sample."""
        return self._sample.rows

    def ranked(self, best: Sequence[tuple[str, ...]], source: TreeSource) -> Layouts:
        """Return all candidates, ranked.

        Args:
            best: linear keys, the best first, as texts of terms.
            source: what a tree is made from, for its key.
        """
        found = [*self._worthwhile_linear(best), *(self.estimate(sort) for sort in self._curves())]
        found.sort(key=lambda item: item.average_read_share)
        left_out = ""
        try:
            within = next((item.key for item in found if item.kind == LINEAR), "")
            found += [self.estimate(*self._tree(tree)) for tree in (source, replace(source, by=within))]
        except InvalidKeyError as error:
            left_out = str(error)
        return Layouts(
            candidates=tuple(sorted(found, key=lambda item: item.average_read_share)),
            read_share_now=0.0,
            block_count=self._sample.block_count,
            part_count=self._parts,
            row_count=self.rows.table.num_rows,
            row_group_count=self._sample.row_groups,
            left_out=left_out,
        )

    def estimate(self, sort: Sort, key: str | None = None) -> LayoutEstimate:
        """Return what conditions would read of the table in the order of a sort. `key` is its text."""
        blocks = Sparse(self.rows, sort, self._parts, self._sample.weights)
        schema = self.rows.schema
        shares = (float(np.mean(match(node, blocks, schema).outcome != NONE)) for node in self._nodes)
        text = ", ".join(key_maker(sort).texts(schema)) if key is None else key
        return LayoutEstimate(
            key=text,
            kind=sort.kind,
            read_share=tuple(round(share, 6) for share in shares),
            error=MEASURED_ERRORS[sort.kind],
        )

    def _worthwhile_linear(self, best: Sequence[tuple[str, ...]]) -> list[LayoutEstimate]:
        """Return linear keys. One of two columns is left out if its first column alone does about as well."""
        keys = sorted(self._linear_keys(best), key=len)
        found: dict[tuple[str, ...], LayoutEstimate] = {}
        for terms in keys:
            item = self.estimate(self._linear(terms), ", ".join(terms))
            alone = found.get(terms[:1])
            if alone is None or item.average_read_share <= WORTH_A_TERM * alone.average_read_share:
                found[terms] = item
        return list(found.values())

    def _linear_keys(self, best: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Return the best linear keys of tested columns, and all single ones and pairs of the most tested ones."""
        names = {self._text(leaf): leaf for leaf in self._plain}
        of_tested = [terms for terms in best if all(term in names for term in terms)]
        most = [name for name in names if (name,) in of_tested][:CURVE_COLUMNS]
        pairs = itertools.permutations(most, 2)
        return list(dict.fromkeys((*of_tested[:LINEAR_KEYS], *((name,) for name in most), *pairs)))

    def _text(self, leaf: Leaf) -> str:
        return key_maker(_by([leaf])).texts(self.rows.schema)[0]

    def _linear(self, terms: Sequence[str]) -> Sort:
        return Sort(id=1, terms=parse_key(tuple(terms), self.rows.schema).terms)

    def _curves(self) -> Iterator[Sort]:
        """Yield curves through two and three of the columns that most conditions test."""
        columns = [leaf for leaf in self._plain if len(self.rows.column(leaf).values) > 1]  # type: ignore[union-attr]
        most = columns[:CURVE_COLUMNS]
        for count in range(LEAST_COLUMNS, len(most) + 1):
            for leaves in itertools.combinations(most, count):
                ranges = ranges_of_columns(
                    (self.rows.table.column(leaf.name).combine_chunks(), self._sample.weights)
                    for leaf in leaves
                )
                for kind in (HILBERT, ZORDER):
                    terms = tuple(Term(column_id=leaf.id) for leaf in leaves)
                    yield Sort(id=1, kind=kind, terms=terms, parameters=ranges.to_parameters())

    def _tree(self, source: TreeSource) -> tuple[Sort, str]:
        """Return the tree that grows from the conditions, and its key.

        Raises:
            InvalidKeyError: no cut helps, or the conditions are too many.
        """
        usable = [node for node in self._nodes if any(tests_of(node)) and not contradiction(node)]
        if len(usable) > MOST_TREE_CONDITIONS:
            msg = f"{len(usable):,} conditions, a tree takes at most {MOST_TREE_CONDITIONS:,}"
            raise InvalidKeyError(msg)
        schema = self.rows.schema
        within = parse_key(source.by, schema).terms if source.by else ()
        maker = TreeMaker(source, within, usable, schema)
        if any(len(leaf.path) > 1 for leaf in maker.leaves):
            msg = "conditions test columns inside of others"
            raise InvalidKeyError(msg)
        table = self.rows.table.select([leaf.name for leaf in maker.leaves])
        made = maker.layout(table, self._sample.weights, self._sample.block_rows)
        return Sort(id=1, kind=TREE, terms=made.terms, parameters=made.parameters), source.text


def _by(leaves: Sequence[Leaf]) -> Sort:
    return Sort(id=1, terms=tuple(Term(column_id=leaf.id) for leaf in leaves))
