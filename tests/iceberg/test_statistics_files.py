"""Statistics files of other engines (Puffin) stay with their snapshots, and tblctl adds none of its own."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.types import LongType

import tblctl

from .lake import Lake, append, fields
from .merging import recluster
from .replacing import sorted_ids


def with_statistics(table: Table) -> Path:
    """Give the newest snapshot a statistics file as Spark's `compute_table_stats` leaves it; return where it is."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    path = Path(table.location().removeprefix("file://")) / "metadata" / f"{snapshot.snapshot_id}.stats"
    path.write_bytes(b"PFA1PFA1")
    found = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=f"file://{path}",
        file_size_in_bytes=8,
        file_footer_size_in_bytes=4,
        blob_metadata=[],
    )
    with table.update_statistics() as update:
        update.set_statistics(found)
    return path


def test_statistics_survive_a_recluster_and_go_with_their_snapshot(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType()))
    for first in (0, 5):
        append(table, id=list(range(first, first + 10)))
    old = with_statistics(table)
    before = sorted_ids(table)
    assert recluster(table).commits == 1
    assert [item.snapshot_id for item in table.refresh().metadata.statistics] == [int(old.stem)]
    new = with_statistics(table)
    assert sorted_ids(table) == before

    opened = tblctl.from_iceberg(table)
    listed = opened.gc(expire_older_than=0, keep=1, dry_run=True).objects_deleted
    assert f"file://{old}" in listed
    assert f"file://{new}" not in listed
    opened.gc(expire_older_than=0, keep=1)
    assert (old.exists(), new.exists()) == (False, True)
    assert [item.snapshot_id for item in table.refresh().metadata.statistics] == [int(new.stem)]
    assert sorted_ids(table) == before


def test_a_blob_of_our_own_would_make_tables_unreadable() -> None:
    """Keys are in a side file, not in a Puffin blob, since PyIceberg reads two types of blobs only.

    If this fails, PyIceberg has learned to read others.
    """
    types = BlobMetadata.model_fields["type"].annotation
    assert set(get_args(types)) == {"apache-datasketches-theta-v1", "deletion-vector-v1"}


def test_a_recluster_adds_no_statistics_file(lake: Lake) -> None:
    table = lake.create("t", fields(id=LongType()))
    for first in (0, 5):
        append(table, id=list(range(first, first + 10)))
    assert recluster(table, final=True).commits
    metadata = table.refresh().metadata
    assert (metadata.statistics, metadata.partition_statistics) == ([], [])
