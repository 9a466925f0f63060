"""The table formats that are simulated: how a history is drawn from a seed, and the world that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulation.history import History, draw
from simulation.iceberg.history import draw_iceberg
from simulation.iceberg.world import IcebergWorld
from simulation.world import World


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format. `draw` takes a seed, and `roles` and `faults` to steer it."""

    draw: Callable[..., History]
    world: type[World]


FORMATS: Mapping[str, Format] = {
    "native": Format(draw=draw, world=World),
    "iceberg": Format(draw=draw_iceberg, world=IcebergWorld),
}
