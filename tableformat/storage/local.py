"""Objects as files of this machine.

fsspec's local filesystem is not used: its `mode="create"` checks first and then writes, so two writers can both win.
Here an object is written to a temporary file in the same folder and flushed. `os.link` (create: fails if the name is
taken) or `os.replace` (write) then publishes it in one step, and the folder is flushed. Measured: link and two flushes
allow 1,200 to 1,500 commits a second. A killed writer leaves at most a `.tmp-` file. gc removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import CommitOutcomeUnknownError, CorruptTableError, UnsupportedBackendError
from tblctl.tableformat.storage.backend import Contents, Names, ObjectInfo, Times
from tblctl.tableformat.storage.failures import Failure, classify
from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

TEMPORARY = ".tmp-"
_READERS = 8  # threads of one read_many: enough to keep a disk busy
_TRIES = 10
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, errno.EINVAL}
)


class LocalBackend:
    """See `Backend`; `root` is an absolute path."""

    time_step_seconds = (
        0.01  # Linux gives files the time of the last clock tick; there are 100 to 1,000 a second
    )

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, name: str) -> bytes:
        with open(self._path(name), "rb") as file:  # noqa: PTH123 (a string path)
            return file.read()

    def read_many(self, names: Sequence[str]) -> Contents:
        if not names:
            return []
        with ThreadPoolExecutor(min(_READERS, len(names))) as pool:
            return list(pool.map(self._read_or_none, names))

    def _read_or_none(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except OSError as error:
            if classify(error) is Failure.MISSING:
                return None
            raise

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._path(name)
        self._publish(path, data, os.replace)
        flush_folder(os.path.dirname(path))  # noqa: PTH120

    def begin(self, name: str) -> Upload:
        return LocalUpload(self._path(name))

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        path = self._path(name)
        is_taken = False

        def link(temporary: str, path: str) -> None:
            nonlocal is_taken
            try:
                os.link(temporary, path)
            except FileExistsError:
                is_taken = True
            except OSError as error:
                if error.errno in _NO_HARD_LINKS:
                    msg = (
                        f"cannot create {name} in {self._root}: the filesystem has no hard links ({error.strerror}), "
                        "so commits would not be safe there; put the table on another disk or an object store"
                    )
                    raise UnsupportedBackendError(msg, name=name, url=self._root) from error
                raise

        self._publish(path, data, link)
        if is_taken:
            return False
        self._confirm(name, os.path.dirname(path))  # noqa: PTH120
        return True

    def _confirm(self, name: str, folder: str) -> None:
        """Flush the folder of the new object `name`; try again if that fails, since network disks fail briefly."""
        with contextlib.suppress(OSError):
            flush_folder(folder)
            return
        try:
            flush_folder(folder)
        except OSError as error:
            msg = (
                f"created {name} in {self._root}, but the disk did not confirm it ({error}): it exists now, but may "
                "be gone after a crash; check the disk and read the object back"
            )
            raise CommitOutcomeUnknownError(msg, name=name, url=self._root, not_durable=True) from error

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                os.unlink(self._path(name))  # noqa: PTH108
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                    raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        start = os.path.join(self._path(folder), "") if folder else self._root  # noqa: PTH118
        for entry, name in _walk(start, f"{folder}/" if folder else "", prefix):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since the folder was read
            yield ObjectInfo(name=name, size_bytes=found.st_size, modified_seconds=found.st_mtime)

    def folders(self, folder: str) -> Names:
        start = self._path(folder[:-1]) if folder else self._root
        try:
            with os.scandir(start) as found:
                return [f"{folder}{entry.name}/" for entry in found if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def modified(self, names: Sequence[str]) -> Times:
        # One after the other: a stat takes microseconds, less than starting it in a thread.
        return [self._modified_or_none(name) for name in names]

    def _modified_or_none(self, name: str) -> float | None:
        try:
            found = os.stat(self._path(name))  # noqa: PTH116
        except OSError as error:
            if classify(error) is Failure.MISSING:
                return None
            raise
        return found.st_mtime if stat.S_ISREG(found.st_mode) else None

    def is_empty(self) -> bool:
        try:
            for folder, folders, files in os.walk(self._root, onerror=_raise):
                if files or any(os.path.islink(f"{folder}/{name}") for name in folders):  # noqa: PTH114
                    return False
        except FileNotFoundError:
            return not os.path.lexists(self._root)
        except NotADirectoryError:
            return False
        return True

    def delete_all(self) -> None:
        for info in self.list(""):
            self.delete([info.name])
        with contextlib.suppress(FileNotFoundError):
            # Links (removed, not followed) and folders are left. A root that is itself a link stays, empty.
            if os.path.islink(self._root):  # noqa: PTH114
                for entry in list(os.scandir(self._root)):
                    _remove(entry)
            else:
                shutil.rmtree(self._root)

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:  # noqa: ARG002
        # Not a memory map: reading a mapped file after someone truncates it kills the process (SIGBUS), and mapped
        # pages count as memory of the budget. OSFile uses pread, from many threads at once.
        import pyarrow as pa

        return pa.OSFile(self._path(name), "rb")

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem(), self._root

    def _path(self, name: str) -> str:
        """Return the file's path.

        Raises:
            CorruptTableError: a link in the path leads out of the root. One lstat for each part of the name; the real
                path is only computed if there is a link.
        """
        path = self._root
        linked = False
        for part in name.split("/"):
            path = f"{path}/{part}"
            linked = linked or os.path.islink(path)  # noqa: PTH114
        if linked:
            root = os.path.realpath(self._root)
            if not os.path.realpath(path).startswith(root.rstrip("/") + "/"):
                msg = f"{name} in {self._root} is a link out of the table, or below one; refusing to touch it"
                raise CorruptTableError(msg, name=name, url=self._root)
        return path

    def _publish(self, path: str, data: bytes | pa.Buffer, step: Callable[[str, str], None]) -> None:
        """Write `data` to a temporary file and publish it as `path` by `step`, a link or a rename.

        A gc whose `older_than` is shorter than the write may delete the temporary file as a leftover. Nothing was
        published then, so it is written again.
        """
        for _ in range(_TRIES):
            with self._temporary_beside(path, data) as temporary:
                try:
                    step(temporary, path)
                except FileNotFoundError:
                    if os.path.lexists(temporary) or not os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120
                        raise
                else:
                    return
        msg = f"its temporary file was removed {_TRIES} times while it was written: run gc with a longer older_than"
        raise OSError(errno.EBUSY, msg, path)

    @contextlib.contextmanager
    def _temporary_beside(self, path: str, data: bytes | pa.Buffer) -> Iterator[str]:
        """Write `data`, flushed, to a new file in the folder of `path`, and remove the file afterwards.

        A failure to remove it is no error: the object may already be published, and gc removes the file.
        """
        folder = os.path.dirname(path)  # noqa: PTH120
        make_folder(folder)
        temporary = f"{folder}/{TEMPORARY}{SYSTEM.new_id()}"
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            try:
                _write_whole(handle, memoryview(data))
                os.fsync(handle)
            finally:
                os.close(handle)
            yield temporary
        finally:
            with contextlib.suppress(OSError):  # mostly FileNotFoundError: os.replace moved it
                os.unlink(temporary)  # noqa: PTH108


class LocalUpload:
    """An `Upload` into a temporary file beside its place."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = os.path.dirname(path)  # noqa: PTH120
        make_folder(self._folder)
        self._temporary = f"{self._folder}/{TEMPORARY}{SYSTEM.new_id()}"
        self._handle = os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        self._is_open = True

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes."""
        if not self._is_open:  # the number of the handle may be that of another file now
            raise OSError(errno.EBADF, "the upload is over", self._path)
        _write_whole(self._handle, memoryview(data))

    def finish(self) -> None:
        """Flush the file and move it to its place."""
        os.fsync(self._handle)
        self._close()
        os.replace(self._temporary, self._path)  # noqa: PTH105
        flush_folder(self._folder)

    def abandon(self) -> None:
        """Remove the temporary file."""
        self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)  # noqa: PTH108

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._handle)


def make_folder(folder: str) -> None:
    """Make `folder` and its parents. Flush each parent, so that a crash cannot lose a published name."""
    if os.path.isdir(folder):  # noqa: PTH112
        return
    parent = os.path.dirname(folder)  # noqa: PTH120
    if parent != folder:
        make_folder(parent)
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(folder):  # noqa: PTH112
            raise NotADirectoryError(errno.EEXIST, "a file is in the way of the folder", folder) from None
    flush_folder(parent)


def flush_folder(folder: str) -> None:
    """Make the names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_whole(handle: int, data: memoryview) -> None:
    """Write all of `data`. One os.write takes at most 2 GiB, and may take less if the disk fills up."""
    rest = data.cast("B") if data.nbytes else data
    while rest.nbytes:
        rest = rest[os.write(handle, rest) :]


def _walk(folder: str, above: str, prefix: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield the regular files below `folder` with their names (`above` + ...) if they start with `prefix`, by name."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return
    # A folder sorts as "name/", as the names of its objects do: "a-b" < "a/b" < "ab".
    keyed = [
        (f"{above}{e.name}/" if e.is_dir(follow_symlinks=False) else f"{above}{e.name}", e) for e in entries
    ]
    for name, entry in sorted(keyed, key=lambda pair: pair[0]):
        if name.endswith("/"):
            if name.startswith(prefix) or prefix.startswith(name):
                yield from _walk(entry.path, name, prefix)
        elif name.startswith(prefix) and entry.is_file(follow_symlinks=False):
            yield entry, name


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry.path)  # noqa: PTH108


def _raise(error: OSError) -> None:
    raise error
