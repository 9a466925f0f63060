"""Keep a table in order: roll back, tag, collect garbage, check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.failures import FAILED
from tblctl.cli.show import page, render
from tblctl.cli.show.outcomes import OUTCOME_JSON, print_outcome
from tblctl.cli.show.progress import progress


@command("rollback", example="tblctl rollback /data/lineitem --to 7", json_shape=OUTCOME_JSON)
@params.NATIVE_LOCATION
@click.option(
    "--to",
    metavar="WHEN",
    required=True,
    callback=params.read_as_of,
    help="A snapshot's number, an ISO timestamp, or a tag.",
)
def rollback(*, location: str, to: int | str, storage_options: dict[str, Any], as_json: bool) -> None:
    """Return the table to an earlier snapshot.

    This commits a new snapshot. Nothing is lost, and the rollback can be rolled back too.
    """
    outcome = tblctl.open(location, storage_options=storage_options).rollback(to)
    print_outcome(outcome, done=f"rolled back to {to}", as_json=as_json)


@command(
    "tag",
    example="""
    tblctl tag /data/lineitem v1 --at 7
    tblctl tag /data/lineitem v1 --delete
    tblctl tag /data/lineitem              # lists them""",
    json_shape="object: the table's tags after the command, {name: snapshot}",
)
@params.NATIVE_LOCATION
@click.argument("name", required=False)
@click.option(
    "--at", metavar="WHEN", callback=params.read_as_of, help="The snapshot to name (default: the newest)."
)
@click.option("--delete", "remove", is_flag=True, help="Remove the tag. Its snapshot may then expire.")
def tag(
    *,
    location: str,
    name: str | None,
    at: int | str | None,
    remove: bool,
    storage_options: dict[str, Any],
    as_json: bool,
) -> None:
    """Name a snapshot so that gc keeps it, or list the tags."""
    if (name is None and (remove or at is not None)) or (remove and at is not None):
        raise click.UsageError(
            "--at and --delete exclude each other" if name else "name the tag", click.get_current_context()
        )
    table = tblctl.open(location, storage_options=storage_options)
    if name is not None and remove:
        table.delete_tag(name)
    elif name is not None:
        table.tag(name, at=at)
    tags = table.tags()
    if as_json:
        render.print_json(tags)
    elif name is None:
        render.print_table(("tag", "snapshot"), sorted(tags.items()), right=(1,))
    else:
        click.echo(f"deleted tag {name}" if remove else f"tagged snapshot {tags[name]} as {name}")


@command(
    "gc",
    example="""
    tblctl gc /data/lineitem --keep 10 --older-than 24h --dry-run
    tblctl gc iceberg://prod/sales.orders --expire-older-than 7d --keep 5 --dry-run""",
    json_shape="object: dry_run, snapshots_expired [sequence], objects_deleted [name], bytes_deleted, note",
)
@params.LOCATION
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(min=1),
    help="Newest snapshots to keep (default: 10; Iceberg: of each branch, and without it and --expire-older-than none "
    "expires).",
)
@click.option(
    "--expire-older-than",
    metavar="AGE",
    help="Iceberg: expire snapshots older than this, such as 7d, as far as history.expire.* and branches allow.",
)
@click.option(
    "--older-than",
    metavar="AGE",
    default="24h",
    show_default=True,
    help="Delete nothing younger, such as 7d, 24h, 30m, 90s. A write or scan that runs longer during gc fails.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@params.opens_any_format
def gc(
    *,
    location: str,
    keep: int | None,
    expire_older_than: str | None,
    older_than: str,
    dry_run: bool,
    opening: dict[str, Any],
    as_json: bool,
) -> None:
    """Expire old snapshots and delete objects that none needs.

    Objects that a kept snapshot or a tag names are never deleted. Of Iceberg tables only what tblctl itself left behind
    is deleted, and with --keep or --expire-older-than what expired snapshots alone needed.
    """
    table = tblctl.open(location, **opening)
    if isinstance(table, tblctl.IcebergTable):
        outcome = table.gc(older_than, expire_older_than=expire_older_than, keep=keep, dry_run=dry_run)
    else:
        if expire_older_than is not None:
            params.refuse("--expire-older-than is for Iceberg tables; for others: --keep and --older-than")
        kept = {} if keep is None else {"keep": keep}
        outcome = table.gc(older_than=older_than, dry_run=dry_run, **kept)
    if as_json:
        render.print_json(outcome.to_dict())
        return
    names = outcome.objects_deleted
    if dry_run:
        for name in names:
            click.echo(name)
    done = ("would expire", "would delete") if dry_run else ("expired", "deleted")
    expired = render.count(len(outcome.snapshots_expired), "snapshot")
    click.echo(
        f"{done[0]} {expired}{ranges(outcome.snapshots_expired)}; "
        f"{done[1]} {render.count(len(names), 'object')} ({render.size(outcome.bytes_deleted)})"
    )
    if outcome.note:
        page.put_paragraph(outcome.note, indent=0)


def ranges(ids: Sequence[int | str]) -> str:
    """Return ` (1-5, 7)` for 1, 2, 3, 4, 5, 7; other ids one by one; an empty text for none."""
    spans: list[list[int]] = []
    for number in sorted(id for id in ids if isinstance(id, int)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    text = ", ".join([*texts, *(id for id in ids if isinstance(id, str))])
    return f" ({text})" if text else ""


@command(
    "check",
    example="tblctl check /data/lineitem --deep",
    json_shape="object: ok, deep, snapshots, segments, blocks, rows, problems [text]",
)
@params.LOCATION
@click.option("--deep", is_flag=True, help="Read all data, and compare the statistics and counts with it.")
@click.option(
    "--fix-clock",
    is_flag=True,
    help="First commit a snapshot with the right time, if the newest one has a time in the future.",
)
@params.opens_any_format
def check(*, location: str, deep: bool, fix_clock: bool, opening: dict[str, Any], as_json: bool) -> None:
    """Check every rule of the format.

    Exits with 1 if a rule is broken. Changes nothing unless --fix-clock is given.
    """
    table = tblctl.open(location, **opening)
    if fix_clock:
        outcome = table.reset_clock()
        click.echo(
            f"snapshot {outcome.snapshot} sets the clock right"
            if outcome.snapshot
            else "the newest snapshot is not ahead of the time; nothing was changed",
            err=True,
        )
    with progress("checking") as watcher:
        report = table.check(deep=deep, progress=watcher)
    if as_json:
        render.print_json(report.to_dict())
    else:
        for problem in report.problems:
            click.echo(f"problem: {render.printable(problem)}")
        found = "every rule holds" if report.ok else render.count(len(report.problems), "problem")
        blocks, snapshots = render.count(report.blocks, "block"), render.count(report.snapshots, "snapshot")
        click.echo(f"{found}: {blocks} of {snapshots}, {render.count(report.rows, 'row')} in the newest")
    if not report.ok:
        click.get_current_context().exit(FAILED)
