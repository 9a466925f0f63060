"""Check whether the footer of a file without checksums is safe to pass to pyarrow.

pyarrow 26 ends the whole process if a bound in the statistics has another length than its type, a histogram has another
number of levels than its column, or a column chunk has another type than its column. It also allocates claimed sizes
before it reads. Pure: no I/O. Source: parquet.thrift of parquet-format 2.12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.parquet.footer import MAGIC, chunk_extent, chunks_of
from tblctl.tableformat.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftError

MOST_CHUNK_BYTES = 2**62
"""What a column chunk may claim to take when decompressed, where nothing else says it."""

# Field ids. FileMetaData, SchemaElement, RowGroup, ColumnMetaData, Statistics:
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN = 1, 2, 3, 4, 5
_GROUP_ROWS = 3
_CHUNK_TYPE, _PATH, _VALUES, _UNCOMPRESSED, _COMPRESSED, _STATISTICS = 1, 3, 5, 6, 7, 12
_BOUNDS = 1, 2, 5, 6
_SIZES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 16, 2, 3
_REQUIRED, _OPTIONAL, _REPEATED = range(3)

# The types of fields, by id. pyarrow ignores a field of another type, but it would be checked here.
_FILE_KINDS = {_SCHEMA: LIST, _NUM_ROWS: I64, _ROW_GROUPS: LIST}
_ELEMENT_KINDS = {_TYPE: I32, _TYPE_LENGTH: I32, _REPETITION: I32, _NAME: BINARY, _CHILDREN: I32}
_GROUP_KINDS = {1: LIST, _GROUP_ROWS: I64}
_CHUNK_KINDS = {_CHUNK_TYPE: I32, _PATH: LIST, 9: I64, 10: I64, 11: I64, _STATISTICS: STRUCT, _SIZES: STRUCT}
_CHUNK_KINDS |= dict.fromkeys((_VALUES, _UNCOMPRESSED, _COMPRESSED), I64)

_BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by the physical type's number. Byte arrays vary; fixed ones have the column's length."""


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    """A column of the file: its physical type, the bytes of a value if they are fixed, its greatest levels."""

    type: int
    width: int | None
    definition: int
    repetition: int


def check_footer(footer: Struct, *, pages_stop: int, row_count: int | None, most_chunk_bytes: int) -> None:
    """Refuse a footer that contradicts itself or its file.

    Args:
        footer: as from `read_footer`.
        pages_stop: where the footer begins in the file: all column chunks lie before it.
        row_count: the rows of the file; None if they are not known.
        most_chunk_bytes: how many bytes a column chunk may take when decompressed.

    Raises:
        ValueError: there is a contradiction; says where.
    """
    try:
        _require_kinds(footer, _FILE_KINDS)
        leaves = _leaves(_structs(footer[_SCHEMA]))
        groups = _structs(footer[_ROW_GROUPS])
        row_count = _number(footer, _NUM_ROWS) if row_count is None else row_count
        _require(sum(_number(group, _GROUP_ROWS) for group in groups) == row_count, "its rows do not add up")
        _require(_number(footer, _NUM_ROWS) == row_count, f"it does not have {row_count} rows")
        for group in groups:
            _check_group(group, leaves, pages_stop, most_chunk_bytes)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        msg = f"its footer lacks a required field, or has one of another type: {error!r:.100}"
        raise ThriftError(msg) from error


def coded_columns(footer: Struct) -> list[str]:
    """Return the names of the top-level columns of byte arrays in a checked footer."""
    return [
        meta[_PATH][1][1][0].decode()
        for _, meta in (chunks_of(footer[_ROW_GROUPS][1][1][0]) if footer[_ROW_GROUPS][1][1] else ())
        if meta[_CHUNK_TYPE][1] == _BYTE_ARRAY and len(meta[_PATH][1][1]) == 1
    ]


