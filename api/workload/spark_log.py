"""Event logs of Spark: each scan of the table in the plans of its queries. PySpark is not needed.

A plan's node has, of a Parquet scan, `PushedFilters`, `ReadSchema` and `Location` in its metadata. Of an Iceberg scan,
all is in the text of the node: `IcebergScan(table=c.db.t, .., filters=a >= 5, ..)`, with days and microseconds since
1970 in the place of dates and timestamps. File counts come later, in accumulators.

Sources: Spark's `SparkListenerSQLExecutionStart` and `FileSourceScanExec`, as of 4.1.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow.types as pt
from sqlglot import exp

from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import is_any_string, read_type
from tblctl.tableformat.predicate.as_sql import column_text
from tblctl.tableformat.workload.queries import Query
from tblctl.workload.conjuncts import Conditions, Kept
from tblctl.workload.files import Reading, count_of, time_of
from tblctl.workload.selects import TableName

KIND = "spark"

_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_UPDATES = "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"
_END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
_MOST_OPEN = 1_000
"""So many queries are kept until their end. Further ones, of programs that were killed, end without figures."""

_MOST_DEPTH = 200  # of a plan, and of a filter

_FILES, _BYTES = "number of files read", "size of files read"
_ICEBERG = re.compile(r"IcebergScan\(table=([^,\s]+)")
_ICEBERG_FILTERS = re.compile(
    r"\bfilters=(.*?)(?:, (?:runtimeFilters|groupedBy|caseSensitive|scanTasks|pushedLimit)\b|\)$)"
)
_LOCATION = re.compile(r"\[(.*?)(?:,|\]|$)")
_COLUMN = re.compile(r"(?:^|[<,])([^<>,:]+):")


@dataclass(kw_only=True)
class _Open:
    """A query that has begun: its scans of the table, and the accumulators of their figures."""

    queries: list[Query]
    figures: list[dict[str, int]]


@dataclass(kw_only=True)
class SparkReader:
    """Reads queries of one table from the events of a log.

    Attributes:
        table: what queries call it.
        location: of the table: Parquet scans below it are of this table, too.
    """

    table: TableName
    location: str
    conditions: Conditions
    reading: Reading
    _open: dict[Any, _Open] = field(default_factory=dict)
    _zone: datetime.tzinfo = datetime.UTC

    def read(self, events: Iterable[dict[str, Any]]) -> Iterator[Query]:
        """Yield the queries of some events: those without an end are the last."""
        for event in events:
            kind = event.get("Event")
            if kind == "SparkListenerEnvironmentUpdate":
                self._take_zone(event)
            elif kind == _START:
                yield from self._begin(event)
            elif kind == _UPDATES:
                self._update(event)
            elif kind == _END:
                yield from self._end(_execution(event))
        for execution in list(self._open):
            yield from self._end(execution)

    def _take_zone(self, event: dict[str, Any]) -> None:
        """Take note of the time zone of the driver, in which filters show timestamps."""
        found = event.get("System Properties")
        name = found.get("user.timezone") if isinstance(found, dict) else None
        try:
            self._zone = ZoneInfo(name) if isinstance(name, str) and name else datetime.UTC
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.reading.unused[f"the time zone {name!r:.40} is unknown here: UTC is taken"] += 1

    def _begin(self, event: dict[str, Any]) -> Iterator[Query]:
        time = time_of(event.get("time"))
        scans = [item for node in _nodes(event.get("sparkPlanInfo")) if (item := self._scan(node, time))]
        if not scans:
            self.reading.unused["a query does not read the table"] += 1
            return
        queries, figures = [query for query, _ in scans], [found for _, found in scans]
        self._open[_execution(event)] = _Open(queries=queries, figures=figures)
        if len(self._open) > _MOST_OPEN:
            yield from self._end(next(iter(self._open)))

    def _update(self, event: dict[str, Any]) -> None:
        found, updates = self._open.get(_execution(event)), event.get("accumUpdates")
        if found is None or not isinstance(updates, list):
            return
        pairs = [item for item in updates if isinstance(item, list) and len(item) == 2]  # noqa: PLR2004
        values = {id_: count_of(value) for id_, value in pairs if isinstance(id_, int)}
        for place, names in enumerate(found.figures):
            known: dict[str, Any] = {
                name: values[id_] for name, id_ in names.items() if values.get(id_) is not None
            }
            found.queries[place] = replace(found.queries[place], **known)

    def _end(self, execution: Any) -> Iterator[Query]:
        found = self._open.pop(execution, None)
        yield from found.queries if found else ()

    def _scan(self, node: dict[str, Any], time: float | None) -> tuple[Query, dict[str, int]] | None:
        """Return a node's scan of the table, and the accumulators of its figures; None if it is no such scan."""
        text, metadata = str(node.get("simpleString", "")), node.get("metadata")
        columns: tuple[str, ...] = ()
        iceberg = _ICEBERG.search(text)
        if iceberg is not None:
            if not self.table.matches(iceberg[1].split(".")):
                return None
            kept = self._iceberg(text)
        elif isinstance(metadata, dict) and "ReadSchema" in metadata and self._is_of(node, metadata):
            kept, columns = self._pushed(metadata), self._columns(str(metadata["ReadSchema"]))
        else:
            return None
        query = Query(
            time=self.reading.time if time is None else time,
            where=kept.where,
            columns=tuple(dict.fromkeys((*columns, *sorted(kept.columns)))) if columns else (),
            source=KIND,
        )
        metrics = {str(item.get("name")): item.get("accumulatorId") for item in _dicts(node.get("metrics"))}
        ids = {"blocks_read": metrics.get(_FILES), "bytes_read": metrics.get(_BYTES)}
        return query, {name: id_ for name, id_ in ids.items() if isinstance(id_, int)}

    def _is_of(self, node: dict[str, Any], metadata: dict[str, Any]) -> bool:
        found = _LOCATION.search(str(metadata.get("Location", "")))
        place = _plain(found[1]) if found else ""
        mine = _plain(self.location)
        name = str(node.get("nodeName", "")).rpartition(" ")[2]
        is_below = place == mine or place.startswith((mine + "/", mine.removesuffix("/data") + "/"))
        is_named = self.table.matches(name.split(".")) or self.table.matches([place.rpartition("/")[2]])
        return is_below or is_named

    def _columns(self, read_schema: str) -> tuple[str, ...]:
        """Return the columns of `struct<a:bigint,b:string>`; empty if one is not the table's."""
        inner = read_schema.removeprefix("struct<")
        depth, names = 0, []
        for part in re.split(r"([<>(),])", inner):
            if part in "<(":
                depth += 1
            elif part in ")>":
                depth -= 1
            elif depth == 0 and ":" in part:
                names.append(self.conditions.column(part.partition(":")[0]))
        return tuple(name for name in names if name) if all(names) else ()

    def _pushed(self, metadata: dict[str, Any]) -> Kept:
        filters = []
        for name in ("PushedFilters", "PartitionFilters"):
            text = str(metadata.get(name, "[]")).strip()
            filters += split_arguments(text[1:-1] if text.startswith("[") else text)
        found = []
        for item in filters:
            condition = self._filter(item, 0)
            if condition is None:
                self.conditions.left_out["a filter has a form or a literal that tblctl does not test"] += 1
            elif condition:
                found.append(condition)
        return self.conditions.of_texts(found)

    def _filter(self, text: str, depth: int) -> str | None:
        """Return a pushed filter such as `LessThan(a,5)` as SQL; empty if it says nothing, None if it has no form."""
        name, _, rest = text.strip().partition("(")
        if not rest.endswith(")") or depth > _MOST_DEPTH:
            return None
        arguments = split_arguments(rest[:-1])
        if name == "Not" and len(arguments) == 1:
            inner = self._filter(arguments[0], depth + 1)
            return f"NOT ({inner})" if inner else None
        if name in ("And", "Or") and len(arguments) == 2:  # noqa: PLR2004
            both = [self._filter(item, depth + 1) for item in arguments]
            return f"({both[0]} {name.upper()} {both[1]})" if all(both) else None
        column, _, value = rest[:-1].partition(",")
        known = self.conditions.column(column.strip().strip("`"))
        if known is None or known not in {leaf.name for leaf in self.conditions.schema.leaves}:
            return None
        return self._test(name, self.conditions.schema.leaf(known), value)

    def _test(self, name: str, leaf: Leaf, value: str) -> str | None:
        column = column_text(leaf.name)
        if name == "IsNotNull":
            return ""  # beside another filter, as a rule; it prunes nothing alone
        if name == "IsNull":
            return f"{column} IS NULL"
        if name == "In":
            listed = [self._literal(leaf, item) for item in split_arguments(value.strip()[1:-1])]
            return f"{column} IN ({', '.join(map(str, listed))})" if listed and all(listed) else None
        if name == "StringStartsWith":
            escaped = re.sub(r"([!%_])", r"!\1", value).replace("'", "''")
            return f"{column} LIKE '{escaped}%' ESCAPE '!'"
        operator = _OPERATORS.get(name)
        literal = self._literal(leaf, value)
        return f"{column} {operator} {literal}" if operator and literal else None

    def _literal(self, leaf: Leaf, text: str) -> str | None:
        """Return a value as Spark shows it as a literal of SQL; None if it is none of the column's type."""
        kind = read_type(leaf.type)
        if pt.is_dictionary(kind):
            kind = kind.value_type
        if is_any_string(kind):
            return "'" + text.replace("'", "''") + "'"
        text = text.strip()
        if pt.is_boolean(kind):
            return text.upper() if text in ("true", "false") else None
        if pt.is_date(kind):
            return f"DATE '{text}'" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
        if pt.is_timestamp(kind):
            return self._timestamp(text, zoned=kind.tz is not None)
        return text if re.fullmatch(r"-?\d{1,40}(?:\.\d{1,40})?(?:E-?\d{1,3})?", text) else None

    def _timestamp(self, text: str, *, zoned: bool) -> str | None:
        try:
            moment = datetime.datetime.fromisoformat(
                re.sub(r"\.(\d{1,6})\d*$", r".\1", text.replace("T", " "))
            )
        except ValueError:
            return None
        if not zoned or moment.tzinfo is not None:
            return f"TIMESTAMP '{moment.isoformat(' ')}'"
        return f"TIMESTAMP '{moment.replace(tzinfo=self._zone).astimezone(datetime.UTC).isoformat(' ')}'"

    def _iceberg(self, text: str) -> Kept:
        found = _ICEBERG_FILTERS.search(text)
        if found is None or not found[1].strip():
            return Kept()
        return self.conditions.of_text(" AND ".join(split_arguments(found[1])), None, self._dated)

    def _dated(self, part: exp.Expr) -> None:
        """Put dates and timestamps in the place of the numbers that Iceberg shows for them."""
        for test in part.find_all(exp.Binary, exp.In):
            column = test.this
            name = self.conditions.column(column.name) if isinstance(column, exp.Column) else None
            if name is None or name not in {leaf.name for leaf in self.conditions.schema.leaves}:
                continue
            kind = self.conditions.schema.leaf(name).type
            values = test.expressions if isinstance(test, exp.In) else [test.expression]
            for value in values:
                if isinstance(value, exp.Literal) and not value.is_string:
                    shown = _moment(kind, value.this)
                    if shown is not None:
                        value.replace(exp.Literal.string(shown))


