"""Values that transforms take and give, limited to what PyIceberg's kernels handle as Iceberg specifies."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt


def in_micros(array: pa.Array) -> pa.Array:
    """Return timestamps (of their instant) or times as int64 microseconds, rounded down; saturates."""
    import pyarrow.compute as pc

    bits = pa.int32() if pt.is_time32(array.type) else pa.int64()
    counts = array.cast(bits).cast(pa.int64())
    unit = array.type.unit
    if unit == "us":
        return counts
    if unit == "ns":
        # A cast would round towards 0, and so move instants before 1970 into the next hour.
        quotient = pc.divide(counts, 1000)
        behind = pc.less(counts, pc.multiply(quotient, 1000))
        return pc.subtract(quotient, behind.cast(pa.int64()))
    factor = {"s": 1_000_000, "ms": 1_000}[unit]
    return pc.multiply(clamp(counts, (2**63 - 1) // factor), factor)


def clamp(counts: pa.Array, most: int) -> pa.Array:
    """Return integers limited to [-most, most]; nulls stay."""
    import pyarrow.compute as pc

    upper, lower = pa.scalar(most, counts.type), pa.scalar(-most, counts.type)
    return pc.max_element_wise(pc.min_element_wise(counts, upper, skip_nulls=False), lower, skip_nulls=False)


def without_overflow(truncated: pa.Array, values: pa.Array) -> pa.Array:
    """Return truncated numbers, limited to their type's least value.

    Near the least integer, rounding down wraps around to a huge one, and decimals get 39 digits.
    """
    import pyarrow.compute as pc

    if pt.is_decimal(values.type):
        least = pa.scalar(Decimal((1, (9,) * 38, -values.type.scale)), values.type)
        return pc.if_else(pc.less(truncated, least), least, truncated)
    least = pa.scalar(-(2 ** (values.type.bit_width - 1)), values.type)
    return pc.if_else(pc.greater(truncated, values), least, truncated)