def _check_group(group: Struct, leaves: Sequence[_Leaf], pages_stop: int, most_chunk_bytes: int) -> None:
    _require_kinds(group, _GROUP_KINDS)
    rows = _number(group, _GROUP_ROWS)
    chunks = list(chunks_of(group))
    _require(len(chunks) == len(leaves), f"{len(chunks)} column chunks, expected {len(leaves)}")
    for leaf, (_, meta) in zip(leaves, chunks, strict=True):
        _require_kinds(meta, _CHUNK_KINDS)
        start, stop = chunk_extent(meta)
        if not len(MAGIC) <= start <= stop <= pages_stop:
            raise _damaged(f"a column chunk from byte {start} to {stop}")
        if meta[_CHUNK_TYPE][1] != leaf.type:
            raise _damaged("a column chunk of another type than its column")
        values, size = _number(meta, _VALUES), _number(meta, _UNCOMPRESSED)
        if values < rows or (values > rows and not leaf.repetition):
            raise _damaged(f"{values} values in {rows} rows")
        if not 0 <= size <= most_chunk_bytes:
            raise _damaged(f"a column chunk of {size} bytes decompressed")
        _check_statistics(meta, leaf)


def _check_statistics(meta: Struct, leaf: _Leaf) -> None:
    if _SIZES in meta:
        sizes = meta[_SIZES][1]
        for field, greatest in ((_REPETITION_LEVELS, leaf.repetition), (_DEFINITION_LEVELS, leaf.definition)):
            kind, (item_kind, items) = sizes.get(field, (LIST, (I64, [])))
            _require(kind == LIST and item_kind == I64, "a histogram of no numbers")
            count = len(items)
            if count not in {0, greatest + 1}:
                raise _damaged(f"a histogram of {count} levels, expected {greatest + 1}")
    if _STATISTICS in meta:
        statistics = meta[_STATISTICS][1]
        for field in _BOUNDS:
            if field in statistics:
                kind, value = statistics[field]
                if kind != BINARY or leaf.width not in {None, len(value)}:
                    raise _damaged(f"a bound of another size than {leaf.width} bytes")


def _leaves(elements: Sequence[Struct]) -> list[_Leaf]:
    """Return the leaves of a schema given depth first. Parents must have as many children as they state."""
    found: list[_Leaf] = []
    open_parents = [(1, 0, 0)]  # number of children still missing, and the levels around them
    for number, element in enumerate(elements):
        while open_parents and open_parents[-1][0] == 0:
            open_parents.pop()
        _require(bool(open_parents), "more schema elements than its structs have")
        left, definition, repetition = open_parents.pop()
        open_parents.append((left - 1, definition, repetition))
        _require_kinds(element, _ELEMENT_KINDS)
        kind = element.get(_REPETITION, (0, _REQUIRED))[1]
        _require(kind in {_REQUIRED, _OPTIONAL, _REPEATED}, f"a repetition of {kind!r:.40}")
        if number:  # (the root's repetition has no meaning)
            definition += kind != _REQUIRED
            repetition += kind == _REPEATED
        _require(isinstance(element[_NAME][1], bytes), "a schema element without a name")
        if _CHILDREN in element:
            open_parents.append((_number(element, _CHILDREN), definition, repetition))
            continue
        kind = element[_TYPE][1]
        _require(kind in _WIDTHS or kind in {_BYTE_ARRAY, _FIXED}, f"a physical type {kind}")
        width = _number(element, _TYPE_LENGTH) if kind == _FIXED else _WIDTHS.get(kind)
        found.append(_Leaf(type=kind, width=width, definition=definition, repetition=repetition))
    _require(all(left == 0 for left, *_ in open_parents), "fewer schema elements than its structs have")
    return found


def _structs(field: tuple[int, Any]) -> list[Struct]:
    kind, (item_kind, items) = field
    _require(kind == LIST and (item_kind == STRUCT or not items), "a list that does not have structs")
    return list(items)


def _require_kinds(struct: Struct, kinds: Mapping[int, int]) -> None:
    for field, (kind, _) in struct.items():
        if kinds.get(field, kind) != kind:
            raise _damaged(f"field {field} of another Thrift type")


def _number(struct: Struct, field: int) -> int:
    value = struct[field][1]
    if not isinstance(value, int) or value < 0:
        raise _damaged(f"{value!r:.40}, expected a number of at least 0")
    return int(value)


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise _damaged(why)


def _damaged(why: str) -> ThriftError:
    """Return the error. Where chunks are checked, its text is made only if it is needed: that took half of the time."""
    return ThriftError(f"its footer is damaged: {why}")
