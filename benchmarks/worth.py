"""When a merge along a curve is worth it: measures on streams of appends, by what ranges read and what is rewritten.

Rows have two columns and lie along a Hilbert curve. 60 appends of 4 full blocks each; after each the policy runs until
it wants nothing. What a 1 % range of one column reads is counted after every append, over 100 places of each column,
and averaged over the last three quarters, both columns and two seeds. Measures:

- *curve*: depth on the curve alone, as for any key.
- *boxes*: a group is left alone, too, if its boxes have a mean depth of at most 1.25 (cells of a curve have 1.2).
- *reads N*: it is left alone if ranges of one column meet at most N times as many of its blocks as of a grid's
  (`tblctl.selector.box_test`, which uses 1.3).

A cell of the table is "rows rewritten per row appended / blocks read". *unmerged* is what ranges read without merges.
The last part adds up all streams and policies: what each measure rewrites, as a share of what the curve's depth alone
does; what is read, as the mean of such shares; and the blocks that a range is spared per row rewritten.

- *uniform*: both columns anywhere. *time*: the first column rises from append to append, the second is anywhere.
- *late*: as time, but a row is late by 2 % of all time on average. *skewed*: as time, the second column exponential.
- *areas*: each append has an area of its own, of the size that 60 of them cover everything. *diagonal*: the second
  column follows the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Report, main
from tblctl.metrics.boxes import Boxes, box_figures
from tblctl.metrics.intervals import Integers
from tblctl.selector import box_test
from tblctl.selector.draft import Draft
from tblctl.selector.options import parts
from tblctl.selector.policy import Decision
from tblctl.selector.registry import policy_named
from tblctl.selector.table_view import TableView
from tblctl.selector.traces.events import BLOCK_ROWS, Event
from tblctl.selector.traces.table import KeyTable
from tblctl.tableformat.keys.curves import hilbert_numbers, interleaved

BITS = 10  # of a place on the curve
SIDE = 1 << BITS
APPENDS, BLOCKS, SEEDS = 60, 4, (0, 1)
PLACES = 100  # of ranges, in each column
SHARE = 0.01
BOX_DEPTH = 1.25
RATIOS = (1.3, 1.6, 2.0)
POLICIES: tuple[tuple[str, dict[str, float]], ...] = (
    ("levels", {}),
    ("levels", {"threshold": 3}),
    ("runs", {"target_depth": 2}),
    ("runs", {"target_depth": 4}),
    ("depth", {"clustering_depth": 3}),
)

Points = tuple[np.ndarray, np.ndarray]
Spared = Callable[[TableView, Draft], bool]
Choose = Callable[[KeyTable], Sequence[Draft]]


def places_on_curve() -> tuple[Integers, Integers]:
    """Return the number on the curve of each cell (row by row), and the cell of each number."""
    x, y = np.divmod(np.arange(SIDE * SIDE), SIDE)
    numbers = hilbert_numbers(interleaved(0, 2, x) | interleaved(1, 2, y), axes=2, bits=BITS).astype(np.int64)
    cells = np.empty_like(numbers)
    cells[numbers] = np.arange(SIDE * SIDE)
    return numbers, cells


NUMBERS, CELLS = places_on_curve()


def uniform(rng: np.random.Generator, _: float, count: int) -> Points:
    return rng.random(count), rng.random(count)


def time(rng: np.random.Generator, begun: float, count: int) -> Points:
    return begun + rng.random(count) / APPENDS, rng.random(count)


def late(rng: np.random.Generator, begun: float, count: int) -> Points:
    x, y = time(rng, begun, count)
    return x - rng.exponential(0.02, count), y


def skewed(rng: np.random.Generator, begun: float, count: int) -> Points:
    return time(rng, begun, count)[0], rng.exponential(0.15, count)


def areas(rng: np.random.Generator, _: float, count: int) -> Points:
    side = APPENDS**-0.5
    corner = rng.random(2) * (1 - side)
    return corner[0] + side * rng.random(count), corner[1] + side * rng.random(count)


def diagonal(rng: np.random.Generator, begun: float, count: int) -> Points:
    x, _ = time(rng, begun, count)
    return x, x + rng.normal(0, 0.01, count)


STREAMS = {item.__name__: item for item in (uniform, time, late, skewed, areas, diagonal)}


def events(stream: str, seed: int, appends: int) -> Iterator[Event]:
    rng = np.random.default_rng(seed)
    for number in range(appends):
        points = STREAMS[stream](rng, number / APPENDS, BLOCKS * BLOCK_ROWS)
        x, y = (np.clip((values * SIDE).astype(np.int64), 0, SIDE - 1) for values in points)
        yield Event(runs=(np.sort(NUMBERS[x * SIDE + y] + rng.random(x.size) / 2),))


def ends_of(table: KeyTable) -> tuple[Integers, Integers]:
    """Return the least and greatest place of each block, a row for each column."""
    places = [np.divmod(CELLS[keys.astype(np.int64)], SIDE) for keys in table.keys]
    low, high = (
        np.array([[end(column) for column in block] for block in places]).T for end in (np.min, np.max)
    )
    return low, high


def boxes_in(low: Integers, high: Integers, view: TableView, blocks: Integers) -> Boxes:
    return Boxes(
        low=tuple(low[:, blocks]),
        high=tuple(high[:, blocks]),
        row_count=view.row_count[blocks],
        partition=view.partition[blocks],
    )


def nothing_is_spared(_view: TableView, _draft: Draft) -> bool:
    return False


def shallow_boxes(view: TableView, draft: Draft) -> bool:
    assert view.boxes_of is not None
    boxes = view.boxes_of(draft.blocks)
    assert boxes is not None
    return draft.blocks.size > 1 and (box_figures("xy", boxes).depth.mean or 0) <= BOX_DEPTH


def good_reads(ratio: float, view: TableView, draft: Draft) -> bool:
    reads = box_test.reads_of(view, draft)
    return reads is not None and reads.now <= ratio * reads.best


MEASURES: dict[str, Spared] = {
    "curve": nothing_is_spared,
    "boxes": shallow_boxes,
    **{f"reads {ratio:g}": partial(good_reads, ratio) for ratio in RATIOS},
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Rows rewritten per row appended, and blocks that a range of one column reads."""

    rewritten: float
    read: float


