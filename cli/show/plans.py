"""A plan for people, or as the JSON that `recluster --plan` reads."""

from __future__ import annotations

import click

import tblctl
from tblctl.cli.show import render
from tblctl.cli.show.figures import doubts

PLAN_JSON = """
an object: version, table_id, snapshot, policy, groups [{number, blocks [path], sort_id,
            output_level, why, rows, size_bytes, decoded_bytes, same_key_rows, depth_before, depth_after, partition}],
            rejected [{rule, level, blocks, size_bytes, why, average_selection_depth, threshold}],
            predicted {average_depth_before, average_depth_after, average_overlaps_before, average_overlaps_after,
            block_count_before, block_count_after, unknown_block_count, inexact_block_count, figures_of}, note,
            options {policy, budget, memory_bytes}, advice [{policy, threshold, average_depth_after}],
            sorts [{id, kind, terms [{column_id, transform, descending, nulls_first}], parameters}]
"""


def print_plan(plan: tblctl.Plan, *, final: bool, advice: str = "", as_json: bool) -> None:
    """Print what a round would do, why, and what it leaves out. `advice`: as for `put_info`."""
    if as_json:
        render.print_json(plan.to_json())
        return
    if not plan.groups:
        click.echo(render.printable(plan.note))
        print_doubts(plan, advice)
        return
    click.echo(f"policy {plan.policy} on snapshot {plan.snapshot}:\n")
    print_groups(plan)
    if plan.rejected:
        print_rejected(plan)
    print_prediction(plan)
    print_doubts(plan, advice)
    rounds = "This is the first round; later ones are planned on its result. " if final else ""
    click.echo(f"\n{rounds}Nothing was changed.")


def print_groups(plan: tblctl.Plan) -> None:
    """Print a line of figures for every group, their sum, and why each was chosen."""
    partitioned = any(group.partition is not None for group in plan.groups)
    rows = [
        (
            group.number,
            *((group.partition or "(none)",) if partitioned else ()),
            group.output_level,
            f"{len(group.blocks):,}",
            f"{group.rows:,}",
            render.size(group.size_bytes),
            render.average(group.depth_before, 2),
            render.average(group.depth_after, 2),
        )
        for group in plan.groups
    ]
    inside = ("partition",) if partitioned else ()
    names = ("group", *inside, "to level", "blocks", "rows", "size", "depth", "after")
    render.print_table(names, rows, right=(0, *range(len(names) - 6, len(names))))
    blocks = sum(len(group.blocks) for group in plan.groups)
    click.echo(
        f"({render.count(len(plan.groups), 'group')}: {render.count(blocks, 'block')}, "
        f"{render.count(sum(group.rows for group in plan.groups), 'row')}, "
        f"{render.size(sum(group.size_bytes for group in plan.groups))} to rewrite)\n"
    )
    for group in plan.groups:  # whole sentences, too long for a column
        click.echo(f"group {group.number}: {render.printable(group.why)}")


def print_rejected(plan: tblctl.Plan) -> None:
    """Print what was left out, and why."""
    rows = [
        (
            item.rule,
            "" if item.level is None else item.level,
            f"{item.blocks:,}",
            render.size(item.size_bytes),
            item.why,
        )
        for item in plan.rejected
    ]
    click.echo()
    render.print_table(("left out", "level", "blocks", "size", "why"), rows, right=(1, 2, 3))


def print_doubts(plan: tblctl.Plan, advice: str) -> None:
    """Print how many blocks the figures leave out, or take for wider than they may be."""
    found = plan.predicted
    for note in doubts(found.unknown_block_count, found.inexact_block_count, advice):
        click.echo(note)


def print_prediction(plan: tblctl.Plan) -> None:
    """Print the figures now, and as predicted after the round."""
    found = plan.predicted
    rows = [
        (name, render.average(before), render.average(after))
        for name, before, after in (
            ("depth", found.average_depth_before, found.average_depth_after),
            ("overlaps", found.average_overlaps_before, found.average_overlaps_after),
        )
    ]
    rows.append(("blocks", f"{found.block_count_before:,}", f"{found.block_count_after:,}"))
    click.echo()
    render.print_table((found.figures_of, "now", "expected"), rows, right=(1, 2))
