"""Rewrite the blocks whose rewrite helps most."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import click

import tblctl
from tblctl import errors
from tblctl.cli.arguments import params, policy_flags
from tblctl.cli.arguments.engines import EngineChoice, engine_options
from tblctl.cli.command import command, say, with_notes
from tblctl.cli.commands.measure import find_tables
from tblctl.cli.commands.plan import planned
from tblctl.cli.failures import Terminated
from tblctl.cli.show import plans, prometheus, render
from tblctl.cli.show.outcomes import RECLUSTER_JSON, print_missing, print_recluster, watched_line
from tblctl.cli.show.plans import PLAN_JSON
from tblctl.cli.show.policies import POLICIES_JSON, print_policies
from tblctl.cli.show.progress import progress

AUTO = "auto"
"""What `--cluster-by` takes for the key that queries call for."""

OLDEST = "oldest"
"""What `--pending` without an id stands for."""


@command(
    "recluster",
    kind=policy_flags.PlanningCommand,
    example="""
    tblctl recluster /data/lineitem --dry-run
    tblctl recluster /data/lineitem --final
    tblctl recluster /data/lineitem --pending
    tblctl recluster iceberg://prod/sales.orders --cluster-by "region, day(ts)" --dry-run
    tblctl recluster --list-policies
    tblctl recluster --watch 5m --all iceberg://prod --daily-bytes 500GiB
    tblctl recluster /data/lineitem --where "l_shipdate >= '1998-01-01'" --max-bytes 10GiB --master "local[2]\"""",
    json_shape=f"""
    {RECLUSTER_JSON.strip()}
    with --dry-run the plan: {PLAN_JSON.strip()}
    where --if-exists finds no table an object: location, note
    with --list-policies an {POLICIES_JSON.strip()}
    with --watch an object a line for each round: time, location, status (reclustered, idle, conflict, failed, error,
            budget), outcome (the first object above, or null), error, bytes_today""",
    writes=True,
)
@click.argument("locations", metavar="LOC...", nargs=-1, shell_complete=params.complete_folders)
@click.option(
    "--final",
    is_flag=True,
    help="Run rounds until there is nothing left to merge. Beside a writer that never pauses it may never end. "
    "--max-bytes, --max-seconds and --max-cost limit the whole run, --max-blocks and --max-groups each round.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only show what a round would do; --json gives a plan for --plan."
)
@params.WHERE_BLOCKS
@click.option("--if-exists", is_flag=True, help="No table at LOC is no error.")
@params.size_option("--memory", "Most memory of one merge task (default: 1GiB).", name="memory_bytes")
@click.option(
    "--plan", "plan_file", metavar="FILE", type=click.File(), help="Do what --dry-run --json planned."
)
@click.option(
    "--pending",
    metavar="[ID]",
    is_flag=False,
    flag_value=OLDEST,
    help="Carry out a plan that `plan --schedule` kept; without ID the oldest. Several processes may do so at once: "
    "each takes groups that no other one took.",
)
@params.PLANS_AT
@params.CLUSTER_BY_OR_AUTO
@click.option(
    "--watch",
    "every",
    metavar="TIME",
    help="Go on until SIGTERM or Ctrl-C (exit code 0): at these intervals (30s, 5m) one round for each "
    "table that has something to merge, the worst first by depth x bytes.",
)
@click.option(
    "--all",
    "below",
    metavar="DIR",
    help="With --watch: all tables at or below DIR, a folder or URL, or of a catalog (iceberg://CATALOG), also those "
    "that come later.",
)
@click.option(
    "--namespace", metavar="NAME", help="With --all iceberg://CATALOG: only this namespace and those below."
)
@click.option(
    "--list-policies", is_flag=True, help="Only list the policies, what each does, and its options."
)
@params.METRICS_FILE
@params.size_option("--daily-bytes", "With --watch: most bytes of files to rewrite a day (UTC).")
@engine_options
@params.opens_any_format
def recluster(
    *,
    locations: tuple[str, ...],
    every: str | None,
    below: str | None,
    namespace: str | None,
    list_policies: bool,
    daily_bytes: int | None,
    final: bool,
    dry_run: bool,
    where: str | None,
    if_exists: bool,
    policy: str | None,
    plan_file: IO[str] | None,
    pending: str | None,
    plans_at: str | None,
    cluster_by: str | None,
    metrics_file: str | None,
    opening: dict[str, Any],
    as_json: bool,
    **words: Any,
) -> None:
    """Merge overlapping blocks, so that a key is in few of them.

    One round: plan, merge, commit (with --pending only the latter two). Other writers are never blocked. Groups whose
    blocks they replace are dropped.
    """
    if list_policies:
        list_all_policies(locations, as_json=as_json)
        return
    engine = EngineChoice.of(words).arguments()
    given = {"--plan": plan_file, "--pending": pending}
    limits = policy_flags.given(words, with_settings=not any(given.values()))
    check_words(limits, given, final, dry_run, where=where, policy=policy)
    check_pending(pending, plans_at, engine, {"--plan": plan_file, "--cluster-by": cluster_by})
    selection: dict[str, Any] = {"policy": policy, "where": where, "options": limits or None}
    if every is not None:
        alone = {"--final": final, "--dry-run": dry_run, "--if-exists": if_exists, "--cluster-by": cluster_by}
        check_watch(locations, below, {**alone, **given, "--metrics-file": metrics_file})
        tables = tables_to_watch(locations, below, namespace, opening)
        rounds = tblctl.watch(tables, every=every, daily_bytes=daily_bytes, **selection, **engine, **opening)
        print_watch(rounds, as_json=as_json)
        return
    location = only_one(locations, all=below, namespace=namespace, daily_bytes=daily_bytes)
    plan = None if plan_file is None else read_plan(plan_file)
    table = opened(location, opening, if_exists=if_exists)
    if table is None:
        print_missing(location, as_json=as_json)
        return
    keyed = params.keyed_by(table, key_given(table, cluster_by, plan, dry_run=dry_run))
    if dry_run:
        with progress("planning"):
            made = planned(table, limits, final=final, policy=policy, where=where, **keyed)
        plans.print_plan(made, final=final, advice=params.refine_advice(location, opening), as_json=as_json)
        return
    if pending is not None:
        work = partial(carry_out, table, pending, plans_at, engine)
    else:
        work = partial(carry_out_now, table, plan, plan_file, final=final, **selection, **keyed, **engine)
    print_recluster(prometheus.metered(metrics_file, table, work), as_json=as_json)


