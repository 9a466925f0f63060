"""What a snapshot names, and the rows that it has, straight from the store: no actor's turn, each file parsed once.

A plain reader beside PyIceberg's: deletes apply by path, sequence number and partition, columns by field id.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from simulation.iceberg.catalog import name_of
from simulation.model import OWN_COLUMNS, Row
from simulation.store import Store
from tblctl.tableformat.iceberg.own_keys import SIDE_FILES

_FIELD_ID = b"PARQUET:field_id"


def uid_of(field_id: int) -> str:
    """Return the model's name of a column."""
    return OWN_COLUMNS[field_id - 1] if field_id <= len(OWN_COLUMNS) else f"column {field_id}"


def names_in(schema: Schema) -> dict[str, str]:
    """Return the names of columns by uid."""
    return {uid_of(field.field_id): field.name for field in schema.fields}


class Files:
    """The files of snapshots, as they are in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, list[ManifestEntry]] = {}
        self._lists: dict[str, list[ManifestFile]] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._deleted: dict[str, list[tuple[str, int]]] = {}

    def named(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the names of all objects that readers of a snapshot need."""
        found = {snapshot.manifest_list}
        for manifest in self.manifests(snapshot):
            found.add(manifest.manifest_path)
            found.update(entry.data_file.file_path for entry in self.entries(manifest))
        return frozenset(map(name_of, found))

    def side(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the names of tblctl's files of keys that a snapshot names. A missing one is only slower."""
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        return frozenset(map(name_of, json.loads(summary.get(SIDE_FILES, "[]"))))

    def rows(self, snapshot: Snapshot | None) -> list[Row]:
        """Return the rows of a snapshot, doubled ones twice."""
        entries = [] if snapshot is None else list(self._live(snapshot))
        deletes = [entry for entry in entries if entry.data_file.content != DataFileContent.DATA]
        found: list[Row] = []
        for entry in entries:
            if entry.data_file.content != DataFileContent.DATA:
                continue
            path = entry.data_file.file_path
            gone = {
                position
                for delete in deletes
                if _applies(delete, entry)
                for named, position in self._positions(delete.data_file.file_path)
                if named == path
            }
            equal = {
                row["id"]
                for delete in deletes
                if _equals_apply(delete, entry)
                for row in self._stored(delete.data_file.file_path)
            }
            stored = self._stored(path)
            found += [row for place, row in enumerate(stored) if place not in gone and row["id"] not in equal]
        return found

    def positions(self, entry: ManifestEntry) -> dict[int, int]:
        """Return the positions of a data file's stored rows by id."""
        stored = self._stored(entry.data_file.file_path)
        return {row["id"]: position for position, row in enumerate(stored)}

    def manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        path = snapshot.manifest_list
        if path not in self._lists:
            self._lists[path] = list(read_manifest_list(_Held(self._data(path))))  # type: ignore[arg-type]
        return self._lists[path]

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = manifest.fetch_manifest_entry(self, discard_deleted=True)  # type: ignore[arg-type]
        return self._entries[path]

    def new_input(self, path: str) -> _Held:
        """As PyIceberg's FileIO."""
        return _Held(self._data(path))

    def _live(self, snapshot: Snapshot) -> Iterator[ManifestEntry]:
        for manifest in self.manifests(snapshot):
            yield from self.entries(manifest)

    def _stored(self, path: str) -> list[dict[str, Any]]:
        if path not in self._rows:
            data = pq.ParquetFile(io.BytesIO(self._data(path))).read()
            names = [uid_of(int(field.metadata[_FIELD_ID])) for field in data.schema]
            columns = [column.to_pylist() for column in data.columns]
            self._rows[path] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return self._rows[path]

    def _positions(self, path: str) -> list[tuple[str, int]]:
        if path not in self._deleted:
            data = pq.ParquetFile(io.BytesIO(self._data(path))).read()
            self._deleted[path] = list(
                zip(data["file_path"].to_pylist(), data["pos"].to_pylist(), strict=True)
            )
        return self._deleted[path]

    def _data(self, path: str) -> bytes:
        name = name_of(path)
        if name not in self._store.objects:
            raise FileNotFoundError(name)
        return self._store.objects[name].data


class _Held:
    """Bytes, as much of PyIceberg's `InputFile` as its Avro reader uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, seekable: bool = True) -> io.BytesIO:
        del seekable
        return io.BytesIO(self._data)


def _equals_apply(delete: ManifestEntry, data: ManifestEntry) -> bool:
    """Return whether equality deletes apply: those of a history are of a spec without partitions."""
    if delete.data_file.content != DataFileContent.EQUALITY_DELETES:
        return False
    return (delete.sequence_number or 0) > (data.sequence_number or 0)


def _applies(delete: ManifestEntry, data: ManifestEntry) -> bool:
    """Return whether position deletes may apply."""
    if delete.data_file.content != DataFileContent.POSITION_DELETES:
        return False
    same_spec = delete.data_file.spec_id == data.data_file.spec_id
    if not same_spec or delete.data_file.partition != data.data_file.partition:
        return False
    return (delete.sequence_number or 0) >= (data.sequence_number or 0)
