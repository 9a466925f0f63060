"""Commits that PyIceberg 0.12 cannot make: position deletes, and data files of any writer with any metrics."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

PATH_ID, POSITION_ID = 2_147_483_546, 2_147_483_545
NUMBERS = itertools.count()


class _DeleteManifestWriter(ManifestWriterV2):
    """PyIceberg's writer of manifests, for delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def folder_of(table: Table) -> Path:
    """Return the folder of a local table."""
    return Path(table.location().removeprefix("file://"))


def delete_rows(table: Table, positions: Mapping[str, Sequence[int]], **more: Any) -> Table:
    """Commit one position delete file with rows of data files; return the table as it is then.

    Args:
        table: of format version 2.
        positions: by path of the data file.
        more: see `delete_file`.
    """
    rows = [(path, position) for path in sorted(positions) for position in positions[path]]
    written = delete_file(table, rows, **more)
    return commit(table, [written], content=ManifestContent.DELETES)


def delete_file(
    table: Table,
    rows: Sequence[tuple[str, int]],
    *,
    like: DataFile | None = None,
    bounds: bool = True,
    ids: bool = True,
    referenced: str | None = None,
    **options: Any,
) -> DataFile:
    """Write a position delete file, and return its entry. It is not committed.

    Args:
        table: for its folder.
        rows: path and position of each deleted row, as they are written.
        like: a data file of the same partition and spec; None for a table without partitions.
        bounds: the entry has the bounds of paths.
        ids: the columns have their field ids.
        referenced: the entry's `referenced_data_file`.
        options: of pyarrow's writer.
    """
    columns = (("file_path", pa.string(), PATH_ID), ("pos", pa.int64(), POSITION_ID))
    schema = pa.schema(
        [
            pa.field(name, kind, False, {b"PARQUET:field_id": str(id_).encode()} if ids else None)
            for name, kind, id_ in columns
        ]
    )
    paths = [path for path, _ in rows]
    data = pa.table([paths, [position for _, position in rows]], schema=schema)
    written = pa.BufferOutputStream()
    pq.write_table(data, written, **options)
    content = written.getvalue().to_pybytes()
    path = f"{table.location()}/data/deletes-{uuid.uuid4().hex}.parquet"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    ends = {PATH_ID: min(paths).encode()}, {PATH_ID: max(paths).encode()}
    return entry_of(
        path,
        rows=len(rows),
        size_bytes=len(content),
        content=DataFileContent.POSITION_DELETES,
        like=like,
        lower_bounds=ends[0] if bounds else None,
        upper_bounds=ends[1] if bounds else None,
        referenced_data_file=referenced,
    )


def entry_of(
    path: str | Path,
    *,
    rows: int,
    size_bytes: int | None = None,
    content: DataFileContent = DataFileContent.DATA,
    like: DataFile | None = None,
    **more: Any,
) -> DataFile:
    """Return the entry of a file, by its URI and size, or of a local one by its path."""
    if isinstance(path, Path):
        path, size_bytes = f"file://{path}", path.stat().st_size
    found = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=like.partition if like else Record(),
        record_count=rows,
        file_size_in_bytes=size_bytes,
        **more,
    )
    found.spec_id = like.spec_id if like else 0
    return found


def data_file(table: Table, rows: pa.Table, *, like: DataFile | None = None, **more: Any) -> DataFile:
    """Write a data file as it is, and return its entry, which has only the metrics given. It is not committed.

    Args:
        table: for its folder.
        rows: with field ids, or without.
        like: a data file of the same partition and spec.
        more: `write` has options of pyarrow's writer; others are fields of the entry.
    """
    options = more.pop("write", {})
    path = folder_of(table) / "data" / f"foreign-{next(NUMBERS)}-{uuid.uuid4().hex}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    size_bytes = path.stat().st_size
    return entry_of(f"file://{path}", rows=rows.num_rows, size_bytes=size_bytes, like=like, **more)


def commit(
    table: Table,
    files: Sequence[DataFile],
    *,
    content: ManifestContent = ManifestContent.DATA,
    needed: Collection[str] = (),
) -> Table:
    """Add files of one spec to the main branch; return the table as it is then.

    Args:
        table: may be older than the newest.
        files: to add.
        content: of the files.
        needed: paths of data files that must be live, as engines demand of those that a delete names.

    Raises:
        CommitFailedException: others committed meanwhile, or a needed file is not live any more.
    """
    table = table.refresh()
    live = {task.file.file_path for task in table.scan().plan_files()} if needed else set()
    if not live.issuperset(needed):
        raise CommitFailedException("a data file of these deletes is not live any more")
    metadata = table.metadata
    id_, sequence_number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    spec = metadata.specs()[files[0].spec_id]
    folder = f"{table.location()}/metadata"
    output = table.io.new_output(f"{folder}/{uuid.uuid4().hex}-m0.avro")
    if content == ManifestContent.DATA:
        writer = write_manifest(metadata.format_version, spec, table.schema(), output, id_, "deflate")
    else:
        writer = _DeleteManifestWriter(spec, table.schema(), output, id_, "deflate")
    with writer:
        for file in files:
            entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=id_, data_file=file)
            writer.add_entry(entry)
    before = table.current_snapshot()
    parent = before.snapshot_id if before else None
    listed = table.io.new_output(f"{folder}/snap-{id_}.avro")
    held = before.manifests(table.io) if before else []
    with write_manifest_list(
        metadata.format_version, listed, id_, parent, sequence_number, "deflate"
    ) as manifests:
        manifests.add_manifests([writer.to_manifest_file(), *held])
    snapshot = Snapshot(
        snapshot_id=id_,
        parent_snapshot_id=parent,
        sequence_number=sequence_number,
        manifest_list=listed.location,
        summary=_summary_of(files, content, before),
        schema_id=metadata.current_schema_id,
    )
    reference = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=id_)
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=parent),),
        (AddSnapshotUpdate(snapshot=snapshot), reference),
    )
    return table.refresh()


def _summary_of(files: Sequence[DataFile], content: ManifestContent, before: Snapshot | None) -> Summary:
    """Return the summary of a snapshot that adds files, with totals as all engines keep them."""
    added = SnapshotSummaryCollector()
    for file in files:
        added.metrics.add_file(file)
    operation = Operation.APPEND if content == ManifestContent.DATA else Operation.DELETE
    known = before.summary.additional_properties if before and before.summary else None
    return update_snapshot_summaries(Summary(operation, **added.build()), known)
