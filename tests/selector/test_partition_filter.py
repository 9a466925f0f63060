"""Hudi's filters of partitions: which blocks are of the partitions that are asked for. One rule a test."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tblctl.selector.partition_filter import of_wanted_partitions
from tblctl.selector.policies.size import SizeOptions
from tblctl.tableformat.errors import InvalidOptionError

from .tables import SimTable

DAY = 86_400
TODAY = 20_000
"""Days since 1970."""


def wanted(low, high, *, nulls=None, now=TODAY * DAY + 3600.0 * 5, kind=None, **options):
    """Return the numbers of the blocks, given by bounds of a column `c`, that options select."""
    table = SimTable(block_rows=10).append(*[range(3)] * len(low))
    bounds = pa.array(low, kind), pa.array(high, kind), np.array(nulls or [0] * len(low))
    asked = []
    view = replace(table.view(), bounds_of=lambda column: asked.append(column) or bounds)
    found = of_wanted_partitions(view, SizeOptions(**options), now)
    assert asked == ["c"]
    return np.flatnonzero(found).tolist()


def days(*ago, **more):
    dates = [datetime.date(1970, 1, 1) + datetime.timedelta(days=TODAY - number) for number in ago]
    return wanted(dates, dates, day_column="c", **more)


def test_without_a_filter_all_blocks_are_wanted_and_no_column_is_looked_at():
    assert of_wanted_partitions(SimTable(block_rows=10).append(range(3)).view(), SizeOptions(), 0.0) is None


def test_recent_days_are_those_from_k_to_n_days_ago_with_both_ends():
    assert days(0, 1, 2, 3, 4, recent_days="3:1") == [1, 2, 3]
    assert days(0, 1, recent_days="0:0") == [0]


def test_days_begin_at_midnight_utc():
    assert days(0, 1, recent_days="0:0", now=TODAY * DAY - 0.5) == [1]


def test_a_block_that_has_rows_of_other_days_is_left_out():
    day = [datetime.date(2024, 10, 4), datetime.date(2024, 10, 5)]
    assert day[0].toordinal() - datetime.date(1970, 1, 1).toordinal() == TODAY
    assert wanted(day, [day[1]] * 2, day_column="c", recent_days="0:0") == []
    assert wanted([day[0]] * 2, day, day_column="c", recent_days="0:0") == [0]


def test_moments_before_1970_and_after_count_as_their_days():
    moments = [TODAY * DAY * 10**6, (TODAY * DAY - 1) * 10**6, -1]
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        assert wanted(moments, moments, kind=kind, day_column="c", recent_days="0:0") == [0]
        assert wanted(moments, moments, kind=kind, day_column="c", recent_days=f"{TODAY + 1}:1") == [1, 2]


def test_days_may_be_text():
    text = ["2024-10-04", "2024-10-03", None]
    assert wanted(text, text, kind=pa.string(), day_column="c", recent_days="1:1") == [1]


def test_values_and_closed_ranges_are_selected():
    values = ["a", "b", "m", "o", "p", "pa"]
    assert wanted(values, values, partition_column="c", partitions="a, m..p") == [0, 2, 3, 4]
    assert wanted([1, 20, 3], [1, 20, 30], partition_column="c", partitions="1..20") == [0, 1]


def test_blocks_with_nulls_or_of_unknown_values_are_of_no_partition():
    low, high = ["a", "a", None, "a"], ["a", "a", "a", None]
    assert wanted(low, high, nulls=[0, 1, 0, 0], partition_column="c", partitions="a") == [0]
    assert wanted(low, high, nulls=[-1, 1, 0, 0], partition_column="c", partition_regex="a") == [0]


def test_a_pattern_matches_the_whole_text_of_a_single_value():
    low, high = ["eu-1", "eu-2", "eu-1", "xeu-1"], ["eu-1", "eu-2", "eu-2", "xeu-1"]
    assert wanted(low, high, partition_column="c", partition_regex="eu-.") == [0, 1]
    assert wanted([2024, 2025], [2024, 2025], partition_column="c", partition_regex="2024") == [0]


def test_day_rolling_takes_each_24th_value_by_the_hour():
    values = [number // 2 for number in range(120, 0, -1)]
    found = wanted(values, values, partition_column="c", day_rolling=True, now=DAY * 9 + 5 * 3600.0)
    assert sorted({values[place] for place in found}) == [5, 29, 53]
    assert len(found) == 6


def test_several_filters_must_all_hold():
    values = ["a", "ab", "b"]
    assert wanted(values, values, partition_column="c", partition_regex="a.*", partitions="ab..z") == [1]


def test_the_policy_stitches_only_blocks_that_are_wanted_and_says_so():
    table = SimTable(block_rows=10).append(*[range(3)] * 6)
    texts = pa.array(["a", "a", "a", "b", "b", "b"])
    view = replace(table.view(), bounds_of=lambda _: (texts, texts, np.zeros(6, np.int64)))
    policy = table_policy()
    decision = policy.decide(view, budget(), SizeOptions(partition_column="c", partitions="b"))
    assert [draft.blocks.tolist() for draft in decision.drafts] == [[3, 4, 5]]
    assert {item.rule: item.blocks for item in decision.rejections} == {"other_partition": 3}


def table_policy():
    from tblctl.selector.registry import policy_named

    return policy_named("size")


def budget():
    from tblctl.selector.budget import Budget

    return Budget()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"recent_days": "1:3", "day_column": "d"},
            "expected K:N, from K days ago to N days ago with K >= N, got '1:3'",
        ),
        ({"recent_days": "x", "day_column": "d"}, "expected K:N"),
        ({"recent_days": "3:1"}, "day_column is missing: add day_column COLUMN, where COLUMN has the days"),
        ({"day_column": "d"}, "day_column is of no use without recent_days"),
        (
            {"partitions": "a,,b", "partition_column": "c"},
            "expected values and ranges such as a,b,m..p, got 'a,,b'",
        ),
        ({"partitions": "a..", "partition_column": "c"}, "expected values and ranges"),
        ({"partition_regex": "(", "partition_column": "c"}, "is no regular expression"),
        ({"day_rolling": True}, "partition_column is missing"),
        ({"partition_column": "c"}, "of no use without partitions, partition_regex or day_rolling"),
    ],
)
def test_filters_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidOptionError) as caught:
        SizeOptions(**options)
    assert message in str(caught.value)


def test_values_that_do_not_fit_the_column_are_refused():
    with pytest.raises(InvalidOptionError, match="'x' is no value of column 'c', which is int64"):
        wanted([1], [1], partition_column="c", partitions="x")
    with pytest.raises(
        InvalidOptionError, match=r"partitions: '10\.\.9' ends before it begins; write 9\.\.10"
    ):
        wanted([1], [1], partition_column="c", partitions="1,10..9")
    with pytest.raises(InvalidOptionError, match=r"'z\.\.a' ends before it begins; write a\.\.z"):
        wanted(["b"], ["b"], partition_column="c", partitions="z..a")
    with pytest.raises(InvalidOptionError, match="column 'c' is int64, expected days"):
        wanted([1], [1], day_column="c", recent_days="1:0")
    with pytest.raises(InvalidOptionError, match="column 'c' is string, expected days"):
        wanted(["x"], ["x"], day_column="c", recent_days="1:0")


def test_a_table_that_does_not_know_its_columns_refuses_filters():
    with pytest.raises(InvalidOptionError, match="the values of columns are not known of this table"):
        SimTable(block_rows=10).append(range(3)).plan("size", partition_column="c", partitions="a")
