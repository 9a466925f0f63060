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
from simulation.lake import LAKE, File
from simulation.model import Condition, Version, normal, sql
from simulation.reasons import reason_of
from simulation.recording import conditions_of
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
from tblctl.tableformat.workload.place import FOLDER, KEEP_SECONDS, log_file

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
        self._recorded: set[str] = set()  # conditions in the log that no two scans have

    def broken(self, message: str) -> Broken:
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
            raise self.broken(f"{name} was created as a tombstone")
        if sequence != 1:
            run = by.run
            if run is None or sequence != self.newest + 1:
                raise self.broken(f"snapshot {sequence} was created after {self.newest}, by {run}")
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
                raise self.broken(f"{name} was replaced, although snapshot {self.newest} retains it")
            if not isinstance(decode(data, sequence), Tombstone):
                raise self.broken(f"{name} was replaced by what is no tombstone")
            self.gc_changes += 1
        elif name != LATEST and self._world.store.has_other(name, data):
            raise self.broken(f"{name} was written twice")
        elif name.startswith(FOLDER):
            self._require_recorded_once(data, by)

    def deleting(self, name: str, by: Actor) -> None:
        if sequence_of(name) is not None:
            raise self.broken(f"{name} was deleted by {by.run}: its name is free again")
        for sequence in self._retained():
            if name in self._named[sequence]:
                raise self.broken(f"{name} was deleted by {by.run}, although snapshot {sequence} names it")
        if log_file(name, FOLDER) and not self._is_old_log(name):
            raise self.broken(f"{name} was deleted by {by.run}, although queries are kept for a month")
        if by.run is not None and by.run.name == "gc":
            self.gc_changes += 1
            if name in self._pending():
                raise self.broken(f"{name} was deleted by a gc, although the plan has not expired")

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
            raise self.broken(f"{run} failed without a reason: {run.error!r}") from run.error
        is_unknown = isinstance(run.error, CommitOutcomeUnknownError)
        if operation.commits == "one" and run.commits and not is_unknown:
            raise self.broken(f"{run} failed, but committed {run.commits}: {run.error!r}") from run.error

    def _judge_success(self, run: Run, reported: int | None, commits: str) -> None:
        if commits == "one" and run.commits != ([] if reported is None else [reported]):
            raise self.broken(f"{run} reported snapshot {reported}, but committed {run.commits}")
        if "outcome" in run.notes and run.notes["outcome"].files_taken != run.notes.get("taken", 0):
            raise self.broken(
                f"{run} reported {run.notes['outcome']}, but took {run.notes.get('taken', 0)} files"
            )
        if run.commits_reported not in (None, len(run.commits)):
            raise self.broken(f"{run} reported {run.commits_reported} commits, but made {run.commits}")
        if commits == "none" and run.commits:
            raise self.broken(f"{run} committed {run.commits}")
        if commits == "one" and reported is None and run.name not in _MAY_DO_NOTHING:
            raise self.broken(f"{run} did nothing")
        batch = run.step.args.get("stream")
        if batch and len(self._batches.get(batch, ())) != 1:
            raise self.broken(f"{run}: the batch was committed as {self._batches.get(batch, ())}")
        if reported is None and run.name in _BY_CONDITION:
            self._require_no_effect(run)

    def _require_no_effect(self, run: Run) -> None:
        """An operation that did nothing had nothing to do at some moment while it ran."""
        operation = OPERATIONS[run.name]
        for sequence in range(run.first, self.newest + 1):
            before = self.versions[sequence]
            if operation.model(before, run, run.step.args).rows.keys() == before.rows.keys():
                return
        raise self.broken(f"{run} did nothing, although rows matched all the time")

    def _commit(self, run: Run, head: Snapshot) -> None:
        """Take note of a commit: change the model, compare the table with it."""
        operation = OPERATIONS[run.name]
        if self._follows(run, head):
            self.versions[head.sequence] = self.versions[self.newest]
            self.newest = head.sequence
            self._world.counts["reclusters inline"] += 1
            return
        if operation.commits == "none" or (operation.commits == "one" and run.commits):
            raise self.broken(f"{run} committed {[*run.commits, head.sequence]}")
        if run.is_over and not (run.is_killed or isinstance(run.error, CommitOutcomeUnknownError)):
            raise self.broken(f"{run} committed {head.sequence} after its end")
        batch = run.step.args.get("stream")
        if batch:
            found = self._batches.setdefault(batch, [])
            found.append(head.sequence)
            if len(found) > 1:
                raise self.broken(f"{run}: the batch was committed as {found}")
        run.commits.append(head.sequence)
        before = self.versions[self.newest]
        is_fence = head.summary.operation == "gc"
        if is_fence != (run.name == "gc"):
            raise self.broken(f"{run} committed the operation {head.summary.operation!r}")
        old = self._heads[self.newest]
        is_lower = head.horizon_us < old.horizon_us and head.clock_resets == old.clock_resets
        if head.retained_from < old.retained_from or is_lower:
            raise self.broken(f"snapshot {head.sequence} lowers what gc relies on")
        run.notes["files"] = self._taken(head)
        version = operation.model(before, run, run.step.args)
        if version.taken != run.notes["files"]:
            raise self.broken(f"{run} changed the list of imported files: {len(run.notes['files'])} now")
        self.versions[head.sequence] = version
        self.newest = head.sequence
        self._world.counts["commits"] += 1
        run.notes["taken"] = run.notes.get("taken", 0) + len(version.taken) - len(before.taken)

    def _follows(self, run: Run, head: Snapshot) -> bool:
        """Return whether a commit is a recluster that a write is followed by, as the table's options say."""
        is_inline = "reclusters inline" in self._world.history.traits or run.step.args.get("recluster")
        return bool(
            is_inline and run.name in _FOLLOWED and run.commits and head.summary.operation == "recluster"
        )

    def _taken(self, head: Snapshot) -> frozenset[File]:
        """Return the imported files that a snapshot lists, none of them twice."""
        found: list[File] = []
        for item in head.imports:
            data = self._world.store.objects[item.path].data
            for path, size, time_us in zip(
                *pa.ipc.open_stream(data).read_all().to_pydict().values(), strict=True
            ):
                found.append((path.removeprefix(f"{LAKE}/"), size, time_us))
        if len({file[0] for file in found}) < len(found):
            raise self.broken(f"snapshot {head.sequence} lists a file twice")
        return frozenset(found)

    def _require_recorded_once(self, data: bytes, by: Actor | None) -> None:
        """Require that a file of the log has each of the scans that are known apart once, and no other file has it."""
        apart = {
            sql(item) for run in self._world.runs if run.name == "record" for item in run.step.args["scans"]
        }
        for where in conditions_of(data):
            if where not in apart:
                continue
            if where in self._recorded:
                raise self.broken(f"the query {where} was recorded twice, by {by and by.run}")
            self._recorded.add(where)

    def _is_old_log(self, name: str) -> bool:
        modified = self._world.store.objects[name].modified_seconds
        return bool(log_file(name, FOLDER)) and modified + KEEP_SECONDS <= self._world.seconds

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
        raise self.broken(
            f"{what} where {condition} has {len(rows)} rows and the columns {found.column_names}; of snapshot "
            f"{sequence} {len(missing)} are missing, {len(extra)} are none of it, {twice} are there twice: "
            f"{missing[:3]}, {extra[:3]}"
        )

    def judge_end(self) -> None:
        """Judge the table when all actors are done, before and after a last gc without a grace period."""
        self._require_sound("at the end", deep=True)
        if self._world.lake.arrived():
            self._require_everything_taken()
        last = self._world.janitor.attempt(Step(operation="gc", args=LAST_GC))
        if last.error is not None:
            raise self.broken(f"the last gc failed: {last.error!r}") from last.error
        self._require_sound("after the last gc", deep=False)
        self._require_nothing_dead()

    def _require_everything_taken(self) -> None:
        """Require that an import takes all files that none took, and reports those that were written again."""
        run = self._world.janitor.attempt(Step(operation="import", args=LAST_IMPORT))
        if run.error is not None:
            raise self.broken(f"the last import failed: {run.error!r}") from run.error
        taken, arrived = self.versions[self.newest].taken, self._world.lake.arrived()
        lost = {file[0] for file in arrived} - {file[0] for file in taken}
        if lost:
            raise self.broken(f"{len(lost)} files were never taken, such as {min(lost)}")
        changed = sorted(f"{LAKE}/{file[0]}" for file in arrived - taken)
        if sorted(run.notes["outcome"].files_changed) != changed:
            raise self.broken(f"files that were written again: {changed}, not as {run.notes['outcome']}")

    def _require_sound(self, when: str, *, deep: bool) -> None:
        """Require that every retained version is whole, and that the newest and the oldest have the model's rows.

        All were compared when they were committed, and their objects have not changed since (`writing`, `deleting`).
        """
        table = self._table()
        head = table._native.head()
        if head.sequence != self.newest:
            raise self.broken(f"{when}: the newest snapshot is {head.sequence}, not {self.newest}")
        if head.tags != self.versions[self.newest].tags:
            raise self.broken(f"{when}: tags are {head.tags}, not {self.versions[self.newest].tags}")
        for sequence in {min(self._retained()), self.newest}:
            self.committed(sequence)
        if self._world.has_jumped_far:
            self._world.janitor.attempt(Step(operation="reset clock", args={}))
        report = table.check(deep=deep)
        if not report.ok:
            raise self.broken(f"{when}: check found {report.problems}")

    def _require_nothing_dead(self) -> None:
        """Require that the storage has nothing that no version needs."""
        needed = {snapshot_path(sequence) for sequence in range(1, self.newest + 1)} | {LATEST}
        needed |= set().union(*(self._named[sequence] for sequence in self._retained()))
        needed |= {record for head in self._heads.values() if (record := record_of(head.summary.detail))}
        needed |= self._pending()
        needed |= {
            name
            for name in self._world.store.objects
            if log_file(name, FOLDER) and not self._is_old_log(name)
        }
        dead = sorted(self._world.store.objects.keys() - needed)
        if dead:
            raise self.broken(f"{len(dead)} objects are left that nothing needs: {dead[:3]}")

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
        names = {segment.path for segment in head.segments} | {item.path for item in head.imports}
        record = record_of(head.summary.detail)
        return frozenset(names | {record} - {None}).union(
            *(self._blocks_of(segment.path) for segment in head.segments)
        )

    def _blocks_of(self, segment: str) -> frozenset[str]:
        if segment not in self._blocks:
            if segment not in self._world.store.objects:
                raise self.broken(f"a snapshot names {segment}, which is not there")
            data = self._world.store.objects[segment].data
            found = pq.read_table(io.BytesIO(data), columns=["path"])["path"].to_pylist()
            self._blocks[segment] = frozenset(found)
        return self._blocks[segment]

    def _require_objects(self, sequence: int, pending: str) -> None:
        missing = self._named[sequence] - self._world.store.objects.keys() - {pending}
        if missing:
            raise self.broken(
                f"snapshot {sequence} names {len(missing)} objects that are not there: {min(missing)}"
            )


LAST_IMPORT = {"commit_bytes": 1 << 30, "recluster": False}
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
_FOLLOWED = frozenset({"append", "delete", "update", "overwrite", "import"})
