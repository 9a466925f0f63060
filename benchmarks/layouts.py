"""Curves of tblctl and of Spark's table formats: what queries read, the time to lay rows out, merges of curve order.

Part `grid`: lineitem in arrival order, in 61 files, is laid out by two columns in about 144 files of equal size, zstd
level 1, on warm Spark `local[2]`. Each contender runs twice in a turn, and the second run counts. Ours is timed from
`ALTER .. CLUSTER BY` (boundaries are made from a sample) to the commit, verification and the flush to disk included;
others from the start of their statement to its end. The rows of every output are checked. Processor seconds are those
of all processes of the contender; they hold on a busy machine, too.

Then 400 queries are asked: 200 on the rows of TPC-H, 200 on skewed ones; half with a range on one column, half with one
on each; ranges hold 0.01, 0.1, 1 and 10 % of the rows. A file counts as read if its footer's bounds meet all ranges: by
the same rule for everyone. The bound is what a grid of as many files reads, sqrt(N) slices in each column: the product
over the columns of min(sqrt(N), s sqrt(N) + 1), where s is the share of the rows that the range holds.

- TPC-H: l_shipdate and l_partkey, which are independent. *skewed*: the same rows, but days grow exponentially more
  frequent to the end, and few of the parts have most of the rows (Zipf, exponent 1.2).
- Iceberg has no Hilbert curve (1.12). Hudi takes part where `make .venv-hudi` was run, in the linear order of the first
  column.

Part `merge`: processor seconds in this process, of 61 blocks already in curve order against as many in linear order,
and of blocks in arrival order by either key. The same rows, turn by turn.

    python -m benchmarks.layouts --part merge
    python -m benchmarks.layouts --part grid --scale 0.1 --contenders hilbert-local,zorder-local
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import RESULTS, Report, lineitem, main, scratch
from benchmarks.merge import make_job
from benchmarks.merging.contender import KEY, Check, Host, Job, cut_input, hosts
from benchmarks.merging.ours import Local
from benchmarks.merging.queries import SELECTIVITIES, Layout, Query, as_numbers, make_queries

COLUMNS = (KEY, "l_partkey")
CURVE = f"hilbert({', '.join(COLUMNS)})"
INPUTS, OUTPUTS, QUERIES = 61, 144, 200
MOST_RATIO = {1: 1.25, 2: 1.4}  # of blocks read and the bound, by columns with a range
MOST_MERGE = 1.3
LEAST_SPEED = {"iceberg-zorder": 3.0, "delta-zorder": 3.5}


class Entry(NamedTuple):
    """A contender: its name, its process, and `module:class` in `benchmarks.merging`; colour and line of its curve."""

    title: str
    place: str
    kind: str
    colour: str
    line: str = "-"


CONTENDERS = {
    "hilbert": Entry("tblctl hilbert, on Spark", "ours", "curves:HilbertOnSpark", "#1b6ca8"),
    "zorder": Entry("tblctl zorder, on Spark", "ours", "curves:ZOrderOnSpark", "#1b6ca8", "--"),
    "hilbert-local": Entry("tblctl hilbert, in-process", "local", "curves:Hilbert", "#1b6ca8"),
    "zorder-local": Entry("tblctl zorder, in-process", "local", "curves:ZOrder", "#1b6ca8", "--"),
    "delta-liquid": Entry("Delta: CLUSTER BY (Hilbert)", "delta", "delta:Liquid", "#e0a458"),
    "delta-zorder": Entry("Delta: OPTIMIZE ZORDER BY", "delta", "delta:ZOrder", "#e0a458", "--"),
    "iceberg-zorder": Entry("Iceberg: rewrite, zorder", "iceberg", "iceberg:ZOrder", "#7a5195", "--"),
    "hudi": Entry("Hudi: run_clustering, linear", "hudi", "hudi:Clustering", "#909090", ":"),
}
WITHOUT_SPARK = ("hilbert-local", "zorder-local")
OURS = ("hilbert", "zorder", *WITHOUT_SPARK)


@dataclass(kw_only=True)
class Result:
    """What a contender did: seconds of each round, of the clock and of processors, and its last layout."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    layout: Layout | None = None


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender, of two runs each")
    parser.add_argument("--contenders", help="only compare these: names, with commas between")
    parser.add_argument("--part", choices=("grid", "merge"), help="only this part")


