"""The load of tables of 1 TB and 100 TB on driver, metadata and object store, with 100 executors.

The driver's part is run, not computed. For each size a process plans a table of which only the metadata exists
(lineitem's columns, every key in about a hundred blocks), and commits one group and many groups. Rates of tasks and
requests are read from the committed results of `merge` and `requests`. docs/scale.md draws the conclusions.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import multiprocessing
import pickle
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa

import tblctl
from benchmarks.common import RESULTS, Report, lineitem, main, resident_mib, scratch
from benchmarks.metadata import DAYS, KEY, SCHEMA, segment_rows, with_segments
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.engines.spark.cut_jobs import groups_a_job
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.round.balance import tasks_per_group
from tblctl.merger.task.spec import ORDER_BYTES
from tblctl.selector.draft import MOST_GROUPS
from tblctl.selector.options import SelectOptions
from tblctl.selector.plan import Group
from tblctl.selector.policies.levels import DEFAULT_GROUP_BYTES
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord, ColumnRecord
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.log.segment_columns import BASE_COLUMNS, key_names, statistic_names
from tblctl.tableformat.native.port import NativePort, NativeVersion
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.port import Replacement
from tblctl.tableformat.storage import Storage

TB = 10**12
TABLES = {"1 TB": TB, "100 TB": 100 * TB}
SEGMENT_BLOCKS = 10_000
DEPTH = 100
"""About how many blocks hold a key before anything is merged (more if a day has more blocks)."""

DAILY_SHARE = 0.01
"""Share of the table that arrives every day."""

GROUPS = {"max_group_bytes": DEFAULT_GROUP_BYTES}
"""Group size of the plans: the default of `levels`. `full` needs a limit to have several groups."""

PLANS = {  # title: policy and options
    "levels": ("levels", GROUPS),
    "levels, every range": ("levels", {**GROUPS, "every_range": True}),
    "full": ("full", GROUPS),
}
COMMITTED = "full"
LEAST_BUSY = 0.9
"""Share of the executors' processors that a first round keeps busy, where it has every range of a large table."""

MOST_DRIVER = 0.05
"""Processor seconds of the driver, as a share of the executors'."""

MANY_GROUPS = 100
"""Groups of the larger commit: `--commit-every 100`."""

EXECUTORS, CORES = 100, 4
EXECUTOR_DOLLARS_AN_HOUR = 0.192
"""m6i.xlarge (4 processors, 16 GiB, up to 12.5 Gbit/s), Linux, us-east-1, aws.amazon.com/ec2/pricing/on-demand."""

DOLLARS_A_REQUEST = {"GET": 0.4e-6, "HEAD": 0.4e-6, "PUT": 5e-6, "POST": 5e-6, "LIST": 5e-6, "DELETE": 0.0}
"""S3 Standard, us-east-1, aws.amazon.com/s3/pricing."""

PREFIX_GETS_A_SECOND = 5_500
"""Requests a second that S3 guarantees for one prefix before it splits it, docs.aws.amazon.com "Best practices design
patterns"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates from the results of other benchmarks.

    Attributes:
        core_bytes_a_second: stored bytes that one processor merges, on Spark.
        stored_share: bytes of lineitem's files for each of its rows in memory.
        row_bytes: what a row takes in memory.
        requests_a_gib: by kind, for each GiB of stored blocks merged.
        key_core_seconds_a_gib: of a processor that reads the keys of a GiB of stored blocks, to find cuts.
        key_gets_a_gib: GET requests of that.
        driver_seconds_a_group: of the driver's processors, until its tasks are sent on Spark; with those of the JVM.
    """

    core_bytes_a_second: float
    stored_share: float
    row_bytes: float
    requests_a_gib: dict[str, float]
    key_core_seconds_a_gib: float
    key_gets_a_gib: float
    driver_seconds_a_group: float

    def core_seconds(self, size_bytes: float) -> float:
        """Return the seconds in which a processor merges rows of the given size in memory."""
        return size_bytes * self.stored_share / self.core_bytes_a_second

    def key_seconds(self, size_bytes: float) -> float:
        """Return the seconds in which a processor finds the cuts of rows of the given size in memory."""
        return size_bytes * self.stored_share / 2**30 * self.key_core_seconds_a_gib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commit:
    """Costs of a commit of merged groups, and the version that it made."""

    groups: int
    blocks: int
    seconds: float
    cpu_seconds: float
    objects: int
    written_bytes: int
    results_bytes: int
    version: NativeVersion | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """Costs and results of opening the table and planning: the decoded bytes of each group, and the bytes of files."""

    seconds: float
    cpu_seconds: float
    group_bytes: tuple[int, ...]
    stored_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driven:
    """Measurements of the driver for one table."""

    blocks: int
    segments: int
    metadata_bytes: int
    snapshot_bytes: int
    plans: dict[str, Planned]
    plan_mib: float
    one: Commit
    many: Commit
    peak_mib: float


