"""Layouts of Iceberg tables are ranked from a sample of their live rows; nothing is written."""

from __future__ import annotations

import tblctl

from .lake import Lake
from .position_deletes import delete_rows
from .test_curves import small


def test_layouts_are_ranked_from_live_rows_and_nothing_is_written(lake: Lake) -> None:
    made = small(lake)
    files = [file.file for file in made.scan().plan_files()]
    made = delete_rows(made, {files[0].file_path: list(range(100)), files[1].file_path: list(range(60))})
    with made.transaction() as change:
        size = sum(file.file_size_in_bytes for file in files) // 8
        change.set_properties({"write.target-file-size-bytes": str(size)})
    before = made.metadata_location
    found = tblctl.from_iceberg(made).suggest(["a BETWEEN 150 AND 170", "b = 7", "s LIKE '1%'"], layouts=True)
    layouts = found.layouts
    assert layouts is not None
    assert layouts.row_count == 240, "deleted rows are in no sample"
    assert layouts.row_group_count == 3
    assert {item.kind for item in layouts.candidates} == {"linear", "hilbert", "zorder", "qdtree"}
    assert layouts.block_count > 1
    assert layouts.candidates[0].average_read_share < layouts.read_share_now == 1.0
    assert made.refresh().metadata_location == before
