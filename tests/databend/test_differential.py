"""The figures of `info` equal those of Databend's `clustering_information`, on random tables of the same blocks.

Databend is 1.2.453, embedded. Every insert makes one block there, and every append one here. Where Databend is
different by design, the test says so, and what then is equal:

- it keeps the first 8 characters of a string in a cluster key, so that longer ones may look alike: its figures are
  those of the key `truncate(8, s)` here;
- without a block to measure, its averages are NaN or 0, and 0 here;
- its keys are ascending, with nulls last, which is the default here too.
"""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tblctl

SEEDS = range(20_261_121, 20_261_121 + 30)
PROGRAM = Path(__file__).parent / "figures.py"
SHORTEST_PREFIX = 8  # characters of a string that Databend keeps


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of column in both systems, with values that often meet."""

    databend: str
    arrow: pa.DataType
    draw: Callable[[random.Random], Any]


DAY = datetime.date(2026, 1, 1)
MOMENT = datetime.datetime(2026, 1, 1)
KINDS = (
    Kind(databend="int", arrow=pa.int32(), draw=lambda rng: rng.randint(-3, 12)),
    Kind(databend="bigint", arrow=pa.int64(), draw=lambda rng: rng.choice([-(2**62), 0, 1, 2**62])),
    Kind(
        databend="varchar",
        arrow=pa.string(),
        draw=lambda rng: "".join(rng.choices("aZé漢", k=rng.randint(0, 3))),
    ),
    Kind(
        databend="varchar",
        arrow=pa.string(),
        draw=lambda rng: rng.choice("ab") * rng.randint(6, 9) + rng.choice(["", "x", "yz"]),
    ),
    Kind(
        databend="date", arrow=pa.date32(), draw=lambda rng: DAY + datetime.timedelta(days=rng.randint(0, 9))
    ),
    Kind(
        databend="timestamp",
        arrow=pa.timestamp("us"),
        draw=lambda rng: MOMENT + datetime.timedelta(microseconds=rng.randint(0, 5)),
    ),
    Kind(
        databend="double",
        arrow=pa.float64(),
        draw=lambda rng: rng.choice([-1.5, -0.0, 0.0, float("inf"), float("nan")]),
    ),
    Kind(
        databend="decimal(10, 2)",
        arrow=pa.decimal128(10, 2),
        draw=lambda rng: decimal.Decimal(rng.randint(-300, 300)) / 100,
    ),
    Kind(databend="boolean", arrow=pa.bool_(), draw=lambda rng: rng.random() < 0.5),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table's life: `steps` are cluster keys (names of columns) and blocks (rows) in turn."""

    kinds: dict[str, Kind]
    block_rows: int
    steps: tuple[tuple[str, ...] | list[tuple[Any, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        """Return what figures.py takes: values are literals of Databend's SQL."""
        return {
            "columns": [[name, kind.databend] for name, kind in self.kinds.items()],
            "block_rows": self.block_rows,
            "steps": [
                {"key": ", ".join(step)}
                if isinstance(step, tuple)
                else {"rows": [[literal(value) for value in row] for row in step]}
                for step in self.steps
            ],
        }

    def make(self, location: str, term: Callable[[str, Kind], str]) -> tblctl.Table:
        """Make the table here; `term` is the key as a term of a column."""
        schema = pa.schema([(name, kind.arrow) for name, kind in self.kinds.items()])
        table = tblctl.create(location, schema, options={"block_rows": self.block_rows})
        for step in self.steps:
            if isinstance(step, tuple):
                table.set_cluster_key([term(name, self.kinds[name]) for name in step])
            else:
                columns = [
                    pa.array(values, kind.arrow)
                    for values, kind in zip(zip(*step, strict=True), self.kinds.values(), strict=True)
                ]
                table.append(pa.table(columns, schema=schema))
        return table


def literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"'{value}'"
    return f"'{value}'" if isinstance(value, str | datetime.date) else str(value)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    kinds = {f"c{place}": rng.choice(KINDS) for place in range(rng.randint(1, 3))}
    block_rows = rng.choice([4, 1000])
    null_share = rng.choice([0, 0, 0.2, 0.8])
    steps: list[Any] = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        steps.append(tuple(rng.sample(list(kinds), rng.randint(1, len(kinds)))))
        for _ in range(rng.choice([0, 1, 3, 10, 30])):
            rows = [
                tuple(None if rng.random() < null_share else kind.draw(rng) for kind in kinds.values())
                for _ in range(rng.randint(1, 4))
            ]
            steps.append(
                [rows[0]] * 4 if rng.random() < 0.2 else rows
            )  # (constant, and full where 4 rows are)
    return Case(kinds=kinds, block_rows=block_rows, steps=tuple(steps))


def as_databend(found: tblctl.ClusteringInfo, key: tuple[str, ...]) -> dict[str, Any]:
    figures = found.to_dict()
    names = (
        "total_block_count",
        "constant_block_count",
        "unclustered_block_count",
        "average_overlaps",
        "average_depth",
        "block_depth_histogram",
    )
    return {"cluster_key": f"({', '.join(key)})", **{name: figures[name] for name in names}}


def without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    """Return Databend's figures with None for its averages over no blocks in order, and for no others."""
    if figures["total_block_count"] > figures["unclustered_block_count"]:
        return figures
    averages = {name: figures[name] for name in ("average_overlaps", "average_depth")}
    assert all(average == 0 or math.isnan(average) for average in averages.values())
    return figures | dict.fromkeys(averages, None if figures["total_block_count"] else 0.0)


def shortened(name: str, kind: Kind) -> str:
    return f"truncate({SHORTEST_PREFIX}, {name})" if pa.types.is_string(kind.arrow) else name


@pytest.fixture(scope="module")
def databend(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Case]], list[dict[str, Any]]]:
    """Return a function from tables to Databend's figures."""
    if importlib.util.find_spec("databend") is None:
        reason = "the embedded Databend (PyPI databend) is not installed; it has wheels for Linux only"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}; with CI=true it must be there")
        pytest.skip(reason)

    def ask(cases: list[Case]) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("databend")
        (folder / "cases.json").write_text(json.dumps([case.to_json() for case in cases]))
        words = [sys.executable, PROGRAM, "cases.json", "results.json"]
        subprocess.run(words, cwd=folder, check=True, timeout=500)
        return json.loads((folder / "results.json").read_text())

    return ask


