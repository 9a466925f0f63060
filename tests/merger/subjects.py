"""Tables for tests of the port: the native format, and its in-memory twin, also with deletes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pytest

import tblctl
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.engines.engine import Done
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.presort.decide import THRESHOLDS, Thresholds
from tblctl.merger.task.spec import MergeTask, TaskFailure
from tblctl.selector.plan import Plan
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import StorageError, TblctlError
from tblctl.tableformat.native.log.names import DATA
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.port import BlockIO, TablePort
from tblctl.tableformat.storage import Storage

from .memory_port import MemoryPort

KINDS = ["twin", "deletes", "native"]
DELETED = -1
SCHEMA = pa.schema([("k", pa.float64()), ("n", pa.int64())])
Row = tuple[str, int]


class Subject(Protocol):
    """A table with a float key `k` and a number `n` that is unique for each row."""

    port: TablePort[Any]

    def append(self, *keys: float | None) -> None:
        """Add one block."""

    def delete(self, number: int) -> None:
        """Remove the row of a number; its block is replaced."""

    def set_key(self, terms: str) -> None: ...

    def rows(self) -> list[Row]:
        """Return all rows, in a fixed order; NaN and null as text."""

    def lose(self, path: str) -> None:
        """Remove a block's object, but not from the metadata."""

    def stored(self) -> set[str]:
        """Return the names of all blocks that are stored, listed or not."""

    def detail(self) -> Any:
        """Return the newest version's summary."""


@dataclass(frozen=True, kw_only=True)
class Observing:
    """Follows the commits of a round through two functions."""

    measure: Callable[[frozenset[str], Sequence[Any]], Any] = lambda _removed, _added: {}
    after: Callable[[Any], Any] = lambda _version: None

    def summary(self, removed: frozenset[str], added: Sequence[Any]) -> Any:
        return self.measure(removed, added)

    def committed(self, version: Any) -> None:
        self.after(version)


@dataclass
class Numbered:
    """Gives every row its own number."""

    next_number: int = 0

    def table(self, keys: Sequence[float | None]) -> pa.Table:
        numbers = range(self.next_number, self.next_number + len(keys))
        self.next_number += len(keys)
        return pa.table({"k": list(keys), "n": list(numbers)}, schema=SCHEMA)


def sorted_rows(table: pa.Table) -> list[Row]:
    return sorted((repr(row["k"]), row["n"]) for row in table.to_pylist())


@dataclass
class Twin:
    port: MemoryPort
    has_deletes: bool = False  # every block begins and ends with a row that is deleted
    numbered: Numbered = field(default_factory=Numbered)

    def append(self, *keys: float | None) -> None:
        rows = self.numbered.table(keys)
        if not self.has_deletes:
            self.port.append(rows)
            return
        gone = pa.array([DELETED], pa.int64())
        first, last = (rows.slice(at, 1).set_column(1, "n", gone) for at in (0, rows.num_rows - 1))
        self.port.append(pa.concat_tables([first, rows, last]), also_stored=2)
        self.port.mark_deleted("n", DELETED)

    def delete(self, number: int) -> None:
        self.port.delete("n", number)

    def set_key(self, terms: str) -> None:
        self.port.set_key(terms)

    def rows(self) -> list[Row]:
        tables = [self.port.rows_of(path) for path in self.port.newest().records]
        return sorted_rows(pa.concat_tables([SCHEMA.empty_table(), *tables]))

    def lose(self, path: str) -> None:
        self.port.lost.add(path)

    def stored(self) -> set[str]:
        return set(self.port.files) - self.port.lost

    def detail(self) -> Any:
        return self.port.newest().detail


@dataclass
class Native:
    table: tblctl.Table
    port: NativePort
    storage: Storage
    numbered: Numbered = field(default_factory=Numbered)

    def append(self, *keys: float | None) -> None:
        self.table.append(self.numbered.table(keys))

    def delete(self, number: int) -> None:
        self.table.delete(f"n = {number}")

    def set_key(self, terms: str) -> None:
        self.table.set_cluster_key(terms)

    def rows(self) -> list[Row]:
        return sorted_rows(self.table.scan().to_arrow())

    def lose(self, path: str) -> None:
        self.storage.delete([path])

    def stored(self) -> set[str]:
        return {item.name for item in self.storage.list(DATA)}

    def detail(self) -> Any:
        return self.table.snapshot.detail


def twin(**options: Any) -> Twin:
    return Twin(MemoryPort(SCHEMA, "k", **options))


def with_deletes(**options: Any) -> Twin:
    return Twin(MemoryPort(SCHEMA, "k", **options), has_deletes=True)


def making(kind: str, request: pytest.FixtureRequest) -> Callable[..., Subject]:
    """Return what makes a table of a kind out of options; a native one in memory, a single one a test."""
    if kind == "native":
        url = request.getfixturevalue("memory_url")
        return lambda **options: native(url, **options)
    return {"twin": twin, "deletes": with_deletes}[kind]


def native(url: str, **options: Any) -> Native:
    storage = Storage(url)
    table = NativeTable(storage, Environment(sleep=lambda _seconds: None))
    table.create(SCHEMA, "k", options)
    return Native(tblctl.Table(table), NativePort(table), storage)


def plan_of(subject: Subject, policy: str = "levels", where: Any = None, **options: Any) -> Plan:
    request = Request.of(policy=policy, condition=lambda _schema: where, options=options)
    return make_plan(subject.port.newest(), request)


def blocks_of(subject: Subject) -> list[list[Any]]:
    """Return [min, max, level, rows] of every block in order of key, NaN and null last; rows that are not deleted."""
    version = subject.port.newest()
    listing = version.listing(version.sort, None)
    blocks = subject.port.block_io(version).live([*version.blocks(listing.paths.to_pylist()).values()])
    rows = {block.path: block.row_count for block in blocks}
    columns = [listing.low["0"].to_pylist(), listing.high["0"].to_pylist()]
    live = [rows[path] for path in listing.paths.to_pylist()]
    facts = zip(*columns, listing.level.tolist(), live, strict=True)
    return sorted(([*fact] for fact in facts), key=lambda fact: [*map(_place, fact)])


def versions_of(subject: Subject) -> list[Any]:
    """Return the versions as people know them, oldest first; each was committed on top of the one before."""
    entries = list(subject.port.history())[::-1]
    assert [entry.parent for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
    return [entry.public_id for entry in entries]


def _place(key: float | None) -> tuple[int, float]:
    if key is None:
        return 2, 0.0
    return (1, 0.0) if math.isnan(key) else (0, key)


@dataclass
class Meddling:
    """The local engine, with others at work: `tamper` with what it reports, and act `before` and `after` it ran."""

    failing: frozenset[int] = frozenset()  # groups whose last task fails
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    error: TblctlError = field(default_factory=lambda: StorageError("the disk is full"))  # of those that fail
    name: str = "local"
    parallelism: int = 2
    thresholds: Thresholds = THRESHOLDS

    cut = LocalEngine.cut

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,
        **rest: Any,
    ) -> None:
        self.before()
        tasks = list(tasks)
        last = {task.group: task.number for task in tasks if task.group in self.failing}
        bad = [task for task in tasks if last.get(task.group) == task.number]
        LocalEngine().run(io, [task for task in tasks if task not in bad], done, title=title, **rest)
        for task in bad:
            done(TaskFailure(group=task.group, number=task.number, error=self.error))
        self.after()
