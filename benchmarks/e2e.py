"""A table's life from end to end: create, 60 appends, and one `recluster(final=True)`.

Batches arrive in the order of the file (l_orderkey), so that each spans nearly all keys; or with the key ascending,
descending or random, as the best and worst cases. Depths are those of `info`, of closed intervals: two neighbours that
share a date have depth 2.

The second part compares the depth that plans predict with the depth measured after the merge, for keys of several
kinds.

    python -m benchmarks.e2e --scale 0.1 --orders sorted,reversed
    python -m benchmarks.e2e --orders ""              only the predictions
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Report, lineitem, main, scratch
from tblctl.tableformat.model.scan_report import ScanReport

KEY = "l_shipdate"
APPENDS = 60
Integers = npt.NDArray[np.int64]
WEEK = f"{KEY} between '1995-03-01' and '1995-03-07'"


def _by_key(rows: pa.Table) -> pa.Table:
    return rows.sort_by(KEY)


def _by_key_descending(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(KEY, "descending")])


def _at_random(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array(np.random.default_rng(seed=0).permutation(rows.num_rows)))


ORDERS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "arrival": lambda rows: rows,
    "sorted": _by_key,
    "reversed": _by_key_descending,
    "random": _at_random,
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--orders", default=",".join(ORDERS), help="names, with commas between")
    parser.add_argument("--block-rows", type=int, help="of the table; 1,000,000 x scale if not given")


def measure(report: Report, tiny: bool, *, scale: str, orders: str, block_rows: int | None) -> None:
    scale, appends = ("0.001", 6) if tiny else (scale, APPENDS)
    chosen = orders.split(",") if orders else []
    if unknown := sorted(set(chosen) - set(ORDERS)):
        msg = f"unknown orders {', '.join(unknown)}; there are {', '.join(ORDERS)}"
        raise SystemExit(msg)
    rows = read(lineitem(scale))
    block_rows = block_rows or round(1_000_000 * float(scale))
    report.line(
        f"{rows.num_rows:,} rows of lineitem in {appends} appends; key {KEY}; blocks of at most {block_rows:,} rows; "
        f"query: {WEEK}"
    )
    for name in chosen:
        report.begin(f"order of arrival: {name}")
        with scratch() as folder:
            one_life(report, folder / "table", batches(ORDERS[name](rows), appends), block_rows)
    compare_predictions(report, "0.001" if tiny else "0.1", appends)


def read(path: Path) -> pa.Table:
    """Return a file's rows, with a string type that can be taken from."""
    schema = pq.read_schema(path)
    plain = [item.with_type(pa.string()) if pa.types.is_string_view(item.type) else item for item in schema]
    return pq.read_table(path, schema=pa.schema(plain))


def batches(rows: pa.Table, count: int) -> list[pa.Table]:
    """Cut rows into batches of equal size."""
    size = math.ceil(rows.num_rows / count)
    return [rows.slice(start, size).combine_chunks() for start in range(0, rows.num_rows, size)]


def one_life(report: Report, place: Path, parts: Sequence[pa.Table], block_rows: int) -> None:
    """Create, append and recluster; write the costs and the gains."""
    started = time.perf_counter()
    table = tblctl.create(place, parts[0].schema, cluster_by=KEY, options={"block_rows": block_rows})
    for part in parts:
        table.append(part)
    appended = time.perf_counter()
    before, week_before = table.info(), one_week(place)
    predicted = table.plan().predicted.average_depth_after
    paused = time.perf_counter()
    outcome = table.recluster(final=True)
    ended = time.perf_counter()
    after, week_after = table.info(), one_week(place)
    require_same_rows(table, parts)
    append_seconds, recluster_seconds = appended - started, ended - paused
    report.figure("create and append", append_seconds, "s")
    report.figure(f"recluster, {outcome.rounds} rounds", recluster_seconds, "s")
    report.figure("together", append_seconds + recluster_seconds, "s")
    report.figure("rows rewritten / rows ingested", outcome.rows / after.rows, "x")
    report.figure("depth that the first plan expects", predicted, "")
    report.line(f"  {'before and after':<44}")
    for title, was, is_now, unit in (
        ("blocks", before.total_block_count, after.total_block_count, ""),
        ("average depth", before.average_depth, after.average_depth, ""),
        ("maximum depth", before.depth.max, after.depth.max, ""),
        ("query: blocks read", week_before.blocks_read, week_after.blocks_read, ""),
        ("query: bytes read", _mib(week_before), _mib(week_after), "MiB"),
        ("query: seconds", week_before.seconds, week_after.seconds, "s"),
    ):
        report.line(f"  {title:<44} {was:9.3f} {is_now:9.3f} {unit}")


