"""Plans of tables along a curve: groups are judged by the boxes of their blocks, from column statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.maintain.boxes import boxes_of_blocks
from tblctl.maintain.recluster import Done, ReclusterJob, Retry, Step, step
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.selector import box_test

ROWS = 64
SCHEMA = pa.schema([("ts", pa.int64()), ("customer", pa.int64())])


def slab(number: int, slabs: int) -> pa.Table:
    """Return the rows of a share of all time, with customers from 0 to 63."""
    times = number * ROWS // slabs + np.arange(ROWS) // slabs
    return pa.table({"ts": times, "customer": 37 * np.arange(ROWS) % ROWS}, SCHEMA)


def table_of(url: str, key: str, *, slabs: int) -> tblctl.Table:
    everything = pa.concat_tables(slab(number, slabs) for number in range(slabs))
    sample = {"sample": everything} if "(" in key else {}
    table = tblctl.create(url, SCHEMA, cluster_by=key, options={"block_rows": ROWS}, **sample)
    for number in range(slabs):
        table.append(slab(number, slabs))
    return table


@pytest.mark.parametrize(("key", "enough"), [("hilbert(ts, customer)", 16), ("zorder(ts, customer)", 32)])
def test_slabs_of_time_wait_until_a_merge_would_let_ranges_read_less(
    memory_url: str, key: str, enough: int
) -> None:
    few = table_of(memory_url, key, slabs=4)
    assert few.info().average_depth > 1
    found = few.plan("levels")
    assert found.groups == ()
    (left,) = [item for item in found.rejected if item.rule == "good_boxes"]
    assert left.blocks == few.info().total_block_count == 4
    figures = {
        "hilbert": "2.5 of them on average, at best 2.0",
        "zorder": "3.0 of them on average, at best 2.9",
    }
    assert f"a 1 % range of one column reads {figures[key.partition('(')[0]]}" in left.why
    assert few.recluster(final=True).committed_groups == 0
    many = table_of(memory_url + "-many", key, slabs=enough)
    rows = many.scan().to_arrow().sort_by([("ts", "ascending"), ("customer", "ascending")])
    assert many.recluster(final=True).committed_groups > 0
    assert many.scan().to_arrow().sort_by([("ts", "ascending"), ("customer", "ascending")]) == rows
    reads = many.info().boxes.reads
    assert reads[1].share < 0.5


def test_a_recluster_is_not_done_before_all_groups_were_looked_at(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_test, "MOST_WORK", 1)
    table = table_of(memory_url, "hilbert(ts, customer)", slabs=4)
    options: dict[str, Any] = {"every_range": True, "max_group_bytes": 2 * 16 * ROWS}
    request = Request.of(policy="levels", condition=lambda _schema: None, options=options)
    job = ReclusterJob(port=table._port, request=request, engine=lambda _plan: LocalEngine())
    taken: list[Step] = [step(job, job.start())]
    while not isinstance(taken[-1], Done):
        assert len(taken) < 9
        taken.append(step(job, taken[-1].state))
    assert [type(item) for item in taken] == [Retry, Done]
    assert taken[-1].state.totals.committed_groups == 0


def test_boxes_of_blocks_are_ranks_of_their_bounds_and_nulls_come_last(memory_url: str) -> None:
    table = table_of(memory_url, "hilbert(ts, customer)", slabs=2)
    table.append(pa.table({"ts": [5, None], "customer": [1, 2]}, SCHEMA))
    version = table._port.newest()
    boxes = boxes_of_blocks(version, version.sort)(np.array([2, 0]))
    assert boxes is not None
    assert [list(side) for side in boxes.low] == [[1, 0], [1, 0]]
    assert boxes.high[0][0] > boxes.high[0][1]
    assert list(boxes.row_count) == [2, ROWS]
