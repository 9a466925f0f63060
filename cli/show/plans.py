"""A plan for people, or as the JSON that `recluster --plan` reads."""

from __future__ import annotations

from itertools import groupby

import click

import tblctl
from tblctl.cli.show import page, render
from tblctl.cli.show.figures import doubts
from tblctl.cli.show.flags import in_flags

PLAN_JSON = """
an object: version, table_id, snapshot, policy, groups [{number, blocks [path], sort_id,
            output_level, why, rows, size_bytes, decoded_bytes, same_key_rows, depth_before, depth_after, partition,
            price {blocks, rows, bytes_read, bytes_copied, bytes_written, memory_bytes, requests, seconds, cost (null
            without a price), suggested_bytes}}],
            rejected [{rule, level, blocks, size_bytes, why, average_selection_depth, threshold}],
            predicted {average_depth_before, average_depth_after, average_overlaps_before, average_overlaps_after,
            block_count_before, block_count_after, unknown_block_count, inexact_block_count, figures_of}, note,
            options {policy, budget, memory_bytes}, advice [{policy, threshold, average_depth_after}],
            sorts [{id, kind, terms [{column_id, transform, descending, nulls_first}], parameters}],
            bill {total (a price as above), point_query_bytes_before, point_query_bytes_after, payback_queries (null if
            a query of one key reads no less), measured_runs (0: by the stated defaults)}
"""

_LISTED = 100
"""Groups of a plan that are shown to people; nobody reads more."""


def print_plan(
    plan: tblctl.Plan, *, final: bool, advice: str = "", as_json: bool, is_kept: bool = False
) -> None:
    """Print what a round would do, why, and what it leaves out. `advice`: as for `put_info`.

    Where the plan `is_kept`, that is said by the caller; else that nothing was changed.
    """
    if as_json:
        render.print_json(plan.to_json())
        return
    if not plan.groups:
        page.put_paragraph(in_flags(plan.note), indent=0)
        print_doubts(plan, advice)
        return
    click.echo(f"policy {plan.policy} on snapshot {plan.snapshot}:\n")
    print_groups(plan)
    if plan.rejected:
        print_rejected(plan)
    print_prediction(plan)
    print_bill(plan)
    print_doubts(plan, advice)
    rounds = "This is the first round; later ones are planned on its result." if final else ""
    ending = " ".join(filter(None, (rounds, "" if is_kept else "Nothing was changed.")))
    click.echo(f"\n{ending}" if ending else "")


def print_groups(plan: tblctl.Plan) -> None:
    """Print a line of figures for each of the first groups, the sum of all, and why each was chosen."""
    listed = plan.groups[:_LISTED]
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
        for group in listed
    ]
    inside = ("partition",) if partitioned else ()
    names = ("group", *inside, "to level", "blocks", "rows", "size", "depth", "after")
    render.print_table(names, rows, right=(0, *range(len(names) - 6, len(names))))
    if len(listed) < len(plan.groups):
        click.echo(
            f"... and {render.count(len(plan.groups) - len(listed), 'group')} more: --json lists them all"
        )
    blocks = sum(len(group.blocks) for group in plan.groups)
    click.echo(
        f"({render.count(len(plan.groups), 'group')}: {render.count(blocks, 'block')}, "
        f"{render.count(sum(group.rows for group in plan.groups), 'row')}, "
        f"{render.size(sum(group.size_bytes for group in plan.groups))} to rewrite)\n"
    )
    for why, alike in groupby(listed, key=lambda group: group.why):  # whole sentences, too long for a column
        numbers = [group.number for group in alike]
        which = f"group {numbers[0]}" if len(numbers) == 1 else f"groups {numbers[0]} to {numbers[-1]}"
        page.put_paragraph(f"{which}: {in_flags(why)}", indent=2)


def print_rejected(plan: tblctl.Plan) -> None:
    """Print what was left out, and why."""
    rows = [
        (
            in_flags(item.rule),
            "" if item.level is None else item.level,
            f"{item.blocks:,}",
            render.size(item.size_bytes),
            in_flags(item.why),
        )
        for item in plan.rejected
    ]
    click.echo()
    render.print_table(("left out", "level", "blocks", "size", "why"), rows, right=(1, 2, 3), text=(4,))


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
    if plan.bill is not None:
        now, expected = plan.bill.point_query_bytes_before, plan.bill.point_query_bytes_after
        rows.append(("read for a key", render.size_or_unknown(now), render.size_or_unknown(expected)))
    click.echo()
    render.print_table((found.figures_of, "now", "expected"), rows, right=(1, 2))


def print_bill(plan: tblctl.Plan) -> None:
    """Print what the plan is expected to take, by which rates, and when it has paid off."""
    if plan.bill is None:
        return
    runs = plan.bill.measured_runs
    rates = f"the last {render.count(runs, 'run')} of this table" if runs else "defaults, for 2 processors"
    click.echo()
    page.put_paragraph(f"price: {price_clause(plan.bill.total)} (rates: {rates})", indent=2)
    if plan.bill.payback_queries is not None:
        queries = render.count(plan.bill.payback_queries, "query").replace("querys", "queries")
        click.echo(f"Pays off after {queries} of one key.")


def price_clause(price: tblctl.Price) -> str:
    """Return what a merge takes as a clause."""
    cost = "" if price.cost is None else f", cost {price.cost:.4g}"
    copied = f" and {render.size(price.bytes_copied)} copied undecoded" if price.bytes_copied else ""
    return (
        f"{render.size(price.bytes_decoded)} decoded{copied}, {render.size(price.bytes_written)} written, "
        f"{render.count(price.requests, 'request')}, {render.duration(price.seconds)}{cost}"
    )
