"""Processes that race for one Iceberg table: run as programs, `python racers.py ROLE ARGUMENTS`.

Each works for some seconds, and logs as lines of JSON what it certainly did. Rows have an id, all different, the
partition `id % PARTITIONS`, and `text_of(id)`.
"""

from __future__ import annotations

import json
import random
import re
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

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2])]
from position_deletes import commit, delete_file  # type: ignore[import-not-found]

import tblctl
from benchmarks.merging.packages import loaded_alone
from tblctl.errors import TblctlError

NAME = "lake"
TABLE = "db.raced"
PARTITIONS = 3
ROWS = 60
SPARK_FIRST = 500_000
"""The first number of Spark's appends; PyIceberg's begin at 0."""

SPARK_PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.iceberg:iceberg-aws-bundle:1.12.0,"
    "org.xerial:sqlite-jdbc:3.50.3.0"
)
_UPLOAD = re.compile(r"during (PutObject|\w*MultipartUpload|UploadPart) operation")
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

    def raise_unless_upload_failed(self, error: Exception) -> None:
        """Raise an error of the storage again, but log one of PyIceberg's uploads: the server may refuse some.

        A busy MinIO answers HTTP 400 IncompleteBody. The catalog is called after the uploads, so nothing was committed.
        Whatever cannot be read is a fault of somebody who deleted it.
        """
        if isinstance(error, OSError):
            if not _UPLOAD.search(str(error)):
                raise error
            self.did(upload_failed=str(error)[-200:])

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
                except (CommitFailedException, OperationalError, OSError) as error:
                    self.raise_unless_upload_failed(error)
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
            except (CommitFailedException, OperationalError, OSError) as error:
                self.raise_unless_upload_failed(error)
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

    def spark(self) -> None:
        """Append rows and delete some merge-on-read with Spark, after the line `ready` on standard output.

        Which step a snapshot is of lies in its summary, for errors that leave it open.
        """
        spark = spark_of(self.options)
        table = f"{NAME}.{TABLE}"
        spark.sql(f"SELECT count(*) FROM {table}").collect()
        print("ready", flush=True)
        count = 0
        has_deleted = False

        def committed(statement: str) -> bool:
            nonlocal count
            count += 1
            spark.conf.set("spark.sql.iceberg.snapshot-property.race.first", f"spark {count}")
            try:
                spark.sql(statement).collect()
            except Exception as error:
                known = spark.sql(f"SELECT summary['race.first'] AS step FROM {table}.snapshots").collect()
                if f"spark {count}" not in {row.step for row in known}:
                    self.did(refused=reason(error))
                    return False
            return True

        def step() -> bool:
            nonlocal has_deleted
            first = SPARK_FIRST + count * ROWS
            numbers = f"SELECT id * 7919 % 1000003 AS k FROM range({first}, {first + ROWS}, 1, 1)"
            row = f"k, CAST(k % {PARTITIONS} AS INT), concat('row ', k * 7919)"
            if committed(f"INSERT INTO {table} SELECT {row} FROM ({numbers})"):
                self.did(appended=first)
            live = sorted(row.id for row in spark.sql(f"SELECT id FROM {table}").collect())
            chosen = self.random.sample(live, min(5, len(live)))
            words = ", ".join(map(str, chosen))
            if chosen and committed(f"DELETE FROM {table} WHERE id IN ({words})"):
                self.did(deleted=chosen)
                has_deleted = True
            return not has_deleted  # others may always be faster, until their time is over

        self.run(step, pause=0.2)
        spark.stop()

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


def reason(error: Exception) -> str:
    """Return the line of an error of Spark's that says most: the last cause that Java names."""
    causes = [line for line in str(error).splitlines() if line.startswith(("Caused by:", ": "))]
    return (causes or [str(error)])[-1][:200]


def spark_of(options: dict[str, str]) -> Any:
    """Return a Spark session with the catalog, which lies on MinIO."""
    from pyspark.sql import SparkSession

    catalog = f"spark.sql.catalog.{NAME}"
    conf = {
        "spark.jars.packages": SPARK_PACKAGES,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": options["uri"].replace("sqlite:///", "jdbc:sqlite:"),
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": options["warehouse"],
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.s3.endpoint": options["s3.endpoint"],
        f"{catalog}.s3.path-style-access": "true",
        f"{catalog}.s3.access-key-id": options["s3.access-key-id"],
        f"{catalog}.s3.secret-access-key": options["s3.secret-access-key"],
        f"{catalog}.client.region": options["s3.region"],
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    with loaded_alone():
        return builder.getOrCreate()


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
