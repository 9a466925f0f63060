"""Appends, deletes, reclusters and gc of one table at once, each a process: no row is lost, doubled, or back.

In the short races Spark takes part by hand: PyIceberg appends, and `position_deletes` commits what engines write for
merge-on-read. In a longer one Spark itself appends and deletes.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jvm import quick_java
from profiles import THOROUGH
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, StringType

import tblctl

from . import racers
from .lake import fields

SECONDS = 60 if THOROUGH else 5
SPARK_SECONDS = 300 if THOROUGH else 12
ROLES = ("append", "delete", "recluster", "recluster", "gc")


@pytest.fixture(
    params=["local", "minio", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]
)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The options of a catalog in an SQLite file or on PostgreSQL, whose tables are on local disk, or on MinIO."""
    if request.param == "minio":
        return on_minio(request.getfixturevalue("minio"), tmp_path)
    found = database(tmp_path)
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        found["uri"] = server.uri(server.create_database())
    return found | {"warehouse": f"file://{tmp_path}/tables"}


def database(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}


def on_minio(minio: Any, folder: Path) -> dict[str, str]:
    return database(folder) | {
        "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
        **minio.catalog_options,
    }


def create(options: dict[str, str], **more: str) -> Table:
    catalog = load_catalog(racers.NAME, **options)
    catalog.create_namespace("db")
    return catalog.create_table(
        racers.TABLE,
        fields(id=LongType(), part=IntegerType(), text=StringType()),
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        properties={"commit.manifest.min-count-to-merge": "10", **more},
    )


def race(
    options: dict[str, str], folder: Path, roles: Sequence[str], seconds: int = SECONDS
) -> list[tuple[str, dict[str, Any]]]:
    """Run all roles at once; return what each did. The others begin when Spark is ready."""
    running = []
    for seed, role in enumerate(roles):
        log = folder / f"{seed}-{role}.log"
        words = [role, json.dumps(options), str(seconds), str(seed), str(log)]
        process = subprocess.Popen(
            [sys.executable, racers.__file__, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (quick_java() | {"PYSPARK_PYTHON": sys.executable} if role == "spark" else {}),
        )
        if role == "spark":
            assert process.stdout is not None
            said = process.stdout.readline()
            if said != "ready\n":
                raise NotReadyError("".join(process.communicate()[1].splitlines(keepends=True)[-5:]))
        running.append((role, log, process))
    told = [
        (role, log, process.communicate(timeout=seconds + 120)[1], process) for role, log, process in running
    ]
    for role, _, errors, process in told:
        assert process.returncode == 0, f"{role}: {errors}"
    return [(role, json.loads(line)) for role, log, *_ in told for line in log.read_text().splitlines()]


class NotReadyError(Exception):
    """Spark did not start."""


def expected(done: list[tuple[str, dict[str, Any]]]) -> set[int]:
    """Return the ids that are left, by what was done."""
    appended = {id_ for _, did in done if "appended" in did for id_ in racers.ids_from(did["appended"])}
    return appended - {id_ for _, did in done for id_ in did.get("deleted", ())}


def assert_reclusters_kept_rows(table: Table) -> tuple[int, int]:
    """Compare every REPLACE snapshot with the one before it; return how many there are, and how many rows they have."""
    count = rows = 0
    for snapshot in table.snapshots():
        if snapshot.summary.operation.value == "replace":
            before, after = (
                sorted(table.scan(snapshot_id=id_, selected_fields=("id",)).to_arrow()["id"].to_pylist())
                for id_ in (snapshot.parent_snapshot_id, snapshot.snapshot_id)
            )
            assert after == before, f"snapshot {snapshot.snapshot_id}"
            count, rows = count + 1, rows + len(after)
    return count, rows


def steps(done: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
    """Return how often each role did what."""
    return dict(Counter(f"{role}: {next(iter(did))}" for role, did in done))


def judged(
    table: Table, options: dict[str, str], done: list[tuple[str, dict[str, Any]]], *, locked: bool
) -> list[str]:
    """Assert that the rows are those of the model, then, and after every recluster; return errors of tblctl."""
    errors = [did["error"] for _, did in done if "error" in did]
    total = {
        name: sum(did.get(name, 0) for _, did in done) for name in ("commits", "committed", "conflicted")
    }
    rows = table.refresh().scan().to_arrow()
    left = sorted(expected(done))
    print(f"{steps(done)}, {total}, errors {dict(Counter(errors))}")
    assert sorted(rows["id"].to_pylist()) == left
    assert all(row["text"] == racers.text_of(row["id"]) for row in rows.to_pylist())
    assert not [name for _, did in done for name in did.get("removed", ())]
    assert locked or not [text for _, did in done for text in did.get("failed", ())]
    commits, compared = assert_reclusters_kept_rows(table)
    print(
        f"snapshots {len(table.snapshots())}, rows left {len(left)}, rows compared after reclusters {compared}"
    )
    assert commits > 0
    assert commits == total["commits"] or locked
    opened = tblctl.open(f"iceberg://{racers.NAME}/{racers.TABLE}", catalog_options=options)
    opened.recluster(policy="full", final=True)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == left
    assert opened.info().average_depth == 1.0
    return errors


def test_no_row_is_lost_doubled_or_back_when_all_commit_at_once(
    options: dict[str, str], tmp_path: Path
) -> None:
    table = create(options)
    errors = judged(table, options, race(options, tmp_path, ROLES), locked=False)
    assert all("database is locked" in error for error in errors), errors  # on a busy machine


@pytest.mark.parametrize("call", ["PutObject", "UploadPart", "CompleteMultipartUpload"])
def test_an_upload_that_the_server_refused_is_a_failed_append(call: str) -> None:
    log = io.StringIO()
    racer = racers.Racer({}, 0, 0, log)
    racer.raise_unless_upload_failed(
        OSError(f"AWS Error UNKNOWN (HTTP status 400) during {call} operation: IncompleteBody")
    )
    racer.raise_unless_upload_failed(CommitFailedException("others committed"))
    (line,) = log.getvalue().splitlines()
    assert "IncompleteBody" in json.loads(line)["upload_failed"]


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("Path does not exist"), OSError("AWS Error NO_SUCH_KEY during GetObject operation")],
)
def test_a_file_that_is_gone_ends_the_race(error: Exception) -> None:
    with pytest.raises(type(error)):
        racers.Racer({}, 0, 0, io.StringIO()).raise_unless_upload_failed(error)


