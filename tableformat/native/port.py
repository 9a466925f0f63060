"""`tblctl.tableformat.port` over tables of the native format."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InternalError,
    TblctlError,
)
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.snapshot import RECLUSTER, ROLLBACK, Snapshot
from tblctl.tableformat.model.statistics import NONE, BlockStatistics
from tblctl.tableformat.native.blocks import layout_of
from tblctl.tableformat.native.log.alter import add_sorts
from tblctl.tableformat.native.log.checked_json import with_checksum
from tblctl.tableformat.native.log.commit import Draft, Fate, Published, publish, reload_head
from tblctl.tableformat.native.log.edit import Edit
from tblctl.tableformat.native.log.edit_applier import EditApplier
from tblctl.tableformat.native.log.head import load_readable, summaries_since
from tblctl.tableformat.native.log.names import RECORD, record_path
from tblctl.tableformat.native.log.segment_columns import statistic_names
from tblctl.tableformat.native.log.segment_rows import segment_table
from tblctl.tableformat.native.read.key_ranges import fetch_key_ranges, range_columns
from tblctl.tableformat.native.read.metadata import BlockMetadata, block_metadata
from tblctl.tableformat.native.read.scan import condition_columns
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.port import BlocksReplacedError, Label, Listing, Replacement
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.tableformat.native.block_io import NativeBlockIO

LOG = logging.getLogger("tblctl")

_PATIENCE = 8.0
"""A recluster that lost the race for a snapshot waits so many times longer than a writer: it gives way."""

_FIGURES = ("level", "row_count", "size_bytes", "decoded_bytes")


class NativeVersion:
    """`tblctl.tableformat.port.Version` of a snapshot; metadata that was read once is kept."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage = storage
        self.snapshot = snapshot

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""
        return self._storage.url

    @property
    def table_id(self) -> str:
        """Tells tables apart that had the same location one after the other."""
        return self.snapshot.table_id

    @property
    def sequence(self) -> int:
        """The snapshot's number."""
        return self.snapshot.sequence

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.snapshot.schema

    @property
    def sort(self) -> Sort | None:
        """The cluster key; None without one."""
        return self.snapshot.sort

    @property
    def sorts(self) -> Mapping[int, Sort]:
        """The live sorts by id."""
        return self.snapshot.live_sorts

    @property
    def next_sort_id(self) -> int:
        """An id that no sort of the table ever had."""
        return max(self.snapshot.sorts, default=0) + 1

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return self.snapshot.options

    @cached_property
    def _metadata(self) -> BlockMetadata:
        return block_metadata(self._storage, self.snapshot)

    def listing(self, sort: Sort, condition: BooleanExpression | None, *, clustered: bool = True) -> Listing:
        """Return the blocks with their bounds by `sort`. Reads each segment once."""
        metadata = self._metadata
        leaves = [self.schema.leaf(name) for name in condition_columns(condition, self.schema)]
        others = ["path", "same_key_rows", *_FIGURES, *range_columns(self.schema, sort, clustered=clustered)]
        metadata.fetch_statistics(leaves, others)
        matched = None
        if condition is not None:
            from tblctl.tableformat.predicate.match import match  # needs PyIceberg: 0.3 s that others save

            matched = np.asarray(match(condition, metadata, self.schema).outcome != NONE)
        ranges = fetch_key_ranges(metadata, sort, clustered=clustered)
        figures = {name: np.asarray(metadata.values(name), dtype=np.int64) for name in _FIGURES}
        same_key_rows = metadata.values("same_key_rows").cast(pa.int64()).fill_null(-1)
        return Listing(
            paths=metadata.values("path"),
            low=ranges.low,
            high=ranges.high,
            own=ranges.own,
            sort_id=self._sort_ids(),
            known=ranges.known,
            exact=ranges.exact,
            same_key_rows=np.where(ranges.own, np.asarray(same_key_rows), -1),
            matched=matched,
            **figures,
        )

    def statistics(self, leaves: Sequence[Leaf]) -> BlockStatistics:
        """Return what is known of columns in each block. Reads each segment once, for listings by them too."""
        names = [name for leaf in leaves for name in statistic_names(leaf) if name.endswith("_exact")]
        self._metadata.fetch_statistics(leaves, ["path", "cluster_key_id", *_FIGURES, *names])
        return self._metadata

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        """Return those of the blocks that are in this version, by path."""
        return {block.path: block for block in self._metadata.blocks(self._rows_of(paths))}

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        """Tell whether the block's rows are in the order of `sort`."""
        return block.cluster is not None and block.cluster.cluster_key_id == sort.id

    def _sort_ids(self) -> np.ndarray:
        ids = np.asarray(self._metadata.values("cluster_key_id").fill_null(-1), dtype=np.int64)
        return np.where(np.isin(ids, list(self.sorts)), ids, -1)

    def segments_of(self, paths: Sequence[str]) -> dict[str, str]:
        """Return the segments that list those of the blocks that are in this version, by the blocks' paths."""
        rows = self._rows_of(paths)
        names = self._metadata.values("path").take(pa.array(rows)).to_pylist()
        return {
            name: self._metadata.segment_of(row).path for name, row in zip(names, rows.tolist(), strict=True)
        }

    def row_count(self, paths: Sequence[str]) -> int:
        """Return how many rows those of the blocks have that are in this version."""
        return int(self._metadata.row_count[self._rows_of(paths)].sum())

    def require_nulls(self, removed: Collection[str], added: Sequence[BlockRecord]) -> None:
        """Refuse blocks that have not as many nulls, in every column, as the metadata tells of those they replace.

        Raises:
            CorruptTableError: they have not; names the first such column.
        """
        paths = sorted(removed)
        rows = self._rows_of(paths)
        if not len(rows):
            return
        leaves = self.schema.leaves
        counts = self._metadata.of_segments_with(rows).null_counts(leaves, paths)
        for leaf, told in zip(leaves, counts, strict=True):
            found = [record.columns[leaf.id].null_count for record in added if leaf.id in record.columns]
            if (told < 0).any() or len(found) < len(added) or min(found, default=0) < 0:
                continue
            if sum(found) != told.sum():
                some = ", ".join(paths[:3])
                msg = (
                    f"{self.location}: {len(paths)} blocks, such as {some}, were read with {sum(found)} nulls in "
                    f"column {leaf.name!r}, their segments say {told.sum()}: some are damaged. Nothing was changed: "
                    "see `tblctl check --deep`"
                )
                raise CorruptTableError(msg, name=some, column=leaf.name)

    def _rows_of(self, paths: Sequence[str]) -> np.ndarray:
        wanted = pc.is_in(self._metadata.values("path"), pa.array(paths, pa.string()))
        return np.flatnonzero(wanted.to_numpy(zero_copy_only=False))


