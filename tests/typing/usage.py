"""A user's code as a type checker sees it: `make lint` runs mypy --strict over it. Never executed."""

from __future__ import annotations

import dataclasses
import datetime
from typing import assert_type

import pyarrow as pa

import tblctl
from tblctl import policies
from tblctl.errors import ConflictError, InputError


def write(location: str, rows: pa.Table) -> int | None:
    """Create, change, look."""
    table = tblctl.create(
        location,
        "a: int64, b: string",
        cluster_by=["a desc", "bucket(16, b)"],
        options={"block_rows": 1_000_000, "compression": "zstd"},
        storage_options={"anon": True},
    )
    assert_type(table, tblctl.Table)
    try:
        outcome = table.append(rows, progress=lambda done, total, unit: None)
    except (InputError, ConflictError) as error:
        assert_type(error.message, str)
        return None
    assert_type(outcome, tblctl.WriteOutcome)
    table.append(["a.parquet", "b.parquet"], memory_bytes=2**30)
    table.delete("a < 5")
    table.update({"b": "x"}, where="a = 6")
    table.overwrite(rows, where="a >= 7")
    table.picture("before.svg")
    assert_type(table.info(worst=3).worst, tuple[tblctl.DeepRange, ...])
    assert_type(table.compare("loaded", 9, where="a > 1"), tuple[tblctl.MeasuredVersion, ...])
    assert_type(table.depth_history(limit=5), tuple[tblctl.DepthPoint, ...])
    assert_type(table.suggest(["a > 5"]), tblctl.Suggestion)
    assert_type(table.suggest(["a > 5"], layouts=True).layouts, tblctl.Layouts | None)
    assert_type(tblctl.survey(tblctl.find_tables("/data")), tuple[tblctl.SurveyedTable, ...])
    table.picture("both.html", columns="b", where="a > 5", compare=(3, "loaded"))
    table.set_cluster_key(["a"])
    return outcome.snapshot


def recluster(location: str) -> str:
    """Plan, carry it out, pass a statement through."""
    table = tblctl.open(location)
    plan = table.plan(where="a > 1", options={"max_bytes": "10GiB"})
    assert_type(plan, tblctl.Plan)
    assert_type(table.recluster(plan, progress=lambda done, total, unit: None), tblctl.Outcome)
    with tblctl.spark_session(master="local[2]") as spark:
        outcome = table.recluster(final=True, spark=spark, on_conflict="fail")
    found = tblctl.execute("ALTER TABLE t RECLUSTER", resolve={"t": location}.get, engine="local")
    assert_type(found, tblctl.Outcome | None)
    return outcome.policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class OldestOptions:
    """What may be asked of `oldest`."""

    count: int = policies.option(default=2, unit="blocks", help="Blocks to merge.", least=2)


class Oldest:
    """A policy of one's own."""

    name = "oldest"
    summary = "merges the first blocks"
    options = OldestOptions

    def decide(
        self,
        view: policies.TableView,
        budget: policies.Budget,
        options: OldestOptions,
        *,
        workload: policies.Workload,
        state: policies.State,
        rates: policies.Rates,
        now: float,
        rng: policies.Rng,
    ) -> policies.Decision:
        """Merge the first blocks."""
        room = policies.Room.of(budget)
        chosen = view.selectable.nonzero()[0][: options.count]
        chosen = chosen[: room.fitting(view, chosen)[0]]
        level = policies.next_level(view, chosen)
        left = policies.rejection(view, "max_blocks", ~view.selectable, "left for later")
        assert_type(left, policies.Rejection)
        draft = policies.Draft(blocks=chosen, output_level=level, why="the first")
        return policies.Decision(drafts=(draft,), rejections=(left,), state=state)


def own_policy(location: str) -> str:
    """Plan and merge by it, registered or not."""
    policies.register(Oldest())
    table = tblctl.open(location)
    assert_type(table.plan(Oldest()), tblctl.Plan)
    return table.recluster(policy=Oldest(), final=True).policy


def read(location: str) -> int:
    """Scan, explain, travel in time, tidy up."""
    reports: list[tblctl.ScanReport] = []
    table = tblctl.open(location, as_of=datetime.datetime.now(datetime.UTC), on_scan=reports.append)
    scan = table.scan(where="a > 1", columns=["a"], limit=10)
    assert_type(scan, tblctl.Scan)
    assert_type(scan.explain(), tblctl.ScanExplanation)
    for block in table.files(limit=3):
        assert_type(block, tblctl.BlockInfo)
    for snapshot in table.history():
        assert_type(snapshot, tblctl.SnapshotInfo)
    table.tag("v1", at=table.snapshot.sequence)
    assert_type(table.gc(keep=10, older_than=datetime.timedelta(hours=24), dry_run=True), tblctl.GcOutcome)
    report = table.check(deep=True)
    assert_type(report, tblctl.CheckReport)
    assert_type(tblctl.exists(location), bool)
    assert_type(tblctl.drop(location, if_exists=True), bool)
    return len(reports)
