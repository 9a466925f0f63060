"""The costs of finding the cuts between the tasks of groups: of reading keys, and of the driver on Spark.

First the keys of one group of large blocks are read. Then many groups of 64 small blocks are cut, in this process and
on Spark: what the driver does for a group depends on its numbers of blocks and tasks, not on its bytes. The session is
told that it has more processors, so that groups get as many tasks as at 1 TB on 400 processors. The driver's requests
are counted by the proxy of `requests`; workers go past it. Spark's JVM is driver and executor here, so its seconds are
more than a driver's.

`scale` takes its rates for large tables from the result.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Report, lineitem, main, scratch
from benchmarks.merging.session import spark_session
from benchmarks.merging.tasks import tasks_in
from benchmarks.requests import (
    KEY,
    S3Server,
    Wire,
    find_minio,
    make_table,
    run_minio,
    run_moto,
    stored_bytes,
    wire,
)
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.cutting.cuts import CutTask, Output, tasks_of, whole_splits
from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.selector.plan import Plan
from tblctl.spark.code import CODE
from tblctl.tableformat.formats import open_port

ROWS = 1_000_000  # of the large blocks
GROUPS, BLOCKS = 8, 64
TASKS = 14
"""Of a group of 8 GiB, where 117 of them are shared out to 400 processors (`merger/round/balance.py`)."""


class Costs(NamedTuple):
    """Seconds of processors, and requests for objects, of the driver."""

    seconds: float
    jvm_seconds: float
    gets: int


class DriversIO:
    """A `BlockIO` with which this process goes through the proxy. A pickle of it goes past."""

    def __init__(self, here: Any, there: Any) -> None:
        self._here, self._there = here, there

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (pickle.dumps(self._there),)


def measure(report: Report, tiny: bool) -> None:
    scale, groups, blocks = ("0.001", 3, 4) if tiny else ("1", GROUPS, BLOCKS)
    serving = run_minio if find_minio() else run_moto
    with scratch() as folder, serving() as server, wire(server) as counted:
        report.line(f"lineitem at scale {scale} on {server.kind}, key {KEY}")
        write_keys(report, server, counted, scale)
        conf = {"spark.sql.leafNodeDefaultParallelism": str(TASKS * groups)}
        session = spark_session(folder, conf)
        try:
            write_groups(report, server, counted, session, scale=scale, groups=groups, blocks=blocks)
        finally:
            session.stop()


def through(server: S3Server, counted: Wire) -> dict[str, Any]:
    """Return the storage options that go through the proxy."""
    return server.storage_options | {"endpoint_url": counted.endpoint_url}


def write_keys(report: Report, server: S3Server, counted: Wire, scale: str) -> None:
    """Write what it takes to read the keys of a group of all large blocks; the first time does not count."""
    options = through(server, counted)
    table = make_table(server.location().url, options, lineitem(scale), max(1, round(ROWS * float(scale))))
    size = stored_bytes(table)
    for _ in range(2):
        counted.begin(0)
        started = time.process_time()
        _, tasks = tasks_in(open_port(table.location, options), tasks=8)
        seconds = time.process_time() - started
    found = counted.taken()
    report.begin(
        f"keys of one group of {len(table.files())} blocks of {ROWS:,} rows, cut into {len(tasks)} tasks"
    )
    report.figure("processor", seconds / size * 2**30, f"s a GiB of files ({seconds:.2f} s in all)")
    report.figure(
        "GET requests", found.requests["GET"] / size * 2**30, f"a GiB ({found.requests['GET']} in all)"
    )
    report.figure("bytes read / bytes of the blocks", found.read_bytes / size, "x")


def write_groups(
    report: Report,
    server: S3Server,
    counted: Wire,
    session: Any,
    *,
    scale: str,
    groups: int,
    blocks: int,
) -> None:
    """Write the driver's part of cutting groups, and of a whole round of them on Spark."""
    url = server.location().url
    make_ranges(url, server.storage_options, lineitem(scale), groups=groups, blocks=blocks)
    here, there = (open_port(url, options) for options in (through(server, counted), server.storage_options))
    version = here.newest()
    plan = make_plan(
        version, Request.of(policy="full", condition=lambda _: None, options=plan_options(there, groups))
    )
    to_cut = described(version, plan)
    io: Any = DriversIO(here.block_io(version), there.block_io(there.newest()))
    pid = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001 (there is no other way)
    report.begin(
        f"{len(to_cut)} groups of {blocks} small blocks, cut into {TASKS} tasks each: the driver's part, for each group"
    )
    engines: dict[str, Engine] = {"in this process": LocalEngine(), "on Spark": SparkEngine(session, CODE)}
    for name, engine in engines.items():
        found: list[Any] = []
        for _ in range(2):
            costs, found = cost(counted, pid, lambda engine=engine: cut(engine, io, to_cut))
        report.line(f"  cuts found {name}")
        write_costs(report, costs, len(to_cut), has_jvm=engine.name == "spark")
    costs, tasks = cost(counted, pid, lambda: put_together(io, to_cut, found))
    assert all(len(of_group) > 1 for of_group in tasks), "groups of one task need no cuts"
    report.line(f"  {sum(map(len, tasks)) / len(tasks):.1f} tasks put together, and pickled")
    write_costs(report, costs, len(to_cut), has_jvm=False)


