"""Small tables for tests of the native format: make, copy, look at and judge them.

`State` is all that a user sees of a table; two tables in the same state hold the same rows, columns, key and tags.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

import tblctl
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.native.log.names import claim_of, plan_of, sequence_of
from tblctl.tableformat.native.log.snapshot_file import decode, encode_snapshot, encode_tombstone
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.parquet.checksum import checksum_text
from tblctl.tableformat.storage import Storage

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
HOURS_AGO_SECONDS = 7200.0  # how old the tables of `aged_table` are


def rows(*ids: int, v: str = "x") -> pa.Table:
    """Return one row for each id."""
    return pa.table({"id": list(ids), "v": [f"{v}{item}" for item in ids]}, schema=SCHEMA)


@dataclass(frozen=True, kw_only=True)
class State:
    """What a user sees of a table."""

    rows: tuple[tuple[Any, ...], ...]
    columns: tuple[str, ...]
    cluster_by: tuple[str, ...]
    tags: tuple[tuple[str, int], ...]


def state_of(table: tblctl.Table) -> State:
    data = table.scan().to_arrow()
    return State(
        rows=tuple(sorted(tuple(row.values()) for row in data.to_pylist())),
        columns=tuple(data.column_names),
        cluster_by=table.cluster_by,
        tags=tuple(sorted(table.tags().items())),
    )


def ids_of(table: tblctl.Table) -> list[int]:
    """Return the ids in the table, ascending, each as often as it is there."""
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def native_of(table: tblctl.Table) -> NativeTable:
    return table._native


def objects_of(url: str, options: dict[str, Any] | None = None) -> dict[str, bytes]:
    """Return every object below `url`, by name."""
    storage = Storage(url, options)
    return {item.name: storage.read(item.name) for item in storage.list()}


def shape_of(url: str, before: Mapping[str, bytes]) -> tuple[tuple[str, int], ...]:
    """Return which objects there are now, those of `before` that are unchanged by name, others whatever their ids.

    Interrupted operations that leave the same shape are alike: one of them needs to be judged.
    """
    return tuple(
        sorted(
            (name, -1) if before.get(name) == data else (re.sub("[0-9a-f]{32}", "*", name), len(data))
            for name, data in objects_of(url).items()
        )
    )


def named_objects(table: tblctl.Table) -> set[str]:
    """Return every object that the table needs, worked out from its snapshots alone, apart from the hint.

    Records of expired snapshots too, which are kept for 90 days, pending plans with their claims, which expire, and
    logs of queries, which are kept for 30 days: no table of a test is that old.
    """
    storage = native_of(table).storage
    needed = {
        f"metadata/snapshots/{number:020d}.json" for number in range(1, native_of(table).head().sequence + 1)
    }
    names = [item.name for item in storage.list("metadata/")]
    plans = {found[0]: name for name in names if (found := plan_of(name))}
    needed |= {*plans.values(), *(name for name in names if (claim := claim_of(name)) and claim[0] in plans)}
    needed |= {item.name for item in storage.list("workload/") if item.name.endswith(".jsonl")}
    segments: set[str] = set()
    for info in table.history():
        if "record" in info.detail:
            needed.add(info.detail["record"])
        if info.readable:
            document = json.loads(storage.read(f"metadata/snapshots/{info.sequence:020d}.json"))
            segments |= {segment["path"] for segment in document["segments"]}
            needed |= {item["path"] for item in document.get("imports", [])}
    for segment in segments:
        needed |= set(pq.read_table(io.BytesIO(storage.read(segment)), columns=["path"])["path"].to_pylist())
    return needed | segments


def assert_sound(table: tblctl.Table) -> None:
    """Assert that every invariant of the format holds, data included."""
    report = table.check(deep=True)
    assert report.ok, report.problems


def copy_table(url: str, fresh_url: str) -> str:
    """Copy a table on local disk or in memory, times included; return the new URL."""
    if url.startswith("memory://"):
        source, target = url.removeprefix("memory:/"), fresh_url.removeprefix("memory:/")
        for path, file in list(MemoryFileSystem.store.items()):
            if path.startswith(f"{source}/"):
                put_in_memory(target + path.removeprefix(source), file.getvalue(), file.modified.timestamp())
    elif Path(url).is_dir():
        shutil.copytree(url, fresh_url)
    return fresh_url


def put_in_memory(path: str, data: bytes, modified_seconds: float) -> None:
    import datetime

    file = MemoryFile(MemoryFileSystem(), path, data)
    file.seek(0, io.SEEK_END)
    file.modified = datetime.datetime.fromtimestamp(modified_seconds, datetime.UTC)
    MemoryFileSystem.store[path] = file


class Places:
    """Fresh URLs of one kind, local or memory; `forget` empties those in memory."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._root = uuid.uuid4().hex
        self._renewed: str | None = None

    def fresh(self) -> str:
        name = uuid.uuid4().hex
        return f"memory://{self._root}/{name}" if self.kind == "memory" else str(self._folder / name)

    def copy(self, url: str) -> str:
        return copy_table(url, self.fresh())

    def renew(self, url: str) -> str:
        """Copy a table, and delete the copy before, so that a long loop does not accumulate copies."""
        if self._renewed is not None:
            Storage(self._renewed).delete_all()
        self._renewed = self.copy(url)
        return self._renewed

    def forget(self) -> None:
        for path in [path for path in MemoryFileSystem.store if path.startswith(f"/{self._root}/")]:
            del MemoryFileSystem.store[path]


def places(kind: str, folder: Path) -> Iterator[Places]:
    found = Places(kind, folder)
    yield found
    found.forget()


def open_impatient(url: str, options: dict[str, Any] | None = None) -> tblctl.Table:
    """Open a table that does not sleep between attempts to commit, so that tests of lost races are fast."""
    native = NativeTable(Storage(url, options), Environment(sleep=lambda _seconds: None))
    native.head()
    return tblctl.Table(native)


def aged_table(url: str, build: Callable[[tblctl.Table], None], **create: Any) -> tblctl.Table:
    """Create a table hours ago and let `build` fill it; all its objects are that old too."""
    build(tblctl.create(url, SCHEMA, **create))
    age(url, HOURS_AGO_SECONDS)
    return tblctl.open(url)


def age(url: str, seconds: float, names: Callable[[str], bool] = lambda _name: True) -> None:
    """Make a table older: the storage's times of its objects (or some), and the times that its snapshots state."""
    storage = Storage(url)
    for item in list(storage.list()):
        if not names(item.name):
            continue
        data, sequence = storage.read(item.name), sequence_of(item.name)
        if sequence is not None:
            data = _earlier(decode(data, sequence), seconds)
        then = item.modified_seconds - seconds
        if url.startswith("memory://"):
            put_in_memory(f"{url.removeprefix('memory:/')}/{item.name}", data, then)
        else:
            path = Path(url) / item.name
            path.write_bytes(data)
            os.utime(path, (then, then))


def as_stored(document: Any) -> bytes:
    """Return a snapshot's JSON, changed by a test, with the checksum that fits."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    rest = {key: value for key, value in document.items() if key != "checksum"}
    body = json.dumps(rest, separators=(",", ":")).encode()[:-1]
    return body + f',"checksum":"{checksum_text(body)}"}}'.encode()


def _earlier(version: Snapshot | Tombstone, seconds: float) -> bytes:
    changed = dataclasses.replace(version, timestamp_ms=version.timestamp_ms - round(1000 * seconds))
    return encode_tombstone(changed) if isinstance(changed, Tombstone) else encode_snapshot(changed)
