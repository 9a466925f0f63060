"""Box depth and shares read of 10^5 and 10^6 blocks: processor time and memory; how far samples and estimates are off.

Time is processor time of one thread. Memory is the peak of what the work allocates beyond its input.

Layouts, in 2 to 4 columns:

- `tiles`: a grid whose tiles overlap a little (a table in good order).
- `crossing`: boxes of all sizes up to four tiles of a side, anywhere.
- `slices`: sorted by the last column; by the others each block holds nearly everything.
- `arrivals`: each block holds nearly everything of every column (rows were never sorted).
- `random`: both ends anywhere.

From keys: as `info` measures a version, with the ranks of its bounds.

Samples: the mean box depth of samples less the exact one, in standard errors as stated.

Shares: rows are drawn and put into blocks, in several orders (`tiles`: by one column, and slabs of these by the other).
What ranges of 1 % of the rows read is counted, over 300 places of each column, and compared with the estimate, which
has the bounds of the blocks alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import Report, main
from benchmarks.metrics import peak_mib, processor_seconds
from tblctl.maintain.boxes import boxes_of
from tblctl.metrics.boxes import EXACT_CENTRES, SELECTIVITY, Boxes, BoxFigures, box_figures
from tblctl.metrics.intervals import Integers
from tblctl.tableformat.keys.curves import hilbert_numbers, interleaved
from tblctl.tableformat.model.schema.schema import Schema, parse_schema
from tblctl.tableformat.port import Listing

MILLION = 1_000_000
LAYOUTS = ("tiles", "crossing", "slices", "arrivals", "random")
MOST_SECONDS = 5.0
MOST_MIB = 1024.0
RANGE = MILLION * MILLION
PLACES = 300
ORDERS = ("arrival", "a", "tiles", "zorder", "hilbert")
BITS = 10  # of a place on a curve


def measure(report: Report, tiny: bool) -> None:
    sizes = (500, 3000) if tiny else (EXACT_CENTRES, MILLION)
    exact = 1000 if tiny else EXACT_CENTRES
    for columns in (2, 3, 4):
        report.begin(
            f"{columns} columns, ranks at hand: processor seconds of the fastest of 3 runs, and memory"
        )
        for layout in LAYOUTS:
            for size in sizes:
                boxes = boxes_from(*make_ends(layout, size, columns))
                how = "all" if size <= exact else "sampled"
                work = partial(box_figures, "abcd"[:columns], boxes, exact=exact)
                one_figure(report, f"{layout}, {size:,} blocks ({how})", work)
    report.begin("from keys: processor seconds of the fastest of 3 runs, and memory")
    for kind, columns in (("int64", 2), ("int64", 4), ("string", 2)):
        version = make_version(kind, sizes[-1], columns)
        ids = range(1, columns + 1)
        one_figure(report, f"{columns} x {kind}, {sizes[-1]:,} blocks", partial(boxes_of, version, ids))
    report.begin("samples: mean box depth less the exact one, in standard errors")
    for layout in LAYOUTS:
        boxes = boxes_from(*make_ends(layout, sizes[0], 2))
        found = box_figures("ab", boxes, exact=1, samples=100 if tiny else 20_000).depth
        truth = box_figures("ab", boxes).depth.mean
        off = abs(float(found.mean or 0) - float(truth or 0)) / max(found.standard_error or 0.0, 1e-4)
        report.figure(
            f"{layout}: {truth:,} exactly, {found.mean:,} sampled", off, "", most=None if tiny else 3
        )
    check_shares(report, tiny=tiny)


def one_figure(report: Report, name: str, work: Callable[[], BoxFigures]) -> None:
    seconds = min(processor_seconds(work) for _ in range(3))
    report.figure(name, seconds, "s", most=MOST_SECONDS)
    report.figure("  memory beyond the input", peak_mib(work), "MiB", most=MOST_MIB)


def make_ends(layout: str, size: int, columns: int) -> tuple[Integers, Integers]:
    """Return where blocks begin and end: a row for each column."""
    rng = np.random.default_rng(0)
    shape = (columns, size)
    side = max(1, round(size ** (1 / columns)))
    tile = RANGE // side
    if layout == "tiles":
        places = rng.permutation(size)
        low = np.stack([places // side**column % side * tile for column in range(columns)])
        return low, low + tile + rng.integers(0, tile // 4, shape)
    if layout == "crossing":
        low = rng.integers(0, RANGE, shape)
        return low, low + rng.integers(0, 4 * tile, shape)
    if layout == "random":
        ends = np.sort(rng.integers(0, RANGE, (2, *shape)), axis=0)
        return ends[0], ends[1]
    low, high = rng.integers(0, 1000, shape), RANGE - rng.integers(0, 1000, shape)
    if layout == "slices":
        low[-1] = np.sort(rng.integers(0, RANGE, size))
        high[-1] = low[-1] + RANGE // size
    return low, high


def boxes_from(low: Integers, high: Integers) -> Boxes:
    count = low.shape[1]
    ranks = [
        np.unique(np.concatenate(pair), return_inverse=True)[1].astype(np.int64)
        for pair in zip(low, high, strict=True)
    ]
    return Boxes(
        low=tuple(item[:count] for item in ranks),
        high=tuple(item[count:] for item in ranks),
        row_count=np.random.default_rng(1).integers(500_000, MILLION, count),
        partition=np.zeros(count, np.int64),
    )


def make_version(kind: str, size: int, columns: int) -> Any:
    """Return what `boxes_of` needs of a version: its schema and its blocks."""
    low, high = (
        pa.table([make_column(kind, ends) for ends in side], [str(place) for place in range(columns)])
        for side in make_ends("crossing", size, columns)
    )
    no, yes, zeros = np.zeros(size, bool), np.ones(size, bool), np.zeros(size, np.int64)
    listing = Listing(
        paths=pa.nulls(size, pa.string()),
        low=low,
        high=high,
        own=no,
        sort_id=zeros,
        known=yes,
        exact=yes,
        level=zeros,
        stored_rows=np.full(size, MILLION),
        size_bytes=zeros,
        decoded_bytes=zeros,
        same_key_rows=zeros,
        matched=None,
    )
    schema = Schema.create(parse_schema(", ".join(f"{name}: {kind}" for name in "abcd"[:columns])))
    return SimpleNamespace(schema=schema, listing=lambda *_, **__: listing)


def make_column(kind: str, ends: Integers) -> pa.Array:
    if kind == "string":
        digits = pc.utf8_lpad(pa.array(ends).cast(pa.string()), width=14, padding="0")
        return pc.binary_join_element_wise("customer", digits, "-")
    return pa.array(ends)


def check_shares(report: Report, *, tiny: bool) -> None:
    rng = np.random.default_rng(2)
    for blocks in (25,) if tiny else (196, 2500):
        shape = (2, blocks * (40 if tiny else 1000))
        for name, columns in (("even", rng.random(shape)), ("skewed", rng.lognormal(0, 2, shape))):
            report.begin(f"share of {blocks:,} blocks that a range of 1 % of the rows reads, {name} values")
            for order in ORDERS:
                one_order(report, order, columns, blocks)


def one_order(report: Report, order: str, columns: np.ndarray, blocks: int) -> None:
    by_block = columns[:, put_in_order(order, columns, blocks)].reshape(2, blocks, -1)
    low, high = by_block.min(axis=2), by_block.max(axis=2)
    reads = box_figures("ab", boxes_from(low, high)).reads
    for read, counted in zip(reads, counted_shares(columns, low, high), strict=True):
        estimate = read.share or 0.0
        report.line(
            f"  {order:<8} range of {', '.join(read.columns):<5} counted {counted:9.4%}   "
            f"estimated {estimate:9.4%}   off by {estimate / counted - 1:+6.1%}   at best {read.best:9.4%}"
        )


def put_in_order(order: str, columns: np.ndarray, blocks: int) -> Integers:
    """Return the rows in an order."""
    by_first = np.argsort(columns[0])
    if order == "arrival":
        return np.arange(columns.shape[1])
    if order == "a":
        return by_first
    if order == "tiles":
        slabs = by_first.reshape(round(blocks**0.5), -1)
        return np.concatenate([slab[np.argsort(columns[1, slab])] for slab in slabs])
    ranks = np.argsort(np.argsort(columns, axis=1), axis=1)
    places = (ranks << BITS) // columns.shape[1]
    numbers = interleaved(0, 2, places[0]) | interleaved(1, 2, places[1])
    return np.argsort(numbers if order == "zorder" else hilbert_numbers(numbers, axes=2, bits=BITS))


def counted_shares(columns: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[float]:
    """Return the share of blocks that ranges meet: of each column, then of both. All pairs of places count."""
    met = []
    for values, begins, ends in zip(columns, low, high, strict=True):
        at = np.linspace(0, 1 - SELECTIVITY, PLACES)
        first, last = np.quantile(values, at), np.quantile(values, at + SELECTIVITY)
        met.append((begins[:, None] <= last) & (ends[:, None] >= first))
    both = met[0].mean(axis=1) * met[1].mean(axis=1)
    return [*(float(item.mean()) for item in met), float(both.mean())]


if __name__ == "__main__":
    main("boxes", measure)
