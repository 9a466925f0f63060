"""What the head of the branch says of a replacement's inputs: where they are, and which deletes apply to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.deletes import EQUALITY, deletes_of, partition_keys
from tblctl.tableformat.iceberg.entries import DELETED, FileEntries
from tblctl.tableformat.iceberg.pruning import has_live
from tblctl.tableformat.iceberg.publish.conflicts import AppliedDeletes
from tblctl.tableformat.iceberg.publish.new_manifests import ManifestEntries, is_among
from tblctl.tableformat.once import once

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from tblctl.tableformat.iceberg.version import IcebergVersion


@dataclass(frozen=True, kw_only=True)
class PlannedInputs:
    """The inputs of a replacement, as they were in the planned version.

    Attributes:
        version: the planned one.
        paths: of the inputs, sorted.
    """

    version: IcebergVersion
    paths: tuple[str, ...]

    @once
    def rows(self) -> np.ndarray:
        """Their rows in the version's files."""
        return _rows_of(self.version.files.entries, self.paths)

    @once
    def entries(self) -> FileEntries:
        """Their entries. What a version has twice is here twice."""
        return self.version.files.entries.take(self.rows)

    @once
    def manifests(self) -> frozenset[str]:
        """The paths of the data manifests that have one."""
        data = self.version.data_manifests
        return frozenset(data[place].manifest_path for place in np.unique(self.entries.manifest).tolist())

    @once
    def partitions(self) -> frozenset[str]:
        """The partitions that they are in."""
        found = self.version.partitions
        return frozenset(found.texts[code] for code in np.unique(found.code[self.rows]).tolist())

    def deletes(self, at: IcebergVersion) -> AppliedDeletes:
        """Return the delete files of a version that may apply to the inputs."""
        paths = self.entries.path.to_pylist()
        deletes = at.deletes
        keys = partition_keys(self.version.partitions)
        found = deletes_of(
            paths,
            self.entries.sequence_number.tolist(),
            [keys[row] for row in self.rows.tolist()],
            deletes,
        )
        is_equality = deletes.entries.content == EQUALITY
        names = deletes.entries.path.to_pylist()

        def of_kind(*, equality: bool) -> dict[str, frozenset[str]]:
            return {
                path: frozenset(names[number] for number in numbers if is_equality[number] == equality)
                for path, numbers in zip(paths, found, strict=True)
            }

        return AppliedDeletes(position=of_kind(equality=False), equality=of_kind(equality=True))


@dataclass(frozen=True, kw_only=True)
class HeadState:
    """The data manifests of the head: those that may have inputs are decoded.

    Attributes:
        entries: of these, in their order.
        decoded: each of them, with its entries.
        others: the manifests that have none. They were there when the inputs were planned.
        planned: the planned version.
    """

    entries: FileEntries
    decoded: tuple[ManifestEntries, ...]
    others: tuple[ManifestFile, ...]
    planned: IcebergVersion

    @classmethod
    def of(
        cls,
        head: IcebergVersion,
        inputs: PlannedInputs,
        decode: Callable[[Sequence[ManifestFile]], FileEntries],
    ) -> HeadState:
        """Decode the manifests that had inputs when they were planned, and those that are new since.

        Manifests never change, so the others are known to have none.
        """
        known = {manifest.manifest_path for manifest in inputs.version.manifests} - inputs.manifests
        data = [manifest for manifest in head.manifests if manifest.content == 0 and has_live(manifest)]
        looked_at = [manifest for manifest in data if manifest.manifest_path not in known]
        entries = decode(looked_at)
        starts = np.searchsorted(entries.manifest, np.arange(len(looked_at) + 1))
        decoded = tuple(
            ManifestEntries(manifest, entries.take(np.arange(starts[place], starts[place + 1])))
            for place, manifest in enumerate(looked_at)
        )
        return cls(
            entries=entries,
            decoded=decoded,
            others=tuple(manifest for manifest in data if manifest.manifest_path in known),
            planned=inputs.version,
        )

    def count(self, paths: Sequence[str]) -> Mapping[str, int]:
        """Return how many live entries of decoded manifests name each of some files."""
        rows = _rows_of(self.entries, paths)
        live = rows[self.entries.status[rows] != DELETED]
        return Counter(self.entries.path.take(pa.array(live)).to_pylist())

    def live(self, paths: Sequence[str]) -> frozenset[str]:
        """Return which of some data files are live. What manifests list that did not change was read by the plan.

        If the plan left out partitions, their files are looked for only if some were not found elsewhere.
        """
        live = self._unchanged(self.planned, paths) | self.count(paths).keys()
        missing = sorted(frozenset(paths) - live)
        return (
            live | self._unchanged(self.planned.unpruned, missing)
            if missing and self.planned.is_pruned
            else live
        )

    def _unchanged(self, version: IcebergVersion, paths: Sequence[str]) -> frozenset[str]:
        """Return which of some files a planned version has in manifests that the head has as well."""
        kept = {manifest.manifest_path for manifest in self.others}
        data, entries = version.data_manifests, version.files.entries
        rows = _rows_of(entries, paths)
        is_kept = [data[place].manifest_path in kept for place in entries.manifest[rows].tolist()]
        return frozenset(entries.path.take(pa.array(rows[np.array(is_kept, bool)])).to_pylist())


def _rows_of(entries: FileEntries, paths: Sequence[str]) -> np.ndarray:
    return np.flatnonzero(is_among(entries.path, paths))
