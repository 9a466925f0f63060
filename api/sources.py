"""Where rows of Parquet files come from: folders, globs and files, as an append or an import takes them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tblctl.tableformat.errors import InvalidOptionError, TableNotFoundError, UnsupportedFormatError
from tblctl.tableformat.folder.listing import refuse_tables
from tblctl.tableformat.folder.names import ENDING, Chosen, partition_of, split_glob
from tblctl.tableformat.folder.partitions import Partitions, keys_of
from tblctl.tableformat.folder.port import FolderPort
from tblctl.tableformat.folder.rows import FolderRows
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from tblctl.tableformat.folder.listing import Files
    from tblctl.tableformat.progress import Progress

LOG = logging.getLogger("tblctl")

_TABLES = {
    "delta:": "`tblctl info delta:PATH --columns ..` measures it, and ends with a command that copies its rows",
    "iceberg://": "it is clustered where it is, by `tblctl recluster iceberg://..`; or let an engine "
    "write its rows as Parquet",
}
"""What locations of tables of other formats begin with, and how to go on."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Source:
    """A folder, a glob, or some files.

    Attributes:
        port: where the files are, and which.
        above: folders above all of them whose names count, such as "year=2024/"; "" for none.
        files: all of them.
    """

    def __init__(self, port: FolderPort, above: str) -> None:
        self.port = port
        self.above = above
        try:
            self.files: Files = port.newest().files
        except TableNotFoundError as error:
            refuse_tables(port.storage, Chosen(pattern="**"))  # a table of tblctl, too
            msg = f"there is no file *{ENDING} to read at {port.location}"
            raise InvalidOptionError(msg) from error

    def partitions(self, files: Files) -> Partitions:
        """Return what the folders of some of the files say; there is at least one.

        Raises:
            SchemaMismatchError: files are in folders of different keys.
        """
        return Partitions.of(files, self.port.location, above=self.above)

    def rows(
        self,
        files: Files,
        *,
        hive: bool | None,
        types: Mapping[str, pa.DataType],
        progress: Progress | None = None,
    ) -> FolderRows:
        """Return the rows of some of the files.

        Args:
            files: which.
            hive: whether folders `key=value` are columns; None refuses files that lie in such folders, unless they
                have the columns themselves.
            types: the types of columns where the rows go, by name.
            progress: called while footers are read.

        Raises:
            InvalidOptionError: `hive` is None, and folders have columns that files do not have.
            InvalidDataError, SchemaMismatchError: as for `FolderRows`.
        """
        given = None if hive is False else self.partitions(files)
        found = FolderRows(self.port, files, given, types=types, progress=progress)
        if hive is False:
            schemas = [schema for _, schema in found.schemas]
            warn_of_nulls(self.port.location, keys_of(files, above=self.above), schemas, types)
        if hive is None and given is not None and found.given:
            names = ", ".join(found.given)
            msg = (
                f"files of {self.port.location} lie in folders such as {given.folders[0].folder}, and do not have the "
                f"columns {names} themselves: `--hive` (hive=True) takes their values from the folders' names, "
                "`--no-hive` (hive=False) leaves them out"
            )
            raise InvalidOptionError(msg)
        return found


def warn_of_nulls(
    place: str, keys: Collection[str], schemas: Iterable[pa.Schema], columns: Collection[str]
) -> None:
    """Warn of columns of a table that only the names of folders give, where these are left out.

    Args:
        place: where the files are.
        keys: what the folders give.
        schemas: what the files have.
        columns: of the table.
    """
    lacking = {key for key in keys for schema in schemas if key in columns and key not in schema.names}
    if lacking:
        LOG.warning(
            "%s: folders' names are left out (hive=False, --no-hive) and files lack these columns of the table, which "
            "are NULL in their rows: %s",
            place,
            ", ".join(sorted(lacking)),
        )


