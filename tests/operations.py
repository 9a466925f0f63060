"""Every public operation on a table of the native format, each with a tiny table that it starts from.

Tests that interrupt operations take them from here. A test of native/test_crashes.py fails if a public operation of
`tblctl.Table` is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tables import SCHEMA, native_of, rows

import tblctl
from tblctl.errors import StorageError
from tblctl.tableformat.native.write.staged_write import StagedWriter
from tblctl.tableformat.storage import Storage

SMALL_BLOCKS = {"block_rows": 4}


@dataclass(frozen=True, kw_only=True)
class At:
    """Where a table is."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> tblctl.Table:
        return tblctl.open(self.url, storage_options=self.options)

    def create(self) -> tblctl.Table:
        how = {"cluster_by": "id", "options": SMALL_BLOCKS}
        return tblctl.create(self.url, SCHEMA, storage_options=self.options, **how)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation, the table that it starts from, and the public name that it is an example of."""

    of: str
    build: Callable[[At], object]
    act: Callable[[At], object]


def nothing(_: At) -> None:
    pass


def three_blocks(at: At) -> None:
    """Make a table of three blocks in two snapshots, on a clustered key."""
    table = at.create()
    table.append(rows(*range(8)))
    table.append(rows(20, 21, 22))


def long_history(at: At) -> None:
    """Make a table with snapshots to expire, blocks that only they name, and segments to fold."""
    three_blocks(at)
    table = at.open()
    table.tag("kept", 2)
    table.delete("id < 6")
    table.overwrite(rows(30, 31), where="id >= 20")


def four_segments(at: At) -> None:
    three_blocks(at)
    at.open().append(rows(40))


def two_groups(at: At) -> None:
    """Make a table of two pairs of blocks that overlap."""
    table = at.create()
    for first in (1, 2, 101, 102):
        table.append(rows(*range(first, first + 8, 2)))


def with_a_plan(at: At) -> None:
    two_groups(at)
    at.open().schedule()


def with_a_log(at: At) -> None:
    """Make a table with a log of queries, and a recluster after them."""
    two_groups(at)
    table = at.open()
    table.set_options({"recluster.record": "on"})
    table.scan("id > 2 AND id < 5").to_arrow()
    table.close()
    table.set_options({"recluster.record": "off"})
    table.recluster()


IMPORTED = "memory://imported-files/in"
EXPORTED = "memory://exported-files/out"


def files_to_import(_: At) -> None:
    """Write files beside the table, in the memory of this process."""
    for number in range(2):
        sink = pa.BufferOutputStream()
        pq.write_table(rows(number, 10 + number), sink)
        Storage(IMPORTED).write(f"part-{number}.parquet", sink.getvalue())


def three_blocks_and_files(at: At) -> None:
    three_blocks(at)
    files_to_import(at)


def _import(at: At) -> None:
    tblctl.import_parquet(IMPORTED, at.url, storage_options=at.options)


def on(
    build: Callable[[At], object], of: str, act: Callable[[tblctl.Table], object] | None = None
) -> Operation:
    """Return an operation on an open table; without `act` the method or property `of`, without arguments."""

    def run(at: At) -> object:
        table = at.open()
        if act:
            return act(table)
        found = getattr(table, of)
        return found() if callable(found) else found

    return Operation(of=of, build=build, act=run)


def _staged(table: tblctl.Table) -> None:
    native = native_of(table)
    writer = StagedWriter.of(native.storage, native.env, native.head())
    native.write("append", staged=writer.write(SCHEMA, [rows(*range(50, 56))]))


def _streamed(table: tblctl.Table) -> None:
    batches = [rows(*range(50, 55)), rows(60, 61)]
    stream = pa.RecordBatchReader.from_batches(SCHEMA, (item for one in batches for item in one.to_batches()))
    table.append(stream, memory_bytes=1)


def _read_dataset(table: tblctl.Table) -> pa.Table:
    dataset = table.to_dataset()
    try:
        return dataset.to_table()
    except OSError as error:  # Arrow reads, not tblctl
        msg = f"Arrow cannot read: {error}"
        raise StorageError(msg) from error


def _by_plan(table: tblctl.Table) -> None:
    table.recluster(table.plan(), commit_every=1)


def _import_queries(table: tblctl.Table) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write("SELECT * FROM t WHERE id > 2;\n")
        file.flush()
        table.import_workload(file.name, kind="sql", table="t")


def _cancel(table: tblctl.Table) -> None:
    for pending in table.pending_plans():
        table.cancel_plan(pending.id)


CHANGES = {
    "create": Operation(of="create", build=nothing, act=At.create),
    "append one block": on(three_blocks, "append", lambda table: table.append(rows(50, 51))),
    "append several blocks": on(three_blocks, "append", lambda table: table.append(rows(*range(50, 60)))),
    "append a stream": on(three_blocks, "append", _streamed),
    "append what was staged": on(three_blocks, "append", _staged),
    "import": Operation(of="import_parquet", build=three_blocks_and_files, act=_import),
    "import queries": on(three_blocks, "import_workload", _import_queries),
    "append and fold": on(four_segments, "append", lambda table: table.append(rows(50))),
    "delete": on(three_blocks, "delete", lambda table: table.delete("id in (1, 2, 5, 21)")),
    "delete whole blocks": on(three_blocks, "delete", lambda table: table.delete("id < 5")),
    "update": on(three_blocks, "update", lambda table: table.update({"v": "new"}, "id in (1, 21)")),
    "overwrite": on(three_blocks, "overwrite", lambda table: table.overwrite(rows(70), where="id > 6")),
    "overwrite all": on(three_blocks, "overwrite", lambda table: table.overwrite(rows(70, 71))),
    "alter": on(three_blocks, "add_column", lambda table: table.add_column("w", "int32")),
    "rename": on(three_blocks, "rename_column", lambda table: table.rename_column("v", "w")),
    "drop a column": on(three_blocks, "drop_column", lambda table: table.drop_column("v")),
    "widen": on(three_blocks, "widen_column", lambda table: table.widen_column("v", "large_string")),
    "set options": on(three_blocks, "set_options", lambda table: table.set_options({"block_rows": 9})),
    "cluster by": on(three_blocks, "set_cluster_key", lambda table: table.set_cluster_key("v")),
    "no key": on(three_blocks, "drop_cluster_key"),
    "rollback": on(long_history, "rollback", lambda table: table.rollback(2)),
    "tag": on(three_blocks, "tag", lambda table: table.tag("v1")),
    "delete tag": on(long_history, "delete_tag", lambda table: table.delete_tag("kept")),
    "clock": on(three_blocks, "reset_clock"),
    "gc": on(long_history, "gc", lambda table: table.gc(keep=1, older_than=0)),
    "drop": Operation(
        of="drop", build=three_blocks, act=lambda at: tblctl.drop(at.url, storage_options=at.options)
    ),
}
"""Operations that change a table, by a name."""

RECLUSTERS = {
    "recluster": on(two_groups, "recluster"),
    "recluster, two commits": on(two_groups, "recluster", _by_plan),
    "schedule": on(two_groups, "schedule"),
    "execute": on(with_a_plan, "recluster_pending"),
    "cancel": on(with_a_plan, "cancel_plan", _cancel),
}

READS = {
    "scan": on(three_blocks, "scan", lambda table: table.scan("id > 2").to_arrow()),
    "dataset": on(three_blocks, "to_dataset", _read_dataset),
    "head": on(three_blocks, "head"),
    "count": on(three_blocks, "count", lambda table: table.count("id > 2")),
    "export": on(three_blocks, "export", lambda table: table.export(EXPORTED, overwrite=True)),
    "workload": on(with_a_log, "workload"),
    "savings": on(with_a_log, "savings"),
    "suggest layouts": on(with_a_log, "suggest", lambda table: table.suggest("id > 2", layouts=True)),
    "check": on(long_history, "check", lambda table: table.check(deep=True)),
    "compare": on(long_history, "compare", lambda table: table.compare(2, 3)),
    "plan": on(two_groups, "plan"),
    "pending plans": on(with_a_plan, "pending_plans"),
    **{
        name: on(long_history, name)
        for name in (
            *(
                "cluster_by",
                "depth_history",
                "estimate",
                "files",
                "history",
                "info",
                "location",
                "options",
                "schema",
            ),
            *("snapshot", "suggest", "tags"),
        )
    },
}
"""Operations that change nothing, by a name."""

OPERATIONS = CHANGES | RECLUSTERS | READS

TRIED_ELSEWHERE = {
    "estimate": "reads as `history` does",
    "picture": "reads as `info` and `depth_history` do",
    "to_spark": "needs Spark: spark/test_source.py",
    "close": "waits for work of its process: api/test_background.py",
    "choose_key": "reads as `info` and `workload` do: api/test_key_choice.py",
}
