"""An in-memory object store, or local disk, with a clock of its own; each actor has a `Backend` of it.

Every request of an actor is a turn: `Requests.around` decides when it happens, and what becomes of it.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tblctl.tableformat.storage import ObjectInfo, Storage
from tblctl.tableformat.storage.uploads import HeldUpload, Upload

_PAGE = 3  # objects of one page of a listing
URL = "memory://simulation/table"


@dataclass(frozen=True)
class Stored:
    """An object."""

    data: bytes
    modified_seconds: float


class Watcher(Protocol):
    """Sees every change of the store, before it takes place, and what was created."""

    def creating(self, name: str, data: bytes, by: Any) -> None: ...

    def created(self, name: str) -> None: ...

    def writing(self, name: str, data: bytes, by: Any) -> None: ...

    def deleting(self, name: str, by: Any) -> None: ...


@dataclass
class Store:
    """All objects. `by` in its methods is whoever changes something, for the watcher.

    Attributes:
        now: seconds since 1970-01-01 UTC.
        step_seconds: resolution of the times of objects.
    """

    now: Callable[[], float]
    step_seconds: float
    watcher: Watcher | None = None
    objects: dict[str, Stored] = field(default_factory=dict)
    _late: list[tuple[float, int, Callable[[], Any]]] = field(default_factory=list)
    _count: int = 0

    def create(self, name: str, data: bytes, by: Any) -> bool:
        if name in self.objects:
            return False
        if self.watcher:
            self.watcher.creating(name, data, by)
        self._put(name, data)
        if self.watcher:
            self.watcher.created(name)
        return True

    def write(self, name: str, data: bytes, by: Any) -> None:
        if self.watcher:
            self.watcher.writing(name, data, by)
        self._put(name, data)

    def delete(self, name: str, by: Any) -> None:
        if name in self.objects:
            if self.watcher:
                self.watcher.deleting(name, by)
            del self.objects[name]

    def has_other(self, name: str, data: bytes) -> bool:
        """Return whether there is an object of this name with other bytes."""
        return name in self.objects and self.objects[name].data != data

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        """Let a request that is under way have its effect after so much time."""
        self._count += 1
        heapq.heappush(self._late, (self.now() + seconds, self._count, act))

    def settle(self) -> None:
        """Let late requests have their effect whose time has come."""
        while self._late and self._late[0][0] <= self.now():
            heapq.heappop(self._late)[2]()

    @property
    def last_late_seconds(self) -> float:
        """When the last request that is under way has its effect."""
        return max((item[0] for item in self._late), default=self.now())

    def _put(self, name: str, data: bytes) -> None:
        self.objects[name] = Stored(data, math.floor(self.now() / self.step_seconds) * self.step_seconds)


class Requests(Protocol):
    """Whoever makes requests."""

    def around(self, operation: str, name: str, action: Callable[[], Any], data: bytes | None = None) -> Any:
        """Make one request: `action` when it is its turn. `data`: what it writes."""


class StoreBackend:
    """See `tblctl.tableformat.storage.backend.Backend`."""

    def __init__(self, store: Store, requests: Requests, *, disk: bool) -> None:
        self._store = store
        self._requests = requests
        self._disk = disk
        self.time_step_seconds = store.step_seconds

    def read(self, name: str) -> bytes:
        return self._requests.around("read", name, lambda: self._found(name).data)

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        return [self._or_none(self.read, name) for name in names]

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self._change("write", name, bytes(memoryview(data)), self._store.write)

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        return self._change("create", name, bytes(memoryview(data)), self._store.create)

    def begin(self, name: str) -> Upload:
        return HeldUpload(lambda data: self.write(name, data))

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._requests.around("delete", name, lambda name=name: self._store.delete(name, self._requests))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield objects page by page. What others change in between may appear or not, as it happens."""
        after = ""
        while page := self._requests.around("list", prefix, lambda after=after: self._page(prefix, after)):
            yield from page
            after = page[-1].name
            if len(page) < _PAGE:
                return

    def folders(self, folder: str) -> list[str]:
        names = [item.name.removeprefix(folder) for item in self.list(folder)]
        return sorted({f"{folder}{first}/" for first, slash, _ in (n.partition("/") for n in names) if slash})

    def modified(self, names: Sequence[str]) -> list[float | None]:
        def of(name: str) -> float:
            return self._requests.around("look for", name, lambda: self._found(name).modified_seconds)

        return [self._or_none(of, name) for name in names]

    def is_empty(self) -> bool:
        return not self._requests.around("look into", "", lambda: len(self._store.objects))

    def delete_all(self) -> None:
        raise NotImplementedError

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:
        return pa.BufferReader(self._requests.around("read", name, lambda: self._found(name).data))

    def arrow_filesystem(self) -> Any:
        raise NotImplementedError

    def _change(
        self, operation: str, name: str, data: bytes, change: Callable[[str, bytes, Any], Any]
    ) -> Any:
        return self._requests.around(
            operation, name, lambda: change(name, data, self._requests), data if self._disk else None
        )

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        names = sorted(name for name in self._store.objects if name.startswith(prefix) and name > after)
        return [
            ObjectInfo(
                name=name,
                size_bytes=len(self._store.objects[name].data),
                modified_seconds=self._store.objects[name].modified_seconds,
            )
            for name in names[:_PAGE]
        ]

    def _found(self, name: str) -> Stored:
        if name not in self._store.objects:
            raise FileNotFoundError(name)
        return self._store.objects[name]

    @staticmethod
    def _or_none(read: Callable[[str], Any], name: str) -> Any:
        try:
            return read(name)
        except FileNotFoundError:
            return None


class FolderBackend(StoreBackend):
    """The objects of a store below a folder, which ends with a slash, or is empty."""

    def __init__(self, store: Store, requests: Requests, folder: str) -> None:
        super().__init__(store, requests, disk=False)
        self._folder = folder

    def read(self, name: str) -> bytes:
        return super().read(self._folder + name)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        super().write(self._folder + name, data)

    def create(self, name: str, data: bytes | pa.Buffer) -> bool:
        return super().create(self._folder + name, data)

    def delete(self, names: Sequence[str]) -> None:
        super().delete([self._folder + name for name in names])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for item in super().list(self._folder + prefix):
            yield dataclasses.replace(item, name=item.name.removeprefix(self._folder))

    def modified(self, names: Sequence[str]) -> list[float | None]:
        return super().modified([self._folder + name for name in names])

    def is_empty(self) -> bool:
        return next(self.list(""), None) is None

    def open_input(self, name: str, size_bytes: int | None) -> pa.NativeFile:
        return super().open_input(self._folder + name, size_bytes)


class PlacedStorage(Storage):
    """Storage of one actor, which finds others of it."""

    def __init__(self, url: str, backend: StoreBackend, place_of: Callable[[str], Storage | None]) -> None:
        super().__init__(url)
        self._backend = backend
        self._place_of = place_of

    def elsewhere(self, url: str, more: Mapping[str, Any] | None = None) -> Storage:
        return self._place_of(url) or super().elsewhere(url, more)


def storage_of(
    store: Store, requests: Requests, *, disk: bool, place_of: Callable[[str], Storage | None]
) -> Storage:
    """Return a `Storage` over the store for one actor. `place_of` returns those at other URLs that it has."""
    return PlacedStorage(URL, StoreBackend(store, requests, disk=disk), place_of)
