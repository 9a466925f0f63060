"""DuckDB with its iceberg extension reads every row of every kind, after whatever PyIceberg and tblctl did."""

from __future__ import annotations

import pytest

from .duck import Duck
from .kinds import SPECS, Story, rows_by_duckdb
from .lake import Lake


@pytest.mark.parametrize("partitioned", SPECS)
def test_duckdb_reads_the_same_rows_after_every_step(lake: Lake, duck: Duck, partitioned: str) -> None:
    def check(story: Story) -> None:
        story.require("DuckDB", rows_by_duckdb(duck, story))

    Story(lake, "kinds", partitioned, check).run()
