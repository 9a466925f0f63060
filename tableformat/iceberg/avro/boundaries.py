"""Where each record of a block begins. Avro does not say; one finds out by passing over the record before.

Passing over records one by one takes most of the time of a whole decoder. But records that were written together
begin with the same bytes: all fields before the first text. So the places where these bytes recur are likely starts.
`columns.py` verifies them: each record must end where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tblctl.tableformat.iceberg.avro.container import AvroError, read_long

Skip = Callable[[bytes, int], int]
"""Given data and the place where a value begins, returns the place after it."""

_LEAST_PREFIX = 6
"""Bytes. A shorter prefix recurs by chance."""

_NUMBERS = ("int", "long", "enum")
_TEXTS = ("string", "bytes")
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}


class Boundaries:
    """Finds the records of one schema."""

    def __init__(self, schema: Any) -> None:
        names: dict[str, Any] = {}
        self._skip = _skipper(schema, names)
        self._prefix = _prefix(schema, names)[0]

    def likely(self, data: bytes, begin: int, end: int, count: int) -> list[int] | None:
        """Return the likely starts of the `count` records from `begin` to `end`; None if that many are not found."""
        if count == 1:
            return [begin]
        found: list[int] = []
        at = begin
        try:
            while at < end and len(found) <= count:
                after = self._prefix_end(data, at)
                prefix = data[at:after]
                found.append(at)
                if after - at >= _LEAST_PREFIX:
                    following = data.find(prefix, after, end)
                    while following >= 0:
                        found.append(at := following)
                        following = data.find(prefix, following + len(prefix), end)
                at = self._skip(data, at)
        except (IndexError, AvroError):
            return None
        return found if len(found) == count else None

    def certain(self, data: bytes, begin: int, end: int, count: int) -> list[int]:
        """Return the starts of the records, found by passing over each.

        Raises:
            AvroError: the records do not end at `end`.
        """
        found = []
        at = begin
        try:
            for _ in range(count):
                found.append(at)
                at = self._skip(data, at)
        except IndexError as error:
            raise AvroError("a record runs over the end of its block") from error
        if at != end:
            raise AvroError(f"the records of a block take {at - begin} bytes, but it has {end - begin}")
        return found

    def _prefix_end(self, data: bytes, at: int) -> int:
        for skip in self._prefix:
            at = skip(data, at)
        return at


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


def _prefix(schema: Any, names: dict[str, Any]) -> tuple[list[Skip], bool]:
    """Return functions that pass over the values before the first text, list or map, and whether there is one."""
    kind, full = type_name(schema, names)
    if kind == "record":
        found: list[Skip] = []
        for field in full["fields"]:
            inner, ended = _prefix(field["type"], names)
            found += inner
            if ended:
                return found, True
        return found, False
    if kind in (*_TEXTS, "array", "map"):
        return [], True
    if kind == "union" and any(_prefix(branch, names)[1] for branch in full):
        return [], True
    return [_skipper(schema, names)], False


def _skipper(schema: Any, names: dict[str, Any]) -> Skip:
    kind, full = type_name(schema, names)
    if kind == "null":
        return lambda _data, at: at
    if kind in _NUMBERS:
        return _skip_number
    if kind in _WIDTHS:
        return _by_width(_WIDTHS[kind])
    if kind == "fixed":
        return _by_width(int(full["size"]))
    if kind in _TEXTS:
        return _skip_text
    if kind == "record":
        return _in_turn([_skipper(field["type"], names) for field in full["fields"]])
    if kind == "union":
        return _one_of([_skipper(branch, names) for branch in full])
    if kind == "array":
        return _repeated(_skipper(full["items"], names))
    if kind == "map":
        return _repeated(_in_turn([_skip_text, _skipper(full["values"], names)]))
    raise AvroError(f"{kind!r} is no type of Avro")


def _skip_number(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _skip_text(data: bytes, at: int) -> int:
    length, at = read_long(data, at)
    return _after(data, at, length)


def _after(data: bytes, at: int, length: int) -> int:
    if length < 0 or at + length > len(data):
        raise AvroError(f"a value at byte {at} has {length} bytes, more than there are")
    return at + length


def _by_width(width: int) -> Skip:
    return lambda data, at: _after(data, at, width)


def _in_turn(parts: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for part in parts:
            at = part(data, at)
        return at

    return skip


def _one_of(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = read_long(data, at)
        if not 0 <= branch < len(branches):
            raise AvroError(f"a value at byte {at} is of branch {branch} of {len(branches)}")
        return branches[branch](data, at)

    return skip


def _repeated(item: Skip) -> Skip:
    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(data, at)
                at = _after(data, at, size)
                continue
            for _ in range(count):
                at = item(data, at)

    return skip
