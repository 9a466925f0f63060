"""Print the outcome of a change or a recluster, as a few lines or as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import tblctl
from tblctl.cli.failures import FAILED
from tblctl.cli.show import page, render
from tblctl.cli.show.flags import in_flags
from tblctl.cli.show.plans import price_clause

_MANY_ENTRIES = 100_000
"""Entries of manifests: some seconds of a commit."""

OUTCOME_JSON = """
object: operation, snapshot (null when nothing was committed), rows_added, rows_removed, blocks_added,
blocks_removed, bytes_added, seconds, attempts, note, recluster (that of `tblctl recluster` if a round followed)
"""
RECLUSTER_JSON = """
object: rounds, commits, committed_groups, conflicted_groups, failed_groups, blocks_in, blocks_out, rows, bytes_read,
        bytes_written, depth_before, depth_after, overlaps_before, overlaps_after, seconds, snapshot (null when
        nothing was committed), policy, engine, note, entries_copied, figures_of, groups [{round, number, why, status,
        error, blocks_in, blocks_out, rows, rows_copied, bytes_read, bytes_written, task_seconds, cpu_seconds,
        bytes_copied, predicted}], left_groups, bytes_copied, predicted (a price as in a plan, or null),
        predicted_depth_after,
        rejected [{rule, level, blocks, size_bytes, why, average_selection_depth, threshold}] and
        advice [{policy, threshold, average_depth_after}] if there was nothing (more) to do
"""


def print_outcome(outcome: tblctl.WriteOutcome, *, done: str, as_json: bool) -> None:
    """Print an outcome. `done` is the clause for a change that was committed, such as `appended 5 rows`."""
    if as_json:
        render.print_json(outcome.to_dict())
        return
    click.echo(outcome_line(outcome, done=done))
    if outcome.recluster is not None:
        print_recluster_lines(outcome.recluster)


def outcome_line(outcome: tblctl.WriteOutcome, *, done: str) -> str:
    """Return the outcome of a change in one line."""
    if outcome.snapshot is None:
        return outcome.note or "nothing changed: nothing was committed"
    retries = f" after {outcome.attempts} attempts" if outcome.attempts > 1 else ""
    note = f" ({outcome.note})" if outcome.note else ""
    return f"{done}: snapshot {outcome.snapshot}{retries}, {render.duration(outcome.seconds)}{note}"


def rewrite_clause(outcome: tblctl.WriteOutcome) -> str:
    """Return the clause on blocks replaced by a delete, update or overwrite."""
    removed, added = (
        render.count(outcome.blocks_removed, "block"),
        render.count(outcome.blocks_added, "block"),
    )
    return f"{removed} replaced by {added} ({render.size(outcome.bytes_added)})"


def print_recluster(outcome: tblctl.Outcome, *, as_json: bool) -> None:
    """Print the outcome, and exit with 1 if a group failed."""
    if as_json:
        render.print_json(outcome.to_dict())
    else:
        print_recluster_lines(outcome)
    if outcome.failed_groups:
        click.get_current_context().exit(FAILED)


def print_recluster_lines(outcome: tblctl.Outcome) -> None:
    """Print the outcome for people: what happened, the table before and after, the groups that were not committed."""
    tried = outcome.committed_groups + outcome.conflicted_groups + outcome.failed_groups + outcome.left_groups
    if not tried:
        page.put_paragraph(in_flags(outcome.note), indent=0)
        return
    page.put_paragraph(recluster_line(outcome), indent=2)
    if outcome.committed_groups:
        figures = [
            ("depth", render.average(outcome.depth_before), render.average(outcome.depth_after)),
            ("overlaps", render.average(outcome.overlaps_before), render.average(outcome.overlaps_after)),
            ("blocks merged", f"{outcome.blocks_in:,}", f"{outcome.blocks_out:,}"),
            ("bytes merged", render.size(outcome.bytes_read), render.size(outcome.bytes_written)),
            *copied_row(outcome),
        ]
        click.echo()
        render.print_table((_some(outcome.figures_of), "before", "after"), figures, right=(1, 2))
        if outcome.predicted is not None:
            depth = render.average(outcome.predicted_depth_after, 2)
            click.echo()
            page.put_paragraph(f"predicted: {price_clause(outcome.predicted)}; depth {depth}", indent=2)
        if outcome.entries_copied >= _MANY_ENTRIES:
            click.echo(
                f"\n{outcome.entries_copied:,} manifest entries of other files were copied, since they share manifests "
                "with replaced ones: an engine's rewrite_manifests brings files of a partition together"
            )
    left = [group for group in outcome.groups if group.status != "committed"]
    if left:
        click.echo()
        rows = [
            (
                group.round,
                group.number,
                group.status,
                f"{group.blocks_in:,}",
                in_flags(group.error or group.why),
            )
            for group in left
        ]
        render.print_table(("round", "group", "status", "blocks", "why"), rows, right=(0, 1, 3), text=(4,))
    if outcome.note:
        click.echo()
        page.put_paragraph(in_flags(outcome.note), indent=0)


def copied_row(outcome: tblctl.Outcome) -> list[tuple[str, str, str]]:
    """Return the row on what was copied undecoded, which no `--max-bytes` counts; none if nothing was."""
    copied = outcome.bytes_copied
    return [("of them copied", render.size(copied), render.size(copied))] if copied else []


def print_missing(location: str, *, as_json: bool) -> None:
    """Print that there is no table, if that is no error."""
    note = f"no table at {location}: nothing to recluster"
    if as_json:
        render.print_json({"location": location, "note": note})
    else:
        click.echo(note)


def watched_line(happened: tblctl.WatchedRound) -> str:
    """Return a round of `recluster --watch` in one line."""
    outcome = happened.outcome
    tried = outcome and outcome.committed_groups + outcome.conflicted_groups + outcome.failed_groups
    if outcome is None or (happened.error and not tried):
        what = happened.error or ""
    else:
        what = recluster_line(outcome) if tried else outcome.note
        if outcome.committed_groups:
            before, after = render.average(outcome.depth_before, 2), render.average(outcome.depth_after, 2)
            what += f"; depth {before} -> {after}, {render.size(happened.bytes_today)} today"
        what += f"; {happened.error}" if happened.error else ""
    where = happened.location or "(all tables)"
    return render.printable(f"{happened.time} {where} {happened.status}: {in_flags(what)}")


def recluster_line(outcome: tblctl.Outcome) -> str:
    """Return the outcome of a recluster in one line."""
    fates = (
        outcome.committed_groups,
        outcome.conflicted_groups,
        outcome.failed_groups,
        outcome.left_groups,
    )
    words = ("committed", "conflicted", "failed", "left")
    fates_text = ", ".join(f"{number:,} {word}" for number, word in zip(fates, words, strict=True) if number)
    groups = render.count(sum(fates), "group") + (
        "" if sum(fates) == outcome.committed_groups else f" ({fates_text})"
    )
    engine = f" on the {outcome.engine} engine" if outcome.engine else ""
    end = "nothing was committed" if outcome.snapshot is None else f"snapshot {outcome.snapshot}"
    rows, rounds = render.count(outcome.rows, "row"), render.count(outcome.rounds, "round")
    if outcome.commits > outcome.rounds:
        rounds += f" and {render.count(outcome.commits, 'commit')}"
    return f"reclustered {rows} in {rounds}, {groups}{engine}: {end}, {render.duration(outcome.seconds)}"


def recluster_clause(detail: Mapping[str, Any]) -> str:
    """Return the summary of a recluster's snapshot as a clause."""
    run = detail["recluster"]
    lost = "".join(
        f", {run[name]:,} {word}"
        for name, word in (("conflicted_groups", "conflicted"), ("failed_groups", "failed"))
        if run[name]
    )
    some = _some(run.get("figures_of"))
    return (
        f"{run['policy']}: {render.count(run['committed_groups'], 'group')}{lost}, "
        f"depth {_recorded(run['depth_before'])} to {_recorded(run['depth_after'])}"
        + (f" of {some}" if some else "")
    )


