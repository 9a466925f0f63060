"""Sum up what a table was asked: which columns, how, where, and whether that changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.nodes import AllOf, Node, Operator, Test, node_of, tests_of
from tblctl.tableformat.workload.queries import Query, Workload
from tblctl.tableformat.workload.reader import ReadLog

_WAYS = {
    Operator.EQUAL: "equal",
    Operator.IN: "listed",
    Operator.LESS: "range",
    Operator.LESS_EQUAL: "range",
    Operator.GREATER: "range",
    Operator.GREATER_EQUAL: "range",
    Operator.PREFIX: "prefix",
}
_WAYS_OF_TEXT = {
    "=": "equal",
    "IN": "listed",
    "<": "range",
    "<=": "range",
    ">": "range",
    ">=": "range",
    "LIKE": "prefix",
}
_LOWS = (Operator.GREATER, Operator.GREATER_EQUAL, Operator.EQUAL)
_HIGHS = (Operator.LESS, Operator.LESS_EQUAL, Operator.EQUAL)
_MOST_HOT = 3
_MOST_LISTED = 100  # values of a list that count for hot ranges
_SHOWN_CHARACTERS = 60

STRETCHES = 48
"""Of time, into which a report is cut."""


@dataclass(frozen=True, kw_only=True)
class HotRange:
    """A range of a column that many queries ask for: bounds as text, None for open, and the share of the weight."""

    low: str | None
    high: str | None
    share: float


@dataclass(frozen=True, kw_only=True)
class ColumnUse:
    """How queries test a column.

    Attributes:
        column: its name.
        share: of the weight of all queries, those that test it; from 0 to 1, as all shares.
        equal, range, listed, prefix, other: the same, by how they test it; a query may do so in several ways.
        share_before, share_after: in the older and the newer half of the queries, by weight.
        hot: where most of the weight is, the hottest first.
    """

    column: str
    share: float
    equal: float
    range: float
    listed: float
    prefix: float
    other: float
    share_before: float
    share_after: float
    hot: tuple[HotRange, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**vars(self), "hot": [vars(item) for item in self.hot]}


@dataclass(frozen=True, kw_only=True)
class UseOverTime:
    """What queries tested in a stretch of time.

    Attributes:
        start: in seconds since 1970.
        weight: of the queries that ran in it; 0 for none.
        shares: of these, by the columns that they test.
    """

    start: float
    weight: float
    shares: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**vars(self), "shares": dict(self.shares)}


@dataclass(frozen=True, kw_only=True)
class WorkloadReport:
    """What a table was asked.

    Attributes:
        snapshot: the version that conditions were read for.
        query_count: queries in the log that were read.
        weight: queries that they stand for.
        first_time, last_time: when they ran, in seconds since 1970; None without any.
        sources: share of the weight by who saw the queries.
        columns: that are tested, by share, the highest first.
        over_time: the same in stretches of equal length from the first query to the last, at most `STRETCHES`.
        drift: how much the columns tested changed: half the sum of the differences between `share_after` and
            `share_before`, both scaled to 1. 0 for the same, 1 for wholly other columns.
        without_condition: share of the weight that reads all rows.
        unreadable: queries whose condition does not fit the table, as of a dropped column.
        blocks_read, blocks_total: of a query on average; None if unknown.
        blocks_needed: those of the blocks read in which a row matched; where each block is known.
        rows_matched_share: of the rows read.
        files, damaged_lines, other_files, dropped: of the log (`docs/FORMAT.md`).
        workload: the queries.
    """

    snapshot: int | str
    query_count: int
    weight: float
    first_time: float | None
    last_time: float | None
    sources: Mapping[str, float]
    columns: tuple[ColumnUse, ...]
    over_time: tuple[UseOverTime, ...]
    drift: float
    without_condition: float
    unreadable: int
    blocks_read: float | None
    blocks_total: float | None
    blocks_needed: float | None
    rows_matched_share: float | None
    files: int
    damaged_lines: int
    other_files: int
    dropped: int
    workload: Workload = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, without the queries."""
        found = {name: value for name, value in vars(self).items() if name != "workload"}
        return {
            **found,
            "sources": dict(self.sources),
            "columns": [item.to_dict() for item in self.columns],
            "over_time": [item.to_dict() for item in self.over_time],
        }


