"""The Spark data source against Spark's own Parquet: writing lineitem, and reading it from the same files.

Both write the same frame, which Spark reads from one Parquet file. Ours sorts the rows of each task, keeps statistics
and commits. Parquet is written unsorted, and a second time sorted within its partitions, which is comparable to ours.
Both read the table's blocks: a week by the cluster key, where both skip row groups, and three whole columns. Spark 4.1
passes neither projections nor filters to Python sources, so ours gets both as options.

    python -m benchmarks.spark_source --profile       where our tasks spend their time
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tblctl
from benchmarks.common import Pairs, Report, in_turn, lineitem, main, scratch, timed

KEY = ["l_shipdate"]
COLUMNS = ["l_shipdate", "l_extendedprice", "l_discount"]
QUERIES = {
    "one week by the cluster key": "l_shipdate between date'1995-03-01' and date'1995-03-07'",
    "three columns whole": "true",
}
CODEC = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
CONF = {"spark.driver.memory": "3g"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not")
    parser.add_argument(
        "--profile", action="store_true", help="our tasks in this process instead, without Spark"
    )


def measure(report: Report, tiny: bool, *, rounds: int = 5, profile: bool = False) -> None:
    path = lineitem("0.001" if tiny else "1")
    if profile:
        profile_tasks(report, path)
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    runs = 1 if tiny else rounds
    with scratch() as folder, tblctl.spark_session(master="local[2]", conf=CONF) as session:
        tblctl.spark.register(session)
        frame = session.read.parquet(str(path))
        report.line(
            f"{frame.count():,} rows of lineitem on Spark local[2], zstd level 1; {runs} rounds in turn"
        )
        table = write_all(report, frame, folder, path, runs)
        for title, where in QUERIES.items():
            report.begin(f"read: {title}")
            read_all(report, session, table, where, runs)


def write_all(report: Report, frame: Any, folder: Path, path: Path, runs: int) -> tblctl.Table:
    place = folder / "table"
    table = tblctl.create(place, tblctl.read_schema(path), cluster_by=KEY)
    save = timed(lambda: frame.write.format("tblctl").mode("overwrite").save(str(place)))

    def ours() -> float:
        seconds = save()
        table.gc(keep=1, older_than=0)
        return seconds

    def parquet(rows: Any) -> Callable[[], None]:
        return lambda: rows.write.mode("overwrite").options(**CODEC).parquet(str(folder / "parquet"))

    cases = [ours, timed(parquet(frame)), timed(parquet(frame.sortWithinPartitions(*KEY)))]
    mine, plain, ordered = in_turn(cases, runs=runs)
    report.begin("write")
    report.seconds("tblctl, sorted, with the commit", mine)
    report.seconds("Parquet, as it comes", plain)
    report.seconds("Parquet, sorted within partitions", ordered)
    report.figure("time, of Parquet as it comes", Pairs(ours=mine, baseline=plain).cost, "x")
    report.figure("time, of Parquet sorted", Pairs(ours=mine, baseline=ordered).cost, "x")
    return table


def read_all(report: Report, session: Any, table: tblctl.Table, where: str, runs: int) -> None:
    chosen = {"columns": ",".join(COLUMNS), "where": where}
    ours = session.read.format("tblctl").options(**chosen).load(table.location)
    theirs = session.read.parquet(f"{table.location}/data")
    answers = []

    def sums(frame: Any) -> Callable[[], None]:
        wanted = ("sum(l_extendedprice * l_discount)", "max(l_shipdate)", "count(*)")
        # A new query every time: Spark keeps the shuffle output of a finished query.
        return lambda: answers.append(frame.where(where).selectExpr(*wanted).collect())

    mine, plain = in_turn([timed(sums(ours)), timed(sums(theirs))], runs=runs)
    if answers.count(answers[0]) != len(answers):
        raise RuntimeError(f"the two sides differ: {answers}")
    report.seconds("tblctl", mine)
    report.seconds("Parquet", plain)
    report.figure("time, of Parquet", Pairs(ours=mine, baseline=plain).cost, "x")


def profile_tasks(report: Report, path: Path) -> None:
    """Write the file's rows as one Spark task does, batch by batch, and read them again, under cProfile."""
    import cProfile
    import io
    import pstats

    import pyarrow.parquet as pq

    from tblctl.spark.source import source_class
    from tblctl.tableformat.storage import Storage

    with scratch() as folder:
        schema = tblctl.read_schema(path)
        table = tblctl.create(folder / "table", schema, cluster_by=KEY)
        source = source_class("tblctl", Storage("/"), parallelism=2, pushdown=False)({"path": table.location})
        batches = list(pq.ParquetFile(path).iter_batches(10_000, row_groups=range(20)))
        writer = source.writer(source.schema(), overwrite=False)
        profiler = cProfile.Profile()
        message = profiler.runcall(writer.write, iter(batches))
        writer.commit([message])
        reader = source.reader(source.schema())
        for partition in reader.partitions():
            profiler.runcall(
                lambda partition=partition: sum(batch.num_rows for batch in reader.read(partition))
            )
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(25)
        report.line(text.getvalue())


if __name__ == "__main__":
    main("spark_source", measure, options)
