"""Records can be pickled with any values in their statistics, since Spark's workers return them as pickles."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tblctl.tableformat.model.record import BlockRecord, ColumnRecord

AFTER_9999 = pa.array([1 << 62], pa.int64()).cast(pa.timestamp("ms"))[0]


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(7, pa.int32()),
        pa.scalar(Decimal("1.50"), pa.decimal128(9, 2)),
        pa.scalar("text", pa.large_string()),
        pa.scalar(datetime(2026, 11, 22, tzinfo=UTC), pa.timestamp("ns", "UTC")),
        AFTER_9999,
        pa.array([1 << 62], pa.int64()).cast(pa.timestamp("us", "Europe/Paris"))[0],
        pa.scalar(date(2026, 11, 22)),
        pa.scalar(1 << 30, pa.int32()).cast(pa.date32()),
        pa.scalar(5, pa.int32()).cast(pa.time32("ms")),
        pa.scalar(1 << 62, pa.int64()).cast(pa.duration("s")),
        pa.scalar(float("-inf")),
        pa.nulls(1, pa.list_(pa.dictionary(pa.int8(), pa.string())))[0],
        pa.nulls(1, pa.struct([("a", pa.large_list_view(pa.binary(4)))]))[0],
        pa.nulls(1, pa.timestamp("s"))[0],
        pa.nulls(1, pa.list_(pa.float32(), 1_536))[0],
    ],
    ids=lambda value: str(value.type),
)
def test_a_record_of_any_values_is_pickled(value: pa.Scalar) -> None:
    figures: dict[str, Any] = dict(
        exact=True, null_count=1, nan_count=None, compressed_bytes=2, uncompressed_bytes=3
    )
    column = ColumnRecord(min=value, max=value, **figures)
    record = BlockRecord(
        path="data/a.parquet",
        row_count=1,
        size_bytes=2,
        uncompressed_bytes=3,
        decoded_bytes=4,
        schema_id=0,
        level=0,
        run_id=None,
        cluster_key_id=1,
        key_min=(value, pa.scalar(1)),
        key_max=(value, pa.scalar(2)),
        columns={1: column},
    )
    pickled = pickle.dumps(record, protocol=5)
    assert pickle.loads(pickled) == record
    assert len(pickle.dumps(column, protocol=5)) < 500