def report(log: ReadLog, schema: Schema, snapshot: int | str) -> WorkloadReport:
    """Return what the queries of a log ask of a table. About a millisecond for each different condition."""
    queries = log.queries
    weight = sum(query.weight for query in queries)
    use = _Use(schema)
    half, passed = weight / 2, 0.0
    for query in queries:
        use.add(query, is_late=passed >= half)
        passed += query.weight
    sources: dict[str, float] = {}
    for query in queries:
        sources[query.source] = sources.get(query.source, 0.0) + query.weight / weight
    columns = use.columns(weight)
    read = [query for query in queries if query.rows_read and query.rows_matched is not None]
    return WorkloadReport(
        snapshot=snapshot,
        query_count=len(queries),
        weight=weight,
        first_time=queries[0].time if queries else None,
        last_time=max((query.time for query in queries), default=None),
        sources=dict(sorted(sources.items(), key=lambda item: -item[1])),
        columns=columns,
        over_time=over_time(use.tested),
        drift=_drift(columns),
        without_condition=use.without / weight if weight else 0.0,
        unreadable=use.unreadable,
        blocks_read=_mean(queries, lambda query: query.blocks_read),
        blocks_total=_mean(queries, lambda query: query.blocks_total),
        blocks_needed=_mean(queries, _needed),
        rows_matched_share=_ratio(read),
        files=log.files,
        damaged_lines=log.damaged_lines,
        other_files=log.other_files,
        dropped=log.dropped,
        workload=log.workload,
    )


def over_time(tested: Sequence[tuple[float, float, Sequence[str]]]) -> tuple[UseOverTime, ...]:
    """Return what queries tested over time; nothing without any.

    Args:
        tested: of each query, when it ran, its weight, and the columns that it tests.
    """
    if not tested:
        return ()
    first, last = min(item[0] for item in tested), max(item[0] for item in tested)
    count = min(STRETCHES, len(tested)) if last > first else 1
    weights: list[float] = [0.0] * count
    columns: list[dict[str, float]] = [{} for _ in weights]
    for time, weight, names in tested:
        place = min(int((time - first) / (last - first) * count), count - 1) if last > first else 0
        weights[place] += weight
        for name in names:
            columns[place][name] = columns[place].get(name, 0.0) + weight
    return tuple(
        UseOverTime(
            start=first + (last - first) * place / count,
            weight=weight,
            shares={name: share / weight for name, share in sorted(columns[place].items())},
        )
        for place, weight in enumerate(weights)
    )


def _needed(query: Query) -> int | None:
    if not query.blocks or query.blocks_read != len(query.blocks):
        return None
    return sum(use.rows_matched > 0 for use in query.blocks)


def _mean(queries: Iterable[Query], figure: Callable[[Query], int | None]) -> float | None:
    known = [(query.weight, value) for query in queries if (value := figure(query)) is not None]
    total = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / total if total else None


def _ratio(queries: Sequence[Query]) -> float | None:
    read = sum(query.weight * (query.rows_read or 0) for query in queries)
    return sum(query.weight * (query.rows_matched or 0) for query in queries) / read if read else None


def _drift(columns: Sequence[ColumnUse]) -> float:
    before, after = sum(item.share_before for item in columns), sum(item.share_after for item in columns)
    if not before or not after:
        return 0.0
    return sum(abs(item.share_after / after - item.share_before / before) for item in columns) / 2


Interval = tuple[Any, Any, float]
"""Low and high, None for open, and a weight."""


@dataclass
class _Column:
    ways: dict[str, float] = field(default_factory=dict)
    halves: list[float] = field(default_factory=lambda: [0.0, 0.0])
    intervals: list[Interval] = field(default_factory=list)


