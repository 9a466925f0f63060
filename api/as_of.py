"""Which version a caller means: its number or id, a tag or a time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from tblctl.tableformat.errors import InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.model.version_numbers import is_version_number
from tblctl.tableformat.port import TablePort, VersionT

AsOf = int | str | datetime.datetime | None

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def number_or_text(text: str) -> int | str:
    """Return a sequence as a number, and any other name as it is; so a number that is too long for one."""
    return int(text) if is_version_number(text) else text


def version_as_of(port: TablePort[VersionT], as_of: AsOf, newest: VersionT | None = None) -> VersionT:
    """Return the version that `as_of` means. Text is a tag if there is such a tag, else a version's id, else a time.

    Args:
        port: the table.
        as_of: what a caller gave.
        newest: the newest version, if the caller has just read it.

    Raises:
        InvalidOptionError: `as_of` is none of these.
        SnapshotNotFoundError: there is no such version, or it can no longer be read.
    """
    if isinstance(as_of, bool) or not isinstance(as_of, int | str | datetime.datetime):
        msg = f"as_of is {as_of!r}, expected a sequence, a tag, a datetime or an ISO timestamp"
        raise InvalidOptionError(msg)
    newest = newest or port.newest()
    if isinstance(as_of, int):
        return port.version(str(as_of), newest=newest)
    if isinstance(as_of, str):
        id = newest.tags.get(as_of) or port.parse_id(as_of)
        if id is not None:
            return port.version(id, newest=newest)
        as_of = _timestamp(as_of, newest.tags)
    moment = as_of if as_of.tzinfo else as_of.replace(tzinfo=datetime.UTC)
    return port.version_at(int(moment.timestamp() * 1000), newest=newest)


def _timestamp(text: str, tags: Mapping[str, str]) -> datetime.datetime:
    if _ISO_DATE.match(text):
        try:
            return datetime.datetime.fromisoformat(text)
        except ValueError as error:
            msg = (
                f"as_of {text!r} is not an ISO timestamp ({error}); write 2026-01-31 or 2026-01-31T12:00:00Z"
            )
            raise InvalidOptionError(msg) from error
    known = ", ".join(sorted(tags)) or "none"
    msg = f"there is no tag {text!r:.140} (tags: {known}), and it is neither a sequence nor an ISO timestamp"
    raise SnapshotNotFoundError(msg)
