"""What a choice of files by their sizes cannot see: Iceberg tables of files of full size that overlap.

Two tables of TPC-H lineitem, clustered by l_orderkey. All files have the target size, so `rewrite_data_files` with its
default options leaves them alone (apache/iceberg #17489); with `rewrite-all` it rewrites every file. Both sort by the
key and aim at the same size of files, and so does tblctl, which chooses by overlap: in one round of its default policy,
and with `--final`.

- Files rewritten, and their bytes; the average depth that is left, measured by tblctl for all; and how much depth a
  rewritten MiB removes.
- What 50 point and 50 range queries (each of 0.1 % of the keys) read: files by PyIceberg's plan of each scan, and the
  bytes of their row groups whose statistics match.

Files are registered by PyIceberg (`add_files`, with a name mapping), in one table for each contender, in a catalog that
is one SQLite file. The rows are compared afterwards. Seconds are of one run in this process, Spark's of its first job.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Report, lineitem, main, scratch
from benchmarks.e2e import read
from benchmarks.merging.contender import Check, Job, MissingError
from benchmarks.merging.lake import PACKAGES, Lake, rewrite, spark_conf, spark_wanted
from benchmarks.merging.session import spark_session

KEY = "l_orderkey"
QUERIES = 50  # of each kind
RANGE_SHARE = 0.001
ROW_GROUP_ROWS = 65_536
ROUND, FINAL = "tblctl recluster", "tblctl recluster --final"
DEFAULT, ALL = "rewrite_data_files, default options", "rewrite_data_files, rewrite-all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How the rows lie: `sorted_files` with the lowest keys, one after the other, then files that overlap.

    `most_rewritten` is the limit of what one round may rewrite, as a share of what `rewrite-all` does, and `least_gain`
    that of the depth removed per byte, likewise.
    """

    sorted_files: int
    overlapping_files: int
    most_rewritten: float
    least_gain: float


