"""Spark with Iceberg 1.12 reads every row of every kind after whatever PyIceberg and tblctl did."""

from __future__ import annotations

import pytest

from .kinds import Story, spark_queries
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")


@pytest.mark.parametrize("partitioned", ["bucket", "identity"])
def test_spark_reads_the_same_rows_after_every_step(spark_lake: SparkLake, partitioned: str) -> None:
    def check(story: Story) -> None:
        queries = spark_queries(story.name)
        for query in queries:
            story.require("Spark", spark_lake.sql(query))
        (plan,) = spark_lake.sql(f"EXPLAIN {queries[0]}")
        assert "ColumnarToRow" in plan["plan"], "not the vectorised reader"

    Story(spark_lake, f"kinds_{partitioned}", partitioned, check).run()
