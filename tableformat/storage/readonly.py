"""Any other fsspec filesystem, read only.

`mode="create"` is atomic on some and not on others (most check first and then write). So nothing is ever written: a
commit would not be safe, and the blocks of an append would be left behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tblctl.tableformat.errors import UnsupportedBackendError
from tblctl.tableformat.storage.backend import Contents, Names, ObjectInfo, Times
from tblctl.tableformat.storage.failures import Failure, classify
from tblctl.tableformat.storage.location import scrub, secrets_in, secrets_of
from tblctl.tableformat.storage.names import name_problem
from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs


class ReadOnlyBackend:
    """See `Backend`. Sends one request at a time: some fsspec drivers do not work from several threads."""

    time_step_seconds = 1.0

    def __init__(self, url: str, shown: str, options: dict[str, Any]) -> None:
        self._url = url
        self._shown = shown
        self._options = options
        self._opened: tuple[int, Any, str] | None = None  # process id, filesystem, root

    def read(self, name: str) -> bytes:
        filesystem, root = self._filesystem()
        return bytes(filesystem.cat_file(f"{root}/{name}"))

    def read_many(self, names: Sequence[str]) -> Contents:
        return [self._read_or_none(name) for name in names]

    def _read_or_none(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return None
            raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        filesystem, root = self._filesystem()
        found = filesystem.find(f"{root}/{prefix.rpartition('/')[0]}".rstrip("/"), detail=True)
        for path in sorted(found):
            name = path.removeprefix(root).lstrip("/")
            if name.startswith(prefix) and name_problem(name) is None:
                info = found[path]
                modified_seconds = _modified_seconds(info)
                yield ObjectInfo(name=name, size_bytes=info["size"] or 0, modified_seconds=modified_seconds)

    def folders(self, folder: str) -> Names:
        filesystem, root = self._filesystem()
        try:
            found = filesystem.ls(f"{root}/{folder}".rstrip("/"), detail=True)
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return []
            raise
        paths = [info["name"].rstrip("/") for info in found if info["type"] == "directory"]
        return [f"{path.removeprefix(root).lstrip('/')}/" for path in paths]

    def modified(self, names: Sequence[str]) -> Times:
        return [self._modified_or_none(name) for name in names]

    def _modified_or_none(self, name: str) -> float | None:
        filesystem, root = self._filesystem()
        try:
            info = filesystem.info(f"{root}/{name}")
        except Exception as error:
            if classify(error) is Failure.MISSING:
                return None
            raise
        return _modified_seconds(info) if info["type"] == "file" else None

    def is_empty(self) -> bool:
        return next(self.list(""), None) is None

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:  # noqa: ARG002
        import pyarrow as pa

        filesystem, root = self._filesystem()
        return pa.PythonFile(filesystem.open(f"{root}/{name}", "rb"), mode="r")

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]:
        from tblctl.tableformat.storage.arrow import filesystem_over

        filesystem, root = self._filesystem()
        return filesystem_over(filesystem, root, self), root

    def write(self, name: str, data: bytes | pa.Buffer) -> None:  # noqa: ARG002
        self._refuse(f"write {name}")

    def begin(self, name: str) -> Upload:
        self._refuse(f"write {name}")

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:  # noqa: ARG002
        self._refuse(f"create {name}")

    def delete(self, names: Sequence[str]) -> None:
        self._refuse(f"delete {len(names)} objects")

    def delete_all(self) -> None:
        self._refuse("delete all objects")

    def _refuse(self, what: str) -> NoReturn:
        msg = (
            f"cannot {what} in {self._shown}: tblctl knows no atomic create there, so commits would not be safe; "
            "tables can be written on local disk, in memory and on S3 (s3://)"
        )
        raise UnsupportedBackendError(msg, url=self._shown)

    def _filesystem(self) -> tuple[Any, str]:
        """Return the filesystem and the root's path in it. Opened once per process: it does not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            import fsspec

            options = {"use_listings_cache": False, "skip_instance_cache": True} | self._options
            problem: str | None = None
            try:
                filesystem, root = fsspec.core.url_to_fs(self._url, **options)
                self._opened = (os.getpid(), filesystem, root.rstrip("/"))
            except (ImportError, ValueError) as error:
                problem = scrub(str(error), (*secrets_of(self._url), *secrets_in(self._options)))
            if (
                self._opened is None or problem is not None
            ):  # outside of `except`: fsspec must not be the context
                msg = f"cannot open {self._shown}: fsspec has no driver for it here ({problem})"
                raise UnsupportedBackendError(msg, url=self._shown)
        return self._opened[1], self._opened[2]


def _modified_seconds(info: dict[str, Any]) -> float:
    for key in ("mtime", "LastModified", "modified", "updated", "created"):
        value: Any = info.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if hasattr(value, "timestamp"):
            return float(value.timestamp())
    return 0.0
