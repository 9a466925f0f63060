"""List the files of a folder, and refuse folders that are tables of other formats."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import (
    AccessDeniedError,
    InvalidDataError,
    TableNotFoundError,
    UnsupportedFormatError,
)
from tblctl.tableformat.folder.names import (
    DELTA_LOG,
    ENDING,
    FOREIGN,
    ICEBERG,
    NATIVE,
    PROBES,
    Chosen,
    is_block,
    is_left_out,
    may_be_inside,
    table_of,
)
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import shown_name
from tblctl.tableformat.storage.names import name_problem

_USE = {
    FOREIGN[DELTA_LOG]: "name the table itself, `delta:PATH`, to measure it",
    ICEBERG: "open it through its catalog: iceberg://CATALOG/NAMESPACE.TABLE",
    NATIVE: "name the table itself; `tblctl info --all DIR` finds all below a folder",
}
_USE_ENGINE = (
    "an engine that reads it may write its rows to a folder of Parquet files, for `tblctl import`, or into "
    "`tblctl append LOC -`, an Arrow stream"
)
_MOST_PARENTS = 8
_MOST_SHOWN = 200

LOG = logging.getLogger("tblctl")


@dataclass(frozen=True, kw_only=True, eq=False)
class Files:
    """Files of a folder as columns, by name ascending.

    Attributes:
        names: below the folder, a string array.
        size_bytes: int64.
        modified_seconds: float64: the time of the last write, by the storage's clock; since 1970-01-01 UTC.
    """

    names: pa.Array
    size_bytes: np.ndarray
    modified_seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def without(self, names: pa.Array | pa.ChunkedArray) -> Files:
        """Return the other files."""
        is_among = np.asarray(pc.is_in(self.names, names).to_numpy(zero_copy_only=False), bool)
        return self.at(np.flatnonzero(~is_among))

    def at(self, places: np.ndarray) -> Files:
        """Return the files at some places."""
        return Files(
            names=self.names.take(pa.array(places)),
            size_bytes=self.size_bytes[places],
            modified_seconds=self.modified_seconds[places],
        )

    @property
    def id(self) -> str:
        """Tells these files from others, and from the same ones once they were written again."""
        found = sha256()
        for buffer in (*self.names.buffers()[1:], self.size_bytes, self.modified_seconds):
            found.update(buffer)
        return found.hexdigest()[:16]


def list_files(storage: Storage, chosen: Chosen, *, most_in_vain: int = 100_000) -> Files:
    """Return the files of a folder that count. O(n); as columns, so that a million of them are no objects.

    Where all that are not hidden count, the log warns of links, and of files that may be Parquet with another ending.
    Listing ends if none of the first `most_in_vain` counts: a mistyped location may be a whole bucket.

    Raises:
        TableNotFoundError: there are none.
        UnsupportedFormatError: the folder is, holds, or is inside of a table that says which files count.
        InvalidDataError: a name cannot be used.
    """
    refuse_tables(storage, chosen)
    names: list[str] = []
    sizes: list[int] = []
    times: list[float] = []
    is_whole = chosen == Chosen()
    left_out = _LeftOut()
    for seen, item in enumerate(storage.list(chosen.prefix)):
        if seen > most_in_vain and not names:
            break
        found = table_of(item.name)
        if found is not None:
            folder, kind = found
            raise _refused(f"{storage.url}/{folder}" if folder else storage.url, kind)
        if chosen.takes(item.name):
            problem = name_problem(item.name)
            if problem is not None:
                raise InvalidDataError(
                    f"{storage.url}: the file {item.name!r:.200} cannot be read: {problem}"
                )
            names.append(item.name)
            sizes.append(item.size_bytes)
            times.append(item.modified_seconds)
        elif is_whole and is_left_out(item.name):
            left_out.add(item.name)
    if not names or (is_whole and all(map(is_block, names))):
        raise TableNotFoundError(_nothing(storage, chosen))
    left_out.warn(storage.url, f"the ending is not {ENDING}; a glob in quotes takes any name")
    if is_whole and storage.is_local:
        _links(storage.url).warn(storage.url, "links are not followed; name what they lead to")
    return Files(
        names=pa.array(names, pa.large_string()),
        size_bytes=np.array(sizes, np.int64),
        modified_seconds=np.array(times, np.float64),
    )


@dataclass
class _LeftOut:
    """How many files do not count that somebody may think of, and the first."""

    count: int = 0
    example: str = ""

    def add(self, name: str) -> None:
        """Count a file."""
        self.count += 1
        self.example = self.example or name[:_MOST_SHOWN]

    def warn(self, place: str, why: str) -> None:
        """Say in the log what is left out, if anything is."""
        if self.count:
            files = "1 file is" if self.count == 1 else f"{self.count:,} files are"
            LOG.warning("%s: %s left out, such as %r: %s", place, files, self.example, why)


def _links(folder: str) -> _LeftOut:
    """Return the links of Parquet's ending right in a folder of this machine: what lists it does not follow links."""
    found = _LeftOut()
    with os.scandir(folder) as entries:
        for name in sorted(e.name for e in entries if e.is_symlink() and e.name.endswith(ENDING)):
            found.add(name)
    return found


def refuse_tables(storage: Storage, chosen: Chosen) -> None:
    """Refuse a folder that is a table, or a part of one. A few requests, before all files are listed.

    Raises:
        UnsupportedFormatError: it is.
        TableNotFoundError: it has what is left of a dropped table of tblctl: that it is none is known by now.
    """
    here = storage
    for _ in range(_MOST_PARENTS):
        try:
            kind = _kind_of(here)
        except AccessDeniedError:  # perhaps the user may list the folder alone
            if here is storage:
                raise
            return
        if kind == NATIVE and here is storage and chosen == Chosen():
            raise TableNotFoundError(_nothing(storage, chosen))
        if kind is not None:
            raise _refused(here.url, kind, within=None if here is storage else storage.url)
        parent, _, last = here.url.rpartition("/")
        if not may_be_inside(last) or not parent or parent.endswith("/"):
            return
        here = here.elsewhere(parent)


def _kind_of(storage: Storage) -> str | None:
    """Return what table a folder itself is; None for none. On this machine empty folders count, too."""
    if storage.is_local and not storage.is_missing_folder:
        for name in storage.folders():
            if name[:-1] in FOREIGN:
                return FOREIGN[name[:-1]]
    for prefix in PROBES:
        for item in storage.list(prefix):
            found = table_of(item.name)
            if found is not None and not found[0]:
                return found[1]
    return None


def _refused(place: str, kind: str, *, within: str | None = None) -> UnsupportedFormatError:
    what = f"{place} is {kind}" if within is None else f"{within} is inside of {kind}, {place}"
    why = "its metadata says which files count, so they are not read as plain Parquet"
    return UnsupportedFormatError(f"{what}: {why}; {_USE.get(kind, _USE_ENGINE)}")


def _nothing(storage: Storage, chosen: Chosen) -> str:
    made = f"there is no table at {storage.url}: `tblctl create` makes one"
    if chosen.pattern is not None:
        return f"no file below {storage.url} matches {shown_name(storage.url, chosen.pattern)!r}"
    return (
        f"{made}. Nor is there a file *{ENDING} below it to measure (names with a leading '.' or '_' do not count, "
        "links are not followed); for other names write a glob in quotes, such as 'DIR/*.pq'"
    )
