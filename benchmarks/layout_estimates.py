"""The estimates of `tblctl suggest --layouts`, against what conditions read of rows that were really sorted.

A table is written in arrival order, and layouts are ranked from a sample of it, by the code of the command. Then all
rows are put in the order of each candidate and cut into blocks of equal size. A block is read unless its bounds, or its
leaves, rule a condition out, by the code of scans. Boundaries of curves and trees are made anew from all rows, so they
are not those of the sample.

- *lineitem*: TPC-H's, joined with what its queries test, in the order of order keys; draws of the conditions of Q1, 3,
  6, 12, 14 and 20, and ranges (see `qdtree.py`).
- *skewed*: rows in the order of a time whose rate grows exponentially; customers by Zipf's law (exponent 1.2), amounts
  log-normal, states that few rows have. Ranges that hold 0.1 to 10 % of the rows, on one column and on two.

The error of a condition is that of its share of the blocks, as a share of the real one. That of a layout is the error
of the average over all conditions, by which layouts rank. *chosen* is what the first layout really reads, as a multiple
of what the really best of all candidates does.

The sample has 131,072 rows as the command takes it; or 4,096, 32 for each block, the least that the command counts a
block by.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import mean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tblctl
from benchmarks.common import Report, main, scratch
from benchmarks.qdtree import QUERIES, draw, joined, resolved, sort_of, tree_sort
from tblctl.advise.arranged import Arranged, Rows
from tblctl.advise.layout_sample import SampleLimits
from tblctl.advise.layouts import LayoutEstimate, Layouts, rank_layouts
from tblctl.advise.suggest import read_predicates, suggest
from tblctl.tableformat.model.cluster_key import Sort, parse_key
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.statistics import NONE
from tblctl.tableformat.model.tree import TREE
from tblctl.tableformat.predicate.match import match

SCALE, TINY_SCALE = "0.1", "0.001"
BLOCKS, TINY_BLOCKS = 128, 16
DRAWS, TINY_DRAWS = 4, 1  # of each query
RANGES, TINY_RANGES = 24, 2
MOST_MEDIAN = 0.15
NEARLY_ALL = 0.9  # of the blocks: conditions that read more tell little, and are also left out
LIMITS = {
    "131,072 rows": SampleLimits(),
    "4,096 rows": SampleLimits(places=64, rows=1 << 12),
}
SELECTIVITIES = (0.001, 0.01, 0.1)


@dataclass
class Errors:
    """Relative errors of some layouts: of each condition, and of averages."""

    conditions: list[float] = field(default_factory=list)
    averages: list[float] = field(default_factory=list)

    @property
    def both(self) -> tuple[list[float], list[float]]:
        return self.conditions, self.averages


def measure(report: Report, tiny: bool) -> None:
    blocks = TINY_BLOCKS if tiny else BLOCKS
    by_kind: dict[str, Errors] = defaultdict(Errors)
    selective: list[float] = []
    for name, (table, conditions) in data_sets(tiny).items():
        report.begin(f"{name}: {len(table):,} rows in {blocks} blocks, {len(conditions)} conditions")
        real = Real(table, conditions, blocks)
        for size, ranking in rankings(table, conditions, blocks).items():
            reads = {item.key: real.shares(item) for item in ranking.candidates}
            report.line(f"  sample of {size}; blocks that a condition reads: estimated, real, error")
            for item in ranking.candidates:
                estimated, found = item.average_read_share, mean(reads[item.key])
                error = estimated / found - 1
                report.line(f"    {item.key:<52} {estimated:7.2%} {found:7.2%} {error:+8.1%}")
                by_kind[item.kind].averages.append(abs(error))
                for guess, share in zip(item.read_share, reads[item.key], strict=True):
                    each = abs(guess - share) / share if share else float(guess > 0)
                    by_kind[item.kind].conditions.append(each)
                    if share <= NEARLY_ALL:
                        selective.append(each)
            averages = [mean(shares) for shares in reads.values()]
            report.figure("  chosen / best", averages[0] / min(averages), "x")
    summarize(report, by_kind, selective, tiny=tiny)


def summarize(report: Report, by_kind: Mapping[str, Errors], selective: list[float], *, tiny: bool) -> None:
    everything = [error for errors in by_kind.values() for error in errors.conditions]
    report.begin("relative errors          conditions: median, p90    layouts: median, p90")
    for kind, errors in sorted(by_kind.items()):
        cells = "".join(f"{median(each):15.3f}{p90(each):8.3f}" for each in errors.both)
        report.line(f"  {kind:<10}{cells}   of {len(errors.conditions):,} and {len(errors.averages)}")
    most = None if tiny else MOST_MEDIAN
    report.figure("  all conditions, median", median(everything), "", most=most)
    report.figure("  all conditions, p90", p90(everything), "")
    report.figure("  those that read at most 90 %, median", median(selective), "", most=most)
    report.figure("  those that read at most 90 %, p90", p90(selective), "")


def p90(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.9))


def rankings(table: pa.Table, conditions: Sequence[str], blocks: int) -> dict[str, Layouts]:
    """Return the layouts as ranked from samples of a table of these rows in their order."""
    block_rows = -(-len(table) // blocks)
    samples = dict([*LIMITS.items()][-1:] if blocks == TINY_BLOCKS else LIMITS)
    with scratch() as folder:
        options = {"block_rows": block_rows, "row_group_rows": max(block_rows // 4, 1)}
        made = tblctl.create(str(folder / "table"), table.schema, options=options)
        made.append(table)
        port = made._port  # noqa: SLF001
        version = port.newest()
        given = read_predicates(conditions, version.schema)
        suggestion = suggest(version, given, ())
        io = port.block_io(version)
        return {
            size: rank_layouts(io, version, given, suggestion, limits) for size, limits in samples.items()
        }


class Real:
    """All rows, to be really sorted. The shares that conditions read are kept by key."""

    def __init__(self, table: pa.Table, conditions: Sequence[str], blocks: int) -> None:
        self._rows = Rows(schema=Schema.create(table.schema), table=table)
        self._conditions, self._blocks = conditions, blocks
        self._nodes = [resolved(text, self._rows) for text in conditions]
        self._found: dict[str, list[float]] = {}

    def shares(self, layout: LayoutEstimate) -> list[float]:
        """Return for each condition the share of the blocks that it reads."""
        if layout.key not in self._found:
            arranged = Arranged(self._rows, self._sort(layout), self._blocks)
            outcomes = [match(node, arranged, self._rows.schema).outcome for node in self._nodes]
            self._found[layout.key] = [float(np.mean(outcome != NONE)) for outcome in outcomes]
        return self._found[layout.key]

    def _sort(self, layout: LayoutEstimate) -> Sort:
        if layout.kind != TREE:
            return sort_of(self._rows, layout.key)
        tree = parse_key(layout.key, self._rows.schema).tree
        assert tree is not None
        return tree_sort(self._rows, self._conditions, self._blocks, by=tree.by)


def data_sets(tiny: bool) -> dict[str, tuple[pa.Table, list[str]]]:
    """Return rows and conditions by a name."""
    rng = random.Random(19)
    items = joined(TINY_SCALE if tiny else SCALE)
    values = {name: sorted(pc.unique(items[name]).to_pylist()) for name in ("p_name", "n_name")}
    draws, count = (TINY_DRAWS, TINY_RANGES) if tiny else (DRAWS, RANGES)
    drawn = [draw(query, rng, values) for query in QUERIES for _ in range(draws)]
    skewed = skewed_rows(len(items))
    names = ("l_shipdate", "o_orderdate", "l_quantity", "l_discount")
    return {
        "lineitem, queries": (items, drawn),
        "lineitem, ranges": (items, ranges_of(items, names, count, rng)),
        "skewed": (
            skewed,
            [*ranges_of(skewed, ("ts", "customer", "amount"), count, rng), *skewed_points(skewed, rng)],
        ),
    }


def skewed_rows(count: int) -> pa.Table:
    """Return rows in the order of a time that grow exponentially more frequent, with skewed columns."""
    rng = np.random.default_rng(19)
    seconds = np.sort(np.log1p(rng.random(count) * 99) / np.log(100) * 365 * 86_400)
    start = datetime(2025, 1, 1, tzinfo=UTC)
    states = np.array(["done", "open", "late", "lost", "held"])
    return pa.table(
        {
            "ts": pa.array((seconds * 1e6).astype(np.int64) + int(start.timestamp() * 1e6)).cast(
                pa.timestamp("us")
            ),
            "customer": np.minimum(rng.zipf(1.2, count), 10**9),
            "amount": np.round(rng.lognormal(3, 2, count), 2),
            "state": pa.array(states[np.searchsorted([0.8, 0.95, 0.99, 0.999], rng.random(count))]),
        }
    )


def skewed_points(rows: pa.Table, rng: random.Random) -> list[str]:
    """Return conditions on single values."""
    customers = [rows["customer"][rng.randrange(len(rows))].as_py() for _ in range(6)]
    end = rows["ts"][-1].as_py()
    return [
        *(f"customer = {customer}" for customer in customers),
        *(
            f"state = '{state}' AND ts >= '{end - timedelta(days=days)}'"
            for state in ("late", "held")
            for days in (1, 9)
        ),
    ]


def ranges_of(rows: pa.Table, columns: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Return ranges of random places that hold some share of the rows, half of them on one column, half on two."""
    ranked = {name: pc.sort_indices(rows[name]) for name in columns}

    def one(name: str) -> str:
        share = rng.choice(SELECTIVITIES)
        first = int(rng.random() * (1 - share) * len(rows))
        ends = [
            rows[name][ranked[name][at].as_py()].as_py() for at in (first, first + int(share * len(rows)))
        ]
        low, high = (str(end) if isinstance(end, int | float) else f"'{end}'" for end in ends)
        return f"{name} BETWEEN {low} AND {high}"

    names = [rng.sample(columns, 1 + at % 2) for at in range(count)]
    return [" AND ".join(one(name) for name in chosen) for chosen in names]


if __name__ == "__main__":
    main("layout_estimates", measure)
