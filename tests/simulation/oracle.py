"""The oracle: what must hold at every change of the storage, at the end of every operation, and at the end.

It knows the truth, since it sees every object that appears: which operation created which snapshot. The model's rows
after a commit are those before it, changed by what that operation does.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from simulation.actors import OPERATIONS
from simulation.history import Step
from simulation.model import Condition, Version, normal
from simulation.reasons import reason_of
from tblctl.tableformat.errors import CommitOutcomeUnknownError
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.native.log.names import (
    LATEST,
    claim_of,
    plan_of,
    record_of,
    sequence_of,
    snapshot_path,
)
from tblctl.tableformat.native.log.snapshot_file import decode

if TYPE_CHECKING:
    from simulation.world import Actor, Run, World


class Broken(BaseException):
    """A promise of tblctl was broken. The product catches every `Exception`; this passes."""


class Oracle:
    """See the module. `versions` has the model of each snapshot, `newest` the sequence of the newest one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.versions: dict[int, Version] = {1: Version()}
        self.newest = 1
        self.gc_changes = 0
        self.rows_compared = 0
        self._heads: dict[int, Snapshot] = {}
        self._named: dict[int, frozenset[str]] = {}
        self._blocks: dict[str, frozenset[str]] = {}  # of each segment
        self._batches: dict[int, list[int]] = {}  # the commits of each batch of a stream

    def _broken(self, message: str) -> Broken:
        """Return the error, and end the history: the product may not pass it on."""
        broken = Broken(message)
        self._world.stop(broken)
        return broken

    # -- what the storage sees

    def creating(self, name: str, data: bytes, by: Actor) -> None:
        sequence = sequence_of(name)
        if sequence is None:
            return
        head = decode(data, sequence)
        if not isinstance(head, Snapshot):
            raise self._broken(f"{name} was created as a tombstone")
        if sequence != 1:
            run = by.run
            if run is None or sequence != self.newest + 1:
                raise self._broken(f"snapshot {sequence} was created after {self.newest}, by {run}")
            self._commit(run, head)
        self._heads[sequence] = head
        self._named[sequence] = self._names(head)
        self._require_objects(sequence, pending=name)

    def created(self, name: str) -> None:
        sequence = sequence_of(name)
        if sequence is not None:
            self.committed(sequence)

    def writing(self, name: str, data: bytes, by: Actor | None) -> None:
        sequence = sequence_of(name)
        if sequence is not None:
            if sequence in self._retained():
                raise self._broken(f"{name} was replaced, although snapshot {self.newest} retains it")
            if not isinstance(decode(data, sequence), Tombstone):
                raise self._broken(f"{name} was replaced by what is no tombstone")
            self.gc_changes += 1
        elif name != LATEST and self._world.store.has_other(name, data):
            raise self._broken(f"{name} was written twice")

    def deleting(self, name: str, by: Actor) -> None:
        if sequence_of(name) is not None:
            raise self._broken(f"{name} was deleted by {by.run}: its name is free again")
        for sequence in self._retained():
            if name in self._named[sequence]:
                raise self._broken(f"{name} was deleted by {by.run}, although snapshot {sequence} names it")
        if by.run is not None and by.run.name == "gc":
            self.gc_changes += 1
            if name in self._pending():
                raise self._broken(f"{name} was deleted by a gc, although the plan has not expired")

    # -- what happens to operations

    def judge(self, run: Run, reported: int | None) -> None:
        """Compare what an operation returned or raised with what it did."""
        operation = OPERATIONS[run.name]
        if run.is_killed:
            return
        if run.error is None:
            self._judge_success(run, reported, operation.commits)
            return
        self._world.counts[f"error {type(run.error).__name__}"] += 1
        if reason_of(run) is None:
            raise self._broken(f"{run} failed without a reason: {run.error!r}") from run.error
        is_unknown = isinstance(run.error, CommitOutcomeUnknownError)
        if operation.commits == "one" and run.commits and not is_unknown:
            raise self._broken(f"{run} failed, but committed {run.commits}: {run.error!r}") from run.error

    def _judge_success(self, run: Run, reported: int | None, commits: str) -> None:
        if commits == "one" and run.commits != ([] if reported is None else [reported]):
            raise self._broken(f"{run} reported snapshot {reported}, but committed {run.commits}")
        if run.commits_reported not in (None, len(run.commits)):
            raise self._broken(f"{run} reported {run.commits_reported} commits, but made {run.commits}")
        if commits == "none" and run.commits:
            raise self._broken(f"{run} committed {run.commits}")
        if commits == "one" and reported is None and run.name not in _MAY_DO_NOTHING:
            raise self._broken(f"{run} did nothing")
        batch = run.step.args.get("stream")
        if batch and len(self._batches.get(batch, ())) != 1:
            raise self._broken(f"{run}: the batch was committed as {self._batches.get(batch, ())}")
        if reported is None and run.name in _BY_CONDITION:
            self._require_no_effect(run)

    def _require_no_effect(self, run: Run) -> None:
        """An operation that did nothing had nothing to do at some moment while it ran."""
        operation = OPERATIONS[run.name]
        for sequence in range(run.first, self.newest + 1):
            before = self.versions[sequence]
            if operation.model(before, run, run.step.args).rows.keys() == before.rows.keys():
                return
        raise self._broken(f"{run} did nothing, although rows matched all the time")

    def _commit(self, run: Run, head: Snapshot) -> None:
        """Take note of a commit: change the model, compare the table with it."""
        operation = OPERATIONS[run.name]
        if self._follows(run, head):
            self.versions[head.sequence] = self.versions[self.newest]
            self.newest = head.sequence
            self._world.counts["reclusters inline"] += 1
            return
        if operation.commits == "none" or (operation.commits == "one" and run.commits):
            raise self._broken(f"{run} committed {[*run.commits, head.sequence]}")
        if run.is_over and not (run.is_killed or isinstance(run.error, CommitOutcomeUnknownError)):
            raise self._broken(f"{run} committed {head.sequence} after its end")
        batch = run.step.args.get("stream")
        if batch:
            found = self._batches.setdefault(batch, [])
            found.append(head.sequence)
            if len(found) > 1:
                raise self._broken(f"{run}: the batch was committed as {found}")
        run.commits.append(head.sequence)
        before = self.versions[self.newest]
        is_fence = head.summary.operation == "gc"
        if is_fence != (run.name == "gc"):
            raise self._broken(f"{run} committed the operation {head.summary.operation!r}")
        old = self._heads[self.newest]
        is_lower = head.horizon_us < old.horizon_us and head.clock_resets == old.clock_resets
        if head.retained_from < old.retained_from or is_lower:
            raise self._broken(f"snapshot {head.sequence} lowers what gc relies on")
        self.versions[head.sequence] = operation.model(before, run, run.step.args)
        self.newest = head.sequence
        self._world.counts["commits"] += 1

    def _follows(self, run: Run, head: Snapshot) -> bool:
        """Return whether a commit is a recluster that a write is followed by, as the table's options say."""
        is_inline = "reclusters inline" in self._world.history.traits
        return bool(
            is_inline and run.name in _FOLLOWED and run.commits and head.summary.operation == "recluster"
        )

    # -- the table against the model

    def committed(self, sequence: int) -> None:
        """Read a version right after its commit and compare it with the model."""
        table = self._table(pinned=self._heads[sequence])
        found = table.scan().to_arrow()
        self.require_rows(found, [sequence], None, f"snapshot {sequence}")

    def require_rows(
        self, found: pa.Table, sequences: Iterable[int], condition: Condition | None, what: str
    ) -> None:
        """Require that rows that were read are those of one of some versions."""
        columns = [column.to_pylist() for column in found.columns]
        rows = sorted(tuple(map(normal, row)) for row in zip(*columns, strict=True))
        self.rows_compared += len(rows)
        expected: list[Any] = []
        for sequence in sequences:
            version = self.versions[sequence]
            expected = version.listed(condition)
            if rows == expected and found.column_names == list(version.names.values()):
                return
        missing = [row for row in expected if row not in rows]
        extra = [row for row in rows if row not in expected]
        twice = len(rows) - len(set(rows))
        raise self._broken(
            f"{what} where {condition} has {len(rows)} rows and the columns {found.column_names}; of snapshot "
            f"{sequence} {len(missing)} are missing, {len(extra)} are none of it, {twice} are there twice: "
            f"{missing[:3]}, {extra[:3]}"
        )

    def judge_end(self) -> None:
        """Judge the table when all actors are done, before and after a last gc without a grace period."""
        self._require_sound("at the end", deep=True)
        last = self._world.janitor.attempt(Step(operation="gc", args=LAST_GC))
        if last.error is not None:
            raise self._broken(f"the last gc failed: {last.error!r}") from last.error
        self._require_sound("after the last gc", deep=False)
        self._require_nothing_dead()

    def _require_sound(self, when: str, *, deep: bool) -> None:
        """Require that every retained version is whole, and that the newest and the oldest have the model's rows.

        All were compared when they were committed, and their objects have not changed since (`writing`, `deleting`).
        """
        table = self._table()
        head = table._native.head()
        if head.sequence != self.newest:
            raise self._broken(f"{when}: the newest snapshot is {head.sequence}, not {self.newest}")
        if head.tags != self.versions[self.newest].tags:
            raise self._broken(f"{when}: tags are {head.tags}, not {self.versions[self.newest].tags}")
        for sequence in {min(self._retained()), self.newest}:
            self.committed(sequence)
        if self._world.has_jumped_far:
            self._world.janitor.attempt(Step(operation="reset clock", args={}))
        report = table.check(deep=deep)
        if not report.ok:
            raise self._broken(f"{when}: check found {report.problems}")

    def _require_nothing_dead(self) -> None:
        """Require that the storage has nothing that no version needs."""
        needed = {snapshot_path(sequence) for sequence in range(1, self.newest + 1)} | {LATEST}
        needed |= set().union(*(self._named[sequence] for sequence in self._retained()))
        needed |= {record for head in self._heads.values() if (record := record_of(head.summary.detail))}
        needed |= self._pending()
        dead = sorted(self._world.store.objects.keys() - needed)
        if dead:
            raise self._broken(f"{len(dead)} objects are left that nothing needs: {dead[:3]}")

    def _pending(self) -> set[str]:
        """Return the pending plans that have not expired, and their claims."""
        live = {
            name: found[0]
            for name, item in self._world.store.objects.items()
            if (found := plan_of(name)) and item.modified_seconds + found[1] > self._world.seconds
        }
        claims = ((name, claim_of(name)) for name in self._world.store.objects)
        return {*live, *(name for name, claim in claims if claim and claim[0] in live.values())}

    def _table(self, pinned: Snapshot | None = None) -> tblctl.Table:
        """Return a handle of a reader that nothing disturbs."""
        native = self._world.janitor.table._native
        return tblctl.Table(native, pinned=pinned)

    # -- objects

    @property
    def _head(self) -> Snapshot:
        return self._heads[self.newest]

    def _retained(self) -> list[int]:
        head = self._head
        return [
            sequence
            for sequence in self._heads
            if sequence >= head.retained_from or sequence in head.tags.values()
        ]

    def _names(self, head: Snapshot) -> frozenset[str]:
        """Return every object that a snapshot names."""
        names = {segment.path for segment in head.segments}
        record = record_of(head.summary.detail)
        return frozenset(names | {record} - {None}).union(*map(self._blocks_of, sorted(names)))

    def _blocks_of(self, segment: str) -> frozenset[str]:
        if segment not in self._blocks:
            if segment not in self._world.store.objects:
                raise self._broken(f"a snapshot names {segment}, which is not there")
            data = self._world.store.objects[segment].data
            found = pq.read_table(io.BytesIO(data), columns=["path"])["path"].to_pylist()
            self._blocks[segment] = frozenset(found)
        return self._blocks[segment]

    def _require_objects(self, sequence: int, pending: str) -> None:
        missing = self._named[sequence] - self._world.store.objects.keys() - {pending}
        if missing:
            raise self._broken(
                f"snapshot {sequence} names {len(missing)} objects that are not there: {min(missing)}"
            )


LAST_GC = {"keep": 1, "older_than": 0.0, "dry_run": False}
_MAY_DO_NOTHING = frozenset(
    {
        "reset clock",
        "delete",
        "update",
        "overwrite",
        "stage",
        "stream",
        "rename column",
        "drop column",
        "carry out",
    }
)
_BY_CONDITION = frozenset({"delete"})
_FOLLOWED = frozenset({"append", "delete", "update", "overwrite"})
