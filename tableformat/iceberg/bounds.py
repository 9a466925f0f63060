"""Decode the bounds that manifests have of columns.

Source: Apache Iceberg specification, "Appendix D: Single-value serialization".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.tableformat.iceberg.entries import ColumnBounds
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import (
    is_any_binary,
    is_any_string,
    is_orderable,
    statistic_type,
)
from tblctl.tableformat.model.statistics import ColumnStatistics

TRUNCATION = 16
"""Characters, or bytes. Writers truncate longer text unless told otherwise (`write.metadata.metrics.default`)."""

_DECIMAL_BYTES = 16
_UUID_BYTES = 16
_DAY = {unit: 86_400 * 10**digits for digits, unit in zip((0, 3, 6, 9), ("s", "ms", "us", "ns"), strict=True)}
"""Units of a time of day."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileColumn:
    """Statistics of one column in n files, and where its bounds are values of it, not truncated."""

    statistics: ColumnStatistics | None
    exact: np.ndarray


def file_column(
    leaf: Leaf, found: ColumnBounds, rows: np.ndarray, text_length: int = TRUNCATION
) -> FileColumn:
    """Return the statistics of a column from what manifests say of it.

    Bounds that contradict each other, have a wrong length, or are NaN are unknown. A count that cannot be is unknown.
    Files of writers that count no NaN (PyIceberg is one) may have some.

    Args:
        leaf: the column, as it is now. Its type may be wider than when the bounds were written.
        found: the encoded bounds, and the counts.
        rows: records in each file.
        text_length: text and binary of fewer characters or bytes than this were not truncated.
    """
    nulls = np.where((found.nulls < 0) | (found.nulls > rows), -1, found.nulls)
    kind = statistic_type(leaf.type)
    nowhere = np.zeros(len(rows), bool)
    if not is_orderable(leaf.type):
        none = pa.nulls(len(rows), kind)
        return _completed(ColumnStatistics(min=none, max=none, null_count=nulls), nowhere, rows, text_length)
    low, high = decode(found.lower, kind), decode(found.upper, kind)
    crossed = pc.fill_null(pc.greater(low, high), fill_value=False)
    if pc.any(crossed).as_py():
        unknown = pa.scalar(None, kind)
        low, high = pc.if_else(crossed, unknown, low), pc.if_else(crossed, unknown, high)
    nans = None
    if pt.is_floating(kind):
        nans = np.where((found.nans < 0) | (found.nans > rows), -1, found.nans)
    statistics = ColumnStatistics(min=low, max=high, null_count=nulls, nan_count=nans)
    known = np.asarray(pc.and_(low.is_valid(), high.is_valid()), bool)
    return _completed(statistics, known, rows, text_length)


