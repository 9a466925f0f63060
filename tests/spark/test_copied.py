"""Blocks with copied row groups are Parquet files like any other for Spark too."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tblctl


def test_spark_reads_merged_blocks_with_copied_row_groups(spark: Any, tmp_path: Path) -> None:
    options = {"block_rows": 2_000, "row_group_rows": 100, "compression": "snappy"}
    table = tblctl.create(
        tmp_path,
        "k: int64, s: string, f: float64, l: list<int32>, u: string, d: decimal(12, 2)",
        cluster_by="k",
        options=options,
    )
    for start in (0, 950, 1_900):
        table.append(
            pa.table(
                {
                    "k": range(start, start + 1_000),
                    "s": [f"text {n % 9}" for n in range(1_000)],
                    "f": [n / 7 for n in range(1_000)],
                    "l": pa.array([[n, None] for n in range(1_000)], pa.list_(pa.int32())),
                    "u": [None if n % 50 == 0 else f"unique {start + n}" for n in range(1_000)],
                    "d": pa.array([Decimal(n * 37) / 100 for n in range(1_000)], pa.decimal128(12, 2)),
                }
            )
        )
    before = table.scan().to_arrow().sort_by([("k", "ascending"), ("f", "ascending")])
    outcome = table.recluster(policy="full", engine="local")
    assert sum(group.rows_copied for group in outcome.groups) > 2_000
    footer = pq.read_metadata(tmp_path / table.files()[0].path).row_group(0)
    assert "DELTA_BINARY_PACKED" in footer.column(0).encodings
    files = [str(tmp_path / block.path) for block in table.files()]
    read = spark.session.read.parquet(*files)
    assert read.orderBy("k", "f").toArrow().cast(before.schema).equals(before)
    some = read.where("k >= 1500 and k < 1600").orderBy("k").toArrow()
    assert some["k"].to_pylist() == list(range(1_500, 1_600))
