"""Iceberg tables on S3: read through the catalog's own properties, manifests kept in a folder."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from servers import S3Server

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import AccessDeniedError, ObjectNotFoundError, TblctlError

TABLE = "iceberg://lake/a.t"


@pytest.fixture
def options(minio: S3Server, tmp_path: Path) -> dict[str, str]:
    """A catalog with the table `a.t` of two files on MinIO."""
    found = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        **minio.catalog_options,
    }
    warehouse = f"s3://{minio.bucket}/{uuid.uuid4().hex}"
    catalog = load_catalog("lake", type="sql", warehouse=warehouse, **found)
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", pa.schema([("id", pa.int64())]))
    for first in (0, 5):
        table.append(pa.table({"id": range(first, first + 10)}))
    return found


def test_a_table_on_s3_is_measured_with_the_catalogs_credentials(options: dict[str, str]) -> None:
    found = tblctl.open(TABLE, catalog_options=options).info("id")
    assert (found.rows, found.average_depth) == (20, 2.0)


def test_manifests_are_fetched_once_and_kept(options: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    words = [item for name, value in options.items() for item in ("--catalog-option", f"{name}={value}")]
    words = ["info", TABLE, "--columns", "id", "--json", *words, "--metadata-cache"]
    first, second = (CliRunner().invoke(application, [*words, str(folder)]) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["rows"] == 20
    kept = list(folder.iterdir())
    assert len(kept) == 2  # a manifest for each append; manifest lists are read anew
    assert CliRunner().invoke(application, [*words, "none"]).stdout == first.stdout

    for manifest in _manifests(options):  # what is kept suffices
        _filesystem(options).rm(manifest)
    assert CliRunner().invoke(application, [*words, str(folder)]).stdout == first.stdout
    missing = CliRunner().invoke(application, [*words, "none"])
    assert missing.exit_code == 1
    assert "is missing: the table's metadata names it" in missing.stderr


def test_wrong_credentials_are_access_denied_and_not_shown(options: dict[str, str]) -> None:
    wrong = options | {"s3.secret-access-key": "wrong-secret-of-mine"}
    with pytest.raises(TblctlError) as caught:
        tblctl.open(TABLE, catalog_options=wrong).info("id")
    assert isinstance(caught.value, AccessDeniedError)
    assert "wrong-secret-of-mine" not in str(caught.value)


def test_a_missing_manifest_is_named(options: dict[str, str]) -> None:
    manifest = _manifests(options)[0]
    _filesystem(options).rm(manifest)
    with pytest.raises(ObjectNotFoundError, match=manifest.rpartition("/")[2]):
        tblctl.open(TABLE, catalog_options=options).info("id")


def _manifests(options: dict[str, str]) -> list[str]:
    table = load_catalog("lake", type="sql", **options).load_table("a.t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [manifest.manifest_path for manifest in snapshot.manifests(table.io)]


def _filesystem(options: dict[str, str]):
    import s3fs

    return s3fs.S3FileSystem(
        key=options["s3.access-key-id"],
        secret=options["s3.secret-access-key"],
        endpoint_url=options["s3.endpoint"],
    )
