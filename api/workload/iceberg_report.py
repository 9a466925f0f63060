"""Scan reports of Iceberg, as its metrics reporters write them: one JSON object each.

Their filters have no literals: columns and operators only. So they weigh columns, and give no ranges (`Query.tested`).
Source: `ScanReport` of the REST catalog's specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.workload.queries import Query
from tblctl.workload.conjuncts import Conditions
from tblctl.workload.files import Reading, count_of, time_of, value_at
from tblctl.workload.selects import OTHER_TABLE, TableName

KIND = "iceberg"
_OPERATORS = {
    "eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">=", "in": "IN", "not-in": "NOT IN",
    "starts-with": "LIKE", "not-starts-with": "NOT LIKE", "is-null": "IS NULL", "not-null": "IS NOT NULL",
    "is-nan": "IS NAN", "not-nan": "IS NOT NAN",
}  # fmt: skip
_MOST_DEPTH = 200


def is_report(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a scan report."""
    return "table-name" in found and "projected-field-names" in found


@dataclass(kw_only=True)
class IcebergReader:
    """Reads queries of one table from scan reports."""

    table: TableName
    conditions: Conditions
    reading: Reading

    def read(self, report: Mapping[str, Any]) -> Iterator[Query]:
        """Yield the query of a report, if it is of the table."""
        inner = report.get("report", report)
        if not isinstance(inner, Mapping) or not is_report(inner):
            self.reading.unused["an object is no scan report"] += 1
            return
        if not self.table.matches(str(inner["table-name"]).split(".")):
            self.reading.unused[OTHER_TABLE] += 1
            return
        names = inner["projected-field-names"]
        columns = [self.conditions.column(str(name)) for name in names] if isinstance(names, list) else []
        read = count_of(value_at(inner, "metrics.result-data-files.value"))
        skipped = count_of(value_at(inner, "metrics.skipped-data-files.value"))
        time = time_of(report.get("timestamp", inner.get("timestamp")))
        yield Query(
            time=self.reading.time if time is None else time,
            where="",
            columns=tuple(name for name in columns if name) if all(columns) else (),
            blocks_read=read,
            blocks_total=None if read is None or skipped is None else read + skipped,
            bytes_read=count_of(value_at(inner, "metrics.total-file-size-in-bytes.value")),
            snapshot=str(inner.get("snapshot-id", ""))[:40],
            source=KIND,
            tested=tuple(self._tests(inner.get("filter"))),
        )

    def _tests(self, found: Any) -> Iterator[tuple[str, str]]:
        todo = [(found, 0)]
        while todo:
            node, depth = todo.pop()
            if not isinstance(node, Mapping) or depth > _MOST_DEPTH:
                continue
            todo += [(node.get(key), depth + 1) for key in ("right", "left", "child")]
            operator = _OPERATORS.get(str(node.get("type", "")))
            column = self.conditions.column(str(node.get("term", "")))
            if operator is not None and column is not None:
                yield column, operator
