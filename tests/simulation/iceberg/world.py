"""The world of an Iceberg table: an actor has tblctl and PyIceberg, both with the same files and catalog."""

from __future__ import annotations

import contextlib
import datetime
import random
import uuid
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any
from unittest import mock

from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from simulation.iceberg.actors import ICEBERG_OPERATIONS
from simulation.iceberg.catalog import COMMIT, NAME, ROOT, Client, Server, name_of
from simulation.iceberg.faults import ICEBERG_FAULTS
from simulation.iceberg.files import Files
from simulation.iceberg.oracle import IcebergOracle
from simulation.iceberg.pointers import PROPERTIES as POINTER_PROPERTIES
from simulation.iceberg.pointers import PointerClient
from simulation.store import FolderBackend
from simulation.world import Actor, InlinePool, World
from tblctl.tableformat.iceberg.catalog import TableLoader
from tblctl.tableformat.iceberg.location import IcebergLocation
from tblctl.tableformat.iceberg.port import IcebergPort
from tblctl.tableformat.storage import Storage

if TYPE_CHECKING:
    from simulation.history import History

PROPERTIES = {
    "write.target-file-size-bytes": "3000",
    "commit.manifest.min-count-to-merge": "4",
    "commit.manifest-merge.enabled": "true",
}
_FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "k", LongType()),
    NestedField(3, "x", DoubleType()),
    NestedField(4, "s", StringType()),
    NestedField(5, "n", IntegerType()),
)


class _Storage(Storage):
    """The storage of data files, for whichever actor's turn it is."""

    world: IcebergWorld

    def __init__(self, url: str, options: Any = None) -> None:
        super().__init__(url, options)
        folder = f"{url}/".removeprefix(ROOT)
        self._backend = FolderBackend(self.world.store, self.world.acting, folder)

    def elsewhere(self, url: str, more: Any = None) -> Storage:
        return type(self)(url)


class IcebergActor(Actor):
    """An actor with `port`, tblctl's way to the table, and `engine`, another engine's connection to the catalog."""

    world: IcebergWorld
    planned_key: str | None = None

    def start_process(self) -> None:
        world = self.world
        self.is_dead = False
        self._failing = 0
        self._flipping = None
        client = PointerClient if world.has_pointers else Client
        ours = client(world.server, world.store, self, retries=True)
        self.engine = client(world.server, world.store, self, retries=False)
        location = IcebergLocation(catalog="lake", table=NAME)
        self.port = IcebergPort(TableLoader(location, {}, ours), self.env)

    def loaded(self) -> Table:
        """Return the table as an engine loads it."""
        return self.engine.load_table(NAME)


class IcebergWorld(World):
    """See the module. `hides_history`: the catalog shows the newest snapshot alone, as Nessie does.

    Traits: the catalog `hides` history, `trims` its log, `reorders` its snapshots, or has `pointers` to metadata files;
    the table is `strict`: it merges no manifests, and commits are tried twice.
    """

    actor_class = IcebergActor
    oracle_class = IcebergOracle
    operations = ICEBERG_OPERATIONS
    faults = ICEBERG_FAULTS
    decisive = frozenset({COMMIT, "delete"})

    def __init__(self, history: History) -> None:
        self._names = random.Random(f"{history.seed} names")
        super().__init__(history)

    @cached_property
    def server(self) -> Server:
        """The catalog."""
        return Server(self._shown, self.oracle.committing, self.oracle.committed)

    @cached_property
    def files(self) -> Files:
        """The files of snapshots, for the oracle."""
        return Files(self.store)

    @property
    def hides_history(self) -> bool:
        return "hides" in self.history.traits

    @property
    def may_hide(self) -> bool:
        """Whether the catalog may look as if it did: a trimmed log, and one snapshot after the others expired."""
        return bool(self.history.traits & {"hides", "trims"})

    def run(self) -> None:
        with self._patched(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyIceberg's: deletes that find no rows
            clear_manifest_cache()
            super().run()

    @property
    def has_pointers(self) -> bool:
        """Whether the catalog keeps no metadata, but where it is."""
        return "pointers" in self.history.traits

    def create_table(self) -> None:
        self.server.metadata = self.new_metadata()
        self.keep_metadata(self.server.metadata, self.server.place, None)

    def keep_metadata(self, metadata: TableMetadata, place: str, by: IcebergActor | None) -> None:
        """Write the metadata of a new table, if the catalog keeps no metadata itself."""
        if self.has_pointers:
            self.store.write(name_of(place), metadata.model_dump_json().encode(), by)

    def new_metadata(self) -> TableMetadata:
        """Return the metadata of a new table."""
        properties = dict(PROPERTIES)
        if "strict" in self.history.traits:
            properties |= {"commit.manifest-merge.enabled": "false", "commit.retry.num-retries": "1"}
        if self.has_pointers:
            properties |= POINTER_PROPERTIES
        found = new_table_metadata(
            location=f"{ROOT}t",
            schema=Schema(*_FIELDS),
            partition_spec=_SPECS[self.history.cluster_by],
            sort_order=UNSORTED_SORT_ORDER,
            properties=properties,
        )
        return found.model_copy(update={"last_updated_ms": int(self.seconds * 1000)})

    def _shown(self, metadata: TableMetadata) -> TableMetadata:
        """Return what the catalog shows."""
        if "reorders" in self.history.traits:
            metadata = metadata.model_copy(update={"snapshots": metadata.snapshots[::-1]})
        if "trims" in self.history.traits:
            return metadata.model_copy(
                update={"metadata_log": [], "snapshot_log": metadata.snapshot_log[-1:]}
            )
        if not self.hides_history:
            return metadata
        head = metadata.current_snapshot()
        shown = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
        return metadata.model_copy(
            update={
                "metadata_log": [],
                "snapshot_log": metadata.snapshot_log[-1:],
                "snapshots": shown,
                "refs": {name: ref for name, ref in metadata.refs.items() if name == "main"},
                "properties": {**metadata.properties, "nessie.commit.id": "0"},
            }
        )

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """Have clocks, ids, threads and files of both sides from this world."""
        world = self

        class Clock(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
                return datetime.datetime.fromtimestamp(world.seconds, tz)

        def new_uuid() -> uuid.UUID:
            return uuid.UUID(int=world._names.getrandbits(128), version=4)

        storage = type("_Storage", (_Storage,), {"world": self})
        with contextlib.ExitStack() as opened:
            for name, value in {
                "functools.cached_property.__get__": _without_lock,
                "uuid.uuid4": new_uuid,
                "pyiceberg.table.snapshots.time": mock.Mock(time=lambda: world.seconds),
                "pyiceberg.table.update.datetime": Clock,
                "pyiceberg.utils.concurrent.ExecutorFactory.get_or_create": InlinePool,
                "tblctl.tableformat.iceberg.data_storage.Storage": storage,
            }.items():
                opened.enter_context(mock.patch(name, value))
            yield


def _without_lock(descriptor: Any, instance: Any, owner: Any = None) -> Any:
    """Get a cached property as Python 3.12 does: 3.11 holds a lock of all threads, which would outlast turns."""
    del owner
    if instance is None:
        return descriptor
    values, name = instance.__dict__, descriptor.attrname
    if name not in values:
        values[name] = descriptor.func(instance)
    return values[name]


_SPECS = {
    "": UNPARTITIONED_PARTITION_SPEC,
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "by_id")),
    "s": PartitionSpec(PartitionField(4, 1000, TruncateTransform(1), "by_s")),
}
"""Specs by `History.cluster_by`: an Iceberg table begins with partitions, and gets a key from a recluster."""
