"""What actors do. An actor is added with one line in `ACTORS`, an operation with one in `OPERATIONS`.

An operation draws its arguments from a history's seed, carries them out on a table, and says what its commit does to
the model. `commits` says how many commits it makes if it succeeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulation.lake import Deliver, Export, Import
from simulation.model import OWN_COLUMNS, Version, sql
from simulation.operation import Args, Draws, K, Operation, S, modelled
from simulation.reclusters import (
    CancelPlan,
    CarryOut,
    ExecutePending,
    FollowLog,
    MakePlan,
    Recluster,
    SchedulePlan,
)
from simulation.recording import BeAway, RecordScans
from tblctl.tableformat.model.snapshot import Batch
from tblctl.tableformat.native.write.staged_write import StagedWriter, joined

if TYPE_CHECKING:
    from simulation.world import Actor, Run

_KEYS = ("k", "x", "k, x", "s desc", "id", "bucket(4, id)", "truncate(1, s), k")
CONDITIONS = "memory://simulation/conditions/cuts.sql"
CURVES = ("hilbert(k, x)", "zorder(s, k, id)", "same")
LAYOUTS = (*CURVES[:2], f"qdtree(file:{CONDITIONS}, min_rows=1)", *CURVES[2:])


class Append(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"rows": draws.rows()}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        data = actor.data(run, args["rows"])
        return actor.table.append(data).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.plus(modelled(args["rows"], run.names))


class Overwrite(Operation):
    def draw(self, draws: Draws) -> Args:
        everything = draws.rng.random() < 0.25
        where = None if everything else draws.condition()
        return {"rows": draws.rows(5), "where": where}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        data = actor.data(run, args["rows"])
        return actor.table.overwrite(data, sql(args["where"])).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.without(args["where"]).plus(modelled(args["rows"], run.names))


class Delete(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"where": draws.condition()}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.delete(sql(args["where"])).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.without(args["where"])


class Update(Operation):
    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        column = rng.choice(["k", "x", "s", "n"])
        choices = {"k": K, "x": (None, -0.0, 0.0, 9.5), "s": (*S, f"u{draws.number()}"), "n": (5, None)}
        return {"column": column, "value": rng.choice(choices[column]), "where": draws.condition()}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.update({args["column"]: args["value"]}, sql(args["where"])).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return before.updated(args["column"], args["value"], args["where"])


class Stage(Operation):
    """Rows from several tasks in one commit; `stream`: the number of the actor's batch that they are, or 0.

    As on Spark, an attempt of a task may be abandoned, and a task may run twice: `first_of_each` counts one attempt.
    """

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        parts = [draws.rows(4) for _ in range(rng.randint(1, 3))]
        return {
            "parts": parts,
            "attempts": [rng.choice([1, 1, 2]) for _ in parts],
            "everything": rng.random() < 0.1,
            "stream": 0,
        }

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        native = actor.table._native
        data = [actor.data(run, part) for part in args["parts"]]
        writer = StagedWriter.of(native.storage, native.env, native.head())
        messages = [
            (task, writer.write(rows.schema, [rows]))
            for task, (rows, attempts) in enumerate(zip(data, args["attempts"], strict=True))
            for _ in range(attempts)
        ]
        stream = args["stream"] and f"stream {actor.number}"
        published = native.write(
            "overwrite" if args["everything"] else "append",
            staged=joined(first_of_each(messages)),
            everything=args["everything"],
            batch=Batch(stream=stream, number=args["stream"]) if stream else None,
        )
        return published.snapshot.sequence if published else None

    def model(self, before: Version, run: Run, args: Args) -> Version:
        rows = [row for part in args["parts"] for row in part]
        start = before.with_rows({}) if args["everything"] else before
        return start.plus(modelled(rows, run.names))


def first_of_each(messages: Sequence[tuple[int, Any]]) -> list[Any]:
    """Return the outcome of one attempt of each task, as Spark's commit coordinator hands them to the driver."""
    return list(dict(reversed(messages)).values())


class StreamBatch(Stage):
    """The next batch of a stream. It is tried again until it is committed, or its query gives up."""

    def draw(self, draws: Draws) -> Args:
        return {**super().draw(draws), "everything": False, "stream": draws.number()}


class AddColumn(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"name": f"c{draws.number()}"}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        actor.world.uids[args["name"]] = args["name"]
        return actor.table.add_column(args["name"], "string").snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        uid = args["name"]
        rows = {key: {**row, uid: None} for key, row in before.rows.items()}
        return dataclasses.replace(before, names={**before.names, uid: uid}, rows=rows)


class RenameColumn(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"to": f"r{draws.number()}"}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        name = _added_column(actor)
        if name is None:
            return None
        run.column = actor.world.uids[args["to"]] = actor.world.uids[name]
        return actor.table.rename_column(name, args["to"]).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return dataclasses.replace(before, names={**before.names, run.column: args["to"]})


class DropColumn(Operation):
    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        name = _added_column(actor)
        if name is None:
            return None
        run.column = actor.world.uids[name]
        return actor.table.drop_column(name).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        names = {uid: name for uid, name in before.names.items() if uid != run.column}
        rows = {key: {uid: row[uid] for uid in names} for key, row in before.rows.items()}
        return dataclasses.replace(before, names=names, rows=rows)


