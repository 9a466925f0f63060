"""Say what keeping a table in order costs a day."""

from __future__ import annotations

from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.command import command
from tblctl.cli.show import page, render


@command(
    "estimate",
    example="""
    tblctl estimate /data/lineitem --days 30
    tblctl estimate /data/lineitem --target-depth 2 --policy full --price-per-hour 1.50""",
    json_shape="""
    object: policy, target_depth, days (of history that there are), appends, bytes_per_day, write_amplification (null
    if nothing arrived), simulated_depth, rewritten_bytes_per_day, seconds_per_day, cost_per_day (null without a
    price), measured_amplification, measured_runs (0: seconds by the stated defaults), assumptions [text]""",
)
@params.LOCATION
@click.option(
    "--days", metavar="N", type=float, default=30.0, help="Days of history to look at (default: 30)."
)
@click.option(
    "--target-depth", metavar="DEPTH", type=float, default=4.0, help="Average depth to keep (default: 4)."
)
@click.option(
    "--policy",
    metavar="NAME",
    help="What keeps it (default: what the table's recluster.policy says, or else levels).",
)
@click.option(
    "--price-per-gib", metavar="MONEY", type=float, help="Price of a GiB that is read to be merged."
)
@click.option(
    "--price-per-hour", metavar="MONEY", type=float, help="Price of an hour of all machines that merge."
)
@params.opens_any_format
def estimate(
    *,
    location: str,
    days: float,
    target_depth: float,
    policy: str | None,
    price_per_gib: float | None,
    price_per_hour: float | None,
    opening: dict[str, Any],
    as_json: bool,
) -> None:
    """Estimate what keeping a depth costs a day.

    What arrived in the last days, by the table's history, times how often the policy rewrites it. The latter is
    simulated with keys that are spread evenly, which is the worst case: where keys follow time, it is about 0.4 of
    that. A table of many appends is rewritten more often than the simulated one. Nothing is changed.
    """
    found = tblctl.open(location, **opening).estimate(
        days=days,
        target_depth=target_depth,
        policy=policy,
        price_per_gib=price_per_gib,
        price_per_hour=price_per_hour,
    )
    if as_json:
        render.print_json(found.to_dict())
        return
    put_estimate(found)


_NEAR = 1.1
"""A simulated depth is up to so many times the target where a policy keeps it."""


def put_estimate(found: tblctl.Estimate) -> None:
    """Print the estimate, and what it rests on."""
    if found.write_amplification is None:
        page.put_fields({"arrivals": f"none in {_time(found.days)}: nothing to rewrite"})
        return
    measured = (
        "" if found.measured_amplification is None else f"; in these days {found.measured_amplification:.2f}"
    )
    rates = f"the last {render.count(found.measured_runs, 'run')}" if found.measured_runs else "default rates"
    commits = render.count(found.appends, "commit")
    fields: dict[str, str | tuple[str, str]] = {
        "arrivals": f"{render.size(found.bytes_per_day)} a day ({commits} in {_time(found.days)})",
        "rewriting": f"{found.write_amplification:.2f} rows for each that arrives, simulated{measured}",
        "depth": f"{found.simulated_depth:.2f} by {found.policy}, for a target of {found.target_depth:g}",
        "a day": f"{render.size(found.rewritten_bytes_per_day)} to rewrite, "
        f"{render.duration(found.seconds_per_day)} ({rates})",
    }
    if found.cost_per_day is not None:
        fields["cost"] = f"{found.cost_per_day:.4g} a day"
    page.put_fields(fields)
    if found.simulated_depth is not None and found.simulated_depth > _NEAR * found.target_depth:
        _remark(f"{found.policy} does not keep the depth of {found.target_depth:g}")
    if found.days < 1:
        _remark(f"the history looked at is {_time(found.days)}: a whole day may differ")
    for assumption in found.assumptions:
        _remark(f"assumed: {assumption}")


def _remark(text: str) -> None:
    page.put_paragraph(f"({text})", indent=1, style=page.RULE)


def _time(days: float) -> str:
    return f"{days:.3g} days" if days >= 1 else render.duration(days * 86_400)
