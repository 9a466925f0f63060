"""Tell for every block, from its statistics alone, whether none, some or all of its rows satisfy a condition.

A row's condition is true, false or NULL. Per block and test the statistics give the *set* of outcomes that its rows may
have, as three bits; AND, OR and NOT map sets to sets, so negation is exact and NULL is never taken for false. A set may
be too large (bounds wider than the truth, columns taken as independent), never too small: NONE and ALL can be trusted.

Everything is vectorised over the blocks: a predicate costs a few milliseconds per million blocks, and no block becomes
a Python object. The same code serves segments and row groups, which are summed up by the same statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import (
    ALL,
    NONE,
    SOME,
    BlockStatistics,
    Bound,
    ColumnStatistics,
    Described,
)
from tblctl.tableformat.older_arrow import search_sorted
from tblctl.tableformat.predicate.leaf_tests import pattern_holds
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Constant,
    Negation,
    Node,
    Operator,
    Test,
    Truth,
    node_of,
    tests_of,
)
from tblctl.tableformat.predicate.outcomes import BITS, FALSE, IS, NOT, NULL, TRUE, Sets, both, either

Bools = npt.NDArray[np.bool_]
Outcomes = npt.NDArray[np.int8]


class TermMatch(NamedTuple):
    """The outcome of one predicate alone."""

    text: str
    column_id: int
    outcome: Outcomes


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """`outcome` holds NONE, SOME or ALL per block; a block without rows is NONE."""

    outcome: Outcomes
    _node: Node = field(repr=False)
    _statistics: BlockStatistics = field(repr=False)

    @cached_property
    def terms(self) -> tuple[TermMatch, ...]:
        """One entry per predicate, in the order written; worked out on first use, since it costs as much again."""
        views = _Views(self._statistics, self._node)
        return tuple(
            TermMatch(test.text, test.leaf.id, _outcomes(_sets(test, views), self._statistics))
            for test in tests_of(self._node)
        )


def match(expression: Any, statistics: BlockStatistics, schema: Schema) -> Match:
    """Return which blocks hold no, some or only rows for which `expression` is true.

    O(blocks x predicates), for IN times the logarithm of its length.

    Raises:
        InvalidPredicateError: see `resolve`.
    """
    node = node_of(expression, schema)
    outcome = _outcomes(_sets(node, _Views(statistics, node)), statistics)
    return Match(outcome=outcome, _node=node, _statistics=statistics)


def _outcomes(sets: Sets, statistics: BlockStatistics) -> Outcomes:
    outcome = np.where(sets == TRUE, ALL, (sets & TRUE) * SOME).astype(np.int8)
    outcome[statistics.row_count == 0] = NONE
    return outcome


def _sets(node: Node, views: _Views) -> Sets:
    found = _sets_of_statistics(node, views)
    return found if views.described is None else found & views.described(node)


def _sets_of_statistics(node: Node, views: _Views) -> Sets:
    match node:
        case Test():
            return _test_sets(node, views)
        case Constant():
            return np.full(views.count, BITS[node.value], np.uint8)
        case AllOf():
            return reduce(both, (_sets(child, views) for child in node.children))
        case AnyOf():
            return reduce(either, (_sets(child, views) for child in _with_lists(node.children)))
        case Negation():
            return NOT[_sets(node.child, views)]
        case Truth():
            return IS[node.value][_sets(node.child, views)]


def _with_lists(children: tuple[Node, ...]) -> Iterator[Node]:
    """Yield the parts of an OR. Several equalities of a column, `a = 1 OR a = 2 ..`, become one IN.

    10,000 of them take as long as one.
    """
    equal: dict[int, list[Test]] = {}
    for child in children:
        if (
            isinstance(child, Test)
            and child.operator is Operator.EQUAL
            and not child.negated
            and _is_listed(child)
        ):
            equal.setdefault(child.leaf.id, []).append(child)
        else:
            yield child
    for tests in equal.values():
        if len(tests) == 1:
            yield tests[0]
            continue
        values = pc.unique(pa.array([test.value for test in tests], statistic_type(tests[0].leaf.type)))
        yield replace(tests[0], operator=Operator.IN, value=None, values=values.take(pc.sort_indices(values)))


def _is_listed(test: Test) -> bool:
    kind = statistic_type(test.leaf.type)
    return bool(pat.is_integer(kind) or pat.is_string(kind) or pat.is_large_string(kind))


def _test_sets(test: Test, views: _Views) -> Sets:
    """Return the outcomes that the rows of each block may have; exact where bounds are exact and hold one value."""
    view = views.of(test.leaf)
    if test.operator is Operator.NEVER:
        return np.full(views.count, NULL, np.uint8)
    if test.operator is Operator.NULL:
        true, false, null = view.may_be_null, view.may_be_value, None
    else:
        true, false = _value_outcomes(test, view)
        null = view.may_be_null
    if test.negated:
        true, false = false, true
    sets: Sets = true * np.uint8(TRUE) | false * np.uint8(FALSE)
    return sets if null is None else sets | null * np.uint8(NULL)


def _value_outcomes(test: Test, view: _View) -> tuple[Bools, Bools]:
    """Return which blocks may hold a value for which the test is true, and false."""
    if test.operator is Operator.FALSE:
        return np.zeros_like(view.may_be_value), view.may_be_value
    if test.operator is Operator.NAN:
        return view.may_be_nan, view.may_be_number
    true, false = _BY_OPERATOR[test.operator](test, view)
    return true & view.may_be_number, false & view.may_be_number | view.may_be_nan


@dataclass(frozen=True, kw_only=True, eq=False)
class _View:
    """A column's statistics with unknowns made explicit. A "number" is a value of any type that is not NaN."""

    min: Bound
    max: Bound
    may_be_null: Bools
    may_be_value: Bools
    may_be_nan: Bools
    may_be_number: Bools

    @classmethod
    def of(cls, leaf: Leaf, statistics: BlockStatistics) -> _View:
        rows = statistics.row_count
        column = statistics.column(leaf)
        if column is None:
            unknown, nothing = (
                np.full(len(rows), -1, np.int64),
                pa.nulls(len(rows), statistic_type(leaf.type)),
            )
            column = ColumnStatistics(min=nothing, max=nothing, null_count=unknown)
        floating = pat.is_floating(column.min.type)
        nulls = np.asarray(column.null_count)
        nans = np.zeros_like(nulls) if not floating else np.full_like(nulls, -1)
        if floating and column.nan_count is not None:
            nans = np.asarray(column.nan_count)
        known_nulls = np.maximum(nulls, 0)
        may_be_value = known_nulls < rows
        return cls(
            min=_without_nan(column.min) if floating else column.min,
            max=_without_nan(column.max) if floating else column.max,
            may_be_null=nulls > 0 if not leaf.nullable else nulls != 0,
            may_be_value=may_be_value,
            may_be_nan=(nans != 0) & may_be_value,
            may_be_number=known_nulls + np.maximum(nans, 0) < rows,
        )


