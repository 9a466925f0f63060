"""Merge of 61 sorted blocks of TPC-H lineitem: ours against the floor and against other engines.

The floor is decode + encode of the same files on two processes. All contenders run in every round, each in its own warm
process (ours on Spark shares its session with Spark's own way). Each runs twice in a turn, and the second run counts:
while others run for minutes, the system drops files from its cache, and Spark ends idle workers. Ratios are those of
one round, and the result is their median. Ours is timed from plan to commit, verification and the flush to disk
included; the others from the start of their statement to its end. The output of every run that counts is checked.

    python -m benchmarks.merge --contenders floor,local --rounds 5
    python -m benchmarks.merge --unsorted             blocks that are not sorted by the key, so ours sorts them first
    python -m benchmarks.merge --row-groups           only the costs and gains of the size of row groups
    python -m benchmarks.merge --profile              where our time goes
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

import tblctl
from benchmarks.common import RESULTS, Report, Timed, in_turn, lineitem, main, scratch, timed
from benchmarks.merging.contender import KEY, Check, Host, Job, cut_input, hosts
from benchmarks.merging.ours import Local
from benchmarks.merging.profile import profile as write_profile
from benchmarks.merging.tasks import rows_decoded


class Entry(NamedTuple):
    """A contender: its name, its process, and `module:class` in `benchmarks.merging`."""

    title: str
    place: str
    kind: str
    ordered: bool = True


CONTENDERS = {
    "floor": Entry("floor: decode + encode, two processes", "floor", "ours:Floor", ordered=False),
    "floor-ours": Entry(
        "floor of our own blocks, encoded as ours", "floor-ours", "ours:FloorOfOurs", ordered=False
    ),
    "local": Entry("tblctl, in-process", "local", "ours:Local"),
    "spark": Entry("tblctl, on warm Spark local[2]", "spark", "spark:OursOnSpark"),
    "spark-own": Entry("Spark: repartitionByRange + sort + write", "spark", "spark:SparkOwn"),
    "duckdb": Entry("DuckDB: ORDER BY + COPY", "duckdb", "peers:DuckDB"),
    "polars": Entry("Polars: sort + sink_parquet", "polars", "peers:Polars"),
    "delta-rs": Entry("delta-rs: optimize.z_order", "delta-rs", "peers:DeltaRs"),
    "databend": Entry("Databend: RECLUSTER FINAL, Parquet", "databend", "peers:Databend"),
    "databend-native": Entry(
        "Databend: RECLUSTER FINAL, its own format", "databend-native", "peers:DatabendNative", ordered=False
    ),
    "iceberg-sort": Entry("Iceberg: rewrite_data_files, sort", "iceberg", "iceberg:Sort"),
    "iceberg-zorder": Entry(
        "Iceberg: rewrite_data_files, zorder", "iceberg", "iceberg:ZOrder", ordered=False
    ),
    "iceberg-binpack": Entry(
        "Iceberg: rewrite_data_files, binpack", "iceberg", "iceberg:BinPack", ordered=False
    ),
    "delta-zorder": Entry("Delta: OPTIMIZE ZORDER BY", "delta", "delta:ZOrder", ordered=False),
    "delta-liquid": Entry("Delta: CLUSTER BY, OPTIMIZE", "delta", "delta:Liquid", ordered=False),
    "hudi": Entry("Hudi: run_clustering", "hudi", "hudi:Clustering", ordered=False),
}
DOWNLOADED = {"iceberg", "delta", "hudi"}  # by Spark at first use; too slow for tiny runs
OURS = {
    "local": "#1b6ca8",
    "spark": "#1b6ca8",
    "floor": "#d0d0d0",
    "floor-ours": "#d0d0d0",
}  # and their colours

LIMITS = (  # ratios of the times of two contenders: at least, at most
    ("local", "floor", None, 1.4),
    ("local", "floor-ours", None, None),
    ("spark", "floor", None, 1.6),
    ("spark-own", "spark", 3.0, None),
    ("delta-rs", "local", 2.0, None),
    ("databend", "local", 5.0, None),
    ("databend-native", "local", 5.0, None),
    ("duckdb", "local", None, None),
    ("polars", "local", None, None),
    ("iceberg-sort", "local", 3.0, None),
    ("iceberg-sort", "spark", 2.5, None),
    ("iceberg-zorder", "spark", None, None),
    ("iceberg-binpack", "spark", None, None),
    ("delta-zorder", "spark", 5.0, None),
    ("delta-liquid", "spark", 5.0, None),
    ("hudi", "spark", None, None),
)
UNSORTED_LIMITS = (
    ("local", "floor", None, 2.2),
    ("spark-own", "spark", 1.5, None),
    ("spark", "floor", None, None),
    ("duckdb", "local", None, None),
    ("polars", "local", None, None),
)
UNSORTED = "floor,local,spark,spark-own"  # contenders, if none are named
OUTPUTS = 8  # about, at scale 1; what one million rows of lineitem, or 128 MiB of them, come to
ROW_GROUP_ROWS = (20_000, 32_768, 65_536, 131_072)
ONE_WEEK = f"{KEY} between '1995-03-01' and '1995-03-07'"

Seconds = dict[str, list[float]]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender, of two runs each")
    parser.add_argument("--contenders", help="only compare these: names, with commas between")
    parser.add_argument("--unsorted", action="store_true", help="blocks in another order than the key's")
    parser.add_argument("--row-groups", action="store_true", help="only compare sizes of row groups")
    parser.add_argument("--profile", action="store_true", help="only show where our time goes")


def measure(
    report: Report,
    tiny: bool,
    *,
    scale: str,
    rounds: int,
    contenders: str | None,
    unsorted: bool,
    row_groups: bool,
    profile: bool,
) -> None:
    scale, rounds = ("0.001", 1) if tiny else (scale, rounds)
    contenders = contenders or (UNSORTED if unsorted else None)
    everything = not (contenders or row_groups or profile)
    every = [name for name, entry in CONTENDERS.items() if not (tiny and entry.place in DOWNLOADED)]
    chosen = contenders.split(",") if contenders else every
    if unknown := sorted(set(chosen) - set(CONTENDERS)):
        msg = f"unknown contenders {', '.join(unknown)}; there are {', '.join(CONTENDERS)}"
        raise SystemExit(msg)
    with scratch() as folder:
        job = make_job(folder / "input", scale, is_sorted=not unsorted, tiny=tiny)
        rows = sum(pq.read_metadata(file).num_rows for file in job.files)
        report.line(
            f"{rows:,} rows of lineitem in {len(job.files)} blocks, {'not' if unsorted else 'each'} sorted by {KEY}, "
            "zstd 1, row groups of "
            f"{job.row_group_rows:,} rows; {rounds} rounds"
        )
        if contenders or everything:
            seconds = compare(report, job, folder, chosen, rounds)
        if everything:
            draw(seconds, (folder if tiny else RESULTS) / "merge.svg")
        if row_groups or (tiny and everything):
            compare_row_groups(report, job, folder, rounds)
        if profile or everything:
            profile_local(report, job, folder)


def make_job(folder: Path, scale: str, *, is_sorted: bool, tiny: bool = False) -> Job:
    """Cut the input into blocks of 100,000 rows: 61 at scale 1, more above. Below, 61 smaller ones.

    A tiny job has 13 blocks: its time depends on files, not on rows.
    """
    factor = min(1.0, float(scale))
    rows = math.ceil((500_000 if tiny else 100_000) * factor)
    row_group_rows = max(20, rows // 5)
    files = cut_input(
        lineitem(scale),
        folder,
        rows=rows,
        row_group_rows=row_group_rows,
        is_sorted=is_sorted,
    )
    return Job(
        files=files,
        is_sorted=is_sorted,
        block_rows=round(1_000_000 * factor),
        output_files=OUTPUTS * max(1, round(float(scale))),
        row_group_rows=row_group_rows,
        is_tiny=tiny,
    )


def compare(report: Report, job: Job, folder: Path, chosen: Sequence[str], rounds: int) -> Seconds:
    """Run the contenders in turn, and write and return their times, and write ratios."""
    places: dict[str, dict[str, str]] = {}
    for name in chosen:
        places.setdefault(CONTENDERS[name].place, {})[name] = CONTENDERS[name].kind
    with hosts(places, job, folder) as running:
        missing: dict[str, str] = {}
        for host in running.values():
            missing |= host.missing()
        for name, why in missing.items():
            report.line(f"skipped {CONTENDERS[name].title}: {why}")
        ready = {name: running[CONTENDERS[name].place] for name in chosen if name not in missing}
        seconds = in_rounds(report, ready, Check(job), rounds, warm=not job.is_tiny)
    report.begin("merge")
    for name in seconds:
        report.seconds(CONTENDERS[name].title, seconds[name])
    for name, base, least, most in LIMITS if job.is_sorted else UNSORTED_LIMITS:
        if name in seconds and base in seconds:
            ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
            report.figure(f"{name} / {base}", ratio, "x", least=least, most=most)
    return seconds


def draw(seconds: Seconds, path: Path) -> None:
    """Draw the medians as bars, the fastest on top. Ours and the floor have their own colours."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = sorted(seconds, key=lambda name: -statistics.median(seconds[name]))
    figure = Figure(figsize=(8.5, 0.32 * len(names) + 0.8), layout="constrained", facecolor="white")
    axes = figure.subplots()
    bars = axes.barh(
        [CONTENDERS[name].title for name in names],
        [statistics.median(seconds[name]) for name in names],
        color=[OURS.get(name, "#e0a458") for name in names],
    )
    axes.bar_label(bars, fmt="%.1f s", padding=3, fontsize="small")
    axes.set_xlabel("seconds for 61 sorted blocks of lineitem, 2 processors")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.1)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "merge"}):
        figure.savefig(path, metadata={"Date": None})