def require_same_rows(table: tblctl.Table, parts: Sequence[pa.Table]) -> None:
    """Stop a run that lost or changed rows.

    Raises:
        AssertionError: the table does not hold the appended rows.
    """
    order = [("l_orderkey", "ascending"), ("l_linenumber", "ascending")]
    rows = table.scan().to_arrow().sort_by(order)
    if not rows.equals(pa.concat_tables(parts).sort_by(order).cast(rows.schema)):
        msg = "the table does not hold the rows that were appended"
        raise AssertionError(msg)


def one_week(place: Path) -> ScanReport:
    """Run a selective query, and return the report of its scan."""
    reports: list[ScanReport] = []
    tblctl.open(place, on_scan=reports.append).scan(where=WEEK).to_arrow()
    return reports[0]


def _mib(report: ScanReport) -> float:
    return sum(sum(block.column_bytes.values()) for block in report.blocks) / 2**20


# -- what plans predict -----------------------------------------------------------------------------------------------


def _unique(chance: np.random.Generator, rows: int) -> Integers:
    return chance.permutation(rows)


def _repeated(chance: np.random.Generator, rows: int) -> Integers:
    return chance.integers(0, 250, rows)


def _zipf(chance: np.random.Generator, rows: int) -> Integers:
    return chance.zipf(1.3, rows)


def _late(chance: np.random.Generator, rows: int) -> Integers:
    """Timestamps in milliseconds of events, one every 10 ms, that arrive about a minute late, some much later."""
    return np.arange(rows) * 10 - chance.exponential(60_000, rows).astype(np.int64)


KINDS: dict[str, Callable[[np.random.Generator, int], Integers]] = {
    "uniform, unique": _unique,
    "repeated: 250 keys": _repeated,
    "Zipf": _zipf,
    "correlated with time": _late,
}


def compare_predictions(report: Report, scale: str, appends: int) -> None:
    """Write for each kind of key the average depth that the first plan expects, and what came of it.

    Rows and block sizes are those of `make demo` at this scale.
    """
    demo = read(lineitem(scale))
    block_rows = round(200_000 * float(scale))
    report.begin(
        f"average depth, predicted by the first plan and measured after it: {demo.num_rows:,} rows in {appends} "
        f"appends, blocks of at most {block_rows:,} rows"
    )
    report.line(f"  {'key':<26} {'expected':>8} {'measured':>8} {'error':>8}")
    tables = {f"lineitem by {KEY}": (KEY, demo)}
    for name, keys in KINDS.items():
        numbers = np.arange(demo.num_rows)
        data = {"k": keys(np.random.default_rng(seed=0), demo.num_rows), "n": numbers}
        tables[name] = ("k", pa.table(data))
    errors = []
    for name, (key, rows) in tables.items():
        with scratch() as folder:
            table = tblctl.create(
                folder / "t", rows.schema, cluster_by=key, options={"block_rows": block_rows}
            )
            for part in batches(rows, appends):
                table.append(part)
            plan = table.plan()
            table.recluster(plan)
            expected, measured = plan.predicted.average_depth_after, table.info().average_depth
        errors.append(abs(expected - measured) / measured)
        report.line(f"  {name:<26} {expected:8.4f} {measured:8.4f} {errors[-1]:8.1%}")
    report.figure("median error of what is expected", 100 * statistics.median(errors), "%", most=10)


if __name__ == "__main__":
    main("e2e", measure, options)
