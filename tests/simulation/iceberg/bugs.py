"""Seeded bugs of Iceberg tables; see `simulation.bugs`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from simulation.bugs import Bug, _replaced
from simulation.iceberg.faults import ASLEEP
from tblctl.merger.round.group_run import GroupRun
from tblctl.tableformat.errors import CommitOutcomeUnknownError
from tblctl.tableformat.iceberg.avro.types import type_name
from tblctl.tableformat.iceberg.publish import commit, conflicts, draft, manifest_copy, new_manifests
from tblctl.tableformat.iceberg.publish.conflicts import AppliedDeletes
from tblctl.tableformat.iceberg.publish.delete_rows import DeleteRows
from tblctl.tableformat.iceberg.upkeep import collect, expiry

IcebergBug = partial(Bug, format="iceberg", roles=("reclusterer",), faults=())


def _sequence_numbers_only() -> list[Any]:
    """Whether an input still lives is not asked, only whether there are deletes newer than the plan."""
    real = draft.conflicting_inputs

    def conflicting(inputs: Any, _entries: Any, planned: Any, now: Any, names: Any) -> tuple[str, ...]:
        return real(inputs, dict.fromkeys(inputs, 1), planned, now, names)

    return [_replaced(draft, "conflicting_inputs", conflicting)]


def _newer_deletes_ignored() -> list[Any]:
    real = conflicts.conflicting_inputs

    def conflicting(
        inputs: Any, entries: Any, planned: AppliedDeletes, now: AppliedDeletes, names: Any
    ) -> tuple[str, ...]:
        return real(inputs, entries, planned, now, lambda _delete, _path: False)

    return [_replaced(draft, "conflicting_inputs", conflicting)]


def _dropped_by_bounds() -> list[Any]:
    """The paths in a delete file are taken to be the lower bound of its entry."""
    real = DeleteRows.paths

    def paths(self: Any, deletes: Any, path: str) -> frozenset[str]:
        row = deletes.entries.path.to_pylist().index(path)
        least = deletes.least_path[row].as_py()
        return real(self, deletes, path) if least is None else frozenset([least])

    return [_replaced(DeleteRows, "paths", paths)]


_NULL = -7


def _null_sequence_numbers() -> list[Any]:
    """Carried entries are written as added ones, so that they inherit the new snapshot's sequence number."""
    real = manifest_copy._number_encoder
    copied = new_manifests.NewManifests._copied

    def number_encoder(schema: Any) -> Callable[[int], bytes]:
        encode = real(schema)
        kind, full = type_name(schema, {})
        if kind != "union":
            return encode
        null = manifest_copy.write_long([type_name(branch, {})[0] for branch in full].index("null"))
        return lambda value: null if value == _NULL else encode(value)

    def with_nulls(self: Any, table: Any, parts: Any, data: Any) -> Any:
        for part in parts:
            heads = part.heads
            carried = heads.status == manifest_copy.EXISTING
            part.heads = dataclasses.replace(
                heads,
                status=np.where(carried, manifest_copy.ADDED, heads.status),
                sequence_number=np.where(carried, _NULL, heads.sequence_number),
                file_sequence_number=np.where(carried, _NULL, heads.file_sequence_number),
            )
        found = copied(self, table, parts, data)
        found.min_sequence_number = found.sequence_number
        return found

    return [
        _replaced(manifest_copy, "_number_encoder", number_encoder),
        _replaced(new_manifests.NewManifests, "_copied", with_nulls),
    ]


def _unknown_is_failed() -> list[Any]:
    """Files of an unknown outcome are deleted."""
    everything = property(lambda run: [record.path for record in run.records])
    real = commit.commit_snapshot

    def replaced(branch: Any, drafts: Any, properties: Any) -> Any:
        try:
            return real(branch, drafts, properties)
        except CommitOutcomeUnknownError:
            drafts.discard()
            raise

    return [_replaced(GroupRun, "deletable", everything), _replaced(commit, "commit_snapshot", replaced)]


def _heads_sequence_number() -> list[Any]:
    """New files get the head's sequence number, so that equality deletes since the plan do not apply to them."""
    real = draft.Drafts.draft

    def drafted(self: Any, table: Any, head: Any) -> Any:
        added = self._new.added

        def newer(to: Any, records: Any, _sequence_number: int) -> Any:
            return added(to, records, head.snapshot.sequence_number)

        self._new.added = newer
        try:
            return real(self, table, head)
        finally:
            self._new.added = added

    return [_replaced(draft.Drafts, "draft", drafted)]


def _merged_again() -> list[Any]:
    """An unknown outcome counts as a failure: the next attempt does not look for its snapshot."""
    return [_replaced(commit, "_settled", lambda *_: None), _replaced(commit._Fate, "is_open", False)]


def _no_grace() -> list[Any]:
    real = collect._own_objects

    def own(*args: Any) -> Any:
        return {place: dataclasses.replace(item, modified=0.0) for place, item in real(*args).items()}

    return [_replaced(collect, "_own_objects", own)]


def _hidden_history_believed() -> list[Any]:
    return [_replaced(collect, "hides_history", lambda _metadata: False)]


