"""A folder of plain Parquet files behind the port: read only, and seen as it was when it was opened."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.errors import InvalidOptionError, SnapshotNotFoundError
from tblctl.tableformat.folder.footers import read_parts
from tblctl.tableformat.folder.kept import KeptFooters
from tblctl.tableformat.folder.listing import Files, list_files
from tblctl.tableformat.folder.names import Chosen, split_glob
from tblctl.tableformat.folder.parts import Part, joined
from tblctl.tableformat.folder.version import FolderVersion
from tblctl.tableformat.model.snapshot import Summary
from tblctl.tableformat.once import once
from tblctl.tableformat.port import BlockIO, Checked, Garbage, Replacement, VersionEntry
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.file_cache import FileCache
from tblctl.tableformat.storage.location import shown_name
from tblctl.tableformat.workload.place import LogPlace

FILES = "files"
"""The operation of a folder's one version: nobody recorded what wrote its files."""


class FolderPort:
    """`tblctl.tableformat.port.TablePort` of the files that `chosen` takes below a storage's root.

    Attributes:
        progress: called with (done, total, "files") while footers are read; None for nobody.
    """

    def __init__(
        self, storage: Storage, chosen: Chosen, env: Environment = SYSTEM, *, cache: FileCache | None = None
    ) -> None:
        self.env = env
        self.progress: Progress | None = None
        self._cache = cache
        self._storage = storage
        self._chosen = chosen

    @classmethod
    def of(
        cls,
        location: str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
        env: Environment = SYSTEM,
        *,
        cache: FileCache | None = None,
    ) -> FolderPort:
        """Return the port of a folder, a glob, or one file of this machine. `cache` keeps what footers say."""
        text = os.fspath(location)
        here = None if "://" in text else Path(text).expanduser()
        if here is not None and here.is_file():
            here = here.resolve()
            return cls(Storage(here.parent, options), Chosen(names=frozenset({here.name})), env, cache=cache)
        if here is not None and here.is_dir():  # whatever characters its name has
            return cls(Storage(here, options), Chosen(), env, cache=cache)
        folder, pattern = split_glob(text)
        return cls(Storage(folder, options), Chosen(pattern=pattern), env, cache=cache)

    @property
    def location(self) -> str:
        """The folder or glob, without secrets."""
        below = self._chosen.pattern or min(self._chosen.names, default=None)
        more = f" and {len(self._chosen.names) - 1:,} more" if len(self._chosen.names) > 1 else ""
        return (
            self._storage.url
            if below is None
            else f"{self._storage.url}/{shown_name(self._storage.url, below)}{more}"
        )

    def lists(self, url: str) -> bool:
        """Return whether a list of the files meets what is at a URL, or below it."""
        root = self._storage.url.rstrip("/")
        if self._chosen.names or not (url == root or url.startswith(f"{root}/")):
            return False
        return f"{url.removeprefix(root).lstrip('/')}/".startswith(self._chosen.prefix)

    @property
    def storage(self) -> Storage:
        """Where the files are."""
        return self._storage

    @once
    def _version(self) -> FolderVersion:
        files = list_files(self._storage, self._chosen)
        return FolderVersion(self.location, files, lambda: self._parts(files))

    def only(self, files: Files, progress: Progress | None = None) -> FolderVersion:
        """Return some of the files; their footers are read when needed, and not kept."""
        return FolderVersion(
            self.location, files, lambda: read_parts(self._storage, files, progress=progress)
        )

    def _parts(self, files: Files) -> list[Part]:
        if self._cache is None:
            return read_parts(self._storage, files, progress=self.progress)
        kept = KeptFooters(cache=self._cache, location=self.location)
        known = kept.parts(files)
        new = files.without(
            pa.chunked_array([part.rows["name"].combine_chunks() for part in known], pa.large_string())
        )
        if not len(new):
            return joined(known)
        found = joined([*known, *read_parts(self._storage, new, progress=self.progress)])
        kept.put(found, self.env.now_ms() / 1000)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self), cache=self._cache), (self._storage, self._chosen, self.env))

    def newest(self) -> FolderVersion:
        """Return the files as they were at the first call."""
        return self._version

    def version(self, id: str, *, newest: FolderVersion | None = None) -> FolderVersion:
        """Return the only version."""
        found = newest or self.newest()
        if id != found.id:
            raise SnapshotNotFoundError(f"{self.location} has no versions: its files are as they are now")
        return found

    def version_at(self, timestamp_ms: int, *, newest: FolderVersion | None = None) -> FolderVersion:
        """Refuse: plain files have no history."""
        del timestamp_ms, newest
        raise SnapshotNotFoundError(f"{self.location} has no versions: its files are as they are now")

    def parse_id(self, text: str) -> str | None:
        """Return the only version's id if the text is that."""
        return text if text == self.newest().id else None

    def ever_had(self, id: str, *, newest: FolderVersion) -> bool:
        """Return whether the id is that of the only version."""
        return id == newest.id

    def ever_had_sort(self, number: int, *, newest: FolderVersion) -> bool:
        """Return False: plain files are in no order that a table could name."""
        del number, newest
        return False

    def entry(self, version: FolderVersion, *, newest: FolderVersion | None = None) -> VersionEntry:
        """Return an entry with the size of all files, at the time at which the last one was written."""
        del newest
        measured = version.measured
        return VersionEntry(
            id=version.id,
            parent=None,
            public_id=version.public_id,
            timestamp_ms=int(version.files.modified_seconds.max() * 1000),
            summary=Summary(
                operation=FILES,
                rows=int(measured.row_count.sum()),
                blocks=len(measured.row_count),
                data_bytes=int(measured.size_bytes.sum()),
            ),
            is_readable=True,
            tags=(),
            cluster_by=(),
            options=None,
        )

    def history(
        self, limit: int | None = None, *, start: FolderVersion | None = None
    ) -> Iterator[VersionEntry]:
        """Yield the entry of the only version."""
        return itertools.islice(self.known_history(start or self.newest()), limit)

    def known_history(self, version: FolderVersion) -> Iterator[VersionEntry]:
        """Yield the same."""
        yield self.entry(version)

    def gone(self, base: FolderVersion, newest: FolderVersion, paths: Collection[str]) -> frozenset[str]:
        """Return none: it is seen as it was."""
        del base, newest, paths
        return frozenset()

    def block_io(self, version: FolderVersion) -> BlockIO:
        """Refuse: no merge takes plain files."""
        del version
        self._refuse()

    def replace(self, base: FolderVersion, replacement: Replacement) -> FolderVersion:
        """Refuse: nothing can be committed to plain files."""
        del base, replacement
        self._refuse()

    def plan_storage(self, place: str | None) -> Storage:
        """Refuse: there are no plans."""
        del place
        self._refuse()

    def log_place(self) -> LogPlace:
        """Refuse: nothing is recorded of plain files."""
        self._refuse()

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """Refuse: no file is ours to delete."""
        del keep, older_than_seconds, dry_run
        self._refuse()

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        """Refuse: there is no metadata to check."""
        del deep, progress
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidOptionError(f"{self.location} is a folder of plain Parquet files, which is only read")
