"""The commit of a recluster to an Iceberg table: 64 files that lie in all manifests are replaced.

Entries that share a manifest with a replaced file are written again. Ours copies them as they are encoded; PyIceberg's
overwrite makes an object of each. The table lies on local disk, its catalog is SQLite. Manifests are those of
`benchmarks.manifests`, of 20,000 entries with metrics of 16 columns, written by one commit each.

Both remove the same files from the same table, which is set back in between. The large table is committed to by ours
alone: PyIceberg would take minutes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.common import Report, in_turn, main, scratch
from benchmarks.manifests import LAYOUTS, MANIFEST_ENTRIES, manifest
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.port import Replacement

REPLACED = 64
LARGE, SMALL = 50, 5
RUNS = 3


def measure(report: Report, tiny: bool) -> None:
    size = 200 if tiny else MANIFEST_ENTRIES
    runs = 1 if tiny else RUNS
    for what, single in LAYOUTS.items():
        with scratch() as folder:
            lake = Lake(Path(folder), size, single=single)
            lake.fill(SMALL)
            report.line(f"{what}: {REPLACED} of {SMALL * size:,} files, in all {SMALL} manifests")
            ours, theirs = in_turn([lake.ours, lake.pyiceberg], runs=runs)
            ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
            report.figure("  ours", sorted(ours)[len(ours) // 2], "s")
            report.figure("  PyIceberg / ours", ratios[len(ratios) // 2], "x")
            if single:
                continue
            if not tiny:
                lake.fill(LARGE - SMALL)
            seconds = lake.ours()
            report.line(
                f"  {lake.manifests * size:,} files, {lake.manifests} manifests: {lake.copied:,} entries copied"
            )
            report.figure("  ours", seconds, "s")
            report.figure("  entries copied a second", lake.copied / seconds, "entries/s")


class Lake:
    """A table with many files that do not exist."""

    def __init__(self, folder: Path, size: int, *, single: bool) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import DayTransform
        from pyiceberg.types import LongType, NestedField, TimestampType

        self._size, self._single = size, single
        self.manifests = 0
        self.copied = 0
        self._catalog = load_catalog(
            "lake", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=str(folder)
        )
        self._catalog.create_namespace("db")
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampType()))
        spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"))
        self._catalog.create_table("db.t", schema, partition_spec=spec)

    def fill(self, count: int) -> None:
        """Add manifests, in one snapshot."""
        from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
        from pyiceberg.table.snapshots import Operation, Snapshot, Summary

        table = self._catalog.load_table("db.t")
        held = table.current_snapshot()
        files = [] if held is None else held.manifests(table.io)
        id_ = table.metadata.new_snapshot_id()
        for number in range(self.manifests, self.manifests + count):
            data = manifest(self._size, seed=number, merged=True, single=self._single)
            path = f"{table.location()}/metadata/{number}-m0.avro"
            with table.io.new_output(path).create() as stream:
                stream.write(data)
            files.append(
                ManifestFile.from_args(
                    manifest_path=path,
                    manifest_length=len(data),
                    partition_spec_id=0,
                    content=ManifestContent.DATA,
                    sequence_number=1,
                    min_sequence_number=1,
                    added_snapshot_id=id_,
                    added_files_count=0,
                    existing_files_count=self._size,
                    deleted_files_count=0,
                    added_rows_count=0,
                    existing_rows_count=1,
                    deleted_rows_count=0,
                    partitions=None,
                    key_metadata=None,
                )
            )
        self.manifests += count
        output = table.io.new_output(f"{table.location()}/metadata/snap-{id_}.avro")
        sequence = table.metadata.next_sequence_number()
        with write_manifest_list(2, output, id_, held and held.snapshot_id, sequence, "deflate") as writer:
            writer.add_manifests(files)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": id_,
                "parent-snapshot-id": held and held.snapshot_id,
                "sequence-number": sequence,
                "manifest-list": output.location,
                "summary": Summary(Operation.APPEND),
                "schema-id": 0,
            }
        )
        self._set(snapshot)

    def _set(self, snapshot: Any) -> None:
        """Make a snapshot the newest, and add it if it is new."""
        from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

        table = self._catalog.load_table("db.t")
        known = table.metadata.snapshot_by_id(snapshot.snapshot_id) is not None
        moved = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
        added = [] if known else [AddSnapshotUpdate(snapshot=snapshot)]
        self._catalog.commit_table(table, (), (*added, SetSnapshotRefUpdate.model_validate(moved)))

    def ours(self) -> float:
        """Return the seconds of our commit, from the planned version on."""
        table = self._catalog.load_table("db.t")
        before = table.current_snapshot()
        port = IcebergPort.of_table(table, SYSTEM).clustered_by("id")
        base = port.newest()
        paths = base.files.entries.path
        step = len(paths) // REPLACED
        removed = frozenset(paths.take(pa.array(range(0, step * REPLACED, step))).to_pylist())
        started = time.perf_counter()
        version = port.replace(base, Replacement(removed=removed, added=()))
        seconds = time.perf_counter() - started
        self.copied = sum(
            item.existing_files_count or 0
            for item in version.manifests
            if item.added_snapshot_id == version.snapshot.snapshot_id
        )
        self._set(before)
        return seconds

    def pyiceberg(self) -> float:
        """Return the seconds of PyIceberg's commit, without looking the files up."""
        table = self._catalog.load_table("db.t")
        before = table.current_snapshot()
        assert before is not None
        found = [
            entry.data_file
            for item in before.manifests(table.io)
            for entry in item.fetch_manifest_entry(table.io)
        ]
        step = len(found) // REPLACED
        chosen = found[: step * REPLACED : step]
        started = time.perf_counter()
        with table.transaction() as change, change.update_snapshot().overwrite() as update:
            for file in chosen:
                update.delete_data_file(file)
        seconds = time.perf_counter() - started
        self._set(before)
        return seconds


if __name__ == "__main__":
    main("commits", measure)
