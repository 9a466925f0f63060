"""One snapshot of an Iceberg table behind the port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import (
    CorruptTableError,
    InternalError,
    InvalidKeyError,
    InvalidOptionError,
    InvalidSchemaError,
)
from tblctl.tableformat.iceberg.avro.container import AvroError
from tblctl.tableformat.iceberg.curves import Curves, is_kept, properties_of
from tblctl.tableformat.iceberg.deletes import (
    PATH_COLUMN,
    DeleteFiles,
    PartitionKey,
    deletions_of,
    partition_keys,
)
from tblctl.tableformat.iceberg.entries import DELETED, Decoded, FileEntries
from tblctl.tableformat.iceberg.files import DataFiles, decode_manifests, parquet_files
from tblctl.tableformat.iceberg.key_bounds import key_bounds
from tblctl.tableformat.iceberg.location import SCHEME
from tblctl.tableformat.iceberg.metadata_files import MetadataFiles
from tblctl.tableformat.iceberg.options import EXPANSION, least_text_length, options_of
from tblctl.tableformat.iceberg.own_files import parse_name
from tblctl.tableformat.iceberg.own_index import OwnIndex
from tblctl.tableformat.iceberg.own_keys import side_files_of
from tblctl.tableformat.iceberg.partitions import (
    Partitions,
    constants_of,
    identity_values,
    partitions_of,
)
from tblctl.tableformat.iceberg.reading.column_check import primitive_ids
from tblctl.tableformat.iceberg.reading.data_file import DataFile
from tblctl.tableformat.iceberg.reading.null_counts import NullCounts
from tblctl.tableformat.iceberg.schema import claimed_sorts, schema_of, sort_by
from tblctl.tableformat.iceberg.table_key import CLUSTER_BY, NamedKey, kept_key_text, named_key
from tblctl.tableformat.keys.columns import KeyColumns
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import NO_SORT, Key, Sort, parse_key
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import NONE, BlockStatistics, Deletions
from tblctl.tableformat.once import once
from tblctl.tableformat.port import Listing

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from tblctl.tableformat.predicate.nodes import Node

EMPTY = "empty"
"""The id of the version of a table without snapshots."""


def branches_of(metadata: TableMetadata) -> dict[str, int]:
    """Return the ids of branches' newest snapshots by name, without tags."""
    return {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"}


class IcebergVersion:
    """`tblctl.tableformat.port.Version` of a snapshot. Keeps metadata that was read."""

    def __init__(
        self,
        location: str,
        metadata: TableMetadata,
        snapshot: Snapshot | None,
        metadata_files: MetadataFiles,
        *,
        curves: Curves,
        cluster_by: str | Sequence[str] | None = None,
        schemas: dict[int, Schema] | None = None,
        refine: bool = False,
        within: Node | None = None,
    ) -> None:
        self._location = location
        self._refine = refine
        self._metadata_files = metadata_files
        self._cluster_by = cluster_by
        self._curves = curves
        self._schemas = {} if schemas is None else schemas
        self._filled: set[int] = set()
        self._within = within
        self.metadata = metadata
        self.snapshot = snapshot

    def clustered_by(self, terms: str | Sequence[str]) -> IcebergVersion:
        """Return the version with another cluster key, to measure and plan by."""
        return self._like(self.snapshot, terms, curves=self._curves.apart())

    def at(self, snapshot: Snapshot | None) -> IcebergVersion:
        """Return the version of another snapshot of the table, by the same cluster key."""
        return self._like(snapshot, self._cluster_by)

    def pruned(self, condition: BooleanExpression | None) -> IcebergVersion:
        """Return the version without partitions in which no row can satisfy the condition.

        Manifests of data files that can have no other are not read. Those of delete files are, once they are asked for.
        """
        from tblctl.tableformat.predicate.nodes import node_of

        if condition is None or all(spec.is_unpartitioned() for spec in self.metadata.specs().values()):
            return self
        found = self._like(self.snapshot, self._cluster_by, within=node_of(condition, self.schema))
        found.manifests, found.unpruned = self.manifests, self.unpruned
        return found

    @once
    def unpruned(self) -> IcebergVersion:
        """The version with all partitions."""
        return self

    @property
    def is_pruned(self) -> bool:
        """Whether partitions were left out."""
        every = self.unpruned.data_manifests
        return self._within is not None and (len(self.data_manifests) < len(every) or self.files.left_out > 0)

    def _like(
        self,
        snapshot: Snapshot | None,
        cluster_by: str | Sequence[str] | None,
        *,
        within: Node | None = None,
        curves: Curves | None = None,
    ) -> IcebergVersion:
        return IcebergVersion(
            self._location,
            self.metadata,
            snapshot,
            self._metadata_files,
            curves=curves or self._curves,
            cluster_by=cluster_by,
            schemas=self._schemas,
            refine=self._refine,
            within=within,
        )

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The terms of the cluster key; empty without one."""
        key = self._named.key
        return key.texts(self.schema) if key else ()

    @property
    def property_terms(self) -> str | None:
        """The cluster key that the table's property names; None if it is not set."""
        return self.metadata.properties.get(CLUSTER_BY)

    def new_properties(self, sorts: Sequence[Sort]) -> dict[str, str]:
        """Return the properties that a commit sets: the key, if one was given, and boundaries of it and of `sorts`."""
        wanted = {} if self._cluster_by is None else {CLUSTER_BY: ", ".join(self.cluster_by)}
        for sort in (*self.sorts.values(), *sorts):
            wanted |= properties_of(sort)
        return {name: text for name, text in wanted.items() if self.metadata.properties.get(name) != text}

    @property
    def io_properties(self) -> dict[str, str]:
        """The properties of the table's FileIO, secrets included."""
        return self._metadata_files.io_properties

    @property
    def data_folder(self) -> str:
        """Where data files of the table go, unless its location provider says otherwise."""
        given = self.metadata.properties.get("write.data.path")
        return (given or f"{self.metadata.location.rstrip('/')}/data").rstrip("/")

    @property
    def metadata_folder(self) -> str:
        """Where manifests of the table go."""
        given = self.metadata.properties.get("write.metadata.path")
        return (given or f"{self.metadata.location.rstrip('/')}/metadata").rstrip("/")

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""
        return self._location

    @property
    def table_id(self) -> str:
        """The table's UUID."""
        return str(self.metadata.table_uuid)

    @property
    def id(self) -> str:
        """The snapshot's id, as text."""
        return EMPTY if self.snapshot is None else str(self.snapshot.snapshot_id)

    @property
    def parent(self) -> str | None:
        """The id of the parent snapshot, as text."""
        parent = self.snapshot and self.snapshot.parent_snapshot_id
        return None if parent is None else str(parent)

    @property
    def public_id(self) -> str:
        """The snapshot's id, as text: it has 63 bits, and numbers of JSON have 53."""
        return self.id

    @property
    def tags(self) -> Mapping[str, str]:
        """The ids of snapshots by tag or branch."""
        return {name: str(ref.snapshot_id) for name, ref in self.metadata.refs.items()}

    @once
    def schema(self) -> Schema:
        """The columns of a branch's newest snapshot: the table's current ones. Those of an older one: as they were."""
        return self._schema(self._schema_id)

    @property
    def _iceberg_schema(self) -> IcebergSchema:
        return self.metadata.schema_by_id(self._schema_id) or self.metadata.schema()

    @property
    def _schema_id(self) -> int:
        id_ = self.metadata.current_schema_id
        snapshot = self.snapshot
        heads = {self.metadata.current_snapshot_id, *branches_of(self.metadata).values()}
        if snapshot is not None and snapshot.schema_id is not None and snapshot.snapshot_id not in heads:
            id_ = snapshot.schema_id
        return id_

    def _schema(self, id_: int) -> Schema:
        if id_ not in self._schemas:
            found = self.metadata.schema_by_id(id_) or self.metadata.schema()
            try:
                self._schemas[id_] = schema_of(found)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"{self._location}: schema {id_}: {error}") from error
        return self._schemas[id_]

    @property
    def uuid_ids(self) -> frozenset[int]:
        """The ids of the fields that are UUIDs, nested ones too."""
        from pyiceberg.schema import index_by_id
        from pyiceberg.types import UUIDType

        fields = index_by_id(self.metadata.schema())
        return frozenset(id_ for id_, field in fields.items() if isinstance(field.field_type, UUIDType))

    @property
    def cluster_hint(self) -> str:
        """How a table gets a cluster key, for errors."""
        return (
            f"give the table a sort order, in Spark: `ALTER TABLE {self._sql_name} WRITE ORDERED BY a, b`; or name a "
            "key to recluster by: `tblctl recluster --cluster-by a,b`"
        )

    @property
    def _sql_name(self) -> str:
        return self._location.removeprefix(SCHEME).partition("/")[2].replace('"', "`")

    def kept_key(self, given: str | Sequence[str]) -> str:
        """Say that the cluster key is still this version's, not another one given; empty if it is that."""
        wanted = self.clustered_by(given)
        try:
            mine = ", ".join(self.cluster_by)
        except InvalidKeyError:
            mine = self.property_terms or ""
        terms = ", ".join(wanted.cluster_by)
        return "" if mine == terms else kept_key_text(mine, terms, self._sql_name)

    @once
    def _named(self) -> NamedKey:
        current = self._schema(self.metadata.current_schema_id)
        return named_key(self._location, self.metadata, self.schema, current, self._cluster_by)

    @once
    def sort(self) -> Sort | None:
        """The cluster key; see `named_key`. The boundaries of a curve that the table does not keep are made from rows.

        Raises:
            InvalidKeyError: the key is not valid; or a curve was given, and there are no rows to make boundaries from.
        """
        key = self._named.key
        how = {"renews": self._named.renews, "needs_rows": self._cluster_by is not None}
        return None if key is None else self._sort_of(key, **how)

    def _sort_of(self, key: Key, **how: bool) -> Sort:
        return self._curves.sort(key, self.unpruned, **how) if key.is_layout else sort_by(key.terms)

    @property
    def sorts(self) -> Mapping[int, Sort]:
        """The cluster key by its id; none if the property that names it is wrong."""
        try:
            return {} if self.sort is None else {self.sort.id: self.sort}
        except InvalidKeyError:
            return {}

    @property
    def next_sort_id(self) -> int:
        """An id that the table's sort does not have."""
        return 1 if self.sort is None else self.sort.id + 1

    def sort_by(self, terms: str, *, reads_rows: bool = True) -> Sort:
        """Return the sort by some terms; its id follows from it. Refused where a cluster key was given, too."""
        if self._cluster_by is not None:
            msg = f"cluster_by and sort columns ({terms:.200}) exclude each other: rows have one order only"
            raise InvalidOptionError(msg)
        key = parse_key(terms, self.schema)
        return self._sort_of(key, renews=key.tree is not None, reads_rows=reads_rows)

    def may_add(self, sort: Sort) -> bool:
        """Return whether the cluster key has another id. No table keeps other sorts."""
        return sort.id not in self.sorts

    def can_keep(self, sort: Sort) -> bool:
        """Return whether files may be in the order of a sort: others find it by its id, and the table's properties."""
        return sort.id in self.sorts or is_kept(sort, self.metadata.properties, self.schema)

    def deletions(self) -> Deletions:
        """Return which position deletes apply to each file; reads the manifests of deletes. See `deletions_of`."""
        return deletions_of(self.files.entries, self._partition_keys, self.deletes)

    @once
    def options(self) -> TableOptions:
        """How files are written, from the table's properties."""
        return options_of(self.metadata.properties, lambda: self.files.row_bytes)

    @once
    def manifests(self) -> tuple[ManifestFile, ...]:
        """The snapshot's manifests."""
        return () if self.snapshot is None else self._metadata_files.manifests(self.snapshot.manifest_list)

    @once
    def data_manifests(self) -> tuple[ManifestFile, ...]:
        """Those of data files, as far as this version has these. `FileEntries.manifest` are places in it."""
        from tblctl.tableformat.iceberg.pruning import has_live, matching_manifests

        data = tuple(manifest for manifest in self.manifests if manifest.content == 0 and has_live(manifest))
        if self._within is None:
            return data
        return matching_manifests(self._within, data, self.metadata.specs(), self._iceberg_schema)

    @once
    def files(self) -> DataFiles:
        """The snapshot's live data files."""
        length = least_text_length(self.metadata.properties)
        read = self._metadata_files.contents
        return DataFiles(
            self._location,
            self.data_manifests,
            read,
            text_length=length,
            kept=None if self._within is None else partial(self._are_within, self._within),
            footers=(
                partial(self._metadata_files.footers, null_if_absent=self._null_if_absent)
                if self._refine
                else None
            ),
        )

    @property
    def _null_if_absent(self) -> frozenset[int]:
        """The columns, by id, that are null in files without them: without a default (format 3), in no partition."""
        if self.metadata.format_version > 2:  # noqa: PLR2004
            return frozenset()
        given = {
            field.source_id
            for spec in self.metadata.specs().values()
            for field in spec.fields
            if str(field.transform) == "identity"
        }
        return frozenset(leaf.id for leaf in self.schema.leaves) - given

    @once
    def deletes(self) -> DeleteFiles:
        """The snapshot's live delete files."""
        manifests = [manifest for manifest in self.manifests if manifest.content != 0]
        return self.delete_files_in(manifests)

    def entries_in(self, manifests: Sequence[ManifestFile]) -> FileEntries:
        """Return the entries of some manifests of the table, in order, those of files that left among them."""
        return decode_manifests(self._location, manifests, self._metadata_files.contents).entries

    def contents_of(self, paths: Sequence[str]) -> list[bytes]:
        """Return the bytes of some manifests, or manifest lists, of the table."""
        return self._metadata_files.contents(paths)

    def of(self, metadata: TableMetadata, snapshot: Snapshot | None) -> IcebergVersion:
        """Return the version of a snapshot in newer metadata of the table."""
        return IcebergVersion(
            self._location,
            metadata,
            snapshot,
            self._metadata_files,
            curves=self._curves,
            cluster_by=self._cluster_by,
            refine=self._refine,
        )

    def delete_files_in(self, manifests: Sequence[ManifestFile]) -> DeleteFiles:
        """Return the live delete files that some manifests of the table name."""
        decoded = decode_manifests(self._location, manifests, self._metadata_files.contents, [PATH_COLUMN])
        rows = np.flatnonzero(decoded.entries.status != DELETED)
        entries = decoded.entries.take(rows)
        partitions = self._partitions(entries, decoded.layouts)
        return DeleteFiles.of(entries, partitions, decoded.columns[PATH_COLUMN].take(rows))

    def _fetch(self, leaves: Sequence[Leaf]) -> None:
        """Decode the statistics of columns. Columns that files are partitioned by have the partition's value."""
        self.files.fetch(leaves)
        for leaf in leaves:
            if leaf.id not in self._filled:
                self._filled.add(leaf.id)
                found = identity_values(leaf, self.partitions, self.metadata.specs())
                if found is not None:
                    self.files.fill(leaf, *found)

    def _are_within(self, node: Node, entries: FileEntries, layouts: Sequence[Any]) -> np.ndarray:
        partitions = self._partitions(entries, layouts)
        kept: np.ndarray = self._matching_partitions(node, partitions)[partitions.code]
        return kept

    @once
    def partitions(self) -> Partitions:
        """The partition of each file."""
        return self._partitions(self.files.entries, self.files.layouts)

    def _partitions(self, entries: FileEntries, layouts: Sequence[Any]) -> Partitions:
        try:
            return partitions_of(
                entries,
                layouts,
                self.metadata.specs(),
                self.metadata.schema(),
                self.metadata.default_spec_id,
            )
        except AvroError as error:
            msg = f"{self._location}: partitions of its manifests cannot be read: {error.args[0]}"
            raise CorruptTableError(msg, name=self._location) from error

    def listing(
        self,
        sort: Sort,
        condition: BooleanExpression | None,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> Listing:
        """Return the blocks with their bounds by `sort`, from the bounds of columns. Decodes each manifest once."""
        from tblctl.tableformat.predicate.nodes import node_of, tests_of

        node = None if condition is None else node_of(condition, self.schema)
        files, schema = self.files, self.schema
        tested = [] if node is None else [test.leaf for test in tests_of(node)]
        self._fetch([*key_leaves(sort, schema), *tested])
        matched = None
        if node is not None:
            from tblctl.tableformat.predicate.match import match

            matched = np.asarray(match(node, files, schema).outcome != NONE)
            matched &= self._matching_partitions(node, self.partitions)[self.partitions.code]
        bounds = key_bounds(sort, files, schema, self.partitions, self.metadata.specs())
        found = KeyColumns.of(bounds, sort)
        if clustered:
            self._own.put(found, sort, self.options, beside=beside)
        entries = files.entries
        claimed = claimed_sorts(entries.sort_order_id, self.sorts, self.metadata.sort_orders, schema)
        sort_ids = self._own.orders(
            found, sort, claimed, [*self.sorts.values(), *([beside] if beside else [])]
        )
        return Listing(
            paths=entries.path,
            measured=(sort_ids == sort.id) | (sort_ids == NO_SORT),
            sort_id=sort_ids,
            stored_rows=entries.rows,
            size_bytes=entries.size_bytes,
            decoded_bytes=entries.size_bytes * EXPANSION,
            matched=matched,
            partition=self.partitions.code,
            partitions=self.partitions.texts,
            listed_twice=files.listed_twice,
            run=self._own.runs(sort.id) if runs else None,
            **vars(found),
        )

    @once
    def _own(self) -> OwnIndex:
        entries = self.files.entries
        return OwnIndex(
            entries,
            self.metadata.table_uuid.hex,
            self.schema,
            side_rows=lambda sort: self.side_rows(self.side_files(sort)),
            footers=lambda rows: self._metadata_files.own_keys(parquet_files(entries, rows)),
        )

    def side_files(self, sort: Sort) -> tuple[str, ...]:
        """Return the paths of the files in which keys by a sort were gathered; they may be missing."""
        return side_files_of(self.metadata, self.snapshot, sort)

    def content_of(self, path: str) -> bytes:
        """Return the bytes of a metadata file of the table."""
        return self._metadata_files.contents([path])[0]

    def side_rows(self, paths: Sequence[str]) -> list[pa.Table]:
        """Return the rows of files of keys, as far as these are there."""
        return self._metadata_files.side_files(paths)

    def _matching_partitions(self, node: Node, partitions: Partitions) -> np.ndarray:
        from tblctl.tableformat.iceberg.pruning import matching_partitions

        return matching_partitions(node, partitions, self.metadata.specs(), self._iceberg_schema)

    def statistics(self, leaves: Sequence[Leaf]) -> BlockStatistics:
        """Return statistics of columns in each block."""
        self._fetch(leaves)
        return self.files

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        """Return the blocks at `paths` that are in this version, by path."""
        entries = self.files.entries
        wanted = pc.is_in(entries.path, pa.array(list(paths), entries.path.type))
        rows = np.flatnonzero(wanted.to_numpy(zero_copy_only=False)).tolist()
        clusters = self._own.clusters(rows, self.sorts.values())
        found = (replace(self.block_at(row), cluster=clusters.get(row)) for row in rows)
        return {block.path: block for block in found}

    def block_at(self, row: int) -> DataFile:
        """Return the block of a place in the list of files, without its keys."""
        entries = self.files.entries
        size, path = int(entries.size_bytes[row]), entries.path[row].as_py()
        name = parse_name(path)
        return DataFile(
            path=path,
            sequence_number=int(entries.sequence_number[row]),
            row_count=int(entries.rows[row]),
            size_bytes=size,
            uncompressed_bytes=size * EXPANSION,
            decoded_bytes=size * EXPANSION,
            schema_id=0,
            run_id=None if name is None else name.run_id,
            cluster=None,
            partition=self.partitions.texts[int(self.partitions.code[row])],
        )

    def data_file(self, block: Block) -> DataFile:
        """Return a data file with what its manifest says of its columns."""
        if not isinstance(block, DataFile):
            raise InternalError(f"{block.path} is no data file of {self._location}")
        row = self._row_of(block.path)
        manifest = self.data_manifests[int(self.files.entries.manifest[row])]
        counts = self._null_counts
        return replace(
            block,
            null_counts=counts.of(manifest, block.path),
            stored_ids=counts.stored(manifest, block.path),
            constants=constants_of(self.partitions, row, self.metadata.specs(), self.schema),
        )

    @once
    def _null_counts(self) -> NullCounts:
        plain = [leaf.id for leaf in self.schema.leaves if not pa.types.is_nested(leaf.type)]
        inner = sorted(primitive_ids(self.schema.arrow) - set(plain))

        def decode(manifests: Sequence[ManifestFile], ids: Sequence[int]) -> Decoded:
            return decode_manifests(
                self._location, manifests, self._metadata_files.contents, ids, stored=True
            )

        return NullCounts(plain, inner, decode)

    def partition_key(self, path: str) -> PartitionKey:
        """Return what distinguishes the partition of a data file from all others."""
        return self._partition_keys[self._row_of(path)]

    @once
    def _partition_keys(self) -> list[PartitionKey]:
        return partition_keys(self.partitions)

    @once
    def _rows(self) -> dict[str, int]:
        return {path: row for row, path in enumerate(self.files.entries.path.to_pylist())}

    def _row_of(self, path: str) -> int:
        return self._rows[path]

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        """Return whether the block's rows are in the order of `sort`: of other writers' files it is not known."""
        return block.cluster is not None and block.cluster.cluster_key_id == sort.id
