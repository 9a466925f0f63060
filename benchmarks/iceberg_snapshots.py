"""Commands of the shell on an Iceberg table whose metadata has 10,000 snapshots.

The table has two small files that overlap; each further snapshot has the same ones, an hour after the one before. The
table lies on local disk, its catalog is SQLite. Each snapshot has its manifest list, a copy; all share two manifests.

Every command is a new process, timed from its start to its end, with the peak of its resident memory. What writes is
measured once, what reads several times. "The metadata alone" is what PyIceberg needs to load the table.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, in_turn, main, scratch
from benchmarks.snapshots import RUNS, SNAPSHOTS, Case, one

EXPIRE = ("--keep", "10", "--expire-older-than", "1h")
HOUR_MS = 3_600_000


def measure(report: Report, tiny: bool) -> None:
    snapshots = 20 if tiny else SNAPSHOTS
    with scratch() as folder:
        options = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "tables")}
        size_bytes = make(folder, options, snapshots)
        report.line(f"{snapshots:,} snapshots, {size_bytes / 2**20:,.1f} MiB of metadata")
        (loading,) = in_turn([lambda: load(options)], runs=1 if tiny else RUNS)
        report.figure("the metadata alone, median", statistics.median(loading), "s")
        table = "iceberg://lake/db.t"
        os.environ.update(
            {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in options.items()}
        )
        runs = 1 if tiny else RUNS
        for case in (
            Case(words=("info", table), most_seconds=10, runs=runs),
            Case(words=("recluster", table, "--policy", "full", "--dry-run"), most_seconds=10, runs=runs),
            Case(words=("history", table, "--limit", "20"), most_seconds=10, runs=runs),
            Case(words=("history", table, "--limit", str(snapshots)), most_seconds=10, runs=runs),
            Case(words=("gc", table, "--dry-run"), most_seconds=30, runs=runs),
            Case(words=("gc", table, *EXPIRE, "--dry-run"), most_seconds=30, runs=runs),
            Case(words=("recluster", table, "--policy", "full"), most_seconds=30, runs=1),
            Case(words=("gc", table, *EXPIRE), most_seconds=120, runs=1),
        ):
            one(report, case, folder / "tables")


def load(options: dict[str, str]) -> float:
    """Return the seconds in which PyIceberg loads the table."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **options)
    started = time.perf_counter()
    catalog.load_table("db.t")
    return time.perf_counter() - started


def make(folder: Path, options: dict[str, str], snapshots: int) -> int:
    """Make the table; return the bytes of its metadata."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    (folder / "tables").mkdir()
    catalog = load_catalog("lake", **options)
    catalog.create_namespace("db")
    table = catalog.create_table(
        "db.t", pa.schema([("id", pa.int64())]), properties={"tblctl.cluster-by": "id"}
    )
    for first in range(2):
        table.append(pa.table({"id": range(first, 20, 2)}))
    many = with_snapshots(json.loads(table.metadata.model_dump_json(by_alias=True)), snapshots)
    text = json.dumps(many)
    local(table.metadata_location).write_text(text)
    return len(text)


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def with_snapshots(metadata: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the metadata with `count` more snapshots of the same files, all of them in the past."""
    last = metadata["snapshots"][-1]
    back = (count + 24) * HOUR_MS
    for item in (*metadata["snapshots"], *metadata["snapshot-log"], *metadata["metadata-log"]):
        item["timestamp-ms"] -= back
    for number in range(1, count + 1):
        time_ms = last["timestamp-ms"] + number * HOUR_MS
        parent = metadata["snapshots"][-1]["snapshot-id"]
        listed = f"{last['manifest-list'].removesuffix('.avro')}-{number}.avro"
        shutil.copy(local(last["manifest-list"]), local(listed))
        changes = {
            "manifest-list": listed,
            "snapshot-id": 10_000_000 + number,
            "parent-snapshot-id": parent,
            "sequence-number": last["sequence-number"] + number,
            "timestamp-ms": time_ms,
        }
        metadata["snapshots"].append(last | changes)
        metadata["snapshot-log"].append({"snapshot-id": 10_000_000 + number, "timestamp-ms": time_ms})
    newest = metadata["snapshots"][-1]
    metadata["last-sequence-number"] = newest["sequence-number"]
    metadata["last-updated-ms"] = newest["timestamp-ms"]
    metadata["current-snapshot-id"] = newest["snapshot-id"]
    metadata["refs"]["main"]["snapshot-id"] = newest["snapshot-id"]
    return metadata


if __name__ == "__main__":
    main("iceberg_snapshots", measure)
