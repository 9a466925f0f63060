"""Record scans of a table beside it, as the options of its newest version say, whichever version is read."""

from __future__ import annotations

import logging
from functools import partial

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.options import OFF, ROUNDED, record_rate
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.workload.recorder import Recorder
from tblctl.tableformat.workload.writer import LogWriter, writer_of

LOG = logging.getLogger("tblctl")


def recorder_of(
    native: NativeTable, snapshot: Snapshot, head: Snapshot | None, record: str | None = None
) -> Recorder | None:
    """Return what records scans of a snapshot; None if nothing does.

    Args:
        native: the table.
        snapshot: that is read: conditions are of its schema.
        head: the newest one, whose options hold: those of an old version would go on to record what the table no
            longer wants recorded. None if it is unknown: nothing is recorded then.
        record: a value of `recluster.record` instead of the table's.

    Raises:
        InvalidOptionError: `record` is no such value.
    """
    asked = None if record is None else record_rate(record)
    if head is None:
        return None
    rate = record_rate(head.options.recluster_record) if asked is None else asked
    if not rate:
        return None
    is_rounded = head.options.recluster_record_literals == ROUNDED
    return Recorder(
        rate=rate, env=native.env, writer=lambda: _writer(native, snapshot, is_rounded=is_rounded)
    )


def head_for(native: NativeTable, record: str | None = None) -> Snapshot | None:
    """Return the newest snapshot, for `recorder_of` an older one; None if it cannot be read. One round trip.

    No request if nothing was recorded when `native` saw its head last: scans of such tables do not pay for this.

    Args:
        native: the table.
        record: as for `recorder_of`.
    """
    seen = native.seen_head
    if record == OFF or (record is None and seen is not None and seen.options.recluster_record == OFF):
        return seen
    try:
        return native.head()
    except TblctlError as error:
        LOG.warning("scans of %s are not recorded now: %s", native.storage.url, error)
        return None


def _writer(native: NativeTable, snapshot: Snapshot, *, is_rounded: bool) -> LogWriter:
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
