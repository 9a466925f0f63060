"""Apply edits to the current head: read the segments they touch, write the new ones, propose the snapshot."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.import_lists import encode_import_list, lists_to_fold, read_import_list
from tblctl.tableformat.model.snapshot import ImportList, SegmentRef, Snapshot
from tblctl.tableformat.native.log.clock import Written, write_timed
from tblctl.tableformat.native.log.commit import StagedCommit
from tblctl.tableformat.native.log.edit import (
    Edit,
    EditedSegment,
    Entry,
    FreshRows,
    KeptSegment,
    edited_segment,
    entries_after,
    folded,
    sorts_named,
    summary_of,
)
from tblctl.tableformat.native.log.names import import_list_path, segment_path
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.segment_rows import concat_segments, encode_segment, segment_ref
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, damaged
from tblctl.tableformat.port import BlocksReplacedError
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")


class EditApplier:
    """Applies the edits of one operation to one head after another, until one is committed.

    It keeps written segments for the next attempt. If two edits touch the same segment, they must remove and relabel
    the same blocks of it.
    """

    def __init__(self, storage: Storage, env: Environment) -> None:
        self._storage = storage
        self._env = env
        self._edited: dict[tuple[str, frozenset[str]], EditedSegment] = {}
        self._refs: dict[tuple[str, ...], SegmentRef] = {}  # segments that can be used again
        self._lists: dict[tuple[str, ...], ImportList] = {}  # lists of imported files that can be used again
        self._sorts: dict[str, frozenset[int]] = {}  # that segments name, as far as it was asked
        self._timed: dict[str, Written] = {}  # every segment and list that was written
        self._used: frozenset[str] = frozenset()  # segments and lists of the last proposal

    def propose(self, edit: Edit, head: Snapshot) -> StagedCommit:
        """Return the head with the edit applied.

        Raises:
            BlocksReplacedError: a block of the edit is no longer in the head.
        """
        self._used = frozenset()
        changed = self._changed_segments(edit, head)
        groups = folded(entries_after(edit, head, changed))
        segments = in_parallel(lambda group: self._segment_of(group, head), groups, threads=IO_THREADS)
        lists = head.imports if edit.taken is None else self._lists_after(edit.taken, head)
        after = dataclasses.replace(head, segments=tuple(segments), imports=lists)
        after = after.without_live(self._sorts_that_left(edit, head, changed))
        after = dataclasses.replace(after, summary=summary_of(edit, after, changed.values()))
        self._used = frozenset([item.path for item in segments] + [item.path for item in lists])
        mine = [*(ref.path for ref in self._refs.values()), *(ref.path for ref in self._lists.values())]
        written = [path for path in mine if path in self._used]
        blocks = [] if edit.added is None else edit.added["path"].to_pylist()
        return StagedCommit(
            snapshot=after.with_batch(edit.batch) if edit.batch else after,
            objects=[*written, *blocks],
            forget=self.forget,
            written=self._timed[written[-1]] if written else None,
        )

    def forget(self, names: Collection[str]) -> None:
        """Write these segments and lists again in the next attempt: gc may delete them."""
        self._refs = {key: ref for key, ref in self._refs.items() if ref.path not in names}
        self._lists = {key: ref for key, ref in self._lists.items() if ref.path not in names}

    def discard_unused(self) -> None:
        """Delete segments and lists of attempts that lost, as far as possible. Only once the outcome is known."""
        try:
            self._storage.delete([path for path in self._timed if path not in self._used])
        except TblctlError as error:
            LOG.warning("segments that are not needed could not be deleted, gc will: %s", error)

    def discard_all(self) -> None:
        """Delete every segment that was written, as far as possible. Only if nothing was published."""
        self._used = frozenset()
        self.discard_unused()

    def _changed_segments(self, edit: Edit, head: Snapshot) -> Mapping[str, EditedSegment]:
        """Return the edited segments of `head`, by name."""
        touched = self._touched(edit, head)
        segments = [segment for segment in head.segments if touched.get(segment.path)]
        found = in_parallel(
            lambda segment: self._change(edit, segment, touched[segment.path]), segments, threads=IO_THREADS
        )
        return {segment.path: change for segment, change in zip(segments, found, strict=True)}

    def _touched(self, edit: Edit, head: Snapshot) -> dict[str, frozenset[str]]:
        """Return the blocks to remove or relabel by the segment of `head` that lists them.

        Blocks of a segment that was folded or edited since are looked up in the segments that are new since the base.
        """
        here = {segment.path for segment in head.segments}
        touched = {key: paths for key, paths in edit.touched.items() if key in here}
        moved = frozenset().union(*(paths for key, paths in edit.touched.items() if key not in here))
        if not moved:
            return touched
        fresh = [segment for segment in head.segments if segment.path not in edit.base_segments]
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, ["path"]), fresh, threads=IO_THREADS
        )
        for segment, table in zip(fresh, tables, strict=True):
            found = moved.intersection(table["path"].to_pylist())
            if found:
                touched[segment.path] = touched.get(segment.path, frozenset()) | found
                moved -= found
        if moved:
            msg = f"{self._storage.url}: {len(moved)} blocks were replaced by another writer, such as {min(moved)}"
            raise BlocksReplacedError(msg, paths=tuple(sorted(moved)))
        return touched

    def _sorts_that_left(
        self, edit: Edit, head: Snapshot, changed: Mapping[str, EditedSegment]
    ) -> frozenset[int]:
        """Return the live sorts besides the current one of which the edit removes the last blocks.

        Other segments are read only if it removes blocks of such a sort and adds none: one column of each, until one
        names the sort.
        """
        removed = frozenset().union(*(change.sorts_removed for change in changed.values()))
        left = removed.intersection(head.live_beside) - sorts_named(edit.added)
        for change in changed.values():
            left -= sorts_named(change.rows) if left else left
        for segment in head.segments:
            if not left:
                break
            if segment.path not in changed:
                left -= self._sorts_of(segment)
        return left

    def _sorts_of(self, segment: SegmentRef) -> frozenset[int]:
        if segment.path not in self._sorts:
            self._sorts[segment.path] = sorts_named(read_segment(self._storage, segment, ["cluster_key_id"]))
        return self._sorts[segment.path]

    def _change(self, edit: Edit, segment: SegmentRef, paths: frozenset[str]) -> EditedSegment:
        """Return a segment after the edit. Results of earlier attempts are reused."""
        key = (segment.path, paths)
        if key not in self._edited:
            self._edited[key] = edited_segment(edit, read_segment(self._storage, segment), paths)
        return self._edited[key]

    def _segment_of(self, entries: Sequence[Entry], head: Snapshot) -> SegmentRef:
        """Return the entries as one segment. It is written unless it already exists."""
        if len(entries) == 1 and isinstance(entries[0], KeptSegment):
            return entries[0].ref
        key = (str(head.schema_id), str(head.cluster_key_id), *(entry.key for entry in entries))
        if key not in self._refs:
            path = segment_path(self._env.new_id())
            try:
                tables = [self._rows_of(entry) for entry in entries]
                rows = concat_segments(tables, head.schema, head.sorts.values())
                made = encode_segment(rows)
                ref = segment_ref(
                    rows, path, head.schema, head.sort, size_bytes=made.data.size, seal=made.seal
                )
            except ARROW_ERRORS as error:
                raise damaged(" or ".join(entry.key for entry in entries), error) from error
            self._timed[path] = write_timed(self._storage, self._env, path, made.data)
            self._refs[key] = ref
        return self._refs[key]

    def _lists_after(self, taken: pa.Table, head: Snapshot) -> tuple[ImportList, ...]:
        """Return the head's lists of imported files and those taken: in a new list, with small lists folded into it."""
        kept, folded_in = lists_to_fold(head.imports, taken.num_rows)
        key = tuple(item.path for item in folded_in)
        if key not in self._lists:
            path = import_list_path(self._env.new_id())
            rows = pa.concat_tables([*(read_import_list(self._storage, item) for item in folded_in), taken])
            made, data = encode_import_list(rows, path)
            self._timed[path] = write_timed(self._storage, self._env, path, data)
            self._lists[key] = made
        return (*kept, self._lists[key])

    def _rows_of(self, entry: Entry) -> pa.Table:
        return entry.rows if isinstance(entry, FreshRows) else read_segment(self._storage, entry.ref)
