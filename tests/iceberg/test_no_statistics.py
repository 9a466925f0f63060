"""Files of other writers whose footers have no statistics: of all row groups, of some, of a column, or by half."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, StringType

import tblctl
from tblctl.tableformat.parquet.footer import (
    MAGIC,
    TAIL_BYTES,
    chunks_of,
    footer_start,
    read_footer,
)
from tblctl.tableformat.parquet.thrift import write_struct

from .lake import Lake, fields
from .merging import assert_refused, assert_same_rows, numbered, rows_in
from .position_deletes import commit, delete_rows, entry_of, folder_of
from .replacing import data_files

FILES, GROUP_ROWS, GROUPS = 3, 40, 3
ROWS = FILES * GROUP_ROWS * GROUPS
STATISTICS, NULLS = 12, 3
BOUNDS = (1, 2, 5, 6, 7, 8)
Change = Callable[[int, int, dict[int, Any]], None]
"""Changes the metadata of a column chunk, by the numbers of its row group and column."""


def without(*, groups: range = range(GROUPS), columns: range = range(3)) -> Change:
    def change(group: int, column: int, meta: dict[int, Any]) -> None:
        if group in groups and column in columns:
            meta.pop(STATISTICS, None)

    return change


def lacking(*names: int) -> Change:
    """Return what removes some facts from the statistics of the second row group."""

    def change(group: int, _: int, meta: dict[int, Any]) -> None:
        for name in names if group == 1 else ():
            meta[STATISTICS][1].pop(name, None)

    return change


CHANGES: dict[str, Change] = {
    "no statistics": without(),
    "none in the first row group": without(groups=range(1)),
    "none in the second row group": without(groups=range(1, 2)),
    "none in the last two": without(groups=range(1, 3)),
    "none of the key": without(columns=range(1)),
    "none of the key in one row group": without(groups=range(1, 2), columns=range(1)),
    "counts without bounds in one row group": lacking(*BOUNDS),
    "bounds without counts in one row group": lacking(NULLS),
}
"""None of these leaves the bounds of the key: a range that may be that of its nulls alone is no range."""


def rows_of(file: int) -> pa.Table:
    """Return rows of a file: in no order, in the range of all other files; some keys are null."""
    ids = [number * FILES + file for number in range(GROUP_ROWS * GROUPS)]
    ids = [ids[place * 7 % len(ids)] for place in range(len(ids))]
    return pa.table(
        {
            "id": [None if id_ % 50 == 3 else id_ for id_ in ids],
            "text": [None if id_ % 4 == 0 else f"text {id_}" for id_ in ids],
            "number": [None if id_ % 9 == 0 else float("nan") if id_ % 11 == 0 else id_ / 3 for id_ in ids],
        }
    )


def change_footer(path: Path, change: Change) -> None:
    data = path.read_bytes()
    start = footer_start(pa.py_buffer(data))
    footer = read_footer(data[start:-TAIL_BYTES])
    for group, entry in enumerate(footer[4][1][1]):
        for column, (_, meta) in enumerate(chunks_of(entry)):
            change(group, column, meta)
    end = write_struct(footer)
    path.write_bytes(data[:start] + end + len(end).to_bytes(4, "little") + MAGIC)


def made(lake: Lake, change: Change, **more: Any) -> Table:
    """Return a table of files whose manifest says nothing of their columns but `more`."""
    table = lake.create("t", fields(id=LongType(), text=StringType(), number=DoubleType()))
    for number in range(FILES):
        rows = numbered(rows_of(number), (1, 2, 3))
        path = folder_of(table) / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=GROUP_ROWS)
        change_footer(path, change)
        commit(table, [entry_of(path, rows=rows.num_rows, **more)])
    return table.refresh()


@pytest.mark.parametrize("name", CHANGES)
def test_files_are_of_unknown_range_until_a_recluster_reads_them(lake: Lake, name: str) -> None:
    table = made(lake, CHANGES[name])
    for opened in (lake.open("t"), lake.open("t", refine=True)):
        found = opened.info("id")
        assert (found.total_block_count, found.rows) == (FILES, ROWS)
        assert (found.unknown_block_count, found.average_depth) == (FILES, None)
        assert opened.info("id", where="id > 1000").total_block_count == FILES
    outcome = assert_same_rows(table)
    assert outcome.depth_after == 1.0
    found = lake.open("t").info("id")
    assert (found.unknown_block_count, found.average_depth) == (0, 1.0)
    assert lake.open("t").info("id", where="id > 1000").total_block_count == 0
    assert lake.open("t").recluster(policy="full", final=True).commits == 0
    assert lake.open("t").check(deep=True).ok


def test_bounds_that_all_row_groups_have_are_read_from_footers(lake: Lake) -> None:
    """Of columns whose neighbours have none."""
    made(lake, without(columns=range(1, 3)))
    assert lake.open("t").info("id").unknown_block_count == FILES
    refined = lake.open("t", refine=True)
    assert (refined.info("id").unknown_block_count, refined.info("id").average_depth) == (0, float(FILES))
    assert refined.info("id", where="id > 1000").total_block_count == 0
    assert refined.info("text").unknown_block_count == FILES


def test_deleted_rows_stay_deleted(lake: Lake) -> None:
    table = made(lake, without(groups=range(1, 2)))
    path = data_files(table)[0].file_path
    before = rows_in(table.scan().to_arrow())
    table = delete_rows(table, {path: [0, 45, 46, 119]})
    after = rows_in(table.scan().to_arrow())
    assert (before - after).total() == 4
    assert_same_rows(table)
    assert rows_in(table.refresh().scan().to_arrow()) == after


def test_files_that_pyiceberg_added_as_they_are(lake: Lake, tmp_path: Path) -> None:
    """Without ids, so by the name mapping that it sets."""
    table = lake.create("t", fields(id=LongType(), text=StringType(), number=DoubleType()))
    paths = [tmp_path / f"{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        pq.write_table(rows_of(number), path, row_group_size=GROUP_ROWS, write_statistics=["text"])
    change_footer(paths[0], without(groups=range(1, 2)))
    table.add_files([f"file://{path}" for path in paths])
    assert lake.open("t").info("id").unknown_block_count == FILES
    assert_same_rows(table)
    assert lake.open("t").info("id").average_depth == 1.0


@pytest.mark.parametrize("name", ["no statistics", "none in the second row group"])
def test_nulls_that_only_the_manifest_counts_are_checked(lake: Lake, name: str) -> None:
    table = made(lake, CHANGES[name], null_value_counts={2: 1})
    assert_refused(
        table, "nulls were read of column 'text', and its manifest counts 1", "nothing was changed"
    )


def test_nulls_of_the_row_groups_that_count_them_are_checked(lake: Lake) -> None:
    def change(group: int, column: int, meta: dict[int, Any]) -> None:
        CHANGES["none in the second row group"](group, column, meta)
        if (group, column) == (2, 1):
            kind, count = meta[STATISTICS][1][NULLS]
            meta[STATISTICS][1][NULLS] = kind, count + 1

    table = made(lake, change)
    assert_refused(table, "nulls were read of column 'text'", "footer counts", "nothing was changed")
    assert tblctl.from_iceberg(table).info("id").total_block_count == FILES
