"""Thrift's compact protocol, as trees: the format of Parquet footers.

A tree keeps every field, also unknown ones, so that reading, changing and writing a footer loses nothing. Source:
thrift-compact-protocol.md of Apache Thrift. No library was found that keeps unknown fields.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""Types. In a struct, the type of a boolean is its value."""

Struct = dict[int, tuple[int, Any]]
"""Fields by id: type and value. A value is an integer, bytes (of a double and a UUID too), a struct, or as below."""

Items = tuple[int, list[Any]]
"""A list or set: the elements' type, and the elements. A map is (keys' type, values' type, pairs)."""

_MOST_DEPTH = 32
_VARINT_BITS = 70


class ThriftError(ValueError):
    """The bytes are not such a tree."""


def read_struct(data: bytes | memoryview, start: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at `start`, and where it ends. O(bytes).

    Raises:
        ThriftError: there is none, or it is incomplete.
    """
    try:
        return _struct(data, start, 0)
    except IndexError as error:
        msg = f"a Thrift struct that begins at byte {start} does not end within {len(data)} bytes"
        raise ThriftError(msg) from error


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _struct(data: bytes | memoryview, place: int, depth: int) -> tuple[Struct, int]:
    """Return the struct at `place` and where it ends.

    A recluster of files of other writers parses each footer once, in pure Python: so the commonest types are read here
    without a further call, which takes half the time.
    """
    _require_depth(depth)
    found: Struct = {}
    field = 0
    while header := data[place]:
        place += 1
        kind = header & 15
        if header > 15:  # noqa: PLR2004
            field += header >> 4
        else:
            field, place = _integer(data, place)
        value: Any
        if I16 <= kind <= I64:
            value = data[place]
            place += 1
            if value > 127:  # noqa: PLR2004
                value, place = _varint(data, place - 1)
            value = (value >> 1) ^ -(value & 1)
        elif kind == BINARY:
            value, place = _binary(data, place)
        elif kind == STRUCT:
            value, place = _struct(data, place, depth + 1)
        elif kind <= FALSE:
            value = kind == TRUE
        else:
            value, place = _value(data, place, kind, depth)
        found[field] = kind, value
    return found, place + 1


def _value(data: bytes | memoryview, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if I16 <= kind <= I64:
        return _integer(data, place)
    if kind == BINARY:
        return _binary(data, place)
    if kind == STRUCT:
        return _struct(data, place, depth + 1)
    if kind in (LIST, SET):
        return _items(data, place, depth + 1)
    if kind <= BYTE:
        return data[place], place + 1
    if kind in (DOUBLE, UUID):
        return _bytes(data, place, 8 if kind == DOUBLE else 16)
    if kind == MAP:
        return _map(data, place, depth + 1)
    msg = f"{kind} is not a Thrift type"
    raise ThriftError(msg)


def _items(data: bytes | memoryview, place: int, depth: int) -> tuple[Items, int]:
    _require_depth(depth)
    header = data[place]
    kind, count = header & 15, header >> 4
    place += 1
    if count == 15:  # noqa: PLR2004
        count, place = _varint(data, place)
    _require_room(data, place, count)
    items = []
    if kind == STRUCT:
        for _ in range(count):
            item, place = _struct(data, place, depth)
            items.append(item)
    else:
        for _ in range(count):
            item, place = _value(data, place, kind, depth)
            items.append(item)
    return (kind, items), place


def _map(
    data: bytes | memoryview, place: int, depth: int
) -> tuple[tuple[int, int, list[tuple[Any, Any]]], int]:
    _require_depth(depth)
    count, place = _varint(data, place)
    _require_room(data, place, count)
    kinds = 0
    if count:
        kinds, place = data[place], place + 1
    pairs = []
    for _ in range(count):
        key, place = _value(data, place, kinds >> 4, depth)
        value, place = _value(data, place, kinds & 15, depth)
        pairs.append((key, value))
    return (kinds >> 4, kinds & 15, pairs), place


def _require_depth(depth: int) -> None:
    if depth > _MOST_DEPTH:
        msg = f"a Thrift value is nested more than {_MOST_DEPTH} deep"
        raise ThriftError(msg)


def _require_room(data: bytes | memoryview, place: int, count: int) -> None:
    """Refuse more elements than there are bytes: each takes at least one."""
    if count > len(data) - place:
        raise IndexError


def _binary(data: bytes | memoryview, place: int) -> tuple[bytes, int]:
    count = data[place]
    place += 1
    if count > 127:  # noqa: PLR2004
        count, place = _varint(data, place - 1)
    return _bytes(data, place, count)


def _bytes(data: bytes | memoryview, place: int, count: int) -> tuple[bytes, int]:
    stop = place + count
    if stop > len(data):
        raise IndexError
    return bytes(data[place:stop]), stop


def _integer(data: bytes | memoryview, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    value = data[place]
    place += 1
    if value > 127:  # noqa: PLR2004
        value &= 127
        shift = 7
        while (byte := data[place]) > 127:  # noqa: PLR2004
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if shift >= _VARINT_BITS:
                msg = f"a Thrift integer at byte {place} has more than 64 bits"
                raise ThriftError(msg)
        place += 1
        value |= byte << shift
    return value, place


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for field, (kind, value) in struct.items():
        if 0 < field - last <= 15:  # noqa: PLR2004
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, field)
        last = field
        if kind > FALSE:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if I16 <= kind <= I64:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        _write_items(out, *value)
    elif kind <= BYTE:
        out.append(value)
    elif kind == MAP:
        _write_map(out, *value)
    else:
        out += value


def _write_items(out: bytearray, kind: int, items: list[Any]) -> None:
    if len(items) < 15:  # noqa: PLR2004
        out.append(len(items) << 4 | kind)
    else:
        out.append(15 << 4 | kind)
        _write_varint(out, len(items))
    for item in items:
        _write_value(out, kind, item)


def _write_map(out: bytearray, keys: int, values: int, pairs: list[tuple[Any, Any]]) -> None:
    _write_varint(out, len(pairs))
    if pairs:
        out.append(keys << 4 | values)
    for key, value in pairs:
        _write_value(out, keys, key)
        _write_value(out, values, value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:  # noqa: PLR2004
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
