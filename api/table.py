"""A table in the native format, for engines and notebooks: change it, read it, keep it in order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.as_of import AsOf, version_as_of
from tblctl.clustered import ClusteredTable
from tblctl.conditions import resolved
from tblctl.results import BlockInfo, ExportOutcome, WriteOutcome
from tblctl.scan import Scan
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import ASYNC, INLINE, OFF, POLICY
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import type_from_text
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log import alter
from tblctl.tableformat.native.port import NativePort, NativeVersion
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    import pyarrow.dataset
    from pyiceberg.expressions import BooleanExpression

    from tblctl.tableformat.model.scan_report import ScanReport
    from tblctl.tableformat.native.log.commit import Published
    from tblctl.tableformat.native.write.input_rows import InputRows
    from tblctl.tableformat.native.write.write_planner import Taken
    from tblctl.tableformat.native.write.writer import OrderOf

    Where = str | BooleanExpression | None

_SHOWN_WHERE = 500  # characters of a condition that history keeps, for ever


class Table(ClusteredTable):
    """One table. Handles can be shared between threads and pickled. Their repr holds no secrets.

    A handle opened without `as_of` always acts on the newest snapshot. A handle opened with `as_of` reads that snapshot
    and refuses changes.
    """

    def __init__(
        self,
        native: NativeTable,
        *,
        pinned: Snapshot | None = None,
        on_scan: Callable[[ScanReport], None] | None = None,
        record: str | None = None,
    ) -> None:
        version = None if pinned is None else NativeVersion(native.storage, pinned)
        super().__init__(NativePort(native), pinned=version)
        self._native = native
        self._pinned_snapshot = pinned
        self._on_scan = on_scan
        self._record = record

    def _snapshot(self) -> Snapshot:
        return self._pinned_snapshot or self._native.head()

    def _live(self) -> NativeTable:
        self._require_live()
        return self._native

    # -- changing rows ------------------------------------------------------------------------------------------

    def append(
        self,
        data: Any,
        *,
        hive: bool | None = None,
        memory_bytes: int | None = None,
        recluster: bool = False,
        source_options: Callable[[str], Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        """Add rows. Columns that may be null may be absent, and types are cast where no value changes.

        Args:
            data: a pyarrow Table, RecordBatch, RecordBatchReader or Dataset; anything with `__arrow_c_stream__`
                (Polars, DuckDB; pandas, with the named parts of its index); the path of a Parquet or Arrow file, of a
                folder of Parquet files, a glob, or several of these; a Spark DataFrame, whose session writes it.
            hive: whether folders `key=value` in such paths are columns. None refuses files that lie in such folders,
                unless they have the columns themselves.
            memory_bytes: memory budget for rows, in each task if Spark writes; None for the table's option.
            recluster: carry out one round afterwards, whatever the table's option `recluster.mode` says. If it, or what
                that mode calls for, fails, the log has a warning, and no error is raised: the rows are in the table.
            source_options: returns options of the fsspec filesystem for the files at a path or URL of a folder; None
                for those of the table.
            progress: called with (done, total or None, unit).

        Raises:
            SchemaMismatchError: lists every difference.
            InvalidOptionError: there are no such files; or `hive` is None and folders have columns.
            InvalidDataError: the input is unreadable, or has a null in a column that allows none.
        """
        return self._write(
            "append",
            data=data,
            hive=hive,
            memory_bytes=memory_bytes,
            recluster=recluster,
            source_options=source_options,
            progress=progress,
            nothing="the input has no rows",
        )

    def _take(
        self,
        rows: InputRows,
        taken: Taken,
        detail: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        recluster: bool,
    ) -> tuple[WriteOutcome, Snapshot] | None:
        """Add the rows of imported files; None if another import took some of them."""
        native = self._live()
        started = native.env.elapsed()
        published = native.write(
            "append",
            source=rows,
            order_on=self._order_on,
            taken=taken,
            memory_bytes=memory_bytes,
            detail=detail,
        )
        if published is None:
            return None
        outcome = _write_outcome("append", native.env, started, published, "")
        return self._followed(outcome, published.snapshot, recluster), published.snapshot

    def delete(self, where: Where, *, progress: Progress | None = None) -> WriteOutcome:
        """Remove the rows that satisfy the condition at the commit. Rows for which it is NULL stay."""
        if where is None:
            msg = 'delete needs a condition; where="true" removes every row'
            raise InvalidOptionError(msg)
        return self._write("delete", where=where, progress=progress, nothing="no row matches")

    def update(
        self,
        set: Mapping[str, Any] | str,
        where: Where = None,
        *,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        """Set columns to values in the rows that satisfy the condition at the commit (all rows for None).

        Args:
            set: values by column, or text such as "l_tax = 0, l_comment = NULL".
            where: the condition.
            progress: called with (done, total or None, unit).
        """
        return self._write("update", where=where, assign=set, progress=progress, nothing="no row matches")

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        hive: bool | None = None,
        memory_bytes: int | None = None,
        source_options: Callable[[str], Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        """Replace the rows that satisfy the condition at the commit (all rows for None) by `data`, in one commit.

        `data`, `hive` and `source_options` are as for `append`.
        """
        return self._write(
            "overwrite",
            data=data,
            hive=hive,
            where=where,
            memory_bytes=memory_bytes,
            source_options=source_options,
            progress=progress,
            nothing="no row matches and the input has no rows",
        )

    def _write(
        self,
        operation: str,
        *,
        nothing: str,
        data: Any = None,
        hive: bool | None = None,
        where: Any = None,
        assign: Mapping[str, Any] | str | None = None,
        memory_bytes: int | None = None,
        recluster: bool = False,
        source_options: Callable[[str], Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        native = self._live()
        started = native.env.elapsed()
        source = staged = None
        if type(data).__module__.startswith("pyspark.sql."):
            from tblctl.spark.frames import write_frame

            staged = write_frame(data, native, memory_bytes)
        elif data is not None or operation in {"append", "overwrite"}:
            source = self._opened(data, hive, source_options)
        if isinstance(assign, str):
            from tblctl.tableformat.predicate.sql.conditions import parse_assignments

            assign = parse_assignments(assign, native.head().schema)
        published = native.write(
            operation,
            source=source,
            order_on=self._order_on,
            staged=staged,
            condition=None if where is None else lambda head: resolved(where, head.schema),
            everything=where is None and operation in {"update", "overwrite"},
            assign=assign,
            memory_bytes=memory_bytes,
            detail={} if where is None else {"where": str(where)[:_SHOWN_WHERE]},
            progress=progress,
        )
        outcome = _write_outcome(operation, native.env, started, published, nothing)
        return self._followed(outcome, published.snapshot, recluster) if published else outcome

    def _order_on(self, head: Snapshot) -> OrderOf | None:
        """Return what chooses the order of new rows; None for the cluster key."""
        if head.options.recluster_policy is None:
            return None
        from tblctl.maintain.arrival import order_of_rows

        row_bytes = head.data_bytes / head.row_count if head.row_count else None
        return order_of_rows(
            self._port, NativeVersion(self._native.storage, head), stored_row_bytes=row_bytes
        )

    def _opened(
        self,
        data: Any,
        hive: bool | None,
        options_of: Callable[[str], Mapping[str, Any]] | None,
    ) -> InputRows:
        """Return the rows of data that is not Spark's."""
        from tblctl.tableformat.native.write.input_rows import are_paths, open_source

        native = self._native

        def reach(place: str) -> Storage:
            return Storage(place, options_of(place)) if options_of else native.storage.elsewhere(place)

        if are_paths(data):
            from tblctl.importing_work import rows_of
            from tblctl.sources import are_plain_files, warn_of_nulls_in

            if not are_plain_files(data, hive):
                return rows_of(data, reach, hive=hive, schema=native.head().schema)
            found = open_source(data, reach)
            if hive is False:
                warn_of_nulls_in(data, found.schema, native.head().schema.names)
            return found
        return open_source(data, reach)

    def _followed(self, outcome: WriteOutcome, head: Snapshot, recluster: bool) -> WriteOutcome:
        """Do what is to follow a commit that wrote rows; return its outcome with what that did."""
        mode = INLINE if recluster else head.due_mode
        if mode == OFF:
            return outcome
        from tblctl.maintain.after_write import follow_up

        if mode == ASYNC:
            self._in_background = head.table_id
        done = follow_up(
            self._port,
            mode,
            table_id=head.table_id,
            written=f"snapshot {head.sequence} of {self.location} is written",
            recluster=self.recluster,
        )
        return dataclasses.replace(outcome, recluster=done.recluster, note=done.note)

    # -- changing what it is --------------------------------------------------------------------------------------

    def set_cluster_key(self, terms: str | Sequence[str], *, why: str = "") -> WriteOutcome:
        """Cluster by other terms from now on. Nothing is rewritten; blocks in another order count as unclustered.

        Args:
            terms: as for `tblctl.create`; or "same", which makes new boundaries for a zorder or hilbert key from the
                rows of now.
            why: the reason, for the history.

        Raises:
            InvalidKeyError: the terms are not valid; or there are no rows to make a curve or a tree from.
            InvalidPredicateError: a condition in the file of a qdtree key is not valid.
        """
        native = self._live()
        started = native.env.elapsed()
        return _write_outcome("alter", native.env, started, native.set_key(terms, why), "")

    def drop_cluster_key(self) -> WriteOutcome:
        """Remove the cluster key: later writes are not clustered."""
        return self._change("alter", alter.drop_key, warns=True)

    def add_column(self, path: str, type: pa.DataType | str) -> WriteOutcome:
        """Add a nullable column. Existing rows have null in it. `path` may lead through structs: `a.b`."""
        kind = type_from_text(type) if isinstance(type, str) else type
        return self._change_schema(
            lambda schema: schema.add_column(path, kind), {"add_column": path, "type": str(kind)}
        )

    def rename_column(self, path: str, new_name: str) -> WriteOutcome:
        """Give a column another name, for old and new rows alike. No row is rewritten."""
        return self._change_schema(
            lambda schema: schema.rename_column(path, new_name), {"rename_column": path, "to": new_name}
        )

    def drop_column(self, path: str) -> WriteOutcome:
        """Remove a column."""
        return self._change_schema(lambda schema: schema.drop_column(path), {"drop_column": path})

    def widen_column(self, path: str, type: pa.DataType | str) -> WriteOutcome:
        """Give a column a type that holds all its values without loss."""
        kind = type_from_text(type) if isinstance(type, str) else type
        return self._change_schema(
            lambda schema: schema.widen_column(path, kind), {"widen_column": path, "type": str(kind)}
        )

    def set_options(self, values: Mapping[str, Any]) -> WriteOutcome:
        """Change how data is written from now on; see `tblctl.OPTION_DOCS`.

        The log warns of a `recluster.mode` that has no effect, since the table has no cluster key.

        Raises:
            InvalidOptionError: lists every problem; or `recluster.policy` names no policy that is known here.
        """
        if POLICY in values:
            from tblctl.policies import require_policy_of

            require_policy_of(values)
        return self._change("alter", lambda head: alter.set_options(head, values), warns=True)

    def _change_schema(self, change: Callable[[Schema], Schema], detail: Mapping[str, Any]) -> WriteOutcome:
        return self._change("alter", lambda head: alter.change_schema(head, change, detail))

    def _change(
        self, operation: str, change: Callable[[Snapshot], Snapshot], *, warns: bool = False
    ) -> WriteOutcome:
        native = self._live()
        started = native.env.elapsed()
        published = native.change(change)
        if warns:
            from tblctl.maintain.after_write import warn_without_key

            head = published.snapshot
            warn_without_key(self.location, head.options, has_key=head.sort is not None)
        return _write_outcome(operation, native.env, started, published, "")

    # -- reading ---------------------------------------------------------------------------------------------------

    def scan(
        self,
        where: Where = None,
        columns: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Return a scan; nothing is read yet.

        Args:
            where: a condition in SQL, or a PyIceberg expression. Rows for which it is NULL are left out.
            columns: names of columns, or of nested fields as `a.b`; None for all.
            limit: the most rows to return, in no particular order.

        Raises:
            InvalidPredicateError, UnknownColumnError: at once, with the position in the text.
        """
        from tblctl.tableformat.native.read.scan import Scanner, ScanRequest
        from tblctl.tableformat.native.record import head_for, recorder_of

        snapshot = self._snapshot()
        request = ScanRequest(
            where=None if where is None else str(where),
            condition=resolved(where, snapshot.schema),
            columns=None if columns is None else tuple([columns] if isinstance(columns, str) else columns),
            limit=limit,
            is_sql=where is None or isinstance(where, str),
        )
        native = self._native
        head = head_for(native, self._record) if self._pinned_snapshot else snapshot
        recorder = recorder_of(native, snapshot, head, self._record)
        return Scan(Scanner(native.storage, native.env, snapshot, request, self._on_scan, recorder=recorder))

    def close(self, *, wait: bool = True) -> None:
        """Do as `ClusteredTable.close`, and write the scans that are to be recorded (`recluster.record`)."""
        super().close(wait=wait)
        if wait:
            from tblctl.tableformat.workload.writer import flush

            flush(self._native.storage.url)

    def head(self, n: int = 10) -> pa.Table:
        """Return at most `n` rows, in no particular order."""
        return self.scan(limit=n).to_arrow()

    def count(self, where: Where = None) -> int:
        """Return how many rows satisfy a condition. Without one nothing but the newest snapshot is read.

        Raises:
            InvalidPredicateError: as for `scan`.
        """
        snapshot = self._snapshot()
        if where is None:
            return snapshot.row_count
        from tblctl.tableformat.native.read.scan import condition_columns

        tested = condition_columns(resolved(where, snapshot.schema), snapshot.schema)
        found = self.scan(where, columns=tested[:1] or snapshot.schema.names[:1])
        return sum(batch.num_rows for batch in found.to_reader())

    def export(
        self,
        directory: str | os.PathLike[str],
        *,
        where: Where = None,
        columns: Iterable[str] | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> ExportOutcome:
        """Write rows of this version as plain Parquet files of about 128 MiB, which any engine reads.

        Args:
            directory: a path or an fsspec URL; nothing may be there.
            where: as for `scan`.
            columns: as for `scan`.
            overwrite: replace the Parquet files that are there, once all new ones are written.
            progress: called with (done, None, unit).

        Raises:
            InvalidOptionError: the folder is not empty; or with `overwrite`, it has other things than Parquet files.
            UnsupportedFormatError: it is a table, or a part of one.
            InvalidPredicateError, UnknownColumnError: as for `scan`.
        """
        from tblctl.exporting import FILE_BYTES, export_rows

        return export_rows(
            self.scan(where, columns),
            self._native.storage.elsewhere(os.fspath(directory)),
            self._native.env,
            overwrite=overwrite,
            file_bytes=FILE_BYTES,
            progress=progress,
        )

    def to_spark(self, session: Any) -> Any:
        """Return this version as a DataFrame of a Spark session, classic or Connect; see `tblctl.spark`."""
        from tblctl.spark.frames import read_frame

        pinned = self._pinned_snapshot
        return read_frame(session, self._native, None if pinned is None else pinned.sequence)

    def to_dataset(self) -> pyarrow.dataset.Dataset:
        """Return a pyarrow dataset. Engines skip blocks. Reads are verified (for older blocks pages, not headers)."""
        from tblctl.tableformat.native.read.dataset import to_dataset

        return to_dataset(self._native.storage, self._snapshot())

    def files(self, limit: int | None = None) -> list[BlockInfo]:
        """Return the live blocks, or the first `limit` of them."""
        from tblctl.tableformat.native.read.listing import list_blocks

        return [BlockInfo.of(*item) for item in list_blocks(self._native.storage, self._snapshot(), limit)]

    # -- keeping it in order ---------------------------------------------------------------------------------------

    def rollback(self, to: AsOf) -> WriteOutcome:
        """Restore rows, schema, cluster key and options of a version, as a new snapshot."""
        native = self._live()
        started = native.env.elapsed()
        sequence = version_as_of(self._port, to).public_id
        return _write_outcome("rollback", native.env, started, native.roll_back(sequence), "")

    def tag(self, name: str, at: AsOf = None) -> WriteOutcome:
        """Name a version (the newest for None), so that gc keeps it. An existing tag moves."""
        self._require_live()
        version = self._port.newest() if at is None else version_as_of(self._port, at)
        sequence = version.public_id
        return self._change("tag", lambda newest: alter.set_tag(newest, name, sequence))

    def delete_tag(self, name: str) -> WriteOutcome:
        """Remove a tag. gc may then expire the version."""
        return self._change("untag", lambda head: alter.delete_tag(head, name))

    def tags(self) -> dict[str, int]:
        """Return the sequences of versions by their tags."""
        return dict(self._native.head().tags)

    def reset_clock(self) -> WriteOutcome:
        """Correct the time of a table after a commit by a writer whose clock was far ahead; else change nothing.

        After such a commit every later one gets at least its time. This commit gets the right time, and is marked for
        `as_of`.
        """
        native = self._live()
        started = native.env.elapsed()
        published = native.reset_clock()
        return _write_outcome("alter", native.env, started, published, "the newest snapshot is not ahead")


def _write_outcome(
    operation: str, env: Environment, started: float, published: Published | None, nothing: str
) -> WriteOutcome:
    """Return what a write did. `nothing` is the reason if it published nothing."""
    summary = published.snapshot.summary if published else None
    return WriteOutcome(
        operation=operation,
        snapshot=published.snapshot.sequence if published else None,
        rows_added=summary.rows_added if summary else 0,
        rows_removed=summary.rows_removed if summary else 0,
        blocks_added=summary.blocks_added if summary else 0,
        blocks_removed=summary.blocks_removed if summary else 0,
        bytes_added=summary.bytes_added if summary else 0,
        seconds=env.elapsed() - started,
        attempts=published.attempts if published else 0,
        note=None if published else f"{nothing}: nothing was committed",
    )
