"""A table in the native format: all operations, over one storage.

Instances hold no state except a cached head, which only saves requests. Threads may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    InternalError,
    InvalidDataError,
    InvalidOptionError,
    InvalidSchemaError,
    TableExistsError,
    TableNotFoundError,
)
from tblctl.tableformat.model.cluster_key import Key, Sort, parse_key
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Batch, Snapshot, Summary, Tombstone
from tblctl.tableformat.native.log import alter
from tblctl.tableformat.native.log.clock import check_clock, is_ahead, microseconds, write_probe
from tblctl.tableformat.native.log.commit import Published, StagedCommit, create_snapshot, publish
from tblctl.tableformat.native.log.head import (
    load_head,
    load_readable,
    load_version,
    newest_listed,
    write_hint,
)
from tblctl.tableformat.native.log.names import is_leftover
from tblctl.tableformat.native.log.snapshot_file import CHECKSUMS_FROM, least_writer
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.place import FOLDER, LogPlace

if TYPE_CHECKING:
    from tblctl.tableformat.keys.tree_making import Layout
    from tblctl.tableformat.native.write.input_rows import InputRows
    from tblctl.tableformat.native.write.staged_write import StagedWrite
    from tblctl.tableformat.native.write.write_planner import OrderOn, Taken
    from tblctl.tableformat.port import Checked, Garbage
    from tblctl.tableformat.predicate.nodes import Node

Condition = Callable[[Snapshot], "Node | None"]
"""Returns a condition on rows, resolved for a snapshot's schema."""

_VERSIONS_AT_ONCE = 64
"""Snapshots that `history` reads and holds at once."""