def make_ranges(url: str, storage_options: dict[str, Any], source: Path, *, groups: int, blocks: int) -> None:
    """Make a table of ranges of keys that follow each other, each of sorted blocks that all span it."""
    rows = pq.read_table(source)
    rows = rows.cast(pa.schema([as_string(item) for item in rows.schema])).sort_by(KEY)
    of_group = rows.num_rows // groups
    table = tblctl.create(
        url,
        rows.schema,
        cluster_by=KEY,
        options={"block_rows": -(-of_group // blocks), "sort_scope": "block"},
        storage_options=storage_options,
    )
    for group in range(groups):
        own = rows.slice(group * of_group, of_group)
        table.append(own.take(np.random.default_rng(group).permutation(of_group)))
    table.set_options({"block_rows": max(1, of_group // TASKS // 2)})


def as_string(item: pa.Field) -> pa.Field:
    """Return a column that Arrow can put in order: string views it cannot."""
    return item.with_type(pa.string()) if pa.types.is_string_view(item.type) else item


def plan_options(port: Any, groups: int) -> dict[str, int]:
    """Return the options of a plan with this number of groups."""
    version = port.newest()
    return {"max_group_bytes": int(version.listing(version.sort, None).decoded_bytes.sum() * 1.01 / groups)}


def described(version: Any, plan: Plan) -> list[CutTask]:
    """Return the groups of a plan, as a round describes them to an engine."""
    made = []
    for group in plan.groups:
        blocks = version.blocks(group.blocks)
        splits = whole_splits(version, version.sort, [blocks[path] for path in group.blocks])
        output = Output(sort=version.sort, level=1, run_id=f"run-{group.number}", memory_bytes=1 << 30)
        made.append(CutTask(group=group.number, splits=tuple(splits), output=output, tasks=TASKS))
    return made


def cut(engine: Engine, io: Any, groups: list[CutTask]) -> list[Any]:
    return list(engine.cut(io, groups, title="cuts", groups_ahead=2))


def put_together(io: Any, groups: list[CutTask], cuts: list[Any]) -> list[Any]:
    """Return the tasks of each group, which are pickled as for Spark."""
    made = [tasks_of(*pair, io.options) for pair in zip(groups, cuts, strict=True)]
    for tasks in made:
        for task in tasks:
            pickle.dumps(task)
    return made


def cost(counted: Wire, pid: int, work: Callable[[], Any]) -> tuple[Costs, Any]:
    """Return what some work costs this process, and its result."""
    counted.begin(0)
    jvm, started = jvm_seconds(pid), time.process_time()
    result = work()
    seconds = time.process_time() - started
    return Costs(seconds, jvm_seconds(pid) - jvm, counted.taken().requests["GET"]), result


def jvm_seconds(pid: int) -> float:
    """Return the processor seconds of a process so far (Linux)."""
    words = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def write_costs(report: Report, found: Costs, groups: int, *, has_jvm: bool) -> None:
    report.figure("    processor", 1000 * found.seconds / groups, "ms")
    if has_jvm:
        report.figure("    Spark's JVM", 1000 * found.jvm_seconds / groups, "ms")
    report.figure("    GET requests", found.gets / groups, "")


if __name__ == "__main__":
    main("cuts", measure)
