"""What manifests say of the columns of data files, for the few files that are merged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from tblctl.tableformat.iceberg.entries import ColumnBounds, Decoded

_KEPT = 8

Decode = Callable[[Sequence["ManifestFile"], Sequence[int]], "Decoded"]
"""Decodes manifests, with what they say of some columns, values and bytes among it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counted:
    """What a manifest says of files: their rows by path, nulls by column and file, and which columns they have."""

    rows: dict[str, int]
    nulls: np.ndarray
    stored: np.ndarray


class NullCounts:
    """Nulls by file. The manifests looked at last are kept: groups of one partition share them. Threads may share it.

    Args:
        plain_ids: the columns whose nulls are wanted.
        inner_ids: columns inside lists and maps: only whether a file has values of them.
        decode: decodes manifests.
    """

    def __init__(self, plain_ids: Sequence[int], inner_ids: Sequence[int], decode: Decode) -> None:
        self._plain = len(plain_ids)
        self._ids = (*plain_ids, *inner_ids)
        self._decode = decode
        self._kept: OrderedDict[str, _Counted] = OrderedDict()
        self._lock = Lock()

    def of(self, manifest: ManifestFile, path: str) -> tuple[tuple[int, int], ...]:
        """Return the nulls of each column in a file that a manifest names, by id; without those not counted."""
        found = self._of(manifest)
        nulls = found.nulls[: self._plain, found.rows[path]].tolist()
        return tuple((id_, count) for id_, count in zip(self._ids, nulls, strict=False) if count >= 0)

    def stored(self, manifest: ManifestFile, path: str) -> tuple[int, ...]:
        """Return the columns, by id, that a file certainly has, although their nulls are not counted.

        The manifest has a bound of them, or counts values or bytes.
        """
        found = self._of(manifest)
        return tuple(self._ids[place] for place in np.flatnonzero(found.stored[:, found.rows[path]]))

    def _of(self, manifest: ManifestFile) -> _Counted:
        with self._lock:
            name = manifest.manifest_path
            if name not in self._kept:
                decoded = self._decode([manifest], self._ids)
                paths: list[str] = decoded.entries.path.to_pylist()
                columns = [decoded.columns[id_] for id_ in self._ids]
                shape = len(self._ids), len(paths)
                stored = np.array([_is_stored(column) for column in columns], bool).reshape(shape)
                nulls = np.array([column.nulls for column in columns], np.int64).reshape(shape)
                stored[: self._plain] &= nulls[: self._plain] < 0
                self._kept[name] = _Counted(
                    rows={path: row for row, path in enumerate(paths)}, nulls=nulls, stored=stored
                )
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(name)
            return self._kept[name]


def _is_stored(column: ColumnBounds) -> np.ndarray:
    """Return which files have a column for certain: where its nulls are counted, one with values that are not null."""
    assert column.values is not None
    assert column.sizes is not None
    bounded = np.asarray(column.lower.is_valid(), bool) | np.asarray(column.upper.is_valid(), bool)
    mentioned = bounded | (column.values > 0) | (column.sizes > 0) | (column.nans > 0)
    found: np.ndarray = np.where(column.nulls < 0, mentioned, column.values > column.nulls)
    return found
