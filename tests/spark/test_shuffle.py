"""Groups with blocks in another order on Spark: sorted once, carried by its shuffle, merged as in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers import S3Server

import tblctl
from tblctl.maintain.recluster import recluster as run_recluster
from tblctl.maintain.request import Request
from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.engines.spark import engine as spark_module
from tblctl.merger.engines.spark import shuffled
from tblctl.merger.engines.spark.engine import JOB_BYTES, SparkEngine, _dealt, _in_jobs
from tblctl.merger.presort import decide
from tblctl.merger.presort.decide import Thresholds, units
from tblctl.merger.task.spec import InputSplit, TaskFailure, TaskResult
from tblctl.spark.code import CODE
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.model.block import Block

from .test_tables import make_table, rows, shape
from .toys import outcomes_of, result, task

ALWAYS_BEFOREHAND = Thresholds(decodings_alone=0, decodings_by_worker=0)
"""Rows that workers would decode repeatedly are sorted once for all tasks, and carried by Spark's shuffle."""

BY_WORKER = Thresholds(decodings_alone=0, decodings_by_worker=8)
"""Workers sort for themselves what their tasks take."""


def recluster(
    table: tblctl.Table, engine: Engine, storage_options: Mapping[str, Any] | None = None
) -> tblctl.Outcome:
    """Merge the whole table in an engine."""
    request = Request.of(policy="full", condition=lambda _: None, options=None)
    port = open_port(table.location, storage_options)
    return run_recluster(port, request, lambda _: engine)


def on_spark(session: Any, thresholds: Thresholds = ALWAYS_BEFOREHAND) -> SparkEngine:
    return SparkEngine(session, CODE, thresholds=thresholds)


def mixed_table(url: str, **more: Any) -> tblctl.Table:
    """Make a table of ten blocks in another order and one in the key's."""
    table = make_table(url, **more)
    table.set_cluster_key(["n", "k"])
    table.append(pa.table({"k": ["x"] * 300, "n": range(300), "x": [[1.0]] * 300}, schema=table.schema))
    return table


def twins(folder: Path) -> tuple[tblctl.Table, tblctl.Table]:
    """Make two tables of the same blocks."""
    mixed_table(str(folder / "here"))
    shutil.copytree(folder / "here", folder / "there")
    return tblctl.open(str(folder / "here")), tblctl.open(str(folder / "there"))


