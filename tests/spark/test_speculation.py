"""Spark runs a slow task a second time: what the attempt wrote that Spark took counts, the rest is orphans for gc.

Spark starts no second attempt on the host of the first, so `local-cluster`, which is all on one host, never starts one.
Here two workers have two addresses of this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import READY_SECONDS, free_port, python, unmarked_environment, wait_for
from .test_tables import make_table, rows

WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")

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


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a Spark master and two workers of one core, each a process of its own, and give the master's address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy."]
    variables = unmarked_environment() | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        with (folder / f"{len(processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [command[0], command[1] + name, "--webui-port", "0", *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
            )
        processes.append(process)
        return process

    port = free_port()
    try:
        wait_for(port, start("master.Master", "--host", "127.0.0.1", "--port", str(port)))
        master = f"spark://127.0.0.1:{port}"
        for host in WORKER_HOSTS:
            start("worker.Worker", "--host", host, "-c", "1", "-m", "600M", "-d", str(folder), master)
        for _ in range(READY_SECONDS * 5):
            if (folder / "0.log").read_text().count("Registering worker") == len(WORKER_HOSTS):
                break
            time.sleep(0.2)
        else:
            raise AssertionError("the workers did not find their master")
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(READY_SECONDS)


@pytest.mark.slow
def test_of_two_attempts_at_a_task_only_what_the_one_that_spark_took_wrote_counts(
    java: None, tmp_path: Path
) -> None:
    table = make_table(str(tmp_path / "table"))
    before, notes = rows(table), tmp_path / "notes"
    notes.mkdir()
    variables = unmarked_environment() | {"PYSPARK_PYTHON": sys.executable}
    with cluster(tmp_path) as master:
        done = python(PROGRAM, words=(master, str(tmp_path / "table"), str(notes)), env=variables)
    assert done.stdout.split()[:2] == ["2", "0"], done.stderr + "".join(
        log.read_text() for log in tmp_path.glob("*.log")
    )
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