@pytest.mark.slow
def test_all_figures_of_random_tables_are_databends(databend, memory_url: str) -> None:
    cases = {seed: random_case(seed) for seed in SEEDS}
    different = []
    for (seed, case), expected in zip(cases.items(), databend(list(cases.values())), strict=True):
        key = next(step for step in reversed(case.steps) if isinstance(step, tuple))
        found = as_databend(case.make(f"{memory_url}/{seed}", shortened).info(), key)
        if found != without_nan(expected):
            different.append(f"seed {seed}: {case.to_json()}\nhere     {found}\nDatabend {expected}")
    print(f"seeds {SEEDS}")
    assert not different, "\n\n".join(different)


def test_strings_alike_in_their_first_8_characters_are_told_apart_here_only(databend, tmp_path: Path) -> None:
    case = Case(
        kinds={"s": KINDS[2]},
        block_rows=1000,
        steps=(("s",), [("aaaaaaaa1",)], [("aaaaaaaa2",)], [("aaaaaaa1",)]),
    )
    (theirs,) = databend([case])
    assert theirs["average_overlaps"] == 0.6667
    whole = case.make(str(tmp_path / "whole"), lambda name, _: name)
    assert whole.info().average_overlaps == 0.0
    assert as_databend(case.make(str(tmp_path / "short"), shortened).info(), ("s",)) == theirs