class NativePort:
    """`tblctl.tableformat.port.TablePort` of a native table."""

    def __init__(self, table: NativeTable) -> None:
        self._table = table
        self.env: Environment = table.env

    def newest(self) -> NativeVersion:
        """Return the newest version."""
        return NativeVersion(self._table.storage, self._table.head())

    def version(self, sequence: int) -> NativeVersion:
        """Return the version of a number."""
        storage = self._table.storage
        return NativeVersion(storage, load_readable(storage, self._table.head(), sequence))

    def block_io(self, version: NativeVersion) -> NativeBlockIO:
        """Return what merge tasks for this version read and write with."""
        from tblctl.tableformat.native.block_io import NativeBlockIO

        snapshot = version.snapshot
        return NativeBlockIO(
            storage=self._table.storage,
            env=self.env,
            layout=layout_of(snapshot),
            column_ids=snapshot.column_ids,
        )

    def replace(self, base: NativeVersion, replacement: Replacement) -> NativeVersion:
        """Commit on top of whatever the newest version is."""
        storage = self._table.storage
        edit = _edit(base, replacement)
        applier = EditApplier(storage, self.env)
        record = _Record(storage, self.env, replacement.record)

        def propose(head: Snapshot) -> Draft:
            _check_schema(storage, base.snapshot, head)
            return record.named_by(applier.propose(edit, add_sorts(head, replacement.sorts)))

        fate = Fate()
        try:
            record.write()
            head = reload_head(storage, base.snapshot)
            published = publish(storage, self.env, propose, head, fate, patience=_PATIENCE)
        except TblctlError as error:
            if fate.maybe_published:
                raise _in_doubt(storage, error) from error
            applier.discard_all()
            record.discard(used=None)
            raise
        applier.discard_unused()
        record.discard(used=record.name)
        return NativeVersion(storage, cast("Published", published).snapshot)  # a draft is always given


