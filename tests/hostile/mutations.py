"""Changes to valid objects that a parser may meet from somebody who wants to harm it.

A change takes a `random.Random`, the object, and another valid object of the same kind; it returns other bytes. All of
them are deterministic, so that a seed repeats a case.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from iceberg.manifest_files import long, packed

from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.parquet import thrift
from tblctl.tableformat.parquet.footer import TAIL_BYTES, footer_start

Change = Callable[[random.Random, bytes, bytes], bytes]

LIMITS = [0, 1, 127, 128, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
MOST_BYTES = 8_192
"""No change makes an object larger than this, or than itself and the other: bounds are for small objects."""


def changed(rng: random.Random, data: bytes, other: bytes, changes: Sequence[Change]) -> bytes:
    """Return the object after one to four changes. A change that does not fit the object any more is left out."""
    most = max(MOST_BYTES, len(data) + len(other))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        try:
            data = rng.choice(changes)(rng, data, other)[:most]
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            continue
    return data


def _one(rng: random.Random, items: Sequence[Any]) -> Any:
    """Return one of some items, if there are any. (Hypothesis fails the whole test if it is asked for one of none.)"""
    if not items:
        raise LookupError
    return rng.choice(items)


# -- bytes


def _place(rng: random.Random, data: bytes) -> int:
    """Return a place, half of them in the last 200 bytes: formats have their footers there."""
    return rng.randrange(len(data) + 1) if rng.random() < 0.5 else max(0, len(data) - rng.randrange(200))


def flip(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    found = bytearray(data)
    found[min(_place(rng, data), len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(found)


def cut(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    first, last = sorted((_place(rng, data), _place(rng, data)))
    return data[:first] if rng.random() < 0.3 else data[:first] + data[last:]


def insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    place, start = _place(rng, data), _place(rng, other)
    piece = rng.choice(
        [
            rng.randbytes(rng.randrange(1, 9)),
            other[start : start + rng.randrange(60)],
            b"\0" * rng.randrange(64),
        ]
    )
    return data[:place] + piece + data[place:]


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def repeat(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    first, last = sorted((_place(rng, data), _place(rng, data)))
    return data[:last] + data[first:last] * rng.randrange(1, 20) + data[last:]


def length(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    """Put a number at the limits where one may be: little-endian, a varint of Thrift, or one of Avro."""
    number, place = rng.choice(LIMITS), _place(rng, data)
    found = rng.choice(
        [
            number.to_bytes(8, "little")[: rng.choice([1, 2, 4, 8])],
            thrift_varint(number),
            long(number) if number < 2**63 else thrift_varint(number),
        ]
    )
    return data[:place] + found + data[place + rng.choice([1, len(found)]) :]


def thrift_varint(number: int) -> bytes:
    """Return a number as Thrift and Snappy encode it."""
    out = bytearray()
    thrift._write_varint(out, number)
    return bytes(out)


BYTES: list[Change] = [flip, cut, insert, splice, repeat, length]


# -- JSON

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**40,
    -(2**63) - 1,
    1.5,
    1e308,
    "x",
    "",
    "../../etc/passwd",
    "\x1b]0;owned\x07\n\u202e",
    "\ud800",
    "1" * 5_000,
    [],
    {},
    [[]],
    {"": None},
]


def _walk(document: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [above]
    if isinstance(document, dict):
        found += [path for key, value in document.items() for path in _walk(value, (*above, key))]
    elif isinstance(document, list):
        found += [path for key, value in enumerate(document) for path in _walk(value, (*above, key))]
    return found


def json_value(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change a value, remove it, take one from elsewhere, or add a key."""
    document, source = json.loads(data), json.loads(other)
    *above, key = _one(rng, _walk(document)[1:])
    holder = document
    for step in above:
        holder = holder[step]
    what = rng.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1:
        taken = source
        for step in rng.choice(_walk(source)):
            taken = taken[step]
        holder[key] = taken
    elif what == 2 and isinstance(holder, dict):
        holder[rng.choice([str(key) + "x", "", "\u0131d", "99999999999999999999"])] = holder[key]
    else:
        holder[key] = rng.choice(ODD)
    return json.dumps(document, separators=(",", ":")).encode()


