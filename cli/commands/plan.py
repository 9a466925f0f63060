"""Say what a recluster would do, and keep it for later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params, policy_flags
from tblctl.cli.command import command
from tblctl.cli.show import plans, render
from tblctl.cli.show.output import cannot_write
from tblctl.cli.show.plans import PLAN_JSON
from tblctl.local_file import whole_file


@command(
    "plan",
    kind=policy_flags.PlanningCommand,
    example="""
    tblctl plan /data/lineitem --output plan.json && tblctl recluster /data/lineitem --plan plan.json
    tblctl plan /data/lineitem --policy full --max-bytes 10GiB
    tblctl plan iceberg://prod/sales.orders --cluster-by "region, day(ts)\"""",
    json_shape=f"the plan: {PLAN_JSON.strip()}",
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
@params.CLUSTER_BY_ICEBERG
@params.opens_any_format
def plan(
    *,
    location: str,
    final: bool,
    where: str | None,
    policy: str | None,
    output: str | None,
    cluster_by: str | None,
    opening: dict[str, Any],
    as_json: bool,
    **words: Any,
) -> None:
    """Show what a round of recluster would merge, and why.

    Also what it is expected to bring, and what it leaves out and why. Nothing is changed. The plan can be kept and
    carried out later. Groups whose blocks other writers replace meanwhile drop out then.
    """
    limits = {name: words[name] for name in policy_flags.names() if words[name] is not None}
    policy_flags.check(policy, limits)
    table = tblctl.open(location, **opening)
    made = planned(
        table, limits, final=final, policy=policy, where=where, **params.keyed_by(table, cluster_by)
    )
    if output is not None:
        write_plan(made, output)
    plans.print_plan(made, final=final, advice=params.refine_advice(location, opening), as_json=as_json)
    if output is not None and not as_json:
        click.echo(f"The plan is in {output}: `tblctl recluster LOC --plan {output}` carries it out.")


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
    options = {"include_unclustered": True, **limits} if final else dict(limits)
    named: dict[str, Any] = {} if policy is None else {"policy": policy}
    return table.plan(options=options, **selection, **named)