def decode(encoded: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return encoded values in a statistic type; null where one is missing, NaN, or not of the type.

    Args:
        encoded: large_binary.
        kind: the type to return. int, float and decimal values may be encoded in a narrower type.
    """
    if not len(encoded):
        return pa.nulls(0, kind)
    if is_any_string(kind):
        return _text(encoded).cast(kind)
    if is_any_binary(kind):
        return encoded.cast(kind)
    offsets = np.frombuffer(encoded.buffers()[1], np.int64)[
        encoded.offset : encoded.offset + len(encoded) + 1
    ]
    held = encoded.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(0, np.uint8)
    start, length = offsets[:-1], np.diff(offsets)
    length = np.where(np.asarray(encoded.is_valid()), length, -1)
    if pt.is_fixed_size_binary(kind):
        return _fixed(data, start, length, kind)
    if pt.is_decimal(kind):
        return _decimal(data, start, length, kind)
    if pt.is_boolean(kind):
        found, valid = _little(data, start, length, {1: "u1"}, np.dtype("u1"))
        return pa.array(found != 0, mask=~valid)
    if pt.is_floating(kind):
        width = kind.bit_width // 8
        widths = {4: "<f4", 8: "<f8"} if width == 8 else {4: "<f4"}  # noqa: PLR2004
        found, valid = _little(data, start, length, widths, np.dtype(f"f{width}"))
        return pa.array(found, mask=~valid | np.isnan(found))
    if pt.is_integer(kind) or pt.is_temporal(kind):
        width = kind.bit_width // 8
        widths = {4: "<i4", 8: "<i8"} if pt.is_int64(kind) else {width: f"<i{width}"}
        found, valid = _little(data, start, length, widths, np.dtype(f"i{width}"))
        if pt.is_time(kind):
            valid &= (found >= 0) & (found < _DAY[kind.unit])
        plain = pa.array(found, mask=~valid)
        return plain if plain.type == kind else plain.view(kind)
    return pa.nulls(len(encoded), kind)


def _little(
    data: np.ndarray, start: np.ndarray, length: np.ndarray, widths: dict[int, str], kind: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return little-endian values of the widths given, and where there is one."""
    found = np.zeros(len(start), kind)
    valid = np.zeros(len(start), bool)
    for width, encoding in widths.items():
        rows = np.flatnonzero(length == width)
        if len(rows):
            values = np.ascontiguousarray(data[start[rows][:, None] + np.arange(width)]).view(encoding)[:, 0]
            found[rows] = values
            valid[rows] = True
    return found, valid


def _decimal(data: np.ndarray, start: np.ndarray, length: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return decimals from big-endian two's complement of 1 to 16 bytes."""
    valid = (length > 0) & (length <= _DECIMAL_BYTES)
    found = np.zeros((len(start), _DECIMAL_BYTES), np.uint8)  # little-endian
    for width in np.unique(length[valid]).tolist():
        rows = np.flatnonzero(length == width)
        values = data[start[rows][:, None] + np.arange(width)][:, ::-1]
        found[rows, :width] = values
        found[rows[values[:, -1] >= 0x80], width:] = 0xFF  # noqa: PLR2004 (a negative number)
    for row in np.flatnonzero(valid & _is_large(found, kind.precision)).tolist():
        value = int.from_bytes(found[row].tobytes(), "little", signed=True)
        valid[row] = abs(value) < 10**kind.precision
    return pa.Array.from_buffers(kind, len(start), [pa.array(valid).buffers()[1], pa.py_buffer(found)])


def _is_large(found: np.ndarray, precision: int) -> np.ndarray:
    """Return which of the 16-byte numbers may have too many digits: those of many bytes."""
    spare = _DECIMAL_BYTES - ((10**precision).bit_length() - 1) // 8
    if not spare:
        return np.ones(len(found), bool)
    top = found[:, -spare:]
    small: np.ndarray = (top == 0).all(axis=1) | (top == 0xFF).all(axis=1)  # noqa: PLR2004
    return ~small


def _fixed(data: np.ndarray, start: np.ndarray, length: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return values of a fixed width; truncated ones are filled up with zeros, which keeps them bounds."""
    width = kind.byte_width
    valid = (length >= 0) & (length <= width)
    found = np.zeros((len(start), width), np.uint8)
    for held in np.unique(length[valid]).tolist():
        rows = np.flatnonzero(length == held)
        found[rows, :held] = data[start[rows][:, None] + np.arange(held)]
    validity = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(kind, len(start), [validity, pa.py_buffer(found)])


def _text(encoded: pa.Array) -> pa.Array:
    """Return text; null where the bytes are no UTF-8."""
    try:
        return encoded.cast(pa.large_string())
    except pa.ArrowInvalid:
        values = [_utf8(value) for value in encoded.to_pylist()]
        return pa.array(values, pa.large_string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _completed(
    statistics: ColumnStatistics, exact: np.ndarray, rows: np.ndarray, text_length: int
) -> FileColumn:
    """Return the column of files of `rows` rows, with what follows from its counts.

    A file of nulls has no NaN, counted or not. Bounds are not exact where nulls or NaN that nobody counted may lie
    beyond them, or where text may have been truncated: it was not if both ends are equal, or short. (A short upper
    bound of text may have been truncated before U+10FFFF, which is no character.)
    """
    nulls, nans = statistics.null_count, statistics.nan_count
    exact = exact & (nulls >= 0)
    if nans is not None:
        nans = np.where(nulls == rows, 0, nans)
        only_nan = (nans > 0) & (nans + nulls == rows) & (nulls >= 0)
        exact = exact & (nans >= 0) | only_nan
    kind = statistics.min.type
    length = pc.utf8_length if is_any_string(kind) else pc.binary_length if _is_binary(kind) else None
    if length is not None:
        short = pc.and_(*(pc.less(length(end), text_length) for end in (statistics.min, statistics.max)))
        if is_any_binary(
            kind
        ):  # writers drop bytes of 0xFF at the end of an upper bound before they increase the last
            short = pc.and_(short, pc.equal(pc.binary_slice(statistics.max, -1), pa.scalar(b"\0", kind)))
        whole = pc.or_(short, pc.equal(statistics.min, statistics.max))
        exact &= np.asarray(pc.fill_null(whole, fill_value=False), bool)
    return FileColumn(statistics=replace(statistics, nan_count=nans), exact=exact)


def _is_binary(kind: pa.DataType) -> bool:
    """Return whether values are bytes that writers truncate. A UUID, of 16 bytes, is written whole."""
    return is_any_binary(kind) or bool(pt.is_fixed_size_binary(kind) and kind.byte_width != _UUID_BYTES)
