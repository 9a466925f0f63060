"""Policies on traces: rows rewritten per row ingested at equal depth, and what queries then read.

Blocks of 256 keys stand for full ones. After every event of a trace the policy runs until it wants nothing; the code
is that of the product (`tblctl.selector.traces`). Each policy has a knob: a threshold, a target depth, the most runs.
The figures at a depth lie between two values of it, where its curve first gets there; "-" where it does not. All are
means of seeds 0 to 2: rows rewritten over the second half of the events, the rest over the last three quarters.

- *runs* takes groups of any size. Variants on two traces: *exact*, one group a plan, chosen anew after each merge;
  *64 blocks*, groups hold 8 GiB at most; *ids unknown*, runs are guessed from bounds, as for files of other writers.
- *levels*: groups of any size. *Dremio*: the first 64 blocks at the first deepest point until a target depth.
- *Delta*: policy `newdata`, cubes of 4 to 512 blocks, run after every append as all others are. *Iceberg*: the whole
  table is sorted after every so many appends (`rewrite_data_files`, `rewrite-all`).
- *binomial*: runs of the weights of the binomial number system. It counts appends, and looks at no depth.
- *floor*: uniform keys only; the cheapest merges of whole runs, knowing the end.

Rules that look at no keys have no knob for depth. What they rewrite, and the depth that they leave, stands by itself:
*size*, which is Hudi's size-based plan and Iceberg's binpack, and *Hudi, sorting*, which sorts new blocks once, 2 GiB
of them together.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common import RESULTS, Report, lineitem, main, scratch
from tblctl.selector.table_view import TableView
from tblctl.selector.traces.curve import Curve, floor_curve
from tblctl.selector.traces.events import BLOCK_ROWS, MEASURED_EVERY, TRACES, Event
from tblctl.selector.traces.replay import Choose, Replayed, by_policy, replayed
from tblctl.selector.traces.rivals import Binomial, RewriteAll, dremio, hudi
from tblctl.selector.traces.table import ROW_BYTES

DEPTHS = (4, 5, 6, 7)
SEEDS = (0, 1, 2)
TARGETS = (4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 10, 11)
FEWER_TARGETS = (4, 5, 6, 7, 8, 9.5, 11)
GROUP_BYTES = 64 * BLOCK_ROWS * ROW_BYTES
ENDLESS = 2**50
REAL = "lineitem"
CLOSER = ("uniform", "time-correlated")
LONG_SECONDS = 60.0


def without_ids(choose: Choose) -> Choose:
    """Return what is chosen where no block's run is known."""

    def chosen(view: TableView) -> Any:
        return choose(replace(view, run=np.full(len(view), -1)))

    return chosen


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A policy: given its knob, what it chooses."""

    knobs: Sequence[float]
    choose: Callable[[float], Choose]


CONTENDERS: dict[str, Contender] = {
    "levels": Contender(
        knobs=(1, 2, 3, 4, 5, 6, 7, 8),
        choose=lambda knob: by_policy("levels", threshold=knob, max_group_bytes=ENDLESS),
    ),
    "Dremio": Contender(knobs=(3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8), choose=dremio),
    "binomial": Contender(knobs=(3, 4, 5, 6, 7, 8, 9, 10, 12, 14), choose=lambda knob: Binomial(int(knob))),
    "Delta": Contender(
        knobs=(512, 256, 192, 128, 96, 64, 32, 16, 4),
        choose=lambda knob: by_policy("newdata", cube_bytes=int(knob) * BLOCK_ROWS * ROW_BYTES),
    ),
    "Iceberg": Contender(knobs=(2, 4, 6, 8, 10, 12, 16, 20), choose=lambda knob: RewriteAll(int(knob))),
    "runs": Contender(knobs=TARGETS, choose=lambda knob: by_policy("runs", target_depth=knob)),
}
VARIANTS: dict[str, Contender] = {
    "  exact": Contender(
        knobs=FEWER_TARGETS, choose=lambda knob: by_policy("runs", target_depth=knob, max_groups=1)
    ),
    "  64 blocks": Contender(
        knobs=FEWER_TARGETS,
        choose=lambda knob: by_policy("runs", target_depth=knob, max_group_bytes=GROUP_BYTES),
    ),
    "  ids unknown": Contender(
        knobs=FEWER_TARGETS, choose=lambda knob: without_ids(by_policy("runs", target_depth=knob))
    ),
}


FORMER: dict[str, tuple[float, ...]] = {
    "uniform": (3.78, 2.87, 2.60, 2.25),
    "Pareto 1.2": (3.98, 2.82, 2.61, 2.21),
    "time-correlated": (2.07, 1.56, 1.25, 1.02),
    "sliding window": (2.43, 1.79, 1.42, 1.17),
    "burst, then silence": (3.97, 2.99, 2.44, 2.22),
    "hot key": (3.01, 2.46, 2.06, 1.83),
    "small batches": (5.19, 4.01, 3.46, 2.85),
}
"""Rows rewritten / ingested at `DEPTHS` by the rule that `runs` took the place of."""


KEYLESS: dict[str, Contender] = {
    "size": Contender(knobs=(0,), choose=lambda _: by_policy("size", max_group_bytes=ENDLESS)),
    "Hudi, sorting": Contender(knobs=(16,), choose=lambda knob: hudi(int(knob))),
}
"""Rules that look at no keys."""

EVERYONE = CONTENDERS | VARIANTS | KEYLESS


@dataclass(frozen=True, kw_only=True)
class Case:
    """One replay."""

    trace: str
    contender: str
    knob: float
    seed: int
    sorted_whole: bool
    most_events: int | None

    def events(self) -> Iterator[Event]:
        events = (
            receipts(self.sorted_whole)
            if self.trace == REAL
            else TRACES[self.trace].events(np.random.default_rng(self.seed), sorted_whole=self.sorted_whole)
        )
        return itertools.islice(events, self.most_events)

    def run(self) -> tuple[float, float, float, float, float]:
        """Return the depth, and the other figures there."""
        found = replayed(self.events(), EVERYONE[self.contender].choose(self.knob))
        return figures_of(found)


def figures_of(found: Replayed) -> tuple[float, float, float, float, float]:
    return found.depth, found.rewritten, found.p99_depth, found.point_blocks, found.range_share


def receipts(sorted_whole: bool) -> Iterator[Event]:
    """Yield lineitem of TPC-H, scale 0.1, by l_receiptdate, arriving in the order of l_shipdate, 4 blocks at a time."""
    table = pq.read_table(lineitem("0.1"), columns=["l_shipdate", "l_receiptdate"])
    order = pc.sort_indices(table, sort_keys=[("l_shipdate", "ascending")])
    days = table["l_receiptdate"].take(order).cast("int32").to_numpy().astype(np.float64)
    size = 4 * BLOCK_ROWS
    for number in range(len(days) // size):
        keys = days[number * size : (number + 1) * size]
        parts = [keys] if sorted_whole else np.split(keys, 4)
        yield Event(
            runs=tuple(np.sort(part) for part in parts),
            is_measured=number % MEASURED_EVERY == MEASURED_EVERY - 1,
        )


Curves = Mapping[str, np.ndarray]
"""By policy: for each value of its knob the depth, and the other figures there."""


def measure(report: Report, tiny: bool) -> None:
    contenders = ("runs", "binomial") if tiny else tuple(CONTENDERS)
    variants = tuple(VARIANTS)[:1] if tiny else tuple(VARIANTS)
    traces = ("uniform",) if tiny else (*TRACES, REAL)
    with ProcessPoolExecutor() as pool:
        found = {
            name: curves(pool, name, contenders + (variants if name in CLOSER else ()), tiny)
            for name in traces
        }
        alone = {
            name: curves(pool, name, contenders, tiny, sorted_whole=False)
            for name in traces
            if name in CLOSER
        }
        keyless = {name: curves(pool, name, tuple(KEYLESS), tiny) for name in traces}
    floors = floor_curve(64 if tiny else 256, [0.02 * 1.3**step for step in range(30)])
    report.begin(f"rows rewritten / ingested at mean block depth {' / '.join(map(str, DEPTHS))}")
    for name, by_contender in found.items():
        write_costs(report, name, by_contender)
        if name == "uniform":
            write_row(report, "floor", [floors.at(depth) for depth in DEPTHS])
    report.begin("  where each block of an append is sorted alone")
    for name, by_contender in alone.items():
        write_costs(report, name, by_contender)
    write_keyless(report, keyless)
    write_reads(report, found)
    if not tiny:
        write_goals(report, found)
    write_speed(report, tiny)
    with scratch() as folder:
        draw(found["uniform"], floors, (folder if tiny else RESULTS) / "policies.svg")
    report.line("\nas a picture: policies.svg")


def curves(
    pool: ProcessPoolExecutor,
    trace: str,
    contenders: Sequence[str],
    tiny: bool,
    *,
    sorted_whole: bool = True,
) -> Curves:
    seeds = SEEDS[:1] if tiny or trace == REAL else SEEDS
    cases = [
        Case(
            trace=trace,
            contender=name,
            knob=knob,
            seed=seed,
            sorted_whole=sorted_whole,
            most_events=24 if tiny else None,
        )
        for name in contenders
        for knob in EVERYONE[name].knobs[: 2 if tiny else None]
        for seed in seeds
    ]
    results = np.array(list(pool.map(Case.run, cases)))
    ends = np.cumsum([sum(case.contender == name for case in cases) for name in contenders])[:-1]
    return {
        name: part.reshape(-1, len(seeds), results.shape[1]).mean(axis=1)
        for name, part in zip(contenders, np.split(results, ends), strict=True)
    }


def curve_of(points: np.ndarray, figure: int, *, by: int = 0) -> Curve:
    """Return a figure over the depth, or over another figure."""
    return Curve(points=tuple((float(point[by]), float(point[figure])) for point in points))


def write_row(report: Report, name: str, figures: Sequence[float | None]) -> None:
    texts = ["    -" if figure is None else f"{figure:5.2f}" for figure in figures]
    report.line(f"    {name:<16} {'  '.join(texts)}")


def write_costs(report: Report, trace: str, found: Curves) -> None:
    report.line(f"  {trace}")
    for name, points in found.items():
        write_row(report, name, [curve_of(points, 1).at(depth) for depth in DEPTHS])


def write_keyless(report: Report, found: Mapping[str, Curves]) -> None:
    report.begin(
        "rules that look at no keys: rows rewritten / ingested, mean block depth, blocks met by a point query"
    )
    for trace, by_contender in found.items():
        report.line(f"  {trace}")
        for name, ((depth, rewritten, _, point, _),) in by_contender.items():
            write_row(report, name, [rewritten, depth, point])


def write_reads(report: Report, found: Mapping[str, Curves]) -> None:
    report.begin(
        "at depth 5: the 99th percentile of block depth, blocks met by a point query, and rows read / needed of ranges"
    )
    report.line("  of 1 % of the rows; then the last one where 3 rows are rewritten for each one ingested")
    for trace, by_contender in found.items():
        report.line(f"  {trace}")
        for name, points in by_contender.items():
            at_depth = [curve_of(points, figure).at(5) for figure in (2, 3, 4)]
            write_row(report, name, [*at_depth, curve_of(points, 4, by=1).at(3)])


def write_goals(report: Report, found: Mapping[str, Curves]) -> None:
    report.begin("runs against levels, at depth 5")
    for trace in FORMER:
        ours, others = (curve_of(found[trace][name], 1).at(5) for name in ("runs", "levels"))
        most = 0.55 if trace in ("uniform", "Pareto 1.2") else 0.72
        if ours is not None and others is not None:
            report.figure(f"{trace}: rows rewritten, runs / levels", ours / others, "x", most=most)
    report.begin("runs against the rule that it took the place of, over all depths and traces")
    shares = [
        at_depth / former
        for trace, figures in FORMER.items()
        for depth, former in zip(DEPTHS, figures, strict=True)
        if (at_depth := curve_of(found[trace]["runs"], 1).at(depth)) is not None
    ]
    report.figure("rows rewritten, the most of all", max(shares), "x", most=1.05)
    report.figure("rows rewritten, the mean", statistics.fmean(shares), "x", most=0.95)


def write_speed(report: Report, tiny: bool) -> None:
    appends, blocks = (10, 5) if tiny else (1_000, 100)
    report.begin(f"a trace of {appends:,} appends of {blocks} blocks of uniform keys, target depth 5")
    rng = np.random.default_rng(0)
    events = (Event(runs=(np.sort(rng.random(blocks * BLOCK_ROWS)),)) for _ in range(appends))
    started = time.process_time()
    found = replayed(events, by_policy("runs", target_depth=5))
    seconds = time.process_time() - started
    report.figure("processor time", seconds, "s", most=None if tiny else LONG_SECONDS)
    report.figure("rows rewritten / ingested", found.rewritten, "x")


def draw(found: Curves, floors: Curve, path: Path) -> None:
    """Write rows rewritten over depth on uniform keys as a picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in ("levels", "Dremio", "binomial", "runs"):
        if name in found:
            axes.plot(*found[name][:, :2].T, marker=".", linewidth=1.2, label=name)
    axes.plot(*zip(*sorted(floors.points), strict=True), "k:", label="floor, knowing the end")
    axes.set_xlim(2, 12)
    axes.set_ylim(0, 8)
    axes.set_xlabel("mean block depth")
    axes.set_ylabel("rows rewritten / rows ingested")
    axes.set_title("Uniform keys, 256 appends of 4 blocks")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "policies"}):  # small, the same every time
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main("policies", measure)
