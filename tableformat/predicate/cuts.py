"""Which cuts of a tree conditions suggest, and which condition can hold for no row. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.model import tree
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string, is_orderable, statistic_type
from tblctl.tableformat.model.tree import Cut
from tblctl.tableformat.model.values import value_to_json
from tblctl.tableformat.predicate.nodes import AllOf, Node, Operator, Test, tests_of

MOST_CUTS = 256
"""Cuts that are tried: those that most conditions suggest."""

MOST_CUT_TEXT = 1 << 15
"""Characters of all cuts together as JSON, so that a tree takes at most 40 kB of every snapshot."""

_MOST_COMPARED = 100
"""Values of one column that are compared to find contradictions."""

_BOUNDS = {
    Operator.LESS: (tree.LESS,),
    Operator.GREATER_EQUAL: (tree.LESS,),
    Operator.LESS_EQUAL: (tree.LESS_EQUAL,),
    Operator.GREATER: (tree.LESS_EQUAL,),
    Operator.EQUAL: (tree.LESS, tree.LESS_EQUAL, tree.IN),
}


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A cut, by content."""

    column_id: int
    operator: str
    values: tuple[object, ...]


def cuts_of(conditions: Iterable[Node]) -> list[Cut]:
    """Return the cuts that the tests of conditions suggest, those of the most conditions first. O(size).

    `a < 5` and `a >= 5` suggest the cut `a < 5`. A value that is asked for suggests the cuts below, above and around
    it, since the bounds of blocks tell only ranges; so do the values of a list, and a prefix.
    """
    found: dict[_Draft, Cut] = {}
    counts: Counter[_Draft] = Counter()
    for condition in conditions:
        drafts = {_draft(cut): cut for test in tests_of(condition) for cut in _cuts_of_test(test)}
        found |= drafts
        counts.update(drafts.keys())
    kept: list[Cut] = []
    size = 0
    for draft, _ in counts.most_common():
        size += len(json.dumps([draft.column_id, draft.operator, draft.values]))
        if len(kept) == MOST_CUTS or size > MOST_CUT_TEXT:
            break
        kept.append(found[draft])
    return kept


def _draft(cut: Cut) -> _Draft:
    column_id, operator, values = cut.to_json()
    return _Draft(column_id=column_id, operator=operator, values=values)


def _cuts_of_test(test: Test) -> Iterator[Cut]:
    """Yield the cuts of one test. Values that a cut cannot hold, such as long texts, suggest none."""
    if not is_orderable(test.leaf.type):
        return
    for operator, values in _drafts_of_test(test):
        try:
            yield Cut(column_id=test.leaf.id, operator=operator, values=values)
        except ValueError:
            continue


def _drafts_of_test(test: Test) -> Iterator[tuple[str, pa.Array]]:
    kind = statistic_type(test.leaf.type)
    if test.operator is Operator.NULL:
        yield tree.NULL, pa.array([], kind)
    elif test.operator in _BOUNDS:
        value = pa.array([test.value], kind)
        yield from ((operator, value) for operator in _BOUNDS[test.operator])
    elif test.operator is Operator.IN:
        values = test.values
        assert values is not None
        short = len(values) <= tree.MOST_VALUES
        for value in values if short else (values[0], values[-1]):
            yield tree.LESS, pa.array([value], kind)
            yield tree.LESS_EQUAL, pa.array([value], kind)
        if short:
            yield tree.IN, values
    elif test.operator in (Operator.PREFIX, Operator.PATTERN):
        yield from _prefix_drafts(test, kind)


def _prefix_drafts(test: Test, kind: pa.DataType) -> Iterator[tuple[str, pa.Array]]:
    assert test.value is not None
    prefix: bytes = test.value.as_py()
    if not prefix:
        return
    if is_any_string(kind) or is_any_binary(kind):
        try:
            yield tree.LESS, pa.array([prefix.decode() if is_any_string(kind) else prefix], kind)
        except UnicodeDecodeError:
            return
    yield tree.PREFIX, pa.array([prefix], pa.binary())


def contradiction(condition: Node) -> str | None:
    """Return the tests of one column that no value satisfies together, or None if none are seen.

    Looks at the tests that AND joins. Values are taken as dense: `a > 1 AND a < 2` passes, of whole numbers too.
    """
    tests = condition.children if isinstance(condition, AllOf) else (condition,)
    by_column: dict[int, list[Test]] = {}
    for test in tests:
        if isinstance(test, Test):
            by_column.setdefault(test.leaf.id, []).append(test)
    for same in by_column.values():
        count = sum(1 if test.values is None else len(test.values) for test in same)
        if count <= _MOST_COMPARED and not any(_hold_together(same, _places_of(same))):
            return " AND ".join(test.text for test in same)
    return None


def _hold_together(tests: Sequence[Test], places: Mapping[object, int]) -> Iterator[bool]:
    """Yield for NULL, and for each value of the tests and each gap between these, whether all tests may hold."""
    yield all(test.operator is Operator.NULL and not test.negated for test in tests)
    for place in range(2 * len(places) + 1):
        yield all(_may_hold(test, place, places) for test in tests)


def _places_of(tests: Sequence[Test]) -> dict[object, int]:
    """Return the values that the tests compare with and their places: 1, 3, .. ascending. The gaps are at even ones."""
    kind = statistic_type(tests[0].leaf.type)
    parts = [pa.array([test.value], kind) for test in tests if test.operator in _BOUNDS]
    parts += [test.values for test in tests if test.operator is Operator.IN and test.values is not None]
    found: dict[object, int] = {}
    if not parts:
        return found
    values = pa.concat_arrays(parts)
    for value in values.take(pc.sort_indices(values)):
        found.setdefault(value_to_json(value), 2 * len(found) + 1)  # -0.0 and 0.0 are one
    return found


def _may_hold(test: Test, place: int, places: Mapping[object, int]) -> bool:
    """Return whether the test may be true of a value at a place; true where places do not tell."""
    if test.operator in (Operator.NULL, Operator.FALSE):
        return test.negated
    if test.operator is Operator.NEVER:
        return False
    if test.operator is Operator.IN:
        assert test.values is not None
        return (place in {places[value_to_json(value)] for value in test.values}) != test.negated
    if test.operator not in _BOUNDS:
        return True
    assert test.value is not None
    if test.negated and pat.is_floating(test.value.type):
        return True  # NaN
    at = places[value_to_json(test.value)]
    holds = {
        Operator.LESS: place < at,
        Operator.LESS_EQUAL: place <= at,
        Operator.GREATER: place > at,
        Operator.GREATER_EQUAL: place >= at,
        Operator.EQUAL: place == at,
    }[test.operator]
    return holds != test.negated