_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def _moment(kind: Any, number: str) -> str | None:
    """Return the day or the instant of a number of days or microseconds, as text; None for other types."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        if pt.is_date(kind):
            return (epoch + datetime.timedelta(days=int(number))).date().isoformat()
        if pt.is_timestamp(kind):
            moment = epoch + datetime.timedelta(microseconds=int(number))
            return moment.replace(tzinfo=epoch.tzinfo if kind.tz else None).isoformat(" ")
    except (ValueError, OverflowError):
        return None
    return None


def split_arguments(text: str) -> list[str]:
    """Return the parts of a text between commas that are not inside brackets or quotes. Spaces around them go."""
    parts, depth, start, quoted = [], 0, 0, False
    for place, char in enumerate(text):
        if char == "'":
            quoted = not quoted
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0 and not (quoted and "'" in text[place:]):
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan."""
    todo = [(plan, 0)]
    while todo:
        node, depth = todo.pop()
        if isinstance(node, dict) and depth <= _MOST_DEPTH:
            yield node
            todo += [(child, depth + 1) for child in reversed(_dicts(node.get("children")))]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _execution(event: dict[str, Any]) -> int | None:
    """Return the number of an execution; None if the event has none."""
    found = event.get("executionId")
    return found if isinstance(found, int) else None


def _plain(location: str) -> str:
    """Return a location without what differs between ways to write it: `file:/a/`, `file:///a` and `/a` are one."""
    text = re.sub(r"^file:/*", "/", location.strip()).rstrip("/")
    return re.sub(r"^s3[an]://", "s3://", text)
