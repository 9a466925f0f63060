"""Pending plans for people, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click

import tblctl
from tblctl.cli.show import page, plans, render

PENDING_JSON = """
id, created, expires, is_expired, policy, snapshot, groups, blocks, rows, bytes, claimed, problem
"""


def print_scheduled(
    kept: tblctl.ScheduledPlan, *, words: str, final: bool, advice: str, as_json: bool
) -> None:
    """Print a plan, and how it is carried out. `words` name the table and the place; `advice`: as for `put_info`."""
    if as_json:
        render.print_json(kept.to_dict())
        return
    plans.print_plan(kept.plan, final=final, advice=advice, as_json=False, is_kept=kept.id is not None)
    if kept.id is not None:
        click.echo(
            f"The plan is kept as {kept.id} until {kept.expires}: `tblctl recluster {words} --pending {kept.id}` "
            "carries it out."
        )


def print_pending(found: Sequence[tblctl.PendingPlan], *, words: str, as_json: bool) -> None:
    """Print the pending plans of a table, oldest first. `words` name the table and the place."""
    if as_json:
        render.print_json([item.to_dict() for item in found])
        return
    if not found:
        click.echo(f"no pending plan: `tblctl plan {words} --schedule` keeps one")
        return
    rows = [
        (
            item.id,
            f"{render.time(item.expires)}{' (expired)' if item.is_expired else ''}",
            item.policy or "",
            render.time(item.created),
            f"{item.blocks:,}",
            render.size(item.bytes),
            f"{item.groups:,}",
            f"{item.claimed:,}",
        )
        for item in found
    ]
    # On 80 columns, those in the middle are left out.
    names = ("pending plan", "expires", "policy", "created", "blocks", "size", "groups", "begun")
    render.print_table(names, rows, right=(4, 5, 6, 7))
    for item in found:
        if item.problem is not None:
            click.echo()
            page.put_paragraph(item.problem, indent=0)


def print_cancelled(cancelled: tblctl.PendingPlan, *, as_json: bool) -> None:
    """Print what a plan was that is pending no more."""
    if as_json:
        render.print_json(cancelled.to_dict())
        return
    begun = f"; {cancelled.claimed:,} of them were begun" if cancelled.claimed else ""
    click.echo(
        f"cancelled the pending plan {cancelled.id} of {render.count(cancelled.groups, 'group')}{begun}"
    )