def key_given(
    table: tblctl.Table, terms: str | None, plan: tblctl.Plan | None, *, dry_run: bool
) -> str | None:
    """Return the key to plan by, where it is another one than the table's."""
    if terms is None or terms.strip().lower() != AUTO:
        return terms
    if plan is not None:
        params.refuse("--plan was planned by the key that the table had: leave out --cluster-by auto")
    return follow_queries(table, dry_run=dry_run)


def follow_queries(table: tblctl.Table, *, dry_run: bool) -> str | None:
    """Give the table the key that its queries call for, and say why.

    That of an Iceberg table is returned: its first commit keeps it. With --dry-run nothing is changed.
    """
    with progress("choosing the key"):
        choice = table.choose_key()
    terms = ", ".join(choice.cluster_by)
    now = ", ".join(choice.present) or "none"
    if not choice.changes:
        say(f"tblctl: the cluster key stays {now}: {choice.why}")
        return None
    is_native = isinstance(table, tblctl.Table)
    would = "would be" if dry_run else "is now" if is_native else "will be"
    more = f" (what follows is planned by {now})" if dry_run and is_native else ""
    if is_native and not dry_run:
        table.set_cluster_key(choice.cluster_by, why=choice.why)
    say(f"tblctl: the cluster key {would} {terms} instead of {now}: {choice.why}{more}")
    return None if is_native else terms


def carry_out_now(
    table: tblctl.Table, plan: tblctl.Plan | None, file: IO[str] | None, **words: Any
) -> tblctl.Outcome:
    """Plan and carry out, or carry out the plan of a file."""
    with progress("reclustering", first="planning") as report, naming(file):
        return table.recluster(plan, progress=report, **words)


def list_all_policies(locations: tuple[str, ...], *, as_json: bool) -> None:
    """Print the policies, which do not depend on a table."""
    if locations:
        params.refuse("--list-policies takes no table: which policies there are does not depend on one")
    print_policies(as_json=as_json)


def opened(location: str, opening: dict[str, Any], *, if_exists: bool) -> tblctl.Table | None:
    """Open the table; None with --if-exists where there is none."""
    try:
        return tblctl.open(location, **opening)
    except errors.TableNotFoundError:
        if not if_exists:
            raise
        return None


def check_pending(
    pending: str | None, plans_at: str | None, engine: dict[str, Any], alone: dict[str, Any]
) -> None:
    """Refuse options that do not go with --pending, and one that goes with it only."""
    if pending is None:
        if plans_at is not None:
            params.refuse("--plans-at goes with --pending")
        return
    for flag, value in {**alone, "--commit-every": engine["commit_every"]}.items():
        if value is not None:
            params.excluded("--pending", flag)


