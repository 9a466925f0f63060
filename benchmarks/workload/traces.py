"""Traces of workloads: what arrives in each batch, and what is asked after it. One seed gives one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tblctl.selector.workload.asked import Floats, Key

MONTH = 30
BATCHES = 72
PERIOD = 12
SHARES = (0.28, 0.264, 0.25, 0.30, 0.35, 0.29, 0.25, 0.27)
"""Of lineitem's bytes: the columns of TPC-H's queries 1, 3, 6, 7, 14, 15, 20, 12."""

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A query: closed ranges by column number, and the share of a block's bytes that it reads."""

    ranges: dict[int, Range]
    share: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What arrives at once, and what is asked then. `rows` has the shape (columns, rows)."""

    rows: Floats
    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A workload.

    Attributes:
        name: what results call it.
        columns: their names; the order is that of the key numbers.
        batches: given a seed and the rows of a block, yields batch by batch.
        seed: the one that results are of.
        watched, acted: the batches from which on policies watch, and may act.
        counted: the batch from which on costs count.
        key: the best single key of a batch.
        periods: the batches at which a new period begins.
    """

    name: str
    columns: tuple[str, ...]
    batches: Callable[[Any, int], Iterator[Batch]]
    seed: int
    watched: int
    acted: int
    counted: int
    key: Callable[[int], Key]
    periods: tuple[int, ...] = ()


SHIP, COMMIT = 1, 2


def _lineitem(rng: Any, block_rows: int, *, fixed: bool) -> Iterator[Batch]:
    asked: dict[tuple[int, bool], tuple[int, Range]] = {}
    for batch in range(BATCHES):
        order = np.sort(rng.integers(0, MONTH, 64 * block_rows)) + batch * MONTH
        ship = order + rng.integers(1, 1001, len(order))
        commit = order + rng.integers(30, 91, len(order))
        receipt = ship + rng.integers(1, 31, len(order))
        now = (batch + 1) * MONTH
        shift = 0.25 if batch < 3 * PERIOD else 0.75
        questions = []
        for template, share in enumerate(SHARES):
            for is_global in (True, False):
                column = SHIP if fixed else _column(batch, template)
                slot = template, is_global
                if slot not in asked or asked[slot][0] != column or rng.random() < shift:
                    late = 1000 if column == SHIP else 90
                    start = (
                        rng.uniform(0, now + late - 60)
                        if is_global
                        else max(now - MONTH * (1 + rng.zipf(2)), 0)
                    )
                    asked[slot] = column, (float(np.floor(start)), float(np.floor(start)) + 60)
                questions.append(Question(ranges=dict([asked[slot]]), share=share))
        rows = np.array([order, ship, commit, receipt], float)
        yield Batch(rows=rows, questions=tuple(questions))


def _column(batch: int, template: int) -> int:
    period = batch // PERIOD + 1
    if period == 5 or (period == 6 and (template + batch) % 3 == 2):
        return COMMIT
    return SHIP