def json_text(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    """Write a value as no library writes it: nested deep, a key twice, a number that is none, half a character."""
    places = [place for place, byte in enumerate(data) if byte == ord(":")]
    place = _one(rng, places) + 1
    stop = min(end for end in (data.find(b",", place), data.find(b"}", place), len(data)) if end > 0)
    depth = rng.choice([5, 500, 3_000])
    found = rng.choice(
        [
            b"[" * depth + b"]" * depth,
            b'{"a":' * depth + b"1" + b"}" * depth,
            b"NaN",
            b"-Infinity",
            b"9" * 4_400,
            b"1e999999",
            b'"\xff\xfe"',
            b'"\\ud800"',
            b'"\x00"',
            b'1,"sequence":2,"kind":3',
        ]
    )
    return data[:place] + found + data[stop:]


JSON: list[Change] = [json_value, json_value, json_value, json_text, flip, cut, splice]


# -- text

TOKENS = [
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "'",
    '"',
    "''",
    "--",
    "/*",
    ",",
    ".",
    ";",
    ":",
    "\\",
    "%",
    "_",
    "\n",
    "\t",
    "\0",
    "\x1b[2J",
    "\u202e",
    "\u0430",  # a Cyrillic a
    "\u0131",  # a dotless i, which is I in upper case
    "\u212a",  # the sign of Kelvin, which is k in lower case
    "\uff07",  # a wide quote
    "\u0663",  # an Arabic three, a digit to str.isdigit
    "\ud800",
    "\U0001f600",
    " AND ",
    " OR ",
    " NOT ",
    " IN (",
    " LIKE ",
    " NULL ",
    "DATE ",
    "X'",
    "1e999",
    "-0.0",
    "9" * 50,
    "9" * 5_000,
    "NaN",
    "9999-12-31",
    "00:00:60",
    "::",
    "://",
    "@",
    "?",
    "#",
    "=",
    "%00",
    "../",
    "//",
    "+",
]


def text_of(data: bytes) -> str:
    """Return bytes as text, as a command line gives it: what is no UTF-8 becomes halves of surrogate pairs."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text_token(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    text = text_of(data)
    place = rng.randrange(len(text) + 1)
    token = rng.choice(TOKENS) * rng.choice([1, 1, 1, 2, 20, 400])
    return bytes_of(text[:place] + token + text[place + rng.choice([0, 0, 1, 5]) :])


def text_nested(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    text = text_of(data)
    first, last = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    opened, closed = rng.choice(
        [("(", ")"), ("NOT (", ")"), ("[", "]"), ("list<", ">"), ('"', '"'), ("'", "'")]
    )
    depth = rng.choice([1, 10, 200, 900])
    return bytes_of(text[:first] + opened * depth + text[first:last] + closed * depth + text[last:])


TEXT: list[Change] = [text_token, text_token, text_nested, splice, cut, repeat, flip]


# -- Thrift, in a Parquet footer


def _structs(value: Any) -> list[thrift.Struct]:
    """Return a struct and all structs in it."""
    if isinstance(value, dict):
        return [value] + [found for _, item in value.values() for found in _structs(item)]
    if isinstance(value, tuple):
        return (
            [found for item in value[-1] for found in _structs(item)] if isinstance(value[-1], list) else []
        )
    return []


def thrift_tree(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change a field of a struct: its value, its type, its number; or take one of another object."""
    tree, _ = thrift.read_struct(data)
    struct = _one(rng, [found for found in _structs(tree) if found])
    field = rng.choice(list(struct))
    kind, value = struct[field]
    what = rng.randrange(5)
    if what == 0:
        del struct[field]
    elif what == 1:
        source = _one(rng, [found for found in _structs(thrift.read_struct(other)[0]) if found])
        struct[field] = source[rng.choice(list(source))]
    elif what == 2:
        struct[rng.choice([1, 2, 3, 5, 9, 12, 16, 30_000])] = kind, value
    elif isinstance(value, bool) or kind <= thrift.FALSE:
        struct[field] = (thrift.TRUE, True) if kind == thrift.FALSE else (thrift.FALSE, False)
    elif isinstance(value, int):
        struct[field] = kind, rng.choice([-1, -(2**31), value + 1, value ^ 1, *LIMITS[:-1]])
    elif isinstance(value, bytes):
        struct[field] = (
            kind,
            rng.choice([b"", value[:-1], value * 2, b"\xff" * 8, rng.randbytes(20), b"\x1b\n"]),
        )
    elif isinstance(value, tuple) and isinstance(value[-1], list):
        items = value[-1]
        rng.choice([items.clear, items.pop, items.reverse, lambda: items.extend(items[:2])])()
    return thrift.write_struct(tree)


THRIFT: list[Change] = [thrift_tree, thrift_tree, thrift_tree, flip, cut, length, splice]


def in_footer(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change the footer of a Parquet file, and correct its length."""
    start, begin = (footer_start(pa.py_buffer(item)) for item in (data, other))
    footer = rng.choice(THRIFT)(rng, data[start:-TAIL_BYTES], other[begin:-TAIL_BYTES])
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def in_pages(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change the pages of a Parquet file, and keep their length."""
    start = footer_start(pa.py_buffer(data))
    found = rng.choice([flip, flip, length])(rng, data[:start], other)
    return found[:start].ljust(start, b"\0") + data[start:]


PARQUET: list[Change] = [in_footer, in_footer, in_footer, in_pages, in_pages, *BYTES]


# -- Avro


def in_avro(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change a block or the schema of an Avro file, and correct the lengths around it."""
    container = read_container(data)
    schema = container.schema_text
    blocks = list(zip(container.counts, container.blocks, strict=True))
    what = rng.randrange(4)
    if what == 0:
        schema = rng.choice(JSON)(rng, schema, schema)
    elif what == 1:
        count, block = blocks[0]
        blocks[0] = rng.choice([count + 1, 0, -1, *LIMITS[:9]]), block
    else:
        count, block = blocks[0]
        block = rng.choice([flip, length, length, cut, insert])(rng, block, read_container(other).blocks[0])
        blocks[0] = count, block
    return packed(schema, blocks, rng.choice(["null", "null", "deflate", "snappy", "zstandard"]))


def avro_bomb(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    """Return an Avro file whose block is a thousand times as large when it is decompressed."""
    schema = read_container(data).schema_text
    return packed(schema, [(rng.choice([1, 10**6, 2**40]), bytes(rng.choice([10**5, 4 * 10**6])))], "deflate")


AVRO: list[Change] = [in_avro, in_avro, in_avro, in_avro, avro_bomb, *BYTES]
