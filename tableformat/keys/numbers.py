"""Values as numbers, or as bytes, that compare as the values do in key order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_SIGN = np.int64(-(2**63))
_MOST_DIGITS = 18  # of decimals whose whole number is an int64


def ordered_floats(values: pa.Array) -> pa.Array:
    """Return floats as integers of the same order; NaN is the greatest, -0.0 equals 0.0, nulls stay."""
    numbers = (
        values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    )  # -0.0 + 0.0 is 0.0
    numbers = np.where(np.isnan(numbers), np.nan, numbers)  # one NaN, the positive quiet one, above infinity
    bits = numbers.view(np.int64)
    integers = bits ^ ((bits >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    mask = None if values.null_count == 0 else values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(integers, pa.int64(), mask=mask)


def order_numbers(values: pa.Array) -> npt.NDArray[np.int64] | pa.Array:
    """Return values of a statistic type as int64 of the same order, or else as binary or text. O(n).

    Nulls become anything. Integers, times, booleans, floats, and decimals of up to 18 digits are numbers.
    """
    kind = values.type
    if pt.is_boolean(kind):
        return _numpy(values.cast(pa.int8())).astype(np.int64)
    if pt.is_floating(kind):
        return _numpy(ordered_floats(values))
    if pt.is_temporal(kind):
        return _numpy(values.view(pa.int32() if kind.bit_width == 32 else pa.int64())).astype(np.int64)  # noqa: PLR2004
    if pt.is_uint64(kind):
        return _numpy(values).view(np.int64) ^ _SIGN
    if pt.is_integer(kind):
        return _numpy(values).astype(np.int64, copy=False)
    if pt.is_decimal(kind):
        return _decimals(values)
    if pt.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values


def _numpy(values: pa.Array) -> np.ndarray:
    filled = values.fill_null(0) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _decimals(values: pa.Array) -> npt.NDArray[np.int64] | pa.Array:
    """Return the whole numbers of decimals: as int64, or as bytes, the highest first and with its sign flipped."""
    width = values.type.bit_width // 8
    if len(values) == 0:
        return np.zeros(0, np.int64) if values.type.precision <= _MOST_DIGITS else pa.array([], pa.binary())
    stored = np.frombuffer(values.buffers()[1], np.uint8)[: (values.offset + len(values)) * width]
    stored = stored.reshape(-1, width)[values.offset :]
    if values.type.precision <= _MOST_DIGITS:
        return np.ascontiguousarray(stored[:, :8]).view("<i8").ravel()
    turned = np.ascontiguousarray(stored[:, ::-1])
    turned[:, 0] ^= 0x80
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(turned), [None, pa.py_buffer(turned)])
    return fixed.cast(pa.binary())


def has_value(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where there is neither a null nor NaN."""
    valid = values.is_valid()
    if pt.is_floating(values.type):
        valid = pc.and_(valid, pc.invert(pc.fill_null(pc.is_nan(values), True)))  # noqa: FBT003
    return np.asarray(valid.to_numpy(zero_copy_only=False), dtype=bool)
