"""Figures of tables in the text format of Prometheus, for a collector of text files such as node_exporter's.

See the exposition format of Prometheus, version 0.0.4. All are gauges: the file says how things are now.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

import tblctl
from tblctl.cli.show.output import cannot_write
from tblctl.local_file import whole_file

COMMITTED, PARTLY, NOTHING, CONFLICTED, FAILED, ERROR = OUTCOMES = (
    "committed",
    "partly",
    "nothing",
    "conflicted",
    "failed",
    "error",
)
"""What the last recluster did: all groups were committed; some; there was nothing to do; other writers were faster;
groups could not be merged; the command ended with an error."""

HELP = {
    "tblctl_table_readable": "1 if the figures of the table could be read",
    "tblctl_table_depth_average": "average depth of the blocks in the order of the key",
    "tblctl_table_depth_max": "largest depth",
    "tblctl_table_overlaps_average": "average overlaps of the blocks in the order of the key",
    "tblctl_table_unclustered_ratio": "share of the blocks that are not in the order of the key",
    "tblctl_table_blocks": "live blocks",
    "tblctl_table_rows": "rows",
    "tblctl_table_bytes": "bytes of the live blocks",
    "tblctl_recluster_last_timestamp_seconds": "when the last recluster was committed",
    "tblctl_recluster_last_bytes_written": "bytes that the last recluster wrote",
    "tblctl_recluster_last_outcome": "1 for what the last recluster did",
}


@dataclass(frozen=True, kw_only=True)
class TableFigures:
    """What is known of a table; None for what is not.

    Attributes:
        location: without secrets.
        is_readable: whether its metadata could be read.
        info: its figures.
        size: blocks, rows and bytes of a table without figures, such as one without a key.
        last_run: its newest recluster.
        outcome: one of `OUTCOMES`, of a recluster that this command has carried out.
    """

    location: str
    is_readable: bool = True
    info: tblctl.ClusteringInfo | None = None
    size: Mapping[str, int | None] = field(default_factory=dict)
    last_run: tblctl.SnapshotInfo | None = None
    outcome: str | None = None


def metrics_text(tables: Iterable[TableFigures]) -> str:
    """Return the file: for each figure its help, its kind, and a line for each table that has it."""
    lines: dict[str, list[str]] = {name: [] for name in HELP}
    for table in tables:
        for name, value in _values(table):
            lines[name].append(f"{name}{_labels(table=table.location)} {value:.10g}")
        for word in OUTCOMES if table.outcome is not None else ():
            labels = _labels(table=table.location, outcome=word)
            name = "tblctl_recluster_last_outcome"
            lines[name].append(f"{name}{labels} {int(word == table.outcome)}")
    return "".join(
        "\n".join((f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge", *found)) + "\n"
        for name, found in lines.items()
        if found
    )


def _values(table: TableFigures) -> Iterable[tuple[str, float]]:
    info, run = table.info, table.last_run
    yield "tblctl_table_readable", table.is_readable
    figures = (
        tuple(table.size.items())
        if info is None
        else (
            ("depth_average", info.average_depth),
            ("depth_max", info.depth.max),
            ("overlaps_average", info.average_overlaps),
            ("unclustered_ratio", info.unclustered_share),
            ("blocks", info.total_block_count),
            ("rows", info.rows),
            ("bytes", info.bytes),
        )
    )
    yield from ((f"tblctl_table_{name}", value) for name, value in figures if value is not None)
    if run is not None:
        moment = datetime.datetime.fromisoformat(run.timestamp)
        yield "tblctl_recluster_last_timestamp_seconds", moment.timestamp()
        yield "tblctl_recluster_last_bytes_written", run.bytes_added


def _labels(**labels: str) -> str:
    r"""Return labels; `\`, `"` and line breaks of a value are escaped."""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def check_metrics_file(path: str | None) -> None:
    """Refuse a file that cannot be written, before there is anything to write. None stands for no file.

    Raises:
        ClickException: its folder is missing.
    """
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise click.ClickException(f"cannot write {path}: there is no folder {Path(path).absolute().parent}")


def write_metrics(path: str | None, tables: Sequence[TableFigures]) -> None:
    """Write the file whole: a collector never reads a part of it. None stands for no file."""
    if path is None:
        return
    try:
        with whole_file(path) as part:
            part.write_text(metrics_text(tables), encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error


def of_survey(item: tblctl.SurveyedTable) -> TableFigures:
    """Return the figures of one of several tables, as far as it could be read."""
    size = {"blocks": item.blocks, "rows": item.rows, "bytes": item.bytes}
    readable = item.error is None
    return TableFigures(
        location=item.location, is_readable=readable, info=item.info, size=size if readable else {}
    )


def of_info(location: str, info: tblctl.ClusteringInfo, runs: Sequence[tblctl.SnapshotInfo]) -> TableFigures:
    """Return the figures of a table that was measured, and what its newest recluster did."""
    last = runs[0] if runs else None
    return TableFigures(
        location=location, info=info, last_run=last, outcome=None if last is None else _recorded(last)
    )


def _recorded(run: tblctl.SnapshotInfo) -> str:
    """Return what a committed recluster did, by its snapshot's summary."""
    summary = run.detail["recluster"]
    others = summary.get("failed_groups", 0) + summary.get("conflicted_groups", 0)
    return PARTLY if others else COMMITTED


def metered(path: str | None, table: tblctl.Table, work: Callable[[], tblctl.Outcome]) -> tblctl.Outcome:
    """Carry out a recluster, and write how the table is then. An error is written down too, and raised again."""
    if path is None:
        return work()
    check_metrics_file(path)
    try:
        outcome = work()
    except tblctl.errors.TblctlError:
        write_metrics(path, [_figures(table, ERROR)])
        raise
    write_metrics(path, [_figures(table, outcome_word(outcome))])
    return outcome


def outcome_word(outcome: tblctl.Outcome) -> str:
    """Return what a recluster did, in a word."""
    others = outcome.failed_groups + outcome.conflicted_groups
    if outcome.committed_groups:
        return PARTLY if others else COMMITTED
    if outcome.failed_groups:
        return FAILED
    return CONFLICTED if others else NOTHING


def _figures(table: tblctl.Table, outcome: str) -> TableFigures:
    """Return how a table is; without figures where it cannot be read any more, or has no key."""
    from tblctl.cli.show.timeline import last_runs

    try:
        info, runs = table.info(), last_runs(table)
    except tblctl.errors.TblctlError as error:
        readable = isinstance(error, tblctl.errors.InvalidKeyError)
        return TableFigures(location=table.location, is_readable=readable, outcome=outcome)
    return TableFigures(
        location=table.location, info=info, last_run=runs[0] if runs else None, outcome=outcome
    )
