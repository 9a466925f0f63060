"""Which version a caller means: a sequence, a tag or a time."""

from __future__ import annotations

import datetime
import re

from tblctl.tableformat.errors import InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.log.head import sequence_at
from tblctl.tableformat.native.table import NativeTable

AsOf = int | str | datetime.datetime | None

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def sequence_of(native: NativeTable, head: Snapshot, as_of: AsOf) -> int:
    """Return the sequence that `as_of` means."""
    if isinstance(as_of, bool) or not isinstance(as_of, int | str | datetime.datetime):
        msg = f"as_of is {as_of!r}, expected a sequence, a tag, a datetime or an ISO timestamp"
        raise InvalidOptionError(msg)
    if isinstance(as_of, int):
        return as_of
    if isinstance(as_of, str):
        if as_of in head.tags:
            return head.tags[as_of]
        if as_of.isdecimal():
            return int(as_of)
        as_of = _timestamp(as_of, head)
    moment = as_of if as_of.tzinfo else as_of.replace(tzinfo=datetime.UTC)
    return sequence_at(native.storage, head, int(moment.timestamp() * 1000))


def _timestamp(text: str, head: Snapshot) -> datetime.datetime:
    if _ISO_DATE.match(text):
        try:
            return datetime.datetime.fromisoformat(text)
        except ValueError as error:
            msg = f"as_of {text!r} is no ISO timestamp ({error}); write 2026-01-31 or 2026-01-31T12:00:00Z"
            raise InvalidOptionError(msg) from error
    known = ", ".join(sorted(head.tags)) or "none"
    msg = f"there is no tag {text!r:.140} (tags: {known}), and it is neither a sequence nor an ISO timestamp"
    raise SnapshotNotFoundError(msg)