def measure(report: Report, tiny: bool) -> None:
    share = 0.001 if tiny else 1.0
    with scratch() as folder:
        rates = read_rates(sample_table(folder / "sample"))
        report.line(
            f"{EXECUTORS} executors of {CORES} processors; sizes are of rows in memory, of which lineitem's files "
            f"take {rates.stored_share:.2f}; blocks of {TableOptions().block_bytes / 2**20:.0f} MiB"
        )
        report.begin("rates, from results/merge.txt, results/requests.txt and results/cuts.txt")
        report.figure("a processor merges", rates.core_bytes_a_second / 2**20, "MiB of files a second")
        for kind, count in rates.requests_a_gib.items():
            report.figure(f"{kind} requests", count, "a GiB of files merged")
        report.figure(
            "keys are read for cuts", rates.key_core_seconds_a_gib, "s of a processor a GiB of files"
        )
        report.figure("  GET requests, besides those above", rates.key_gets_a_gib, "a GiB of files")
        report.figure("the driver's processors, with Spark's JVM", rates.driver_seconds_a_group, "s a group")
        for title, size in TABLES.items():
            driven = in_own_process(str(folder / title), int(size * share), rates.stored_share)
            report.begin(f"{title}: metadata and driver, measured")
            write_driven(report, driven)
            report.begin(f"{title}: executors and requests, from the rates")
            write_model(report, int(size * share), rates, driven.plans)
            write_commits(report, int(size * share), driven)
            write_driver(report, int(size * share), rates, driven)


def sample_table(place: Path) -> tblctl.Table:
    """Make a table of a few real rows, to measure their size in memory and in files."""
    source = lineitem("0.01")
    table = tblctl.create(place, tblctl.read_schema(source), cluster_by="l_shipdate")
    table.append(source)
    return table


def read_rates(sample: tblctl.Table) -> Rates:
    """Read the committed results. The stored size of merged rows is taken from the sample."""
    merge, requests, cuts = (RESULTS / f"{name}.txt" for name in ("merge", "requests", "cuts"))
    rows = number(merge, r"([\d,]+) rows of lineitem in 61 blocks")
    seconds = number(merge, r"tblctl, on warm Spark local\[2\] +([\d.]+) s")
    decoded = sum(decoded_bytes(sample))
    stored = sample.snapshot.bytes
    kinds = ("GET", "PUT", "HEAD", "LIST", "POST")
    return Rates(
        core_bytes_a_second=stored / sample.snapshot.rows * rows / seconds / 2,
        stored_share=stored / decoded,
        row_bytes=decoded / sample.snapshot.rows,
        requests_a_gib={
            kind: number(requests, rf"7 blocks(?s:.*?)\n +{kind} requests +([\d.]+) a GiB") for kind in kinds
        },
        key_core_seconds_a_gib=number(cuts, r"keys of one group(?s:.*?)processor +([\d.]+) s a GiB"),
        key_gets_a_gib=number(cuts, r"keys of one group(?s:.*?)GET requests +([\d.]+) a GiB"),
        driver_seconds_a_group=sum(
            number(cuts, rf"{pattern} +([\d.]+) ms") / 1000
            for pattern in (
                r"cuts found on Spark\n +processor",
                r"cuts found on Spark(?s:.*?)Spark's JVM",
                r"tasks put together, and pickled\n +processor",
            )
        ),
    )


def number(result: Path, pattern: str) -> float:
    """Return a figure of a committed result.

    Raises:
        LookupError: the result has no such figure; the benchmark may have changed its text.
    """
    found = re.search(pattern, result.read_text())
    if found is None:
        msg = f"{result.name} has nothing like {pattern}: run its benchmark again, or correct the pattern"
        raise LookupError(msg)
    return float(found[1].replace(",", ""))


def decoded_bytes(table: tblctl.Table) -> list[int]:
    version = NativePort(NativeTable(Storage(table.location), SYSTEM)).newest()
    return [block.decoded_bytes for block in version.blocks([item.path for item in table.files()]).values()]