def _lineitem_key(batch: int) -> Key:
    return {5: (COMMIT,), 6: (SHIP, COMMIT)}.get(batch // PERIOD + 1, (SHIP,))


DATE, ITEM, CUSTOMER, PRICE = range(4)
_EXTRAS = (
    {ITEM: 0.10},
    {ITEM: 0.05},
    {CUSTOMER: 0.10},
    {CUSTOMER: 0.02},
    {PRICE: 0.20},
    {ITEM: 0.10, PRICE: 0.20},
    {CUSTOMER: 0.10, PRICE: 0.20},
)
_SPANS = {ITEM: 1000, CUSTOMER: 10_000, PRICE: 200}


def _sales(rng: Any, block_rows: int) -> Iterator[Batch]:
    weights = 1 / np.arange(1, 1001) ** 1.3
    weights /= weights.sum()
    shares = rng.uniform(0.12, 0.4, 10)

    def rows(dates: Floats) -> Floats:
        count = len(dates)
        items = rng.choice(1000, count, p=weights)
        return np.array(
            [np.floor(dates), items, rng.integers(0, 10_000, count), rng.exponential(50, count)], float
        )

    sigma = 2 * MONTH
    for batch in range(-1, BATCHES):
        if batch < 0:
            yield Batch(rows=rows(rng.uniform(0, BATCHES * MONTH, 36 * 48 * block_rows)), questions=())
            continue
        middle = (batch + 0.5) * MONTH
        extras = [_EXTRAS[number] for number in rng.permutation(len(_EXTRAS))[:6]] + [{}] * 4
        questions = []
        for share, extra in zip(shares, extras, strict=True):
            start = np.floor(rng.normal(middle, sigma)) - 30
            ranges: dict[int, Range] = {DATE: (start, start + 60)}
            for column, part in extra.items():
                span = _SPANS[column]
                begin = np.floor(rng.uniform(0, span * (1 - part)))
                ranges[column] = begin, begin + part * span
            questions.append(Question(ranges=ranges, share=float(share)))
        yield Batch(rows=rows(rng.normal(middle, sigma, 48 * block_rows)), questions=tuple(questions))


TIME, ADDRESS = 0, 1
_NETWORK = 2**16


def _mirrors(rng: Any, block_rows: int) -> Iterator[Batch]:
    networks = rng.permutation(2**15)[:20_000]
    base = 1 / np.arange(1, 20_001)
    for day in range(120):
        weights = base * rng.lognormal(0, 0.5, len(base))
        count = 48 * block_rows
        drawn = networks[rng.choice(len(networks), count, p=weights / weights.sum())]
        address = drawn * _NETWORK + np.minimum(rng.zipf(1.5, count), _NETWORK - 1)
        minute = np.sort(rng.integers(0, 1440, count)) / 1440 + day
        interest = weights**0.62
        questions = []
        for network in networks[rng.choice(len(networks), 10, p=interest / interest.sum())]:
            begin = float(network * _NETWORK)
            ranges: dict[int, Range] = {ADDRESS: (begin, begin + _NETWORK - 1)}
            for share in (0.05, 0.15, 0.35, 0.2):
                recent = {TIME: (day - 6.0, day + 1.0)} if rng.random() < 0.3 else {}
                questions.append(Question(ranges=ranges | recent, share=share))
        yield Batch(rows=np.array([minute, address], float), questions=tuple(questions))


_STATIC_BLOCKS, _ROUNDS, _ASKED = 768, 60, 16


def _static(rng: Any, block_rows: int, *, kind: str) -> Iterator[Batch]:
    """Columns: time, a, b. Nothing arrives after the first batch."""
    count = _STATIC_BLOCKS * block_rows
    time = np.arange(count) / count
    a = np.sort(rng.random(count)) if kind == "static" else rng.random(count)
    rows = np.array([time, a, rng.random(count)])

    def ranged(width: float) -> Range:
        start = rng.uniform(0, 1 - width)
        return start, start + width

    def ranges(place: int) -> dict[int, Range]:
        if kind == "both":
            return {1: ranged(0.14), 2: ranged(0.14)}
        if kind == "static":
            return {1: ranged(0.02)}
        column = 1 + place % 2
        if kind == "split":
            return {0: (0.0, 0.5) if column == 1 else (0.5, 1.0), column: ranged(0.02)}
        return {column: ranged(0.02)}

    for number in range(_ROUNDS):
        questions = tuple(Question(ranges=ranges(place), share=0.27) for place in range(_ASKED))
        yield Batch(rows=rows if not number else rows[:, :0], questions=questions)


def _small(kind: str, key: Key) -> Trace:
    return Trace(
        name=kind,
        columns=("time", "a", "b"),
        batches=lambda rng, block_rows: _static(rng, block_rows, kind=kind),
        seed=5,
        watched=0,
        acted=0,
        counted=1,
        key=lambda _: key,
    )


_LINEITEM = {
    "columns": ("orderdate", "shipdate", "commitdate", "receiptdate"),
    "seed": 1,
    "watched": PERIOD,
    "acted": 2 * PERIOD,
    "counted": 2 * PERIOD,
    "periods": (24, 36, 48, 60),
}

TRACES: dict[str, Trace] = {
    trace.name: trace
    for trace in (
        Trace(
            name="TPC-H",
            batches=lambda rng, block_rows: _lineitem(rng, block_rows, fixed=False),
            key=_lineitem_key,
            **_LINEITEM,
        ),
        Trace(
            name="fixed key",
            batches=lambda rng, block_rows: _lineitem(rng, block_rows, fixed=True),
            key=lambda _: (SHIP,),
            **_LINEITEM,
        ),
        Trace(
            name="DSB",
            columns=("sold_date", "item", "customer", "price"),
            batches=_sales,
            seed=2,
            watched=1 + PERIOD,
            acted=1 + 2 * PERIOD,
            counted=1 + 2 * PERIOD,
            key=lambda _: (DATE,),
            periods=tuple(1 + period for period in (24, 36, 48, 60)),
        ),
        Trace(
            name="Mirrors",
            columns=("time", "address"),
            batches=_mirrors,
            seed=3,
            watched=20,
            acted=30,
            counted=30,
            key=lambda _: (ADDRESS,),
            periods=(30, 60, 90),
        ),
        _small("split", (1,)),
        _small("alternating", (1, 2)),
        _small("both", (1, 2)),
        _small("static", (1,)),
    )
}