class NativeTable:
    """One table; all reads and writes of it."""

    def __init__(self, storage: Storage, env: Environment) -> None:
        self.storage = storage
        self.env = env
        self._known: Snapshot | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"storage": self.storage, "env": self.env, "_known": None}

    def head(self) -> Snapshot:
        """Return the newest snapshot. One round trip if it is the one returned last."""
        self._known = load_head(self.storage, self._known)
        return self._known

    @property
    def seen_head(self) -> Snapshot | None:
        """The snapshot that `head` returned last, or that was committed since; None if there was none."""
        return self._known

    def log_place(self) -> LogPlace:
        """Return where the table's queries are recorded."""
        return LogPlace(storage=self.storage, folder=FOLDER, has_table=self.exists)

    def create(
        self,
        schema: pa.Schema,
        cluster_by: str | Sequence[str],
        options: Mapping[str, Any],
        sample: Callable[[], InputRows | None] = lambda: None,
    ) -> Snapshot:
        """Create the table, empty. A curve or a tree is made from the rows that `sample` opens.

        Raises:
            TableExistsError: the location holds a table, or anything else.
            InvalidKeyError: the key is not valid, or a curve or a tree without a sample.
        """
        columns = Schema.create(schema)
        self._check_free()
        chosen = TableOptions.from_mapping(options)
        sorts = {}
        if cluster_by:
            key = parse_key(cluster_by, columns)
            sorts = {1: _first_sort(key, columns, sample, self.storage.elsewhere, chosen.block_rows)}
        snapshot = Snapshot(
            sequence=1,
            commit_id=self.env.new_id(),
            table_id=self.env.new_id(),
            timestamp_ms=self.env.now_ms(),
            schema_id=1,
            schemas={1: columns},
            sorts=sorts,
            cluster_key_id=1 if sorts else None,
            options=chosen,
            segments=(),
            tags={},
            retained_from=1,
            summary=Summary(operation="create", rows=0, blocks=0, data_bytes=0),
            min_writer_version=CHECKSUMS_FROM,
        )
        snapshot = replace(snapshot, min_writer_version=least_writer(snapshot))
        check_clock(self.storage, *write_probe(self.storage, self.env))
        if not create_snapshot(self.storage, self.env, snapshot):
            raise TableExistsError(self._exists_message())
        write_hint(self.storage, 1)
        self._known = snapshot
        return snapshot

    def _check_free(self) -> None:
        if newest_listed(self.storage) is not None:
            raise TableExistsError(self._exists_message())
        if not self.storage.is_empty() and not self._only_leftovers():
            msg = f"{self.storage.url} is not empty; create tables in a place of their own"
            raise TableExistsError(msg)

    def _only_leftovers(self) -> bool:
        """Return whether all objects were left by a killed `create`."""
        names = (item.name for item in self.storage.list())
        first = next(names, None)
        return first is not None and is_leftover(first) and all(map(is_leftover, names))

    def _exists_message(self) -> str:
        return f"there already is a table at {self.storage.url}; `tblctl drop` removes it"

    def exists(self) -> bool:
        """Return whether there is a table."""
        try:
            self.head()
        except TableNotFoundError:
            return False
        return True

    def drop(self) -> None:
        """Delete the table and everything below its root.

        Raises:
            TableNotFoundError: there is none; nothing is deleted.
        """
        if newest_listed(self.storage) is None:
            msg = f"there is no table at {self.storage.url}; nothing was deleted"
            raise TableNotFoundError(msg)
        self.storage.delete_all()
        self._known = None

    def write(
        self,
        operation: str,
        *,
        source: InputRows | None = None,
        order_on: OrderOn | None = None,
        staged: StagedWrite | None = None,
        batch: Batch | None = None,
        taken: Taken | None = None,
        condition: Condition | None = None,
        everything: bool = False,
        assign: Mapping[str, Any] | None = None,
        memory_bytes: int | None = None,
        detail: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Published | None:
        """Add the rows of `source` or `staged`, and remove (with `assign`: change) those that satisfy the condition.

        All in one commit. Returns None if nothing changes, `batch` was committed before, or another import took files
        of `taken`.
        """
        from tblctl.tableformat.native.write.dml import run_write
        from tblctl.tableformat.native.write.write_planner import Write

        head = self.head()
        if source is not None:
            source.require_fit(head.schema)  # refuse before anything is read
        if memory_bytes is not None and memory_bytes < 1:
            msg = f"memory_bytes is {memory_bytes}, expected at least 1"
            raise InvalidOptionError(msg)
        select = None if condition is None else _once_a_schema(condition)
        if select is not None:
            select(head)  # refuse before anything is written
        if assign is not None:
            _assignments(head.schema, assign)
        write = Write(
            operation=operation,
            select=select,
            everything=everything,
            assign=None if assign is None else lambda schema: _assignments(schema, assign),
            rows=None if source is None else lambda schema: _rows_of(source, schema),
            order_on=order_on,
            copy=None if source is None else source.copy,
            staged=staged,
            batch=batch,
            taken=taken,
            memory_bytes=memory_bytes,
            detail=detail or {},
            progress=progress,
        )
        published = run_write(self.storage, self.env, write, head)
        if published:
            self._known = published.snapshot
        return published

    def change(self, change: Callable[[Snapshot], Snapshot]) -> Published:
        """Commit a change that writes no data. `change` is called again after every lost race."""
        published = publish(
            self.storage, self.env, lambda head: StagedCommit(snapshot=change(head)), self.head()
        )
        if published is None:
            msg = "there is always a proposal"
            raise InternalError(msg)
        self._known = published.snapshot
        return published

    def set_key(self, terms: str | Sequence[str], why: str = "") -> Published:
        """Commit another cluster key, with a reason if there is one. A new curve or tree is made from the rows of now.

        Rows are read once for each schema, not again after every lost race: others may commit faster than that.
        """
        made: dict[tuple[int, Key], Layout] = {}

        def make_layout(head: Snapshot, key: Key) -> Layout:
            from tblctl.tableformat.native.read.layouts import layout_of_table

            place = head.schema_id, key
            if place not in made:
                made[place] = layout_of_table(self.storage, head, key)
            return made[place]

        return self.change(lambda head: alter.set_key(head, terms, make_layout, why))

    def roll_back(self, sequence: int) -> Published:
        """Restore the table as of the snapshot `sequence`."""

        def change(head: Snapshot) -> Snapshot:
            return alter.roll_back(head, load_readable(self.storage, head, sequence))

        return self.change(change)

    def reset_clock(self) -> Published | None:
        """Commit a snapshot with the right time, if the newest one was made by a clock that was ahead; else None.

        Raises:
            ClockError: this machine's clock is wrong too.
        """
        probe, modified_seconds = write_probe(self.storage, self.env)
        check_clock(self.storage, probe, modified_seconds)

        def change(head: Snapshot) -> StagedCommit | None:
            if not is_ahead(head, modified_seconds):
                return None
            return StagedCommit(snapshot=alter.reset_clock(head, microseconds(modified_seconds)))

        published = publish(self.storage, self.env, change, self.head(), clock_is_checked=True)
        if published:
            self._known = published.snapshot
        return published

    def history(
        self, limit: int | None, *, start: int | None = None
    ) -> Iterator[tuple[Snapshot | Tombstone, Snapshot]]:
        """Yield at most `limit` versions from the sequence `start` on, newest first, each with the head."""
        head = self.head()
        first = head.sequence if start is None else start
        last = 1 if limit is None else max(1, first - limit + 1)
        sequences = range(first, last - 1, -1)
        if sequences and first == head.sequence:
            yield head, head
            sequences = sequences[1:]
        for begin in range(0, len(sequences), _VERSIONS_AT_ONCE):
            some = sequences[begin : begin + _VERSIONS_AT_ONCE]
            for version in in_parallel(
                lambda sequence: load_version(self.storage, sequence), some, threads=IO_THREADS
            ):
                yield version, head

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """See `tblctl.tableformat.native.upkeep.gc.collect`."""
        from tblctl.tableformat.native.upkeep.gc import collect

        if keep < 1 or older_than_seconds < 0:
            msg = f"keep is {keep} and older_than {older_than_seconds} s, expected at least 1 and at least 0"
            raise InvalidOptionError(msg)
        return collect(
            self.storage,
            self.env,
            self.head(),
            keep=keep,
            older_than_seconds=older_than_seconds,
            dry_run=dry_run,
        )

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        """See `tblctl.tableformat.native.upkeep.check.check_table`."""
        from tblctl.tableformat.native.upkeep.check import check_table

        return check_table(
            self.storage, self.head(), deep=deep, now_seconds=self.env.now(), progress=progress
        )


def _first_sort(
    key: Key,
    schema: Schema,
    open_sample: Callable[[], InputRows | None],
    reach: Callable[[str], Storage],
    block_rows: int,
) -> Sort:
    """Return the sort of a new table's key."""
    if not key.is_layout:
        return Sort(id=1, terms=key.terms)
    from tblctl.tableformat.native.read.layouts import layout_of_rows

    made = layout_of_rows(key, schema, open_sample, reach=reach, block_rows=block_rows)
    return Sort(id=1, kind=key.kind, terms=made.terms, parameters=made.parameters)


def _once_a_schema(condition: Condition) -> Condition:
    """Return the condition with a cache, so that it is resolved once for each schema: a long text takes a second."""
    found: dict[int, Node | None] = {}

    def remembered(head: Snapshot) -> Node | None:
        if head.schema_id not in found:
            found[head.schema_id] = condition(head)
        return found[head.schema_id]

    return remembered


def _rows_of(source: InputRows, schema: Schema) -> Iterator[pa.Table]:
    from tblctl.tableformat.native.write.writer import conformed

    return conformed(source.read(), schema)


def _assignments(schema: Schema, values: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """Return the new values of an update as scalars of their columns' read types.

    Raises:
        InvalidSchemaError: a column is unknown, or is only a part of one.
        InvalidDataError: a column cannot hold its value.
    """
    from tblctl.tableformat.predicate.literals import LiteralError, column_value

    if not values:
        msg = "an update needs at least one column and its new value"
        raise InvalidOptionError(msg)
    found = {}
    for name, value in values.items():
        leaf = schema.leaf(name)
        if len(leaf.path) > 1:
            msg = f"column {name!r} is a field of a struct; an update sets whole columns"
            raise InvalidSchemaError(msg, column=name)
        try:
            scalar = column_value(leaf, value)
        except LiteralError as error:
            raise InvalidDataError(str(error), column=name) from error
        found[name] = _in_type(scalar, schema.written.field(leaf.path[0]).type)
    return found


def _in_type(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    if not pa.types.is_dictionary(kind):
        return value.cast(kind)
    # pyarrow 26 casts to dictionaries of text only
    values = pa.array([value.cast(kind.value_type)], kind.value_type)
    return values.dictionary_encode().cast(kind)[0]
