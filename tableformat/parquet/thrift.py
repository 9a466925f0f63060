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
    reader = _Reader(data, start)
    try:
        return reader.struct(0), reader.place
    except IndexError as error:
        msg = f"a Thrift struct that begins at byte {start} does not end within {len(data)} bytes"
        raise ThriftError(msg) from error


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes | memoryview, place: int) -> None:
        self.data = data
        self.place = place

    def struct(self, depth: int) -> Struct:
        if depth > _MOST_DEPTH:
            msg = f"a Thrift struct is nested more than {_MOST_DEPTH} deep"
            raise ThriftError(msg)
        found: Struct = {}
        field = 0
        while header := self._byte():
            kind = header & 15
            field = field + (header >> 4) if header >> 4 else self._integer()
            found[field] = kind, kind == TRUE if kind <= FALSE else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if I16 <= kind <= I64:
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._items(depth + 1)
        if kind <= BYTE:
            return self._byte()
        if kind in (DOUBLE, UUID):
            return self._bytes(8 if kind == DOUBLE else 16)
        if kind == MAP:
            return self._map(depth + 1)
        msg = f"{kind} is not a Thrift type"
        raise ThriftError(msg)

    def _items(self, depth: int) -> Items:
        header = self._byte()
        kind = header & 15
        count = self._checked(self._varint() if header >> 4 == 15 else header >> 4)  # noqa: PLR2004
        if kind == STRUCT:
            return kind, [self.struct(depth) for _ in range(count)]
        return kind, [self._value(kind, depth) for _ in range(count)]

    def _map(self, depth: int) -> tuple[int, int, list[tuple[Any, Any]]]:
        count = self._checked(self._varint())
        kinds = self._byte() if count else 0
        keys, values = kinds >> 4, kinds & 15
        return keys, values, [(self._value(keys, depth), self._value(values, depth)) for _ in range(count)]

    def _checked(self, count: int) -> int:
        """Refuse more elements than there are bytes: each takes at least one."""
        if count > len(self.data) - self.place:
            raise IndexError
        return count

    def _byte(self) -> int:
        value = self.data[self.place]
        self.place += 1
        return value

    def _bytes(self, count: int) -> bytes:
        stop = self.place + count
        if stop > len(self.data):
            raise IndexError
        value = bytes(self.data[self.place : stop])
        self.place = stop
        return value

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        data, place = self.data, self.place
        value = data[place]
        place += 1
        if value & 128:
            value &= 127
            shift = 7
            while True:
                byte = data[place]
                place += 1
                value |= (byte & 127) << shift
                if byte < 128:  # noqa: PLR2004
                    break
                shift += 7
                if shift >= _VARINT_BITS:
                    msg = f"a Thrift integer at byte {self.place} has more than 64 bits"
                    raise ThriftError(msg)
        self.place = place
        return value


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
