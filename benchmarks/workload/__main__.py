"""Policies on workloads that drift: seconds of queries and of rewriting, where no reclustering (NR) is 1.

Traces and costs are those of `traces.py` and `table.py`; targets are those of the issue that asked for the policies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import RESULTS, Report, main
from benchmarks.workload.boundary import Boundary
from benchmarks.workload.contenders import ByKey, Nothing, Ours
from benchmarks.workload.rivals import FullSort, OfRegistry, runs_by_key
from benchmarks.workload.traces import TRACES, Trace
from benchmarks.workload.trial import Contender, Cost, Setting, run
from benchmarks.workload.wair import Wair

BLOCK_ROWS = 250
DRIFTING = ("TPC-H", "fixed key", "DSB", "Mirrors")
STILL = ("split", "alternating", "both", "static")
RUNS_TARGETS = (5, 8)

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
    "depth (DD)": lambda trace: OfRegistry(trace, policy="depth"),
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
DRAWN = ("workload", "workload, foreign batches", "wair, k_max 64", "runs, depth 5", "NN")


def measure(report: Report, tiny: bool) -> None:
    """Run all contenders on all traces."""
    rows, most = (16, 27) if tiny else (BLOCK_ROWS, None)
    curves: dict[str, dict[str, np.ndarray]] = {}
    for name in ("fixed key", "static") if tiny else (*DRIFTING, *STILL):
        setting = Setting.of(TRACES[name], np.random.default_rng, block_rows=rows, most_batches=most)
        chosen = CONTENDERS if name in DRIFTING else {"workload": CONTENDERS["workload"]}
        curves[name] = measure_trace(report, setting, chosen, with_limits=not tiny)
    with tempfile.TemporaryDirectory() as folder:
        draw(curves, (Path(folder) if tiny else RESULTS) / "workload.svg")
    report.line("\nas a picture: workload.svg")


def measure_trace(
    report: Report, setting: Setting, chosen: Mapping[str, Callable[[Trace], Contender]], *, with_limits: bool
) -> dict[str, np.ndarray]:
    """Write what each contender costs on a trace, and return the costs by batch."""
    name = setting.trace.name
    nothing = run(setting, Nothing())
    report.begin(f"{name}: seconds, queries and rewriting together, NR = 1 ({nothing.total:.0f} s)")
    costs: dict[str, Cost] = {}
    for label, make in chosen.items():
        contender = make(setting.trace)
        cost = costs[label] = run(setting, contender)
        limit = LIMITS.get(label, {}).get(name) if with_limits else None
        report.figure(label, cost.total / nothing.total, "x", most=limit)
        share = sum(cost.rewriting) / cost.total
        report.line(
            f"      rewriting {share:.2f} of it; {cost.rewritten / max(setting.blocks, 1):.2f} rewrites a block"
        )
        if isinstance(contender, Ours) and contender.predicted:
            write_predictions(report, contender.predicted)
    report.figure("oracle: fully sorted for nothing", setting.oracle() / nothing.total, "x")
    if with_limits and name in DRIFTING:
        write_ratios(report, name, costs, setting.oracle())
    return {label: np.cumsum(cost.by_batch) for label, cost in {"NR": nothing, **costs}.items()}


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


def draw(curves: Mapping[str, Mapping[str, np.ndarray]], path: Path) -> None:
    """Write cumulative costs as a picture, one trace a panel."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = [name for name in DRIFTING if name in curves]
    figure = Figure(figsize=(9, 6.5 if len(names) > 1 else 4), layout="constrained")
    panels = np.ravel(figure.subplots(-(-len(names) // 2), min(len(names), 2)))
    for name, axes in zip(names, panels, strict=False):
        found = curves[name]
        axes.plot(found["NR"] / found["NR"][-1], "k:", linewidth=1, label="NR")
        for label in DRAWN:
            axes.plot(found[label] / found["NR"][-1], linewidth=1.2, label=label)
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