def key_clause(detail: Mapping[str, Any]) -> str:
    """Return why a commit changed the cluster key, and what rows were sorted by beside it; empty if it does not say."""
    why, beside = detail.get("why"), detail.get("sorted_by")
    if isinstance(why, str) and isinstance(detail.get("cluster_by"), list):
        return f"by {', '.join(map(str, detail['cluster_by']))}: {why}"
    return f"sorted by {', '.join(map(str, beside))}" if isinstance(beside, list) else ""


def predicted_clause(detail: Mapping[str, Any]) -> str:
    """Return what a recluster took against what was predicted; empty where its writer recorded neither."""
    run = detail["recluster"]
    predicted, seconds = run.get("predicted"), run.get("merge_seconds")
    if not predicted or seconds is None:
        return ""
    depth = run.get("predicted_depth_after")
    more = "" if depth is None else f", depth {render.average(depth, 2)}"
    by = " by default rates" if run.get("predicted_by_runs") == 0 else ""
    return (
        f"; {render.size(run['bytes_written'])} written in {render.duration(seconds)} "
        f"(predicted {render.size(predicted['bytes_written'])}, {render.duration(predicted['seconds'])}{by}{more})"
    )


def _some(figures_of: str | None) -> str:
    """Return which blocks figures are of; "" for all of the table, as in summaries that do not say."""
    from tblctl.results import TABLE  # numpy comes with it, and help goes without

    return "" if figures_of in (None, TABLE) else figures_of


def _recorded(depth: float | None) -> str:
    """Return a depth recorded in a summary. Early versions recorded an unknown depth as 0."""
    return render.average(depth or None, 2)
