"""Watching tables: the order of rounds, back-off, the budget of a day, and what is said."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import SCHEMA, rows

import tblctl
from tblctl import errors
from tblctl.cli.show.outcomes import watched_line
from tblctl.merger.round.group_run import GroupOutcome
from tblctl.results import Outcome
from tblctl.selector.plan import Rejection
from tblctl.tableformat.environment import Environment
from tblctl.watching import Standing, WatchedRound, rounds

NOON = 1_800_000_000 // 86_400 * 86_400 + 43_200


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    @property
    def env(self) -> Environment:
        return Environment(now=lambda: NOON + self.seconds, elapsed=lambda: self.seconds, sleep=self.sleep)


def outcome(
    *, committed: int = 0, conflicted: int = 0, failed: int = 0, size_bytes: int = 100, rule: str = ""
) -> Outcome:
    statuses = ["committed"] * committed + ["conflicted"] * conflicted + ["failed"] * failed
    groups = tuple(
        GroupOutcome(
            round=1, number=number, status=status, why="",
            error=None if status == "committed" else f"{status} since {number}", blocks_in=2, blocks_out=1, rows=1,
            rows_copied=0, bytes_read=size_bytes, bytes_written=0, task_seconds=0.0, cpu_seconds=0.0,
        )
        for number, status in enumerate(statuses)
    )  # fmt: skip
    left = (Rejection(rule=rule, level=None, blocks=1, size_bytes=1, why="too large"),) if rule else ()
    return Outcome(
        rounds=1, commits=1, committed_groups=committed, conflicted_groups=conflicted, failed_groups=failed,
        blocks_in=0, blocks_out=0, rows=0, bytes_read=0, bytes_written=0, depth_before=None, depth_after=None,
        overlaps_before=None, overlaps_after=None, seconds=0.0, snapshot=None, policy="levels", engine=None, note="",
        groups=groups, rejected=left,
    )  # fmt: skip


Act = Callable[[str, int | None], Outcome]


def said(
    turns: int,
    tables: Callable[[], list[Standing]],
    merge: Act,
    *,
    clock: Clock | None = None,
    every_seconds: float = 60,
    daily_bytes: int | None = None,
    round_bytes: int | None = None,
) -> list[WatchedRound]:
    """Return what is said in the first turns."""
    clock = clock or Clock()
    looks = itertools.count(1)

    class Enough(BaseException):
        pass

    def look() -> list[Standing]:
        if next(looks) > turns:
            raise Enough
        return tables()

    found: list[WatchedRound] = []
    watched = rounds(
        clock.env, look, merge, every_seconds=every_seconds, daily_bytes=daily_bytes, round_bytes=round_bytes
    )
    with pytest.raises(Enough):
        found.extend(watched)
    return found


def changing(*locations: str) -> Callable[[], list[Standing]]:
    """Return tables of which each look finds another version."""
    versions = itertools.count()
    return lambda: [Standing(location=name, version=next(versions), badness=1.0) for name in locations]


def in_short(found: list[WatchedRound]) -> list[tuple[str, str]]:
    return [(item.location, item.status) for item in found]


def test_the_worst_table_is_reclustered_first() -> None:
    tables = [Standing(location=name, version=1, badness=bad) for name, bad in [("a", 1), ("b", 9), ("c", 4)]]
    found = said(1, lambda: tables, lambda *_: outcome(committed=1))
    assert in_short(found) == [("b", "reclustered"), ("c", "reclustered"), ("a", "reclustered")]


def test_turns_begin_at_intervals_however_long_they_take() -> None:
    clock = Clock()

    def merge(*_: Any) -> Outcome:
        clock.seconds += 25
        return outcome(committed=1)

    said(3, changing("a"), merge, clock=clock, every_seconds=60)
    assert clock.slept == [35] * 3
    clock = Clock()
    said(3, changing("a"), merge, clock=clock, every_seconds=20)
    assert clock.slept == [0] * 3


@pytest.mark.parametrize("bad", ["conflict", "failed", "error", "raises conflict", "raises error", "bug"])
def test_a_table_that_brings_nothing_misses_more_and_more_turns(bad: str) -> None:
    tried: list[int] = []
    clock = Clock()

    def merge(location: str, _room: int | None) -> Outcome:
        if location == "good":
            return outcome(committed=1)
        tried.append(round(clock.seconds / 60))
        if bad == "raises conflict":
            raise errors.ConflictError("others were faster")
        if bad in ("raises error", "error"):
            raise errors.StorageError("no route")
        if bad == "bug":
            raise ZeroDivisionError("oops")
        return outcome(conflicted=int(bad == "conflict"), failed=int(bad == "failed"))

    found = said(40, changing("bad", "good"), merge, clock=clock)
    assert tried == [0, 2, 5, 10, 19, 36]  # 1, 2, 4, 8, 16 turns are missed
    assert sum(item.location == "good" for item in found) == 40, "the others are not held up"
    statuses = {item.status for item in found if item.location == "bad"}
    assert statuses == {
        {"raises conflict": "conflict", "raises error": "error", "bug": "error"}.get(bad, bad)
    }
    if bad == "bug":
        assert "a bug in tblctl" in str(found[0].error)


def test_a_success_ends_the_missing_of_turns() -> None:
    results = iter([outcome(conflicted=1), outcome(committed=1), *[outcome(conflicted=1)] * 9])
    tried: list[int] = []
    clock = Clock()

    def merge(*_: Any) -> Outcome:
        tried.append(round(clock.seconds / 60))
        return next(results)

    said(7, changing("a"), merge, clock=clock)
    assert tried == [0, 2, 3, 5]


def test_no_table_misses_more_than_so_many_turns() -> None:
    tried: list[int] = []
    clock = Clock()

    def merge(*_: Any) -> Outcome:
        tried.append(round(clock.seconds / 60))
        return outcome(failed=1)

    said(300, changing("a"), merge, clock=clock)
    assert tried[-1] - tried[-2] == 33


def test_a_table_with_nothing_to_merge_is_left_alone_until_it_changes() -> None:
    versions = iter([1, 1, 1, 2, 2, 2])
    merged: list[str] = []

    def merge(location: str, _room: int | None) -> Outcome:
        merged.append(location)
        return outcome()

    found = said(6, lambda: [Standing(location="a", version=next(versions), badness=1)], merge)
    assert merged == ["a", "a"]
    assert in_short(found) == [("a", "idle")], "said once"


def test_a_table_that_cannot_be_measured_is_not_merged() -> None:
    def merge(*_: Any) -> Outcome:
        raise AssertionError

    found = said(2, lambda: [Standing(location="a", error="no such table")], merge)
    assert in_short(found) == [("a", "error")]
    assert found[0].error == "no such table"


def test_tables_that_cannot_be_listed_end_nothing() -> None:
    tries = itertools.count()

    def tables() -> list[Standing]:
        if next(tries) == 0:
            raise errors.StorageError("the catalog is away")
        return [Standing(location="a", version=1, badness=1)]

    found = said(2, tables, lambda *_: outcome(committed=1))
    assert in_short(found) == [("", "error"), ("a", "reclustered")]


def test_a_table_that_went_away_and_comes_back_is_a_new_one() -> None:
    here = [Standing(location="a", version=1, badness=1)]
    looks = iter([here, here, [], here])
    found = said(4, lambda: next(looks), lambda *_: outcome())
    assert in_short(found) == [("a", "idle")] * 2, "once before and once after"


def test_tables_that_cannot_be_listed_for_a_turn_are_not_forgotten() -> None:
    tries = itertools.count()

    def tables() -> list[Standing]:
        if next(tries) == 1:
            raise errors.StorageError("the catalog is away")
        return [Standing(location="a", version=1, badness=1)]

    found = said(3, tables, lambda *_: outcome())
    assert in_short(found) == [("a", "idle"), ("", "error")], "idle is said once"


def test_secrets_of_a_location_are_not_shown() -> None:
    place = "s3://user:passw0rd@bucket/t?token=passw0rd"
    merged: list[str] = []

    def merge(location: str, _room: int | None) -> Outcome:
        merged.append(location)
        return outcome(committed=1)

    found = said(1, changing(place), merge)
    assert merged == [place]
    assert "passw0rd" not in str(found[0].to_dict())


def test_a_day_has_its_budget() -> None:
    clock, rooms = Clock(), []

    def merge(_location: str, room: int | None) -> Outcome:
        rooms.append(room)
        return outcome(committed=1, failed=1, size_bytes=100)

    found = said(20, changing("a"), merge, clock=clock, every_seconds=3_600, daily_bytes=500)
    assert rooms == [500, 300, 100, 500, 300, 100], "failed groups count too; the next day begins at midnight"
    assert [item.status for item in found] == [*["reclustered"] * 3, "budget"] * 2
    assert [item.bytes_today for item in found] == [200, 400, 600, 600] * 2
    assert [item.time[11:13] for item in found] == ["12", "13", "14", "15", "00", "01", "02", "03"]


def test_what_does_not_fit_into_the_rest_of_a_day_is_no_idle_table() -> None:
    merged: list[str] = []

    def merge(location: str, _room: int | None) -> Outcome:
        merged.append(location)
        return outcome(rule="max_bytes")

    found = said(3, lambda: [Standing(location="a", version=1, badness=1)], merge, daily_bytes=5)
    assert in_short(found) == [("a", "budget")], "said once a day"
    assert found[0].error == "the 5 B that are left of today hold no further group"
    assert len(merged) == 3
    assert in_short(said(1, changing("a"), merge)) == [("a", "idle")], (
        "the caller's own limit is none of the day"
    )


@pytest.mark.parametrize(
    ("round_bytes", "status"), [(4, "idle"), (5, "idle"), (6, "budget"), (None, "budget")]
)
def test_what_does_not_fit_into_a_round_is_no_matter_of_the_day(round_bytes: int | None, status: str) -> None:
    def merge(_location: str, _room: int | None) -> Outcome:
        return outcome(rule="max_bytes")

    found = said(1, changing("a"), merge, daily_bytes=5, round_bytes=round_bytes)
    assert in_short(found) == [("a", status)]


def test_a_round_of_which_something_failed_says_why() -> None:
    for groups, status, error in (
        ({"failed": 2}, "failed", "failed since 0"),
        ({"conflicted": 1}, "conflict", "conflicted since 0"),
        ({"committed": 1, "conflicted": 1, "failed": 1}, "reclustered", "failed since 2"),
        ({"committed": 1}, "reclustered", None),
    ):
        (found,) = said(1, changing("a"), lambda *_, groups=groups: outcome(**groups))
        assert (found.status, found.error) == (status, error)
        assert watched_line(found).endswith(f"; {error}") == (error is not None)


def test_a_round_as_json() -> None:
    (found,) = said(1, changing("a"), lambda *_: outcome(committed=1))
    assert {**found.to_dict(), "outcome": None} == {
        "time": "2027-01-15T12:00:00.000Z",
        "location": "a",
        "status": "reclustered",
        "outcome": None,
        "error": None,
        "bytes_today": 100,
    }
    assert found.to_dict()["outcome"]["committed_groups"] == 1


@pytest.fixture
def two_tables(tmp_path: Path) -> list[str]:
    locations = []
    for name, count in (("small", 2), ("large", 5)):
        table = tblctl.create(tmp_path / name, SCHEMA, cluster_by="id", options={"block_rows": 4})
        for start in range(count):
            table.append(rows(start, start + 10, start + 20, start + 30))
        locations.append(str(tmp_path / name))
    return locations


def test_tables_are_watched(two_tables: list[str]) -> None:
    small, large = two_tables
    watched = tblctl.watch(two_tables, every=0.01, options={"threshold": 1})
    found = [next(watched) for _ in range(2)]
    assert in_short(found) == [(large, "reclustered"), (small, "reclustered")]
    for location in two_tables:
        assert tblctl.open(location).info().average_depth == 1.0
    found = [next(watched) for _ in range(2)]
    assert sorted(in_short(found)) == sorted([(large, "idle"), (small, "idle")])
    tblctl.open(small).append(rows(0, 15, 31))
    tblctl.open(small).append(rows(1, 16, 32))
    assert in_short([next(watched)]) == [(small, "reclustered")]


def test_a_daily_budget_limits_a_round(two_tables: list[str]) -> None:
    _, large = two_tables
    blocks = tblctl.open(large).files()
    three = sum(block.bytes for block in blocks[:3])
    watched = tblctl.watch(
        [large], every=0.01, policy="full", options={"max_bytes": "1GiB"}, daily_bytes=three
    )
    found = [next(watched)]
    while found[-1].status != "budget":
        found.append(next(watched))
    assert found[0].status == "reclustered"
    assert 0 < found[0].bytes_today <= found[-1].bytes_today <= three
    assert len(found) <= 4


def test_tables_that_come_later_are_found(two_tables: list[str], tmp_path: Path) -> None:
    watched = tblctl.watch(lambda: tblctl.find_tables(tmp_path), every=0.01, options={"threshold": 1})
    assert {next(watched).location for _ in range(2)} == set(two_tables)
    assert {next(watched).status for _ in range(2)} == {"idle"}
    tblctl.create(tmp_path / "third", SCHEMA, cluster_by="id").append(rows(1))
    assert in_short([next(watched)]) == [(str(tmp_path / "third"), "idle")]


def test_a_table_without_a_key_or_none_at_all_is_an_error_of_its_own(
    two_tables: list[str], tmp_path: Path
) -> None:
    tblctl.create(tmp_path / "keyless", SCHEMA).append(rows(1))
    places = [str(tmp_path / "nothing"), *two_tables, str(tmp_path / "keyless")]
    watched = tblctl.watch(places, every=0.01, options={"threshold": 1})
    found = {item.location: item for item in (next(watched) for _ in range(4))}
    assert [found[place].status for place in places] == ["error", "reclustered", "reclustered", "error"]
    assert "there is no table" in str(found[places[0]].error)
    assert "cluster key" in str(found[places[3]].error)


def test_a_bug_in_a_look_is_an_error_of_its_table(
    two_tables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_words: Any, **_names: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(tblctl.Table, "info", fail)
    watched = tblctl.watch(two_tables, every=0.01)
    found = [next(watched) for _ in range(2)]
    assert [item.error for item in found] == ["a bug in tblctl, please report it: KeyError: 'x'"] * 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every": 0}, "every is 0, expected a time above 0"),
        ({"every": -1.5}, "every is -1.5"),
        ({"every": "soon"}, "'soon' is not a duration"),
        ({"every": "0"}, "every is '0'"),
        ({"every": float("nan")}, "every is nan"),
        ({"every": True}, "every is True"),
        ({"every": datetime.timedelta(0)}, "every is"),
        ({"daily_bytes": 0}, "daily_bytes is 0, expected a number of bytes from 1 on"),
        ({"daily_bytes": "0MB"}, "daily_bytes is '0MB'"),
        ({"daily_bytes": 1.5}, "daily_bytes is 1.5"),
        ({"daily_bytes": "much"}, "much"),
        ({"policy": "levles"}, "did you mean levels"),
        ({"options": {"treshold": 2}}, "did you mean threshold"),
        ({"options": 7}, "options is 7"),
        ({"on_conflict": "cry"}, "on_conflict"),
        ({"commit_every": "never"}, "commit_every|never"),
    ],
)
def test_wrong_words_are_refused_before_the_first_turn(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidOptionError, match=message):
        tblctl.watch([], **{"every": "5m", **wrong})


def test_a_time_may_be_a_timedelta(two_tables: list[str]) -> None:
    watched = tblctl.watch(
        two_tables, every=datetime.timedelta(milliseconds=1), options=tblctl.SelectOptions()
    )
    assert next(watched).status in {"reclustered", "idle"}


def test_a_table_without_a_key_is_stitched_by_a_policy_that_needs_none(tmp_path: Path) -> None:
    table = tblctl.create(tmp_path / "t", "k: int64")
    for start in range(6):
        table.append(pa.table({"k": [start]}))
    happened = next(tblctl.watch([table.location], every=60, policy="size"))
    assert (happened.status, happened.outcome.policy) == ("reclustered", "size")
    assert tblctl.open(table.location).scan().to_arrow().num_rows == 6