def _tags_expire() -> list[Any]:
    real = expiry.expired_snapshots

    def expired(metadata: Any, retention: Any, now_ms: int) -> list[int]:
        branches = {name: ref for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"}
        return real(metadata.model_copy(update={"refs": branches}), retention, now_ms)

    return [_replaced(collect, "expired_snapshots", expired)]


def _deletes_left_behind() -> list[Any]:
    """Every delete file that was applied leaves with the inputs, whatever else it has rows of."""
    return [_replaced(draft, "without_use", lambda rows, _is_live: sorted(rows))]


def _other_manifests_forgotten() -> list[Any]:
    """Manifests that are new since the plan are not carried over."""
    real = draft.HeadState.of.__func__

    def of(cls: Any, head: Any, inputs: Any, decode: Any) -> Any:
        state = real(cls, head, inputs, decode)
        planned = {manifest.manifest_path for manifest in inputs.version.manifests}
        kept = tuple(item for item in state.decoded if item.manifest.manifest_path in planned)
        return dataclasses.replace(state, decoded=kept)

    return [_replaced(draft.HeadState, "of", classmethod(of))]


def _refusal_believed() -> list[Any]:
    nothing = property(lambda _self: None, lambda _self, _value: None)
    return [_replaced(commit._Fate, "refused", nothing)]


def _tags_unseen() -> list[Any]:
    return [_replaced(collect, "_require_same_refs", lambda *_: None)]


def _stale_merge() -> list[Any]:
    """Files of a merge are committed however long ago they were written."""
    return [_replaced(draft.Drafts, "require_fresh", lambda _self: None)]


def _tidying_fails() -> list[Any]:
    """After a commit its manifests are looked up, and an error of that counts as the commit's."""
    real = draft.Drafts.discard_unused

    def discard_unused(self: Any, done: Any) -> None:
        assert done.manifests is not None
        real(self, done)

    return [_replaced(draft.Drafts, "discard_unused", discard_unused)]


_NO_ANSWER = ("lost reply", "timeout", "server error", "sent again")
ICEBERG_BUGS: Mapping[str, Bug] = {
    "sequence numbers only": IcebergBug(
        what="Iceberg: a conflict is judged by the sequence numbers of deletes alone",
        patches=_sequence_numbers_only,
        roles=("reclusterer", "copy-on-write deleter", "overwriter"),
        first=2002,
    ),
    "newer deletes ignored": IcebergBug(
        what="Iceberg: a position delete between plan and commit is ignored",
        patches=_newer_deletes_ignored,
        roles=("reclusterer", "plan executor", "merge-on-read deleter"),
        first=3001,
    ),
    "dropped by bounds": IcebergBug(
        what="Iceberg: a delete file is dropped by the bounds of its paths",
        patches=_dropped_by_bounds,
        roles=("batch job", "batch job"),
        first=2002,
    ),
    "null sequence numbers": IcebergBug(
        what="Iceberg: entries that are carried over have no sequence numbers",
        patches=_null_sequence_numbers,
        roles=("reclusterer", "merge-on-read deleter", "appender"),
        first=2002,
    ),
    "unknown is failed": IcebergBug(
        what="Iceberg: files of a commit whose outcome is unknown are deleted",
        patches=_unknown_is_failed,
        roles=("reclusterer", "reclusterer again"),
        faults=("commit cut off",),
        gap=2,
        traits=("strict",),
        first=1001,
    ),
    "head's sequence number": IcebergBug(
        what="Iceberg: new files get the head's sequence number, not the planned one",
        patches=_heads_sequence_number,
        roles=("slow reclusterer", "late streaming deleter"),
        first=1001,
    ),
    "merged again": IcebergBug(
        what="Iceberg: an unknown outcome counts as a failure",
        patches=_merged_again,
        roles=("reclusterer", "reclusterer again"),
        faults=_NO_ANSWER,
        first=3002,
    ),
    "refusal believed": IcebergBug(
        what="Iceberg: a refusal is not looked up, though the commit was sent twice",
        patches=_refusal_believed,
        roles=("reclusterer", "reclusterer again"),
        faults=("sent again",),
        first=1001,
    ),
    "tags unseen": IcebergBug(
        what="Iceberg: gc does not look for tags that were set while it read files",
        patches=_tags_unseen,
        roles=("slow gc", "late tagger"),
        first=1001,
    ),
    "no grace": IcebergBug(
        what="Iceberg: gc deletes what is young",
        patches=_no_grace,
        roles=("reclusterer", "gc", "gc"),
        first=2002,
    ),
    "hidden history": IcebergBug(
        what="Iceberg: gc believes a catalog that hides history",
        patches=_hidden_history_believed,
        roles=("reclusterer", "gc", "gc"),
        traits=("hides",),
        first=2002,
    ),
    "tags expire": IcebergBug(
        what="Iceberg: tagged snapshots expire",
        patches=_tags_expire,
        roles=("gc", "gc", "tagger", "tagger"),
        first=2003,
    ),
    "deletes left behind": IcebergBug(
        what="Iceberg: a delete file leaves with the first file that it was applied to",
        patches=_deletes_left_behind,
        roles=("batch job", "batch job"),
        first=1001,
    ),
    "stale merge": IcebergBug(
        what="Iceberg: a merge is committed however long it took, though gc may have deleted its files",
        patches=_stale_merge,
        roles=("reclusterer", "batch job", "gc", "gc", "gc"),
        faults=(ASLEEP,),
        gap=3,
        first=1001,
    ),
    "tidying fails": IcebergBug(
        what="Iceberg: an error of a request after the commit, which only tidies up, counts as the commit's",
        patches=_tidying_fails,
        roles=("reclusterer", "reclusterer again"),
        faults=("down after",),
        gap=2,
        first=1001,
    ),
    "new manifests forgotten": IcebergBug(
        what="Iceberg: what was appended since the plan is not carried over",
        patches=_other_manifests_forgotten,
        roles=("reclusterer", "appender", "appender"),
        first=2002,
    ),
}
