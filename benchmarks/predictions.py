"""What a recluster is expected to take and to bring, against what it did, on ten tables.

Each table grows by ten appends, then a plan is made and carried out, three times over: policy `runs`, target depth 2,
in this process. The first two runs teach the table its rates (`maintain/experience.py`); the third one is judged.
Bytes are those read and written, seconds those of the merge, as commits record both; depth is the average after the
run, against the plan's. Seconds are by the clock: where the machine does other work, they vary by themselves. Of a run
of which the earlier ones are more than 16 versions back, the plan knows the rates of the last one only.

    python -m benchmarks.predictions
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Report, lineitem, main, scratch
from benchmarks.merging.lake import Lake

RUNS, APPENDS = 3, 10
MOST = {"bytes": 0.10, "seconds": 0.20, "depth": 0.10}
OPTIONS = {"target_depth": 2}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table: `rows` returns all of it in order of arrival, given about how many there should be."""

    key: str
    rows: Callable[[int], pa.Table]


def of_lineitem(order: str | None) -> Callable[[int], pa.Table]:
    """Return lineitem in the order of a column, or in a random one."""

    def rows(count: int) -> pa.Table:
        found = pq.read_table(lineitem("0.1")).slice(0, count)
        columns = [
            pc.cast(column, pa.string()) if pa.types.is_string_view(column.type) else column
            for column in found
        ]
        found = pa.table(columns, names=found.column_names)
        if order is None:
            return found.take(np.random.default_rng(0).permutation(found.num_rows))
        return found.sort_by(order)

    return rows


def synthetic(draw: Callable[[np.random.Generator, int], np.ndarray]) -> Callable[[int], pa.Table]:
    """Return keys by a rule, and four columns beside them."""

    def rows(count: int) -> pa.Table:
        chance = np.random.default_rng(0)
        more = {f"v{number}": chance.integers(0, 10**6, count) for number in range(4)}
        return pa.table({"k": draw(chance, count), **more})

    return rows


def wide(count: int) -> pa.Table:
    chance = np.random.default_rng(0)
    count //= 20
    return pa.table(
        {"k": chance.random(count), **{f"c{number}": chance.random(count) for number in range(199)}}
    )


def long_text(count: int) -> pa.Table:
    chance = np.random.default_rng(0)
    words = np.array([f"word{number:04d}" for number in range(2_000)])
    count //= 10
    text = [" ".join(line) for line in words[chance.integers(0, len(words), (count, 60))]]
    return pa.table({"k": chance.permutation(count), "text": text})


def nested(count: int) -> pa.Table:
    chance = np.random.default_rng(0)
    count //= 4
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1) * 3, pa.int32()), pa.array(chance.integers(0, 100, 3 * count))
    )
    parts = pa.StructArray.from_arrays([pa.array(chance.random(count)), lists], names=["x", "items"])
    return pa.table({"k": chance.random(count), "s": parts})


def hot(chance: np.random.Generator, count: int) -> np.ndarray:
    return np.where(chance.random(count) < 0.33, 0.5, chance.random(count))


CASES = {
    "lineitem by ship date": Case(key="l_shipdate", rows=of_lineitem("l_orderkey")),
    "lineitem by order key": Case(key="l_orderkey", rows=of_lineitem("l_shipdate")),
    "lineitem, unsorted": Case(key="l_shipdate", rows=of_lineitem(None)),
    "uniform": Case(key="k", rows=synthetic(lambda chance, count: chance.random(count))),
    "skewed": Case(key="k", rows=synthetic(lambda chance, count: chance.pareto(1.2, count))),
    "hot key": Case(key="k", rows=synthetic(hot)),
    "wide, 200 columns": Case(key="k", rows=wide),
    "long text": Case(key="k", rows=long_text),
    "nested": Case(key="k", rows=nested),
    "Iceberg, lineitem": Case(key="l_shipdate", rows=of_lineitem("l_orderkey")),
}


def measure(report: Report, tiny: bool) -> None:
    cases = {name: CASES[name] for name in ("uniform", "Iceberg, lineitem")} if tiny else CASES
    count = 3_000 if tiny else 600_000
    report.line(
        f"{APPENDS} appends before each of {RUNS} runs of policy runs, target depth {OPTIONS['target_depth']}"
    )
    report.begin("error of the third run: bytes read and written, seconds of the merge, depth afterwards")
    errors = []
    for name, case in cases.items():
        with scratch() as folder:
            errors.append(errors_of(table_of(name, case, count, folder)))
        shares = "  ".join(f"{word} {error:6.1%}" for word, error in zip(MOST, errors[-1], strict=True))
        report.line(f"  {name:<24} {shares}")
    report.begin("median over the tables")
    for (word, most), found in zip(MOST.items(), zip(*errors, strict=True), strict=True):
        report.figure(word, 100 * statistics.median(found), "%", most=None if tiny else 100 * most)


def table_of(name: str, case: Case, count: int, folder: Path) -> Iterator[Any]:
    """Yield the table before each run: a part of its rows more, in some appends."""
    rows = case.rows(count)
    block_rows = max(rows.num_rows // 100, 20)
    if name.startswith("Iceberg"):
        lake = Lake(folder)
        lake.create("t", rows.schema, target_bytes=2**20)
        made = lake.load("t")
        with made.transaction() as change:
            change.set_properties({"tblctl.cluster-by": case.key})
        append = made.append
        table: Any = tblctl.open(lake.location("t"), catalog_options=lake.options)
    else:
        options = {"block_rows": block_rows, "row_group_rows": max(block_rows // 5, 5)}
        table = tblctl.create(folder / "t", rows.schema, cluster_by=case.key, options=options)
        append = table.append
    size = rows.num_rows // (RUNS * APPENDS)
    for run in range(RUNS):
        for number in range(run * APPENDS, (run + 1) * APPENDS):
            append(rows.slice(number * size, size))
        yield table


def errors_of(tables: Iterator[Any]) -> tuple[float, float, float]:
    """Return how far off the last run's bytes, seconds and depth were, as shares of what they were."""
    for table in tables:
        plan = table.plan("runs", options=OPTIONS)
        outcome = table.recluster(plan, engine="local")
    if outcome.predicted is None or not outcome.committed_groups:
        msg = f"the last run merged nothing: {outcome.note}"
        raise AssertionError(msg)
    seconds = next(
        entry.detail["recluster"]["merge_seconds"]
        for entry in table.history()
        if entry.operation == "recluster"
    )
    expected, depth = outcome.predicted, outcome.predicted_depth_after
    return (
        error(expected.bytes_read + expected.bytes_written, outcome.bytes_read + outcome.bytes_written),
        error(expected.seconds, seconds),
        error(depth, outcome.depth_after),
    )


def error(expected: float, found: float) -> float:
    return abs(expected - found) / found


if __name__ == "__main__":
    main("predictions", measure)
