"""Columns that are widened while rows are written: blocks of both types join the table in one edit."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Faults, inject
from tables import Places, assert_sound, named_objects, objects_of, open_impatient, places

import tblctl
from tblctl.errors import ConflictError


@dataclass(frozen=True, kw_only=True)
class Widening:
    """Types before and after, values of the first, and four ascending ones of the second that the first has not."""

    old: str
    new: str
    narrow: tuple[Any, ...]
    wide: tuple[Any, ...]


WIDENINGS = {
    "int": Widening(
        old="int32", new="int64", narrow=(-7, 5, 2**31 - 1), wide=(-(2**40), 2**32 + 5, 2**40, 2**40 + 1)
    ),
    "float": Widening(old="float", new="double", narrow=(-0.5, 0.25, 1.5), wide=(-0.1, 0.1, 0.3, 1e300)),
    "half": Widening(old="halffloat", new="double", narrow=(-0.5, 0.25, 1.5), wide=(-0.1, 0.1, 0.3, 1e300)),
    "date": Widening(
        old="date",
        new="timestamp",
        narrow=tuple(datetime.date(year, 3, 1) for year in (1950, 2020, 2024)),
        wide=tuple(datetime.datetime(year, 3, 1, 5, 6, 7, 8) for year in (1950, 2020, 2022, 2024)),
    ),
    "unit": Widening(
        old="timestamp[s]",
        new="timestamp",
        narrow=tuple(datetime.datetime(year, 3, 1) for year in (1950, 2020, 2024)),
        wide=tuple(datetime.datetime(year, 3, 1, 5, 6, 7, 8) for year in (1950, 2020, 2022, 2024)),
    ),
    "decimal": Widening(
        old="decimal(5, 2)",
        new="decimal(20, 2)",
        narrow=(Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")),
        wide=tuple(map(Decimal, ("-12345678901234.01", "1000.00", "2000.25", "12345678901234.01"))),
    ),
    "256 bits": Widening(
        old="decimal(5, 2)",
        new="decimal(50, 2)",
        narrow=(Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")),
        wide=tuple(map(Decimal, (f"-{10**40}.01", "1000.00", "2000.25", f"{10**40}.01"))),
    ),
    "text": Widening(old="string", new="large_string", narrow=("a", "k", "z"), wide=("aa", "b", "l", "zz")),
}

FRESH, OLD, NEW_KEPT, NEW_GONE = 100, 200, 300, 400


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


def rows(table: tblctl.Table, values: tuple[Any, ...], numbers: list[int]) -> pa.Table:
    """Return rows in the table's present types. `v`, not a key column, descends as `k` ascends."""
    columns = {
        "k": pa.array(values, table.schema.field("k").type),
        "v": pa.array(values[::-1], table.schema.field("v").type),
    }
    return pa.table({**columns, "n": numbers}, schema=table.schema)


def build(at: Places, case: Widening, key: str) -> tblctl.Table:
    table = tblctl.create(
        at.fresh(), f"k: {case.old}, v: {case.old}, n: int64", cluster_by=key, options={"block_rows": 4}
    )
    table.append(rows(table, case.narrow, [OLD, OLD + 1, NEW_GONE]))
    return table


def widen(url: str, case: Widening) -> None:
    other = tblctl.open(url)
    other.widen_column("k", case.new)
    other.widen_column("v", case.new)


def losing_a_race(url: str, meanwhile: Callable[[], Any], act: Callable[[tblctl.Table], Any]) -> None:
    faults = Faults()
    faults.do(meanwhile, operation="create", name="metadata/snapshots/")
    table = open_impatient(url)
    with inject(faults):
        act(table)
    assert faults.fired


def kept_rows(table: tblctl.Table) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(row.values()) for row in table.scan(columns=["n", "k", "v"]).to_arrow().to_pylist()),
        key=lambda row: row[0],
    )


def as_wide(table: tblctl.Table, values: tuple[Any, ...]) -> list[Any]:
    return pa.array(values).cast(table.schema.field("k").type).to_pylist()


