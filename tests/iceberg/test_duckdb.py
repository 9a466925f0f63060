"""DuckDB with its iceberg extension reads every row of every kind, after whatever PyIceberg and tblctl did."""

from __future__ import annotations

import pytest

from .duck import Duck
from .kinds import DUCKDB, NAMES, SPECS, Story, columns_in
from .lake import Lake


@pytest.mark.parametrize("partitioned", SPECS)
def test_duckdb_reads_the_same_rows_after_every_step(lake: Lake, duck: Duck, partitioned: str) -> None:
    def check(story: Story) -> None:
        asked = f"SELECT {columns_in(DUCKDB)} FROM iceberg_scan('{story.table.metadata_location}')"
        story.require("DuckDB", duck.named(asked, NAMES))

    Story(lake, "kinds", partitioned, check).run()
