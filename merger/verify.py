"""Fingerprints of rows that do not depend on their order: what a merge must not change.

Of every column: the number of nulls, nested ones too, and a 64-bit sum of its values as they lie in memory (and of the
lengths of text and lists). About 1 % of a merge; catches lost, doubled and altered values, not rows whose values were
exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tblctl.tableformat.errors import InternalError

Column: TypeAlias = pa.Array | pa.ChunkedArray

_MODULUS = 1 << 64
_NULL = 0x9E37_79B9_7F4A_7C15
"""What a null adds: odd, so that only 2^64 of them add nothing, and large, so that few values add as much."""

_WORDS = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


class VerificationError(InternalError):
    """What a merge wrote differs from what it read; nothing of it may be committed."""


def require_equal(read: Column, merged: Column, where: str) -> None:
    """Compare a column as read with the same column as merged.

    Raises:
        VerificationError: they differ.
    """
    before, after = _fingerprint(read), _fingerprint(merged)
    if before != after:
        msg = (
            f"{where}: read {len(read)} values with {before[1]} nulls, merged {len(merged)} with {after[1]}, or "
            "their sums differ. Nothing of it is committed. A bug of tblctl or a fault of the memory: please report it"
        )
        raise VerificationError(msg)


def _fingerprint(column: Column) -> tuple[int, int, int]:
    """Return how many values there are, how many nulls, and their sum modulo 2^64."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return len(column), column.null_count, sum(_sum(chunk) for chunk in chunks) % _MODULUS


def _sum(values: pa.Array) -> int:
    kind = values.type
    if pat.is_dictionary(kind):
        return _sum(values.dictionary_decode())
    nulls = int(values.null_count) * _NULL
    if nulls and not pat.is_nested(kind):
        values = values.drop_null()
    total = next((total for fits, total in _SUMS if fits(kind)), _fixed_width)
    return nulls + total(values)


def _nothing(values: pa.Array) -> int:  # noqa: ARG001
    return 0


def _text(values: pa.Array) -> int:
    if len(values) == 0:
        return 0
    offsets, data = values.buffers()[1:]
    wide = pat.is_large_string(values.type) or pat.is_large_binary(values.type)
    kind = pa.int64() if wide else pa.int32()
    ends = pa.Array.from_buffers(kind, len(values) + 1, [None, offsets], offset=values.offset)
    first, last = int(ends[0].as_py()), int(ends[len(values)].as_py())
    if first == last:
        return 0
    content = pa.Array.from_buffers(pa.uint8(), last - first, [None, data], offset=first)
    return int(pc.sum(content).as_py()) * 31 + last - first


def _struct(values: pa.StructArray) -> int:
    return sum(_sum(child) * (2 * place + 1) for place, child in enumerate(values.flatten()))


def _list(values: pa.Array) -> int:
    lengths = pc.list_value_length(values)
    return int(pc.sum(lengths).as_py() or 0) + 31 * _sum(values.flatten())


def _map(values: pa.MapArray) -> int:
    entries = values.values
    # (A cast would refuse the not-null elements of a null fixed-size list.)
    return _list(
        pa.ListArray.from_buffers(
            pa.list_(entries.type),
            len(values),
            values.buffers()[:2],
            offset=values.offset,
            children=[entries],
        )
    )


def _boolean(values: pa.Array) -> int:
    return int(values.true_count)


def _fixed_width(values: pa.Array) -> int:
    width = values.type.byte_width
    word = max(size for size in _WORDS if width % size == 0)
    count = width // word
    words = pa.Array.from_buffers(
        _WORDS[word], len(values) * count, [None, values.buffers()[1]], offset=values.offset * count
    )
    return int(pc.sum(words).as_py() or 0)


_SUMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], int]], ...] = (
    (pat.is_null, _nothing),
    (pat.is_boolean, _boolean),
    (lambda kind: pat.is_large_string(kind) or pat.is_large_binary(kind), _text),
    (lambda kind: pat.is_string(kind) or pat.is_binary(kind), _text),
    (pat.is_struct, _struct),
    (pat.is_map, _map),
    (pat.is_nested, _list),
)