@pytest.mark.parametrize("key", ["k", "k desc, v"])
@pytest.mark.parametrize("kind", WIDENINGS)
def test_an_overwrite_that_loses_to_a_widening_of_the_key_and_an_append_keeps_every_key(
    kind: str, key: str, at: Places
) -> None:
    case = WIDENINGS[kind]
    table = build(at, case, key)
    fresh = rows(table, case.narrow, [FRESH, FRESH + 1, FRESH + 2])

    def widen_and_append() -> None:
        widen(table.location, case)
        other = tblctl.open(table.location)
        other.append(rows(other, case.wide, [NEW_KEPT, NEW_KEPT + 1, NEW_KEPT + 2, NEW_GONE]))

    losing_a_race(
        table.location, widen_and_append, lambda table: table.overwrite(fresh, where=f"n = {NEW_GONE}")
    )
    assert_sound(table)
    narrow, wide = as_wide(table, case.narrow), list(case.wide)
    expected = [(FRESH + place, narrow[place], narrow[2 - place]) for place in range(3)]
    expected += [(OLD + place, narrow[place], narrow[2 - place]) for place in range(2)]
    expected += [(NEW_KEPT + place, wide[place], wide[3 - place]) for place in range(3)]
    assert kept_rows(table) == expected
    for name in ("k", "v"):
        for value in wide[:3]:
            literal = f"'{value}'" if isinstance(value, (str, datetime.datetime)) else value
            found = table.scan(f"{name} = {literal}").to_arrow()["n"].to_pylist()
            assert found == [row[0] for row in expected if row["nkv".index(name)] == value]
    outcome = table.recluster(policy="full", options={"include_unclustered": True})
    assert (outcome.committed_groups > 0, outcome.failed_groups) == (True, 0)
    assert kept_rows(table) == expected
    assert_sound(table)


@pytest.mark.parametrize("kind", WIDENINGS)
def test_blocks_that_were_merged_before_a_widening_of_the_key_are_right_after_it(
    kind: str, at: Places
) -> None:
    case = WIDENINGS[kind]
    table = build(at, case, "k")
    table.append(rows(table, case.narrow, [FRESH, FRESH + 1, FRESH + 2]))

    def widen_and_append() -> None:
        widen(table.location, case)
        other = tblctl.open(table.location)
        other.append(rows(other, case.wide, [NEW_KEPT, NEW_KEPT + 1, NEW_KEPT + 2, NEW_KEPT + 3]))

    faults = Faults()
    faults.do(widen_and_append, operation="write", name="metadata/records/")
    with inject(faults):
        outcome = table.recluster(policy="full")
    assert faults.fired
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 0)
    assert_sound(table)
    expected = kept_rows(table)
    narrow, wide = as_wide(table, case.narrow), list(case.wide)
    assert [row[1] for row in expected] == [*narrow, *narrow[:2], *wide, narrow[2]]
    assert {type(end) for item in table.files() for end in item.min} == {type(wide[0])}
    table.delete(f"n = {FRESH}")  # of a block whose key was widened since
    outcome = table.recluster(policy="full", options={"include_unclustered": True})
    assert (outcome.committed_groups > 0, outcome.failed_groups) == (True, 0)
    assert kept_rows(table) == expected[1:]
    assert_sound(table)


@pytest.mark.parametrize("first", ["drop", "widen, then drop"])
def test_an_overwrite_that_loses_to_the_end_of_its_key_column_is_read_without_it(
    first: str, at: Places
) -> None:
    case = WIDENINGS["date"]
    table = build(at, case, "k")
    fresh = rows(table, case.narrow, [FRESH, FRESH + 1, FRESH + 2])

    def end_the_key() -> None:
        other = tblctl.open(table.location)
        if first != "drop":
            other.widen_column("k", case.new)
            other.append(rows(other, case.wide, [NEW_KEPT, NEW_KEPT + 1, NEW_KEPT + 2, NEW_GONE]))
        other.set_cluster_key("n")
        other.drop_column("k")

    losing_a_race(table.location, end_the_key, lambda table: table.overwrite(fresh, where=f"n = {NEW_GONE}"))
    numbers = [FRESH, FRESH + 1, FRESH + 2, OLD, OLD + 1]
    numbers += [] if first == "drop" else [NEW_KEPT, NEW_KEPT + 1, NEW_KEPT + 2]
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == numbers
    assert_sound(table)
    table.recluster(policy="full", options={"include_unclustered": True})
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == numbers
    assert_sound(table)


@pytest.mark.parametrize("act", ["append", "overwrite"])
def test_fresh_rows_beyond_a_type_that_their_column_was_widened_to_are_refused(act: str, at: Places) -> None:
    table = tblctl.create(at.fresh(), "k: date, n: int64", cluster_by="k")
    far = pa.array([200_000_000], pa.int32()).cast(pa.date32())
    fresh = pa.table({"k": far, "n": [1]}, schema=table.schema)
    acts = {
        "append": lambda table: table.append(fresh),
        "overwrite": lambda table: table.overwrite(fresh, where="n = 1"),
    }
    with pytest.raises(ConflictError, match="values that do not fit its new type"):
        losing_a_race(
            table.location, lambda: tblctl.open(table.location).widen_column("k", "timestamp"), acts[act]
        )
    assert table.scan().to_arrow().num_rows == 0
    assert set(objects_of(table.location)) - {"metadata/latest"} == named_objects(table)
    assert_sound(table)
