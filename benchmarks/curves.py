"""Keys along a curve: the time to make them of rows and of bounds, and what they take of each snapshot.

The rows are those of `lineitem` at scale 1: 6 million, by columns of dates, numbers and text. Times are processor time
of one thread, the best of three, after the first run, which makes tables. Bounds are those of boxes of blocks that hold
a hundredth of each axis.
"""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Report, lineitem, main
from benchmarks.metrics import MILLION, processor_seconds
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import Sort, parse_key
from tblctl.tableformat.model.curve import CURVES
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.statistics import ColumnStatistics
from tblctl.tableformat.native.read.key_sample import ranges_of_rows

COLUMNS = (
    "l_shipdate, l_partkey",
    "l_shipdate, l_extendedprice",
    "l_shipdate, l_partkey, l_suppkey",
    "l_shipdate, l_partkey, l_suppkey, l_quantity",
    "l_shipdate, l_shipmode",
)
LIMIT_SECONDS = 0.3  # of 6 million rows by two columns of numbers


def measure(report: Report, tiny: bool) -> None:
    rows = pq.read_table(lineitem("0.01" if tiny else "1"))
    schema = Schema.create(rows.schema)
    for columns in COLUMNS:
        report.begin(f"{columns}: {rows.num_rows:,} rows")
        measure_keys(report, columns, rows, schema, tiny=tiny)
    for columns in COLUMNS[0], COLUMNS[3]:
        count = 1000 if tiny else MILLION
        report.begin(f"{columns}: bounds of {count:,} blocks")
        statistics = boxes(columns.split(", "), rows, count)
        for kind in CURVES:
            bounds = key_maker(sort_of(kind, columns, rows, schema)).bounds
            report.figure(kind, processor_seconds(partial(bounds, statistics, schema)), "s")


def measure_keys(report: Report, columns: str, rows: pa.Table, schema: Schema, *, tiny: bool) -> None:
    report.figure(
        "boundaries of a sample", processor_seconds(partial(sort_of, "zorder", columns, rows, schema)), "s"
    )
    stored = json.dumps(sort_of("zorder", columns, rows, schema).to_json())
    report.figure("  they take of every snapshot", len(stored) / 1e3, "kB")
    names = columns.split(", ")
    limited = len(names) == 2 and "l_shipmode" not in names and not tiny
    for kind in CURVES:
        work = partial(key_maker(sort_of(kind, columns, rows, schema)).keys, rows.select(names), schema)
        work()
        best = min(processor_seconds(work) for _ in range(3))
        report.figure(f"keys of {kind}", best, "s", most=LIMIT_SECONDS if limited else None)


def sort_of(kind: str, columns: str, rows: pa.Table, schema: Schema) -> Sort:
    """Return the sort along a curve, with boundaries from some of the rows."""
    terms = parse_key(f"{kind}({columns})", schema).terms
    some = rows.slice(0, 1 << 17)
    return Sort(
        id=1,
        kind=kind,
        terms=terms,
        parameters=ranges_of_rows([some], schema, terms, "lineitem").to_parameters(),
    )


def boxes(names: list[str], rows: pa.Table, count: int) -> SimpleNamespace:
    """Return statistics of blocks each of which holds a hundredth of each column's values."""
    rng = np.random.default_rng(5)
    columns = {}
    for name in names:
        ordered = rows.column(name).combine_chunks().sort()
        low = rng.integers(0, len(ordered) * 99 // 100, count)
        columns[name] = ColumnStatistics(
            min=ordered.take(pa.array(low)),
            max=ordered.take(pa.array(low + len(ordered) // 100)),
            null_count=np.zeros(count, np.int64),
        )
    return SimpleNamespace(row_count=np.ones(count, np.int64), column=lambda leaf: columns[leaf.name])


if __name__ == "__main__":
    main("curves", measure)
