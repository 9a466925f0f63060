"""What a change did, as one line for people or the outcome's JSON object."""

from __future__ import annotations

import tblctl
from tblctl.cli import render

OUTCOME_JSON = """
object: operation, snapshot (null when nothing was committed), rows_added, rows_removed, blocks_added,
blocks_removed, bytes_added, seconds, attempts, note
"""


def print_outcome(outcome: tblctl.WriteOutcome, *, done: str, as_json: bool) -> None:
    """Print what `outcome` says; `done` is the clause for a commit that happened, such as `appended 5 rows`."""
    if as_json:
        render.print_json(outcome.to_dict())
    else:
        print(outcome_line(outcome, done=done))


def outcome_line(outcome: tblctl.WriteOutcome, *, done: str) -> str:
    """Return the one line for people."""
    if outcome.snapshot is None:
        return outcome.note or "nothing changed: nothing was committed"
    retries = f" after {outcome.attempts} attempts" if outcome.attempts > 1 else ""
    note = f" ({outcome.note})" if outcome.note else ""
    return f"{done}: snapshot {outcome.snapshot}{retries}, {render.duration(outcome.seconds)}{note}"


def rewrite_clause(outcome: tblctl.WriteOutcome) -> str:
    """Return what a delete, update or overwrite did to blocks."""
    removed, added = (
        render.count(outcome.blocks_removed, "block"),
        render.count(outcome.blocks_added, "block"),
    )
    return f"{removed} replaced by {added} ({render.size(outcome.bytes_added)})"
