"""Keep tables clustered: look at them again and again, and recluster one at a time, the worst first."""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tblctl.maintain.request import Request
from tblctl.merger.round.group_run import CONFLICTED, FAILED
from tblctl.results import Outcome
from tblctl.selector.options import SelectOptions
from tblctl.sizes import size_text
from tblctl.tableformat.concurrency import in_parallel
from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.errors import ConflictError, InvalidOptionError, TblctlError, problem_of
from tblctl.tableformat.model.options import parse_size, parse_time
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.warehouse import TABLES_AT_ONCE, open_any, shown

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.selector.policy import Policy
    from tblctl.table import Table

_MOST_TURNS_MISSED = 32


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How badly a table is clustered.

    Attributes:
        location: of the table.
        version: the sequence or id of its newest version; None after an error.
        badness: average depth times the bytes of its files; 0 after an error, and without a cluster key.
        error: why it could not be measured; None if it was.
    """

    location: str
    version: int | str | None = None
    badness: float = 0.0
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class WatchedRound:
    """What happened to one table in one turn.

    Attributes:
        time: when it ended, ISO 8601 in UTC.
        location: of the table, without secrets; "" if the tables could not be listed.
        status: reclustered; idle: nothing to merge, said once until that changes; conflict: other writers replaced all
            that was to be merged; failed: no group could be merged; error: the table could not be measured or merged;
            budget: the bytes of the day leave no room, said once a day for a table.
        outcome: of the recluster; None if there was none.
        error: why not, or why a group of it was not; None after a recluster of all, and if there was nothing to merge.
        bytes_today: of files that were rewritten since midnight UTC, all tables together.
    """

    time: str
    location: str
    status: str
    outcome: Outcome | None
    error: str | None
    bytes_today: int

    def to_dict(self) -> dict[str, Any]:
        """Return the round as JSON values."""
        return {**vars(self), "outcome": self.outcome and self.outcome.to_dict()}


Look = Callable[[], Sequence[Standing]]
"""Returns all tables, as they are now."""

Merge = Callable[[str, "int | None"], Outcome]
"""Reclusters the table at a location once; rewrites at most a number of bytes, None for any."""


def watch(  # noqa: D417 (most arguments are described together)
    locations: Sequence[str] | Callable[[], Sequence[str]],
    *,
    every: float | str | datetime.timedelta,
    daily_bytes: int | str | None = None,
    policy: str | Policy | None = None,
    where: str | BooleanExpression | None = None,
    options: Mapping[str, Any] | SelectOptions | None = None,
    engine: str = "auto",
    spark: Any = None,
    on_conflict: str = "salvage",
    commit_every: int | str | datetime.timedelta | None = None,
    storage_options: Mapping[str, Any] | None = None,
    catalog_options: Mapping[str, str] | None = None,
    branch: str | None = None,
    metadata_cache: str | os.PathLike[str] | None = None,
    refine: bool = False,
) -> Iterator[WatchedRound]:
    """Keep tables clustered until the caller stops asking for the next round.

    A turn looks at all tables, and runs one round for each that has something to merge: one after the other, the worst
    first, by average depth times bytes. A table that conflicts or fails misses 1, 2, 4, .. turns. A table that has not
    changed since there was nothing to merge costs one look at its newest version.

    Args:
        locations: locations of the tables, or what returns them at each turn.
        every: time from the begin of one turn to that of the next: seconds, a timedelta, or text such as "5m".
        daily_bytes: most bytes of files to rewrite from midnight to midnight UTC; sizes may be text. None: no limit.
        policy, where, options, engine, spark, on_conflict, commit_every: as for `Table.recluster`.
        storage_options, catalog_options, branch, metadata_cache, refine: as for `tblctl.open`.

    Returns:
        What happened, round by round. The iterator sleeps between turns; it never ends by itself.

    Raises:
        InvalidOptionError: an argument is none of the values it may have.
    """
    checked = {"on_conflict": on_conflict, "commit_every": commit_every}
    Request.of(policy=policy, condition=lambda _schema: None, options=options, **checked)  # type: ignore[arg-type]
    opened = functools.partial(
        open_any,
        storage_options=storage_options,
        catalog_options=catalog_options,
        branch=branch,
        metadata_cache=metadata_cache,
        refine=refine,
    )
    hands = _Hands(
        opened=opened,
        options=options.to_json() if isinstance(options, SelectOptions) else options or {},
        merging={"policy": policy, "where": where, "engine": engine, "spark": spark, **checked},
    )
    return rounds(
        SYSTEM,
        _Eyes(found=locations if callable(locations) else lambda: tuple(locations), opened=opened),
        hands.merge,
        every_seconds=_seconds(every),
        daily_bytes=_most_bytes(daily_bytes),
        round_bytes=_asked_bytes(hands.options),
    )


def rounds(
    env: Environment,
    look: Look,
    merge: Merge,
    *,
    every_seconds: float,
    daily_bytes: int | None,
    round_bytes: int | None = None,
) -> Iterator[WatchedRound]:
    """Yield what happens to the tables of `look`, turn by turn. See `watch`.

    `round_bytes` is the caller's own limit of a round: where it is the lower one, the day has room.
    """
    day = _Day(env, daily_bytes)
    known: dict[str, _Memory] = {}
    while True:
        begun = env.elapsed()
        try:
            tables = look()
        except TblctlError as error:
            yield day.round("", "error", error=str(error))
            tables = ()
        else:  # what went away is forgotten
            known = {table.location: known.get(table.location, _Memory()) for table in tables}
        for table in sorted(tables, key=lambda item: -item.badness):
            memory = known[table.location]
            if memory.is_due(table):
                happened = _one_round(table, merge, day, round_bytes)
                if memory.is_news(table, happened, day.date):
                    yield happened
        env.sleep(max(0.0, every_seconds - (env.elapsed() - begun)))


@dataclass(kw_only=True)
class _Memory:
    """What is remembered of a table from turn to turn."""

    misses: int = 0  # rounds in a row that brought nothing although there was something to do
    turns_to_miss: int = 0
    idle_version: int | str | None = None  # there was nothing to merge in this one
    last_status: str = ""
    budget_day: str = ""  # on this day it was said that there is no room

    def is_due(self, table: Standing) -> bool:
        """Return whether to look for something to merge."""
        if self.turns_to_miss:
            self.turns_to_miss -= 1
            return False
        return table.version is None or table.version != self.idle_version

    def is_news(self, table: Standing, happened: WatchedRound, day: str) -> bool:
        """Take in what happened; return whether to say so."""
        status, before = happened.status, self.last_status
        self.last_status = status
        self.idle_version = table.version if status == "idle" else None
        self.misses = self.misses + 1 if status in ("conflict", "failed", "error") else 0
        self.turns_to_miss = min(2 ** (self.misses - 1), _MOST_TURNS_MISSED) if self.misses else 0
        if status == "budget":
            is_new, self.budget_day = self.budget_day != day, day
            return is_new
        return status != "idle" or before != "idle"


class _Day:
    """The bytes that were rewritten since midnight UTC."""

    def __init__(self, env: Environment, most: int | None) -> None:
        self._env = env
        self._most = most
        self._bytes = 0
        self._begun = self.date

    @property
    def date(self) -> str:
        """Today."""
        return iso_timestamp(self._env.now_ms())[:10]

    @property
    def bytes(self) -> int:
        """Those of today."""
        if self._begun != self.date:
            self._begun, self._bytes = self.date, 0
        return self._bytes

    @property
    def room_bytes(self) -> int | None:
        """What is left of today's; None for no limit."""
        return None if self._most is None else max(0, self._most - self.bytes)

    def add(self, outcome: Outcome) -> None:
        """Count what a recluster read, also for groups that were not committed."""
        self._bytes = self.bytes + sum(group.bytes_read for group in outcome.groups)

    def round(
        self, location: str, status: str, *, outcome: Outcome | None = None, error: str | None = None
    ) -> WatchedRound:
        """Return what happened just now."""
        return WatchedRound(
            time=iso_timestamp(self._env.now_ms()),
            location=location and shown(location),
            status=status,
            outcome=outcome,
            error=error,
            bytes_today=self.bytes,
        )


