"""Scan a snapshot: decide from statistics which blocks to read, read them, keep the rows that satisfy the condition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.concurrency import IO_THREADS, cpu_threads, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CorruptTableError, InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.model.scan_report import BlockScan, ScanReport
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.model.statistics import ALL, NONE, SOME
from tblctl.tableformat.native.log.head import load_version
from tblctl.tableformat.native.read.metadata import ADDRESS_COLUMNS, BlockMetadata, SegmentSummaries
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.queries import MOST_WHERE, Query
from tblctl.tableformat.workload.recorder import Recorder
from tblctl.tableformat.workload.recorder import Tally as Use

if TYPE_CHECKING:
    from tblctl.tableformat.predicate.nodes import Condition, Node

_WINDOW_BYTES = 256 << 20
"""Decoded bytes of the blocks that a streaming scan reads at once."""

_SCAN_COLUMNS = (*ADDRESS_COLUMNS, "decoded_bytes")
"""The columns that every scan needs of the blocks it reads. Fetched in one pass with the statistics."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The blocks of a snapshot that may hold rows satisfying a condition.

    Attributes:
        metadata: of the segments that may hold any.
        rows: the places of the chosen blocks in `metadata`.
        outcome: SOME or ALL for each of them.
        column_ids: of every schema that the table had.
        segments_total, blocks_total: of the snapshot.
        blocks_pruned: blocks that statistics, or the leaves of a tree, ruled out.
    """

    metadata: BlockMetadata
    rows: np.ndarray
    outcome: np.ndarray
    column_ids: Mapping[int, frozenset[int]]
    segments_total: int
    blocks_total: int
    blocks_pruned: int

    def addresses(self) -> list[BlockAddress]:
        """Return the addresses of the chosen blocks."""
        metadata = self.metadata
        metadata.fetch(_SCAN_COLUMNS)
        return metadata.addresses(self.rows, self.column_ids)

    def sum_of(self, column: str) -> int:
        """Return the sum of a metadata column over the chosen blocks."""
        return int(pc.sum(self.metadata.values(column).take(pa.array(self.rows))).as_py() or 0)


def select_blocks(
    storage: Storage,
    snapshot: Snapshot,
    condition: Node | None,
    columns: Sequence[str] = _SCAN_COLUMNS,
) -> Selection:
    """Return the blocks of `snapshot` that may hold rows satisfying `condition` (all, for None).

    `columns` of the metadata are fetched in the same pass over the segments. Others need another pass later.
    """
    if condition is None:
        metadata = BlockMetadata(storage, snapshot.segments, snapshot.schema)
        metadata.fetch(columns)
        outcome = np.full(len(metadata), ALL, dtype=np.int8)
    else:
        metadata, outcome = _match_all(storage, snapshot, condition, columns)
    rows = np.flatnonzero(outcome != NONE)
    return Selection(
        metadata=metadata,
        rows=rows,
        outcome=outcome[rows],
        column_ids=snapshot.column_ids,
        segments_total=len(snapshot.segments),
        blocks_total=snapshot.block_count,
        blocks_pruned=snapshot.block_count - len(rows),
    )


def _match_all(
    storage: Storage, snapshot: Snapshot, condition: Node, columns: Sequence[str]
) -> tuple[BlockMetadata, np.ndarray]:
    """Return the metadata of the segments that may hold matching rows, and the outcome of every block in them."""
    from tblctl.tableformat.predicate.match import match

    schema = snapshot.schema
    segments = snapshot.segments
    if segments:
        seen = match(condition, SegmentSummaries(segments), schema).outcome
        segments = tuple(segment for segment, some in zip(segments, seen != NONE, strict=True) if some)
    metadata = BlockMetadata(storage, segments, schema, snapshot.sorts.values())
    metadata.fetch_for(
        condition, [schema.leaf(name) for name in condition_columns(condition, schema)], columns
    )
    return metadata, match(condition, metadata, schema).outcome


def condition_columns(condition: Condition | None, schema: Schema) -> tuple[str, ...]:
    """Return the names of the leaves that a condition tests."""
    if condition is None:
        return ()
    from tblctl.tableformat.predicate.rows import needed_columns

    return needed_columns(condition, schema)


def rows_satisfying(table: pa.Table, condition: Node, schema: Schema) -> pa.BooleanArray:
    """Return for every row whether the condition is true, false or NULL; nested leaves are columns named `a.b`."""
    from tblctl.tableformat.predicate.rows import filter_table

    return filter_table(table, condition, schema)


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """The request of a scan.

    Attributes:
        where: the condition for people.
        condition: resolved for the snapshot's schema, once for the scan and not for each block.
        columns: names of top-level columns or nested fields `a.b`; None for all.
        limit: rows at most; None for all.
        is_sql: `where` is a condition in SQL, not the text of an expression.
    """

    where: str | None = None
    condition: Node | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    is_sql: bool = True


@dataclass(kw_only=True)
class _Tally:
    """The totals of a scan with a listener."""

    blocks: list[BlockScan] = field(default_factory=list)
    rows: int = 0


class Scanner:
    """One scan of one snapshot."""

    def __init__(
        self,
        storage: Storage,
        env: Environment,
        snapshot: Snapshot,
        request: ScanRequest,
        on_scan: Callable[[ScanReport], None] | None = None,
        *,
        recorder: Recorder | None = None,
    ) -> None:
        if request.limit is not None and request.limit < 0:
            msg = f"limit is {request.limit}, expected 0 or more"
            raise InvalidOptionError(msg)
        self._storage = storage
        self._env = env
        self.snapshot = snapshot
        self.request = request
        self._on_scan = on_scan
        # A look at some rows is no query that a layout could help.
        self._recorder = None if request.limit is not None and request.condition is None else recorder
        self.columns = snapshot.schema.names if request.columns is None else request.columns
        self.schema = projected_schema(snapshot.schema, self.columns)

    @once
    def selection(self) -> Selection:
        """The blocks that may hold rows of the answer; decided once."""
        found = select_blocks(self._storage, self.snapshot, self.request.condition)
        return found if self.request.limit is None else _enough(found, self.request.limit)

    def tables(self, *, window_bytes: float = _WINDOW_BYTES) -> Iterator[pa.Table]:
        """Yield the answer block by block.

        Blocks of up to `window_bytes` decoded bytes are read at once, fewer near a limit. Between two windows the
        processors wait for the last block. So a caller that keeps all rows passes an infinite window.
        """
        started = self._env.elapsed()
        tally = _Tally() if self._on_scan else None
        use = self._recorder.tally() if self._recorder else None
        complete = left = False
        try:
            remaining = self.request.limit
            for window in self._windows(window_bytes):
                for table in in_parallel(
                    lambda job: self._read(*job, tally, use), window, threads=self._threads(window)
                ):
                    part = table if remaining is None else table.slice(0, remaining)
                    if tally:
                        tally.rows += part.num_rows
                    if part.num_rows:
                        yield part
                    if remaining is not None:
                        remaining -= part.num_rows
                if remaining is not None and remaining <= 0:
                    break
            complete = True
        except GeneratorExit:
            left = True
            raise
        except CorruptTableError as error:
            blame_expiry(self._storage, self.snapshot.sequence, error)
            raise
        finally:
            if tally and self._on_scan:
                self._on_scan(self._report(tally, self._env.elapsed() - started, complete=complete))
            if use and self._recorder and (complete or left):  # one that failed reads nothing more
                self._recorder.add(lambda: self._query(use, tally))

    def _windows(self, window_bytes: float) -> Iterator[list[tuple[BlockAddress, int]]]:
        """Yield the blocks to read at once: all that fit the window.

        With a limit, a window also ends where its blocks have that many rows. Some rows may not satisfy the condition,
        so each following window may have twice the rows.
        """
        addresses = self.selection.addresses()
        sizes = (
            self.selection.metadata.values("decoded_bytes").take(pa.array(self.selection.rows)).to_pylist()
        )
        window: list[tuple[BlockAddress, int]] = []
        used = rows = 0
        most_rows = math.inf if self.request.limit is None else self.request.limit
        for address, outcome, size in zip(addresses, self.selection.outcome.tolist(), sizes, strict=True):
            if window and (used + size > window_bytes or rows >= most_rows):
                yield window
                window, used, rows = [], 0, 0
                most_rows *= 2
            window.append((address, outcome))
            used += size
            rows += address.row_count
        if window:
            yield window

    def _threads(self, window: Sequence[object]) -> int:
        return min(len(window), cpu_threads() if self._storage.is_local else IO_THREADS)

    def _read(self, address: BlockAddress, outcome: int, tally: _Tally | None, use: Use | None) -> pa.Table:
        env = self._env
        started, cpu = (env.elapsed(), env.cpu()) if tally else (0.0, 0.0)
        condition = self.request.condition if outcome == SOME else None
        schema = self.snapshot.schema
        wanted = list(self.columns)
        wanted += [name for name in condition_columns(condition, schema) if name not in wanted]
        with BlockFile(self._storage, address, ahead=True) as file:
            projection = file.projection(schema, wanted)
            groups = file.row_groups(condition, schema)
            if self.request.limit is not None and condition is None:
                groups = _first_groups(file, groups, self.request.limit)
            table = file.read(groups, projection, use_threads=tally is None and self._storage.is_local)
            rows_read = table.num_rows
            if condition is not None:
                table = table.filter(rows_satisfying(table, condition, schema)).select(list(self.columns))
            if use:
                if use.bytes_a_row is None and rows_read:
                    use.bytes_a_row = _bytes_a_row(file, groups, leaves_under(schema, wanted))
                use.add(address.path, rows_read, table.num_rows)
            if tally:
                cpu_seconds = env.cpu() - cpu
                tally.blocks.append(
                    BlockScan(
                        path=address.path,
                        rows_read=rows_read,
                        rows_matched=table.num_rows,
                        bytes_matched=table.nbytes,
                        column_bytes=file.column_bytes(groups, leaves_under(schema, wanted)),
                        io_seconds=max(0.0, env.elapsed() - started - cpu_seconds),
                        cpu_seconds=cpu_seconds,
                    )
                )
        return table

    def _query(self, use: Use, tally: _Tally | None) -> Query:
        """Return the scan as one of the queries of the table."""
        request, schema = self.request, self.snapshot.schema
        names = [] if request.columns is None else list(request.columns)
        names += [
            name for name in condition_columns(request.condition, schema) if names and name not in names
        ]
        blocks, rows, matched = use.totals()
        return Query(
            time=self._env.now(),
            where=sql_of(request.where if request.is_sql else None, request.condition),
            columns=tuple(names),
            blocks_read=blocks,
            blocks_total=self.selection.blocks_total,
            bytes_read=round(rows * (use.bytes_a_row or 0.0)),
            rows_read=rows,
            rows_matched=matched,
            seconds=self._env.elapsed() - use.started,
            cpu_seconds=sum(block.cpu_seconds for block in tally.blocks) if tally else None,
            snapshot=str(self.snapshot.sequence),
            blocks=use.uses(),
        )

    def _report(self, tally: _Tally, seconds: float, *, complete: bool) -> ScanReport:
        return ScanReport(
            table=self._storage.url,
            snapshot=self.snapshot.sequence,
            where=self.request.where,
            columns=tuple(self.columns),
            blocks_total=self.selection.blocks_total,
            blocks_pruned=self.selection.blocks_pruned,
            blocks_read=len(tally.blocks),
            rows=tally.rows,
            complete=complete,
            io_seconds=sum(block.io_seconds for block in tally.blocks),
            cpu_seconds=sum(block.cpu_seconds for block in tally.blocks),
            seconds=seconds,
            blocks=tuple(tally.blocks),
        )


def sql_of(text: str | None, condition: Node | None) -> str:
    """Return a condition as text of SQL for a log; empty for none.

    Args:
        text: as somebody wrote it; None for an expression.
        condition: the same, resolved.
    """
    if condition is None or (text is not None and len(text) <= MOST_WHERE):
        return text or ""
    from tblctl.tableformat.predicate.as_sql import as_sql

    found = as_sql(condition)
    return found if len(found) <= MOST_WHERE else ""


def _bytes_a_row(file: BlockFile, groups: Sequence[int], leaves: Sequence[Leaf]) -> float:
    """Return the compressed bytes of a row in some columns, as in the row group in the middle.

    Adding up those of all blocks and row groups would take hundredths of the scan.
    """
    group = groups[len(groups) // 2]
    rows = int(file.metadata.row_group(group).num_rows)
    return sum(file.column_bytes([group], leaves).values()) / max(1, rows)


def blame_expiry(storage: Storage, sequence: int, error: CorruptTableError) -> None:
    """Raise the error that a snapshot expired while it was read, if its objects are missing for that reason."""
    if isinstance(load_version(storage, sequence), Tombstone):
        msg = (
            f"snapshot {sequence} of {storage.url} expired while it was read: gc removed it. Read a newer one, or tag "
            "snapshots that are read for longer than gc's --older-than"
        )
        raise SnapshotNotFoundError(msg, sequence=sequence) from error


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What a scan would read, as in `ScanExplanation`."""

    blocks_total: int
    blocks_pruned: int
    blocks_read: int
    blocks_whole: int
    bytes_to_read: int
    segments_total: int
    segments_pruned: int


