"""Scans of TPC-H lineitem against `pyarrow.dataset` on the same files, all in the page cache."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import tblctl
from benchmarks.common import Pairs, Report, Timed, in_turn, lineitem, main, scratch, timed

WHERE = "l_shipdate >= '1995-01-01' and l_shipdate < '1995-02-01' and l_quantity < 10"
COLUMNS = ["l_orderkey", "l_extendedprice", "l_comment"]
BASELINE = "pyarrow.dataset"


def measure(report: Report, tiny: bool) -> None:
    path = lineitem("0.01" if tiny else "1")
    options = {"block_rows": 5_000 if tiny else 100_000, "sort_scope": "block"}
    runs = 1 if tiny else 7
    with scratch() as folder:
        table = tblctl.create(
            folder / "table",
            tblctl.read_schema(path),
            cluster_by=["l_shipdate", "l_orderkey"],
            options=options,
        )
        table.append(path)
        files = [str(folder / "table" / block.path) for block in table.files()]
        report.line(
            f"{table.snapshot.rows:,} rows of lineitem in {len(files)} files, each sorted alone; {runs} runs"
        )
        for name, ours, theirs, least in cases(table, files):
            mine, other = in_turn([ours, theirs], runs=runs)
            pairs = Pairs(ours=mine, baseline=other)
            report.begin(name)
            report.pairs("tblctl", pairs, BASELINE)
            report.figure("speed", pairs.speed, "x", least=least)


def cases(table: tblctl.Table, files: list[str]) -> list[tuple[str, Timed, Timed, float | None]]:
    """Return name, our case, the baseline and the limit on the speed for every kind of scan."""

    def plain() -> ds.Dataset:
        return ds.dataset(files, format="parquet")

    quantity = pc.field("l_quantity") < decimal.Decimal("10.00")
    first, last = datetime.date(1995, 1, 1), datetime.date(1995, 2, 1)
    condition = (pc.field("l_shipdate") >= first) & (pc.field("l_shipdate") < last) & quantity
    filtered = {"columns": COLUMNS, "filter": condition}
    check_equal(table.scan(where=WHERE, columns=COLUMNS).to_arrow(), plain().to_table(**filtered))
    return [
        (
            "full scan, to_arrow",
            timed(lambda: table.scan().to_arrow()),
            timed(lambda: plain().to_table()),
            0.9,
        ),
        (
            "full scan, to_reader",
            timed(lambda: drained(table.scan().to_reader())),
            timed(lambda: drained(plain().scanner().to_reader())),
            None,
        ),
        (
            f"columns {', '.join(COLUMNS)}",
            timed(lambda: table.scan(columns=COLUMNS).to_arrow()),
            timed(lambda: plain().to_table(columns=COLUMNS)),
            None,
        ),
        (
            f"columns {', '.join(COLUMNS)} where {WHERE}",
            timed(lambda: table.scan(where=WHERE, columns=COLUMNS).to_arrow()),
            timed(lambda: plain().to_table(**filtered)),
            None,
        ),
    ]


def check_equal(ours: pa.Table, theirs: pa.Table) -> None:
    """Stop a comparison of two different answers.

    Raises:
        AssertionError: they differ.
    """
    order = [(name, "ascending") for name in ours.column_names]
    theirs = theirs.cast(ours.schema)
    if ours.num_rows == 0 or not ours.sort_by(order).equals(theirs.sort_by(order)):
        msg = f"{ours.num_rows} rows of ours, {theirs.num_rows} of {BASELINE}: not the same, or none"
        raise AssertionError(msg)


def drained(reader: pa.RecordBatchReader) -> int:
    return sum(batch.num_rows for batch in reader)


if __name__ == "__main__":
    main("scan", measure)
