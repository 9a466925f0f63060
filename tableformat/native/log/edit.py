"""Edits of a table's blocks, (removed, added, relabelled), and how they apply to whatever the head is by then.

An edit is planned against a base snapshot and applied to the head. Appends since never conflict; an edit conflicts
only if a block that it removes or relabels has left the table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.snapshot import SegmentRef, Snapshot, Summary
from tblctl.tableformat.native.log.clock import Written, write_timed
from tblctl.tableformat.native.log.commit import Draft
from tblctl.tableformat.native.log.fold import SEGMENT_BLOCKS, fold_plan
from tblctl.tableformat.native.log.names import segment_path
from tblctl.tableformat.native.log.segment_file import (
    concat_segments,
    encode_segment,
    read_segment,
    segment_ref,
)
from tblctl.tableformat.parquet.damage import ARROW_ERRORS, damaged
from tblctl.tableformat.port import BlocksReplacedError, Label
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of the table's blocks.

    Attributes:
        operation: the word that `history` shows.
        removed: by segment of the base, the blocks of it that leave the table.
        added: rows of a segment for the blocks that join it; None for none.
        copied_rows: rows that leave with a removed block and come back unchanged in an added one.
        relabelled: blocks that stay, with their new label, by segment of the base.
        detail: what the operation has to say in the summary.
    """

    operation: str
    removed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    added: pa.Table | None = None
    copied_rows: int = 0
    relabelled: Mapping[str, Mapping[str, Label]] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def removed_paths(self) -> frozenset[str]:
        """The blocks that leave the table."""
        return frozenset().union(*self.removed.values())

    @property
    def is_empty(self) -> bool:
        """Whether applying it would change nothing."""
        return not self.removed and not self.relabelled and (self.added is None or self.added.num_rows == 0)


@dataclass
class _Piece:
    """A part of the new list of segments: one that stays (`ref`), or rows still to be written (`rows`)."""

    key: str
    count: int
    ref: SegmentRef | None = None
    rows: pa.Table | None = None


@dataclass(frozen=True, kw_only=True)
class _Edited:
    """What the edit leaves of a segment (`rows`), and what it takes away."""

    rows: pa.Table
    blocks_removed: int
    rows_removed: int


