"""Which columns a table could be clustered by: measured from its metadata, ranked, and explained.

Measured: the depth of the blocks by each column, how many different values they begin and end with, the share of nulls,
and how many blocks each condition reads now. Estimated (see `reorder.py`): how many blocks each condition would read if
the table were sorted by the column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tblctl.advise.reorder import DEFAULT_LIMITS, EstimateLimits, Reordered, Sampled, distinct_bounds
from tblctl.maintain.view import View
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term, term_to_text
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string, is_orderable, type_to_text
from tblctl.tableformat.model.statistics import NONE, BlockStatistics
from tblctl.tableformat.port import Version
from tblctl.tableformat.predicate.sql.condition_file import PredicateText, split_predicates

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.advise.layouts import Layouts

_ANY_ID = 1
_PAIRED = 3
_PAIRED_OF_CONDITIONS = 5
"""How many of the best columns are tried in pairs. With conditions, only columns that these name are tried."""

WORTH_A_TERM = 0.95
"""A pair is listed if its ranking figure is at most this share of what its first term alone has."""


@dataclass(frozen=True, kw_only=True)
class PredicateReads:
    """A condition, and how many blocks a scan with it reads now."""

    text: str
    blocks_read: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A cluster key that the table could have.

    Attributes:
        terms: its terms, as text.
        average_depth, average_overlaps: of the blocks by this key now.
        distinct_bounds: how many different values of the first term the blocks begin or end with.
        null_share: share of the rows that are null in the first term, from 0 to 1.
        unknown_block_count: blocks without bounds of a term. No figure counts them.
        inexact_block_count: blocks whose bounds of a term may be wider than its values.
        blocks_read: for each condition, the blocks that it would read if the table were clustered by this key. An
            estimate; empty without conditions. For a condition on other columns it is an upper bound: fewer blocks are
            read if these columns follow the key within blocks, which statistics do not show.
        named_by: how many of the conditions test a column of the key.
        range_share: which share of the column's whole range that of a block has on average; 1 if that is not known.
        why: the reason for its place in the ranking.
        caveats: what speaks against the key, or cannot be known from statistics.
    """

    terms: tuple[str, ...]
    average_depth: float | None
    average_overlaps: float | None
    distinct_bounds: int
    null_share: float
    unknown_block_count: int
    inexact_block_count: int
    blocks_read: tuple[float, ...]
    named_by: int
    range_share: float
    why: str
    caveats: tuple[str, ...]

    @property
    def average_blocks_read(self) -> float | None:
        """The mean of `blocks_read`; None without conditions."""
        return sum(self.blocks_read) / len(self.blocks_read) if self.blocks_read else None

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON values."""
        return {
            **vars(self),
            "terms": list(self.terms),
            "blocks_read": list(self.blocks_read),
            "average_blocks_read": self.average_blocks_read,
            "caveats": list(self.caveats),
        }


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Candidates for a cluster key, best first.

    Attributes:
        snapshot: the version that was measured.
        cluster_by: its cluster key; empty without one.
        total_block_count: its blocks.
        predicates: the conditions, with what they read now.
        candidates: ranked by blocks read, then by depth, then by how wide the ranges of blocks are, then by distinct
            bounds. Without conditions by depth first.
        rejected: (column, reason) of columns that cannot be keys.
        estimate_step: how many blocks of the table one block of an estimate stands for; 1 up to a thousand blocks.
        queries: of the table's log, which the conditions were drawn from; 0 for conditions that the caller gave.
        layouts: linear keys, curves and trees, tried on a sample of the rows; None unless they were asked for.
    """

    snapshot: int | str
    cluster_by: tuple[str, ...]
    total_block_count: int
    predicates: tuple[PredicateReads, ...]
    candidates: tuple[Candidate, ...]
    rejected: tuple[tuple[str, str], ...]
    estimate_step: float
    queries: int = 0
    layouts: Layouts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the suggestion as JSON values."""
        return {
            "snapshot": self.snapshot,
            "cluster_by": list(self.cluster_by),
            "total_block_count": self.total_block_count,
            "predicates": [item.to_dict() for item in self.predicates],
            "candidates": [item.to_dict() for item in self.candidates],
            "rejected": [{"column": column, "reason": reason} for column, reason in self.rejected],
            "estimate_step": self.estimate_step,
            "queries": self.queries,
            "layouts": None if self.layouts is None else self.layouts.to_dict(),
        }


def read_predicates(predicates: str | Sequence[str], schema: Schema) -> list[tuple[str, BooleanExpression]]:
    """Return conditions as text and as expressions.

    Args:
        predicates: one text with several conditions (see `split_predicates`), or a sequence of conditions.
        schema: of the table.

    Raises:
        InvalidPredicateError: a condition cannot be read; the error names line and column in the text.
        InvalidOptionError: there is no condition.
    """
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    if isinstance(predicates, str):
        texts = split_predicates(predicates)
    else:
        texts = tuple(PredicateText(text=text, padded=text) for text in predicates)
    if not texts:
        msg = "there is no condition; write one a line, such as: l_shipdate >= '1995-01-01'"
        raise InvalidOptionError(msg)
    return [(item.text, parse_where(item.padded, schema)) for item in texts]


def suggest(
    version: Version,
    conditions: Sequence[tuple[str, BooleanExpression]],
    cluster_by: tuple[str, ...],
    *,
    limits: EstimateLimits = DEFAULT_LIMITS,
) -> Suggestion:
    """Return the columns, and a few pairs of them, that the table could be clustered by.

    Reads each segment once. Measuring depths takes about a second a column for a million blocks.
    """
    leaves = [leaf for leaf in version.schema.leaves if is_orderable(leaf.type)]
    look = _Look(version, leaves, conditions, limits)
    rejected = [
        (leaf.name, f"{type_to_text(leaf.type)} has no order")
        for leaf in version.schema.leaves
        if not is_orderable(leaf.type)
    ]
    found: list[_Found] = []
    for leaf in leaves if look.block_count else ():
        problem = look.problem(leaf)
        if problem is None:
            found.append(((leaf,), look.candidate((leaf,))))
        else:
            rejected.append((leaf.name, problem))
    found.sort(key=lambda item: _rank(item[1]))
    for first, second in itertools.permutations(look.paired(found), 2):
        pair = (*first[0], *second[0])
        candidate = look.candidate(pair)
        if _rank(candidate)[0] <= WORTH_A_TERM * _rank(first[1])[0]:
            found.append((pair, candidate))
    found.sort(key=lambda item: _rank(item[1]))
    return Suggestion(
        snapshot=version.public_id,
        cluster_by=cluster_by,
        total_block_count=look.block_count,
        predicates=look.predicates,
        candidates=tuple(candidate for _, candidate in found),
        rejected=tuple(rejected),
        estimate_step=limits.step(look.block_count),
    )


_Found = tuple[tuple[Leaf, ...], Candidate]


def _rank(candidate: Candidate) -> tuple[float, float, float, int]:
    """Return the sort key of the ranking: the best candidate has the least.

    Few blocks often lie equally deep by a column that rows follow and by one of random values. The ranges of the latter
    are the wider ones, and it may have more different bounds.
    """
    reads = candidate.average_blocks_read
    depth = candidate.average_depth
    known = math.inf if depth is None else depth
    first = known if reads is None else round(reads, 2)
    return (first, known, round(candidate.range_share, 1), -candidate.distinct_bounds)


class _Look:
    """The metadata of a version, fetched once to judge many keys."""

    def __init__(
        self,
        version: Version,
        leaves: Sequence[Leaf],
        conditions: Sequence[tuple[str, BooleanExpression]],
        limits: EstimateLimits,
    ) -> None:
        self._version = version
        self._limits = limits
        self._statistics = version.statistics(leaves)
        self._conditions = [expression for _, expression in conditions]
        self._named = [_columns_of(condition, version.schema) for condition in self._conditions]
        self.block_count = len(self._statistics.row_count)
        self._sampled = Sampled.of(self._statistics, limits)
        reads = self._reads(self._statistics)
        self.predicates = tuple(
            PredicateReads(text=text, blocks_read=round(read))
            for (text, _), read in zip(conditions, reads, strict=True)
        )

    def _reads(self, statistics: BlockStatistics, weight: float = 1.0) -> tuple[float, ...]:
        """Return for each condition the blocks that it reads: those where statistics do not rule it out."""
        from tblctl.tableformat.predicate.match import match

        outcomes = (
            match(condition, statistics, self._version.schema).outcome for condition in self._conditions
        )
        return tuple(round(float(np.count_nonzero(found != NONE)) * weight, 2) for found in outcomes)

    def problem(self, leaf: Leaf) -> str | None:
        """Return why a column cannot be a key, or None."""
        column = self._statistics.column(leaf)
        count = distinct_bounds(column) if column is not None else 0
        if column is None or not count:
            rows = int(self._statistics.row_count.sum())
            if column is not None and int(np.maximum(column.null_count, 0).sum()) == rows:
                return "all its rows are null"
            return "no block has bounds of it"
        if count == 1:
            return "all blocks hold the same single value of it"
        return None

    def candidate(self, leaves: tuple[Leaf, ...]) -> Candidate:
        """Return the figures of a key of these columns, ascending."""
        sort = Sort(id=_ANY_ID, terms=tuple(Term(column_id=leaf.id) for leaf in leaves))
        view = View.of(self._version, sort, clustered=False)
        averages = view.averages
        column = self._statistics.column(leaves[0])
        assert column is not None
        rows = int(self._statistics.row_count.sum())
        after = Reordered(self._sampled, leaves, self._limits) if self._conditions else None
        step = self._limits.step(self.block_count)
        found = Candidate(
            terms=tuple(term_to_text(term, self._version.schema) for term in sort.terms),
            average_depth=averages.depth,
            average_overlaps=averages.overlaps,
            distinct_bounds=distinct_bounds(column),
            null_share=round(int(np.maximum(column.null_count, 0).sum()) / max(rows, 1), 4),
            unknown_block_count=int(np.count_nonzero(view.blocks.unknown)),
            inexact_block_count=int(np.count_nonzero(view.is_inexact)),
            blocks_read=self._reads(after, step) if after is not None else (),
            named_by=self._named_by(leaves),
            range_share=self._range_share(leaves[0]),
            why="",
            caveats=(),
        )
        return replace(found, why=self._why(found), caveats=tuple(self._caveats(found, leaves)))

    def _range_share(self, leaf: Leaf) -> float:
        """Return how wide the ranges of blocks are on average, as a share of the whole."""
        column = self._sampled.column(leaf)
        if not column.known.any():
            return 1.0
        line = column.line()
        whole = float(line.high.max() - line.low.min())
        return round(float(np.mean((line.high - line.low) / whole)), 4) if whole > 0 else 1.0

    def paired(self, ranked: Sequence[_Found]) -> list[_Found]:
        """Return the columns to try in pairs, of those `ranked`, best first."""
        if not self._conditions:
            return list(ranked[:_PAIRED])
        return [item for item in ranked if item[1].named_by][:_PAIRED_OF_CONDITIONS]

    def _named_by(self, leaves: tuple[Leaf, ...]) -> int:
        """Return how many conditions test any of the columns."""
        return sum(bool({leaf.id for leaf in leaves} & named) for named in self._named)

    def _why(self, found: Candidate) -> str:
        now_deep = (
            "to an unknown depth" if found.average_depth is None else f"{found.average_depth:,.1f} deep"
        )
        depth = f"blocks lie {now_deep} by it now"
        reads = found.average_blocks_read
        if reads is None:
            return f"{depth}, and begin and end with {found.distinct_bounds:,} values"
        now = sum(item.blocks_read for item in self.predicates) / len(self.predicates)
        every = found.named_by == len(self._conditions)
        return (
            f"a condition reads {'about' if every else 'at most about'} {reads:,.1f} of {self.block_count:,} blocks, "
            f"{now:,.1f} now; {found.named_by:,} of {len(self._conditions):,} name it; {depth}"
        )

    def _caveats(self, found: Candidate, leaves: tuple[Leaf, ...]) -> Iterable[str]:
        first = leaves[0]
        few = found.distinct_bounds < self.block_count
        if few and (is_any_string(first.type) or is_any_binary(first.type)):
            yield (
                f"{self.block_count:,} blocks begin and end with only {found.distinct_bounds:,} values of it: how many "
                "rows share one is not known from statistics"
            )
        if not self._conditions and found.average_depth == self.block_count > 1:
            yield (
                f"each of the {self.block_count:,} blocks may hold any value of it: nothing shows that rows follow it; "
                "name conditions of queries (`tblctl suggest LOC --predicates FILE`) to rank by what they read"
            )
        if found.null_share:
            yield f"{found.null_share:.0%} of its rows are null, and would lie together"
        if found.unknown_block_count:
            yield f"{found.unknown_block_count:,} blocks have no bounds of it: no figure counts them"
        if found.inexact_block_count:
            yield (
                f"the bounds of {found.inexact_block_count:,} blocks may be wider than their values: blocks may lie "
                "less deep by it"
            )


def _columns_of(condition: BooleanExpression, schema: Schema) -> set[int]:
    """Return the ids of the columns that a condition tests."""
    from tblctl.tableformat.predicate.nodes import node_of, tests_of

    return {test.leaf.id for test in tests_of(node_of(condition, schema))}
