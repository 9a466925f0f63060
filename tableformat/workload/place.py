"""Where the log of a table's queries is, and the names of its files: built and parsed only here.

A file is `<folder><14 digits>-<id>.jsonl`: the digits are milliseconds since 1970 when it was written, no earlier than
any query in it. The id is 32 hexadecimal digits: random, or of an import the hash of what was imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tblctl.tableformat.storage import Storage

FOLDER = "workload/"
"""Below the root of a table of tblctl's own format."""

KEEP_SECONDS = 30 * 86400.0
"""gc removes files of the log that are older."""

_NAME = re.compile(r"([0-9]{14})-([0-9a-f]{32})\.jsonl")
_TEMPORARY = ".tmp-"


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where the log of a table is.

    Attributes:
        storage: holds the files.
        folder: what their names begin with: empty, or ending with a slash.
        has_table: whether the table is still there. Nothing is written beside one that was dropped.
    """

    storage: Storage
    folder: str = ""
    has_table: Callable[[], bool] = field(default=lambda: True, compare=False)


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """A file of the log: its name in the storage, when it was written in seconds since 1970, its id, and its size."""

    name: str
    time: float
    id: str
    size_bytes: int = 0


def log_path(folder: str, time_ms: int, id: str) -> str:
    """Return the name of a file that is written at a time."""
    return f"{folder}{time_ms:014d}-{id}.jsonl"


def log_file(name: str, folder: str, size_bytes: int = 0) -> LogFile | None:
    """Return the file of a name; None for any other name."""
    found = _NAME.fullmatch(name.removeprefix(folder)) if name.startswith(folder) else None
    if found is None:
        return None
    return LogFile(name=name, time=int(found[1]) / 1000, id=found[2], size_bytes=size_bytes)


def is_leftover(name: str, folder: str) -> bool:
    """Return whether an object is an unfinished file of a killed writer."""
    return name.startswith(folder + _TEMPORARY)
