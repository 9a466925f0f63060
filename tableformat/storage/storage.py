"""Class Storage: one table's objects, on any backend.

Every public operation goes through `Storage._call`, one method with (operation, names): errors are mapped there, and
tests inject faults there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.storage.backend import Backend, Contents, Names, ObjectInfo, Times
from tblctl.tableformat.storage.failures import Failure, classify, explain
from tblctl.tableformat.storage.identity import root_identity
from tblctl.tableformat.storage.location import (
    Location,
    has_userinfo,
    parse_location,
    scrub,
    secrets_in,
    secrets_of,
    shown_name,
)
from tblctl.tableformat.storage.names import check_name, check_prefix, name_problem
from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

_logger = logging.getLogger(__name__)
T = TypeVar("T")


class Storage:
    """The objects below `url`: a path, `file://`, `memory://`, `s3://`, or (reading only) any other fsspec URL.

    Nothing is opened before the first call. Instances may be shared between threads, pickled (as URL and options)
    and used after a fork. Options may hold secrets: they are in no repr, message or log.

    Besides its own errors, every method may raise:
        CorruptTableError: a name that is not safe below the root, or (on local disk) a link that leads out of it.
        AccessDeniedError, InputError (no such bucket), StorageError (unreachable, full, broken).
        UnsupportedBackendError: the driver is not installed, or the backend is for reading only.

    Args:
        url: the table's root; local paths are made absolute, '~' is the home folder.
        storage_options: options of fsspec's filesystem (`key`, `secret`, `endpoint_url`, ...). They override tblctl's
            own settings and fsspec's configuration. Local disk and memory ignore them.
    """

    def __init__(self, url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._location = parse_location(os.fspath(url))
        self._options = dict(storage_options or {})
        self._secrets = (*secrets_of(os.fspath(url)), *secrets_in(self._options))
        self._has_userinfo = has_userinfo(os.fspath(url))
        self._backend = _backend(self._location, self._options)

    @property
    def url(self) -> str:
        """The table's root, safe to print: no user info, no query."""
        return self._location.shown

    @property
    def identity(self) -> str:
        """What tells the root from all others, by whatever name it is given, with a slash at the end; not to be shown.

        On local disk it follows links, so it may change with them.
        """
        return root_identity(self._location, self._options)

    @property
    def access_id(self) -> str:
        """A hash of the root and of all options: the same for storages that reach the same objects in the same way."""
        options = sorted((name, repr(value)) for name, value in self._options.items())
        return hashlib.sha256(repr((self._location.absolute_url, options)).encode()).hexdigest()

    @property
    def is_local(self) -> bool:
        """Whether the objects are files of this machine."""
        return self._location.kind == "local"

    @property
    def is_missing_folder(self) -> bool:
        """Whether this is a folder of this machine that does not exist: other storages have no folders."""
        return self.is_local and not Path(self._location.path).is_dir()

    def elsewhere(self, url: str, more: Mapping[str, Any] | None = None) -> Storage:
        """Return the storage at another place, with the same options; `more` override them."""
        return Storage(url, {**self._options, **(more or {})})

    def read(self, name: str) -> bytes:
        """Return the whole object.

        Raises:
            ObjectNotFoundError: there is none.
        """
        check_name(name)
        return self._call("read", (name,), lambda: self._backend.read(name))

    def try_read(self, name: str) -> bytes | None:
        """Return the whole object, or None if the storage says that there is none; never on any other failure."""
        check_name(name)
        return self._call("read", (name,), lambda: self._read_or_none(name))

    def read_many(self, names: Sequence[str]) -> Contents:
        """Return the objects in the order of `names`, None for those that are missing; read concurrently."""
        checked = tuple(check_name(name) for name in names)
        return self._call("read", checked, lambda: self._backend.read_many(checked))

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write the object, or replace it: readers see the old or the new one, never a part.

        Durable on return (local disk: file and folder are flushed). On an error no part is left.
        """
        check_name(name)
        self._call("write", (name,), lambda: self._backend.write(name, data))

    def begin(self, name: str) -> Upload:
        """Begin to write the object piece by piece, or to replace it. Readers see the old or the new one, never a part.

        Memory: about 48 MiB on S3, whatever the size of the object; all of it in memory filesystems.
        """
        check_name(name)
        return _Upload(self, name, self._call("write", (name,), lambda: self._backend.begin(name)))

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        """Write the object only if the name is free, atomically. Durable on return.

        Returns:
            True: the object is there, and it is ours. False: an object is there. It may still be ours, since a reply
            can be lost and the request sent again: read it back and compare before giving up the name.

        Raises:
            CommitOutcomeUnknownError: there was no clear reply, and the object is not visible. With
                `details["not_durable"]` (local disk): it is there, but may be gone after a crash of the machine.
            UnsupportedBackendError: the backend has no atomic create (S3: the server is tested before the first
                create of a process, with an object `metadata/.tmp-probe-...`).
        """
        check_name(name)
        return self._call("create", (name,), lambda: self._backend.create(name, data))

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects, in this order; missing ones are ignored. On an error some may be gone."""
        checked = tuple(check_name(name) for name in names)
        self._call("delete", checked, lambda: self._backend.delete(checked))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose name starts with `prefix`, by name ascending; never from a cache.

        A prefix that nothing starts with yields nothing. Temporary files of killed writers (`.tmp-...`) are objects
        too; links are not. Memory: one page (S3) or one folder's names (local).
        """
        check_prefix(prefix)
        return self._call("list", (prefix,), lambda: self._listing(prefix))

    def folders(self, folder: str = "") -> Names:
        """Return the folders right below `folder` ("" or "a/b/"), by name, each as "a/b/c/"; never from a cache.

        Their contents are not listed, so a folder of a million blocks costs no more than an empty one. On local disk,
        empty folders are included, and links are not followed.
        """
        check_prefix(folder)
        found = self._call("list", (folder,), lambda: self._backend.folders(folder))
        return sorted(name for name in found if name_problem(name[:-1]) is None)

    @property
    def time_step_seconds(self) -> float:
        """The resolution of the storage's times: writes less than this apart may have the same time."""
        return self._backend.time_step_seconds

    def modified(self, names: Sequence[str]) -> Times:
        """Return when each object was last written, by the storage's clock, in the order of `names`.

        Seconds since 1970-01-01 UTC; None for a missing object. Requests run concurrently.
        """
        checked = tuple(check_name(name) for name in names)
        return self._call("look for", checked, lambda: self._backend.modified(checked))

    def is_empty(self) -> bool:
        """Return whether there are no objects below the root; empty folders do not count."""
        return self._call("look into", (), self._backend.is_empty)

    def delete_all(self) -> None:
        """Delete everything below the root, and the root itself. Targets of links stay.

        Objects go in the order of names, `metadata/snapshots/` last. An interrupted run can be repeated, because the
        table is still recognised.
        """
        self._call("delete all of", (), self._backend.delete_all)

    def open_input(self, name: str, *, size_bytes: int | None = None) -> pa.NativeFile:
        """Open the object for random access. Only the bytes that pyarrow asks for are read, nothing ahead.

        Args:
            name: the object.
            size_bytes: its length, if known; saves a request on S3.

        Raises:
            ObjectNotFoundError: there is none (S3 with a known length: raised by the first read).
        """
        check_name(name)
        return self._call("open", (name,), lambda: self._backend.open_input(name, size_bytes))

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Return a pyarrow filesystem and the root's path in it, for datasets. Nothing is checked or counted here."""
        return self._call("open", (), self._backend.arrow_filesystem)

    def explain(self, error: Exception, operation: str, name: str = "") -> TblctlError:
        """Return the tblctl error for an error of an `open_input` file or an `arrow_filesystem` filesystem."""
        if isinstance(error, TblctlError):
            return error
        return explain(
            error, operation=operation, name=self._shown(name), url=self.url, secrets=self._secrets
        )

    def _shown(self, name: str) -> str:
        return shown_name(self.url, name) if "?" in name or "#" in name else name

    def _call(self, operation: str, names: tuple[str, ...], action: Callable[[], T]) -> T:
        """Run one operation. The only way to the backend: subclasses in tests override it.

        `operation` is one of read, write, create, delete, list, "look for", "look into", "delete all of", open.
        """
        _logger.debug(
            "%s %s in %s",
            operation,
            self._shown(names[0]) if len(names) == 1 else f"{len(names)} objects",
            self.url,
        )
        try:
            return action()
        except TblctlError:
            raise
        except Exception as error:  # noqa: BLE001 (drivers raise anything; the caller sees only our errors)
            failure = error
        shown = names[0] if len(names) == 1 else _several(names)
        # outside of the except clause, so that the failure is not the context: it may contain a secret
        raise self.explain(failure, operation, shown) from self._cause(failure)

    def _cause(self, error: Exception) -> Exception | None:
        """Return `error` if its text may appear in a traceback, else None.

        It may not if the location has user info: drivers repeat pieces of it that are too short to search for, or
        encoded (aiohttp shows the header made from them). The message has the text without secrets.
        """
        if self._has_userinfo:
            return None
        todo: list[BaseException | None] = [error]
        while todo:
            seen = todo.pop()
            if seen is None:
                continue
            if any(scrub(text, self._secrets) != text for text in (str(seen), repr(seen))):
                return None
            todo += [seen.__cause__, seen.__context__]
        return error

    def _read_or_none(self, name: str) -> bytes | None:
        try:
            return self._backend.read(name)
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return None
            raise

    def _listing(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            yield from self._backend.list(prefix)
        except TblctlError:
            raise
        except Exception as error:  # noqa: BLE001 (as in _call)
            failure = error
        else:
            return
        raise self.explain(failure, "list", prefix) from self._cause(failure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._location.absolute_url, self._options))


