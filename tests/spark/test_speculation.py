"""Spark runs a slow task a second time: only blocks of the accepted attempt count, gc deletes the others.

Spark starts no second attempt on the host of the first, so `local-cluster`, which is all on one host, never starts one.
The workers of the cluster have two addresses of this machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import python, unmarked_environment
from .standalone import Cluster
from .test_tables import make_table, rows

PROGRAM = """
import sys

from pyspark.sql import SparkSession
from tblctl.merger.engines.spark.engine import SparkEngine
from tblctl.spark.code import CODE
from tblctl.maintain.request import Request
from tblctl.maintain.recluster import recluster
from tblctl.tableformat.formats import open_port

master, location, notes = sys.argv[1:]


def slow_at_first(io, task):
    import json
    import time
    from pathlib import Path

    from pyspark import TaskContext
    from tblctl.merger.engines.spark.on_worker import run

    result = run(io, task)
    attempt = TaskContext.get().attemptNumber()
    written = [record.path for record in result.records]
    Path(notes, f"{task.group}-{task.number}-{attempt}").write_text(json.dumps(written))
    if (task.group, task.number, attempt) == (0, 0, 0):
        time.sleep(300)
    while not Path(notes, f"{task.group}-{task.number}-0").exists():
        time.sleep(0.1)
    return result


settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.task.duration.threshold": "1s",
}
session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
engine = SparkEngine(session, CODE, function=slow_at_first)
request = Request.of(policy=None, condition=lambda _: None, options=None)
outcome = recluster(open_port(location), request, lambda _: engine)
session.stop()
print(outcome.committed_groups, outcome.failed_groups, outcome.snapshot)
"""


@pytest.mark.slow
def test_of_two_attempts_at_a_task_only_what_the_one_that_spark_took_wrote_counts(
    cluster: Cluster, tmp_path: Path
) -> None:
    table = make_table(str(tmp_path / "table"))
    before, notes = rows(table), tmp_path / "notes"
    notes.mkdir()
    variables = unmarked_environment() | {"PYSPARK_PYTHON": sys.executable}
    done = python(PROGRAM, words=(cluster.url, str(tmp_path / "table"), str(notes)), env=variables)
    assert done.stdout.split()[:2] == ["2", "0"], done.stderr
    written = {note.name: set(json.loads(note.read_text())) for note in notes.iterdir()}
    first, second = written["0-0-0"], written["0-0-1"]
    live = {block.path for block in table.files()}
    assert len(first) == len(second) > 0
    assert not first & second
    assert second <= live
    assert not first & live
    assert rows(table) == before
    assert table.check(deep=True).problems == ()
    orphans = set().union(*written.values()) - live
    assert all((tmp_path / "table" / path).exists() for path in orphans)
    assert not set(table.gc().objects_deleted)
    assert orphans <= set(table.gc(older_than=0).objects_deleted)
    assert rows(table) == before