def in_rounds(
    report: Report, ready: dict[str, Host], check: Check, rounds: int, *, warm: bool = True
) -> Seconds:
    """Return the seconds of every contender in every round: those of the second of two runs, or of one without `warm`.

    A peer that fails once is left out, and the reason is written. Ours must not fail.
    """
    report.begin("seconds of every round: a run after those of others, and the next, which counts")
    found: Seconds = {name: [] for name in ready}
    running = dict(ready)
    for number in range(1, rounds + 1):
        times = []
        for name, host in list(running.items()):
            try:
                first, files = host.run(name)
                seconds, files = host.run(name) if warm else (first, files)
                check.require_equal(CONTENDERS[name].title, files, ordered=CONTENDERS[name].ordered)
            except AssertionError as error:
                if name in OURS:
                    raise
                report.line(f"  left out: {error}")
                del running[name], found[name]
            else:
                times.append(f"{name} {first:.2f} {seconds:.2f}")
                found[name].append(seconds)
        report.line(f"  {number}: {', '.join(times)}")
    return found


def profile_local(report: Report, job: Job, folder: Path) -> None:
    """Write where our time goes in one run, after a warm-up run."""
    place = folder / "profile"
    place.mkdir()
    local = Local(job, place)
    local.reset()
    local.run()
    local.reset()
    write_profile(report, local.run)


