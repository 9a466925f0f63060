"""Operations that recluster a native table: at once, by a plan that is carried out later, by a pending one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulation.engine import PlayedEngine
from simulation.model import sql
from simulation.operation import Args, Draws, Operation
from simulation.policies import SIDE_SORT, drawn_policies
from tblctl.conditions import resolved
from tblctl.maintain.pending import PendingJob, execute
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request, make_plan
from tblctl.tableformat.workload.queries import Query, Workload

if TYPE_CHECKING:
    from simulation.world import Actor, Run
    from tblctl.tableformat.environment import Environment


class Recluster(Operation):
    commits = "many"

    def draw(self, draws: Draws) -> Args:
        rng = draws.rng
        names = drawn_policies()
        return {
            "policy": rng.choice([*names, SIDE_SORT.name]),
            "final": rng.random() < 0.3,
            "where": draws.condition() if rng.random() < 0.2 else None,
            "commit_every": rng.choice([None, None, 1]),
            "twice": rng.choice([0.0, 0.0, 0.5]),
            "workload": drawn_workload(draws),
        }

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        request = request_of(args)
        outcome = recluster(actor.table._port, request, lambda _plan: engine_of(actor, args))
        run.commits_reported = outcome.commits
        return None


class FollowLog(Recluster):
    """Recluster for the queries that the table's log has."""

    def draw(self, draws: Draws) -> Args:
        return {**super().draw(draws), "policy": "workload", "workload": None}


class MakePlan(Operation):
    """Plan, and keep the plan for `CarryOut`."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        return Recluster().draw(draws)

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        version = actor.table._port.newest()
        actor.plan = make_plan(version, request_of(args), env=actor.env, port=actor.table._port)
        return None


class CarryOut(Operation):
    """Carry out the plan that was made last, however long ago."""

    commits = "many"

    def draw(self, draws: Draws) -> Args:
        return {"twice": 0.0, "commit_every": draws.rng.choice([None, 1])}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        if actor.plan is None:
            return None
        request = Request.of(
            policy=None, condition=lambda _schema: None, options=None, commit_every=args["commit_every"]
        )
        outcome = recluster(actor.table._port, request, lambda _plan: engine_of(actor, args), plan=actor.plan)
        run.commits_reported = outcome.commits
        return None


class SchedulePlan(Operation):
    """Keep a plan with the table, for `ExecutePending` of whoever."""

    commits = "none"

    def draw(self, draws: Draws) -> Args:
        return {**Recluster().draw(draws), "expires": draws.rng.choice([1, 60, 3600, 86400])}

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        schedule(actor.table, args)
        return None


def schedule(table: Any, args: Args, **where: Any) -> None:
    """Keep a plan with a table of any format; `where`: its place."""
    request = request_of(args)
    table.schedule(
        request.policy,
        sql(args["where"]),
        _EAGER.get(args["policy"]),
        expires=args["expires"],
        workload=request.workload,
        **where,
    )


class ExecutePending(Operation):
    """Execute the oldest pending plan, or any: group by group, or many at once, or taking them from others too soon."""

    commits = "many"

    def draw(self, draws: Draws) -> Args:
        return pending_draw(draws)

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        run.commits_reported = execute_pending(actor.table, actor, args)
        return None


def pending_draw(draws: Draws) -> Args:
    rng = draws.rng
    return {
        "any": rng.random() < 0.3,
        "twice": 0.0,
        "claim_seconds": rng.choice([0.0, 30.0, 1800.0]),
        "claim_bytes": rng.choice([0, 0, 2**30]),
    }


def execute_pending(table: Any, actor: Actor, args: Args, **where: Any) -> int:
    """Execute a pending plan of a table of any format, and return the number of commits that it reports."""
    chosen = _any_plan(table, actor, **where) if args["any"] else None
    job = PendingJob(
        port=table._port,
        plans=table._plans(where.get("plans_at")),
        request=Request.of(policy=None, condition=lambda _schema: None, options=None),
        engine=lambda _plan: engine_of(actor, args),
        claim_seconds=args["claim_seconds"],
        claim_bytes=args["claim_bytes"],
    )
    return execute(job, chosen).commits


class CancelPlan(Operation):
    commits = "none"

    def run(self, actor: Actor, run: Run, args: Args) -> int | None:
        cancel_any(actor.table, actor)
        return None


def cancel_any(table: Any, actor: Actor, **where: Any) -> None:
    """Cancel a pending plan of a table of any format, if there is one."""
    chosen = _any_plan(table, actor, **where)
    if chosen is not None:
        table.cancel_plan(chosen, **where)


def _any_plan(table: Any, actor: Actor, **where: Any) -> str | None:
    found = [item.id for item in table.pending_plans(**where)]
    return found[int(actor.env.random() * len(found))] if found else None


def request_of(args: Args) -> Request:
    policy = SIDE_SORT if args["policy"] == SIDE_SORT.name else args["policy"]
    return Request.of(
        policy=policy,
        condition=lambda schema: resolved(sql(args["where"]), schema),
        options=_EAGER.get(args["policy"]),
        final=args["final"],
        commit_every=args["commit_every"],
        workload=_workload(args["workload"]),
    )


_EAGER: Mapping[str, Mapping[str, Any]] = {
    "levels": {"threshold": 1},
    "runs": {"target_depth": 1},
    "depth": {"clustering_depth": 1},
    "workload": {"alpha": 1e-12, "target_depth": 1},
}
"""Options with which policies merge tables as small as these; others do anyway."""


def drawn_workload(draws: Draws) -> list[Any] | None:
    """Return the conditions of queries that are handed in; None: the table's log counts."""
    if draws.rng.random() < 0.5:
        return None
    return [draws.condition() for _ in range(draws.rng.randint(1, 4))]


def _workload(conditions: Sequence[Any] | None) -> Workload | None:
    if conditions is None:
        return None
    return Workload(queries=tuple(Query(time=0.0, where=sql(item) or "") for item in conditions))


def engine_of(actor: Actor, args: Args) -> PlayedEngine:
    env: Environment = actor.env
    return PlayedEngine(run_twice=lambda: env.random() < args["twice"])
