"""Catalogs that PyIceberg's own files configure, through the command: `.pyiceberg.yaml`, and catalogs of services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from tblctl.cli.main import application

from .lake import Lake, append, fields

LOCATION = "iceberg://lake/db.t"
CONFIGURATION = """
catalog:
  lake:
    type: sql
    uri: sqlite:///{database}
"""


@pytest.fixture
def made(lake: Lake) -> Lake:
    table = lake.create("t", fields(id=LongType()))
    append(table, id=[1, 3])
    append(table, id=[2, 4])
    return lake


@pytest.mark.parametrize("place", ["home", "working folder", "PYICEBERG_HOME"])
def test_a_file_configures_the_catalog(made: Lake, tmp_path: Path, place: str) -> None:
    """PyIceberg reads its file once, when it is imported: so each case is a process."""
    folders = {name: tmp_path / name for name in ("home", "working folder", "PYICEBERG_HOME")}
    for folder in folders.values():
        folder.mkdir()
    text = CONFIGURATION.format(database=made.folder / "catalog.db")
    (folders[place] / ".pyiceberg.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_")}
    environment |= {"HOME": str(folders["home"]), "PYICEBERG_HOME": str(folders["PYICEBERG_HOME"])}
    command = [
        sys.executable,
        "-m",
        "tblctl.cli",
        "recluster",
        LOCATION,
        "--cluster-by",
        "id",
        "--final",
        "--json",
    ]
    done = subprocess.run(
        command, env=environment, cwd=folders["working folder"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["committed_groups"] == 1
    assert made.load("t").properties["tblctl.cluster-by"] == "id"


@pytest.fixture
def glue(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield a table in a local folder, and the words of its catalog: moto's Glue, whose state outlives a server."""
    name = f"db{os.urandom(6).hex()}"
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "type": "glue",
            "glue.endpoint": f"http://{host}:{port}",
            "glue.region": "us-east-1",
            "glue.access-key-id": "glue-user-key",
            "glue.secret-access-key": "glue-secret-of-mine",
            "warehouse": f"file://{tmp_path}/warehouse",
        }
        catalog = load_catalog("prod", **options)
        catalog.create_namespace(name, {"location": f"file://{tmp_path}/warehouse/db"})
        table = catalog.create_table(f"{name}.t", pa.schema([("id", pa.int64())]))
        for first in (0, 5):
            table.append(pa.table({"id": range(first, first + 10)}))
        words = [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]
        yield f"iceberg://prod/{name}.t", words
    finally:
        server.stop()


def test_a_table_of_glue_is_measured_merged_and_collected(glue: tuple[str, list[str]]) -> None:
    location, options = glue

    def found(command: str, *words: str) -> dict[str, Any]:
        result = CliRunner().invoke(application, [command, location, *words, "--json", *options])
        assert result.exit_code == 0, result.output
        assert "secret-of-mine" not in result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    assert found("info", "--columns", "id")["average_depth"] == 2.0
    done = found("recluster", "--cluster-by", "id", "--final")
    assert (done["committed_groups"], done["depth_after"]) == (1, 1.0)
    assert found("info")["rows"] == 20
    assert len(found("gc", "--keep", "1", "--expire-older-than", "0s")["snapshots_expired"]) == 2
    assert found("info")["total_block_count"] == 1
    missing = CliRunner().invoke(application, ["info", f"{location}2", *options])
    assert missing.exit_code == 1
    assert f"there is no table at {location}2" in missing.stderr


def test_a_metastore_that_does_not_answer_is_named() -> None:
    words = ["--catalog-option", "type=hive", "--catalog-option", "uri=thrift://127.0.0.1:1"]
    result = CliRunner().invoke(application, ["info", "iceberg://prod/db.t", *words])
    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr or "Could not connect" in result.stderr
    assert "Traceback" not in result.stderr
