"""A catalog, and the files of its table, in the simulated store. Each request to either is an actor's turn.

The catalog keeps metadata as values: a commit compares, applies and swaps in one step, as a REST catalog does.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata

from tblctl.tableformat.errors import StorageError

if TYPE_CHECKING:
    from simulation.iceberg.world import IcebergActor
    from simulation.store import Requests, Store

ROOT = "memory://simulation/"
"""In front of the names of all objects in the store."""

METADATA = ".metadata.json"
"""At the end of the names of metadata files."""

NAME = ("db", "t")
LOAD, COMMIT = "load", "commit"
"""Requests to the catalog, as `Requests.around` sees them."""

_RETRIES = "commit.retry.num-retries"


class Server:
    """What the catalog stores, and what it shows of it.

    Args:
        shows: turns metadata into what clients see.
        committing: called before a commit takes effect, with the metadata before and after, and whose it is.
        committed: called after it.
    """

    def __init__(
        self,
        shows: Callable[[TableMetadata], TableMetadata],
        committing: Callable[[TableMetadata, TableMetadata, Any], None],
        committed: Callable[[], None],
    ) -> None:
        self._shows = shows
        self._committing = committing
        self._committed = committed
        self._count = 0
        self.place = self.new_place()
        self.metadata: TableMetadata

    def new_place(self) -> str:
        """Return a place for metadata that was never used."""
        self._count += 1
        return f"{ROOT}t/metadata/{self._count:05d}{METADATA}"

    def shown(self) -> TableMetadata:
        return self._shows(self.metadata)

    def swap(self, metadata: TableMetadata, by: Any, place: str) -> None:
        """Replace the metadata, whatever it was."""
        self._committing(self.metadata, metadata, by)
        self.metadata = metadata
        self.place = place
        self._committed()

    def commit(self, requirements: Any, updates: Any, by: Any) -> CommitTableResponse | Exception:
        """Commit, and return the answer to the client: an error if others were faster."""
        try:
            for requirement in requirements:
                requirement.validate(self.metadata)
            found = update_table_metadata(self.metadata, updates, metadata_location=self.place)
        except CommitFailedException as error:
            return error
        except ValueError as error:  # such as a sequence number that a commit to another branch has taken
            return CommitFailedException(str(error))
        if found != self.metadata:
            self.swap(found, by, self.new_place())
        return CommitTableResponse(metadata=self.shown(), metadata_location=self.place)


class Client(NoopCatalog):
    """An actor's connection to the catalog.

    Args:
        server: of the catalog.
        store: holds the files.
        requests: the actor.
        retries: PyIceberg tries commits again as the table says; else never: what an actor does is one commit.
    """

    def __init__(self, server: Server, store: Store, requests: IcebergActor, *, retries: bool) -> None:
        super().__init__("lake")
        self._server = server
        self._requests = requests
        self._retries = retries
        self._seen: tuple[set[str], int] = set(), -1  # at which call which branches and tags were seen
        self.files = StoreIO(store, requests)

    def load_table(self, identifier: Any) -> Table:
        metadata, place = self._current()
        self._seen = set(metadata.refs), self._requests.calls
        if not self._retries:
            properties = {**metadata.properties, _RETRIES: "0"}
            metadata = metadata.model_copy(update={"properties": properties})
        return Table(NAME, metadata, place, self.files, self)

    def _current(self) -> tuple[TableMetadata, str]:
        """Return the newest metadata, and where it is."""
        found: tuple[TableMetadata, str] = self._ask(LOAD, lambda: (self._server.shown(), self._server.place))
        return found

    def _commit(self, requirements: Any, updates: Any) -> Callable[[], CommitTableResponse | Exception]:
        """Return the request that commits, after what comes before it."""
        return lambda: self._server.commit(requirements, updates, self._requests)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        landed = False
        refs, call = self._seen
        if self._requests.run is not None:
            self._requests.run.notes["refs"] = refs if call == self._requests.calls else None
        request = self._commit(requirements, updates)

        def commit() -> CommitTableResponse | Exception:
            nonlocal landed
            found = request()
            landed |= not isinstance(found, Exception)
            return found

        found = self._ask(COMMIT, commit)
        if isinstance(found, Exception):
            if landed and not self._retries:
                # PyIceberg without retries believes the answer, and deletes what it wrote
                raise CommitStateUnknownException(str(found))
            raise found
        answer: CommitTableResponse = found
        return answer

    def _ask(self, operation: str, action: Callable[[], Any]) -> Any:
        try:
            return self._requests.around(operation, "catalog", action)
        except StorageError as error:
            raise ServiceUnavailableError(str(error)) from error


class StoreIO(FileIO):
    """PyIceberg's access to files. A file is read and written whole, when it is opened and closed."""

    def __init__(self, store: Store, requests: Requests) -> None:
        super().__init__({})
        self.store = store
        self.requests = requests

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = name_of(location if isinstance(location, str) else location.location)
        self.ask("delete", name, lambda: self.store.delete(name, self.requests))

    def ask(self, operation: str, name: str, action: Callable[[], Any]) -> Any:
        try:
            return self.requests.around(operation, name, action)
        except StorageError as error:
            raise OSError(str(error)) from error

    def read(self, location: str) -> bytes:
        name = name_of(location)

        def found() -> bytes:
            if name not in self.store.objects:
                raise FileNotFoundError(name)
            return self.store.objects[name].data

        data: bytes = self.ask("read", name, found)
        return data


class _Input(InputFile):
    def __init__(self, location: str, files: StoreIO) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._files.read(self.location))

    def exists(self) -> bool:
        name = name_of(self.location)
        return bool(self._files.ask("look for", name, lambda: name in self._files.store.objects))

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._files.read(self.location))


class _Output(OutputFile):
    def __init__(self, location: str, files: StoreIO) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(name_of(self.location), self._files)


class _Stream:
    """A file that is written. It is there once it is closed, and not if that fails."""

    def __init__(self, name: str, files: StoreIO) -> None:
        self._name = name
        self._files = files
        self._data = bytearray()
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        self.closed = True

    def write(self, data: Any) -> int:
        self._data += data
        return len(data)

    def tell(self) -> int:
        return len(self._data)

    def flush(self) -> None: ...

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            store, data = self._files.store, bytes(self._data)
            self._files.ask("write", self._name, lambda: store.write(self._name, data, self._files.requests))


def name_of(location: str) -> str:
    """Return the name in the store of what lies at a URI."""
    assert location.startswith(ROOT), location
    return location.removeprefix(ROOT)
