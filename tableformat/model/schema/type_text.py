"""Types as people write and read them: `int64`, `decimal128(12, 2)`, `struct<a: int64 not null, b: list<string>>`.

The grammar, in which words ignore case and blanks separate:

    type    = word [ "(" number { "," number } ")" ] [ "[" unit [ "," "tz" "=" zone ] "]" ]
            | "struct" "<" field { "," field } ">"
            | ( "list" | "large_list" | "list_view" | "large_list_view" ) "<" item ">"
            | "fixed_size_list" "<" item "," number ">"
            | "map" "<" type "," item [ "," "keys_sorted" ] ">"
            | "dictionary" "<" type "," type [ "," "ordered" ] ">"
    field   = name ":" item
    item    = type [ "not" "null" ]
    name    = letters, digits and "_", not starting with a digit; or any text in double quotes, a quote doubled

`type_from_text(type_to_text(t)) == t` for every supported type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from tblctl.tableformat.errors import InputError, InvalidSchemaError, UnsupportedTypeError
from tblctl.tableformat.model.schema.text_scanner import TextScanner, quote_name

MAX_NESTING_DEPTH = 64
"""Deeper types are refused: nobody needs them, and they would exhaust the stack of readers."""

ELEMENT_NAME = "element"
"""Name of every list's child in Parquet. pyarrow ignores it when it compares types."""

_SIMPLE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
_NAME_OF_SIMPLE = {data_type: name for name, data_type in _SIMPLE.items()}

_ALIASES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "half": pa.float16(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "str": pa.string(),
    "utf8": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "large_utf8": pa.large_string(),
    "utf8_view": pa.string_view(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
    "uuid": pa.binary(16),
}

_UNSUPPORTED = ("duration", "interval", "month_day_nano_interval", "union", "dense_union", "sparse_union",
                "run_end_encoded", "extension")  # fmt: skip

_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]+")


def is_zone_name(zone: str) -> bool:
    """Return whether a time zone's name has only characters that occur in names and offsets."""
    return _ZONE.fullmatch(zone) is not None


def type_to_text(data_type: pa.DataType) -> str:
    """Return the text of a type. Field ids and other metadata are left out.

    Raises:
        UnsupportedTypeError: tblctl does not store the type.
    """
    simple = _NAME_OF_SIMPLE.get(data_type)
    if simple is not None:
        return simple
    types = pa.types
    if types.is_timestamp(data_type):
        zone = f", tz={data_type.tz}" if data_type.tz else ""
        return f"timestamp[{data_type.unit}{zone}]"
    if types.is_time(data_type):
        return f"time{data_type.bit_width}[{data_type.unit}]"
    if types.is_decimal(data_type):
        return f"decimal{data_type.bit_width}({data_type.precision}, {data_type.scale})"
    if types.is_fixed_size_binary(data_type):
        return f"fixed_size_binary[{data_type.byte_width}]"
    if types.is_dictionary(data_type):
        ordered = ", ordered" if data_type.ordered else ""
        return (
            f"dictionary<{type_to_text(data_type.index_type)}, {type_to_text(data_type.value_type)}{ordered}>"
        )
    if types.is_struct(data_type):
        return f"struct<{', '.join(field_to_text(field) for field in data_type)}>"
    if types.is_map(data_type):
        keys_sorted = ", keys_sorted" if data_type.keys_sorted else ""
        return f"map<{type_to_text(data_type.key_type)}, {_item_to_text(data_type.item_field)}{keys_sorted}>"
    if types.is_fixed_size_list(data_type):
        return f"fixed_size_list<{_item_to_text(data_type.value_field)}, {data_type.list_size}>"
    for name, is_kind, _ in _LISTS:
        if is_kind(data_type):
            return f"{name}<{_item_to_text(data_type.value_field)}>"
    raise UnsupportedTypeError(f"type {data_type} cannot be stored")


