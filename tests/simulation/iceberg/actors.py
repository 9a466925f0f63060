"""What actors do to an Iceberg table: tblctl's own operations, and other engines', which PyIceberg plays.

An engine's operation makes at most one commit, since it is never tried again: so its model is exact.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from iceberg.position_deletes import commit, delete_file, entry_of
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, StringType

from simulation.actors import _KEYS, CURVES
from simulation.iceberg.catalog import COMMIT
from simulation.iceberg.files import uid_of
from simulation.model import OWN_COLUMNS, Version
from simulation.operation import Args, Draws, Operation, modelled, table_of
from simulation.policies import drawn_policies
from simulation.reclusters import (
    cancel_any,
    drawn_workload,
    engine_of,
    execute_pending,
    pending_draw,
    request_of,
    schedule,
)
from tblctl.iceberg import IcebergTable
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request, make_plan
from tblctl.tableformat.errors import TblctlError

if TYPE_CHECKING:
    from simulation.iceberg.world import IcebergActor
    from simulation.world import Run
    from tblctl.tableformat.iceberg.port import IcebergPort

HOUR, DAY = 3600.0, 86_400.0


class EngineError(TblctlError):
    """Another engine failed: its own error is the cause."""


PLANS = "memory://simulation/plans"


def is_ours(name: str) -> bool:
    """Return whether an object is tblctl's, by its name."""
    return name.rpartition("/")[2].startswith("tblctl-") or is_of_plans(name)


def is_of_plans(name: str) -> bool:
    """Return whether an object is in the folder of pending plans."""
    return name.startswith("plans/")


def ids_between(low: int, high: int) -> And:
    """Return PyIceberg's condition for ids."""
    return And(GreaterThanOrEqual("id", low), LessThanOrEqual("id", high))


class IcebergOperation(Operation):
    """An operation over Iceberg. `is_tblctl`: the product does it. `known_as`: it is one of these, drawn apart."""

    is_tblctl = False
    known_as = ""

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        with _engine_errors(actor):
            self.act(actor, run, args)

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        """Do it as another engine."""
        raise NotImplementedError


@contextlib.contextmanager
def _engine_errors(actor: IcebergActor) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise EngineError(f"{type(error).__name__}: {error}") from error