def measure(
    report: Report, tiny: bool, *, scale: str, rounds: int, contenders: str | None, part: str | None
) -> None:
    scale, rounds = ("0.001", 1) if tiny else (scale, rounds)
    some = contenders.split(",") if contenders else WITHOUT_SPARK if tiny else tuple(CONTENDERS)
    chosen = [name for name in some if contenders or tiny or name not in WITHOUT_SPARK]
    if unknown := sorted(set(chosen) - set(CONTENDERS)):
        msg = f"unknown contenders {', '.join(unknown)}; there are {', '.join(CONTENDERS)}"
        raise SystemExit(msg)
    with scratch() as folder:
        if part != "merge":
            reads = {}
            for data in ("TPC-H", "skewed"):
                place = folder / data
                place.mkdir()
                job = job_of(data, place, scale, tiny=tiny)
                reads[data] = one_data_set(report, data, job, place, (chosen, rounds), tiny=tiny)
            draw(reads, (folder if tiny else RESULTS) / "layouts.svg" if part is None else folder / "l.svg")
        if part != "grid":
            compare_merges(report, folder, scale, rounds, tiny=tiny)


# -- the grid of queries -----------------------------------------------------------------------------------------------

Reads = dict[str, dict[tuple[int, float], float]]
"""By contender: by the columns that have a range and their selectivity, the mean of the blocks read."""


def one_data_set(
    report: Report, data: str, job: Job, folder: Path, run: tuple[Sequence[str], int], *, tiny: bool
) -> Reads:
    """Lay out a data set by each contender, in some rounds, and write what comes of it. Return what queries read."""
    columns = pq.read_table(list(job.files), columns=list(COLUMNS))
    queries = make_queries({name: as_numbers(columns[name]) for name in COLUMNS}, 16 if tiny else QUERIES)
    report.begin(
        f"{data}: {columns.num_rows:,} rows in {len(job.files)} files in arrival order, by {', '.join(COLUMNS)}"
    )
    results = laid_out(report, job, folder, *run)
    write_seconds(report, results)
    reads = write_reads(report, results, queries)
    write_limits(report, results, reads, queries, tiny=tiny)
    return reads