def field_to_text(field: pa.Field) -> str:
    """Return `name: type`, with `not null` if it applies."""
    return f"{quote_name(field.name)}: {_item_to_text(field)}"


def type_from_text(text: str) -> pa.DataType:
    """Parse a type.

    Raises:
        UnsupportedTypeError: a type that Arrow has but tblctl does not store.
        InvalidSchemaError: anything else that is not a type; names the position.
    """
    parser = _Parser(text)
    data_type = parser.type(depth=1)
    parser.end()
    return data_type


def fields_from_text(text: str) -> tuple[pa.Field, ...]:
    """Parse `name: type [not null], ...`, the columns of a schema. Errors as `type_from_text`."""
    parser = _Parser(text)
    fields = parser.fields(depth=1)
    parser.end()
    return fields


def _item_to_text(field: pa.Field) -> str:
    return type_to_text(field.type) + ("" if field.nullable else " not null")


_LISTS: tuple[tuple[str, Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    ("list", pa.types.is_list, pa.list_),
    ("large_list", pa.types.is_large_list, pa.large_list),
    ("list_view", pa.types.is_list_view, pa.list_view),
    ("large_list_view", pa.types.is_large_list_view, pa.large_list_view),
)
_LIST_OF_NAME = {name: make for name, _, make in _LISTS}


class _Parser(TextScanner):
    """A recursive-descent parser over one text."""

    def __init__(self, text: str) -> None:
        super().__init__(text, InvalidSchemaError)

    def fields(self, *, depth: int) -> tuple[pa.Field, ...]:
        fields = [self.field(depth=depth)]
        while self.take(","):
            fields.append(self.field(depth=depth))
        return tuple(fields)

    def field(self, *, depth: int) -> pa.Field:
        name = self.name()
        self.expect(":")
        return self._item(name, depth=depth)

    def type(self, *, depth: int) -> pa.DataType:
        start = self.offset
        if depth > MAX_NESTING_DEPTH:
            raise self.error(f"types may be nested {MAX_NESTING_DEPTH} deep, this is deeper", start)
        word = self.bare_name()
        if word is None:
            raise self.error("expected a type", start)
        word = word.lower()
        if self.at("<"):
            return self._nested(word, start, depth=depth)
        try:
            return self._flat(word, start)
        except (ValueError, TypeError, pa.ArrowException) as cause:
            raise self.error(str(cause), start) from cause

    def _item(self, name: str, *, depth: int) -> pa.Field:
        data_type = self.type(depth=depth)
        if self.word("not"):
            if not self.word("null"):
                raise self.error("expected null after not")
            return pa.field(name, data_type, nullable=False)
        self.word("null")
        return pa.field(name, data_type)

    def _nested(self, word: str, start: int, *, depth: int) -> pa.DataType:
        self.expect("<")
        inner = depth + 1
        data_type: pa.DataType
        if word == "struct":
            data_type = pa.struct(self.fields(depth=inner))
        elif word in _LIST_OF_NAME:
            data_type = _LIST_OF_NAME[word](self._element(depth=inner))
        elif word == "fixed_size_list":
            element = self._element(depth=inner)
            self.expect(",")
            data_type = pa.list_(element, self.number(1, 2**31 - 1))
        elif word == "map":
            data_type = self._map(depth=inner)
        elif word == "dictionary":
            data_type = self._dictionary(depth=inner)
        elif word in _UNSUPPORTED:
            raise self._unsupported(word, start)
        else:
            raise self._unknown(word, start)
        self.expect(">")
        return data_type

    def _element(self, *, depth: int) -> pa.Field:
        """Read a list's item; the child name that Arrow prints (`list<item: int64>`) may be there."""
        start = self.offset
        if self.bare_name() is None or not self.take(":"):
            self.offset = start
        return self._item(ELEMENT_NAME, depth=depth)

    def _map(self, *, depth: int) -> pa.DataType:
        key = self._item("key", depth=depth)
        self.expect(",")
        value = self._item("value", depth=depth)
        keys_sorted = False
        if self.take(","):
            if not self.word("keys_sorted"):
                raise self.error("expected keys_sorted")
            keys_sorted = True
        return pa.map_(key.type, value, keys_sorted=keys_sorted)

    def _dictionary(self, *, depth: int) -> pa.DataType:
        start = self.offset
        index = self.type(depth=depth)
        if not pa.types.is_integer(index):
            raise self.error("expected an integer type as the dictionary's index", start)
        self.expect(",")
        value = self.type(depth=depth)
        ordered = False
        if self.take(","):
            if not self.word("ordered"):
                raise self.error("expected ordered")
            ordered = True
        return pa.dictionary(index, value, ordered)

    def _flat(self, word: str, start: int) -> pa.DataType:
        if word in ("binary", "fixed_size_binary") and (self.at("[") or self.at("(")):
            close = "]" if self.take("[") else ")"
            if close == ")":
                self.expect("(")
            width = self.number(1, 2**31 - 1)
            self.expect(close)
            return pa.binary(width)
        if word in ("date32", "date64"):
            self._date_unit(word)
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "timestamp":
            return self._timestamp()
        if word in ("time32", "time64"):
            self.expect("[")
            unit = self._unit(("s", "ms") if word == "time32" else ("us", "ns"))
            self.expect("]")
            return pa.time32(unit) if word == "time32" else pa.time64(unit)
        if word in ("decimal", "numeric", "decimal32", "decimal64", "decimal128", "decimal256"):
            return self._decimal(word)
        if word in _ALIASES:
            return _ALIASES[word]
        if word in _UNSUPPORTED:
            raise self._unsupported(word, start)
        raise self._unknown(word, start)

    def _date_unit(self, word: str) -> None:
        """Skip the unit that Arrow prints (`date32[day]`); it says nothing new."""
        if self.take("["):
            self._unit(("day",) if word == "date32" else ("ms",))
            self.expect("]")

    def _timestamp(self) -> pa.DataType:
        if not self.take("["):
            return pa.timestamp("us")
        unit = self._unit(("s", "ms", "us", "ns"))
        zone = None
        if self.take(","):
            if not self.word("tz"):
                raise self.error("expected tz=zone")
            self.expect("=")
            zone = self.match(_ZONE)
            if zone is None:
                raise self.error("expected the name of a time zone")
        self.expect("]")
        return pa.timestamp(unit, zone)

    def _decimal(self, word: str) -> pa.DataType:
        self.expect("(")
        precision = self.number(1, 76)
        scale = self.number(-76, 76) if self.take(",") else 0
        self.expect(")")
        bits = word.removeprefix("decimal").removeprefix("numeric")
        if bits in ("", "128"):
            wide = bits == "" and precision > 38  # noqa: PLR2004  (decimal128 has 38 digits)
            return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)
        make = {"32": pa.decimal32, "64": pa.decimal64, "256": pa.decimal256}[bits]
        return make(precision, scale)

    def _unit(self, allowed: Sequence[str]) -> str:
        start = self.offset
        unit = self.bare_name()
        if unit is None or unit not in allowed:
            raise self.error(f"expected the unit {' or '.join(allowed)}", start)
        return unit

    def _unknown(self, word: str, start: int) -> InputError:
        import difflib

        known = (*_SIMPLE, *_ALIASES, *_LIST_OF_NAME, "struct", "map", "dictionary", "fixed_size_list",
                 "fixed_size_binary", "timestamp", "time32", "time64", "decimal128", "decimal256")  # fmt: skip
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return self.error(f"{word!r} is not a type{hint}", start)

    def _unsupported(self, word: str, start: int) -> UnsupportedTypeError:
        message = f"type {word!r} cannot be stored (position {start} of {self.text!r})"
        return UnsupportedTypeError(message, position=start)