class _Views:
    """The views of all columns, each computed once: a chain may test one column 10,000 times."""

    def __init__(self, statistics: BlockStatistics, node: Node) -> None:
        self._statistics = statistics
        self.described = statistics.described(node) if isinstance(statistics, Described) else None
        self._found: dict[int, _View] = {}
        self.count = len(statistics.row_count)

    def of(self, leaf: Leaf) -> _View:
        """Return the view of one column."""
        if leaf.id not in self._found:
            self._found[leaf.id] = _View.of(leaf, self._statistics)
        return self._found[leaf.id]


def _without_nan(bound: Bound) -> Bound:
    """Return the bounds with NaN as unknown."""
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _known(condition: Bound) -> Bools:
    """Return where a comparison of bounds is true; an unknown bound makes it false."""
    flags = pc.fill_null(condition, fill_value=pa.scalar(value=False))
    known: Bools = (
        flags.to_numpy() if isinstance(flags, pa.ChunkedArray) else flags.to_numpy(zero_copy_only=False)
    )
    return known


def _less(test: Test, view: _View) -> tuple[Bools, Bools]:
    return ~_known(pc.greater_equal(view.min, test.value)), ~_known(pc.less(view.max, test.value))


def _less_equal(test: Test, view: _View) -> tuple[Bools, Bools]:
    return ~_known(pc.greater(view.min, test.value)), ~_known(pc.less_equal(view.max, test.value))


def _greater(test: Test, view: _View) -> tuple[Bools, Bools]:
    false, true = _less_equal(test, view)
    return true, false


def _greater_equal(test: Test, view: _View) -> tuple[Bools, Bools]:
    false, true = _less(test, view)
    return true, false


def _equal(test: Test, view: _View) -> tuple[Bools, Bools]:
    outside = _known(pc.greater(view.min, test.value)) | _known(pc.less(view.max, test.value))
    same = _known(pc.equal(view.min, test.value)) & _known(pc.equal(view.max, test.value))
    return ~outside, ~same


def _in(test: Test, view: _View) -> tuple[Bools, Bools]:
    """A block may hold a listed value unless the least one at or above its minimum is above its maximum."""
    values = test.values
    assert values is not None
    index = search_sorted(values, view.min)  # 0 if the minimum is unknown: then all listed values count
    candidate = values.take(pa.array(np.minimum(index, len(values) - 1)))
    outside = _known(pc.greater(candidate, view.max)) | (index == len(values))
    one_value = _known(pc.equal(view.min, view.max))
    return ~outside, ~one_value | outside


def _prefix(test: Test, view: _View) -> tuple[Bools, Bools]:
    """Strings with a prefix are a range in the order of bytes: [prefix, first string after all of them)."""
    assert test.value is not None
    prefix: bytes = test.value.as_py()
    low, high = _as_binary(view.min), _as_binary(view.max)
    start = pa.scalar(prefix, low.type)
    below, low_reached = _known(pc.less(high, start)), _known(pc.greater_equal(low, start))
    stem = prefix.rstrip(b"\xff")
    if not stem:  # nothing sorts after all strings of such a prefix
        return ~below, ~low_reached
    end = pa.scalar(stem[:-1] + bytes([stem[-1] + 1]), low.type)
    above, high_reached = _known(pc.greater_equal(low, end)), _known(pc.less(high, end))
    return ~(below | above), ~(low_reached & high_reached)


def _pattern(test: Test, view: _View) -> tuple[Bools, Bools]:
    """A pattern may hold for values with its prefix. If a block has a single value, that value is tested."""
    reached, _ = _prefix(test, view)
    one_value = _known(pc.equal(view.min, view.max))
    holds = _known(pattern_holds(test, view.min))
    return reached & (~one_value | holds), ~(one_value & holds)


def _as_binary(bound: Bound) -> Bound:
    return bound.cast(pa.large_binary() if pat.is_large_string(bound.type) else pa.binary())


_BY_OPERATOR = {
    Operator.LESS: _less,
    Operator.LESS_EQUAL: _less_equal,
    Operator.GREATER: _greater,
    Operator.GREATER_EQUAL: _greater_equal,
    Operator.EQUAL: _equal,
    Operator.IN: _in,
    Operator.PREFIX: _prefix,
    Operator.PATTERN: _pattern,
}
