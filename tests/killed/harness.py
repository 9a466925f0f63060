"""Six processes at work on one table, killed and started again at random; then the table is judged by their logs."""

from __future__ import annotations

import math
import multiprocessing
import random
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
    """A table, its six processes, and how often they were killed."""

    table: Raced
    folder: Path
    seed: int
    kills: int = 0
    _running: dict[int, BaseProcess] = field(default_factory=dict)

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
            job = Job(table=self.table, role=ROLES[owner], owner=owner, seed=seed, folder=self.folder)
            self._running[owner] = context.Process(target=work, args=(job,), daemon=True)
            self._running[owner].start()

        for owner in range(len(ROLES)):
            start(owner)
        try:
            while not all(map(self.log, range(len(ROLES)))):
                self._require_alive()
                time.sleep(0.05)
            stop = time.monotonic() + seconds
            while time.monotonic() < stop:
                time.sleep(min(chance.expovariate(len(ROLES) / MEAN_LIFE_SECONDS), 5.0))
                self._require_alive()
                owner = chance.randrange(len(ROLES))
                self._kill(owner)
                self.kills += 1
                start(owner)
            (self.folder / "stop").touch()
            for owner, process in self._running.items():
                process.join(END_SECONDS)
                assert process.exitcode == 0, self._why(owner)
        finally:
            for owner in self._running:
                self._kill(owner)

    def _kill(self, owner: int) -> None:
        self._running[owner].kill()
        self._running[owner].join()

    def _require_alive(self) -> None:
        for owner, process in self._running.items():
            assert process.exitcode is None, self._why(owner)

    def _why(self, owner: int) -> str:
        failed = [line["failed"] for line in self.log(owner) if "failed" in line]
        return f"{ROLES[owner]} {owner} ended with {self._running[owner].exitcode}: {failed}"

    def log(self, owner: int) -> list[dict[str, Any]]:
        return read_log(self.folder / f"{owner}.log")

    def judge(self) -> Figures:
        """Compare what all readers saw, and the rows that are there, with the logs; return figures.

        Raises:
            AssertionError: rows were lost, doubled, mixed up, or came back; or something was left over.
        """
        logs = [self.log(owner) for owner in range(len(ROLES))]
        owners = [Owner(owner=number) for number, role in enumerate(ROLES) if role == "write"]
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
        return Figures(
            operations=sum(owner.changes for owner in owners) + sum("rounds" in line for line in lines),
            commits=sum(owner.committed for owner in owners) + total(lines, "commits"),
            groups=total(lines, "groups"),
            conflicts=total(lines, "conflicts"),
            retries=sum(attempts) - len(attempts),
            refused=sum(owner.refused for owner in owners),
            unknown=sum(owner.unknown for owner in owners),
            kills=self.kills,
            reads=sum("read" in line or "seen" in line for line in lines),
            rows_checked=rows_checked,
            depth=_median([line["depth"] for line in lines if line.get("commits")]),
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
        retries: further attempts of changes, after a lost race.
        refused, unknown: changes that ended with an error, or with a kill or an error that left the outcome open.
        kills: processes killed.
        reads: reads that were compared, of one's own rows or of all.
        rows_checked: rows in them, and at the end.
        depth: median of the average depth after each recluster that committed.
        rows, blocks: of the table at the end.
        expired: reads of a version that gc removed meanwhile, since it had no grace.
        errors: how often changes, reclusters and gc met each.
    """

    operations: int
    commits: int
    groups: int
    conflicts: int
    retries: int
    refused: int
    unknown: int
    kills: int
    reads: int
    rows_checked: int
    depth: float
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