def job_of(data: str, folder: Path, scale: str, *, tiny: bool) -> Job:
    rows = pq.read_metadata(lineitem(scale)).num_rows
    inputs, outputs = (5, 16) if tiny else (INPUTS, OUTPUTS)
    source = lineitem(scale) if data == "TPC-H" else skewed_copy(lineitem(scale), folder / "skewed.parquet")
    return Job(
        files=cut_input(
            source,
            folder / "input",
            rows=math.ceil(rows / inputs),
            row_group_rows=max(20, rows // inputs // 5),
            is_sorted=False,
        ),
        is_sorted=False,
        block_rows=math.ceil(rows / outputs),
        output_files=outputs,
        row_group_rows=max(20, rows // inputs // 5),
        is_tiny=tiny,
        columns=COLUMNS,
    )


def skewed_copy(source: Path, target: Path) -> Path:
    """Write lineitem with other days and parts: most days late, most parts few."""
    rng = np.random.default_rng(3)
    rows = pq.read_table(source)
    days = 10_561 - np.minimum(rng.exponential(200, rows.num_rows), 2_525)
    parts = rng.zipf(1.2, rows.num_rows) % 200_000
    for name, values in ((COLUMNS[0], days.astype(np.int32)), (COLUMNS[1], parts)):
        column = rows.schema.field(name)  # with its id in the file, by which Iceberg finds it
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, column, pa.array(values).cast(column.type))
    pq.write_table(rows, target)
    return target


def laid_out(report: Report, job: Job, folder: Path, chosen: Sequence[str], rounds: int) -> dict[str, Result]:
    """Run the contenders in turn. One that fails is left out, and the reason written; ours must not fail."""
    places: dict[str, dict[str, str]] = {}
    for name in chosen:
        places.setdefault(CONTENDERS[name].place, {})[name] = CONTENDERS[name].kind
    check = Check(job)
    found = {name: Result() for name in chosen}
    with hosts(places, job, folder) as running:
        missing = {name: why for host in running.values() for name, why in host.missing().items()}
        for name, why in missing.items():
            report.line(f"  skipped {CONTENDERS[name].title}: {why}")
            del found[name]
        for _ in range(rounds):
            for name in list(found):
                try:
                    one_turn(found[name], running[CONTENDERS[name].place], name, check)
                except AssertionError as error:
                    if name in OURS:
                        raise
                    report.line(f"  left out: {error}")
                    del found[name]
    return found


def one_turn(result: Result, host: Host, name: str, check: Check) -> None:
    host.run(name)
    seconds, files = host.run(name)
    check.require_equal(CONTENDERS[name].title, files, ordered=False)
    result.seconds.append(seconds)
    result.cpu_seconds.append(host.cpu_seconds)
    result.layout = Layout(files, COLUMNS)


def write_seconds(report: Report, results: Mapping[str, Result]) -> None:
    for name, result in results.items():
        report.seconds(CONTENDERS[name].title, result.seconds)
        report.seconds("  processor seconds", result.cpu_seconds)
    for name, least in LEAST_SPEED.items():
        for ours in ("hilbert", "zorder"):
            if name not in results or ours not in results:
                continue
            pairs = zip(results[name].seconds, results[ours].seconds, strict=True)
            ratio = statistics.median(theirs / mine for theirs, mine in pairs)
            report.figure(f"{name} / tblctl {ours}", ratio, "x", least=least)
            pairs = zip(results[name].cpu_seconds, results[ours].cpu_seconds, strict=True)
            report.figure(
                "  by processor seconds", statistics.median(theirs / mine for theirs, mine in pairs), "x"
            )


def write_reads(report: Report, results: Mapping[str, Result], queries: Sequence[Query]) -> Reads:
    """Write and return the blocks that queries read, and write the bytes."""
    reads: Reads = {}
    report.line()
    titles = {name: CONTENDERS[name].title for name in results}
    for number, title in enumerate(titles.values(), start=1):
        report.line(f"  [{number}] {title}")
    heads = [f"[{number}]" for number in range(1, len(titles) + 1)]
    report.line(f"  {'mean blocks read / MiB read':<30}" + "".join(f"{head:>16}" for head in heads))
    files = "".join(
        f"{f'{len(layout_of(item))} / {layout_of(item).bytes.sum() / 2**20:.1f}':>16}"
        for item in results.values()
    )
    report.line(f"  {'all':<30}{files}")
    for ranged in (1, 2):
        for selectivity in SELECTIVITIES:
            some = [q for q in queries if (len(q.ranges), q.selectivity) == (ranged, selectivity)]
            cells = ""
            for name, result in results.items():
                layout = layout_of(result)
                read = [layout.read_by(query) for query in some]
                blocks = float(np.mean([item.sum() for item in read]))
                size = float(np.mean([layout.bytes[item].sum() for item in read]))
                reads.setdefault(name, {})[ranged, selectivity] = blocks
                cells += f"{f'{blocks:.2f} / {size / 2**20:.1f}':>16}"
            what = f"{'one column' if ranged == 1 else 'two columns'}, {selectivity:.2%} each"
            report.line(f"  {what:<30}{cells}")
    return reads


def layout_of(result: Result) -> Layout:
    assert result.layout is not None
    return result.layout


def write_limits(
    report: Report, results: Mapping[str, Result], reads: Reads, queries: Sequence[Query], *, tiny: bool
) -> None:
    """Write how far each layout is from the bound, and whether ours reads no more than the best of the others."""
    report.line()
    for name, result in results.items():
        layout = layout_of(result)
        for ranged, most in MOST_RATIO.items():
            some = [query for query in queries if len(query.ranges) == ranged]
            read = sum(int(layout.read_by(query).sum()) for query in some)
            bound = sum(query.bound(len(layout), len(COLUMNS)) for query in some)
            limit = most if name.startswith("hilbert") and not tiny else None
            report.figure(f"{CONTENDERS[name].title}: {ranged} / bound", read / bound, "x", most=limit)
    others = [name for name in results if name not in OURS]
    if not others or "hilbert" not in results:
        return
    for row, blocks in reads["hilbert"].items():
        best = min(others, key=lambda name: reads[name][row])
        what = f"hilbert, {row[0]} columns, {row[1]:.2%} / {best}"
        report.figure(what, blocks / reads[best][row], "x", most=1.0)


def draw(reads: Mapping[str, Reads], path: Path) -> None:
    """Draw the blocks read over the selectivity, one picture for each data set and number of ranges."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(9, 6.5), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 2, sharex=True)
    for row, (data, found) in zip(axes, reads.items(), strict=True):
        for ranged, panel in zip((1, 2), row, strict=True):
            for name, blocks in found.items():
                entry = CONTENDERS[name]
                values = [blocks[ranged, selectivity] for selectivity in SELECTIVITIES]
                panel.plot(
                    [100 * item for item in SELECTIVITIES],
                    values,
                    entry.line,
                    color=entry.colour,
                    label=entry.title,
                )
            panel.set_title(f"{data}: ranges on {'one column' if ranged == 1 else 'both columns'}")
            panel.set_xscale("log")
            panel.set_yscale("log")
            for axis in (panel.xaxis, panel.yaxis):  # plain numbers, no powers of ten
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
            panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[1]:
        panel.set_xlabel("% of the rows that a range holds")
    for panel in axes[:, 0]:
        panel.set_ylabel("blocks read, on average")
    axes[0][1].legend(fontsize="small", frameon=False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "layouts"}):
        figure.savefig(path, metadata={"Date": None})


# -- merges ------------------------------------------------------------------------------------------------------------


def compare_merges(report: Report, folder: Path, scale: str, rounds: int, *, tiny: bool) -> None:
    """Write the processor seconds of merges along the curve and by a linear key, turn by turn, of the same rows."""
    for is_sorted, what in ((True, "61 blocks in order"), (False, "61 blocks in arrival order")):
        place = folder / what
        place.mkdir()
        job = make_job(place / "input", scale, is_sorted=is_sorted, tiny=tiny)
        job = Job(**{**vars(job), "columns": COLUMNS})
        merges = {
            "linear": Local(job, made(place / "linear")),
            "hilbert": Local(job, made(place / "hilbert"), key=CURVE),
        }
        seconds: dict[str, list[float]] = {name: [] for name in merges}
        for number in range(rounds + 1):
            for name, local in merges.items():
                local.reset()
                started = time.process_time()
                local.run()
                if number:
                    seconds[name].append(time.process_time() - started)
        check = Check(job)
        report.begin(f"merge of {what}: processor seconds in this process")
        for name, local in merges.items():
            check.require_equal(name, local.output(), ordered=name == "linear")
            report.seconds(name, seconds[name])
        pairs = zip(seconds["hilbert"], seconds["linear"], strict=True)
        ratio = statistics.median(curve / linear for curve, linear in pairs)
        report.figure("hilbert / linear", ratio, "x", most=None if tiny else MOST_MERGE)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main("layouts", measure, options)
