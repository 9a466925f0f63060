"""What the operations of a table return: frozen values, each with its JSON form in `to_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tblctl.metrics.html import fields_html, table_html
from tblctl.metrics.partitions import TABLE as TABLE  # noqa: PLC0414 (for the command)
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.snapshot import iso_timestamp
from tblctl.tableformat.model.values import value_for_people
from tblctl.tableformat.port import VersionEntry

if TYPE_CHECKING:
    from tblctl.merger.round.group_run import GroupOutcome
    from tblctl.selector.plan import Advice, Plan, Rejection
    from tblctl.selector.pricing.price import Price


@dataclass(frozen=True, kw_only=True)
class WriteOutcome:
    """What a change of a table did.

    Attributes:
        operation: append, delete, update, overwrite, alter, tag, untag, rollback.
        snapshot: the sequence that was committed; None if there was nothing to commit (`note` says why).
        rows_added, rows_removed: an updated row counts in both; rows that were copied unchanged count in none.
        blocks_added, blocks_removed, bytes_added: what was written and replaced.
        seconds: time of the whole call.
        attempts: how often the commit was tried. Each try but the last lost a race against another writer.
        note: a sentence for people, or None.
        recluster: outcome of the recluster round after the change; None if none was asked for, or if it failed, or if
            it goes on in the background, or a pending plan was left for it (`note` says so).
    """

    operation: str
    snapshot: int | None
    rows_added: int
    rows_removed: int
    blocks_added: int
    blocks_removed: int
    bytes_added: int
    seconds: float
    attempts: int
    note: str | None = None
    recluster: Outcome | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {**_plain(self), "recluster": self.recluster and self.recluster.to_dict()}


@dataclass(frozen=True, kw_only=True)
class ImportOutcome:
    """What an import did.

    Attributes:
        location: of the table.
        is_new: whether the table was created.
        snapshot: the sequence of the last commit, the snapshot's id of an Iceberg table; None if nothing was to commit.
        files_taken: files whose rows were added.
        files_known: files that were taken before, and are as they were.
        files_changed: paths of files that were taken before and written again since. Their new rows were not taken.
        rows_added, blocks_added, bytes_added: what was written.
        bytes_read: the size of the files taken.
        commits: commits with rows.
        seconds: time of the whole call.
        note: a sentence for people, or None.
        recluster: as in `WriteOutcome`, of the last commit.
    """

    location: str
    is_new: bool
    snapshot: int | str | None
    files_taken: int
    files_known: int
    files_changed: tuple[str, ...]
    rows_added: int
    blocks_added: int
    bytes_added: int
    bytes_read: int
    commits: int
    seconds: float
    note: str | None = None
    recluster: Outcome | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {**_plain(self), "recluster": self.recluster and self.recluster.to_dict()}


@dataclass(frozen=True, kw_only=True)
class ExportOutcome:
    """What an export wrote: `files` of `rows` rows and `bytes` bytes below `location`, of the version `snapshot`."""

    location: str
    snapshot: int
    files: int
    rows: int
    bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a recluster did.

    Attributes:
        rounds: plans that were carried out. Without `final` it is more than one only if groups failed and the rounds
            before the last committed nothing.
        commits: at most one a round, unless `commit_every` asked for more.
        committed_groups: groups that were merged and committed.
        conflicted_groups: groups that were dropped because a block had left the table, or the key was altered.
        failed_groups: groups that could not be merged; `groups` says why.
        left_groups: groups that did not begin, since the seconds or the money of the budget did not suffice.
        blocks_in, blocks_out, rows, bytes_read, bytes_written: totals of the committed groups.
        bytes_copied: of row groups that were copied undecoded; the two before count them too.
        predicted: what the committed groups were expected to take; None if that is not known.
        predicted_depth_after: the average depth that the plan of the last round was expected to bring.
        depth_before, overlaps_before: the averages at the start, as in `ClusteringInfo`; None if no block was
            in the order of the key.
        depth_after, overlaps_after: the averages at the end, without what others changed during the last round.
        figures_of: what these averages are of: the `table`; or, with `where`, the `partitions that may match`.
        seconds: time of the whole call.
        snapshot: the last sequence that was committed; None if none was.
        policy: the policy that chose the groups.
        engine: what merged the groups of the last round: local or spark; None if there was nothing to merge.
        note: why nothing was done, or what was left undone; empty otherwise.
        entries_copied: of manifests, which had to be written again since they share one with a replaced file (Iceberg);
            all attempts of all commits. 0 for other formats.
        groups: every group of every round, in order.
        rejected: if the recluster ended because nothing (more) was to do: what was left out, and why.
        advice: in that case, if blocks overlap: other selections that would reduce the overlap.
    """

    rounds: int
    commits: int
    committed_groups: int
    conflicted_groups: int
    failed_groups: int
    blocks_in: int
    blocks_out: int
    rows: int
    bytes_read: int
    bytes_written: int
    depth_before: float | None
    depth_after: float | None
    overlaps_before: float | None
    overlaps_after: float | None
    seconds: float
    snapshot: int | str | None
    policy: str
    engine: str | None
    note: str
    groups: tuple[GroupOutcome, ...]
    rejected: tuple[Rejection, ...] = ()
    advice: tuple[Advice, ...] = ()
    entries_copied: int = 0
    figures_of: str = TABLE
    left_groups: int = 0
    bytes_copied: int = 0
    predicted: Price | None = None
    predicted_depth_after: float | None = None

    def _repr_html_(self) -> str:
        """Return the outcome for a notebook; groups that were not committed are listed."""
        fields = {
            "snapshot": "nothing was committed" if self.snapshot is None else str(self.snapshot),
            "groups committed": self.committed_groups,
            "rows": self.rows,
            "depth before": self.depth_before,
            "depth after": self.depth_after,
            "bytes written": self.bytes_written,
            "seconds": self.seconds,
            **({"note": self.note} if self.note else {}),
        }
        left = [
            (group.round, group.number, group.status, group.error or group.why)
            for group in self.groups
            if group.status != "committed"
        ]
        names = ("round", "group", "status", "why")
        return fields_html("Recluster", fields) + (table_html(names, left) if left else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        parts = ("groups", "rejected", "advice")
        return {
            **_plain(self),
            **{name: [asdict(item) for item in getattr(self, name)] for name in parts},
            "predicted": self.predicted and asdict(self.predicted),
        }


@dataclass(frozen=True, kw_only=True)
class ScheduledPlan:
    """A plan, and where it is kept.

    Attributes:
        id: names it in `recluster_pending` and `cancel_plan`; None if it has no groups, and was not kept.
        expires: from then on nobody executes it: ISO 8601 in UTC, by the storage's clock; None if it was not kept.
        plan: what is to be done.
    """

    id: str | None
    expires: str | None
    plan: Plan

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {"id": self.id, "expires": self.expires, "plan": self.plan.to_json()}


@dataclass(frozen=True, kw_only=True)
class PendingPlan:
    """A plan that waits to be executed.

    Attributes:
        id: names it in `recluster_pending` and `cancel_plan`.
        created, expires: ISO 8601 in UTC, by the storage's clock.
        is_expired: by this machine's clock: nobody executes it, and gc removes it.
        policy, snapshot: what chose its groups, and of which version; None if it cannot be read.
        groups, blocks, rows, bytes: what it is to merge, as planned; 0 if it cannot be read.
        claimed: groups that some process has begun, and not given up. Ended groups count until the plan is removed.
        problem: why it cannot be executed: it is damaged, of another version of tblctl, or of another table; else None.
    """

    id: str
    created: str
    expires: str
    is_expired: bool
    policy: str | None
    snapshot: int | str | None
    groups: int
    blocks: int
    rows: int
    bytes: int
    claimed: int
    problem: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON values."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class SnapshotInfo:
    """One version of a table, as `history` lists it.

    Attributes:
        sequence: its number, in the native format; in others its id.
        timestamp: when it was committed, ISO 8601 in UTC.
        operation: what committed it.
        rows, blocks, bytes: size of the whole table at that version; None if its writer did not say (Iceberg).
        rows_added, rows_removed, blocks_added, blocks_removed, bytes_added: what the commit changed.
        readable: false once gc has expired the snapshot. `as_of` such a snapshot fails.
        tags: the tags that name it now.
        cluster_by: the cluster key's terms; None for an expired snapshot, of which only the summary is kept.
        options: the table's options; None for an expired snapshot, and in other formats than tblctl's own.
        detail: what the operation recorded beside the figures.
    """

    sequence: int | str
    timestamp: str
    operation: str
    rows: int | None
    blocks: int | None
    bytes: int | None
    rows_added: int
    rows_removed: int
    blocks_added: int
    blocks_removed: int
    bytes_added: int
    readable: bool
    tags: tuple[str, ...]
    cluster_by: tuple[str, ...] | None
    options: Mapping[str, Any] | None
    detail: Mapping[str, Any]

    @classmethod
    def of(cls, entry: VersionEntry) -> SnapshotInfo:
        """Return what the history says of a version."""
        summary = entry.summary
        return cls(
            sequence=entry.public_id,
            timestamp=iso_timestamp(entry.timestamp_ms),
            operation=summary.operation,
            rows=summary.rows,
            blocks=summary.blocks,
            bytes=summary.data_bytes,
            rows_added=summary.rows_added,
            rows_removed=summary.rows_removed,
            blocks_added=summary.blocks_added,
            blocks_removed=summary.blocks_removed,
            bytes_added=summary.bytes_added,
            readable=entry.is_readable,
            tags=entry.tags,
            cluster_by=entry.cluster_by,
            options=None if entry.options is None else entry.options.to_json(),
            detail=dict(summary.detail),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the version as JSON values."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class BlockInfo:
    """One live block.

    Attributes:
        path: the object's name under the table's root.
        rows: number of rows.
        bytes: size of the file.
        level: how many times its rows were clustered; -1 for constant and full.
        run: the run that it belongs to; None if it was written without a cluster key.
        min, max: the current cluster key of its first and last row, one value a term. If the block is in another order,
            bounds from column statistics, or None without these.
        uncompressed_bytes: size before compression, as its Parquet footer states.
        decoded_bytes: size in memory.
        cluster_key_id: id of the cluster key that its rows are sorted by; None for no order.
    """

    path: str
    rows: int
    bytes: int
    level: int
    run: str | None
    min: tuple[Any, ...]
    max: tuple[Any, ...]
    uncompressed_bytes: int
    decoded_bytes: int
    cluster_key_id: int | None

    @classmethod
    def of(cls, block: Block, bounds: tuple[tuple[Any, ...], tuple[Any, ...]]) -> BlockInfo:
        """Return the facts about `block`, whose keys lie within `bounds`."""
        return cls(
            path=block.path,
            rows=block.row_count,
            bytes=block.size_bytes,
            level=block.cluster.level if block.cluster else 0,
            run=block.run_id,
            min=bounds[0],
            max=bounds[1],
            uncompressed_bytes=block.uncompressed_bytes,
            decoded_bytes=block.decoded_bytes,
            cluster_key_id=block.cluster.cluster_key_id if block.cluster else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON values. Dates, times, decimals and binary become text."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class ScanExplanation:
    """What a scan would read.

    Attributes:
        snapshot: the version.
        where: the condition as given.
        columns: the columns returned; None for all.
        blocks_total, blocks_pruned, blocks_read: metadata prune blocks. With a limit some are neither pruned nor
            read.
        blocks_whole: blocks to read in which statistics prove that every row matches.
        bytes_total: size of all blocks.
        bytes_to_read: compressed bytes of the needed columns in the blocks to read. Row groups that may be skipped are
            included.
        segments_total, segments_pruned: the snapshot's summaries prune segments, whose metadata is then not read.
        rows_total: rows of the table.
    """

    snapshot: int
    where: str | None
    columns: tuple[str, ...] | None
    blocks_total: int
    blocks_pruned: int
    blocks_read: int
    blocks_whole: int
    bytes_total: int
    bytes_to_read: int
    segments_total: int
    segments_pruned: int
    rows_total: int

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class GcOutcome:
    """What gc removed (with `dry_run`: would remove): expired snapshots and objects, oldest first.

    `note` says why no snapshot expired though that was asked for (Iceberg); empty otherwise.
    """

    dry_run: bool
    snapshots_expired: tuple[int | str, ...]
    objects_deleted: tuple[str, ...]
    bytes_deleted: int
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check looked at, and the problems it found; each names its object. `rows` counts the newest snapshot."""

    ok: bool
    deep: bool
    snapshots: int
    segments: int
    blocks: int
    rows: int
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return _plain(self)


def _plain(value: Any) -> dict[str, Any]:
    names = value.__dataclass_fields__
    return {name: value_for_people(getattr(value, name)) for name in names}
