"""Rewrite the blocks whose rewrite helps most."""

from __future__ import annotations

import json
from typing import IO, Any

import click

import tblctl
from tblctl import errors
from tblctl.cli.arguments import params, policy_flags
from tblctl.cli.arguments.engines import EngineChoice, engine_options
from tblctl.cli.command import Command, command
from tblctl.cli.show import plans
from tblctl.cli.show.outcomes import RECLUSTER_JSON, print_missing, print_recluster
from tblctl.cli.show.progress import progress


class ReclusterCommand(Command):
    """`recluster`, with the flags of the policies that are registered when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; click calls this whenever it needs them."""
        fixed = super().get_params(ctx)
        place = [param.name for param in fixed].index("memory_bytes")
        return [*fixed[:place], *policy_flags.parameters(), *fixed[place:]]


@command(
    "recluster",
    kind=ReclusterCommand,
    example="""
    tblctl recluster /data/lineitem --dry-run
    tblctl recluster /data/lineitem --final
    tblctl recluster iceberg://prod/sales.orders --cluster-by "region, day(ts)" --dry-run
    tblctl recluster /data/lineitem --where "l_shipdate >= '1998-01-01'" --max-bytes 10GiB --master "local[2]\"""",
    json_shape=f"""
    {RECLUSTER_JSON.strip()}
    with --dry-run the plan, an object: version, table_id, snapshot, policy, groups [{{number, blocks [path], sort_id,
            output_level, why, rows, size_bytes, decoded_bytes, same_key_rows, depth_before, depth_after, partition}}],
            rejected [{{rule, level, blocks, size_bytes, why, average_selection_depth, threshold}}],
            predicted {{average_depth_before, average_depth_after, average_overlaps_before, average_overlaps_after,
            block_count_before, block_count_after, unknown_block_count, inexact_block_count}}, note,
            options {{policy, budget, memory_bytes}}, advice [{{policy, threshold, average_depth_after}}],
            sorts [{{id, kind, terms [{{column_id, transform, descending, nulls_first}}], parameters}}]
    where --if-exists finds no table an object: location, note""",
)
@params.LOCATION
@click.option(
    "--final",
    is_flag=True,
    help="Run rounds until there is nothing left to merge. Beside a writer that never pauses it may never end. "
    "--max-bytes, --max-blocks and --max-groups limit each round.",
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
    "--cluster-by",
    metavar="TERMS",
    help="Iceberg: the cluster key, if it is not to be the table's sort order. The first commit keeps it as the "
    "table's property tblctl.cluster-by.",
)
@engine_options
@params.opens_any_format
def recluster(
    *,
    location: str,
    final: bool,
    dry_run: bool,
    where: str | None,
    if_exists: bool,
    policy: str | None,
    plan_file: IO[str] | None,
    cluster_by: str | None,
    opening: dict[str, Any],
    as_json: bool,
    **words: Any,
) -> None:
    """Merge overlapping blocks, so that a key is in few of them.

    One round: plan, merge, commit. Other writers are never blocked. Groups whose blocks they replace are dropped.
    """
    engine = EngineChoice.of(words).arguments()
    limits = {name: words[name] for name in policy_flags.names() if words[name] is not None}
    check_words(
        limits, planned=plan_file is not None, final=final, dry_run=dry_run, where=where, policy=policy
    )
    plan = None if plan_file is None else read_plan(plan_file)
    try:
        table = tblctl.open(location, **opening)
    except errors.TableNotFoundError:
        if not if_exists:
            raise
        print_missing(location, as_json=as_json)
        return
    if cluster_by is not None and not isinstance(table, tblctl.IcebergTable):
        params.refuse("--cluster-by is for Iceberg tables; for others: `tblctl alter LOC --cluster-by ...`")
    keyed = {} if cluster_by is None else {"cluster_by": cluster_by}
    if dry_run:
        if final:  # as in its first round
            limits.setdefault("include_unclustered", True)
        named: dict[str, Any] = {} if policy is None else {"policy": policy}
        named |= keyed
        made = table.plan(where=where, options=limits, **named)
        advice = params.refine_advice(location, opening)
        plans.print_plan(made, final=final, advice=advice, as_json=as_json)
        return
    with progress("reclustering") as report:
        outcome = table.recluster(
            plan,
            policy=policy,
            where=where,
            options=limits or None,
            final=final,
            progress=report,
            **keyed,
            **engine,
        )
    print_recluster(outcome, as_json=as_json)


def check_words(
    limits: dict[str, Any], *, planned: bool, final: bool, dry_run: bool, **selection: Any
) -> None:
    """Refuse options that contradict each other."""
    if "threshold" in limits and "ratio" in limits:
        params.refuse("--threshold and --ratio exclude each other: both say when a level is well clustered")
    policy_flags.check(selection.get("policy"), limits)
    if not planned:
        return
    given = {**selection, **limits, "final": final or None, "dry_run": dry_run or None}
    options = {"memory_bytes": "--memory"}
    for name, value in given.items():
        if value is not None:
            option = options.get(name, f"--{name.replace('_', '-')}")
            params.refuse(f"--plan and {option} exclude each other: the plan fixes what one round does")


def read_plan(file: IO[str]) -> tblctl.Plan:
    """Read what `--dry-run --json` printed."""
    try:
        value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"--plan: {file.name} is not JSON: {error}") from error
    return tblctl.Plan.from_json(value)