def replayed(stream: str, choose: Choose, seed: int, appends: int) -> Outcome:
    table, arrived, rewritten, read = KeyTable(), 0, 0, []
    for event in events(stream, seed, appends):
        arrived += table.ingest(event)
        while drafts := choose(table):
            rewritten += table.merge(drafts)
        read.append(blocks_read(table))
    return Outcome(rewritten=rewritten / arrived, read=float(np.mean(read[len(read) // 4 :])))


def never(_table: KeyTable) -> Sequence[Draft]:
    return ()


def chosen(name: str, options: dict[str, float], spared: Spared, table: KeyTable) -> Sequence[Draft]:
    """Return the groups of a plan, as `box_test.worth_reading` does for another measure."""
    policy = policy_named(name)
    asked = parts(policy, options)
    ends = ends_of(table)
    view = table.view()
    view = replace(view, boxes_of=partial(boxes_in, *ends, view))
    settled = np.zeros(len(view), np.bool_)
    words: dict[str, Any] = {"workload": None, "state": None, "rates": None, "now": 0.0, "rng": lambda: 0.5}
    for _ in range(box_test.MOST_ROUNDS):
        seen = replace(view, settled=settled.copy())
        decision: Decision = policy.decide(seen, asked.budget, asked.policy, **words)
        good = [draft for draft in decision.drafts if not spared(seen, draft)]
        if good or not decision.drafts:
            return good
        for draft in decision.drafts:
            settled[draft.blocks] = True
    return ()


def blocks_read(table: KeyTable) -> float:
    """Return how many blocks a range of one column meets on average."""
    low, high = ends_of(table)
    columns = np.divmod(CELLS[np.concatenate(table.keys).astype(np.int64)], SIDE)
    at = np.linspace(0, 1 - SHARE, PLACES)
    met = [
        (begins[:, None] <= np.quantile(values, at + SHARE)) & (ends[:, None] >= np.quantile(values, at))
        for values, begins, ends in zip(columns, low, high, strict=True)
    ]
    return float(np.mean(met)) * len(table)


def measure(report: Report, tiny: bool) -> None:
    appends, seeds = (3, SEEDS[:1]) if tiny else (APPENDS, SEEDS)

    def mean(stream: str, choose: Choose) -> Outcome:
        found = [replayed(stream, choose, seed, appends) for seed in seeds]
        rewritten, read = ([getattr(item, name) for item in found] for name in ("rewritten", "read"))
        return Outcome(rewritten=float(np.mean(rewritten)), read=float(np.mean(read)))

    unmerged = {stream: mean(stream, never).read for stream in STREAMS}
    everything: dict[str, list[tuple[float, Outcome]]] = {name: [] for name in MEASURES}
    for policy, options in POLICIES:
        report.begin(" ".join([policy, *(f"{name} {value:g}" for name, value in options.items())]))
        report.line(f"  {'':<10}{'unmerged':>9}" + "".join(f"{name:>14}" for name in MEASURES))
        for stream in STREAMS:
            cells = ""
            for name, spared in MEASURES.items():
                item = mean(stream, partial(chosen, policy, options, spared))
                everything[name].append((unmerged[stream], item))
                cells += f"{f'{item.rewritten:.2f} /{item.read:5.1f}':>14}"
            report.line(f"  {stream:<10}{unmerged[stream]:9.1f}{cells}")
    sum_up(report, everything)


def sum_up(report: Report, everything: dict[str, list[tuple[float, Outcome]]]) -> None:
    report.begin("all policies and streams, compared with curve")
    base = [item for _, item in everything["curve"]]
    for name, items in everything.items():
        spent = sum(item.rewritten for _, item in items)
        spared = sum(before - item.read for before, item in items)
        read = float(np.mean([item.read / other.read for (_, item), other in zip(items, base, strict=True)]))
        report.line(
            f"  {name:<10} rewritten {spent / sum(item.rewritten for item in base):5.2f} x   read {read:5.2f} x   "
            f"blocks spared per row rewritten {spared / max(spent, 1e-9):6.2f}"
        )


if __name__ == "__main__":
    main("worth", measure)