class _Record:
    """The record of a recluster on its way to the storage."""

    def __init__(self, storage: Storage, env: Environment, content: Mapping[str, Any] | None) -> None:
        self._storage = storage
        self._env = env
        self._content = content
        self._paths: list[str] = []
        self.name: str | None = None

    def write(self) -> None:
        """Write it, unless there is none or it is there."""
        if self._content is None or self.name is not None:
            return
        path = record_path(self._env.new_id())
        self._paths.append(path)
        self._storage.write(path, with_checksum(self._content))
        self.name = path

    def named_by(self, draft: Draft) -> Draft:
        """Return the draft with the record in its summary."""
        self.write()
        if self.name is None:
            return draft

        def forget(names: Collection[str]) -> None:
            draft.forget(names)
            self.name = None if self.name in names else self.name

        summary = draft.snapshot.summary
        detail = {**summary.detail, RECORD: self.name}
        return dataclasses.replace(
            draft,
            snapshot=dataclasses.replace(draft.snapshot, summary=dataclasses.replace(summary, detail=detail)),
            objects=[*draft.objects, self.name],
            forget=forget,
        )

    def discard(self, *, used: str | None) -> None:
        """Delete what was written but for `used`, as far as possible. Only once the outcome is known."""
        try:
            self._storage.delete([path for path in self._paths if path != used])
        except TblctlError as error:
            LOG.warning("records that are not needed could not be deleted, gc will: %s", error)


def _edit(base: NativeVersion, replacement: Replacement) -> Edit:
    """Return the change as one of the base's segments.

    Raises:
        BlocksReplacedError: the base has not got a block of it.
        InternalError: it would change the rows.
        CorruptTableError: it would change how many are null in a column.
    """
    concerned = [*replacement.removed, *replacement.relabelled]
    segments = base.segments_of(concerned)
    gone = sorted(set(concerned) - segments.keys())
    if gone:
        msg = f"{base.location}: {len(gone)} blocks are not in snapshot {base.sequence}, such as {gone[0]}"
        raise BlocksReplacedError(msg, paths=tuple(gone))
    rows = sum(item.row_count for item in replacement.added)
    rows_before = base.row_count(list(replacement.removed))
    if rows != rows_before:
        msg = f"{base.location}: a recluster would put {rows} rows in the place of {rows_before}"
        raise InternalError(msg)
    base.require_nulls(replacement.removed, replacement.added)
    removed: dict[str, set[str]] = {}
    for path in replacement.removed:
        removed.setdefault(segments[path], set()).add(path)
    relabelled: dict[str, dict[str, Label]] = {}
    for path, label in replacement.relabelled.items():
        relabelled.setdefault(segments[path], {})[path] = label
    return Edit(
        operation=RECLUSTER,
        base_segments=frozenset(segment.path for segment in base.snapshot.segments),
        removed={segment: frozenset(paths) for segment, paths in removed.items()},
        added=segment_table(
            replacement.added, base.schema, [*base.snapshot.sorts.values(), *replacement.sorts]
        )
        if replacement.added
        else None,
        copied_rows=rows,
        relabelled=relabelled,
        detail=replacement.detail,
    )


def _check_schema(storage: Storage, base: Snapshot, head: Snapshot) -> None:
    """Refuse a head that cannot read blocks written for `base`: its schema may be any older one after a rollback."""
    if head.schema_id == base.schema_id:
        return
    summaries = summaries_since(storage, base.sequence, head)
    if any(summary.operation == ROLLBACK for summary in summaries):
        msg = f"{storage.url} was rolled back to another schema meanwhile; nothing was committed: plan again"
        raise ConflictError(msg)


def _in_doubt(storage: Storage, error: TblctlError) -> TblctlError:
    if isinstance(error, CommitOutcomeUnknownError):
        return error
    return CommitOutcomeUnknownError(
        f"{storage.url}: the commit may have happened before this failed: {error}", **error.details
    )