def only_one(locations: tuple[str, ...], **of_watch: Any) -> str:
    """Return the table. Refuse several, and options of --watch, without it."""
    for name, value in of_watch.items():
        if value is not None:
            params.refuse(f"--{name.replace('_', '-')} goes with --watch TIME")
    if len(locations) != 1:
        params.refuse("name one table (LOC); several go with --watch TIME")
    return locations[0]


def carry_out(
    table: tblctl.Table, pending: str, plans_at: str | None, engine: dict[str, Any]
) -> tblctl.Outcome:
    """Carry out a pending plan."""
    with progress("reclustering") as report:
        return table.recluster_pending(
            None if pending == OLDEST else pending,
            progress=report,
            plans_at=plans_at,
            **{name: value for name, value in engine.items() if name != "commit_every"},
        )


def check_watch(locations: tuple[str, ...], below: str | None, alone: dict[str, Any]) -> None:
    """Refuse options that do not go with --watch."""
    if not locations and below is None:
        params.refuse("name the tables to watch (LOC...), or --all DIR")
    for flag, value in alone.items():
        if value and flag == "--metrics-file":
            params.excluded("--watch", flag, "run `tblctl info --all DIR --metrics-file FILE` beside it")
        if value:
            params.excluded("--watch", flag, "each turn plans one round of each table anew")


def tables_to_watch(
    locations: tuple[str, ...], below: str | None, namespace: str | None, opening: dict[str, Any]
) -> Callable[[], list[str]]:
    """Return what finds the tables at each turn. They are looked for once now, so that wrong words are errors."""
    params.check_namespace(namespace, below)

    def found() -> list[str]:
        return [*locations, *([] if below is None else find_tables(below, namespace, opening))]

    found()
    return found


def print_watch(rounds: Iterator[tblctl.WatchedRound], *, as_json: bool) -> None:
    """Print a line for each round until the process is told to stop."""
    try:
        for happened in rounds:
            click.echo(render.json_text(happened.to_dict()) if as_json else watched_line(happened))
    except (KeyboardInterrupt, Terminated) as error:
        say(with_notes("tblctl: stopped", error))


def check_words(
    limits: dict[str, Any], plans: dict[str, Any], final: bool, dry_run: bool, **selection: Any
) -> None:
    """Refuse options that contradict each other. `plans` are the flags that give a plan, and their values."""
    if "threshold" in limits and "ratio" in limits:
        params.refuse("--threshold and --ratio exclude each other: both say when a level is well clustered")
    policy_flags.check(selection.get("policy"), limits)
    planned = next((flag for flag, value in plans.items() if value is not None), None)
    if planned is None:
        return
    given = {**selection, **limits, "final": final or None, "dry_run": dry_run or None}
    options = {"memory_bytes": "--memory"}
    for name, value in given.items():
        if value is not None:
            option = options.get(name, f"--{name.replace('_', '-')}")
            params.refuse(f"{planned} and {option} exclude each other: the plan fixes what one round does")


def read_plan(file: IO[str]) -> tblctl.Plan:
    """Read what `--dry-run --json` printed.

    Raises:
        InvalidDataError: it is no plan, or names a policy that is not known here, or options that this one does not
            have: it was edited.
    """
    try:
        value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"--plan: {file.name} is not JSON: {error}") from error
    try:
        plan = tblctl.Plan.from_json(value)
    except errors.InvalidDataError as error:
        raise errors.InvalidDataError(f"--plan: {file.name}: {error}; nothing was changed") from error
    try:
        tblctl.policies.policy_of(plan.policy)
    except errors.InvalidOptionError as error:
        msg = f"--plan: {file.name} names an {error}; nothing was changed"
        raise errors.InvalidDataError(msg) from error
    own = {flag.option.name for flag in tblctl.policies.flags() if plan.policy in flag.policies}
    if strange := sorted(plan.options.policy.keys() - own):
        msg = (
            f"--plan: {file.name} names policy {plan.policy}, which does not have the plan's option {strange[0]!r}: it "
            "was edited, or is of another version of tblctl; nothing was changed"
        )
        raise errors.InvalidDataError(msg)
    return plan


@contextmanager
def naming(file: IO[str] | None) -> Iterator[None]:
    """Name the file in errors on what the plan in it says."""
    try:
        yield
    except errors.InputError as error:
        if file is not None and "plan_field" in error.details:
            error.message = f"--plan: {file.name}: {error.message}"
        raise
