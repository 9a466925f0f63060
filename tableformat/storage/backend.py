"""The interface of every backend of Storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """One object of a listing.

    Attributes:
        name: relative to the table's root.
        size_bytes: its length.
        modified_seconds: time of the last write, in seconds since 1970-01-01 UTC, by the storage's own clock.
    """

    name: str
    size_bytes: int
    modified_seconds: float


Contents = list[bytes | None]
Names = list[str]
Times = list[float | None]


class Backend(Protocol):
    """Reads and writes below one root. The caller has checked the names. Errors are the library's own.

    `failures.classify` returns the meaning of an error; `Storage` turns it into a tblctl error. Backends hold no locks
    and open nothing before the first call, so that they survive a fork. `Storage` does the pickling.

    `time_step_seconds`: writes less than this apart may have the same time. If some requests show finer times than
    others, times are rounded to multiples of it.
    """

    time_step_seconds: float

    def read(self, name: str) -> bytes: ...

    def read_many(self, names: Sequence[str]) -> Contents: ...

    def write(self, name: str, data: bytes | pa.Buffer) -> None: ...

    def begin(self, name: str) -> Upload: ...

    def create(self, name: str, data: bytes | pa.Buffer) -> bool: ...

    def delete(self, names: Sequence[str]) -> None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def folders(self, folder: str) -> Names: ...

    def modified(self, names: Sequence[str]) -> Times: ...

    def is_empty(self) -> bool: ...

    def delete_all(self) -> None: ...

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile: ...

    def arrow_filesystem(self) -> tuple[pyarrow.fs.FileSystem, str]: ...
