"""Suggested keys: the estimates agree with tables that are really sorted by them, also for unusual tables."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.advise.reorder import EstimateLimits, Reordered, Sampled
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import NONE, ColumnStatistics

ROWS = 20_000
BLOCKS = 40


def events() -> pa.Table:
    """Return rows in the order of `id`: `day` at random, `kind` of 8 values, `late` runs along with `day`."""
    rng = random.Random(7)
    days = [rng.randrange(1000) for _ in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "kind": pa.array([rng.randrange(8) for _ in range(ROWS)], pa.int8()),
            "amount": pa.array([rng.random() for _ in range(ROWS)], pa.float64()),
            "price": pa.array(
                [Decimal(rng.randrange(10_000)) / 100 for _ in range(ROWS)], pa.decimal128(10, 2)
            ),
            "name": pa.array([f"{rng.randrange(10**6):06d}" for _ in range(ROWS)]),
        }
    )


def table_of(url: str, rows: pa.Table, **options: Any) -> tblctl.Table:
    table = tblctl.create(
        url, rows.schema, options={"block_rows": math.ceil(rows.num_rows / BLOCKS)}, **options
    )
    table.append(rows)
    return table


def reads(table: tblctl.Table, condition: str) -> int:
    return table.scan(where=condition).explain().blocks_read


@pytest.mark.parametrize(
    ("key", "condition"),
    [
        ("day", "day between '1970-06-01' and '1970-07-01'"),
        ("day", "day = '1971-01-01'"),
        ("day", "day < '1970-04-01' or day > '1972-08-01'"),
        ("day", "not day >= '1971-01-01'"),
        ("day", "day in ('1970-02-01', '1971-02-01', '1972-02-01')"),
        ("kind", "kind = 3"),
        ("kind", "kind > 5"),
        ("amount", "amount < 0.25"),
        ("price", "price between 10 and 20.5"),
        ("name", "name = '500000'"),
        ("id", "id between 1000 and 5000"),
        ("kind, day", "kind = 3 and day between '1970-06-01' and '1970-07-01'"),
        ("kind, day", "day = '1971-01-01' and kind >= 0"),
    ],
)
def test_a_condition_on_the_key_reads_about_as_estimated(memory_url: str, key: str, condition: str) -> None:
    rows = events()
    names = key.split(", ")
    found = table_of(f"{memory_url}/a", rows).suggest([condition])
    [after] = [item.blocks_read[0] for item in found.candidates if item.terms == tuple(names)]
    ordered = rows.sort_by([(name, "ascending") for name in names])
    real = reads(table_of(f"{memory_url}/b", ordered), condition)
    assert abs(after - real) <= max(2, 0.15 * real), (
        after,
        real,
    )  # a run of rows need not begin with a block
    assert found.predicates[0].blocks_read == reads(tblctl.open(f"{memory_url}/a"), condition)


def test_the_best_key_for_the_conditions_comes_first_with_reasons(memory_url: str) -> None:
    table = table_of(memory_url, events())
    found = table.suggest("day between '1970-06-01' and '1970-07-01'; day = '1971-01-01'; id = 5")
    assert found.candidates[0].terms == ("day",)
    assert found.candidates[0].why.startswith("a condition reads at most about ")
    assert "2 of 3 name it" in found.candidates[0].why
    averages = [item.average_blocks_read for item in found.candidates]
    assert averages == sorted(averages, key=lambda value: value or 0)


def test_a_pair_is_suggested_where_its_second_term_helps(memory_url: str) -> None:
    table = table_of(memory_url, events())
    both = table.suggest("kind = 3 and day between '1970-06-01' and '1971-06-01'")
    assert both.candidates[0].terms in {("kind", "day"), ("day", "kind")}
    apart = {item.terms for item in table.suggest("day = '1971-01-01'; kind = 3").candidates}
    assert ("day", "kind") not in apart, "where days are many, what comes behind them prunes nothing"
    alone = table.suggest("day between '1970-06-01' and '1970-07-01'")
    assert all(len(item.terms) == 1 for item in alone.candidates)


def test_without_conditions_columns_rank_by_depth(memory_url: str) -> None:
    found = table_of(memory_url, events()).suggest()
    assert found.candidates[0].terms == ("id",)
    assert (found.candidates[0].average_depth, found.candidates[0].blocks_read) == (1.0, ())
    depths = [item.average_depth for item in found.candidates]
    assert depths == sorted(depths)
    assert found.to_dict()["candidates"][0]["average_blocks_read"] is None


def test_a_column_of_random_values_is_not_first_on_two_blocks(memory_url: str) -> None:
    table = tblctl.create(memory_url, "noise: int64, at: int64", options={"block_rows": 100})
    for first in (0, 90):
        noise = [number * 7919 % 1009 + first for number in range(100)]
        table.append(pa.table({"noise": noise, "at": range(first, first + 100)}))
    found = table.suggest().candidates
    assert [item.average_depth for item in found] == [2.0, 2.0]
    assert [item.terms for item in found] == [("at",), ("noise",)]
    assert found[0].range_share < 0.6 < found[1].range_share
    assert "nothing shows that rows follow it" in found[1].caveats[0]


def test_a_column_that_runs_along_between_blocks_stays_narrow(memory_url: str) -> None:
    rows = pa.table({"a": range(400), "b": range(1000, 1400)})
    found = table_of(memory_url, rows).suggest(["b < 1100"])
    reads_by = {item.terms: item.blocks_read for item in found.candidates}
    assert reads_by["a",][0] in {10.0, 11.0}


def test_what_cannot_be_a_key_is_rejected_with_a_reason(memory_url: str) -> None:
    schema = "a: int64, tags: list<int64>, gone: int64, same: string, x: float64"
    table = tblctl.create(memory_url, schema)
    for number in range(2):
        table.append(
            pa.table(
                {
                    "a": [number], "tags": [[1]], "gone": pa.array([None], pa.int64()),
                    "same": ["s"], "x": [math.nan],
                }
            )
        )  # fmt: skip
    found = table.suggest(["a = 1"])
    assert dict(found.rejected) == {
        "tags": "list<int64> has no order",
        "gone": "all its rows are null",
        "same": "all blocks hold the same single value of it",
        "x": "no block has bounds of it",
    }
    assert [item.terms for item in found.candidates] == [("a",)]


def test_an_empty_table_has_no_candidates(memory_url: str) -> None:
    found = tblctl.create(memory_url, "a: int64, b: list<int64>", cluster_by="a").suggest(["a = 1"])
    assert (found.total_block_count, found.candidates, found.cluster_by) == (0, (), ("a",))
    assert [item.blocks_read for item in found.predicates] == [0]


def test_what_statistics_cannot_tell_is_said(memory_url: str) -> None:
    rows = pa.table(
        {
            "mode": ["AIR", "TRUCK"] * 200,
            "half": [None if number % 2 else number for number in range(400)],
        }
    )
    found = {item.terms: item for item in table_of(memory_url, rows).suggest(["mode = 'AIR'"]).candidates}
    assert found["mode",].caveats == (
        "40 blocks begin and end with only 2 values of it: how many rows share one is not known from statistics",
    )
    assert found["half",].caveats == ("50% of its rows are null, and would lie together",)
    assert found["half",].null_share == 0.5


def test_an_estimate_for_other_columns_is_said_to_be_too_high_if_they_run_along(memory_url: str) -> None:
    rows = pa.table({"a": [number * 7 % 400 for number in range(400)]})
    rows = rows.append_column(
        "b", pc.add(rows["a"], 1)
    )  # never far from a, but every block holds all of either
    found = {
        item.terms: item
        for item in table_of(f"{memory_url}/1", rows).suggest(["b < 20", "a < 20"]).candidates
    }
    assert found["a",].blocks_read[0] > found["a",].blocks_read[1]
    assert found["a",].named_by == 1
    assert found["a",].why.startswith("a condition reads at most about ")
    alone = {item.terms: item for item in table_of(f"{memory_url}/2", rows).suggest(["a < 20"]).candidates}
    assert (alone["a",].named_by, alone["b",].named_by) == (1, 0)
    assert alone["a",].why.startswith("a condition reads about ")


def test_nulls_lie_together_at_the_end(memory_url: str) -> None:
    rows = pa.table({"a": [None if number % 4 == 0 else number for number in range(400)]})
    found = table_of(memory_url, rows).suggest(["a is null", "a is not null", "a >= 0"])
    nulls, values, positive = found.candidates[0].blocks_read
    assert nulls + values == 41, "one block holds both"
    assert (positive, abs(nulls - 10) <= 1) == (values, True)


def test_a_column_added_later_is_null_before(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    table.append(pa.table({"a": [1, 2]}))
    table.add_column("b", "int64")
    table.append(pa.table({"a": [3, 4], "b": [1, 2]}))
    found = {item.terms: item for item in table.suggest(["b = 1"]).candidates}
    assert found["b",].null_share == 0.5
    assert found["b",].blocks_read == (1.0,)


EXTREMES = {
    "int64": [-(2**63), 2**63 - 1],
    "uint64": [0, 2**64 - 1],
    "float64": [-math.inf, math.inf, math.nan, -0.0],
    "float32": [-3.4e38, 3.4e38],
    "timestamp[ns]": [-(2**63) + 1, 2**63 - 1],
    "date32": [-(2**31), 2**31 - 1],
    "time64[us]": [0, 86_399_999_999],
    "bool": [False, True],
    "decimal(38, 10)": [Decimal(-(10**27)), Decimal(10**27)],
    "decimal(15, 3)": [Decimal("-999999999999.999"), Decimal("999999999999.999")],
    "binary": [b"", b"\xff" * 200],
    "string": ["", "\U0010ffff" * 200],
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_every_type_can_be_estimated_at_its_extremes(memory_url: str, kind: str) -> None:
    table = tblctl.create(memory_url, f"a: {kind}, b: int64")
    column = table.schema.field("a").type
    values = EXTREMES[kind]
    carrier = pa.int32() if kind == "date32" else pa.int64()
    made = (
        pa.array(values, carrier).cast(column) if pa.types.is_temporal(column) else pa.array(values, column)
    )
    for number in range(3):
        table.append(pa.table({"a": made, "b": [number] * len(values)}))
    table.append(pa.table({"a": pa.nulls(2, column), "b": [0, 1]}))
    found = table.suggest(["a is not null", "b = 1"])
    assert {("a",), ("b",)} <= {item.terms for item in found.candidates}
    by_a = next(item for item in found.candidates if item.terms == ("a",))
    assert 1 <= by_a.blocks_read[0] <= 4


class Arrays:
    """Statistics of two columns of integers."""

    def __init__(self, blocks: list[list[tuple[int | None, int]]]) -> None:
        self.blocks = blocks
        self.row_count = np.array([len(block) for block in blocks], np.int64)

    def column(self, leaf: Leaf) -> ColumnStatistics:
        place = leaf.id - 1
        columns = [[row[place] for row in block if row[place] is not None] for block in self.blocks]
        return ColumnStatistics(
            min=pa.array([min(column, default=None) for column in columns], pa.int64()),
            max=pa.array([max(column, default=None) for column in columns], pa.int64()),
            null_count=self.row_count - np.array([len(column) for column in columns], np.int64),
        )


ROW = st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 9))


@settings(max_examples=cases(30))
@given(
    blocks=st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=8), wanted=st.integers(0, 9)
)
def test_no_made_up_block_is_missing_what_rows_there_are(
    blocks: list[list[tuple[int | None, int]]], wanted: int
) -> None:
    if all(row[0] is None for block in blocks for row in block):
        return
    from tblctl.tableformat.predicate.match import match
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    after = Reordered(Sampled.of(Arrays(blocks)), [schema.leaf("a")])
    assert len(after.row_count) == len(blocks)
    rows = [row for block in blocks for row in block]
    for condition, holds in (
        (f"b = {wanted}", lambda row: row[1] == wanted),
        ("a is null", lambda row: row[0] is None),
        (
            f"a between {min(row[0] for row in rows if row[0] is not None)} and 9",
            lambda row: row[0] is not None,
        ),
    ):
        found = match(parse_where(condition, schema), after, schema).outcome
        assert bool(np.any(found != NONE)) >= any(map(holds, rows)), condition


def test_very_many_blocks_are_sampled() -> None:
    limits = EstimateLimits(most_sampled=50, most_blocks=20)
    blocks: list[list[tuple[int | None, int]]] = [
        [(start, start), (start + 9, 0)] for start in range(0, 2000, 10)
    ]
    schema = Schema.create(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    after = Reordered(Sampled.of(Arrays(blocks), limits), [schema.leaf("a")], limits)
    assert (limits.step(200), len(after.row_count)) == (10.0, 20)
    assert after.row_count.sum() == 100
    assert len(after.column(schema.leaf("a")).min) == 20


def test_fields_of_structs_are_columns_like_any_other(memory_url: str) -> None:
    table = tblctl.create(memory_url, 'a: struct<b: int64, "odd name": int64>')
    for start in (0, 10):
        rows = [{"b": start + number, "odd name": number} for number in range(3)]
        table.append(pa.table({"a": pa.array(rows, table.schema.field("a").type)}))
    found = table.suggest(['a.b = 1 and a."odd name" = 1'])
    terms = {item.terms for item in found.candidates if len(item.terms) == 1}
    assert terms == {("a.b",), ('a."odd name"',)}
    assert [table.info(columns=term).average_depth for (term,) in sorted(terms)] == [2.0, 1.0]