def _added_column(actor: Actor) -> str | None:
    return next((name for name in actor.table.schema.names if name not in OWN_COLUMNS), None)


class WidenColumn(Operation):
    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.widen_column("n", "int64").snapshot


class SetKey(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"terms": draws.rng.choice(_KEYS + LAYOUTS)}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.set_cluster_key(args["terms"]).snapshot


class DropKey(Operation):
    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.drop_cluster_key().snapshot


class CollectGarbage(Operation):
    commits = "many"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        grace = rng.choice([0.0, 0.0, 1.0, 60.0, 3600.0, 86400.0])
        return {"keep": rng.choice([1, 1, 2, 5]), "older_than": grace, "dry_run": rng.random() < 0.1}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        actor.table.gc(args["keep"], args["older_than"], dry_run=args["dry_run"])
        return None


class ResetClock(Operation):
    """The janitor's: correct the table's time after an actor with a wrong clock."""

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.reset_clock().snapshot


class Rollback(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"back": draws.rng.randint(1, 4)}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        run.target = max(1, actor.table.snapshot.sequence - args["back"])
        return actor.table.rollback(run.target).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return dataclasses.replace(run.world.oracle.versions[run.target], tags=before.tags)


class SetTag(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"name": draws.rng.choice(["a", "b"]), "back": draws.rng.choice([0, 1, 2, 5])}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        run.target = max(1, actor.table.snapshot.sequence - args["back"])
        return actor.table.tag(args["name"], run.target).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        return dataclasses.replace(before, tags={**before.tags, args["name"]: run.target})


class DeleteTag(Operation):
    def draw(self, draws: Draws) -> Args:
        return {"name": draws.rng.choice(["a", "b"])}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        return actor.table.delete_tag(args["name"]).snapshot

    def model(self, before: Version, run: Run, args: Args) -> Version:
        tags = {name: sequence for name, sequence in before.tags.items() if name != args["name"]}
        return dataclasses.replace(before, tags=tags)


class Read(Operation):
    """Read the newest version."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        return {"where": draws.condition() if draws.rng.random() < 0.7 else None}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        oracle = actor.world.oracle
        first = oracle.newest
        data = actor.table.scan(sql(args["where"])).to_arrow()
        oracle.require_rows(data, range(first, oracle.newest + 1), args["where"], "a scan")
        return None


class TimeTravel(Operation):
    """Read one version several times, while others go on."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        return {"back": rng.randint(0, 4), "tag": rng.choice([None, "a", "b"]), "times": rng.randint(1, 3)}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        newest = actor.table._port.newest()
        back = max(1, newest.public_id - args["back"])
        run.target = newest.snapshot.tags.get(args["tag"], back)
        table = actor.pinned(run.target)
        for _ in range(args["times"]):
            data = table.scan().to_arrow()
            actor.world.oracle.require_rows(data, [run.target], None, f"a reader of snapshot {run.target}")
        return None


OPERATIONS: dict[str, Operation] = {
    "append": Append(),
    "overwrite": Overwrite(),
    "delete": Delete(),
    "update": Update(),
    "stage": Stage(),
    "stream": StreamBatch(),
    "recluster": Recluster(),
    "follow log": FollowLog(),
    "plan": MakePlan(),
    "carry out": CarryOut(),
    "schedule": SchedulePlan(),
    "execute": ExecutePending(),
    "cancel": CancelPlan(),
    "add column": AddColumn(),
    "rename column": RenameColumn(),
    "drop column": DropColumn(),
    "widen column": WidenColumn(),
    "set key": SetKey(),
    "drop key": DropKey(),
    "gc": CollectGarbage(),
    "rollback": Rollback(),
    "tag": SetTag(),
    "untag": DeleteTag(),
    "read": Read(),
    "travel": TimeTravel(),
    "record": RecordScans(),
    "be away": BeAway(),
    "deliver": Deliver(),
    "import": Import(),
    "export": Export(),
    "reset clock": ResetClock(),
}

ACTORS: dict[str, Sequence[Sequence[str]]] = {
    "appender": [["append"]],
    "staged writer": [["stage"]],
    "streaming writer": [["stream"]],
    "deleter": [["delete"]],
    "updater": [["update"]],
    "overwriter": [["overwrite"]],
    "reclusterer": [["recluster"]],
    "plan executor": [["plan", "carry out"]],
    "scheduler": [["schedule"], ["schedule"], ["schedule", "execute"], ["cancel"]],
    "executor of pending plans": [["execute"], ["execute"], ["schedule", "execute"]],
    "schema changer": [["add column"], ["add column"], ["rename column"], ["drop column"], ["widen column"]],
    "key changer": [["set key"], ["set key"], ["drop key"]],
    "gc": [["gc"]],
    "gc again": [["gc"]],
    "rollback": [["rollback"], ["rollback"], ["append"]],
    "tagger": [["tag"], ["tag"], ["untag"]],
    "reader": [["read"]],
    "traveller": [["travel"]],
    "recording reader": [["record"], ["record"], ["record", "be away", "gc"]],
    "analyst": [["record", "follow log"], ["record", "schedule"]],
    "producer": [["deliver"]],
    "importer": [["deliver", "import"], ["deliver", "import"], ["import"]],
    "exporter": [["export"]],
}
"""What each actor does: it draws one of its sequences of operations after the other."""
