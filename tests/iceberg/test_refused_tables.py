"""Tables that Spark wrote and a recluster refuses before any work, with what to do; everything else works on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.manifest import DataFileContent, ManifestContent

from tblctl.cli.main import application

from .lake import Lake
from .position_deletes import commit, entry_of
from .spark_process import SparkLake

pytestmark = pytest.mark.xdist_group("iceberg-spark")

FILES = (
    "INSERT INTO db.{0} SELECT id, concat('a', id) FROM range(0, 20, 1, 1)",
    "INSERT INTO db.{0} SELECT id, concat('b', id) FROM range(5, 25, 1, 1)",
)
IDS = sorted([*range(20), *range(5, 25)])


def made(lake: SparkLake, name: str, *more: str, **properties: str) -> Path:
    """Make a table of two files whose ids overlap; return its folder."""
    words = ", ".join(f"'{key}'='{value}'" for key, value in ({"format-version": "2"} | properties).items())
    lake.sql(
        f"CREATE TABLE db.{name} (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ({words})",
        *(statement.format(name) for statement in (*FILES, *more)),
    )
    return Path(lake.load(name).location().removeprefix("file:"))


def ids_of(lake: SparkLake, name: str) -> list[int]:
    return sorted(row["id"] for row in lake.sql(f"SELECT id FROM db.{name}"))


def forms(lake: SparkLake, name: str) -> Counter[tuple[int, str]]:
    """Return how many live files there are of each content and format, as Spark sees them."""
    rows = lake.sql(f"SELECT content, file_format FROM db.{name}.all_files")
    return Counter((row["content"], row["file_format"].upper()) for row in rows)


def run(lake: Lake, command: str, name: str, *words: str, code: int = 0) -> Result:
    options = [word for key, value in lake.options.items() for word in ("--catalog-option", f"{key}={value}")]
    result = CliRunner().invoke(application, [command, f"iceberg://lake/db.{name}", *options, *words])
    assert result.exit_code == code, result.output
    return result


def state(lake: Lake, name: str, folder: Path) -> Any:
    return lake.load(name).metadata_location, {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_refused(
    lake: Lake, caplog: pytest.LogCaptureFixture, name: str, folder: Path, *texts: str
) -> None:
    """Require that reclusters say why, that a dry run says so too and plans, and that neither leaves anything."""
    before = state(lake, name, folder)
    for words in (("--cluster-by", "id"), ("--cluster-by", "id", "--final", "--policy", "full")):
        refused = run(lake, "recluster", name, *words, code=2)
        for text in (f"iceberg://lake/db.{name} cannot be reclustered", *texts):
            assert text in refused.stderr
        assert state(lake, name, folder) == before
    caplog.clear()
    planned = run(lake, "recluster", name, "--cluster-by", "id", "--policy", "full", "--dry-run", "--json")
    assert json.loads(planned.stdout)["snapshot"]
    for text in ("would be refused", *texts):
        assert text in caplog.text
    assert state(lake, name, folder) == before


def assert_measured(
    lake: Lake, name: str, folder: Path, *, depth: float | None = 2.0, files: int = 2
) -> None:
    """Require that all that reads metadata works, and leaves nothing."""
    before = state(lake, name, folder)
    found = json.loads(run(lake, "info", name, "--columns", "id", "--json").stdout)
    assert (found["total_block_count"], found["average_depth"]) == (files, depth)
    assert run(lake, "suggest", name).stdout
    assert run(lake, "depth", name, "id").stdout
    assert len(json.loads(run(lake, "history", name, "--json").stdout)) >= 2
    run(lake, "check", name)
    run(lake, "gc", name, "--dry-run")
    assert state(lake, name, folder) == before


@pytest.mark.parametrize("deleted", [False, True])
def test_format_version_3_with_and_without_deletion_vectors(
    spark_lake: SparkLake, caplog: pytest.LogCaptureFixture, deleted: bool
) -> None:
    name = f"v3_{deleted}".lower()
    deletes = ["DELETE FROM db.{0} WHERE id IN (3, 7)"] if deleted else []
    folder = made(spark_lake, name, *deletes, **{"format-version": "3", "write.delete.mode": "merge-on-read"})
    assert forms(spark_lake, name)[1, "PUFFIN"] == 2 * deleted
    assert_refused(
        spark_lake,
        caplog,
        name,
        folder,
        "format version 3",
        "row lineage and deletion vectors",
        "rewrite_data_files",
    )
    assert_measured(spark_lake, name, folder)
    assert ids_of(spark_lake, name) == [id_ for id_ in IDS if not deleted or id_ not in (3, 7)]


def test_snapshots_of_format_version_3_are_left_to_engines(spark_lake: SparkLake) -> None:
    """PyIceberg writes no metadata of this version, so neither does tblctl in catalogs that are databases."""
    deletes = [f"DELETE FROM db.{{0}} WHERE id IN ({ids})" for ids in ("3, 7", "2")]
    folder = made(
        spark_lake, "v3_gc", *deletes, **{"format-version": "3", "write.delete.mode": "merge-on-read"}
    )
    before = state(spark_lake, "v3_gc", folder)
    expire = ("v3_gc", "--keep", "1", "--expire-older-than", "0s", "--json")
    for more in (["--dry-run"], []):
        refused = run(spark_lake, "gc", *expire, *more, code=2)
        for text in ("format version 3", "CALL system.expire_snapshots", "nothing was deleted"):
            assert text in refused.stderr
    assert json.loads(run(spark_lake, "gc", "v3_gc", "--dry-run", "--json").stdout)["objects_deleted"] == []
    assert state(spark_lake, "v3_gc", folder) == before
    assert ids_of(spark_lake, "v3_gc") == [id_ for id_ in IDS if id_ not in (2, 3, 7)]


@pytest.mark.parametrize("kind", ["orc", "avro"])
@pytest.mark.parametrize("mixed", [False, True])
def test_data_files_of_other_formats(
    spark_lake: SparkLake, caplog: pytest.LogCaptureFixture, kind: str, mixed: bool
) -> None:
    """Some of the files, or all; the property says Parquet again, or still the other format."""
    name = f"{kind}_{mixed}".lower()
    more = ()
    if mixed:
        more = (
            "ALTER TABLE db.{0} SET TBLPROPERTIES ('write.format.default'='parquet')",
            "INSERT INTO db.{0} SELECT id, concat('c', id) FROM range(0, 9, 1, 1)",
        )
    folder = made(spark_lake, name, *more, **{"write.format.default": kind})
    assert forms(spark_lake, name)[0, kind.upper()] == 2
    what = f"some of its data files are {kind.upper()}"
    assert_refused(spark_lake, caplog, name, folder, what, "after setting write.format.default to parquet")
    depth = {"orc": 2.0, "avro": None}[kind]
    if mixed:
        depth = {"orc": 3.0, "avro": 1.0}[kind]
    assert_measured(spark_lake, name, folder, depth=depth, files=2 + mixed)


def test_what_the_error_about_formats_says_helps(spark_lake: SparkLake) -> None:
    made(spark_lake, "helped", **{"write.format.default": "orc"})
    spark_lake.sql(
        "ALTER TABLE db.helped SET TBLPROPERTIES ('write.format.default'='parquet')",
        "CALL lake.system.rewrite_data_files(table => 'db.helped', options => map('rewrite-all', 'true'))",
        "INSERT INTO db.helped VALUES (12, 'late')",
    )
    outcome = json.loads(
        run(spark_lake, "recluster", "helped", "--cluster-by", "id", "--policy", "full", "--json").stdout
    )
    assert outcome["committed_groups"] == 1
    assert ids_of(spark_lake, "helped") == sorted([*IDS, 12])


def test_position_deletes_of_another_format(spark_lake: SparkLake, caplog: pytest.LogCaptureFixture) -> None:
    folder = made(
        spark_lake,
        "orc_deletes",
        "DELETE FROM db.{0} WHERE id IN (3, 7)",
        **{"write.delete.mode": "merge-on-read", "write.delete.format.default": "orc"},
    )
    assert forms(spark_lake, "orc_deletes")[1, "ORC"] > 0
    assert_refused(spark_lake, caplog, "orc_deletes", folder, "some of its delete files are ORC")
    assert_measured(spark_lake, "orc_deletes", folder)


def test_a_table_whose_new_files_are_to_be_of_another_format(
    spark_lake: SparkLake, caplog: pytest.LogCaptureFixture
) -> None:
    change = "ALTER TABLE db.{0} SET TBLPROPERTIES ('write.format.default'='avro')"
    folder = made(spark_lake, "to_be_avro", change)
    assert_refused(spark_lake, caplog, "to_be_avro", folder, "write.format.default is avro")
    assert_measured(spark_lake, "to_be_avro", folder)


@pytest.mark.parametrize("content", [DataFileContent.DATA, DataFileContent.POSITION_DELETES])
def test_files_with_key_metadata(
    spark_lake: SparkLake, caplog: pytest.LogCaptureFixture, content: DataFileContent
) -> None:
    """Engines encrypt only with a service of keys; so an entry is added by hand, as they write it."""
    name = f"encrypted_{content.name}".lower()
    folder = made(spark_lake, name)
    file = next((folder / "data").glob("*.parquet"))
    kind = ManifestContent.DATA if content == DataFileContent.DATA else ManifestContent.DELETES
    entry = entry_of(file, rows=20, content=content, key_metadata=b"key")
    commit(spark_lake.load(name), [entry], content=kind)
    assert_refused(spark_lake, caplog, name, folder, "some of its files are encrypted", "in the clear")
    files = 3 if content == DataFileContent.DATA else 2
    assert_measured(spark_lake, name, folder, files=files, depth=2.0)


def test_the_command_warns_on_standard_error(spark_lake: SparkLake) -> None:
    made(spark_lake, "warned", **{"format-version": "3"})
    words = [f"{key}={value}" for key, value in spark_lake.options.items()]
    command = [sys.executable, "-m", "tblctl.cli", "recluster", "iceberg://lake/db.warned", "--dry-run"]
    command += ["--policy", "full", "--cluster-by", "id", "--json"]
    command += [item for word in words for item in ("--catalog-option", word)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["groups"]) == 1
    assert done.stderr.startswith("a recluster of iceberg://lake/db.warned would be refused: it has format")
    assert len(done.stderr.splitlines()) == 1
