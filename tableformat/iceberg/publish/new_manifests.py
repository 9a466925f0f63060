"""Write manifests and manifest lists of one commit. They are kept from one attempt to the next."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import AccessDeniedError, StorageError, TblctlError
from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.iceberg.entries import FileEntries
from tblctl.tableformat.iceberg.metadata_files import FULL_ADVICE, is_denied, is_full
from tblctl.tableformat.iceberg.own_keys import write_side_file
from tblctl.tableformat.iceberg.partition_bounds import joined_bounds, schema_for
from tblctl.tableformat.iceberg.publish.manifest_copy import (
    DELETED,
    EXISTING,
    EntryHeads,
    Excerpt,
    OldLayoutError,
    copy_entries,
)
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.storage.location import scrub, secrets_in

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

LOG = logging.getLogger("tblctl")

_UNASSIGNED = -1
"""The sequence number of a manifest whose snapshot has none yet. PyIceberg fills it in."""


class NewManifests:
    """The metadata files that one commit writes.

    Args:
        env: names and random bytes.
        snapshot_id: of the commit, in all its attempts.
    """

    def __init__(self, env: Environment, snapshot_id: int) -> None:
        self.paths: list[str] = []
        """What was written, in order."""
        self.copied_entries = 0
        """Entries that were written again since their manifest has others that left, or was merged."""
        self._env = env
        self.snapshot_id = snapshot_id
        self._added: list[ManifestFile] | None = None
        self._copies: dict[tuple[tuple[str, bytes], ...], ManifestFile] = {}

    def added(
        self, table: Table, records: Sequence[DataFileRecord], sequence_number: int | None
    ) -> list[ManifestFile]:
        """Return manifests of new data files, one for each partition spec.

        Args:
            table: the table now.
            records: the files.
            sequence_number: of their rows, so that delete files of before apply as to the rows that they were; None
                for rows that are new: the catalog gives it.
        """
        if self._added is None:
            by_spec: dict[int, list[DataFileRecord]] = {}
            for record in records:
                by_spec.setdefault(record.spec_id, []).append(record)
            self._added = [
                self._manifest_of(table, spec_id, found, sequence_number)
                for spec_id, found in sorted(by_spec.items())
            ]
        return self._added

    @property
    def added_paths(self) -> list[str]:
        """The manifests of new data files."""
        return [manifest.manifest_path for manifest in self._added or ()]

    def _manifest_of(
        self, table: Table, spec_id: int, records: Sequence[DataFileRecord], sequence_number: int | None
    ) -> ManifestFile:
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

        metadata = table.metadata
        spec = metadata.specs()[spec_id]
        version = metadata.format_version
        output = table.io.new_output(self._path(table, "m"))
        with write_manifest(
            version, spec, schema_for(spec, metadata), output, self.snapshot_id, "deflate"
        ) as writer:
            for record in records:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self.snapshot_id,
                    sequence_number=sequence_number if version > 1 else None,
                    file_sequence_number=None,
                    data_file=_data_file(record),
                )
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def copy(
        self, table: Table, sources: Sequence[ManifestEntries], data: Sequence[bytes], removed: Iterable[str]
    ) -> ManifestFile:
        """Return a manifest with the live entries of others of one spec, those of some files as DELETED.

        Args:
            table: the table now.
            sources: the manifests.
            data: their bytes.
            removed: paths of files that leave with this commit.
        """
        gone = frozenset(removed)
        parts = [_Part.of(source, gone, self.snapshot_id) for source in sources]
        key = tuple((part.path, part.heads.status.tobytes()) for part in parts)
        if key not in self._copies:
            self._copies[key] = self._copied(table, parts, data)
        return self._copies[key]

    def _copied(self, table: Table, parts: Sequence[_Part], data: Sequence[bytes]) -> ManifestFile:
        self.copied_entries += sum(int(np.count_nonzero(part.heads.status == EXISTING)) for part in parts)
        excerpts = [
            Excerpt(source=read_container(found), rows=part.rows, heads=part.heads)
            for part, found in zip(parts, data, strict=True)
        ]
        sync = bytes.fromhex(self._env.new_id())
        try:
            written = copy_entries(excerpts, sync=sync)
        except OldLayoutError:
            return self._through_objects(table, parts)
        path = self._path(table, "m")
        with table.io.new_output(path).create() as stream:
            stream.write(written)
        return _manifest_file(path, len(written), parts, self.snapshot_id, table.metadata)

    def _through_objects(self, table: Table, parts: Sequence[_Part]) -> ManifestFile:
        """Return a manifest that PyIceberg wrote, entry by entry: slow, for sources of format version 1."""
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

        metadata = table.metadata
        spec = metadata.specs()[parts[0].source.manifest.partition_spec_id]
        output = table.io.new_output(self._path(table, "m"))
        schema = schema_for(spec, metadata)
        version = metadata.format_version
        with write_manifest(version, spec, schema, output, self.snapshot_id, "deflate") as writer:
            for part in parts:
                entries = part.source.manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                for place, row in enumerate(part.rows.tolist()):
                    heads = part.heads
                    file = entries[row].data_file
                    file.spec_id = spec.spec_id
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus(int(heads.status[place])),
                        snapshot_id=int(heads.snapshot_id[place]),
                        sequence_number=int(heads.sequence_number[place]),
                        file_sequence_number=int(heads.file_sequence_number[place]),
                        data_file=file,
                    )
                    writer.add_entry(entry)
        return writer.to_manifest_file()

    def write_list(
        self, table: Table, manifests: Sequence[ManifestFile], *, parent: int | None, sequence_number: int
    ) -> str:
        """Write a manifest list, and return its path."""
        from pyiceberg.manifest import write_manifest_list

        path = self._path(table, f"snap-{self.snapshot_id}")
        with write_manifest_list(
            table.metadata.format_version,
            table.io.new_output(path),
            self.snapshot_id,
            parent,
            sequence_number,
            "deflate",
        ) as writer:
            # It fills in the sequence number of new manifests, in what it gets: another attempt needs them without.
            writer.add_manifests(
                [deepcopy(item) if item.sequence_number == _UNASSIGNED else item for item in manifests]
            )
        return path

    def write_keys(self, table: Table, rows: pa.Table) -> str:
        """Write a side file of keys, and return its path."""
        path = self._path(table, "keys", "parquet")
        with table.io.new_output(path).create() as stream:
            stream.write(write_side_file(rows))
        return path

    def discard(self, io: FileIO, used: Iterable[str] = ()) -> None:
        """Delete what was written, but what the commit uses, as far as possible; never raises."""
        kept = frozenset(used)
        for path in self.paths:
            if path not in kept:
                try:
                    io.delete(path)
                except Exception as error:  # noqa: BLE001 (each FileIO has its own errors)
                    LOG.warning("%s, which is not needed, could not be deleted, gc will: %s", path, error)

    def _path(self, table: Table, kind: str, ending: str = "avro") -> str:
        uuid = table.metadata.table_uuid.hex
        name = f"tblctl-{uuid}-{self._env.new_id()}-{kind}.{ending}"
        path = table.location_provider().new_metadata_location(name)
        self.paths.append(path)
        return path


@contextmanager
def writing(location: str, io: FileIO, begun: Sequence[str]) -> Iterator[None]:
    """Turn errors of metadata that cannot be written into tblctl's. Each FileIO has its own.

    Args:
        location: of the table.
        io: writes.
        begun: paths of the files, the one that is being written last.

    Raises:
        AccessDeniedError, StorageError: names the table and the file.
    """
    try:
        yield
    except TblctlError:
        raise
    except Exception as error:
        text = scrub(str(error) or type(error).__name__, secrets_in(io.properties))
        kind = AccessDeniedError if is_denied(error) else StorageError
        file = begun[-1] if begun else "metadata of the commit"
        advice = f"; {FULL_ADVICE}" if is_full(error) else ""
        raise kind(f"{location}: {file} cannot be written: {text}{advice}") from error


class ManifestEntries:
    """A manifest of the head, and its entries."""

    def __init__(self, manifest: ManifestFile, entries: FileEntries) -> None:
        self.manifest = manifest
        self.entries = entries


class _Part:
    """What is copied of one manifest."""

    def __init__(self, source: ManifestEntries, rows: np.ndarray, heads: EntryHeads) -> None:
        self.source = source
        self.rows = rows
        self.heads = heads

    @property
    def path(self) -> str:
        return str(self.source.manifest.manifest_path)

    @classmethod
    def of(cls, source: ManifestEntries, removed: frozenset[str], snapshot_id: int) -> _Part:
        entries = source.entries
        rows = np.flatnonzero(entries.status != DELETED)
        gone = is_among(entries.path.take(pa.array(rows)), removed)
        heads = EntryHeads(
            status=np.where(gone, DELETED, EXISTING),
            snapshot_id=np.where(gone, snapshot_id, entries.snapshot_id[rows]),
            sequence_number=entries.sequence_number[rows],
            file_sequence_number=entries.file_sequence_number[rows],
        )
        return cls(source, rows, heads)


def is_among(paths: pa.Array, wanted: Collection[str]) -> np.ndarray:
    """Return which paths are among some."""
    found = pc.is_in(paths, pa.array(list(wanted), paths.type))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _data_file(record: DataFileRecord) -> DataFile:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=record.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*record.partition_values),
        record_count=record.row_count,
        file_size_in_bytes=record.size_bytes,
        column_sizes=dict(record.column_sizes),
        value_counts=dict(record.value_counts),
        null_value_counts=dict(record.null_counts),
        nan_value_counts=dict(record.nan_counts),
        lower_bounds=dict(record.lower_bounds),
        upper_bounds=dict(record.upper_bounds),
        key_metadata=None,
        split_offsets=list(record.split_offsets) or None,
        equality_ids=None,
        sort_order_id=record.sort_order_id,
    )
    file.spec_id = record.spec_id
    return file


def _manifest_file(
    path: str, size: int, parts: Sequence[_Part], snapshot_id: int, metadata: TableMetadata
) -> ManifestFile:
    from pyiceberg.manifest import ManifestFile

    first = parts[0].source.manifest
    counts: Mapping[int, list[int]] = {EXISTING: [0, 0], DELETED: [0, 0]}
    sequences: list[int] = []
    for part in parts:
        status, rows = part.heads.status, part.source.entries.rows[part.rows]
        for kind, figures in counts.items():
            figures[0] += int((status == kind).sum())
            figures[1] += int(rows[status == kind].sum())
        sequences += part.heads.sequence_number[status == EXISTING].tolist()
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=size,
        partition_spec_id=first.partition_spec_id,
        content=first.content,
        sequence_number=_UNASSIGNED,
        min_sequence_number=min(sequences, default=_UNASSIGNED),
        added_snapshot_id=snapshot_id,
        added_files_count=0,
        existing_files_count=counts[EXISTING][0],
        deleted_files_count=counts[DELETED][0],
        added_rows_count=0,
        existing_rows_count=counts[EXISTING][1],
        deleted_rows_count=counts[DELETED][1],
        partitions=joined_bounds([part.source.manifest for part in parts], metadata),
        key_metadata=None,
    )
