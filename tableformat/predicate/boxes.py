"""Conditions as boxes: the closed ranges of columns outside which no row satisfies them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.predicate.nodes import AllOf, AnyOf, Constant, Negation, Node, Operator, Test

Range: TypeAlias = tuple[float, float]
Box: TypeAlias = Mapping[str, Range]
"""Closed ranges of numbers by a column's dotted name. A column that is not there is not limited."""

Place: TypeAlias = Callable[[Leaf, pa.Scalar], "float | None"]
"""Returns the number of a column's value, which keeps the order (of two values it may be one); None if it has none."""

MOST_BOXES = 64
"""Boxes of a condition. Where there would be more, one box around some of them takes their place."""

_INFINITE = float("inf")


def boxes_of(condition: Node, place: Place) -> tuple[Box, ...]:
    """Return boxes that together hold all rows that satisfy a condition; none if no row can.

    They may hold more: what is not a range, such as NOT over several tests, limits nothing. O(tests x boxes).
    """
    return tuple(_boxes(condition, place))


_EVERYTHING: Range = (-_INFINITE, _INFINITE)


def _boxes(node: Node, place: Place, negated: bool = False) -> list[Box]:
    """Return the boxes of the rows for which a condition is true; `negated`: of those for which it is false."""
    if isinstance(node, Negation):
        return _boxes(node.child, place, not negated)
    if isinstance(node, Constant):
        return [] if node.value is None or node.value == negated else [{}]
    if isinstance(node, Test):
        limits = _ranges(node, place, node.negated != negated)
        return [{} if limit == _EVERYTHING else {node.leaf.name: limit} for limit in limits]
    if isinstance(node, AllOf | AnyOf) and isinstance(node, AllOf) != negated:
        found: list[Box] = [{}]
        for child in node.children:
            mine = _few(_boxes(child, place, negated), MOST_BOXES // max(len(found), 1))
            found = [both for one in found for other in mine if (both := _both(one, other)) is not None]
        return found
    if isinstance(node, AllOf | AnyOf):
        return _few([box for child in node.children for box in _boxes(child, place, negated)], MOST_BOXES)
    return [{}]


def _ranges(test: Test, place: Place, negated: bool) -> list[Range]:
    """Return the ranges of a test's column."""
    operator = test.operator
    if operator is Operator.NEVER or (operator is Operator.FALSE and not negated):
        return []
    if operator is Operator.IN and not negated and test.values is not None:
        return _few_points(sorted(_numbers(test.leaf, test.values, place))) or [_EVERYTHING]
    compares = (Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL, Operator.EQUAL)
    number = place(test.leaf, test.value) if operator in compares and test.value is not None else None
    if number is None or (operator is Operator.EQUAL and negated):
        return [_EVERYTHING]
    if operator is Operator.EQUAL:
        return [(number, number)]
    upward = operator in (Operator.GREATER, Operator.GREATER_EQUAL)
    return [(number, _INFINITE) if upward != negated else (-_INFINITE, number)]


def _numbers(leaf: Leaf, values: Iterable[Any], place: Place) -> Iterator[float]:
    for value in values:
        number = place(leaf, value)
        if number is not None:
            yield number


def _few_points(points: list[float]) -> list[Range]:
    """Return points as ranges, neighbours together where there are too many."""
    step = -(-len(points) // MOST_BOXES) or 1
    return [(part[0], part[-1]) for part in (points[at : at + step] for at in range(0, len(points), step))]


def _few(boxes: list[Box], most: int) -> list[Box]:
    """Return the boxes, or one around all of them where there are too many."""
    if len(boxes) <= max(most, 1):
        return boxes
    names = set(boxes[0]).intersection(*boxes[1:])
    return [
        {name: (min(box[name][0] for box in boxes), max(box[name][1] for box in boxes)) for name in names}
    ]


def _both(one: Box, other: Box) -> Box | None:
    """Return the box of what is in both; None if nothing is."""
    found = dict(one)
    for name, (low, high) in other.items():
        least, most = found.get(name, _EVERYTHING)
        found[name] = max(low, least), min(high, most)
        if found[name][0] > found[name][1]:
            return None
    return found
