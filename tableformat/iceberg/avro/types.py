"""Avro's types, as schemas name them (Apache Avro 1.11 specification, "Schema Declaration")."""

from __future__ import annotations

from typing import Any

from tblctl.tableformat.iceberg.avro.container import AvroError

NUMBERS = ("int", "long", "enum")
"""Encoded as whole numbers of variable length."""

TEXTS = ("string", "bytes")
"""Encoded as a length and as many bytes."""

WIDTHS = {"boolean": (1, "u1"), "float": (4, "<f4"), "double": (8, "<f8")}
"""Bytes, and what numpy calls it."""


def type_name(schema: Any, names: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of a schema (`record`, `union`, `long`, ..) and its full form; remembers named types in `names`.

    Raises:
        AvroError: the schema is none.
    """
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        if schema in names:
            return type_name(names[schema], names)
        return schema, {"type": schema}
    if not isinstance(schema, dict):
        raise AvroError(f"{schema!r:.80} is no schema")
    if isinstance(schema.get("type"), dict | list):
        return type_name(schema["type"], names)
    kind = schema.get("type")
    if not isinstance(kind, str):
        raise AvroError(f"a schema has the type {kind!r:.80}")
    if kind in ("record", "fixed", "enum") and "name" in schema:
        names[schema["name"]] = schema
        if "namespace" in schema:
            names[f"{schema['namespace']}.{schema['name']}"] = schema
    elif kind in names:
        return type_name(names[kind], names)
    return kind, schema


def width_of(full: Any) -> int:
    """Return the bytes of a `fixed` type.

    Raises:
        AvroError: it has none.
    """
    width = full.get("size")
    if not isinstance(width, int) or width < 0:
        raise AvroError(f"a fixed type has {width!r:.80} bytes")
    return width


def is_empty(schema: Any, names: dict[str, Any]) -> bool:
    """Return whether values take no bytes: null, and records of nothing else. All others take at least one."""
    kind, full = type_name(schema, names)
    if kind == "record":
        return all(is_empty(field["type"], names) for field in full["fields"])
    return kind == "null" or (kind == "fixed" and width_of(full) == 0)


def is_number_pair(pair: list[str]) -> bool:
    """Return whether the fields of a record are a whole number and another one."""
    return len(pair) == 2 and all(kind in NUMBERS for kind in pair)  # noqa: PLR2004


def is_text_pair(pair: list[str]) -> bool:
    """Return whether the fields of a record are a whole number and a text."""
    return len(pair) == 2 and pair[0] in NUMBERS and pair[1] in TEXTS  # noqa: PLR2004
