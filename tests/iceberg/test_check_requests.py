"""`check --deep` on S3: a bounded number of requests for each file, however many pages and row groups it has."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proxy import CuttingProxy
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType
from servers import S3Server

import tblctl

from .lake import fields
from .merging import numbered
from .position_deletes import commit, delete_file, entry_of
from .replacing import data_files

GROUPS, PAGES, GROUP_ROWS = 3, 40, 8_000
ROWS = GROUPS * GROUP_ROWS


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[CuttingProxy]:
    with CuttingProxy(minio.host, minio.port) as running:
        yield running


@pytest.fixture
def options(minio: S3Server, proxy: CuttingProxy, tmp_path: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
        **minio.catalog_options,
        "s3.endpoint": proxy.endpoint_url,
    }


def stored(table: Table, name: str, rows: pa.Table) -> DataFile:
    """Write a data file of three row groups, each column of which has many pages; it is not committed."""
    written = pa.BufferOutputStream()
    pq.write_table(
        numbered(rows, (1, 2)),
        written,
        row_group_size=GROUP_ROWS,
        max_rows_per_page=GROUP_ROWS // PAGES,
        use_dictionary=False,
        compression="none",
    )
    data = written.getvalue().to_pybytes()
    path = f"{table.location()}/data/{name}.parquet"
    with table.io.new_output(path).create() as stream:
        stream.write(data)
    return entry_of(path, rows=rows.num_rows, size_bytes=len(data))


def made(options: dict[str, str]) -> Table:
    catalog = load_catalog("lake", **options)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", fields(id=LongType(), text=StringType()))
    for first in range(2):
        ids = list(range(first, 2 * ROWS, 2))
        texts = [f"a text of some length {id_ * 7919 % 100_003}" for id_ in ids]
        table = commit(table, [stored(table, f"foreign-{first}", pa.table({"id": ids, "text": texts}))])
    return table


def asked(proxy: CuttingProxy, options: dict[str, str]) -> Counter[str]:
    """Check a table; return how many requests there were for each data file, by its path."""
    proxy.clear()
    report = tblctl.open("iceberg://lake/db.t", catalog_options=options).check(deep=True)
    assert report.ok, report.problems
    assert {item.method for item in proxy.exchanges} <= {"GET", "HEAD"}
    return Counter(item.path for item in proxy.exchanges if "/data/" in item.path)


def of(found: Counter[str], path: str) -> int:
    """Return the requests for the file with a URI."""
    (count,) = (count for name, count in found.items() if path.endswith(name.rpartition("/")[2]))
    return count


def test_a_file_of_many_pages_is_read_in_whole_pieces(proxy: CuttingProxy, options: dict[str, str]) -> None:
    """Three row groups, of two columns of 40 pages, are one piece: two requests, of which one is for the footer."""
    table = made(options)
    found = asked(proxy, options)
    for file in data_files(table):
        assert file.file_size_in_bytes > 500_000
        assert of(found, file.file_path) == 2


def test_a_piece_is_one_row_group_at_least(
    proxy: CuttingProxy, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tblctl.tableformat.iceberg.upkeep.check_file._PIECE_BYTES", 1_000)
    table = made(options)
    found = asked(proxy, options)
    assert {of(found, file.file_path) for file in data_files(table)} == {1 + GROUPS}


def test_a_delete_file_of_many_pages_is_read_twice_in_whole(
    proxy: CuttingProxy, options: dict[str, str]
) -> None:
    """Once to verify its pages, after its end; and once for the files that it names, which asks for its size first."""
    table = made(options)
    path = data_files(table)[0].file_path
    deletes = delete_file(
        table,
        [(path, place) for place in range(0, ROWS, 2)],
        max_rows_per_page=100,
        row_group_size=GROUP_ROWS // 2,
        use_dictionary=False,
        compression="none",
    )
    commit(table, [deletes], content=ManifestContent.DELETES)
    assert deletes.file_size_in_bytes > 500_000
    found = asked(proxy, options)
    assert of(found, deletes.file_path) == 4
    assert of(found, path) == 2


def test_files_of_tblctl_take_as_many_requests(proxy: CuttingProxy, options: dict[str, str]) -> None:
    """Also with their keys, which are compared with those in the footer and in the file of keys."""
    table = made(options)
    with table.transaction() as change:
        change.set_properties(
            {"write.parquet.page-row-limit": "100", "write.parquet.row-group-size-bytes": "100000"}
        )
    tblctl.open("iceberg://lake/db.t", catalog_options=options).recluster(cluster_by="id", policy="full")
    found = asked(proxy, options)
    (file,) = data_files(table)
    assert len(file.split_offsets) > 2
    assert of(found, file.file_path) == 2