def _one_round(table: Standing, merge: Merge, day: _Day, round_bytes: int | None) -> WatchedRound:
    if table.error is not None:
        return day.round(table.location, "error", error=table.error)
    room = day.room_bytes
    if room == 0:
        return day.round(table.location, "budget", error="the bytes of today are used up")
    try:
        outcome = merge(table.location, room)
    except ConflictError as error:
        return day.round(table.location, "conflict", error=str(error))
    except Exception as error:  # noqa: BLE001 (one bad table must not end the watch over the others)
        return day.round(table.location, "error", error=problem_of(error))
    is_limited = room is not None and (round_bytes is None or room < round_bytes)
    status = _status(outcome, is_limited=is_limited)
    # The outcome's note tells to raise a limit that nobody gave.
    rest = f"the {size_text(room or 0)} that are left of today hold no further group"
    short = rest if status == "budget" else None
    day.add(outcome)
    return day.round(table.location, status, outcome=outcome, error=short or _first_error(outcome))


def _first_error(outcome: Outcome) -> str | None:
    """Return why the first group was not committed that failed, or else the first that conflicted."""
    errors = {group.status: group.error for group in reversed(outcome.groups)}
    return errors.get(FAILED, errors.get(CONFLICTED))


def _status(outcome: Outcome, *, is_limited: bool) -> str:
    if outcome.committed_groups:
        return "reclustered"
    if outcome.failed_groups:
        return "failed"
    if outcome.conflicted_groups:
        return "conflict"
    return "budget" if is_limited and any(item.rule == "max_bytes" for item in outcome.rejected) else "idle"


