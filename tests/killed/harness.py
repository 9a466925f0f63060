"""Processes at work on one table, killed and started again at random; then the table is judged by their logs."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from .model import LostError, Owner, digest_of
from .worker import Job, Raced, errors_of, is_whole, read_log, total, work, world_of

ROLES = ("write", "write", "write", "recluster", "recluster", "look")
MEAN_LIFE_SECONDS = 8.0
"""Of a process, until it is killed."""

END_SECONDS = 120.0
"""The longest that a process takes to end after it was told to stop."""

_FORMATS = ("native.write.writer", "native.write.dml", "native.read.scan", "native.upkeep.gc", "native.port")
_ICEBERG = ("iceberg.port", "iceberg.block_io", "iceberg.publish.commit", "iceberg.upkeep.collect")
PRELOADED = [
    *("__main__", "pandas", "psycopg2", "s3fs", "sqlglot", "pyiceberg.catalog.sql", "tests.killed.raced"),
    *("tblctl.maintain.recluster", "tblctl.maintain.choose_engine", "tblctl.merger.engines.local"),
    *(f"tblctl.tableformat.{name}" for name in (*_FORMATS, *_ICEBERG)),
]
"""Processes are forks of one that has done nothing but import what they need, so that they begin at once."""


@dataclass(kw_only=True)
class Race:
    """A table, its six processes, and how often they were killed.

    With `spark`, the table as Spark changes it, there is a seventh, which is killed like the others from the moment
    that it began: it takes longer to start than others live.
    """

    table: Raced
    folder: Path
    seed: int
    spark: Raced | None = None
    kills: int = 0
    spark_kills: int = 0
    _sparks: int = 0
    _running: dict[int, BaseProcess] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        return (*ROLES, "spark") if self.spark else ROLES

    def run(self, seconds: float) -> None:
        """Let the processes work for so long once all began, kill them at random, and let them come to their end.

        Raises:
            AssertionError: a process ended otherwise.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        chance, started = random.Random(self.seed), 0

        def start(owner: int) -> None:
            nonlocal started
            started += 1
            seed = self.seed * 1_000_003 + started
            role = self.roles[owner]
            table = self.spark if self.spark and role == "spark" else self.table
            self._sparks += role == "spark"
            job = Job(table=table, role=role, owner=owner, seed=seed, folder=self.folder)
            self._running[owner] = context.Process(target=work, args=(job,), daemon=True)
            self._running[owner].start()

        for owner in range(len(self.roles)):
            start(owner)
        try:
            while not all(map(self._has_begun, range(len(self.roles)))):
                self._require_alive()
                time.sleep(0.05)
            stop = time.monotonic() + seconds
            while time.monotonic() < stop:
                time.sleep(min(chance.expovariate(len(self.roles) / MEAN_LIFE_SECONDS), 5.0))
                self._require_alive()
                owner = chance.randrange(len(self.roles))
                if self._has_begun(owner):
                    self._kill(owner)
                    self.kills += 1
                    self.spark_kills += self.roles[owner] == "spark"
                    start(owner)
            (self.folder / "stop").touch()
            for owner, process in self._running.items():
                process.join(END_SECONDS)
                assert process.exitcode == 0, self._why(owner)
        finally:
            for owner in self._running:
                self._kill(owner)

    def _has_begun(self, owner: int) -> bool:
        """Return whether a process is at work: its first one, or each of Spark's."""
        log = self.log(owner)
        if self.roles[owner] == "spark":
            return sum("ready" in line for line in log) == self._sparks
        return bool(log)

    def _kill(self, owner: int) -> None:
        process = self._running[owner]
        if self.roles[owner] == "spark" and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has no group yet, or is gone
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()

    def _require_alive(self) -> None:
        for owner, process in self._running.items():
            assert process.exitcode is None, self._why(owner)

    def _why(self, owner: int) -> str:
        failed = [line["failed"] for line in self.log(owner) if "failed" in line]
        return f"{self.roles[owner]} {owner} ended with {self._running[owner].exitcode}: {failed}"

    def log(self, owner: int) -> list[dict[str, Any]]:
        return read_log(self.folder / f"{owner}.log")

    def judge(self) -> Figures:
        """Compare what all readers saw, and the rows that are there, with the logs; return figures.

        Raises:
            AssertionError: rows were lost, doubled, mixed up, or came back; or something was left over.
        """
        logs = [self.log(owner) for owner in range(len(self.roles))]
        owners = [Owner(owner=number) for number, role in enumerate(self.roles) if role in {"write", "spark"}]
        for owner in owners:
            owner.follow(logs[owner.owner])
            assert len(owner.worlds) == 1, "the last read of a worker settles what is there"
        self._compare(owners)
        rows, blocks = self.table.judge()
        rows_checked = sum(owner.rows_checked for owner in owners)
        rows_checked += self._compare(owners) + sum(total(log, "seen") for log in logs)
        lines = [line for log in logs for line in log]
        assert not [text for line in lines for text in line.get("failed", ())], lines
        attempts = [line["attempts"] for line in lines if "attempts" in line]
        groups, conflicts = total(lines, "groups"), total(lines, "conflicts")
        return Figures(
            operations=sum(owner.changes for owner in owners) + sum("rounds" in line for line in lines),
            commits=sum(owner.committed for owner in owners) + total(lines, "commits"),
            groups=groups,
            conflicts=conflicts,
            share_in_conflict=round(conflicts / max(1, groups + conflicts), 2),
            retries=sum(attempts) - len(attempts),
            refused=sum(owner.refused for owner in owners),
            unknown=sum(owner.unknown for owner in owners),
            kills=self.kills,
            spark_commits=sum(owner.committed for owner in owners if self.roles[owner.owner] == "spark"),
            spark_kills=self.spark_kills,
            reads=sum("read" in line or "seen" in line for line in lines),
            rows_checked=rows_checked,
            depth_after=_median([line["depth"] for line in lines if line.get("commits")]),
            depth_held=_median([line["held"] for line in lines if "held" in line]),
            rows=rows,
            blocks=blocks,
            expired=sum("expired" in line for line in lines),
            errors=dict(errors_of(lines)),
        )

    def _compare(self, owners: list[Owner]) -> int:
        """Compare the rows that are there with the owners' models; return how many there are."""
        found = self.table.rows(None)
        is_whole(found)
        for owner in owners:
            rows = self.table.rows(owner.owner)
            owner.saw(digest_of(world_of(owner.owner, rows)), rows.num_rows)
        expected = sum(len(owner.worlds[0]) for owner in owners)
        if found.num_rows != expected:
            raise LostError(f"{found.num_rows} rows are there, expected {expected}")
        return int(found.num_rows)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What happened in a race.

    Attributes:
        operations: changes of rows and reclusters that were begun.
        commits: of both.
        groups, conflicts: groups of reclusters that were committed, and that were dropped since a block had left.
        share_in_conflict: of the groups, those that were dropped.
        retries: further attempts of changes, after a lost race.
        refused, unknown: changes that ended with an error, or with a kill or an error that left the outcome open.
        kills: processes killed, Spark's among them.
        spark_commits, spark_kills: of `commits` and `kills`, those of Spark.
        reads: reads that were compared, of one's own rows or of all.
        rows_checked: rows in them, and at the end.
        depth_after: median of the average depth after each recluster that committed.
        depth_held: median of the average depth at any time, as the reader of all rows met it.
        rows, blocks: of the table at the end.
        expired: reads of a version that gc removed meanwhile, since it had no grace.
        errors: how often changes, reclusters and gc met each.
    """

    operations: int
    commits: int
    groups: int
    conflicts: int
    share_in_conflict: float
    retries: int
    refused: int
    unknown: int
    kills: int
    spark_commits: int
    spark_kills: int
    reads: int
    rows_checked: int
    depth_after: float
    depth_held: float
    rows: int
    blocks: int
    expired: int
    errors: dict[str, int]

    def lines(self) -> list[str]:
        """Return the figures as text."""
        figures = {name: value for name, value in vars(self).items() if name != "errors"}
        found = [f"  {name.replace('_', ' '):<16} {value}" for name, value in figures.items()]
        return found + [f"  {count} x {text}" for text, count in self.errors.items()]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else math.nan
