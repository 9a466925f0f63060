"""JSON profiles of DuckDB, one file a query: each scan of the table in its tree of operators.

A scan has its `Filters` (one text, or several) and `Projections` in `extra_info`. DuckDB 2 nests the tree in
`operator`, DuckDB 1 in `children`, and names a few keys otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.workload.queries import Query
from tblctl.workload.conjuncts import Conditions, Kept
from tblctl.workload.files import Reading, count_of, value_at
from tblctl.workload.selects import TableName

KIND = "duckdb"
_SCANS = ("SCAN", "TABLE_SCAN", "SEQ_SCAN", "PARQUET_SCAN", "READ_PARQUET", "ICEBERG_SCAN")
_MOST_DEPTH = 500


def is_profile(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a profile."""
    return isinstance(found.get("operator", found.get("children")), list) and any(
        name in found for name in ("query", "query_name", "latency", "extra_info")
    )


@dataclass(kw_only=True)
class DuckDBReader:
    """Reads queries of one table from profiles."""

    table: TableName
    location: str
    conditions: Conditions
    reading: Reading

    def read(self, profile: Mapping[str, Any]) -> Iterator[Query]:
        """Yield the scans of the table in a profile."""
        scans = [node for node in _nodes(profile) if self._is_scan(node)]
        if not scans:
            self.reading.unused["a query does not read the table"] += 1
        for node in scans:
            kept, columns = self._kept(node["extra_info"]), self._columns(node["extra_info"])
            yield Query(
                time=self.reading.time,
                where=kept.where,
                columns=tuple(dict.fromkeys((*columns, *sorted(kept.columns)))) if columns else (),
                rows_read=count_of(node.get("rows_scanned", node.get("operator_rows_scanned"))),
                blocks_read=count_of(_first(node["extra_info"].get("Total Files Read"))),
                bytes_read=count_of(value_at(profile, "io.total_bytes_read")) if len(scans) == 1 else None,
                seconds=_seconds(value_at(profile, "query.total_time") or profile.get("latency")),
                cpu_seconds=_seconds(value_at(profile, "query.cpu_time") or profile.get("cpu_time")),
                source=KIND,
            )

    def _is_scan(self, node: Mapping[str, Any]) -> bool:
        info = node.get("extra_info")
        kind = str(node.get("type", node.get("operator_type", node.get("operator_name", "")))).strip().upper()
        if not isinstance(info, dict) or not kind.endswith(_SCANS):
            return False
        table = str(_first(info.get("Table")) or "")
        if table and self.table.matches(table.split(".")):
            return True
        files = str(_first(info.get("Filename(s)")) or "")
        here = self.location.removeprefix("file://").rstrip("/")
        folders = files.split("/")[:-1]
        return files.startswith(here + "/") or any(self.table.matches([part]) for part in folders[-2:])

    def _kept(self, info: Mapping[str, Any]) -> Kept:
        found = info.get("Filters", [])
        texts = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        parts = [str(text).removeprefix("optional: ").strip() for text in texts]
        text = " AND ".join(part for part in parts if part)
        return self.conditions.of_text(text, "duckdb") if text else Kept()

    def _columns(self, info: Mapping[str, Any]) -> tuple[str, ...]:
        found = info.get("Projections", [])
        texts = found.split("\n") if isinstance(found, str) else found if isinstance(found, list) else []
        names = [self.conditions.column(str(text).strip().strip('"')) for text in texts]
        return tuple(name for name in names if name) if all(names) else ()


def _nodes(profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    todo: list[tuple[Any, int]] = [(profile, 0)]
    while todo:
        node, depth = todo.pop()
        if not isinstance(node, Mapping) or depth > _MOST_DEPTH:
            continue
        yield dict(node)
        for key in ("operator", "children"):
            inner = node.get(key)
            todo += [(child, depth + 1) for child in reversed(inner)] if isinstance(inner, list) else []


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9  # noqa: PLR2004
    return float(value) if is_number else None
