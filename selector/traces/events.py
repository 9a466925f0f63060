"""Traces: what arrives, what is deleted, and when the table is measured. One key column.

Each is made of a numpy Generator, and the draws are made block by block in a fixed order. So a seed gives one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.float64]

Generator: TypeAlias = Any
"""A numpy Generator: the only source of chance."""

BLOCK_ROWS = 256
"""Rows of a full block. They stand for those of a real one."""

MEASURED_EVERY = 8
"""Every so many events queries are asked: the table is measured."""

_APPENDS = 256
_BLOCKS = 4
_HOT_KEY, _HOT_SHARE = 0.5, 0.33
_KEPT = 0.25
_LATE, _LATE_SIGNS = 0.03, (-1.0, 0.2)
_BURSTS, _BURST_APPENDS, _SILENT = 8, 32, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """What happens to a table at once.

    Attributes:
        runs: what arrives, run by run; the keys of a run ascend. A run is cut into blocks.
        delete_below: rows with a smaller key are deleted before; None for none.
        is_measured: queries are asked after it, and after the policy ran.
    """

    runs: tuple[Keys, ...] = ()
    delete_below: float | None = None
    is_measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace.

    Attributes:
        name: what results call it.
        blocks: given a Generator, yields for each event its blocks' keys as drawn, and below which key rows are deleted
            before.
    """

    name: str
    blocks: Callable[[Generator], Iterator[tuple[list[Keys], float | None]]]

    def events(self, rng: Generator, *, sorted_whole: bool = True) -> Iterator[Event]:
        """Yield the events.

        Args:
            rng: the source of chance.
            sorted_whole: the keys of one event are sorted together, and cut into blocks: a run. Else each block is
                sorted alone, and a run of its own.
        """
        for number, (drawn, delete_below) in enumerate(self.blocks(rng)):
            whole = [np.concatenate(drawn)] if sorted_whole and drawn else drawn
            yield Event(
                runs=tuple(np.sort(keys) for keys in whole),
                delete_below=delete_below,
                is_measured=number % MEASURED_EVERY == MEASURED_EVERY - 1,
            )


def _appends(draw: Callable[[Generator, float], Keys], rng: Generator) -> Iterator[list[Keys]]:
    for number in range(_APPENDS):
        yield [draw(rng, number / _APPENDS) for _ in range(_BLOCKS)]


def _steady(
    draw: Callable[[Generator, float], Keys],
) -> Callable[[Generator], Iterator[tuple[list[Keys], float | None]]]:
    return lambda rng: ((blocks, None) for blocks in _appends(draw, rng))


def _uniform(rng: Generator, _: float) -> Keys:
    keys: Keys = rng.random(BLOCK_ROWS)
    return keys


def _pareto(rng: Generator, _: float) -> Keys:
    found: Keys = np.minimum(rng.pareto(1.2, BLOCK_ROWS), 1e6)
    return found


def _correlated(rng: Generator, time: float) -> Keys:
    late = rng.exponential(size=BLOCK_ROWS)
    keys: Keys = time + _LATE * late * rng.choice(_LATE_SIGNS, BLOCK_ROWS)
    return keys


def _hot(rng: Generator, _: float) -> Keys:
    keys = rng.random(BLOCK_ROWS)
    found: Keys = np.where(rng.random(BLOCK_ROWS) < _HOT_SHARE, _HOT_KEY, keys)
    return found


def _window(rng: Generator) -> Iterator[tuple[list[Keys], float | None]]:
    for number, blocks in enumerate(_appends(_correlated, rng)):
        yield blocks, number / _APPENDS - _KEPT


def _bursts(rng: Generator) -> Iterator[tuple[list[Keys], float | None]]:
    for _ in range(_BURSTS):
        for _ in range(_BURST_APPENDS):
            yield [_uniform(rng, 0) for _ in range(_BLOCKS)], None
        for _ in range(_SILENT):
            yield [], None


def _small(rng: Generator) -> Iterator[tuple[list[Keys], float | None]]:
    for _ in range(2 * _APPENDS):
        size = int(np.exp(rng.uniform(np.log(8), np.log(512))))
        yield [rng.random(size)], None


TRACES = {
    trace.name: trace
    for trace in (
        Trace(name="uniform", blocks=_steady(_uniform)),
        Trace(name="Pareto 1.2", blocks=_steady(_pareto)),
        Trace(name="time-correlated", blocks=_steady(_correlated)),
        Trace(name="sliding window", blocks=_window),
        Trace(name="burst, then silence", blocks=_bursts),
        Trace(name="hot key", blocks=_steady(_hot)),
        Trace(name="small batches", blocks=_small),
    )
}