def explained(scanner: Scanner) -> Explained:
    """Return what a scan would read, from metadata alone."""
    schema = scanner.snapshot.schema
    selection = scanner.selection
    names = [*scanner.columns, *condition_columns(scanner.request.condition, schema)]
    sizes = [f"column_{leaf.id}_compressed_bytes" for leaf in leaves_under(schema, names)]
    selection.metadata.fetch(sizes)
    return Explained(
        blocks_total=selection.blocks_total,
        blocks_pruned=selection.blocks_pruned,
        blocks_read=len(selection.rows),
        blocks_whole=int(np.count_nonzero(selection.outcome == ALL)),
        bytes_to_read=sum(selection.sum_of(name) for name in sizes),
        segments_total=selection.segments_total,
        segments_pruned=selection.segments_total - len(selection.metadata.segments),
    )


def _enough(selection: Selection, limit: int) -> Selection:
    """Return the fewest first blocks that certainly hold `limit` matching rows, if there are such blocks."""
    counts = selection.metadata.row_count[selection.rows]
    sure = np.flatnonzero(selection.outcome == ALL)
    sums = np.cumsum(counts[sure])
    if limit == 0 or (len(sums) and sums[-1] >= limit):
        keep = sure[: int(np.searchsorted(sums, limit)) + 1] if limit else sure[:0]
        return dataclasses.replace(selection, rows=selection.rows[keep], outcome=selection.outcome[keep])
    return selection


def _first_groups(file: BlockFile, groups: Sequence[int], limit: int) -> list[int]:
    """Return the first row groups that together have `limit` rows."""
    chosen, rows = [], 0
    for group in groups:
        if rows >= limit:
            break
        chosen.append(group)
        rows += file.metadata.row_group(group).num_rows
    return chosen


def leaves_under(schema: Schema, names: Sequence[str]) -> list[Leaf]:
    """Return the leaves of the named columns or fields."""
    return [
        leaf
        for leaf in schema.leaves
        if any(leaf.name == name or leaf.name.startswith(f"{name}.") for name in names)
    ]


def projected_schema(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the read schema of `columns`.

    Raises:
        UnknownColumnError: the schema has no such column.
    """
    if not columns:
        msg = "a scan needs at least one column"
        raise InvalidOptionError(msg)
    return Projection.plan(schema.arrow, schema, list(columns)).schema
