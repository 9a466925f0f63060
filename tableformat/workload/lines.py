"""The lines of a log file: JSON, one object each (`docs/FORMAT.md`). Pure.

A line that cannot be read is counted, and never an error: logs are hints, and a killed process may leave half a line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.workload.queries import MOST_BLOCKS, BlockUse, Query

VERSION = 1
"""Of the format. Files of a later one are left alone."""

MOST_LINE_BYTES = 1 << 20
"""Longer lines are not read, and not written."""

_COUNTS = ("blocks_read", "blocks_total", "bytes_read", "rows_read", "rows_matched")
_SECONDS = ("seconds", "cpu_seconds")
_MOST_COUNT = 2**63


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a file.

    Attributes:
        table_id: the table's.
        version: of the format.
        dropped: queries that were lost before this file, since the writer could not keep up.
        imported: what was imported: its name, for people; empty for recorded scans.
        kind: the kind of an imported log.
    """

    table_id: str
    version: int = VERSION
    dropped: int = 0
    imported: str = ""
    kind: str = ""


def encode_header(header: Header) -> bytes:
    """Return the first line of a file."""
    found: dict[str, Any] = {"tblctl_workload": header.version, "table_id": header.table_id}
    found |= {name: value for name in ("dropped", "imported", "kind") if (value := getattr(header, name))}
    return _line(found)


def encode_query(query: Query) -> bytes:
    """Return a query as a line; empty if that would be too long. What is unknown is left out."""
    found: dict[str, Any] = {"time": round(query.time, 3), "where": query.where}
    if query.columns:
        found["columns"] = query.columns
    if query.weight != 1.0:
        found["weight"] = query.weight
    found |= {name: value for name in _COUNTS if (value := getattr(query, name)) is not None}
    found |= {name: round(value, 6) for name in _SECONDS if (value := getattr(query, name)) is not None}
    if query.snapshot:
        found["snapshot"] = query.snapshot
    found["source"] = query.source
    if query.blocks:
        found["blocks"] = [[use.path, use.rows_read, use.rows_matched] for use in query.blocks[:MOST_BLOCKS]]
    if query.tested:
        found["tested"] = query.tested
    line = _line(found)
    return line if len(line) <= MOST_LINE_BYTES else b""


def _line(found: dict[str, Any]) -> bytes:
    text = json.dumps(found, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def decode_header(line: bytes) -> Header | None:
    """Return what the first line of a file says; None if it is no such line."""
    found = _object(line)
    version = found.get("tblctl_workload")
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    texts = {name: found.get(name, "") for name in ("table_id", "imported", "kind")}
    dropped = found.get("dropped", 0)
    if not all(isinstance(text, str) for text in texts.values()) or not _is_count(dropped):
        return None
    return Header(version=version, dropped=dropped, **texts)


def decode_query(line: bytes, *, with_blocks: bool = True) -> Query | None:
    """Return the query of a line; None if it is damaged. Without its blocks it takes a hundredth of the memory."""
    found = _object(line)
    if not with_blocks:
        found.pop("blocks", None)
    try:
        return _query(found) if found else None
    except (TypeError, ValueError, OverflowError):
        return None


def _query(found: dict[str, Any]) -> Query:
    counts = {name: found[name] for name in _COUNTS if name in found}
    if not all(map(_is_count, counts.values())):
        raise ValueError
    weight = _number(found.get("weight", 1.0))
    if weight <= 0:
        raise ValueError
    return Query(
        time=_number(found["time"]) if "time" in found else _fail(),
        where=_text(found.get("where", "")),
        columns=tuple(map(_text, found.get("columns", ()))),
        weight=weight,
        snapshot=_text(found.get("snapshot", "")),
        source=_text(found.get("source", "")),
        blocks=tuple(map(_use, found.get("blocks", ())[:MOST_BLOCKS])),
        tested=tuple((_text(column), _text(operator)) for column, operator in found.get("tested", ())),
        seconds=_number(found["seconds"]) if "seconds" in found else None,
        cpu_seconds=_number(found["cpu_seconds"]) if "cpu_seconds" in found else None,
        **counts,
    )


def _use(found: Any) -> BlockUse:
    path, read, matched = found
    if not (_is_count(read) and _is_count(matched)):
        raise ValueError
    return BlockUse(path=_text(path), rows_read=read, rows_matched=matched)


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of a line; an empty one if it is none."""
    if len(line) > MOST_LINE_BYTES:
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_COUNT


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _fail() -> float:
    raise ValueError