def deal_six_tasks_to_two_workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have groups cut into six tasks, and two workers sort for those that they run; return how many each will get."""
    shares: list[int] = []

    def two_workers(tasks: Any, *_: Any) -> Any:
        found = decide.deal(tasks, 2, BY_WORKER)
        shares.extend(map(len, found))
        return found

    for engine in (LocalEngine, SparkEngine):
        monkeypatch.setattr(engine, "parallelism", 6)
    monkeypatch.setattr(spark_module, "deal", two_workers)
    return shares


def unordered(group: int, number: int, *paths: str) -> Any:
    """Return a toy task that takes a half of some blocks in another order, as another task of its group does."""
    splits = tuple(
        InputSplit(block=block(path), place=place, start=7 * number, stop=7 * number + 7, is_ordered=False)
        for place, path in enumerate(paths)
    )
    return replace(task(group, number), splits=splits, presorted_tasks=2)


def block(path: str) -> Block:
    fields = dict.fromkeys(Block.__dataclass_fields__)
    return Block(
        **fields
        | {"path": path, "row_count": 14, "size_bytes": 140, "uncompressed_bytes": 140, "decoded_bytes": 140}
    )


def test_tasks_that_share_blocks_to_sort_are_of_one_job() -> None:
    tasks = [task(0), unordered(1, 0, "b"), unordered(1, 1, "b"), task(2)]
    found = [
        _dealt(unit, 1, 1, ALWAYS_BEFOREHAND)
        for unit in units(tasks, group_rows=1, thresholds=ALWAYS_BEFOREHAND)
    ]
    (job,) = _in_jobs(found, 1, JOB_BYTES)
    assert [[(one.group, one.number) for one in unit.tasks] for unit in job] == [
        [(0, 0)],
        [(1, 0), (1, 1)],
        [(2, 0)],
    ]
    assert [len(unit.sorts) for unit in job] == [0, 1, 0]


def test_a_mixed_group_becomes_the_same_blocks_on_both_engines(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = twins(tmp_path)
    before = rows(here)
    monkeypatch.setattr(LocalEngine, "parallelism", 5)
    outcomes = (
        recluster(here, LocalEngine()),
        recluster(there, on_spark(spark.session)),
    )
    assert [outcome.committed_groups for outcome in outcomes] == [1, 1]
    assert shape(here) == shape(there)
    assert rows(here) == rows(there) == before
    assert there.check(deep=True).problems == ()


def test_workers_that_sort_for_themselves_make_the_same_blocks(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = twins(tmp_path)
    before = rows(here)
    shares = deal_six_tasks_to_two_workers(monkeypatch)
    recluster(here, LocalEngine())
    monkeypatch.setattr(spark_module, "sorted_and_merged", None)  # nothing goes through the shuffle
    assert recluster(there, on_spark(spark.session, BY_WORKER)).committed_groups == 1
    assert shares == [3, 3]
    assert shape(here) == shape(there)
    assert rows(there) == before
    assert there.check(deep=True).problems == ()


def test_a_worker_that_dies_half_way_through_its_share_leaves_no_row_twice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spark.kind != "local-cluster[2,1,1024]":
        pytest.skip("a local master gives up at the first attempt that dies")
    real, written = spark_module._merging, tmp_path / "written by the worker that died"

    def dying(io: bytes, _: Any) -> Any:
        note = str(written)

        def in_its_second_task(io: Any, task: Any, *portions: Any, **more: Any) -> Any:
            from pathlib import Path

            from pyspark import TaskContext

            from tblctl.merger.engines.spark.on_worker import run

            context = TaskContext.get()
            is_doomed = (context.attemptNumber(), context.partitionId()) == (0, 0)
            if is_doomed and Path(note).exists():
                os._exit(1)
            result = run(io, task, *portions, **more)
            if is_doomed:
                Path(note).write_text("\n".join(record.path for record in result.records))
            return result

        return real(io, in_its_second_task)

    here, there = twins(tmp_path)
    before = rows(here)
    deal_six_tasks_to_two_workers(monkeypatch)
    recluster(here, LocalEngine())
    monkeypatch.setattr(spark_module, "_merging", dying)
    assert recluster(there, on_spark(spark.session, BY_WORKER)).committed_groups == 1
    orphans = set(written.read_text().splitlines())
    assert orphans
    assert not orphans & {item.path for item in there.files()}
    assert shape(here) == shape(there)
    assert rows(there) == before
    assert there.check(deep=True).problems == ()
    assert orphans <= set(there.gc(older_than=0).objects_deleted)
    assert rows(there) == before


def test_a_block_that_cannot_be_sorted_fails_its_group_alone(spark: Any) -> None:
    tasks = [task(0), unordered(1, 0, "b", "c"), unordered(1, 1, "b", "c"), unordered(2, 0), unordered(2, 1)]
    found = outcomes_of(
        spark.session, tasks, result, thresholds=ALWAYS_BEFOREHAND
    )  # the toys' BlockIO cannot open a block
    assert {place for place, outcome in found.items() if isinstance(outcome, TaskFailure)} == {(1, 0), (1, 1)}
    for number in (0, 1):
        error = found[1, number].error
        assert "group 1, sorting b failed: AttributeError" in str(error)


def test_a_missing_block_is_named_and_nothing_is_committed(spark: Any, tmp_path: Path) -> None:
    table = mixed_table(str(tmp_path))
    lost = next(item.path for item in table.files() if item.level == 0)
    before = table.snapshot.sequence
    stored = {path for path in tmp_path.rglob("*.parquet") if path.name != Path(lost).name}
    (tmp_path / lost).unlink()
    outcome = recluster(table, on_spark(spark.session))
    assert (outcome.committed_groups, outcome.failed_groups) == (0, 1)
    assert lost in str(outcome.groups[0].error)
    assert tblctl.open(str(tmp_path)).snapshot.sequence == before
    assert set(tmp_path.rglob("*.parquet")) == stored


def test_a_worker_that_dies_sorting_takes_only_its_group_with_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(io: bytes) -> Any:
        def tblctl_sort(batches: Any) -> Any:
            os._exit(1)

        return tblctl_sort

    monkeypatch.setattr(shuffled, "_sorter", dying)
    found = outcomes_of(
        spark.session,
        [task(0), unordered(1, 0, "b"), unordered(1, 1, "b")],
        result,
        thresholds=ALWAYS_BEFOREHAND,
    )
    assert isinstance(found[0, 0], TaskResult)
    assert ["Spark gave up the job" in str(found[1, number].error) for number in (0, 1)] == [True, True]


def test_a_sort_task_that_spark_repeats_leaves_no_row_twice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spark.kind != "local-cluster[2,1,1024]":
        pytest.skip("a local master gives up at the first attempt that dies")
    real = shuffled._sorter
    died = tmp_path / "died"

    def dying(io: bytes) -> Any:
        sort = real(io)
        folder = str(died)

        def tblctl_sort(batches: Any) -> Any:
            from pathlib import Path

            from pyspark import TaskContext

            for row in sort(batches):
                yield row
                if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
                    Path(folder).touch()
                    os._exit(1)

        return tblctl_sort

    monkeypatch.setattr(shuffled, "_sorter", dying)
    table = mixed_table(str(tmp_path / "table"))
    before = rows(table)
    outcome = recluster(table, on_spark(spark.session))
    assert died.exists()
    assert outcome.committed_groups == 1
    assert rows(table) == before
    assert table.check(deep=True).problems == ()


def test_secrets_are_in_no_plan_event_or_message_when_blocks_are_sorted(spark: Any, minio: S3Server) -> None:
    where = minio.location()
    table = mixed_table(where.url, storage_options=where.storage_options)
    outcome = recluster(table, on_spark(spark.session), where.storage_options)
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 0)
    assert table.check(deep=True).problems == ()
    traces = spark.traces()
    assert b"tblctl_sort" in traces
    for form in (minio.secret, minio.secret.encode().hex()):
        assert form.encode() not in traces


def test_without_partitions_by_number_tasks_may_share_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for frame in type(spark.session.range(1)).__mro__:
        if "repartitionById" in vars(frame):
            monkeypatch.delattr(frame, "repartitionById")
    table = mixed_table(str(tmp_path))
    before = rows(table)
    monkeypatch.setattr(SparkEngine, "parallelism", 7)
    assert recluster(table, on_spark(spark.session)).committed_groups == 1
    assert rows(table) == before
