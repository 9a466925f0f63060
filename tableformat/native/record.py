"""Record scans of a table beside it, as its options say."""

from __future__ import annotations

from functools import partial

from tblctl.tableformat.model.options import ROUNDED, record_rate
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.workload.recorder import Recorder
from tblctl.tableformat.workload.writer import LogWriter, writer_of


def recorder_of(native: NativeTable, snapshot: Snapshot, record: str | None = None) -> Recorder | None:
    """Return what records scans of a snapshot; None if nothing does.

    Args:
        native: the table.
        snapshot: that is read.
        record: a value of `recluster.record` instead of the table's.

    Raises:
        InvalidOptionError: `record` is no such value.
    """
    rate = record_rate(snapshot.options.recluster_record if record is None else record)
    if not rate:
        return None
    return Recorder(rate=rate, env=native.env, writer=lambda: _writer(native, snapshot))


def _writer(native: NativeTable, snapshot: Snapshot) -> LogWriter:
    is_rounded = snapshot.options.recluster_record_literals == ROUNDED
    return writer_of(
        native.log_place(),
        native.env,
        snapshot.table_id,
        rewrite=partial(_rounded, schema=snapshot.schema) if is_rounded else None,
        form=f"rounded {snapshot.schema_id}" if is_rounded else "",
    )


def _rounded(text: str, schema: Schema) -> str:
    from tblctl.tableformat.workload.rounding import rounded_where  # imports the parser of SQL

    return rounded_where(text, schema)
