"""One process of a race: works for ever, until a file named `stop` appears, or it is killed.

It logs what it does as lines of JSON, each on disk before it goes on. Rows are those of `model.py`.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.errors import CommitOutcomeUnknownError, TblctlError

from .model import KEYS, changed, digest_of, key_of, text_of

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64()),
        pa.field("owner", pa.int64()),
        pa.field("number", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
KINDS = ("append",) * 5 + ("update",) * 3 + ("delete", "overwrite")
SPARK_KINDS = ("append",) * 4 + ("update",) * 2 + ("delete",) * 2
MOST_ROWS = 1500
"""A worker with more rows of its own deletes."""


class Raced(Protocol):
    """A table that workers change, as one of them opens it. It pickles."""

    def commit(self, owner: int, change: Mapping[str, Any]) -> int:
        """Commit a change; return how many attempts it took."""

    def rows(self, owner: int | None) -> pa.Table:
        """Return the rows of an owner, or of all."""

    def read_twice(self) -> tuple[pa.Table, pa.Table]:
        """Return all rows of one version, read at two times."""

    def recluster(self, chance: random.Random) -> Any:
        """Do a round, and return its outcome."""

    def collect(self, chance: random.Random) -> None:
        """Collect garbage, with as little grace as the format allows."""

    def depth(self) -> float:
        """Return the average depth of the newest version."""

    def judge(self) -> tuple[int, int]:
        """Assert that the table is sound and nothing is left over after gc; return how many rows and blocks it has."""


def rows_of(owner: int, change: Mapping[str, Any]) -> pa.Table:
    """Return the rows that an append or an overwrite adds."""
    return table_of(owner, changed(owner, {}, {**change, "kind": "append"}))


def table_of(owner: int, world: Mapping[int, int]) -> pa.Table:
    columns = {
        "key": [key_of(owner, number) for number in world],
        "owner": [owner] * len(world),
        "number": list(world),
        "value": list(world.values()),
        "text": [text_of(owner, number) for number in world],
    }
    return pa.table(columns, schema=SCHEMA)


def world_of(owner: int, rows: pa.Table) -> dict[int, int]:
    """Return the rows of an owner as the model has them; each must be whole, and there once."""
    found = {row["number"]: row["value"] for row in rows.to_pylist()}
    expected = table_of(owner, dict(sorted(found.items())))
    assert rows.sort_by("number").cast(SCHEMA).equals(expected), f"rows of {owner} are doubled or mixed up"
    return found


def is_whole(rows: pa.Table) -> None:
    """Assert that all rows are whole, and there once."""
    for owner in pc.unique(rows["owner"]).to_pylist():
        world_of(owner, rows.filter(pc.equal(rows["owner"], owner)))


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process does: a role, on a table, as an owner of rows."""

    table: Raced
    role: str
    owner: int
    seed: int
    folder: Path


def work(job: Job) -> None:
    """Work until told to stop; what ends it otherwise is in the log."""
    worker = Worker(job)
    try:
        getattr(worker, job.role)()
    except BaseException:
        worker.log(failed=traceback.format_exc())
        raise


