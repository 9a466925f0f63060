"""Edits of a table's blocks, (removed, added, relabelled), and their effect on segments.

An edit is planned against a base snapshot and applied to the head (edit_applier.py). Later appends never conflict. An
edit conflicts only if a block that it removes or relabels has left the table.

Pure: nothing here reads or writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.model.snapshot import Batch, SegmentRef, Snapshot, Summary
from tblctl.tableformat.native.log.fold import SEGMENT_BLOCKS, fold_plan
from tblctl.tableformat.port import Label


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of the table's blocks.

    Attributes:
        operation: the word that `history` shows.
        base_segments: the segments of the snapshot that it was planned against.
        removed: the removed blocks, by segment of the base.
        added: rows of a segment for the new blocks; None for none.
        copied_rows: rows of removed blocks that are unchanged in new blocks.
        relabelled: the new labels of blocks that stay, by segment of the base.
        detail: the operation's own part of the summary.
        batch: the batch of a stream that this edit commits; None for no stream.
        taken: files whose rows it adds, as a list of imported files has them; None for none.
    """

    operation: str
    base_segments: frozenset[str] = frozenset()
    removed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    added: pa.Table | None = None
    copied_rows: int = 0
    relabelled: Mapping[str, Mapping[str, Label]] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    batch: Batch | None = None
    taken: pa.Table | None = None

    @cached_property
    def removed_paths(self) -> frozenset[str]:
        """The removed blocks."""
        return frozenset().union(*self.removed.values())

    @cached_property
    def labels(self) -> Mapping[str, Label]:
        """The new labels of blocks, by path."""
        return {path: label for part in self.relabelled.values() for path, label in part.items()}

    @cached_property
    def touched(self) -> Mapping[str, frozenset[str]]:
        """The blocks to remove or relabel, by the segment of the base that lists them."""
        relabelled = {key: frozenset(labels) for key, labels in self.relabelled.items()}
        return {
            key: self.removed.get(key, frozenset()) | relabelled.get(key, frozenset())
            for key in [*self.removed, *relabelled]
        }

    @property
    def is_empty(self) -> bool:
        """Whether applying it would change nothing."""
        adds = self.taken is not None or (self.added is not None and self.added.num_rows > 0)
        return not self.removed and not self.relabelled and not adds


@dataclass(frozen=True, kw_only=True)
class KeptSegment:
    """A segment of the head that stays as it is, unless it is folded with others."""

    ref: SegmentRef

    @property
    def key(self) -> str:
        """A key that no other entry has."""
        return self.ref.path

    @property
    def block_count(self) -> int:
        """The blocks that it lists."""
        return self.ref.block_count


@dataclass(frozen=True, kw_only=True)
class FreshRows:
    """Rows of a segment that is not yet written: the remainder of an edited segment, or new blocks.

    Equal rows have the same `key` in all attempts, so they are written once.
    """

    key: str
    rows: pa.Table

    @property
    def block_count(self) -> int:
        """The blocks that they list."""
        return int(self.rows.num_rows)


Entry: TypeAlias = "KeptSegment | FreshRows"
"""A place in the new list of segments."""


@dataclass(frozen=True, kw_only=True)
class EditedSegment:
    """The remaining rows of an edited segment (`rows`), and how much was removed; of which sorts, by their ids."""

    rows: pa.Table
    blocks_removed: int
    rows_removed: int
    sorts_removed: frozenset[int]


def edited_segment(edit: Edit, before: pa.Table, paths: frozenset[str]) -> EditedSegment:
    """Return a segment's rows after the edit, which touches its blocks `paths`."""
    removed = pc.is_in(before["path"], pa.array(sorted(paths & edit.removed_paths), pa.string()))
    after = before.filter(pc.invert(removed))
    if edit.labels.keys() & paths:
        after = _relabelled(after, edit.labels)
    return EditedSegment(
        rows=after,
        blocks_removed=before.num_rows - after.num_rows,
        rows_removed=_sum(before, "row_count") - _sum(after, "row_count"),
        sorts_removed=sorts_named(before.filter(removed)),
    )


def sorts_named(rows: pa.Table | None) -> frozenset[int]:
    """Return the ids of the sorts that rows of a segment name."""
    if rows is None:
        return frozenset()
    return frozenset(pc.unique(rows["cluster_key_id"]).drop_null().to_pylist())


def _relabelled(table: pa.Table, labels: Mapping[str, Label]) -> pa.Table:
    """Return the rows of a segment with the new labels of blocks."""
    names = table["path"].to_pylist()
    old = zip(names, table["level"].to_pylist(), table["run_id"].to_pylist(), strict=True)
    new = [labels.get(name) or Label(level=level, run_id=run_id) for name, level, run_id in old]
    for column, values in (
        ("level", [item.level for item in new]),
        ("run_id", [item.run_id for item in new]),
    ):
        place = table.column_names.index(column)
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    return table


def entries_after(edit: Edit, head: Snapshot, changed: Mapping[str, EditedSegment]) -> list[Entry]:
    """Return the new list of segments before folding: those of `head`, and new ones.

    `changed` has the segments that the edit touches, by name. A segment without remaining rows is dropped.
    """
    entries: list[Entry] = []
    for segment in head.segments:
        edited = changed.get(segment.path)
        if edited is None:
            entries.append(KeptSegment(ref=segment))
        elif edited.rows.num_rows:
            entries.append(FreshRows(key=f"edited {segment.path}", rows=edited.rows))
    added = edit.added
    if added is not None:
        slices = (added.slice(start, SEGMENT_BLOCKS) for start in range(0, added.num_rows, SEGMENT_BLOCKS))
        entries += [FreshRows(key=_added_key(rows), rows=rows) for rows in slices]
    return entries


def folded(entries: list[Entry]) -> list[tuple[Entry, ...]]:
    """Return which entries become one segment: small ones are folded, each other one stays alone."""
    groups = fold_plan([entry.block_count for entry in entries])
    in_group = {place for group in groups for place in group}
    alone: list[tuple[Entry, ...]] = [
        (entry,) for place, entry in enumerate(entries) if place not in in_group
    ]
    return alone + [tuple(entries[place] for place in group) for group in groups]


def summary_of(edit: Edit, after: Snapshot, changed: Iterable[EditedSegment]) -> Summary:
    """Return the summary of an edit whose result is `after`."""
    changed = list(changed)
    added = edit.added
    return Summary(
        operation=edit.operation,
        rows=after.row_count,
        blocks=after.block_count,
        data_bytes=after.data_bytes,
        rows_added=_sum(added, "row_count") - edit.copied_rows,
        rows_removed=sum(item.rows_removed for item in changed) - edit.copied_rows,
        blocks_added=0 if added is None else added.num_rows,
        blocks_removed=sum(item.blocks_removed for item in changed),
        bytes_added=_sum(added, "size_bytes"),
        detail=edit.detail,
    )


def _added_key(rows: pa.Table) -> str:
    """Return a key for new rows of a segment: the same for the same blocks, in the same orders, in any edit."""
    blocks = zip(rows["path"].to_pylist(), rows["cluster_key_id"].to_pylist(), strict=True)
    text = "\n".join(f"{path} {sort_id}" for path, sort_id in blocks)
    return f"added {hashlib.sha256(text.encode()).hexdigest()}"


def _sum(table: pa.Table | None, column: str) -> int:
    return 0 if table is None or table.num_rows == 0 else int(pc.sum(table[column]).as_py())