# -- how many rows a row group should have -----------------------------------------------------------------------------


def compare_row_groups(report: Report, job: Job, folder: Path, rounds: int) -> None:
    """Write what the size of row groups costs a merge and gains a scan."""
    sizes = {rows: max(2, rows * job.row_group_rows // ROW_GROUP_ROWS[0]) for rows in ROW_GROUP_ROWS}
    merges = {}
    for rows, scaled in sizes.items():
        place = folder / f"row groups of {rows}"
        place.mkdir()
        merges[rows] = Local(job, place, row_group_rows=scaled)
    merged = in_turn([fresh(local) for local in merges.values()], runs=rounds)
    tables = [local.table for local in merges.values()]
    scans = in_turn([timed(lambda table=table: table.scan().to_arrow()) for table in tables], runs=rounds)
    weeks = in_turn([timed(selective(table)) for table in tables], runs=rounds)
    for place, (rows, local) in enumerate(merges.items()):
        report.begin(f"row groups of {rows:,} rows")
        report.seconds("merge", merged[place])
        for tasks in (1, 2, OUTPUTS):
            decoded = rows_decoded(local.base, tasks=tasks)
            report.figure(f"rows decoded / rows, {tasks} tasks", decoded, "x")
        report.seconds("scan of the output", scans[place])
        report.seconds("scan of one week", weeks[place])
        report.figure("bytes of the output", local.table.snapshot.bytes / 2**20, "MiB")


def fresh(local: Local) -> Timed:
    """Make a case of a merge. The copy of the table beforehand does not count."""

    def run() -> float:
        local.reset()
        return timed(local.run)()

    return run


def selective(table: tblctl.Table) -> Callable[[], object]:
    return lambda: table.scan(where=ONE_WEEK).to_arrow()


if __name__ == "__main__":
    main("merge", measure, options)