def warn_of_nulls_in(paths: Paths, schema: pa.Schema, columns: Collection[str]) -> None:
    """Do as `warn_of_nulls` for plain files (`are_plain_files`), of which the first has a schema."""
    for text in _texts(paths):
        folder = _above(text.rpartition("/")[0])
        warn_of_nulls(text, partition_of(folder).keys, [schema], columns)


def find_sources(paths: Paths, reach: Callable[[str], Storage]) -> list[Source]:
    """Return where the files of some paths are; files of one folder of this machine together.

    Args:
        paths: folders, globs and files.
        reach: returns the storage at a folder's path or URL.

    Raises:
        InvalidOptionError: there are no such files, or a path is none.
        UnsupportedFormatError: a folder is a table, holds one, or is a part of one.
    """
    texts = _texts(paths)
    together: dict[str, set[str]] = {}
    sources = []
    for text in texts:
        here = None if "://" in text else Path(text).expanduser()
        if here is not None and here.is_file():
            root, below = _split_hive(here)
            together.setdefault(root, set()).add(below)
        elif here is not None and here.is_dir():
            sources.append(Source(FolderPort(reach(str(here.resolve())), Chosen()), _above(text)))
        else:
            sources.append(_elsewhere(text, reach))
    for root, names in together.items():
        sources.append(Source(FolderPort(reach(root), Chosen(names=frozenset(names))), ""))
    return sources


def are_plain_files(paths: Paths, hive: bool | None) -> bool:
    """Return whether paths are names of files, and folders above them say nothing."""
    texts = _texts(paths)
    said = hive is not False and any(_above(text.rpartition("/")[0]) for text in texts)
    return not said and not any(_is_many(text) for text in texts)


def _is_many(text: str) -> bool:
    """Return whether a path names a folder, or files by a glob. A folder's URL has no ending, or ends with a slash."""
    here = None if "://" in text else Path(text).expanduser()
    if here is not None and here.exists():
        return here.is_dir()
    name = text.rpartition("/")[2]
    return split_glob(text)[1] is not None or (here is None and "." not in name)


def _texts(paths: Paths) -> list[str]:
    """Return the paths and URLs. A `file://` URL is a path too, whose links are followed."""
    found = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not all(text.strip() for text in found):  # as a path, "" is the folder of now, with all below it
        raise InvalidOptionError("a folder, glob or file to read is empty text; `.` is the folder of now")
    if not found:
        raise InvalidOptionError("name at least one folder, glob or file to read")
    for text in found:
        for scheme, why in _TABLES.items():
            if text.startswith(scheme):
                raise UnsupportedFormatError(
                    f"{text} is a table, and rows are read from Parquet files only: {why}"
                )
    return [local_path(text) for text in found]


def _elsewhere(text: str, reach: Callable[[str], Storage]) -> Source:
    """Return the source of a URL, or of a glob of this machine."""
    folder, pattern = split_glob(text)
    if pattern is None and "://" in text:
        parent, _, name = text.rstrip("/").rpartition("/")
        storage = reach(parent)
        if storage.modified([name])[0] is not None:
            return Source(FolderPort(storage, Chosen(names=frozenset({name}))), _above(parent))
    if "://" not in text:
        folder = str(Path(folder).expanduser().resolve())
    return Source(FolderPort(reach(folder), Chosen(pattern=pattern)), _above(split_glob(text)[0]))


def _split_hive(file: Path) -> tuple[str, str]:
    """Return a folder, and the path of a file below it: with the folders `key=value` that the given path has."""
    said = {part for part in file.parts[:-1] if "=" in part}
    found = file.resolve()
    parts = found.parts
    at = next((place for place, part in enumerate(parts[:-1]) if part in said), len(parts) - 1)
    return str(Path(*parts[:at])), "/".join(parts[at:])


def _above(folder: str) -> str:
    """Return the part of a folder's path from its first folder `key=value` on, with a slash at the end; "" if none."""
    parts = folder.rpartition("://")[2].rstrip("/").split("/")
    first = next((place for place, part in enumerate(parts) if "=" in part), None)
    return "" if first is None else "/".join(parts[first:]) + "/"
