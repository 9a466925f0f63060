"""The properties `commit.retry.*`: how often a commit is tried, and how long it waits, by a clock of the test."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tblctl import errors
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.publish.attempts import Patience
from tests.iceberg.lake import Lake, append, fields
from tests.iceberg.replacing import Meanwhile, data_files, port_of, raising, replacement_of

LOST = raising(CommitFailedException("no"))


class Waits:
    """A clock that only waits move, and that draws the middle of all chances."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def elapsed(self) -> float:
        return sum(self.seconds)

    def environment(self) -> Any:
        return dataclasses.replace(
            SYSTEM, sleep=self.sleep, elapsed=self.elapsed, random=lambda: 0.5, now=SYSTEM.now
        )


def tried(lake: Lake, losses: int, **properties: str) -> tuple[int, list[float], bool]:
    """Lose some races; return the number of calls of the catalog, the waits, and whether it committed."""
    named = {f"commit.retry.{name.replace('_', '-')}": value for name, value in properties.items()}
    table: Table = lake.create("t", fields(id=LongType(), s=StringType()), properties=named)
    for first in range(2):
        append(table, id=[first, first + 2], s=["a", "b"])
    port = port_of(table)
    waits = Waits()
    port.env = waits.environment()
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with Meanwhile(table, *[LOST] * losses) as catalog:
        try:
            port.replace(base, change)
            done = True
        except errors.ConflictError:
            done = False
    return catalog.calls, waits.seconds, done


def test_waits_double_from_the_least_to_the_most(lake: Lake) -> None:
    calls, waits, done = tried(lake, 5, min_wait_ms="400", max_wait_ms="2000")
    assert (calls, done) == (6, True)
    assert waits == pytest.approx([0.3, 0.6, 1.2, 1.5, 1.5])  # three quarters of 0.4, 0.8, 1.6, 2, 2


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_commit_is_tried_again_as_often_as_the_table_says(lake: Lake, retries: int) -> None:
    calls, waits, done = tried(lake, 9, num_retries=str(retries))
    assert (calls, len(waits), done) == (retries + 1, retries, False)


def test_a_commit_is_given_up_after_the_total_time(lake: Lake) -> None:
    calls, waits, done = tried(lake, 99, min_wait_ms="1000", max_wait_ms="1000", total_timeout_ms="3000")
    assert (calls, waits, done) == (6, [0.75] * 5, False)  # the fifth wait passes 3 seconds


def test_without_properties_twenty_retries_wait_up_to_a_minute(lake: Lake) -> None:
    calls, waits, done = tried(lake, 99)
    assert (calls, done) == (21, False)
    assert (waits[0], max(waits)) == pytest.approx((0.075, 45.0))


@pytest.mark.parametrize(("merge_seconds", "expected"), [(0, 61), (3600, 3601)])
def test_a_catalog_that_cannot_be_reached_is_waited_for_a_minute_or_as_long_as_the_merge_took(
    merge_seconds: float, expected: float
) -> None:
    patience = Patience.of({})
    over = [
        seconds
        for seconds in range(4000)
        if patience.is_over(9, seconds=min(seconds, 99), silent_seconds=seconds, merge_seconds=merge_seconds)
    ]
    assert over[0] == expected


def waiting(lake: Lake) -> tuple[Table, Any, Waits, Any, Any]:
    """Return a table of two files, its port, which waits in no time, its version, and a replacement of the files."""
    table: Table = lake.create("t", fields(id=LongType(), s=StringType()))
    for first in range(2):
        append(table, id=[first, first + 2], s=["a", "b"])
    port = port_of(table)
    waits = Waits()
    port.env = waits.environment()
    base = port.newest()
    return table, port, waits, base, replacement_of(base, data_files(table))


def test_a_recluster_of_a_second_does_not_wait_minutes_for_a_storage_that_is_gone(lake: Lake) -> None:
    _, port, waits, base, change = waiting(lake)
    load = port._load

    def gone() -> Any:
        raise errors.StorageError("no reply")

    port._load = gone
    with pytest.raises(errors.StorageError, match="no reply"):
        port.replace(base, change)
    assert 60 < waits.elapsed() < 120
    port._load = load
    assert port.newest().id == base.id


def test_races_lost_in_between_show_that_the_catalog_is_there(lake: Lake) -> None:
    table, port, waits, base, change = waiting(lake)
    silent = raising(TimeoutError("no reply"))
    with Meanwhile(table, *[silent] * 8, LOST, silent, silent) as catalog:
        port.replace(base, change)
    assert catalog.calls == 12
    assert waits.elapsed() > 120


def test_properties_that_are_no_numbers_count_as_not_set() -> None:
    assert Patience.of({"commit.retry.num-retries": "-1", "commit.retry.min-wait-ms": "soon"}) == Patience.of(
        {}
    )
