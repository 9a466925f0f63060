"""Say what a recluster would do, and keep it for later."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params, policy_flags
from tblctl.cli.command import command
from tblctl.cli.show import plans, render
from tblctl.cli.show.output import cannot_write
from tblctl.cli.show.pending import PENDING_JSON, print_cancelled, print_pending, print_scheduled
from tblctl.cli.show.plans import PLAN_JSON
from tblctl.cli.show.progress import progress
from tblctl.local_file import whole_file


@command(
    "plan",
    kind=policy_flags.PlanningCommand,
    example="""
    tblctl plan /data/lineitem --output plan.json && tblctl recluster /data/lineitem --plan plan.json
    tblctl plan /data/lineitem --policy full --max-bytes 10GiB
    tblctl plan /data/lineitem --schedule --expires 2d && tblctl recluster /data/lineitem --pending
    tblctl plan /data/lineitem --list
    tblctl plan iceberg://prod/sales.orders --cluster-by "region, day(ts)\"""",
    json_shape=f"""
    the plan: {PLAN_JSON.strip()}
    with --schedule an object: id, expires (null where there is nothing to do), plan (the object above)
    with --list a list of objects, with --cancel one: {PENDING_JSON.strip()}""",
)
@params.LOCATION
@click.option("--final", is_flag=True, help="Plan the first round of `recluster --final`.")
@params.WHERE_BLOCKS
@params.size_option("--memory", "Most memory of one merge task (default: 1GiB).", name="memory_bytes")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(allow_dash=True, dir_okay=False),
    help="Also write the plan, for `recluster --plan FILE`.",
)
@click.option(
    "--schedule",
    "keep",
    is_flag=True,
    help="Keep the plan with the table, for `recluster --pending` of any process. Blocks of other pending plans are "
    "left out.",
)
@click.option(
    "--expires", metavar="TIME", help="With --schedule: not executed after this time (default: 7d)."
)
@click.option("--list", "show", is_flag=True, help="Show the pending plans instead.")
@click.option(
    "--cancel", metavar="ID", help="Remove a pending plan instead. Groups that were begun are committed."
)
@params.PLANS_AT
@params.CLUSTER_BY_ICEBERG
@params.opens_any_format
def plan(
    *,
    location: str,
    final: bool,
    where: str | None,
    policy: str | None,
    output: str | None,
    keep: bool,
    expires: str | None,
    show: bool,
    cancel: str | None,
    plans_at: str | None,
    cluster_by: str | None,
    opening: dict[str, Any],
    as_json: bool,
    **words: Any,
) -> None:
    """Show what a round of recluster would merge, and why.

    Also what it is expected to bring, and what it leaves out and why. Nothing is changed. The plan can be kept and
    carried out later. Groups whose blocks other writers replace meanwhile drop out then.

    With --schedule, one process plans, and others carry out, several at once if need be. Hudi calls these modes
    schedule and execute; a recluster without a plan does both (scheduleAndExecute).
    """
    limits = policy_flags.given(words, with_settings=not (show or cancel))
    selection = {"--final": final, "--where": where, "--policy": policy, "--cluster-by": cluster_by, **limits}
    check_words(selection, {"--output": output}, keep=keep, expires=expires, show=show, cancel=cancel)
    policy_flags.check(policy, limits)
    if plans_at is not None and not (keep or show or cancel):
        params.refuse("--plans-at goes with --schedule, --list or --cancel")
    table = tblctl.open(location, **opening)
    here = functools.partial(params.table_words, table, branch=opening["branch"])
    if show:
        print_pending(table.pending_plans(plans_at=plans_at), words=here(plans_at=plans_at), as_json=as_json)
        return
    if cancel is not None:
        print_cancelled(table.cancel_plan(cancel, plans_at=plans_at), as_json=as_json)
        return
    if keep:
        until = {"expires": expires or "7d", "plans_at": plans_at}
        with progress("planning"):
            kept = scheduled(table, limits, final=final, policy=policy, where=where, **until)
        advice = params.refine_advice(location, opening)
        print_scheduled(kept, words=here(plans_at=plans_at), final=final, advice=advice, as_json=as_json)
        return
    keyed = params.keyed_by(table, cluster_by)
    with progress("planning"):
        made = planned(table, limits, final=final, policy=policy, where=where, **keyed)
    if output is not None:
        write_plan(made, output)
    plans.print_plan(made, final=final, advice=params.refine_advice(location, opening), as_json=as_json)
    if output is not None and not as_json:
        again = here(cluster_by=cluster_by, plan=output)
        click.echo(f"The plan is in {output}: `tblctl recluster {again}` carries it out.")


def check_words(
    selection: Mapping[str, Any],
    files: Mapping[str, Any],
    *,
    keep: bool,
    expires: str | None,
    show: bool,
    cancel: str | None,
) -> None:
    """Refuse options that contradict each other: a plan is made, kept, listed or cancelled."""
    modes = {"--schedule": keep, "--list": show, "--cancel": cancel is not None}
    chosen = [flag for flag, given in modes.items() if given]
    if len(chosen) > 1:
        params.refuse(f"{' and '.join(chosen)} exclude each other")
    if expires is not None and not keep:
        params.refuse("--expires goes with --schedule: it says how long the plan is kept")
    others = {**files, **({} if keep else selection), "--cluster-by": selection["--cluster-by"]}
    given = [name for name, value in others.items() if value not in (None, False)] if chosen else []
    if given:
        flag = given[0] if given[0].startswith("--") else f"--{given[0].replace('_', '-')}"
        params.excluded(chosen[0], flag)


def write_plan(made: tblctl.Plan, path: str) -> None:
    """Write a plan to a file; `-` is standard output."""
    text = render.json_text(made.to_json(), indent=2)
    if path == "-":
        click.echo(text)
        return
    try:
        with whole_file(path) as part:
            part.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error


def planned(
    table: tblctl.Table, limits: Mapping[str, Any], *, final: bool, policy: str | None, **selection: Any
) -> tblctl.Plan:
    """Return the plan of a round; with `final` that of the first one."""
    return table.plan(**_selection(limits, final=final, policy=policy), **selection)


def scheduled(
    table: tblctl.Table, limits: Mapping[str, Any], *, final: bool, policy: str | None, **words: Any
) -> tblctl.ScheduledPlan:
    """Keep the plan of a round; with `final` that of the first one."""
    return table.schedule(**_selection(limits, final=final, policy=policy), **words)


def _selection(limits: Mapping[str, Any], *, final: bool, policy: str | None) -> dict[str, Any]:
    options = {"include_unclustered": True, **limits} if final else dict(limits)
    return {"options": options, **({} if policy is None else {"policy": policy})}
