"""A cluster whose nodes share nothing but the object store: a master, two workers, the table on MinIO."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from servers import Location, S3Server

import tblctl
from tblctl.tableformat.storage import Storage

from .conftest import connect_server, unmarked_environment
from .standalone import Cluster, home

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
ROWS = 20_000


@pytest.fixture
def place(minio: S3Server) -> Location:
    """Return where a table is: three ranges of keys, far from each other, of overlapping blocks: several groups."""
    where = minio.location()
    options = {"block_rows": ROWS // 10, "row_group_rows": ROWS // 40}
    table = tblctl.create(
        where.url, SCHEMA, cluster_by=["k"], options=options, storage_options=where.storage_options
    )
    rng = np.random.default_rng(5)
    for number in range(3):
        keys = np.sort(rng.integers(0, 10**6, ROWS)) + number * 10**7
        for start in range(5):
            part = keys[start::5]
            rows = {"k": part, "n": part % 97, "s": [f"text of {key}" for key in part]}
            table.append(pa.table(rows, schema=SCHEMA))
    return where


def table_at(place: Location) -> tblctl.Table:
    return tblctl.open(place.url, storage_options=place.storage_options)


def rows_of(table: tblctl.Table) -> list[tuple[Any, ...]]:
    columns = table.scan().to_arrow().to_pydict()
    return sorted(zip(*columns.values(), strict=True))


def blocks_stored(place: Location) -> set[str]:
    return {item.name for item in Storage(place.url, place.storage_options).list("data/")}


def driver(command: list[str], own: Path, **more: Any) -> subprocess.Popen[str]:
    """Start a driver that has a temporary folder of its own."""
    (own / "tmp").mkdir(parents=True)
    variables = {"TMPDIR": str(own / "tmp"), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home())}
    environment = unmarked_environment() | variables | more
    return subprocess.Popen(
        command, cwd=own, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def storage_words(place: Location) -> list[str]:
    options = place.storage_options | place.storage_options["client_kwargs"]
    names = {"key": "key", "secret": "secret", "endpoint_url": "endpoint_url"}
    words = [f"{name}={options[key]}" for name, key in names.items()]
    words.append(f"client_kwargs.region_name={options['region_name']}")
    return [word for pair in words for word in ("--storage-option", pair)]


COMMAND = """
from tblctl.cli.main import run
from tblctl.merger.engines.spark import session as spark_session

