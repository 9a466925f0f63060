"""Where rows of Parquet files come from: folders, globs and files, as an append or an import takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tblctl.tableformat.errors import InvalidOptionError, TableNotFoundError
from tblctl.tableformat.folder.listing import refuse_tables
from tblctl.tableformat.folder.names import ENDING, Chosen, split_glob
from tblctl.tableformat.folder.partitions import Partitions
from tblctl.tableformat.folder.port import FolderPort
from tblctl.tableformat.folder.rows import FolderRows
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from tblctl.tableformat.folder.listing import Files
    from tblctl.tableformat.progress import Progress

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
        given = None if hive is False else Partitions.of(files, self.port.location, above=self.above)
        found = FolderRows(self.port, files, given, types=types, progress=progress)
        if hive is None and given is not None and found.given:
            names = ", ".join(found.given)
            msg = (
                f"files of {self.port.location} lie in folders such as {given.folders[0].folder}, and do not have the "
                f"columns {names} themselves: `--hive` (hive=True) takes their values from the folders' names, "
                "`--no-hive` (hive=False) leaves them out"
            )
            raise InvalidOptionError(msg)
        return found


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
    if isinstance(paths, str | os.PathLike):
        return [local_path(os.fspath(paths))]
    if not paths:
        raise InvalidOptionError("name at least one folder, glob or file to read")
    return [local_path(os.fspath(path)) for path in paths]


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
