"""Spark with Iceberg 1.10 reads every row of every kind after whatever PyIceberg and tblctl did.

Its vectorised reader takes plain and dictionary encodings alone.
"""

from __future__ import annotations

import pytest
from profiles import THOROUGH

from .kinds import SPECS, Story, spark_queries
from .lake import Lake
from .spark_process import OldSpark

pytestmark = pytest.mark.xdist_group("iceberg-old-spark")


def test_it_is_the_old_version(old_spark: OldSpark) -> None:
    (found,) = old_spark.sql("SELECT lake.system.iceberg_version() AS version")
    assert found["version"] == "1.10.0"


@pytest.mark.parametrize("partitioned", SPECS if THOROUGH else ["none", "bucket"])
def test_iceberg_1_10_reads_the_same_rows_after_every_step(
    lake: Lake, old_spark: OldSpark, partitioned: str
) -> None:
    def check(story: Story) -> None:
        queries = spark_queries(old_spark.shown(story.table))
        for query in queries:
            story.require("Spark", old_spark.sql(query))
        (plan,) = old_spark.sql(f"EXPLAIN {queries[0]}")
        assert "ColumnarToRow" in plan["plan"], "not the vectorised reader"

    Story(lake, "kinds", partitioned, check).run()
