"""A table may allow encodings by differences: Spark with Iceberg 1.12, PyIceberg and DuckDB read every row.

Iceberg 1.10 does not, so tables have to ask for it.
"""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from .duck import Duck
from .kinds import ROWS, Story, rows_by_duckdb, spark_queries
from .lake import Lake
from .replacing import data_files
from .spark_process import OldSpark, SparkLake

ALLOWED = {"tblctl.parquet.delta-encodings": "true"}
DIFFERENCES = {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"}


def encodings(story: Story) -> set[str]:
    """Return the encodings of the table's files."""
    found: set[str] = set()
    for file in data_files(story.table):
        footer = pq.read_metadata(file.file_path.removeprefix("file://"))
        for group in range(footer.num_row_groups):
            for place in range(footer.num_columns):
                found.update(footer.row_group(group).column(place).encodings)
    return found


@pytest.mark.xdist_group("iceberg-spark")
def test_all_readers_read_the_same_rows_after_every_step(
    spark_lake: SparkLake, duck_too: Duck | None
) -> None:
    seen: set[str] = set()

    def check(story: Story) -> None:
        queries = spark_queries(story.name)
        for query in queries:
            story.require("Spark", spark_lake.sql(query))
        if duck_too is not None:
            story.require("DuckDB", rows_by_duckdb(duck_too, story), unlike={"structs"})
        (plan,) = spark_lake.sql(f"EXPLAIN {queries[0]}")
        assert "ColumnarToRow" in plan["plan"], "not the vectorised reader"
        seen.update(encodings(story))

    story = Story(spark_lake, "differences", "none", check, **ALLOWED)
    story.run()
    assert seen >= DIFFERENCES, seen


def test_rows_are_encoded_anew_where_the_table_does_not_allow_them_any_more(lake: Lake) -> None:
    story = Story(lake, "kinds", "none", lambda _: None, **ALLOWED)
    for first in range(2):
        story.append(range(first, ROWS, 2))
    story.recluster("recluster", policy="full")
    assert encodings(story) >= DIFFERENCES
    with story.table.transaction() as change:
        change.set_properties(dict.fromkeys(ALLOWED, "false"))
    story.append(range(ROWS, ROWS + 40))
    story.recluster("recluster without differences", policy="full", final=True)
    assert encodings(story) <= {"PLAIN", "RLE", "RLE_DICTIONARY"}


@pytest.mark.xdist_group("iceberg-old-spark")
def test_iceberg_1_10_cannot_read_them(lake: Lake, old_spark: OldSpark) -> None:
    """Its vectorised reader stops, so readers that cannot are found by the test above."""
    story = Story(lake, "kinds", "none", lambda _: None, **ALLOWED)
    for first in range(2):
        story.append(range(first, ROWS, 2))
    story.recluster("recluster", policy="full")
    assert encodings(story) >= DIFFERENCES
    with pytest.raises(AssertionError, match="UnsupportedOperationException"):
        old_spark.sql(spark_queries(old_spark.shown(story.table))[0])
