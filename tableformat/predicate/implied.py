"""Which outcomes a condition may have for rows of which it is known that some tests are true, and others are not. Pure.

The values that the tests of one column compare with, the gaps between them, NaN and NULL are the *places* of a value.
At each place a comparison has one outcome. So what is known of a column leaves some places, and a condition on this
column alone has the outcomes that it has there. Gaps count as filled: `a > 1 AND a < 2` may hold, of whole numbers too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string, is_orderable, statistic_type
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Constant,
    Negation,
    Node,
    Operator,
    Test,
    Truth,
    tests_of,
)
from tblctl.tableformat.predicate.outcomes import (
    ANY,
    BITS,
    FALSE,
    IS,
    NOT,
    NULL,
    TRUE,
    Sets,
    both,
    either,
)

Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

Known = Mapping[int, Bools]
"""By column id; of columns that no known test is of, nothing."""

_MOST_VALUES = 10_000
"""That tests of one column compare with. Of more, nothing is said."""

_NAN, _NULL = -2, -1
"""The last two places."""


class Implied:
    """What is known of groups of rows, and what follows for conditions.

    `Known` has for each column a row for each group: the places where the group's values may be.

    Args:
        tests: what groups are described by; none is a PATTERN.
        conditions: what is asked of them.
    """

    def __init__(self, tests: Sequence[Test], conditions: Sequence[Node]) -> None:
        by_column: dict[int, list[int]] = {}
        for number, test in enumerate(tests):
            by_column.setdefault(test.leaf.id, []).append(number)
        asked = [test for condition in conditions for test in tests_of(condition)]
        self._count = len(tests)
        self._columns: dict[int, _Column] = {}
        for column_id, numbers in by_column.items():
            mine = [tests[number] for number in numbers]
            places = _Places.of([*mine, *(test for test in asked if test.leaf.id == column_id)])
            if places is not None:
                holds = np.array([places.sets(test) == TRUE for test in mine])
                self._columns[column_id] = _Column(places=places, numbers=numbers, holds=holds)

    def nothing(self) -> Known:
        """Return what is known of one group of any rows."""
        return {column_id: column.places.every()[None] for column_id, column in self._columns.items()}

    def narrowed(self, known: Known, test: int, *, holds: bool) -> Known:
        """Return what is known of the rows for which a test is true, or is not."""
        found = dict(known)
        for column_id, column in self._columns.items():
            if test in column.numbers:
                mask = column.holds[column.numbers.index(test)]
                found[column_id] = known[column_id] & (mask if holds else ~mask)
        return found

    def outcomes(self, node: Node, known: Known) -> Sets:
        """Return the outcomes that a condition, or a part of one, may have for the rows of each of n groups.

        A set may be too large, never too small.
        """
        column_id = _only_column(node)
        if column_id is not None:
            return self._of_column(node, column_id, known)
        match node:
            case AllOf() | AnyOf():
                combine = both if isinstance(node, AllOf) else either
                return reduce(combine, (self.outcomes(part, known) for part in _by_column(node)))
            case Constant():
                return np.full(_groups(known), BITS[node.value], np.uint8)
            case Negation():
                return NOT[self.outcomes(node.child, known)]
            case Truth():
                return IS[node.value][self.outcomes(node.child, known)]
        raise AssertionError(node)

    def _of_column(self, node: Node, column_id: int, known: Known) -> Sets:
        """Return the outcomes of a condition that tests one column only."""
        column = self._column_for(node, column_id)
        sets = np.full(_groups(known), ANY if column is None else 0, np.uint8)
        if column is not None:
            found = column.places.sets(node)
            for bit in (TRUE, FALSE, NULL):
                sets |= (known[column_id] & ((found & bit) != 0)).any(axis=1) * np.uint8(bit)
        return sets

    def _column_for(self, node: Node, column_id: int) -> _Column | None:
        column = self._columns.get(column_id)
        is_placed = column and all(id(test) in column.places.at for test in tests_of(node))
        return column if is_placed else None

    def may_hold_beside(self, node: Node, known: Known) -> Bools:
        """Return whether a condition may be true in each of n groups, and in both sides of each test in it.

        Returns:
            [n, 1 + 2 tests]: of the group, of its rows for which a test is true, one after the other, of the others.
        """
        column_id = _only_column(node)
        if column_id is not None:
            return self._sides_of_column(node, column_id, known)
        if isinstance(node, AllOf | AnyOf):
            parts = np.array([self.may_hold_beside(part, known) for part in _by_column(node)])
            return np.asarray(parts.all(axis=0) if isinstance(node, AllOf) else parts.any(axis=0), bool)
        return np.full(
            (_groups(known), 1 + 2 * self._count), not isinstance(node, Constant) or node.value is True
        )

    def _sides_of_column(self, node: Node, column_id: int, known: Known) -> Bools:
        column = self._column_for(node, column_id)
        found = np.ones((_groups(known), 1 + 2 * self._count), bool)
        if column is None:
            return found
        where = np.flatnonzero(column.places.sets(node) & TRUE)
        left = known[column_id][:, where]
        found[:] = np.asarray(left.any(axis=1))[:, None]
        some = np.flatnonzero(found[:, 0])
        numbers = np.array(column.numbers)
        counts, holds = left[some].astype(np.float32), column.holds[:, where].T.astype(np.float32)
        for start, side in (1, holds), (1 + self._count, 1 - holds):
            found[np.ix_(some, start + numbers)] = counts @ side > 0
        return found


def _groups(known: Known) -> int:
    return len(next(iter(known.values())))


def _only_column(node: Node) -> int | None:
    """Return the one column that a condition tests; None if there are more, or none."""
    ids = {test.leaf.id for test in tests_of(node)}
    return ids.pop() if len(ids) == 1 else None


def _by_column(node: AllOf | AnyOf) -> Iterator[Node]:
    """Yield the parts of an AND or OR, those that test one and the same column as one part."""
    together: dict[int, list[Node]] = {}
    for child in node.children:
        column_id = _only_column(child)
        if column_id is None:
            yield child
        else:
            together.setdefault(column_id, []).append(child)
    for children in together.values():
        yield children[0] if len(children) == 1 else type(node)(children=tuple(children))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Column:
    """The places of a column, the numbers of its known tests, and at which places each of these is true."""

    places: _Places
    numbers: list[int]
    holds: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class _Places:
    """The places of one column: gaps at even numbers, values at odd ones, then NaN and NULL.

    `at` has for each test, by its identity, the places of its values. `tests` keeps these tests: while they live, no
    other test has the identity of one.
    """

    count: int
    has_nan: bool
    at: dict[int, Places]
    tests: tuple[Test, ...]

    @classmethod
    def of(cls, tests: Sequence[Test]) -> _Places | None:
        """Return the places that tests of one column need; None if they are too many, or have no order."""
        kind = statistic_type(tests[0].leaf.type)
        if not is_orderable(tests[0].leaf.type):
            return None
        as_bytes = is_any_string(kind) or is_any_binary(kind) or pat.is_fixed_size_binary(kind)
        parts = [_values_of(test, pa.binary() if as_bytes else kind) for test in tests]
        values = pa.concat_arrays(parts)
        is_float = pat.is_floating(kind)
        if len(values) > _MOST_VALUES or (is_float and pc.any(pc.is_nan(values)).as_py()):
            return None
        places, count = _places_of(values)
        ends = np.cumsum([len(part) for part in parts])
        at = {
            id(test): places[end - len(part) : end]
            for test, part, end in zip(tests, parts, ends, strict=True)
        }
        return cls(count=2 * count + 3, has_nan=is_float, at=at, tests=tuple(tests))

    def every(self) -> Bools:
        """Return at which places a value may be."""
        found = np.ones(self.count, bool)
        found[_NAN] = self.has_nan
        return found

    def sets(self, node: Node) -> Sets:
        """Return the outcomes at each place; one each, except of patterns."""
        match node:
            case Test():
                return self._of_test(node)
            case Constant():
                return np.full(self.count, BITS[node.value], np.uint8)
            case AllOf():
                return reduce(both, map(self.sets, node.children))
            case AnyOf():
                return reduce(either, map(self.sets, node.children))
            case Negation():
                return NOT[self.sets(node.child)]
            case Truth():
                return IS[node.value][self.sets(node.child)]

    def _of_test(self, test: Test) -> Sets:
        sets = np.full(self.count, FALSE, np.uint8)
        if test.operator is Operator.NULL:
            sets[_NULL] = TRUE
        elif test.operator is Operator.NEVER:
            sets[:] = NULL
        else:
            sets[_NULL] = NULL
            if test.operator is Operator.NAN:
                sets[_NAN] = TRUE
            elif test.operator is not Operator.FALSE:
                holds = _holds(test.operator, np.arange(self.count - 2), self.at[id(test)])
                sets[:_NAN][holds] = TRUE | FALSE if test.operator is Operator.PATTERN else TRUE
        return NOT[sets] if test.negated else sets


def _holds(operator: Operator, places: Places, at: Places) -> Bools:
    """Return at which places of values a test may be true."""
    found: Bools
    match operator:
        case Operator.LESS:
            found = places < at[0]
        case Operator.LESS_EQUAL:
            found = places <= at[0]
        case Operator.GREATER:
            found = places > at[0]
        case Operator.GREATER_EQUAL:
            found = places >= at[0]
        case Operator.PREFIX | Operator.PATTERN:
            found = places >= at[0]
            if len(at) > 1:
                found &= places < at[1]
        case _:
            found = np.isin(places, at)
    return found


def _values_of(test: Test, kind: pa.DataType) -> pa.Array:
    """Return what a test compares with; of a prefix its first text, and the first one after all of its texts."""
    if test.operator is Operator.IN:
        assert test.values is not None
        return test.values.cast(kind)
    if test.value is None:
        return pa.array([], kind)
    if test.operator not in (Operator.PREFIX, Operator.PATTERN):
        return pa.array([test.value]).cast(kind)
    prefix = test.value.as_py()
    stem = prefix.rstrip(b"\xff")
    return pa.array([prefix, *([stem[:-1] + bytes([stem[-1] + 1])] if stem else [])], kind)


def _places_of(values: pa.Array) -> tuple[Places, int]:
    """Return the place of each value, and how many different ones there are. 0.0 and -0.0 are one."""
    if not len(values):
        return np.zeros(0, np.int64), 0
    order = pc.sort_indices(values)
    ascending = values.take(order)
    differs = pc.not_equal(ascending[1:], ascending[:-1]).to_numpy(zero_copy_only=False)
    numbers = np.concatenate(([0], np.cumsum(differs)))
    places = np.empty(len(values), np.int64)
    places[order.to_numpy()] = 2 * numbers + 1
    return places, int(numbers[-1]) + 1
