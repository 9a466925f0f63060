"""Write the metadata of a REPLACE snapshot, for each attempt on top of the head that it finds."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError, TblctlError
from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import DeleteFiles
from tblctl.tableformat.iceberg.entries import DELETED
from tblctl.tableformat.iceberg.options import number
from tblctl.tableformat.iceberg.own_files import key_rows
from tblctl.tableformat.iceberg.own_keys import MOST_SIDE_FILES, SIDE_FILES, SORT, side_files_named
from tblctl.tableformat.iceberg.pruning import has_live
from tblctl.tableformat.iceberg.publish.conflicts import (
    AppliedDeletes,
    conflicting_inputs,
    manifests_to_merge,
    without_use,
)
from tblctl.tableformat.iceberg.publish.delete_rows import DeleteRows
from tblctl.tableformat.iceberg.publish.freshness import merge_seconds, require_fresh
from tblctl.tableformat.iceberg.publish.head_state import HeadState, PlannedInputs
from tblctl.tableformat.iceberg.publish.lineage import Lineage
from tblctl.tableformat.iceberg.publish.new_manifests import ManifestEntries, NewManifests, is_among, writing
from tblctl.tableformat.iceberg.publish.snapshots import new_snapshot_id, snapshot_on
from tblctl.tableformat.iceberg.publish.summary import COPIED, Removed, summary_of
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.once import once
from tblctl.tableformat.port import BlocksReplacedError, Replacement

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from tblctl.tableformat.iceberg.version import IcebergVersion

LOG = logging.getLogger("tblctl")

_MERGE = "commit.manifest-merge.enabled"
_MERGE_COUNT = "commit.manifest.min-count-to-merge"
_MERGE_BYTES = "commit.manifest.target-size-bytes"
_DEFAULT_MERGE_COUNT = 100
_DEFAULT_MERGE_BYTES = 8 << 20


class Drafts:
    """The snapshots that the attempts of one commit propose. All have one id.

    Args:
        base: the version that the replacement was planned on.
        replacement: what leaves and what comes.
        env: clocks and names.
        storages: finds the storage of a file; their credentials are renewed.
    """

    def __init__(
        self, base: IcebergVersion, replacement: Replacement, env: Environment, storages: DataStorage
    ) -> None:
        self.base = base
        self.snapshot_id = new_snapshot_id(env)
        self._replacement = replacement
        self._records = cast("tuple[DataFileRecord, ...]", replacement.added)
        self._env = env
        self._begun_seconds = env.now()
        self._storages = storages
        self._delete_rows = DeleteRows(storages)
        self._inputs = PlannedInputs(version=base, paths=tuple(sorted(replacement.removed)))
        self._new = NewManifests(env, self.snapshot_id)
        self._io: Any = None
        self._keys: dict[tuple[str, ...], str] = {}  # side files by those before them

    @once
    def _planned(self) -> AppliedDeletes:
        return self._inputs.deletes(self.base)

    def draft(self, table: Table, head: IcebergVersion) -> Snapshot:
        """Write the metadata of a snapshot on top of the head, and return it.

        Raises:
            BlocksReplacedError: inputs left the table, or lost rows.
            ConflictError: the branch was rolled back to before the plan.
            TblctlError: metadata cannot be read or written.
        """
        self._io = table.io
        self._storages.take({name: str(value) for name, value in table.io.properties.items()})
        self._require_descent(head)
        state = HeadState.of(head, self._inputs, head.entries_in)
        self._require_inputs(head, state)
        leaving = self._leaving_deletes(head, state)
        sequence = self.base.snapshot.sequence_number if self.base.snapshot else 0
        with writing(self.base.location, table.io, self._new.paths):
            manifests = [
                *self._new.added(table, self._records, sequence or 0),
                *self._data_manifests(table, head, state),
                *self._delete_manifests(table, head, leaving),
            ]
            side = self._side_files(table, head, state)
            return self._snapshot(table, head, manifests, side, self._removed(head, leaving))

    @property
    def entries_copied(self) -> int:
        """How many entries of manifests were written again, in all attempts so far."""
        return self._new.copied_entries

    @property
    def merge_seconds(self) -> float:
        """How long the merge took, as far as its files say."""
        return merge_seconds(self._records, self._begun_seconds)

    def require_fresh(self) -> None:
        """Refuse new files that gc may have deleted.

        Raises:
            ConflictError: the merge, or the commit, took too long, or its oldest file is gone.
        """
        require_fresh(self.base.location, self._records, self._begun_seconds, self._storages, self._env)

    def is_committed(self, head: IcebergVersion) -> bool:
        """Return whether an output is live at the head. If there is no output, whether the inputs left."""
        outputs = [record.path for record in self._records]
        if not outputs:
            return not self.inputs_are_live(head)
        return bool(HeadState.of(head, self._inputs, head.entries_in).count(outputs))

    def inputs_are_live(self, head: IcebergVersion) -> bool:
        """Return whether all inputs are live at the head."""
        state = HeadState.of(head, self._inputs, head.entries_in)
        return len(state.count(self._inputs.paths)) == len(self._inputs.paths)

    def discard(self) -> None:
        """Delete all metadata files that were written. Only for a commit that certainly did not happen."""
        if self._io is not None:
            self._new.discard(self._io)

    def discard_unused(self, done: IcebergVersion) -> None:
        """Delete the metadata files of earlier attempts that the commit does not use, as far as possible.

        Never raises one of tblctl's errors: what is committed has not failed.
        """
        if self._io is None or done.id != str(self.snapshot_id) or done.snapshot is None:
            return
        try:
            manifests = [manifest.manifest_path for manifest in done.manifests]
        except TblctlError as error:
            LOG.warning("metadata files that may not be needed stay, gc will delete them: %s", error)
            return
        self._new.discard(
            self._io, [done.snapshot.manifest_list, *manifests, *side_files_named(done.snapshot)]
        )

    def _require_descent(self, head: IcebergVersion) -> None:
        lineage = Lineage.of(head.metadata, head.snapshot)
        planned = self.base.snapshot
        if planned is not None and lineage.is_whole and planned.snapshot_id not in lineage.ids:
            msg = (
                f"{self.base.location}: the branch was rolled back, or set to another snapshot, since snapshot "
                f"{planned.snapshot_id} was planned: plan again"
            )
            raise ConflictError(msg)

    def _require_inputs(self, head: IcebergVersion, state: HeadState) -> None:
        inputs = self._inputs
        lost = conflicting_inputs(
            inputs.paths,
            state.count(inputs.paths),
            self._planned,
            inputs.deletes(head),
            partial(self._names, head.deletes),
        )
        if lost:
            msg = f"{self.base.location}: {len(lost)} files were replaced, or lost rows, since they were planned"
            raise BlocksReplacedError(msg, paths=lost)

    def _names(self, deletes: DeleteFiles, delete: str, path: str) -> bool:
        return path in self._delete_rows.paths(deletes, delete)

    def _leaving_deletes(self, head: IcebergVersion, state: HeadState) -> frozenset[str]:
        """Return the delete files that applied to inputs, and of which no data file is live after the commit."""
        applied = sorted(frozenset[str]().union(*self._planned.position.values()))
        if not applied:
            return frozenset()
        removed = self._replacement.removed
        rows = {path: self._delete_rows.paths(head.deletes, path) for path in applied}
        others = sorted(frozenset[str]().union(*rows.values()) - removed)
        live = state.live(others)
        return frozenset(without_use(rows, live.__contains__))

    def _data_manifests(self, table: Table, head: IcebergVersion, state: HeadState) -> list[ManifestFile]:
        """Return the data manifests of the head without the inputs; small ones are merged if there are many."""
        decoded = {item.manifest.manifest_path: item for item in state.decoded}
        everything = [*(item.manifest for item in state.decoded), *state.others]
        return self._manifests(table, head, everything, decoded, self._replacement.removed)

    def _delete_manifests(
        self, table: Table, head: IcebergVersion, leaving: frozenset[str]
    ) -> list[ManifestFile]:
        """Return the same of delete files. Where none leaves, manifests need not be read."""
        everything = [manifest for manifest in head.manifests if manifest.content != 0 and has_live(manifest)]
        decoded = {
            manifest.manifest_path: ManifestEntries(manifest, head.entries_in([manifest]))
            for manifest in (everything if leaving else ())
        }
        return self._manifests(table, head, everything, decoded, leaving)

    def _manifests(
        self,
        table: Table,
        head: IcebergVersion,
        everything: Sequence[ManifestFile],
        decoded: Mapping[str, ManifestEntries],
        removed: Collection[str],
    ) -> list[ManifestFile]:
        """Return manifests of one content without some files; those that may have one are decoded."""
        found: list[ManifestFile] = []
        taken: set[int] = set()
        for places in self._to_merge(table, head, everything):
            taken.update(places)
            sources = [self._decoded(head, everything[place], decoded) for place in places]
            self._require_once(
                [item for item in sources if item.manifest.manifest_path not in decoded], removed
            )
            found.append(self._copied(table, head, sources, removed))
        for place, manifest in enumerate(everything):
            if place in taken:
                continue
            item = decoded.get(manifest.manifest_path)
            changed = item is not None and _has_live(item, removed)
            found.append(self._copied(table, head, [item], removed) if item and changed else manifest)
        return found

    def _to_merge(
        self, table: Table, head: IcebergVersion, manifests: Sequence[ManifestFile]
    ) -> list[list[int]]:
        properties = table.metadata.properties
        target = number(properties, _MERGE_BYTES) or _DEFAULT_MERGE_BYTES
        least = number(properties, _MERGE_COUNT) or _DEFAULT_MERGE_COUNT
        if properties.get(_MERGE, "true").lower() == "false":
            return []
        small = [manifest for manifest in manifests if manifest.manifest_length < target]
        counts = Counter(manifest.partition_spec_id for manifest in small)
        small = [manifest for manifest in small if counts[manifest.partition_spec_id] >= least]
        texts = {
            manifest.manifest_path: read_container(data).schema_text
            for manifest, data in zip(
                small, head.contents_of([one.manifest_path for one in small]), strict=True
            )
        }
        return manifests_to_merge(
            [manifest.manifest_length for manifest in manifests],
            [(manifest.partition_spec_id, texts.get(manifest.manifest_path)) for manifest in manifests],
            target_bytes=target,
            least_count=least,
        )

    def _require_once(self, sources: Iterable[ManifestEntries], removed: Collection[str]) -> None:
        """Refuse files that leave if manifests that the plan did not read list them, too, in other partitions."""
        twice = [path for item in sources for path in _live_of(item, removed)]
        if twice:
            msg = f"{self.base.location}: {twice[0]} is listed several times: it cannot be replaced"
            raise BlocksReplacedError(msg, paths=tuple(twice))

    def _decoded(
        self, head: IcebergVersion, manifest: ManifestFile, decoded: Mapping[str, ManifestEntries]
    ) -> ManifestEntries:
        found = decoded.get(manifest.manifest_path)
        return found or ManifestEntries(manifest, head.entries_in([manifest]))

    def _copied(
        self,
        table: Table,
        head: IcebergVersion,
        sources: Sequence[ManifestEntries],
        removed: Collection[str],
    ) -> ManifestFile:
        data = head.contents_of([source.manifest.manifest_path for source in sources])
        return self._new.copy(table, sources, data, removed)

    def _side_files(self, table: Table, head: IcebergVersion, state: HeadState) -> dict[str, str]:
        """Write the keys of the new files, and return the summary's entries that name them and the earlier ones."""
        sort = self.base.sort
        mine = [record for record in self._records if sort is not None and record.cluster_key_id == sort.id]
        if sort is None or not mine:
            return {}
        earlier = head.side_files(sort)
        if earlier not in self._keys:
            rows = [key_rows(mine)]
            if len(earlier) >= MOST_SIDE_FILES:
                rows += [self._still_live(state, found) for found in head.side_rows(earlier)]
            joined = pa.concat_tables(rows, promote_options="permissive")
            self._keys[earlier] = self._new.write_keys(table, joined)
        kept = () if len(earlier) >= MOST_SIDE_FILES else earlier
        return {SIDE_FILES: json.dumps([self._keys[earlier], *kept]), SORT: f"{sort.id:012x}"}

    def _still_live(self, state: HeadState, rows: pa.Table) -> pa.Table:
        live = state.live(rows["path"].to_pylist()) - self._replacement.removed
        return rows.filter(pc.is_in(rows["path"], pa.array(sorted(live), pa.string())))

    def _removed(self, head: IcebergVersion, leaving: frozenset[str]) -> Removed:
        entries = self._inputs.entries
        deletes = head.deletes.entries
        gone = is_among(deletes.path, leaving)
        return Removed(
            files=len(entries),
            records=int(entries.rows.sum()),
            size_bytes=int(entries.size_bytes.sum()),
            partitions=self._inputs.partitions,
            delete_files=int(gone.sum()),
            deletes=int(deletes.rows[gone].sum()),
            delete_bytes=int(deletes.size_bytes[gone].sum()),
        )

    def _snapshot(
        self,
        table: Table,
        head: IcebergVersion,
        manifests: Sequence[ManifestFile],
        side: Mapping[str, str],
        removed: Removed,
    ) -> Snapshot:
        from pyiceberg.table.snapshots import Operation

        parent = head.snapshot
        before = {} if parent is None or parent.summary is None else parent.summary.additional_properties
        summary = {
            **summary_of(removed, self._records, before, self._replacement.detail),
            COPIED: str(self.entries_copied),
            **side,
        }
        return snapshot_on(
            head,
            table,
            manifests,
            self._new,
            operation=Operation.REPLACE,
            summary=summary,
            now_ms=self._env.now_ms(),
        )


def _live_of(item: ManifestEntries, paths: Collection[str]) -> list[str]:
    """Return the live entries of a manifest that name one of some files."""
    entries = item.entries
    chosen = is_among(entries.path, paths) & (entries.status != DELETED)
    return [str(path) for path in entries.path.filter(pa.array(chosen)).to_pylist()]


def _has_live(item: ManifestEntries, paths: Collection[str]) -> bool:
    """Return whether a manifest has one of some files. Entries of files that left before do no harm."""
    return bool(is_among(item.entries.path, paths).any())