class EditApplier:
    """Applies one edit to one head after another, until it is committed; keeps what it wrote for the next attempt."""

    def __init__(self, storage: Storage, env: Environment, edit: Edit, base: Snapshot) -> None:
        self._storage = storage
        self._env = env
        self._edit = edit
        self._base_paths = frozenset(segment.path for segment in base.segments)
        self._written: dict[tuple[str, ...], SegmentRef] = {}
        self._edited: dict[tuple[str, frozenset[str]], _Edited] = {}
        self._used: frozenset[str] = frozenset()
        self._timed: dict[str, Written] = {}  # every segment that was written

    def replan(self, edit: Edit, base: Snapshot) -> None:
        """Apply `edit`, planned against `base`, from now on: segments written for the one before are used again.

        It must remove and relabel the same blocks of every segment that both touch.
        """
        self._edit = edit
        self._base_paths = frozenset(segment.path for segment in base.segments)

    def propose(self, head: Snapshot) -> Draft:
        """Return the head with the edit applied.

        Raises:
            BlocksReplacedError: a block of the edit is no longer in the head.
        """
        edit = self._edit
        self._used = frozenset()
        touched = self._touched(head)
        pieces = [_Piece(segment.path, segment.block_count, ref=segment) for segment in head.segments]
        rows_removed = blocks_removed = 0
        places = [place for place, piece in enumerate(pieces) if touched.get(piece.key)]
        changes = in_parallel(
            lambda place: self._change(head.segments[place], touched[pieces[place].key]),
            places,
            threads=IO_THREADS,
        )
        for place, change in zip(places, changes, strict=True):
            key = f"edited {pieces[place].key}"
            pieces[place] = _Piece(key, change.rows.num_rows, rows=change.rows)
            blocks_removed += change.blocks_removed
            rows_removed += change.rows_removed
        added = edit.added if edit.added is not None and edit.added.num_rows else None
        if added is not None:
            slices = [
                added.slice(start, SEGMENT_BLOCKS) for start in range(0, added.num_rows, SEGMENT_BLOCKS)
            ]
            pieces += [_Piece(_added_key(rows), rows.num_rows, rows=rows) for rows in slices]
        segments = self._segments([piece for piece in pieces if piece.count], head)
        snapshot = dataclasses.replace(head, segments=segments)
        summary = Summary(
            operation=edit.operation,
            rows=snapshot.row_count,
            blocks=snapshot.block_count,
            data_bytes=snapshot.data_bytes,
            rows_added=_sum(added, "row_count") - edit.copied_rows,
            rows_removed=rows_removed - edit.copied_rows,
            blocks_added=0 if added is None else added.num_rows,
            blocks_removed=blocks_removed,
            bytes_added=_sum(added, "size_bytes"),
            detail=edit.detail,
        )
        self._used = frozenset(segment.path for segment in segments)
        fresh = [ref.path for ref in self._written.values() if ref.path in self._used]
        data = [] if added is None else added["path"].to_pylist()
        return Draft(
            snapshot=dataclasses.replace(snapshot, summary=summary),
            objects=[*fresh, *data],
            forget=self.forget,
            written=self._timed[fresh[-1]] if fresh else None,
        )

    def forget(self, names: Collection[str]) -> None:
        """Write those of the segments again: gc may delete them."""
        self._written = {key: ref for key, ref in self._written.items() if ref.path not in names}

    def discard_unused(self) -> None:
        """Delete segments of attempts that lost, as far as possible. Only once the outcome is known."""
        try:
            self._storage.delete([path for path in self._timed if path not in self._used])
        except TblctlError as error:
            LOG.warning("segments that are not needed could not be deleted, gc will: %s", error)

    def discard_all(self) -> None:
        """Delete every segment that was written, as far as possible. Only if nothing was published."""
        self._used = frozenset()
        self.discard_unused()

    def _touched(self, head: Snapshot) -> dict[str, frozenset[str]]:
        """Return the blocks to remove or relabel by the segment of `head` that lists them."""
        wanted: dict[str, frozenset[str]] = {}
        for part in (
            self._edit.removed,
            {key: frozenset(labels) for key, labels in self._edit.relabelled.items()},
        ):
            for key, paths in part.items():
                wanted[key] = wanted.get(key, frozenset()) | paths
        here = {segment.path for segment in head.segments}
        touched = {key: paths for key, paths in wanted.items() if key in here}
        moved = frozenset().union(*(paths for key, paths in wanted.items() if key not in here))
        if not moved:
            return touched
        fresh = [segment for segment in head.segments if segment.path not in self._base_paths]
        tables = in_parallel(
            lambda ref: read_segment(self._storage, ref, ["path"]), fresh, threads=IO_THREADS
        )
        for segment, table in zip(fresh, tables, strict=True):
            found = moved.intersection(table["path"].to_pylist())
            if found:
                touched[segment.path] = found
                moved -= found
        if moved:
            msg = f"{self._storage.url}: {len(moved)} blocks were replaced by another writer, such as {min(moved)}"
            raise BlocksReplacedError(msg, paths=tuple(sorted(moved)))
        return touched

    def _change(self, segment: SegmentRef, paths: frozenset[str]) -> _Edited:
        """Return what becomes of a segment; what an earlier attempt found is used again."""
        key = (segment.path, paths)
        if key not in self._edited:
            before = read_segment(self._storage, segment)
            after = self._changed(before, paths)
            self._edited[key] = _Edited(
                rows=after,
                blocks_removed=before.num_rows - after.num_rows,
                rows_removed=_sum(before, "row_count") - _sum(after, "row_count"),
            )
        return self._edited[key]

    def _changed(self, table: pa.Table, paths: frozenset[str]) -> pa.Table:
        """Return the rows of a segment without the removed ones, the relabelled ones changed."""
        removed = paths & self._edit.removed_paths
        kept = table.filter(pc.invert(pc.is_in(table["path"], pa.array(sorted(removed), pa.string()))))
        labels = {path: label for part in self._edit.relabelled.values() for path, label in part.items()}
        if not labels.keys() & paths:
            return kept
        names = kept["path"].to_pylist()
        old = zip(names, kept["level"].to_pylist(), kept["run_id"].to_pylist(), strict=True)
        new = [labels.get(name) or Label(level=level, run_id=run_id) for name, level, run_id in old]
        for column, values in (
            ("level", [item.level for item in new]),
            ("run_id", [item.run_id for item in new]),
        ):
            place = kept.column_names.index(column)
            kept = kept.set_column(place, column, pa.array(values, kept.schema.field(column).type))
        return kept

    def _segments(self, pieces: Sequence[_Piece], head: Snapshot) -> tuple[SegmentRef, ...]:
        """Return the pieces as segments, small ones folded, writing what is not written yet."""
        groups = fold_plan([piece.count for piece in pieces])
        folded = {place for group in groups for place in group}
        jobs: list[tuple[_Piece, ...]] = [
            (pieces[place],) for place in range(len(pieces)) if place not in folded
        ]
        jobs += [tuple(pieces[place] for place in group) for group in groups]
        return tuple(in_parallel(lambda job: self._written_segment(job, head), jobs, threads=IO_THREADS))

    def _written_segment(self, pieces: Sequence[_Piece], head: Snapshot) -> SegmentRef:
        if len(pieces) == 1 and pieces[0].ref:
            return pieces[0].ref
        key = (str(head.schema_id), str(head.cluster_key_id), *(piece.key for piece in pieces))
        if key not in self._written:
            path = segment_path(self._env.new_id())
            try:
                rows = concat_segments(self._rows_of(pieces), head.schema, head.sorts.values())
                made = encode_segment(rows)
                ref = segment_ref(
                    rows, path, head.schema, head.sort, size_bytes=made.data.size, seal=made.seal
                )
            except ARROW_ERRORS as error:
                raise damaged(" or ".join(piece.key for piece in pieces), error) from error
            self._timed[path] = write_timed(self._storage, self._env, path, made.data)
            self._written[key] = ref
        return self._written[key]

    def _rows_of(self, pieces: Iterable[_Piece]) -> list[pa.Table]:
        return [
            piece.rows if piece.rows is not None else read_segment(self._storage, piece.ref)  # type: ignore[arg-type]
            for piece in pieces
        ]


def _added_key(rows: pa.Table) -> str:
    """Return a name for new rows of a segment: the same for the same blocks, whatever edit brings them."""
    paths = "\n".join(rows["path"].to_pylist())
    return f"added {hashlib.sha256(paths.encode()).hexdigest()}"


def _sum(table: pa.Table | None, column: str) -> int:
    return 0 if table is None or table.num_rows == 0 else int(pc.sum(table[column]).as_py())
