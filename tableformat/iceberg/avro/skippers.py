"""Pass over encoded values one by one, in plain Python: slow, and certain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tblctl.tableformat.iceberg.avro.container import AvroError, read_long
from tblctl.tableformat.iceberg.avro.types import NUMBERS, TEXTS, WIDTHS, is_empty, type_name, width_of

Skip = Callable[[bytes, int], int]
"""Given data and the place where a value begins, returns the place after it.

Raises:
    AvroError: the value takes more bytes than there are, or cannot be.
    IndexError: the data ends within it.
"""


def skipper(schema: Any, names: dict[str, Any]) -> Skip:
    """Return the function that passes over a value of a type."""
    kind, full = type_name(schema, names)
    if kind == "null":
        return lambda _data, at: at
    if kind in NUMBERS:
        return skip_number
    if kind in WIDTHS:
        return _by_width(WIDTHS[kind][0])
    if kind == "fixed":
        return _by_width(width_of(full))
    if kind in TEXTS:
        return skip_text
    if kind == "record":
        return _in_turn([skipper(field["type"], names) for field in full["fields"]])
    if kind == "union":
        return _one_of([skipper(branch, names) for branch in full])
    if kind == "array":
        return _repeated(skipper(full["items"], names), empty=is_empty(full["items"], names))
    if kind == "map":
        return _repeated(_in_turn([skip_text, skipper(full["values"], names)]), empty=False)
    raise AvroError(f"{kind!r} is no type of Avro")


def skip_number(data: bytes, at: int) -> int:
    """Pass over a whole number."""
    while data[at] & 0x80:
        at += 1
    return at + 1


def skip_text(data: bytes, at: int) -> int:
    """Pass over a text."""
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


def _repeated(item: Skip, *, empty: bool) -> Skip:
    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(data, at)
                at = _after(data, at, size)
            elif not empty:
                for _ in range(count):
                    at = item(data, at)

    return skip
