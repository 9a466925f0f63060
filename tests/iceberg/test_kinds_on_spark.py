"""Spark with Iceberg 1.12 reads every row of every kind after whatever PyIceberg and tblctl did."""

from __future__ import annotations

import pytest

from .duck import Duck
from .kinds import ROWS, Story, rows_by_duckdb, spark_queries
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")


@pytest.mark.parametrize("partitioned", ["bucket", "identity"])
def test_spark_reads_the_same_rows_after_every_step(
    spark_lake: SparkLake, duck_too: Duck | None, partitioned: str
) -> None:
    def check(story: Story) -> None:
        queries = spark_queries(story.name)
        for query in queries:
            story.require("Spark", spark_lake.sql(query))
        if story.changed and duck_too is not None:
            story.require("DuckDB", rows_by_duckdb(duck_too, story))
        (plan,) = spark_lake.sql(f"EXPLAIN {queries[0]}")
        assert "ColumnarToRow" in plan["plan"], "not the vectorised reader"

    story = Story(spark_lake, f"kinds_{partitioned}", partitioned, check)
    story.run()
    spark_lake.sql(f"UPDATE {story.name} SET structs = NULL, by_name = NULL, nested = NULL WHERE id % 3 = 1")
    story.change(lambda row: row["id"] % 3 == 1, structs=None, by_name=None, nested=None)
    story.append(range(2 * ROWS, 3 * ROWS))
    story.recluster("recluster of null lists", policy="full", final=True)
