"""Processes that race for one Iceberg table: run as programs, `python racers.py ROLE ARGUMENTS`.

Each works for some seconds, and logs as lines of JSON what it certainly did. Rows have an id, all different, the
partition `id % PARTITIONS`, and `text_of(id)`.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

sys.path.append(str(Path(__file__).parent))
from position_deletes import commit, delete_file  # type: ignore[import-not-found]

import tblctl
from tblctl.errors import TblctlError

NAME = "lake"
TABLE = "db.raced"
PARTITIONS = 3
ROWS = 60
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("text", pa.string())])


def text_of(number: int) -> str:
    return f"row {number * 7919}"


def ids_from(first: int) -> list[int]:
    """Return `ROWS` ids of an append: all different, in the range of all others."""
    return [number * 7919 % 1_000_003 for number in range(first, first + ROWS)]


def rows_from(first: int) -> pa.Table:
    ids = ids_from(first)
    return pa.table([ids, [i % PARTITIONS for i in ids], [text_of(i) for i in ids]], schema=SCHEMA)


class Racer:
    """One process: `step` again and again, until its time is over.

    Args:
        options: of the catalog.
        seconds: how long.
        seed: of what is random.
        log: for what was done.
    """

    def __init__(self, options: dict[str, str], seconds: float, seed: int, log: TextIO) -> None:
        self.options = options
        self.random = random.Random(seed)
        self._seconds = seconds
        self._log = log

    def did(self, **what: Any) -> None:
        print(json.dumps(what), file=self._log, flush=True)

    def run(self, step: Callable[[], object], *, pause: float) -> None:
        """Repeat a step until time is over; then as long as it returns True."""
        stop = time.monotonic() + self._seconds
        again: object = True
        while time.monotonic() < stop or again is True:
            again = step()
            time.sleep(pause * self.random.random())

    def table(self) -> Table:
        return patiently(lambda: load_catalog(NAME, **self.options).load_table(TABLE))

    def append(self) -> None:
        """Append with PyIceberg. Which append is in a snapshot's summary, for errors that leave it open."""
        table = self.table()
        count = 0

        def step() -> None:
            nonlocal count
            first = count * ROWS
            count += 1
            while True:
                try:
                    table.refresh().append(rows_from(first), snapshot_properties={"race.first": str(first)})
                except (CommitFailedException, OperationalError):
                    table.catalog.engine.dispose()  # type: ignore[attr-defined]  # else it may see what was not stored
                    known = patiently(table.refresh).snapshots()
                    if str(first) not in {snapshot.summary["race.first"] for snapshot in known}:
                        continue
                break
            self.did(appended=first)

        self.run(step, pause=0.4)

    def delete(self) -> None:
        """Delete some rows of a file merge-on-read, as engines do: only if the file is live when it commits."""
        table = self.table()

        def step() -> None:
            try:
                files = [task.file for task in table.refresh().scan().plan_files()]
                if not files:
                    return
                file = self.random.choice(files)
                with table.io.new_input(file.file_path).open() as stream:
                    ids = pq.read_table(stream, columns=["id"])["id"].to_pylist()
                places = sorted(self.random.sample(range(len(ids)), min(5, len(ids))))
                rows = [(file.file_path, place) for place in places]
                written = delete_file(table, rows, like=file, bounds=self.random.random() < 0.5)
                commit(table, [written], content=ManifestContent.DELETES, needed={file.file_path})
            except (CommitFailedException, OperationalError):
                table.catalog.engine.dispose()  # type: ignore[attr-defined]
                return
            self.did(deleted=[ids[place] for place in places])

        self.run(step, pause=0.4)

    def recluster(self) -> None:
        """Recluster; at the end as long as others are faster, so that something was certainly merged."""

        def step() -> bool:
            try:
                table = tblctl.open(f"iceberg://{NAME}/{TABLE}", catalog_options=self.options)
                found = table.recluster(policy=self.random.choice(["levels", "full"]), cluster_by="id")
            except TblctlError as error:
                self.did(error=f"{type(error).__name__}: {error}")
                return True
            self.did(
                commits=found.commits,
                committed=found.committed_groups,
                conflicted=found.conflicted_groups,
                failed=[group.error for group in found.groups if group.status == "failed"],
            )
            return found.conflicted_groups > 0

        self.run(step, pause=0.1)

    def gc(self) -> None:
        def step() -> None:
            try:
                table = tblctl.open(f"iceberg://{NAME}/{TABLE}", catalog_options=self.options)
                self.did(removed=list(table.gc().objects_deleted))
            except TblctlError as error:
                self.did(error=f"{type(error).__name__}: {error}")

        self.run(step, pause=0.5)

    def lock(self) -> None:
        """Lock the catalog's database, longer than others wait for it."""
        path = self.options["uri"].removeprefix("sqlite:///").partition("?")[0]
        database = sqlite3.connect(path, timeout=60, isolation_level=None)

        def step() -> None:
            database.execute("BEGIN EXCLUSIVE")
            time.sleep(0.1)
            database.execute("ROLLBACK")

        self.run(step, pause=0.4)


def patiently(load: Callable[[], Table]) -> Table:
    """Load a table, again while the catalog's database is locked."""
    while True:
        try:
            return load()
        except OperationalError:
            time.sleep(0.02)


def main(role: str, options: str, seconds: str, seed: str, log: str) -> None:
    with Path(log).open("w") as stream:
        getattr(Racer(json.loads(options), float(seconds), int(seed), stream), role)()


if __name__ == "__main__":
    main(*sys.argv[1:])
