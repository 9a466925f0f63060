"""Check that many readers return the same rows from blocks with copied row groups, in full and for one week.

Blocks overlap their neighbours as in `copy`. Most of their row groups are copied as stored, between others that were
merged. Each reader runs in its own process. By SQL or its own interface it returns the number of rows, the sums of two
columns, and the rows of a week, for which it uses the statistics of row groups.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks import copy
from benchmarks.common import Report, main, scratch
from benchmarks.merging.contender import KEY, Job, MissingError, link_all
from benchmarks.merging.ours import Local

LOW, HIGH = datetime.date(1995, 3, 1), datetime.date(1995, 3, 7)
SQL = (
    f"SELECT count(*), sum(l_orderkey), sum(l_extendedprice), sum(CASE WHEN {KEY} BETWEEN DATE '{LOW}' AND "
    f"DATE '{HIGH}' THEN 1 ELSE 0 END) FROM "
)
WEEK = f" WHERE {KEY} BETWEEN DATE '{LOW}' AND DATE '{HIGH}'"

Answer = tuple[int, int, Decimal, int, int]
"""Number of rows, the two sums, rows of the week counted among all, and rows read by a filter on the week."""


def measure(report: Report, tiny: bool) -> None:
    with scratch() as folder:
        row_group_rows = 64 if tiny else 32_768
        blocks = 10
        job = copy.make_job(
            folder / "input", "0.001" if tiny else "1", blocks, row_group_rows, cuts=range(1, blocks)
        )
        local = Local(job, copy.place(folder, "table"))
        local.reset()
        local.run()
        files = local.output()
        report.line(
            f"{local.outcome.rows:,} rows in {len(files)} blocks, {copy.share_copied(local):.0%} of them in row groups "
            "that were copied"
        )
        report.begin("readers")
        expected = asked(_pyarrow, job.files, folder / "expected")
        for name, reader in READERS.items():
            if tiny and reader in SPARK:
                continue
            found = asked(reader, files, folder / name)
            if isinstance(found, MissingError):
                report.line(f"  {name}: skipped, {found}")
                continue
            if found != expected:
                msg = f"{name} reads {found} of the merged blocks, and the input has {expected}"
                raise AssertionError(msg)
            report.line(f"  {name}: the same rows")


def asked(reader: Callable[[Sequence[str], Path], Answer], files: Sequence[str], folder: Path) -> Any:
    """Return the answers of a reader in its own process, or why it is missing."""
    folder.mkdir()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_answer, (reader, files, folder))


def _answer(reader: Callable[[Sequence[str], Path], Answer], files: Sequence[str], folder: Path) -> Any:
    os.chdir(folder)
    linked = folder / "files"
    link_all(files, linked)
    try:
        return reader([str(path) for path in sorted(linked.iterdir())], folder)
    except (ImportError, MissingError) as error:
        return MissingError(str(error))


def _answers(query: Callable[[str], Sequence[Sequence[Any]]], source: str) -> Answer:
    ((rows, orders, prices, week),) = query(SQL + source)
    ((alone,),) = query(f"SELECT count(*) FROM {source}{WEEK}")
    return int(rows), int(orders), Decimal(str(prices)), int(week), int(alone)


def _pyarrow(files: Sequence[str], folder: Path) -> Answer:  # noqa: ARG001
    import pyarrow.compute as pc
    import pyarrow.dataset

    data = pyarrow.dataset.dataset(list(files))
    rows = data.to_table(columns=[KEY, "l_orderkey", "l_extendedprice"])
    inside = pc.and_(pc.greater_equal(rows[KEY], LOW), pc.less_equal(rows[KEY], HIGH))
    alone = data.count_rows(filter=(pc.field(KEY) >= LOW) & (pc.field(KEY) <= HIGH))
    sums = [pc.sum(rows[name]).as_py() for name in ("l_orderkey", "l_extendedprice")]
    return rows.num_rows, sums[0], sums[1], pc.sum(inside).as_py(), alone


def _duckdb(files: Sequence[str], folder: Path) -> Answer:
    import duckdb

    del files
    return _answers(lambda text: duckdb.sql(text).fetchall(), f"read_parquet('{folder}/files/*.parquet')")


def _polars(files: Sequence[str], folder: Path) -> Answer:
    import polars

    del folder
    context = polars.SQLContext(lineitem=polars.scan_parquet(list(files)), eager=True)
    return _answers(lambda text: context.execute(text).rows(), "lineitem")


def _delta_rs(files: Sequence[str], folder: Path) -> Answer:
    import deltalake

    del files
    deltalake.convert_to_deltalake(folder / "files")
    table = deltalake.DeltaTable(folder / "files")
    builder = deltalake.QueryBuilder().register("lineitem", table)
    return _answers(lambda text: [tuple(row.values()) for row in _dicts(builder.execute(text))], "lineitem")


def _dicts(found: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    return pa.table(found.read_all()).to_pylist()


def _databend(files: Sequence[str], folder: Path) -> Answer:
    from databend import SessionContext

    del files
    context = SessionContext()
    context.register_parquet("lineitem", f"{folder}/files/")

    def query(text: str) -> list[tuple[Any, ...]]:
        batches = context.sql(text).to_py_arrow()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    return _answers(query, "lineitem")


def _spark(files: Sequence[str], folder: Path) -> Answer:
    from benchmarks.merging.session import spark_session

    del files
    session = spark_session(folder)
    return _answers(lambda text: session.sql(text).collect(), f"parquet.`{folder}/files`")


def _iceberg(files: Sequence[str], folder: Path) -> Answer:
    from benchmarks.merging import iceberg

    (folder / "iceberg").mkdir()
    session = iceberg.Sort(_job(files), folder / "iceberg").session
    return _answers(lambda text: session.sql(text).collect(), "peers.merge.sort")


def _delta(files: Sequence[str], folder: Path) -> Answer:
    from benchmarks.merging import delta

    (folder / "delta").mkdir()
    contender = delta.ZOrder(_job(files), folder / "delta")
    contender.reset()
    return _answers(lambda text: contender.session.sql(text).collect(), contender.table)


def _job(files: Sequence[str]) -> Job:
    return Job(
        files=tuple(files), is_sorted=True, block_rows=1, output_files=len(files), row_group_rows=32_768
    )


READERS = {
    "pyarrow": _pyarrow,
    "DuckDB": _duckdb,
    "Polars": _polars,
    "delta-rs (DataFusion)": _delta_rs,
    "Databend (embedded)": _databend,
    "Spark": _spark,
    "Iceberg on Spark": _iceberg,
    "Delta on Spark": _delta,
}
SPARK = (_spark, _iceberg, _delta)


if __name__ == "__main__":
    main("readers", measure)