spark_session.ANSWER_SECONDS = 120.0  # the machine that tests run on may be busy
run()
"""


def recluster_command(place: Location, *words: str) -> list[str]:
    command = [sys.executable, "-c", COMMAND, "recluster", place.url, "--json", *words]
    return command + storage_words(place)


ON_THIS_HOST = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
)


def on(cluster: Cluster) -> list[str]:
    return ["--master", cluster.url, *(word for pair in ON_THIS_HOST for word in ("--spark-conf", pair))]


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, out + err
    return out


def test_the_command_merges_on_workers_that_share_no_folder(
    cluster: Cluster, place: Location, tmp_path: Path
) -> None:
    table = table_at(place)
    groups = len(table.plan().groups)
    rows, before = rows_of(table), set(cluster.executors())
    out = finished(driver(recluster_command(place, *on(cluster), "--commit-every", "1"), tmp_path / "driver"))
    outcome = json.loads(out)
    assert (outcome["engine"], outcome["committed_groups"], outcome["failed_groups"]) == ("spark", groups, 0)
    assert outcome["commits"] == groups > 2
    started = set(cluster.executors()) - before
    assert {path.parents[2] for path in started} == set(cluster.workers.values()), "both workers took part"
    assert rows_of(table) == rows
    assert table.check(deep=True).problems == ()


def test_an_executor_killed_in_the_middle_costs_neither_job_nor_rows(
    cluster: Cluster, place: Location, tmp_path: Path
) -> None:
    table = table_at(place)
    groups = len(table.plan().groups)
    rows, stored, before = rows_of(table), blocks_stored(place), set(cluster.executors())
    process = driver(recluster_command(place, *on(cluster)), tmp_path / "driver")
    try:
        while not set(cluster.executors()) - before:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        while not blocks_stored(place) - stored:  # until a task has written its first block of several
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        cluster.kill_an_executor()
        outcome = json.loads(finished(process))
    finally:
        process.kill()
    assert (outcome["committed_groups"], outcome["failed_groups"]) == (groups, 0)
    assert len(set(cluster.executors()) - before) == 3, "another executor took the killed one's place"
    assert rows_of(table) == rows
    assert table.check(deep=True).problems == ()
    assert {block.path for block in table.files()} <= blocks_stored(place)


def test_a_driver_killed_in_the_middle_leaves_the_table_whole_and_the_next_run_goes_on(
    cluster: Cluster, place: Location, tmp_path: Path
) -> None:
    table = table_at(place)
    rows, stored = rows_of(table), blocks_stored(place)
    process = driver(recluster_command(place, *on(cluster), "--commit-every", "1"), tmp_path / "driver")
    try:
        while not blocks_stored(place) - stored:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert rows_of(table) == rows
    assert table.check(deep=True).problems == ()
    table.recluster(final=True, engine="local")
    assert rows_of(table) == rows
    while cluster.running_executors():  # they may still write what nobody waits for
        time.sleep(0.1)
    table.gc(keep=1, older_than=0)
    assert blocks_stored(place) == {block.path for block in table.files()}
    table.gc(keep=1, older_than=0)
    assert blocks_stored(place) == {block.path for block in table.files()}
    assert rows_of(table) == rows


def test_a_connect_server_in_front_of_the_cluster_serves_the_command(
    cluster: Cluster, place: Location, tmp_path: Path
) -> None:
    table = table_at(place)
    rows, groups = rows_of(table), len(table.plan().groups)
    with connect_server(tmp_path, master=cluster.url) as url:
        out = finished(driver(recluster_command(place, "--remote", url), tmp_path / "driver"))
    assert json.loads(out)["committed_groups"] == groups
    assert rows_of(table) == rows
    assert table.check(deep=True).problems == ()


SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
import tblctl

spark = SparkSession.builder.appName("nightly").getOrCreate()
options = json.loads(sys.argv[2])
outcome = tblctl.open(sys.argv[1], storage_options=options).recluster(final=True, spark=spark)
print(json.dumps({"from": tblctl.__file__, "master": spark.sparkContext.master, **outcome.to_dict()}))
spark.stop()
"""


def package_zip(folder: Path) -> Path:
    """Return the package whole, as `pip wheel --no-deps tblctl` has it, in a zip as --py-files takes it."""
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]
    target = folder / "tblctl.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in settings["packages"]:
            for item in importlib.resources.files(package).iterdir():
                if item.name.endswith(".py"):
                    archive.writestr(f"{package.replace('.', '/')}/{item.name}", item.read_bytes())
    return target


def test_spark_submit_runs_a_script_with_the_package_from_py_files(
    cluster: Cluster, place: Location, tmp_path: Path
) -> None:
    table = table_at(place)
    rows = rows_of(table)
    script = tmp_path / "nightly.py"
    script.write_text(SCRIPT)
    command = [
        str(home() / "bin" / "spark-submit"),
        *("--master", cluster.url, "--py-files", str(package_zip(tmp_path))),
        *(word for pair in ON_THIS_HOST for word in ("--conf", pair)),
        *(str(script), place.url, json.dumps(place.storage_options)),
    ]
    outcome = json.loads(finished(driver(command, tmp_path / "driver")).splitlines()[-1])
    assert "tblctl.zip" in outcome["from"]
    assert (outcome["master"], outcome["engine"], outcome["snapshot"]) == (
        cluster.url,
        "spark",
        table.snapshot.sequence,
    )
    assert rows_of(table) == rows
    assert table.check(deep=True).problems == ()
