"""The interval index at 10^4 to 10^6 blocks: the time of an edit, against measuring the whole table again.

An edit removes 100 blocks and adds 100. In `near` all lie in one hundredth of the ranks, and the added blocks are a
sorted run over this range, as after a merge. In `apart` they lie anywhere, in a hundred regions. The blocks are those
of the subject `metrics`: `arrivals`, where each block overlaps about 14 others, with dense ranks or with gaps for later
keys.

Measuring again means `overlaps_and_depths` if ranks are known, and `key_ranks` first if keys are new, as after a merge.
Times are processor time: the median of 5 edits, the mean of 1000 queries.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.common import Report, main
from benchmarks.metrics import MILLION, make_keys, make_ranges, peak_mib, processor_seconds
from tblctl.metrics.index import IntervalIndex
from tblctl.metrics.intervals import Integers, overlaps_and_depths
from tblctl.tableformat.keys.order import key_ranks

SIZES = (10_000, 100_000, MILLION)
EDIT_BLOCKS = 100
EDITS = 5
QUERIES = 1000
LIMIT_SECONDS = 0.050  # an edit near, at a million blocks


def measure(report: Report, tiny: bool) -> None:
    for layout in ("arrivals", "sparse"):
        for size in (5000,) if tiny else SIZES:
            report.begin(f"{layout}, {size:,} blocks")
            low, high = make_ranges(layout, size)
            make = partial(IntervalIndex, low, high)
            report.figure("construction", processor_seconds(make), "s")
            report.figure("  memory", peak_mib(make), "MiB")
            again = measure_again(report, size, low, high)
            found = make()
            left = np.ones(size, bool)
            for place in ("near", "apart"):
                seconds = median_edit_seconds(found, place, low, high, left)
                limit = LIMIT_SECONDS if (place, size) == ("near", MILLION) else None
                report.figure(f"an edit, {place}", seconds, "s", most=limit)
                for name, whole in again.items():
                    report.figure(f"  measuring again {name} takes", whole / seconds, "times that")
            measure_queries(report, found, int(high.max()))


def measure_again(report: Report, size: int, low: Integers, high: Integers) -> dict[str, float]:
    """Return the seconds of measuring all blocks, from ranks and from keys."""
    keys = make_keys("int64", size)
    works: dict[str, Callable[[], object]] = {
        "from ranks": partial(overlaps_and_depths, low, high),
        "from keys": lambda: overlaps_and_depths(*key_ranks(*keys)),
    }
    again = {name: min(processor_seconds(work) for _ in range(3)) for name, work in works.items()}
    for name, seconds in again.items():
        report.figure(f"measuring again {name}", seconds, "s")
    return again


def median_edit_seconds(
    found: IntervalIndex, place: str, low: Integers, high: Integers, left: npt.NDArray[np.bool_]
) -> float:
    """Edit at different places. `left` marks the first blocks that are still there."""
    rng = np.random.default_rng(2)
    span = int(high.max())
    seconds = []
    for number in range(EDITS):
        begin = span * (number + 1) // (EDITS + 2) if place == "near" else 0
        end = begin + span // 100 if place == "near" else span
        inside = np.flatnonzero(left & (low >= begin) & (high <= end))
        removed = rng.choice(inside, min(EDIT_BLOCKS, inside.size // 2), replace=False)
        left[removed] = False
        if place == "near":
            cuts = np.sort(rng.integers(begin, end, removed.size + 1))
            work = partial(found.replace, removed, cuts[:-1], cuts[1:])
        else:
            work = partial(found.replace, removed, low[removed], (low[removed] + high[removed]) // 2)
        seconds.append(processor_seconds(work))
    return statistics.median(seconds)


def measure_queries(report: Report, found: IntervalIndex, span: int) -> None:
    points = np.random.default_rng(3).integers(0, span, QUERIES).tolist()
    queries: dict[str, Callable[[int], object]] = {
        "the depth at a point": lambda point: found.count(point, point),
        "the blocks at a point": lambda point: found.overlapping(point, point),
        "the blocks over a thousandth of the ranks": lambda point: found.overlapping(
            point, point + span // 1000
        ),
    }
    for name, query in queries.items():
        seconds = processor_seconds(partial(deque, map(query, points), 0))
        report.figure(name, seconds / QUERIES * 1e6, "us")


if __name__ == "__main__":
    main("index", measure)
