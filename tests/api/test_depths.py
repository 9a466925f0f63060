"""The depth after each snapshot: recorded, measured, or unknown."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

import tblctl
from tblctl.pictures.depths import depth_history
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.port import VersionEntry


def told(table: tblctl.Table, limit: int = 20) -> list[tuple[int, float | None, str | None]]:
    return [(point.snapshot, point.average_depth, point.source) for point in table.depth_history(limit)]


def overlapping(url: str, blocks: int) -> tblctl.Table:
    table = tblctl.create(url, "a: int64", cluster_by="a")
    for _ in range(blocks):
        table.append(pa.table({"a": [1, 2]}))
    return table


def test_each_snapshot_has_its_own_depth_newest_first(memory_url: str) -> None:
    table = overlapping(memory_url, 2)
    assert told(table) == [(3, 2.0, "metadata"), (2, 1.0, "metadata"), (1, 0.0, "metadata")]
    assert told(table, limit=1) == [(3, 2.0, "metadata")]
    assert [point.average_overlaps for point in table.depth_history()] == [1.0, 0.0, 0.0]


def test_what_reclusters_recorded_is_what_info_says(memory_url: str) -> None:
    table = overlapping(memory_url, 3)
    before = table.info().average_depth
    table.recluster(final=True)
    assert told(table, limit=2) == [(5, table.info().average_depth, "summary"), (4, before, "summary")]


def test_what_a_later_recluster_was_planned_on_is_exact_where_the_one_before_left_out_what_others_did(
    memory_url: str,
) -> None:
    overlapping(memory_url, 2)

    def with_run(item: VersionEntry) -> VersionEntry:
        number = int(item.id)
        figures = {name: float(number) for name in ("depth_before", "overlaps_before")}
        figures |= dict.fromkeys(("depth_after", "overlaps_after"), number + 0.5)
        detail = {"recluster": {"planned_on": number - 1, **figures}}
        return dataclasses.replace(item, summary=dataclasses.replace(item.summary, detail=detail))

    port = open_port(memory_url)
    found = depth_history([with_run(item) for item in port.history()], port.version)
    assert [(point.snapshot, point.average_depth) for point in found] == [(3, 3.5), (2, 3.0), (1, 2.0)]


def test_snapshots_that_change_no_block_have_the_depth_before_them(memory_url: str) -> None:
    table = overlapping(memory_url, 2)
    table.tag("one")
    table.recluster(final=True)
    table.tag("two")
    assert told(table)[:4] == [
        (6, 1.0, "summary"),
        (5, 1.0, "summary"),
        (4, 2.0, "summary"),
        (3, 2.0, "summary"),
    ]


def test_another_key_is_measured_by_itself_and_no_key_is_unknown(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64, b: int64", cluster_by="a")
    table.append(pa.table({"a": [1], "b": [1]}))
    table.set_cluster_key("b")
    table.drop_cluster_key()
    assert told(table) == [(4, None, None), (3, None, "metadata"), (2, 1.0, "metadata"), (1, 0.0, "metadata")]


@pytest.mark.parametrize(
    ("most", "depths"), [(2, [4.0, None, None, None, None]), (7, [4.0, 3.0, None, None, 0.0])]
)
def test_no_more_blocks_are_measured_than_the_bound_but_the_newest(
    memory_url: str, most: int, depths: list[float | None]
) -> None:
    table = overlapping(memory_url, 4)
    found = depth_history(list(table._port.history()), table._port.version, most_measured_blocks=most)
    assert [point.average_depth for point in found] == depths
    assert [point.source for point in found] == [None if depth is None else "metadata" for depth in depths]
