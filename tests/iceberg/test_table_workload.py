"""Policy `workload` on Iceberg tables: files are sorted by what queries ask for, whether handed in or in the log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.tableformat.model.curve import is_bare

from .lake import Lake, append, fields, version_of

ROWS, FILES = 100, 8
NARROW = "a >= 100 and a <= 140"
SMALL: dict[str, Any] = {"alpha": 1e-3}
"""These tables are so small that what a group costs besides its files would decide."""


@pytest.fixture
def raw(lake: Lake) -> Table:
    """A table in the order of `t`; every file has values of `a`, and texts, from everywhere."""
    raw = lake.create(
        "t",
        fields(t=LongType(), a=LongType(), s=StringType()),
        properties={"tblctl.cluster-by": "t", "write.target-file-size-bytes": "2048"},
    )
    chance = random.Random(5)
    for first in range(0, ROWS * FILES, ROWS):
        values = [chance.randrange(1000) for _ in range(ROWS)]
        append(raw, t=range(first, first + ROWS), a=values, s=[text_of(value) for value in values])
    return raw


def text_of(value: int) -> str:
    """Return a text whose bounds say nothing: they are cut after 16 characters."""
    return f"what-all-of-them-begin-with-{value:04}"


def asked(where: str, column: str = "a") -> tblctl.Workload:
    query = tblctl.Query(time=0.0, where=where, columns=(column,), weight=1000.0)
    return tblctl.Workload(queries=(query,) * 20)


def rows_of(raw: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = raw.refresh().scan().to_arrow().sort_by("t").to_pylist()
    return rows


def files_read(raw: Table, where: str) -> tuple[int, int]:
    """Return how many files PyIceberg reads for a condition, and how many there are."""
    scan = raw.refresh().scan
    return len(list(scan(row_filter=where).plan_files())), len(list(scan().plan_files()))


def test_files_are_sorted_by_what_queries_ask_for_and_rows_stay(lake: Lake, raw: Table) -> None:
    table, before = lake.open("t"), rows_of(raw)
    read, there = files_read(raw, NARROW)
    assert read == there
    how: dict[str, Any] = {"policy": "workload", "workload": asked(NARROW), "options": SMALL}
    (group,) = table.plan(**how).groups
    assert group.why.startswith("by a: queries of the window read it in ")
    assert table.choose_key(workload=asked(NARROW)).cluster_by == ("a",)
    outcome = table.recluster(**how, final=True)
    assert (outcome.policy, outcome.failed_groups, outcome.conflicted_groups) == ("workload", 0, 0)
    assert rows_of(raw) == before
    read, there = files_read(raw, NARROW)
    assert read <= there // 4
    assert not table.plan(**how).groups
    assert raw.properties["tblctl.cluster-by"] == "t"
    later = tblctl.Query(time=4e9, where=NARROW, columns=("a",), weight=1e9)
    (saving,) = table.savings(workload=tblctl.Workload(queries=(later,)))
    assert (saving.snapshot, saving.queries, saving.paid_back) == (outcome.snapshot, 1, True)


def test_a_property_makes_it_the_tables_policy_and_an_imported_log_its_workload(
    lake: Lake, raw: Table, tmp_path: Path
) -> None:
    with raw.transaction() as change:
        change.set_properties({"tblctl.recluster.policy": "workload"})
    log = tmp_path / "q.sql"
    log.write_text(f"SELECT a FROM t WHERE {NARROW};" * 200)
    table = lake.open("t")
    table.import_workload(log)
    tiny = {"alpha": 1e-6}
    (group,) = table.plan(options=tiny).groups
    assert group.why.startswith("by a: ")
    scheduled = table.schedule(options=tiny, plans_at=str(tmp_path / "plans"))
    assert scheduled.plan.groups[0].blocks == group.blocks


def test_what_one_merge_sorted_is_not_sorted_again_though_bounds_are_cut(lake: Lake, raw: Table) -> None:
    where = f"s >= '{text_of(100)}' and s < '{text_of(140)}'"
    table = lake.open("t")
    outcome = table.recluster(policy="workload", workload=asked(where, "s"), options=SMALL, final=True)
    assert outcome.rounds == 1
    assert outcome.committed_groups == 1


def test_rounds_end_though_no_sort_of_a_group_stays_live(lake: Lake, raw: Table) -> None:
    table, where = lake.open("t"), f"s >= '{text_of(100)}' and s < '{text_of(140)}'"
    levels = []
    for first in range(2):
        append(raw, t=[first] * 2, a=[1, 2], s=[text_of(0), text_of(999)])
        (group,) = table.plan("workload", workload=asked(where, "s"), options=SMALL).groups
        levels.append(group.output_level)
        table.recluster(policy="workload", workload=asked(where, "s"), options=SMALL)
    assert levels == [1, 2]


def test_runs_maintains_new_files_and_not_those_that_queries_had_sorted(lake: Lake, raw: Table) -> None:
    table = lake.open("t")
    table.recluster(policy="workload", workload=asked(NARROW), options=SMALL)
    drifted: dict[str, Any] = {"policy": "workload", "workload": asked("a > 9000")}
    assert not table.plan(**drifted).groups
    sorted_by_a = {file["file_path"] for file in raw.refresh().inspect.files().to_pylist()}
    for place in range(8):
        ids = range(5000 + place, 5160, 8)
        append(raw, t=ids, a=[1] * 20, s=["x"] * 20)
    (group,) = table.plan(**drifted).groups
    assert group.why.startswith("no query of the window reads it, so as runs: 8 runs overlap")
    assert not set(group.blocks) & sorted_by_a


def test_a_curve_that_queries_call_for_is_made_once_and_kept(lake: Lake) -> None:
    raw = lake.create(
        "c",
        fields(t=LongType(), a=LongType(), b=LongType()),
        properties={"tblctl.cluster-by": "t", "write.target-file-size-bytes": "2048"},
    )
    chance = random.Random(6)
    for first in range(0, ROWS * 16, ROWS):
        a, b = ([chance.randrange(1000) for _ in range(ROWS)] for _ in "ab")
        append(raw, t=range(first, first + ROWS), a=a, b=b)
    where = [
        f"a >= {x} and a <= {x + 200} and b >= {y} and b <= {y + 200}" for x in (0, 500) for y in (100, 700)
    ]
    queries = [tblctl.Query(time=0.0, where=one, columns=("a", "b"), weight=1000.0) for one in where * 20]
    how: dict[str, Any] = {
        "policy": "workload",
        "workload": tblctl.Workload(queries=tuple(queries)),
        "options": SMALL,
    }
    table = lake.open("c")
    plan = table.plan(**how)
    assert [sort.kind for sort in plan.sorts] == ["hilbert"]
    assert {group.sort_id for group in plan.groups} == {sort.id for sort in plan.sorts}
    assert table.recluster(plan).committed_groups == len(plan.groups)
    (curve,) = plan.sorts
    assert not is_bare(curve.parameters)
    assert version_of(raw.refresh()).sort_by("hilbert(a, b)", reads_rows=False) == curve
    read, there = files_read(raw, where[0])
    assert read < there / 2
