"""A table as an engine or a notebook embeds it: change, read, keep in order."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.as_of import AsOf, sequence_of
from tblctl.conditions import resolved
from tblctl.results import (
    BlockInfo,
    CheckReport,
    GcOutcome,
    Outcome,
    SnapshotInfo,
    WriteOutcome,
    write_outcome,
)
from tblctl.scan import Scan
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.formats import port_of
from tblctl.tableformat.model.options import parse_duration
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import type_from_text
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log import alter
from tblctl.tableformat.native.log.head import load_readable
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    import pyarrow.dataset
    from pyiceberg.expressions import BooleanExpression

    from tblctl.advise.suggest import Suggestion
    from tblctl.maintain.measure import MeasuredVersion
    from tblctl.metrics.information import ClusteringInfo
    from tblctl.pictures.depths import DepthPoint
    from tblctl.selector.options import SelectOptions
    from tblctl.selector.plan import Plan
    from tblctl.tableformat.model.scan_report import ScanReport
    from tblctl.tableformat.port import TablePort, Version

    Where = str | BooleanExpression | None

_SHOWN_WHERE = 500  # characters of a condition that history keeps, for ever


class Table:
    """One table. Handles may be shared between threads, and pickled; their repr holds no secrets.

    A handle opened without `as_of` always acts on the newest snapshot. One opened with `as_of` reads that snapshot,
    and refuses changes.
    """

    def __init__(
        self,
        native: NativeTable,
        *,
        pinned: Snapshot | None = None,
        on_scan: Callable[[ScanReport], None] | None = None,
    ) -> None:
        self._native = native
        self._pinned = pinned
        self._on_scan = on_scan

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """Where the table is, without user information."""
        return self._native.storage.url

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the types they were declared with."""
        return self._version().schema.logical

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The cluster key's terms; empty without one."""
        return alter.key_terms(self._version())

    @property
    def options(self) -> dict[str, Any]:
        """The options, by name."""
        return self._version().options.to_json()

    @property
    def snapshot(self) -> SnapshotInfo:
        """The version that reads see now."""
        version = self._version()
        return SnapshotInfo.of(version, self._native.head() if self._pinned else version)

    def _version(self) -> Snapshot:
        return self._pinned or self._native.head()

    def _live(self) -> NativeTable:
        if self._pinned is not None:
            msg = (
                f"this handle of {self.location} is pinned to snapshot {self._pinned.sequence} and only reads; "
                "open the table without as_of to change it"
            )
            raise InvalidOptionError(msg)
        return self._native

    @property
    def _port(self) -> TablePort[Version]:
        return port_of(self._native.storage, self._native.env)

    def _port_version(self) -> Version:
        return self._port.newest() if self._pinned is None else self._port.version(self._pinned.sequence)

    def _versions(self, as_ofs: Sequence[AsOf]) -> list[Version]:
        head = self._native.head()
        return [self._port.version(sequence_of(self._native, head, at)) for at in as_ofs]

    def __repr__(self) -> str:
        pinned = f", as_of={self._pinned.sequence}" if self._pinned else ""
        return f"tblctl.Table({self.location!r}{pinned})"

    # -- changing rows ------------------------------------------------------------------------------------------

    def append(
        self,
        data: Any,
        *,
        memory_bytes: int | None = None,
        recluster: bool = False,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        """Add rows.

        Args:
            data: a pyarrow Table, RecordBatch, RecordBatchReader or Dataset; anything with `__arrow_c_stream__`
                (Polars, pandas, DuckDB); a path of a Parquet or Arrow file, or several; a DataFrame of Spark's, whose
                session writes it.
            memory_bytes: budget for rows held at a time, by each task of Spark's; None for the table's option.
            recluster: then carry out one round, as the table's option `recluster.auto` has it after every write. Its
                failure is a warning in the log, and no error: the rows are in the table.
            progress: is called with (done, total or None, unit).

        Raises:
            SchemaMismatchError: lists every difference.
            InvalidDataError: unreadable input, or a null where none may be.
        """
        return self._write(
            "append",
            data=data,
            memory_bytes=memory_bytes,
            recluster=recluster,
            progress=progress,
            nothing="the input has no rows",
        )

    def delete(self, where: Where, *, progress: Progress | None = None) -> WriteOutcome:
        """Remove the rows that satisfy the condition at the commit; not those for which it is NULL."""
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
            progress: is called with (done, total or None, unit).
        """
        return self._write("update", where=where, assign=set, progress=progress, nothing="no row matches")

    def overwrite(
        self,
        data: Any,
        where: Where = None,
        *,
        memory_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        """Put `data` in the place of the rows that satisfy the condition (all rows for None) at the commit, in it."""
        return self._write(
            "overwrite",
            data=data,
            where=where,
            memory_bytes=memory_bytes,
            progress=progress,
            nothing="no row matches and the input has no rows",
        )

    def _write(
        self,
        operation: str,
        *,
        nothing: str,
        data: Any = None,
        where: Any = None,
        assign: Mapping[str, Any] | str | None = None,
        memory_bytes: int | None = None,
        recluster: bool = False,
        progress: Progress | None = None,
    ) -> WriteOutcome:
        native = self._live()
        started = native.env.elapsed()
        source = part = None
        if type(data).__module__.startswith("pyspark.sql."):
            from tblctl.spark.frames import write_frame

            part = write_frame(data, native, memory_bytes)
        elif data is not None or operation in {"append", "overwrite"}:
            from tblctl.tableformat.native.write.source import open_source

            source = open_source(data, native.storage.elsewhere)
        if isinstance(assign, str):
            from tblctl.tableformat.predicate.sql.conditions import parse_assignments

            assign = parse_assignments(assign, native.head().schema)
        published = native.write(
            operation,
            source=source,
            part=part,
            condition=None if where is None else lambda head: resolved(where, head.schema),
            everything=where is None and operation in {"update", "overwrite"},
            assign=assign,
            memory_bytes=memory_bytes,
            detail={} if where is None else {"where": str(where)[:_SHOWN_WHERE]},
            progress=progress,
        )
        outcome = write_outcome(operation, native.env, started, published, nothing)
        head = published and published.snapshot
        if head and (recluster or (head.options.recluster_auto and head.sort)):
            from tblctl.maintain.recluster import round_after_write

            written = f"snapshot {head.sequence} of {self.location} is written"
            return dataclasses.replace(outcome, recluster=round_after_write(self.recluster, written))
        return outcome

    # -- changing what it is --------------------------------------------------------------------------------------

    def set_cluster_key(self, terms: str | Sequence[str]) -> WriteOutcome:
        """Cluster by other terms from now on. Nothing is rewritten: blocks in another order count as unclustered."""
        return self._change("alter", lambda head: alter.set_key(head, terms))

    def drop_cluster_key(self) -> WriteOutcome:
        """Cluster no more."""
        return self._change("alter", alter.drop_key)

    def add_column(self, path: str, type: pa.DataType | str) -> WriteOutcome:
        """Add a nullable column; rows that are there have null in it. `path` may lead through structs: `a.b`."""
        kind = type_from_text(type) if isinstance(type, str) else type
        return self._change_schema(
            lambda schema: schema.add_column(path, kind), {"add_column": path, "type": str(kind)}
        )

    def rename_column(self, path: str, new_name: str) -> WriteOutcome:
        """Give a column another name, in all versions of rows."""
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
        """Change how data is written from now on; see `tblctl.OPTION_DOCS`."""
        return self._change("alter", lambda head: alter.set_options(head, values))

    def _change_schema(self, change: Callable[[Schema], Schema], detail: Mapping[str, Any]) -> WriteOutcome:
        return self._change("alter", lambda head: alter.change_schema(head, change, detail))

    def _change(self, operation: str, change: Callable[[Snapshot], Snapshot]) -> WriteOutcome:
        native = self._live()
        started = native.env.elapsed()
        return write_outcome(operation, native.env, started, native.change(change), "")

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
            limit: at most so many rows, in no particular order.

        Raises:
            InvalidPredicateError, UnknownColumnError: at once, with the position in the text.
        """
        from tblctl.tableformat.native.read.scan import Scanner, ScanRequest

        version = self._version()
        request = ScanRequest(
            where=None if where is None else str(where),
            condition=resolved(where, version.schema),
            columns=None if columns is None else tuple([columns] if isinstance(columns, str) else columns),
            limit=limit,
        )
        native = self._native
        return Scan(Scanner(native.storage, native.env, version, request, self._on_scan))

    def info(
        self,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        worst: int = 5,
    ) -> ClusteringInfo:
        """Return how well the table is clustered.

        Args:
            columns: measure as if clustered by these terms, from column statistics; None for the cluster key.
            where: only the blocks that may hold rows satisfying the condition.
            worst: how many of the deepest ranges of keys to tell at most.

        Raises:
            InvalidKeyError: no `columns`, and the table has no cluster key; a term that is none.
        """
        from tblctl.maintain.measure import table_info

        version = self._port_version()
        return table_info(version, columns, resolved(where, version.schema), worst=worst)

    def compare(
        self, before: AsOf, after: AsOf, *, columns: str | Sequence[str] | None = None, where: Where = None
    ) -> tuple[MeasuredVersion, ...]:
        """Return how well two versions, each as in `open`, are clustered, both by the key of the second.

        Args and errors are those of `picture`.
        """
        from tblctl.maintain.measure import measure_versions

        versions = self._versions((before, after))
        return measure_versions(versions, columns, lambda schema: resolved(where, schema))

    def depth_history(self, limit: int = 20) -> tuple[DepthPoint, ...]:
        """Return average depth and overlaps after each of the last snapshots, newest first.

        Reclusters recorded theirs; the others are measured, where that can still be done.
        """
        from tblctl.pictures.depths import depth_history

        return depth_history(self.history(limit), self._port.version)

    def suggest(self, predicates: str | Sequence[str] | None = None) -> Suggestion:
        """Return columns that the table could be clustered by, best first, from its statistics alone.

        Args:
            predicates: conditions that queries typically have: a text with one a line, or each ended by `;`; or one
                condition in each text. Columns then rank by the blocks that these would read; for None by depth.

        Raises:
            InvalidPredicateError: names line and column in the text.
        """
        from tblctl.advise.suggest import read_predicates, suggest

        version = self._port_version()
        conditions = [] if predicates is None else read_predicates(predicates, version.schema)
        return suggest(version, conditions, self.cluster_by)

    def picture(
        self,
        path: str | os.PathLike[str],
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        compare: tuple[AsOf, AsOf] | None = None,
    ) -> None:
        """Draw how well the table is clustered: where its blocks lie, how deep, and how it came about.

        Args:
            path: a file, replaced if it is there. Its name ends with .svg, .png or .html; the page tells of the blocks
                that are pointed at.
            columns: as for `info`.
            where: as for `info`.
            compare: two versions, each as in `open`, side by side on one axis of keys, by the key of the second.

        Raises:
            InvalidOptionError: another format, the file cannot be written, or matplotlib (the extra `pictures`) is
                not installed.
            InvalidKeyError: as for `info`.
            SnapshotNotFoundError: `compare` names no readable snapshot.
        """
        from tblctl.pictures.file import picture_format, write_picture
        from tblctl.pictures.picture import SNAPSHOTS_SHOWN, history_up_to, make_picture

        picture_format(path)
        shown = [self._port_version()] if compare is None else self._versions(compare)
        last, head = shown[-1], self._native.head().sequence
        newest = self.history(head - last.sequence + SNAPSHOTS_SHOWN)
        history = history_up_to(last.sequence, newest, self._port.version)
        text = None if where is None else str(where)
        found = make_picture(shown, columns, lambda schema: resolved(where, schema), history, where=text)
        write_picture(found, path)

    def to_spark(self, session: Any) -> Any:
        """Return this version as a DataFrame of a Spark session's, classic or Connect; see `tblctl.spark`."""
        from tblctl.spark.frames import read_frame

        return read_frame(session, self._native, self._pinned.sequence if self._pinned else None)

    def to_dataset(self) -> pyarrow.dataset.Dataset:
        """Return a pyarrow dataset; engines skip blocks. Reads are verified (of older blocks pages, not headers)."""
        from tblctl.tableformat.native.read.dataset import to_dataset

        return to_dataset(self._native.storage, self._version())

    def files(self, limit: int | None = None) -> list[BlockInfo]:
        """Return the live blocks, or the first `limit` of them."""
        from tblctl.tableformat.native.read.listing import list_blocks

        return [BlockInfo.of(*item) for item in list_blocks(self._native.storage, self._version(), limit)]

    def history(self, limit: int | None = None) -> list[SnapshotInfo]:
        """Return the versions, newest first; those that gc expired are no longer `readable`."""
        return [SnapshotInfo.of(version, head) for version, head in self._native.history(limit)]

    # -- keeping it in order ---------------------------------------------------------------------------------------

    def plan(
        self,
        policy: str = "levels",
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
    ) -> Plan:
        """Return what one round of `recluster` would do, and why. Nothing is written.

        Args:
            policy: levels, full, or one that a program added with `tblctl.policies.register`.
            where: only blocks that may hold rows satisfying the condition are merged.
            options: what to select at most, and how far to go; see `tblctl.SelectOptions`. Sizes may be text.

        Raises:
            InvalidKeyError: the table has no cluster key.
            InvalidOptionError: lists every problem.
        """
        from tblctl.maintain.request import Request, make_plan

        request = Request.of(policy=policy, condition=lambda schema: resolved(where, schema), options=options)
        return make_plan(self._port_version(), request)

    def recluster(
        self,
        plan: Plan | None = None,
        *,
        policy: str | None = None,
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
        final: bool = False,
        engine: str = "auto",
        spark: Any = None,
        on_conflict: str = "salvage",
        commit_every: int | str | datetime.timedelta | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Merge overlapping blocks, so that a key is in few of them. The rows stay the same; writers are not held up.

        Args:
            plan: what to merge, from `plan`; groups of it that others changed since are reported and left out.
            policy: levels (for None) or full.
            where: only blocks that may hold rows satisfying the condition are merged.
            options: see `tblctl.SelectOptions`; sizes may be text.
            final: round after round, until there is nothing to do; otherwise one, and another if it committed nothing
                because groups failed, whose blocks are then left alone. It may never end beside a
                writer that never pauses; what options limit holds for every round by itself. Blocks that are not
                sorted by the current key are merged too, unless the options say otherwise.
            engine: local (this process), spark, or auto: Spark if a session is given, or for a round of more than
                64 GiB in memory.
            spark: your SparkSession, classic or Connect, which is not stopped; or a function that returns what opens
                one, such as `lambda: tblctl.spark_session(master="spark://h:7077")`, called when there is something to
                merge. None: one on this machine if needed.
            on_conflict: when other writers took away blocks meanwhile, salvage commits the groups that are left, fail
                raises and commits nothing more: with `commit_every`, what the round committed before stays.
            commit_every: commit whenever so many groups of a round are merged (8), or whenever a group is merged and
                the last commit is so long ago ("60s", "5m", a timedelta), and what is left at the round's end. Who is
                killed then keeps what was committed. None: one commit a round.
            progress: is called with (done, total, unit), the unit being rows or groups of the round.

        Raises:
            InvalidKeyError: the table has no cluster key.
            InvalidOptionError: arguments that contradict each other; a plan of another table.
            ConflictError: with `on_conflict="fail"`.
        """
        from tblctl.maintain.choose_engine import engines
        from tblctl.maintain.recluster import recluster
        from tblctl.maintain.request import Request

        if plan is not None and (policy is not None or where is not None or options is not None or final):
            msg = "a plan says what one round does: leave out policy, where, options and final, or the plan"
            raise InvalidOptionError(msg)
        request = Request.of(
            policy=policy,
            condition=lambda schema: resolved(where, schema),
            options=options,
            final=final,
            on_conflict=on_conflict,
            commit_every=commit_every,
            progress=progress,
        )
        native = self._live()
        with engines(engine, spark, self.location) as engine_for:
            return recluster(port_of(native.storage, native.env), request, engine_for, plan=plan)

    def rollback(self, to: AsOf) -> WriteOutcome:
        """Make the table again what it was: rows, schema, cluster key and options. Itself a new snapshot."""
        native = self._live()
        started = native.env.elapsed()
        sequence = sequence_of(native, native.head(), to)
        return write_outcome("rollback", native.env, started, native.roll_back(sequence), "")

    def tag(self, name: str, at: AsOf = None) -> WriteOutcome:
        """Name a version (the newest for None), so that gc keeps it. A tag that exists moves."""
        native = self._live()
        head = native.head()
        sequence = head.sequence if at is None else sequence_of(native, head, at)
        load_readable(native.storage, head, sequence)
        return self._change("tag", lambda newest: alter.set_tag(newest, name, sequence))

    def delete_tag(self, name: str) -> WriteOutcome:
        """Remove a tag; the version stays as long as gc lets it."""
        return self._change("untag", lambda head: alter.delete_tag(head, name))

    def tags(self) -> dict[str, int]:
        """Return the sequences by tag."""
        return dict(self._native.head().tags)

    def gc(
        self,
        keep: int = 10,
        older_than: float | str | datetime.timedelta = "24h",
        *,
        dry_run: bool = False,
    ) -> GcOutcome:
        """Expire old versions and delete what nothing names any more.

        Args:
            keep: so many of the newest versions stay (gc's own do not count), beside tagged ones.
            older_than: seconds, a timedelta, or text such as "24h": nothing younger is touched, by the storage's times.
                A write that takes longer than this is refused at its commit (`ConflictError`); a shorter one never.
            dry_run: only tell; ages are then by this machine's clock.

        Raises:
            ClockError: this machine's clock and the storage's differ by more than five minutes.
        """
        if isinstance(older_than, datetime.timedelta):
            older_than = older_than.total_seconds()
        seconds = parse_duration(older_than) if isinstance(older_than, str) else float(older_than)
        found = self._live().collect_garbage(keep=keep, older_than_seconds=seconds, dry_run=dry_run)
        return GcOutcome(
            dry_run=dry_run,
            snapshots_expired=found.sequences,
            objects_deleted=tuple(item.name for item in found.objects),
            bytes_deleted=sum(item.size_bytes for item in found.objects),
        )

    def reset_clock(self) -> WriteOutcome:
        """Set right the time of a table that a writer with a clock far ahead committed to; else change nothing.

        Such a commit dates every later one as late as itself. This one is dated rightly, and marked for `as_of`.
        """
        native = self._live()
        started = native.env.elapsed()
        published = native.reset_clock()
        return write_outcome("alter", native.env, started, published, "the newest snapshot is not ahead")

    def check(self, deep: bool = False, *, progress: Progress | None = None) -> CheckReport:
        """Verify every invariant of the format; `deep` reads all data too. Changes nothing."""
        found = self._native.check(deep=deep, progress=progress)
        return CheckReport(
            ok=not found.problems,
            deep=deep,
            snapshots=found.snapshots,
            segments=found.segments,
            blocks=found.blocks,
            rows=found.rows,
            problems=found.problems,
        )