class Worker:
    """A process at work."""

    def __init__(self, job: Job) -> None:
        self._table, self._owner = job.table, job.owner
        self._stop, self._kinds = job.folder / "stop", KINDS
        self._chance = random.Random(job.seed)
        path = job.folder / f"{job.owner}.log"
        known = [line["begun"] for line in read_log(path) if "begun" in line]
        self._next_value = 1 + max((begun["value"] for begun in known), default=0)
        self._next_number = max((begun["first"] + begun["count"] for begun in known), default=0)
        self._log = path.open("a")

    def log(self, **line: Any) -> None:
        """Write a line, and wait until it is on disk. A killed worker may have left half a line before it."""
        self._log.write(f"\n{json.dumps(line)}\n")
        self._log.flush()
        os.fsync(self._log.fileno())

    def repeat(self, step: Callable[[], object], *, pause: float) -> None:
        while not self._stop.exists():
            step()
            time.sleep(pause * self._chance.random())

    def spark(self) -> None:
        """Write by a Spark of one's own, which dies with the process group: once it has begun, the log says `ready`."""
        os.setsid()
        self._kinds = SPARK_KINDS
        self._settle()
        self.log(ready=os.getpid())
        self.repeat(self._write_once, pause=0.05)
        self._settle()

    def write(self) -> None:
        """Change rows of one's own, and read them."""
        self._settle()
        self.repeat(self._write_once, pause=0.05)
        self._settle()

    def _write_once(self) -> None:
        rows = len(world_of(self._owner, self._table.rows(self._owner)))
        kind = self._chance.choice(self._kinds) if rows < MOST_ROWS else "delete"
        if self._change(kind) == "unknown":
            self._settle()
        elif self._chance.random() < 0.3:
            self._read()

    def _settle(self) -> None:
        """Commit something, so that it is certain what was committed before; and read."""
        while self._change("append") != "committed":
            pass
        self._read()

    def _read(self) -> None:
        world = world_of(self._owner, self._table.rows(self._owner))
        self.log(read=digest_of(world), rows=len(world))

    def _change(self, kind: str) -> str:
        """Try a change at random; return how it ended."""
        low = self._chance.randrange(KEYS)
        wide = self._chance.choice([KEYS // 100, KEYS // 10])
        count = self._chance.randrange(1, 60)
        change = {"kind": kind, "low": low, "high": low + wide, "value": self._next_value}
        change |= {"first": self._next_number, "count": count}
        self._next_value += 1
        self._next_number += count
        self.log(begun=change)
        try:
            attempts = self._table.commit(self._owner, change)
        except CommitOutcomeUnknownError as error:
            self.log(ended="unknown", error=str(error))
            return "unknown"
        except TblctlError as error:
            self.log(ended="refused", error=f"{kind}: {type(error).__name__}: {error}")
            return "refused"
        self.log(ended="committed", attempts=attempts)
        return "committed"

    def recluster(self) -> None:
        """Recluster in a loop."""
        self.repeat(self._recluster_once, pause=0.1)

    def _recluster_once(self) -> None:
        try:
            found = self._table.recluster(self._chance)
        except TblctlError as error:
            self.log(error=f"recluster: {type(error).__name__}: {error}")
            return
        self.log(
            rounds=found.rounds,
            commits=found.commits,
            groups=found.committed_groups,
            conflicts=found.conflicted_groups,
            depth=found.depth_after,
            failed=[group.error for group in found.groups if group.status == "failed"],
        )

    def look(self) -> None:
        """Read everything, twice from one version, and collect garbage."""
        self.repeat(self._look_once, pause=0.2)

    def _look_once(self) -> None:
        if self._chance.random() < 0.5:
            self._collect_once()
        try:
            self.log(held=self._table.depth())
            first, second = map(in_order, self._table.read_twice())
        except TblctlError as error:  # gc without grace may expire a version that is being read
            self.log(expired=str(error))
            return
        is_whole(first)
        assert first.equals(second), "a version changed under its reader"
        self.log(seen=first.num_rows)

    def _collect_once(self) -> None:
        try:
            self._table.collect(self._chance)
        except TblctlError as error:
            self.log(error=f"gc: {type(error).__name__}: {error}")


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("owner", "ascending"), ("number", "ascending")])


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; half a line, which a killed process left, is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def total(lines: list[dict[str, Any]], name: str) -> int:
    return sum(line.get(name, 0) for line in lines)


def errors_of(lines: list[dict[str, Any]]) -> Counter[str]:
    """Return how often each error was met, without what differs from one to the next."""
    texts = [line["error"] for line in lines if "error" in line]
    return Counter(re.sub(r"\S*/\S*|\d+", "*", text)[:160] for text in texts)