def _data(run: Run, table: Table, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    run.names = {field.name: uid_of(field.field_id) for field in table.schema().fields}
    return table_of(rows, table.schema().as_arrow())


class Append(IcebergOperation):
    def draw(self, draws: Draws) -> Args:
        return {"rows": draws.rows()}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        table.append(_data(run, table, args["rows"]))

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.plus(modelled(args["rows"], run.names))


class AppendToBranch(Append):
    """Append to a branch beside main, which is made first."""

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        head = table.current_snapshot()
        if head is None:
            return
        if "side" not in table.refs():
            table.manage_snapshots().create_branch(head.snapshot_id, "side").commit()
        else:
            table.append(_data(run, table, args["rows"]), branch="side")


class Delete(IcebergOperation):
    """Delete by rewriting files."""

    def draw(self, draws: Draws) -> Args:
        low = draws.rng.randint(0, max(1, draws._last))
        return {"low": low, "high": low + draws.rng.randint(0, 6)}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        actor.loaded().delete(ids_between(args["low"], args["high"]))

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.without(("id", "between", (args["low"], args["high"])))


class Overwrite(Delete):
    def draw(self, draws: Draws) -> Args:
        return {**super().draw(draws), "rows": draws.rows(4)}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        table.overwrite(_data(run, table, args["rows"]), ids_between(args["low"], args["high"]))

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return super().model(before, run, args).plus(modelled(args["rows"], run.names))


class DeletePositions(Delete):
    """Delete by position delete files: one for each partition that it touches, all of one spec."""

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        more = {"bounds": rng.random() < 0.7, "names_one": rng.random() < 0.3, "spec": rng.random()}
        return {**super().draw(draws), **more}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        found = self._found(actor, table, args)
        if not found:
            return
        run.notes["ids"] = frozenset(id_ for rows in found.values() for id_ in rows)
        wanted = range(args["low"], args["high"] + 1)
        groups: dict[Any, list[Any]] = {}
        for entry in sorted(found.entries, key=lambda entry: str(entry.data_file.file_path)):
            key = entry.data_file.file_path if args["names_one"] else repr(entry.data_file.partition)
            groups.setdefault(key, []).append(entry)
        files = []
        for entries in groups.values():
            rows = [
                (entry.data_file.file_path, place)
                for entry in entries
                for id_, place in sorted(actor.world.files.positions(entry).items(), key=lambda item: item[1])
                if id_ in wanted
            ]
            referenced = entries[0].data_file.file_path if args["names_one"] else None
            like = entries[0].data_file
            files.append(delete_file(table, rows, like=like, bounds=args["bounds"], referenced=referenced))
        commit(
            table,
            files,
            content=ManifestContent.DELETES,
            needed=[entry.data_file.file_path for entry in found.entries],
        )

    def _found(self, actor: IcebergActor, table: Table, args: Args) -> _Found:
        """Return the data files of one spec that have rows with the ids, and those rows."""
        snapshot = table.current_snapshot()
        files = actor.world.files
        found: dict[int, _Found] = {}
        for manifest in files.manifests(snapshot) if snapshot else ():
            for entry in files.entries(manifest):
                if entry.data_file.content != DataFileContent.DATA:
                    continue
                ids = [id_ for id_ in files.positions(entry) if args["low"] <= id_ <= args["high"]]
                if ids:
                    spec = found.setdefault(entry.data_file.spec_id, _Found())
                    spec.entries.append(entry)
                    spec[entry.data_file.file_path] = ids
        return found[sorted(found)[int(args["spec"] * len(found))]] if found else _Found()

    def model(self, before: Version, run: Run, args: Args) -> Version:
        ids = run.notes["ids"]
        return before.with_rows({key: row for key, row in before.rows.items() if key not in ids})


class DeleteEqual(Delete):
    """Delete by equality, as streaming engines do, without looking. Only where the newest spec has no partitions."""

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        if not table.spec().is_unpartitioned():
            return
        ids = pa.array(range(args["low"], args["high"] + 1), pa.int64())
        field = pa.field("id", pa.int64(), False, {b"PARQUET:field_id": b"1"})
        written = pa.BufferOutputStream()
        pq.write_table(pa.table([ids], schema=pa.schema([field])), written)
        path = f"{table.location()}/data/equal-{uuid.uuid4().hex}.parquet"
        content = written.getvalue().to_pybytes()
        with table.io.new_output(path).create() as stream:
            stream.write(content)
        file = entry_of(
            path,
            rows=len(ids),
            size_bytes=len(content),
            content=DataFileContent.EQUALITY_DELETES,
            equality_ids=[1],
        )
        file.spec_id = table.spec().spec_id
        commit(table, [file], content=ManifestContent.DELETES)


class _Found(dict[str, list[int]]):
    """Ids by data file, and the entries of these files."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Any] = []


class ChangeSchema(IcebergOperation):
    def draw(self, draws: Draws) -> Args:
        kind = draws.rng.choice(["add", "add", "rename", "drop", "widen"])
        return {"kind": kind, "name": f"c{draws.number()}"}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        added = next((name for name in table.schema().column_names if name not in OWN_COLUMNS), None)
        with table.update_schema() as change:
            if args["kind"] == "add":
                change.add_column(args["name"], StringType())
            elif args["kind"] == "widen":
                change.update_column("n", LongType())
            elif added and args["kind"] == "rename":
                change.rename_column(added, args["name"])
            elif added:
                change.delete_column(added)


class ChangeSpec(IcebergOperation):
    """Partition by one more field, or by one less."""

    def draw(self, draws: Draws) -> Args:
        return {"kind": draws.rng.choice(["bucket", "bucket", "k", "s", "less"])}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        fields = {field.name for field in table.spec().fields}
        kinds = {
            "bucket": ("id", BucketTransform(2), "by_id"),
            "k": ("k", IdentityTransform(), "by_k"),
            "s": ("s", TruncateTransform(1), "by_s"),
        }
        with table.update_spec() as change:
            if args["kind"] == "less" and fields:
                change.remove_field(min(fields))
            elif args["kind"] in kinds and kinds[args["kind"]][2] not in fields:
                change.add_field(*kinds[args["kind"]])


class Refer(IcebergOperation):
    """Set or remove a tag or a branch."""

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        return {"kind": rng.choice(["tag", "tag", "untag", "branch"]), "back": rng.choice([0, 1, 3])}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        snapshots = table.metadata.snapshots
        refs = table.refs()
        if not snapshots:
            return
        chosen = snapshots[max(0, len(snapshots) - 1 - args["back"])].snapshot_id
        with table.manage_snapshots() as change:
            if args["kind"] == "tag" and "tag" not in refs:
                change.create_tag(chosen, "tag")
            elif args["kind"] == "untag" and "tag" in refs:
                change.remove_tag("tag")
            elif args["kind"] == "branch" and "old" not in refs:
                change.create_branch(chosen, "old")


class TagOlder(Refer):
    """Set a tag on a snapshot that is not the newest."""

    known_as = "refer"

    def draw(self, draws: Draws) -> Args:
        return {"kind": "tag", "back": draws.rng.choice([1, 3])}


class Rollback(IcebergOperation):
    def draw(self, draws: Draws) -> Args:
        return {"back": draws.rng.choice([1, 2, 4])}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        found = table.current_snapshot()
        for _ in range(args["back"]):
            parent = by_id.get(found.parent_snapshot_id or 0) if found else None
            found = parent or found
        if found is not None:
            run.target = found.snapshot_id
            table.manage_snapshots().rollback_to_snapshot(found.snapshot_id).commit()

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.with_rows(run.world.oracle.snapshots[run.target].rows)


class Expire(IcebergOperation):
    """Expire snapshots that no branch or tag names, and delete what they alone named, whoever wrote it."""

    def draw(self, draws: Draws) -> Args:
        return {"keep": draws.rng.choice([0, 1, 3])}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        files = actor.world.files
        kept = {ref.snapshot_id for ref in table.refs().values()}
        others = [item for item in table.metadata.snapshots if item.snapshot_id not in kept]
        gone = others[: len(others) - args["keep"]]
        if not gone:
            return
        named = frozenset[str]().union(*map(files.named, gone))
        requirements = [AssertTableUUID(uuid=table.metadata.table_uuid)] + [
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
            for name, ref in table.refs().items()
        ]
        ids = [item.snapshot_id for item in gone]
        actor.engine.commit_table(
            table, tuple(requirements), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),)
        )
        left = actor.loaded().metadata.snapshots
        for name in sorted(named - frozenset[str]().union(*map(files.named, left))):
            actor.engine.files.delete(f"memory://simulation/{name}")


class Recreate(IcebergOperation):
    """Drop the table without its files, and create another one of the same name in the same place."""

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        server = actor.world.server
        metadata, place = actor.world.new_metadata(), server.new_place()
        actor.world.keep_metadata(metadata, place, actor)
        actor.engine._ask(COMMIT, lambda: server.swap(metadata, actor, place))


class Read(IcebergOperation):
    """Read one snapshot several times, while others go on."""

    def draw(self, draws: Draws) -> Args:
        return {"back": draws.rng.choice([0, 0, 1, 3]), "times": draws.rng.randint(1, 3)}

    def act(self, actor: IcebergActor, run: Run, args: Args) -> None:
        table = actor.loaded()
        snapshots = table.metadata.snapshots
        if not snapshots:
            return
        run.target = snapshots[max(0, len(snapshots) - 1 - args["back"])].snapshot_id
        for _ in range(args["times"]):
            found = table.scan(snapshot_id=run.target).to_arrow()
            actor.world.oracle.require_read(found, run.target, f"a reader of snapshot {run.target}")


def _clustered(actor: IcebergActor, key: str | None) -> IcebergPort:
    return actor.port if key is None else actor.port.clustered_by(key)


class Ours(IcebergOperation):
    """An operation of tblctl."""

    is_tblctl = True


class Recluster(Ours):
    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        policy = rng.choice(drawn_policies())
        follows = (
            policy == "workload" and rng.random() < 0.8
        )  # it is refused beside a key, if a group is worth it
        return {
            "policy": policy,
            "key": None if follows else rng.choice([*_KEYS, *CURVES, None]),
            "final": rng.random() < 0.3,
            "where": draws.condition() if rng.random() < 0.2 else None,
            "commit_every": rng.choice([None, None, 1]),
            "twice": rng.choice([0.0, 0.0, 0.5]),
            "workload": drawn_workload(draws),
        }

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        port = _clustered(actor, args["key"])
        outcome = recluster(port, request_of(args), lambda _plan: engine_of(actor, args))
        run.commits_reported = outcome.commits


class ReclusterSlowly(Recluster):
    """Recluster everything; between the plan and the merge it takes minutes."""

    def draw(self, draws: Draws) -> Args:
        return {**super().draw(draws), "policy": "full", "key": "id", "where": None, "final": False}

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        def after_minutes(_plan: Any) -> Any:
            actor.sleep(400.0)
            return engine_of(actor, args)

        outcome = recluster(_clustered(actor, args["key"]), request_of(args), after_minutes)
        run.commits_reported = outcome.commits


class ReclusterPart(Recluster):
    """Recluster the files that may have some ids."""

    def draw(self, draws: Draws) -> Args:
        low = draws.rng.randint(0, max(1, draws._last))
        key = draws.rng.choice(["k", "x"])  # files of different ids overlap
        return {**super().draw(draws), "key": key, "where": ("id", "between", (low, low + 6))}


class MakePlan(Recluster):
    """Plan, and keep the plan for `CarryOut`."""

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        port = _clustered(actor, args["key"])
        actor.planned_key = args["key"]
        actor.plan = make_plan(port.newest(), request_of(args), env=actor.env, port=port)


class CarryOut(Ours):
    """Carry out the plan that was made last, however long ago."""

    def draw(self, draws: Draws) -> Args:
        return {"twice": 0.0, "commit_every": draws.rng.choice([None, 1])}

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        if actor.plan is None:
            return
        request = Request.of(
            policy=None, condition=lambda _schema: None, options=None, commit_every=args["commit_every"]
        )
        port = _clustered(actor, actor.planned_key)
        outcome = recluster(port, request, lambda _plan: engine_of(actor, args), plan=actor.plan)
        run.commits_reported = outcome.commits


class SchedulePlan(Recluster):
    """Keep a plan in a folder, for `ExecutePending` of whoever."""

    def draw(self, draws: Draws) -> Args:
        return {**super().draw(draws), "expires": draws.rng.choice([60, 3600, 86400])}

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        schedule(IcebergTable(_clustered(actor, args["key"])), args, plans_at=PLANS)


class ExecutePending(Ours):
    """Execute the oldest pending plan, or any; see the native one."""

    def draw(self, draws: Draws) -> Args:
        return pending_draw(draws)

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        run.commits_reported = execute_pending(IcebergTable(actor.port), actor, args, plans_at=PLANS)


class CancelPlan(Ours):
    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        cancel_any(IcebergTable(actor.port), actor, plans_at=PLANS)


class CollectGarbage(Ours):
    """Delete what tblctl left behind; with `keep`, expire snapshots first."""

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        return {"keep": rng.choice([None, 1, 1, 3]), "grace": rng.choice([DAY, DAY, 2 * DAY])}

    def run(self, actor: IcebergActor, run: Run, args: Args) -> None:  # type: ignore[override]
        expires = args["keep"] is not None
        age_ms = int(args.get("age", 0.0) * 1000)
        port = copy.copy(actor.port)

        def now() -> float:
            actor.sleep(args["slow_seconds"])  # it reads what snapshots name, between two looks at the table
            return actor.env.now()

        if "slow_seconds" in args:
            port.env = dataclasses.replace(actor.env, now=now)
        port.collect(args["grace"], expires=expires, age_ms=age_ms, keep=args["keep"], dry_run=False)


class CollectSlowly(CollectGarbage):
    """Expire all but the newest snapshot; it takes minutes to read what the others name."""

    known_as = "gc"

    def draw(self, draws: Draws) -> Args:
        return {"keep": 1, "grace": DAY, "slow_seconds": 400.0}


ICEBERG_OPERATIONS: Mapping[str, IcebergOperation] = {
    "append": Append(),
    "append to branch": AppendToBranch(),
    "delete": Delete(),
    "overwrite": Overwrite(),
    "delete positions": DeletePositions(),
    "delete equal": DeleteEqual(),
    "change schema": ChangeSchema(),
    "change spec": ChangeSpec(),
    "refer": Refer(),
    "tag an older one": TagOlder(),
    "rollback": Rollback(),
    "expire": Expire(),
    "recreate": Recreate(),
    "read": Read(),
    "recluster": Recluster(),
    "recluster part": ReclusterPart(),
    "recluster slowly": ReclusterSlowly(),
    "plan": MakePlan(),
    "carry out": CarryOut(),
    "schedule": SchedulePlan(),
    "execute": ExecutePending(),
    "cancel": CancelPlan(),
    "gc": CollectGarbage(),
    "gc slowly": CollectSlowly(),
}

ICEBERG_ACTORS: Mapping[str, Sequence[Sequence[str]]] = {
    "appender": [["append"], ["append"], ["append"], ["append to branch"]],
    "copy-on-write deleter": [["delete"]],
    "merge-on-read deleter": [["delete positions"]],
    "merge-on-read deleter again": [["delete positions"]],
    "streaming deleter": [["append"], ["delete equal"]],
    "overwriter": [["overwrite"]],
    "schema changer": [["change schema"]],
    "spec changer": [["change spec", "append"]],
    "tagger": [["refer"]],
    "rollback": [["rollback"], ["append"], ["append"], ["append"]],
    "expirer": [["expire"]],
    "recreator": [["append"], ["append"], ["recreate", "append"]],
    "reader": [["read"]],
    "reclusterer": [["recluster"]],
    "reclusterer again": [["recluster"]],
    "plan executor": [["plan", "carry out"]],
    "scheduler": [["schedule"], ["schedule", "execute"], ["schedule", "cancel"]],
    "executor of pending plans": [["execute"], ["schedule", "execute"]],
    "gc": [["gc"]],
}
"""What each actor does: it draws one of its sequences of operations after the other."""

SEARCHERS: Mapping[str, Sequence[Sequence[str]]] = {
    "batch job": [["append", "append", "delete positions", "recluster part"]],
    "slow reclusterer": [["recluster slowly"]],
    "late streaming deleter": [["delete equal"]],
    "slow gc": [["gc slowly"]],
    "late tagger": [["tag an older one"]],
}
"""Actors for searches of seeded bugs; no other history has them."""

RESTS: Mapping[str, float] = {
    "slow reclusterer": 5.0,
    "late streaming deleter": 60.0,
    "slow gc": 5.0,
    "late tagger": 60.0,
}
"""Seconds that some actors rest before each operation; others rest any time. The late ones act while the slow ones are
at work."""
