"""Every object that some snapshot in a table's metadata names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, ahead
from tblctl.tableformat.iceberg.data_storage import split_uri
from tblctl.tableformat.iceberg.entries import DELETED
from tblctl.tableformat.iceberg.own_keys import side_files_named
from tblctl.tableformat.iceberg.version import IcebergVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.snapshots import Snapshot

Place = tuple[str, str]
"""The root of an object's storage, and its name there: one object may be named by several URIs (s3, s3a)."""

_MANIFESTS_AT_ONCE = 100


class Reachable:
    """The objects that some snapshots name. Each manifest list and each manifest is read once.

    Args:
        version: of the table; opens the others.
    """

    def __init__(self, version: IcebergVersion) -> None:
        self._version = version
        self._manifests: dict[str, ManifestFile] = {}
        self.objects: dict[Place, str] = {}
        """Manifest lists, manifests, files of data, deletes, keys and statistics: a path of each, by its place."""
        self.sizes: dict[Place, int] = {}
        """Bytes of each, as metadata has them: not of files of keys."""

    def add(self, snapshots: Sequence[Snapshot]) -> None:
        """Add what snapshots name.

        Raises:
            CorruptTableError, StorageError: metadata cannot be read.
        """
        for snapshot in snapshots:
            self._name(side_files_named(snapshot))
        by_list = {snapshot.manifest_list: snapshot for snapshot in snapshots}
        fresh = self._fresh(list(by_list.values()))
        ids = {snapshot.snapshot_id for snapshot in snapshots}
        metadata = self._version.metadata
        for found in (*metadata.statistics, *metadata.partition_statistics):
            if found.snapshot_id in ids:
                self._name([found.statistics_path], [found.file_size_in_bytes])
        lengths = [manifest.manifest_length for manifest in fresh]
        self._name([manifest.manifest_path for manifest in fresh], lengths)
        for start in range(0, len(fresh), _MANIFESTS_AT_ONCE):
            self._name(*self._files(fresh[start : start + _MANIFESTS_AT_ONCE]))

    def _fresh(self, snapshots: Sequence[Snapshot]) -> list[ManifestFile]:
        """Return the manifests of snapshots that no earlier one has."""
        found: dict[str, ManifestFile] = {}
        with closing(ahead(self._listed, snapshots, threads=IO_THREADS)) as lists:
            for snapshot, (size, listed) in zip(snapshots, lists, strict=True):
                self._name([snapshot.manifest_list], [size])
                found |= {
                    manifest.manifest_path: manifest
                    for manifest in listed
                    if manifest.manifest_path not in self._manifests
                }
        self._manifests |= found
        return list(found.values())

    def _listed(self, snapshot: Snapshot) -> tuple[int, Sequence[ManifestFile]]:
        """Return the size of a manifest list, and what it lists."""
        found = self._version.at(snapshot)
        return len(found.contents_of([snapshot.manifest_list])[0]), found.manifests

    def _name(self, paths: Collection[str], sizes: Collection[int] = ()) -> None:
        places = [split_uri(path) for path in paths]
        self.objects.update(zip(places, paths, strict=True))
        self.sizes.update(zip(places, sizes, strict=bool(sizes)))

    def _files(self, manifests: Sequence[ManifestFile]) -> tuple[list[str], list[int]]:
        """Return paths and sizes of live files."""
        entries = self._version.entries_in(manifests)
        live = np.flatnonzero(entries.status != DELETED)
        return entries.path.take(pa.array(live)).to_pylist(), entries.size_bytes[live].tolist()
