"""How many nulls manifests count in the columns of data files, for the few files that are merged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from tblctl.tableformat.iceberg.entries import Decoded

_KEPT = 8

Decode = Callable[[Sequence["ManifestFile"], Sequence[int]], "Decoded"]
"""Decodes manifests, with what they say of some columns."""


class NullCounts:
    """Nulls by file. The manifests looked at last are kept: groups of one partition share them. Threads may share it.

    Args:
        column_ids: the columns.
        decode: decodes manifests.
    """

    def __init__(self, column_ids: Sequence[int], decode: Decode) -> None:
        self._ids = tuple(column_ids)
        self._decode = decode
        self._kept: OrderedDict[str, tuple[dict[str, int], np.ndarray]] = OrderedDict()
        self._lock = Lock()

    def of(self, manifest: ManifestFile, path: str) -> tuple[tuple[int, int], ...]:
        """Return the nulls of each column in a file that a manifest names, by id; without those not counted."""
        with self._lock:
            rows, counts = self._found(manifest)
        found = counts[:, rows[path]].tolist()
        return tuple((id_, count) for id_, count in zip(self._ids, found, strict=True) if count >= 0)

    def _found(self, manifest: ManifestFile) -> tuple[dict[str, int], np.ndarray]:
        name = manifest.manifest_path
        if name not in self._kept:
            decoded = self._decode([manifest], self._ids)
            paths: list[str] = decoded.entries.path.to_pylist()
            counts = [decoded.columns[id_].nulls for id_ in self._ids]
            rows = {path: row for row, path in enumerate(paths)}
            self._kept[name] = rows, np.array(counts, np.int64).reshape(len(self._ids), len(paths))
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        return self._kept[name]