class _Upload:
    """An `Upload` whose errors are tblctl's."""

    def __init__(self, storage: Storage, name: str, inner: Upload) -> None:
        self._storage = storage
        self._name = name
        self._inner = inner

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes."""
        self._call(lambda: self._inner.write(data))

    def finish(self) -> None:
        """Make the object appear, durable."""
        self._call(self._inner.finish)

    def abandon(self) -> None:
        """Remove what was written, as far as possible; never raises."""
        self._inner.abandon()

    def _call(self, action: Callable[[], None]) -> None:
        self._storage._call("write", (self._name,), action)  # noqa: SLF001 (the one way to the backend)


def _several(names: tuple[str, ...]) -> str:
    return f"{names[0]} and {len(names) - 1} other objects" if names else ""


def _backend(location: Location, options: dict[str, Any]) -> Backend:
    """Return the backend of a location; drivers are imported on first use only (start-up time)."""
    if location.kind == "local":
        from tblctl.tableformat.storage.local import LocalBackend

        return LocalBackend(location.path)
    if location.kind == "memory":
        from tblctl.tableformat.storage.memory import MemoryBackend

        return MemoryBackend(location.path)
    if location.kind == "s3":
        from tblctl.tableformat.storage.s3 import S3Backend

        return S3Backend(location.path, options)
    from tblctl.tableformat.storage.readonly import ReadOnlyBackend

    return ReadOnlyBackend(location.path, location.shown, options)
