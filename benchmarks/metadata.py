"""Open, prune, commit to and list a table of a million blocks, of which only the metadata exists.

Its segments are made directly, not by a million writes. They have 16 columns like lineitem's, and 10,000 blocks each.
In the layout `scattered`, the harder one, the blocks of each segment are spread over all dates, so no segment can be
skipped. In `sorted` each segment has its own range of dates, as after a recluster.

Pruning and listing are measured in fresh processes, imports included, with the peak of their resident memory.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import Command, Pairs, Report, Timed, in_turn, main, rounds_in_all, scratch, script
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.log.segment_columns import BASE_COLUMNS, key_names, statistic_names
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

SCHEMA = """
l_orderkey: int64 not null, l_partkey: int64 not null, l_suppkey: int64 not null, l_linenumber: int32 not null,
l_quantity: decimal(15, 2) not null, l_extendedprice: decimal(15, 2) not null, l_discount: decimal(15, 2) not null,
l_tax: decimal(15, 2) not null, l_returnflag: string not null, l_linestatus: string not null,
l_shipdate: date not null, l_commitdate: date not null, l_receiptdate: date not null,
l_shipinstruct: string not null, l_shipmode: string not null, l_comment: string not null
"""
KEY = ("l_shipdate", "l_orderkey")
DAYS = 2_526  # of l_shipdate, from FIRST_DAY on
FIRST_DAY = datetime.date(1992, 1, 2)
ROWS = 100_000  # of each block
WHERES = (
    "l_shipdate = DATE '1995-03-15'",
    "l_shipdate = DATE '1995-03-15' and l_orderkey between 1000 and 2000",
)

# Not getrusage for the memory: on Linux it includes the peak of the parent process.
PRUNE = """
import time
started = time.perf_counter()
import json, re, sys
import tblctl
explained = tblctl.open(sys.argv[1]).scan(where=sys.argv[2]).explain()
seconds = time.perf_counter() - started
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1))
measured = {"seconds": seconds, "cpu_seconds": time.process_time(), "peak_bytes": peak_kib * 1024}
print(json.dumps(explained.to_dict() | measured))
"""
"""The program of a fresh process. Its imports count."""


def measure(report: Report, tiny: bool) -> None:
    segments, size = (3, 100) if tiny else (100, 10_000)
    runs = 1 if tiny else 5
    report.line(
        f"{segments * size:,} blocks in {segments} segments, 16 columns; key {', '.join(KEY)}; {runs} runs"
    )
    with scratch() as folder:
        for layout in ("scattered", "sorted"):
            place = folder / layout
            build(place, segments, size, scattered=layout == "scattered")
            metadata_bytes = sum(item.stat().st_size for item in place.rglob("*") if item.is_file())
            report.line()
            report.line(f"{layout}: {metadata_bytes / 2**20:.0f} MiB of metadata")
            for where in WHERES:
                pruning(report, layout, place, where, runs)
        committing(report, folder, place, runs=runs if tiny else 15)
        listing = Command(script("tblctl"), "files", str(place), "--limit", "10")
        (listed,) = in_turn([listing], runs=runs)
        report.begin("tblctl files --limit 10, a whole process")
        report.seconds("seconds", listed)
        report.seconds("  of processor time", listing.cpu_seconds[-runs:])
        report.figure("median", statistics.median(listed), "s", most=2.0)


def pruning(report: Report, layout: str, place: Path, where: str, runs: int) -> None:
    """Measure `open` and `explain` in fresh processes."""
    seen = []
    for _ in range(rounds_in_all(runs)):
        done = subprocess.run(
            [sys.executable, "-c", PRUNE, str(place), where],
            check=True,
            capture_output=True,
            text=True,
        )
        seen.append(json.loads(done.stdout))
    seen = seen[-runs:]
    kept = f"{seen[0]['blocks_read']:,} of {seen[0]['blocks_total']:,} blocks"
    report.begin(f"open and prune, {layout}, where {where}: {kept}")
    seconds = [item["seconds"] for item in seen]
    report.seconds("seconds", seconds)
    report.seconds("  of processor time", [item["cpu_seconds"] for item in seen])
    report.figure("median", statistics.median(seconds), "s", most=2.0)
    report.figure(
        "peak memory of the process", max(item["peak_bytes"] for item in seen) / 2**30, "GiB", most=1.0
    )


def committing(report: Report, folder: Path, place: Path, *, runs: int) -> None:
    """Compare an append of few rows to the large table with the same append to an empty one."""
    empty = folder / "empty"
    tblctl.create(empty, SCHEMA, cluster_by=KEY)
    rows = few_rows()

    def appending(where: Path) -> Timed:
        def run() -> float:
            started = time.perf_counter()
            tblctl.open(where).append(rows)
            return time.perf_counter() - started

        return run

    large, small = in_turn([appending(place), appending(empty)], runs=runs)
    pairs = Pairs(ours=large, baseline=small)
    report.begin(f"open and append {rows.num_rows} rows, {runs} runs in turn")
    report.pairs("to the table of many blocks", pairs, "to an empty table")
    report.figure("commit beyond that of an empty table", pairs.excess_seconds, "s", most=0.5)


def few_rows() -> pa.Table:
    logical = Schema.create(tblctl.parse_schema(SCHEMA)).logical
    columns = []
    for item in logical:
        value = "x" if pa.types.is_string(item.type) else FIRST_DAY if pa.types.is_date(item.type) else 1
        columns.append(pa.array([value] * 10, item.type))
    return pa.table(columns, schema=logical)


# -- a table without data -----------------------------------------------------------------------------------------


def build(place: Path, segments: int, size: int, *, scattered: bool) -> None:
    """Make a table of `segments` x `size` blocks of which no file exists."""
    tblctl.create(place, SCHEMA, cluster_by=KEY)
    storage = Storage(place)
    native = NativeTable(storage, SYSTEM)
    head = native.head()
    rng = np.random.default_rng(7)
    refs: list[SegmentRef] = []
    for number in range(segments):
        rows = segment_rows(head, number, segments, size, rng, scattered=scattered)
        # One segment at a time: the whole table's rows would take 2 GiB.
        edit = Edit(operation="append", added=rows)
        refs += EditApplier(storage, SYSTEM).propose(edit, head).snapshot.segments
    native.change(lambda now: with_segments(now, refs))


def with_segments(head: Snapshot, refs: list[SegmentRef]) -> Snapshot:
    summary = dataclasses.replace(
        head.summary,
        operation="append",
        rows=sum(ref.row_count for ref in refs),
        blocks=sum(ref.block_count for ref in refs),
        data_bytes=sum(ref.data_bytes for ref in refs),
    )
    return dataclasses.replace(head, segments=tuple(refs), summary=summary)


def segment_rows(
    head: Snapshot,
    number: int,
    segments: int,
    size: int,
    rng: np.random.Generator,
    *,
    scattered: bool,
    days: float = 2,
) -> pa.Table:
    """Return the rows of one segment: blocks like those of lineitem sorted by date, each over a few days."""
    first = (
        rng.uniform(0, DAYS, size)
        if scattered
        else np.sort(rng.uniform(number, number + 1, size)) * DAYS / segments
    )
    bounds = {"l_shipdate": (first.astype(np.int32), (first + rng.uniform(0, days, size)).astype(np.int32))}
    orders = rng.integers(1, 100_000_000, (2, size))
    bounds["l_orderkey"] = orders.min(axis=0), orders.max(axis=0)
    columns: dict[str, pa.Array] = {
        "path": pa.array([f"data/{uuid.UUID(bytes=rng.bytes(16)).hex}.parquet" for _ in range(size)]),
        "level": pa.array(np.zeros(size, dtype=np.int32)),
        "run_id": pa.array([f"{number:032x}"] * size),
        "schema_id": pa.array(np.full(size, head.schema_id, dtype=np.int32)),
        "cluster_key_id": pa.array(np.full(size, head.cluster_key_id, dtype=np.int32)),
        "row_count": pa.array(np.full(size, ROWS)),
        "same_key_rows": pa.array(np.full(size, ROWS)),
    }
    for name in ("size_bytes", "uncompressed_bytes", "decoded_bytes"):
        columns[name] = pa.array(rng.integers(3_000_000, 30_000_000, size))
    columns["footer_bytes"] = pa.array(rng.integers(2_000, 30_000, size))
    columns["footer_checksum"] = pa.array(rng.integers(0, 2**63, size))
    ordered = {item.name: columns[item.name].cast(item.type) for item in BASE_COLUMNS}
    for leaf in head.schema.leaves:
        for name, kind in statistic_names(leaf).items():
            ordered[name] = statistic(name, kind, bounds.get(leaf.name), size, rng)
    lows, highs, exact = key_names(head.cluster_key_id, len(KEY))
    for term, name in enumerate(KEY):
        leaf = head.schema.leaf(name)
        ordered[lows[term]], ordered[highs[term]] = (
            ordered[f"column_{leaf.id}_{end}"] for end in ("min", "max")
        )
    return pa.table({**ordered, exact: pa.array(np.ones(size, dtype=bool))})


def statistic(
    name: str,
    kind: pa.DataType,
    bounds: tuple[np.ndarray, np.ndarray] | None,
    size: int,
    rng: np.random.Generator,
) -> pa.Array:
    fact = name.split("_", 2)[2]
    if fact == "exact":
        return pa.array(np.ones(size, dtype=bool))
    if fact == "null_count":
        return pa.array(np.zeros(size, dtype=np.int64))
    if fact not in {"min", "max"}:
        return pa.array(rng.integers(10_000, 3_000_000, size))
    if bounds is None:
        low = rng.integers(0, 1_000, size)
        values = low if fact == "min" else low + 1_000
    else:
        values = bounds[fact == "max"]
    if pa.types.is_date(kind):
        offset = (FIRST_DAY - datetime.date(1970, 1, 1)).days
        return pa.array(values.astype(np.int32) + offset, pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array(values).cast(pa.decimal128(21, 2)).cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([f"carefully final deposits {value:09d}" for value in values.tolist()], kind)
    return pa.array(values).cast(kind)


if __name__ == "__main__":
    main("metadata", measure)
