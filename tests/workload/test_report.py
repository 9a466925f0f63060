"""What a log says: which columns are asked how, where they are hot, and how that changes."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import tblctl
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.workload.queries import BlockUse, Query
from tblctl.tableformat.workload.reader import ReadLog
from tblctl.tableformat.workload.typical import drawn
from tblctl.workload.report import HotRange, hot_ranges, report

SCHEMA = Schema.create(
    pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("code", pa.binary())])
)


def asked(*wheres: str | Query) -> tblctl.WorkloadReport:
    queries = [
        item if isinstance(item, Query) else Query(time=float(time), where=item)
        for time, item in enumerate(wheres)
    ]
    return report(ReadLog(queries=tuple(queries)), SCHEMA, 7)


def test_columns_are_told_by_how_they_are_asked() -> None:
    found = asked("id = 5 AND name LIKE 'a%'", "id > 5", "id IN (1, 2) OR id = 9", "name <> 'x'", "")
    by_name = {item.column: item for item in found.columns}
    id_, name = by_name["id"], by_name["name"]
    assert (id_.share, id_.equal, id_.range, id_.listed, id_.prefix, id_.other) == pytest.approx(
        (0.6, 0.4, 0.2, 0.2, 0, 0)
    )
    assert (name.share, name.equal, name.prefix, name.other) == pytest.approx((0.4, 0, 0.2, 0.2))
    assert [item.column for item in found.columns] == ["id", "name"]
    assert found.without_condition == pytest.approx(0.2)


def test_weights_count() -> None:
    found = asked(
        Query(time=0, where="id = 5", weight=9.0, source="spark"), Query(time=1, where="name = 'a'")
    )
    assert (found.weight, found.query_count) == (10.0, 2)
    assert found.sources == pytest.approx({"spark": 0.9, "scan": 0.1})
    assert found.columns[0].share == pytest.approx(0.9)


def test_a_column_that_is_asked_only_lately_is_drift() -> None:
    found = asked("id = 1", "id = 2", "name = 'a'", "name = 'b'")
    assert {item.column: (item.share_before, item.share_after) for item in found.columns} == {
        "id": (1.0, 0.0),
        "name": (0.0, 1.0),
    }
    assert found.drift == 1.0
    assert asked("id = 1", "id = 2").drift == 0.0
    assert asked().drift == 0.0


def test_the_range_that_most_queries_ask_for_is_hot() -> None:
    found = asked("id BETWEEN 10 AND 20", "id >= 15 AND id < 30", "id = 17", "id < 5", "id > 100 AND id < 90")
    assert found.columns[0].hot == (HotRange(low="15", high="20", share=pytest.approx(0.6)),)
    (day,) = asked("day >= '2026-03-01'").columns
    assert day.hot == (HotRange(low="2026-03-01", high=None, share=1.0),)
    (code,) = asked("code = X'00ff'").columns
    assert code.hot == (HotRange(low="00ff", high="00ff", share=1.0),)


def test_several_ranges_may_be_hot() -> None:
    found = hot_ranges([(1, 2, 3.0), (5, 5, 4.0), (8, None, 1.0), (None, 1, 0.5)], 10.0)
    assert found == (HotRange(low="5", high="5", share=0.4), HotRange(low="1", high="2", share=0.35))
    assert hot_ranges([], 1.0) == ()
    assert hot_ranges([(None, None, 1.0)], 2.0) == (HotRange(low=None, high=None, share=0.5),)


def test_blocks_read_are_compared_with_those_in_which_rows_matched() -> None:
    uses = (
        BlockUse(path="a", rows_read=10, rows_matched=0),
        BlockUse(path="b", rows_read=10, rows_matched=5),
    )
    query = Query(
        time=0, where="id = 1", blocks_read=2, blocks_total=9, rows_read=20, rows_matched=5, blocks=uses
    )
    found = asked(query, Query(time=1, where="id = 2"))
    assert (found.blocks_read, found.blocks_total, found.blocks_needed) == (2, 9, 1)
    assert found.rows_matched_share == 0.25
    assert asked("id = 1").blocks_read is None


def test_conditions_that_do_not_fit_the_table_are_counted() -> None:
    assert asked("gone = 5", "id = 'x", "id = 1").unreadable == 2


def test_a_report_is_json() -> None:
    found = asked("id = 1").to_dict()
    assert "workload" not in found
    assert found["columns"][0]["hot"] == [{"low": "1", "high": "1", "share": 1.0}]


def test_conditions_are_drawn_as_often_as_they_weigh_and_newer_ones_more_often() -> None:
    day = datetime.timedelta(days=1).total_seconds()
    queries = [
        Query(time=0.0, where="old = 1", weight=4.0),
        Query(time=2 * day, where="new = 1"),
        Query(time=2 * day, where="more = 1", weight=2.0),
        Query(time=2 * day, where=""),
    ]
    found = drawn(queries, 8, now=2 * day, half_life_seconds=day)
    assert sorted(found) == ["more = 1"] * 4 + ["new = 1"] * 2 + ["old = 1"] * 2
    assert drawn(queries[3:], 8, now=0.0, half_life_seconds=day) == []
