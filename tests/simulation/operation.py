"""What every operation of an actor is, how its arguments are drawn, and how rows become tables and models."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from simulation.model import OWN_COLUMNS, Version

if TYPE_CHECKING:
    from simulation.world import Actor, Run

Args = Mapping[str, Any]

K = (None, -3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 20)
X = (None, -0.0, 0.0, 0.0, -0.0, 1.5, -2.5, 7.25, math.nan, math.inf)
S = (None, "", "a", "b", "é", "a" * 40)


class Draws:
    """Draws arguments; ids and names are used once in a history."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._last = 0

    def number(self) -> int:
        self._last += 1
        return self._last

    def rows(self, most: int = 9) -> list[tuple[Any, ...]]:
        """Return new rows: id, k, x, s, n."""
        rng = self.rng
        return [
            (self.number(), rng.choice(K), rng.choice(X), rng.choice(S), rng.randint(0, 3))
            for _ in range(rng.randint(1, most))
        ]

    def condition(self) -> tuple[str, str, Any]:
        """Return a condition that holds for few or for many rows."""
        rng = self.rng
        compare = rng.choice(["=", "!=", "<", "<=", ">", ">="])
        low = rng.randint(0, self._last)
        return rng.choice(
            [
                ("id", "between", (low, low + rng.randint(0, 6))),
                ("k", compare, rng.choice([0, 3, 6, 9])),
                ("x", compare, rng.choice([0.0, -0.0, 1.5])),
                ("s", compare, rng.choice(["a", "b"])),
                ("k", "is null", None),
            ]
        )


class Operation:
    """Something that an actor does; the base is one that commits once, and leaves the rows as they are."""

    commits = "one"
    """one: exactly one, and its number is returned; none; many: any number, also if it fails."""

    def draw(self, draws: Draws) -> Args:
        return {}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        """Carry it out; return the sequence of its commit, or None if there was nothing to do."""
        raise NotImplementedError

    def model(self, before: Version, run: Run, args: Args) -> Version:
        """Return the version that its commit makes."""
        return before


def table_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of a schema; added columns get values made from the id."""
    columns = []
    for column in schema:
        if column.name in OWN_COLUMNS:
            values = [row[OWN_COLUMNS.index(column.name)] for row in rows]
        else:
            values = [_added_value(column.name, row[0]) for row in rows]
        columns.append(pa.array(values, column.type))
    return pa.table(columns, schema=schema)


def _added_value(name: str, key: int) -> str:
    return f"{name}-{key}"


def modelled(rows: Sequence[tuple[Any, ...]], names: Mapping[str, str]) -> dict[int, dict[str, Any]]:
    """Return the rows of `table_of` as the model has them. `names`: uids of the schema's columns by their names."""
    own = [dict(zip(OWN_COLUMNS, row, strict=True)) for row in rows]
    return {
        row["id"]: {
            uid: row[name] if name in OWN_COLUMNS else _added_value(name, row["id"])
            for name, uid in names.items()
        }
        for row in own
    }