# -- the driver, run ---------------------------------------------------------------------------------------------------


def in_own_process(place: str, size_bytes: int, stored_share: float) -> Driven:
    """Build a table's metadata here. A new process plans and commits, so that its memory can be measured."""
    build(Path(place), size_bytes, stored_share)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_drive, args=(theirs, place))
    process.start()
    theirs.close()
    try:
        found: Driven = mine.recv()
        return found
    finally:
        process.join()


def build(place: Path, size_bytes: int, stored_share: float) -> None:
    """Make a table of the given size in full blocks, of which no file exists."""
    tblctl.create(place, SCHEMA, cluster_by=KEY)
    (place / "data").mkdir()
    native = NativeTable(Storage(place), SYSTEM)
    head = native.head()
    rng = np.random.default_rng(7)
    blocks = max(2, size_bytes // TableOptions().block_bytes)
    segments = -(-blocks // SEGMENT_BLOCKS)
    refs = []
    for segment in range(segments):
        count = blocks * (segment + 1) // segments - blocks * segment // segments
        rows = segment_rows(
            head, segment, segments, count, rng, scattered=True, days=2 * DEPTH * DAYS / blocks
        )
        rows = full_blocks(rows, stored_share)
        edit = Edit(operation="append", added=rows)
        refs += EditApplier(native.storage, SYSTEM).propose(edit, head).snapshot.segments
    native.change(lambda now: with_segments(now, refs))


def full_blocks(rows: pa.Table, stored_share: float) -> pa.Table:
    """Return rows of a segment with the figures of full blocks."""
    options = TableOptions()
    figures = {
        "row_count": options.block_rows,
        "decoded_bytes": options.block_bytes,
        "uncompressed_bytes": options.block_bytes,
        "size_bytes": int(options.block_bytes * stored_share),
    }
    for name, value in figures.items():
        place = rows.schema.get_field_index(name)
        column = pa.array(np.full(rows.num_rows, value, np.int64))
        rows = rows.set_column(place, rows.schema.field(name), column)
    return rows


def _drive(end: Connection, place: str) -> None:
    resting = resident_mib("VmRSS")
    storage = Storage(place)
    port = NativePort(NativeTable(storage, SYSTEM))
    plans: dict[str, Planned] = {}
    made = {}
    for title, (policy, options) in PLANS.items():
        started, cpu_started = time.perf_counter(), time.process_time()
        version = port.newest()
        plan = make_plan(version, Request.of(policy=policy, condition=lambda _: None, options=options))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        plans[title] = Planned(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            group_bytes=tuple(group.decoded_bytes for group in plan.groups),
            stored_bytes=sum(group.size_bytes for group in plan.groups),
        )
        made[title] = plan
    plan = made[COMMITTED]
    plan_mib = resident_mib("VmHWM") - resting
    sizes = {item.name: item.size_bytes for item in storage.list("metadata/")}
    one = commit(port, version, plan.groups[:1])
    many = commit(port, one.version, plan.groups[1 : 1 + MANY_GROUPS])
    end.send(
        Driven(
            blocks=version.snapshot.block_count,
            segments=len(version.snapshot.segments),
            metadata_bytes=sum(sizes.values()),
            snapshot_bytes=max(size for name, size in sizes.items() if "/snapshots/" in name),
            plans=plans,
            plan_mib=plan_mib,
            one=dataclasses.replace(one, version=None),
            many=dataclasses.replace(many, version=None),
            peak_mib=resident_mib("VmHWM") - resting,
        )
    )


def commit(port: NativePort, version: NativeVersion, groups: Sequence[Group]) -> Commit:
    """Replace the blocks of some groups by the same number of blocks that were never written."""
    removed = [path for group in groups for path in group.blocks]
    rng = np.random.default_rng(len(removed))
    rows = full_blocks(segment_rows(version.snapshot, 0, 1, len(removed), rng, scattered=True), 1.0)
    added = records_of(rows, version.snapshot)
    for record in added:
        (Path(version.location) / record.path).touch()  # a commit checks that they exist
    before = {item.name for item in Storage(version.location).list("metadata/")}
    started, cpu_started = time.perf_counter(), time.process_time()
    newest = port.replace(version, Replacement(removed=frozenset(removed), added=added))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    written = [
        item.size_bytes for item in Storage(version.location).list("metadata/") if item.name not in before
    ]
    return Commit(
        groups=len(groups),
        blocks=len(removed),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        objects=len(written),
        written_bytes=sum(written),
        results_bytes=len(pickle.dumps(added)),
        version=newest,
    )


def records_of(rows: pa.Table, snapshot: Snapshot) -> tuple[BlockRecord, ...]:
    """Return rows of a segment in the form in which merge tasks report blocks."""
    lows, highs, _ = key_names(snapshot.cluster_key_id, len(KEY))

    def column(leaf: Leaf, place: int) -> ColumnRecord:
        facts = {name.split("_", 2)[2]: rows.column(name)[place] for name in statistic_names(leaf)}
        counts = {name: value.as_py() for name, value in facts.items() if name not in {"min", "max"}}
        return ColumnRecord(min=facts["min"], max=facts["max"], **{"nan_count": None, **counts})

    return tuple(
        BlockRecord(
            **{item.name: rows.column(item.name)[place].as_py() for item in BASE_COLUMNS},
            key_min=tuple(rows.column(name)[place] for name in lows),
            key_max=tuple(rows.column(name)[place] for name in highs),
            columns={leaf.id: column(leaf, place) for leaf in snapshot.schema.leaves},
        )
        for place in range(rows.num_rows)
    )


def write_driven(report: Report, found: Driven) -> None:
    report.figure("blocks", found.blocks, f"in {found.segments:,} segments")
    report.figure("metadata", found.metadata_bytes / 2**20, "MiB")
    report.figure("snapshot", found.snapshot_bytes / 2**10, "KiB")
    for title, plan in found.plans.items():
        what = f"s: {len(plan.group_bytes):,} groups, {plan.stored_bytes / TB:.2f} TB of files"
        report.figure(f"open and plan, {title}", plan.seconds, what)
    report.figure("memory of opening and planning", found.plan_mib, "MiB")
    for made in (found.one, found.many):
        report.line(f"  a commit of {made.groups} groups, {made.blocks:,} blocks")
        report.figure("    seconds, local disk", made.seconds, "s")
        report.figure("    metadata written", made.written_bytes / 2**20, f"MiB in {made.objects} objects")
        report.figure(
            "    results of its tasks, pickled",
            made.results_bytes / max(made.blocks, 1) / 2**10,
            "KiB a block",
        )
    report.figure("peak memory of all this", found.peak_mib, "MiB")


def busy_share(group_bytes: Sequence[int], rates: Rates, slots: int, least_tasks: float) -> float:
    """Return the share of the slots' time in which they have a task, until the last one of a round ends.

    As in `merger/engines/spark/cut_jobs.py`: a job finds the cuts of `groups_a_job` groups. The next job is submitted
    before their merges, and Spark gives slots to what was submitted first. A group is merged as soon as the job that
    cut it has ended.

    Args:
        group_bytes: of rows in memory, of each group.
        rates: of tasks.
        slots: of the executors.
        least_tasks: tasks that memory requires, for each byte.
    """
    sizes = sorted(group_bytes, reverse=True)
    if not sizes:
        return 0.0
    most = [max(1, math.ceil(size / TableOptions().block_bytes)) for size in sizes]
    even = tasks_per_group(sizes, most=most, parallelism=slots)
    counts = [
        min(largest, count * math.ceil(max(1, size * least_tasks / count)))
        for size, count, largest in zip(sizes, even, most, strict=True)
    ]
    at_once = groups_a_job(slots)
    jobs = [range(start, min(start + at_once, len(sizes))) for start in range(0, len(sizes), at_once)]
    free, busy = [0.0] * slots, 0.0

    def run(seconds: Iterable[float], ready: float = 0.0) -> float:
        nonlocal busy
        ends = [ready]
        for one in seconds:
            busy += one
            ends.append(max(free[0], ready) + one)
            heapq.heapreplace(free, ends[-1])
        return max(ends)

    def cuts_of(job: Iterable[int]) -> float:
        return run(rates.key_seconds(sizes[group]) for group in job if counts[group] > 1)

    cut_at = cuts_of(jobs[0])
    for job, following in itertools.zip_longest(jobs, jobs[1:], fillvalue=range(0)):
        following_cut_at = cuts_of(following)
        tasks = ((sizes[group] / counts[group], counts[group]) for group in job)
        run((rates.core_seconds(size) for size, count in tasks for _ in range(count)), cut_at)
        cut_at = following_cut_at
    return busy / (slots * max(free))


def write_model(report: Report, size_bytes: int, rates: Rates, plans: Mapping[str, Planned]) -> None:
    """Write how busy executors are, and the costs of one pass over the whole table and over a day's ingest."""
    slots = EXECUTORS * CORES
    groups = math.ceil(size_bytes / DEFAULT_GROUP_BYTES)
    key_bytes = 12  # a date and an integer
    rows_a_task = SelectOptions().memory_bytes / THRESHOLDS.keys_divisor / (key_bytes + ORDER_BYTES)
    tasks = max(groups, size_bytes / rates.row_bytes / rows_a_task)
    report.figure("groups of 8 GiB", groups, f"in {math.ceil(groups / MOST_GROUPS)} rounds")
    report.figure(
        "tasks of 1 GiB of memory", tasks, f"of {rates.core_seconds(size_bytes / tasks):.0f} s each"
    )
    for title, plan in plans.items():
        busy = busy_share(plan.group_bytes, rates, slots, tasks / size_bytes)
        is_large = size_bytes / DEFAULT_GROUP_BYTES > MOST_GROUPS and title != "levels"
        report.figure(
            f"first round, {title}: busy", busy, "of the processors", least=LEAST_BUSY if is_large else None
        )
    for title, share in (("everything once", 1.0), ("a day's ingest, 1 % of it, once", DAILY_SHARE)):
        stored = size_bytes * share * rates.stored_share
        seconds = rates.core_seconds(size_bytes * share) / slots
        requests = {kind: count * stored / 2**30 for kind, count in rates.requests_a_gib.items()}
        dollars = sum(count * DOLLARS_A_REQUEST[kind] for kind, count in requests.items())
        report.line(f"  {title}: {stored / TB:.3f} TB of files")
        report.figure("    wall time", seconds / 60, "minutes")
        report.figure("    blocks written", size_bytes * share / TableOptions().block_bytes, "")
        report.figure("    requests", sum(requests.values()) / 1e6, "million")
        report.figure("    requests cost", dollars, "dollars")
        report.figure("    executors cost", EXECUTORS * seconds / 3600 * EXECUTOR_DOLLARS_AN_HOUR, "dollars")
    gets = rates.requests_a_gib["GET"] * slots * rates.core_bytes_a_second / 2**30
    report.figure("GET requests a second", gets, f"of {PREFIX_GETS_A_SECOND:,} for one prefix")


def write_commits(report: Report, size_bytes: int, found: Driven) -> None:
    """Write the costs of the commits of one pass, with `MANY_GROUPS` groups each, or with one commit a round."""
    groups = math.ceil(size_bytes / DEFAULT_GROUP_BYTES)
    commits = math.ceil(groups / max(found.many.groups, 1))
    report.line(f"  commits of everything, {found.many.groups} groups in each: {commits}")
    report.figure("    seconds of the driver, local disk", commits * found.many.seconds, "s")
    report.figure("    metadata written", commits * found.many.written_bytes / 2**30, "GiB")
    blocks = min(groups, MOST_GROUPS) * DEFAULT_GROUP_BYTES / TableOptions().block_bytes
    held = blocks * found.many.results_bytes / max(found.many.blocks, 1)
    report.figure("  with one a round the driver holds results of", held / 2**30, "GiB, pickled")


def write_driver(report: Report, size_bytes: int, rates: Rates, found: Driven) -> None:
    """Write the driver's processor seconds for one pass over the table, and those if it found the cuts itself."""
    groups = math.ceil(size_bytes / DEFAULT_GROUP_BYTES)
    merging, keys = rates.core_seconds(size_bytes), rates.key_seconds(size_bytes)
    commits = math.ceil(groups / max(found.many.groups, 1)) * found.many.cpu_seconds
    own = found.plans[COMMITTED].cpu_seconds + groups * rates.driver_seconds_a_group + commits
    gets = size_bytes * rates.stored_share / 2**30 * rates.key_gets_a_gib
    report.line(
        f"  processor seconds of everything once: executors merge {merging:,.0f} s, and find cuts {keys:,.0f} s"
    )
    report.figure("    the driver", own, "s")
    share = own / (merging + keys)
    report.figure("    the driver / the executors", share, "x", most=MOST_DRIVER)
    report.figure(
        "    if the driver found the cuts", (own + keys) / merging, f"x, and {gets:,.0f} GETs of it"
    )


if __name__ == "__main__":
    main("scale", measure)