SHAPES = {
    "8 files, which all overlap": Shape(
        sorted_files=0, overlapping_files=8, most_rewritten=1.0, least_gain=1.0
    ),
    "10 files that all overlap, after 40 sorted ones": Shape(
        sorted_files=40, overlapping_files=10, most_rewritten=0.3, least_gain=3.0
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What a contender did, and what it left."""

    seconds: float
    files: int
    rewritten_bytes: int
    depth: float
    read_files: int
    read_bytes: int


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, help="default: unless --tiny")


def measure(report: Report, tiny: bool, *, spark: bool | None) -> None:
    rows = read(lineitem("0.001" if tiny else "1"))
    report.line(
        f"{rows.num_rows:,} rows; queries: {QUERIES} of one key, {QUERIES} of {RANGE_SHARE:.1%} of the keys"
    )
    with scratch() as folder:
        lake = Lake(folder / "lake")
        session = spark_of(report, lake) if spark_wanted(spark, tiny) else None
        for number, (title, shape) in enumerate(SHAPES.items()):
            report.begin(title)
            place = folder / f"files{number}"
            job = cut(rows.sort_by(KEY), place, shape)
            sizes = [Path(file).stat().st_size for file in job.files]
            report.line(f"  files of {min(sizes):,} to {max(sizes):,} bytes, target {job.output_bytes:,}")
            one_shape(report, lake, job, shape, session)


def spark_of(report: Report, lake: Lake) -> Any:
    """Return a session with the catalog, or None."""
    try:
        return spark_session(lake.folder, spark_conf(lake.folder), package=PACKAGES)
    except MissingError as error:
        report.line(f"skipped rewrite_data_files: {error}")
        return None


def cut(rows: pa.Table, folder: Path, shape: Shape) -> Job:
    """Write the files of a shape, all with about the same number of rows, each sorted."""
    folder.mkdir()
    count = shape.sorted_files + shape.overlapping_files
    size = rows.num_rows // count
    keys = rows[KEY].to_numpy()
    starts = np.searchsorted(
        keys, keys[np.arange(shape.sorted_files + 1) * size]
    )  # no key is in two sorted files
    order = np.arange(starts[-1], rows.num_rows)
    np.random.default_rng(seed=0).shuffle(order)
    parts = [rows.slice(start, stop - start) for start, stop in itertools.pairwise(starts)]
    parts += [rows.take(pa.array(np.sort(part))) for part in np.array_split(order, shape.overlapping_files)]
    files = []
    for number, part in enumerate(parts):
        files.append(str(folder / f"{number:03}.parquet"))
        pq.write_table(
            part, files[-1], compression="zstd", compression_level=1, row_group_size=ROW_GROUP_ROWS
        )
    return Job(
        files=tuple(files), is_sorted=True, block_rows=size, output_files=count, row_group_rows=ROW_GROUP_ROWS
    )


def one_shape(report: Report, lake: Lake, job: Job, shape: Shape, session: Any) -> None:
    """Compare the contenders on tables of one shape."""
    name = f"beside{shape.sorted_files}"
    check = Check(job)
    queries = list(make_queries(job.files))
    lake.register(f"{name}_before", job.files, target_bytes=job.output_bytes)
    before = looked_at(lake, f"{name}_before", 0.0, queries)
    found = {"before": before}
    for title, work in contenders(lake, job, session).items():
        table = f"{name}_{len(found)}"
        lake.register(table, job.files, target_bytes=job.output_bytes)
        started = time.perf_counter()
        work(table)
        found[title] = looked_at(lake, table, time.perf_counter() - started, queries)
        check.require_equal(title, lake.files(table), ordered=False)
    write(report, found)
    judge(report, found, shape)


def contenders(lake: Lake, job: Job, session: Any) -> dict[str, Callable[[str], object]]:
    """Return what each does to a table of its own; Spark's only with a session."""

    def recluster(*, final: bool) -> Callable[[str], object]:
        return lambda table: lake.open(table).recluster(cluster_by=[KEY], final=final, engine="local")

    found: dict[str, Callable[[str], object]] = {ROUND: recluster(final=False), FINAL: recluster(final=True)}
    if session is not None:
        target = job.output_bytes
        found[DEFAULT] = lambda table: session.sql(rewrite(table, KEY)).collect()
        found[ALL] = lambda table: session.sql(
            rewrite(table, KEY, rewrite_all="true", target_file_size_bytes=target)
        ).collect()
    return found


# -- what is left ------------------------------------------------------------------------------------------------------


def make_queries(files: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield ranges of keys, with their ends: first of one key each, then longer ones."""
    footers = [pq.read_metadata(file) for file in files]
    ends = [end for footer in footers for low, high, _ in row_groups(footer) for end in (low, high)]
    low, high = min(ends), max(ends)
    width = round(RANGE_SHARE * (high - low))
    chance = np.random.default_rng(seed=1)
    for number, first in enumerate(chance.integers(low, high - width, 2 * QUERIES).tolist()):
        yield first, first + (width if number >= QUERIES else 0)


def row_groups(footer: pq.FileMetaData) -> Iterator[tuple[int, int, int]]:
    """Yield the least key, the largest key and the compressed bytes of every row group."""
    place = footer.schema.names.index(KEY)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        statistics = group.column(place).statistics
        size = sum(group.column(column).total_compressed_size for column in range(footer.num_columns))
        yield statistics.min, statistics.max, size


def looked_at(lake: Lake, name: str, seconds: float, queries: Sequence[tuple[int, int]]) -> Found:
    """Measure a table as it is now."""
    table = lake.load(name)
    groups = {file: list(row_groups(pq.read_metadata(file))) for file in lake.files(name)}
    read_files = read_bytes = 0
    for first, last in queries:
        for task in table.scan(f"{KEY} >= {first} and {KEY} <= {last}").plan_files():
            read_files += 1
            matching = groups[lake.path(task.file.file_path)]
            read_bytes += sum(size for low, high, size in matching if low <= last and high >= first)
    later = [snapshot.summary for snapshot in table.snapshots() if snapshot.parent_snapshot_id is not None]
    return Found(
        seconds=seconds,
        files=sum(int(summary["deleted-data-files"] or 0) for summary in later),
        rewritten_bytes=sum(int(summary["removed-files-size"] or 0) for summary in later),
        depth=lake.open(name).info(columns=[KEY]).average_depth,
        read_files=read_files,
        read_bytes=read_bytes,
    )


def write(report: Report, found: dict[str, Found]) -> None:
    """Write a line for each contender."""
    report.line(
        f"  {'':<37} {'files':>5} {'MiB':>8} {'average':>8} {'depth removed':>13} {'files read by':>13} "
        f"{'MiB':>9} {'':>8}"
    )
    report.line(
        f"  {'':<37} {'':>5} {'of them':>8} {'depth':>8} {'per 100 MiB':>13} "
        f"{'100 queries':>13} {'read':>9} {'seconds':>8}"
    )
    before = found["before"]
    for title, item in found.items():
        mib = item.rewritten_bytes / 2**20
        gain = f"{100 * (before.depth - item.depth) / mib:13.3f}" if mib else f"{'-':>13}"
        report.line(
            f"  {title:<37} {item.files:5} {mib:8.1f} {item.depth:8.3f} {gain} {item.read_files:13,} "
            f"{item.read_bytes / 2**20:9.1f} {item.seconds:8.2f}"
        )


def judge(report: Report, found: dict[str, Found], shape: Shape) -> None:
    """Compare our default with `rewrite_data_files`."""
    if ALL not in found:
        return
    ours, theirs = found[ROUND], found[ALL]
    report.figure("files rewritten with default options", found[DEFAULT].files, "files", most=0)
    share = ours.rewritten_bytes / theirs.rewritten_bytes
    report.figure("bytes rewritten: recluster / rewrite-all", share, "x", most=shape.most_rewritten)
    gain = (found["before"].depth - ours.depth) / (found["before"].depth - theirs.depth)
    report.figure("depth removed per byte: the same", gain / share, "x", least=shape.least_gain)
    report.figure("bytes read: the same", ours.read_bytes / theirs.read_bytes, "x", most=1.0)
    share = ours.read_bytes / found[DEFAULT].read_bytes
    report.figure("bytes read: recluster / default options", share, "x", most=1.0)


if __name__ == "__main__":
    main("overlap", measure, options)
