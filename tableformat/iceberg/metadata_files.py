"""Read manifests and manifest lists. They never change once written, so the newest ones read are kept."""

from __future__ import annotations

import io
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import AccessDeniedError, CorruptTableError, ObjectNotFoundError, StorageError
from tblctl.tableformat.iceberg.avro.container import read_container
from tblctl.tableformat.iceberg.avro.counts import check_counts
from tblctl.tableformat.iceberg.data_storage import SESSION
from tblctl.tableformat.iceberg.own_keys import read_side_file
from tblctl.tableformat.storage.failures import Failure, classify
from tblctl.tableformat.storage.file_cache import FileCache
from tblctl.tableformat.storage.location import scrub, secrets_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

    from tblctl.tableformat.iceberg.footers import FooterBounds, ParquetFile
    from tblctl.tableformat.model.schema.schema import Leaf

LOG = logging.getLogger("tblctl")

_KEPT_BYTES = 256 * 2**20


class KeptFiles:
    """Contents of files by path, the least recently used dropped first. Threads may share it. Pickles empty."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._most,))

    def get(self, path: str) -> bytes | None:
        """Return the content of a file, if it was kept."""
        with self._lock:
            found = self._files.get(path)
            if found is not None:
                self._files.move_to_end(path)
            return found

    def put(self, path: str, data: bytes) -> None:
        """Keep a file's content."""
        with self._lock:
            self._size += len(data) - len(self._files.pop(path, b""))
            self._files[path] = data
            while self._size > self._most and len(self._files) > 1:
                self._size -= len(self._files.popitem(last=False)[1])


class _Held:
    """A file in memory, as much of PyIceberg's `InputFile` as its Avro reader uses."""

    def __init__(self, location: str, data: bytes) -> None:
        self.location = location
        self._data = data

    def open(self, seekable: bool = True) -> io.BytesIO:
        del seekable
        return io.BytesIO(self._data)


class MetadataFiles:
    """The metadata files of one table.

    Args:
        location: of the table, for people.
        file_io: reads files.
        kept: contents that were read.
        cache: keeps those of remote storage.
        renew: returns what reads files with fresh credentials, where those that a catalog vended have expired.
    """

    def __init__(
        self,
        location: str,
        file_io: FileIO,
        kept: KeptFiles,
        cache: FileCache | None = None,
        renew: Callable[[], FileIO] | None = None,
    ) -> None:
        self._location = location
        self._renew = renew if SESSION in file_io.properties else None
        self._io = file_io
        self._renewing = Lock()
        self._kept = kept
        self._cache = cache

    @property
    def io_properties(self) -> dict[str, str]:
        """The properties of the table's FileIO, secrets included."""
        return {name: str(value) for name, value in self._io.properties.items()}

    def contents(self, paths: Sequence[str]) -> list[bytes]:
        """Return the contents of files, in order, many at a time.

        Raises:
            ObjectNotFoundError, AccessDeniedError, StorageError: a file is missing, or cannot be read; names it.
        """
        return in_parallel(self._content, paths, threads=IO_THREADS)

    def manifests(self, path: str) -> tuple[ManifestFile, ...]:
        """Return what a manifest list lists.

        Raises:
            CorruptTableError: it cannot be parsed. Otherwise as `contents`.
        """
        from pyiceberg.manifest import read_manifest_list

        data = self._fetched(path)
        held = _Held(path, data)
        try:
            check_counts(read_container(data))
            return tuple(read_manifest_list(held))  # type: ignore[arg-type]
        except Exception as error:  # of bytes in memory: whatever it raises is damage
            msg = (
                f"{self._location}: manifest list {path} cannot be read: {str(error) or type(error).__name__}"
            )
            raise CorruptTableError(msg, name=path) from error

    def footers(
        self, files: Sequence[ParquetFile], leaves: Sequence[Leaf], *, null_if_absent: Collection[int] = ()
    ) -> list[dict[int, FooterBounds]]:
        """Return for each data file the bounds of columns by id, as far as its footer has them; see `read_footers`."""
        from tblctl.tableformat.iceberg.footers import read_footers

        return read_footers(self._io, files, leaves, null_if_absent=null_if_absent)

    def own_keys(self, files: Sequence[ParquetFile]) -> list[pa.Table | None]:
        """Return the row of keys in the footer of each of tblctl's files; None where there is none."""
        from tblctl.tableformat.iceberg.footers import read_own_keys

        return read_own_keys(self._io, files)

    def side_files(self, paths: Sequence[str]) -> list[pa.Table]:
        """Return the rows of side files of keys, in order, without missing and damaged ones: footers have the same."""
        found: list[pa.Table] = []
        for path in paths:
            try:
                rows = read_side_file(self.contents([path])[0])
            except (StorageError, AccessDeniedError) as error:
                LOG.info("a file of keys is not there, footers are read: %s", error)
                continue
            if rows is not None:
                found.append(rows)
        return found

    def _content(self, path: str) -> bytes:
        found = self._kept.get(path)
        if found is None:
            found = (
                self._cached(path) if self._cache is not None and _is_remote(path) else self._fetched(path)
            )
            self._kept.put(path, found)
        return found

    def _cached(self, path: str) -> bytes:
        assert self._cache is not None
        found = self._cache.get(path)
        if found is None:
            found = self._fetched(path)
            self._cache.put(path, found)
        return found

    def _fetched(self, path: str) -> bytes:
        used = self._io
        try:
            return _read(used, path)
        except (OSError, ValueError, ImportError) as error:
            if self._renew is None or not is_denied(error):
                raise self._problem(path, error, used) from error
        with self._renewing:  # many are denied together, and one of them asks
            self._io = self._renew() if self._io is used else self._io
            used = self._io
        try:
            return _read(used, path)
        except (OSError, ValueError, ImportError) as error:
            raise self._problem(path, error, used) from error

    def _problem(self, path: str, error: Exception, used: FileIO) -> Exception:
        what = f"{self._location}: {path}"
        text = scrub(str(error), secrets_in(used.properties))
        if isinstance(error, FileNotFoundError):
            return ObjectNotFoundError(
                f"{what} is missing: the table's metadata names it, but it is not there. If another engine has expired "
                "snapshots meanwhile, run it again"
            )
        if is_denied(error):
            return AccessDeniedError(
                f"{what}: access is denied: {text}; check the credentials of the storage"
            )
        return StorageError(f"{what} cannot be read: {text}")


def _read(file_io: FileIO, path: str) -> bytes:
    with file_io.new_input(path).open(seekable=False) as stream:
        return bytes(stream.read())


def is_denied(error: BaseException) -> bool:
    """Return whether a storage refuses access. Arrow's S3 says so in the text only."""
    return isinstance(error, PermissionError) or (
        isinstance(error, OSError) and any(word in str(error) for word in ("ACCESS_DENIED", "ExpiredToken"))
    )


def is_full(error: BaseException) -> bool:
    """Return whether a storage, or the disk of a catalog, is full. Databases, and Arrow's S3, say so in the text."""
    return classify(error) is Failure.FULL or any(word in str(error) for word in _FULL)


FULL_ADVICE = "free some space and try again"

_FULL = ("No space left on device", "disk is full", "XMinioStorageFull")


def _is_remote(path: str) -> bool:
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() != "file"
