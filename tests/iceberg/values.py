"""Values of every type that PyIceberg writes: the ends of the type, and what is easily got wrong."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

UTC = datetime.UTC
MOMENTS = [
    datetime.datetime(1, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(2024, 2, 29, 12),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (BooleanType(), [False, True]),
    "int": (IntegerType(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "long": (LongType(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (FloatType(), [-math.inf, -1.5, -0.0, 0.0, 3.25, math.inf, math.nan]),
    "double": (DoubleType(), [math.nan, -math.inf, -1.5, -0.0, 0.0, 0.1, math.inf]),
    "small_decimal": (DecimalType(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), Decimal("1.28")]),
    "decimal": (DecimalType(18, 3), [Decimal("-1.000"), Decimal("0.128"), Decimal("999999999999999.999")]),
    "wide_decimal": (
        DecimalType(38, 0),
        [Decimal(-(10**37)), Decimal(-1), Decimal(255), Decimal(10**38 - 1)],
    ),
    "date": (DateType(), [moment.date() for moment in MOMENTS]),
    "time": (TimeType(), [datetime.time(0), datetime.time(12, 30), datetime.time(23, 59, 59, 999999)]),
    "timestamp": (TimestampType(), MOMENTS),
    "timestamptz": (TimestamptzType(), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "short": (StringType(), ["", "a", "fifteen letters", "z\U0001f600", "\U0010ffff"]),
    "long_text": (StringType(), ["x" * 16, "x" * 17, "x" * 16 + "b", "é" * 40, "\U0001f600" * 20]),
    "no_end": (StringType(), ["\U0010ffff" * 20, "a"]),
    "uuid": (
        UUIDType(),
        [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, uuid.UUID(int=2**128 - 1).bytes],
    ),
    "fixed": (FixedType(4), [b"\0\0\0\0", b"\x7f\0\0\1", b"\xff\xff\xff\xff"]),
    "wide_fixed": (FixedType(20), [b"\0" * 20, b"b" * 20, b"\xff" * 20]),
    "binary": (BinaryType(), [b"", b"\0", b"a" * 16, b"a" * 17 + b"b", b"\xff" * 3]),
    "no_end_binary": (BinaryType(), [b"\xff" * 20, b"a"]),
}
TRANSFORMS = {
    "int": ("truncate(10, int)", "bucket(8, int)"),
    "long": ("truncate(100, long) desc",),
    "small_decimal": ("truncate(50, small_decimal)",),
    "date": ("year(date)", "month(date) desc nulls first", "day(date)"),
    "timestamp": ("year(timestamp)", "hour(timestamp) desc", "day(timestamp)"),
    "timestamptz": ("month(timestamptz)",),
    "long_text": ("truncate(3, long_text)", "truncate(20, long_text)"),
    "binary": ("truncate(2, binary)",),
}