class _Use:
    """Adds up queries, column by column."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns: dict[str, _Column] = {}
        self._nodes: dict[str, Node | None] = {}
        self._halves = [0.0, 0.0]
        self.tested: list[tuple[float, float, tuple[str, ...]]] = []
        self.without = 0.0
        self.unreadable = 0

    def add(self, query: Query, *, is_late: bool) -> None:
        self._halves[is_late] += query.weight
        node = self._node(query.where) if query.where else None
        if query.where and node is None:
            self.unreadable += 1
        found: dict[str, set[str]] = {}
        for test in tests_of(node) if node else ():
            way = "other" if test.negated else _WAYS.get(test.operator, "other")
            found.setdefault(test.leaf.name, set()).add(way)
        for name, operator in query.tested:
            found.setdefault(name, set()).add(_WAYS_OF_TEXT.get(operator, "other"))
        self.tested.append((query.time, query.weight, tuple(found)))
        if not found and not query.where:
            self.without += query.weight
        for name, ways in found.items():
            column = self._columns.setdefault(name, _Column())
            column.halves[is_late] += query.weight
            for way in ways:
                column.ways[way] = column.ways.get(way, 0.0) + query.weight
        for name, low, high, weight in _intervals(node, query.weight) if node else ():
            self._columns[name].intervals.append((low, high, weight))

    def _node(self, where: str) -> Node | None:
        if where not in self._nodes:
            from tblctl.tableformat.predicate.sql.conditions import parse_where

            try:
                self._nodes[where] = node_of(parse_where(where, self._schema), self._schema)
            except TblctlError:
                self._nodes[where] = None
        return self._nodes[where]

    def columns(self, weight: float) -> tuple[ColumnUse, ...]:
        found = []
        for name, column in self._columns.items():
            shares = {
                way: column.ways.get(way, 0.0) / weight
                for way in ("equal", "range", "listed", "prefix", "other")
            }
            before, after = (
                part / whole if whole else 0.0
                for part, whole in zip(column.halves, self._halves, strict=True)
            )
            use = ColumnUse(
                column=name,
                share=sum(column.halves) / weight,
                share_before=before,
                share_after=after,
                hot=hot_ranges(column.intervals, weight),
                **shares,
            )
            found.append(use)
        return tuple(sorted(found, key=lambda item: (-item.share, item.column)))


def _intervals(node: Node, weight: float) -> list[tuple[str, Any, Any, float]]:
    """Return the ranges that a condition leaves of its columns, as far as tests that AND joins say."""
    parts = node.children if isinstance(node, AllOf) else (node,)
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    found = []
    for test in parts:
        if not isinstance(test, Test) or test.negated:
            continue
        name = test.leaf.name
        if test.operator is Operator.IN and test.values is not None:
            values = test.values[:_MOST_LISTED].to_pylist()
            found += [(name, value, value, weight) for value in values]
        elif test.value is not None and test.operator in (*_LOWS, *_HIGHS):
            value = test.value.as_py()
            if test.operator in _LOWS:
                lows[name] = max(lows.get(name, value), value)
            if test.operator in _HIGHS:
                highs[name] = min(highs.get(name, value), value)
    for name in {**lows, **highs}:
        low, high = lows.get(name), highs.get(name)
        if low is None or high is None or low <= high:
            found.append((name, low, high, weight))
    return found


def hot_ranges(intervals: Sequence[Interval], weight: float) -> tuple[HotRange, ...]:
    """Return the ranges where at least half as much weight lies as at the hottest point. O(n log n).

    Args:
        intervals: low and high, both included, None for open, and the weight of each.
        weight: of all queries, those that do not test the column included.
    """
    points = sorted({value for low, high, _ in intervals for value in (low, high) if value is not None})
    place = {value: 2 * number + 1 for number, value in enumerate(points)}  # even places are the gaps between
    change = [0.0] * (2 * len(points) + 2)
    for low, high, share in intervals:
        change[0 if low is None else place[low]] += share
        change[(2 * len(points) if high is None else place[high]) + 1] -= share
    cover = list(accumulate(change))[:-1]
    most = max(cover, default=0.0)
    if most <= 0:
        return ()
    found, start = [], None
    for number, value in enumerate([*cover, 0.0]):
        is_hot = value >= most / 2 > 0
        if is_hot and start is None:
            start = number
        elif not is_hot and start is not None:
            found.append((max(cover[start:number]), start, number - 1))
            start = None
    hottest = sorted(found, reverse=True)[:_MOST_HOT]
    return tuple(
        HotRange(
            low=_shown(points, first // 2 - (first % 2 == 0)) if first else None,
            high=_shown(points, (last + 1) // 2 - (last % 2)) if last < 2 * len(points) else None,
            share=min(1.0, top / weight),
        )
        for top, first, last in hottest
    )


def _shown(points: Sequence[Any], number: int) -> str:
    value = points[number]
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
