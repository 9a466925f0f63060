"""Refuse counts that no bytes stand behind, before a library that believes them reads the records. Pure.

PyIceberg reads as many records as a block claims, and as many items as an array claims, also where each takes no bytes:
with a file of 5 kB it did not end.
"""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.iceberg.avro.container import AvroError, Container
from tblctl.tableformat.iceberg.avro.types import is_empty, type_name

_MOST_DEPTH = 64


def check_counts(container: Container) -> None:
    """Refuse a file with a block of more records than bytes, or with arrays of items that take no bytes.

    Raises:
        AvroError: it is one.
    """
    _check_items(container.schema, {}, 0)
    for count, block in zip(container.counts, container.blocks, strict=True):
        if not 0 <= count <= len(block):
            raise AvroError(f"a block of {len(block)} bytes claims {count} records")


def _check_items(schema: Any, names: dict[str, Any], depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise AvroError(f"its schema nests more than {_MOST_DEPTH} levels")
    kind, full = type_name(schema, names)
    if kind == "array" and is_empty(full["items"], names):
        raise AvroError("items of an array take no bytes")
    for part in _inner(kind, full):
        _check_items(part, names, depth + 1)


def _inner(kind: str, full: Any) -> list[Any]:
    """Return the schemas that a schema has inside."""
    if kind == "record":
        return [field["type"] for field in full["fields"]]
    if kind in {"array", "map"}:
        return [full["items" if kind == "array" else "values"]]
    return list(full) if kind == "union" else []
