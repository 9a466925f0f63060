"""Plain Parquet files beside the table: a producer writes some, imports take them, and exports write others.

They have no checksums, so no bit of them is flipped: nobody could tell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from simulation.model import OWN_COLUMNS, Version, sql
from simulation.operation import Args, Draws, Operation, modelled, table_of
from simulation.store import URL, FolderBackend, PlacedStorage, Store
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from simulation.world import Actor, Run, World

LAKE = "memory://simulation/lake"
_ARRIVING = "in/"
_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("n", pa.int32()),
    ]
)
_SECOND = 1.5  # a file that is written again has another time

File = tuple[str, int, int]
"""A file as a list of imported files has it: its name below the lake, bytes, and time in microseconds."""


class Lake(Store):
    """The files. `ever`: the content of each, also of those that were written again since; `writes`: how many."""

    def __init__(self, now: Callable[[], float], step_seconds: float) -> None:
        super().__init__(now=now, step_seconds=step_seconds)
        self.ever: dict[File, bytes] = {}
        self.writes = 0

    def _put(self, name: str, data: bytes) -> None:
        super()._put(name, data)
        self.ever[self.file(name)] = data
        self.writes += 1

    def file(self, name: str) -> File:
        """Return a file as it is now."""
        item = self.objects[name]
        return name, len(item.data), int(item.modified_seconds * 1e6)

    def arrived(self) -> set[File]:
        """Return the files that an import is to take."""
        return {self.file(name) for name in self.objects if name.startswith(_ARRIVING)}

    def rows(self, file: File) -> list[tuple[Any, ...]]:
        """Return the rows that a file had."""
        found = pq.read_table(io.BytesIO(self.ever[file]))
        return list(zip(*(found[name].to_pylist() for name in OWN_COLUMNS), strict=True))


class _Requests:
    """An actor's requests, of which no reply has a flipped bit."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def around(self, operation: str, name: str, action: Callable[[], Any], data: bytes | None = None) -> Any:
        found = self._actor.around(operation, f"lake/{name}", lambda: (action(),), data)
        return found[0] if isinstance(found, tuple) else found


def place_of(actor: Actor, url: str) -> Storage | None:
    """Return an actor's storage of a folder of the lake; None for other URLs."""
    if not f"{url}/".startswith(f"{LAKE}/"):
        return None
    folder = FolderBackend(actor.world.lake, _Requests(actor), f"{url}/".removeprefix(f"{LAKE}/"))
    return PlacedStorage(url, folder, lambda other: place_of(actor, other))


@contextlib.contextmanager
def imports_of(world: World) -> Iterator[None]:
    """Let `import_parquet` reach the table and the files as the actor that calls it."""

    def storage(url: Any, _options: Mapping[str, Any] | None = None) -> Storage:
        actor = world.acting
        return actor.table._native.storage if url == URL else place_of(actor, url)

    class System:
        """The environment of whoever acts."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.acting.env, name)

    with contextlib.ExitStack() as opened:
        for module in ("importing", "importing_native", "tables"):
            opened.enter_context(mock.patch(f"tblctl.{module}.Storage", storage))
            opened.enter_context(mock.patch(f"tblctl.{module}.SYSTEM", System()))
        yield


class Deliver(Operation):
    """The producer's: write files for imports, now and then one that is there already, with other rows."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        again = draws.rng.random() < 0.15
        return {
            "files": [(draws.number(), draws.rows(4)) for _ in range(draws.rng.randint(1, 3))],
            "again": again,
        }

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        place = place_of(actor, f"{LAKE}/{_ARRIVING}".rstrip("/"))
        for number, rows in args["files"]:
            name = f"f{number}.parquet"
            known = sorted(actor.world.lake.arrived())
            if args["again"] and known:
                name = known[number % len(known)][0].removeprefix(_ARRIVING)
                actor.sleep(_SECOND)
            sink = io.BytesIO()
            pq.write_table(table_of(rows, _COLUMNS), sink)
            place.write(name, sink.getvalue())
        return None


class Import(Operation):
    """Take the files that were not taken yet. It is tried again until it succeeds, or its process gives up."""

    commits = "many"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        return {"commit_bytes": rng.choice([1, 3000, 1 << 30]), "recluster": rng.random() < 0.2}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        source = f"{LAKE}/{_ARRIVING}".rstrip("/")
        lake = actor.world.lake
        run.notes |= {"arrived": lake.arrived(), "writes": lake.writes}
        done = tblctl.import_parquet(
            source, URL, commit_bytes=args["commit_bytes"], recluster=args["recluster"]
        )
        run.commits_reported = done.commits
        run.notes["outcome"] = done
        return None

    def model(self, before: Version, run: Run, args: Args) -> Version:
        files = run.notes["files"]
        lake = run.world.lake
        names = {name: name for name in OWN_COLUMNS}
        for file in sorted(files - before.taken):
            before = before.plus(modelled(lake.rows(file), names))
        return dataclasses.replace(before, taken=files)


class Export(Operation):
    """Write rows as plain files, in the place of those of this actor's last export."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        return {"where": draws.condition() if rng.random() < 0.5 else None, "overwrite": rng.random() < 0.8}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        oracle, lake = actor.world.oracle, actor.world.lake
        folder = f"out{actor.number}"
        first = oracle.newest
        where = sql(args["where"])
        actor.table.export(f"{LAKE}/{folder}", where=where, overwrite=args["overwrite"])
        if _may_write_late(actor):
            return None
        files = [item.data for name, item in sorted(lake.objects.items()) if name.startswith(f"{folder}/")]
        found = pa.concat_tables([pq.read_table(io.BytesIO(data)) for data in files])
        oracle.require_rows(found, range(first, oracle.newest + 1), args["where"], "an export")
        return None


def _may_write_late(actor: Actor) -> bool:
    """Return whether a request of an export timed out: its file may appear later, and nobody can prevent that."""
    return any(
        "timeout" in other.faults
        for other in actor.world.runs
        if other.actor is actor and other.name == "export"
    )