@pytest.mark.skipif(not THOROUGH, reason="part of make test-thorough")
def test_no_row_is_lost_while_the_catalog_often_refuses(tmp_path: Path) -> None:
    """Another process locks the database for longer than connections wait, also while they commit."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/tables"}
    table = create(options)
    done = race(options | {"uri": f"{uri}?timeout=0.01"}, tmp_path, (*ROLES, "lock"))
    errors = judged(table, options, done, locked=True)
    assert all("database is locked" in error for error in errors), errors


@pytest.mark.xdist_group("iceberg-spark")
@pytest.mark.timeout(1800)
def test_no_row_is_lost_doubled_or_back_beside_spark(minio: Any, tmp_path: Path) -> None:
    """Spark appends and deletes merge-on-read, PyIceberg appends, two tblctl recluster, and gc runs."""
    options = on_minio(minio, tmp_path) | {"schema_version": "v1"}
    merge_on_read = {"write.delete.mode": "merge-on-read", "write.delete.isolation-level": "snapshot"}
    table = create(options, **merge_on_read)
    try:
        done = race(options, tmp_path, ("spark", "append", "recluster", "recluster", "gc"), SPARK_SECONDS)
    except NotReadyError as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"Iceberg's Spark cannot run: {error}"
        )
    refused = Counter(did["refused"][:80] for _, did in done if "refused" in did)
    print(f"refused to Spark: {dict(refused)}")
    assert any("appended" in did for role, did in done if role == "spark")
    assert any("deleted" in did for role, did in done if role == "spark")
    errors = judged(table, options, done, locked=False)
    assert all("database is locked" in error for error in errors), errors
