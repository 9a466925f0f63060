"""The oracle over Iceberg: what must hold at every commit, at every deletion, at the end of operations and histories.

The catalog knows the truth: which operation made which commit. A version of the model is one commit of the catalog.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from simulation.history import Step
from simulation.iceberg.actors import ICEBERG_OPERATIONS, EngineError, is_of_plans, is_ours
from simulation.iceberg.catalog import METADATA, name_of
from simulation.iceberg.files import Files, names_in
from simulation.iceberg.reasons import reason_of
from simulation.model import Row, Version, normal
from simulation.oracle import Broken
from tblctl.tableformat.errors import CommitOutcomeUnknownError

if TYPE_CHECKING:
    from simulation.iceberg.world import IcebergActor, IcebergWorld
    from simulation.world import Run

DAY = 86_400.0


class IcebergOracle:
    """See the module.

    Attributes:
        versions: the model after each commit; the first is the empty table's.
        newest: the number of the newest one.
        snapshots: the version of each snapshot, by its id.
        expired: the ids of snapshots that are gone.
    """

    def __init__(self, world: IcebergWorld) -> None:
        self._world = world
        self.versions: dict[int, Version] = {1: Version()}
        self.newest = 1
        self.gc_changes = 0
        self.rows_compared = 0
        self.snapshots: dict[int, Version] = {}
        self.expired: set[int] = set()
        self._named: dict[int, frozenset[str]] = {}
        self._ever_named: set[str] = set()
        self._table: Any = None

    @property
    def files(self) -> Files:
        """The files of snapshots."""
        return self._world.files

    def broken(self, message: str) -> Broken:
        """Return the error, and end the history: the product may not pass it on."""
        found = Broken(message)
        self._world.stop(found)
        return found

    # -- what the storage sees

    def creating(self, name: str, data: bytes, by: IcebergActor) -> None:
        self.writing(name, data, by)

    def created(self, name: str) -> None: ...

    def writing(self, name: str, data: bytes, by: IcebergActor) -> None:
        held = self._world.store.objects.get(name)
        if held is not None and held.data != data and not is_of_plans(name):
            raise self.broken(f"{name} was written twice by {by.run}")

    def deleting(self, name: str, by: IcebergActor) -> None:
        for snapshot_id in self._live():
            if name in self._named[snapshot_id]:
                raise self.broken(f"{name} was deleted by {by.run}, although snapshot {snapshot_id} names it")
        if name.endswith(METADATA):  # clients delete old ones, whoever they are
            if name == name_of(self._world.server.place):
                raise self.broken(f"{name} was deleted by {by.run}, although it is the newest metadata")
            return
        run = by.run
        if run is None or not ICEBERG_OPERATIONS[run.name].is_tblctl or is_ours(name):
            return
        if run.name != "gc" or name not in self._ever_named:
            raise self.broken(f"{name} of another engine was deleted by {run}")

    # -- what the catalog sees

    def committing(self, before: TableMetadata, after: TableMetadata, by: IcebergActor) -> None:
        run = by.run
        if run is None:
            raise self.broken("a commit by nobody")
        operation = ICEBERG_OPERATIONS[run.name]
        unknown = isinstance(run.error, CommitOutcomeUnknownError | EngineError)
        if run.is_over and not (run.is_killed or unknown):
            raise self.broken(f"{run} committed after its end")
        if operation.is_tblctl:
            self._require_only_allowed(before, after, run)
        run.commits.append(self.newest + 1)
        old = self.versions[self.newest]
        if before.table_uuid != after.table_uuid:
            old = Version()
            self.snapshots.clear()
        moved = before.current_snapshot_id != after.current_snapshot_id
        model = operation.model(old, run, run.step.args) if moved else old
        names = names_in(after.schema())
        rows = {key: {uid: row.get(uid) for uid in names} for key, row in model.rows.items()}
        self.newest += 1
        self.versions[self.newest] = dataclasses.replace(old, names=names, rows=rows)
        self.expired |= {item.snapshot_id for item in before.snapshots} - {
            item.snapshot_id for item in after.snapshots
        }
        self._world.counts["commits"] += 1
        self._world.counts[f"commits of {run.name}"] += 1

    def committed(self) -> None:
        """Compare the table with the model, and look for the files of what is new."""
        metadata = self._world.server.metadata
        version = self.versions[self.newest]
        head = metadata.current_snapshot()
        self._require_rows(head, version, f"version {self.newest}")
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in self.snapshots:
                continue
            if head is not None and snapshot.snapshot_id == head.snapshot_id:
                self.snapshots[snapshot.snapshot_id] = version
            else:  # one of several of a commit: nobody says which rows it has
                rows = {row["id"]: row for row in self.files.rows(snapshot)}
                self.snapshots[snapshot.snapshot_id] = version.with_rows(rows)
            named = self.files.named(snapshot)
            self._named[snapshot.snapshot_id] = named
            self._ever_named |= named
            missing = sorted(named - self._world.store.objects.keys())
            if missing:
                raise self.broken(f"snapshot {snapshot.snapshot_id} names {missing[0]}, which is not there")

    def _require_only_allowed(self, before: TableMetadata, after: TableMetadata, run: Run) -> None:
        """Require that a commit of tblctl is a REPLACE on top of the branch, or removes snapshots."""
        same = ("schemas", "current_schema_id", "partition_specs", "default_spec_id", "table_uuid")
        if any(getattr(before, name) != getattr(after, name) for name in same):
            raise self.broken(f"{run} changed the schema or the specs")
        heads = [dict(found.refs) for found in (before, after)]
        if run.name == "gc":
            # The protocol cannot refuse a commit because of a tag that was set since the request before it.
            looked = run.notes["refs"]
            seen = {name: ref for name, ref in heads[0].items() if looked is None or name in looked}
            if (
                any(heads[1].get(name) != ref for name, ref in seen.items())
                or not heads[1].keys() <= heads[0].keys()
            ):
                raise self.broken(f"{run} moved branches or tags")
            return
        old, new = heads[0].pop("main", None), heads[1].pop("main", None)
        added = after.current_snapshot()
        if heads[0] != heads[1] or added is None or new is None:
            raise self.broken(f"{run} moved other branches or tags")
        if added.parent_snapshot_id != (old.snapshot_id if old else None):
            raise self.broken(f"{run} committed on top of {added.parent_snapshot_id}, not of the head")
        if added.summary is None or added.summary.operation != Operation.REPLACE:
            raise self.broken(f"{run} committed {added.summary}")

    # -- what happens to operations

    def judge(self, run: Run, _reported: int | None) -> None:
        """Compare what an operation returned or raised with what it did."""
        if run.is_killed:
            return
        if run.error is None:
            if run.commits_reported not in (None, len(run.commits)):
                raise self.broken(
                    f"{run} reported {run.commits_reported} commits, but made {len(run.commits)}"
                )
            return
        self._world.counts[f"error {type(run.error).__name__}"] += 1
        if reason_of(run) is None:
            raise self.broken(f"{run} failed without a reason: {run.error!r}") from run.error

    # -- rows

    def require_read(self, found: Any, snapshot_id: int, what: str) -> None:
        """Require that what an engine read of a snapshot are the rows that it always had."""
        version = self.snapshots[snapshot_id]
        uids = {name: uid for uid, name in version.names.items()}
        shared = [name for name in found.column_names if name in uids]
        self._compare(
            [{uids[name]: row[name] for name in shared} for row in found.to_pylist()],
            version,
            [uids[name] for name in shared],
            what,
        )

    def _require_rows(self, snapshot: Snapshot | None, version: Version, what: str) -> None:
        try:
            found = self.files.rows(snapshot)
        except FileNotFoundError as error:
            raise self.broken(f"{what} names {error}, which is not there") from error
        self._compare(found, version, list(version.names), what)

    def _compare(self, found: Iterable[Row], version: Version, uids: list[str], what: str) -> None:
        rows = _listed(found, uids)
        expected = _listed(version.rows.values(), uids)
        self.rows_compared += len(rows)
        if rows == expected:
            return
        missing = [row for row in expected if row not in rows]
        extra = [row for row in rows if row not in expected]
        raise self.broken(
            f"{what} has {len(rows)} rows: {len(missing)} are missing, {len(extra)} are not of it, "
            f"{len(rows) - len(set(rows))} are there twice: {missing[:2]}, {extra[:2]}"
        )

    # -- the end

    def judge_end(self) -> None:
        """Judge the table when all actors are done, and what a gc leaves when every grace period is over."""
        self._require_sound("at the end")
        self._world.seconds += 2 * DAY + abs(self._world.janitor.skew_seconds)
        if not self._world.may_hide:
            last = self._world.janitor.attempt(Step(operation="gc", args={"keep": None, "grace": DAY}))
            if last.error is not None:
                raise self.broken(f"the last gc failed: {last.error!r}") from last.error
            self._require_sound("after the last gc")
            needed = set().union(*(self._named[found] for found in self._live()))
            needed |= set().union(*map(self.files.side, self._world.server.metadata.snapshots))
            mark = self._world.server.metadata.table_uuid.hex
            dead = [name for name in self._world.store.objects if is_ours(name) and mark in name]
            dead = sorted(set(dead) - needed)
            if dead:
                raise self.broken(f"{len(dead)} own objects are left that nothing needs: {dead[:3]}")

    def _require_sound(self, when: str) -> None:
        """Require that every snapshot has the rows that it had, by the plain reader; the head also by PyIceberg's."""
        metadata = self._world.server.metadata
        for snapshot in metadata.snapshots:
            self._require_rows(
                snapshot, self.snapshots[snapshot.snapshot_id], f"{when}: snapshot {snapshot.snapshot_id}"
            )
        head = metadata.current_snapshot()
        has_equality = any(run.name == "delete equal" and run.commits for run in self._world.runs)
        if head is not None and not has_equality:  # PyIceberg does not read these
            table = self._world.janitor.engine.load_table(("db", "t"))
            self.require_read(table.scan().to_arrow(), head.snapshot_id, f"{when}: PyIceberg")

    def _live(self) -> list[int]:
        """Return the ids of snapshots that the catalog has."""
        return [
            snapshot.snapshot_id
            for snapshot in self._world.server.metadata.snapshots
            if snapshot.snapshot_id in self._named
        ]


def _listed(rows: Iterable[Row], uids: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(normal(row.get(uid)) for uid in uids) for row in rows)
