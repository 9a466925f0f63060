"""Processes that are killed at any moment, and started again, lose, double and mix up no row, on each kind of table."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from jvm import quick_java
from profiles import THOROUGH

from .harness import Race
from .model import LostError, Owner, changed, digest_of
from .raced import KINDS, IcebergRaced, made
from .spark import SparkRaced

SECONDS = 120 if THOROUGH else 4


@pytest.mark.parametrize("kind", KINDS)
def test_killed_processes_lose_double_and_mix_up_no_row(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    race = Race(
        table=made(kind, tmp_path, request.getfixturevalue), folder=tmp_path, seed=random.randrange(10**6)
    )
    print(f"{kind}, seed {race.seed}")
    race.run(SECONDS)
    found = race.judge()
    print("\n".join(found.lines()))
    assert found.kills > 0
    assert found.commits > 0
    assert found.rows_checked > 0


@pytest.mark.skipif(not THOROUGH, reason="part of make test-thorough")
@pytest.mark.xdist_group("iceberg-spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("Iceberg")])
def test_killed_processes_beside_a_killed_spark_lose_double_and_mix_up_no_row(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if not quick_java():
        pytest.skip("no Java")
    table = made(kind, tmp_path, request.getfixturevalue)
    assert isinstance(table, IcebergRaced)
    spark = SparkRaced.of(table, tmp_path / "spark")
    race = Race(table=table, folder=tmp_path, seed=random.randrange(10**6), spark=spark)
    print(f"{kind}, seed {race.seed}")
    race.run(SECONDS)
    found = race.judge()
    print("\n".join(found.lines()))
    assert found.spark_commits > 0
    assert found.commits > found.spark_commits


def test_a_read_of_rows_that_no_sequence_of_changes_explains_is_found() -> None:
    """Lost, doubled, come back, or half of a change."""
    begun = [
        {"kind": "append", "first": 0, "count": 3, "value": 1},
        {"kind": "update", "low": 0, "high": 2**40, "value": 2},
    ]
    both = changed(1, changed(1, {}, begun[0]), begun[1])
    one = {**both, 0: 1}
    lines = [{"begun": begun[0]}, {"ended": "committed"}, {"begun": begun[1]}]
    for world, ended, is_possible in (
        (both, "committed", True),
        (both, "unknown", True),
        ({0: 1, 1: 1, 2: 1}, "unknown", True),
        ({0: 1, 1: 1, 2: 1}, "refused", True),
        (both, "refused", False),
        ({0: 1, 1: 1, 2: 1}, "committed", False),
        (one, "unknown", False),
        ({1: 2, 2: 2}, "unknown", False),
        ({}, "unknown", False),
    ):
        owner = Owner(owner=1)
        log = [*lines, {"ended": ended}, {"read": digest_of(world), "rows": len(world)}]
        if is_possible:
            owner.follow(log)
            assert owner.worlds == [world]
        else:
            with pytest.raises(LostError):
                owner.follow(log)
