"""Policies on workloads that drift: seconds of queries and of rewriting, where no reclustering (NR) is 1.

Traces and costs are those of `traces.py` and `table.py`; targets are those of the issue that asked for the policies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import RESULTS, Report, main
from benchmarks.workload.boundary import Boundary
from benchmarks.workload.contenders import ByKey, Nothing, Ours
from benchmarks.workload.rivals import FullSort, runs_by_key
from benchmarks.workload.traces import TRACES, Trace
from benchmarks.workload.trial import Contender, Cost, Setting, run
from benchmarks.workload.wair import Wair

BLOCK_ROWS = 250
DRIFTING = ("TPC-H", "fixed key", "DSB", "Mirrors")
STILL = ("split", "alternating", "both", "static")
RUNS_TARGETS = (8, 16)

CONTENDERS: dict[str, Callable[[Trace], Contender]] = {
    "workload": lambda trace: Ours(trace=trace),
    "workload, foreign batches": lambda trace: Ours(trace=trace, sorts_arrivals=False),
    "workload, a tenth of the log": lambda trace: Ours(trace=trace, sampled=10),
    "wair": lambda trace: Wair(trace=trace, most=None, skips_lone=False),
    "wair, k_max 64": lambda trace: Wair(trace=trace),
    "wair, fixed window": lambda trace: Wair(trace=trace, fixed_window=True),
    "boundary": lambda trace: Boundary(trace=trace),
    "NN": ByKey,
    "full sort each period": FullSort,
    **{
        f"runs, depth {target}": lambda trace, target=target: runs_by_key(trace, target)
        for target in RUNS_TARGETS
    },
}
LIMITS: dict[str, Mapping[str, float]] = {
    "workload": {
        "TPC-H": 0.24,
        "fixed key": 0.135,
        "DSB": 0.165,
        "Mirrors": 0.0325,
        "split": 0.18,
        "alternating": 0.15,
        "both": 0.13,
        "static": 1.0,
    },
    "workload, foreign batches": {"TPC-H": 0.31, "fixed key": 0.18, "DSB": 0.21, "Mirrors": 0.063},
    "wair": {"TPC-H": 0.48, "fixed key": 0.27, "DSB": 0.25, "Mirrors": 0.065},
}
DRAWN = ("workload", "workload, foreign batches", "wair, k_max 64", "runs, depth 8", "NN")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What contenders cost on a trace.

    Attributes:
        nothing: of no reclustering.
        costs: by contender.
        predicted: of ours: what each group was predicted to cost the window's queries afterwards, and what it cost.
        oracle: seconds of queries on a sorted table that nobody had to sort.
        blocks: that arrive.
    """

    nothing: Cost
    costs: Mapping[str, Cost]
    predicted: Mapping[str, Sequence[tuple[float, float]]]
    oracle: float
    blocks: int


def measure(report: Report, tiny: bool) -> None:
    """Run all contenders on all traces."""
    names = ("fixed key", "static") if tiny else (*DRIFTING, *STILL)
    rows, most = (16, 27) if tiny else (BLOCK_ROWS, None)
    with ProcessPoolExecutor(2) as pool:
        results = pool.map(run_trace, names, [rows] * len(names), [most] * len(names))
        found = {}
        for name, result in zip(names, results, strict=True):
            found[name] = result
            write_trace(report, name, result, with_limits=not tiny)
    with tempfile.TemporaryDirectory() as folder:
        draw(found, (Path(folder) if tiny else RESULTS) / "workload.svg")
    report.line("\nas a picture: workload.svg")


def run_trace(name: str, rows: int, most: int | None) -> Found:
    """Run all contenders on a trace; on one that does not drift, ours alone."""
    setting = Setting.of(TRACES[name], np.random.default_rng, block_rows=rows, most_batches=most)
    chosen = CONTENDERS if name in DRIFTING else {"workload": CONTENDERS["workload"]}
    made = {label: make(setting.trace) for label, make in chosen.items()}
    costs = {label: run(setting, contender) for label, contender in made.items()}
    return Found(
        nothing=run(setting, Nothing()),
        costs=costs,
        predicted={label: item.predicted for label, item in made.items() if isinstance(item, Ours)},
        oracle=setting.oracle(),
        blocks=setting.blocks,
    )


def write_trace(report: Report, name: str, found: Found, *, with_limits: bool) -> None:
    """Write what each contender costs on a trace."""
    total = found.nothing.total
    report.begin(f"{name}: seconds, queries and rewriting together, NR = 1 ({total:.0f} s)")
    for label, cost in found.costs.items():
        limit = LIMITS.get(label, {}).get(name) if with_limits else None
        report.figure(label, cost.total / total, "x", most=limit)
        share = sum(cost.rewriting) / cost.total
        report.line(
            f"      rewriting {share:.2f} of it; {cost.rewritten / found.blocks:.2f} rewrites a block"
        )
        if found.predicted.get(label):
            write_predictions(report, found.predicted[label])
    report.figure("oracle: fully sorted for nothing", found.oracle / total, "x")
    if with_limits and name in DRIFTING:
        write_ratios(report, name, found.costs, found.oracle)


def write_predictions(report: Report, found: Sequence[tuple[float, float]]) -> None:
    """Write how what groups were predicted to cost queries afterwards compares with what they cost."""
    predicted, real = np.array(found).T
    close = np.mean(np.abs(predicted / np.maximum(real, 1e-9) - 1) <= 0.1)
    report.line(
        f"      predicted / realised {predicted.sum() / real.sum():.3f}; within 10 %: {close:.0%} of groups"
    )


def write_ratios(report: Report, name: str, costs: Mapping[str, Cost], oracle: float) -> None:
    """Write how ours compares with the others."""
    total = {label: cost.total for label, cost in costs.items()}
    ours = total["workload"]
    report.figure(
        "workload / wair, k_max 64",
        ours / total["wair, k_max 64"],
        "x",
        most=0.70 if name == "TPC-H" else 0.8,
    )
    best = min(total[f"runs, depth {target}"] for target in RUNS_TARGETS)
    report.figure("workload / best of runs", ours / best, "x", most=1.15)
    report.figure(
        "a tenth of the log / all of it", total["workload, a tenth of the log"] / ours, "x", most=1.03
    )
    report.figure("gap to the oracle", ours / oracle - 1, "", most=0.85 if name == "fixed key" else None)


def draw(results: Mapping[str, Found], path: Path) -> None:
    """Write cumulative costs as a picture, one trace a panel."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = [name for name in DRIFTING if name in results]
    figure = Figure(figsize=(9, 6.5 if len(names) > 1 else 4), layout="constrained")
    panels = np.ravel(figure.subplots(-(-len(names) // 2), min(len(names), 2)))
    for name, axes in zip(names, panels, strict=False):
        nothing, costs = results[name].nothing, results[name].costs
        axes.plot(np.cumsum(nothing.by_batch) / nothing.total, "k:", linewidth=1, label="NR")
        for label in DRAWN:
            axes.plot(np.cumsum(costs[label].by_batch) / nothing.total, linewidth=1.2, label=label)
        axes.set_ylim(0, 1)
        axes.set_title(name, fontsize="medium")
        axes.grid(visible=True, alpha=0.3)
    panels[0].legend(fontsize="x-small")
    figure.supxlabel("batches with reclustering")
    figure.supylabel("cost so far, NR in all = 1")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "workload"}):  # small, the same every time
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main("workload", measure)
