"""Encode single values as manifests have them: the bounds of columns.

Source: Apache Iceberg specification, "Appendix D: Single-value serialization". `iceberg/bounds.py` decodes them.
"""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string


def encoded(value: pa.Scalar) -> bytes:
    """Return the bytes of a value that is not null: an identity of types that Iceberg has."""
    kind = value.type
    if is_any_string(kind):
        return bytes(value.as_py().encode())
    if is_any_binary(kind) or pt.is_fixed_size_binary(kind):
        return bytes(value.as_py())
    if pt.is_boolean(kind):
        return b"\1" if value.as_py() else b"\0"
    if pt.is_decimal(kind):
        return _encoded_decimal(value.as_py(), kind.scale)
    if pt.is_floating(kind):
        return struct.pack("<f" if kind.bit_width == 32 else "<d", value.as_py())  # noqa: PLR2004
    number = value.value if pt.is_temporal(kind) else value.as_py()
    return int(number).to_bytes(kind.bit_width // 8, "little", signed=True)


def _encoded_decimal(value: Decimal, scale: int) -> bytes:
    """Return the unscaled number in as few bytes as it needs, the highest first."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    number = -unscaled if sign else unscaled
    magnitude = number if number >= 0 else ~number
    return int(number).to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