@dataclass(frozen=True, kw_only=True)
class _Hands:
    """Reclusters tables as the caller of `watch` asked."""

    opened: Callable[[str], Table]
    options: Mapping[str, Any]
    merging: Mapping[str, Any]

    def merge(self, location: str, room_bytes: int | None) -> Outcome:
        options = _within(self.options, room_bytes)
        return self.opened(location).recluster(options=options, **self.merging)


@dataclass(kw_only=True)
class _Eyes:
    """Looks at tables. One that has not changed since the last look is not measured again."""

    found: Callable[[], Sequence[str]]
    opened: Callable[[str], Table]
    seen: dict[str, Standing] = field(default_factory=dict)

    def __call__(self) -> list[Standing]:
        locations = list(dict.fromkeys(self.found()))
        self.seen = dict(
            zip(locations, in_parallel(self._look, locations, threads=TABLES_AT_ONCE), strict=True)
        )
        return list(self.seen.values())

    def _look(self, location: str) -> Standing:
        try:
            table = self.opened(location)
            version = table.snapshot
            before = self.seen.get(location)
            if before is not None and before.version == version.sequence:
                return before
            info = table.info(worst=1) if table.cluster_by else None
        except Exception as error:  # noqa: BLE001 (one bad table must not end the watch over the others)
            return Standing(location=location, error=problem_of(error))
        if info is None:  # without a key there is no depth; policy `size` may have something to stitch
            return Standing(location=location, version=version.sequence, badness=0)
        depth = 1.0 if info.average_depth is None else info.average_depth
        return Standing(location=location, version=version.sequence, badness=depth * info.bytes)


def _within(options: Mapping[str, Any], room_bytes: int | None) -> dict[str, Any]:
    """Return options that also keep to a number of bytes."""
    if room_bytes is None:
        return dict(options)
    most = _asked_bytes(options)
    return {**options, "max_bytes": room_bytes if most is None else min(most, room_bytes)}


def _asked_bytes(options: Mapping[str, Any]) -> int | None:
    """Return the caller's own limit of a round."""
    asked = options.get("max_bytes")
    found: int | None = parse_size(asked) if isinstance(asked, str) else asked
    return found


def _most_bytes(daily_bytes: int | str | None) -> int | None:
    most = parse_size(daily_bytes) if isinstance(daily_bytes, str) else daily_bytes
    given: Any = most
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        msg = f"daily_bytes is {daily_bytes!r}, expected a number of bytes from 1 on, or text such as 100GiB"
        raise InvalidOptionError(msg)
    return most


def _seconds(every: float | str | datetime.timedelta) -> float:
    if isinstance(every, datetime.timedelta):
        seconds: Any = every.total_seconds()
    else:
        seconds = parse_time(every, "every") if isinstance(every, str) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 10**9:
        msg = f"every is {every!r}, expected a time above 0 and below 31 years, such as 60s or 5m"
        raise InvalidOptionError(msg)
    return float(seconds)
